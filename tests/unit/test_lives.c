/* tests/unit/test_lives.c -- decisions about workers that are busy for others, unknown, new
 * or ending. */
#include "tests/unit/policy_world.h"

Test(lives, strangers_need_two_scrapes_to_count)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	for (int scrape = 0; scrape < 2; scrape++) {
		mono_ns now = clock_mono();
		struct row_reading reading = {
			.sampled_lo = (uint32_t)now,
			.sampled_hi = (uint32_t)(now >> 32),
			.known = KNOWN_WAITING | KNOWN_RUNNING,
			.health = HEALTH_UP,
			.waiting = 4,
			.running = 2,
		};

		row_reading_write(&w.rows.row[2], &reading);
		view_tick(&w.view, now);
		struct msg_answer a =
			answer_to(&w, ids_body("demo", 100000 * (uint32_t)(scrape + 1), 100));
		uint32_t slowest = a.candidates[2].ttft;

		apply(&w, a.number);
		if (scrape == 0)
			cr_assert_lt(slowest, 400000);
		else
			cr_assert(a.candidates[2].row == 2 && slowest > 400000,
				  "4 x 100 ms wait, got %u", slowest);
	}
	end(&w);
}

/* MX-06 */
Test(lives, a_worker_of_which_nothing_is_known_is_taken_to_have_as_many_strangers_as_the_others)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	for (int scrape = 0; scrape < 2; scrape++) {
		mono_ns now = clock_mono();

		for (uint16_t row = 1; row < 4; row++) {
			mono_ns sampled = row == 3 ? now - 2 * ROW_READING_GOOD_NS : now;
			struct row_reading reading = {
				.sampled_lo = (uint32_t)sampled,
				.sampled_hi = (uint32_t)(sampled >> 32),
				.known = KNOWN_WAITING | KNOWN_RUNNING,
				.health = HEALTH_UP,
				.waiting = row == 3 ? 0 : 4,
				.running = 2,
			};

			row_reading_write(&w.rows.row[row], &reading);
		}
		view_tick(&w.view, now);
	}
	struct msg_answer a = answer_to(&w, ids_body("demo", 100000, 100));

	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	for (unsigned i = 0; i < a.n_candidates; i++)
		if (a.candidates[i].row == 3)
			cr_assert_gt(a.candidates[i].ttft, 400000, "4 x 100 ms wait");
	cr_assert_eq(count_get(&w.process, COUNTER_decisions_blind), 0, "others are known");
	end(&w);
}

/* MX-06 */
Test(lives, where_no_candidate_has_a_fresh_reading_one_is_chosen_all_the_same_and_it_is_counted)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	for (uint16_t row = 0; row < 8; row++) {
		struct row_reading reading;

		row_reading_read(&w.rows.row[row], &reading);
		reading.known = 0;
		row_reading_write(&w.rows.row[row], &reading);
	}
	view_tick(&w.view, clock_mono());
	struct msg_answer a = answer_to(&w, ids_body("demo", 100000, 100));

	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(count_get(&w.process, COUNTER_decisions_blind), 1);
	end(&w);
}

Test(lives, a_row_that_turned_somebody_away_comes_last_at_once_until_a_scrape_says_it_lives)
{
	struct cell_values v = {0};
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	v.turned = cell_turned(clock_mono(), CELL_UNAVAILABLE);
	cell_write(&w.column.cell[3], 1, &v);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 320));

	cr_assert_eq(a.n_candidates, 3);
	cr_assert_eq(a.candidates[2].row, 3);
	apply(&w, a.number);
	v.turned = cell_turned(clock_mono() - CELL_TURN_STEP_MS * 1000000ull, CELL_UNAVAILABLE);
	cell_write(&w.column.cell[3], 1, &v);
	set_health(&w, 3, HEALTH_UP);                   /* a scrape, since */
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].row, 3);
	end(&w);
}

/* Rows 2 and 4 serve for half a minute; 3 came up a second ago and is as busy as they are. */
Test(lives, a_new_worker_among_old_ones_has_a_handicap_that_is_on_record)
{
	const mono_ns now = clock_mono();
	struct cell_values busy = {.pending = 500, .prefilling = 1};
	struct choose_candidate again[3];
	uint64_t position = 0, lost = 0;
	uint32_t order[CHOOSE_RANKED];
	char buf[JOURNAL_RECORD_MAX];
	struct world w;

	begin(&w, "PredictedTTFT");
	for (uint16_t row = 2; row <= 4; row++) {
		busy.oldest_dispatch_ms = (uint32_t)(now / 1000000u);
		cell_write(&w.column.cell[row], 1, &busy);
		atomic_store(&w.rows.row[row].up_since_ns,
			     now - (row == 3 ? 1 : 30) * 1000000000ull);
	}
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 320));

	cr_assert_eq(a.candidates[2].row, 3);
	cr_assert_eq(journal_read(&w.process.journal, &position, buf, sizeof buf, &lost), 1);
	const struct journal_record *head = (const void *)buf;
	const struct journal_decision *d = (const void *)(head + 1);
	const struct journal_candidate *c = (const void *)(d + 1);

	cr_assert_eq(c[0].handicap, 0);
	cr_assert(c[2].handicap > 8 && c[2].handicap <= 9, "got %f", (double)c[2].handicap);
	for (unsigned i = 0; i < 3; i++)        /* chosen again, from the record alone */
		again[i] = (struct choose_candidate){
			.row = c[i].row, .state = ROW_UP, .ttft_s = c[i].ttft_us / 1e6,
			.load_s = (double)c[i].load_s, .handicap = c[i].handicap,
			.last_pick = c[i].row == 3 ? 0 : 1,
		};
	cr_assert_eq(choose(&(struct choose_input){.candidate = again, .n = 3}, order), 3);
	cr_assert_eq(again[order[2]].row, 3);
	apply(&w, a.number);

	/* Idle, it gets its turn like any other. */
	cell_write(&w.column.cell[3], 1, &(struct cell_values){0});
	a = answer_to(&w, ids_body("demo", 1000, 320));
	cr_assert_eq(a.candidates[0].row, 3);
	apply(&w, a.number);

	/* All as new as it is: none is held back. */
	for (uint16_t row = 2; row <= 4; row++)
		atomic_store(&w.rows.row[row].up_since_ns, now - 1000000000ull);
	answer_to(&w, ids_body("demo", 1000, 320));
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(journal_read(&w.process.journal, &position, buf, sizeof buf, &lost),
			     1);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(c[i].handicap, 0);
	end(&w);
}
