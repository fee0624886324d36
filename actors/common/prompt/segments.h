/* actors/common/prompt/segments.h -- token ids of texts that came before.
 *
 * Question   Which ids has this stretch of a prompt?  In a conversation all but its end was
 *            tokenized with the request before.
 * Rule       ids(prompt) is the concatenation of the ids of its segments (tokenizer_cut: parted at
 *            added tokens, and long texts where the scanner begins anew), so they are found by
 *            their content alone.
 * Key        XXH3-128, seeded by chance when the cache is made, of the segment's bytes, the
 *            tokenizer's identity and what of its surroundings decides.
 * Bounds     in bytes, over all models; the oldest unused go first.  Segments of less than
 *            SEGMENTS_MIN bytes are tokenized instead: that costs the same.
 * Threads    shared; 16 parts with a lock each, held for a copy.
 * Cost       a hit: the hash of its bytes and the copy of its ids: of a conversation of 100,000
 *            tokens that was seen before 0.2 to 0.3 ms, half of it for the cuts.  Hashes of blocks
 *            are not kept beside the ids: a block spans segments, so they would hang on all that
 *            came before, and making 6,250 anew takes 0.1 ms.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

#define SEGMENTS_MIN 64u                /* bytes */

struct segments;
struct ids;
struct tokenizer;
struct tokenizer_scratch;

struct segments_stats {
	uint64_t hits, misses;          /* segments */
	uint64_t hit_bytes, miss_bytes; /* of text */
	uint64_t evicted;
	uint64_t bytes, entries;        /* held now */
};

int segments_new(size_t bytes, struct segments **ret);
	/* bytes: what is held at most, overhead included.  0; -ENOMEM. */
void segments_free(struct segments **);

int segments_encode(struct segments *, const struct tokenizer *, struct tokenizer_scratch *,
		    struct slice text, bool add_special, size_t max_ids, struct ids *out);
	/* As tokenizer_encode, and with its errors; appends to out the very same ids.  NULL: no
	 * cache.  What is behind the max_ids-th id is not looked at. */
void segments_stats(struct segments *, struct segments_stats *ret);
