/* actors/common/prompt/blocks.c -- the root of a chain; the rule is in blocks.h. */
#include "actors/common/prompt/blocks.h"

#include <string.h>

#include "shm/blockhash.h"

uint64_t
blocks_root(uint64_t seed, const char *model, struct slice lora, struct slice salt,
	    uint32_t block_tokens)
{
	return blockhash_root(seed, model, strlen(model), lora.len ? lora.p : "", lora.len,
			      salt.len ? salt.p : "", salt.len, block_tokens);
}
