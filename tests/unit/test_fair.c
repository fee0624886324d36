/* tests/unit/test_fair.c -- what one address may hold. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <string.h>

#include "actors/ingress/fair.h"
#include "tests/random.h"

static struct peer
of(const char *v6)
{
	struct peer p = {.port = 1};

	cr_assert_eq(inet_pton(AF_INET6, v6, p.addr), 1);
	return p;
}

static struct fair_bucket *
hold(struct fair *f, const char *v6)
{
	struct peer p = of(v6);
	struct fair_bucket *b = fair_hold(f, &p);

	cr_assert(b);
	return b;
}

Test(fair, ipv4_counts_by_address_ipv6_by_its_64_and_unix_as_one)
{
	struct peer on_unix = {.flags = PEER_UNIX};
	struct fair f;

	cr_assert_eq(fair_open(&f, 16), 0);
	struct fair_bucket *a = hold(&f, "::ffff:1.2.3.4"), *b = hold(&f, "2001:db8:0:1::1");

	cr_assert_eq(hold(&f, "::ffff:1.2.3.4"), a);
	cr_assert_neq(hold(&f, "::ffff:1.2.3.5"), a);
	cr_assert_eq(hold(&f, "2001:db8:0:1:ffff:ffff::2"), b);
	cr_assert_neq(hold(&f, "2001:db8:0:2::1"), b);
	cr_assert_eq(fair_hold(&f, &on_unix), fair_hold(&f, &on_unix));
	cr_assert_neq(fair_hold(&f, &on_unix), hold(&f, "::1"));
	cr_assert_eq(f.n_used, 6);
	fair_close(&f);
}

/* n addresses that take all they get. */
static unsigned
shares(unsigned n, unsigned size, unsigned *ret_least, unsigned *ret_most)
{
	unsigned held[16] = {0}, free = size;

	for (bool any = true; any;) {
		any = false;
		for (unsigned i = 0; i < n; i++)
			if (free > 0 && fair_allows(held[i], 1, free)) {
				held[i]++;
				free--;
				any = true;
			}
	}
	*ret_least = *ret_most = held[0];
	for (unsigned i = 1; i < n; i++) {
		*ret_least = held[i] < *ret_least ? held[i] : *ret_least;
		*ret_most = held[i] > *ret_most ? held[i] : *ret_most;
	}
	return free;
}

Test(fair, one_alone_gets_half_and_n_leave_one_share_free)
{
	unsigned least, most;

	cr_assert_eq(shares(1, 1000, &least, &most), 500);
	cr_assert_eq(least, 500);
	for (unsigned n = 2; n <= 16; n++) {
		unsigned free = shares(n, 1000, &least, &most);

		cr_assert(free >= most && most - least <= 1, "%u: %u", n, free);
		cr_assert(most <= 1000 / (n + 1) + 1);
	}
}

Test(fair, first_of_anything_is_allowed_while_there_is_room)
{
	cr_assert(fair_allows(0, 8, 8));
	cr_assert_not(fair_allows(1, 8, 8));
	cr_assert(fair_allows(1, 3, 7));
	cr_assert_not(fair_allows(2, 3, 7));
	cr_assert_not(fair_allows(UINT64_MAX, 1, 1000));
	cr_assert_not(fair_allows(1, UINT64_MAX, UINT64_MAX));
}

Test(fair, table_is_bounded_and_gives_back_what_is_not_held)
{
	struct fair_bucket *held[64] = {NULL};
	uint64_t state = 1;
	struct fair f;

	cr_assert_eq(fair_open(&f, 64), 0);
	for (unsigned round = 0; round < 100000; round++) {
		unsigned i = (unsigned)(random_next(&state) % 64);

		if (held[i]) {
			fair_drop(&f, held[i]);
			held[i] = NULL;
		} else {
			struct peer p = {.addr = {[10] = 0xff, 0xff, 1, 2, 3, (uint8_t)i}};

			held[i] = fair_hold(&f, &p);
			cr_assert(held[i] && held[i]->holds == 1 && held[i]->slots == 0);
		}
	}
	for (unsigned i = 0; i < 64; i++) {
		struct peer p = {.addr = {[10] = 0xff, 0xff, 1, 2, 3, (uint8_t)i}};

		if (!held[i])
			held[i] = fair_hold(&f, &p);
	}
	cr_assert_eq(f.n_used, 64);
	struct peer more = {.addr = {9}};
	cr_assert_null(fair_hold(&f, &more));
	for (unsigned i = 0; i < 64; i++)
		fair_drop(&f, held[i]);
	fair_drop(&f, NULL);
	cr_assert_eq(f.n_used, 0);
	fair_close(&f);
}
