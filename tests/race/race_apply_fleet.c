/* tests/race/race_apply_fleet.c -- see race_apply_fleet.h. */
#include "tests/race/race_apply_fleet.h"

#include <fcntl.h>
#include <msgpack.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/blocks.h"
#include "shm/blockhash.h"

/* Many more than there are: nothing is refused, and depths can be compared (chunks for wide sets
 * are few in a small table). */
#define FLEET_INDEX_BLOCKS 12000u

static unsigned
below(struct fleet *f, unsigned n)
{
	return (unsigned)(random_next(&f->random) % n);
}

void
fleet_wrong(struct fleet_shared *shared, const char *format, ...)
{
	va_list args;

	if (atomic_fetch_add(&shared->wrong, 1) != 0)
		return;
	va_start(args, format);
	vsnprintf(shared->why, sizeof shared->why, format, args);
	va_end(args);
}

/* ---- prompts ---- */

unsigned
fleet_node(unsigned prompt, unsigned block)
{
	return (block < FLEET_DEPTH / 2 ? prompt & ~1u : prompt) * FLEET_DEPTH + block;
}

bool
fleet_serves(unsigned row, unsigned prompt)
{
	return (prompt / 2 + row) % 3 != 0;
}

static void
node_tokens(unsigned node, uint32_t ret[FLEET_BLOCK])
{
	for (uint32_t i = 0; i < FLEET_BLOCK; i++)
		ret[i] = node * 100 + i;
}

/* What an engine calls a block: another life, other names. */
static uint64_t
engine_hash(unsigned row, uint32_t life, unsigned node)
{
	uint64_t state = (uint64_t)row << 56 | (uint64_t)life << 20 | node;

	return random_next(&state);
}

static void
hashes_make(struct fleet *f)
{
	static const struct slice none = {0};
	uint64_t root = blocks_root(f->seed, "m", none, none, FLEET_BLOCK);

	for (unsigned p = 0; p < FLEET_PROMPTS; p++) {
		uint64_t at = root;

		for (unsigned b = 0; b < FLEET_DEPTH; b++) {
			uint32_t tokens[FLEET_BLOCK];

			node_tokens(fleet_node(p, b), tokens);
			at = blockhash_link(at, blockhash_local(tokens, FLEET_BLOCK, NULL, 0));
			f->hash[fleet_node(p, b)] = at;
		}
	}
}

/* ---- the model of one row ---- */

static struct fleet_side *
side_now(struct fleet_row *row)
{
	return &row->side[atomic_load_explicit(&row->at, memory_order_acquire) & 1];
}

/* The side that is not shown, a copy of the one that is. */
static struct fleet_side *
side_next(struct fleet_row *row)
{
	struct fleet_side *next = &row->side[~atomic_load(&row->at) & 1];

	*next = *side_now(row);
	return next;
}

static void
side_show(struct fleet_row *row)
{
	atomic_store_explicit(&row->at, atomic_load(&row->at) + 1, memory_order_seq_cst);
}

static bool
under_way(struct fleet_row *row)
{
	uint64_t pending = atomic_load(&row->pending);

	return pending != 0 && pending == atomic_load(&row->at);
}

static bool
held(const struct fleet_side *s, unsigned node)
{
	return s->known[FLEET_GPU][node] || s->known[FLEET_OFFLOAD][node];
}

static void
may_follow(struct fleet_side *s)
{
	for (unsigned n = 0; n < FLEET_NODES; n++) {
		bool any = held(s, n) || s->demoted[0][n] || s->demoted[1][n] || s->routed[n];

		s->may[n] = (uint8_t)((s->known[FLEET_GPU][n] ? FLEET_MAY_GPU : 0) |
				      (s->known[FLEET_OFFLOAD][n] ? FLEET_MAY_OFFLOAD : 0) |
				      (any ? FLEET_MAY_ANY : 0));
	}
}

/* Every block above this one is known: apply knows its place. */
static bool
placed(const struct fleet_side *s, unsigned prompt, unsigned block)
{
	for (unsigned b = 0; b < block; b++)
		if (!held(s, fleet_node(prompt, b)))
			return false;
	return true;
}

static void
missed(struct fleet_side *s)
{
	for (unsigned t = 0; t < FLEET_TIERS; t++)
		for (unsigned n = 0; n < FLEET_NODES; n++) {
			s->demoted[t][n] |= s->known[t][n] > 0;
			s->known[t][n] = 0;
		}
	s->in_step = false;
}

static void
forgotten(struct fleet_side *s)
{
	memset(s->known, 0, sizeof s->known);
	memset(s->demoted, 0, sizeof s->demoted);
	memset(s->routed, 0, sizeof s->routed);
	s->in_step = false;
}

static void
event_happens(struct fleet_side *s, const struct fleet_event *e, bool heard)
{
	for (unsigned b = e->from; b < e->from + e->n; b++) {
		unsigned node = fleet_node(e->prompt, b);
		uint16_t *known = &s->known[e->tier][node];

		if (e->op == FLEET_STORE) {
			s->truth[e->tier][node]++;
			*known = (uint16_t)(*known + heard);
			continue;
		}
		s->truth[e->tier][node]--;
		if (!heard || *known == 0 || e->op == FLEET_BROKEN)
			continue;
		if (--*known == 0 && placed(s, e->prompt, b)) {
			s->routed[node] = 0;    /* a removal settles these too */
			s->demoted[e->tier][node] = 0;
		}
	}
	if (e->op != FLEET_CLEAR)
		return;
	memset(s->truth[e->tier], 0, sizeof s->truth[0]);
	if (!heard)
		return;
	memset(s->known[e->tier], 0, sizeof s->known[0]);
	memset(s->demoted[e->tier], 0, sizeof s->demoted[0]);
	if (e->tier == FLEET_GPU)
		memset(s->routed, 0, sizeof s->routed);
}

/* What this batch makes of the row, if it is heard whole. */
static void
batch_happens(struct fleet_side *s, const struct fleet_batch *b)
{
	bool heard = !b->lost, broken = false;

	if (b->life != s->life) {
		memset(s->truth, 0, sizeof s->truth);
		if (heard || b->told) {
			forgotten(s);
			s->hole = false;
		}
		s->in_step = heard && b->seq == 0;
		s->life = b->life;
	} else if (heard && (s->hole || b->seq != s->seq)) {
		missed(s);
	}
	s->hole = !heard;
	for (unsigned i = 0; i < b->n; i++) {
		event_happens(s, &b->event[i], heard);
		broken |= b->event[i].op == FLEET_BROKEN;
	}
	if (heard && broken)
		missed(s);
	s->seq = b->seq + 1;
	may_follow(s);
}

/* ---- what an engine does next ---- */

static void
draw_event(struct fleet *f, const struct fleet_side *s, unsigned row, struct fleet_event *e)
{
	unsigned what = below(f, 100), b;

	do
		*e = (struct fleet_event){.prompt = (uint8_t)below(f, FLEET_PROMPTS)};
	while (!fleet_serves(row, e->prompt));
	e->tier = below(f, 4) == 0 ? FLEET_OFFLOAD : FLEET_GPU;
	if (what < 2) {
		e->op = FLEET_CLEAR;
		return;
	}
	b = below(f, FLEET_DEPTH);
	e->op = FLEET_STORE;
	if (what >= 55 && s->truth[e->tier][fleet_node(e->prompt, b)] > 0) {
		e->op = what >= 99 ? FLEET_BROKEN : FLEET_REMOVE;
		e->from = (uint8_t)b;
		do
			e->n++;
		while (e->op == FLEET_REMOVE && b + e->n < FLEET_DEPTH && e->n < 4 &&
		       s->truth[e->tier][fleet_node(e->prompt, b + e->n)] > 0);
		return;
	}
	if (below(f, 3)) {                      /* mostly what comes next */
		for (b = 0; b < FLEET_DEPTH && s->truth[e->tier][fleet_node(e->prompt, b)]; b++)
			;
		if (b == FLEET_DEPTH)
			b = below(f, FLEET_DEPTH);
	}
	e->from = (uint8_t)b;
	e->n = (uint8_t)(1 + below(f, FLEET_DEPTH - b));
	/* A copy to another tier is told without tokens: of what is known to lie on the GPU. */
	for (e->bare = e->tier == FLEET_OFFLOAD && below(f, 2), b = 0; b < e->from + e->n; b++)
		if (!s->known[FLEET_GPU][fleet_node(e->prompt, b)])
			e->bare = 0;
}

void
fleet_draw(struct fleet *f, unsigned r, struct fleet_batch *ret)
{
	struct fleet_side s = *side_now(&f->shared->row[r]);
	unsigned what = below(f, 1000);

	*ret = (struct fleet_batch){.seq = s.seq, .life = s.life, .n = 0};
	if (what < 20) {                        /* it restarts */
		ret->seq = 0;
		ret->life++;
		ret->told = what < 5;
		memset(s.truth, 0, sizeof s.truth);
		memset(s.known, 0, sizeof s.known);
	} else if (what < 35) {
		ret->lost = 1;
	} else if (what < 50) {
		ret->duplicate = 1;
	}
	if (s.hole && !ret->lost)
		missed(&s);                     /* also what waits for its parent */
	for (unsigned n = 1 + below(f, FLEET_EVENTS); ret->n < n;) {
		draw_event(f, &s, r, &ret->event[ret->n]);
		event_happens(&s, &ret->event[ret->n++], true);
	}
}

/* ---- the wire ---- */

static void
pack_text(msgpack_packer *p, const char *text)
{
	msgpack_pack_str(p, strlen(text));
	msgpack_pack_str_body(p, text, strlen(text));
}

static void
pack_event(msgpack_packer *p, unsigned row, uint32_t life, const struct fleet_event *e)
{
	const char *medium = e->tier == FLEET_GPU ? "GPU" : "CPU";

	msgpack_pack_array(p, e->op == FLEET_STORE ? 9 : e->op == FLEET_REMOVE ? 3 : 2);
	pack_text(p, e->op == FLEET_STORE   ? "BlockStored"
		     : e->op == FLEET_CLEAR ? "AllBlocksCleared"
					    : "BlockRemoved");
	if (e->op == FLEET_CLEAR) {
		pack_text(p, medium);
		return;
	}
	if (e->op == FLEET_BROKEN) {
		msgpack_pack_true(p);
		return;
	}
	msgpack_pack_array(p, e->n);
	for (unsigned b = e->from; b < e->from + e->n; b++)
		msgpack_pack_uint64(p, engine_hash(row, life, fleet_node(e->prompt, b)));
	if (e->op == FLEET_REMOVE) {
		pack_text(p, medium);
		return;
	}
	if (e->from == 0)
		msgpack_pack_nil(p);
	else
		msgpack_pack_uint64(p,
				    engine_hash(row, life, fleet_node(e->prompt, e->from - 1)));
	msgpack_pack_array(p, e->bare ? 0 : e->n * FLEET_BLOCK);
	for (unsigned b = e->from; !e->bare && b < e->from + e->n; b++) {
		uint32_t tokens[FLEET_BLOCK];

		node_tokens(fleet_node(e->prompt, b), tokens);
		for (unsigned i = 0; i < FLEET_BLOCK; i++)
			msgpack_pack_uint32(p, tokens[i]);
	}
	msgpack_pack_uint32(p, e->bare ? 0 : FLEET_BLOCK);
	msgpack_pack_nil(p);
	pack_text(p, medium);
	msgpack_pack_nil(p);
	if (e->bare) {
		msgpack_pack_nil(p);
		return;
	}
	msgpack_pack_array(p, e->n);
	for (unsigned i = 0; i < e->n; i++)
		msgpack_pack_nil(p);
}

static void
say(struct fleet *f, unsigned row, const struct fleet_batch *b)
{
	msgpack_sbuffer buf;
	msgpack_packer p;

	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&p, &buf, msgpack_sbuffer_write);
	msgpack_pack_array(&p, 2);
	msgpack_pack_double(&p, 1.0 + b->life);
	msgpack_pack_array(&p, b->n);
	for (unsigned i = 0; i < b->n; i++)
		pack_event(&p, row, b->life, &b->event[i]);
	for (unsigned i = 0; i <= b->duplicate; i++)
		apply_message(f->apply, (uint16_t)row, b->seq, buf.data, buf.size);
	msgpack_sbuffer_destroy(&buf);
}

void
fleet_deliver(struct fleet *f, unsigned r, const struct fleet_batch *b)
{
	struct fleet_row *row = &f->shared->row[r];
	struct fleet_side after, *next;
	bool heard = !b->lost || b->told;

	row->batch = *b;
	if (heard) {
		/* What is there after, and every store on the way. */
		after = *side_now(row);
		batch_happens(&after, b);
		next = side_next(row);
		for (unsigned n = 0; n < FLEET_NODES; n++)
			next->may[n] |= after.may[n];
		for (unsigned i = 0; i < b->n; i++) {
			const struct fleet_event *e = &b->event[i];

			for (unsigned k = 0; e->op == FLEET_STORE && k < e->n; k++)
				next->may[fleet_node(e->prompt, e->from + k)] |=
					(uint8_t)(FLEET_MAY_ANY | 1u << e->tier);
		}
		atomic_store(&row->pending, atomic_load(&row->at) + 1);
		side_show(row);
		if (b->told)
			apply_engine_start(f->apply, (uint16_t)r,
					   atomic_load(&f->rows->row[r].row_gen),
					   f->shared->start += 10000000000ull);
		if (!b->lost)
			say(f, r, b);
	}
	next = side_next(row);
	if (heard)
		*next = after;
	else
		batch_happens(next, b);
	side_show(row);                         /* no longer pending */
	atomic_fetch_add_explicit(&f->shared->batches, 1, memory_order_relaxed);
}

void
fleet_note(struct fleet *f, unsigned r, unsigned prompt, unsigned blocks)
{
	struct fleet_row *row = &f->shared->row[r];
	struct fleet_side *next = side_next(row);
	uint64_t hash[FLEET_DEPTH];
	struct msg_routed note = {.seq = ++f->random & 0xffff,
				  .ingress = 1,
				  .ingress_inc = 1,
				  .row = (uint16_t)r,
				  .row_gen = atomic_load(&f->rows->row[r].row_gen),
				  .block_tokens = FLEET_BLOCK,
				  .hashes = {(const char *)hash, blocks * sizeof hash[0]}};

	for (unsigned b = 0; b < blocks; b++) {
		hash[b] = f->hash[fleet_node(prompt, b)];
		next->routed[fleet_node(prompt, b)] = 1;
	}
	for (unsigned n = 0; n < FLEET_NODES; n++)
		if (next->routed[n])
			next->may[n] |= FLEET_MAY_ANY;
	side_show(row);
	apply_note(f->apply, &note);
}

void
fleet_tick(struct fleet *f, mono_ns by)
{
	f->shared->now += by;
	apply_tick(f->apply, f->shared->now);
}

void
fleet_step(struct fleet *f)
{
	unsigned r = below(f, FLEET_ROWS), what = below(f, 100), prompt;
	struct fleet_batch b;

	if (what < 10) {
		do
			prompt = below(f, FLEET_PROMPTS);
		while (!fleet_serves(r, prompt));
		fleet_note(f, r, prompt, 1 + below(f, FLEET_DEPTH));
	} else if (what < 15) {
		fleet_tick(f, below(f, 3) ? 100000000ull : 12000000000ull);
	} else {
		fleet_draw(f, r, &b);
		fleet_deliver(f, r, &b);
	}
}

/* ---- lives of writers ---- */

int
fleet_segments(struct rows *rows, struct segment *index, struct process_segment *process,
	       uint32_t max_slots)
{
	int r = rows_create(rows, FLEET_ROWS);

	if (r == 0)
		r = index_create(index, FLEET_INDEX_BLOCKS, max_slots, 7);
	if (r == 0)
		r = process_create(process, ROLE_KVEVENTS, 0, 1, 0, 65536);
	if (r < 0)
		return r;
	for (uint16_t i = 0; i < FLEET_ROWS; i++) {
		struct row *row = &rows->row[i];

		row->uid = i + 1u;
		row->ranks = 1;
		row->kind = ROW_WORKER;
		atomic_store(&row->row_gen, 1);
		snprintf(rows->text[i].member, sizeof rows->text[i].member, "w%u", i);
		strcpy(rows->text[i].model, "m");
		atomic_store(&row->intent, INTENT_SERVE);
	}
	atomic_store(&rows->head->count, FLEET_ROWS);
	return 0;
}

void
fleet_begin(struct fleet *f, struct fleet_shared *shared, struct rows *rows,
	    struct process_segment *process, uint64_t hash_seed, bool fresh)
{
	*f = (struct fleet){.shared = shared, .rows = rows, .process = process,
			    .seed = hash_seed};
	hashes_make(f);
	if (!fresh)
		return;
	memset(shared, 0, sizeof *shared);
	shared->now = clock_mono();
	shared->start = clock_wall();
}

/* Rows begin with a start time and a batch that speaks of both tiers. */
static void
first_words(struct fleet *f, unsigned r)
{
	struct fleet_batch b = {.n = 2};

	if (side_now(&f->shared->row[r])->seq != 0 || side_now(&f->shared->row[r])->life != 0)
		return;
	apply_engine_start(f->apply, (uint16_t)r, 1, f->shared->start);
	while (!fleet_serves(r, b.event[0].prompt))
		b.event[0].prompt++;
	b.event[0].n = 1;
	b.event[1] = b.event[0];
	b.event[1].tier = FLEET_OFFLOAD;
	b.life = 1;
	fleet_deliver(f, r, &b);
}

int
fleet_born(struct fleet *f, const struct segment *index)
{
	int r = index_writer_open(&f->writer, fcntl(index->fd, F_DUPFD_CLOEXEC, 0));

	if (r == 0)
		r = index_attach_mapped(&f->reader, index);
	if (r == 0)
		r = apply_new(&f->apply, f->writer, f->rows, f->process);
	for (uint16_t i = 0; r == 0 && i < FLEET_ROWS; i++)
		r = apply_row_open(f->apply, i, true, f->shared->now);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < FLEET_ROWS; i++) {
		struct fleet_side *next = side_next(&f->shared->row[i]);

		if (f->shared->half[i])
			forgotten(next);
		else
			missed(next);
		may_follow(next);
		side_show(&f->shared->row[i]);
		f->shared->half[i] = 0;
	}
	for (unsigned i = 0; i < FLEET_ROWS; i++)
		first_words(f, i);
	return 0;
}

void
fleet_dies(struct fleet *f)
{
	apply_free(&f->apply);
	index_detach(&f->reader);
	index_writer_close(&f->writer);
}

void
fleet_reaped(struct fleet_shared *shared, const struct rows *rows)
{
	for (unsigned i = 0; i < FLEET_ROWS; i++) {
		struct fleet_row *row = &shared->row[i];
		struct fleet_side after, *next;
		uint64_t open = atomic_load(&rows->row[i].open_seq);

		shared->half[i] = open != atomic_load(&rows->row[i].applied_seq);
		bool was = under_way(row);

		atomic_store(&row->pending, 0);         /* also one that was never shown */
		if (!was)
			continue;
		/* Whether it was heard nobody knows: both are possible. */
		after = *side_now(row);
		batch_happens(&after, &row->batch);
		next = side_next(row);
		memcpy(next->truth, after.truth, sizeof next->truth);
		next->seq = after.seq;
		next->life = after.life;
		next->hole = true;
		for (unsigned n = 0; n < FLEET_NODES; n++) {
			next->routed[n] |= next->may[n] != 0;
			next->demoted[FLEET_GPU][n] |= (next->may[n] & FLEET_MAY_GPU) != 0;
			next->demoted[FLEET_OFFLOAD][n] |= (next->may[n] & FLEET_MAY_OFFLOAD) != 0;
		}
		side_show(row);
	}
}

/* ---- judging ---- */

static unsigned
depth_by(const uint8_t may[FLEET_DEPTH], unsigned bits)
{
	unsigned b = 0;

	while (b < FLEET_DEPTH && may[b] & bits)
		b++;
	return b;
}

static void
may_of(const struct fleet_side *s, unsigned prompt, uint8_t ret[FLEET_DEPTH])
{
	for (unsigned b = 0; b < FLEET_DEPTH; b++)
		ret[b] |= s->may[fleet_node(prompt, b)];
}

static struct index_depth
depth_in(const struct index_depth *depth, unsigned n, unsigned row)
{
	for (unsigned i = 0; i < n; i++)
		if (depth[i].row == row)
			return depth[i];
	return (struct index_depth){.row = (uint16_t)row};
}

static unsigned
look_up(const struct fleet *f, struct index *index, unsigned prompt, struct index_depth *ret)
{
	uint64_t hash[FLEET_DEPTH];

	for (unsigned b = 0; b < FLEET_DEPTH; b++)
		hash[b] = f->hash[fleet_node(prompt, b)];
	return index_match(index, hash, FLEET_DEPTH, ret, FLEET_ROWS);
}

/* Also what lies beyond a hole, and so deepens nothing today, is sure only if it is so. */
static void
bits_check_rest(struct fleet *f, unsigned r, unsigned tier)
{
	const struct fleet_side *s = side_now(&f->shared->row[r]);
	const struct row *row = &f->rows->row[r];
	uint16_t id = atomic_load(tier == FLEET_GPU ? &row->slot_gpu : &row->slot_offload);

	for (unsigned n = 0; id != 0 && n < FLEET_NODES; n++)
		if (f->hash[n] != 0 && s->known[tier][n] == 0 &&
		    index_has(f->writer, id, f->hash[n]))
			fleet_wrong(f->shared, "at rest row %u is sure of block %u in tier %u", r,
				    n, tier);
}

static void
row_check_rest(struct fleet *f, unsigned r)
{
	const struct fleet_side *s = side_now(&f->shared->row[r]);
	unsigned state = atomic_load(&f->rows->row[r].cache_state);

	if (s->hole)
		return;                         /* what was lost shows with the next batch */
	if ((state & 0xff) == CACHE_EXACT) {
		atomic_fetch_add(&f->shared->exact_checks, 1);
		if (memcmp(s->known, s->truth, sizeof s->truth) != 0)
			fleet_wrong(f->shared, "row %u is said to be exact and is not (%s)", r,
				    cache_reason_name(state >> 8));
	} else if (s->in_step) {
		fleet_wrong(f->shared, "row %u was heard whole and is %s", r,
			    cache_state_name(state & 0xff));
	}
}

bool
fleet_check_rest(struct fleet *f)
{
	struct index_depth depth[FLEET_ROWS];

	for (unsigned r = 0; r < FLEET_ROWS; r++) {
		row_check_rest(f, r);
		bits_check_rest(f, r, FLEET_GPU);
		bits_check_rest(f, r, FLEET_OFFLOAD);
	}
	if (index_refused(index_head(f->reader)) != 0)
		fleet_wrong(f->shared, "the table is too small for this test");
	for (unsigned p = 0; p < FLEET_PROMPTS; p++) {
		unsigned n = look_up(f, f->reader, p, depth);

		for (unsigned r = 0; r < FLEET_ROWS; r++) {
			const struct fleet_side *s = side_now(&f->shared->row[r]);
			struct index_depth d = depth_in(depth, n, r);
			uint8_t may[FLEET_DEPTH] = {0};
			unsigned gpu, exact;

			may_of(s, p, may);
			gpu = depth_by(may, FLEET_MAY_GPU);
			exact = depth_by(may, FLEET_MAY_GPU | FLEET_MAY_OFFLOAD);
			if (d.gpu != gpu || d.exact != exact ||
			    d.any > depth_by(may, FLEET_MAY_ANY))
				fleet_wrong(f->shared,
					    "at rest row %u prompt %u: gpu %u (%u) exact %u (%u) "
					    "any %u (%u at most)",
					    r, p, d.gpu, gpu, d.exact, exact, d.any,
					    depth_by(may, FLEET_MAY_ANY));
			atomic_fetch_add_explicit(&f->shared->depth_seen, d.exact,
						  memory_order_relaxed);
		}
	}
	atomic_fetch_add(&f->shared->rest_checks, 1);
	return atomic_load(&f->shared->wrong) == 0;
}

/* The side of a row as it was at one moment; false: it moved on meanwhile. */
static bool
side_peek(struct fleet_row *row, unsigned prompt, uint64_t *ret_at, uint8_t may[FLEET_DEPTH])
{
	*ret_at = atomic_load_explicit(&row->at, memory_order_seq_cst);
	may_of(&row->side[*ret_at & 1], prompt, may);
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&row->at, memory_order_seq_cst) == *ret_at;
}

bool
fleet_judge(const struct fleet *f, struct index *index, unsigned prompt, uint64_t *skipped)
{
	struct index_depth depth[FLEET_ROWS];
	uint8_t may[FLEET_ROWS][FLEET_DEPTH] = {{0}};
	uint64_t before[FLEET_ROWS], after;
	bool sane[FLEET_ROWS], good = true;
	unsigned n;

	for (unsigned r = 0; r < FLEET_ROWS; r++)
		sane[r] = side_peek(&f->shared->row[r], prompt, &before[r], may[r]);
	n = look_up(f, index, prompt, depth);
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned r = 0; r < FLEET_ROWS; r++) {
		struct index_depth d = depth_in(depth, n, r);

		sane[r] &= side_peek(&f->shared->row[r], prompt, &after, may[r]);
		if (!sane[r] || after - before[r] > 1) {
			(*skipped)++;
			continue;
		}
		if (d.gpu > depth_by(may[r], FLEET_MAY_GPU) ||
		    d.exact > depth_by(may[r], FLEET_MAY_GPU | FLEET_MAY_OFFLOAD) ||
		    d.any > depth_by(may[r], FLEET_MAY_ANY)) {
			good = false;
			fleet_wrong(f->shared,
				    "a reader was told row %u prompt %u: gpu %u (%u at most) exact "
				    "%u (%u) any %u (%u)",
				    r, prompt, d.gpu, depth_by(may[r], FLEET_MAY_GPU), d.exact,
				    depth_by(may[r], FLEET_MAY_GPU | FLEET_MAY_OFFLOAD), d.any,
				    depth_by(may[r], FLEET_MAY_ANY));
		}
	}
	return good;
}
