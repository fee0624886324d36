/* tests/unit/test_reverse.c -- shm/reverse.h, against a plain array. */
#include <criterion/criterion.h>

#include "shm/reverse.h"
#include "tests/random.h"

#include <errno.h>
#include <stdlib.h>

static struct reverse *
table(size_t expected)
{
	struct reverse *r;

	cr_assert_eq(reverse_new(&r, expected, SIZE_MAX), 0);
	return r;
}

Test(reverse, finds_what_was_added_and_nothing_else)
{
	struct reverse *r = table(0);
	unsigned count;

	cr_assert_eq(reverse_find(r, 5), 0u);
	cr_assert_eq(reverse_add(r, 5, 50, &count), 0);
	cr_assert_eq(count, 1u);
	cr_assert_eq(reverse_find(r, 5), 50u);
	cr_assert_eq(reverse_find(r, 6), 0u);
	cr_assert_eq(reverse_size(r), 1u);
	reverse_free(&r);
	cr_assert_null(r);
}

Test(reverse, an_engine_that_only_stores_comes_to_an_end)
{
	struct reverse *r;
	unsigned count;

	cr_assert_eq(reverse_new(&r, 1 << 20, 1000), 0);
	for (uint64_t i = 1; i <= 1000; i++)
		cr_assert_eq(reverse_add(r, i, i + 7, NULL), 0);
	for (uint64_t i = 1001; i <= 5000; i++)
		cr_assert_eq(reverse_add(r, i, i + 7, NULL), -ENOMEM);
	cr_assert_eq(reverse_size(r), 1000u);
	cr_assert_eq(reverse_find(r, 1001), 0u);
	cr_assert_eq(reverse_add(r, 5, 12, &count), 0); /* one it knows */
	cr_assert_eq(count, 2u);
	cr_assert_eq(reverse_drop(r, 6, NULL), 13u);    /* and one gives room */
	cr_assert_eq(reverse_add(r, 1001, 1008, NULL), 0);
	reverse_free(&r);
}

Test(reverse, a_block_stored_twice_is_gone_after_two_removals)
{
	struct reverse *r = table(10);
	unsigned count;

	reverse_add(r, 5, 50, NULL);
	reverse_add(r, 5, 50, &count);
	cr_assert_eq(count, 2u);
	cr_assert_eq(reverse_drop(r, 5, &count), 50u);
	cr_assert_eq(count, 1u);
	cr_assert_eq(reverse_find(r, 5), 50u);
	cr_assert_eq(reverse_drop(r, 5, &count), 50u);
	cr_assert_eq(count, 0u);
	cr_assert_eq(reverse_find(r, 5), 0u);
	cr_assert_eq(reverse_size(r), 0u);
	cr_assert_eq(reverse_drop(r, 5, &count), 0u);
	reverse_free(&r);
}

Test(reverse, another_chain_for_a_known_hash_stands_and_is_told)
{
	struct reverse *r = table(10);
	unsigned count;

	reverse_add(r, 5, 50, NULL);
	reverse_add(r, 5, 50, NULL);
	cr_assert_eq(reverse_add(r, 5, 51, &count), -EEXIST);
	cr_assert_eq(count, 1u);
	cr_assert_eq(reverse_find(r, 5), 51u);
	reverse_free(&r);
}

Test(reverse, copies_beyond_what_can_be_counted_are_not_believed_in)
{
	struct reverse *r = table(10);
	unsigned count = 0;

	for (unsigned i = 0; i < 5000; i++)
		reverse_add(r, 5, 50, &count);
	cr_assert_eq(count, 4095u);
	for (unsigned i = 0; i < 4095; i++)
		cr_assert_eq(reverse_drop(r, 5, &count), 50u);
	cr_assert_eq(count, 0u);
	cr_assert_eq(reverse_find(r, 5), 0u);
	reverse_free(&r);
}

Test(reverse, an_absurd_expectation_allots_a_bounded_table)
{
	struct reverse *r = table(SIZE_MAX / 2);

	reverse_add(r, 1, 2, NULL);
	cr_assert_eq(reverse_find(r, 1), 2u);
	reverse_free(&r);
}

static void
walk_count(void *arg, uint64_t key, uint64_t chain)
{
	size_t *n = arg;

	cr_assert(key != 0 && chain != 0);
	(*n)++;
}

#define KEYS 3000

Test(reverse, agrees_with_a_plain_array_through_growth_and_shifts)
{
	static uint64_t chain[KEYS];
	static unsigned count[KEYS];

	for (uint64_t seed = 1; seed <= 5; seed++) {
		uint64_t random = seed;
		size_t live = 0, walked = 0;
		struct reverse *r = table(0);

		for (unsigned i = 0; i < KEYS; i++)
			chain[i] = count[i] = 0;
		for (unsigned step = 0; step < 60000; step++) {
			unsigned i = (unsigned)(random_next(&random) % KEYS), got;
			uint64_t engine = i * 3 + seed * 100000;   /* dense, as some engines' are */

			if (random_next(&random) % 100 < (step / 6000 % 2 ? 30u : 70u)) {
				uint64_t c = random_next(&random) % 20 ? 1000 + i : 9000 + i;
				int want = chain[i] && chain[i] != c ? -EEXIST : 0;

				live += chain[i] == 0;
				count[i] = chain[i] == c ? count[i] + 1 : 1;
				chain[i] = c;
				cr_assert_eq(reverse_add(r, engine, c, &got), want);
				cr_assert_eq(got, count[i]);
			} else {
				cr_assert_eq(reverse_drop(r, engine, &got), chain[i]);
				if (chain[i] && --count[i] == 0) {
					chain[i] = 0;
					live--;
				}
				cr_assert_eq(got, count[i]);
			}
			cr_assert_eq(reverse_size(r), live);
		}
		for (unsigned i = 0; i < KEYS; i++)
			cr_assert_eq(reverse_find(r, i * 3 + seed * 100000), chain[i]);
		reverse_walk(r, walk_count, &walked);
		cr_assert_eq(walked, live);
		reverse_free(&r);
	}
}

/* A table grows inside the batch that fills it: what was there is found at every size. */
Test(reverse, what_was_added_is_found_before_and_after_each_growth)
{
	struct reverse *r = table(0);
	size_t walked = 0;
	unsigned count;

	for (uint64_t i = 1; i <= 40000; i++) {
		/* Looked up just before and just after, whether it made the table grow or not. */
		uint64_t old = 1 + i * 7919 % (i > 1 ? i - 1 : 1);

		cr_assert_eq(reverse_find(r, old), i > 1 ? old + 5 : 0u);
		cr_assert_eq(reverse_add(r, i, i + 5, &count), 0);
		cr_assert_eq(count, 1u);
		cr_assert_eq(reverse_find(r, i), i + 5);
		cr_assert_eq(reverse_find(r, old), old + 5);
		cr_assert_eq(reverse_find(r, i + 1000000), 0u);
		if (i % 3 == 0) {               /* counts outlive growth too */
			cr_assert_eq(reverse_add(r, i / 3, i / 3 + 5, &count), 0);
			cr_assert_eq(count, 2u);
		}
		if ((i & (i - 1)) == 0)
			for (uint64_t k = 1; k <= i; k++)
				cr_assert_eq(reverse_find(r, k), k + 5);
	}
	cr_assert_eq(reverse_size(r), 40000u);
	reverse_walk(r, walk_count, &walked);
	cr_assert_eq(walked, 40000u);
	for (uint64_t i = 1; i <= 40000; i++) {
		cr_assert_eq(reverse_drop(r, i, &count), i + 5);
		cr_assert_eq(count, i <= 13333 ? 1u : 0u);
	}
	cr_assert_eq(reverse_size(r), 13333u);
	reverse_free(&r);
}
