/* tests/emulator/blockhash.h -- the hash chain an engine names its KV blocks by.
 *
 * Meaning    The hash of a block covers its tokens, the block before it, the LoRA adapter and, for
 *            the first block, the cache salt.  vLLM: H((parent, (token, ...), extra_keys or None)),
 *            parent of block 0 = H(hash seed); extra_keys: adapter's name, then salt.
 * Algorithms sha256_cbor  SHA-256 of the canonical CBOR [bytes, [ints], null | [keys]], 32 bytes;
 *            xxhash_cbor  XXH3-128 of the same CBOR, 16 bytes;
 *            fnv          FNV-1a of parent, tokens (4 bytes each, little-endian) and keys, 8 bytes.
 * Wire       As an integer, a hash is its last 8 bytes, big-endian (blockhash_low64), with SGLang
 *            the first 8.
 * Errors     None: every function succeeds.  No allocation, no state, any thread.
 * Source     vLLM v1/core/kv_cache_utils.py, utils/hashing.py; vectors in tests/data/kv-events.
 */
#pragma once
#include <stdint.h>

enum blockhash_algo {
	BLOCKHASH_SHA256_CBOR,
	BLOCKHASH_XXHASH_CBOR,
	BLOCKHASH_FNV,
};

struct blockhash {
	uint8_t bytes[32]; /* the first blockhash_size(algo) of them are meant */
};

int blockhash_algo_by_name(const char *name, enum blockhash_algo *ret_algo);
	/* 0, or -EINVAL for a name not listed above ("xxhash" is short for xxhash_cbor). */
unsigned blockhash_size(enum blockhash_algo);
	/* Bytes of a digest. */
void blockhash_root(enum blockhash_algo, const char *seed, struct blockhash *ret);
	/* The parent of every first block, from the seed (PYTHONHASHSEED of the engine). */
void blockhash_next(enum blockhash_algo, const struct blockhash *parent, const uint32_t *token,
		    unsigned tokens, const char *lora, const char *salt, struct blockhash *ret);
	/* The hash of one block.  lora: NULL, or the adapter's name.  salt: NULL, or the text of
	 * cache_salt, and then only for block 0.  parent and ret may be the same object.  About
	 * 5 us per 784 tokens with sha256_cbor. */
uint64_t blockhash_low64(enum blockhash_algo, const struct blockhash *);
	/* The hash as KV events carry it in integer form. */
uint64_t blockhash_high64(const struct blockhash *);
	/* Its first 8 bytes, as SGLang's carry it. */
