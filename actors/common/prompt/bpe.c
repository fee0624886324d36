/* actors/common/prompt/bpe.c -- the merges, and what avoids them. */
#include "actors/common/prompt/bpe.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "actors/common/prompt/tokenizer.h"

#define BATCH 64u                       /* pieces whose tables are fetched before they are read */
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
		struct bpe_cached *fresh = calloc(BPE_CACHE, sizeof(*fresh));

		if (!fresh)
			return -ENOMEM;
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
	free(w->symbol);
	free(w->next);
	free(w->prev);
	free(w->heap);
	*w = (struct bpe_work){0};
}

/* --- tables --- */

static inline const struct tokenizer_merge *
pair_find(const struct bpe_tables *t, uint32_t left, uint32_t right)
{
	uint32_t i = tokenizer_hash_merge(left, right) & t->merges_mask;

	for (unsigned n = 0; n < TOKENIZER_PROBES; n++, i = (i + 1) & t->merges_mask) {
		const struct tokenizer_merge *m = &t->merges[i];

		if (m->left == left && m->right == right)
			return m;
		if (m->left == TOKENIZER_NONE)
			return NULL;
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
		const struct tokenizer_word *w = &t->words[i];

		if (w->a == k.a && w->b == b)
			return w->id;
		if (w->b == 0)
			break;
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

/* --- merging few: key[i] = rank * 64 + i of the pair that begins at place i --- */

struct few {
	int32_t key[BPE_SHORT + 4] __attribute__((aligned(16)));
	uint32_t id[BPE_SHORT], to[BPE_SHORT];  /* to: what the pair becomes */
	uint8_t next[BPE_SHORT + 1], prev[BPE_SHORT + 1];
};

static inline int32_t
few_least(const struct few *f, size_t n)
{
#ifdef __SSE2__
	__m128i least = _mm_load_si128((const __m128i *)(const void *)f->key);

	for (size_t i = 4; i < n; i += 4) {
		__m128i v = _mm_load_si128((const __m128i *)(const void *)(f->key + i));
		__m128i less = _mm_cmplt_epi32(v, least);

		least = _mm_or_si128(_mm_and_si128(less, v), _mm_andnot_si128(less, least));
	}
	int32_t m[4];
	memcpy(m, &least, sizeof(m));
	int32_t a = m[0] < m[1] ? m[0] : m[1], b = m[2] < m[3] ? m[2] : m[3];

	return a < b ? a : b;
#else
	int32_t least = DEAD;

	for (size_t i = 0; i < n; i++)
		least = f->key[i] < least ? f->key[i] : least;
	return least;
#endif
}

static inline void
few_pair(const struct bpe_tables *t, struct few *f, size_t i, size_t j)
{
	const struct tokenizer_merge *m = pair_find(t, f->id[i], f->id[j]);

	f->key[i] = m ? (int32_t)(m->rank << 6 | (uint32_t)i) : DEAD;
	if (m)
		f->to[i] = m->id;
}

/* f->id[0, n) and f->key and f->to of their pairs are there; key[n - 1] is DEAD. */
static inline size_t
few_merge(const struct bpe_tables *t, struct few *f, size_t n, size_t stop, uint32_t *out)
{
	size_t alive = n;

	for (size_t i = n; i < (n + 3) / 4 * 4; i++)
		f->key[i] = DEAD;
	for (size_t i = 0; i < n; i++) {
		f->next[i] = (uint8_t)(i + 1);
		f->prev[i] = (uint8_t)(i - 1);
	}
	while (alive > stop) {
		int32_t least = few_least(f, n);

		if (least == DEAD)
			break;
		size_t i = (size_t)least & 63, j = f->next[i], k = f->next[j];

		f->id[i] = f->to[i];
		f->key[j] = DEAD;
		f->next[i] = (uint8_t)k;
		alive--;
		if (k < n) {
			f->prev[k] = (uint8_t)i;
			few_pair(t, f, i, k);
		} else {
			f->key[i] = DEAD;
		}
		if (i > 0)
			few_pair(t, f, f->prev[i], i);
	}
	size_t at = 0;

	for (size_t i = 0; i < n; i = f->next[i])
		out[at++] = f->id[i];
	return at;
}

/* --- merging many --- */

static bool
many_room(struct bpe_work *w, size_t n)
{
	size_t heap = 3 * n + 16;        /* a pair for each symbol, and two more for each merge */

	if (n > w->cap) {
		free(w->next);
		free(w->prev);
		w->next = malloc(n * sizeof(*w->next));
		w->prev = malloc(n * sizeof(*w->prev));
		w->cap = w->next && w->prev ? n : 0;
	}
	if (heap > w->heap_cap) {
		free(w->heap);
		w->heap = malloc(heap * sizeof(*w->heap));
		w->heap_cap = w->heap ? heap : 0;
	}
	return n <= w->cap && heap <= w->heap_cap;
}

/* Four children each: half the levels, and a level is one line. */
static void
heap_down(uint64_t *heap, size_t n, size_t i)
{
	uint64_t v = heap[i];

	for (;;) {
		size_t c = 4 * i + 1;

		if (c >= n)
			break;
		size_t end = c + 4 < n ? c + 4 : n, least = c;

		for (size_t k = c + 1; k < end; k++)
			if (heap[k] < heap[least])
				least = k;
		if (heap[least] >= v)
			break;
		heap[i] = heap[least];
		i = least;
	}
	heap[i] = v;
}

static void
heap_add(uint64_t *heap, size_t *n, uint64_t v)
{
	size_t i = (*n)++;

	while (i > 0) {
		size_t up = (i - 1) / 4;

		if (heap[up] <= v)
			break;
		heap[i] = heap[up];
		i = up;
	}
	heap[i] = v;
}

/* Each pair is in the heap as rank << 32 | place; one that is no more is recognised when it comes
 * up: the pair at its place has another rank. */
static size_t
many_merge(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n, size_t stop)
{
	size_t n_heap = 0, alive = n;

	if (n >= UINT32_MAX || !many_room(w, n))
		return SIZE_MAX;
	uint64_t *heap = w->heap;
	uint32_t *next = w->next, *prev = w->prev;

	for (size_t i = 0; i < n; i++) {
		next[i] = (uint32_t)i + 1;
		prev[i] = (uint32_t)i - 1;
		if (i + 1 < n) {
			const struct tokenizer_merge *m = pair_find(t, symbol[i], symbol[i + 1]);

			if (m)
				heap[n_heap++] = (uint64_t)m->rank << 32 | i;
		}
	}
	for (size_t i = n_heap / 4 + 1; i-- > 0; )
		if (i < n_heap)
			heap_down(heap, n_heap, i);
	while (n_heap > 0 && alive > stop) {
		uint64_t top = heap[0];
		size_t i = (uint32_t)top;

		heap[0] = heap[--n_heap];
		if (n_heap)
			heap_down(heap, n_heap, 0);
		if (symbol[i] == TOKENIZER_NONE || next[i] >= n)
			continue;
		size_t j = next[i], k = next[j];
		const struct tokenizer_merge *m = pair_find(t, symbol[i], symbol[j]);

		if (!m || m->rank != top >> 32)
			continue;
		symbol[i] = m->id;
		symbol[j] = TOKENIZER_NONE;
		next[i] = (uint32_t)k;
		alive--;
		if (k < n) {
			prev[k] = (uint32_t)i;
			m = pair_find(t, symbol[i], symbol[k]);
			if (m)
				heap_add(heap, &n_heap, (uint64_t)m->rank << 32 | i);
		}
		if (i > 0) {
			m = pair_find(t, symbol[prev[i]], symbol[i]);
			if (m)
				heap_add(heap, &n_heap, (uint64_t)m->rank << 32 | prev[i]);
		}
	}
	size_t at = 0;

	for (size_t i = 0; i < n; i = next[i])
		symbol[at++] = symbol[i];
	return at;
}

size_t
bpe_merge(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n, size_t stop)
{
	struct few f;

	if (n < 2)
		return n;
	if (n > BPE_SHORT)
		return many_merge(t, w, symbol, n, stop);
	memcpy(f.id, symbol, n * sizeof(*symbol));
	for (size_t i = 0; i + 1 < n; i++)
		few_pair(t, &f, i, i + 1);
	f.key[n - 1] = DEAD;
	return few_merge(t, &f, n, stop, symbol);
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

/* Any piece, by merging; its ids at out->id + out->n, for which there is room.  SIZE_MAX: no
 * memory. */
static size_t
piece_merge(const struct bpe_tables *t, struct bpe_work *w, const char *p, size_t n, uint32_t *out)
{
	struct few f;
	const uint8_t *u = (const uint8_t *)p;

	if (t->pairs && n <= BPE_SHORT && n > 1) {
		for (size_t i = 0; i + 1 < n; i++) {
			const struct tokenizer_pair *pair = &t->pairs[u[i] << 8 | u[i + 1]];

			f.id[i] = t->symbols[u[i]];
			f.to[i] = pair->id;
			f.key[i] = pair->rank == TOKENIZER_NONE
					   ? DEAD
					   : (int32_t)(pair->rank << 6 | (uint32_t)i);
		}
		f.id[n - 1] = t->symbols[u[n - 1]];
		f.key[n - 1] = DEAD;
		return few_merge(t, &f, n, 1, out);
	}
	size_t symbols = t->flags & TOKENIZER_BYTE_LEVEL ? symbols_of_bytes(t, u, n, out)
							 : symbols_of_characters(t, p, n, out);

	return bpe_merge(t, w, out, symbols, 1);
}

static inline struct bpe_cached *
cache_at(struct bpe_work *w, uint64_t hash)
{
	return &w->now[hash >> 40 & (BPE_CACHE - 1)];
}

/* One piece of more than one byte.  key and hash only when n <= 16. */
static inline int
piece(const struct bpe_tables *t, struct bpe_work *w, const char *p, size_t n, struct key key,
      uint64_t hash, struct ids *out)
{
	struct bpe_cached *c = NULL;
	uint32_t id = n <= 11 ? word_find(t, key, n, hash) : long_find(t, p, n);

	if (id != TOKENIZER_NONE) {
		if (ids_room(out, 1) < 0)
			return -ENOMEM;
		out->id[out->n++] = id;
		return 0;
	}
	if (n <= 16) {
		c = cache_at(w, hash);
		if (ids_room(out, BPE_IDS) < 0)
			return -ENOMEM;
		if (c->a == key.a && c->b == key.b && c->len == n) {
			memcpy(out->id + out->n, c->id, sizeof(c->id));
			out->n += c->n;
			w->cached++;
			return 0;
		}
	}
	if (ids_room(out, n + 1) < 0)
		return -ENOMEM;
	size_t made = piece_merge(t, w, p, n, out->id + out->n);

	if (made == SIZE_MAX)
		return -ENOMEM;
	if (c && made <= BPE_IDS) {
		*c = (struct bpe_cached){key.a, key.b, (uint8_t)n, (uint8_t)made, 0, {0}};
		memcpy(c->id, out->id + out->n, made * sizeof(*c->id));
	}
	out->n += made;
	return 0;
}

/* Where a piece of characters can be parted: before a U+2581, if no token crosses to it. */
static size_t
part_end(const struct bpe_tables *t, const char *p, size_t n)
{
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

static int
parts(const struct bpe_tables *t, struct bpe_work *w, const char *p, size_t n, size_t max_ids,
      struct ids *out)
{
	while (n > 0 && out->n < max_ids) {
		size_t len = part_end(t, p, n);
		struct key key = {0};

		if (len <= 16)
			key = load_key(p, len, n);
		int r = piece(t, w, p, len, key, tokenizer_hash_word(key.a, key.b), out);

		if (r < 0)
			return r;
		p += len;
		n -= len;
	}
	return 0;
}

int
bpe_pieces(const struct bpe_tables *t, struct bpe_work *w, const char *text, size_t left,
	   const uint32_t *len, size_t n, size_t max_ids, struct ids *out)
{
	struct key key[BATCH];
	uint64_t hash[BATCH];

	w->pieces += n;
	if (t->flags & TOKENIZER_PARTS) {
		for (size_t i = 0; i < n; i++) {
			int r = parts(t, w, text, len[i], max_ids, out);

			if (r < 0)
				return r;
			text += len[i];
		}
		return 0;
	}
	for (size_t from = 0; from < n && out->n < max_ids; from += BATCH) {
		size_t many = n - from < BATCH ? n - from : BATCH;
		const char *p = text;
		size_t can = left;

		/* First ask for all that the tables will be read at, then read it. */
		for (size_t i = 0; i < many; i++) {
			size_t l = len[from + i];

			key[i] = (struct key){0};
			hash[i] = 0;
			if (l <= 16) {
				key[i] = load_key(p, l, can);
				hash[i] = tokenizer_hash_word(key[i].a, key[i].b);
				if (l <= 11)
					__builtin_prefetch(
						&t->words[(uint32_t)hash[i] & t->words_mask]);
				__builtin_prefetch(cache_at(w, hash[i]));
			}
			p += l;
			can -= l;
		}
		for (size_t i = 0; i < many; i++) {
			size_t l = len[from + i];
			int r = piece(t, w, text, l, key[i], hash[i], out);

			if (r < 0)
				return r;
			text += l;
			left -= l;
		}
	}
	return 0;
}
