/* actors/metrics/learn.h -- how long a worker takes, learned from what it took.
 *
 * Question   Which coefficients of rows.h (enum coef) make predict.h's formula true for this
 *            worker?
 * Model      ttft = base + prefill (u + p) + attention u (c + u / 2) + decode d + context x
 *            where u, c: uncached and cached prompt tokens, p: prefill tokens ahead, d: requests
 *            decoding, x: tokens of their prompts; as the decision saw them, u and c as the
 *            engine said.
 * Method     a Kalman filter over the coefficients (least squares that forget).  Errors count
 *            relative to the time itself (a 0.1 s answer matters as much as a 7 s one), clipped at
 *            three times their usual size: an outlier moves little, a lasting change gets through.
 * Anchor     what no request tells returns to the anchor: a worker that sees only cache hits cannot
 *            tell prefill from attention, must not invent what a cold prompt would cost, and would
 *            then never be sent one to learn better.  A row's anchor is what all rows of its set
 *            have taught together; theirs is the configured prior.
 * Idle       so does, in time, what a worker that gets no requests has taught: one that is believed
 *            to be slow gets none that could teach better, and would be believed so for ever.
 * Bounds     no coefficient is negative.
 * Threads    pure; one owner.   Cost: under 1 us a sample.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "shm/journal.h"
#include "shm/rows.h"

#define LEARN_FEATURES 5u
#define LEARN_READY    20u              /* samples before the coefficients are believed */
#define LEARN_IDLE_HALF_S 15.0
#define LEARN_ERRORS   128u             /* predictions whose errors are remembered */

struct learn_sample {
	double uncached, cached, pending;       /* tokens */
	double decoding, context;               /* requests, tokens */
	double ttft_s;
	double predicted_s;                     /* by the decision; negative: unknown */
};

struct learn {
	double theta[LEARN_FEATURES];           /* scaled: learn.c */
	double p[LEARN_FEATURES][LEARN_FEATURES];
	double anchor[LEARN_FEATURES], doubt[LEARN_FEATURES]; /* returns there; variance */
	double usual;                           /* usual size of a relative error */
	float step_s;                           /* not learned: the prior's */
	uint32_t samples, version;
	uint32_t n_errors;
	float error_s[LEARN_ERRORS];
};

void learn_begin(struct learn *l, const float prior[COEF_COUNT]);
void learn_resume(struct learn *l, const struct row_predictor *published,
		  const float prior[COEF_COUNT]);
	/* Goes on from what a predecessor published; version 0: from the prior. */
void learn_anchor(struct learn *l, const struct learn *peers);
	/* From now on it returns to what these have learned, once they are ready. */
bool learn_sample_of(const struct journal_outcome *outcome, struct learn_sample *ret);
	/* False: it teaches nothing (failed, retried, not streamed, tokens unknown). */
void learn_idle(struct learn *l, double idle_s);
	/* So much longer it has had no request: goes half of the way to the anchor in
	 * LEARN_IDLE_HALF_S, and is as unsure as it then should be. */
void learn_add(struct learn *l, const struct learn_sample *sample);
double learn_predict(const struct learn *l, const struct learn_sample *sample);         /* s */
void learn_publish(struct learn *l, struct row_predictor *ret);         /* version + 1 */
