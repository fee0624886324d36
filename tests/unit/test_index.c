/* tests/unit/test_index.c -- shm/index.h: its rules as sentences, then whole workloads against a
 * plain table of bits.  Crash points and concurrency are in tests/race. */
#include <criterion/criterion.h>

#include "shm/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pair {                           /* one index, its writer and one reader */
	struct segment seg;
	struct index_writer *w;
	struct index *reader;
};

static int
fd_of(const struct segment *seg)
{
	return fcntl(seg->fd, F_DUPFD_CLOEXEC, 0);
}

static void
pair_open(struct pair *p, uint64_t blocks, uint32_t max_slots)
{
	cr_assert_eq(index_create(&p->seg, blocks, max_slots, 42), 0);
	cr_assert_eq(index_writer_open(&p->w, fd_of(&p->seg)), 0);
	cr_assert_eq(index_attach(&p->reader, segment_readonly_fd(&p->seg)), 0);
}

static void
pair_close(struct pair *p)
{
	index_detach(&p->reader);
	index_writer_close(&p->w);
	segment_detach(&p->seg);
}

static void
writer_restart(struct pair *p)
{
	index_writer_close(&p->w);
	cr_assert_eq(index_writer_open(&p->w, fd_of(&p->seg)), 0);
}

static void
audit_is_clean(const struct pair *p, bool exact_counters)
{
	struct index_audit a;

	cr_assert_eq(index_audit(p->reader, &a), 0);
	cr_assert_eq(a.duplicates, 0u);
	cr_assert_eq(a.unreachable, 0u);
	cr_assert_eq(a.saturated, 0u);
	cr_assert_eq(a.garbage, 0u);
	if (exact_counters)
		cr_assert_eq(a.overcounted, 0u);
	cr_assert_eq(a.entries, index_head(p->reader)->entries);
	cr_assert_eq(a.holders, index_head(p->reader)->holders);
}

static uint16_t
take(struct pair *p, uint16_t row, enum index_role role, enum index_tier tier)
{
	uint16_t id = index_slot_take(p->w, row, 1, role, tier, 16);

	cr_assert_neq(id, 0);
	return id;
}

static bool
put(struct pair *p, uint16_t id, uint64_t hash)
{
	return index_put(p->w, id, hash, NULL, 0);
}

/* Depths of one row; zeros when it is not among the answers. */
static struct index_depth
depth_of(struct pair *p, uint16_t row, const uint64_t *hash, unsigned n)
{
	struct index_depth depth[256];
	unsigned rows = index_match(p->reader, hash, n, depth, 256);

	for (unsigned i = 0; i < rows; i++)
		if (depth[i].row == row)
			return depth[i];
	return (struct index_depth){.row = row};
}

static uint64_t
random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void
hashes(uint64_t seed, uint64_t *ret, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ret[i] = random_next(&seed);
}

/* ---- matching ---- */

Test(index, an_empty_index_knows_nobody)
{
	struct pair p;
	struct index_depth depth[1];
	uint64_t h[3] = {1, 2, 3};

	pair_open(&p, 100, 40);
	cr_assert_eq(index_match(p.reader, h, 3, depth, 1), 0u);
	cr_assert_eq(index_match(p.reader, h, 0, depth, 1), 0u);
	cr_assert_eq(index_seed(p.reader), 42u);
	pair_close(&p);
}

Test(index, match_stops_at_the_first_missing_block)
{
	static const uint32_t forms[] = {40, 200, 5000};

	for (unsigned f = 0; f < 3; f++) {
		struct pair p;
		uint64_t h[10];

		pair_open(&p, 1000, forms[f]);
		hashes(1, h, 10);
		uint16_t a = take(&p, 3, INDEX_EXACT, INDEX_GPU),
			 b = take(&p, 4, INDEX_EXACT, INDEX_GPU);
		for (unsigned i = 0; i < 10; i++) {
			cr_assert(i == 6 || put(&p, a, h[i]));
			cr_assert(i == 0 || put(&p, b, h[i]));
		}
		cr_assert_eq(depth_of(&p, 3, h, 10).exact, 6u);
		cr_assert_eq(depth_of(&p, 3, h, 4).exact, 4u);
		cr_assert_eq(depth_of(&p, 4, h, 10).any, 0u, "block 0 is missing");
		cr_assert_eq(depth_of(&p, 4, h + 1, 9).any, 9u);
		pair_close(&p);
	}
}

Test(index, depth_of_a_row_joins_its_slots_and_exact_counts_only_exact_ones)
{
	static const uint32_t forms[] = {40, 200, 5000};

	for (unsigned f = 0; f < 3; f++) {
		struct pair p;
		uint64_t h[10];

		pair_open(&p, 1000, forms[f]);
		hashes(2, h, 10);
		uint16_t gpu = take(&p, 7, INDEX_EXACT, INDEX_GPU);
		uint16_t offload = take(&p, 7, INDEX_EXACT, INDEX_OFFLOAD);
		uint16_t guess = take(&p, 7, INDEX_SPECULATIVE, INDEX_GPU);
		for (unsigned i = 0; i < 3; i++)
			put(&p, gpu, h[i]);
		for (unsigned i = 3; i < 5; i++)
			put(&p, offload, h[i]);
		for (unsigned i = 5; i < 8; i++)
			put(&p, guess, h[i]);
		put(&p, gpu, h[8]);
		struct index_depth d = depth_of(&p, 7, h, 10);
		cr_assert_eq(d.gpu, 3u);
		cr_assert_eq(d.exact, 5u);
		cr_assert_eq(d.any, 9u);
		pair_close(&p);
	}
}

Test(index, each_row_is_told_once_and_no_more_than_asked_for)
{
	struct pair p;
	struct index_depth depth[20];
	uint64_t h = 77;

	pair_open(&p, 100, 200);
	for (uint16_t row = 0; row < 8; row++) {
		put(&p, take(&p, row, INDEX_EXACT, INDEX_GPU), h);
		put(&p, take(&p, row, INDEX_SPECULATIVE, INDEX_GPU), h);
	}
	cr_assert_eq(index_match(p.reader, &h, 1, depth, 20), 8u);
	cr_assert_eq(index_match(p.reader, &h, 1, depth, 3), 3u);
	pair_close(&p);
}

Test(index, holders_are_the_live_slots_of_a_block)
{
	struct pair p;
	uint16_t id[4], got[8];

	pair_open(&p, 100, 200);
	for (uint16_t i = 0; i < 4; i++)
		cr_assert(put(&p, id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU), 5));
	index_slot_retire(p.w, id[1]);
	cr_assert_eq(index_holders(p.reader, 5, got, 8), 3u);
	cr_assert(got[0] == id[0] && got[1] == id[2] && got[2] == id[3]);
	cr_assert_eq(index_holders(p.reader, 6, got, 8), 0u);
	pair_close(&p);
}

/* ---- sets ---- */

Test(index, a_put_is_idempotent_and_a_take_of_an_absent_id_does_nothing)
{
	struct pair p;

	pair_open(&p, 100, 200);
	uint16_t a = take(&p, 1, INDEX_EXACT, INDEX_GPU), b = take(&p, 2, INDEX_EXACT, INDEX_GPU);
	cr_assert(put(&p, a, 5) && put(&p, a, 5));
	cr_assert_eq(index_slot_held(p.w, a), 1u);
	index_take(p.w, 5, &b, 1);
	index_take(p.w, 6, &a, 1);
	cr_assert(index_has(p.w, a, 5) && !index_has(p.w, b, 5));
	index_take(p.w, 5, &a, 1);
	cr_assert(!index_has(p.w, a, 5));
	cr_assert_eq(index_writer_head(p.w)->entries, 0u, "nobody is left: the lane is empty");
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, storing_exactly_takes_the_speculative_ids_out)
{
	static const uint32_t forms[] = {40, 200, 5000};

	for (unsigned f = 0; f < 3; f++) {
		struct pair p;
		uint64_t h = 9;

		pair_open(&p, 100, forms[f]);
		uint16_t spec[2] = {take(&p, 1, INDEX_SPECULATIVE, INDEX_GPU),
				    take(&p, 1, INDEX_SPECULATIVE, INDEX_GPU)};
		uint16_t exact = take(&p, 1, INDEX_EXACT, INDEX_GPU);
		put(&p, spec[0], h);
		put(&p, spec[1], h);
		cr_assert(index_put(p.w, exact, h, spec, 2));
		cr_assert(index_has(p.w, exact, h));
		cr_assert(!index_has(p.w, spec[0], h) && !index_has(p.w, spec[1], h));
		cr_assert_eq(index_slot_held(p.w, spec[0]) + index_slot_held(p.w, spec[1]), 0u);
		cr_assert(index_put(p.w, exact, h, &exact, 1),
			  "an id is never put instead of itself");
		cr_assert(index_has(p.w, exact, h));
		audit_is_clean(&p, true);
		pair_close(&p);
	}
}

Test(index, a_set_grows_into_the_pool_and_comes_back_at_half)
{
	static const struct { uint32_t max_slots; unsigned list; } forms[] = {{200, 5}, {5000, 3}};

	for (unsigned f = 0; f < 2; f++) {
		struct pair p;
		uint16_t id[40], got[64];
		const struct index_header *head;

		pair_open(&p, 100, forms[f].max_slots);
		head = index_head(p.reader);
		for (uint16_t i = 0; i < 40; i++) {
			id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
			cr_assert(put(&p, id[i], 5));
			cr_assert_eq(head->pool_used, i < forms[f].list ? 0u : 1u);
			cr_assert_eq(index_holders(p.reader, 5, got, 64), i + 1u);
		}
		audit_is_clean(&p, true);
		for (unsigned left = 40; left > forms[f].list / 2 + 1; left--)
			index_take(p.w, 5, &id[left - 1], 1);
		cr_assert_eq(index_slot_held(p.w, id[0]), 1u);
		/* In quarantine the chunk still counts; a restart tells what is really used. */
		writer_restart(&p);
		cr_assert_eq(head->pool_used, 1u, "above half it stays");
		index_take(p.w, 5, &id[forms[f].list / 2], 1);
		writer_restart(&p);
		cr_assert_eq(head->pool_used, 0u);
		cr_assert_eq(index_holders(p.reader, 5, got, 64), forms[f].list / 2);
		audit_is_clean(&p, true);
		pair_close(&p);
	}
}

Test(index, taking_every_holder_of_a_pooled_set_empties_the_lane)
{
	struct pair p;
	uint16_t id[20];

	pair_open(&p, 100, 200);
	for (uint16_t i = 0; i < 20; i++)
		put(&p, id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU), 5);
	index_take(p.w, 5, id, 20);
	cr_assert_eq(index_writer_head(p.w)->entries, 0u);
	cr_assert_eq(index_writer_head(p.w)->holders, 0u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, a_full_pool_keeps_what_is_there_and_says_so)
{
	struct pair p;
	uint16_t id[6];
	uint64_t h[200];
	unsigned refused = 0;

	pair_open(&p, 100, 200);
	hashes(5, h, 150);
	for (uint16_t i = 0; i < 6; i++)
		id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
	for (unsigned b = 0; b < 150; b++)
		for (unsigned i = 0; i < 6; i++)
			refused += !put(&p, id[i], h[b]);
	cr_assert_eq(refused, 150 - index_head(p.reader)->pool_chunks);
	cr_assert_eq(index_head(p.reader)->refused, refused);
	for (unsigned b = 0; b < 150; b++)
		for (unsigned i = 0; i < 5; i++)
			cr_assert(index_has(p.w, id[i], h[b]));
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, ids_that_wait_for_the_scrub_make_room_before_a_chunk_is_spent)
{
	struct pair p;
	uint16_t id[6];

	pair_open(&p, 100, 200);
	for (uint16_t i = 0; i < 6; i++)
		id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
	for (uint16_t i = 0; i < 5; i++)
		put(&p, id[i], 5);
	index_slot_retire(p.w, id[2]);
	cr_assert(put(&p, id[5], 5));
	cr_assert_eq(index_head(p.reader)->pool_used, 0u);
	cr_assert_eq(index_slot_held(p.w, id[2]), 0u);
	pair_close(&p);
}

/* ---- full tables ---- */

Test(index, a_full_table_gives_up_a_lane_nobody_alive_holds_first)
{
	struct pair p;
	uint64_t h[400], more[300];
	unsigned kept = 0;

	pair_open(&p, 1, 40);                   /* 64 buckets, 256 lanes */
	hashes(6, h, 400);
	hashes(7, more, 300);
	uint16_t gone = take(&p, 1, INDEX_EXACT, INDEX_GPU),
		 live = take(&p, 2, INDEX_EXACT, INDEX_GPU);
	for (unsigned i = 0; i < 128; i++)
		put(&p, live, h[i]);
	for (unsigned i = 128; i < 256; i++)
		put(&p, gone, h[i]);
	index_slot_retire(p.w, gone);
	for (unsigned i = 0; i < 60; i++)
		cr_assert(put(&p, live, more[i]), "an exact block always finds a place");
	for (unsigned i = 0; i < 128; i++)
		kept += index_has(p.w, live, h[i]);
	cr_assert_gt(index_head(p.reader)->evictions, 0u);
	/* Only where all four lanes of a home bucket are live is a live one lost. */
	cr_assert_geq(kept, 128u - 20u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, a_speculative_block_never_displaces_an_exact_holder)
{
	struct pair p;
	uint64_t h[600], more[300];
	unsigned refused = 0;

	pair_open(&p, 1, 40);
	hashes(8, h, 600);
	hashes(9, more, 300);
	uint16_t exact = take(&p, 1, INDEX_EXACT, INDEX_GPU),
		 guess = take(&p, 2, INDEX_SPECULATIVE, INDEX_GPU);
	for (unsigned i = 0; i < 600; i++)
		put(&p, exact, h[i]);
	uint64_t held = index_slot_held(p.w, exact), evictions = index_head(p.reader)->evictions;
	for (unsigned i = 0; i < 300; i++)
		refused += !put(&p, guess, more[i]);
	cr_assert_eq(index_slot_held(p.w, exact), held);
	cr_assert_gt(refused, 0u);
	cr_assert_eq(index_head(p.reader)->refused_speculative, refused);
	cr_assert_geq(index_head(p.reader)->evictions, evictions);
	for (unsigned i = 0; i < 300; i++)
		cr_assert(put(&p, exact, more[i]), "an exact one may");
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, overflow_counters_return_to_zero_with_the_keys_that_passed)
{
	struct pair p;
	struct index_audit a;
	uint64_t h[900];

	pair_open(&p, 1, 40);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	for (unsigned round = 0; round < 50; round++) {
		hashes(100 + round, h, 900);
		for (unsigned i = 0; i < 900; i++)
			put(&p, id, h[i]);
		for (unsigned i = 0; i < 900; i++)
			index_take(p.w, h[i], &id, 1);
	}
	cr_assert_eq(index_audit(p.reader, &a), 0);
	cr_assert_eq(a.entries, 0u);
	cr_assert_eq(a.overcounted, 0u, "else probes grow and counters saturate");
	pair_close(&p);
}

Test(index, a_hash_that_ends_in_forty_zeros_is_a_key_like_others)
{
	struct pair p;
	uint64_t h = 0xabcdef0000000000ull;

	pair_open(&p, 100, 40);
	uint16_t id = take(&p, 1, INDEX_EXACT, INDEX_GPU);
	cr_assert(put(&p, id, h));
	cr_assert_eq(depth_of(&p, 1, &h, 1).exact, 1u);
	writer_restart(&p);
	index_slot_retire(p.w, id);
	while (index_scrub(p.w, 100) > 0)
		;
	cr_assert_eq(index_head(p.reader)->entries, 0u);
	pair_close(&p);
}

/* ---- slots ---- */

Test(index, a_slot_is_seen_from_its_first_block_and_unseen_from_its_retirement)
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

Test(index, a_demoted_slot_is_probable_no_longer_sure)
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

Test(index, a_retired_id_is_free_only_after_its_whole_list_is_walked)
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

Test(index, with_no_free_id_the_shortest_retired_list_is_walked_at_once)
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
	index_slot_retire(p.w, a);
	index_slot_retire(p.w, b);
	cr_assert_eq(take(&p, 4, INDEX_EXACT, INDEX_GPU), b);
	cr_assert_eq(index_slot_held(p.w, a), 100u);
	pair_close(&p);
}

Test(index, the_list_of_a_slot_that_churns_stays_bounded_and_complete)
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
	cr_assert_leq(index_head(p.reader)->scrubbed - scrubbed, 4096u);
	cr_assert_eq(index_head(p.reader)->holders, 0u);
	pair_close(&p);
}

Test(index, a_speculative_slot_holds_a_bounded_number_of_blocks)
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
	cr_assert_eq(index_head(p.reader)->refused, 1000u);
	pair_close(&p);
}

/* ---- restart ---- */

Test(index, live_slots_and_their_blocks_outlive_the_writer)
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

Test(index, a_scrub_cut_short_by_a_restart_is_finished_by_the_next_writer)
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

Test(index, recovery_drops_lanes_no_writer_of_ours_made)
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
	struct index_audit a;
	cr_assert_eq(index_audit(p.reader, &a), 0);
	cr_assert(a.garbage == 0 && a.unreachable == 0 && a.saturated == 0 && a.overcounted == 0);
	pair_close(&p);
}

/* ---- attaching ---- */

Test(index, attach_refuses_a_header_with_any_field_of_the_geometry_changed)
{
	struct pair p;
	struct index *x;
	struct index_writer *w;

	pair_open(&p, 100, 200);
	char *bytes = (char *)p.seg.head;
	for (size_t at = 0; at < SEGMENT_BODY + 64; at++) {
		bool checked = at < 16 || (at >= 16 && at < 24) || (at >= 80 && at < 112) ||
			       (at >= SEGMENT_BODY && at < SEGMENT_BODY + 24) ||
			       (at >= SEGMENT_BODY + 32 && at < SEGMENT_BODY + 64);
		char was = bytes[at];

		if (!checked)
			continue;
		for (unsigned bit = 0; bit < 8; bit++) {
			bytes[at] = (char)(was ^ 1 << bit);
			int r = index_attach(&x, segment_readonly_fd(&p.seg));
			cr_assert(r == -EBADMSG || r == -ESTALE, "byte %zu bit %u: %d", at, bit, r);
			r = index_writer_open(&w, fd_of(&p.seg));
			cr_assert(r == -EBADMSG || r == -ESTALE, "byte %zu bit %u: %d", at, bit, r);
			bytes[at] = was;
		}
	}
	cr_assert_eq(index_attach(&x, segment_readonly_fd(&p.seg)), 0);
	index_detach(&x);
	pair_close(&p);
}

Test(index, making_refuses_numbers_that_cannot_be_meant)
{
	struct segment seg;

	cr_assert_eq(index_create(&seg, 100, 0, 1), -EINVAL);
	cr_assert_eq(index_create(&seg, 100, INDEX_MAX_SLOTS + 1, 1), -EINVAL);
	cr_assert_eq(index_create(&seg, UINT64_MAX, 40, 1), -EINVAL);
}

/* ---- whole workloads ---- */

#define ROWS    20u
#define CHAINS  12u
#define LENGTH  30u
#define SLOTS   (ROWS * 4)
#define BLOCKS  (CHAINS * LENGTH)

struct model {
	uint64_t hash[BLOCKS];                  /* chain by chain */
	uint16_t id[SLOTS];                   /* slot s: row s / 4; gpu, offload, two speculative */
	bool held[SLOTS][BLOCKS];               /* put and not taken since */
};

static void
slot_new(struct pair *p, struct model *m, unsigned s)
{
	m->id[s] = take(p, (uint16_t)(s / 4), s % 4 < 2 ? INDEX_EXACT : INDEX_SPECULATIVE,
			s % 4 == 1 ? INDEX_OFFLOAD : INDEX_GPU);
	memset(m->held[s], 0, sizeof m->held[s]);
}

/* What a match must say, from single questions to the writer. */
static void
match_agrees(struct pair *p, struct model *m, unsigned chain)
{
	struct index_depth depth[ROWS + 1];
	static const unsigned slots_of[3] = {4, 2, 1};  /* any, exact, gpu: the first so many */
	unsigned n = index_match(p->reader, &m->hash[chain * LENGTH], LENGTH, depth, ROWS + 1);
	unsigned found = 0;

	for (unsigned row = 0; row < ROWS; row++) {
		uint32_t want[3] = {0};

		for (unsigned kind = 0; kind < 3; kind++)
			for (unsigned b = 0, hole = 0; b < LENGTH && !hole; b++) {
				hole = 1;
				for (unsigned k = 0; k < slots_of[kind]; k++)
					if (index_has(p->w, m->id[row * 4 + k],
						      m->hash[chain * LENGTH + b]))
						hole = 0;
				want[kind] += !hole;
			}
		for (unsigned i = 0; i < n; i++)
			if (depth[i].row == row) {
				found++;
				cr_assert_eq(depth[i].any, want[0]);
				cr_assert_eq(depth[i].exact, want[1]);
				cr_assert_eq(depth[i].gpu, want[2]);
				want[0] = 0;
			}
		cr_assert_eq(want[0], 0u, "row %u is missing", row);
	}
	cr_assert_eq(found, n);
}

static void
workload(uint64_t seed, uint64_t blocks, uint32_t max_slots, bool roomy)
{
	static struct model m;
	struct pair p;
	uint64_t random = seed;

	pair_open(&p, blocks, max_slots);
	hashes(seed, m.hash, BLOCKS);
	for (unsigned s = 0; s < SLOTS; s++)
		slot_new(&p, &m, s);
	for (unsigned step = 0; step < 6000; step++) {
		unsigned s = (unsigned)(random_next(&random) % SLOTS),
			 chain = (unsigned)(random_next(&random) % CHAINS);
		unsigned from =
			random_next(&random) % 2 ? 0 : (unsigned)(random_next(&random) % LENGTH);
		unsigned to = from + (unsigned)(random_next(&random) % (LENGTH - from)) + 1;
		uint64_t what = random_next(&random) % 100;

		for (unsigned b = from; what < 90 && b < to; b++) {
			bool *held = &m.held[s][chain * LENGTH + b];

			if (what < 50) {
				unsigned other = s / 4 * 4 + 2 + s % 2;
				bool was = index_has(p.w, m.id[other], m.hash[chain * LENGTH + b]);
				bool done = index_put(p.w, m.id[s], m.hash[chain * LENGTH + b],
						      &m.id[other], 1);

				cr_assert(done || !roomy);
				if (done) {
					m.held[other][chain * LENGTH + b] = other == s;
					*held = true;
					cr_assert(index_has(p.w, m.id[s],
							    m.hash[chain * LENGTH + b]));
				} else {
					cr_assert_eq(index_has(p.w, m.id[other],
							       m.hash[chain * LENGTH + b]),
						     was, "a refusal changes nothing");
				}
			} else {
				index_take(p.w, m.hash[chain * LENGTH + b], &m.id[s], 1);
				*held = false;
				cr_assert(!index_has(p.w, m.id[s], m.hash[chain * LENGTH + b]));
			}
		}
		if (what >= 90 && what < 94) {
			index_slot_retire(p.w, m.id[s]);
			slot_new(&p, &m, s);
		} else if (what >= 94 && what < 99) {
			index_scrub(p.w, (unsigned)(random_next(&random) % 100));
		} else if (what == 99 && step % 4 == 0) {
			writer_restart(&p);
		}
		if (step % 16 == 0)
			match_agrees(&p, &m, chain);
		if (step % 500 == 0)
			audit_is_clean(&p, true);
	}
	for (unsigned s = 0; s < SLOTS; s++)
		for (unsigned b = 0; b < BLOCKS; b++) {
			bool has = index_has(p.w, m.id[s], m.hash[b]);

			cr_assert(roomy ? has == m.held[s][b] : !has || m.held[s][b],
				  "slot %u block %u", s, b);
		}
	if (!roomy)
		cr_assert_gt(index_head(p.reader)->evictions + index_head(p.reader)->refused, 0u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, with_room_it_holds_exactly_what_was_put_in_lists_and_pool)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		workload(seed, 8000, 90, true);
		workload(seed, 80000, 4095, true);
	}
}

Test(index, without_room_it_holds_no_more_than_what_was_put)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		workload(seed, 1, 90, false);
		workload(seed, 1, 6000, false);
	}
}
