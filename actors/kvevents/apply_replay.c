/* actors/kvevents/apply_replay.c -- what an engine's repeated batches do; see apply.h "Replay". */
#include <stdlib.h>
#include <string.h>

#include "actors/kvevents/apply_row.h"

/* Without memory for it the live wire's repetitions look like a new life: a gap, no more. */
void
row_remember(struct apply_row *r, uint64_t seq, uint64_t payload)
{
	if (!r->recent)
		return;
	r->recent[seq % ROW_RECENT] = payload;
}

bool
row_replayed(const struct apply_row *r, uint64_t seq, uint64_t payload)
{
	return r->recent && seq <= r->last_seq && r->last_seq - seq < ROW_RECENT &&
	       r->recent[seq % ROW_RECENT] == payload;
}

struct apply_place
apply_place(const struct apply *a, uint16_t row)
{
	const struct apply_row *r = row_at(a, row);
	uint32_t state;

	if (!r)
		return (struct apply_place){.open = false};
	state = atomic_load_explicit(&r->shared->cache_state, memory_order_relaxed);
	return (struct apply_place){
		.open = true,
		.started = r->started,
		.last = r->last_seq,
		.state = (enum cache_state)(state & 0xff),
		.reason = (enum cache_reason)(state >> 8 & 0xff),
		.life = r->life,
		.asleep = r->asleep,
	};
}

void
apply_replay_begin(struct apply *a, uint16_t row, bool hole)
{
	struct apply_row *r = row_at(a, row);

	if (!r)
		return;
	if (!r->recent)
		r->recent = calloc(ROW_RECENT, sizeof r->recent[0]);
	r->replay_failed = REASON_NONE;
	if (hole && !r->hole_counted) {
		row_hole_count(a, r);
		r->hole_counted = true;
	}
	row_state_set(a, r, CACHE_REPLAYING,
		      row_doubtful(r)  ? r->hole_reason
		      : !hole          ? REASON_NONE
		      : r->started     ? REASON_SEQ_HOLE
				       : REASON_FIRST_SEQ);
}

void
apply_replay_anew(struct apply *a, uint16_t row)
{
	struct apply_row *r = row_at(a, row);

	if (!r)
		return;
	row_demote(a, r);
	r->group_known = r->group_full = false;
	r->publisher = 0;
	r->holes = 0;
	r->started = r->heard = false;
	r->anew = true;
	row_store(&r->shared->seen_seq, 0);
	if (r->recent)
		memset(r->recent, 0, ROW_RECENT * sizeof r->recent[0]);
}

void
apply_replay_end(struct apply *a, uint16_t row, enum cache_reason failed)
{
	struct apply_row *r = row_at(a, row);

	bool anew = r && r->anew;

	if (!r)
		return;
	r->anew = false;
	r->replay_failed = failed;
	if (row_state_of(r) == CACHE_NONE)
		return;                 /* it began anew meanwhile, and tells itself */
	if (failed != REASON_NONE && r->started && anew) {
		r->hole_counted = true; /* what comes behind is missing, however it began */
		row_gap(a, r, failed);
		return;
	}
	if (failed != REASON_NONE) {
		row_state_set(a, r, r->started ? CACHE_GAP : CACHE_NONE, failed);
		return;
	}
	r->hole_counted = false;
	if (row_doubtful(r)) {
		row_state_set(a, r, CACHE_GAP, r->hole_reason);
		return;
	}
	/* All that was sure before the gap and still is has been said again. */
	for (unsigned i = 0; i < APPLY_TIERS; i++)
		row_retire_demoted(a, r, (enum index_tier)i);
	row_state_set(a, r, r->started ? CACHE_EXACT : CACHE_NONE,
		      r->started ? REASON_REPLAYED : REASON_NO_EVENTS);
}
