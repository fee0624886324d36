/* tests/emulator/exposition.h -- what /metrics says: a worker's counters in its engine's names.
 *
 * Meaning    Counters and histograms are kept here; gauges are read off the engine when the page is
 *            made.  Histogram values are virtual seconds, or tokens.  Each rank has its series.
 * Names      vLLM's of the version asked for; SGLang's and TensorRT-LLM's of 2026.
 * Format     Prometheus text 0.0.4, labels sorted, as Python's client writes it; or OpenMetrics, as
 *            vLLM's Rust front end does, which leaves out what that leaves out.
 * Source     engine contracts 3; samples in tests/data/metrics.
 * Threads    One.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/emulator/generation.h"
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

struct exposition_rank {
	const struct exposition *x;
	struct worker_stats stats;
};

struct exposition_page {
	enum engine_kind_name engine;
	unsigned version;          /* as generation.h counts; of vLLM only */
	bool openmetrics;
	const char *model;
	const struct engine_config *cfg;
	const struct exposition_rank *rank;
	unsigned ranks;            /* at least 1 */
	unsigned first;            /* number of the first */
	unsigned sleep_level;
	const char *const *lora;
	unsigned loras;
};

void exposition_token(struct exposition *, const struct worker_job *, double now_s, double last_s);
	/* A token became visible; last_s is when the one before did. */
void exposition_step(struct exposition *, const struct engine_step *);
void exposition_abort(struct exposition *);
char *exposition_render(const struct exposition_page *, size_t *ret_len_bytes);
	/* The page, from malloc. */
