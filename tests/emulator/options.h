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

#include "tests/emulator/worker.h"

enum fail_kind {
	FAIL_429, FAIL_500, FAIL_503, FAIL_RESET, FAIL_STALL, FAIL_TRUNCATE, FAIL_EVENT,
};

struct options {
	/* serving */
	char *host, *model, *served_model_name, *tokenizer;
	unsigned port, ready_fd, max_model_len;
	double time_scale, keep_alive_s, mean_output;
	unsigned stream_interval, seed;
	bool debug_headers, tokenize_delay;
	char *request_log;
	/* engine */
	char *profile, *scheduling_policy, *hash, *hash_seed;
	unsigned block_size, num_gpu_blocks, max_num_batched_tokens, max_num_seqs;
	bool reserve_full_isl, cache_output;
	double t_o, t_w, a, q, e, d, o_fix, o_tok, visible, jitter, slow_factor;
	/* events */
	bool enable_kv_events;
	char *kv_endpoint, *kv_replay_endpoint, *kv_topic, *kv_format, *kv_hash_format;
	unsigned kv_buffer_steps;
	/* metrics */
	char *metrics_generation;
	double metrics_lag;
	/* faults */
	double fail_rate, startup_delay, drop_events, dup_events, restart_at;
	char *fail_kind;
	unsigned fail_at, gap_at;
	bool unhealthy;
};

int options_parse(struct options *, int argc, char **argv, char why[static 256]);
	/* Fills in defaults first.  0, -EINVAL, or 1: --help was asked for and is printed. */
int options_apply_json(struct options *, const json_t *object, char why[static 256]);
	/* Live rows from a JSON object; all or nothing. */
int options_worker(const struct options *, struct worker_config *ret_cfg, char why[static 256]);
	/* Profile, then what was set over it.  hash_seed is borrowed from the options. */
int options_fail_kind(const struct options *, enum fail_kind *ret_kind);
void options_free(struct options *);
