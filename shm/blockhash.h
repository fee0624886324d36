/* shm/blockhash.h -- token ids to chained block hashes.
 *
 *      local = XXH3_64(token ids as u32 LE, extra keys)        chain = XXH3_64({parent, local})
 *      root parent = XXH3_64(model, lora, cache salt, block size; seeded)
 *
 * The engine's own hashes are never compared: they differ between replicas and restarts.  Only full
 * blocks are hashed.  4 us per 16,000 tokens of 16-token blocks.  Any thread.  Not collision
 * resistant against an attacker who knows the seed: a forged overlap only misroutes.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint64_t blockhash_root(uint64_t seed, const char *model, size_t model_len, const char *lora,
			size_t lora_len, const char *salt, size_t salt_len, uint32_t block_tokens);
	/* Never 0. */
uint64_t blockhash_next(uint64_t parent, const uint32_t *tokens, uint32_t block_tokens,
			const void *extra, size_t extra_len);
	/* Hash of the block after `parent`; extra: its multimodal keys as bytes, usually none.
	 * Never 0. */
uint64_t blockhash_local(const uint32_t *tokens, uint32_t block_tokens, const void *extra,
			 size_t extra_len);
uint64_t blockhash_link(uint64_t parent, uint64_t local);
	/* The two halves of blockhash_next, for a block whose parent is not known yet. */
size_t blockhash_chain(uint64_t root, const uint32_t *tokens, size_t n_tokens,
		       uint32_t block_tokens, uint64_t *ret, size_t max);
	/* Hashes of the full blocks of a prompt without extra keys; returns how many. */
