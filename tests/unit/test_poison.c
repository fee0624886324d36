/* actors/ingress/poison: a body refused by one ingress is refused by all. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "actors/ingress/poison.h"

#define NOW 1000000000000ull

static struct column own, other;
static struct poisons poisons;

static void
setup(void)
{
	cr_assert_eq(column_create(&own, 0, 5, 4), 0);
	cr_assert_eq(column_create(&other, 1, 6, 4), 0);
	poisons_open(&poisons, &own);
	cr_assert_eq(poisons_ingress(&poisons, 6, segment_readonly_fd(&other.seg)), 0);
}

static void
teardown(void)
{
	poisons_close(&poisons);
	column_detach(&other);
	column_detach(&own);
}

Test(poison_of_all, is_read_from_every_column, .init = setup, .fini = teardown)
{
	cr_assert(!poisons_has(&poisons, 77, NOW));
	poison_add(&other.head->poison, 77, NOW + 5);   /* its owner did */
	cr_assert(poisons_has(&poisons, 77, NOW));
	cr_assert(!poisons_has(&poisons, 78, NOW));
	poisons_add(&poisons, 78, NOW);
	cr_assert(poisons_has(&poisons, 78, NOW + POISON_NS - 1));
	cr_assert(!poisons_has(&poisons, 78, NOW + POISON_NS));
	cr_assert(poison_has(&own.head->poison, 78, NOW), "where the others read it");
}

Test(poison_of_all, outlives_the_ingress_that_met_it, .init = setup, .fini = teardown)
{
	poison_add(&other.head->poison, 77, NOW + 5);
	poisons_gone(&poisons, 6, NOW);
	memset(other.head, 0, sizeof *other.head);
	cr_assert(poisons_has(&poisons, 77, NOW));
	cr_assert(!poisons_has(&poisons, 77, NOW + 5));
	poisons_gone(&poisons, 6, NOW);         /* nobody known: nothing happens */
	cr_assert_eq(poisons.n, 0);
}

Test(poison_of_all, of_a_column_that_is_none_is_not_read, .init = setup, .fini = teardown)
{
	cr_assert_lt(poisons_ingress(&poisons, 9, dup(0)), 0);
	cr_assert_eq(poisons.n, 1);
	cr_assert_eq(poisons_ingress(&poisons, 6, segment_readonly_fd(&other.seg)), 0);
	cr_assert_eq(poisons.n, 1, "told twice");
}
