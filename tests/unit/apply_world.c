/* tests/unit/apply_world.c -- see apply_world.h. */
#include <criterion/criterion.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/log.h"
#include "actors/common/prompt/blocks.h"
#include "shm/blockhash.h"
#include "tests/unit/apply_world.h"

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
void
born(struct world *w)
{
	cr_assert_eq(index_writer_open(&w->writer, dup(w->seg.fd)), 0);
	cr_assert_eq(apply_new(&w->apply, w->writer, &w->rows, &w->process), 0);
	for (uint16_t i = 0; i < ROWS; i++)
		cr_assert_eq(apply_row_open(w->apply, i, true, w->now), 0);
}

void
dies(struct world *w)
{
	apply_free(&w->apply);
	index_writer_close(&w->writer);
}

void
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

void
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

enum cache_state
state_of(const struct world *w, uint16_t row)
{
	return (enum cache_state)(atomic_load(&w->rows.row[row].cache_state) & 0xff);
}

enum cache_reason
reason_of(const struct world *w, uint16_t row)
{
	return (enum cache_reason)(atomic_load(&w->rows.row[row].cache_state) >> 8);
}

/* ---- payloads ---- */

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
	if (!e->salt && !e->mm && !e->keys) {
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
		msgpack_pack_array(p, e->medium ? 2 : 1);
		pack_text(p, "AllBlocksCleared");
		if (e->medium)
			pack_text(p, e->medium);
		return;
	case BREAK:
		msgpack_pack_array(p, 2);
		pack_text(p, "BlockRemoved");
		msgpack_pack_true(p);
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

struct bytes
batch_of(const struct world *w, uint64_t seq, const char *publisher, const struct event *e,
	 unsigned n)
{
	msgpack_sbuffer buf;
	msgpack_packer p;

	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&p, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&p, publisher ? 4 : 3);
	msgpack_pack_double(&p, 1.0 + (double)seq);
	msgpack_pack_array(&p, n);
	for (unsigned i = 0; i < n; i++)
		pack_event(&p, &e[i]);
	if (w->rank < 0)
		msgpack_pack_nil(&p);
	else
		msgpack_pack_int(&p, w->rank);
	if (publisher) {
		msgpack_pack_bin(&p, strlen(publisher));
		msgpack_pack_bin_body(&p, publisher, strlen(publisher));
	}
	return (struct bytes){buf.data, buf.size};
}

void
say_as(struct world *w, uint16_t row, uint64_t seq, const char *publisher, const struct event *e,
       unsigned n)
{
	struct bytes b = batch_of(w, seq, publisher, e, n);

	apply_message(w->apply, row, seq, b.p, b.n);
	free(b.p);
}

void
say_all(struct world *w, uint16_t row, uint64_t seq, const struct event *e, unsigned n)
{
	say_as(w, row, seq, NULL, e, n);
}

void
say_case(struct world *w, uint16_t row, uint64_t seq, const char *name)
{
	static uint8_t payload[32768];
	char path[512];
	unsigned byte;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof path, PM_SOURCE_DIR "/tests/data/cases/%s.hex", name);
	f = fopen(path, "r");
	cr_assert_not_null(f, "%s", path);
	while (n < sizeof payload && fscanf(f, "%2x", &byte) == 1)
		payload[n++] = (uint8_t)byte;
	fclose(f);
	apply_message(w->apply, row, seq, payload, n);
}

/* ---- prompts ---- */

void
prompt_make(struct prompt *p, uint32_t first)
{
	for (uint32_t i = 0; i < PROMPT_BLOCKS * BLOCK; i++)
		p->tokens[i] = first + i;
	for (uint32_t i = 0; i < PROMPT_BLOCKS; i++)
		p->engine[i] = first * 1000003ull + i + 1;
}

struct index_depth
depth_in(const struct world *w, uint16_t row, const struct prompt *p, uint32_t block,
	 const char *lora, const char *salt)
{
	uint64_t hash[PROMPT_BLOCKS * BLOCK];
	struct index_depth depth[ROWS], none = {.row = row};
	size_t n = blockhash_chain(blocks_root(SEED, "m", slice_str(lora), slice_str(salt), block),
				   p->tokens, PROMPT_BLOCKS * BLOCK, block, hash,
				   PROMPT_BLOCKS * BLOCK);
	unsigned rows = index_match(w->reader, hash, (unsigned)n, depth, ROWS);

	for (unsigned i = 0; i < rows; i++)
		if (depth[i].row == row)
			return depth[i];
	return none;
}

struct index_depth
depth_of(const struct world *w, uint16_t row, const struct prompt *p)
{
	return depth_in(w, row, p, BLOCK, NULL, NULL);
}

void
note(struct world *w, uint16_t row, uint64_t seq, const struct prompt *p, unsigned blocks)
{
	uint64_t hash[PROMPT_BLOCKS];
	struct msg_routed m = {.seq = seq,
			       .ingress = 1,
			       .ingress_inc = 7,
			       .row = row,
			       .row_gen = 1,
			       .block_tokens = BLOCK,
			       .hashes = {(const char *)hash, blocks * sizeof hash[0]}};

	blockhash_chain(blocks_root(SEED, "m", slice_str(NULL), slice_str(NULL), BLOCK), p->tokens,
			blocks * BLOCK, BLOCK, hash, PROMPT_BLOCKS);
	apply_note(w->apply, &m);
	apply_sent(w->apply, &m);
}
