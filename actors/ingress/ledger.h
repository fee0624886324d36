/* actors/ingress/ledger.h -- what this ingress has in flight on each row, charged and released
 * once.
 *
 * Meaning    The sole writer of the column's cells (cell.h).  A charge is made when an answer
 *            is applied, moves from prefill to decode at the first byte, and is released
 *            exactly once, on whichever path the request ends: `phase` in the slot is what is
 *            charged, PHASE_NONE is nothing.
 * Row gone   A cell that speaks of another row generation starts at zero, and a release for an
 *            older generation changes nothing.
 * Moving     Charging a slot that is charged already (a retry) charges the new row before it
 *            releases the old: a reader sees one charge too many for a moment, never one too
 *            few.
 * Ownership  borrows column and rows; a charge lives inside its request.
 * Threads    the loop's.  Cost: one latched cache line a change.
 */
#pragma once
#include "shm/cell.h"
#include "shm/process.h"
#include "shm/rows.h"
#include "shm/slot.h"

struct charge {                         /* one request's place in the ledger */
	struct slot *slot;              /* borrowed: row, row_gen, phase, prefill, ctx */
	struct charge *prev, *next;     /* of its row, in order of dispatch, while in prefill */
	uint32_t dispatch_ms;
};

struct ledger {
	struct column *column;          /* borrowed */
	struct ledger_row {
		uint32_t row_gen;
		uint64_t pending, context;      /* tokens; the cell says at most what fits there */
		uint32_t prefilling, decoding;
		struct cell_values v;   /* what the cell says */
		struct charge *oldest, *newest;
	} *row;
	uint64_t underflows;            /* releases of more than was charged: a bug; tests want 0 */
};

int ledger_open(struct ledger *ret, struct column *column);     /* 0, -ENOMEM */
void ledger_close(struct ledger *l);

void ledger_charge(struct ledger *l, struct charge *c, uint16_t row, uint32_t row_gen,
		   uint32_t prefill,
		   uint32_t ctx, uint32_t pick, mono_ns now);
void ledger_first_byte(struct ledger *l, struct charge *c, mono_ns now);
	/* prefill -> decode; once, later calls do nothing. */
void ledger_release(struct ledger *l, struct charge *c);
	/* Nothing when nothing is charged. */
unsigned ledger_check(const struct ledger *l, const struct slots *slots, uint32_t high,
		      uint16_t row);
	/* Do the books of a row, and its cell, say what the slots 1 .. high say?  0, or how many
	 * of the sums do not: a bug.  One pass over the slots, 10 ns each. */
uint32_t ledger_charges(const struct ledger *l);        /* requests charged now, on all rows */
void ledger_turned(struct ledger *l, uint16_t row, uint32_t row_gen, enum cell_turn how,
		   mono_ns now);
	/* The worker turned a request away: decisions avoid it until a probe since then was good
	 * (policy/view.h). */
