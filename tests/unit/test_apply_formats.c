/* tests/unit/test_apply_formats.c -- what engines of every kind say, and what is believed of it:
 * groups, tiers, adapters, extra keys, ranks; the published cases KV-10 to KV-12 and TK-01. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/apply_world.h"

static struct row *
row(struct world *w, uint16_t id)
{
	return &w->rows.row[id];
}

/* The cases' prompt: blocks 1001.., 2001.., 3001.. */
static void
case_prompt(struct prompt *p)
{
	for (uint32_t block = 0; block < PROMPT_BLOCKS; block++)
		for (uint32_t i = 0; i < BLOCK; i++)
			p->tokens[block * BLOCK + i] = 1001 + 1000 * block + i;
}

/* ---- groups ---- */

Test(apply_formats, kv11_only_the_full_attention_group_is_credited)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	case_prompt(&p);
	say_case(&w, 0, 0, "kv/kv11_groups");
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1);
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 1, "one block of one group");
	cr_assert_eq(atomic_load(&row(&w, 0)->event_block_tokens), BLOCK);
	cr_assert(atomic_load(&row(&w, 0)->troubles) & 1u << TROUBLE_GROUP, "future_kind");
	end(&w);
}

Test(apply_formats, the_full_group_counts_though_a_windowed_one_with_a_lower_number_came_first)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0,
	    STORED(.hashes = p.engine + 8, .n = 6, .tokens = p.tokens, .group = 1,
		   .kind = "sliding_window"),
	    STORED(.hashes = p.engine + 16, .n = 2, .tokens = p.tokens, .group = 2, .block = 32,
		   .kind = "mamba"),
	    STORED(.hashes = p.engine, .n = 3, .tokens = p.tokens, .group = 3,
		   .kind = "mla_attention"));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 3);
	SAY(&w, 0, 1, REMOVED(.hashes = p.engine, .n = 3, .group = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 3);
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine + 2, .n = 1, .group = 3));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2);
	end(&w);
}

Test(apply_formats, a_group_that_says_it_is_full_replaces_one_that_says_nothing)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine + 8, .n = 8, .tokens = p.tokens, .group = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 8);
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens, .block = 32, .group = 2,
		   .kind = "full_attention"));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_in(&w, 0, &p, 32, NULL, NULL).exact, 2);
	SAY(&w, 0, 2,
	    STORED(.hashes = p.engine + 8, .n = 8, .tokens = p.tokens, .group = 1),
	    STORED(.hashes = p.engine + 20, .n = 4, .tokens = p.tokens, .block = 32, .group = 4,
		   .kind = "full_attention"));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_in(&w, 0, &p, 32, NULL, NULL).exact, 2, "one full group is enough");
	end(&w);
}

/* ---- tiers ---- */

Test(apply_formats, kv12_a_placeholder_moves_a_known_block_and_others_are_not_guessed)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	case_prompt(&p);
	say_case(&w, 0, 0, "kv/kv12_offload");
	cr_assert_eq(depth_of(&w, 0, &p).gpu, 0);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1, "h1 is on the CPU; h2 - h4 came without keys");
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	cr_assert_eq(atomic_load(&row(&w, 0)->failed), 0);
	end(&w);
}

Test(apply_formats, offloaded_blocks_whose_keys_are_not_said_are_not_taken_for_everybodys)
{
	struct world w;
	struct prompt p, q;

	begin(&w, 60);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	SAY(&w, 0, 0,
	    STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .medium = "CPU"),
	    STORED(.hashes = q.engine, .n = 4, .tokens = q.tokens, .medium = "CPU", .keys = true));
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 0, &q).exact, 4, "its keys are said: none");
	cr_assert_eq(depth_of(&w, 0, &q).gpu, 0);
	end(&w);
}

Test(apply_formats, how_many_blocks_an_engine_offloads_as_one_divides_all_it_announces)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 24, .tokens = p.tokens));
	cr_assert_eq(atomic_load(&row(&w, 0)->offload_chunk), 0, "the GPU's say nothing");
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 12, .medium = "CPU"));
	cr_assert_eq(atomic_load(&row(&w, 0)->offload_chunk), 12);
	SAY(&w, 0, 2, STORED(.hashes = p.engine + 12, .n = 8, .medium = "STORAGE"));
	cr_assert_eq(atomic_load(&row(&w, 0)->offload_chunk), 4);
	SAY(&w, 0, 3, STORED(.hashes = p.engine + 20, .n = 3, .medium = "CPU"));
	cr_assert_eq(atomic_load(&row(&w, 0)->offload_chunk), 1);
	/* Another life may be configured otherwise. */
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 8, .tokens = p.tokens));
	cr_assert_eq(atomic_load(&row(&w, 0)->offload_chunk), 0);
	/* Where it says how many tokens one hash stands for. */
	SAY(&w, 0, 1,
	    STORED(.hashes = p.engine + 3, .n = 1, .tokens = p.tokens, .block = 4 * BLOCK,
		   .medium = "CPU"));
	cr_assert_eq(atomic_load(&row(&w, 0)->offload_chunk), 4);
	end(&w);
}

Test(apply_formats, a_tier_of_which_no_removal_is_ever_heard_is_believed_for_a_lease)
{
	struct world w;
	struct prompt p;
	mono_ns born = clock_mono();

	begin(&w, 60);
	prompt_make(&p, 100);
	for (uint16_t id = 0; id < 2; id++)
		SAY(&w, id, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens),
		    STORED(.hashes = p.engine, .n = 4, .medium = "CPU"),
		    REMOVED(.hashes = p.engine, .n = 4));
	SAY(&w, 1, 1, REMOVED(.hashes = p.engine + 3, .n = 1, .medium = "CPU"));
	apply_tick(w.apply, born);
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4);
	apply_tick(w.apply, born + APPLY_LEASE_TIER_NS + LEASE_S(60));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 0);
	cr_assert_eq(depth_of(&w, 0, &p).any, 4, "probable for one lease more");
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT, "nothing was missed");
	cr_assert_eq(depth_of(&w, 1, &p).exact, 3, "this one says what it loses");
	SAY(&w, 0, 1, STORED(.hashes = p.engine, .n = 2, .medium = "CPU"));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2, "announced again");
	apply_tick(w.apply, born + 2 * APPLY_LEASE_TIER_NS + LEASE_S(120));
	cr_assert_eq(depth_of(&w, 0, &p).any, 2);
	end(&w);
}

/* ---- adapters and keys ---- */

Test(apply_formats, tk01_base_and_adapters_never_share_the_same_tokens)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	case_prompt(&p);
	say_case(&w, 0, 0, "tk/tk01_lora");
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 3);
	cr_assert_eq(atomic_load(&index_head(w.reader)->entries), 3);
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, "adapter-a", NULL).exact, 1);
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, NULL, NULL).exact, 1);
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, "adapter-b", NULL).exact, 0, "an image is in it");
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, "adapter-b", "salt-1").exact, 0);
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, "adapter-c", NULL).exact, 0);
	end(&w);
}

/* [1, [["BlockStored", [H], PARENT, [0 .. 15], 16, LORA_ID, nil, nil, KEYS]]] of one block. */
static void
say_keys(struct world *w, uint64_t seq, uint8_t hash, uint8_t parent, const char *lora_id,
	 const char *keys, size_t n_keys)
{
	uint8_t payload[128] = "\x92\x01\x91\x99\xab" "BlockStored\x91";
	size_t n = 17;

	payload[n++] = hash;
	payload[n++] = parent ? parent : 0xc0;
	payload[n++] = 0xdc;
	payload[n++] = 0;
	payload[n++] = BLOCK;
	for (unsigned i = 0; i < BLOCK; i++)
		payload[n++] = (uint8_t)i;
	payload[n++] = BLOCK;
	payload[n++] = (uint8_t)lora_id[0];
	payload[n++] = 0xc0;
	payload[n++] = 0xc0;
	memcpy(payload + n, keys, n_keys);
	apply_message(w->apply, 0, seq, payload, n + n_keys);
}

#define SAY_KEYS(w, seq, hash, parent, lora, keys) \
	say_keys(w, seq, hash, parent, lora, keys, sizeof(keys) - 1)

Test(apply_formats, keys_of_an_unknown_form_part_a_block_from_all_prompts_and_keep_its_children)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	for (uint32_t i = 0; i < PROMPT_BLOCKS * BLOCK; i++)
		p.tokens[i] = i % BLOCK;
	SAY_KEYS(&w, 0, 1, 0, "\xc0", "\x91\x91\x81\xa4type\xa3New");
	SAY_KEYS(&w, 1, 2, 1, "\xc0", "\xc0");
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(atomic_load(&row(&w, 0)->orphaned), 0);
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 2);
	cr_assert_eq(row_trouble_kind(atomic_load(&row(&w, 0)->trouble)), TROUBLE_KEYS);
	/* Another such block, and a list that is not one for each hash. */
	SAY_KEYS(&w, 2, 3, 0, "\xc0", "\x91\x91\x81\xa4type\xa3Old");
	cr_assert_eq(atomic_load(&index_head(w.reader)->entries), 3);
	SAY_KEYS(&w, 3, 4, 0, "\xc0", "\x92\xc0\xc0");
	cr_assert_eq(atomic_load(&index_head(w.reader)->entries), 3);
	SAY_KEYS(&w, 4, 5, 0, "\xc0", "\x91\xc0");
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1);
	end(&w);
}

Test(apply_formats, an_adapter_known_by_number_only_is_no_model_and_its_name_may_stand_in_the_keys)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	for (uint32_t i = 0; i < PROMPT_BLOCKS * BLOCK; i++)
		p.tokens[i] = i % BLOCK;
	SAY_KEYS(&w, 0, 1, 0, "\x07", "\xc0");
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(row_trouble_kind(atomic_load(&row(&w, 0)->trouble)), TROUBLE_ADAPTER);
	cr_assert_eq(row_trouble_number(atomic_load(&row(&w, 0)->trouble)), 7);
	SAY_KEYS(&w, 1, 2, 0, "\x07", "\x91\x91\xa1" "a");
	cr_assert_eq(depth_in(&w, 0, &p, BLOCK, "a", NULL).exact, 1);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	end(&w);
}

/* ---- ranks ---- */

static void
two_ranks(struct world *w)
{
	begin(w, 60);
	for (uint16_t i = 0; i < 2; i++) {
		row(w, i)->ranks = 2;
		row(w, i)->rank = i;
		strcpy(w->rows.text[i].member, "both");
	}
}

Test(apply_formats, kv10_a_rank_that_is_not_said_is_the_connections)
{
	struct world w;
	struct prompt p;

	two_ranks(&w);
	prompt_make(&p, 100);
	w.rank = -1;
	SAY(&w, 1, 3, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 1, &p).exact, 4);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	end(&w);
}

Test(apply_formats, kv10_one_endpoint_may_speak_for_several_ranks_each_with_its_own_numbers)
{
	struct world w;
	struct prompt p;

	two_ranks(&w);
	prompt_make(&p, 100);
	for (uint64_t i = 0; i < 4; i++) {
		w.rank = 0;
		SAY(&w, 0, i,
		    STORED(.hashes = p.engine + i, .n = 1, .parent = i ? p.engine[i - 1] : 0,
			   .tokens = p.tokens + i * BLOCK));
		w.rank = 1;
		SAY(&w, 0, i, REMOVED(.hashes = p.engine + i, .n = 1),
		    STORED(.hashes = p.engine, .n = 1, .tokens = p.tokens));
	}
	cr_assert_eq(depth_of(&w, 0, &p).exact, 4, "rank 1's removals are rank 1's");
	cr_assert_eq(depth_of(&w, 1, &p).exact, 1);
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	cr_assert_eq(state_of(&w, 1), CACHE_EXACT);
	cr_assert_eq(atomic_load(&row(&w, 0)->restarts) + atomic_load(&row(&w, 0)->gaps), 0);
	end(&w);
}

Test(apply_formats, endpoints_that_are_mixed_up_are_told_apart_by_the_rank_that_batches_say)
{
	struct world w;
	struct prompt p, q;

	two_ranks(&w);
	prompt_make(&p, 100);
	prompt_make(&q, 9000);
	w.rank = 1;
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	w.rank = 0;
	SAY(&w, 1, 0, STORED(.hashes = q.engine, .n = 3, .tokens = q.tokens));
	cr_assert_eq(depth_of(&w, 1, &p).exact, 4);
	cr_assert_eq(depth_of(&w, 0, &q).exact, 3);
	cr_assert_eq(depth_of(&w, 0, &p).any + depth_of(&w, 1, &q).any, 0);
	end(&w);
}

Test(apply_formats, two_endpoints_that_name_one_rank_do_not_make_it_begin_anew)
{
	struct world w;
	struct prompt p;

	two_ranks(&w);
	prompt_make(&p, 100);
	for (uint64_t i = 0; i < 3; i++) /* both endpoints are rank 0's */
		for (uint16_t from = 0; from < 2; from++)
			SAY(&w, from, i,
			    STORED(.hashes = p.engine + i, .n = 1,
				   .parent = i ? p.engine[i - 1] : 0,
				   .tokens = p.tokens + i * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 3);
	cr_assert_eq(depth_of(&w, 1, &p).any, 0);
	cr_assert_eq(atomic_load(&row(&w, 0)->restarts), 0);
	cr_assert_eq(row_trouble_kind(atomic_load(&row(&w, 1)->trouble)), TROUBLE_RANK);
	cr_assert_eq(state_of(&w, 1), CACHE_NONE);
	/* Its own endpoint speaks after another's had: what was heard there is doubtful. */
	w.rank = 1;
	SAY(&w, 1, 5, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 1, &p).exact, 2);
	end(&w);
}

Test(apply_formats, another_members_rank_is_not_taken_for_ones_own)
{
	struct world w;
	struct prompt p;

	two_ranks(&w);
	prompt_make(&p, 100);
	strcpy(w.rows.text[1].member, "other");
	w.rank = 1;
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).any + depth_of(&w, 1, &p).any, 0);
	end(&w);
}

/* ---- what one worker may do to the others' index ---- */

Test(apply_caps, a_worker_that_stores_faster_than_it_may_is_not_followed_but_its_removals_are)
{
	struct world w;
	struct prompt p;
	uint64_t seq = 0, at = 0;

	begin(&w, 60);
	prompt_make(&p, 100);
	apply_caps(w.apply, 8, 100);
	apply_tick(w.apply, w.now = 1000);
	for (unsigned i = 0; i < 8; i++, at += 4)
		SAY(&w, 0, seq++,
		    STORED(.hashes = p.engine + at, .n = 4, .parent = at ? p.engine[at - 1] : 0,
			   .tokens = p.tokens + at * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 32, "five seconds' worth, at once");
	SAY(&w, 0, seq++, CLEARED);
	SAY(&w, 0, seq++, STORED(.hashes = p.engine, .n = 10, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 10);
	SAY(&w, 0, seq++, STORED(.hashes = p.engine, .n = 10, .tokens = p.tokens));
	cr_assert_eq(count_get(&w.process, COUNTER_index_worker_rate), 10);
	cr_assert_eq(row_trouble_kind(atomic_load(&row(&w, 0)->trouble)), TROUBLE_RATE);
	SAY(&w, 1, 0, STORED(.hashes = p.engine, .n = 10, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 1, &p).exact, 10, "others may as before");
	SAY(&w, 0, seq++, REMOVED(.hashes = p.engine + 4, .n = 6));
	cr_assert_eq(depth_of(&w, 0, &p).any, 4, "a removal was refused");
	SAY(&w, 0, seq++,
	    STORED(.hashes = p.engine + 4, .n = 4, .parent = p.engine[3],
		   .tokens = p.tokens + 4 * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).any, 4);
	apply_tick(w.apply, w.now += LEASE_S(1));
	SAY(&w, 0, seq++,
	    STORED(.hashes = p.engine + 4, .n = 4, .parent = p.engine[3],
		   .tokens = p.tokens + 4 * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 8, "a second later it may again");
	cr_assert_eq(state_of(&w, 0), CACHE_EXACT);
	end(&w);
}

Test(apply_caps, a_worker_has_its_share_of_the_index_and_no_more)
{
	struct world w;
	uint64_t lanes, refused, seq = 0, held;
	enum { AT_ONCE = 64 };
	static uint32_t tokens[AT_ONCE * BLOCK];
	uint64_t hash[AT_ONCE];

	begin(&w, 60);
	lanes = index_head(w.reader)->nbuckets * 4;
	apply_caps(w.apply, 0, 10);
	for (uint32_t i = 0; i < lanes / AT_ONCE / 4; i++) {
		for (uint32_t k = 0; k < AT_ONCE * BLOCK; k++)
			tokens[k] = i * AT_ONCE * BLOCK + k;
		for (uint32_t k = 0; k < AT_ONCE; k++)
			hash[k] = 1 + i * AT_ONCE + k;
		SAY(&w, 0, seq++, STORED(.hashes = hash, .n = AT_ONCE, .tokens = tokens));
	}
	refused = count_get(&w.process, COUNTER_index_worker_share);
	held = index_slot_held(w.writer, atomic_load(&row(&w, 0)->slot_gpu));
	cr_assert_eq(held, lanes / 10);
	cr_assert_eq(held + refused, lanes / AT_ONCE / 4 * AT_ONCE);
	cr_assert_eq(row_trouble_kind(atomic_load(&row(&w, 0)->trouble)), TROUBLE_SHARE);
	/* What it was refused is not held, and removing it harms nobody. */
	SAY(&w, 0, seq++, REMOVED(.hashes = hash, .n = AT_ONCE));
	cr_assert_eq(index_slot_held(w.writer, atomic_load(&row(&w, 0)->slot_gpu)), held);
	/* What it removes, it may store anew. */
	for (uint32_t k = 0; k < AT_ONCE; k++) {
		hash[k] = 1 + k;
		for (uint32_t t = 0; t < BLOCK; t++)
			tokens[k * BLOCK + t] = k * BLOCK + t;
	}
	SAY(&w, 0, seq++, REMOVED(.hashes = hash, .n = AT_ONCE));
	cr_assert_eq(index_slot_held(w.writer, atomic_load(&row(&w, 0)->slot_gpu)),
		     held - AT_ONCE);
	SAY(&w, 0, seq++, STORED(.hashes = hash, .n = AT_ONCE, .tokens = tokens));
	cr_assert_eq(index_slot_held(w.writer, atomic_load(&row(&w, 0)->slot_gpu)), held);
	end(&w);
}
