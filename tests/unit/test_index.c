/* tests/unit/test_index.c -- shm/index.h: matching, the forms of a set, full tables, attaching; its
 * rules as sentences.  Crash points and concurrency are in tests/race. */
#include "tests/unit/index_pair.h"

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
	for (unsigned f = 0; f < FORMS; f++) {
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
	for (unsigned f = 0; f < FORMS; f++) {
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
	for (unsigned f = 0; f < FORMS; f++) {
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

Test(index, put_unless_leaves_alone_what_that_slot_holds)
{
	for (unsigned f = 0; f < FORMS; f++) {
		struct pair p;

		pair_open(&p, 100, forms[f]);
		uint16_t older = take(&p, 1, INDEX_SPECULATIVE, INDEX_GPU);
		uint16_t newer = take(&p, 1, INDEX_SPECULATIVE, INDEX_GPU);
		uint16_t exact = take(&p, 1, INDEX_EXACT, INDEX_GPU);
		put(&p, exact, 1);
		put(&p, older, 1);
		put(&p, older, 2);
		for (uint64_t h = 1; h <= 3; h++)
			cr_assert(index_put_unless(p.w, exact, newer, h, &older, 1));
		cr_assert(!index_has(p.w, newer, 1) && index_has(p.w, older, 1));
		cr_assert(index_has(p.w, newer, 2) && !index_has(p.w, older, 2));
		cr_assert(index_has(p.w, newer, 3), "nobody's until now");
		cr_assert(index_put_unless(p.w, 0, newer, 1, &older, 1));
		cr_assert(index_has(p.w, newer, 1) && !index_has(p.w, older, 1));
		audit_is_clean(&p, true);
		pair_close(&p);
	}
}

/* Ids in a list and in a chunk of class 0 (0: no such class) by size of the index. */
static const struct { uint32_t max_slots; unsigned list, small; } grown[] = {
	{200, 5, 0}, {511, 5, 0}, {512, 5, 40}, {4094, 5, 40}, {4095, 3, 64}, {9000, 3, 64}};
#define GROWN (sizeof grown / sizeof grown[0])

static void
pools_hold(const struct pair *p, unsigned small, unsigned bitmap, unsigned holders)
{
	cr_assert_eq(index_head(p->reader)->pool_used[0], small, "%u holders", holders);
	cr_assert_eq(index_head(p->reader)->pool_used[1], bitmap, "%u holders", holders);
}

Test(index, a_set_grows_from_list_to_class_0_to_class_1_and_comes_back_at_half)
{
	for (unsigned f = 0; f < GROWN; f++) {
		struct pair p;
		unsigned list = grown[f].list, small = grown[f].small, top = small + 30;
		uint16_t id[100], got[100];

		pair_open(&p, 100, grown[f].max_slots);
		for (unsigned n = 1; n <= top; n++) {
			uint64_t quarantine = n > small && small != 0;

			id[n - 1] = take(&p, (uint16_t)n, INDEX_EXACT, INDEX_GPU);
			cr_assert(put(&p, id[n - 1], 5));
			pools_hold(&p, (n > list && n <= small) || quarantine ? 1 : 0,
				   n > list && n > small ? 1 : 0, n);
			cr_assert_eq(index_holders(p.reader, 5, got, 100), n);
			audit_is_clean(&p, true);
		}
		for (unsigned left = top; left-- > 1;) {
			/* In quarantine a chunk counts; a restart tells what is really used. */
			index_take(p.w, 5, &id[left], 1);
			writer_restart(&p);
			pools_hold(&p, left > list / 2 && left <= small / 2 ? 1 : 0,
				   left > list / 2 && left > small / 2 ? 1 : 0, left);
			cr_assert_eq(index_holders(p.reader, 5, got, 100), left);
			for (unsigned i = 0; i < top; i++)
				cr_assert_eq(index_has(p.w, id[i], 5), i < left);
			audit_is_clean(&p, true);
		}
		pair_close(&p);
	}
}

Test(index, a_set_that_goes_up_and_down_its_forms_for_ever_loses_no_chunk)
{
	for (unsigned f = 0; f < GROWN; f++) {
		struct pair p;
		unsigned top = grown[f].small + 10;
		uint16_t id[74];

		pair_open(&p, 100, grown[f].max_slots);
		for (unsigned i = 0; i < top; i++)
			id[i] = take(&p, (uint16_t)i, INDEX_EXACT, INDEX_GPU);
		for (unsigned round = 0; round < 300; round++) {        /* 128 chunks a class */
			for (unsigned i = 0; i < top; i++)
				cr_assert(put(&p, id[i], 5), "round %u id %u", round, i);
			for (unsigned i = top; i > round % 2; i--)      /* un-keyed, or a list */
				index_take(p.w, 5, &id[i - 1], 1);
		}
		for (unsigned c = 0; c < INDEX_CLASSES; c++)
			cr_assert_leq(index_head(p.reader)->pool_used[c], 65u);
		audit_is_clean(&p, true);
		pair_close(&p);
	}
}

Test(index, an_id_of_class_0_takes_the_place_of_one_that_goes_in_the_same_word)
{
	struct pair p;
	uint16_t id[12], got[16];

	pair_open(&p, 100, 1000);
	for (uint16_t i = 0; i < 12; i++)
		id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
	for (uint16_t i = 0; i < 10; i++)
		put(&p, id[i], 5);

	const uint64_t *chunk = (const void *)((const char *)p.seg.head +
					       index_head(p.reader)->pool[0].off_chunks);
	uint64_t was[8];

	memcpy(was, chunk, sizeof was);
	cr_assert(index_put(p.w, id[10], 5, &id[7], 1));
	cr_assert_eq(chunk[0], was[0]);
	cr_assert_neq(chunk[1], was[1], "id 7 stood there, not in order");
	cr_assert_eq(chunk[2], 0u, "no other place was used");
	/* Two of different words: the new id in the one, the other cleared after. */
	cr_assert(index_put(p.w, id[11], 5, (uint16_t[]){id[0], id[9]}, 2));
	cr_assert_eq(index_holders(p.reader, 5, got, 16), 9u);
	for (unsigned i = 0; i < 12; i++)
		cr_assert_eq(index_has(p.w, id[i], 5), i != 0 && i != 7 && i != 9);
	cr_assert(index_put(p.w, id[11], 5, &id[1], 1), "known already: id 1 goes all the same");
	cr_assert(!index_has(p.w, id[1], 5));
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, taking_every_holder_of_a_pooled_set_empties_the_lane)
{
	for (unsigned f = 0; f < GROWN; f++)
		for (uint16_t n = 20; n <= 100; n = (uint16_t)(n + 40)) {
			struct pair p;
			uint16_t id[100];

			pair_open(&p, 100, grown[f].max_slots);
			for (uint16_t i = 0; i < n; i++)
				put(&p, id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU), 5);
			index_take(p.w, 5, id, n);
			cr_assert_eq(index_writer_head(p.w)->entries, 0u);
			cr_assert_eq(index_writer_head(p.w)->holders, 0u);
			audit_is_clean(&p, true);
			writer_restart(&p);
			pools_hold(&p, 0, 0, 0);
			pair_close(&p);
		}
}

Test(index, a_full_pool_keeps_what_is_there_and_says_so)
{
	for (unsigned f = 0; f < GROWN; f++) {
		struct pair p;
		unsigned list = grown[f].list, class = grown[f].small ? 0 : 1, refused = 0;
		uint16_t id[6];
		uint64_t h[200];

		pair_open(&p, 100, grown[f].max_slots);
		hashes(5, h, 150);
		for (uint16_t i = 0; i <= list; i++)
			id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
		for (unsigned b = 0; b < 150; b++)
			for (unsigned i = 0; i <= list; i++)
				refused += !put(&p, id[i], h[b]);
		cr_assert_eq(refused, 150 - index_head(p.reader)->pool[class].chunks);
		cr_assert_eq(index_head(p.reader)->refused[class ? INDEX_CAUSE_CLASS_1
								 : INDEX_CAUSE_CLASS_0],
			     refused);
		cr_assert_eq(index_refused(index_head(p.reader)), refused);
		for (unsigned b = 0; b < 150; b++)
			for (unsigned i = 0; i < list; i++)
				cr_assert(index_has(p.w, id[i], h[b]));
		audit_is_clean(&p, true);
		pair_close(&p);
	}
}

Test(index, a_full_class_1_keeps_the_chunk_of_ids_and_says_so)
{
	struct pair p;
	unsigned refused = 0;
	uint16_t id[41];
	uint64_t h[150];

	pair_open(&p, 1500, 1000);              /* 133 chunks of class 0, 128 of class 1 */
	hashes(5, h, 150);
	for (uint16_t i = 0; i < 41; i++)
		id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
	for (unsigned b = 0; b < 132; b++)
		for (unsigned i = 0; i < 41; i++)
			refused += !put(&p, id[i], h[b]);
	cr_assert_eq(refused, 132 - index_head(p.reader)->pool[1].chunks);
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_CLASS_1], refused);
	cr_assert_eq(index_refused(index_head(p.reader)), refused);
	cr_assert(!put(&p, id[40], h[131]));
	for (unsigned b = 0; b < 132; b++)
		for (unsigned i = 0; i < 40; i++)
			cr_assert(index_has(p.w, id[i], h[b]));
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, a_bitmap_with_no_chunk_of_ids_to_shrink_into_stays_a_bitmap_until_it_is_a_list)
{
	struct pair p;
	uint16_t id[41];
	uint64_t h[400];
	unsigned b = 0;

	pair_open(&p, 1500, 1000);
	hashes(5, h, 400);
	for (uint16_t i = 0; i < 41; i++)
		put(&p, id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU), h[0]);
	while (index_refused(index_head(p.reader)) == 0)
		for (unsigned i = ++b > 399 ? 6 : 0; i < 6; i++)
			put(&p, id[i], h[b]);
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_CLASS_0], 1u);
	for (unsigned i = 40; i > 2; i--) {
		cr_assert_eq(index_head(p.reader)->pool_used[1], 1u);
		index_take(p.w, h[0], &id[i], 1);
		cr_assert(!index_has(p.w, id[i], h[0]) && index_has(p.w, id[0], h[0]));
	}
	index_take(p.w, h[0], &id[2], 1);
	writer_restart(&p);
	cr_assert_eq(index_head(p.reader)->pool_used[1], 0u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index, ids_that_wait_for_the_scrub_make_room_before_a_chunk_is_spent)
{
	for (unsigned f = 0; f < GROWN; f++)
		for (unsigned class = 0; class < 2; class++) {
			struct pair p;
			unsigned full = class == 0 ? grown[f].list : grown[f].small;
			uint16_t id[65];

			if (full == 0)
				continue;
			pair_open(&p, 100, grown[f].max_slots);
			for (uint16_t i = 0; i <= full; i++)
				id[i] = take(&p, i, INDEX_EXACT, INDEX_GPU);
			for (uint16_t i = 0; i < full; i++)
				put(&p, id[i], 5);
			index_slot_retire(p.w, id[2]);
			cr_assert(put(&p, id[full], 5));
			pools_hold(&p, class, 0, full);
			cr_assert_eq(index_slot_held(p.w, id[2]), 0u);
			audit_is_clean(&p, true);
			pair_close(&p);
		}
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
	uint64_t evicted = index_head(p.reader)->evicted, held = index_slot_held(p.w, live);
	for (unsigned i = 0; i < 60; i++)
		cr_assert(put(&p, live, more[i]), "an exact block always finds a place");
	for (unsigned i = 0; i < 128; i++)
		kept += index_has(p.w, live, h[i]);
	cr_assert_gt(index_head(p.reader)->evictions, 0u);
	cr_assert_eq(index_head(p.reader)->evicted - evicted,
		     held + 60 - index_slot_held(p.w, live), "live holders lost are counted");
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
	cr_assert_eq(index_head(p.reader)->refused[INDEX_CAUSE_SPECULATIVE], refused);
	cr_assert_eq(index_refused(index_head(p.reader)), refused);
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

/* ---- attaching ---- */

Test(index, attach_refuses_a_header_with_any_field_of_the_geometry_changed)
{
	struct pair p;
	struct index *x;
	struct index_writer *w;

	pair_open(&p, 100, 200);
	char *bytes = (char *)p.seg.head;
	for (size_t at = 0; at < SEGMENT_BODY + 128; at++) {
		bool checked = at < 16 || (at >= 16 && at < 24) || (at >= 80 && at < 112) ||
			       (at >= SEGMENT_BODY && at < SEGMENT_BODY + 16) ||
			       (at >= SEGMENT_BODY + 24 && at < SEGMENT_BODY + 40) ||
			       (at >= SEGMENT_BODY + 64 && at < SEGMENT_BODY + 92) ||
			       (at >= SEGMENT_BODY + 96 && at < SEGMENT_BODY + 124);
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
