/* tests/unit/test_replay.c -- a real DEALER and a ROUTER that loses, lies, forgets or is silent. */
#include "tests/unit/replay_scene.h"

/* ---- holes ---- */

static void
hole_healed(bool topics)
{
	struct scene s;

	scene_open(&s, NULL);
	s.e.topics = topics;
	for (uint64_t i = 0; i < 11; i++)
		live(&s, i);
	live(&s, 13);
	cr_assert(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_REPLAYING);
	cr_assert_eq(exact(&s), 11, "what is known stays known meanwhile");
	asked(&s, 11);
	reply_from(&s, 11, 13);
	reply_end(&s.e);
	hear(&s, 4);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(reason_of(&s.w, 0), REASON_REPLAYED);
	cr_assert_eq(exact(&s), 14);
	live(&s, 14);
	cr_assert_eq(exact(&s), 15);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].gaps), 1);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 0);
	cr_assert_eq(counted(&s, COUNTER_replays), 1);
	cr_assert_eq(counted(&s, COUNTER_replays_failed), 0);
	cr_assert_geq(counted(&s, COUNTER_replayed), 2);
	scene_close(&s);
}

Test(replay, a_hole_is_asked_for_from_the_number_behind_the_last_and_leaves_no_gap)
{
	hole_healed(false);
}

Test(replay, answers_with_a_topic_frame_are_the_same_answers)
{
	hole_healed(true);
}

Test(replay, without_a_replay_socket_a_hole_is_a_gap_at_once)
{
	struct scene s;

	scene_open(&s, "");
	live(&s, 0);
	live(&s, 2);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_SEQ_HOLE);
	scene_close(&s);
}

/* Ticks come with the time at which their turn began, before what was heard in it. */
Test(replay, a_tick_that_is_told_an_earlier_time_gives_nothing_up)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	s.now += 1000000;
	live(&s, 2);
	asked(&s, 1);
	replay_tick(s.r, s.now - 1000000);
	cr_assert(replay_holds(s.r), "it is still being asked for");
	reply_from(&s, 1, 2);
	hear(&s, 2);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	scene_close(&s);
}

Test(replay, what_the_live_wire_says_again_counts_once)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, 3);
	asked(&s, 1);
	reply_from(&s, 1, 3);
	hear(&s, 3);
	cr_assert_not(replay_holds(s.r), "the batch that was waited for is there");
	live(&s, 3);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	live_event(&s, 4, (struct event)REMOVED(.hashes = &s.e.prompt.engine[3], .n = 1));
	cr_assert_eq(exact(&s), 3, "stored once, removed once: gone");
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 0);
	scene_close(&s);
}

Test(replay, a_replay_may_run_ahead_of_the_live_wire)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 6); /* 3 to 6 are on the live wire, too, and not read yet */
	ends(&s, 8, 7);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	for (uint64_t i = 3; i <= 7; i++)
		live(&s, i);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 8);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 0);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].gaps), 0);
	live_event(&s, 8, (struct event)REMOVED(.hashes = &s.e.prompt.engine[6], .n = 1));
	cr_assert_eq(exact(&s), 6);
	scene_close(&s);
}

Test(replay, other_bytes_under_a_number_that_was_replayed_are_a_new_life)
{
	struct scene s;
	struct prompt other;

	scene_open(&s, NULL);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 6);
	ends(&s, 8, 7);
	prompt_make(&other, 9000);
	live_event(&s, 2, (struct event)STORED(.hashes = other.engine, .n = 1,
					       .tokens = other.tokens));
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 1);
	cr_assert_eq(depth_of(&s.w, 0, &s.e.prompt).any, 0, "it holds nothing of its old life");
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP, "its first two batches are missing");
	after(&s, 0);
	asked(&s, 0);   /* and are asked for at once */
	scene_close(&s);
}

Test(replay, a_hole_in_the_answer_is_asked_for_again_from_there)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, 9);
	asked(&s, 1);
	reply_from(&s, 1, 3);
	reply_from(&s, 6, 7); /* 4 and 5 are lost */
	hear(&s, 4);
	asked(&s, 4);
	reply_from(&s, 4, 5);
	reply_from(&s, 8, 9);
	hear(&s, 3);
	asked(&s, 6);
	reply_from(&s, 6, 9);
	hear(&s, 4);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 10);
	scene_close(&s);
}

Test(replay, a_lost_tail_and_a_lost_end_marker_are_noticed_by_silence)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, 5);
	asked(&s, 1);
	reply_from(&s, 1, 2);
	hear(&s, 2);
	after(&s, REPLAY_SILENCE_NS - 1);
	cr_assert(replay_holds(s.r));
	after(&s, 1);
	asked(&s, 3);
	reply_from(&s, 3, 4); /* all that was missing; the rest is lost */
	hear(&s, 2);
	after(&s, REPLAY_SILENCE_NS);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 6);
	scene_close(&s);
}

Test(replay, a_last_batch_lost_before_the_end_marker_is_found)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 3);   /* and 4 is lost */
	reply_end(&s.e);
	hear(&s, 5);
	asked(&s, 4);
	reply_from(&s, 4, 4);
	ends(&s, 2, 5);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 5);
	scene_close(&s);
}

Test(replay, a_history_whose_end_marker_is_lost_each_time_is_whole)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 3);
	hear(&s, 4);
	for (unsigned i = 1; i < REPLAY_ASKS; i++) {
		after(&s, REPLAY_SILENCE_NS);
		asked(&s, 4);
		cr_assert_eq(state_of(&s.w, 0), CACHE_REPLAYING);
	}
	after(&s, REPLAY_SILENCE_NS);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 4);
	scene_close(&s);
}

Test(replay, an_end_marker_before_the_batch_that_was_waited_for_is_asked_again_and_then_a_gap)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, 5);
	for (unsigned i = 0; i < REPLAY_ASKS; i++) {
		asked(&s, 1);
		reply_end(&s.e);
		hear(&s, 1);
	}
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_REPLAY_LOST);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].gaps), 1, "one hole is one gap");
	scene_close(&s);
}

/* ---- nobody there, nothing kept ---- */

Test(replay, silence_is_a_gap_that_says_so_and_is_asked_again_after_thirty_seconds)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, 2);
	for (unsigned i = 0; i < REPLAY_ASKS; i++) {
		cr_assert(replay_holds(s.r));
		asked(&s, 1);
		after(&s, REPLAY_SILENCE_NS);
	}
	cr_assert_not(replay_holds(s.r), "live batches go on");
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_REPLAY_SILENT);
	cr_assert_eq(counted(&s, COUNTER_replays_failed), 1);
	live(&s, 3);
	live(&s, 5);
	not_asked(&s);
	cr_assert_not(replay_holds(s.r));
	after(&s, REPLAY_BACKOFF_NS - 1);
	not_asked(&s);
	after(&s, 1);
	asked(&s, 0);   /* a gap needs all of it */
	reply_from(&s, 0, 5);
	ends(&s, 7, 6);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 6);
	scene_close(&s);
}

Test(replay, an_engine_that_was_absent_is_asked_at_its_first_batch)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);
	for (unsigned i = 0; i < REPLAY_ASKS; i++) {
		asked(&s, 0);
		after(&s, REPLAY_SILENCE_NS);
	}
	cr_assert_eq(state_of(&s.w, 0), CACHE_NONE);
	cr_assert_eq(reason_of(&s.w, 0), REASON_REPLAY_SILENT);
	live(&s, 2);
	cr_assert(replay_holds(s.r), "it is there now");
	asked(&s, 0);
	reply_from(&s, 0, 2);
	hear(&s, 3);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 3);
	scene_close(&s);
}

Test(replay, a_late_joiner_with_the_whole_history_is_exact)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 7);
	cr_assert(replay_holds(s.r));
	asked(&s, 0);
	reply_from(&s, 0, 7);
	hear(&s, 8);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 8);
	live_event(&s, 8, (struct event)REMOVED(.hashes = &s.e.prompt.engine[5], .n = 1));
	cr_assert_eq(exact(&s), 5);
	scene_close(&s);
}

Test(replay, an_engine_that_says_nothing_yet_is_asked_once)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);
	asked(&s, 0);
	reply_end(&s.e);
	hear(&s, 1);
	cr_assert_eq(state_of(&s.w, 0), CACHE_NONE);
	after(&s, 100 * S);
	not_asked(&s);
	live(&s, 0);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	scene_close(&s);
}

/* The blocks of the lost part are unknown, so those kept hang on nothing: they start anew here. */
Test(replay, where_the_beginning_is_forgotten_the_rest_counts_and_the_gap_says_so)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, HISTORY + 3);
	asked(&s, 0);
	reply_from(&s, HISTORY, HISTORY + 3);
	hear(&s, 1);
	cr_assert(replay_holds(s.r), "the first may have been lost on the way");
	asked(&s, 0);
	reply_from(&s, HISTORY, HISTORY + 3);
	hear(&s, 4);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(exact(&s), 4);
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_HISTORY_LOST);
	after(&s, 10 * REPLAY_BACKOFF_NS);
	not_asked(&s);
	live(&s, HISTORY + 6); /* a hole in a gap: only what is missing */
	asked(&s, HISTORY + 4);
	reply_from(&s, HISTORY + 4, HISTORY + 6);
	hear(&s, 3);
	cr_assert_eq(exact(&s), 7);
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_HISTORY_LOST);
	scene_close(&s);
}

Test(replay, a_hole_whose_batches_are_forgotten_is_a_gap_and_what_comes_behind_is_known)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, HISTORY + 2);
	for (unsigned i = 0; i < 2; i++) {
		asked(&s, 1);
		reply_from(&s, HISTORY, HISTORY + 2);
		hear(&s, i == 0 ? 1 : 3);
	}
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_HISTORY_LOST);
	cr_assert_eq(exact(&s), 3);
	scene_close(&s);
}

/* ---- lives ---- */

Test(replay, a_whole_replay_makes_a_gap_exact_and_forgets_what_was_only_probable)
{
	struct scene s;
	struct prompt gone;

	scene_open(&s, NULL);
	prompt_make(&gone, 9000);
	SAY(&s.w, 0, 0, STORED(.hashes = gone.engine, .n = 4, .tokens = gone.tokens));
	SAY(&s.w, 0, 5, CLEARED_OF("CPU")); /* nobody asked for 1 to 4 */
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(depth_of(&s.w, 0, &gone).any, 4);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 5);
	ends(&s, 7, 6);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 6);
	cr_assert_eq(depth_of(&s.w, 0, &gone).any, 0, "it was in no batch of its history");
	scene_close(&s);
}

Test(replay, a_writer_reborn_is_exact_again_after_a_whole_replay)
{
	struct scene s;
	struct replay_config config;

	scene_open(&s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		live(&s, i);
	replay_free(&s.r);
	dies(&s.w);
	born(&s.w);
	s.all = (struct replays){.apply = s.w.apply, .process = &s.w.process};
	config = (struct replay_config){.all = &s.all, .row = 0, .endpoint = s.e.endpoint};
	cr_assert_eq(replay_new(&s.r, &config), 0);
	cr_assert_eq(reason_of(&s.w, 0), REASON_WRITER_RESTART);
	cr_assert_eq(exact(&s), 0);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 5);
	ends(&s, 7, 6);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 6);
	live(&s, 6);
	cr_assert_eq(exact(&s), 7);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 0);
	scene_close(&s);
}

Test(replay, an_engine_that_restarts_in_place_is_asked_for_its_new_beginning)
{
	struct scene s;

	scene_open(&s, NULL);
	for (uint64_t i = 0; i < 9; i++)
		live(&s, i);
	prompt_make(&s.e.prompt, 7000);
	live(&s, 2);            /* 0 and 1 of its new life were missed */
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 1);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 2);
	ends(&s, 4, 3);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 3);
	scene_close(&s);
}

/* Its start time says that it began anew; asked for all it ever said, it answers: nothing. */
Test(replay, a_restarted_engine_that_has_said_nothing_yet_is_no_gap)
{
	struct scene s;

	scene_open(&s, NULL);
	apply_engine_start(s.w.apply, 0, 1, 1);
	for (uint64_t i = 0; i < 5; i++)
		live(&s, i);
	apply_engine_start(s.w.apply, 0, 1, clock_wall() + 1000 * S);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].restarts), 1);
	after(&s, 0);
	asked(&s, 0);
	reply_end(&s.e);
	hear(&s, 1);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_NONE, "nothing is missing: it said nothing");
	prompt_make(&s.e.prompt, 7000);
	live(&s, 0);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 1);
	scene_close(&s);
}

Test(replay, a_restart_while_it_is_asked_drops_all_of_the_old_life)
{
	struct scene s;

	scene_open(&s, NULL);
	apply_engine_start(s.w.apply, 0, 1, 1);
	live(&s, 0);
	live(&s, 3);
	asked(&s, 1);
	apply_engine_start(s.w.apply, 0, 1, clock_wall() + 1000 * S);
	reply_from(&s, 1, 3);
	after(&s, 0);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(depth_of(&s.w, 0, &s.e.prompt).any, 0);
	prompt_make(&s.e.prompt, 7000);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 1);
	ends(&s, 3, 2);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 2);
	scene_close(&s);
}

/* ---- quiet ---- */

Test(replay, a_batch_lost_at_the_end_of_a_burst_is_found_when_it_is_quiet)
{
	struct scene s;

	scene_open(&s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		live(&s, i);
	after(&s, REPLAY_QUIET_NS - 1);
	not_asked(&s);
	after(&s, 1);
	asked(&s, 4);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_not(replay_holds(s.r));
	reply_batch(&s, 4);
	ends(&s, 2, 5);
	cr_assert_eq(exact(&s), 5);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	after(&s, 100 * S);
	asked(&s, 5);           /* more may have gone the same way */
	reply_end(&s.e);
	hear(&s, 1);
	after(&s, 100 * S);
	not_asked(&s);          /* nothing had */
	live(&s, 5);
	cr_assert_eq(exact(&s), 6);
	scene_close(&s);
}

Test(replay, a_live_wire_that_has_brought_nothing_is_not_relied_on)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);           /* born beside an engine that has a history */
	asked(&s, 0);
	reply_from(&s, 0, 2);
	ends(&s, 4, 3);
	cr_assert_eq(exact(&s), 3);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	after(&s, REPLAY_QUIET_NS - 1);
	not_asked(&s);
	for (uint64_t seq = 3; seq < 6; seq++) {        /* its publisher reaches nobody */
		after(&s, REPLAY_PROBE_NS);
		asked(&s, seq);
		cr_assert_not(replay_holds(s.r));
		reply_batch(&s, seq);
		ends(&s, 2, seq + 1);
		cr_assert_eq(exact(&s), seq + 1);
	}
	live(&s, 6);            /* and then it does */
	after(&s, REPLAY_PROBE_NS);
	asked(&s, 7);
	reply_end(&s.e);
	hear(&s, 1);
	after(&s, 100 * S);
	not_asked(&s);
	scene_close(&s);
}

Test(replay, a_hole_that_shows_during_a_probe_is_filled_by_it)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	after(&s, REPLAY_QUIET_NS);
	asked(&s, 1);
	live(&s, 2);
	cr_assert(replay_holds(s.r));
	reply_from(&s, 1, 2);
	hear(&s, 2);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(exact(&s), 3);
	scene_close(&s);
}

/* ---- hostile ---- */

Test(replay, answers_nobody_asked_for_end_with_the_time)
{
	struct scene s;
	mono_ns began;

	scene_open(&s, NULL);
	for (uint64_t i = 0; i < 4; i++)
		live(&s, i);
	live(&s, 9);
	began = s.now;
	asked(&s, 4);
	while (replay_holds(s.r)) {     /* old numbers, for ever; never silent */
		reply_from(&s, 0, 3);
		hear(&s, 4);
		after(&s, REPLAY_SILENCE_NS / 2);
		cr_assert_leq(s.now - began, REPLAY_MOST_NS);
	}
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&s.w, 0), REASON_REPLAY_LOST);
	cr_assert_eq(depth_of(&s.w, 0, &s.e.prompt).any, 4, "and had no effect");
	scene_close(&s);
}

Test(replay, frames_of_no_known_form_are_counted_and_no_answer)
{
	struct scene s;

	scene_open(&s, NULL);
	live(&s, 0);
	live(&s, 2);
	asked(&s, 1);
	frame(&s.e, s.e.id, (size_t)s.e.id_len, false);
	for (unsigned i = 0; i < 5000; i++)
		frame(&s.e, "x", 1, i + 1 == 5000);
	frame(&s.e, s.e.id, (size_t)s.e.id_len, false);
	frame(&s.e, "", 0, false);
	frame(&s.e, "\x00\x01", 2, false);
	frame(&s.e, "", 0, true);
	reply(&s.e, 1, "\xdd\xff\xff\xff\xff", 5); /* claims 4 G elements */
	hear(&s, 3);
	cr_assert_eq(counted(&s, COUNTER_frames_bad), 2);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].failed), 1);
	reply_batch(&s, 2);
	hear(&s, 1);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP, "what was unreadable may have been a removal");
	scene_close(&s);
}

Test(replay, one_turn_is_bounded)
{
	struct scene s;

	scene_open(&s, NULL);
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 999);
	reply_end(&s.e);
	for (;;) {
		zmq_pollitem_t item[] = {
			{.socket = zsock_resolve(replay_socket(s.r)), .events = ZMQ_POLLIN},
			{.socket = s.e.router, .events = ZMQ_POLLIN},
		};

		cr_assert_geq(zmq_poll(item, 2, WAIT_MS), 1);
		if (item[1].revents) /* the end came, and it asks for more */
			break;
		cr_assert_leq(replay_receive(s.r, s.now), SUBSCRIBER_BATCH);
	}
	asked(&s, 1000);
	reply_end(&s.e);
	hear(&s, 1);
	cr_assert_eq(atomic_load(&s.w.rows.row[0].applied_seq), 1000);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	scene_close(&s);
}

Test(replay, so_many_at_once_and_who_finds_no_room_does_not_wait)
{
	struct scene s;

	scene_open(&s, NULL);
	s.all.under_way = REPLAYS_AT_ONCE;
	live(&s, 0);
	live(&s, 2);
	cr_assert_not(replay_holds(s.r));
	cr_assert_eq(state_of(&s.w, 0), CACHE_GAP);
	s.all.under_way--;
	after(&s, 0);
	asked(&s, 0);
	reply_from(&s, 0, 2);
	ends(&s, 4, 3);
	cr_assert_eq(state_of(&s.w, 0), CACHE_EXACT);
	cr_assert_eq(s.all.under_way, REPLAYS_AT_ONCE - 1);
	scene_close(&s);
}
