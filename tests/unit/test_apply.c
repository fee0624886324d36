/* tests/unit/test_apply.c -- events and notes against the real index, and against a model engine. */
#include <criterion/criterion.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/log.h"
#include "actors/common/prompt/blocks.h"
#include "actors/kvevents/apply.h"
#include "actors/kvevents/orphans.h"
#include "shm/blockhash.h"

#define DATA PM_SOURCE_DIR "/tests/data/"
#define SEED 42
#define BLOCK 16u
#define ROWS 4u
#define LEASE_S(n) ((n) * 1000000000ull)

struct world {
	struct rows rows;
	struct segment seg;
	struct process_segment process;
	struct index_writer *writer;
	struct index *reader;
	struct apply *apply;
	mono_ns now;
};

static void
row_make(struct world *w, uint16_t id)
{
	struct row *row = &w->rows.row[id];

	row->uid = id + 1u;
	row->ranks = 1;
	row->kind = ROW_WORKER;
	atomic_store(&row->row_gen, 1);
	snprintf(w->rows.text[id].member, sizeof w->rows.text[id].member, "w%u", id);
	strcpy(w->rows.text[id].model, "m");
	atomic_store(&row->intent, INTENT_SERVE);
	if (atomic_load(&w->rows.head->count) <= id)
		atomic_store(&w->rows.head->count, id + 1u);
}

/* What a new process finds: the segments of the old one. */
static void
born(struct world *w)
{
	cr_assert_eq(index_writer_open(&w->writer, dup(w->seg.fd)), 0);
	cr_assert_eq(apply_new(&w->apply, w->writer, &w->rows, &w->process), 0);
	for (uint16_t i = 0; i < ROWS; i++)
		cr_assert_eq(apply_row_open(w->apply, i, true, w->now), 0);
}

static void
dies(struct world *w)
{
	apply_free(&w->apply);
	index_writer_close(&w->writer);
}

static void
begin(struct world *w, uint32_t max_slots)
{
	*w = (struct world){.now = 1000};
	log_open("test", 0, 0, 0, LEVEL_ERROR);
	cr_assert_eq(rows_create(&w->rows, ROWS), 0);
	cr_assert_eq(index_create(&w->seg, 20000, max_slots, SEED), 0);
	cr_assert_eq(process_create(&w->process, ROLE_KVEVENTS, 0, 1, 0, 65536), 0);
	for (uint16_t i = 0; i < ROWS; i++)
		row_make(w, i);
	born(w);
	cr_assert_eq(index_attach(&w->reader, segment_readonly_fd(&w->seg)), 0);
}

static void
end(struct world *w)
{
	struct index_audit audit;

	cr_assert_eq(index_audit(w->reader, &audit), 0);
	cr_assert_eq(audit.duplicates + audit.unreachable + audit.garbage, 0);
	dies(w);
	index_detach(&w->reader);
	segment_detach(&w->seg);
	process_detach(&w->process);
	rows_detach(&w->rows);
}

static enum cache_state
state_of(const struct world *w, uint16_t row)
{
	return (enum cache_state)(atomic_load(&w->rows.row[row].cache_state) & 0xff);
}

static enum cache_reason
reason_of(const struct world *w, uint16_t row)
{
	return (enum cache_reason)(atomic_load(&w->rows.row[row].cache_state) >> 8);
}

/* ---- payloads ---- */

struct event {
	enum { STORE, REMOVE, CLEAR } type;
	const uint64_t *hashes;
	unsigned n;
	uint64_t parent;                        /* 0: nil */
	const uint32_t *tokens;                 /* NULL: none, and no block size */
	uint32_t block;                         /* 0: BLOCK */
	const char *medium, *lora, *salt, *mm, *kind;
	unsigned group;                         /* + 1; 0: not said */
};

static void
pack_text(msgpack_packer *p, const char *s)
{
	if (!s) {
		msgpack_pack_nil(p);
		return;
	}
	msgpack_pack_str(p, strlen(s));
	msgpack_pack_str_body(p, s, strlen(s));
}

static void
pack_hashes(msgpack_packer *p, const struct event *e)
{
	msgpack_pack_array(p, e->n);
	for (unsigned i = 0; i < e->n; i++)
		msgpack_pack_uint64(p, e->hashes[i]);
}

static void
pack_extra(msgpack_packer *p, const struct event *e)
{
	if (!e->salt && !e->mm) {
		msgpack_pack_nil(p);
		return;
	}
	msgpack_pack_array(p, e->n);
	for (unsigned i = 0; i < e->n; i++) {
		bool salt = e->salt && i == 0;

		if (!salt && !e->mm) {
			msgpack_pack_nil(p);
			continue;
		}
		msgpack_pack_array(p, (size_t)salt + !!e->mm);
		if (e->mm) {
			msgpack_pack_array(p, 2);
			pack_text(p, e->mm);
			msgpack_pack_int(p, 0);
		}
		if (salt)
			pack_text(p, e->salt);
	}
}

static void
pack_group(msgpack_packer *p, const struct event *e)
{
	if (e->group == 0)
		msgpack_pack_nil(p);
	else
		msgpack_pack_uint32(p, e->group - 1);
}

static void
pack_event(msgpack_packer *p, const struct event *e)
{
	uint32_t block = !e->tokens ? 0 : e->block ? e->block : BLOCK, n = e->n * block;

	switch (e->type) {
	case CLEAR:
		msgpack_pack_array(p, 1);
		pack_text(p, "AllBlocksCleared");
		return;
	case REMOVE:
		msgpack_pack_array(p, 4);
		pack_text(p, "BlockRemoved");
		pack_hashes(p, e);
		pack_text(p, e->medium);
		pack_group(p, e);
		return;
	case STORE:
		break;
	}
	msgpack_pack_array(p, 11);
	pack_text(p, "BlockStored");
	pack_hashes(p, e);
	if (e->parent)
		msgpack_pack_uint64(p, e->parent);
	else
		msgpack_pack_nil(p);
	msgpack_pack_array(p, n);
	for (uint32_t i = 0; i < n; i++)
		msgpack_pack_uint32(p, e->tokens[i]);
	msgpack_pack_uint32(p, block);
	msgpack_pack_nil(p);
	pack_text(p, e->medium);
	pack_text(p, e->lora);
	pack_extra(p, e);
	pack_group(p, e);
	pack_text(p, e->kind);
}

static void
say_all(struct world *w, uint16_t row, uint64_t seq, const struct event *e, unsigned n)
{
	msgpack_sbuffer buf;
	msgpack_packer p;

	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&p, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&p, 3);
	msgpack_pack_double(&p, 1.0 + (double)seq);
	msgpack_pack_array(&p, n);
	for (unsigned i = 0; i < n; i++)
		pack_event(&p, &e[i]);
	msgpack_pack_int(&p, 0);
	apply_message(w->apply, row, seq, buf.data, buf.size);
	msgpack_sbuffer_destroy(&buf);
}

#define SAY(w, row, seq, ...) \
	say_all(w, row, seq, (struct event[]){__VA_ARGS__}, \
		sizeof((struct event[]){__VA_ARGS__}) / sizeof(struct event))
#define STORED(...) {.type = STORE, __VA_ARGS__}
#define REMOVED(...) {.type = REMOVE, __VA_ARGS__}
#define CLEARED {.type = CLEAR}

/* ---- prompts ---- */

#define PROMPT_BLOCKS 32u
struct prompt {
	uint32_t tokens[PROMPT_BLOCKS * BLOCK];
	uint64_t engine[PROMPT_BLOCKS];         /* what the engine calls its blocks */
};

static void
prompt_make(struct prompt *p, uint32_t first)
{
	for (uint32_t i = 0; i < PROMPT_BLOCKS * BLOCK; i++)
		p->tokens[i] = first + i;
	for (uint32_t i = 0; i < PROMPT_BLOCKS; i++)
		p->engine[i] = first * 1000003ull + i + 1;
}

static struct index_depth
depth_in(const struct world *w, uint16_t row, const struct prompt *p, uint32_t block, const char *lora,
	 const char *salt)
{
	uint64_t hash[PROMPT_BLOCKS * BLOCK];
	struct index_depth depth[ROWS], none = {.row = row};
	size_t n = blockhash_chain(blocks_root(SEED, "m", slice_str(lora), slice_str(salt), block), p->tokens,
				   PROMPT_BLOCKS * BLOCK, block, hash, PROMPT_BLOCKS * BLOCK);
	unsigned rows = index_match(w->reader, hash, (unsigned)n, depth, ROWS);

	for (unsigned i = 0; i < rows; i++)
		if (depth[i].row == row)
			return depth[i];
	return none;
}

static struct index_depth
depth_of(const struct world *w, uint16_t row, const struct prompt *p)
{
	return depth_in(w, row, p, BLOCK, NULL, NULL);
}

static void
note(struct world *w, uint16_t row, uint64_t seq, const struct prompt *p, unsigned blocks)
{
	uint64_t hash[PROMPT_BLOCKS];
	struct msg_routed m = {.seq = seq, .ingress = 1, .ingress_inc = 7, .row = row, .row_gen = 1,
		.block_tokens = BLOCK, .hashes = {(const char *)hash, blocks * sizeof hash[0]}};

	blockhash_chain(blocks_root(SEED, "m", slice_str(NULL), slice_str(NULL), BLOCK), p->tokens,
			blocks * BLOCK, BLOCK, hash, PROMPT_BLOCKS);
	apply_note(w->apply, &m);
}

/* ---- stored, removed, cleared ---- */

Test(apply, what_an_engine_stores_is_held_to_the_depth_it_says)
{
	struct world w;
	struct prompt p;

	begin(&w, 60);
	prompt_make(&p, 100);
	SAY(&w, 0, 0, STORED(.hashes = p.engine, .n = 3, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).gpu, 3);
	SAY(&w, 0, 1, STORED(.hashes = p.engine + 3, .n = 5, .parent = p.engine[2], .tokens = p.tokens + 3 * BLOCK));
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
	SAY(&w, 0, 1, STORED(.hashes = p.engine + 1, .n = 1, .parent = p.engine[0], .tokens = p.tokens + BLOCK));
	SAY(&w, 0, 2, REMOVED(.hashes = p.engine + 1, .n = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2);
	SAY(&w, 0, 3, REMOVED(.hashes = p.engine + 1, .n = 1));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 1);
	SAY(&w, 0, 4, REMOVED(.hashes = p.engine + 1, .n = 1));
	SAY(&w, 0, 5, STORED(.hashes = p.engine + 1, .n = 1, .parent = p.engine[0], .tokens = p.tokens + BLOCK));
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
	SAY(&w, 0, 1, STORED(.hashes = p.engine + 2, .n = 2, .parent = p.engine[1], .tokens = p.tokens + 2 * BLOCK));
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
	    STORED(.hashes = p.engine + 8, .n = 2, .tokens = p.tokens, .group = 2, .kind = "sliding_window"),
	    STORED(.hashes = p.engine, .n = 4, .tokens = p.tokens, .group = 1, .kind = "full_attention"),
	    STORED(.hashes = p.engine + 10, .n = 8, .tokens = p.tokens, .group = 3, .kind = "full_attention"),
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
	SAY(&w, 0, 7, STORED(.hashes = p.engine + 4, .n = 4, .parent = p.engine[3], .tokens = p.tokens + 4 * BLOCK));
	SAY(&w, 0, 8, STORED(.hashes = p.engine + 2, .n = 2, .parent = p.engine[1], .tokens = p.tokens + 2 * BLOCK));
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
	SAY(&w, 0, 7, STORED(.hashes = p.engine + 2, .n = 3, .parent = p.engine[1], .tokens = p.tokens + 2 * BLOCK));
	SAY(&w, 0, 8, REMOVED(.hashes = p.engine + 2, .n = 1));
	SAY(&w, 0, 9, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 2, "the removed orphan was held");
	SAY(&w, 0, 10, STORED(.hashes = p.engine + 2, .n = 1, .parent = p.engine[1], .tokens = p.tokens + 2 * BLOCK));
	cr_assert_eq(depth_of(&w, 0, &p).exact, 5);
	end(&w);
}

Test(orphans, are_bounded_and_counted)
{
	struct orphans *o;
	struct orphan child;

	cr_assert_eq(orphans_new(&o), 0);
	for (uint64_t i = 1; i <= ORPHANS_MAX + 1000; i++)
		cr_assert_eq(orphans_add(o, i, 1000000 + i, i, 0), 0);
	cr_assert_eq(orphans_size(o), ORPHANS_MAX);
	cr_assert_not(orphans_remove(o, 1, 0), "the oldest did not give way");
	cr_assert(orphans_take_child(o, 1000000 + ORPHANS_MAX, &child));
	cr_assert_eq(child.hash, ORPHANS_MAX);
	orphans_clear(o);
	cr_assert_eq(orphans_size(o), 0);
	cr_assert_eq(orphans_add(o, 5, 6, 7, 0), 0);
	cr_assert_eq(orphans_add(o, 5, 6, 7, 0), 0);
	cr_assert_eq(orphans_add(o, 5, 6, 7, 1), 0);
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
	    STORED(.hashes = p.engine + 4, .n = 2, .parent = p.engine[3], .tokens = p.tokens + 4 * BLOCK));
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
		SAY(&w, row, 1, STORED(.hashes = p.engine + 4, .n = 1, .parent = p.engine[3],
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
	SAY(&w, 0, 1, STORED(.hashes = p.engine + 4, .n = 1, .parent = p.engine[3], .tokens = p.tokens + 4 * BLOCK));
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
	/* Died before naming: the slot belongs to nobody.  And a name for what is not this row's. */
	atomic_store(&w.rows.row[1].slot_gpu, atomic_load(&w.rows.row[0].slot_gpu));
	atomic_store(&w.rows.row[0].slot_gpu, 0);
	dies(&w);
	born(&w);
	cr_assert_eq(depth_of(&w, 0, &p).any, 0);
	cr_assert_eq(depth_of(&w, 1, &p).any, 0);
	cr_assert_eq(atomic_load(&w.rows.row[1].slot_gpu), 0);
	end(&w);
}

/* ---- a model engine ---- */

#define M_PROMPTS 12u
#define M_BLOCKS 10u

struct model {
	struct prompt prompt[M_PROMPTS];
	unsigned copies[M_PROMPTS][M_BLOCKS];
	uint64_t seq, salt;
	uint64_t rng;
};

static uint32_t
draw(struct model *m, uint32_t below)
{
	m->rng = m->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(m->rng >> 33) % below;
}

/* Prompts share their first half in pairs, so chains branch; engine hashes change with each life. */
static void
model_lives(struct model *m)
{
	memset(m->copies, 0, sizeof m->copies);
	m->seq = 0;
	m->salt++;
	for (unsigned i = 0; i < M_PROMPTS; i++) {
		prompt_make(&m->prompt[i], 1000 * i);
		for (unsigned b = 0; b < M_BLOCKS / 2; b++)
			memcpy(m->prompt[i].tokens + b * BLOCK, m->prompt[i & ~1u].tokens + b * BLOCK,
			       BLOCK * sizeof(uint32_t));
		for (unsigned b = 0; b < M_BLOCKS; b++)
			m->prompt[i].engine[b] = (m->salt << 32) + (b < M_BLOCKS / 2 ? i & ~1u : i) * 100 + b + 1;
	}
}

static unsigned
owner(unsigned i, unsigned b)
{
	return b < M_BLOCKS / 2 ? i & ~1u : i;
}

static unsigned
model_depth(const struct model *m, unsigned i)
{
	unsigned b = 0;

	while (b < M_BLOCKS && m->copies[owner(i, b)][b] > 0)
		b++;
	return b;
}

/* One event of the engine; *ret filled for the wire. */
static bool
model_step(struct model *m, struct event *ret)
{
	unsigned i = draw(m, M_PROMPTS), b = draw(m, M_BLOCKS), n;
	struct prompt *p = &m->prompt[i];

	if (draw(m, 200) == 0) {
		memset(m->copies, 0, sizeof m->copies);
		*ret = (struct event)CLEARED;
		return true;
	}
	if (draw(m, 100) < 55) {
		b = draw(m, 3) ? model_depth(m, i) : b;         /* mostly what an engine would do */
		if (b == M_BLOCKS)
			b = draw(m, M_BLOCKS);
		n = 1 + draw(m, M_BLOCKS - b);
		for (unsigned k = b; k < b + n; k++)
			m->copies[owner(i, k)][k]++;
		*ret = (struct event)STORED(.hashes = p->engine + b, .n = n, .parent = b ? p->engine[b - 1] : 0,
					    .tokens = p->tokens + b * BLOCK);
		return true;
	}
	if (m->copies[owner(i, b)][b] == 0)
		return false;
	m->copies[owner(i, b)][b]--;
	*ret = (struct event)REMOVED(.hashes = p->engine + b, .n = 1);
	return true;
}

/* Whatever is lost, doubled or restarted: nothing is sure that is not so, and while nothing was lost all
 * that is so is known. */
Test(apply, under_loss_restarts_and_our_own_deaths_what_is_sure_is_true)
{
	unsigned exact_checks = 0;

	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world w;
		struct model m = {.rng = seed};

		begin(&w, seed % 2 ? 60 : 300);         /* bitmap sets, and lists with a pool */
		model_lives(&m);
		for (unsigned step = 0; step < 1500; step++) {
			struct event e;

			if (draw(&m, 400) == 0)
				model_lives(&m);
			if (draw(&m, 500) == 0) {
				dies(&w);
				born(&w);
			}
			if (draw(&m, 20) == 0)
				note(&w, 0, step + 1, &m.prompt[draw(&m, M_PROMPTS)], 1 + draw(&m, M_BLOCKS));
			if (!model_step(&m, &e))
				continue;
			uint64_t seq = m.seq++;

			if (draw(&m, 150) == 0)
				continue;               /* lost */
			SAY(&w, 0, seq, e);
			if (draw(&m, 50) == 0)
				SAY(&w, 0, seq, e);     /* doubled */
			if (draw(&m, 100) == 0)
				apply_tick(w.apply, w.now += LEASE_S(5));
			for (unsigned i = 0; i < M_PROMPTS; i++) {
				unsigned depth = depth_of(&w, 0, &m.prompt[i]).exact, truth = model_depth(&m, i);

				cr_assert_leq(depth, truth, "seed %lu step %u prompt %u: %u sure, %u there",
					      (unsigned long)seed, step, i, depth, truth);
				if (state_of(&w, 0) == CACHE_EXACT && reason_of(&w, 0) != REASON_CLEARED) {
					/* the placed part of it: a block stored above a hole waits as an orphan */
					cr_assert_eq(depth, truth, "seed %lu step %u prompt %u: %u sure, %u there",
						     (unsigned long)seed, step, i, depth, truth);
					exact_checks++;
				}
			}
		}
		end(&w);
	}
	cr_assert_gt(exact_checks, 10000);
}

/* ---- recorded sequences ---- */

static size_t
unhex(const char *hex, uint8_t *ret)
{
	size_t n = 0;
	unsigned byte;

	while (sscanf(hex + 2 * n, "%2x", &byte) == 1)
		ret[n++] = (uint8_t)byte;
	return n;
}

/* Messages from .. to - 1 of lines {"seq": n, "payload_hex": ".."}; others are not counted. */
static void
play(struct world *w, uint16_t row, const char *name, unsigned from, unsigned to)
{
	unsigned at = 0;
	static char line[65536];
	static uint8_t payload[32768];
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, DATA "cases/kv/%s", name);
	f = fopen(path, "r");
	cr_assert_not_null(f, "%s", path);
	while (fgets(line, sizeof line, f)) {
		const char *seq = strstr(line, "\"seq\":"), *hex = strstr(line, "\"payload_hex\":");

		if (!seq || !hex || at++ < from || at > to)
			continue;
		hex = strchr(strchr(hex, ':'), '"') + 1;
		apply_message(w->apply, row, strtoull(seq + 6, NULL, 10), payload, unhex(hex, payload));
	}
	fclose(f);
}

static uint64_t
entries(const struct world *w)
{
	return atomic_load(&index_head(w->reader)->entries);
}

static void
forget_retired(struct world *w)
{
	while (index_scrub(w->writer, 1000) > 0)
		;
}

Test(apply, the_recorded_restart_leaves_only_the_new_engines_block)
{
	struct world w;

	begin(&w, 60);
	play(&w, 0, "kv06_restart.jsonl", 0, 3);
	forget_retired(&w);
	cr_assert_eq(entries(&w), 1);
	cr_assert_eq(atomic_load(&w.rows.row[0].restarts), 1);
	end(&w);
}

Test(apply, the_recorded_duplicates_are_counted_as_on_the_wire)
{
	static const uint64_t left[] = {2, 2, 2, 1, 1}; /* after each message, as the record expects */
	struct world w;

	begin(&w, 60);
	for (unsigned n = 0; n < sizeof left / sizeof left[0]; n++) {
		play(&w, 0, "kv09_dup.jsonl", n, n + 1);
		cr_assert_eq(entries(&w), left[n], "after message %u", n);
	}
	cr_assert_eq(atomic_load(&w.rows.row[0].failed), 0);
	end(&w);
}

Test(apply, the_recorded_gap_is_seen)
{
	struct world w;

	begin(&w, 60);
	play(&w, 0, "kv05_gap.jsonl", 0, 1000);
	cr_assert_gt(atomic_load(&w.rows.row[0].gaps), 0);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	end(&w);
}

Test(apply, two_recorded_ranks_stay_apart)
{
	struct world w;

	begin(&w, 60);
	for (uint16_t i = 0; i < 2; i++) {
		w.rows.row[i].ranks = 2;
		w.rows.row[i].rank = i;
	}
	play(&w, 0, "kv10_two_ranks.jsonl", 0, 1);
	play(&w, 1, "kv10_two_ranks.jsonl", 1, 2);
	cr_assert_eq(entries(&w), 1, "the same tokens are one key");
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 2);
	play(&w, 1, "kv10_two_ranks.jsonl", 2, 3);
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 1, "rank 0 holds it still");
	cr_assert_eq(index_slot_held(w.writer, atomic_load(&w.rows.row[0].slot_gpu)), 1);
	end(&w);
}
