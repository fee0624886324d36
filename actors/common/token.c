/* actors/common/token.c -- see token.h. */
#include "actors/common/token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t
word_le(const uint8_t *p, size_t n)
{
	uint64_t w = 0;

	for (size_t i = 0; i < n; i++)
		w |= (uint64_t)p[i] << 8 * i;
	return w;
}

static uint64_t
rotl(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static void
rounds(uint64_t v[4], unsigned n)
{
	while (n-- > 0) {
		v[0] += v[1];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[0] = rotl(v[0], 32);
		v[2] += v[3];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[2] = rotl(v[2], 32);
	}
}

uint64_t
token_siphash(const uint8_t key[TOKEN_KEY], const void *text, size_t len)
{
	const uint64_t k0 = word_le(key, 8), k1 = word_le(key + 8, 8);
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
			 k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
	const uint8_t *p = text;

	for (size_t left = len;; left -= 8, p += 8) {
		uint64_t m = left >= 8 ? word_le(p, 8)
				       : word_le(p, left) | (uint64_t)len << 56;

		v[3] ^= m;
		rounds(v, 2);
		v[0] ^= m;
		if (left < 8)
			break;
	}
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t
token_of(const uint8_t key[TOKEN_KEY], uint32_t generation, uint32_t incarnation)
{
	const uint32_t who[2] = {generation, incarnation};

	return token_siphash(key, who, sizeof who);
}

int
policy_name(char buf[POLICY_NAME_MAX], uint32_t generation, uint32_t incarnation, uint64_t token)
{
	return snprintf(buf, POLICY_NAME_MAX, "pol.%" PRIu32 ".%" PRIu32 ".%016" PRIx64,
			generation, incarnation, token);
}

bool
policy_name_read(const void *name, size_t len, uint32_t *ret_generation,
		 uint32_t *ret_incarnation, uint64_t *ret_token)
{
	char text[POLICY_NAME_MAX], again[POLICY_NAME_MAX];
	uint32_t generation, incarnation;
	uint64_t token;

	if (len >= sizeof text)
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	if (sscanf(text, "pol.%10" SCNu32 ".%10" SCNu32 ".%16" SCNx64, &generation, &incarnation,
		   &token) != 3 || incarnation == 0)
		return false;
	if ((size_t)policy_name(again, generation, incarnation, token) != len ||
	    memcmp(again, text, len) != 0)
		return false;
	*ret_generation = generation;
	*ret_incarnation = incarnation;
	*ret_token = token;
	return true;
}
