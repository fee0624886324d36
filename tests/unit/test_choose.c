/* tests/unit/test_choose.c -- the choice among candidates. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/common/decide/choose.h"
#include "actors/common/decide/slow.h"

static struct choose_candidate
up(uint16_t row, double ttft_s, uint32_t last_pick)
{
	return (struct choose_candidate){
		.row = row, .state = ROW_UP, .ttft_s = ttft_s, .last_pick = last_pick};
}

static unsigned
run(struct choose_candidate *c, uint32_t n, enum choose_objective objective, uint64_t seed,
    uint32_t *order)
{
	struct choose_input input = {.candidate = c, .n = n, .objective = objective, .seed = seed};

	return choose(&input, order);
}

Test(choose, the_least_predicted_time_comes_first_and_four_are_ranked)
{
	struct choose_candidate c[] = {up(0, 3, 0), up(1, 1, 9), up(2, 2, 0), up(3, 5, 0),
				       up(4, 4, 0)};
	uint32_t order[CHOOSE_RANKED];

	cr_assert_eq(run(c, 5, CHOOSE_PREDICTED_TTFT, 1, order), 4);
	cr_assert_eq(order[0], 1);
	cr_assert_eq(order[1], 2);
	cr_assert_eq(order[2], 0);
	cr_assert_eq(order[3], 4);
}

Test(choose, predictions_within_a_millisecond_go_to_the_least_recently_picked)
{
	struct choose_candidate c[] = {up(0, 1.0000, 7), up(1, 1.0009, 3), up(2, 1.0011, 1)};
	uint32_t order[CHOOSE_RANKED];

	run(c, 3, CHOOSE_PREDICTED_TTFT, 1, order);
	cr_assert_eq(order[0], 1, "row 2 is more than 1 ms off, row 0 was picked later");
}

Test(choose, pick_numbers_wrap_and_never_picked_comes_first)
{
	struct choose_candidate c[] = {up(0, 1, 2), up(1, 1, UINT32_MAX - 1), up(2, 1, 0)};
	uint32_t order[CHOOSE_RANKED];

	cr_assert_eq(run(c, 3, CHOOSE_PREDICTED_TTFT, 1, order), 3);
	cr_assert_eq(order[0], 2);
	cr_assert_eq(order[1], 1);
	cr_assert_eq(order[2], 0);
}

Test(choose, twelve_requests_over_four_idle_equals_are_spread_three_each)
{
	uint32_t last_pick[4] = {0}, got[4] = {0}, order[CHOOSE_RANKED];

	for (uint32_t i = 1; i <= 12; i++) {
		struct choose_candidate c[4];

		for (uint16_t k = 0; k < 4; k++)
			c[k] = up(k, 0.5, last_pick[k]);
		run(c, 4, CHOOSE_PREDICTED_TTFT, i, order);
		last_pick[order[0]] = i;
		got[order[0]]++;
	}
	for (int k = 0; k < 4; k++)
		cr_assert_eq(got[k], 3);
}

Test(choose, rows_that_are_absent_draining_or_down_are_removed_with_the_reason)
{
	struct choose_candidate c[] = {up(0, 1, 0), up(1, 0, 0), up(2, 0, 0), up(3, 0, 0)};
	uint32_t order[CHOOSE_RANKED];

	c[1].state = ROW_ABSENT;
	c[2].state = ROW_DRAINING;
	c[3].state = ROW_DOWN;
	cr_assert_eq(run(c, 4, CHOOSE_PREDICTED_TTFT, 1, order), 1);
	cr_assert_eq(order[0], 0);
	cr_assert_eq(c[0].removed_by, REMOVAL_NONE);
	cr_assert_eq(c[1].removed_by, REMOVAL_ABSENT);
	cr_assert_eq(c[2].removed_by, REMOVAL_DRAINING);
	cr_assert_eq(c[3].removed_by, REMOVAL_DOWN);
}

Test(choose, nobody_is_ranked_when_all_are_down)
{
	struct choose_candidate c[] = {up(0, 1, 0)};
	uint32_t order[CHOOSE_RANKED];

	c[0].state = ROW_DOWN;
	cr_assert_eq(run(c, 1, CHOOSE_RANDOM, 1, order), 0);
	cr_assert_eq(run(c, 0, CHOOSE_RANDOM, 1, order), 0);
}

Test(choose, a_suspect_comes_after_every_row_that_is_up)
{
	struct choose_candidate c[] = {up(0, 0.1, 0), up(1, 9, 0)};
	uint32_t order[CHOOSE_RANKED];

	c[0].state = ROW_SUSPECT;
	cr_assert_eq(run(c, 2, CHOOSE_PREDICTED_TTFT, 1, order), 2);
	cr_assert_eq(order[0], 1);
	cr_assert_eq(order[1], 0);
}

Test(choose, an_unproven_row_is_tried_only_when_nothing_better_is_there)
{
	struct choose_candidate c[] = {up(0, 0.1, 0), up(1, 9, 0)};
	uint32_t order[CHOOSE_RANKED];

	c[0].state = ROW_UNPROVEN;
	cr_assert_eq(run(c, 2, CHOOSE_PREDICTED_TTFT, 1, order), 1);
	cr_assert_eq(order[0], 1);
	cr_assert_eq(c[0].removed_by, REMOVAL_UNPROVEN);
	c[1].state = ROW_DOWN;
	cr_assert_eq(run(c, 2, CHOOSE_PREDICTED_TTFT, 1, order), 1);
	cr_assert_eq(order[0], 0);
}

Test(choose, the_row_that_just_failed_is_avoided_but_better_than_nobody)
{
	struct choose_candidate c[] = {up(0, 0.1, 0), up(1, 9, 0)};
	uint32_t order[CHOOSE_RANKED];

	c[0].failed = true;
	cr_assert_eq(run(c, 2, CHOOSE_PREDICTED_TTFT, 1, order), 1);
	cr_assert_eq(order[0], 1);
	cr_assert_eq(c[0].removed_by, REMOVAL_FAILED);
	cr_assert_eq(run(c, 1, CHOOSE_PREDICTED_TTFT, 1, order), 1);
	cr_assert_eq(order[0], 0);
}

Test(choose, random_is_a_function_of_the_seed_and_fair)
{
	struct choose_candidate c[] = {up(0, 9, 0), up(1, 1, 0), up(2, 5, 0)};
	uint32_t order[CHOOSE_RANKED], again[CHOOSE_RANKED], got[3] = {0};

	for (uint64_t seed = 0; seed < 30000; seed++) {
		run(c, 3, CHOOSE_RANDOM, seed, order);
		run(c, 3, CHOOSE_RANDOM, seed, again);
		cr_assert_eq(memcmp(order, again, 3 * sizeof *order), 0);
		got[order[0]]++;
	}
	for (int k = 0; k < 3; k++)     /* sd 82 */
		cr_assert(got[k] > 9500 && got[k] < 10500, "row %d got %u of 30000", k, got[k]);
}

Test(choose, round_robin_takes_turns)
{
	uint32_t last_pick[3] = {0}, order[CHOOSE_RANKED];

	for (uint32_t i = 1; i <= 9; i++) {
		struct choose_candidate c[3];

		for (uint16_t k = 0; k < 3; k++)
			c[k] = up(k, k, last_pick[k]);
		run(c, 3, CHOOSE_ROUND_ROBIN, 0, order);
		cr_assert_eq(order[0], (i - 1) % 3);
		last_pick[order[0]] = i;
	}
}

Test(choose, least_prefill_and_least_requests_look_at_their_own_number)
{
	struct choose_candidate c[] = {up(0, 1, 0), up(1, 2, 0), up(2, 3, 0)};
	uint32_t order[CHOOSE_RANKED];

	c[0].prefill = 500, c[1].prefill = 100, c[2].prefill = 300;
	c[0].requests = 9, c[1].requests = 8, c[2].requests = 7;
	run(c, 3, CHOOSE_LEAST_PREFILL, 0, order);
	cr_assert_eq(order[0], 1);
	run(c, 3, CHOOSE_LEAST_REQUESTS, 0, order);
	cr_assert_eq(order[0], 2);
}

Test(choose, every_removal_and_objective_has_its_own_name)
{
	for (unsigned i = 0; i < REMOVALS; i++)
		for (unsigned k = 0; k < i; k++)
			cr_assert_str_neq(choose_removal_name(i), choose_removal_name(k));
	for (unsigned i = 0; i < CHOOSE_OBJECTIVES; i++)
		cr_assert_str_neq(choose_objective_name(i), "unknown");
	cr_assert_str_eq(choose_removal_name(REMOVALS), "unknown");
	cr_assert_str_eq(choose_objective_name(CHOOSE_OBJECTIVES), "unknown");
}

Test(choose, a_new_worker_gets_work_while_it_is_idle_and_a_queue_only_in_its_measure)
{
	/* Each request is 0.1 s of prefill.  The old one has ten of them ahead, the new one n. */
	uint32_t order[CHOOSE_RANKED], least = UINT32_MAX;

	for (uint32_t n = 0; n <= 12; n++) {
		struct choose_candidate c[] = {up(0, 1.1, 2), up(1, 0.1 * n + 0.1, 1)};

		c[0].load_s = 1;
		c[1].load_s = 0.1 * n;
		c[1].handicap = 4;              /* a fifth of the way */
		run(c, 2, CHOOSE_PREDICTED_TTFT, 1, order);
		if (order[0] == 0 && n < least)
			least = n;
	}
	cr_assert_eq(least, 3, "0.1 + 5 x 0.2 is still a tie with 0.1 + 1, got %u", least);
}

Test(choose, a_handicap_counts_what_is_in_flight_by_every_measure_of_load)
{
	struct choose_candidate c[] = {up(0, 1, 1), up(1, 1, 2)};
	uint32_t order[CHOOSE_RANKED];

	c[0].prefill = 500;
	c[0].requests = 9;
	c[1].prefill = 200;
	c[1].ahead = 100;
	c[1].requests = 3;
	c[1].handicap = 2.9f;
	run(c, 2, CHOOSE_LEAST_PREFILL, 1, order);
	cr_assert_eq(order[0], 1, "200 + 2.9 x 100 < 500");
	c[1].handicap = 3.1f;
	run(c, 2, CHOOSE_LEAST_PREFILL, 1, order);
	cr_assert_eq(order[0], 0);
	c[1].handicap = 1.9f;
	run(c, 2, CHOOSE_LEAST_REQUESTS, 1, order);
	cr_assert_eq(order[0], 1, "2.9 x 3 < 9");
	c[1].handicap = 2.1f;
	run(c, 2, CHOOSE_LEAST_REQUESTS, 1, order);
	cr_assert_eq(order[0], 0);
	run(c, 2, CHOOSE_ROUND_ROBIN, 1, order);
	cr_assert_eq(order[0], 0, "the least recently picked");
}

Test(choose, a_share_grows_from_a_tenth_to_all_in_the_time_of_the_slow_start)
{
	const uint64_t s = 1000000000u;

	cr_assert_float_eq(slow_share(0, 50 * s, 10 * s), 0.1f, 1e-6, "not up yet");
	cr_assert_float_eq(slow_share(50 * s, 50 * s, 10 * s), 0.1f, 1e-6);
	cr_assert_float_eq(slow_share(51 * s, 50 * s, 10 * s), 0.1f, 1e-6, "ahead of our clock");
	cr_assert_float_eq(slow_share(40 * s, 45 * s, 10 * s), 0.5f, 1e-6);
	cr_assert_eq(slow_share(40 * s, 50 * s, 10 * s), 1);
	cr_assert_eq(slow_share(50 * s, 50 * s, 0), 1, "switched off");
	cr_assert_float_eq(slow_handicap(0.1f, 1), 9, 1e-5);
	cr_assert_float_eq(slow_handicap(0.5f, 1), 1, 1e-6);
	cr_assert_eq(slow_handicap(0.1f, 0.1f), 0, "all are new");
	cr_assert_eq(slow_handicap(1, 0.1f), 0);
}
