/* tests/unit/test_held.c -- who waits for a worker, and whose turn it is. */
#include <criterion/criterion.h>

#include "actors/common/decide/manifest.h"
#include "actors/policy/held.h"

static struct view_ingress here, there;

static struct held
question(uint32_t slot, uint64_t turn, uint64_t kind, mono_ns until_ns)
{
	return (struct held){
		.from = &here, .ask = {.slot = slot, .slot_gen = 1, .ask = 1},
		.asked_ns = slot, .until_ns = until_ns, .turn = turn, .kind = kind,
	};
}

static void
add(struct held_list *h, struct held q)
{
	cr_assert_eq(held_add(h, &q), 0);
}

Test(held, the_least_turn_is_next_and_priority_goes_before_turns)
{
	struct held_list h = {0};
	struct held q = question(4, 99, 4, 1000);
	bool late;

	add(&h, question(1, 30, 1, 1000));
	add(&h, question(2, 10, 2, 1000));
	add(&h, question(3, 20, 3, 1000));
	q.priority = 5;
	add(&h, q);
	held_begin(&h);
	for (unsigned i = 0; i < 4; i++) {
		static const uint32_t order[] = {4, 2, 3, 1};

		cr_assert(held_next(&h, 0, &q, &late));
		cr_assert_eq(q.ask.slot, order[i]);
		cr_assert_not(late);
		held_went(&h, &q);
	}
	cr_assert_not(held_next(&h, 0, &q, &late));
	held_free(&h);
}

Test(held, of_a_kind_that_found_nobody_only_those_whose_time_is_over_are_asked_in_that_round)
{
	struct held_list h = {0};
	struct held q;
	bool late;

	add(&h, question(1, 1, 7, 1000));
	add(&h, question(2, 2, 7, 1000));
	add(&h, question(3, 3, 8, 1000));
	add(&h, question(4, 4, 7, 50));
	for (unsigned round = 0; round < 3; round++) {
		static const uint32_t order[] = {1, 3, 4};

		held_begin(&h);
		for (unsigned i = 0; i < 3; i++) {
			cr_assert(held_next(&h, 60, &q, &late));
			cr_assert_eq(q.ask.slot, order[i]);
			cr_assert_eq(late, order[i] == 4);
			held_tried(&h, &q);
			add(&h, q);
		}
		cr_assert_not(held_next(&h, 60, &q, &late), "each once a round");
	}
	cr_assert_eq(h.n, 4);
	held_free(&h);
}

Test(held, a_round_that_ran_out_of_time_goes_on_where_it_stopped)
{
	struct held_list h = {0};
	struct held q;
	bool late;

	for (uint32_t i = 1; i <= 6; i++)
		add(&h, question(i, i, i, 1000));
	for (uint32_t i = 1; i <= 6; i++) {
		if (i % 2)
			held_begin(&h);         /* two a round */
		cr_assert(held_next(&h, 0, &q, &late));
		cr_assert_eq(q.ask.slot, i);
		held_tried(&h, &q);
		add(&h, q);
	}
	held_free(&h);
}

Test(held, a_tenant_with_a_thousand_does_not_keep_anothers_first_one_behind_them)
{
	struct held_list h = {0};
	struct held q;
	bool late;

	for (uint32_t i = 1; i <= 1000; i++)
		add(&h, question(i, held_turn(&h, 0, 1, 100, 0), 1, 1000));
	add(&h, question(2000, held_turn(&h, 1, 1, 100, 0), 2, 1000));
	held_begin(&h);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert(held_next(&h, 0, &q, &late));
		held_went(&h, &q);
	}
	cr_assert_eq(q.ask.slot, 2000);
	held_free(&h);
}

Test(held, tenants_go_by_their_weights)
{
	struct held_list h = {0};
	unsigned of_two = 0;
	struct held q;
	bool late;

	for (uint32_t i = 1; i <= 300; i++) {
		add(&h, question(i, held_turn(&h, 0, 1, 100, 0), 1, 1000));
		add(&h, question(1000 + i, held_turn(&h, 1, 2, 100, 0), 2, 1000));
	}
	held_begin(&h);
	for (unsigned i = 0; i < 300; i++) {
		cr_assert(held_next(&h, 0, &q, &late));
		held_went(&h, &q);
		of_two += q.ask.slot > 1000;
	}
	cr_assert(of_two >= 199 && of_two <= 201, "%u of 300", of_two);
	held_free(&h);
}

Test(held, a_turn_from_before_a_swap_stays_and_newcomers_are_behind_it)
{
	struct held_list h = {0};
	uint64_t old = held_turn(&h, MANIFEST_NONE, 1, 10, 5000000);

	cr_assert_eq(old, 5000000);
	cr_assert_gt(held_turn(&h, 3, 1, 10, 0), 5000000 - 11000);
	cr_assert_gt(held_turn(&h, MANIFEST_NONE, 1, 10, 0), 5000000);
	held_free(&h);
}

Test(held, a_cancel_and_an_ingress_that_goes_take_theirs_out)
{
	struct held_list h = {0};
	struct held q = question(3, 3, 3, 1000);

	add(&h, question(1, 1, 1, 1000));
	add(&h, question(2, 2, 2, 1000));
	q.from = &there;
	add(&h, q);
	cr_assert(held_take(&h, &here, 2));
	cr_assert_not(held_take(&h, &here, 2));
	cr_assert_not(held_take(&h, &here, 3), "another ingress's slot");
	held_forget(&h, &here);
	cr_assert_eq(h.n, 1);
	cr_assert(held_any(&h, &q));
	cr_assert_eq(q.ask.slot, 3);
	cr_assert_not(held_any(&h, &q));
	held_free(&h);
}
