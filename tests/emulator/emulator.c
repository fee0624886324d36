/* tests/emulator/emulator.c -- pointsman-emulator: the loop around a worker; see emulator.h. */
#include "tests/emulator/emulator.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/emulator/kv_encode.h"

#define STEPS_PER_TURN 256 /* engine steps between two looks at the sockets */
#define EVENTS_PER_TURN 256

/* Things the loop waits for, beside the server's. */
struct watch {
	int epoll_fd, timer_fd, signal_fd, replay_fd;
	uint64_t armed_ns;
};

static uint64_t
mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double
unix_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void
tick(struct emulator *emu)
{
	emu->now_ns = mono_ns();
	emu->now_s = (double)(emu->now_ns - emu->epoch_ns) * 1e-9 * emu->opt.time_scale;
}

/* The wall time of a virtual one; UINT64_MAX for never. */
static uint64_t
wall_ns(const struct emulator *emu, double s)
{
	if (isinf(s))
		return UINT64_MAX;
	return emu->epoch_ns + (uint64_t)ceil(s / emu->opt.time_scale * 1e9);
}

double
emulator_unit(struct emulator *emu)
{
	uint64_t z = emu->rng += 0x9e3779b97f4a7c15u; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1p-53;
}

/* ---- events ---- */

static void
on_events(void *arg, double now_s, const struct engine_events *events)
{
	struct emulator *emu = arg;
	struct kv_encode_config cfg = {
		.as_map = strcmp(emu->opt.kv_format, "map") == 0,
		.int_hashes = strcmp(emu->opt.kv_hash_format, "int") == 0,
		.algo = emu->cfg.engine.hash,
		.block_tokens = emu->cfg.engine.block_tokens,
	};
	msgpack_sbuffer payload;
	bool drop, twice;

	(void)now_s;
	if (emu->pub == NULL)
		return;
	if (emu->opt.gap_at > 0 && publisher_next_seq(emu->pub) == emu->opt.gap_at)
		publisher_gap(emu->pub, 1);
	drop = emu->opt.drop_events > 0 && emulator_unit(emu) < emu->opt.drop_events;
	twice = emu->opt.dup_events > 0 && emulator_unit(emu) < emu->opt.dup_events;
	emu->events_dropped += drop;
	msgpack_sbuffer_init(&payload);
	kv_encode(&cfg, unix_s(), events, &payload);
	publisher_send(emu->pub, payload.data, payload.size, drop, twice);
	msgpack_sbuffer_destroy(&payload);
}

static void
on_step(void *arg, double now_s, const struct engine_step *step)
{
	struct emulator *emu = arg;

	(void)now_s;
	exposition_step(&emu->x, step);
}

/* ---- requests ---- */

static void
on_request(void *arg, struct http_conn *conn, const struct http1_request *http, const char *body,
	   size_t len_bytes)
{
	struct emulator *emu = arg;
	bool inference = slice_eq_str(http->path, "/v1/chat/completions") ||
			 slice_eq_str(http->path, "/v1/completions") ||
			 slice_eq_str(http->path, "/tokenize");

	if (inference && http->method == HTTP1_POST)
		api_request(emu, conn, http, body, len_bytes);
	else if (inference)
		api_error(conn, 405, "Method Not Allowed", NULL, "Method Not Allowed");
	else
		admin_request(emu, conn, http, body, len_bytes);
}

static void
on_closed(void *arg, struct http_conn *conn)
{
	api_closed(arg, conn);
}

/* ---- restart ---- */

static void
new_hash_seed(struct emulator *emu)
{
	if (strcmp(emu->opt.hash_seed, "random") == 0)
		snprintf(emu->hash_seed, sizeof emu->hash_seed, "%llu-%llu",
			 (unsigned long long)mono_ns(), (unsigned long long)getpid());
	else
		snprintf(emu->hash_seed, sizeof emu->hash_seed, "%s", emu->opt.hash_seed);
}

void
emulator_restart(struct emulator *emu)
{
	emu->restart_pending = true;
}

static int
restart(struct emulator *emu, const char **why)
{
	unsigned port = http_server_port(emu->http);

	emu->restart_pending = false;
	emu->restarts++;
	api_forget_all(emu);
	/* the calls are gone: closing their connections must not look for them */
	http_server_shut(emu->http);
	http_server_flush(emu->http);
	new_hash_seed(emu);
	worker_restart(emu->worker, emu->now_s, emu->hash_seed);
	if (emu->pub != NULL)
		publisher_restart(emu->pub);
	free(emu->page);
	emu->page = NULL;
	emu->x = (struct exposition){.start_time_s = unix_s()};
	emu->listen_at_ns = emu->now_ns + (uint64_t)(emu->opt.startup_delay * 1e9);
	return http_server_bind(emu->http, emu->opt.host, port, why);
}

static void
say_ready(const struct emulator *emu)
{
	dprintf((int)emu->opt.ready_fd, "ready host=%s port=%u kv=%s kv_replay=%s\n", emu->opt.host,
		http_server_port(emu->http), emu->pub != NULL ? publisher_endpoint(emu->pub) : "",
		emu->pub != NULL ? publisher_replay_endpoint(emu->pub) : "");
}

/* ---- the loop ---- */

static void
arm(struct watch *watch, uint64_t due_ns)
{
	struct itimerspec spec = {0};

	if (due_ns == watch->armed_ns)
		return;
	watch->armed_ns = due_ns;
	if (due_ns != UINT64_MAX) {
		if (due_ns == 0)
			due_ns = 1;
		spec.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
		spec.it_value.tv_nsec = (long)(due_ns % 1000000000u);
	}
	timerfd_settime(watch->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* Clock-driven things: restart by itself, listening after a delay. */
static int
housekeeping(struct emulator *emu, uint64_t *due_ns, const char **why)
{
	double restart_at = emu->opt.restart_at;
	int r = 0;

	if (restart_at > 0 && !emu->restarted_by_clock) {
		if (emu->now_s >= restart_at) {
			emu->restarted_by_clock = true;
			emu->restart_pending = true;
		} else if (wall_ns(emu, restart_at) < *due_ns) {
			*due_ns = wall_ns(emu, restart_at);
		}
	}
	if (emu->restart_pending)
		r = restart(emu, why);
	if (r == 0 && emu->listen_at_ns != 0) {
		if (emu->now_ns >= emu->listen_at_ns) {
			emu->listen_at_ns = 0;
			r = http_server_listen(emu->http);
			if (r < 0)
				*why = strerror(-r);
			else
				say_ready(emu);
		} else if (emu->listen_at_ns < *due_ns) {
			*due_ns = emu->listen_at_ns;
		}
	}
	return r;
}

static int
loop(struct emulator *emu, struct watch *watch, const char **why)
{
	struct epoll_event ev[EVENTS_PER_TURN];
	bool more = false;

	for (;;) {
		uint64_t due_ns, t;
		int n, r;

		tick(emu);
		due_ns = UINT64_MAX;
		r = housekeeping(emu, &due_ns, why);
		if (r < 0)
			return r;
		t = wall_ns(emu, worker_next_s(emu->worker));
		due_ns = t < due_ns ? t : due_ns;
		t = wall_ns(emu, api_due(emu));
		due_ns = t < due_ns ? t : due_ns;
		t = http_server_idle(emu->http, emu->now_ns);
		due_ns = t < due_ns ? t : due_ns;
		http_server_flush(emu->http);
		if (!more)
			arm(watch, due_ns);
		n = epoll_wait(watch->epoll_fd, ev, EVENTS_PER_TURN, more ? 0 : -1);
		tick(emu);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr == &watch->timer_fd) {
				uint64_t fired;

				if (read(watch->timer_fd, &fired, sizeof fired) > 0)
					watch->armed_ns = UINT64_MAX - 1;
			} else if (ev[i].data.ptr == &watch->signal_fd) {
				return 0;
			} else if (ev[i].data.ptr != &watch->replay_fd) {
				http_server_event(emu->http, ev[i].data.ptr, ev[i].events,
						  emu->now_ns);
			}
		}
		more = worker_advance(emu->worker, emu->now_s, STEPS_PER_TURN);
		if (emu->pub != NULL)
			publisher_replay(emu->pub);
		if (emu->log != NULL)
			fflush(emu->log);
		http_server_flush(emu->http);
	}
}

/* ---- life ---- */

static int
watch_add(struct watch *watch, int *fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};

	return epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, *fd, &ev);
}

static int
watch_open(struct watch *watch, const char **why)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL); /* before ZMQ's threads, which inherit it */
	signal(SIGPIPE, SIG_IGN);
	watch->armed_ns = UINT64_MAX;
	watch->replay_fd = -1;
	watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	watch->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	watch->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (watch->epoll_fd < 0 || watch->timer_fd < 0 || watch->signal_fd < 0 ||
	    watch_add(watch, &watch->timer_fd) < 0 || watch_add(watch, &watch->signal_fd) < 0) {
		*why = strerror(errno);
		return -1;
	}
	return 0;
}

static int
open_parts(struct emulator *emu, struct watch *watch, const char **why)
{
	struct http_handler handler = {.arg = emu, .on_request = on_request,
				       .on_closed = on_closed};
	struct worker_sink sink = {.arg = emu, .on_token = api_token, .on_events = on_events,
				   .on_step = on_step};
	struct publisher_config pub = {
		.endpoint = emu->opt.kv_endpoint,
		.replay_endpoint = emu->opt.kv_replay_endpoint,
		.topic = emu->opt.kv_topic,
		.buffer_steps = emu->opt.kv_buffer_steps,
	};
	int r = watch_open(watch, why);

	if (r == 0 && emu->opt.request_log[0] != '\0') {
		emu->log = fopen(emu->opt.request_log, "ae");
		if (emu->log == NULL) {
			*why = strerror(errno);
			r = -1;
		}
	}
	if (r == 0)
		r = http_server_new(watch->epoll_fd, &handler, emu->opt.keep_alive_s, &emu->http);
	if (r == 0)
		r = http_server_bind(emu->http, emu->opt.host, emu->opt.port, why);
	if (r == 0 && emu->opt.enable_kv_events)
		r = publisher_open(&pub, &emu->pub, why);
	if (r == 0 && emu->pub != NULL) {
		watch->replay_fd = publisher_replay_fd(emu->pub);
		if (watch->replay_fd >= 0)
			watch_add(watch, &watch->replay_fd);
	}
	if (r == 0) {
		new_hash_seed(emu);
		emu->cfg.engine.hash_seed = emu->hash_seed;
		emu->worker = worker_new(&emu->cfg, &sink);
	}
	return r;
}

static void
close_parts(struct emulator *emu, struct watch *watch)
{
	api_forget_all(emu);
	http_server_free(&emu->http);
	worker_free(&emu->worker);
	publisher_close(&emu->pub);
	if (emu->log != NULL)
		fclose(emu->log);
	free(emu->page);
	free(emu->ids.slot);
	free(emu->scratch);
	close(watch->epoll_fd);
	close(watch->timer_fd);
	close(watch->signal_fd);
}

int
main(int argc, char **argv)
{
	struct emulator emu = {0};
	struct watch watch = {0};
	struct rlimit files;
	char text[256] = "";
	const char *why = text;
	int r = options_parse(&emu.opt, argc, argv, text);

	if (r == 0 && options_worker(&emu.opt, &emu.cfg, text) < 0)
		r = -EINVAL;
	if (r != 0) {
		if (r < 0)
			fprintf(stderr, "pointsman-emulator: %s\n", text);
		options_free(&emu.opt);
		return r < 0 ? 2 : 0;
	}
	tokenizer_by_name(emu.opt.tokenizer, &emu.tokenizer);
	options_fail_kind(&emu.opt, &emu.fail_kind);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	emu.rng = emu.opt.seed;
	emu.epoch_ns = mono_ns();
	tick(&emu);
	emu.x.start_time_s = unix_s();
	emu.listen_at_ns = emu.now_ns + (uint64_t)(emu.opt.startup_delay * 1e9);
	r = open_parts(&emu, &watch, &why);
	if (r == 0)
		r = loop(&emu, &watch, &why);
	if (r < 0)
		fprintf(stderr, "pointsman-emulator: %s\n", why);
	close_parts(&emu, &watch);
	options_free(&emu.opt);
	return r < 0 ? 1 : 0;
}
