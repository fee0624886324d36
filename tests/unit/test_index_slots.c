/* tests/unit/test_index_slots.c -- slots of the index, their lists and scrub; a restart. */
#include "tests/unit/index_pair.h"

#include <sys/wait.h>

/* ---- slots ---- */

Test(index_slots, a_slot_is_seen_from_its_first_block_and_unseen_from_its_retirement)
{
	struct pair p;
	uint64_t h = 5;

	pair_open(&p, 100, 40);
	cr_assert_eq(depth_of(&p, 1, &h, 1).any, 0u);   /* the reader has its copy of the slots */
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	put(&p, id, h);
	cr_assert_eq(depth_of(&p, 1, &h, 1).exact, 1u);
	index_slot_retire(p.w, id);
	cr_assert_eq(depth_of(&p, 1, &h, 1).any, 0u);
	cr_assert(index_has(p.w, id, h), "the bit waits for the scrub");
	cr_assert(!put(&p, id, 6), "a retired slot takes nothing");
	pair_close(&p);
}

Test(index_slots, a_demoted_slot_is_probable_no_longer_sure)
{
	struct pair p;
	uint64_t h = 5;

	pair_open(&p, 100, 40);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	put(&p, id, h);
	index_slot_demote(p.w, id);
	struct index_depth d = depth_of(&p, 1, &h, 1);
	cr_assert(d.any == 1 && d.exact == 0 && d.gpu == 0);
	index_slot_demote(p.w, id);
	cr_assert_eq(index_slot_role(index_slot_word(p.w, id)), (unsigned)INDEX_DEMOTED);
	pair_close(&p);
}

Test(index_slots, a_retired_id_is_free_only_after_its_whole_list_is_walked)
{
	struct pair p;
	uint64_t h[1000];

	pair_open(&p, 4000, 200);
	hashes(11, h, 1000);
	uint16_t a = take(&p, 1, INDEX_EXACT, INDEX_GPU), b = take(&p, 2, INDEX_EXACT, INDEX_GPU);
	for (unsigned i = 0; i < 1000; i++) {
		put(&p, a, h[i]);
		put(&p, b, h[i]);
	}
	uint32_t gen = index_slot_gen(index_slot_word(p.w, a));
	index_slot_retire(p.w, a);
	cr_assert_leq(index_scrub(p.w, 400), 400u);
	cr_assert_eq(index_slot_state(index_slot_word(p.w, a)), (unsigned)INDEX_SLOT_RETIRED);
	cr_assert_eq(index_slot_held(p.w, a), 600u);
	while (index_scrub(p.w, 400) > 0)
		;
	cr_assert_eq(index_slot_state(index_slot_word(p.w, a)), (unsigned)INDEX_SLOT_FREE);
	cr_assert_eq(index_slot_held(p.w, a), 0u);
	cr_assert_eq(index_slot_held(p.w, b), 1000u);
	cr_assert_eq(take(&p, 3, INDEX_EXACT, INDEX_GPU), a);
	cr_assert_eq(index_slot_gen(index_slot_word(p.w, a)), gen + 1);
	cr_assert_eq(depth_of(&p, 3, h, 1000).any, 0u, "the next owner inherits nothing");
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index_slots, with_no_free_id_the_shortest_retired_list_is_walked_at_once)
{
	struct pair p;
	uint64_t h[100];

	pair_open(&p, 1000, 3);
	hashes(12, h, 100);
	uint16_t a = take(&p, 1, INDEX_EXACT, INDEX_GPU), b = take(&p, 2, INDEX_EXACT, INDEX_GPU);
	take(&p, 3, INDEX_EXACT, INDEX_GPU);
	cr_assert_eq(index_slot_take(p.w, 4, 1, INDEX_EXACT, INDEX_GPU, 16), 0u,
		     "none is free or retired");
	for (unsigned i = 0; i < 100; i++)
		put(&p, a, h[i]);
	for (unsigned i = 0; i < 10; i++)
		put(&p, b, h[i]);
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_ID], 1u);
	index_slot_retire(p.w, a);
	index_slot_retire(p.w, b);
	cr_assert_eq(take(&p, 4, INDEX_EXACT, INDEX_GPU), b);
	cr_assert_eq(index_slot_held(p.w, a), 100u);
	pair_close(&p);
}

Test(index_slots, the_list_of_a_slot_that_churns_stays_bounded_and_complete)
{
	struct pair p;
	uint64_t h[64];

	pair_open(&p, 1000, 40);
	hashes(13, h, 64);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	for (unsigned i = 0; i < 200000; i++) {
		put(&p, id, h[i % 64]);
		if (i % 3)
			index_take(p.w, h[(i + 32) % 64], &id, 1);
	}
	uint32_t held = index_slot_held(p.w, id);
	uint64_t scrubbed = index_head(p.reader)->scrubbed;
	cr_assert_gt(held, 0u);
	index_slot_retire(p.w, id);
	while (index_scrub(p.w, 1000) > 0)
		;
	cr_assert_leq(index_head(p.reader)->scrubbed - scrubbed, 4096u + 2 * 64u);
	cr_assert_eq(index_head(p.reader)->holders, 0u);
	pair_close(&p);
}

Test(index_slots, a_speculative_slot_holds_a_bounded_number_of_blocks)
{
	struct pair p;
	uint64_t random = 14;
	unsigned held = 0;

	pair_open(&p, 300000, 40);
	uint16_t id = take(&p, 1, INDEX_SPECULATIVE, INDEX_GPU);
	for (unsigned i = 0; i < INDEX_LOG_MAX + 1000; i++)
		held += put(&p, id, random_next(&random));
	cr_assert_eq(held, INDEX_LOG_MAX);
	cr_assert_eq(index_slot_held(p.w, id), INDEX_LOG_MAX);
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_LOG], 1000u);
	cr_assert_eq(index_refused(index_head(p.reader)), 1000u);
	pair_close(&p);
}

Test(index_slots, lists_stop_growing_at_the_writers_limit_and_puts_are_refused)
{
	struct pair p;
	uint64_t random = 21;
	unsigned held = 0, fresh;

	pair_open(&p, 300000, 40);
	uint64_t start = index_writer_bytes(p.w);
	index_writer_limit(p.w, start + 100000);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU), other = take(&p, 2, INDEX_EXACT,
									INDEX_GPU);
	for (unsigned i = 0; i < 20000; i++)
		held += put(&p, id, random_next(&random));
	cr_assert_eq(held, 8192u, "the greatest power of two of entries that fits");
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_MEMORY], 20000u - held);
	cr_assert_leq(index_writer_bytes(p.w), start + 100000);
	cr_assert_eq(index_head(p.reader)->private_bytes, index_writer_bytes(p.w));
	/* What is stale in a list is not in the way. */
	random = 21;
	for (unsigned i = 0; i < 4000; i++)
		index_take(p.w, random_next(&random), &id, 1);
	random = 22;
	for (unsigned i = fresh = 0; i < 4000; i++)
		fresh += put(&p, id, random_next(&random));
	cr_assert_eq(fresh, 4000u);
	cr_assert(put(&p, other, 5), "a short list has room");
	index_slot_retire(p.w, id);
	while (index_scrub(p.w, 1000) > 0)
		;
	cr_assert_leq(index_writer_bytes(p.w), start + 64 * 8, "its list was given back");
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index_slots, a_put_into_a_slot_that_is_not_live_is_refused_and_counted)
{
	struct pair p;
	uint16_t wild = 41, none = 0;

	pair_open(&p, 100, 40);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	cr_assert(!put(&p, none, 5) && !put(&p, wild, 5) && !put(&p, (uint16_t)(id + 1), 5));
	cr_assert(!index_put(p.w, id, 5, &wild, 1));
	index_slot_retire(p.w, id);
	cr_assert(!put(&p, id, 5));
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_DEAD], 5u);
	cr_assert_eq(index_head(p.reader)->entries, 0u);
	cr_assert_str_eq(index_cause_name(INDEX_CAUSE_DEAD), "dead");
	cr_assert_str_eq(index_cause_name(INDEX_CAUSES), "unknown");
	pair_close(&p);
}

/* ---- restart ---- */

Test(index_slots, live_slots_and_their_blocks_outlive_the_writer)
{
	struct pair p;
	uint64_t h[500], epoch;

	pair_open(&p, 1000, 200);
	hashes(15, h, 500);
	uint16_t a = take(&p, 1, INDEX_EXACT, INDEX_GPU),
		 b = take(&p, 2, INDEX_SPECULATIVE, INDEX_GPU);
	for (unsigned i = 0; i < 500; i++) {
		put(&p, a, h[i]);
		if (i < 100)
			put(&p, b, h[i]);
	}
	epoch = index_head(p.reader)->slots_epoch;
	writer_restart(&p);
	cr_assert_gt(index_head(p.reader)->slots_epoch, epoch);
	cr_assert_eq(index_slot_held(p.w, a), 500u);
	cr_assert_eq(index_slot_held(p.w, b), 100u);
	cr_assert_eq(depth_of(&p, 1, h, 500).exact, 500u);
	cr_assert_eq(depth_of(&p, 2, h, 500).any, 100u);
	/* The new writer's lists are complete, though it never saw the hashes. */
	index_slot_retire(p.w, a);
	while (index_scrub(p.w, 64) > 0)
		;
	cr_assert_eq(index_head(p.reader)->holders, 100u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index_slots, a_restarted_writer_without_memory_for_a_list_refuses_the_put)
{
	struct pair p;
	uint64_t h[33];

	pair_open(&p, 4000, 200);
	hashes(41, h, 33);
	uint16_t id = take(&p, 1, INDEX_SPECULATIVE, INDEX_GPU);
	for (unsigned i = 0; i < 32; i++)
		cr_assert(put(&p, id, h[i]));
	writer_restart(&p);
	index_writer_limit(p.w, index_writer_bytes(p.w));       /* no list may grow */
	/* Each block is in the list by two hashes now, the scan's and its own: nothing of the 64
	 * entries is stale, and none is a double that a comparison would show. */
	for (unsigned i = 0; i < 32; i++) {
		index_take(p.w, h[i], &id, 1);
		cr_assert(put(&p, id, h[i]));
	}
	cr_assert(!put(&p, id, h[32]));
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_MEMORY], 1u);
	cr_assert_eq(index_slot_held(p.w, id), 32u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index_slots, a_scrub_cut_short_by_a_restart_is_finished_by_the_next_writer)
{
	struct pair p;
	uint64_t h[500];

	pair_open(&p, 1000, 40);
	hashes(16, h, 500);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	for (unsigned i = 0; i < 500; i++)
		put(&p, id, h[i]);
	index_slot_retire(p.w, id);
	index_scrub(p.w, 100);
	writer_restart(&p);
	cr_assert_eq(index_slot_state(index_slot_word(p.w, id)), (unsigned)INDEX_SLOT_RETIRED);
	while (index_scrub(p.w, 100) > 0)
		;
	cr_assert_eq(index_head(p.reader)->entries, 0u);
	cr_assert_eq(index_slot_state(index_slot_word(p.w, id)), (unsigned)INDEX_SLOT_FREE);
	pair_close(&p);
}

Test(index_slots, recovery_drops_lanes_no_writer_of_ours_made)
{
	struct pair p;
	uint64_t h[200], random = 17;

	pair_open(&p, 1, 200);
	hashes(17, h, 200);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	for (unsigned i = 0; i < 200; i++)
		put(&p, id, h[i]);
	index_writer_close(&p.w);
	char *at = (char *)p.seg.head + index_head(p.reader)->off_buckets;
	/* Any bytes: lists out of order, free ids, wild chunks. */
	for (unsigned i = 0; i < 500; i++)
		at[random_next(&random) % (64 * 64)] = (char)random_next(&random);
	uint64_t out[200];
	struct index_depth depth[8];
	for (unsigned i = 0; i < 200; i++) {
		out[0] = h[i];
		index_match(p.reader, out, 1, depth, 8);        /* whatever it says, it returns */
	}
	cr_assert_eq(index_writer_open(&p.w, fd_of(&p.seg)), 0);
	cr_assert_gt(index_head(p.reader)->dropped, 0u);
	struct index_audit a;
	cr_assert_eq(index_audit(p.reader, &a), 0);
	cr_assert(a.garbage == 0 && a.unreachable == 0 && a.saturated == 0 && a.overcounted == 0);
	pair_close(&p);
}

/* What another process is told that wants to write, too: 0, or what errno would be. */
static int
second_writer(const struct pair *p)
{
	struct index_writer *w;
	int status;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0)
		_exit(-index_writer_open(&w, fd_of(&p->seg)));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

Test(index_slots, while_a_writer_lives_no_other_process_opens_the_index_to_write)
{
	struct pair p;
	uint64_t epoch;

	pair_open(&p, 1000, 40);
	epoch = p.seg.head->epoch;
	cr_assert_eq(second_writer(&p), EBUSY);
	cr_assert_eq(p.seg.head->epoch, epoch);
	index_writer_close(&p.w);
	cr_assert_eq(second_writer(&p), 0);
	cr_assert_eq(index_writer_open(&p.w, fd_of(&p.seg)), 0);        /* the second is dead */
	pair_close(&p);
}
