/* actors/kvevents/apply.h -- engines' events and ingresses' notes become what the index says.
 *
 * Question   What does each worker hold, surely (its events) and probably (what was sent there)?
 * Inputs     apply_message: one batch of a worker with its sequence number; apply_note: blocks of a
 *            prompt that was written to a worker, or that it proved to hold; apply_engine_start.
 * Effects    the index (sole writer) and lines 5 - 7 of the rows; private reverse maps and orphans.
 *
 * Sequence   last + 1 is applied.  Above: a hole; the exact slots are demoted ("probably"),
 *            retired one lease later, and the state is GAP until a restart, or clears of every tier
 *            in use, make all known again.  The same number with the same bytes: a duplicate,
 *            dropped.  Below, or another publisher: the engine began anew, everything of it is
 *            retired first.  A first number above 0: late join, also a gap; so is a batch of which
 *            something was unreadable that may have been a removal.
 * Replay     Where the engine keeps its last batches, a hole is asked for before it counts
 *            (apply_offer, replay.h), and the maps stay exact.  A replay from 0 that has no hole
 *            is all the engine ever said: it makes a row exact from any state, a late join and a
 *            restart of ours too; what was sure before is demoted when its batch 0 comes and
 *            retired when it is whole.  seen_seq and applied_seq are two marks: up to seen_seq the
 *            live wire has spoken, so a number not above it means that the engine began anew; what
 *            it says between the two came by replay already and is dropped if it is the same bytes
 *            (the last 2,048 batches are remembered), else the engine began anew, too.
 * Names      an engine's block hash means something for that worker only, so a map per worker
 *            leads to our hash, which is computed from the tokens.  Counts as on the wire.
 * What counts  blocks of one full-attention group (the first seen) in that group's block size;
 *            windowed, Mamba and unknown groups are counted as skipped.  Blocks without usable
 *            tokens say where known blocks lie, no more.  Other tiers than GPU are one: offload;
 *            some connectors never say that it lost a block, so a tier of which no removal was
 *            ever heard is believed for a time only.
 * Ranks      a batch belongs to the member whose endpoint it came from and to the rank it names:
 *            where that rank's own endpoint says nothing, another rank's may speak for it.
 * Slots      per row: exact and demoted for each tier, two speculative in turn, rotated each half
 *            lease.  Order of stores: slot word, name in the row, first bit; retire: slot, then
 *            name.
 * Crash      Killed between any two stores; what the successor finds, and does (apply_new settles
 *            slots and names, apply_row_open the row):
 *
 *      killed after                      finds                           does
 *      applied_seq = 0                   0, open_seq of the last batch   half a batch (below)
 *      open_seq = n + 1                  open_seq != applied_seq         half a batch
 *      seen_seq, any slot, name, bit     the same                        half a batch
 *      applied_seq = n + 1               equal: whole                    exact slots demoted
 *      slot word, taken                  live, unnamed, without blocks   slot retired
 *      its name                          live, named, without blocks     as any slot of its role
 *      slot word, retired                its name stays                  name 0, slot scrubbed
 *      slot word, exact to demoted       exact name of a demoted slot    name 0, slot retired
 *      name of the demoted               both names                      exact name 0
 *      rotation: cur = 0                 live, unnamed, speculative      slot retired
 *      expires_ns not yet stored         0                               a lease from now on
 *      lines_gen = 0 (row begins, goes)  lines of nobody                 slots retired, lines 0
 *      engine forgotten, its start not
 *      yet stored                        start differs from M's reading  forgets it again
 *
 *            Half a batch: all slots of the row are retired, orphans are gone with the maps, the
 *            state is GAP, the block size is learned anew.  Whole: the maps died with us, so
 *            removals cannot be understood; exact slots become demoted for the lease that their
 *            slots say, speculative ones live on to the end of theirs.  Rows that are not served
 *            any more lose their slots at birth.  Proof: tests/race/race_apply_points.c stops
 *            before every store, race_apply_kill.c anywhere.
 * Memory     maps, lists and orphans within apply_limit, three quarters of it for one row at most;
 *            what finds no room is counted (index_private_full, index_ids_short, index_row_full,
 *            orphans_dropped) and told once a second; so is what a row has above its caps
 *            (index_worker_rate, index_worker_share).
 * Why not    whatever comes to nothing says so in the row: rows.h, enum event_trouble.
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
#define APPLY_LEASE_TIER_NS 600000000000ull /* sure, then probable, in a tier without removals */
#define APPLY_ALARM_BATCHES 50u /* so many received, none applied: say so loudly */
#define APPLY_SILENCE_NS 10000000000ull /* so many prompts sent, so long ago, and no event */

struct apply;

int apply_new(struct apply **ret, struct index_writer *writer, struct rows *rows,
	      struct process_segment *process);
	/* All borrowed.  Settles slots and the rows' names for them.  0, -ENOMEM. */
void apply_free(struct apply **ret);
void apply_limit(struct apply *a, uint64_t private_bytes);
	/* What maps, lists and orphans may have together; 0: derived from the index's size.  What
	 * is above it already stays. */
void apply_caps(struct apply *a, uint64_t blocks_per_s, unsigned share_percent);
	/* What one row may do: blocks it may store a second (0: any), and its share of the table,
	 * 1 - 100.  Without a call: any, and all.  What is above it already stays. */

struct tap;
void apply_tap(struct apply *a, struct tap *tap);
	/* Borrowed: tells of events to those who look on (tap.h). */

int apply_row_open(struct apply *a, uint16_t row, bool events, mono_ns now);
	/* This row is served; events: it publishes.  Again: only what changed; another row_gen, or
	 * the first time since we began: what a predecessor left is settled.  0, -ENOMEM,
	 * -EAGAIN: the supervisor is making the row, and tells when it is done. */
void apply_row_close(struct apply *a, uint16_t row);
	/* Removed: everything of it is retired.  Harmless when never opened. */
void apply_row_moved(struct apply *a, uint16_t row);
	/* Its events come from another address now: they may have another history. */

void apply_message(struct apply *a, uint16_t row, uint64_t seq, const void *payload, size_t len);
bool apply_offer(struct apply *a, uint16_t row, uint64_t seq, const void *payload, size_t len);
	/* The same, but false, without any effect, where batches before it are missing: a first
	 * one above 0, or a hole. */
void apply_frames_bad(struct apply *a, uint16_t row);
	/* A message that is not three frames with a sequence number: counted. */
void apply_topic_refused(struct apply *a, uint16_t row);
	/* A message on its endpoint with another's topic: counted. */

/* ---- replay: who asks, and when (replay.h); here is what the answers do ---- */

struct apply_place {
	bool open;              /* there is such a row */
	bool started;           /* last holds */
	uint64_t last;          /* number of the newest batch applied */
	enum cache_state state;
	enum cache_reason reason;
	uint32_t life;          /* changes when the engine began anew */
	bool asleep;            /* and says only when it wakes what it has forgotten */
};

struct apply_place apply_place(const struct apply *a, uint16_t row);
void apply_replay_begin(struct apply *a, uint16_t row, bool hole);
	/* State REPLAYING; hole: because batches are missing, which counts as a gap. */
void apply_replay_anew(struct apply *a, uint16_t row);
	/* Its history comes from number 0 on: what was sure is demoted, the next batch is 0. */
void apply_replayed(struct apply *a, uint16_t row, uint64_t seq, const void *payload, size_t len,
		    enum cache_reason hole);
	/* Next in order is applied; what was applied before has no effect; above next is a hole,
	 * for that reason. */
void apply_replay_end(struct apply *a, uint16_t row, enum cache_reason failed);
	/* failed NONE: all that was asked for came.  Else why not; the state is what the row then
	 * deserves, now or with the next live batch. */

void apply_note(struct apply *a, const struct msg_routed *note);
	/* routed; a proof is the same with fewer hashes. */
void apply_sent(struct apply *a, const struct msg_routed *note);
	/* And of what was routed: do its events speak of it?  rows.h chains_routed. */
void apply_engine_start(struct apply *a, uint16_t row, uint32_t row_gen, wall_ns start);
	/* The engine's process began then.  Harmless when its events have told us already. */
void apply_engine_asleep(struct apply *a, uint16_t row, uint32_t row_gen);
	/* It sleeps: its cache is empty now.  Its events say so with its first step when awake. */
void apply_tick(struct apply *a, mono_ns now);
	/* Leases, scrubbing in slices, gauges; some ten times a second. */
