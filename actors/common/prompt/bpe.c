/* actors/common/prompt/bpe.c -- the merges, and what avoids them. */
#include "actors/common/prompt/bpe.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/unicode.h"

#define BATCH BPE_BATCH
#define LANES BPE_LANES
#define WINDOW       96u                /* symbols merged at a time where there are many, .. */
#define WINDOW_ENDS  2u                 /* .. whose last ids are made anew, .. */
#define WINDOW_LEAST 8u                 /* .. and how many one must come on by, on average */
#define HUGE_PAGE ((size_t)1 << 21)
#define DEAD  INT32_MAX                 /* key of a place where no pair is */

struct key {                            /* a piece's first 16 bytes, zeros behind its end */
	uint64_t a, b;
};

int
bpe_begin(const struct bpe_tables *t, struct bpe_work *w)
{
	struct bpe_cache *c = &w->cache[0];

	w->turns++;
	for (unsigned i = 0; i < BPE_CACHES; i++) {
		if (w->cache[i].entry && w->cache[i].identity == t->identity) {
			c = &w->cache[i];
			break;
		}
		if (w->cache[i].used < c->used)
			c = &w->cache[i];
	}
	c->used = w->turns;
	if (!c->entry || c->identity != t->identity) {
		const size_t len = (BPE_CACHE * sizeof(struct bpe_cached) + HUGE_PAGE - 1) /
				   HUGE_PAGE * HUGE_PAGE;
		struct bpe_cached *fresh = aligned_alloc(HUGE_PAGE, len);

		if (!fresh)
			return -ENOMEM;
		/* Read here and there: two entries for its addresses, not 768.  Where the kernel
		 * has no such pages, the others do. */
		(void)madvise(fresh, len, MADV_HUGEPAGE);
		memset(fresh, 0, len);
		free(c->entry);
		c->entry = fresh;
		c->identity = t->identity;
	}
	w->now = c->entry;
	return 0;
}

void
bpe_free(struct bpe_work *w)
{
	for (unsigned i = 0; i < BPE_CACHES; i++)
		free(w->cache[i].entry);
	free(w->made);
	free(w->next);
	free(w->prev);
	free(w->heap);
	*w = (struct bpe_work){0};
}

void
bpe_give_back(struct bpe_work *w, size_t most)
{
	if (w->made_cap * sizeof(*w->made) > most) {
		free(w->made);
		w->made = NULL;
		w->made_cap = 0;
	}
	if (w->cap * sizeof(*w->next) > most) {
		free(w->next);
		free(w->prev);
		w->next = w->prev = NULL;
		w->cap = 0;
	}
	if (w->heap_cap * sizeof(*w->heap) > most) {
		free(w->heap);
		w->heap = NULL;
		w->heap_cap = 0;
	}
}

/* --- tables --- */

static inline const struct tokenizer_merge *
pair_find(const struct bpe_tables *t, uint32_t left, uint32_t right)
{
	uint32_t hash = tokenizer_hash_merge(left, right), i = hash & t->merges_mask;

	for (unsigned n = 0; n < TOKENIZER_PROBES; n++, i = (i + 1) & t->merges_mask) {
		uint32_t slot = t->merge_slots[i], at = (slot & ~TOKENIZER_SLOT_TAG) - 1;

		if (slot == 0)
			return NULL;
		if (((slot ^ hash) & TOKENIZER_SLOT_TAG) == 0 && at < t->n_merges &&
		    t->merges[at].left == left && t->merges[at].right == right)
			return &t->merges[at];
	}
	return NULL;
}

const struct tokenizer_merge *
bpe_pair(const struct bpe_tables *t, uint32_t left, uint32_t right)
{
	return pair_find(t, left, right);
}

/* n bytes, 1..8, as a number with zeros behind them; `left` can be read. */
static inline uint64_t
load8(const char *p, size_t n, size_t left)
{
	uint64_t v = 0;

	if (left >= 8) {
		memcpy(&v, p, 8);
		return n >= 8 ? v : v & ((1ull << 8 * n) - 1);
	}
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)(uint8_t)p[i] << 8 * i;
	return v;
}

/* n <= 16 */
static inline struct key
load_key(const char *p, size_t n, size_t left)
{
	struct key k = {.a = load8(p, n, left)};

	if (n > 8)
		k.b = load8(p + 8, n - 8, left - 8);
	return k;
}

/* n <= 11 */
static inline uint32_t
word_find(const struct bpe_tables *t, struct key k, size_t n, uint64_t hash)
{
	uint32_t b = (uint32_t)k.b | (uint32_t)n << 24;
	uint32_t i = (uint32_t)hash & t->words_mask;

	for (unsigned probe = 0; probe < TOKENIZER_PROBES; probe++, i = (i + 1) & t->words_mask) {
		uint32_t slot = t->word_slots[i], at = (slot & ~TOKENIZER_SLOT_TAG) - 1;

		if (slot == 0)
			break;
		if (((slot ^ (uint32_t)hash) & TOKENIZER_SLOT_TAG) == 0 && at < t->n_words &&
		    t->words[at].a == k.a && t->words[at].b == b)
			return t->words[at].id;
	}
	return TOKENIZER_NONE;
}

static uint32_t
long_find(const struct bpe_tables *t, const char *p, size_t n)
{
	uint64_t hash = XXH3_64bits(p, n);
	uint32_t i = (uint32_t)hash & t->longs_mask, tag = (uint32_t)(hash >> 32);

	for (unsigned probe = 0; probe < TOKENIZER_PROBES; probe++, i = (i + 1) & t->longs_mask) {
		const struct tokenizer_long *l = &t->longs[i];

		if (l->len == 0)
			break;
		if (l->hash == tag && l->len == n && l->off <= t->n_bytes &&
		    n <= t->n_bytes - l->off && memcmp(t->bytes + l->off, p, n) == 0)
			return l->id;
	}
	return TOKENIZER_NONE;
}

uint32_t
bpe_word(const struct bpe_tables *t, const char *p, size_t n)
{
	if (n > 11)
		return long_find(t, p, n);
	struct key k = load_key(p, n, n);

	return word_find(t, k, n, tokenizer_hash_word(k.a, k.b));
}

/* --- merging few: key[i] = rank * 128 + i of the pair that begins at place i --- */

static inline int32_t
lane_least(const struct bpe_lane *f)
{
#ifdef __SSE2__
	__m128i least = _mm_load_si128((const __m128i *)(const void *)f->key);

	for (size_t i = 4; i < f->n; i += 4) {
		__m128i v = _mm_load_si128((const __m128i *)(const void *)(f->key + i));
		__m128i less = _mm_cmplt_epi32(v, least);

		least = _mm_or_si128(_mm_and_si128(less, v), _mm_andnot_si128(less, least));
	}
	__m128i half = _mm_shuffle_epi32(least, _MM_SHUFFLE(1, 0, 3, 2));
	__m128i less = _mm_cmplt_epi32(half, least);

	least = _mm_or_si128(_mm_and_si128(less, half), _mm_andnot_si128(less, least));
	int32_t a = _mm_cvtsi128_si32(least);
	int32_t b = _mm_cvtsi128_si32(_mm_shuffle_epi32(least, _MM_SHUFFLE(1, 1, 1, 1)));

	return a < b ? a : b;
#else
	int32_t least = DEAD;

	for (size_t i = 0; i < f->n; i++)
		least = f->key[i] < least ? f->key[i] : least;
	return least;
#endif
}

static inline void
lane_set(struct bpe_lane *f, size_t i, uint32_t rank, uint32_t id)
{
	f->key[i] = (int32_t)(rank << 7 | (uint32_t)i);
	f->to[i] = id;
}

static inline void
lane_pair(const struct bpe_tables *t, struct bpe_lane *f, size_t i, size_t j)
{
	const struct tokenizer_merge *m = pair_find(t, f->id[i], f->id[j]);

	if (m)
		lane_set(f, i, m->rank, m->id);
	else
		f->key[i] = DEAD;
}

/* f->id[0, n) and the keys of their pairs are there: what is left. */
static inline void
lane_links(struct bpe_lane *f, size_t n)
{
	f->n = n;
	f->alive = n;
	for (size_t i = n - 1; i < (n + 3) / 4 * 4; i++)
		f->key[i] = DEAD;
	for (size_t i = 0; i < n; i++) {
		f->next[i] = (uint8_t)(i + 1);
		f->prev[i] = (uint8_t)(i - 1);
	}
}

/* The best pair becomes one; which pairs are new, lane_look finds out.  False: none is left. */
static inline bool
lane_merge(const struct bpe_tables *t, struct bpe_lane *f)
{
	int32_t least = lane_least(f);

	if (least == DEAD)
		return false;
	size_t i = (size_t)least & (BPE_SHORT - 1), j = f->next[i], k = f->next[j];

	f->id[i] = f->to[i];
	f->key[j] = DEAD;
	f->next[i] = (uint8_t)k;
	f->prev[k] = (uint8_t)i;
	f->alive--;
	f->at = i;
	if (k < f->n)
		__builtin_prefetch(&t->merge_slots[tokenizer_hash_merge(f->id[i], f->id[k]) &
						   t->merges_mask]);
	if (i > 0)
		__builtin_prefetch(&t->merge_slots[tokenizer_hash_merge(f->id[f->prev[i]],
									f->id[i]) &
						   t->merges_mask]);
	return true;
}

static inline void
lane_look(const struct bpe_tables *t, struct bpe_lane *f)
{
	size_t i = f->at, k = f->next[i];

	if (k < f->n)
		lane_pair(t, f, i, k);
	else
		f->key[i] = DEAD;
	if (i > 0)
		lane_pair(t, f, f->prev[i], i);
}

static inline size_t
lane_read(const struct bpe_lane *f, uint32_t *out)
{
	size_t at = 0;

	for (size_t i = 0; i < f->n; i = f->next[i])
		out[at++] = f->id[i];
	return at;
}

static void
lane_symbols(const struct bpe_tables *t, struct bpe_lane *f, const uint32_t *symbol, size_t n)
{
	memcpy(f->id, symbol, n * sizeof(*symbol));
	for (size_t i = 0; i + 1 < n; i++)
		__builtin_prefetch(&t->merge_slots[tokenizer_hash_merge(f->id[i], f->id[i + 1]) &
						   t->merges_mask]);
	for (size_t i = 0; i + 1 < n; i++)
		lane_pair(t, f, i, i + 1);
	lane_links(f, n);
}

/* --- merging many, a window after another ---
 *
 * Ids are what a text becomes if each two neighbours are what their two texts become: a first merge
 * over a boundary would be the first between those two alone as well.  So a window's ids stay, but
 * for the last ones; the next begins with the last that stays, and must begin with it. */

static bool
made_room(struct bpe_work *w, size_t n)
{
	if (n > w->made_cap) {
		free(w->made);
		w->made = malloc(n * sizeof(*w->made));
		w->made_cap = w->made ? n : 0;
	}
	return n <= w->made_cap;
}

/* As bpe_merge; 0: not so. */
static size_t
windows_merge(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n)
{
	size_t from = 0, made = 0, turns = n / WINDOW_LEAST;
	struct bpe_lane f;

	if (!made_room(w, n))
		return SIZE_MAX;
	for (;;) {
		size_t len = n - from < WINDOW ? n - from : WINDOW, i = 0, stay;

		if (turns-- == 0)
			return 0;
		if (bpe_stopped(w))
			return SIZE_MAX;
		lane_symbols(t, &f, symbol + from, len);
		while (lane_merge(t, &f))
			lane_look(t, &f);
		stay = f.alive;
		if (from + len < n)
			stay = stay > WINDOW_ENDS ? stay - WINDOW_ENDS : 0;
		if (made > 0) {
			if (f.next[0] != w->made[made - 1].len) {       /* from one id before */
				if (--made == 0)
					return 0;
				from -= w->made[made - 1].len;
				continue;
			}
			made--;
		}
		if (stay < 2 && from + len < n)
			return 0;
		for (; stay > 0; stay--, i = f.next[i])
			w->made[made++] = (struct bpe_made){f.id[i], f.next[i] - (uint32_t)i};
		if (from + len == n)
			break;
		from += i - w->made[made - 1].len;
	}
	for (size_t i = 0; i < made; i++)
		symbol[i] = w->made[i].id;
	return made;
}

size_t
bpe_merge(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n, size_t stop)
{
	struct bpe_lane f;

	if (n < 2)
		return n;
	if (n > BPE_SHORT) {
		size_t made = stop < 2 ? windows_merge(t, w, symbol, n) : 0;

		return made ? made : bpe_merge_heap(t, w, symbol, n, stop);
	}
	lane_symbols(t, &f, symbol, n);
	while (f.alive > stop && lane_merge(t, &f))
		lane_look(t, &f);
	return lane_read(&f, symbol);
}

/* --- from text to symbols --- */

/* The bytes' own tokens, those that have none left out.  to has room for n. */
static size_t
symbols_of_bytes(const struct bpe_tables *t, const uint8_t *p, size_t n, uint32_t *to)
{
	size_t at = 0;
	bool unknown = false;

	for (size_t i = 0; i < n; i++) {
		uint32_t id = t->symbols[p[i]];

		if (id == TOKENIZER_NONE) {
			id = t->unknown;
			if (id == TOKENIZER_NONE ||
			    (unknown && (t->flags & TOKENIZER_FUSE_UNKNOWN)))
				continue;
			unknown = true;
		} else {
			unknown = false;
		}
		to[at++] = id;
	}
	return at;
}

/* The same, but for characters that become one token whatever is beside them, if it is no ASCII:
 * theirs.  Every byte has a token. */
static size_t
symbols_of_text(const struct bpe_tables *t, const uint8_t *p, size_t n, uint32_t *to)
{
	size_t at = 0;

	for (size_t i = 0; i < n; ) {
		unsigned len = 1;
		uint32_t c = p[i] < 0x80 ? 0 : unicode_at((const char *)p + i, n - i, &len);

		if (c - 0x80 < 0x10000 - 0x80 && t->characters[c] != TOKENIZER_NONE &&
		    (i == 0 || p[i - 1] >= 0x80) && (i + len >= n || p[i + len] >= 0x80)) {
			to[at++] = t->characters[c];
			i += len;
			continue;
		}
		for (; len > 0; len--)
			to[at++] = t->symbols[p[i++]];
	}
	return at;
}

static bool
is_ascii(const uint8_t *p, size_t n)
{
	uint8_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= p[i];
	return any < 0x80;
}

static bool
all_symbols(const struct bpe_tables *t, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (t->symbols[p[i]] == TOKENIZER_NONE)
			return false;
	return true;
}

/* A character's token, else its bytes', else the unknown one, which comes (as Hugging Face has it)
 * when the next character with a token does, or at the end.  to has room for n + 1. */
static size_t
symbols_of_characters(const struct bpe_tables *t, const char *p, size_t n, uint32_t *to)
{
	size_t at = 0, len;
	bool unknown = false;

	for (size_t i = 0; i < n; i += len) {
		uint8_t lead = (uint8_t)p[i];

		len = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
		if (len > n - i)
			len = n - i;
		uint32_t id = bpe_word(t, p + i, len);

		if (id != TOKENIZER_NONE) {
			if (unknown)
				to[at++] = t->unknown;
			unknown = false;
			to[at++] = id;
		} else if ((t->flags & TOKENIZER_FALLBACK) &&
			   all_symbols(t, (const uint8_t *)p + i, len)) {
			for (size_t k = 0; k < len; k++)
				to[at++] = t->symbols[(uint8_t)p[i + k]];
		} else if (t->unknown != TOKENIZER_NONE) {
			if (unknown && !(t->flags & TOKENIZER_FUSE_UNKNOWN))
				to[at++] = t->unknown;
			unknown = true;
		}
	}
	if (unknown)
		to[at++] = t->unknown;
	return at;
}

/* --- pieces --- */

static size_t
symbols_of(const struct bpe_tables *t, const char *p, size_t n, uint32_t *to)
{
	if (t->characters)
		return symbols_of_text(t, (const uint8_t *)p, n, to);
	if (t->flags & TOKENIZER_BYTE_LEVEL)
		return symbols_of_bytes(t, (const uint8_t *)p, n, to);
	return symbols_of_characters(t, p, n, to);
}

static inline struct bpe_cached *
cache_at(struct bpe_work *w, uint64_t hash)
{
	return &w->now[hash >> 40 & (BPE_CACHE - 1)];
}

/* Up to BATCH pieces at once.  Each has room for as many ids as it may come to, one behind the
 * other behind out->n; when all are made, they move together. */
struct batch {
	const struct bpe_tables *t;
	struct bpe_work *w;
	uint32_t *ids;                  /* out->id + out->n */
	unsigned n;
	struct {
		const char *p;
		struct key key;         /* len <= 16 */
		uint64_t hash;
		uint32_t len, at, made; /* at: in ids */
	} piece[BATCH];
	unsigned job[BATCH], n_jobs;    /* pieces to be merged */
};

/* A piece's symbols into a lane.  False: it is made already. */
static bool
lane_open(struct batch *b, struct bpe_lane *f, unsigned which)
{
	const struct bpe_tables *t = b->t;
	const uint8_t *u = (const uint8_t *)b->piece[which].p;
	size_t n = b->piece[which].len;

	f->piece = which;
	if (t->pairs && (!t->characters || is_ascii(u, n))) {
		for (size_t i = 0; i + 1 < n; i++) {
			const struct tokenizer_pair *pair = &t->pairs[u[i] << 8 | u[i + 1]];

			f->id[i] = t->symbols[u[i]];
			lane_set(f, i, pair->rank, pair->id);
			if (pair->rank == TOKENIZER_NONE)
				f->key[i] = DEAD;
		}
		f->id[n - 1] = t->symbols[u[n - 1]];
		lane_links(f, n);
		return true;
	}
	uint32_t *to = b->ids + b->piece[which].at;

	n = symbols_of(t, b->piece[which].p, n, to);
	if (n < 2) {
		b->piece[which].made = (uint32_t)n;
		return false;
	}
	lane_symbols(t, f, to, n);
	return true;
}

static void
lane_close(struct batch *b, struct bpe_lane *f)
{
	unsigned which = f->piece;
	uint32_t *to = b->ids + b->piece[which].at;
	size_t made = lane_read(f, to), len = b->piece[which].len;

	b->piece[which].made = (uint32_t)made;
	if (len <= 16 && made <= BPE_IDS) {
		struct bpe_cached *c = cache_at(b->w, b->piece[which].hash);

		c->a = b->piece[which].key.a;
		c->b = b->piece[which].key.b;
		c->len = (uint8_t)len;
		c->n = (uint8_t)made;
		memcpy(c->id, to, made * sizeof(*to));
	}
}

static void
merge_jobs(struct batch *b)
{
	struct bpe_lane *lane[LANES];
	unsigned n = 0, job = 0;

	while (n > 0 || job < b->n_jobs) {
		while (n < LANES && job < b->n_jobs) {
			lane[n] = &b->w->lane[job % LANES];
			for (unsigned i = 0; i < n; i++)        /* the one that is free */
				if (lane[i] == lane[n]) {
					lane[n] = &b->w->lane[(unsigned)(lane[n] - b->w->lane + 1) %
							      LANES];
					i = UINT32_MAX;
				}
			n += lane_open(b, lane[n], b->job[job++]);
		}
		for (unsigned i = 0; i < n; )
			if (lane_merge(b->t, lane[i])) {
				i++;
			} else {
				struct bpe_lane *done = lane[i];

				lane_close(b, done);
				lane[i] = lane[--n];
			}
		for (unsigned i = 0; i < n; i++)
			lane_look(b->t, lane[i]);
	}
}

/* One piece by a table, or among the jobs. */
static inline int
piece(struct batch *b, unsigned i)
{
	const struct bpe_tables *t = b->t;
	size_t n = b->piece[i].len;
	uint32_t *to = b->ids + b->piece[i].at;
	uint32_t id = n <= 11 ? word_find(t, b->piece[i].key, n, b->piece[i].hash)
			      : long_find(t, b->piece[i].p, n);

	if (id != TOKENIZER_NONE) {
		*to = id;
		b->piece[i].made = 1;
		return 0;
	}
	if (n <= 16) {
		const struct bpe_cached *c = cache_at(b->w, b->piece[i].hash);

		if (c->a == b->piece[i].key.a && c->b == b->piece[i].key.b && c->len == n) {
			memcpy(to, c->id, c->n * sizeof(*to));
			b->piece[i].made = c->n;
			b->w->cached++;
			return 0;
		}
	}
	if (n <= BPE_SHORT - 1) {
		b->job[b->n_jobs++] = i;
		return 0;
	}
	size_t made = bpe_merge(t, b->w, to, symbols_of(t, b->piece[i].p, n, to), 1);

	b->piece[i].made = (uint32_t)made;
	if (made == SIZE_MAX)
		return bpe_stopped(b->w) ? -ECANCELED : -ENOMEM;
	return 0;
}

static int
batch_run(struct batch *b, struct ids *out)
{
	size_t room = 0, n = 0;

	if (bpe_stopped(b->w))
		return -ECANCELED;
	for (unsigned i = 0; i < b->n; i++) {
		if (b->piece[i].len > BPE_PIECE_MAX)
			return -E2BIG;
		b->piece[i].at = (uint32_t)room;
		room += b->piece[i].len + 1;     /* an unknown token more than characters */
	}
	if (ids_room(out, room) < 0)
		return -ENOMEM;
	b->ids = out->id + out->n;
	b->n_jobs = 0;
	b->w->pieces += b->n;
	for (unsigned i = 0; i < b->n; i++) {
		int r = piece(b, i);

		if (r < 0)
			return r;
	}
	merge_jobs(b);
	for (unsigned i = 0; i < b->n; i++) {
		const uint32_t *from = b->ids + b->piece[i].at;

		/* Pieces of few ids are most: no call for them. */
		for (uint32_t k = 0; k < b->piece[i].made; k++)
			b->ids[n++] = from[k];
	}
	out->n += n;
	return 0;
}

static inline void
batch_add(struct batch *b, const char *p, size_t n, size_t left)
{
	struct key key = {0};

	if (n <= 16) {
		key = load_key(p, n, left);
		uint64_t hash = tokenizer_hash_word(key.a, key.b);

		/* First ask for all that the tables will be read at, then read it. */
		if (n <= 11)
			__builtin_prefetch(&b->t->word_slots[(uint32_t)hash & b->t->words_mask]);
		__builtin_prefetch(cache_at(b->w, hash));
		b->piece[b->n].hash = hash;
	}
	b->piece[b->n].key = key;
	b->piece[b->n].p = p;
	b->piece[b->n++].len = (uint32_t)n;
}

/* Where a piece of characters can be parted: before a U+2581, if no token crosses to it. */
static size_t
part_end(const struct bpe_tables *t, const char *p, size_t n)
{
	if (!(t->flags & TOKENIZER_PARTS))
		return n;
	for (const char *at = p + 1; at < p + n; at++) {
		at = memchr(at, 0xe2, (size_t)(p + n - at));
		if (!at)
			break;
		uint8_t before = (uint8_t)at[-1];

		if (p + n - at >= 3 && memcmp(at, "\xe2\x96\x81", 3) == 0 &&
		    !(t->crossed[before >> 6] >> (before & 63) & 1))
			return (size_t)(at - p);
	}
	return n;
}

int
bpe_pieces(const struct bpe_tables *t, struct bpe_work *w, const char *text, size_t left,
	   const uint32_t *len, size_t n, size_t max_ids, struct ids *out)
{
	struct batch b;
	int r;

	b.t = t;
	b.w = w;
	b.n = 0;
	for (size_t i = 0; i < n && out->n < max_ids; i++) {
		const char *end = text + len[i];

		while (text < end) {
			size_t part = part_end(t, text, (size_t)(end - text));

			batch_add(&b, text, part, left);
			text += part;
			left -= part;
			if (b.n == BATCH) {
				r = batch_run(&b, out);
				if (r < 0 || out->n >= max_ids)
					return r;
				b.n = 0;
			}
		}
	}
	return b.n ? batch_run(&b, out) : 0;
}
