/* actors/common/actor.c -- birth, signals, loop and end of a process; see actor.h. */
#include "actors/common/actor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include "actors/common/background.h"

#define CONTROL_BYTES 65536u
#define DRAIN_DEFAULT_NS 10000000000ull /* on a signal without a deadline */

struct watch {
	zsock_t *sock;                          /* NULL: fd */
	int fd;                                 /* of a socket: ZMQ_FD */
	bool maybe;                             /* a socket that may have become readable unheard */
	pm_watch_f *f;
	void *arg;
};

struct pm_loop {
	struct watch *watch;
	unsigned n, cap;
	bool changed;
	bool stopping;
	int exit_code;
};

void
pm_policy_endpoint(char *buf, size_t cap, const char *run_dir, uint32_t index, uint32_t incarnation)
{
	snprintf(buf, cap, "ipc://%s/ingress/policy.%u.%u.sock", run_dir, index, incarnation);
}

void
pm_endpoint(char *buf, size_t cap, const char *run_dir, const char *name)
{
	snprintf(buf, cap, "ipc://%s/%s/%s.sock", run_dir, name, name);
}

void
pm_tap_endpoint(char *buf, size_t cap, const char *run_dir)
{
	snprintf(buf, cap, "ipc://%s/kvevents/tap.sock", run_dir);
}

void
pm_panic(struct process_segment *process, const char *file, int line, const char *text)
{
	if (process && process->head)
		snprintf(process->head->panic, sizeof process->head->panic, "%s:%d: %s", file, line,
			 text);
	log_error("panic %s:%d: %s", file, line, text);
	abort();
}

/* While there is one thread: Landlock binds only the one that asks and those it will start. */
static void
rights_enter(struct pm_actor *actor)
{
	const struct birth *b = &actor->birth;
	int r;

	if (!b->rights) {
		log_warn("rights: none is given up, as asked for by --protect");
		return;
	}
	r = pm_rights_enter(b->role, b->run_dir);
	if (r < 0)
		log_error("rights: files and other processes stay in reach, error=\"%s\"",
			  strerror(-r));
	else
		log_info("rights uid=%u gid=%u landlock=%d", getuid(), getgid(), r);
}

void
pm_actor_narrow(struct pm_actor *actor)
{
	int r = actor->birth.rights ? pm_filter_load(&actor->filter) : 0;

	if (r < 0)
		log_error("rights: every system call stays allowed, error=\"%s\"", strerror(-r));
	pm_filter_free(&actor->filter);
}

/* As `ps` shows it, whichever way it was executed. */
static void
name_process(const char *name)
{
	char title[16];

	snprintf(title, sizeof title, "pointsman-%s", name);
	prctl(PR_SET_NAME, title, 0, 0, 0);
}

int
pm_actor_begin(struct pm_actor *actor, const char *name)
{
	enum process_role role = process_role_parse(name);
	sigset_t mask;
	int r, fd;

	name_process(name);
	memset(actor, 0, sizeof *actor);
	actor->signal_fd = -1;
	actor->process.seg.fd = -1;
	/* CZMQ must not take the handlers.  What costs most of a start comes before birth: a
	 * process may be kept waiting there, so that its successor need not (supervisor/unborn.c).
	  */
	setenv("ZSYS_SIGHANDLER", "false", 1);
	signal(SIGPIPE, SIG_IGN);
	umask(0117);            /* sockets: for whose folder it is, and who may enter that */
	zsys_init();
	pm_filter_make(&actor->filter, role);   /* a failure is told when it is to be used */
	r = birth_take(&actor->birth);
	if (r == 0 && actor->birth.role != role)
		r = -EPROTO;
	if (r == -EPIPE)
		exit(0); /* never born and not needed any more: nothing to undo */
	if (r < 0) {
		fprintf(stderr, "%s is started by pointsman, not by hand (%s)\n", name,
			strerror(-r));
		return EXIT_INTERNAL;
	}
	/* Before the first ZMQ socket: its threads inherit the mask. */
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);               /* of a terminal: the supervisor's business */
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	sigdelset(&mask, SIGHUP);
	sigdelset(&mask, SIGINT);               /* ^C reaches the whole foreground group */
	actor->supervised = true;
	log_open(name, actor->birth.index, actor->birth.incarnation, actor->birth.generation,
		 (enum log_level)actor->birth.log_level);
	rights_enter(actor);
	actor->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	fd = birth_segment_fd(&actor->birth, SEGMENT_PROCESS, actor->birth.role,
			      actor->birth.incarnation, NULL);
	r = fd < 0 ? fd : process_attach(&actor->process, fd, true);
	if (r < 0 || actor->signal_fd < 0) {
		log_error("begin failed: own segment: %s", strerror(-r));
		birth_fail(&actor->birth, "", 0, 0, "own process segment missing or unreadable");
		pm_actor_end(actor);
		return EXIT_INTERNAL;
	}
	segment_claim(&actor->process.seg);
	process_describe(&actor->process);
	return 0;
}

void
pm_actor_end(struct pm_actor *actor)
{
	process_detach(&actor->process);
	if (actor->signal_fd >= 0)
		close(actor->signal_fd);
	actor->signal_fd = -1;
	birth_close(&actor->birth);
	pm_filter_free(&actor->filter);
}

void
pm_actor_heartbeat(struct pm_actor *actor, mono_ns now)
{
	atomic_store_explicit(&actor->process.seg.head->heartbeat_ns, now, memory_order_relaxed);
}

static void
watch_add(struct pm_actor *actor, struct watch w)
{
	struct pm_loop *loop = actor->loop;

	if (loop->n == loop->cap) {
		unsigned cap = loop->cap ? loop->cap * 2 : 16;
		struct watch *grown = realloc(loop->watch, cap * sizeof *grown);

		if (!grown)
			pm_panic(&actor->process, __FILE__, __LINE__, "out of memory");
		loop->watch = grown;
		loop->cap = cap;
	}
	loop->watch[loop->n++] = w;
	loop->changed = true;
}

static void
watch_drop(struct pm_actor *actor, zsock_t *sock, int fd)
{
	struct pm_loop *loop = actor->loop;

	for (unsigned i = 0; i < loop->n; i++)
		if (sock ? loop->watch[i].sock == sock
			 : !loop->watch[i].sock && loop->watch[i].fd == fd) {
			loop->watch[i] = loop->watch[--loop->n];
			loop->changed = true;
			return;
		}
}

void
pm_actor_watch_socket(struct pm_actor *actor, zsock_t *sock, pm_watch_f *f, void *arg)
{
	watch_add(actor, (struct watch){
		.sock = sock, .fd = zsock_fd(sock), .maybe = true, .f = f, .arg = arg});
}

void
pm_actor_watch_fd(struct pm_actor *actor, int fd, pm_watch_f *f, void *arg)
{
	watch_add(actor, (struct watch){.fd = fd, .f = f, .arg = arg});
}

void
pm_actor_unwatch_socket(struct pm_actor *actor, zsock_t *sock)
{
	watch_drop(actor, sock, -1);
}

void
pm_actor_unwatch_fd(struct pm_actor *actor, int fd)
{
	watch_drop(actor, NULL, fd);
}

void
pm_actor_stop(struct pm_actor *actor, int exit_code)
{
	actor->loop->stopping = true;
	actor->loop->exit_code = exit_code;
}

static void
drain(struct pm_actor *actor, const struct pm_actor_spec *spec, void *me, mono_ns deadline)
{
	if (spec->on_drain)
		spec->on_drain(me, deadline);
	else
		pm_actor_stop(actor, 0);
}

/* Everything the supervisor has said so far. */
static void
hear_supervisor(struct pm_actor *actor, const struct pm_actor_spec *spec, void *me)
{
	static char buf[CONTROL_BYTES];         /* one loop a process */

	while (!actor->loop->stopping) {
		struct msg m;
		int fd, r = birth_receive(&actor->birth, &m, buf, sizeof buf, &fd);

		if (r == 0)
			return;
		if (r == -EPIPE) {
			actor->supervised = false;
			close(actor->birth.fd);
			actor->birth.fd = -1;
			log_warn("supervisor gone; serving on until a successor ends us");
			return;
		}
		if (r < 0) {
			count_add(&actor->process, COUNTER_messages_unknown, 1);
			continue;
		}
		if (m.id == MSG_drain) {
			drain(actor, spec, me, m.u.drain.deadline);
		} else if (spec->on_message) {
			spec->on_message(me, &m, fd);
			fd = -1;
		}
		if (fd >= 0)
			close(fd);
	}
}

void
pm_actor_used(struct pm_actor *actor, zsock_t *sock)
{
	for (unsigned i = 0; actor->loop && i < actor->loop->n; i++)
		if (actor->loop->watch[i].sock == sock)
			actor->loop->watch[i].maybe = true;
}

static void
all_maybe(struct pm_loop *loop)
{
	for (unsigned i = 0; i < loop->n; i++)
		loop->watch[i].maybe = true;
}

/* Asked only of one that was woken or used: each look is two system calls, and there may be one
 * socket for each of many engines. */
static bool
readable(struct watch *w)
{
	w->maybe = w->maybe && (zsock_events(w->sock) & ZMQ_POLLIN);
	return w->maybe;
}

/* What is polled: the signals, the supervisor (perhaps gone), then each watch. */
static int
make_items(struct pm_actor *actor, struct pollfd **ret, unsigned *cap)
{
	struct pm_loop *loop = actor->loop;

	if (*cap < loop->n + 2) {
		struct pollfd *grown = realloc(*ret, (loop->n + 2) * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		*ret = grown;
		*cap = loop->n + 2;
	}
	(*ret)[0] = (struct pollfd){.fd = actor->signal_fd, .events = POLLIN};
	for (unsigned i = 0; i < loop->n; i++)
		(*ret)[i + 2] = (struct pollfd){.fd = loop->watch[i].fd, .events = POLLIN};
	return 0;
}

/* Waits for any; true: something is to be done. */
static bool
wait_for_any(struct pm_actor *actor, struct pollfd *item, mono_ns next_tick)
{
	struct pm_loop *loop = actor->loop;
	mono_ns now = clock_mono();
	int wait_ms = next_tick > now ? (int)((next_tick - now + 999999) / 1000000) : 0, r;

	/* A call on a socket may have taken the word that its descriptor would have said. */
	for (unsigned i = 0; i < loop->n; i++)
		if (loop->watch[i].sock && readable(&loop->watch[i]))
			wait_ms = 0;
	item[1] = (struct pollfd){.fd = actor->birth.fd, .events = POLLIN}; /* < 0: passed over */
	r = poll(item, loop->n + 2, wait_ms);
	if (r < 0 && errno != EINTR && errno != EAGAIN)
		pm_panic(&actor->process, __FILE__, __LINE__, strerror(errno));
	for (unsigned i = 0; r < 0 && i < loop->n + 2; i++)
		item[i].revents = 0;
	return r > 0 || wait_ms == 0;
}

/* Calls those that have something, until one changes what is watched. */
static void
call_watches(struct pm_actor *actor, const struct pollfd *item)
{
	struct pm_loop *loop = actor->loop;

	for (unsigned i = 0; i < loop->n && !loop->changed && !loop->stopping; i++) {
		struct watch *w = &loop->watch[i];

		if (w->sock) {
			w->maybe |= item[i + 2].revents != 0;
			if (readable(w))
				w->f(actor, w->arg);    /* it stays `maybe`: asked again */
		} else if (item[i + 2].revents) {
			w->f(actor, w->arg);
			all_maybe(loop);
		}
	}
}

static void
loop_run(struct pm_actor *actor, const struct pm_actor_spec *spec, void *me)
{
	struct pm_loop *loop = actor->loop;
	mono_ns tick_ns = (spec->tick_ms ? spec->tick_ms : 1000u) * 1000000ull;
	mono_ns next_tick = clock_mono() + tick_ns, now;
	struct pollfd *item = NULL;
	unsigned cap = 0;
	bool any;

	loop->changed = true;
	while (!loop->stopping) {
		if (loop->changed && make_items(actor, &item, &cap) < 0)
			pm_panic(&actor->process, __FILE__, __LINE__, "out of memory");
		loop->changed = false;
		any = wait_for_any(actor, item, next_tick);
		now = clock_mono();
		pm_actor_heartbeat(actor, now);
		if (any && item[0].revents) {
			struct signalfd_siginfo info;

			while (read(actor->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
				if (info.ssi_signo == SIGTERM)
					drain(actor, spec, me, now + DRAIN_DEFAULT_NS);
		}
		/* The supervisor first: a swap must be seen before the messages it is about. */
		if (any && item[1].revents) {
			hear_supervisor(actor, spec, me);
			all_maybe(loop);
		}
		if (any)
			call_watches(actor, item);
		if (now >= next_tick && !loop->stopping) {
			next_tick = now + tick_ns;
			if (spec->on_tick)
				spec->on_tick(me, now);
			all_maybe(loop);
		}
	}
	free(item);
}

int
pm_actor_main(int argc, char **argv, const struct pm_actor_spec *spec)
{
	struct pm_actor actor;
	struct pm_loop loop = {0};
	void *me = NULL;
	int r;

	(void)argc;
	(void)argv;
	r = pm_actor_begin(&actor, spec->name);
	if (r != 0)
		return r;
	actor.loop = &loop;
	pm_background(0, actor.birth.background);       /* whichever it was started as */
	r = spec->open(&actor, &me);
	if (r < 0) {
		log_error("open failed: %s", strerror(-r));
		loop.exit_code = r == -EINVAL ? EXIT_CONFIG : EXIT_INTERNAL;
	} else {
		struct msg_ready ready = {0};

		birth_drop_segments(&actor.birth);
		if (actor.birth.background)
			pm_background(0, false);
		pm_actor_narrow(&actor);
		birth_send(&actor.birth, MSG_ready, &ready);
		log_info("ready");
		loop_run(&actor, spec, me);
	}
	/* Nothing is owed any more.  What is left, giving memory back above all, takes longer than
	 * the rest of an end: nobody is to wait for it or feel it. */
	struct msg_bye bye = {0};
	if (loop.exit_code == 0)
		birth_send(&actor.birth, MSG_bye, &bye);
	log_info("ends code=%d", loop.exit_code);
	pm_background(0, true);
	if (me)
		spec->close(&me);
	free(loop.watch);
	pm_actor_end(&actor);
	return loop.exit_code;
}
