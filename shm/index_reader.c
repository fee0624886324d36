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

enum form { FORM_NONE, FORM_WORD, FORM_SMALL, FORM_BITMAP };

struct index {
	struct segment seg;
	bool owned;
	struct index_view v;
	uint64_t epoch;                         /* of the copy below */
	bool copied;
	uint64_t *slot_word;                    /* private copy */
	struct owner *owner;                    /* per id: set_words * 64 */
	uint16_t *row_of;                       /* per tally */
	uint16_t *tally_of;                     /* per row id: subscript + 1; 0 none */
	uint32_t n_rows;
	struct tally *tally;
	uint16_t *first;                        /* tallies met in block 0 */
	uint32_t n_first, n_going;
	uint64_t *met;                          /* ids whose words must not have changed */
	/* the set of the block before, and the one just read */
	enum form form;
	uint64_t word;                          /* FORM_WORD: the set word */
	uint64_t small[SMALL_WORDS], small_next[SMALL_WORDS];
	uint16_t few[SMALL_MAX];                /* FORM_SMALL: its ids, each once */
	unsigned n_few;
	uint64_t *set, *next;                   /* FORM_BITMAP */
	uint64_t *seen, tick;                   /* per id: the last set of few ids it was in */
};

static int
index_alloc(struct index *x)
{
	size_t ids = (size_t)x->v.set_words * 64;

	x->slot_word = calloc(ids, sizeof x->slot_word[0]);
	x->owner = calloc(ids, sizeof x->owner[0]);
	x->row_of = calloc(ids, sizeof x->row_of[0]);
	x->tally_of = calloc(1u << 16, sizeof x->tally_of[0]);
	x->tally = calloc(ids, sizeof x->tally[0]);
	x->first = calloc(ids, sizeof x->first[0]);
	x->met = calloc(x->v.set_words, sizeof x->met[0]);
	x->set = calloc(x->v.set_words, sizeof x->set[0]);
	x->next = calloc(x->v.set_words, sizeof x->next[0]);
	x->seen = calloc(ids, sizeof x->seen[0]);
	if (!x->slot_word || !x->seen || !x->owner || !x->row_of || !x->tally_of || !x->tally ||
	    !x->first || !x->met || !x->set || !x->next)
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

static void
populate(char *at, size_t size)
{
	volatile const char *byte = at;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (madvise(at, size, MADV_POPULATE_READ) == 0)
		return;
	/* An older kernel: touch each page, or the first matches pay for it. */
	for (size_t off = 0; off < size; off += page)
		(void)byte[off];
}

/* All of the table: a page of it not yet written will be.  Of the pools only what is there, since a
 * page that a reader touches first is allotted all the same. */
static void
populate_index(const struct segment *seg, const struct index_header *head)
{
	off_t from = 0, to = (off_t)seg->size, page = (off_t)sysconf(_SC_PAGESIZE);

	for (unsigned c = 0; c < INDEX_CLASSES; c++)
		if ((off_t)head->pool[c].off_versions < to)
			to = (off_t)head->pool[c].off_versions;
	to = (to + page - 1) & ~(page - 1);
	while (from < (off_t)seg->size) {
		populate((char *)seg->head + from, (size_t)(to - from));
		from = lseek(seg->fd, to, SEEK_DATA);
		if (from < 0)
			return;
		to = lseek(seg->fd, from, SEEK_HOLE);
		if (to <= from || to > (off_t)seg->size)
			return;
	}
}

int
index_attach(struct index **ret, int fd)
{
	struct segment seg;
	int r;

	r = segment_attach(&seg, fd, SEGMENT_INDEX, INDEX_LAYOUT, false);
	if (r < 0)
		return r;
	r = index_open(ret, &seg, true);
	if (r < 0) {
		segment_detach(&seg);
		return r;
	}
	/* A small one comes by itself, 16 pages a fault: cheaper than to walk it at each birth. */
	if (seg.size > POPULATE_BYTES)
		populate_index(&seg, (*ret)->v.head);
	return 0;
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
	free(x->slot_word);
	free(x->seen);
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

		x->slot_word[id] = word;
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
	/* The copy comes before the buckets: a new owner's word read after a bucket that still has
	 * the last owner's bit would pass the check at the end. */
	atomic_thread_fence(memory_order_acquire);
}

/* Copies the chunk of a set word that is still *at after it. */
static bool
chunk_read(struct index *x, const _Atomic uint64_t *at, uint64_t s)
{
	const struct index_view *v = &x->v;
	enum pool_class class = pool_class(s);
	uint64_t *to = class == POOL_SMALL ? x->small_next : x->next;
	const _Atomic uint64_t *from;

	if (!pool_sane(v, s))
		return false;
	from = chunk_at(v, class, pool_chunk(s));
	for (uint32_t k = 0; k < v->pool[class].words; k++) {
		to[k] = load(&from[k]);
		INDEX_LOAD_POINT();
	}
	atomic_thread_fence(memory_order_acquire);
	return load(at) == s;                                                           /* A6 */
}

/* The set word of hash; a pool chunk is copied to x->small_next or x->next.  False: nobody, or it
 * changed. */
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
			if (v->list_bits && set_is_pool(s) &&
			    !chunk_read(x, &bucket->s[i], s))
				return false;
			INDEX_LOAD_POINT();
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
list_diff(struct index *x, uint64_t was_word, uint64_t is_word, uint32_t block)
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

/* The places of a class 0 chunk are in no order, and a copy taken while an id left one place and
 * came to another has it twice: each id counts once. */
static unsigned
small_unpack(struct index *x, const uint64_t *word, uint16_t *ret)
{
	unsigned n = 0;

	x->tick++;
	for (uint32_t k = 0; k < x->v.pool[POOL_SMALL].words; k++)
		for (unsigned i = 0; word[k] && i < x->v.small_per_word; i++) {
			uint16_t id = small_id(&x->v, word[k], i);

			if (id == 0 || id > x->v.max_slots || x->seen[id] == x->tick)
				continue;
			x->seen[id] = x->tick;
			ret[n++] = id;
		}
	return n;
}

/* From one set of few ids, in any order, to the next. */
static void
few_step(struct index *x, const uint16_t *was, unsigned n_was, const uint16_t *is, unsigned n_is,
	 uint32_t block)
{
	uint64_t before = ++x->tick, now = ++x->tick;

	for (unsigned i = 0; i < n_was; i++)
		x->seen[was[i]] = before;
	for (unsigned i = 0; i < n_is; i++) {
		if (x->seen[is[i]] != before)
			id_came(x, is[i]);
		x->seen[is[i]] = now;
	}
	for (unsigned i = 0; i < n_was; i++)
		if (x->seen[was[i]] != now)
			id_went(x, was[i], block);
}

static void
few_to_bitmap(const struct index *x, const uint16_t *id, unsigned n, uint64_t *set)
{
	memset(set, 0, x->v.set_words * sizeof set[0]);
	for (unsigned i = 0; i < n; i++)
		set[id[i] / 64] |= 1ull << id[i] % 64;
}

/* The word is the bitmap. */
static void
word_step(struct index *x, uint64_t s, uint32_t block)
{
	if (x->form == FORM_NONE)
		bitmap_first(x, &s, 1);
	else if (s != x->word)
		bitmap_step(x, &x->word, &s, 1, block);
	x->form = FORM_WORD;
	x->word = s;
}

/* Either set is a bitmap: compared as such.  few: the ids of the new one, if it is none. */
static void
mixed_step(struct index *x, bool bitmap, const uint16_t *few, unsigned n_few, uint32_t block)
{
	uint16_t was[LIST_MAX];

	if (!bitmap)
		few_to_bitmap(x, few, n_few, x->next);
	if (x->form == FORM_WORD)
		few_to_bitmap(x, was, list_unpack(&x->v, x->word, was), x->set);
	else if (x->form == FORM_SMALL)
		few_to_bitmap(x, x->few, x->n_few, x->set);
	if (x->form == FORM_NONE)
		bitmap_first(x, x->next, x->v.set_words);
	else
		bitmap_step(x, x->set, x->next, x->v.set_words, block);
}

static void
small_step(struct index *x, uint32_t block)
{
	uint16_t is[SMALL_MAX], was[LIST_MAX];
	size_t bytes = x->v.pool[POOL_SMALL].words * sizeof x->small[0];
	unsigned n_is;

	if (x->form == FORM_SMALL && memcmp(x->small, x->small_next, bytes) == 0)
		return;                         /* the same holders in the same places */
	n_is = small_unpack(x, x->small_next, is);
	if (x->form == FORM_BITMAP)
		mixed_step(x, false, is, n_is, block);
	else if (x->form == FORM_SMALL)
		few_step(x, x->few, x->n_few, is, n_is, block);
	else if (x->form == FORM_WORD)
		few_step(x, was, list_unpack(&x->v, x->word, was), is, n_is, block);
	else
		for (unsigned i = 0; i < n_is; i++)
			id_first(x, is[i]);
	memcpy(x->small, x->small_next, bytes);
	memcpy(x->few, is, n_is * sizeof is[0]);
	x->n_few = n_is;
	x->form = FORM_SMALL;
}

static void
list_step(struct index *x, uint64_t s, uint32_t block)
{
	uint16_t is[LIST_MAX];
	unsigned n_is;

	if (x->form == FORM_WORD) {
		if (s != x->word)               /* else the same holders again */
			list_diff(x, x->word, s, block);
	} else {
		n_is = list_unpack(&x->v, s, is);
		if (x->form == FORM_BITMAP)
			mixed_step(x, false, is, n_is, block);
		else if (x->form == FORM_SMALL)
			few_step(x, x->few, x->n_few, is, n_is, block);
		else
			for (unsigned i = 0; i < n_is; i++)
				id_first(x, is[i]);
	}
	x->form = FORM_WORD;
	x->word = s;
}

static void
bitmap_taken(struct index *x)
{
	uint64_t *spare = x->set;

	x->set = x->next;
	x->next = spare;
	x->form = FORM_BITMAP;
}

/* Takes the set of one more block; s as set_read gave it. */
static void
set_step(struct index *x, uint64_t s, uint32_t block)
{
	if (x->v.list_bits == 0) {
		word_step(x, s, block);
	} else if (!set_is_pool(s)) {
		list_step(x, s, block);
	} else if (pool_class(s) == POOL_SMALL) {
		small_step(x, block);
	} else {
		mixed_step(x, true, NULL, 0, block);
		bitmap_taken(x);
	}
}

/* Rule 6, the other half: an id that changed hands while we read may have meant either owner. */
static void
slots_verify(struct index *x)
{
	atomic_thread_fence(memory_order_acquire);
	if (load(&x->v.head->slots_epoch) == x->epoch)                                  /* A5 */
		return;
	for (uint32_t i = 0; i < x->v.set_words; i++)
		for (uint64_t bits = x->met[i]; bits; bits &= bits - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (load(&x->v.slot[id].word) != x->slot_word[id])
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
	memset(x->met, 0, v->set_words * sizeof x->met[0]);
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
	uint16_t few[SMALL_MAX];
	uint64_t s, bits;
	unsigned n = 0;

	slots_copy(x);
	if (!set_read(x, hash, &s))
		return 0;
	if (x->v.list_bits == 0)
		x->next[0] = s;
	else if (!set_is_pool(s))
		few_to_bitmap(x, few, list_unpack(&x->v, s, few), x->next);
	else if (pool_class(s) == POOL_SMALL)
		few_to_bitmap(x, few, small_unpack(x, x->small_next, few), x->next);
	for (uint32_t i = 0; i < x->v.set_words; i++)
		for (bits = x->next[i]; bits && n < max; bits &= bits - 1) {
			uint32_t id = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (x->owner[id].kinds)
				ret_slot[n++] = (uint16_t)id;
		}
	return n;
}
