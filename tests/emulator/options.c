/* tests/emulator/options.c -- see options.h. */
#include "tests/emulator/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/flags.h"
#include "tests/emulator/profile.h"
#include "tests/emulator/words.h"

#define ROW(flag, type, field, value, live, doc) \
	{flag, FLAG_##type, offsetof(struct options, field), value, live, doc}
#define LIVE true
#define FIXED false

static const struct flag_row rows[] = {
	ROW("engine", STR, engine, "vllm", FIXED, "vllm | sglang | trtllm"),
	ROW("version", STR, version, "0.31.0", FIXED,
	    "of it: what it does on the wire (generation.c); vllm 0.9.0 - 0.31"),
	ROW("frontend", STR, frontend, "python", FIXED,
	    "python | rust: /metrics in OpenMetrics, fewer routes"),
	ROW("host", STR, host, "127.0.0.1", FIXED, "IPv4 address to listen on, or unix:PATH"),
	ROW("port", UINT, port, "8000", FIXED, "port to listen on; 0: any, see the ready line"),
	ROW("model", STR, model, "emulated", FIXED, "model served"),
	ROW("served-model-name", STR, served_model_name, "", FIXED,
	    "other names of it, comma separated"),
	ROW("lora", STR, lora, "", FIXED, "adapters, comma separated; each is a model of its own"),
	ROW("data-parallel-size", UINT, data_parallel_size, "1", FIXED,
	    "ranks behind the port, each with an engine and the endpoints' port + rank"),
	ROW("data-parallel-rank", UINT, data_parallel_rank, "0", FIXED,
	    "number of the first of them, where each has a process of its own"),
	ROW("enable-prompt-tokens-details", BOOL, prompt_tokens_details, "1", FIXED,
	    "usage says cached_tokens"),
	ROW("max-model-len", UINT, max_model_len, "32768", FIXED, "tokens of prompt and output"),
	ROW("tokenizer", STR, tokenizer, "bytes4", FIXED, "bytes4 | ids: without a model"),
	ROW("model-dir", STR, model_dir, "", FIXED,
	    "a model's folder: its own tokens and template instead"),
	ROW("tokenize", BOOL, tokenize, "1", LIVE, "0: /tokenize is not there (404)"),
	ROW("time-scale", REAL, time_scale, "1", FIXED, "virtual seconds per wall second"),
	ROW("keep-alive", REAL, keep_alive_s, "5", FIXED, "wall seconds to keep idle connections"),
	ROW("stream-interval", UINT, stream_interval, "1", LIVE,
	    "tokens per SSE chunk (the first alone)"),
	ROW("mean-output", REAL, mean_output, "128", LIVE,
	    "mean output tokens without ignore_eos (geometric)"),
	ROW("seed", UINT, seed, "1", FIXED, "of lengths, texts, jitter and faults"),
	ROW("debug-headers", BOOL, debug_headers, "0", FIXED,
	    "answer head at the first token, with x-emu-cached-tokens, x-emu-queue-ms"),
	ROW("request-log", STR, request_log, "", FIXED,
	    "file for one line per request start and end"),
	ROW("body-log", STR, body_log, "", FIXED,
	    "file for one line per request of any route but /emu/: its head and body"),
	ROW("ready-fd", UINT, ready_fd, "1", FIXED, "where the ready line goes"),
	ROW("tokenize-delay", BOOL, tokenize_delay, "1", LIVE,
	    "/tokenize takes o-fix + o-tok per token, as requests do"),

	ROW("profile", STR, profile, "l40s-27b-fp8", FIXED,
	    "constants: l40s-27b-fp8 | zero | remote"),
	ROW("t-o", REAL, t_o, "-", LIVE, "launch time of a step"),
	ROW("t-w", REAL, t_w, "-", LIVE, "weight read of a step"),
	ROW("a", REAL, a, "-", LIVE, "compute per token"),
	ROW("q", REAL, q, "-", LIVE, "attention per prefill token and context token"),
	ROW("e", REAL, e, "-", LIVE, "KV read per context token of a decode"),
	ROW("d", REAL, d, "-", LIVE, "sampling per decode"),
	ROW("o-fix", REAL, o_fix, "-", LIVE, "from receipt to the engine, per request"),
	ROW("o-tok", REAL, o_tok, "-", LIVE, "from receipt to the engine, per prompt token"),
	ROW("visible", REAL, visible, "-", FIXED, "from the end of a step to the client"),
	ROW("jitter", REAL, jitter, "0", LIVE, "share by which steps vary, uniform"),
	ROW("slow-factor", REAL, slow_factor, "1", LIVE,
	    "all steps this much longer (a straggler)"),
	ROW("block-size", UINT, block_size, "-", FIXED, "tokens per KV block"),
	ROW("num-gpu-blocks", UINT, num_gpu_blocks, "-", FIXED, "KV blocks"),
	ROW("max-num-batched-tokens", UINT, max_num_batched_tokens, "-", FIXED, "tokens per step"),
	ROW("max-num-seqs", UINT, max_num_seqs, "-", FIXED, "requests running at once"),
	ROW("scheduling-policy", STR, scheduling_policy, "fcfs", FIXED, "fcfs | priority"),
	ROW("reserve-full-isl", BOOL, reserve_full_isl, "1", FIXED,
	    "admit only prompts that fit whole"),
	ROW("cache-output", BOOL, cache_output, "0", FIXED,
	    "blocks of generated tokens are cached too"),
	ROW("offload-blocks", UINT, offload_blocks, "0", FIXED, "blocks of a CPU tier; 0: none"),
	ROW("offload-self-describing", BOOL, offload_self_describing, "0", FIXED,
	    "its events have tokens"),
	ROW("kv-groups", STR, kv_groups, "", FIXED,
	    "further groups, as KIND:WINDOW:BLOCK,...; KIND sliding_window | mamba"),
	ROW("clear-at-once", BOOL, clear_at_once, "0", LIVE,
	    "AllBlocksCleared does not wait for the next step"),
	ROW("warmup", REAL, warmup, "0", FIXED, "how long the first steps are slower"),
	ROW("warmup-factor", REAL, warmup_factor, "5", FIXED, "the first of them so many times"),
	ROW("hash", STR, hash, "-", FIXED, "sha256_cbor | xxhash | fnv"),
	ROW("hash-seed", STR, hash_seed, "0", FIXED, "PYTHONHASHSEED; random: new at each restart"),

	ROW("enable-kv-events", BOOL, enable_kv_events, "1", FIXED, "publish KV events"),
	ROW("kv-endpoint", STR, kv_endpoint, "tcp://127.0.0.1:5557", FIXED,
	    "PUB, bound; port *: any"),
	ROW("kv-connect", BOOL, kv_connect, "0", FIXED,
	    "connect to kv-endpoint instead (vLLM: where the host is no wildcard)"),
	ROW("kv-publisher-id", BOOL, kv_publisher_id, "0", FIXED,
	    "batches carry an id of the process; empty ones each wall second when idle"),
	ROW("kv-replay-endpoint", STR, kv_replay_endpoint, "", FIXED, "ROUTER, bound; empty: none"),
	ROW("kv-topic", STR, kv_topic, "", FIXED, "first frame of each message"),
	ROW("kv-buffer-steps", UINT, kv_buffer_steps, "10000", FIXED, "batches kept for replay"),
	ROW("kv-replay-form", STR, kv_replay_form, "-", FIXED, "old | new (topic frame)"),
	ROW("kv-format", STR, kv_format, "-", FIXED, "map (as 0.26) | array (as 0.10.2)"),
	ROW("kv-hash-format", STR, kv_hash_format, "-", FIXED, "int | signed | bytes"),

	ROW("metrics-generation", STR, metrics_generation, "-", FIXED,
	    "vLLM's names as of now: new, as of 0.9: old"),
	ROW("metrics-fault", STR, metrics_fault, "none", LIVE,
	    "none | nan | inf | twice | help | huge | half | gzip | stall | 500 | html"),
	ROW("metrics-lag", REAL, metrics_lag, "0", LIVE, "how old /metrics may be"),

	ROW("fail-rate", REAL, fail_rate, "0", LIVE, "share of inference requests that fail"),
	ROW("fail-kind", STR, fail_kind, "500", LIVE,
	    "429 | 500 | 503 | reset | stall | truncate | event"),
	ROW("fail-at", UINT, fail_at, "0", LIVE,
	    "token after which reset, stall, truncate and event strike; 0: before the answer"),
	ROW("unhealthy", BOOL, unhealthy, "0", LIVE, "/health answers 503"),
	ROW("connection-close", BOOL, connection_close, "0", LIVE,
	    "each answer ends its connection"),
	ROW("startup-delay", REAL, startup_delay, "0", LIVE,
	    "wall seconds from start (or restart) to listening"),
	ROW("restart-at", REAL, restart_at, "0", FIXED, "when to restart by itself; 0: never"),
	ROW("drop-events", REAL, drop_events, "0", LIVE, "share of event batches lost"),
	ROW("dup-events", REAL, dup_events, "0", LIVE, "share of event batches sent twice"),
	ROW("reorder-events", REAL, reorder_events, "0", LIVE,
	    "share of event batches that come after the next one"),
	ROW("replay-drop-every", UINT, replay_drop_every, "0", LIVE,
	    "of a replay, every nth reply is lost; 0: none"),
	ROW("replay-no-end", BOOL, replay_no_end, "0", LIVE, "a replay has no end marker"),
	ROW("gap-at", UINT, gap_at, "0", FIXED, "sequence number to leave out; 0: none"),
};

static const struct flag_table table = {
	.row = rows,
	.rows = sizeof rows / sizeof rows[0],
	.usage = "pointsman-emulator: an engine as seen from outside, with the timing of a "
		 "model.\n\n"
		 "usage: pointsman-emulator [--FLAG VALUE]...\n"
		 "Times are virtual seconds unless they say wall.  '-': the profile's or the "
		 "version's.\n"
		 "*: can be changed live by POST /emu/config {\"FLAG\": VALUE}.\n",
};

static const char *const metrics_faults[] = {
	[METRICS_GOOD] = "none", [METRICS_NAN] = "nan", [METRICS_INF] = "inf",
	[METRICS_TWICE] = "twice", [METRICS_HELP_ONLY] = "help", [METRICS_HUGE] = "huge",
	[METRICS_HALF] = "half", [METRICS_GZIP] = "gzip", [METRICS_STALL] = "stall",
	[METRICS_500] = "500", [METRICS_HTML] = "html", NULL,
};

static int
check(const struct options *opt, char why[static 256])
{
	static const char *const policy[] = {"fcfs", "priority", NULL};
	static const char *const format[] = {"-", "map", "array", NULL};
	static const char *const hashes[] = {"-", "int", "signed", "bytes", NULL};
	static const char *const age[] = {"-", "new", "old", NULL};
	static const char *const frontend[] = {"python", "rust", NULL};
	struct engine_config engine = {.block_tokens = 1, .num_blocks = 1};
	struct kv_group_names names[1 + ENGINE_GROUPS_MAX];
	struct generation generation;
	unsigned version;
	enum fail_kind kind;
	enum words words;

	if (flags_one_of("scheduling-policy", opt->scheduling_policy, policy, why) < 0 ||
	    flags_one_of("kv-format", opt->kv_format, format, why) < 0 ||
	    flags_one_of("kv-hash-format", opt->kv_hash_format, hashes, why) < 0 ||
	    flags_one_of("kv-replay-form", opt->kv_replay_form, age, why) < 0 ||
	    flags_one_of("frontend", opt->frontend, frontend, why) < 0 ||
	    flags_one_of("metrics-fault", opt->metrics_fault, metrics_faults, why) < 0 ||
	    flags_one_of("metrics-generation", opt->metrics_generation, age, why) < 0 ||
	    options_generation(opt, &generation, &version, why) < 0 ||
	    options_groups(opt, &engine, names, why) < 0)
		return -EINVAL;
	if (options_fail_kind(opt, &kind) < 0)
		snprintf(why, 256, "--fail-kind: '%.80s' is not a choice; see --help",
			 opt->fail_kind);
	else if (words_by_name(opt->tokenizer, &words) < 0)
		snprintf(why, 256, "--tokenizer: '%.80s' is not bytes4 or ids", opt->tokenizer);
	else if (opt->time_scale <= 0)
		snprintf(why, 256, "--time-scale must be above 0");
	else if (opt->stream_interval == 0)
		snprintf(why, 256, "--stream-interval must be at least 1");
	else if (opt->data_parallel_size == 0 || opt->data_parallel_size > 64)
		snprintf(why, 256, "--data-parallel-size must be from 1 to 64");
	else if (opt->data_parallel_rank > 63)
		snprintf(why, 256, "--data-parallel-rank must be at most 63");
	else if (opt->kv_connect && strchr(opt->kv_endpoint, '*') != NULL)
		snprintf(why, 256, "--kv-connect needs an endpoint without *");
	else if (opt->port > 65535)
		snprintf(why, 256, "--port must be at most 65535");
	else if (opt->mean_output < 1)
		snprintf(why, 256, "--mean-output must be at least 1");
	else
		return 0;
	return -EINVAL;
}

int
options_parse(struct options *opt, int argc, char **argv, char why[static 256])
{
	int r;

	memset(opt, 0, sizeof *opt);
	flags_default(&table, opt);
	r = flags_parse(&table, opt, argc, argv, why);
	return r == 0 ? check(opt, why) : r;
}

static int
json_text(const json_t *value, char out[static 64])
{
	if (json_is_boolean(value))
		snprintf(out, 64, "%d", json_is_true(value));
	else if (json_is_integer(value))
		snprintf(out, 64, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(out, 64, "%.17g", json_real_value(value));
	else if (json_is_string(value) && json_string_length(value) < 64)
		snprintf(out, 64, "%s", json_string_value(value));
	else
		return -EINVAL;
	return 0;
}

int
options_apply_json(struct options *opt, const json_t *object, char why[static 256])
{
	struct options trial = *opt;
	json_t *object_rw =
		json_copy((json_t *)(uintptr_t)object); /* jansson iterates only these */
	const char *key;
	json_t *value;
	int r = 0;

	flags_copy(&table, &trial, opt); /* a wrong value changes nothing */
	json_object_foreach(object_rw, key, value)
	{
		const struct flag_row *row = flags_find(&table, key, strlen(key));
		char text[64];

		if (row == NULL || !row->live) {
			snprintf(why, 256, "'%.80s' cannot be set live", key);
			r = -EINVAL;
		} else if (json_text(value, text) < 0) {
			snprintf(why, 256, "'%.80s' needs a number or a short string", key);
			r = -EINVAL;
		} else {
			r = flags_set(row, &trial, text, why);
		}
		if (r < 0)
			break;
	}
	json_decref(object_rw);
	if (r == 0)
		r = check(&trial, why);
	if (r == 0) {
		struct options old = *opt;

		*opt = trial;
		trial = old;
	}
	options_free(&trial);
	return r;
}

static void
over(double *value, double given)
{
	if (!isnan(given))
		*value = given;
}

static void
over_uint(unsigned *value, unsigned given)
{
	if (given != FLAGS_UINT_UNSET)
		*value = given;
}

int
options_worker(const struct options *opt, struct worker_config *ret_cfg, char why[static 256])
{
	struct worker_config cfg;
	uint64_t pool;

	if (profile_by_name(opt->profile, &cfg) < 0) {
		snprintf(why, 256, "--profile: there is no '%.80s'", opt->profile);
		return -EINVAL;
	}
	over(&cfg.engine.t_o_s, opt->t_o);
	over(&cfg.engine.t_w_s, opt->t_w);
	over(&cfg.engine.a_s, opt->a);
	over(&cfg.engine.q_s, opt->q);
	over(&cfg.engine.e_s, opt->e);
	over(&cfg.engine.d_s, opt->d);
	over(&cfg.o_fix_s, opt->o_fix);
	over(&cfg.o_tok_s, opt->o_tok);
	over(&cfg.visible_s, opt->visible);
	over_uint(&cfg.engine.block_tokens, opt->block_size);
	over_uint(&cfg.engine.num_blocks, opt->num_gpu_blocks);
	over_uint(&cfg.engine.max_batched_tokens, opt->max_num_batched_tokens);
	over_uint(&cfg.engine.max_seqs, opt->max_num_seqs);
	cfg.engine.jitter_0to1 = opt->jitter;
	cfg.engine.jitter_seed = opt->seed;
	cfg.engine.slow_factor = opt->slow_factor;
	cfg.engine.reserve_full_isl = opt->reserve_full_isl;
	cfg.engine.cache_output = opt->cache_output;
	cfg.engine.by_priority = strcmp(opt->scheduling_policy, "priority") == 0;
	cfg.engine.hash_seed = opt->hash_seed;
	cfg.engine.offload_blocks = opt->offload_blocks;
	cfg.warmup_s = opt->warmup;
	cfg.warmup_factor = opt->warmup > 0 ? opt->warmup_factor : 0;
	if (strcmp(opt->hash, "-") != 0 &&
	    blockhash_algo_by_name(opt->hash, &cfg.engine.hash) < 0) {
		snprintf(why, 256, "--hash: there is no '%.80s'", opt->hash);
		return -EINVAL;
	}
	pool = (uint64_t)cfg.engine.block_tokens * cfg.engine.num_blocks;
	if (cfg.engine.block_tokens == 0 || cfg.engine.max_batched_tokens == 0 ||
	    cfg.engine.max_seqs == 0 || pool < opt->max_model_len) {
		snprintf(why, 256, "a KV pool of %u blocks of %u tokens cannot hold one request of "
			 "--max-model-len %u", cfg.engine.num_blocks, cfg.engine.block_tokens,
			 opt->max_model_len);
		return -EINVAL;
	}
	*ret_cfg = cfg;
	return 0;
}

enum metrics_fault
options_metrics_fault(const struct options *opt)
{
	char why[256];
	int i = flags_one_of("metrics-fault", opt->metrics_fault, metrics_faults, why);

	return i < 0 ? METRICS_GOOD : (enum metrics_fault)i;
}

int
options_generation(const struct options *opt, struct generation *ret, unsigned *ret_version,
		   char why[static 256])
{
	struct generation g;
	unsigned version;

	if (generation_find(opt->engine, opt->version, &g, &version, why) < 0)
		return -EINVAL;
	if (strcmp(opt->kv_format, "map") == 0)
		g.shape = g.shape == KV_G6 || g.shape == KV_TRTLLM ? g.shape : KV_G5;
	else if (strcmp(opt->kv_format, "array") == 0)
		g.shape = g.shape >= KV_G5 && g.shape <= KV_G6 ? KV_G2 : g.shape;
	if (strcmp(opt->kv_hash_format, "-") != 0)
		g.hashes = opt->kv_hash_format[0] == 'i' ? KV_HASH_INT
			   : opt->kv_hash_format[0] == 's' ? KV_HASH_SIGNED : KV_HASH_BYTES;
	if (strcmp(opt->kv_replay_form, "-") != 0)
		g.replay_topic = strcmp(opt->kv_replay_form, "new") == 0;
	if (strcmp(opt->metrics_generation, "-") != 0)
		version = strcmp(opt->metrics_generation, "new") == 0 ? 3100 : 900;
	*ret = g;
	*ret_version = version;
	return 0;
}

int
options_groups(const struct options *opt, struct engine_config *cfg,
	       struct kv_group_names ret_names[static 1 + ENGINE_GROUPS_MAX],
	       char why[static 256])
{
	const char *p = opt->kv_groups;

	memset(ret_names, 0, (1 + ENGINE_GROUPS_MAX) * sizeof *ret_names);
	ret_names[0].kind = "full_attention";
	cfg->groups = 0;
	while (*p != '\0') {
		struct engine_group *group = &cfg->group[cfg->groups];
		unsigned window, block;
		int used = 0;
		char kind[32];

		if (cfg->groups == ENGINE_GROUPS_MAX ||
		    sscanf(p, "%31[a-z_]:%7u:%5u%n", kind, &window, &block, &used) != 3 ||
		    block == 0 || (p[used] != '\0' && p[used] != ',') ||
		    (strcmp(kind, "sliding_window") != 0 && strcmp(kind, "mamba") != 0)) {
			snprintf(why, 256, "--kv-groups: '%.80s' is not up to %u of KIND:WINDOW:"
				 "BLOCK, KIND sliding_window or mamba", p, ENGINE_GROUPS_MAX);
			return -EINVAL;
		}
		group->kind = kind[0] == 'm' ? ENGINE_MAMBA : ENGINE_SLIDING_WINDOW;
		group->block_tokens = block;
		group->blocks = (unsigned)(((uint64_t)cfg->num_blocks * cfg->block_tokens + block -
					    1) / block);
		cfg->groups++;
		ret_names[cfg->groups].kind = kind[0] == 'm' ? "mamba" : "sliding_window";
		ret_names[cfg->groups].window_tokens = window;
		p += used + (p[used] == ',');
	}
	return 0;
}

int
options_fail_kind(const struct options *opt, enum fail_kind *ret_kind)
{
	static const char *const names[] = {
		[FAIL_429] = "429", [FAIL_500] = "500", [FAIL_503] = "503",
		[FAIL_RESET] = "reset", [FAIL_STALL] = "stall", [FAIL_TRUNCATE] = "truncate",
		[FAIL_EVENT] = "event",
	};

	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i], opt->fail_kind) == 0) {
			*ret_kind = (enum fail_kind)i;
			return 0;
		}
	return -EINVAL;
}

void
options_free(struct options *opt)
{
	flags_free(&table, opt);
	memset(opt, 0, sizeof *opt);
}
