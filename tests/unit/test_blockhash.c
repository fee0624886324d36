/* tests/unit/test_blockhash.c -- shm/blockhash.h. */
#include <criterion/criterion.h>

#include "shm/blockhash.h"

#include <string.h>
#include <xxhash.h>

static uint64_t
root_of(const char *model, const char *lora, const char *salt, uint32_t block_tokens)
{
	return blockhash_root(7, model, strlen(model), lora, strlen(lora), salt, strlen(salt),
			      block_tokens);
}

Test(blockhash, chain_is_the_hash_of_parent_and_local)
{
	uint32_t token[16];
	uint64_t pair[2] = {12345, 0};

	for (unsigned i = 0; i < 16; i++)
		token[i] = i * 1000;
	pair[1] = XXH3_64bits(token, sizeof token);
	cr_assert_eq(blockhash_next(12345, token, 16, NULL, 0), XXH3_64bits(pair, sizeof pair));
}

Test(blockhash, only_full_blocks_are_hashed)
{
	uint32_t token[40] = {0};
	uint64_t hash[4] = {0};

	cr_assert_eq(blockhash_chain(1, token, 31, 16, hash, 4), 1u);
	cr_assert_eq(blockhash_chain(1, token, 32, 16, hash, 4), 2u);
	cr_assert_eq(blockhash_chain(1, token, 40, 16, hash, 1), 1u);
	cr_assert_eq(blockhash_chain(1, token, 15, 16, hash, 4), 0u);
	cr_assert_eq(blockhash_chain(1, token, 40, 0, hash, 4), 0u);
}

Test(blockhash, chain_equals_one_block_after_the_other)
{
	uint32_t token[64];
	uint64_t hash[4], at = 99;

	for (unsigned i = 0; i < 64; i++)
		token[i] = i * i;
	cr_assert_eq(blockhash_chain(99, token, 64, 16, hash, 4), 4u);
	for (unsigned i = 0; i < 4; i++) {
		at = blockhash_next(at, token + 16 * i, 16, NULL, 0);
		cr_assert_eq(hash[i], at);
	}
}

Test(blockhash, a_changed_token_changes_its_block_and_all_after)
{
	uint32_t token[64] = {0};
	uint64_t before[4], after[4];

	blockhash_chain(1, token, 64, 16, before, 4);
	token[20] = 1;
	blockhash_chain(1, token, 64, 16, after, 4);
	cr_assert_eq(before[0], after[0]);
	for (unsigned i = 1; i < 4; i++)
		cr_assert_neq(before[i], after[i]);
}

Test(blockhash, extra_keys_are_part_of_the_block)
{
	uint32_t token[16] = {1};
	uint64_t none = blockhash_next(1, token, 16, NULL, 0);
	uint64_t image = blockhash_next(1, token, 16, "image-a", 7);

	cr_assert_neq(none, image);
	cr_assert_neq(image, blockhash_next(1, token, 16, "image-b", 7));
	cr_assert_eq(image, blockhash_next(1, token, 16, "image-a", 7));
}

Test(blockhash, root_tells_every_field_and_their_borders_apart)
{
	uint64_t root = root_of("ab", "c", "d", 16);

	cr_assert_eq(root, root_of("ab", "c", "d", 16));
	cr_assert_neq(root, root_of("a", "bc", "d", 16));
	cr_assert_neq(root, root_of("ab", "cd", "", 16));
	cr_assert_neq(root, root_of("ab", "", "cd", 16));
	cr_assert_neq(root, root_of("ab", "c", "d", 32));
	cr_assert_neq(root, blockhash_root(8, "ab", 2, "c", 1, "d", 1, 16));
	cr_assert_eq(root_of("m", "", "", 16), blockhash_root(7, "m", 1, NULL, 0, NULL, 0, 16));
}
