/* actors/common/prompt/added.h -- added tokens where they stand in a text.
 *
 * Rule       leftmost, of those the longest; single_word asks that no \w is beside it, lstrip and
 *            rstrip take the blanks beside it along, but none that is taken already.
 * Threads    read-only.  Cost: 16 bytes at a time to the next byte a token begins with.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/tokenizer_layout.h"
#include "proto/slice.h"

struct added {
	const struct tokenizer_node *nodes;
	const struct tokenizer_edge *edges;
	const struct tokenizer_added_token *tokens;
	uint32_t root;                  /* TOKENIZER_NONE: no tokens */
	uint32_t first_node[256];       /* of a byte: where its tokens go on, or TOKENIZER_NONE */
	uint8_t first[4];               /* the bytes tokens begin with, .. */
	unsigned n_first;               /* .. if they are no more than that; else 5 */
};

struct added_match {
	size_t start, end;              /* with blanks taken along */
	const struct tokenizer_added_token *token;
};

void added_open(struct added *a, const struct tokenizer_node *nodes,
		const struct tokenizer_edge *edges, const struct tokenizer_added_token *tokens,
		uint32_t root);
	/* What it is given was checked, and stays. */
bool added_next(const struct added *a, struct slice text, size_t floor, size_t from, size_t before,
		struct added_match *ret);
	/* The first token that begins in [from, before), in the whole text's surroundings; what
	 * stands before floor <= from is taken. */
