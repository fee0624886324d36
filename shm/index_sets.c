/* shm/index_sets.c -- the holders of one block: a set in its four forms, put and take, growth and
 * shrinking; order in index.h.
 *
 * A set is changed by one store of its set word, or by one store of a word of its chunk.  Only a
 * change of several ids in a chunk takes more than one: the new id is set first, the others are
 * cleared after, so a reader in between sees a row twice at most, and once is what counts.
 */
#include "shm/index_writer.h"

#include <string.h>

/* ---- chunks ---- */

static bool
chunk_free(const struct index_writer *w, enum pool_class class)
{
	return w->chunks[class].n_free > 0;
}

static uint32_t
chunk_take(struct index_writer *w, enum pool_class class)
{
	struct chunks *p = &w->chunks[class];
	uint32_t chunk = p->free[--p->n_free];
	_Atomic uint32_t *version = &w->v.pool[class].version[chunk];

	INDEX_STORE_POINT();
	atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	stat_add(&w->v.head->pool_used[class], 1);
	/* Whoever reads a word we write next also sees that the chunk's last set word is gone. */
	atomic_thread_fence(memory_order_release);
	return chunk;
}

void
chunk_release(struct index_writer *w, uint64_t s)
{
	enum pool_class class = pool_class(s);
	struct chunks *p = &w->chunks[class];

	p->held[pool_chunk(s)] = 0;
	if (p->n_quarantine == QUARANTINE) {
		p->free[p->n_free++] = p->quarantine[p->quarantine_at];
		stat_add(&w->v.head->pool_used[class], -1);
	} else {
		p->n_quarantine++;
	}
	p->quarantine[p->quarantine_at] = pool_chunk(s);
	p->quarantine_at = (p->quarantine_at + 1) % QUARANTINE;
}

/* The smaller class that holds n ids. */
static enum pool_class
class_for(const struct index_writer *w, unsigned n)
{
	return w->v.pool[POOL_SMALL].chunks > 0 && n <= w->v.small_ids ? POOL_SMALL
										     : POOL_BITMAP;
}

/* Fills a free chunk of this class with ids, before it is shown: the set word that shows it. */
static uint64_t
chunk_fill(struct index_writer *w, enum pool_class class, const uint16_t *ids, unsigned n)
{
	const struct index_view *v = &w->v;
	uint32_t chunk = chunk_take(w, class), words = v->pool[class].words;

	memset(w->words, 0, words * sizeof w->words[0]);
	for (unsigned i = 0; i < n; i++)
		if (class == POOL_BITMAP)
			w->words[ids[i] / 64] |= 1ull << ids[i] % 64;
		else
			w->words[i / v->small_per_word] |= (uint64_t)ids[i]
						      << i % v->small_per_word * v->list_bits;
	for (uint32_t i = 0; i < words; i++)
		store(&chunk_at(v, class, chunk)[i], w->words[i]);
	w->chunks[class].held[chunk] = (uint16_t)n;
	return pool_pack(class,
			 atomic_load_explicit(&v->pool[class].version[chunk], memory_order_relaxed),
			 chunk);
}

/* At half of what the smaller form holds, not below: a set at the border does not move back and
 * forth. */
static void
pool_shrink(struct index_writer *w, _Atomic uint64_t *at)
{
	uint64_t s = load(at), is;
	enum pool_class class = pool_class(s);
	uint32_t held = w->chunks[class].held[pool_chunk(s)];
	bool list = held <= w->v.list_ids / 2;

	if (!list && (class == POOL_SMALL || held > w->v.small_ids / 2 ||
		      !chunk_free(w, POOL_SMALL)))
		return;

	unsigned n = index_set_ids(&w->v, s, w->ids);

	is = list ? list_pack(&w->v, w->ids, n) : chunk_fill(w, POOL_SMALL, w->ids, n);
	store_release(at, is);                                                          /* P3 */
	chunk_release(w, s);
}

/* ---- questions ---- */

static bool
among(uint16_t id, const uint16_t *ids, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static bool
small_has(const struct index_view *v, uint32_t chunk, uint16_t id)
{
	for (uint32_t k = 0; k < v->pool[POOL_SMALL].words; k++) {
		uint64_t word = load(&chunk_at(v, POOL_SMALL, chunk)[k]);

		for (unsigned i = 0; i < v->small_per_word; i++)
			if (small_id(v, word, i) == id)
				return true;
	}
	return false;
}

bool
set_has(const struct index_view *v, uint64_t s, uint16_t id)
{
	if (v->list_bits == 0)
		return s >> id & 1;
	if (!set_is_pool(s))
		return list_has(v, s, id);
	if (!pool_sane(v, s))
		return false;
	if (pool_class(s) == POOL_SMALL)
		return small_has(v, pool_chunk(s), id);
	return load(&chunk_at(v, POOL_BITMAP, pool_chunk(s))[id / 64]) >> id % 64 & 1;
}

uint64_t
set_of_one(const struct index_view *v, uint16_t id)
{
	return v->list_bits == 0 ? 1ull << id : list_pack(v, &id, 1);
}

/* ---- the set word is a bitmap ---- */

static bool
word_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	 const uint16_t *instead, unsigned n_instead)
{
	uint64_t was = load(at), is = was;

	for (unsigned i = 0; i < n_instead; i++)
		is &= ~(1ull << instead[i]);
	is |= 1ull << id;
	if (is == was)
		return true;
	if (!(was >> id & 1)) {
		if (!log_append(w, id, hash))
			return false;
		holder_account(w, id, true);
	}
	store_release(at, is);                                                          /* P3 */
	for (uint64_t gone = was & ~is; gone; gone &= gone - 1)
		holder_account(w, (uint16_t)__builtin_ctzll(gone), false);
	return true;
}

static bool
word_take(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n)
{
	uint64_t was = load(at), is = was;

	for (unsigned i = 0; i < n; i++)
		if (id_valid(w, ids[i]))
			is &= ~(1ull << ids[i]);
	if (is == was || is == 0)
		return is != was;
	store_release(at, is);                                                          /* P3 */
	for (uint64_t gone = was & ~is; gone; gone &= gone - 1)
		holder_account(w, (uint16_t)__builtin_ctzll(gone), false);
	return false;
}

/* ---- the set word is a list ----
 *
 * Worked as one number.  How many ids there are, and where one stands, is different from block to
 * block: a loop over them costs a branch foretold wrongly for most, a tenth of a put.
 */

/* A list as it is to be, while its store is still to come. */
struct list {
	uint64_t is;
	uint16_t gone[LIST_MAX];
	unsigned n_gone;
};

static void
list_drop(const struct index_writer *w, struct list *l, uint16_t id)
{
	l->is = list_without(&w->v, l->is, id);
	l->gone[l->n_gone++] = id;
}

/* Ids of a full list and one more move to a chunk: filled first, shown after. */
static bool
list_grow(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash)
{
	uint16_t ids[LIST_MAX + 1];
	unsigned n = list_unpack(&w->v, load(at), ids);
	enum pool_class class = class_for(w, n + 1);

	if (!chunk_free(w, class))
		return refuse(w, class == POOL_SMALL ? INDEX_CAUSE_CLASS_0 : INDEX_CAUSE_CLASS_1);
	if (!log_append(w, id, hash))
		return false;
	ids[n] = id;
	store_release(at, chunk_fill(w, class, ids, n + 1));                            /* P3 */
	holder_account(w, id, true);
	return true;
}

static void
list_drop_ids(const struct index_writer *w, struct list *l, uint16_t but, const uint16_t *ids,
	      unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ids[i] != but && list_has(&w->v, l->is, ids[i]))
			list_drop(w, l, ids[i]);
}

/* Ids that wait for the scrub. */
static void
list_drop_dead(const struct index_writer *w, struct list *l)
{
	uint16_t ids[LIST_MAX];
	unsigned n = list_unpack(&w->v, l->is, ids);

	for (unsigned i = 0; i < n; i++)
		if (slot_state(w, ids[i]) != INDEX_SLOT_LIVE)
			list_drop(w, l, ids[i]);
}

static void
list_write(struct index_writer *w, _Atomic uint64_t *at, const struct list *l)
{
	store_release(at, l->is);                                                       /* P3 */
	for (unsigned i = 0; i < l->n_gone; i++)
		holder_account(w, l->gone[i], false);
}

static bool
list_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	 const uint16_t *instead, unsigned n_instead)
{
	struct list l = {.is = load(at)};

	list_drop_ids(w, &l, id, instead, n_instead);
	if (!list_has(&w->v, l.is, id)) {
		if (list_full(&w->v, l.is))     /* before a chunk is taken */
			list_drop_dead(w, &l);
		if (list_full(&w->v, l.is))
			return list_grow(w, at, id, hash);
		if (!log_append(w, id, hash))
			return false;
		l.is = list_with(&w->v, l.is, id);
		holder_account(w, id, true);
	} else if (l.n_gone == 0) {
		return true;
	}
	list_write(w, at, &l);
	return true;
}

static bool
list_take(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n)
{
	struct list l = {.is = load(at)};

	list_drop_ids(w, &l, 0, ids, n);
	if (l.n_gone == 0 || l.is == SET_LIST)
		return l.n_gone != 0;
	list_write(w, at, &l);
	return false;
}

/* ---- class 0: a chunk of ids ---- */

/* A chunk's words as they are to be, while its stores are still to come. */
struct small {
	_Atomic uint64_t *at;
	uint64_t was[SMALL_WORDS], is[SMALL_WORDS];
	uint16_t gone[SMALL_MAX];
	unsigned n_gone;
};

static void
small_read(const struct index_writer *w, uint64_t s, struct small *ret)
{
	ret->at = chunk_at(&w->v, POOL_SMALL, pool_chunk(s));
	ret->n_gone = 0;
	for (uint32_t k = 0; k < w->v.pool[POOL_SMALL].words; k++)
		ret->is[k] = ret->was[k] = load(&ret->at[k]);
}

static void
small_drop(const struct index_writer *w, struct small *c, uint32_t k, unsigned place)
{
	c->gone[c->n_gone++] = small_id(&w->v, c->is[k], place);
	c->is[k] &= ~(((1ull << w->v.list_bits) - 1) << place * w->v.list_bits);
}

static void
small_drop_ids(const struct index_writer *w, struct small *c, uint16_t but, const uint16_t *ids,
	       unsigned n)
{
	for (uint32_t k = 0; n > 0 && k < w->v.pool[POOL_SMALL].words; k++)
		for (unsigned i = 0; i < w->v.small_per_word; i++) {
			uint16_t id = small_id(&w->v, c->is[k], i);

			if (id != 0 && id != but && among(id, ids, n))
				small_drop(w, c, k, i);
		}
}

/* Ids that wait for the scrub. */
static void
small_drop_dead(const struct index_writer *w, struct small *c)
{
	for (uint32_t k = 0; k < w->v.pool[POOL_SMALL].words; k++)
		for (unsigned i = 0; i < w->v.small_per_word; i++) {
			uint16_t id = small_id(&w->v, c->is[k], i);

			if (id != 0 && slot_state(w, id) != INDEX_SLOT_LIVE)
				small_drop(w, c, k, i);
		}
}

/* A free place; best in a word that changes anyhow, so that one store does both. */
static bool
small_place(const struct index_writer *w, const struct small *c, uint32_t *ret_word,
	    unsigned *ret_place)
{
	bool found = false;

	for (uint32_t k = 0; k < w->v.pool[POOL_SMALL].words; k++) {
		bool changes = c->is[k] != c->was[k];

		if (found && !changes)
			continue;
		for (unsigned i = 0; i < w->v.small_per_word; i++) {
			if (small_id(&w->v, c->is[k], i) != 0)
				continue;
			*ret_word = k;
			*ret_place = i;
			if (changes)
				return true;
			found = true;
			break;
		}
	}
	return found;
}

/* In any order: a new id comes in the store in which one of those it replaces goes. */
static void
small_write(struct index_writer *w, _Atomic uint64_t *at, struct small *c)
{
	for (uint32_t k = 0; k < w->v.pool[POOL_SMALL].words; k++)
		if (c->is[k] != c->was[k])
			store_release(&c->at[k], c->is[k]);                             /* P3 */
	w->chunks[POOL_SMALL].held[pool_chunk(load(at))] -= (uint16_t)c->n_gone;
	for (unsigned i = 0; i < c->n_gone; i++)
		holder_account(w, c->gone[i], false);
	pool_shrink(w, at);
}

/* Every id of a full chunk and one more move to a bitmap. */
static bool
small_grow(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash)
{
	uint64_t s = load(at);
	unsigned n = index_set_ids(&w->v, s, w->ids);

	if (!chunk_free(w, POOL_BITMAP))
		return refuse(w, INDEX_CAUSE_CLASS_1);
	if (!log_append(w, id, hash))
		return false;
	w->ids[n] = id;
	store_release(at, chunk_fill(w, POOL_BITMAP, w->ids, n + 1));                   /* P3 */
	holder_account(w, id, true);
	chunk_release(w, s);
	return true;
}

static bool
small_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	  const uint16_t *instead, unsigned n_instead)
{
	uint64_t s = load(at);
	bool known = small_has(&w->v, pool_chunk(s), id);
	struct small c;
	uint32_t word;
	unsigned place;

	if (known && n_instead == 0)
		return true;
	small_read(w, s, &c);
	small_drop_ids(w, &c, id, instead, n_instead);
	if (!known) {
		if (!small_place(w, &c, &word, &place)) {
			small_drop_dead(w, &c);
			if (!small_place(w, &c, &word, &place))
				return small_grow(w, at, id, hash);
		}
		if (!log_append(w, id, hash))
			return false;
		c.is[word] |= (uint64_t)id << place * w->v.list_bits;
		w->chunks[POOL_SMALL].held[pool_chunk(s)]++;
		holder_account(w, id, true);
	}
	small_write(w, at, &c);
	return true;
}

static bool
small_take(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n)
{
	uint64_t s = load(at);
	struct small c;

	small_read(w, s, &c);
	small_drop_ids(w, &c, 0, ids, n);
	if (c.n_gone == 0 || c.n_gone == w->chunks[POOL_SMALL].held[pool_chunk(s)])
		return c.n_gone != 0;
	small_write(w, at, &c);
	return false;
}

/* ---- class 1: a bitmap ---- */

static void
bitmap_clear(struct index_writer *w, uint32_t chunk, uint16_t id)
{
	_Atomic uint64_t *word = &chunk_at(&w->v, POOL_BITMAP, chunk)[id / 64];
	uint64_t was = load(word);

	if (!(was >> id % 64 & 1))
		return;
	w->chunks[POOL_BITMAP].held[chunk]--;
	holder_account(w, id, false);
	store_release(word, was & ~(1ull << id % 64));
}

static bool
bitmap_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	   const uint16_t *instead, unsigned n_instead)
{
	uint32_t chunk = pool_chunk(load(at));
	_Atomic uint64_t *word = &chunk_at(&w->v, POOL_BITMAP, chunk)[id / 64];
	uint16_t *held = &w->chunks[POOL_BITMAP].held[chunk];
	uint64_t was = load(word), is = was | 1ull << id % 64;

	if (was != is) {
		if (!log_append(w, id, hash))
			return false;
		++*held;
		holder_account(w, id, true);
	}
	for (unsigned i = 0; i < n_instead; i++)
		if (instead[i] != id && instead[i] / 64 == id / 64 && is >> instead[i] % 64 & 1) {
			is &= ~(1ull << instead[i] % 64);
			--*held;
			holder_account(w, instead[i], false);
		}
	if (is != was)
		store_release(word, is);                                                /* P3 */
	for (unsigned i = 0; i < n_instead; i++)
		if (instead[i] != id)
			bitmap_clear(w, chunk, instead[i]);
	pool_shrink(w, at);
	return true;
}

static bool
bitmap_take(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n)
{
	uint64_t s = load(at);
	unsigned gone = 0;

	for (unsigned i = 0; i < n; i++)
		if (id_valid(w, ids[i]) && !among(ids[i], ids, i) && set_has(&w->v, s, ids[i]))
			gone++;
	if (gone == w->chunks[POOL_BITMAP].held[pool_chunk(s)])
		return true;
	for (unsigned i = 0; i < n; i++)
		if (id_valid(w, ids[i]))
			bitmap_clear(w, pool_chunk(s), ids[i]);
	if (gone > 0)
		pool_shrink(w, at);
	return false;
}

/* ---- any form ---- */

bool
set_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	const uint16_t *instead, unsigned n_instead)
{
	uint64_t s = load(at);

	if (w->v.list_bits == 0)
		return word_put(w, at, id, hash, instead, n_instead);
	if (!set_is_pool(s))
		return list_put(w, at, id, hash, instead, n_instead);
	if (pool_class(s) == POOL_SMALL)
		return small_put(w, at, id, hash, instead, n_instead);
	return bitmap_put(w, at, id, hash, instead, n_instead);
}

bool
set_take(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n)
{
	uint64_t s = load(at);

	if (w->v.list_bits == 0)
		return word_take(w, at, ids, n);
	if (!set_is_pool(s))
		return list_take(w, at, ids, n);
	if (pool_class(s) == POOL_SMALL)
		return small_take(w, at, ids, n);
	return bitmap_take(w, at, ids, n);
}
