/* shm/index_writer.c -- keys of the index: found, put where there is room, given up; the sets of
 * their holders are in index_sets.c, the order in index.h. */
#include "shm/index_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static void
writer_free(struct index_writer *w)
{
	if (w->log)
		for (uint32_t id = 0; id <= w->v.max_slots; id++)
			free(w->log[id].hash);
	free(w->words);
	free(w->ids);
	for (unsigned c = 0; c < INDEX_CLASSES; c++) {
		free(w->chunks[c].held);
		free(w->chunks[c].free);
	}
	free(w->retired);
	free(w->free_ids);
	free(w->log);
	segment_detach(&w->seg);
	free(w);
}

/* A process's lock, not a descriptor's: the supervisor's own descriptor is the same open file.  It
 * goes with the process, however that ends, and with any descriptor of the index that it closes. */
static int
writer_lock(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	if (fcntl(fd, F_SETLK, &lock) == 0)
		return 0;
	return errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
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
	r = writer_lock(fd);
	if (r < 0)
		goto fail;
	r = index_view_open(&w->v, &w->seg);
	if (r < 0)
		goto fail;
	r = -ENOMEM;
	w->bytes = sizeof *w + (w->v.max_slots + 1u) * sizeof w->log[0] +
		   w->v.max_slots * (sizeof w->free_ids[0] + sizeof w->retired[0] +
				     sizeof w->ids[0]) +
		   (w->v.set_words + SMALL_WORDS) * sizeof w->words[0];
	w->log = calloc(w->v.max_slots + 1u, sizeof w->log[0]);
	w->free_ids = calloc(w->v.max_slots, sizeof w->free_ids[0]);
	w->retired = calloc(w->v.max_slots, sizeof w->retired[0]);
	w->ids = calloc(w->v.max_slots, sizeof w->ids[0]);
	w->words = calloc(w->v.set_words + SMALL_WORDS, sizeof w->words[0]);
	if (!w->log || !w->free_ids || !w->retired || !w->ids || !w->words)
		goto fail;
	for (unsigned c = 0; c < INDEX_CLASSES; c++) {
		struct chunks *p = &w->chunks[c];

		p->free = calloc(w->v.pool[c].chunks + 1u, sizeof p->free[0]);
		p->held = calloc(w->v.pool[c].chunks + 1u, sizeof p->held[0]);
		if (!p->free || !p->held)
			goto fail;
		w->bytes += (w->v.pool[c].chunks + 1ull) * (sizeof p->free[0] + sizeof p->held[0]);
	}
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

uint64_t
index_writer_bytes(const struct index_writer *w)
{
	return w->bytes;
}

void
index_writer_limit(struct index_writer *w, uint64_t bytes)
{
	w->limit = bytes;
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

/* The first lane whose key, without so many low bits, is this; LANE_NONE.  All four are compared:
 * which one it is no processor can foretell. */
static inline unsigned
lane_first(const struct index_bucket *bucket, uint64_t key, unsigned without)
{
	unsigned hits = 1u << LANE_NONE;

	for (unsigned i = 0; i < LANES; i++)
		hits |= (unsigned)(w_key(load(&bucket->w[i])) >> without == key) << i;
	return (unsigned)__builtin_ctz(hits);
}

bool
lane_find(const struct index_view *v, uint64_t hash, struct lane *ret)
{
	uint64_t b = home_of(v, hash), key = tag_of(hash) << 5;

	for (unsigned d = 0; d < INDEX_PROBE; d++, b = bucket_after(v, b)) {
		const struct index_bucket *bucket = &v->bucket[b];
		unsigned lane = lane_first(bucket, key | d, 0);

		if (lane != LANE_NONE) {
			*ret = (struct lane){.bucket = b, .lane = lane, .displacement = d};
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

	for (unsigned d = 0; d < INDEX_PROBE; d++, b = bucket_after(v, b)) {
		unsigned lane = lane_first(&v->bucket[b], 0, 5);

		if (lane != LANE_NONE) {
			*ret = (struct lane){.bucket = b, .lane = lane, .displacement = d};
			return true;
		}
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

void
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
		chunk_release(w, s);
}

bool
refuse(struct index_writer *w, enum index_cause cause)
{
	stat_add(&w->v.head->refused[cause], 1);
	return false;
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

static void
lane_evict(struct index_writer *w, uint64_t b, unsigned lane)
{
	unsigned n = index_set_ids(&w->v, load(&w->v.bucket[b].s[lane]), w->ids), live = 0;

	for (unsigned i = 0; n != SET_MALFORMED && i < n; i++)
		live += slot_state(w, w->ids[i]) == INDEX_SLOT_LIVE;
	stat_add(&w->v.head->evictions, 1);
	stat_add(&w->v.head->evicted, live);
	lane_unkey(w, b, lane);
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
		if (at.lane == LANE_NONE)
			return refuse(w, INDEX_CAUSE_SPECULATIVE);
	}
	if (!log_append(w, id, hash))
		return false;
	if (full)
		lane_evict(w, at.bucket, at.lane);

	struct index_bucket *bucket = &v->bucket[at.bucket];

	path_count(w, home, at.displacement, true);
	atomic_thread_fence(memory_order_release);                                      /* P1 */
	store(&bucket->s[at.lane], set_of_one(v, id));
	holder_account(w, id, true);
	stat_add(&v->head->entries, 1);

	uint64_t word = load(&bucket->w[at.lane]);

	store_release(&bucket->w[at.lane], w_pack(tag_of(hash), at.displacement, w_version(word),
						  w_count(word)));                      /* P2 */
	return true;
}

bool
index_put_unless(struct index_writer *w, uint16_t unless, uint16_t id, uint64_t hash,
		 const uint16_t *instead, unsigned n_instead)
{
	_Atomic uint64_t *set;
	struct lane at;

	if (!id_valid(w, id) || slot_state(w, id) != INDEX_SLOT_LIVE)
		return refuse(w, INDEX_CAUSE_DEAD);
	for (unsigned i = 0; i < n_instead; i++)
		if (!id_valid(w, instead[i]))
			return refuse(w, INDEX_CAUSE_DEAD);
	if (!lane_find(&w->v, hash, &at))
		return key_insert(w, id, hash);
	set = &w->v.bucket[at.bucket].s[at.lane];
	if (id_valid(w, unless) && set_has(&w->v, load(set), unless))
		return true;
	return set_put(w, set, id, hash, instead, n_instead);
}

bool
index_put(struct index_writer *w, uint16_t id, uint64_t hash, const uint16_t *instead,
	  unsigned n_instead)
{
	return index_put_unless(w, 0, id, hash, instead, n_instead);
}

void
index_take(struct index_writer *w, uint64_t hash, const uint16_t *ids, unsigned n)
{
	struct lane at;

	if (lane_find(&w->v, hash, &at) &&
	    set_take(w, &w->v.bucket[at.bucket].s[at.lane], ids, n))
		lane_unkey(w, at.bucket, at.lane);
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
	const struct index_bucket *home = &w->v.bucket[home_of(&w->v, hash)];

	__builtin_prefetch(home, 1);
	__builtin_prefetch(home + 1, 1);        /* every fourth key; behind the table: nothing */
}
