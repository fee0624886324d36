/* shm/index.c -- making, checking and auditing the prefix index; its layout is in index.h. */
#include "shm/index_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Offsets follow from the four numbers of the geometry; attach computes them again and compares. */
struct plan {
	uint64_t nbuckets, chunks[INDEX_CLASSES];
	uint64_t off_slots, off_buckets, off_versions[INDEX_CLASSES], off_chunks[INDEX_CLASSES];
	uint64_t size;
	uint32_t max_slots, list_bits, words[INDEX_CLASSES];
};

static void
plan_lay_out(struct plan *p)
{
	p->list_bits = p->max_slots <= 62 ? 0 : p->max_slots <= 4094 ? 12 : 16;
	p->words[POOL_SMALL] = p->list_bits == 16 ? SMALL_WORDS : SMALL_WORDS / 2;
	p->words[POOL_BITMAP] = (p->max_slots + 64) / 64;
	p->off_slots = SEGMENT_BODY + sizeof(struct index_header);
	p->off_buckets = p->off_slots + sizeof(struct index_slot) * ((uint64_t)p->max_slots + 1);

	uint64_t at = p->off_buckets + sizeof(struct index_bucket) * p->nbuckets;

	for (unsigned c = 0; c < INDEX_CLASSES; c++) {
		p->off_versions[c] = at;
		p->off_chunks[c] = at + (sizeof(uint32_t) * p->chunks[c] + 63) / 64 * 64;
		at = p->off_chunks[c] + (8ull * p->words[c] * p->chunks[c] + 63) / 64 * 64;
	}
	p->size = at;
}

/* Which classes an index of this size has: none where a set word holds every id, only bitmaps
 * where they are no longer than a chunk of ids. */
static bool
plan_has(const struct plan *p, enum pool_class class)
{
	return p->list_bits != 0 &&
	       (class == POOL_BITMAP || p->words[POOL_BITMAP] > p->words[POOL_SMALL]);
}

/* How many of the table's lanes may be in a pool at a time.  The first form beyond a list: 1 in 16;
 * sets of more than a class 0 chunk's ids: 1 in 256, so that a thousand workers do not double the
 * table.  Memory of chunks nobody uses is address space only. */
#define LANES_PER_CHUNK         16u
#define LANES_PER_BITMAP        256u

int
index_create(struct segment *ret, uint64_t blocks, uint32_t max_slots, uint64_t hash_seed)
{
	struct plan p = {.max_slots = max_slots};
	struct segment seg;
	int r;

	if (max_slots == 0 || max_slots > INDEX_MAX_SLOTS || blocks > 1ull << 34)
		return -EINVAL;
	p.nbuckets = (blocks * 10 / 7 + LANES - 1) / LANES;
	if (p.nbuckets < INDEX_MIN_BUCKETS)
		p.nbuckets = INDEX_MIN_BUCKETS;
	plan_lay_out(&p);
	for (enum pool_class c = 0; c < INDEX_CLASSES; c++) {
		bool second = c == POOL_BITMAP && plan_has(&p, POOL_SMALL);

		if (!plan_has(&p, c))
			continue;
		p.chunks[c] = p.nbuckets * LANES / (second ? LANES_PER_BITMAP : LANES_PER_CHUNK);
		if (p.chunks[c] < 2 * QUARANTINE)
			p.chunks[c] = 2 * QUARANTINE;
		if (p.chunks[c] > UINT32_MAX)
			p.chunks[c] = UINT32_MAX;
	}
	plan_lay_out(&p);

	uint64_t geometry[4] = {p.nbuckets, p.max_slots, p.chunks[POOL_SMALL],
				p.chunks[POOL_BITMAP]};
	r = segment_create(&seg, SEGMENT_INDEX, INDEX_LAYOUT, p.size, geometry);
	if (r < 0)
		return r;

	struct index_header *head = segment_body(&seg);

	seg.head->owner_role = ROLE_KVEVENTS;
	head->nbuckets = p.nbuckets;
	head->max_slots = p.max_slots;
	head->list_bits = p.list_bits;
	head->hash_seed = hash_seed;
	head->off_slots = p.off_slots;
	head->off_buckets = p.off_buckets;
	for (unsigned c = 0; c < INDEX_CLASSES; c++)
		head->pool[c] = (struct index_pool_header){.chunks = p.chunks[c],
							   .off_versions = p.off_versions[c],
							   .off_chunks = p.off_chunks[c],
							   .words = p.words[c]};
	segment_publish(&seg);
	*ret = seg;
	return 0;
}

static bool
plan_agrees(const struct plan *p, const struct index_header *head)
{
	for (enum pool_class c = 0; c < INDEX_CLASSES; c++)
		if (plan_has(p, c) != (p->chunks[c] != 0) || head->pool[c].chunks != p->chunks[c] ||
		    head->pool[c].off_versions != p->off_versions[c] ||
		    head->pool[c].off_chunks != p->off_chunks[c] ||
		    head->pool[c].words != p->words[c])
			return false;
	return head->nbuckets == p->nbuckets && head->max_slots == p->max_slots &&
	       head->list_bits == p->list_bits && head->off_slots == p->off_slots &&
	       head->off_buckets == p->off_buckets;
}

const char *
index_cause_name(enum index_cause cause)
{
	static const char *const name[] = {
		[INDEX_CAUSE_CLASS_0] = "class_0",
		[INDEX_CAUSE_CLASS_1] = "class_1",
		[INDEX_CAUSE_MEMORY] = "memory",
		[INDEX_CAUSE_LOG] = "log",
		[INDEX_CAUSE_SPECULATIVE] = "speculative",
		[INDEX_CAUSE_ID] = "id",
		[INDEX_CAUSE_DEAD] = "dead",
	};

	return cause < INDEX_CAUSES ? name[cause] : "unknown";
}

int
index_view_open(struct index_view *ret, const struct segment *seg)
{
	struct index_header *head = segment_body(seg);
	uint64_t geometry[4];
	struct plan p = {0};

	if (seg->size < SEGMENT_BODY + sizeof *head)
		return -EBADMSG;
	memcpy(geometry, seg->head->geometry, sizeof geometry);
	/* Limits first: what follows must not overflow. */
	if (geometry[0] < INDEX_MIN_BUCKETS ||
	    geometry[0] > seg->size / sizeof(struct index_bucket) || geometry[1] == 0 ||
	    geometry[1] > INDEX_MAX_SLOTS || geometry[2] > UINT32_MAX || geometry[3] > UINT32_MAX)
		return -EBADMSG;
	p.nbuckets = geometry[0];
	p.max_slots = (uint32_t)geometry[1];
	p.chunks[POOL_SMALL] = geometry[2];
	p.chunks[POOL_BITMAP] = geometry[3];
	plan_lay_out(&p);
	if (p.size > seg->size || !plan_agrees(&p, head))
		return -EBADMSG;

	char *start = (char *)seg->head;

	*ret = (struct index_view){
		.head = head,
		.slot = (struct index_slot *)(void *)(start + p.off_slots),
		.bucket = (struct index_bucket *)(void *)(start + p.off_buckets),
		.nbuckets = p.nbuckets,
		.set_words = p.words[POOL_BITMAP],
		.max_slots = p.max_slots,
		.list_bits = p.list_bits,
		.list_ids = p.list_bits == 0 ? 0 : p.list_bits == 12 ? 5 : 3,
		.list_ones = p.list_bits == 12   ? 0x1001001001001
			     : p.list_bits == 16 ? 0x100010001
						 : 0,
		.small_per_word = p.list_bits == 12 ? 5 : 4,
		.small_ids = p.list_bits == 12 ? 40 : SMALL_MAX,
	};
	for (unsigned c = 0; c < INDEX_CLASSES; c++)
		ret->pool[c] = (struct index_pool){
			.version = (_Atomic uint32_t *)(void *)(start + p.off_versions[c]),
			.word = (_Atomic uint64_t *)(void *)(start + p.off_chunks[c]),
			.chunks = (uint32_t)p.chunks[c],
			.words = p.words[c],
		};
	return 0;
}

/* Ids of a class 0 chunk, put in order; an id that stands twice was no writer of ours. */
static unsigned
small_set_ids(const struct index_view *v, uint32_t chunk, uint16_t *ret)
{
	unsigned n = 0;

	for (uint32_t k = 0; k < v->pool[POOL_SMALL].words; k++) {
		uint64_t word = load(&chunk_at(v, POOL_SMALL, chunk)[k]);

		if (v->list_bits == 12 && word >> 60)
			return SET_MALFORMED;
		for (unsigned i = 0; i < v->small_per_word; i++) {
			uint16_t id = small_id(v, word, i);
			unsigned at = n;

			if (id == 0)
				continue;
			if (id > v->max_slots)
				return SET_MALFORMED;
			for (; at > 0 && ret[at - 1] >= id; at--) {
				if (ret[at - 1] == id)
					return SET_MALFORMED;
				ret[at] = ret[at - 1];
			}
			ret[at] = id;
			n++;
		}
	}
	return n;
}

unsigned
index_set_ids(const struct index_view *v, uint64_t s, uint16_t *ret)
{
	unsigned n = 0;

	if (s == 0)
		return 0;
	if (v->list_bits == 0) {                /* bitmap of ids 1..62 */
		if ((s & 1) || s >> v->max_slots >> 1)
			return SET_MALFORMED;
		for (; s; s &= s - 1)
			ret[n++] = (uint16_t)__builtin_ctzll(s);
		return n;
	}
	if (set_is_list(s)) {
		n = list_unpack(v, s, ret);
		for (unsigned i = 1; i < n; i++)
			if (ret[i] <= ret[i - 1])
				return SET_MALFORMED;
		return n > 0 && list_pack(v, ret, n) == s ? n : SET_MALFORMED;
	}
	if (!set_is_pool(s) || !pool_sane(v, s))
		return SET_MALFORMED;
	if (pool_class(s) == POOL_SMALL)
		return small_set_ids(v, pool_chunk(s), ret);
	for (uint32_t i = 0; i < v->set_words; i++) {
		uint64_t bits = load(&chunk_at(v, POOL_BITMAP, pool_chunk(s))[i]);

		for (; bits; bits &= bits - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (id == 0 || id > v->max_slots)
				return SET_MALFORMED;
			ret[n++] = (uint16_t)id;
		}
	}
	return n;
}

/* ---- audit ---- */

struct audit_work {
	const struct index_view *v;
	struct index_audit *a;
	uint16_t *ids;
	uint8_t *passed;                /* per bucket: keys that passed, as the lanes say */
	uint8_t *claimed[INDEX_CLASSES];        /* per chunk */
	uint32_t *held;                         /* per id */
};

/* Would a reader get from this key's home to where it stands, and not meet it before? */
static void
audit_path(struct audit_work *k, uint64_t b, unsigned lane, uint64_t w)
{
	const struct index_view *v = k->v;
	unsigned displacement = w_displacement(w);
	uint64_t at = bucket_back(v, b, displacement);

	for (unsigned d = 0; d <= displacement; d++, at = bucket_after(v, at)) {
		const struct index_bucket *bucket = &v->bucket[at];

		for (unsigned i = 0; i < (d == displacement ? lane : LANES); i++)
			if (w_key(load(&bucket->w[i])) == (w_tag(w) << 5 | d)) {
				k->a->duplicates++;
				return;
			}
		if (d == displacement)
			return;
		if (w_count(load(&bucket->w[0])) == 0) {
			k->a->unreachable++;
			return;
		}
	}
}

static void
audit_lane(struct audit_work *k, uint64_t b, unsigned lane)
{
	const struct index_view *v = k->v;
	uint64_t w = load(&v->bucket[b].w[lane]), s = load(&v->bucket[b].s[lane]);
	unsigned n;

	if (w_tag(w) == 0)
		return;
	k->a->entries++;
	for (unsigned d = 1; d <= w_displacement(w); d++)
		k->passed[bucket_back(v, b, d)]++;      /* 124 at most: 31 buckets of 4 lanes */
	audit_path(k, b, lane, w);
	n = index_set_ids(v, s, k->ids);
	if (n == 0 || n == SET_MALFORMED) {
		k->a->garbage++;
		return;
	}
	if (set_is_pool(s)) {
		uint8_t *claimed = &k->claimed[pool_class(s)][pool_chunk(s)];

		k->a->garbage += *claimed;
		*claimed = 1;
	}
	for (unsigned i = 0; i < n; i++) {
		if (index_slot_state(load(&v->slot[k->ids[i]].word)) == INDEX_SLOT_FREE)
			k->a->garbage++;
		k->held[k->ids[i]]++;
	}
	k->a->holders += n;
}

int
index_audit_view(const struct index_view *v, struct index_audit *ret)
{
	struct audit_work k = {.v = v, .a = ret};
	int r = -ENOMEM;

	*ret = (struct index_audit){0};
	k.ids = calloc(v->max_slots, sizeof k.ids[0]);
	k.passed = calloc(v->nbuckets, 1);
	k.held = calloc(v->max_slots + 1u, sizeof k.held[0]);
	for (unsigned c = 0; c < INDEX_CLASSES; c++)
		k.claimed[c] = calloc(v->pool[c].chunks + 1u, 1);
	if (k.ids && k.passed && k.held && k.claimed[POOL_SMALL] && k.claimed[POOL_BITMAP]) {
		r = 0;
		for (uint64_t b = 0; b < v->nbuckets; b++)
			for (unsigned lane = 0; lane < LANES; lane++)
				audit_lane(&k, b, lane);
		for (uint64_t b = 0; b < v->nbuckets; b++) {
			unsigned count = w_count(load(&v->bucket[b].w[0]));

			ret->saturated += count == SATURATED;
			ret->overcounted += count > k.passed[b];
		}
		for (uint32_t id = 1; id <= v->max_slots; id++)
			ret->miscounted += index_slot_state(load(&v->slot[id].word)) !=
						   INDEX_SLOT_FREE &&
					   load(&v->slot[id].stored) -
						   load(&v->slot[id].removed) != k.held[id];
	}
	free(k.ids);
	free(k.passed);
	free(k.held);
	free(k.claimed[POOL_SMALL]);
	free(k.claimed[POOL_BITMAP]);
	return r;
}
