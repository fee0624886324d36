/* actors/kvevents/apply_budget.c -- how much memory of ours the index may cost, and whose it is.
 *
 * The shared table has its size from the start; what grows is private: the maps from engines'
 * hashes, the slots' lists, the orphans.  All of it together stays within the limit, and no worker
 * can take it from the others:
 *
 *      a row may have three quarters of the limit at most; the last quarter is for rows that have
 *      less than their equal part of that quarter.
 *
 * Of the shared table a row may hold a share, and it may store so many blocks a second, with
 * RATE_BURST_S seconds' worth at once: a whole cache that is published again.  Removals are never
 * refused.
 *
 * What does not fit is not taken up: the row is known to hold less than it does, never more.
 */
#include "actors/kvevents/apply_row.h"

#include "actors/common/log.h"

#define TELL_NS 1000000000ull
/* A block is held by some two slots; a map's entry costs 16 / .3 bytes just after it grew, a list's
 * 16; doubled, since a map grows by copy. */
#define BYTES_A_LANE 112u
#define BYTES_LEAST (16u << 20)
#define RATE_BURST_S 5u

size_t
budget_default(const struct index_header *head)
{
	return head->nbuckets * 4 * BYTES_A_LANE + BYTES_LEAST;
}

static size_t
writer_bytes(const struct apply *a)
{
	return atomic_load_explicit(&index_writer_head(a->w)->private_bytes, memory_order_relaxed);
}

void
budget_begin(struct apply *a)
{
	a->limit = budget_default(index_writer_head(a->w));
	a->share = index_writer_head(a->w)->nbuckets * 4;
	a->fixed = writer_bytes(a);
	for (uint32_t id = 1; id <= index_max_slots(a->w); id++)
		a->fixed -= index_slot_bytes(a->w, (uint16_t)id);
}

size_t
budget_used(const struct apply *a)
{
	return a->bytes + writer_bytes(a) - a->fixed;
}

static size_t
used_by(const struct apply *a, const struct apply_row *r)
{
	return r->bytes + index_slot_bytes(a->w, row_slot(r, INDEX_EXACT, INDEX_GPU)) +
	       index_slot_bytes(a->w, row_slot(r, INDEX_EXACT, INDEX_OFFLOAD)) +
	       index_slot_bytes(a->w, row_slot(r, INDEX_DEMOTED, INDEX_GPU)) +
	       index_slot_bytes(a->w, row_slot(r, INDEX_DEMOTED, INDEX_OFFLOAD)) +
	       index_slot_bytes(a->w, row_slot(r, INDEX_SPECULATIVE, INDEX_GPU)) +
	       index_slot_bytes(a->w, row_slot_older(r));
}

bool
budget_allows(const struct apply *a, const struct apply_row *r, size_t more)
{
	size_t all = budget_used(a), own = used_by(a, r), common = a->limit / 4 * 3;

	if (more > a->limit || all > a->limit - more || own + more > common)
		return false;
	return all + more <= common || own + more <= (a->limit - common) / (a->n_rows + 1);
}

void
budget_account(struct apply *a, struct apply_row *r)
{
	size_t bytes = orphans_bytes(r->orphans);

	for (unsigned i = 0; i < APPLY_TIERS; i++) {
		const struct apply_tier *t = &r->tier[i];

		bytes += t->fresh ? reverse_bytes(t->fresh) : 0;
		bytes += t->demoted ? reverse_bytes(t->demoted) : 0;
	}
	a->bytes += bytes - r->bytes;
	r->bytes = bytes;
}

void
budget_refused(struct apply *a, struct apply_row *r, enum counter why, size_t blocks)
{
	mono_ns now;

	row_trouble(r,
		    why == COUNTER_index_worker_rate	? TROUBLE_RATE
		    : why == COUNTER_index_worker_share ? TROUBLE_SHARE
							: TROUBLE_ROOM,
		    0, blocks);
	count_add(a->process, why, blocks);
	a->refused_untold += blocks;
	now = clock_mono();
	if (a->refused_told != 0 && now - a->refused_told < TELL_NS)
		return;
	log_warn("%llu blocks not taken up, row=%u member=%.63s the last: %s; known to hold less "
		 "than it does",
		 (unsigned long long)a->refused_untold, r->id, a->rows->text[r->id].member,
		 counter_info[why].doc);
	a->refused_told = now;
	a->refused_untold = 0;
}

/* ---- what one worker may do to the others' index ---- */

void
apply_caps(struct apply *a, uint64_t blocks_per_s, unsigned share_percent)
{
	uint64_t lanes = index_writer_head(a->w)->nbuckets * 4;

	a->rate = blocks_per_s;
	a->share = lanes / 100 * share_percent + lanes % 100 * share_percent / 100;
	for (uint32_t i = 0; i < a->rows->capacity; i++)
		if (a->row[i])
			a->row[i]->rate_left = (int64_t)(a->rate * RATE_BURST_S);
}

void
budget_refill(struct apply *a, struct apply_row *r, mono_ns since)
{
	uint64_t ms = (a->now - since) / 1000000u, most = a->rate * RATE_BURST_S;

	if (since == 0 || ms > RATE_BURST_S * 1000u)
		ms = RATE_BURST_S * 1000u;
	r->rate_left += (int64_t)(a->rate * ms / 1000u);
	if (r->rate_left > (int64_t)most)
		r->rate_left = (int64_t)most;
}

bool
row_rate_allows(struct apply *a, struct apply_row *r, size_t blocks)
{
	if (a->rate == 0)
		return true;
	if (r->rate_left <= 0) {
		budget_refused(a, r, COUNTER_index_worker_rate, blocks);
		return false;
	}
	r->rate_left -= (int64_t)blocks; /* one event may go below, and is paid for later */
	return true;
}

bool
row_share_allows(struct apply *a, struct apply_row *r)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < APPLY_TIERS; i++) {
		const struct apply_tier *t = &r->tier[i];

		held += t->fresh ? reverse_size(t->fresh) : 0;
		held += t->demoted ? reverse_size(t->demoted) : 0;
	}
	if (held < a->share)
		return true;
	budget_refused(a, r, COUNTER_index_worker_share, 1);
	return false;
}

bool
row_put(struct apply *a, struct apply_row *r, uint16_t unless, uint16_t id, uint64_t hash,
	const uint16_t *instead, unsigned n_instead)
{
	size_t more = index_slot_growth(a->w, id);
	bool allowed = more == 0 || budget_allows(a, r, more), put;

	if (!allowed)
		index_writer_limit(a->w, 1);    /* no list grows */
	put = index_put_unless(a->w, unless, id, hash, instead, n_instead);
	if (!allowed)
		index_writer_limit(a->w, 0);
	if (!put && !allowed)
		budget_refused(a, r, COUNTER_index_private_full, 1);
	return put;
}
