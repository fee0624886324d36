/* actors/metrics/tail.h -- follows the ingresses' journals, lets every row's predictor learn, and
 * hands each outcome on.
 *
 * Writers    lines 3 - 4 of the rows, sole.
 * Bounds     TAIL_RECORDS a call; a ring that wrapped is counted (outcomes_overwritten) and gone
 *            on from.
 * Restart    goes on from the coefficients in the rows; outcomes still in the rings are learned
 *            again.
 * Threads    the loop's.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "actors/metrics/learn.h"
#include "shm/process.h"

#define TAIL_RECORDS 8192u

struct tail;
typedef void tail_outcome_f(void *arg, const struct journal_record *head,
			    const struct journal_outcome *o, mono_ns now);
int tail_new(struct tail **ret, struct rows *rows, struct process_segment *process,
	     tail_outcome_f *each, void *arg);
	/* each: NULL: nobody else wants them.  0, -ENOMEM. */
void tail_free(struct tail **ret);
void tail_rows(struct tail *t, const struct manifest *manifest);
	/* Rows begin (from their set's prior) or begin anew (row_gen). */
int tail_add(struct tail *t, uint32_t incarnation, int fd);     /* an ingress; takes fd */
void tail_remove(struct tail *t, uint32_t incarnation);         /* reads what is left first */
void tail_run(struct tail *t, mono_ns now);
