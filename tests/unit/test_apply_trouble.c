/* tests/unit/test_apply_trouble.c -- what comes to nothing says why, and silence is told. */
#include <criterion/criterion.h>

#include "tests/unit/apply_world.h"

static enum event_trouble
trouble_of(const struct world *w, uint16_t row)
{
	return (enum event_trouble)row_trouble_kind(atomic_load(&w->rows.row[row].trouble));
}

static uint64_t
number_of(const struct world *w, uint16_t row)
{
	return row_trouble_number(atomic_load(&w->rows.row[row].trouble));
}

static uint64_t
count_of(const struct world *w, uint16_t row)
{
	return atomic_load(&w->rows.row[row].trouble_count);
}

Test(apply_trouble, what_cannot_be_read_says_how_often_and_since_when)
{
	struct world w;
	struct prompt p;
	mono_ns before = clock_mono();
	uint64_t since;

	begin(&w, 60);
	prompt_make(&p, 100);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_NONE);
	apply_frames_bad(w.apply, 0);
	apply_frames_bad(w.apply, 0);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_FRAMES);
	cr_assert_eq(count_of(&w, 0), 2);
	since = atomic_load(&w.rows.row[0].trouble_since_ns);
	cr_assert(since >= before && since <= clock_mono());
	apply_message(w.apply, 0, 0, "\xdd\xff\xff\xff\xff", 5);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_UNREADABLE);
	cr_assert_eq(number_of(&w, 0), 5);
	cr_assert_eq(count_of(&w, 0), 1);
	SAY(&w, 0, 1, BROKEN(.hashes = p.engine));
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_EVENT);
	apply_message(w.apply, 0, 2, "\x92\x01\x91\x91\xa3New", 8);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_TAG);
	apply_frames_bad(w.apply, 0);
	cr_assert_eq(count_of(&w, 0), 3, "the count is of the kind");
	cr_assert_eq(atomic_load(&w.rows.row[0].trouble_since_ns), since);
	cr_assert_eq(atomic_load(&w.rows.row[0].troubles),
		     1u << TROUBLE_FRAMES | 1u << TROUBLE_UNREADABLE | 1u << TROUBLE_EVENT |
			     1u << TROUBLE_TAG);
	cr_assert_eq(trouble_of(&w, 1), TROUBLE_NONE);
	end(&w);
}

Test(apply_trouble, what_is_not_taken_up_says_which_rank_size_group_or_adapter)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	w.rows.row[0].ranks = w.rows.row[1].ranks = 2;
	w.rows.row[0].rank = 1;
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_RANK);
	cr_assert_eq(number_of(&w, 0), 0);
	SAY(&w, 1, 0,
	    STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .group = 3,
		   .kind = "future_kind"));
	cr_assert_eq(trouble_of(&w, 1), TROUBLE_GROUP);
	cr_assert_eq(number_of(&w, 1), 2);
	w.rows.row[2].block_tokens = 32;
	SAY(&w, 2, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(trouble_of(&w, 2), TROUBLE_CONFIGURED);
	cr_assert_eq(number_of(&w, 2), BLOCK);
	cr_assert_eq(depth_of(&w, 2, &p).exact, 4, "what its events say counts");
	SAY(&w, 2, 1,
	    STORED(.hashes = p.engine + 4, .n = 1, .parent = p.engine[3], .tokens = p.tokens,
		   .block = 7));
	cr_assert_eq(trouble_of(&w, 2), TROUBLE_SIZE);
	cr_assert_eq(number_of(&w, 2), 7);
	SAY(&w, 2, 2, STORED(.hashes = (uint64_t[]){77}, .n = 1, .medium = "CPU"));
	cr_assert_eq(trouble_of(&w, 2), TROUBLE_TIER);
	SAY(&w, 2, 3, STORED(.hashes = (uint64_t[]){77}, .n = 1));
	cr_assert_eq(trouble_of(&w, 2), TROUBLE_TOKENS);
	SAY(&w, 3, 7, STORED(.hashes = p.engine + 2, .n = 2, .parent = 5, .tokens = p.tokens));
	cr_assert_eq(trouble_of(&w, 3), TROUBLE_PARENT);
	cr_assert_eq(count_of(&w, 3), 2);
	end(&w);
}

Test(apply_trouble, a_row_that_is_another_owners_begins_without_any)
{
	struct world w;

	begin(&w, 60);
	apply_frames_bad(w.apply, 0);
	apply_row_close(w.apply, 0);
	atomic_store(&w.rows.row[0].row_gen, 2);
	cr_assert_eq(apply_row_open(w.apply, 0, true, w.now), 0);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_NONE);
	cr_assert_eq(atomic_load(&w.rows.row[0].troubles), 0);
	cr_assert_eq(count_of(&w, 0), 0);
	end(&w);
}

Test(apply_trouble, an_engine_of_which_nothing_can_be_applied_is_told_once)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	for (uint64_t i = 0; i < 2 * APPLY_ALARM_BATCHES; i++) {
		cr_assert_eq(count_get(&w.process, COUNTER_events_deaf), i >= APPLY_ALARM_BATCHES);
		SAY(&w, 0, i,
		    STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens, .kind = "new"));
		SAY(&w, 1, i, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	}
	end(&w);
}

Test(apply_trouble, an_engine_that_says_nothing_though_prompts_were_sent_there_is_told)
{
	struct world w;
	struct prompt p;
	mono_ns late;

	begin(&w, 60);
	prompt_make(&p, 100);
	apply_tick(w.apply, w.now = clock_mono());
	late = w.now + APPLY_SILENCE_NS + 1;
	for (uint64_t i = 1; i <= APPLY_ALARM_BATCHES; i++) {
		note(&w, 0, i, &p, 4);
		note(&w, 1, i, &p, 4);
		note(&w, 2, i, &p, 4);
	}
	note(&w, 3, 1, &p, 4);
	cr_assert_eq(apply_row_open(w.apply, 2, false, w.now), 0);
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	apply_tick(w.apply, w.now);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_NONE, "its first events may be on their way");
	apply_tick(w.apply, late);
	apply_tick(w.apply, late);
	cr_assert_eq(trouble_of(&w, 0), TROUBLE_SILENT);
	cr_assert_eq(number_of(&w, 0), APPLY_ALARM_BATCHES);
	cr_assert_eq(trouble_of(&w, 1), TROUBLE_NONE);
	cr_assert_eq(trouble_of(&w, 2), TROUBLE_NONE, "it is not configured to say any");
	cr_assert_eq(trouble_of(&w, 3), TROUBLE_NONE, "one prompt may be too short for a block");
	cr_assert_eq(count_get(&w.process, COUNTER_events_deaf), 1);
	end(&w);
}

Test(apply_trouble, each_kind_has_a_name_and_says_what_helps)
{
	for (unsigned kind = 1; kind < TROUBLES; kind++) {
		cr_assert_gt(strlen(event_trouble_name(kind)), 0, "%u", kind);
		cr_assert_gt(strlen(event_trouble_text(kind)), 20, "%u", kind);
		for (unsigned other = 0; other < kind; other++)
			cr_assert_str_neq(event_trouble_name(kind), event_trouble_name(other));
	}
	cr_assert_str_eq(event_trouble_name(TROUBLES), "unknown");
}
