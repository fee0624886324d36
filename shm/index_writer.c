/* shm/index_writer.c -- putting holders into the index and taking them out; order in index.h.
 *
 * Each function names the state a reader sees between its stores only where that is not "before" or
 * "after": there is one such place, the removal of several ids from a pool chunk.
 */
#include "shm/index_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void
writer_free(struct index_writer *w)
{
	if (w->log)
		for (uint32_t id = 0; id <= w->v.max_slots; id++)
			free(w->log[id].hash);
	free(w->words);
	free(w->ids);
	free(w->chunk_held);
	free(w->free_chunks);
	free(w->retired);
	free(w->free_ids);
	free(w->log);
	segment_detach(&w->seg);
	free(w);
}

int
index_writer_open(struct index_writer **ret, int fd)
{
	struct index_writer *w = calloc(1, sizeof *w);
	int r;

	if (!w)
		return -ENOMEM;
	r = segment_attach(&w->seg, fd, SEGMENT_INDEX, INDEX_LAYOUT, true);
	if (r < 0) {
		free(w);
		return r;
	}
	r = index_view_open(&w->v, &w->seg);
	if (r < 0)
		goto fail;
	r = -ENOMEM;
	w->log = calloc(w->v.max_slots + 1u, sizeof w->log[0]);
	w->free_ids = calloc(w->v.max_slots, sizeof w->free_ids[0]);
	w->retired = calloc(w->v.max_slots, sizeof w->retired[0]);
	w->free_chunks = calloc(w->v.pool_chunks + 1u, sizeof w->free_chunks[0]);
	w->chunk_held = calloc(w->v.pool_chunks + 1u, sizeof w->chunk_held[0]);
	w->ids = calloc(w->v.max_slots, sizeof w->ids[0]);
	w->words = calloc(w->v.chunk_words, sizeof w->words[0]);
	if (!w->log || !w->free_ids || !w->retired || !w->free_chunks || !w->chunk_held ||
	    !w->ids || !w->words)
		goto fail;
	segment_claim(&w->seg);
	r = index_recover(w);
	if (r < 0)
		goto fail;
	*ret = w;
	return 0;
fail:
	writer_free(w);
	return r;
}

void
index_writer_close(struct index_writer **ret)
{
	if (*ret)
		writer_free(*ret);
	*ret = NULL;
}

struct index_header *
index_writer_head(struct index_writer *w)
{
	return w->v.head;
}

struct segment *
index_writer_segment(struct index_writer *w)
{
	return &w->seg;
}

/* ---- lanes ---- */

bool
lane_find(const struct index_view *v, uint64_t hash, struct lane *ret)
{
	uint64_t b = home_of(v, hash), tag = tag_of(hash);

	for (unsigned d = 0; d < INDEX_PROBE; d++, b = bucket_after(v, b)) {
		const struct index_bucket *bucket = &v->bucket[b];

		for (unsigned i = 0; i < LANES; i++)
			if (w_key(load(&bucket->w[i])) == (tag << 5 | d)) {
				*ret = (struct lane){.bucket = b, .lane = i, .displacement = d};
				return true;
			}
		if (w_count(load(&bucket->w[0])) == 0)
			return false;
	}
	return false;
}

static bool
lane_empty(const struct index_view *v, uint64_t hash, struct lane *ret)
{
	uint64_t b = home_of(v, hash);

	for (unsigned d = 0; d < INDEX_PROBE; d++, b = bucket_after(v, b))
		for (unsigned i = 0; i < LANES; i++)
			if (w_tag(load(&v->bucket[b].w[i])) == 0) {
				*ret = (struct lane){.bucket = b, .lane = i, .displacement = d};
				return true;
			}
	return false;
}

/* Overflow counters of the buckets passed on the way to `displacement`: +1 or -1.  A counter that
 * reached 255 no longer knows and stays until recovery counts anew. */
static void
path_count(struct index_writer *w, uint64_t home, unsigned displacement, bool up)
{
	for (; displacement > 0; displacement--, home = bucket_after(&w->v, home)) {
		_Atomic uint64_t *at = &w->v.bucket[home].w[0];
		uint64_t word = load(at);

		if (w_count(word) == SATURATED || (!up && w_count(word) == 0))
			continue;
		store(at, up ? word + 1 : word - 1);
	}
}

static void
holder_account(struct index_writer *w, uint16_t id, bool put)
{
	struct index_slot *slot = &w->v.slot[id];

	w->log[id].held += put ? 1u : -1u;
	stat_add(&w->v.head->holders, put ? 1 : -1);
	stat_add(put ? &slot->stored : &slot->removed, 1);
}

void
lane_unkey(struct index_writer *w, uint64_t b, unsigned lane)
{
	struct index_bucket *bucket = &w->v.bucket[b];
	uint64_t word = load(&bucket->w[lane]), s = load(&bucket->s[lane]);
	unsigned n = index_set_ids(&w->v, s, w->ids);

	for (unsigned i = 0; n != SET_MALFORMED && i < n; i++)
		holder_account(w, w->ids[i], false);
	stat_add(&w->v.head->entries, -1);
	store(&bucket->w[lane], w_pack(0, 0, w_version(word) + 1, lane == 0 ? w_count(word) : 0));
	atomic_thread_fence(memory_order_release);                                      /* P4 */
	/* The victim's own path, not the newcomer's: else every counter saturates in time. */
	path_count(w, bucket_back(&w->v, b, w_displacement(word)), w_displacement(word), false);
	if (w->v.list_bits && set_is_pool(s) && pool_sane(&w->v, s))
		chunk_release(w, pool_chunk(s));
}

/* ---- pool ---- */

static bool
chunk_take(struct index_writer *w, uint32_t *ret)
{
	if (w->n_free_chunks == 0)
		return false;
	*ret = w->free_chunks[--w->n_free_chunks];

	_Atomic uint32_t *version = &w->v.version[*ret];

	INDEX_STORE_POINT();
	atomic_store_explicit(version, atomic_load_explicit(version, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	stat_add(&w->v.head->pool_used, 1);
	/* Whoever reads a word we write next also sees that the chunk's last set word is gone. */
	atomic_thread_fence(memory_order_release);
	return true;
}

void
chunk_release(struct index_writer *w, uint32_t chunk)
{
	if (w->n_quarantine == QUARANTINE) {
		w->free_chunks[w->n_free_chunks++] = w->quarantine[w->quarantine_at];
		stat_add(&w->v.head->pool_used, -1);
	} else {
		w->n_quarantine++;
	}
	w->quarantine[w->quarantine_at] = chunk;
	w->quarantine_at = (w->quarantine_at + 1) % QUARANTINE;
}

/* ---- sets ---- */

bool
set_has(const struct index_view *v, uint64_t s, uint16_t id)
{
	uint16_t ids[LIST_MAX];

	if (v->list_bits == 0)
		return s >> id & 1;
	if (set_is_pool(s))
		return pool_sane(v, s) &&
		       (load(&chunk_at(v, pool_chunk(s))[id / 64]) >> id % 64 & 1);

	unsigned n = list_unpack(v, s, ids);

	for (unsigned i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static bool
among(uint16_t id, const uint16_t *ids, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static bool
refuse(struct index_writer *w)
{
	stat_add(&w->v.head->refused, 1);
	return false;
}

static bool
bitmap_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
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
			return refuse(w);
		holder_account(w, id, true);
	}
	store_release(at, is);                                                          /* P3 */
	for (uint64_t gone = was & ~is; gone; gone &= gone - 1)
		holder_account(w, (uint16_t)__builtin_ctzll(gone), false);
	return true;
}

/* Ids of a full list and one more move to a chunk: filled first, shown after. */
static bool
list_to_pool(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n,
	     uint16_t id, uint64_t hash)
{
	uint32_t chunk;

	if (w->n_free_chunks == 0 || !log_append(w, id, hash) || !chunk_take(w, &chunk))
		return refuse(w);
	memset(w->words, 0, w->v.chunk_words * sizeof w->words[0]);
	for (unsigned i = 0; i < n; i++)
		w->words[ids[i] / 64] |= 1ull << ids[i] % 64;
	w->words[id / 64] |= 1ull << id % 64;
	for (uint32_t i = 0; i < w->v.chunk_words; i++)
		store(&chunk_at(&w->v, chunk)[i], w->words[i]);
	w->chunk_held[chunk] = (uint16_t)(n + 1);
	holder_account(w, id, true);

	uint32_t version = atomic_load_explicit(&w->v.version[chunk], memory_order_relaxed);

	store_release(at, pool_pack(version, chunk));                                   /* P3 */
	return true;
}

static bool
list_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	 const uint16_t *instead, unsigned n_instead)
{
	uint16_t was[LIST_MAX], is[LIST_MAX + 1];
	unsigned n_was = list_unpack(&w->v, load(at), was), n = 0;
	bool known = false;

	for (unsigned i = 0; i < n_was; i++) {
		if (was[i] == id)
			known = true;
		else if (among(was[i], instead, n_instead))
			continue;
		is[n++] = was[i];
	}
	if (!known) {
		if (n == w->v.list_ids) {       /* ids that wait for the scrub go before a chunk */
			unsigned live = 0;

			for (unsigned i = 0; i < n; i++)
				if (slot_state(w, is[i]) == INDEX_SLOT_LIVE)
					is[live++] = is[i];
			n = live;
		}
		if (n == w->v.list_ids)
			return list_to_pool(w, at, is, n, id, hash);
		if (!log_append(w, id, hash))
			return refuse(w);

		unsigned k = n++;

		for (; k > 0 && is[k - 1] > id; k--)
			is[k] = is[k - 1];
		is[k] = id;
		holder_account(w, id, true);
	} else if (n == n_was) {
		return true;
	}
	store_release(at, list_pack(&w->v, is, n));                                     /* P3 */
	for (unsigned i = 0; i < n_was; i++)
		if (!among(was[i], is, n))
			holder_account(w, was[i], false);
	return true;
}

/* At half of what a list holds, not below: a set at the border does not move back and forth. */
static void
pool_shrink(struct index_writer *w, _Atomic uint64_t *at)
{
	uint64_t s = load(at);
	uint32_t chunk = pool_chunk(s);

	if (w->chunk_held[chunk] > w->v.list_ids / 2)
		return;

	unsigned n = index_set_ids(&w->v, s, w->ids);

	store_release(at, list_pack(&w->v, w->ids, n));                                 /* P3 */
	chunk_release(w, chunk);
}

static void
pool_clear(struct index_writer *w, uint32_t chunk, uint16_t id)
{
	_Atomic uint64_t *word = &chunk_at(&w->v, chunk)[id / 64];
	uint64_t was = load(word);

	if (!(was >> id % 64 & 1))
		return;
	w->chunk_held[chunk]--;
	holder_account(w, id, false);
	store_release(word, was & ~(1ull << id % 64));
}

static bool
pool_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	 const uint16_t *instead, unsigned n_instead)
{
	uint32_t chunk = pool_chunk(load(at));
	_Atomic uint64_t *word = &chunk_at(&w->v, chunk)[id / 64];
	uint64_t was = load(word), is = was | 1ull << id % 64;

	if (was != is) {
		if (!log_append(w, id, hash))
			return refuse(w);
		w->chunk_held[chunk]++;
		holder_account(w, id, true);
	}
	for (unsigned i = 0; i < n_instead; i++)
		if (instead[i] != id && instead[i] / 64 == id / 64 && is >> instead[i] % 64 & 1) {
			is &= ~(1ull << instead[i] % 64);
			w->chunk_held[chunk]--;
			holder_account(w, instead[i], false);
		}
	if (is != was)
		store_release(word, is);                                                /* P3 */
	/* Between these a reader sees the row twice in the set: once is what counts. */
	for (unsigned i = 0; i < n_instead; i++)
		if (instead[i] != id)
			pool_clear(w, chunk, instead[i]);
	pool_shrink(w, at);
	return true;
}

/* ---- keys ---- */

/* Which lane of the home bucket gives way: one with no live holder, else the fewest, else one that
 * is not at home.  A speculative block never displaces a surely held one. */
static unsigned
victim_choose(struct index_writer *w, uint64_t home, bool speculative)
{
	unsigned best = LANE_NONE;
	uint32_t best_rank = UINT32_MAX;

	for (unsigned i = 0; i < LANES; i++) {
		uint64_t word = load(&w->v.bucket[home].w[i]), s = load(&w->v.bucket[home].s[i]);
		unsigned n = index_set_ids(&w->v, s, w->ids);
		uint32_t live = 0, rank;
		bool exact = false;

		for (unsigned k = 0; n != SET_MALFORMED && k < n; k++)
			if (slot_state(w, w->ids[k]) == INDEX_SLOT_LIVE) {
				live++;
				exact |= slot_role(w, w->ids[k]) == INDEX_EXACT;
			}
		if (speculative && exact)
			continue;
		rank = live * 2 + (w_displacement(word) == 0);
		if (rank < best_rank) {
			best_rank = rank;
			best = i;
		}
	}
	return best;
}

static bool
key_insert(struct index_writer *w, uint16_t id, uint64_t hash)
{
	const struct index_view *v = &w->v;
	uint64_t home = home_of(v, hash);
	struct lane at;
	bool full = !lane_empty(v, hash, &at);

	if (full) {
		bool speculative = slot_role(w, id) == INDEX_SPECULATIVE;

		at = (struct lane){.bucket = home, .lane = victim_choose(w, home, speculative)};
		if (at.lane == LANE_NONE) {
			stat_add(&v->head->refused_speculative, 1);
			return false;
		}
	}
	if (!log_append(w, id, hash))
		return refuse(w);
	if (full) {
		lane_unkey(w, at.bucket, at.lane);
		stat_add(&v->head->evictions, 1);
	}

	struct index_bucket *bucket = &v->bucket[at.bucket];

	path_count(w, home, at.displacement, true);
	atomic_thread_fence(memory_order_release);                                      /* P1 */
	store(&bucket->s[at.lane], v->list_bits == 0 ? 1ull << id : list_pack(v, &id, 1));
	holder_account(w, id, true);
	stat_add(&v->head->entries, 1);

	uint64_t word = load(&bucket->w[at.lane]);

	store_release(&bucket->w[at.lane], w_pack(tag_of(hash), at.displacement, w_version(word),
						  w_count(word)));                      /* P2 */
	return true;
}

bool
index_put(struct index_writer *w, uint16_t id, uint64_t hash, const uint16_t *instead,
	  unsigned n_instead)
{
	struct lane at;

	if (!id_valid(w, id) || slot_state(w, id) != INDEX_SLOT_LIVE)
		return refuse(w);
	for (unsigned i = 0; i < n_instead; i++)
		if (!id_valid(w, instead[i]))
			return refuse(w);
	if (!lane_find(&w->v, hash, &at))
		return key_insert(w, id, hash);

	_Atomic uint64_t *s = &w->v.bucket[at.bucket].s[at.lane];

	if (w->v.list_bits == 0)
		return bitmap_put(w, s, id, hash, instead, n_instead);
	if (set_is_pool(load(s)))
		return pool_put(w, s, id, hash, instead, n_instead);
	return list_put(w, s, id, hash, instead, n_instead);
}

void
index_take(struct index_writer *w, uint64_t hash, const uint16_t *ids, unsigned n)
{
	struct lane at;

	if (!lane_find(&w->v, hash, &at))
		return;

	_Atomic uint64_t *s = &w->v.bucket[at.bucket].s[at.lane];
	uint64_t was = load(s), is;

	if (w->v.list_bits && set_is_pool(was)) {
		unsigned gone = 0;

		for (unsigned i = 0; i < n; i++)
			if (id_valid(w, ids[i]) && !among(ids[i], ids, i) &&
			    set_has(&w->v, was, ids[i]))
				gone++;
		if (gone == w->chunk_held[pool_chunk(was)]) {
			lane_unkey(w, at.bucket, at.lane);
			return;
		}
		for (unsigned i = 0; i < n; i++)
			if (id_valid(w, ids[i]))
				pool_clear(w, pool_chunk(was), ids[i]);
		pool_shrink(w, s);
		return;
	}

	uint16_t held[LIST_MAX], keep[LIST_MAX];
	unsigned n_held = 0, n_keep = 0;

	if (w->v.list_bits == 0) {
		is = was;
		for (unsigned i = 0; i < n; i++)
			if (id_valid(w, ids[i]))
				is &= ~(1ull << ids[i]);
	} else {
		n_held = list_unpack(&w->v, was, held);
		for (unsigned i = 0; i < n_held; i++)
			if (!among(held[i], ids, n))
				keep[n_keep++] = held[i];
		is = n_keep == 0 ? 0 : n_keep == n_held ? was : list_pack(&w->v, keep, n_keep);
	}
	if (is == was)
		return;
	if (is == 0) {
		lane_unkey(w, at.bucket, at.lane);
		return;
	}
	store_release(s, is);                                                           /* P3 */
	if (w->v.list_bits == 0) {
		for (uint64_t gone = was & ~is; gone; gone &= gone - 1)
			holder_account(w, (uint16_t)__builtin_ctzll(gone), false);
		return;
	}
	for (unsigned i = 0; i < n_held; i++)
		if (among(held[i], ids, n))
			holder_account(w, held[i], false);
}

bool
index_has(struct index_writer *w, uint16_t id, uint64_t hash)
{
	struct lane at;

	return id_valid(w, id) && lane_find(&w->v, hash, &at) &&
	       set_has(&w->v, load(&w->v.bucket[at.bucket].s[at.lane]), id);
}

void
index_prefetch(const struct index_writer *w, uint64_t hash)
{
	__builtin_prefetch(&w->v.bucket[home_of(&w->v, hash)], 1);
}
