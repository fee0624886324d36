/* tests/unit/test_tokencache.c -- token ids by content. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "actors/policy/tokencache.h"

static uint32_t *
ids(uint32_t first, size_t n)
{
	uint32_t *list = malloc((n ? n : 1) * sizeof *list);

	for (size_t i = 0; i < n; i++)
		list[i] = first + (uint32_t)i;
	return list;
}

static struct token_key
key(uint64_t k)
{
	return (struct token_key){.lo = k, .hi = ~k};
}

Test(tokencache, finds_what_was_put_and_nothing_else)
{
	struct tokencache *c;
	const uint32_t *got;
	size_t n;

	cr_assert_eq(tokencache_new(&c, 1 << 20), 0);
	cr_assert_not(tokencache_find(c, key(1), &got, &n));
	tokencache_put(c, key(1), ids(7, 100), 100);
	tokencache_put(c, key(1 + 4096), ids(9, 3), 3);         /* same chain */
	cr_assert(tokencache_find(c, key(1), &got, &n));
	cr_assert_eq(n, 100);
	cr_assert_eq(got[99], 106);
	cr_assert(tokencache_find(c, key(1 + 4096), &got, &n));
	cr_assert_eq(n, 3);
	cr_assert_eq(got[0], 9);
	cr_assert_not(tokencache_find(c, (struct token_key){.lo = 1, .hi = 1}, &got, &n));
	tokencache_put(c, key(1), ids(50, 2), 2);               /* newer content of the same key */
	cr_assert(tokencache_find(c, key(1), &got, &n));
	cr_assert_eq(n, 2);
	cr_assert_eq(tokencache_prompts(c), 2);
	tokencache_free(&c);
	cr_assert_null(c);
}

Test(tokencache, stays_within_its_bytes_and_drops_the_least_recently_used)
{
	struct tokencache *c;
	const uint32_t *got;
	size_t n;

	tokencache_new(&c, 100000);
	for (uint64_t k = 0; k < 1000; k++) {
		tokencache_put(c, key(k), ids(0, 200), 200);
		cr_assert_leq(tokencache_bytes(c), 100000);
		cr_assert(tokencache_find(c, key(0), &got, &n), "used all the time: stays");
	}
	cr_assert(tokencache_find(c, key(999), &got, &n));
	cr_assert_not(tokencache_find(c, key(1), &got, &n));
	cr_assert_gt(tokencache_prompts(c), 50);
	tokencache_free(&c);
}

Test(tokencache, does_not_give_everything_up_for_one_huge_prompt)
{
	struct tokencache *c;
	const uint32_t *got;
	size_t n;

	tokencache_new(&c, 100000);
	tokencache_put(c, key(1), ids(0, 100), 100);
	tokencache_put(c, key(2), ids(0, 10000), 10000);        /* 40 kB of 100 kB: not kept */
	cr_assert(tokencache_find(c, key(1), &got, &n));
	cr_assert_not(tokencache_find(c, key(2), &got, &n));
	tokencache_put(c, key(3), NULL, 0);                     /* an empty prompt is a prompt */
	cr_assert(tokencache_find(c, key(3), &got, &n));
	cr_assert_eq(n, 0);
	tokencache_free(&c);
}
