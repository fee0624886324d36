/* actors/kvevents/apply.h -- engines' events and ingresses' notes become what the index says.
 *
 * Question   What does each worker hold, surely (its events) and probably (what was sent there)?
 * Inputs     apply_message: one batch of a worker with its sequence number; apply_note: blocks of a
 *            prompt that was written to a worker, or that it proved to hold; apply_engine_start.
 * Effects    the index (sole writer) and lines 5 - 7 of the rows; private reverse maps and orphans.
 *
 * Sequence   last + 1 is applied.  Above: a hole; the exact slots are demoted ("probably"),
 *            retired one lease later, and the state is GAP until a clear or a restart makes all
 *            known again. The same number with the same bytes: a duplicate, dropped.  Below: the
 *            engine began anew, everything of it is retired first.  A first number above 0: late
 *            join, also a gap.
 * Names      an engine's block hash means something for that worker only, so a map per worker
 *            leads to our hash, which is computed from the tokens.  Counts as on the wire.
 * What counts  blocks of one full-attention group (the first seen) in that group's block size;
 *            windowed, Mamba and unknown groups are counted as skipped.  Blocks without usable
 *            tokens say where known blocks lie, no more.  Other tiers than GPU are one: offload.
 * Slots      per row: exact and demoted for each tier, two speculative in turn, rotated each half
 *            lease.  Order of stores: slot word, name in the row, first bit; retire: slot, then
 *            name.
 * Crash      a batch lies between open_seq and applied_seq; apply_row_open retires all of a row
 *            that died between them.  The maps die with us: exact slots of a predecessor are
 *            demoted.
 * Errors     nothing fails: what cannot be applied under-counts and is counted.
 * Threads    one.   Logs state changes.
 */
#pragma once
#include "proto/messages.h"
#include "shm/index.h"
#include "shm/process.h"
#include "shm/rows.h"

#define APPLY_LEASE_EVENTS_NS 30000000000ull  /* probable blocks of rows with events */
#define APPLY_LEASE_SILENT_NS 120000000000ull /* of rows without */
#define APPLY_ALARM_BATCHES 50u /* so many received, none applied: say so loudly */

struct apply;

int apply_new(struct apply **ret, struct index_writer *writer, struct rows *rows,
	      struct process_segment *process);
	/* All borrowed.  Settles slots and the rows' names for them.  0, -ENOMEM. */
void apply_free(struct apply **ret);

int apply_row_open(struct apply *a, uint16_t row, bool events, mono_ns now);
	/* This row is served; events: it publishes.  Again: only what changed; another row_gen, or
	 * the first time since we began: what a predecessor left is settled.  0, -ENOMEM. */
void apply_row_close(struct apply *a, uint16_t row);
	/* Removed: everything of it is retired.  Harmless when never opened. */
void apply_row_moved(struct apply *a, uint16_t row);
	/* Its events come from another address now: they may have another history. */

void apply_message(struct apply *a, uint16_t row, uint64_t seq, const void *payload, size_t len);
void apply_frames_bad(struct apply *a, uint16_t row);
	/* A message that is not three frames with a sequence number: counted. */
void apply_note(struct apply *a, const struct msg_routed *note);
	/* routed; a proof is the same with fewer hashes. */
void apply_engine_start(struct apply *a, uint16_t row, uint32_t row_gen, wall_ns start);
	/* The engine's process began then.  Harmless when its events have told us already. */
void apply_tick(struct apply *a, mono_ns now);
	/* Leases, scrubbing in slices, gauges; some ten times a second. */
