/* actors/kvevents/apply_slots.c -- the index slots of a row: taken, demoted, rotated, retired.
 *
 * A slot belongs to a row when the row names it.  New: slot word, name, first bit.  Retire: slot
 * word first (invisible at once), name second; dying between leaves a name whose slot is not live,
 * which slots_settle clears.  What each point of death leaves: apply.h, "Crash".
 */
#include "actors/kvevents/apply_row.h"

#include <errno.h>

#define MAP_LEAST 2048u /* bytes of a map that holds nothing yet, about */

typedef _Atomic uint16_t slot_name;

#define NAMES 6u

static slot_name *
name_at(struct row *row, unsigned i)
{
	slot_name *const names[NAMES] = {
		&row->slot_gpu,         &row->slot_offload,
		&row->slot_demoted_gpu, &row->slot_demoted_offload,
		&row->slot_spec_cur,    &row->slot_spec_old,
	};

	return names[i];
}

static slot_name *
name_of(struct row *row, enum index_role role, enum index_tier tier)
{
	switch (role) {
	case INDEX_EXACT:
		return name_at(row, tier == INDEX_GPU ? 0 : 1);
	case INDEX_DEMOTED:
		return name_at(row, tier == INDEX_GPU ? 2 : 3);
	case INDEX_SPECULATIVE:
		break;
	}
	return name_at(row, 4);
}

static uint16_t
name_get(const slot_name *name)
{
	return atomic_load_explicit(name, memory_order_relaxed);
}

static void
name_set(slot_name *name, uint16_t id)
{
	APPLY_STORE_POINT();
	atomic_store_explicit(name, id, memory_order_release);
}

static void
name_retire(struct apply *a, slot_name *name)
{
	uint16_t id = name_get(name);

	if (id == 0)
		return;
	index_slot_retire(a->w, id);
	name_set(name, 0);
}

/* A name stands in memory that others may write, too: it may name no slot at all. */
static void
lease_set(struct apply *a, uint16_t id, mono_ns end)
{
	struct index_slot *slot = index_slot_entry(a->w, id);

	if (slot)
		slot->expires_ns = end;
}

static mono_ns
lease_of(struct apply *a, uint16_t id)          /* 0: none */
{
	const struct index_slot *slot = index_slot_entry(a->w, id);

	return slot ? slot->expires_ns : 0;
}

uint16_t
row_slot(const struct apply_row *r, enum index_role role, enum index_tier tier)
{
	return name_get(name_of(r->shared, role, tier));
}

uint16_t
row_slot_older(const struct apply_row *r)
{
	return name_get(&r->shared->slot_spec_old);
}

/* In a gap hot blocks are not announced again: what was sent there is most of what is known. */
mono_ns
row_lease(const struct apply_row *r)
{
	return r->events && row_state_of(r) != CACHE_GAP &&
			       atomic_load_explicit(&r->shared->received, memory_order_relaxed) > 0
		       ? APPLY_LEASE_EVENTS_NS
		       : APPLY_LEASE_SILENT_NS;
}

/* How many blocks the engine says it has; only a hint. */
static size_t
blocks_expected(const struct apply_row *r)
{
	struct row_reading reading;

	row_reading_read(r->shared, &reading);
	return reading.known & KNOWN_NUM_BLOCKS ? reading.num_blocks : 0;
}

/* Three quarters of the index, which is more than it is made for (load .70): an engine that stores
 * without end must leave the others a place. */
static size_t
blocks_most(const struct apply *a)
{
	return index_writer_head(a->w)->nbuckets * 3;       /* of four lanes each */
}

void
row_retire_demoted(struct apply *a, struct apply_row *r, enum index_tier tier)
{
	name_retire(a, name_of(r->shared, INDEX_DEMOTED, tier));
	reverse_free(&r->tier[tier].demoted);
	budget_account(a, r);
}

/* As large as the engine says, if there is room for that. */
static int
map_new(struct apply *a, struct apply_row *r, struct reverse **ret, size_t expected)
{
	if (reverse_new(ret, expected, blocks_most(a)) < 0)
		return -ENOMEM;
	if (!budget_allows(a, r, reverse_bytes(*ret)) && expected > 0) {
		reverse_free(ret);
		return map_new(a, r, ret, 0);
	}
	budget_account(a, r);
	return 0;
}

uint16_t
row_slot_exact(struct apply *a, struct apply_row *r, enum index_tier tier)
{
	slot_name *name = name_of(r->shared, INDEX_EXACT, tier);
	struct apply_tier *t = &r->tier[tier];
	uint16_t id = name_get(name);

	if (id != 0)
		return id;
	if (!budget_allows(a, r, MAP_LEAST)) {
		budget_refused(a, r, COUNTER_index_private_full, 1);
		return 0;
	}
	id = index_slot_take(a->w, r->id, r->row_gen, INDEX_EXACT, tier, r->block_tokens);
	if (id == 0 && row_slot(r, INDEX_DEMOTED, tier) != 0) {
		/* What its events say now is worth more than what they said before the gap. */
		row_retire_demoted(a, r, tier);
		id = index_slot_take(a->w, r->id, r->row_gen, INDEX_EXACT, tier, r->block_tokens);
	}
	if (id == 0) {
		budget_refused(a, r, COUNTER_index_ids_short, 1);
		return 0;
	}
	if (map_new(a, r, &t->fresh, tier == INDEX_GPU ? blocks_expected(r) : 0) < 0) {
		index_slot_retire(a->w, id);
		budget_refused(a, r, COUNTER_index_private_full, 1);
		return 0;
	}
	name_set(name, id);
	return id;
}

uint16_t
row_slot_speculative(struct apply *a, struct apply_row *r)
{
	slot_name *name = &r->shared->slot_spec_cur;
	uint16_t id = name_get(name);

	if (id != 0)
		return id;
	id = index_slot_take(a->w, r->id, r->row_gen, INDEX_SPECULATIVE, INDEX_GPU,
			     r->block_tokens);
	if (id == 0)
		return 0;
	lease_set(a, id, r->rotate_at + row_lease(r) / 2);
	name_set(name, id);
	return id;
}

void
row_retire_tier(struct apply *a, struct apply_row *r, enum index_tier tier)
{
	name_retire(a, name_of(r->shared, INDEX_EXACT, tier));
	reverse_free(&r->tier[tier].fresh);
	row_retire_demoted(a, r, tier);
}

void
row_retire_speculative(struct apply *a, struct apply_row *r)
{
	name_retire(a, &r->shared->slot_spec_cur);
	name_retire(a, &r->shared->slot_spec_old);
}

void
row_retire_all(struct apply *a, struct apply_row *r)
{
	for (unsigned tier = 0; tier < APPLY_TIERS; tier++)
		row_retire_tier(a, r, (enum index_tier)tier);
	row_retire_speculative(a, r);
	orphans_clear(r->orphans);
	budget_account(a, r);
}

/* An older demoted slot makes room first.  A row's exact name is cleared last: dying before leaves
 * the slot named twice, and slots_settle clears the name whose role it no longer has. */
static void
demote_tier(struct apply *a, struct apply_row *r, enum index_tier tier, uint64_t lease_ns)
{
	slot_name *exact = name_of(r->shared, INDEX_EXACT, tier);
	struct apply_tier *t = &r->tier[tier];
	uint16_t id = name_get(exact);

	if (id == 0)
		return;
	row_retire_demoted(a, r, tier);
	index_slot_demote(a->w, id);
	name_set(name_of(r->shared, INDEX_DEMOTED, tier), id);
	name_set(exact, 0);
	t->demoted = t->fresh;
	t->fresh = NULL;
	lease_set(a, id, a->now + lease_ns);
}

void
row_demote(struct apply *a, struct apply_row *r)
{
	for (unsigned i = 0; i < APPLY_TIERS; i++)
		demote_tier(a, r, (enum index_tier)i, APPLY_LEASE_EVENTS_NS);
	orphans_clear(r->orphans);
	budget_account(a, r);
}

void
row_age(struct apply *a, struct apply_row *r)
{
	const struct index_slot *slot =
		index_slot_entry(a->w, row_slot(r, INDEX_EXACT, INDEX_OFFLOAD));
	uint16_t seen = atomic_load_explicit(&r->shared->tiers_seen, memory_order_relaxed);

	if (!slot || seen & ROW_TIER_REMOVES(INDEX_OFFLOAD) ||
	    a->now < slot->born_ns + APPLY_LEASE_TIER_NS)
		return;
	demote_tier(a, r, INDEX_OFFLOAD, APPLY_LEASE_TIER_NS);
	budget_account(a, r);
}

/* ---- leases: their ends stand in the slots, so that no death of ours makes them longer ---- */

/* When the slot of this name ends; `otherwise` where its writer died before it said so. */
static mono_ns
ends(struct apply *a, const slot_name *name, mono_ns otherwise)
{
	uint16_t id = name_get(name);
	struct index_slot *slot = index_slot_entry(a->w, id);

	if (!slot)
		return otherwise;
	if (slot->expires_ns == 0)
		slot->expires_ns = otherwise;
	return slot->expires_ns;
}

void
row_leases_resume(struct apply *a, struct apply_row *r)
{
	mono_ns half = row_lease(r) / 2, cur, old;

	for (unsigned i = 0; i < APPLY_TIERS; i++)
		ends(a, name_of(r->shared, INDEX_DEMOTED, (enum index_tier)i),
		     a->now + APPLY_LEASE_EVENTS_NS);
	cur = ends(a, &r->shared->slot_spec_cur, a->now + 2 * half);
	old = ends(a, &r->shared->slot_spec_old, a->now + half);
	r->rotate_at = a->now + half;
	if (cur < r->rotate_at + half)
		r->rotate_at = cur > half ? cur - half : 0;
	if (old < r->rotate_at)
		r->rotate_at = old;
}

void
row_rotate(struct apply *a, struct apply_row *r)
{
	struct row *row = r->shared;
	uint16_t cur = name_get(&row->slot_spec_cur);

	r->rotate_at = a->now + row_lease(r) / 2;
	name_retire(a, &row->slot_spec_old);
	if (cur == 0)
		return;
	name_set(&row->slot_spec_cur, 0); /* first: two names for one slot would outlive it */
	name_set(&row->slot_spec_old, cur);
	if (lease_of(a, cur) > r->rotate_at)
		lease_set(a, cur, r->rotate_at);
}

void
row_expire(struct apply *a, struct apply_row *r)
{
	for (unsigned i = 2; i < NAMES; i++) { /* exact ones do not */
		slot_name *name = name_at(r->shared, i);
		mono_ns end = lease_of(a, name_get(name));

		if (end == 0 || a->now < end)
			continue;
		if (i < 4)
			row_retire_demoted(a, r, i == 2 ? INDEX_GPU : INDEX_OFFLOAD);
		else
			name_retire(a, name);
	}
}

/* Does this name fit the slot it names? */
static bool
name_fits(const struct apply *a, uint16_t row, unsigned i, uint16_t id)
{
	static const struct {
		enum index_role role;
		enum index_tier tier;
	} of[NAMES] = {
		{INDEX_EXACT, INDEX_GPU},       {INDEX_EXACT, INDEX_OFFLOAD},
		{INDEX_DEMOTED, INDEX_GPU},     {INDEX_DEMOTED, INDEX_OFFLOAD},
		{INDEX_SPECULATIVE, INDEX_GPU}, {INDEX_SPECULATIVE, INDEX_GPU},
	};
	uint64_t word = index_slot_word(a->w, id);

	return index_slot_state(word) == INDEX_SLOT_LIVE && index_slot_row(word) == row &&
	       index_slot_role(word) == of[i].role && index_slot_tier(word) == of[i].tier;
}

void
slots_settle(struct apply *a)
{
	uint32_t rows = rows_count(a->rows);

	for (uint32_t row = 0; row < rows; row++) {
		uint8_t intent =
			atomic_load_explicit(&a->rows->row[row].intent, memory_order_acquire);

		for (unsigned i = 0; i < NAMES; i++) {
			slot_name *name = name_at(&a->rows->row[row], i);
			uint16_t id = name_get(name);

			if (id != 0 && !name_fits(a, (uint16_t)row, i, id))
				name_set(name, 0);
			else if (intent != INTENT_SERVE && intent != INTENT_DRAIN)
				name_retire(a, name); /* taken away while nobody was here */
		}
	}
	for (uint32_t id = 1; id <= index_max_slots(a->w); id++) {
		uint64_t word = index_slot_word(a->w, (uint16_t)id);
		uint16_t row = index_slot_row(word);
		bool named = false;

		if (index_slot_state(word) != INDEX_SLOT_LIVE)
			continue;
		for (unsigned i = 0; row < rows && i < NAMES; i++)
			named |= name_get(name_at(&a->rows->row[row], i)) == id;
		if (!named)
			index_slot_retire(a->w, (uint16_t)id);
	}
}
