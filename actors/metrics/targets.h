/* actors/metrics/targets.h -- the workers that are probed: when, and what comes of it.
 *
 * One target per address; its ranks' rows share a page.  At most one probe of each kind is under
 * way to a target, and a slow one delays only itself.
 * Provider   only its socket's process is asked, GET /health with x-pointsman-provider: does it
 *            serve this one?  The question goes no further than this machine.  It has no page: of
 *            its load only our own requests are known.
 * Health     health.h; the rows say why, and since when.
 * Reading    keeps its values and its age over a missed page until it is too old to decide by:
 *            three intervals, and ROW_READING_GOOD_NS at least.
 * Sleep      as the page says, or /is_sleeping where there is that route (vLLM's dev mode), which
 *            is then asked each interval; so with /is_paused.  Other engines do not tell.
 * Life       who could not be reached (or was slow until it counts as down) may come back as
 *            another engine, and answers before it says so: KNOWN_ENGINE_START is taken back until
 *            a page asked for since then says its start, which is asked for as soon as it is back.
 * Writers    lines 1 - 2 of the rows, sole.
 * Threads    the loop's.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "actors/metrics/health.h"
#include "actors/common/scrape.h"
#include "shm/process.h"

#define TARGET_FORGET_INTERVALS 3u

struct targets_calls {                  /* what came to light */
	void (*start)(void *arg, uint16_t row, uint32_t row_gen, wall_ns start);
		/* The engine behind this row began anew then. */
	void (*asleep)(void *arg, uint16_t row, uint32_t row_gen);
		/* It fell asleep: its cache is empty. */
	void *arg;
};

struct targets;
int targets_new(struct targets **ret, struct rows *rows, struct process_segment *process,
		const struct targets_calls *calls);
void targets_free(struct targets **ret);
int targets_set(struct targets *t, const struct manifest *manifest, const struct secrets *trust);
	/* Probes these members from now on; what is known of kept ones stays.  Both stay the
	 * caller's until the next targets_set or targets_free.  0; -ENOMEM: the old set goes on. */
mono_ns targets_run(struct targets *t, struct prober *prober, mono_ns now);
	/* Sends what is due; when to be called next. */
void targets_result(struct targets *t, struct probe *probe);    /* frees it */
