/* tests/race/index_load.c -- a small kvevents; see index_load.h. */
#include "tests/race/index_load.h"

static uint64_t
mix(const struct load *l, uint64_t a, uint64_t b)
{
	uint64_t state = l->seed ^ a * 0xd6e8feb86659fd93ull ^ b << 32;

	return random_next(&state);
}

static unsigned
below(struct load *l, unsigned n)
{
	return (unsigned)(random_next(&l->random) % n);
}

void
load_hashes(const struct load *l, unsigned chain, uint64_t ret[LOAD_CHAIN])
{
	for (unsigned i = 0; i < LOAD_CHAIN; i++)
		ret[i] = mix(l, chain + 1, i + 1);
}

bool
load_allowed(const struct load *l, unsigned chain, unsigned row)
{
	return chain < l->hot || (mix(l, chain + 1, 1000 + 2 * (row / 64)) >> row % 64 & 1);
}

bool
load_allowed_exact(const struct load *l, unsigned chain, unsigned row)
{
	return load_allowed(l, chain, row) &&
	       (mix(l, chain + 1, 1001 + 2 * (row / 64)) >> row % 64 & 1);
}

static uint16_t
get(_Atomic uint16_t *name)
{
	return atomic_load_explicit(name, memory_order_relaxed);
}

static void
set(_Atomic uint16_t *name, uint16_t id)
{
	LOAD_STORE_POINT();
	atomic_store_explicit(name, id, memory_order_relaxed);
}

static unsigned
some_chain(struct load *l)
{
	return l->hot && below(l, 2) ? below(l, l->hot) : below(l, l->chains);
}

/* Of 16: how many puts among the puts and takes of a chain. */
static unsigned
puts_of_16(const struct load *l, unsigned chain)
{
	if (chain >= l->hot || l->phase == 0)
		return 11;
	return l->done / l->phase % 2 ? 2 : 15;
}

static bool
name_holds(struct index_writer *w, uint16_t id, unsigned row, enum index_role role,
	   enum index_tier tier)
{
	uint64_t word = index_slot_word(w, id);

	return id != 0 && index_slot_state(word) == INDEX_SLOT_LIVE &&
	       index_slot_row(word) == row && index_slot_role(word) == role &&
	       index_slot_tier(word) == tier;
}

void
load_adopt(struct load *l, struct index_writer *w)
{
	l->w = w;
	for (unsigned r = 0; r < l->rows; r++) {
		struct load_row *row = &l->row[r];

		if (!name_holds(w, get(&row->gpu), r, INDEX_EXACT, INDEX_GPU))
			set(&row->gpu, 0);
		if (!name_holds(w, get(&row->offload), r, INDEX_EXACT, INDEX_OFFLOAD))
			set(&row->offload, 0);
		if (!name_holds(w, get(&row->cur), r, INDEX_SPECULATIVE, INDEX_GPU))
			set(&row->cur, 0);
		if (!name_holds(w, get(&row->old), r, INDEX_SPECULATIVE, INDEX_GPU))
			set(&row->old, 0);
		if (!name_holds(w, get(&row->demoted), r, INDEX_DEMOTED, INDEX_GPU))
			set(&row->demoted, 0);
	}
	for (uint32_t id = 1; id <= index_max_slots(w); id++) {
		uint64_t word = index_slot_word(w, (uint16_t)id);
		struct load_row *row = &l->row[index_slot_row(word) % LOAD_ROWS_MAX];

		if (index_slot_state(word) != INDEX_SLOT_LIVE)
			continue;
		if (get(&row->gpu) != id && get(&row->offload) != id && get(&row->cur) != id &&
		    get(&row->old) != id && get(&row->demoted) != id)
			index_slot_retire(w, (uint16_t)id);
	}
}

static void
retire(struct load *l, _Atomic uint16_t *name)
{
	uint16_t id = get(name);

	if (id == 0)
		return;
	index_slot_retire(l->w, id);            /* slot word first, name second */
	set(name, 0);
}

static uint16_t
need(struct load *l, unsigned row, _Atomic uint16_t *name, enum index_role role,
     enum index_tier tier)
{
	if (get(name) == 0)
		set(name, index_slot_take(l->w, (uint16_t)row, 1, role, tier, 16));
	return get(name);
}

static void
block_store(struct load *l, unsigned r, unsigned chain, uint64_t hash)
{
	struct load_row *row = &l->row[r];
	uint16_t spec[2] = {get(&row->cur), get(&row->old)}, instead[2];
	unsigned n = 0;

	for (unsigned i = 0; i < 2; i++)
		if (spec[i])
			instead[n++] = spec[i];
	if (load_allowed_exact(l, chain, r) && below(l, 3)) {
		bool offload = below(l, 4) == 0;
		uint16_t id = offload ? need(l, r, &row->offload, INDEX_EXACT, INDEX_OFFLOAD)
				      : need(l, r, &row->gpu, INDEX_EXACT, INDEX_GPU);

		if (id)
			index_put(l->w, id, hash, instead, n);
		return;
	}

	uint16_t id = need(l, r, &row->cur, INDEX_SPECULATIVE, INDEX_GPU), old = get(&row->old);

	if (id)
		index_put(l->w, id, hash, &old, old != 0);
}

static void
block_remove(struct load *l, unsigned r, uint64_t hash)
{
	struct load_row *row = &l->row[r];
	uint16_t all[5] = {get(&row->gpu), get(&row->offload), get(&row->cur), get(&row->old),
			   get(&row->demoted)}, ids[5];
	unsigned n = 0;

	for (unsigned i = 0; i < 5; i++)
		if (all[i] && (i < 2 || below(l, 2)))
			ids[n++] = all[i];
	index_take(l->w, hash, ids, n);
}

static void
slot_change(struct load *l, unsigned r)
{
	struct load_row *row = &l->row[r];
	uint16_t id;

	switch (below(l, 5)) {
	case 0:                                 /* cleared */
		retire(l, &row->gpu);
		retire(l, &row->demoted);
		retire(l, &row->cur);
		retire(l, &row->old);
		break;
	case 1:
	case 2:                                 /* half a lease */
		retire(l, &row->old);
		id = get(&row->cur);
		set(&row->cur, 0);             /* never two names of one slot: unnamed is retired */
		set(&row->old, id);
		break;
	case 3:                                 /* a gap */
		retire(l, &row->demoted);
		id = get(&row->gpu);
		if (id) {
			index_slot_demote(l->w, id);
			set(&row->demoted, id);
			set(&row->gpu, 0);
		}
		break;
	case 4:
		retire(l, &row->offload);
		break;
	}
}

void
load_block(struct load *l, unsigned row, unsigned chain, unsigned block, bool put)
{
	uint64_t hash[LOAD_CHAIN];

	load_hashes(l, chain, hash);
	l->done++;
	if (put)
		block_store(l, row, chain, hash[block]);
	else
		block_remove(l, row, hash[block]);
}

void
load_one(struct load *l)
{
	unsigned r = below(l, l->rows), chain = some_chain(l), what = below(l, 32);
	unsigned at = below(l, 1 + below(l, 1 + below(l, LOAD_CHAIN)));   /* mostly near the root */
	uint64_t hash[LOAD_CHAIN];

	l->done++;
	if (what == 0) {
		slot_change(l, r);
	} else if (what < 3) {
		index_scrub(l->w, 1 + below(l, 64));
	} else if (load_allowed(l, chain, r)) {
		load_hashes(l, chain, hash);
		if (below(l, 16) < puts_of_16(l, chain))
			block_store(l, r, chain, hash[at]);
		else
			block_remove(l, r, hash[at]);
	}
}

void
load_step(struct load *l)
{
	unsigned r = below(l, l->rows), chain = some_chain(l), what = below(l, 64);
	uint64_t hash[LOAD_CHAIN];

	l->done++;
	if (what == 0) {
		slot_change(l, r);
		return;
	}
	if (what < 4) {
		index_scrub(l->w, 1 + below(l, 128));
		return;
	}
	if (!load_allowed(l, chain, r))
		return;
	load_hashes(l, chain, hash);

	unsigned from = below(l, 3) ? 0 : below(l, LOAD_CHAIN);
	unsigned to = from + 1 + below(l, LOAD_CHAIN - from);
	bool put = below(l, 16) < puts_of_16(l, chain);

	for (unsigned i = from; i < to; i++)
		if (put)
			block_store(l, r, chain, hash[i]);
		else
			block_remove(l, r, hash[i]);
}

static uint64_t
slot_word(const struct index_slot *slots, uint16_t id)
{
	return atomic_load_explicit(&slots[id].word, memory_order_acquire);
}

/* The owner of an id is known where its word was the same before and after. */
static bool
holders_judge(const struct load *l, struct index *index, unsigned chain, uint64_t hash)
{
	static _Thread_local uint64_t before[INDEX_MAX_SLOTS + 1];
	static _Thread_local uint16_t id[INDEX_MAX_SLOTS];
	uint32_t max_slots;
	const struct index_slot *slots = index_slots(index, &max_slots);

	for (uint32_t i = 1; i <= max_slots; i++)
		before[i] = slot_word(slots, (uint16_t)i);

	unsigned n = index_holders(index, hash, id, max_slots);

	for (unsigned i = 0; i < n; i++) {
		uint64_t word = id[i] == 0 || id[i] > max_slots ? 0 : slot_word(slots, id[i]);
		unsigned row = index_slot_row(word);

		if (word == 0 || (i > 0 && id[i] <= id[i - 1]))
			return false;
		if (word != before[id[i]])
			continue;
		/* Retired: its word is stored, the epoch that tells readers is not yet. */
		if (index_slot_state(word) == INDEX_SLOT_FREE || row >= l->rows ||
		    !load_allowed(l, chain, row) ||
		    (index_slot_role(word) == INDEX_EXACT && !load_allowed_exact(l, chain, row)))
			return false;
	}
	return true;
}

bool
load_judge(const struct load *l, struct index *index, unsigned chain, uint64_t *hits)
{
	struct index_depth depth[LOAD_ROWS_MAX];
	uint64_t hash[LOAD_CHAIN];

	load_hashes(l, chain, hash);

	unsigned n = index_match(index, hash, LOAD_CHAIN, depth, LOAD_ROWS_MAX);

	for (unsigned i = 0; i < n; i++) {
		unsigned row = depth[i].row;

		*hits += depth[i].any;
		if (row >= l->rows || depth[i].any == 0 || depth[i].any > LOAD_CHAIN ||
		    depth[i].exact > depth[i].any || depth[i].gpu > depth[i].exact ||
		    !load_allowed(l, chain, row) ||
		    (depth[i].exact && !load_allowed_exact(l, chain, row)))
			return false;
		for (unsigned k = 0; k < i; k++)
			if (depth[k].row == row)
				return false;
	}
	return chain % 8 != 0 || holders_judge(l, index, chain, hash[chain / 8 % LOAD_CHAIN]);
}
