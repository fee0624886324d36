/* shm/blockhash.c -- token ids to chained block hashes; the scheme is in blockhash.h. */
#include "shm/blockhash.h"

#define XXH_INLINE_ALL                  /* a call per block costs as much as the hash */
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are hashed as u32 little-endian");

/* 0 means "none" wherever a hash is kept. */
static inline uint64_t
never_zero(uint64_t h)
{
	return h ? h : 1;
}

static void
root_field(XXH3_state_t *state, const char *bytes, size_t len)
{
	uint64_t prefix = len;                  /* so that ("ab", "c") is not ("a", "bc") */

	XXH3_64bits_update(state, &prefix, sizeof prefix);
	if (len > 0)
		XXH3_64bits_update(state, bytes, len);
}

uint64_t
blockhash_root(uint64_t seed, const char *model, size_t model_len, const char *lora,
	       size_t lora_len, const char *salt, size_t salt_len, uint32_t block_tokens)
{
	XXH3_state_t state = {0};               /* 0.8.1 reads the seed it is about to replace */

	XXH3_64bits_reset_withSeed(&state, seed);
	root_field(&state, model, model_len);
	root_field(&state, lora, lora_len);
	root_field(&state, salt, salt_len);
	XXH3_64bits_update(&state, &block_tokens, sizeof block_tokens);
	return never_zero(XXH3_64bits_digest(&state));
}

static inline uint64_t
chain_next(uint64_t parent, uint64_t local)
{
	uint64_t pair[2] = {parent, local};

	return never_zero(XXH3_64bits(pair, sizeof pair));
}

uint64_t
blockhash_local(const uint32_t *tokens, uint32_t block_tokens, const void *extra, size_t extra_len)
{
	size_t len = (size_t)block_tokens * sizeof tokens[0];

	if (extra_len == 0)
		return XXH3_64bits(tokens, len);

	XXH3_state_t state = {0};

	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, tokens, len);
	XXH3_64bits_update(&state, extra, extra_len);
	return XXH3_64bits_digest(&state);
}

uint64_t
blockhash_link(uint64_t parent, uint64_t local)
{
	return chain_next(parent, local);
}

uint64_t
blockhash_next(uint64_t parent, const uint32_t *tokens, uint32_t block_tokens, const void *extra,
	       size_t extra_len)
{
	return chain_next(parent, blockhash_local(tokens, block_tokens, extra, extra_len));
}

size_t
blockhash_chain(uint64_t root, const uint32_t *tokens, size_t n_tokens, uint32_t block_tokens,
		uint64_t *ret, size_t max)
{
	size_t n = block_tokens == 0 ? 0 : n_tokens / block_tokens;

	if (n > max)
		n = max;
	for (size_t i = 0; i < n; i++) {
		root = chain_next(root, XXH3_64bits(tokens + i * block_tokens,
						    (size_t)block_tokens * sizeof tokens[0]));
		ret[i] = root;
	}
	return n;
}
