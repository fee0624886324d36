/* actors/metrics/targets.h -- the workers that are probed: when, and what comes of it.
 *
 * One target per address; its ranks' rows share a page.  At most one probe of a target is under
 *                                                        way, and
 * a slow one delays only itself.
 * Health     /health: 200 is up, at once.  A refused, cut or wrong answer is a miss: suspect,
 *            with the third in a row down.  A worker that accepts but does not answer in time may
 *            be in a long prefill: suspect, and down only after TARGET_SLOW_DOWN of those.  A
 *            sleeping engine is down.
 * Reading    keeps its values and its age over a missed page; all unknown after TARGET_FORGET of
 *            them.
 * Writers    lines 1 - 2 of the rows, sole.
 * Threads    the loop's.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "actors/metrics/prober.h"
#include "actors/metrics/scrape.h"
#include "shm/process.h"

#define TARGET_MISSES_DOWN 3u
#define TARGET_SLOW_DOWN   120u         /* some two minutes: a 128k-token prefill took 77 s */
#define TARGET_FORGET      3u

struct health {                         /* pure: of one target */
	uint32_t misses, slow;                  /* in a row */
	enum row_health state;
};
void health_note(struct health *h, enum probe_result health, enum probe_result metrics,
		 bool asleep);

/* The engine behind this row began anew at `start`. */
typedef void targets_start_f(void *arg, uint16_t row, uint32_t row_gen, wall_ns start);

struct targets;
int targets_new(struct targets **ret, struct rows *rows, struct process_segment *process,
		targets_start_f *f, void *arg);
void targets_free(struct targets **ret);
int targets_set(struct targets *t, const struct manifest *manifest);
	/* Probes these members from now on; what is known of kept ones stays.  0; -ENOMEM: the
	 * old set goes on. */
mono_ns targets_run(struct targets *t, struct prober *prober, mono_ns now);
	/* Sends what is due; when to be called next. */
void targets_result(struct targets *t, struct probe *probe);    /* frees it */
