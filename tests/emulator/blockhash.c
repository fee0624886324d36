/* tests/emulator/blockhash.c -- see blockhash.h. */
#include "tests/emulator/blockhash.h"

#include <errno.h>
#include <string.h>

#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BUF_BYTES 4096u /* CBOR is hashed in pieces of this size; no block-sized buffer */

/* A hash being computed over CBOR that is written as it goes. */
struct sink {
	enum blockhash_algo algo;
	EVP_MD_CTX *sha;
	XXH3_state_t xxh;
	unsigned fill;
	uint8_t buf[BUF_BYTES];
};

static void
sink_flush(struct sink *sink)
{
	if (sink->algo == BLOCKHASH_SHA256_CBOR)
		EVP_DigestUpdate(sink->sha, sink->buf, sink->fill);
	else
		XXH3_128bits_update(&sink->xxh, sink->buf, sink->fill);
	sink->fill = 0;
}

static void
sink_open(struct sink *sink, enum blockhash_algo algo)
{
	sink->algo = algo;
	sink->fill = 0;
	sink->sha = NULL;
	if (algo == BLOCKHASH_SHA256_CBOR) {
		sink->sha = EVP_MD_CTX_new();
		EVP_DigestInit_ex(sink->sha, EVP_sha256(), NULL);
	} else {
		XXH3_128bits_reset(&sink->xxh);
	}
}

static void
sink_close(struct sink *sink, struct blockhash *ret)
{
	sink_flush(sink);
	memset(ret, 0, sizeof *ret);
	if (sink->algo == BLOCKHASH_SHA256_CBOR) {
		EVP_DigestFinal_ex(sink->sha, ret->bytes, NULL);
		EVP_MD_CTX_free(sink->sha);
	} else {
		XXH128_canonical_t canon;

		XXH128_canonicalFromHash(&canon, XXH3_128bits_digest(&sink->xxh));
		memcpy(ret->bytes, canon.digest, sizeof canon.digest);
	}
}

static void
sink_bytes(struct sink *sink, const void *data, size_t len_bytes)
{
	const uint8_t *p = data;

	while (len_bytes > 0) {
		size_t n = BUF_BYTES - sink->fill;

		if (n > len_bytes)
			n = len_bytes;
		memcpy(sink->buf + sink->fill, p, n);
		sink->fill += (unsigned)n;
		p += n;
		len_bytes -= n;
		if (sink->fill == BUF_BYTES)
			sink_flush(sink);
	}
}

/* A CBOR head: major type and a minimal-width count or integer. */
static void
sink_head(struct sink *sink, unsigned major, uint32_t v)
{
	uint8_t b[5];
	unsigned n;

	if (v < 24) {
		b[0] = (uint8_t)(major << 5 | v);
		n = 1;
	} else if (v < 256) {
		b[0] = (uint8_t)(major << 5 | 24);
		b[1] = (uint8_t)v;
		n = 2;
	} else if (v < 65536) {
		b[0] = (uint8_t)(major << 5 | 25);
		b[1] = (uint8_t)(v >> 8);
		b[2] = (uint8_t)v;
		n = 3;
	} else {
		b[0] = (uint8_t)(major << 5 | 26);
		b[1] = (uint8_t)(v >> 24);
		b[2] = (uint8_t)(v >> 16);
		b[3] = (uint8_t)(v >> 8);
		b[4] = (uint8_t)v;
		n = 5;
	}
	sink_bytes(sink, b, n);
}

static uint64_t
fnv1a(uint64_t h, const void *data, size_t len_bytes)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len_bytes; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static void
put_be64(uint8_t *p, uint64_t v)
{
	for (unsigned i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (56 - 8 * i));
}

int
blockhash_algo_by_name(const char *name, enum blockhash_algo *ret_algo)
{
	if (strcmp(name, "sha256_cbor") == 0)
		*ret_algo = BLOCKHASH_SHA256_CBOR;
	else if (strcmp(name, "xxhash_cbor") == 0 || strcmp(name, "xxhash") == 0)
		*ret_algo = BLOCKHASH_XXHASH_CBOR;
	else if (strcmp(name, "fnv") == 0)
		*ret_algo = BLOCKHASH_FNV;
	else
		return -EINVAL;
	return 0;
}

unsigned
blockhash_size(enum blockhash_algo algo)
{
	switch (algo) {
	case BLOCKHASH_SHA256_CBOR:
		return 32;
	case BLOCKHASH_XXHASH_CBOR:
		return 16;
	case BLOCKHASH_FNV:
		break;
	}
	return 8;
}

void
blockhash_root(enum blockhash_algo algo, const char *seed, struct blockhash *ret)
{
	struct sink sink;

	if (algo == BLOCKHASH_FNV) {
		memset(ret, 0, sizeof *ret);
		put_be64(ret->bytes, fnv1a(0xcbf29ce484222325u, seed, strlen(seed)));
		return;
	}
	sink_open(&sink, algo);
	sink_head(&sink, 3, (uint32_t)strlen(seed));
	sink_bytes(&sink, seed, strlen(seed));
	sink_close(&sink, ret);
}

void
blockhash_next(enum blockhash_algo algo, const struct blockhash *parent, const uint32_t *token,
	       unsigned tokens, const char *lora, const char *salt, struct blockhash *ret)
{
	const char *const key[2] = {lora != NULL ? lora : salt, lora != NULL ? salt : NULL};
	unsigned keys = (lora != NULL ? 1u : 0u) + (salt != NULL ? 1u : 0u);
	struct sink sink;

	if (algo == BLOCKHASH_FNV) {
		uint64_t h = fnv1a(0xcbf29ce484222325u, parent->bytes, 8);

		h = fnv1a(h, token, tokens * sizeof *token);
		for (unsigned i = 0; i < keys; i++)
			h = fnv1a(h, key[i], strlen(key[i]) + 1);
		memset(ret, 0, sizeof *ret);
		put_be64(ret->bytes, h);
		return;
	}
	sink_open(&sink, algo);
	sink_head(&sink, 4, 3);
	sink_head(&sink, 2, blockhash_size(algo));
	sink_bytes(&sink, parent->bytes, blockhash_size(algo));
	sink_head(&sink, 4, tokens);
	for (unsigned i = 0; i < tokens; i++)
		sink_head(&sink, 0, token[i]);
	if (keys > 0)
		sink_head(&sink, 4, keys);
	else
		sink_bytes(&sink, "\xf6", 1); /* null */
	for (unsigned i = 0; i < keys; i++) {
		sink_head(&sink, 3, (uint32_t)strlen(key[i]));
		sink_bytes(&sink, key[i], strlen(key[i]));
	}
	sink_close(&sink, ret);
}

static uint64_t
get_be64(const uint8_t *p)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

uint64_t
blockhash_low64(enum blockhash_algo algo, const struct blockhash *hash)
{
	return get_be64(hash->bytes + blockhash_size(algo) - 8);
}

uint64_t
blockhash_high64(const struct blockhash *hash)
{
	return get_be64(hash->bytes);
}
