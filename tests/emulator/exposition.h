/* tests/emulator/exposition.h -- what /metrics says: the counters of a worker in vLLM's names.
 *
 * Meaning    Counters and histograms are kept here; gauges are read off the engine when the page is
 *            made.  Histogram values are virtual seconds, or tokens.
 * Names      new: vLLM from 0.17 on.  old: v0.9 (gpu_cache_usage_perc, gpu_prefix_cache_*,
 *            time_per_output_token_seconds; no prefill token histogram).
 * Format     Prometheus text 0.0.4, labels sorted, as vLLM's Python frontend writes it.
 * Source     engine contracts; samples in tests/data/metrics.
 * Threads    One.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/emulator/worker.h"

#define HISTOGRAM_MAX_BUCKETS 24

struct histogram {
	uint64_t count[HISTOGRAM_MAX_BUCKETS + 1]; /* the last: above all bounds */
	uint64_t n;
	double sum;
};

struct exposition {
	uint64_t prompt_tokens, generation_tokens, cached_tokens;
	uint64_t finished[4]; /* by enum engine_finish */
	struct histogram ttft, itl, e2e, queue, prefill, computed, iteration;
	double start_time_s;  /* of the process, seconds since 1970 */
};

void exposition_token(struct exposition *, const struct worker_job *, double now_s, double last_s);
	/* A token became visible; last_s is when the one before did. */
void exposition_step(struct exposition *, const struct engine_step *);
void exposition_abort(struct exposition *);
char *exposition_render(const struct exposition *, const struct worker_stats *,
			const struct engine_config *, const char *model, bool old_names,
			size_t *ret_len_bytes);
	/* The page, from malloc. */
