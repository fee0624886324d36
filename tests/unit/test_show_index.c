/* tests/unit/test_show_index.c -- the index as JSON: fill, slots, holders, prompts. */
#include "tests/unit/view_world.h"

#include "actors/common/fields.h"
#include "actors/common/prompt/blocks.h"
#include "actors/common/show_index.h"
#include "shm/blockhash.h"

static json_t *
answered(json_t *o, json_t *refused)
{
	cr_assert_null(refused);
	cr_assert_not_null(o);
	return o;
}

static json_t *
fill(struct view_world *w)
{
	json_t *refused = NULL;

	return answered(pm_show_index(&w->view, &refused), refused);
}

static json_t *
slots(struct view_world *w, const char *worker, unsigned after, unsigned limit)
{
	json_t *refused = NULL;

	return answered(pm_show_index_slots(&w->view, worker, after, limit, &refused), refused);
}

static json_t *
holders(struct view_world *w, const uint64_t *hash, unsigned n)
{
	json_t *refused = NULL;

	return answered(pm_show_index_holders(&w->view, hash, n, &refused), refused);
}

static uint16_t
take(struct view_world *w, uint16_t row, enum index_role role, enum index_tier tier)
{
	uint16_t id = index_slot_take(w->writer, row, 1, role, tier, 16);

	cr_assert_neq(id, 0);
	return id;
}

/* Hashes that are far apart, as chained ones are. */
static uint64_t
hash_of(unsigned i)
{
	return blockhash_link(1000 + i, 5);
}

static const json_t *
with(const json_t *list, const char *key, const char *value)
{
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
		if (strcmp(world_text(one, key), value) == 0)
			return one;
	return NULL;
}

Test(show_index, what_each_worker_holds_is_told_by_role_and_tier)
{
	struct view_world w;
	const json_t *w0, *w1;
	json_t *o;

	world_begin(&w);
	uint16_t gpu = take(&w, 0, INDEX_EXACT, INDEX_GPU);
	uint16_t offload = take(&w, 0, INDEX_EXACT, INDEX_OFFLOAD);
	uint16_t speculative = take(&w, 1, INDEX_SPECULATIVE, INDEX_GPU);

	for (unsigned i = 0; i < 10; i++)
		cr_assert(index_put(w.writer, gpu, hash_of(i), NULL, 0));
	for (unsigned i = 0; i < 4; i++)
		cr_assert(index_put(w.writer, offload, hash_of(i), NULL, 0));
	cr_assert(index_put(w.writer, speculative, hash_of(50), NULL, 0));
	index_take(w.writer, hash_of(9), &gpu, 1);
	w.rows.row[0].cache_state = CACHE_GAP | REASON_SEQ_HOLE << 8;
	o = fill(&w);
	cr_assert_eq(world_number(o, "entries"), 10);
	cr_assert_eq(world_number(o, "holders"), 14);
	cr_assert_eq(world_number(json_object_get(o, "slots"), "live"), 3);
	cr_assert_eq(world_number(json_object_get(o, "slots"), "free"), WORLD_IDS - 3);
	w0 = with(json_object_get(o, "workers"), "worker", "w0");
	w1 = with(json_object_get(o, "workers"), "worker", "w1");
	cr_assert_eq(world_number(w0, "exact_gpu"), 9);
	cr_assert_eq(world_number(w0, "exact_offload"), 4);
	cr_assert_eq(world_number(w0, "speculative"), 0);
	cr_assert_eq(world_number(w1, "speculative"), 1);
	cr_assert_str_eq(world_text(w0, "cache"), "gap");
	cr_assert_str_eq(world_text(w0, "reason"), "sequence-hole");
	json_decref(o);
	index_slot_demote(w.writer, gpu);
	o = fill(&w);
	w0 = with(json_object_get(o, "workers"), "worker", "w0");
	cr_assert_eq(world_number(w0, "exact_gpu"), 0);
	cr_assert_eq(world_number(w0, "demoted"), 9);
	json_decref(o);
	world_end(&w);
}

Test(show_index, a_retired_slot_is_a_backlog_until_it_is_scrubbed)
{
	struct view_world w;
	const json_t *group;
	json_t *o;

	world_begin(&w);
	uint16_t id = take(&w, 0, INDEX_EXACT, INDEX_GPU);

	for (unsigned i = 0; i < 20; i++)
		cr_assert(index_put(w.writer, id, hash_of(i), NULL, 0));
	index_slot_retire(w.writer, id);
	index_scrub(w.writer, 5);
	o = fill(&w);
	cr_assert_eq(world_number(o, "scrub_backlog"), 15);
	cr_assert_eq(world_number(o, "scrubbed"), 5);
	group = with(json_object_get(o, "groups"), "state", "retired");
	cr_assert_str_eq(world_text(group, "role"), "exact");
	cr_assert_eq(world_number(group, "slots"), 1);
	cr_assert_eq(world_number(group, "held"), 15);
	cr_assert_eq(world_number(with(json_object_get(o, "workers"), "worker", "w0"),
				  "exact_gpu"), 0);
	json_decref(o);
	while (index_scrub(w.writer, 100))
		;
	o = fill(&w);
	cr_assert_eq(world_number(o, "scrub_backlog"), 0);
	cr_assert_eq(world_number(json_object_get(o, "slots"), "free"), WORLD_IDS);
	group = with(json_object_get(o, "groups"), "state", "retired");
	cr_assert_eq(world_number(group, "slots"), 0);  /* a group is told when it is empty, too */
	json_decref(o);
	world_end(&w);
}

Test(show_index, a_slot_of_a_row_that_another_worker_has_by_now_is_nobodys)
{
	struct view_world w;
	json_t *o;

	world_begin(&w);
	take(&w, 0, INDEX_EXACT, INDEX_GPU);
	w.rows.row[0].row_gen = 2;
	o = slots(&w, NULL, 0, 10);
	cr_assert_eq(json_array_size(json_object_get(o, "slots")), 1);
	cr_assert(json_is_null(json_object_get(json_array_get(json_object_get(o, "slots"), 0),
					       "worker")));
	json_decref(o);
	o = fill(&w);
	cr_assert_eq(world_number(with(json_object_get(o, "workers"), "worker", "w0"), "slots"), 0);
	json_decref(o);
	world_end(&w);
}

Test(show_index, slots_come_by_number_in_pages_and_each_once)
{
	struct view_world w;
	unsigned seen = 0, pages = 0;
	json_int_t last = 0;
	bool more = true;

	world_begin(&w);
	for (unsigned i = 0; i < 10; i++)
		take(&w, i % 2, INDEX_SPECULATIVE, INDEX_GPU);
	for (unsigned after = 0; more; pages++) {
		json_t *o = slots(&w, NULL, after, 3), *one;
		size_t i;

		json_array_foreach(json_object_get(o, "slots"), i, one) {
			cr_assert_gt(world_number(one, "slot"), last);
			last = world_number(one, "slot");
			seen++;
		}
		more = json_is_integer(json_object_get(o, "next"));
		after = (unsigned)last;
		cr_assert(!more || world_number(o, "next") == last);
		json_decref(o);
	}
	cr_assert_eq(seen, 10);
	cr_assert_eq(pages, 4);
	json_t *o = slots(&w, "w1", 0, 100);

	cr_assert_eq(json_array_size(json_object_get(o, "slots")), 5);
	json_decref(o);
	o = slots(&w, NULL, INDEX_MAX_SLOTS, 100);
	cr_assert_eq(json_array_size(json_object_get(o, "slots")), 0);
	json_decref(o);
	world_end(&w);
}

Test(show_index, what_a_slot_does_not_have_is_null)
{
	struct view_world w;
	const json_t *one;
	json_t *o;

	world_begin(&w);
	uint16_t id = take(&w, 1, INDEX_SPECULATIVE, INDEX_OFFLOAD);

	o = slots(&w, NULL, 0, 1);
	one = json_array_get(json_object_get(o, "slots"), 0);
	cr_assert_eq(world_number(one, "slot"), id);
	cr_assert_str_eq(world_text(one, "worker"), "w1");
	cr_assert_str_eq(world_text(one, "tier"), "offload");
	cr_assert_str_eq(world_text(one, "role"), "speculative");
	cr_assert_eq(world_number(one, "block_tokens"), 16);
	cr_assert(json_is_null(json_object_get(one, "expires_in_s")));
	cr_assert_eq(world_number(one, "held"), 0);
	json_decref(o);
	index_slot_entry(w.writer, id)->expires_ns = clock_mono() + 100000000000u;
	o = slots(&w, NULL, 0, 1);
	one = json_array_get(json_object_get(o, "slots"), 0);
	cr_assert_gt(json_real_value(json_object_get(one, "expires_in_s")), 50);
	json_decref(o);
	world_end(&w);
}

Test(show_index, every_holder_of_a_block_is_named_and_a_block_nobody_holds_has_none)
{
	struct view_world w;
	uint16_t id[40];
	uint64_t hash[3] = {hash_of(1), hash_of(2), hash_of(3)};
	const json_t *block;
	json_t *o;

	world_begin(&w);
	for (unsigned i = 0; i < 40; i++) {             /* more than a word lists: a pool's chunk */
		id[i] = take(&w, i % 2, INDEX_SPECULATIVE, INDEX_GPU);
		cr_assert(index_put(w.writer, id[i], hash[0], NULL, 0));
	}
	cr_assert(index_put(w.writer, id[7], hash[2], NULL, 0));
	o = holders(&w, hash, 3);
	cr_assert_eq(json_array_size(json_object_get(o, "blocks")), 3);
	cr_assert_eq(json_array_size(json_object_get(o, "slots")), 40);
	block = json_array_get(json_object_get(o, "blocks"), 0);
	cr_assert_eq(world_number(block, "holders"), 40);
	cr_assert_eq(json_array_size(json_object_get(block, "slots")), 40);
	block = json_array_get(json_object_get(o, "blocks"), 1);
	cr_assert_eq(world_number(block, "holders"), 0);
	cr_assert(json_is_array(json_object_get(block, "slots")));
	block = json_array_get(json_object_get(o, "blocks"), 2);
	cr_assert_eq(json_integer_value(json_array_get(json_object_get(block, "slots"), 0)), id[7]);
	json_decref(o);
	world_end(&w);
}

/* With more than 511 ids a set grows from a word to a chunk of ids and on to a bitmap. */
Test(show_index, sets_of_every_form_are_told_and_the_pool_by_class)
{
	struct index_writer *writer;
	struct segment seg;
	struct view_world w;
	uint64_t hash[3] = {hash_of(1), hash_of(2), hash_of(3)};
	static const unsigned holds[3] = {3, 20, 100};
	const json_t *pool;
	json_t *o;

	world_begin(&w);
	cr_assert_eq(index_create(&seg, 5000, 600, 7), 0);
	cr_assert_eq(index_writer_open(&writer, fcntl(seg.fd, F_DUPFD_CLOEXEC, 3)), 0);
	world_hand(&w.view, &seg, SEGMENT_INDEX, ROLE_KVEVENTS, 0, 0);
	for (unsigned s = 0; s < 100; s++) {
		uint16_t id = index_slot_take(writer, s % 2, 1, INDEX_SPECULATIVE, INDEX_GPU, 16);

		for (unsigned b = 0; b < 3; b++)
			if (s < holds[b])
				cr_assert(index_put(writer, id, hash[b], NULL, 0));
	}
	o = holders(&w, hash, 3);
	for (unsigned b = 0; b < 3; b++)
		cr_assert_eq(world_number(json_array_get(json_object_get(o, "blocks"), b),
					  "holders"), holds[b]);
	json_decref(o);
	o = fill(&w);
	pool = json_object_get(o, "pool");
	cr_assert_eq(json_array_size(pool), 2);
	for (unsigned c = 0; c < 2; c++) {
		const json_t *one = json_array_get(pool, c);

		cr_assert_eq(world_number(one, "class"), c);
		cr_assert_gt(world_number(one, "used"), 0);
		cr_assert_geq(world_number(one, "chunks"), world_number(one, "used"));
	}
	cr_assert_eq(world_number(o, "holders"), 123);
	json_decref(o);
	index_writer_close(&writer);
	segment_detach(&seg);
	world_end(&w);
}

Test(show_index, each_cause_of_a_refusal_is_told)
{
	struct view_world w;
	json_t *o;
	uint16_t id;

	world_begin(&w);
	id = take(&w, 0, INDEX_EXACT, INDEX_GPU);
	index_slot_retire(w.writer, id);
	cr_assert_not(index_put(w.writer, id, hash_of(1), NULL, 0));
	o = fill(&w);
	cr_assert_eq(json_object_size(json_object_get(o, "refused")), INDEX_CAUSES);
	cr_assert_eq(world_number(json_object_get(o, "refused"),
				  index_cause_name(INDEX_CAUSE_DEAD)), 1);
	json_decref(o);
	world_end(&w);
}

/* 256 blocks held by 100 slots each are more than an answer names. */
Test(show_index, holders_beyond_the_bound_are_counted_and_not_named)
{
	uint64_t hash[PM_SHOW_HASHES_MAX];
	struct view_world w;
	unsigned named = 0;
	const json_t *one;
	json_t *o;
	size_t i;

	world_begin(&w);
	for (unsigned k = 0; k < PM_SHOW_HASHES_MAX; k++)
		hash[k] = hash_of(k % 60);
	for (unsigned s = 0; s < WORLD_IDS; s++) {
		uint16_t id = take(&w, 0, INDEX_SPECULATIVE, INDEX_GPU);

		for (unsigned k = 0; k < 60; k++)
			cr_assert(index_put(w.writer, id, hash[k], NULL, 0));
	}
	o = holders(&w, hash, PM_SHOW_HASHES_MAX);
	json_array_foreach(json_object_get(o, "blocks"), i, one) {
		cr_assert_eq(world_number(one, "holders"), WORLD_IDS);
		named += (unsigned)json_array_size(json_object_get(one, "slots"));
	}
	cr_assert_eq(named, PM_SHOW_HOLDERS_MAX / WORLD_IDS * WORLD_IDS);
	cr_assert(json_is_null(json_object_get(json_array_get(json_object_get(o, "blocks"),
			       PM_SHOW_HASHES_MAX - 1), "slots")));
	json_decref(o);
	world_end(&w);
}

static json_t *
prompt(struct view_world *w, const struct pm_show_prompt *p, const uint32_t *tokens, size_t n)
{
	json_t *refused = NULL;

	return answered(pm_show_index_prompt(&w->view, p, tokens, n, &refused), refused);
}

Test(show_index, a_prompts_blocks_are_hashed_as_decisions_hash_them)
{
	uint32_t tokens[50];
	uint64_t hash[4];
	struct view_world w;
	struct pm_show_prompt p = {.model = "demo"};
	const json_t *depth;
	json_t *o, *rest;

	for (uint32_t i = 0; i < 50; i++)
		tokens[i] = i * 31 + 7;
	world_begin(&w);
	w.rows.row[0].block_tokens = w.rows.row[1].block_tokens = 16;
	uint64_t root = blocks_root(WORLD_SEED, "demo", slice_str(""), slice_str(""), 16);

	cr_assert_eq(blockhash_chain(root, tokens, 50, 16, hash, 4), 3);
	uint16_t exact = take(&w, 0, INDEX_EXACT, INDEX_GPU);
	uint16_t speculative = take(&w, 0, INDEX_SPECULATIVE, INDEX_GPU);

	cr_assert(index_put(w.writer, exact, hash[0], NULL, 0));
	cr_assert(index_put(w.writer, exact, hash[1], NULL, 0));
	cr_assert(index_put(w.writer, speculative, hash[2], NULL, 0));
	o = prompt(&w, &p, tokens, 50);
	cr_assert_eq(world_number(o, "block_tokens"), 16);
	cr_assert_eq(world_number(o, "tokens_used"), 48);
	cr_assert_eq(json_array_size(json_object_get(o, "blocks")), 3);
	depth = with(json_object_get(o, "depth"), "worker", "w0");
	cr_assert_eq(world_number(depth, "exact"), 2);
	cr_assert_eq(world_number(depth, "gpu"), 2);
	cr_assert_eq(world_number(depth, "any"), 3);
	cr_assert_eq(json_array_size(json_object_get(o, "depth")), 1);

	/* In two questions it is the same chain. */
	const json_t *blocks = json_object_get(o, "blocks");

	cr_assert(pm_hex_read(world_text(json_array_get(blocks, 1), "hash"), 16, &p.parent));
	rest = prompt(&w, &p, tokens + 32, 18);
	cr_assert(json_equal(json_array_get(json_object_get(rest, "blocks"), 0),
			     json_array_get(blocks, 2)));
	json_decref(rest);
	json_decref(o);

	/* A salt parts it from the others. */
	p = (struct pm_show_prompt){.model = "demo", .salt = "x"};
	o = prompt(&w, &p, tokens, 50);
	cr_assert_eq(json_array_size(json_object_get(o, "depth")), 0);
	json_decref(o);
	world_end(&w);
}

Test(show_index, workers_with_blocks_of_different_sizes_want_the_size_given)
{
	struct pm_show_prompt p = {.model = "demo"};
	uint32_t tokens[64] = {1};
	struct view_world w;
	json_t *refused = NULL, *o;

	world_begin(&w);
	w.rows.row[0].block_tokens = 16;
	w.rows.row[1].block_tokens = 16;
	w.rows.row[1].event_block_tokens = 32;          /* what its events say is what counts */
	cr_assert_null(pm_show_index_prompt(&w.view, &p, tokens, 64, &refused));
	cr_assert(strstr(world_text(json_object_get(refused, "error"), "text"), "16 and 32"));
	json_decref(refused);
	p.block_tokens = 32;
	o = prompt(&w, &p, tokens, 64);
	cr_assert_eq(json_array_size(json_object_get(o, "blocks")), 2);
	json_decref(o);
	world_end(&w);
}
