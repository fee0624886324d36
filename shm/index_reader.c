/* shm/index_reader.c -- how deep does each row hold this prompt?  Never waits, never loops.
 *
 * One pass over the blocks.  The set of the block before is kept, and only the ids that came or
 * went are worked (shm/README.md rule 7): chains are held by the same rows block after block, so
 * most steps compare one word.
 */
#include "shm/index_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PREFETCH_BLOCKS 24u             /* worth 2.5x on a cold table; 16 to 32 measured equal */

#define POPULATE_BYTES (64u << 20)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22           /* Linux 5.14 */
#endif

enum kind { KIND_ANY, KIND_EXACT, KIND_GPU, KINDS };

struct owner {                          /* of a slot id, from the copied slot word */
	uint16_t row;                           /* subscript of struct tally */
	uint8_t kinds;                          /* bits 1 << enum kind; 0: not live */
};

struct tally {                          /* of one row that has live slots, during one match */
	uint16_t held[KINDS];                   /* ids of the row in the set at hand */
	uint8_t going;                          /* kinds without a hole so far */
	uint8_t void_;                          /* a slot of it changed hands meanwhile */
	uint32_t depth[KINDS];
};

enum form { FORM_NONE, FORM_LIST, FORM_BITMAP };

struct index {
	struct segment seg;
	bool owned;
	struct index_view v;
	uint64_t epoch;                         /* of the copy below */
	bool copied;
	uint64_t *word;                         /* slot words, private copy */
	struct owner *owner;                    /* per id: chunk_words * 64 */
	uint16_t *row_of;                       /* per tally */
	uint16_t *tally_of;                     /* per row id: subscript + 1; 0 none */
	uint32_t n_rows;
	struct tally *tally;
	uint16_t *first;                        /* tallies met in block 0 */
	uint32_t n_first, n_going;
	uint64_t *met;                          /* ids whose words must not have changed */
	/* the set of the block before, and the one just read */
	enum form form;
	uint64_t last_word;                     /* FORM_LIST, or a bitmap in the set word */
	uint64_t *set, *next;
};

static int
index_alloc(struct index *x)
{
	size_t ids = (size_t)x->v.chunk_words * 64;

	x->word = calloc(ids, sizeof x->word[0]);
	x->owner = calloc(ids, sizeof x->owner[0]);
	x->row_of = calloc(ids, sizeof x->row_of[0]);
	x->tally_of = calloc(1u << 16, sizeof x->tally_of[0]);
	x->tally = calloc(ids, sizeof x->tally[0]);
	x->first = calloc(ids, sizeof x->first[0]);
	x->met = calloc(x->v.chunk_words, sizeof x->met[0]);
	x->set = calloc(x->v.chunk_words, sizeof x->set[0]);
	x->next = calloc(x->v.chunk_words, sizeof x->next[0]);
	if (!x->word || !x->owner || !x->row_of || !x->tally_of || !x->tally || !x->first ||
	    !x->met || !x->set || !x->next)
		return -ENOMEM;
	return 0;
}

static int
index_open(struct index **ret, const struct segment *seg, bool owned)
{
	struct index *x = calloc(1, sizeof *x);
	int r = -ENOMEM;

	if (!x)
		return r;
	x->seg = *seg;
	r = index_view_open(&x->v, seg);
	if (r == 0)
		r = index_alloc(x);
	if (r < 0) {
		index_detach(&x);
		return r;
	}
	x->owned = owned;
	*ret = x;
	return 0;
}

int
index_attach(struct index **ret, int fd)
{
	struct segment seg;
	int r;

	r = segment_attach(&seg, fd, SEGMENT_INDEX, INDEX_LAYOUT, false);
	if (r < 0)
		return r;
	/* A small one comes by itself, 16 pages a fault: cheaper than to walk it at each birth. */
	if (seg.size > POPULATE_BYTES && madvise(seg.head, seg.size, MADV_POPULATE_READ) < 0) {
		/* An older kernel: touch each page, or the first matches pay for it. */
		volatile const char *at = (const char *)seg.head;
		size_t page = (size_t)sysconf(_SC_PAGESIZE);

		for (size_t off = 0; off < seg.size; off += page)
			(void)at[off];
	}
	r = index_open(ret, &seg, true);
	if (r < 0)
		segment_detach(&seg);
	return r;
}

int
index_attach_mapped(struct index **ret, const struct segment *seg)
{
	return index_open(ret, seg, false);
}

void
index_detach(struct index **ret)
{
	struct index *x = *ret;

	if (!x)
		return;
	free(x->next);
	free(x->set);
	free(x->met);
	free(x->first);
	free(x->tally);
	free(x->tally_of);
	free(x->row_of);
	free(x->owner);
	free(x->word);
	if (x->owned)
		segment_detach(&x->seg);
	free(x);
	*ret = NULL;
}

uint64_t
index_seed(const struct index *index)
{
	return index->v.head->hash_seed;
}

const struct index_header *
index_head(const struct index *index)
{
	return index->v.head;
}

const struct index_slot *
index_slots(const struct index *index, uint32_t *ret_max_slots)
{
	*ret_max_slots = index->v.max_slots;
	return index->v.slot;
}

int
index_audit(const struct index *index, struct index_audit *ret)
{
	return index_audit_view(&index->v, ret);
}

/* Rule 6: who owns an id is decided before the first bucket is read.  Reading the slot word when
 * its bit is met would credit the next owner to a reader that was preempted in between. */
static void
slots_copy(struct index *x)
{
	const struct index_view *v = &x->v;
	uint64_t epoch = atomic_load_explicit(&v->head->slots_epoch, memory_order_acquire); /* A5 */

	if (x->copied && epoch == x->epoch)
		return;
	for (uint32_t i = 0; i < x->n_rows; i++)
		x->tally_of[x->row_of[i]] = 0;
	x->n_rows = 0;
	for (uint32_t id = 1; id <= v->max_slots; id++) {
		uint64_t word = load(&v->slot[id].word);
		struct owner *o = &x->owner[id];
		uint16_t row = index_slot_row(word);

		x->word[id] = word;
		o->kinds = 0;
		if (index_slot_state(word) != INDEX_SLOT_LIVE)
			continue;
		if (x->tally_of[row] == 0) {
			x->row_of[x->n_rows] = row;
			x->tally_of[row] = (uint16_t)++x->n_rows;
		}
		o->row = (uint16_t)(x->tally_of[row] - 1);
		o->kinds = 1u << KIND_ANY;
		if (index_slot_role(word) == INDEX_EXACT) {
			o->kinds |= 1u << KIND_EXACT;
			if (index_slot_tier(word) == INDEX_GPU)
				o->kinds |= 1u << KIND_GPU;
		}
	}
	x->epoch = epoch;
	x->copied = true;
}

/* The set word of hash; a pool chunk is copied to x->next.  False: nobody, or it changed. */
static bool
set_read(struct index *x, uint64_t hash, uint64_t *ret)
{
	const struct index_view *v = &x->v;
	uint64_t b = home_of(v, hash), tag = tag_of(hash);

	for (unsigned d = 0; d < INDEX_PROBE; d++, b = bucket_after(v, b)) {
		const struct index_bucket *bucket = &v->bucket[b];
		uint64_t want = tag << 5 | d, w[LANES];

		for (unsigned i = 0; i < LANES; i++)
			w[i] = atomic_load_explicit(&bucket->w[i], memory_order_acquire);   /* A2 */
		for (unsigned i = 0; i < LANES; i++) {
			if (w_key(w[i]) != want)
				continue;
			INDEX_LOAD_POINT();

			/* A3 */
			uint64_t s = atomic_load_explicit(&bucket->s[i], memory_order_acquire);

			INDEX_LOAD_POINT();
			if (v->list_bits && set_is_pool(s)) {
				if (!pool_sane(v, s))
					return false;
				const _Atomic uint64_t *from = chunk_at(v, pool_chunk(s));
				for (uint32_t k = 0; k < v->chunk_words; k++) {
					x->next[k] = load(&from[k]);
					INDEX_LOAD_POINT();
				}
				atomic_thread_fence(memory_order_acquire);
				if (load(&bucket->s[i]) != s)
					return false;
				INDEX_LOAD_POINT();
			}
			atomic_thread_fence(memory_order_acquire);
			*ret = s;
			return load(&bucket->w[i]) >> 8 == w[i] >> 8;                   /* A4 */
		}
		if (w_count(w[0]) == 0)
			return false;
	}
	return false;
}

static inline unsigned
kind_in(unsigned kinds, unsigned kind)
{
	return kinds >> kind & 1u;
}

static void
id_first(struct index *x, uint32_t id)
{
	struct owner o = x->owner[id];
	struct tally *t = &x->tally[o.row];

	if (!o.kinds)
		return;
	if (!t->going)
		x->first[x->n_first++] = o.row;
	t->going |= o.kinds;
	for (unsigned k = 0; k < KINDS; k++)
		t->held[k] = (uint16_t)(t->held[k] + kind_in(o.kinds, k));
	x->met[id / 64] |= 1ull << id % 64;
}

static void
id_came(struct index *x, uint32_t id)
{
	struct owner o = x->owner[id];
	struct tally *t = &x->tally[o.row];

	if (!o.kinds || !t->going)
		return;                         /* has a hole, or was absent from block 0 */
	for (unsigned k = 0; k < KINDS; k++)
		t->held[k] = (uint16_t)(t->held[k] + kind_in(o.kinds, k));
	x->met[id / 64] |= 1ull << id % 64;
}

/* After all that came: at 0 the row has a hole at this block. */
static void
id_went(struct index *x, uint32_t id, uint32_t block)
{
	struct owner o = x->owner[id];
	struct tally *t = &x->tally[o.row];

	if (!o.kinds || !t->going)
		return;
	for (unsigned k = 0; k < KINDS; k++) {
		if (!kind_in(o.kinds, k) || --t->held[k] != 0 || !kind_in(t->going, k))
			continue;
		t->depth[k] = block;
		t->going = (uint8_t)(t->going & ~(1u << k));
		if (k == KIND_ANY)
			x->n_going--;
	}
}

static void
bitmap_first(struct index *x, const uint64_t *set, uint32_t words)
{
	for (uint32_t i = 0; i < words; i++)
		for (uint64_t bits = set[i]; bits; bits &= bits - 1)
			id_first(x, i * 64 + (uint32_t)__builtin_ctzll(bits));
}

static void
bitmap_step(struct index *x, const uint64_t *was, const uint64_t *is, uint32_t words,
	    uint32_t block)
{
	for (uint32_t i = 0; i < words; i++)
		for (uint64_t bits = is[i] & ~was[i]; bits; bits &= bits - 1)
			id_came(x, i * 64 + (uint32_t)__builtin_ctzll(bits));
	for (uint32_t i = 0; i < words; i++)
		for (uint64_t bits = was[i] & ~is[i]; bits; bits &= bits - 1)
			id_went(x, i * 64 + (uint32_t)__builtin_ctzll(bits), block);
}

static void
list_step(struct index *x, uint64_t was_word, uint64_t is_word, uint32_t block)
{
	uint16_t was[LIST_MAX], is[LIST_MAX], went[LIST_MAX];
	unsigned n_was = list_unpack(&x->v, was_word, was), n_is = list_unpack(&x->v, is_word, is);
	unsigned i = 0, n_went = 0;

	for (unsigned k = 0; k < n_is; k++) {   /* both ascend */
		while (i < n_was && was[i] < is[k])
			went[n_went++] = was[i++];
		if (i < n_was && was[i] == is[k])
			i++;
		else
			id_came(x, is[k]);
	}
	while (i < n_was)
		went[n_went++] = was[i++];
	for (unsigned k = 0; k < n_went; k++)
		id_went(x, went[k], block);
}

static void
list_to_bitmap(const struct index *x, uint64_t word, uint64_t *set)
{
	uint16_t id[LIST_MAX];
	unsigned n = list_unpack(&x->v, word, id);

	memset(set, 0, x->v.chunk_words * sizeof set[0]);
	for (unsigned i = 0; i < n; i++)
		set[id[i] / 64] |= 1ull << id[i] % 64;
}

/* Takes the set of one more block; s as set_read gave it. */
static void
set_step(struct index *x, uint64_t s, uint32_t block)
{
	uint32_t words = x->v.chunk_words;
	bool pool = x->v.list_bits != 0 && set_is_pool(s);

	if (!pool && x->form == FORM_LIST && s == x->last_word)
		return;                         /* the same holders again */
	if (!pool && x->v.list_bits == 0) {     /* the word is the bitmap; FORM_LIST stands */
		if (x->form == FORM_NONE)
			bitmap_first(x, &s, 1);
		else
			bitmap_step(x, &x->last_word, &s, 1, block);
		x->form = FORM_LIST;
		x->last_word = s;
		return;
	}
	if (!pool && x->form == FORM_LIST) {
		list_step(x, x->last_word, s, block);
		x->last_word = s;
		return;
	}
	if (!pool)
		list_to_bitmap(x, s, x->next);
	if (x->form == FORM_LIST)
		list_to_bitmap(x, x->last_word, x->set);
	if (x->form == FORM_NONE)
		bitmap_first(x, x->next, words);
	else
		bitmap_step(x, x->set, x->next, words, block);
	if (pool) {
		uint64_t *spare = x->set;

		x->set = x->next;
		x->next = spare;
		x->form = FORM_BITMAP;
	} else {
		x->form = FORM_LIST;
		x->last_word = s;
	}
}

/* Rule 6, the other half: an id that changed hands while we read may have meant either owner. */
static void
slots_verify(struct index *x)
{
	atomic_thread_fence(memory_order_acquire);
	if (load(&x->v.head->slots_epoch) == x->epoch)                                  /* A5 */
		return;
	for (uint32_t i = 0; i < x->v.chunk_words; i++)
		for (uint64_t bits = x->met[i]; bits; bits &= bits - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (load(&x->v.slot[id].word) != x->word[id])
				x->tally[x->owner[id].row].void_ = 1;
		}
}

unsigned
index_match(struct index *x, const uint64_t *hash, unsigned n, struct index_depth *ret,
	    unsigned max)
{
	const struct index_view *v = &x->v;
	unsigned block, found = 0;

	slots_copy(x);
	memset(x->tally, 0, x->n_rows * sizeof x->tally[0]);
	memset(x->met, 0, v->chunk_words * sizeof x->met[0]);
	x->n_first = 0;
	x->form = FORM_NONE;
	for (unsigned i = 0; i < n && i < PREFETCH_BLOCKS; i++)
		__builtin_prefetch(&v->bucket[home_of(v, hash[i])]);
	for (block = 0; block < n; block++) {
		uint64_t s;

		if (block + PREFETCH_BLOCKS < n)
			__builtin_prefetch(&v->bucket[home_of(v, hash[block + PREFETCH_BLOCKS])]);
		if (!set_read(x, hash[block], &s))
			break;
		set_step(x, s, block);
		if (block == 0)
			x->n_going = x->n_first;
		if (x->n_going == 0)
			break;
	}
	INDEX_LOAD_POINT();
	slots_verify(x);
	for (uint32_t i = 0; i < x->n_first && found < max; i++) {
		struct tally *t = &x->tally[x->first[i]];

		for (unsigned k = 0; k < KINDS; k++)
			if (kind_in(t->going, k))
				t->depth[k] = block;
		if (t->void_ || t->depth[KIND_ANY] == 0)
			continue;
		ret[found++] = (struct index_depth){
			.row = x->row_of[x->first[i]],
			.exact = t->depth[KIND_EXACT],
			.gpu = t->depth[KIND_GPU],
			.any = t->depth[KIND_ANY],
		};
	}
	return found;
}

unsigned
index_holders(struct index *x, uint64_t hash, uint16_t *ret_slot, unsigned max)
{
	uint64_t s, bits;
	unsigned n = 0;

	slots_copy(x);
	if (!set_read(x, hash, &s))
		return 0;
	if (x->v.list_bits == 0)
		x->next[0] = s;
	else if (!set_is_pool(s))
		list_to_bitmap(x, s, x->next);
	for (uint32_t i = 0; i < x->v.chunk_words; i++)
		for (bits = x->next[i]; bits && n < max; bits &= bits - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (x->owner[id].kinds)
				ret_slot[n++] = (uint16_t)id;
		}
	return n;
}
