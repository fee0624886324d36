/* tests/emulator/options.h -- what can be set on pointsman-emulator, by flag or, live, by request.
 *
 * Meaning    One table of rows {flag, type, default, live, doc} serves the command line (--flag
 *            value, --flag=value; a 0|1 flag alone means 1), --help, and POST /emu/config ({"flag":
 *            value}, live rows only).
 * Units      Seconds are virtual unless the row says wall.
 * Errors     -EINVAL with a sentence that names the flag.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "tests/emulator/kv_encode.h"
#include "tests/emulator/worker.h"

enum fail_kind {
	FAIL_429, FAIL_500, FAIL_503, FAIL_RESET, FAIL_STALL, FAIL_TRUNCATE, FAIL_EVENT,
};

enum metrics_fault {
	METRICS_GOOD, METRICS_NAN, METRICS_INF, METRICS_TWICE, METRICS_HELP_ONLY, METRICS_HUGE,
	METRICS_HALF, METRICS_GZIP, METRICS_STALL, METRICS_500, METRICS_HTML,
};

struct options {
	/* what is emulated */
	char *engine, *version, *frontend;
	/* serving */
	char *host, *model, *served_model_name, *lora, *tokenizer, *model_dir;
	unsigned port, ready_fd, max_model_len;
	double time_scale, keep_alive_s, mean_output;
	unsigned stream_interval, seed;
	bool debug_headers, tokenize, tokenize_delay, prompt_tokens_details;
	unsigned data_parallel_size, data_parallel_rank;
	char *request_log, *body_log;
	/* engine */
	char *profile, *scheduling_policy, *hash, *hash_seed;
	unsigned block_size, num_gpu_blocks, max_num_batched_tokens, max_num_seqs;
	bool reserve_full_isl, cache_output, offload_self_describing, clear_at_once;
	unsigned offload_blocks;
	char *kv_groups;
	double warmup, warmup_factor;
	double t_o, t_w, a, q, e, d, o_fix, o_tok, visible, jitter, slow_factor;
	/* events */
	bool enable_kv_events;
	char *kv_endpoint, *kv_replay_endpoint, *kv_topic, *kv_format, *kv_hash_format;
	char *kv_replay_form;
	unsigned kv_buffer_steps;
	bool kv_connect, kv_publisher_id;
	/* metrics */
	char *metrics_generation, *metrics_fault;
	double metrics_lag;
	/* faults */
	double fail_rate, startup_delay, drop_events, dup_events, reorder_events, restart_at;
	char *fail_kind;
	unsigned fail_at, gap_at, replay_drop_every;
	bool unhealthy, connection_close, replay_no_end;
};

int options_parse(struct options *, int argc, char **argv, char why[static 256]);
	/* Fills in defaults first.  0, -EINVAL, or 1: --help was asked for and is printed. */
int options_apply_json(struct options *, const json_t *object, char why[static 256]);
	/* Live rows from a JSON object; all or nothing. */
int options_worker(const struct options *, struct worker_config *ret_cfg, char why[static 256]);
	/* Profile, then what was set over it.  hash_seed is borrowed from the options. */
int options_fail_kind(const struct options *, enum fail_kind *ret_kind);
enum metrics_fault options_metrics_fault(const struct options *);
int options_generation(const struct options *, struct generation *ret, unsigned *ret_version,
		       char why[static 256]);
	/* Of engine and version, then what was set over it.  ret_version: of the metrics page. */
int options_groups(const struct options *, struct engine_config *,
		   struct kv_group_names ret_names[static 1 + ENGINE_GROUPS_MAX],
		   char why[static 256]);
	/* --kv-groups into the engine's configuration, whose block_tokens and num_blocks are known;
	 * the names stay as long as the program. */
void options_free(struct options *);
