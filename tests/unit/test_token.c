/* tests/unit/test_token.c -- by what a policy process is known. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/common/token.h"

static const uint8_t key[TOKEN_KEY] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* The vectors of the paper's reference implementation: input 00 01 02 .. of each length. */
Test(token, siphash_is_the_published_one)
{
	static const struct {
		size_t len;
		uint64_t hash;
	} known[] = {{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd}, {7, 0xab0200f58b01d137},
		     {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}};
	uint8_t text[16];

	for (unsigned i = 0; i < sizeof text; i++)
		text[i] = (uint8_t)i;
	for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++)
		cr_assert_eq(token_siphash(key, text, known[i].len), known[i].hash, "%zu",
			     known[i].len);
}

Test(token, another_key_generation_or_incarnation_has_another_token)
{
	uint8_t other[TOKEN_KEY];
	uint64_t token = token_of(key, 3, 9);

	memcpy(other, key, sizeof other);
	other[15] ^= 1;
	cr_assert_neq(token_of(other, 3, 9), token);
	cr_assert_neq(token_of(key, 4, 9), token);
	cr_assert_neq(token_of(key, 3, 10), token);
	cr_assert_neq(token_of(key, 9, 3), token);
}

Test(token, a_name_is_read_as_it_was_written_and_nothing_like_it)
{
	static const char *const bad[] = {
		"", "pol.3.9", "pol.3.9.", "pol.3.9.00000000000000a", "pol.3.9.000000000000000A",
		"pol.3.9.000000000000000a0", "pol.03.9.000000000000000a",
		"pol. 3.9.000000000000000a",
		"pol.3.0.000000000000000a", "pol.3.9.000000000000000a ", "POL.3.9.000000000000000a",
		"pol.-3.9.000000000000000a", "pol.3.99999999999.000000000000000a",
		"pol.4294967299.9.000000000000000a",
	};
	uint32_t gen = 0, inc = 0;
	uint64_t token = 0;
	char name[POLICY_NAME_MAX];
	int n = policy_name(name, UINT32_MAX, UINT32_MAX, UINT64_MAX);

	cr_assert_lt(n, (int)POLICY_NAME_MAX);
	cr_assert(policy_name_read(name, (size_t)n, &gen, &inc, &token));
	cr_assert(gen == UINT32_MAX && inc == UINT32_MAX && token == UINT64_MAX);
	n = policy_name(name, 3, 9, 10);
	cr_assert_str_eq(name, "pol.3.9.000000000000000a");
	cr_assert(policy_name_read(name, (size_t)n, &gen, &inc, &token));
	cr_assert(gen == 3 && inc == 9 && token == 10);
	for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_assert_not(policy_name_read(bad[i], strlen(bad[i]), &gen, &inc, &token), "%s",
			      bad[i]);
	cr_assert_not(policy_name_read("pol.3.9.000000000000000a\0x", 26, &gen, &inc, &token));
}
