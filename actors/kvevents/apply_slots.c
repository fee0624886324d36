/* actors/kvevents/apply_slots.c -- the index slots of a row: taken, demoted, rotated, retired.
 *
 * A slot belongs to a row when the row names it.  New: slot word, name, first bit.  Retire: slot
 *                                                 word
 * first (invisible at once), name second; dying between leaves a name whose slot is not live, which
 * slots_settle clears.
 */
#include "actors/kvevents/apply_row.h"

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

mono_ns
row_lease(const struct apply_row *r)
{
	return r->events && atomic_load_explicit(&r->shared->received, memory_order_relaxed) > 0
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

/* More than the index has room for are of no use to anybody. */
static size_t
blocks_most(const struct apply *a)
{
	return index_writer_head(a->w)->nbuckets * 4;
}

uint16_t
row_slot_exact(struct apply *a, struct apply_row *r, enum index_tier tier)
{
	slot_name *name = name_of(r->shared, INDEX_EXACT, tier);
	struct apply_tier *t = &r->tier[tier];
	uint16_t id = name_get(name);

	if (id != 0)
		return id;
	if (!t->fresh && reverse_new(&t->fresh, tier == INDEX_GPU ? blocks_expected(r) : 0,
				     blocks_most(a)) < 0)
		return 0;
	id = index_slot_take(a->w, r->id, r->row_gen, INDEX_EXACT, tier, r->block_tokens);
	if (id == 0) {
		reverse_free(&t->fresh);
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
	index_slot_entry(a->w, id)->expires_ns = r->rotate_at + row_lease(r) / 2;
	name_set(name, id);
	return id;
}

void
row_retire_tier(struct apply *a, struct apply_row *r, enum index_tier tier)
{
	name_retire(a, name_of(r->shared, INDEX_EXACT, tier));
	name_retire(a, name_of(r->shared, INDEX_DEMOTED, tier));
	reverse_free(&r->tier[tier].fresh);
	reverse_free(&r->tier[tier].demoted);
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
}

/* An older demoted slot makes room first.  A row's exact name is cleared last: dying before leaves
 * the slot named twice, and slots_settle clears the name whose role it no longer has. */
void
row_demote(struct apply *a, struct apply_row *r, mono_ns now)
{
	for (unsigned i = 0; i < APPLY_TIERS; i++) {
		enum index_tier tier = (enum index_tier)i;
		slot_name *exact = name_of(r->shared, INDEX_EXACT, tier);
		slot_name *demoted = name_of(r->shared, INDEX_DEMOTED, tier);
		struct apply_tier *t = &r->tier[tier];
		uint16_t id = name_get(exact);

		if (id == 0)
			continue;
		name_retire(a, demoted);
		reverse_free(&t->demoted);
		index_slot_demote(a->w, id);
		name_set(demoted, id);
		name_set(exact, 0);
		t->demoted = t->fresh;
		t->fresh = NULL;
		t->demoted_until = now + APPLY_LEASE_EVENTS_NS;
		index_slot_entry(a->w, id)->expires_ns = t->demoted_until;
	}
	orphans_clear(r->orphans);
}

void
row_rotate(struct apply *a, struct apply_row *r, mono_ns now)
{
	struct row *row = r->shared;
	uint16_t cur = name_get(&row->slot_spec_cur);

	r->rotate_at = now + row_lease(r) / 2;
	name_retire(a, &row->slot_spec_old);
	if (cur == 0)
		return;
	name_set(&row->slot_spec_cur, 0); /* first: two names for one slot would outlive it */
	name_set(&row->slot_spec_old, cur);
}

void
row_expire(struct apply *a, struct apply_row *r, mono_ns now)
{
	for (unsigned i = 0; i < APPLY_TIERS; i++) {
		slot_name *demoted = name_of(r->shared, INDEX_DEMOTED, (enum index_tier)i);

		if (name_get(demoted) == 0 || now < r->tier[i].demoted_until)
			continue;
		name_retire(a, demoted);
		reverse_free(&r->tier[i].demoted);
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
	uint32_t rows = atomic_load_explicit(&a->rows->head->count, memory_order_acquire);

	for (uint32_t row = 0; row < rows && row < a->rows->capacity; row++)
		for (unsigned i = 0; i < NAMES; i++) {
			slot_name *name = name_at(&a->rows->row[row], i);
			uint16_t id = name_get(name);

			if (id != 0 && !name_fits(a, (uint16_t)row, i, id))
				name_set(name, 0);
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
