/* actors/policy/tokencache.h -- token ids of prompts that were tokenized lately, by content.
 *
 * Key        128 bits of XXH3 over the worker's model name and every byte of the request that
 *            decides its tokens: equal keys are equal prompts.
 * Bound      bytes of ids kept; the least recently used leave first.  A prompt larger than a
 *            quarter of the bound is not kept.
 * Ownership  private; ids returned by tokencache_find are good until the next tokencache_put.
 * Threads    one.   Cost  find: one probe, about 50 ns.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_key {
	uint64_t lo, hi;
};

struct tokencache;

int tokencache_new(struct tokencache **ret, size_t max_bytes);          /* 0, -ENOMEM */
void tokencache_free(struct tokencache **ret);
bool tokencache_find(struct tokencache *c, struct token_key key, const uint32_t **ret_ids,
		     size_t *ret_n);
	/* And makes it the most recently used. */
void tokencache_put(struct tokencache *c, struct token_key key, uint32_t *ids, size_t n);
	/* Takes ownership of ids (malloc'd, or NULL with n 0), also when it does not keep them. */
size_t tokencache_bytes(const struct tokencache *c);
size_t tokencache_prompts(const struct tokencache *c);
