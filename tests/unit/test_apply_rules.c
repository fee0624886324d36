/* tests/unit/test_apply_rules.c -- tiers, leases and lives: what stays true, and for how long. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "actors/kvevents/orphans.h"
#include "tests/unit/apply_world.h"

#define LEASE APPLY_LEASE_EVENTS_NS

/* ---- tiers ---- */

Test(apply_rules, cleared_forgets_the_tier_it_names)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens),
	    STORED(.hashes = p.engine, .n = 4, .medium = "CPU"));
	SAY(&w, 0, 1, CLEARED_OF("CPU"));
	cr_assert_eq(depth_of(&w, 0, &p).gpu, 4);
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine + 1, .n = 3));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1, "the offload tier was not cleared");
	SAY(&w, 0, 3, CLEARED_OF("GPU"));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	end(&w);
}

Test(apply_rules, a_gap_ends_only_when_every_tier_in_use_is_known_whole)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens),
	    STORED(.hashes = p.engine, .n = 2, .medium = "CPU"));
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine, .n = 1));     /* 1 is lost */
	apply_tick(w.apply, w.now += 2 * LEASE);                /* the demoted slots are gone */
	SAY(&w, 0, 3, CLEARED);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP, "what lies in the offload tier is not known");
	SAY(&w, 0, 4, CLEARED_OF("CPU"));
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	end(&w);
}

Test(apply_rules, a_tier_first_heard_of_after_a_gap_is_not_known_whole)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 7, CLEARED);                 /* we came late */
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	SAY(&w, 0, 8, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens),
	    STORED(.hashes = p.engine, .n = 2, .medium = "CPU"));
	cr_assert_eq(state_of(&w, 0), CACHE_GAP, "that tier was in use before we came");
	end(&w);
}

Test(apply_rules, a_clear_of_one_tier_keeps_the_orphans_of_another)
{
	struct orphans *o;

	cr_assert_eq(orphans_new(&o), 0);
	cr_assert_eq(orphans_add(o, 1, 100, 7, 0, true), 0);
	cr_assert_eq(orphans_add(o, 2, 1, 8, 1, true), 0);
	orphans_clear_tier(o, 0);
	cr_assert_eq(orphans_size(o), 1);
	cr_assert(orphans_remove(o, 2, 1));
	cr_assert_eq(orphans_size(o), 0);
	orphans_free(&o);
}

Test(apply_rules, a_ghost_goes_with_the_last_child_it_links)
{
	struct orphans *o;

	cr_assert_eq(orphans_new(&o), 0);
	for (uint64_t i = 1; i <= 3; i++)
		cr_assert_eq(orphans_add(o, i, i - 1 ? i - 1 : 100, i, 0, true), 0);
	cr_assert(orphans_remove(o, 1, 0));
	cr_assert(orphans_remove(o, 2, 0));
	cr_assert_eq(orphans_size(o), 3, "both link the third");
	cr_assert(orphans_remove(o, 3, 0));
	cr_assert_eq(orphans_size(o), 0, "nobody is left to be linked");
	orphans_free(&o);
}

Test(apply_rules, without_a_free_id_the_demoted_slot_gives_way_to_the_fresh_one)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 1);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 2, STORED(.hashes = q.engine, .n = 3, .tokens = q.tokens));
	cr_assert_eq(depth_of(&w, 0, &q).exact, 3);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	SAY(&w, 1, 0, STORED(.hashes = q.engine, .n = 3, .tokens = q.tokens));
	cr_assert_eq(depth_of(&w, 1, &q).any, 0, "there is one id");
	cr_assert_eq(depth_of(&w, 0, &q).exact, 3);
	end(&w);
}

/* ---- what is lost on the way ---- */

Test(apply_rules, a_removal_nobody_can_read_makes_what_was_sure_probable)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine + 4, .n = 1, .parent = p.engine[3],
		   .tokens = p.tokens + 4 * BLOCK),
	    BROKEN());
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(depth_of(&w, 0, &p).any, 5, "its neighbours count");
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	end(&w);
}

Test(apply_rules, the_sequence_number_that_ends_a_replay_is_no_batch)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 0, UINT64_MAX, CLEARED);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	cr_assert_eq(atomic_load(&w.rows.row[0].failed), 1);
	end(&w);
}

Test(apply_rules, another_publisher_is_another_life)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	say_as(&w, 0, 0, "one", (struct event[]){STORED(.hashes = p.engine, .n = 4,
							 .tokens = p.tokens)}, 1);
	say_as(&w, 0, 1, "two", (struct event[]){STORED(.hashes = q.engine, .n = 2,
							 .tokens = q.tokens)}, 1);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 0, &q).exact, 2);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP, "what its first batches said is not known");
	cr_assert_eq(reason_of(&w, 0), REASON_PUBLISHER);
	end(&w);
}

/* ---- leases ---- */

Test(apply_rules, in_a_gap_what_is_sent_there_counts_for_the_approximate_lease)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 5, STORED(.hashes = q.engine, .n = 1, .tokens = q.tokens));
	apply_tick(w.apply, w.now += APPLY_LEASE_SILENT_NS);    /* the rotation begins anew */
	note(&w, 0, 1, &p, 4);
	apply_tick(w.apply, w.now += LEASE);
	apply_tick(w.apply, w.now += LEASE);
	cr_assert_eq(depth_of(&w, 0, &p).any, 4);
	SAY(&w, 0, 6, CLEARED);
	note(&w, 0, 2, &p, 4);
	apply_tick(w.apply, w.now += APPLY_LEASE_SILENT_NS);
	note(&w, 0, 3, &p, 4);
	cr_assert_eq(depth_of(&w, 0, &p).any, 4);
	apply_tick(w.apply, w.now += LEASE);
	apply_tick(w.apply, w.now += LEASE);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0, "its events can be believed again");
	end(&w);
}

Test(apply_rules, a_demoted_slot_expires_though_its_writer_was_reborn_every_second)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	for (unsigned s = 0; s < 32; s++) {
		dies(&w);
		w.now += LEASE_S(1);
		born(&w);
		apply_tick(w.apply, w.now);
		if (s < 28)
			cr_assert_eq(depth_of(&w, 0, &p).any, 4, "second %u", s);
	}
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	end(&w);
}

Test(apply_rules, what_was_routed_expires_though_its_writer_was_reborn_every_ten_seconds)
{
	struct world w;
	struct prompt p;
	unsigned lived = 0;

	begin(&w, 60);
	prompt_make(&p, 100);
	note(&w, 0, 1, &p, 4);
	for (unsigned s = 0; s < 200; s += 10) {
		lived += depth_of(&w, 0, &p).any == 4;
		dies(&w);
		w.now += LEASE_S(10);
		born(&w);
		apply_tick(w.apply, w.now);
	}
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_geq(lived, 6, "half a lease is the least");
	cr_assert_leq(lived, 13);
	end(&w);
}

/* ---- lives of ours ---- */

Test(apply_rules, a_batch_with_the_last_ones_number_is_seen_to_be_half_applied)
{
	struct world w;
	struct row *row;
	struct prompt p;

	begin(&w, 60);
	row = &w.rows.row[0];
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	/* Another life of the engine says 0 too; its batch ends while the engine is forgotten. */
	SAY(&w, 0, 0, CLEARED);
	cr_assert_eq(atomic_load(&row->applied_seq), 1);
	cr_assert_eq(atomic_load(&row->open_seq), 1);
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	note(&w, 0, 1, &p, 8);
	atomic_store(&row->applied_seq, 0);     /* as it stands while such a batch is applied */
	dies(&w);
	born(&w);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(reason_of(&w, 0), REASON_HALF_BATCH);
	end(&w);
}

Test(apply_rules, a_number_our_predecessor_heard_last_is_another_life_and_no_duplicate)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	dies(&w);
	born(&w);
	SAY(&w, 0, 0, STORED(.hashes = q.engine, .n = 4, .tokens = q.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 0, &q).exact, 4);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	end(&w);
}

Test(apply_rules, after_half_a_batch_the_block_size_is_learned_anew)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	/* Died while a new life of the engine, with shorter blocks, spoke for the first time. */
	atomic_store(&w.rows.row[0].applied_seq, 0);
	dies(&w);
	born(&w);
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .block = 8));
	cr_assert_eq(depth_in(&w, 0, &p, 8, NULL, NULL).exact, 4);
	end(&w);
}

Test(apply_rules, a_row_taken_away_while_nobody_was_here_holds_nothing)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	note(&w, 0, 1, &p, 6);
	dies(&w);
	atomic_store(&w.rows.row[0].intent, INTENT_REMOVE);
	cr_assert_eq(index_writer_open(&w.writer, dup(w.seg.fd)), 0);
	cr_assert_eq(apply_new(&w.apply, w.writer, &w.rows, &w.process), 0);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	while (index_scrub(w.writer, 1000) > 0)
		;
	cr_assert_eq(atomic_load(&index_head(w.reader)->entries), 0);
	cr_assert_eq(atomic_load(&w.rows.row[0].slot_gpu), 0);
	end(&w);
}

Test(apply_rules, a_row_that_came_again_while_nobody_was_here_begins_with_nothing)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 4, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	apply_tick(w.apply, w.now += 10 * LEASE);
	SAY(&w, 0, 5, CLEARED);                 /* it has no slot */
	dies(&w);
	atomic_store(&w.rows.row[0].row_gen, 2);
	born(&w);
	cr_assert_eq(state_of(&w, 0), CACHE_NONE);
	cr_assert_eq(atomic_load(&w.rows.row[0].seen_seq), 0);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	cr_assert_eq(atomic_load(&w.rows.row[0].restarts), 0);
	end(&w);
}

Test(apply_rules, a_row_whose_events_are_no_longer_followed_is_sure_of_nothing)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(apply_row_open(w.apply, 0, false, w.now), 0);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(state_of(&w, 0), CACHE_APPROXIMATE);
	cr_assert_eq(apply_row_open(w.apply, 0, true, w.now), 0);
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP, "removals in between were not heard");
	end(&w);
}

/* ---- what it may cost ---- */

#define MANY 4096u

/* `n` blocks in one chain, of a prompt of their own. */
static void
store_many(struct world *w, uint16_t row, uint64_t *seq, uint32_t first, unsigned n)
{
	static uint32_t tokens[MANY * BLOCK];
	static uint64_t hash[MANY];

	for (unsigned i = 0; i < n * BLOCK; i++)
		tokens[i] = first + i;
	for (unsigned i = 0; i < n; i++)
		hash[i] = first * 1000003ull + i + 1;
	SAY(w, row, (*seq)++, STORED(.hashes = hash, .n = n, .tokens = tokens));
}

static uint64_t
counted(const struct world *w, enum counter c)
{
	return count_get(&w->process, c);
}

static uint32_t
held(const struct world *w, uint16_t row)
{
	return index_slot_held(w->writer, atomic_load(&w->rows.row[row].slot_gpu));
}

Test(apply_budget, one_worker_cannot_take_the_memory_of_the_others)
{
	struct world w;
	struct prompt p;
	uint64_t seq[ROWS] = {0};

	begin(&w, 60);
	prompt_make(&p, 100);
	apply_limit(w.apply, 256 << 10);
	for (unsigned i = 0; i < 4; i++)
		store_many(&w, 0, &seq[0], 1000000 * (i + 1), MANY);
	cr_assert_lt(held(&w, 0), 4 * MANY);
	cr_assert_eq(held(&w, 0) + counted(&w, COUNTER_index_private_full), 4 * MANY);
	apply_tick(w.apply, w.now);
	cr_assert_gt(counted(&w, COUNTER_kvevents_private_bytes), 64u << 10);
	cr_assert_leq(counted(&w, COUNTER_kvevents_private_bytes), 192u << 10);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	for (uint16_t row = 1; row < ROWS; row++) {
		SAY(&w, row, 0, STORED(.hashes = p.engine, .n = 8, .tokens = p.tokens));
		cr_assert_eq(depth_of(&w, row, &p).exact, 8, "row %u got nothing", row);
	}
	/* What was refused comes back as nothing; what was taken up is still removed. */
	SAY(&w, 0, seq[0]++, CLEARED);
	while (index_scrub(w.writer, 1000) > 0)
		;
	apply_tick(w.apply, w.now);
	cr_assert_lt(counted(&w, COUNTER_kvevents_private_bytes), 64u << 10);
	SAY(&w, 0, seq[0]++, STORED(.hashes = p.engine, .n = 8, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 8);
	end(&w);
}

Test(apply_budget, a_block_that_found_no_room_is_not_held_and_its_removal_harms_nobody)
{
	struct world w;
	struct prompt p;
	uint64_t seq = 0, refused;

	begin(&w, 60);
	prompt_make(&p, 100);
	apply_limit(w.apply, 64 << 10);
	store_many(&w, 0, &seq, 1000000, MANY);
	refused = counted(&w, COUNTER_index_private_full);
	cr_assert_gt(refused, 0);
	SAY(&w, 0, seq++, STORED(.hashes = p.engine, .n = 8, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(counted(&w, COUNTER_index_private_full), refused + 8);
	apply_limit(w.apply, 0);                /* the operator gives more */
	SAY(&w, 0, seq++, STORED(.hashes = p.engine, .n = 8, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 8);
	SAY(&w, 0, seq++, REMOVED(.hashes = p.engine + 4, .n = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "one copy was known, and one went");
	end(&w);
}

Test(apply_budget, orphans_give_way_to_newer_ones_where_they_may_not_grow)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	apply_limit(w.apply, 64 << 10);
	for (uint64_t i = 0; i < 1000; i++)
		SAY(&w, 0, i + 1, STORED(.hashes = (uint64_t[]){5000 + i}, .n = 1,
					 .parent = 100000 + i, .tokens = p.tokens));
	apply_tick(w.apply, w.now);
	cr_assert_gt(counted(&w, COUNTER_orphans), 200);
	cr_assert_eq(counted(&w, COUNTER_orphans) + counted(&w, COUNTER_orphans_dropped), 1000);
	cr_assert_leq(counted(&w, COUNTER_kvevents_private_bytes), 64u << 10);
	end(&w);
}

Test(apply_budget, what_is_sent_there_stays_within_it_too)
{
	struct world w;
	uint64_t hash[MANY];
	struct msg_routed m = {.seq = 1, .row = 0, .row_gen = 1, .block_tokens = BLOCK,
			       .hashes = {(const char *)hash, sizeof hash}};

	begin(&w, 60);
	apply_limit(w.apply, 16 << 10);
	for (uint64_t i = 0; i < MANY; i++)
		hash[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
	apply_note(w.apply, &m);
	apply_tick(w.apply, w.now);
	uint32_t took = index_slot_held(w.writer, atomic_load(&w.rows.row[0].slot_spec_cur));

	cr_assert_gt(took, 100);
	cr_assert_eq(took + counted(&w, COUNTER_index_private_full), MANY);
	cr_assert_leq(counted(&w, COUNTER_kvevents_private_bytes), 16u << 10);
	end(&w);
}

Test(apply_budget, a_list_full_of_what_is_gone_makes_room_without_growing)
{
	enum { PART = MANY / 2 + MANY / 16 };
	static uint64_t last[PART];
	struct world w;
	uint64_t seq = 0, bytes;

	begin(&w, 60);
	store_many(&w, 0, &seq, 9000000, MANY);
	store_many(&w, 0, &seq, 1000000, MANY);
	apply_tick(w.apply, w.now);
	bytes = counted(&w, COUNTER_kvevents_private_bytes);
	apply_limit(w.apply, bytes / 3 * 4 + 4096);     /* not one doubling more */
	for (unsigned i = 0; i < PART; i++)
		last[i] = 1000000 * 1000003ull + MANY - PART + i + 1;
	for (uint32_t turn = 0; turn < 5; turn++) {
		SAY(&w, 0, seq++, REMOVED(.hashes = last, .n = PART));
		cr_assert_eq(held(&w, 0), 2 * MANY - PART);
		store_many(&w, 0, &seq, 200000000 + turn * 1000000, PART);
		cr_assert_eq(held(&w, 0), 2 * MANY);
		for (unsigned i = 0; i < PART; i++)
			last[i] = (200000000 + turn * 1000000) * 1000003ull + i + 1;
	}
	cr_assert_eq(counted(&w, COUNTER_index_private_full), 0);
	store_many(&w, 0, &seq, 3000000, MANY);
	store_many(&w, 0, &seq, 5000000, MANY);
	cr_assert_gt(counted(&w, COUNTER_index_private_full), 0, "the limit was not reached");
	end(&w);
}

Test(apply_budget, without_a_free_id_what_is_not_taken_up_is_counted)
{
	struct world w;
	struct prompt p;

	begin(&w, 1);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 3, .tokens = p.tokens));
	note(&w, 1, 1, &p, 5);
	cr_assert_eq(counted(&w, COUNTER_index_ids_short), 3 + 5);
	end(&w);
}

Test(apply_budget, a_worker_that_stores_without_end_leaves_others_a_quarter_of_the_table)
{
	struct world w;
	uint64_t seq = 0;
	unsigned most;

	begin(&w, 60);
	most = (unsigned)index_head(w.reader)->nbuckets * 3;
	for (unsigned n = 0; n < most + MANY; n += MANY)
		store_many(&w, 0, &seq, 1000000 + n * BLOCK, MANY);
	cr_assert_eq(counted(&w, COUNTER_index_row_full), seq * MANY - most);
	end(&w);
}

/* ---- prompts in its events ---- */

static void
chains_are(const struct world *w, uint64_t routed, uint64_t stored)
{
	cr_assert_eq(w->rows.row[0].chains_routed, routed);
	cr_assert_eq(w->rows.row[0].chains_stored, stored);
}

Test(apply_rules, a_prompt_that_was_sent_is_looked_for_in_the_events_by_its_last_block)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 200);
	note(&w, 0, 1, &p, 4);
	note(&w, 0, 2, &q, 4);
	apply_tick(w.apply, w.now += 2000000000ull);
	chains_are(&w, 0, 0);                   /* it may still be computed */
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	apply_tick(w.apply, w.now += 2000000000ull);
	chains_are(&w, 1, 1);
	SAY(&w, 0, 1, STORED(.hashes = q.engine, .n = 3, .tokens = q.tokens));
	apply_tick(w.apply, w.now += 40000000000ull);
	chains_are(&w, 2, 1);                   /* all but its last block is not all of it */
	apply_tick(w.apply, w.now += 40000000000ull);
	chains_are(&w, 2, 1);
	end(&w);
}

Test(apply_rules, no_more_prompts_are_looked_for_than_there_is_room)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	for (unsigned i = 0; i < 100; i++) {
		prompt_make(&p, 100 + i * 1000);
		note(&w, 0, i + 1, &p, 2);
	}
	apply_tick(w.apply, w.now += 40000000000ull);
	chains_are(&w, 32, 0);
	end(&w);
}
