/* actors/common/prompt/bpe.h -- byte pair encoding: pieces of text become ids.
 *
 * Rule       the pair of neighbours of lowest rank merges, the leftmost of equals, until no pair
 *            is left.  Every merge that can happen is in the table: the last one that the token's
 *            own text comes to.  (What happens within a span of text until it is one token depends
 *            on nothing outside, so a token has one last merge, whatever pairs a file lists.)
 * Short      below BPE_SHORT symbols: the lowest key of an array, 4 at a time, and several pieces
 *            in turn.  Longer: windows of some, each begun with an id of the one before; where
 *            they do not come to an end, a heap, so that no megabyte costs more than n log n.
 * Cache      pieces of up to 16 bytes that became several ids, each found by its bytes.
 * Bounds     a piece has BPE_PIECE_MAX bytes at most; who set `stop` is heard every few thousand
 *            merges.
 * Threads    tables are shared, a struct bpe_work is one thread's.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/ids.h"
#include "actors/common/prompt/tokenizer_layout.h"

#define BPE_SHORT     128u
#define BPE_PIECE_MAX (8u << 20)        /* bytes of one piece; no text that means anything has
                                           longer ones, and merging it takes 40 times as many */
#define BPE_LANES     8u                /* pieces merged at a time: while one waits for a table,
                                           the others go on */
#define BPE_BATCH     64u               /* pieces whose tables are fetched before they are read */
#define BPE_IDS       7u
#define BPE_CACHE     (1u << 16)        /* entries: 3 MB, in pages of 2 */
#define BPE_CACHES    4u                /* tokenizers a thread keeps one for */

struct bpe_tables {
	const struct tokenizer_word *words;
	const struct tokenizer_long *longs;
	const struct tokenizer_merge *merges;
	const struct tokenizer_pair *pairs;     /* NULL: symbols are no bytes */
	const uint32_t *characters;             /* NULL: all begin as bytes */
	const uint32_t *word_slots, *merge_slots;
	const uint32_t *symbols;
	const char *bytes;
	uint64_t n_bytes;
	uint64_t identity;
	uint32_t words_mask, longs_mask, merges_mask;
	uint32_t n_words, n_merges;
	uint32_t flags, unknown;
	uint64_t crossed[4];
};

struct bpe_cached {
	uint64_t a, b;                  /* the piece's bytes, zeros behind them */
	uint8_t len, n;                 /* len 0: free */
	uint16_t reserved;
	uint32_t id[BPE_IDS];
};

struct bpe_cache {
	uint64_t identity, used;
	struct bpe_cached *entry;
};

struct bpe_lane {                       /* a short piece on its way */
	int32_t key[BPE_SHORT] __attribute__((aligned(16)));
	uint32_t id[BPE_SHORT], to[BPE_SHORT];  /* to: what the pair becomes */
	uint8_t next[BPE_SHORT + 1], prev[BPE_SHORT + 1];
	size_t n, alive, at;            /* at: where the last merge was */
	unsigned piece;
};

struct bpe_made {
	uint32_t id, len;               /* of how many symbols */
};

struct bpe_work {                       /* zero before its first use */
	struct bpe_cache cache[BPE_CACHES];
	struct bpe_cached *now;         /* of the tokenizer at work */
	struct bpe_lane lane[BPE_LANES];
	uint64_t turns;
	uint64_t pieces, cached;        /* worked since the beginning, and found in a cache */
	struct bpe_made *made;          /* owned, as what follows */
	uint32_t *next, *prev;
	uint64_t *heap;
	size_t made_cap, cap, heap_cap;
	const atomic_bool *stop;        /* borrowed; NULL: nobody stops it */
};

int bpe_begin(const struct bpe_tables *t, struct bpe_work *w);
	/* Before pieces of this tokenizer.  0, -ENOMEM. */
void bpe_free(struct bpe_work *w);
void bpe_give_back(struct bpe_work *w, size_t most);
	/* Buffers of more than `most` bytes. */

int bpe_pieces(const struct bpe_tables *t, struct bpe_work *w, const char *text, size_t left,
	       const uint32_t *len, size_t n, size_t max_ids, struct ids *out);
	/* n pieces of those lengths, none 0, one behind the other from text on, of which `left`
	 * bytes can be read.  Stops when out->n reaches max_ids.  0, -ENOMEM; -E2BIG a
	 * piece is too long; -ECANCELED stopped. */
size_t bpe_merge(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n,
		 size_t stop);
	/* In place, until no pair merges or `stop` symbols are left; how many are.  SIZE_MAX: no
	 * memory, or stopped. */
size_t bpe_merge_heap(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n,
		      size_t stop);
	/* The same by a heap of all pairs, for any n >= 2. */
static inline bool
bpe_stopped(const struct bpe_work *w)
{
	return w->stop && atomic_load_explicit(w->stop, memory_order_relaxed);
}

const struct tokenizer_merge *bpe_pair(const struct bpe_tables *t, uint32_t left, uint32_t right);
	/* NULL: they do not merge. */
uint32_t bpe_word(const struct bpe_tables *t, const char *p, size_t n);
	/* The token of that very text that a piece becomes at once, or TOKENIZER_NONE. */
