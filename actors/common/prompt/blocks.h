/* actors/common/prompt/blocks.h -- what a chain of blocks begins with: one rule for both sides.
 *
 * Question   Which root do the blocks of this prompt, or of this engine's event, hang on?
 * Rule       model   the name the workers call it (InferenceWorkerSet spec.model), never an alias
 *            lora    adapter name; empty: the base model salt    cache_salt as text; empty: none.
 *            An engine names it in a sequence's first block
 *                    only, and through the root it parts the whole chain
 *            size    tokens per block of the worker's full-attention group
 * Users      policy (prompts) and kvevents (events): if they differed, nothing would ever match.
 * Threads    pure.  Cost: 50 ns.
 */
#pragma once
#include <stdint.h>

#include "proto/slice.h"

uint64_t blocks_root(uint64_t seed, const char *model, struct slice lora, struct slice salt,
		     uint32_t block_tokens);
	/* seed: index_header.hash_seed.  Empty slices may have p NULL.  Never 0. */
