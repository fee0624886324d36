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
#include "tests/emulator/native.h"

#define STEPS_PER_TURN 256 /* engine steps between two looks at the sockets */
#define EVENTS_PER_TURN 256
#define HEARTBEAT_NS 1000000000u
#define PORT_TRIES 100     /* for neighbouring ports of ranks */

/* Things the loop waits for, beside the server's. */
struct watch {
	int epoll_fd, timer_fd, signal_fd, replay;
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
publish(struct rank *rank, const struct engine_events *events, enum publisher_fault fault)
{
	msgpack_sbuffer payload;

	msgpack_sbuffer_init(&payload);
	kv_encode(&rank->kv, unix_s(), events, &payload);
	publisher_send(rank->pub, payload.data, payload.size, fault);
	msgpack_sbuffer_destroy(&payload);
	rank->said_ns = rank->emu->now_ns;
}

static enum publisher_fault
draw_fault(struct emulator *emu)
{
	const struct options *opt = &emu->opt;

	if (opt->drop_events > 0 && emulator_unit(emu) < opt->drop_events) {
		emu->events_dropped++;
		return PUBLISHER_DROPS;
	}
	if (opt->dup_events > 0 && emulator_unit(emu) < opt->dup_events)
		return PUBLISHER_TWICE;
	if (opt->reorder_events > 0 && emulator_unit(emu) < opt->reorder_events)
		return PUBLISHER_LATE;
	return PUBLISHER_SENDS;
}

static void
on_events(void *arg, double now_s, const struct engine_events *events)
{
	struct rank *rank = arg;
	unsigned gap_at = rank->emu->opt.gap_at;

	(void)now_s;
	if (rank->pub == NULL)
		return;
	if (gap_at > 0 && publisher_next_seq(rank->pub) == gap_at)
		publisher_gap(rank->pub, 1);
	publish(rank, events, draw_fault(rank->emu));
}

/* Empty batches of who has an id and said nothing for a second. */
static void
heartbeats(struct emulator *emu, uint64_t *due_ns)
{
	for (unsigned i = 0; i < emu->ranks; i++) {
		struct rank *rank = &emu->rank[i];

		if (rank->pub == NULL || !emu->opt.kv_publisher_id)
			continue;
		if (emu->now_ns >= rank->said_ns + HEARTBEAT_NS)
			publish(rank, &(struct engine_events){0}, PUBLISHER_SENDS);
		if (rank->said_ns + HEARTBEAT_NS < *due_ns)
			*due_ns = rank->said_ns + HEARTBEAT_NS;
	}
}

static void
on_step(void *arg, double now_s, const struct engine_step *step)
{
	struct rank *rank = arg;

	(void)now_s;
	exposition_step(&rank->x, step);
}

bool
emulator_clear(struct emulator *emu, bool offload_too)
{
	bool all = true;

	for (unsigned i = 0; i < emu->ranks; i++)
		all &= worker_clear_cache(emu->rank[i].worker, emu->now_s, offload_too,
					  emu->opt.clear_at_once);
	return all;
}

void
emulator_halt(struct emulator *emu, unsigned sleep_level, bool paused)
{
	emu->sleep_level = sleep_level;
	emu->paused = paused;
	for (unsigned i = 0; i < emu->ranks; i++)
		worker_pause(emu->rank[i].worker, emu->now_s, paused || sleep_level > 0);
}

unsigned
emulator_lora(const struct emulator *emu, const char *name, size_t len_bytes)
{
	for (unsigned i = 0; i < emu->loras; i++)
		if (strlen(emu->lora[i]) == len_bytes && memcmp(emu->lora[i], name, len_bytes) == 0)
			return i + 1;
	return 0;
}

/* ---- requests ---- */

/* Text as a string; else its bytes one by one. */
static json_t *
text_or_bytes(struct slice s)
{
	json_t *as_text = json_stringn(s.len > 0 ? s.p : "", s.len), *bytes;

	if (as_text != NULL)
		return as_text;
	bytes = json_array();
	for (size_t i = 0; i < s.len; i++)
		json_array_append_new(bytes, json_integer((unsigned char)s.p[i]));
	return bytes;
}

/* All that a client sent, for who asks what left the house. */
static void
sink_put(FILE *sink, const struct http1_request *http, struct slice body)
{
	json_t *headers = json_array(), *line;
	char *text;

	for (unsigned i = 0; i < http->head.n_headers; i++)
		json_array_append_new(headers, json_pack("[o, o]",
			text_or_bytes(http->head.headers[i].name),
			text_or_bytes(http->head.headers[i].value)));
	line = json_pack("{s:o, s:o, s:o, s:o}", "method", text_or_bytes(http->method_name), "path",
			 text_or_bytes(http->path), "headers", headers, "body",
			 text_or_bytes(body));
	text = json_dumps(line, JSON_COMPACT);
	json_decref(line);
	if (text == NULL)
		abort();        /* a sink that missed something proves nothing */
	fprintf(sink, "%s\n", text);
	free(text);
}

static void
on_request(void *arg, struct http_conn *conn, const struct http1_request *http, const char *body,
	   size_t len_bytes)
{
	struct emulator *emu = arg;

	if (emu->sink != NULL && (http->path.len < 5 || memcmp(http->path.p, "/emu/", 5) != 0))
		sink_put(emu->sink, http, (struct slice){body, len_bytes});
	/* /v1/models is our own page, whoever else has that path. */
	if (slice_eq_str(http->path, "/v1/models") ||
	    !routes_request(emu, conn, http, body, len_bytes))
		admin_request(emu, conn, http, body, len_bytes);
}

static void
on_closed(void *arg, struct http_conn *conn)
{
	api_closed(arg, conn);
}

/* ---- restart ---- */

/* What distinguishes this process from the one before. */
static void
new_identity(struct rank *rank)
{
	struct emulator *emu = rank->emu;

	if (strcmp(emu->opt.hash_seed, "random") == 0)
		snprintf(rank->hash_seed, sizeof rank->hash_seed, "%llu-%llu-%u",
			 (unsigned long long)mono_ns(), (unsigned long long)getpid(), rank->number);
	else
		snprintf(rank->hash_seed, sizeof rank->hash_seed, "%s", emu->opt.hash_seed);
	for (unsigned i = 0; i < sizeof rank->publisher_id; i++)
		rank->publisher_id[i] = (uint8_t)(emulator_unit(emu) * 256);
}

void
emulator_restart(struct emulator *emu, bool keeps_seq, bool reconnects)
{
	emu->restart_pending = true;
	emu->restart_keeps_seq = keeps_seq;
	emu->restart_reconnects = reconnects;
}

static int
restart(struct emulator *emu, const char **why)
{
	unsigned port = http_server_port(emu->http);
	int r = 0;

	emu->restart_pending = false;
	emu->restarts++;
	api_forget_all(emu);
	/* the calls are gone: closing their connections must not look for them */
	http_server_shut(emu->http);
	http_server_flush(emu->http);
	emulator_halt(emu, 0, false);
	emu->draining = emu->drained = false;
	http_server_close_each(emu->http, emu->opt.connection_close);
	for (unsigned i = 0; i < emu->ranks && r == 0; i++) {
		struct rank *rank = &emu->rank[i];

		new_identity(rank);
		worker_restart(rank->worker, emu->now_s, rank->hash_seed);
		rank->x = (struct exposition){.start_time_s = unix_s()};
		if (rank->pub != NULL)
			r = publisher_restart(rank->pub, emu->restart_keeps_seq,
					      emu->restart_reconnects, why);
	}
	if (r < 0)
		return r;
	free(emu->page);
	emu->page = NULL;
	emu->listen_at_ns = emu->now_ns + (uint64_t)(emu->opt.startup_delay * 1e9);
	return http_server_bind(emu->http, emu->opt.host, port, why);
}

static void
say_ready(const struct emulator *emu)
{
	const struct publisher *pub = emu->rank[0].pub;

	dprintf((int)emu->opt.ready_fd, "ready host=%s port=%u kv=%s kv_replay=%s\n", emu->opt.host,
		http_server_port(emu->http), pub != NULL ? publisher_endpoint(pub) : "",
		pub != NULL ? publisher_replay_endpoint(pub) : "");
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

/* A port of the system's choice is ours only once we listen: another may have been faster. */
static int
start_listening(struct emulator *emu, const char **why)
{
	int r = http_server_listen(emu->http);

	for (unsigned i = 0; i < PORT_TRIES && r == -EADDRINUSE && emu->opt.port == 0 &&
	     emu->restarts == 0; i++) {
		http_server_refuse(emu->http);
		r = http_server_bind(emu->http, emu->opt.host, 0, why);
		if (r == 0)
			r = http_server_listen(emu->http);
	}
	if (r < 0)
		*why = strerror(-r);
	return r;
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
	heartbeats(emu, due_ns);
	if (emu->draining && !emu->drained && api_open(emu) == 0) {
		emu->drained = true;
		http_server_refuse(emu->http);
	}
	if (r == 0 && emu->listen_at_ns != 0) {
		if (emu->now_ns >= emu->listen_at_ns) {
			emu->listen_at_ns = 0;
			r = start_listening(emu, why);
			if (r == 0)
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
		for (unsigned i = 0; i < emu->ranks; i++) {
			t = wall_ns(emu, worker_next_s(emu->rank[i].worker));
			due_ns = t < due_ns ? t : due_ns;
		}
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
			} else if (ev[i].data.ptr != &watch->replay) {
				http_server_event(emu->http, ev[i].data.ptr, ev[i].events,
						  emu->now_ns);
			}
		}
		more = false;
		for (unsigned i = 0; i < emu->ranks; i++) {
			more |= worker_advance(emu->rank[i].worker, emu->now_s, STEPS_PER_TURN);
			if (emu->rank[i].pub != NULL)
				publisher_replay(emu->rank[i].pub);
		}
		if (emu->log != NULL)
			fflush(emu->log);
		if (emu->sink != NULL)
			fflush(emu->sink);
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

/* Neighbouring ports are found below those that the system hands out, where clients' ends lie. */
#define NEIGHBOURS_FROM 10000u
#define NEIGHBOURS_TO 32000u

/* A first rank's endpoint: a port of * becomes one whose neighbours may be free. */
static void
first_endpoint(const struct emulator *emu, const char *given, char out[static 256])
{
	size_t len = strlen(given);
	uint64_t drawn = (mono_ns() ^ (uint64_t)getpid() << 32) * 0x9e3779b97f4a7c15u >> 33;

	if (emu->ranks > 1 && len > 2 && strcmp(given + len - 2, ":*") == 0)
		snprintf(out, 256, "%.*s%u", (int)len - 1, given, NEIGHBOURS_FROM +
			 (unsigned)(drawn % (NEIGHBOURS_TO - NEIGHBOURS_FROM)));
	else
		snprintf(out, 256, "%.250s", given);
}

/* Where a rank publishes: so many ports after the base. */
static void
rank_endpoint(const char *base, unsigned number, char out[static 256])
{
	const char *colon = strrchr(base, ':');
	unsigned port;

	if (number > 0 && colon != NULL && strncmp(base, "tcp://", 6) == 0 &&
	    sscanf(colon + 1, "%5u", &port) == 1)
		snprintf(out, 256, "%.*s:%u", (int)(colon - base), base, port + number);
	else if (number > 0 && strchr(base, '*') == NULL)
		snprintf(out, 256, "%.240s_dp%u", base, number);
	else
		snprintf(out, 256, "%.250s", base);
}

static int
open_publishers(struct emulator *emu, const char **why)
{
	const struct options *opt = &emu->opt;
	int r = 0;

	for (unsigned i = 0; i < emu->ranks && r == 0; i++) {
		char base[256], endpoint[256], replay[256] = "";
		const struct publisher *first = emu->rank[0].pub;
		struct publisher_config cfg = {
			.endpoint = endpoint,
			.replay_endpoint = replay,
			.topic = opt->kv_topic,
			.buffer_steps = opt->kv_buffer_steps,
			.connects = opt->kv_connect,
			.replay_topic = emu->gen.replay_topic,
		};

		first_endpoint(emu, opt->kv_endpoint, base);
		rank_endpoint(i > 0 ? publisher_endpoint(first) : base,
			      i > 0 ? i : opt->data_parallel_rank, endpoint);
		first_endpoint(emu, opt->kv_replay_endpoint, base);
		if (base[0] != '\0')
			rank_endpoint(i > 0 ? publisher_replay_endpoint(first) : base,
				      i > 0 ? i : opt->data_parallel_rank, replay);
		r = publisher_open(&cfg, &emu->rank[i].pub, why);
		if (r == 0)
			publisher_replay_faults(emu->rank[i].pub, opt->replay_drop_every,
						opt->replay_no_end);
	}
	return r;
}

static void
close_publishers(struct emulator *emu)
{
	for (unsigned i = 0; i < emu->ranks; i++)
		publisher_close(&emu->rank[i].pub);
}

static void
open_rank(struct emulator *emu, struct rank *rank)
{
	struct worker_sink sink = {.arg = rank, .on_token = api_token, .on_events = on_events,
				   .on_step = on_step};

	rank->kv = (struct kv_encode_config){
		.shape = emu->gen.shape,
		.hashes = emu->gen.hashes,
		.algo = emu->cfg.engine.hash,
		.tier_bytes = emu->gen.tier_bytes,
		.tier_block_size = emu->gen.tier_block_size,
		.self_describing = emu->opt.offload_self_describing,
		.block_tokens = emu->cfg.engine.block_tokens,
		.rank = rank->number,
		.lora = emu->lora,
		.publisher_id = emu->opt.kv_publisher_id ? rank->publisher_id : NULL,
	};
	memcpy(rank->kv.group, emu->group, sizeof rank->kv.group);
	rank->x.start_time_s = unix_s();
	new_identity(rank);
	emu->cfg.engine.hash_seed = rank->hash_seed;
	rank->worker = worker_new(&emu->cfg, &sink);
}

/* path "": none. */
static int
open_log(const char *path, FILE **ret, const char **why)
{
	if (path[0] == '\0')
		return 0;
	*ret = fopen(path, "ae");
	if (*ret == NULL) {
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
	int r = watch_open(watch, why);

	if (r == 0)
		r = open_log(emu->opt.request_log, &emu->log, why);
	if (r == 0)
		r = open_log(emu->opt.body_log, &emu->sink, why);
	if (r == 0)
		r = http_server_new(watch->epoll_fd, &handler, emu->opt.keep_alive_s, &emu->http);
	if (r == 0)
		r = http_server_bind(emu->http, emu->opt.host, emu->opt.port, why);
	if (r == 0 && emu->opt.enable_kv_events) {
		bool any = strchr(emu->opt.kv_endpoint, '*') != NULL ||
			   strchr(emu->opt.kv_replay_endpoint, '*') != NULL;

		r = open_publishers(emu, why);
		/* what was drawn, or its neighbours, may be taken */
		for (unsigned i = 0; i < PORT_TRIES && r == -EADDRINUSE && emu->ranks > 1 && any;
		     i++) {
			close_publishers(emu);
			r = open_publishers(emu, why);
		}
	}
	for (unsigned i = 0; i < emu->ranks && r == 0; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &watch->replay};
		int fd = emu->rank[i].pub != NULL ? publisher_replay_fd(emu->rank[i].pub) : -1;

		if (fd >= 0)
			epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
		open_rank(emu, &emu->rank[i]);
	}
	return r;
}

static void
close_parts(struct emulator *emu, struct watch *watch)
{
	api_forget_all(emu);
	responses_forget(emu);
	http_server_free(&emu->http);
	for (unsigned i = 0; i < emu->ranks; i++)
		worker_free(&emu->rank[i].worker);
	close_publishers(emu);
	free(emu->rank);
	free(emu->lora_text);
	if (emu->log != NULL)
		fclose(emu->log);
	if (emu->sink != NULL)
		fclose(emu->sink);
	free(emu->page);
	free(emu->ids.slot);
	free(emu->scratch);
	close(watch->epoll_fd);
	close(watch->timer_fd);
	close(watch->signal_fd);
}

/* What follows from the options. */
static int
set_up(struct emulator *emu, char why[static 256])
{
	char *rest = NULL;

	if (options_generation(&emu->opt, &emu->gen, &emu->metrics_version, why) < 0 ||
	    options_groups(&emu->opt, &emu->cfg.engine, emu->group, why) < 0)
		return -EINVAL;
	emu->cfg.engine.bare_names = emu->gen.engine == ENGINE_SGLANG;
	emu->cfg.events_early = emu->gen.events_early;
	emu->rng = emu->opt.seed;
	emu->ranks = emu->opt.data_parallel_size;
	emu->rank = calloc(emu->ranks, sizeof *emu->rank);
	emu->lora_text = strdup(emu->opt.lora);
	if (emu->rank == NULL || emu->lora_text == NULL)
		abort();
	for (unsigned i = 0; i < emu->ranks; i++)
		emu->rank[i] = (struct rank){.emu = emu,
					     .number = emu->opt.data_parallel_rank + i};
	for (char *name = strtok_r(emu->lora_text, ",", &rest); name != NULL;
	     name = strtok_r(NULL, ",", &rest)) {
		if (emu->loras == LORAS_MAX) {
			snprintf(why, 256, "--lora: more than %d names", LORAS_MAX);
			return -EINVAL;
		}
		emu->lora[emu->loras++] = name;
	}
	return 0;
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

	if (r == 0 && (options_worker(&emu.opt, &emu.cfg, text) < 0 || set_up(&emu, text) < 0))
		r = -EINVAL;
	if (r != 0) {
		if (r < 0)
			fprintf(stderr, "pointsman-emulator: %s\n", text);
		options_free(&emu.opt);
		return r < 0 ? 2 : 0;
	}
	words_by_name(emu.opt.tokenizer, &emu.words);
	if (emu.opt.model_dir[0] != '\0' &&
	    native_open(emu.opt.model_dir, emu.opt.max_model_len, &emu.native, text) < 0) {
		fprintf(stderr, "pointsman-emulator: %s\n", text);
		options_free(&emu.opt);
		return 2;
	}
	options_fail_kind(&emu.opt, &emu.fail_kind);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	emu.epoch_ns = mono_ns();
	tick(&emu);
	emu.listen_at_ns = emu.now_ns + (uint64_t)(emu.opt.startup_delay * 1e9);
	r = open_parts(&emu, &watch, &why);
	if (r == 0)
		r = loop(&emu, &watch, &why);
	if (r < 0)
		fprintf(stderr, "pointsman-emulator: %s\n", why);
	close_parts(&emu, &watch);
	native_close(&emu.native);
	options_free(&emu.opt);
	return r < 0 ? 1 : 0;
}
