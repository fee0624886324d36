/* actors/common/actor.c -- birth, signals, loop and end of a process; see actor.h. */
#include "actors/common/actor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "actors/common/background.h"

#define CONTROL_BYTES 65536u
#define DRAIN_DEFAULT_NS 10000000000ull /* on a signal without a deadline */

struct watch {
	zsock_t *sock;                          /* NULL: fd */
	int fd;
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
	snprintf(buf, cap, "ipc://%s/policy.%u.%u.sock", run_dir, index, incarnation);
}

void
pm_endpoint(char *buf, size_t cap, const char *run_dir, const char *name)
{
	snprintf(buf, cap, "ipc://%s/%s.sock", run_dir, name);
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

int
pm_actor_begin(struct pm_actor *actor, const char *name)
{
	sigset_t mask;
	int r, fd;

	memset(actor, 0, sizeof *actor);
	actor->signal_fd = -1;
	actor->process.seg.fd = -1;
	/* CZMQ must not take the handlers.  What costs most of a start comes before birth: a
	 * process may be kept waiting there, so that its successor need not (supervisor/unborn.c).
	  */
	setenv("ZSYS_SIGHANDLER", "false", 1);
	signal(SIGPIPE, SIG_IGN);
	zsys_init();
	r = birth_take(&actor->birth);
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
	watch_add(actor, (struct watch){.sock = sock, .fd = -1, .f = f, .arg = arg});
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

static void
loop_run(struct pm_actor *actor, const struct pm_actor_spec *spec, void *me)
{
	struct pm_loop *loop = actor->loop;
	mono_ns tick_ns = (spec->tick_ms ? spec->tick_ms : 1000u) * 1000000ull;
	mono_ns next_tick = clock_mono() + tick_ns;
	zmq_pollitem_t *item = NULL;
	struct watch *current = NULL;
	unsigned n = 0;

	loop->changed = true;
	while (!loop->stopping) {
		if (loop->changed) {
			n = loop->n;
			free(item);
			free(current);
			item = calloc(n + 2, sizeof *item);
			current = calloc(n + 1, sizeof *current);
			if (!item || !current)
				pm_panic(&actor->process, __FILE__, __LINE__, "out of memory");
			if (n > 0)
				memcpy(current, loop->watch, n * sizeof *current);
			for (unsigned i = 0; i < n; i++) {
				item[i].socket =
					current[i].sock ? zsock_resolve(current[i].sock) : NULL;
				item[i].fd = current[i].fd;
				item[i].events = ZMQ_POLLIN;
			}
			loop->changed = false;
		}
		item[n].fd = actor->signal_fd;
		item[n].events = ZMQ_POLLIN;
		item[n + 1].fd = actor->birth.fd;
		item[n + 1].events = ZMQ_POLLIN;
		int used = (int)n + (actor->birth.fd >= 0 ? 2 : 1);

		mono_ns now = clock_mono();
		long wait_ms = next_tick > now ? (long)((next_tick - now + 999999) / 1000000) : 0;
		int r = zmq_poll(item, used, wait_ms);
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			pm_panic(&actor->process, __FILE__, __LINE__, strerror(errno));
		now = clock_mono();
		pm_actor_heartbeat(actor, now);

		if (r > 0 && (item[n].revents & ZMQ_POLLIN)) {
			struct signalfd_siginfo info;

			while (read(actor->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
				if (info.ssi_signo == SIGTERM)
					drain(actor, spec, me, now + DRAIN_DEFAULT_NS);
		}
		/* The supervisor first: a swap must be seen before the messages it is about. */
		if (r > 0 && used == (int)n + 2 && item[n + 1].revents)
			hear_supervisor(actor, spec, me);
		for (unsigned i = 0; r > 0 && i < n && !loop->changed && !loop->stopping; i++)
			if (item[i].revents)
				current[i].f(actor, current[i].arg);
		if (now >= next_tick && !loop->stopping) {
			next_tick = now + tick_ns;
			if (spec->on_tick)
				spec->on_tick(me, now);
		}
	}
	free(item);
	free(current);
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

		if (actor.birth.background)
			pm_background(0, false);
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
