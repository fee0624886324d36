/* tests/load/load.c -- pointsman-load: asks a service that speaks OpenAI's API, and measures.
 *
 *   workload.c  what is asked          client.c  how it is sent and read
 *   load.c      when, and to whom      report.c  what came of it
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/emulator/flags.h"
#include "tests/load/client.h"
#include "tests/load/report.h"
#include "tests/load/workload.h"

#define TARGETS_MAX 256
#define EVENTS_PER_TURN 512
#define SENDS_PER_TURN 256         /* so that answers are read while many requests start */
#define REFUSED_PAUSE_NS 10000000u /* after a request that got no answer, in closed loop */
#define SWEEP_NS 200000000u        /* how late a time-out may be noticed */

struct options {
	char *targets, *lb, *conn, *workload, *arrival, *prompt_form, *history, *model, *header;
	char *out, *json, *id_prefix;
	unsigned concurrency, requests, prompt_tokens, output_tokens, prefixes, prefix_tokens;
	unsigned suffix_tokens, turns, first_tokens, next_tokens;
	unsigned content_seed, arrival_seed, unique_seed;
	double rate, duration, warmup, time_scale, slo_ttft, zipf, timeout, idle_max;
	bool stream, drain, each_usage, allow_errors, quiet;
};

#define ROW(flag, type, field, value, doc) \
	{flag, FLAG_##type, offsetof(struct options, field), value, false, doc}

static const struct flag_row rows[] = {
	ROW("targets", STR, targets, "http://127.0.0.1:8000", "URLs, comma separated"),
	ROW("lb", STR, lb, "round-robin", "target of each request: random | round-robin"),
	ROW("conn", STR, conn, "per-request", "per-request | keepalive"),
	ROW("idle-max", REAL, idle_max, "4", "wall seconds a kept connection may idle"),
	ROW("concurrency", UINT, concurrency, "1", "closed loop: this many requests at once"),
	ROW("rate", REAL, rate, "0", "open loop instead: requests per second"),
	ROW("arrival", STR, arrival, "poisson", "open loop: constant | poisson"),
	ROW("requests", UINT, requests, "0", "stop after this many; 0: no limit"),
	ROW("duration", REAL, duration, "0", "stop sending after this long; 0: no limit"),
	ROW("warmup", REAL, warmup, "0", "requests due before are not in the summary"),
	ROW("drain", BOOL, drain, "1",
	    "wait for what is open at the end; 0: count it as incomplete"),
	ROW("time-scale", REAL, time_scale, "1", "virtual seconds per wall second"),
	ROW("timeout", REAL, timeout, "120", "wall seconds for one request"),

	ROW("workload", STR, workload, "shared", "control | shared | multiturn"),
	ROW("model", STR, model, "emulated", "model asked for"),
	ROW("prompt-form", STR, prompt_form, "text", "text (chat) | ids (completions)"),
	ROW("stream", BOOL, stream, "1", "streamed answers"),
	ROW("prompt-tokens", UINT, prompt_tokens, "16256", "control: of each prompt"),
	ROW("output-tokens", UINT, output_tokens, "-", "of each answer; -: 256, multiturn 200"),
	ROW("prefixes", UINT, prefixes, "24", "shared: how many there are"),
	ROW("prefix-tokens", UINT, prefix_tokens, "16000", "shared: length of each"),
	ROW("suffix-tokens", UINT, suffix_tokens, "256", "shared: new tokens of each prompt"),
	ROW("zipf", REAL, zipf, "0", "shared: exponent of their popularity; 0: all alike"),
	ROW("turns", UINT, turns, "8", "multiturn: of each conversation"),
	ROW("first-tokens", UINT, first_tokens, "8000", "multiturn: new tokens of the first turn"),
	ROW("next-tokens", UINT, next_tokens, "400", "multiturn: new tokens of each later turn"),
	ROW("history", STR, history, "real", "multiturn: answers in it: real | stripped"),
	ROW("continuous-usage", BOOL, each_usage, "0", "ask for usage in every chunk"),
	ROW("content-seed", UINT, content_seed, "42", "of the shared prefixes"),
	ROW("arrival-seed", UINT, arrival_seed, "1", "of arrivals, prefix order and targets"),
	ROW("unique-seed", UINT, unique_seed, "-", "of all new text; -: another each run"),
	ROW("id-prefix", STR, id_prefix, "", "of request ids; empty: another each run"),
	ROW("header", STR, header, "", "one more request header, 'Name: value'"),

	ROW("slo-ttft", REAL, slo_ttft, "8", "TTFT an answer must meet to count as good"),
	ROW("out", STR, out, "", "file for one JSON line per request"),
	ROW("json", STR, json, "", "file for the summary as JSON; -: standard output"),
	ROW("quiet", BOOL, quiet, "0", "no summary as text"),
	ROW("allow-errors", BOOL, allow_errors, "0", "exit 0 even if requests failed"),
};

static const struct flag_table table = {
	.row = rows,
	.rows = sizeof rows / sizeof rows[0],
	.usage = "pointsman-load: load for a service that speaks OpenAI's API.\n\n"
		 "usage: pointsman-load [--FLAG VALUE]...\n"
		 "Times are virtual seconds unless they say wall.  Exit: 0; 1 if a request failed\n"
		 "(unless --allow-errors); 2 if it could not run.\n",
};

struct run {
	struct options opt;
	struct client_target target[TARGETS_MAX];
	unsigned targets, next_target;
	bool random_target, poisson;
	char id_prefix[41];
	char header[256];
	struct workload *workload;
	struct client *client;
	struct report *report;
	FILE *out;
	int epoll_fd, timer_fd, signal_fd;
	uint64_t start_ns, pause_until_ns, rng;
	double due_s;          /* open loop: the next request */
	uint64_t issued;
	bool stopping;         /* nothing new is sent */
	bool hurried;          /* nor is what is open waited for */
	bool cutting;          /* what is open is being ended: incomplete, not wrong */
};

/* One open request. */
struct flight {
	struct run *run;
	struct ask *ask;
	double sched_s;        /* -1: when it was sent */
};

static uint64_t
mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Virtual seconds since the start; -1 for a time that never came. */
static double
virtual_s(const struct run *run, uint64_t ns)
{
	return ns != 0 ? ((double)ns - (double)run->start_ns) * 1e-9 * run->opt.time_scale : -1;
}

static double
unit(struct run *run)
{
	uint64_t z = run->rng += 0x9e3779b97f4a7c15u; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1p-53;
}

/* ---- one request ---- */

static void
on_done(void *arg, void *priv, const struct client_result *res)
{
	struct run *run = arg;
	struct flight *flight = priv;
	struct record rec = {
		.send_s = virtual_s(run, res->start_ns),
		.conn_s = virtual_s(run, res->conn_ns),
		.first_byte_s = virtual_s(run, res->first_byte_ns),
		.first_token_s = virtual_s(run, res->first_token_ns),
		.last_token_s = virtual_s(run, res->last_token_ns),
		.end_s = virtual_s(run, res->end_ns),
		.conv = flight->ask->conv,
		.turn = flight->ask->turn,
		.prefix_id = flight->ask->prefix_id,
		.prompt_tokens = res->prompt_tokens,
		.output_tokens = res->output_tokens,
		.cached_tokens = res->cached_tokens,
		.status = (uint16_t)res->status,
		.error = res->error,
		.ok = res->error == NULL,
		.incomplete = res->error != NULL && run->cutting,
	};

	rec.sched_s = flight->sched_s >= 0 ? flight->sched_s : rec.send_s;
	if (rec.ok && rec.first_token_s < 0) {
		rec.ok = false;
		rec.error = "answer without a token";
	}
	snprintf(rec.id, sizeof rec.id, "%s", flight->ask->id);
	rec.worker = report_worker(run->report, res->worker, strlen(res->worker));
	report_add(run->report, &rec);
	if (run->out != NULL)
		report_line(run->report, run->opt.workload, &rec, run->out);
	if (res->error != NULL && res->status == 0)
		run->pause_until_ns = res->end_ns + REFUSED_PAUSE_NS;
	workload_done(run->workload, &flight->ask, rec.ok, res->answer, res->answer_len_bytes);
	free(flight);
}

static void
on_sent(void *arg, void *priv)
{
	struct flight *flight = priv;

	(void)arg;
	workload_body_sent(flight->ask);
}

static void
issue(struct run *run, double sched_s)
{
	struct flight *flight = calloc(1, sizeof *flight);
	struct client_request req = {0};

	if (flight == NULL)
		abort();
	flight->run = run;
	flight->ask = workload_next(run->workload);
	flight->sched_s = sched_s;
	req.target_index = run->random_target ? (unsigned)(unit(run) * run->targets)
					      : run->next_target++ % run->targets;
	req.target = &run->target[req.target_index];
	req.path = flight->ask->path;
	req.id = flight->ask->id;
	req.headers = run->header;
	req.body = flight->ask->body;
	req.len_bytes = flight->ask->len_bytes;
	req.keep_answer = flight->ask->want_answer;
	req.priv = flight;
	run->issued++;
	client_send(run->client, &req);
}

/* ---- when ---- */

static void
advance_due(struct run *run)
{
	run->due_s += (run->poisson ? -log(1 - unit(run)) : 1) / run->opt.rate;
}

static bool
over(const struct run *run, double now_s)
{
	return run->stopping ||
	       (run->opt.requests > 0 && run->issued >= run->opt.requests) ||
	       (run->opt.duration > 0 && now_s >= run->opt.duration);
}

/* Send what is due.  Returns the wall time to look again at; 0: at once. */
static uint64_t
send_due(struct run *run)
{
	unsigned sent = 0;

	for (;;) {
		uint64_t now_ns = mono_ns();
		double now_s = virtual_s(run, now_ns);

		if (run->opt.rate > 0) {
			if (over(run, run->due_s) || over(run, now_s))
				return UINT64_MAX;
			if (run->due_s > now_s)
				return run->start_ns +
				       (uint64_t)ceil(run->due_s / run->opt.time_scale * 1e9);
		} else {
			if (over(run, now_s))
				return UINT64_MAX;
			if (client_open(run->client) >= run->opt.concurrency)
				return run->opt.duration > 0
					? run->start_ns + (uint64_t)(run->opt.duration /
						run->opt.time_scale * 1e9) + 1 : UINT64_MAX;
			if (now_ns < run->pause_until_ns)
				return run->pause_until_ns;
		}
		if (sent++ == SENDS_PER_TURN)
			return 0;
		issue(run, run->opt.rate > 0 ? run->due_s : -1);
		if (run->opt.rate > 0)
			advance_due(run);
	}
}

static void
arm(const struct run *run, uint64_t due_ns)
{
	uint64_t sweep_ns = mono_ns() + SWEEP_NS;
	struct itimerspec spec = {0};

	if (due_ns > sweep_ns)
		due_ns = sweep_ns;
	spec.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
	spec.it_value.tv_nsec = (long)(due_ns % 1000000000u);
	timerfd_settime(run->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void
loop(struct run *run)
{
	struct epoll_event ev[EVENTS_PER_TURN];

	for (;;) {
		uint64_t due_ns = send_due(run);
		int n;

		if (over(run, virtual_s(run, mono_ns()))) {
			if (!run->opt.drain || run->hurried) {
				run->cutting = true;
				client_stop(run->client, "unfinished at the end");
			}
			if (client_open(run->client) == 0)
				break;
		}
		if (due_ns != 0)
			arm(run, due_ns);
		n = epoll_wait(run->epoll_fd, ev, EVENTS_PER_TURN, due_ns == 0 ? 0 : -1);
		for (int i = 0; i < n; i++) {
			uint64_t fired;

			if (ev[i].data.ptr == &run->timer_fd) {
				if (read(run->timer_fd, &fired, sizeof fired) < 0)
					continue;
			} else if (ev[i].data.ptr == &run->signal_fd) {
				struct signalfd_siginfo info;

				if (read(run->signal_fd, &info, sizeof info) < 0)
					continue;
				run->hurried = run->stopping;
				run->stopping = true;
			} else {
				client_event(run->client, ev[i].data.ptr, ev[i].events);
			}
		}
		client_sweep(run->client, mono_ns());
	}
}

/* ---- life ---- */

static int
open_targets(struct run *run, char why[static 256])
{
	char *rest = run->opt.targets, *url;

	while ((url = strsep(&rest, ",")) != NULL) {
		const char *bad;

		if (*url == '\0')
			continue;
		if (run->targets == TARGETS_MAX) {
			snprintf(why, 256, "--targets: at most %d", TARGETS_MAX);
			return -EINVAL;
		}
		if (client_parse_target(url, &run->target[run->targets], &bad) < 0) {
			snprintf(why, 256, "--targets: '%.100s': %s", url, bad);
			return -EINVAL;
		}
		run->targets++;
	}
	if (run->targets == 0)
		snprintf(why, 256, "--targets: none given");
	return run->targets > 0 ? 0 : -EINVAL;
}

static int
open_workload(struct run *run, char why[static 256])
{
	static const char *const kinds[] = {"control", "shared", "multiturn", NULL};
	static const char *const forms[] = {"text", "ids", NULL};
	static const char *const histories[] = {"real", "stripped", NULL};
	const struct options *opt = &run->opt;
	int kind = flags_one_of("workload", opt->workload, kinds, why);
	int form = flags_one_of("prompt-form", opt->prompt_form, forms, why);
	int history = flags_one_of("history", opt->history, histories, why);
	struct workload_config cfg = {
		.stream = opt->stream,
		.each_usage = opt->each_usage,
		.prompt_tokens = opt->prompt_tokens,
		.output_tokens = opt->output_tokens,
		.prefixes = opt->prefixes,
		.prefix_tokens = opt->prefix_tokens,
		.suffix_tokens = opt->suffix_tokens,
		.turns = opt->turns,
		.first_tokens = opt->first_tokens,
		.next_tokens = opt->next_tokens,
		.zipf = opt->zipf,
		.content_seed = opt->content_seed,
		.arrival_seed = opt->arrival_seed,
		.unique_seed = opt->unique_seed != FLAGS_UINT_UNSET ? opt->unique_seed : mono_ns(),
		.model = opt->model,
		.id_prefix = run->id_prefix,
	};

	if (kind < 0 || form < 0 || history < 0)
		return -EINVAL;
	if (opt->output_tokens == FLAGS_UINT_UNSET)
		cfg.output_tokens = kind == WORKLOAD_MULTITURN ? 200 : 256;
	cfg.kind = (enum workload_kind)kind;
	cfg.ids = form == 1;
	cfg.history_real = history == 0;
	if (opt->output_tokens == 0 || opt->prefixes == 0 || opt->turns == 0) {
		snprintf(why, 256, "--output-tokens, --prefixes and --turns must be at least 1");
		return -EINVAL;
	}
	if (opt->id_prefix[0] != '\0')
		snprintf(run->id_prefix, sizeof run->id_prefix, "%.40s", opt->id_prefix);
	else
		snprintf(run->id_prefix, sizeof run->id_prefix, "ld%llx-%x",
			 (unsigned long long)mono_ns(), (unsigned)getpid());
	run->workload = workload_new(&cfg);
	return 0;
}

static int
watch(struct run *run, int *fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = fd};

	return epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, *fd, &ev);
}

static int
open_client(struct run *run, char why[static 256])
{
	static const char *const conns[] = {"per-request", "keepalive", NULL};
	int conn = flags_one_of("conn", run->opt.conn, conns, why);
	struct client_config cfg = {
		.keep_alive = conn == 1,
		.targets = run->targets,
		.idle_max_ns = (uint64_t)(run->opt.idle_max * 1e9),
		.timeout_ns = (uint64_t)(run->opt.timeout * 1e9),
		.arg = run,
		.done = on_done,
		.on_sent = on_sent,
	};
	sigset_t set;

	if (conn < 0)
		return -EINVAL;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	run->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	run->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (run->epoll_fd < 0 || run->timer_fd < 0 || run->signal_fd < 0 ||
	    watch(run, &run->timer_fd) < 0 || watch(run, &run->signal_fd) < 0 ||
	    client_new(run->epoll_fd, &cfg, &run->client) < 0) {
		snprintf(why, 256, "%s", strerror(errno));
		return -errno;
	}
	return 0;
}

static int
open_run(struct run *run, char why[static 256])
{
	static const char *const lbs[] = {"round-robin", "random", NULL};
	static const char *const arrivals[] = {"constant", "poisson", NULL};
	const struct options *opt = &run->opt;
	int lb = flags_one_of("lb", opt->lb, lbs, why);
	int arrival = flags_one_of("arrival", opt->arrival, arrivals, why);

	if (lb < 0 || arrival < 0)
		return -EINVAL;
	run->random_target = lb == 1;
	run->poisson = arrival == 1;
	run->rng = opt->arrival_seed;
	if (opt->requests == 0 && opt->duration <= 0) {
		snprintf(why, 256, "give --requests or --duration: there must be an end");
		return -EINVAL;
	}
	if (opt->time_scale <= 0 || (opt->concurrency == 0 && opt->rate <= 0)) {
		snprintf(why, 256,
			 "--time-scale and one of --concurrency and --rate must be above 0");
		return -EINVAL;
	}
	if (opt->header[0] != '\0') {
		if (strlen(opt->header) > 200 || strpbrk(opt->header, "\r\n") != NULL) {
			snprintf(why, 256, "--header: one line of at most 200 bytes");
			return -EINVAL;
		}
		snprintf(run->header, sizeof run->header, "%s\r\n", opt->header);
	}
	if (open_targets(run, why) < 0 || open_workload(run, why) < 0 || open_client(run, why) < 0)
		return -EINVAL;
	run->report = report_new();
	if (opt->out[0] != '\0' && (run->out = fopen(opt->out, "we")) == NULL) {
		snprintf(why, 256, "--out: %s: %s", opt->out, strerror(errno));
		return -EINVAL;
	}
	return 0;
}

/* Wall time of time 0, so that others' logs can be laid beside the records. */
static double
started_wall_s(const struct run *run)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9 -
	       ((double)mono_ns() - (double)run->start_ns) * 1e-9;
}

static int
summarise(struct run *run)
{
	struct report_config cfg = {
		.warmup_s = run->opt.warmup,
		.window_end_s = run->opt.duration > 0 && !run->stopping &&
				(run->opt.requests == 0 || run->issued < run->opt.requests)
				? run->opt.duration : INFINITY,
		.slo_ttft_s = run->opt.slo_ttft,
		.workload = run->opt.workload,
		.started_s = started_wall_s(run),
	};
	FILE *json = NULL;
	int r;

	if (strcmp(run->opt.json, "-") == 0)
		json = stdout;
	else if (run->opt.json[0] != '\0' && (json = fopen(run->opt.json, "we")) == NULL) {
		fprintf(stderr, "pointsman-load: --json: %s: %s\n", run->opt.json, strerror(errno));
		return 2;
	}
	r = report_summary(run->report, &cfg, run->opt.quiet ? NULL : stdout, json);
	if (json != NULL && json != stdout)
		fclose(json);
	if (r < 0)
		return 2;
	return report_errors(run->report) > 0 && !run->opt.allow_errors ? 1 : 0;
}

static void
close_run(struct run *run)
{
	client_free(&run->client);
	workload_free(&run->workload);
	report_free(&run->report);
	if (run->out != NULL)
		fclose(run->out);
	flags_free(&table, &run->opt);
}

int
main(int argc, char **argv)
{
	struct run *run = calloc(1, sizeof *run);
	struct rlimit files;
	char why[256] = "";
	int r;

	if (run == NULL)
		return 2;
	flags_default(&table, &run->opt);
	r = flags_parse(&table, &run->opt, argc, argv, why);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (r == 0)
		r = open_run(run, why);
	if (r < 0) {
		fprintf(stderr, "pointsman-load: %s\n", why);
		r = 2;
	} else if (r == 1) {
		r = 0;
	} else {
		run->start_ns = mono_ns();
		if (run->opt.rate > 0)
			advance_due(run);
		loop(run);
		r = summarise(run);
	}
	close_run(run);
	free(run);
	return r;
}
