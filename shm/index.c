/* shm/index.c -- making, checking and auditing the prefix index; its layout is in index.h. */
#include "shm/index_internal.h"

#include <errno.h>
#include <stdlib.h>

/* Offsets follow from the four numbers of the geometry; attach computes them again and compares. */
struct plan {
	uint64_t nbuckets, pool_chunks;
	uint64_t off_slots, off_buckets, off_versions, off_pool, size;
	uint32_t max_slots, list_bits, chunk_words;
};

static void
plan_lay_out(struct plan *p)
{
	p->list_bits = p->max_slots <= 62 ? 0 : p->max_slots <= 4094 ? 12 : 16;
	p->chunk_words = (p->max_slots + 64) / 64;
	p->off_slots = SEGMENT_BODY + sizeof(struct index_header);
	p->off_buckets = p->off_slots + sizeof(struct index_slot) * ((uint64_t)p->max_slots + 1);
	p->off_versions = p->off_buckets + sizeof(struct index_bucket) * p->nbuckets;
	p->off_pool = p->off_versions + (sizeof(uint32_t) * p->pool_chunks + 63) / 64 * 64;
	p->size = p->off_pool + 8ull * p->chunk_words * p->pool_chunks;
}

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
	if (max_slots > 62) {
		/* Chunks up to 64 bytes: one per 16 lanes.  Longer ones: 4 bytes a lane, so that a
		 * thousand workers do not double the table (class 0 is to take the middle). */
		uint64_t lanes = p.nbuckets * LANES;
		uint64_t chunk_bytes = (max_slots + 64) / 64 * 8;

		p.pool_chunks = chunk_bytes <= 64 ? lanes / 16 : lanes * 4 / chunk_bytes;
		if (p.pool_chunks < 2 * QUARANTINE)
			p.pool_chunks = 2 * QUARANTINE;
		if (p.pool_chunks > UINT32_MAX)
			p.pool_chunks = UINT32_MAX;
	}
	plan_lay_out(&p);

	uint64_t geometry[4] = {p.nbuckets, p.max_slots, p.pool_chunks, p.list_bits};
	r = segment_create(&seg, SEGMENT_INDEX, INDEX_LAYOUT, p.size, geometry);
	if (r < 0)
		return r;

	struct index_header *head = segment_body(&seg);

	seg.head->owner_role = ROLE_KVEVENTS;
	head->nbuckets = p.nbuckets;
	head->max_slots = p.max_slots;
	head->list_bits = p.list_bits;
	head->pool_chunks = p.pool_chunks;
	head->hash_seed = hash_seed;
	head->off_slots = p.off_slots;
	head->off_buckets = p.off_buckets;
	head->off_versions = p.off_versions;
	head->off_pool = p.off_pool;
	segment_publish(&seg);
	*ret = seg;
	return 0;
}

int
index_view_open(struct index_view *ret, const struct segment *seg)
{
	struct index_header *head = segment_body(seg);
	const uint64_t *geometry = seg->head->geometry;
	struct plan p = {0};

	if (seg->size < SEGMENT_BODY + sizeof *head)
		return -EBADMSG;
	p.nbuckets = geometry[0];
	p.pool_chunks = geometry[2];
	/* Limits first: what follows must not overflow. */
	if (p.nbuckets < INDEX_MIN_BUCKETS ||
	    p.nbuckets > seg->size / sizeof(struct index_bucket) || geometry[1] == 0 ||
	    geometry[1] > INDEX_MAX_SLOTS || p.pool_chunks > UINT32_MAX ||
	    p.pool_chunks > seg->size / sizeof(uint32_t))
		return -EBADMSG;
	p.max_slots = (uint32_t)geometry[1];
	plan_lay_out(&p);
	if (p.size > seg->size || p.list_bits != geometry[3] ||
	    (p.list_bits == 0) != (p.pool_chunks == 0) || head->nbuckets != p.nbuckets ||
	    head->max_slots != p.max_slots || head->list_bits != p.list_bits ||
	    head->pool_chunks != p.pool_chunks || head->off_slots != p.off_slots ||
	    head->off_buckets != p.off_buckets || head->off_versions != p.off_versions ||
	    head->off_pool != p.off_pool || head->small_chunks != 0)
		return -EBADMSG;

	char *start = (char *)seg->head;

	*ret = (struct index_view){
		.head = head,
		.slot = (struct index_slot *)(void *)(start + p.off_slots),
		.bucket = (struct index_bucket *)(void *)(start + p.off_buckets),
		.version = (_Atomic uint32_t *)(void *)(start + p.off_versions),
		.pool = (_Atomic uint64_t *)(void *)(start + p.off_pool),
		.nbuckets = p.nbuckets,
		.pool_chunks = (uint32_t)p.pool_chunks,
		.chunk_words = p.chunk_words,
		.max_slots = p.max_slots,
		.list_bits = p.list_bits,
		.list_ids = p.list_bits == 0 ? 0 : p.list_bits == 12 ? 5 : 3,
	};
	return 0;
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
	for (uint32_t i = 0; i < v->chunk_words; i++)
		for (uint64_t bits = load(&chunk_at(v, pool_chunk(s))[i]); bits; bits &= bits - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (id == 0 || id > v->max_slots)
				return SET_MALFORMED;
			ret[n++] = (uint16_t)id;
		}
	return n;
}

/* ---- audit ---- */

struct audit_work {
	const struct index_view *v;
	struct index_audit *a;
	uint16_t *ids;
	uint8_t *passed;                /* per bucket: keys that passed, as the lanes say */
	uint8_t *claimed;               /* per chunk */
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
	if (set_is_pool(s) && k->claimed[pool_chunk(s)]++)
		k->a->garbage++;
	for (unsigned i = 0; i < n; i++)
		if (index_slot_state(load(&v->slot[k->ids[i]].word)) == INDEX_SLOT_FREE)
			k->a->garbage++;
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
	k.claimed = calloc(v->pool_chunks + 1u, 1);
	if (k.ids && k.passed && k.claimed) {
		r = 0;
		for (uint64_t b = 0; b < v->nbuckets; b++)
			for (unsigned lane = 0; lane < LANES; lane++)
				audit_lane(&k, b, lane);
		for (uint64_t b = 0; b < v->nbuckets; b++) {
			unsigned count = w_count(load(&v->bucket[b].w[0]));

			ret->saturated += count == SATURATED;
			ret->overcounted += count > k.passed[b];
		}
	}
	free(k.ids);
	free(k.passed);
	free(k.claimed);
	return r;
}
