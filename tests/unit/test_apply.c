/* tests/unit/test_apply.c -- events and notes against the real index, one rule at a time. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "actors/common/log.h"
#include "actors/kvevents/orphans.h"
#include "tests/unit/apply_world.h"

/* ---- stored, removed, cleared ---- */

Test(apply, what_an_engine_stores_is_held_to_the_depth_it_says)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 3, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).gpu, 3);
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine + 3, .n = 5, .parent = p.engine[2],
		   .tokens = p.tokens + 3 * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 8);
	cr_assert_eq(depth_of(&w, 1, &p).any, 0);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	cr_assert_eq(atomic_load(&w.rows.row[0].event_block_tokens), BLOCK);
	cr_assert_eq(atomic_load(&w.rows.row[0].applied_seq), 2);
	cr_assert_eq(atomic_load(&w.rows.row[0].applied), 2);
	end(&w);
}

Test(apply, a_removal_cuts_the_depth_and_an_unknown_hash_beside_it_does_no_harm)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 8, .tokens = p.tokens));
	SAY(&w, 0, 1, REMOVED(.hashes = (uint64_t[]){999, p.engine[5], 998}, .n = 3));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 5);
	cr_assert_eq(depth_of(&w, 0, &p).any, 5);
	end(&w);
}

Test(apply, a_block_stored_twice_stays_until_it_is_removed_twice)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine + 1, .n = 1, .parent = p.engine[0],
		   .tokens = p.tokens + BLOCK));
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine + 1, .n = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2);
	SAY(&w, 0, 3, REMOVED(.hashes = p.engine + 1, .n = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1);
	SAY(&w, 0, 4, REMOVED(.hashes = p.engine + 1, .n = 1));
	SAY(&w, 0, 5,
	    STORED(.hashes = p.engine + 1, .n = 1, .parent = p.engine[0],
		   .tokens = p.tokens + BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2, "a count below zero was remembered");
	end(&w);
}

Test(apply, cleared_forgets_the_gpu_and_what_was_only_probable_but_not_the_offload_tier)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 5000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens),
	    STORED(.hashes = p.engine, .n = 2, .medium = "CPU"));
	note(&w, 0, 1, &q, 4);
	cr_assert_eq(depth_of(&w, 0, &q).any, 4);
	SAY(&w, 0, 1, CLEARED);
	cr_assert_eq(depth_of(&w, 0, &p).gpu, 0);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2);
	cr_assert_eq(depth_of(&w, 0, &q).any, 0);
	end(&w);
}

Test(apply, the_offload_tier_is_kept_apart_from_the_gpu)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens),
	    STORED(.hashes = p.engine, .n = 4, .medium = "cpu"),
	    STORED(.hashes = (uint64_t[]){777}, .n = 1, .medium = "CPU"));
	SAY(&w, 0, 1, REMOVED(.hashes = p.engine, .n = 4, .medium = "gpu"));
	cr_assert_eq(depth_of(&w, 0, &p).gpu, 0);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine + 3, .n = 1, .medium = "CPU"));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 3);
	end(&w);
}

Test(apply, adapters_salts_and_media_part_the_chains_of_the_same_tokens)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens, .salt = "s"));
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine + 2, .n = 2, .parent = p.engine[1],
		   .tokens = p.tokens + 2 * BLOCK));
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .lora = "a"));
	SAY(&w, 2, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .mm = "image-1"));
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, NULL, "s").exact, 4);
	cr_assert_eq(depth_in(&w, 1, &p, BLOCK, "a", NULL).exact, 4);
	for (uint16_t row = 0; row < 3; row++)
		cr_assert_eq(depth_of(&w, row, &p).any, 0);
	end(&w);
}

Test(apply, only_one_full_attention_group_in_its_own_block_size_counts)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0,
	    STORED(.hashes = p.engine + 8, .n = 2, .tokens = p.tokens, .group = 2,
		   .kind = "sliding_window"),
	    STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .group = 1,
		   .kind = "full_attention"),
	    STORED(.hashes = p.engine + 10, .n = 8, .tokens = p.tokens, .group = 3,
		   .kind = "full_attention"),
	    STORED(.hashes = p.engine + 20, .n = 1, .tokens = p.tokens + 4 * BLOCK, .block = 4,
		   .parent = p.engine[3], .group = 1, .kind = "full_attention"));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	SAY(&w, 0, 1, REMOVED(.hashes = p.engine, .n = 1, .group = 2));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "another group's removal counted");
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine, .n = 1, .group = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(atomic_load(&w.rows.row[0].skipped), 4);
	end(&w);
}

Test(apply, two_workers_may_have_different_block_sizes)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .block = 32));
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(depth_in(&w, 0, &p, 32, NULL, NULL).exact, 4);
	cr_assert_eq(depth_of(&w, 1, &p).exact, 4);
	end(&w);
}

Test(apply, a_longer_block_shows_that_the_first_ones_were_partial)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 1, .tokens = p.tokens, .block = 5));
	SAY(&w, 0, 1, STORED(.hashes = p.engine + 1, .n = 3, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 3);
	cr_assert_eq(depth_in(&w, 0, &p, 5, NULL, NULL).exact, 0);
	end(&w);
}

/* ---- orphans ---- */

Test(apply, blocks_without_a_known_parent_are_held_once_it_is_stored)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 7,
	    STORED(.hashes = p.engine + 4, .n = 4, .parent = p.engine[3],
		   .tokens = p.tokens + 4 * BLOCK));
	SAY(&w, 0, 8,
	    STORED(.hashes = p.engine + 2, .n = 2, .parent = p.engine[1],
		   .tokens = p.tokens + 2 * BLOCK));
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&w, 0), REASON_FIRST_SEQ);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(atomic_load(&w.rows.row[0].orphaned), 6);
	SAY(&w, 0, 9, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 8);
	end(&w);
}

Test(apply, a_removed_orphan_is_not_held_but_still_links_its_children)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 7,
	    STORED(.hashes = p.engine + 2, .n = 3, .parent = p.engine[1],
		   .tokens = p.tokens + 2 * BLOCK));
	SAY(&w, 0, 8, REMOVED(.hashes = p.engine + 2, .n = 1));
	SAY(&w, 0, 9, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2, "the removed orphan was held");
	SAY(&w, 0, 10,
	    STORED(.hashes = p.engine + 2, .n = 1, .parent = p.engine[1],
		   .tokens = p.tokens + 2 * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 5);
	end(&w);
}

Test(orphans, are_bounded_and_counted)
{
	struct orphans *o;
	struct orphan child;

	cr_assert_eq(orphans_new(&o), 0);
	for (uint64_t i = 1; i <= ORPHANS_MAX + 1000; i++)
		cr_assert_eq(orphans_add(o, i, 1000000 + i, i, 0, true), i > ORPHANS_MAX);
	cr_assert_eq(orphans_size(o), ORPHANS_MAX);
	cr_assert_not(orphans_remove(o, 1, 0), "the oldest did not give way");
	cr_assert(orphans_take_child(o, 1000000 + ORPHANS_MAX, &child));
	cr_assert_eq(child.hash, ORPHANS_MAX);
	orphans_clear(o);
	cr_assert_eq(orphans_size(o), 0);
	cr_assert_eq(orphans_add(o, 5, 6, 7, 0, true), 0);
	cr_assert_eq(orphans_add(o, 5, 6, 7, 0, true), 0);
	cr_assert_eq(orphans_add(o, 5, 6, 7, 1, true), 0);
	cr_assert_eq(orphans_take(o, 5, 0), 2);
	cr_assert(orphans_remove(o, 5, 1));
	cr_assert_eq(orphans_size(o), 0);
	orphans_free(&o);
}

/* ---- sequence ---- */

Test(apply, a_hole_makes_what_was_sure_probable_for_one_lease)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 2, STORED(.hashes = q.engine, .n = 2, .tokens = q.tokens),
	    STORED(.hashes = p.engine + 4, .n = 2, .parent = p.engine[3],
		   .tokens = p.tokens + 4 * BLOCK));
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&w, 0), REASON_SEQ_HOLE);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(depth_of(&w, 0, &p).any, 6, "the parent is looked for among the demoted too");
	cr_assert_eq(depth_of(&w, 0, &q).exact, 2);
	SAY(&w, 0, 3, REMOVED(.hashes = p.engine + 2, .n = 1));
	cr_assert_eq(depth_of(&w, 0, &p).any, 2);
	apply_tick(w.apply, clock_mono() + APPLY_LEASE_EVENTS_NS);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 0, &q).exact, 2);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	SAY(&w, 0, 4, CLEARED);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT, "an empty cache is known whole");
	end(&w);
}

Test(apply, the_same_message_twice_counts_once)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 1, REMOVED(.hashes = p.engine, .n = 4));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	end(&w);
}

Test(apply, a_sequence_that_steps_back_is_another_engine_and_everything_is_forgotten)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	for (uint16_t row = 0; row < 2; row++) {
		SAY(&w, row, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
		SAY(&w, row, 1,
		    STORED(.hashes = p.engine + 4, .n = 1, .parent = p.engine[3],
			   .tokens = p.tokens + 4 * BLOCK));
	}
	note(&w, 0, 1, &q, 4);
	/* Another size is fine for another life. */
	SAY(&w, 0, 0, STORED(.hashes = q.engine, .n = 2, .tokens = q.tokens, .block = 8));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 0, &q).any, 0);
	cr_assert_eq(depth_in(&w, 0, &q, 8, NULL, NULL).exact, 2);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	cr_assert_eq(reason_of(&w, 0), REASON_SEQ_BACK);
	cr_assert_eq(depth_of(&w, 1, &p).exact, 5, "another worker's blocks went too");
	/* Restarted after its very first batch: told by the bytes. */
	SAY(&w, 2, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 2, 0, STORED(.hashes = q.engine, .n = 4, .tokens = q.tokens));
	cr_assert_eq(depth_of(&w, 2, &p).any, 0);
	cr_assert_eq(depth_of(&w, 2, &q).exact, 4);
	cr_assert_eq(atomic_load(&w.rows.row[2].restarts), 1);
	end(&w);
}

Test(apply, an_engine_that_restarts_right_after_it_was_first_heard_is_forgotten_too)
{
	struct world w;
	struct prompt p;
	wall_ns now;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 5, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	now = clock_wall();
	apply_engine_start(w.apply, 0, 1, now - LEASE_S(100));
	apply_engine_start(w.apply, 0, 1, now + LEASE_S(1) / 5);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0, "that batch was of the life before");
	/* Events that say so themselves do so before the page, whose clock may be ahead. */
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	apply_engine_start(w.apply, 0, 1, clock_wall() + LEASE_S(1) / 2);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	end(&w);
}

Test(apply, a_new_start_time_forgets_everything_unless_the_events_said_so_first)
{
	struct world w;
	struct prompt p;
	wall_ns now;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 5, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	now = clock_wall();
	apply_engine_start(w.apply, 0, 1, now - LEASE_S(100));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "the life we know");
	apply_engine_start(w.apply, 0, 1, now - LEASE_S(50));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "its events began after that");
	apply_engine_start(w.apply, 0, 9, now + LEASE_S(50));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "another row generation's");
	apply_engine_start(w.apply, 0, 1, now + LEASE_S(50));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(state_of(&w, 0), CACHE_NONE);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	end(&w);
}

Test(apply, an_engine_that_falls_asleep_holds_nothing_from_then_on)
{
	struct world w;
	struct prompt p;
	struct row_reading reading = {.health = HEALTH_DOWN, .health_why = WHY_ASLEEP};

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	apply_engine_asleep(w.apply, 0, 9);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "another row generation's");
	apply_engine_asleep(w.apply, 0, 1);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	apply_engine_asleep(w.apply, 0, 1);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "it was told already");
	reading.health = HEALTH_UP;
	reading.health_why = WHY_OK;
	row_reading_write(&w.rows.row[0], &reading);
	apply_tick(w.apply, clock_mono());
	reading.health = HEALTH_DOWN;
	reading.health_why = WHY_ASLEEP;
	row_reading_write(&w.rows.row[0], &reading);
	apply_tick(w.apply, clock_mono());
	cr_assert_eq(depth_of(&w, 0, &p).any, 0, "the row says it too");
	end(&w);
}

Test(apply, an_unreadable_batch_is_a_gap_and_the_next_one_counts)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	apply_message(w.apply, 0, 1, "\xdd\xff\xff\xff\xff", 5);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	SAY(&w, 0, 2, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	apply_frames_bad(w.apply, 0);
	cr_assert_eq(atomic_load(&w.rows.row[0].failed), 2);
	end(&w);
}

Test(apply, a_batch_of_another_rank_is_not_taken_for_ours)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	w.rows.row[1].ranks = 2;
	w.rows.row[1].rank = 1;
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 1, &p).any, 0);
	cr_assert_eq(atomic_load(&w.rows.row[1].skipped), 1);
	end(&w);
}

/* ---- notes ---- */

Test(apply, what_was_routed_is_probable_until_its_lease_ends_and_sure_once_stored)
{
	struct world w;
	struct prompt p;
	mono_ns half = APPLY_LEASE_SILENT_NS / 2, t = 1000;

	begin(&w, 60);
	prompt_make(&p, 100);
	note(&w, 0, 3, &p, 6);
	cr_assert_eq(depth_of(&w, 0, &p).any, 6);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(atomic_load(&index_head(w.reader)->routed_seen[1]), 7ull << 40 | 3);
	apply_tick(w.apply, t += half);
	cr_assert_eq(depth_of(&w, 0, &p).any, 6, "half a lease is not a lease");
	note(&w, 0, 4, &p, 2);
	apply_tick(w.apply, t += half);
	cr_assert_eq(depth_of(&w, 0, &p).any, 2, "only what was routed again lives on");
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 1, .tokens = p.tokens));
	apply_tick(w.apply, t += half);
	apply_tick(w.apply, t += half);
	cr_assert_eq(depth_of(&w, 0, &p).any, 1);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1);
	end(&w);
}

Test(apply, a_removal_settles_what_was_routed_too)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	note(&w, 0, 1, &p, 6);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 6, .tokens = p.tokens));
	note(&w, 0, 2, &p, 8);
	cr_assert_eq(depth_of(&w, 0, &p).any, 8);
	SAY(&w, 0, 1, REMOVED(.hashes = p.engine + 1, .n = 5));
	cr_assert_eq(depth_of(&w, 0, &p).any, 1);
	end(&w);
}

Test(apply, a_note_for_another_row_generation_is_dropped)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	atomic_store(&w.rows.row[0].row_gen, 2);
	cr_assert_eq(apply_row_open(w.apply, 0, true, 1000), 0);
	note(&w, 0, 1, &p, 6);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	end(&w);
}

/* ---- rows and lives of ours ---- */

Test(apply, a_row_that_comes_again_begins_with_nothing)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	note(&w, 0, 1, &p, 8);
	apply_row_close(w.apply, 0);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	atomic_store(&w.rows.row[0].row_gen, 2);
	cr_assert_eq(apply_row_open(w.apply, 0, true, 1000), 0);
	cr_assert_eq(state_of(&w, 0), CACHE_NONE);
	cr_assert_eq(atomic_load(&w.rows.row[0].received), 0);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	end(&w);
}

Test(apply, a_row_without_events_says_that_it_is_approximate)
{
	struct world w;

	begin(&w, 60);
	cr_assert_eq(apply_row_open(w.apply, 3, false, 1000), 0);
	cr_assert_eq(state_of(&w, 3), CACHE_APPROXIMATE);
	cr_assert_eq(reason_of(&w, 3), REASON_NO_EVENTS);
	end(&w);
}

Test(apply, a_successor_keeps_as_probable_what_it_can_no_longer_follow)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	note(&w, 0, 1, &q, 5);
	dies(&w);
	born(&w);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	cr_assert_eq(reason_of(&w, 0), REASON_WRITER_RESTART);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(depth_of(&w, 0, &p).any, 4);
	cr_assert_eq(depth_of(&w, 0, &q).any, 5);
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine + 4, .n = 1, .parent = p.engine[3],
		   .tokens = p.tokens + 4 * BLOCK));
	SAY(&w, 0, 2, STORED(.hashes = q.engine, .n = 2, .tokens = q.tokens));
	cr_assert_eq(depth_of(&w, 0, &q).exact, 2);
	cr_assert_eq(atomic_load(&w.rows.row[0].gaps), 0, "it goes on where the other ended");
	apply_tick(w.apply, w.now + APPLY_LEASE_EVENTS_NS);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	end(&w);
}

Test(apply, a_successor_forgets_a_row_whose_batch_was_half_applied)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	note(&w, 0, 1, &q, 5);
	atomic_store(&w.rows.row[0].open_seq, 2);
	dies(&w);
	born(&w);
	cr_assert_eq(reason_of(&w, 0), REASON_HALF_BATCH);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 0, &q).any, 0, "the clear in that batch would be lost");
	cr_assert_eq(depth_of(&w, 1, &p).any, 4);
	end(&w);
}

Test(apply, slots_and_names_that_do_not_agree_are_settled_at_birth)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	/* Died before naming: the slot belongs to nobody.  And a name for what is not this row's.
	 */
	atomic_store(&w.rows.row[1].slot_gpu, atomic_load(&w.rows.row[0].slot_gpu));
	atomic_store(&w.rows.row[0].slot_gpu, 0);
	dies(&w);
	born(&w);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 1, &p).any, 0);
	cr_assert_eq(atomic_load(&w.rows.row[1].slot_gpu), 0);
	end(&w);
}

/* Another process's wild store: metrics writes the same page. */
Test(apply, names_of_no_slot_at_all_are_harmless)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	for (unsigned round = 0; round < 2; round++) {
		atomic_store(&w.rows.row[0].slot_gpu, 0xffff);
		atomic_store(&w.rows.row[0].slot_offload, 61);
		atomic_store(&w.rows.row[0].slot_demoted_gpu, 0xffff);
		atomic_store(&w.rows.row[0].slot_demoted_offload, 0xffff);
		atomic_store(&w.rows.row[0].slot_spec_cur, 0xffff);
		atomic_store(&w.rows.row[0].slot_spec_old, 0xffff);
		atomic_store(&w.rows.head->count, UINT32_MAX);
		if (round == 0) {
			note(&w, 0, 1, &q, 5);
			w.now += LEASE_S(3600);
			apply_tick(w.apply, w.now);
			SAY(&w, 0, 7, STORED(.hashes = p.engine, .n = 6, .tokens = p.tokens));
			SAY(&w, 0, 8, REMOVED(.hashes = p.engine, .n = 6));
		} else {
			dies(&w);
			born(&w);
		}
	}
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 1, &p).any, 4);
	end(&w);
}

Test(apply, an_engine_gone_mad_does_not_fill_the_log)
{
	int log = memfd_create("log", 0), err = dup(STDERR_FILENO);
	struct world w;
	struct prompt p;
	static char text[1 << 20];
	unsigned lines = 0;

	begin(&w, 60);
	prompt_make(&p, 100);
	cr_assert(log >= 0 && err >= 0);
	dup2(log, STDERR_FILENO);
	log_open("test", 0, 0, 0, LEVEL_INFO);
	for (uint64_t i = 0; i < 1000; i++) {   /* back, on with a hole, unreadable */
		SAY(&w, 0, 2000 - i, STORED(.hashes = p.engine, .n = 3, .tokens = p.tokens));
		SAY(&w, 0, 2002 - i, STORED(.hashes = p.engine, .n = 3, .tokens = p.tokens));
		apply_message(w.apply, 0, 2003 - i, "?", 1);
	}
	dup2(err, STDERR_FILENO);
	close(err);
	log_open("test", 0, 0, 0, LEVEL_ERROR);
	ssize_t n = pread(log, text, sizeof text, 0);
	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	close(log);
	cr_assert(lines > 0 && lines <= 8 * 10, "%u lines", lines);  /* however slow we are: 10 s */
	end(&w);
}
