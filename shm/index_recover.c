/* shm/index_recover.c -- what a new writer makes of the table its predecessor left, in one scan.
 *
 * The predecessor may have died between any two stores.  What that leaves: overflow counters too
 * high, a chunk filled but not shown, a slot taken that no row names.  The first two are settled
 * here, the third is the caller's (rule 11).  Readers go on meanwhile: every repair is a single
 * store too.
 */
#include "shm/index_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A hash with this home and tag: all that a lane keeps of one, and all that finds the lane again.
 * Any such hash is as good as the lost one (they differ in bits the table never looks at). */
static uint64_t
hash_alias(const struct index_view *v, uint64_t home, uint64_t tag)
{
	unsigned __int128 wide = ((unsigned __int128)home << 64) + v->nbuckets - 1;
	uint64_t least = (uint64_t)(wide / v->nbuckets);
	uint64_t mask = (1ull << 40) - 1, hash = (least & ~mask) | tag;

	if (hash < least)
		hash += mask + 1;
	if (tag == 1 && home_of(v, hash) != home) {     /* the hash ended in forty zeros */
		hash = least & ~mask;
		if (hash < least)
			hash += mask + 1;
	}
	return hash;
}

static void
recover_slots(struct index_writer *w)
{
	for (uint32_t i = w->v.max_slots; i >= 1; i--) {        /* low ids are given out first */
		uint16_t id = (uint16_t)i;
		uint64_t word = load(&w->v.slot[id].word);

		if (index_slot_state(word) == INDEX_SLOT_FREE) {
			w->free_ids[w->n_free++] = id;
			continue;
		}
		if (index_slot_state(word) == INDEX_SLOT_LIVE)
			continue;
		w->retired[w->n_retired++] = id;
		if (index_slot_state(word) != INDEX_SLOT_RETIRED)       /* no writer of ours */
			store_release(&w->v.slot[id].word, (word & ~0xffull) | INDEX_SLOT_RETIRED);
	}
}

static bool
lane_sane(const struct index_writer *w, uint64_t s, unsigned n)
{
	if (n == 0 || n == SET_MALFORMED)
		return false;
	if (w->v.list_bits && set_is_pool(s) && w->chunks[pool_class(s)].held[pool_chunk(s)] != 0)
		return false;                   /* a chunk has one lane */
	for (unsigned i = 0; i < n; i++)
		if (slot_state(w, w->ids[i]) == INDEX_SLOT_FREE)
			return false;
	return true;
}

static int
recover_lane(struct index_writer *w, uint64_t b, unsigned lane, uint8_t *passed)
{
	struct index_bucket *bucket = &w->v.bucket[b];
	uint64_t word = load(&bucket->w[lane]), s = load(&bucket->s[lane]);
	unsigned displacement = w_displacement(word), n;

	if (w_tag(word) == 0)
		return 0;
	n = index_set_ids(&w->v, s, w->ids);
	if (!lane_sane(w, s, n)) {
		store_release(&bucket->w[lane], w_pack(0, 0, w_version(word) + 1,
						       lane == 0 ? w_count(word) : 0));
		stat_add(&w->v.head->dropped, 1);
		return 0;
	}
	if (w->v.list_bits && set_is_pool(s))
		w->chunks[pool_class(s)].held[pool_chunk(s)] = (uint16_t)n;
	for (unsigned d = 1; d <= displacement; d++)
		passed[bucket_back(&w->v, b, d)]++;             /* 124 at most */

	uint64_t alias = hash_alias(&w->v, bucket_back(&w->v, b, displacement), w_tag(word));

	for (unsigned i = 0; i < n; i++) {
		struct slot_log *log = &w->log[w->ids[i]];

		if (log_reserve(w, log) < 0)
			return -ENOMEM;
		log->hash[log->n++] = alias;
		log->held++;
	}
	stat_add(&w->v.head->entries, 1);
	stat_add(&w->v.head->holders, n);
	return 0;
}

static void
recover_counters(struct index_writer *w, const uint8_t *passed)
{
	atomic_thread_fence(memory_order_release);              /* lanes dropped above */
	for (uint64_t b = 0; b < w->v.nbuckets; b++) {
		uint64_t word = load(&w->v.bucket[b].w[0]);

		if (w_count(word) != passed[b])
			store_release(&w->v.bucket[b].w[0], (word & ~0xffull) | passed[b]);
	}
}

/* What a slot's two counts say it holds is what it holds: the predecessor may have died between a
 * set's store and theirs. */
static void
recover_counts(struct index_writer *w, uint32_t id)
{
	struct index_slot *slot = &w->v.slot[id];
	uint64_t stored = load(&slot->stored), held = w->log[id].held;

	if (slot_state(w, (uint16_t)id) == INDEX_SLOT_FREE)
		return;
	if (stored < held) {
		stored = held;
		atomic_store_explicit(&slot->stored, stored, memory_order_relaxed);
	}
	atomic_store_explicit(&slot->removed, stored - held, memory_order_relaxed);
}

static void
recover_chunks(struct index_writer *w, enum pool_class class)
{
	struct chunks *p = &w->chunks[class];
	uint32_t chunks = w->v.pool[class].chunks;

	for (uint32_t chunk = chunks; chunk-- > 0;)     /* low ones first: fewer pages touched */
		if (p->held[chunk] == 0)
			p->free[p->n_free++] = chunk;
	atomic_store_explicit(&w->v.head->pool_used[class], chunks - p->n_free,
			      memory_order_relaxed);
}

int
index_recover(struct index_writer *w)
{
	struct index_header *head = w->v.head;
	uint8_t *passed = calloc(w->v.nbuckets, 1);
	int r = 0;

	if (!passed)
		return -ENOMEM;
	atomic_store_explicit(&head->entries, 0, memory_order_relaxed);
	atomic_store_explicit(&head->holders, 0, memory_order_relaxed);
	recover_slots(w);
	for (uint64_t b = 0; r == 0 && b < w->v.nbuckets; b++)
		for (unsigned lane = 0; r == 0 && lane < LANES; lane++)
			r = recover_lane(w, b, lane, passed);
	if (r == 0) {
		recover_counters(w, passed);
		recover_chunks(w, POOL_SMALL);
		recover_chunks(w, POOL_BITMAP);
		for (uint32_t id = 1; id <= w->v.max_slots; id++)
			recover_counts(w, id);
		epoch_bump(w);
		stat_add(&head->recoveries, 1);
	}
	free(passed);
	return r;
}
