/* actors/metrics/health.h -- what a worker's answers say of it: up, suspect or down, and why.
 *
 * Health     /health: 200 is up, at once.  Any other answer or none is a miss: suspect, with the
 *            third in a row down.  A worker that accepts but does not answer in time may be in a
 *            long prefill: suspect, and down only after HEALTH_SLOW_DOWN of those; a page that came
 *            meanwhile shows that it lives.  An engine that sleeps or is paused is down until it
 *            says otherwise.
 * Closing    a server that kept connections and begins to close them is about to end: suspect from
 *            the first such answer.  One that always did, or goes on so for HEALTH_CLOSING_MOST
 *            answers, is just made so.
 * Threads    pure.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/metrics/prober.h"
#include "shm/rows.h"

#define HEALTH_MISSES_DOWN  3u
#define HEALTH_SLOW_DOWN    120u        /* some two minutes: a 128k-token prefill took 77 s */
#define HEALTH_CLOSING_MOST 60u

struct health {                         /* of one target; zero: never asked */
	uint32_t misses, slow;                  /* in a row */
	uint32_t closing;                       /* answers in a row that closed, after kept ones */
	bool kept;                              /* some answer left the connection open */
	enum row_health state;
	enum row_why why;
};

struct health_said {                    /* in one round */
	enum row_why why;                       /* probe_why of the /health call */
	bool closes;                            /* ... its 200 closes the connection */
	bool page;                              /* a metrics page came */
	bool asleep, paused;
};

void health_note(struct health *h, const struct health_said *said);
enum row_why probe_why(const struct probe *probe);
	/* WHY_OK: a whole answer with 200. */
