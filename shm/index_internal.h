/* shm/index_internal.h -- the words of the index, shared by its reader, its writer and its audit.
 *
 * Layout and order are in index.h.  Nothing here is a module's interface: only shm/index*.c, and
 * tests that stop the writer between two stores, include it.
 */
#pragma once
#include "shm/index.h"

#define LANES           4u
#define LANE_NONE       LANES
#define LIST_MAX        5u              /* ids in a set word, at 12 bits */
#define SMALL_WORDS     16u             /* of a class 0 chunk at 16 bits an id; 8 at 12 bits */
#define SMALL_MAX       64u             /* ids in one, at 16 bits */
#define SATURATED       255u
#define QUARANTINE      64u             /* freed chunks that wait before one is used again */

#define SET_LIST        (1ull << 63)
#define SET_POOL        (3ull << 62)
#define SET_FORM        (3ull << 62)
#define SET_CLASS_1     (1ull << 61)
#define SET_POOL_ZERO   (0x1fffull << 48)       /* bits of a pool word that are always 0 */

enum pool_class { POOL_SMALL = 0, POOL_BITMAP = 1 };      /* class 0, class 1 */

/* Test builds define these: a writer is stopped, or a reader interleaved, at each. */
#ifndef INDEX_STORE_POINT
#define INDEX_STORE_POINT() ((void)0)
#endif
#ifndef INDEX_LOAD_POINT
#define INDEX_LOAD_POINT() ((void)0)
#endif

struct index_bucket {
	_Alignas(64) _Atomic uint64_t w[LANES];
	_Atomic uint64_t s[LANES];
};
_Static_assert(sizeof(struct index_bucket) == 64, "index_bucket");

struct index_pool {
	_Atomic uint32_t *version;              /* per chunk: how often it was given out */
	_Atomic uint64_t *word;
	uint32_t chunks, words;                 /* words per chunk */
};

/* One mapping, with the geometry copied to private memory and checked once: values in shared memory
 * are never trusted twice. */
struct index_view {
	struct index_header *head;
	struct index_slot *slot;
	struct index_bucket *bucket;
	struct index_pool pool[INDEX_CLASSES];
	uint64_t nbuckets;
	uint32_t set_words;                     /* of a bitmap of all ids */
	uint32_t max_slots, list_bits, list_ids;/* list_ids: 5, 3, or 0 without lists */
	uint64_t list_ones;                     /* 1 in each place of a list word */
	uint32_t small_per_word, small_ids;     /* in a class 0 chunk: 5, 40; or 4, 64 */
};

int index_view_open(struct index_view *ret, const struct segment *seg);
	/* Whole-header check.  0 or -EBADMSG. */

static inline uint64_t
load(const _Atomic uint64_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

/* Every store of the writer that a reader can see goes through these two. */
static inline void
store(_Atomic uint64_t *at, uint64_t value)
{
	INDEX_STORE_POINT();
	atomic_store_explicit(at, value, memory_order_relaxed);
}

static inline void
store_release(_Atomic uint64_t *at, uint64_t value)
{
	INDEX_STORE_POINT();
	atomic_store_explicit(at, value, memory_order_release);
}

/* Statistics: no reader draws a conclusion from them. */
static inline void
stat_add(_Atomic uint64_t *at, int64_t by)
{
	atomic_store_explicit(at, load(at) + (uint64_t)by, memory_order_relaxed);
}

static inline uint64_t
tag_of(uint64_t hash)
{
	uint64_t tag = hash & ((1ull << 40) - 1);

	return tag ? tag : 1;
}

static inline uint64_t
home_of(const struct index_view *v, uint64_t hash)
{
	return (uint64_t)((unsigned __int128)hash * v->nbuckets >> 64);
}

static inline uint64_t
bucket_after(const struct index_view *v, uint64_t b)
{
	return b + 1 == v->nbuckets ? 0 : b + 1;
}

static inline uint64_t
bucket_back(const struct index_view *v, uint64_t b, uint64_t by)
{
	return b >= by ? b - by : b + v->nbuckets - by;
}

/* w: tag 40 | displacement 5 | version 11 | low 8.  A probe compares the "key": the first two. */
static inline uint64_t w_key(uint64_t w) { return w >> 19; }
static inline uint64_t w_tag(uint64_t w) { return w >> 24; }
static inline unsigned w_displacement(uint64_t w) { return (unsigned)(w >> 19) & 31u; }
static inline uint64_t w_version(uint64_t w) { return w >> 8 & 0x7ffu; }
static inline unsigned w_count(uint64_t w) { return (unsigned)w & 0xffu; }

static inline uint64_t
w_pack(uint64_t tag, unsigned displacement, uint64_t version, unsigned count)
{
	return tag << 24 | (uint64_t)displacement << 19 | (version & 0x7ffu) << 8 | count;
}

static inline bool set_is_list(uint64_t s) { return (s & SET_FORM) == SET_LIST; }
static inline bool set_is_pool(uint64_t s) { return (s & SET_FORM) == SET_POOL; }
static inline uint32_t pool_chunk(uint64_t s) { return (uint32_t)s; }

static inline enum pool_class
pool_class(uint64_t s)
{
	return s & SET_CLASS_1 ? POOL_BITMAP : POOL_SMALL;
}

static inline uint64_t
pool_pack(enum pool_class class, uint32_t version, uint32_t chunk)
{
	return SET_POOL | (class == POOL_BITMAP ? SET_CLASS_1 : 0) |
	       (uint64_t)(version & 0xffffu) << 32 | chunk;
}

/* A pool word whose chunk may be looked at. */
static inline bool
pool_sane(const struct index_view *v, uint64_t s)
{
	return !(s & SET_POOL_ZERO) && pool_chunk(s) < v->pool[pool_class(s)].chunks;
}

static inline _Atomic uint64_t *
chunk_at(const struct index_view *v, enum pool_class class, uint32_t chunk)
{
	return v->pool[class].word + (size_t)chunk * v->pool[class].words;
}

/* The id in place i of a word of a class 0 chunk; 0: free. */
static inline uint16_t
small_id(const struct index_view *v, uint64_t word, unsigned i)
{
	return (uint16_t)(word >> i * v->list_bits & ((1ull << v->list_bits) - 1));
}

/* The ids of a list word, ascending; LIST_MAX at most, and none above max_slots. */
static inline unsigned
list_unpack(const struct index_view *v, uint64_t s, uint16_t *ret)
{
	uint64_t mask = (1ull << v->list_bits) - 1, ids = s & ~SET_FORM;
	unsigned n = 0;

	while (n < v->list_ids && (ids & mask) && (ids & mask) <= v->max_slots) {
		ret[n++] = (uint16_t)(ids & mask);
		ids >>= v->list_bits;
	}
	return n;
}

static inline uint64_t
list_pack(const struct index_view *v, const uint16_t *id, unsigned n)
{
	uint64_t s = SET_LIST;

	for (unsigned i = 0; i < n; i++)
		s |= (uint64_t)id[i] << i * v->list_bits;
	return s;
}

/* The ids of a list, each in its place, without its form. */
static inline uint64_t
list_places(uint64_t s)
{
	return s & ~SET_FORM;
}

/* Highest bit of the place where this id stands; 0: in none. */
static inline uint64_t
list_find(const struct index_view *v, uint64_t s, uint16_t id)
{
	uint64_t differs = list_places(s) ^ v->list_ones * id;

	/* Of a place that is 0, by the borrow; above it others may show, so only the lowest. */
	differs = (differs - v->list_ones) & ~differs & v->list_ones << (v->list_bits - 1);
	return differs & -differs;
}

static inline bool
list_has(const struct index_view *v, uint64_t s, uint16_t id)
{
	return list_find(v, s, id) != 0;
}

static inline bool
list_full(const struct index_view *v, uint64_t s)
{
	return list_places(s) >> (v->list_ids - 1) * v->list_bits != 0;
}

/* Without an id that it has: those above move down by one place. */
static inline uint64_t
list_without(const struct index_view *v, uint64_t s, uint16_t id)
{
	uint64_t below = (list_find(v, s, id) >> (v->list_bits - 1)) - 1, ids = list_places(s);

	return SET_LIST | (ids & below) | (ids >> v->list_bits & ~below);
}

/* With an id that it has not, where there is room for it: those above move up by one place. */
static inline uint64_t
list_with(const struct index_view *v, uint64_t s, uint16_t id)
{
	uint64_t mask = (1ull << v->list_bits) - 1, ids = list_places(s), below;
	unsigned less = 0;

	for (uint64_t left = ids, i = 0; i < LIST_MAX; i++, left >>= v->list_bits)
		less += (left & mask) - 1 < id - 1u;    /* an empty place is not: 0 - 1 is much */
	below = (1ull << less * v->list_bits) - 1;
	return SET_LIST | (ids & below) | (ids & ~below) << v->list_bits |
	       (uint64_t)id << less * v->list_bits;
}

#define SET_MALFORMED   UINT32_MAX
unsigned index_set_ids(const struct index_view *v, uint64_t s, uint16_t *ret);
	/* Every id of a set word, ascending; room for max_slots.  SET_MALFORMED: no writer of
	 * ours made it.  For the writer and for audits: it does not look whether the word
	 * changed meanwhile. */
int index_audit_view(const struct index_view *v, struct index_audit *ret);      /* as index_audit */
