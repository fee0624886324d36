/* tests/race/race_apply_points.c -- kvevents' half of the index stopped before each single store.
 *
 * A child process hears a history, then one batch (or note, tick, removal of the row ...), and ends
 * before its n-th store into the index or the row's lines, for every n.  What it leaves is then
 * read, settled by a successor and read again:
 *
 *      found    slots and names agree but for what actors/kvevents/apply.h, "Crash", says may be
 *      read     no holder that was neither there before nor is after; the table is sound
 *      settled  nothing is sure; of the row either nothing is left, or no more than the whole
 *               operation would have left, or nothing of it had begun; other rows lost nothing
 *      again    what is sent to the row is noted, its next life is heard whole; rows taken away
 *               leave no block and no id
 * Usage: race_apply_points [histories]
 */
#include "tests/race/race_apply_fleet.h"
#include "tests/race/stop.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/common/log.h"

#define HISTORY 40u     /* steps of the fleet before */
#define ROW 1u
#define STORES_MAX 5000u
#define PROMPT_LAST 9u                   /* ROW serves it */

enum kind {
	KIND_STORED, KIND_REMOVED, KIND_CLEARED, KIND_CLEARED_OFFLOAD, KIND_MIXED, KIND_GAP,
	KIND_RESTART, KIND_RESTART_SAME, KIND_BROKEN, KIND_NOTE, KIND_ROTATE, KIND_EXPIRE,
	KIND_ENGINE_START, KIND_CLOSE, KIND_REOPEN, KIND_MOVED, KINDS
};
static const char *const kind_names[KINDS] = {
	"stored", "removed", "cleared", "cleared offload", "mixed", "gap", "restart",
	"restart, same number", "unreadable", "note", "rotate", "expire", "engine start", "close",
	"added again", "moved",
};

/* ---- one place, restored to the bytes it was made with ---- */

struct place {
	struct rows rows;
	struct segment index;
	struct process_segment process;
	struct fleet_shared *shared;
	char *rows_bytes, *index_bytes;
	struct index *reader;
	struct fleet f;                         /* for its hashes, and the successor */
};

struct holders {                        /* of each node: rows */
	uint8_t any[FLEET_NODES], exact[FLEET_NODES];
};

static char *
copy_of(const void *bytes, size_t n)
{
	char *copy = malloc(n);

	if (!copy)
		abort();
	memcpy(copy, bytes, n);
	return copy;
}

static void
place_restore(struct place *at)
{
	memcpy(at->rows.seg.head, at->rows_bytes, at->rows.seg.size);
	memcpy(at->index.head, at->index_bytes, at->index.size);
	fleet_begin(&at->f, at->shared, &at->rows, &at->process, index_seed(at->reader), true);
}

static void
holders_read(const struct place *at, struct holders *ret)
{
	uint32_t max;
	const struct index_slot *slot = index_slots(at->reader, &max);
	uint16_t id[64];

	memset(ret, 0, sizeof *ret);
	for (unsigned n = 0; n < FLEET_NODES; n++) {
		unsigned held = at->f.hash[n]
					? index_holders(at->reader, at->f.hash[n], id, 64)
					: 0;

		for (unsigned i = 0; i < held; i++) {
			uint64_t word = atomic_load(&slot[id[i]].word);

			ret->any[n] |= (uint8_t)(1u << index_slot_row(word));
			if (index_slot_role(word) == INDEX_EXACT)
				ret->exact[n] |= (uint8_t)(1u << index_slot_row(word));
		}
	}
}

static bool
within(const uint8_t *part, const uint8_t *whole, const uint8_t *or, unsigned rows)
{
	for (unsigned n = 0; n < FLEET_NODES; n++)
		if (part[n] & rows & ~(whole[n] | (or ? or[n] : 0)))
			return false;
	return true;
}

/* ---- the operation ---- */

/* A block that the row's engine holds, else one it may store. */
static struct fleet_event
event_of(const struct fleet_side *s, enum fleet_op op, enum fleet_tier tier, unsigned skip)
{
	struct fleet_event e = {.op = (uint8_t)op, .tier = (uint8_t)tier};

	for (unsigned p = 0; p < FLEET_PROMPTS; p++)
		for (unsigned b = 0; b < FLEET_DEPTH && fleet_serves(ROW, p); b++) {
			bool has = s->known[tier][fleet_node(p, b)] > 0;
			bool place = b == 0 || s->known[FLEET_GPU][fleet_node(p, b - 1)] > 0;

			if ((op == FLEET_REMOVE) != has || !place)
				continue;
			e.prompt = (uint8_t)p;
			e.from = (uint8_t)b;
			e.n = 1;
			if (skip-- == 0)
				return e;
		}
	return e;
}

static void
batch_of(struct fleet *f, enum kind kind, struct fleet_batch *b)
{
	struct fleet_side s = f->shared->row[ROW].side[f->shared->row[ROW].at & 1];

	*b = (struct fleet_batch){.seq = s.seq, .life = s.life};
#define ADD(op, tier, skip) (b->event[b->n++] = event_of(&s, op, tier, skip))
	switch (kind) {
	case KIND_REMOVED:
		for (unsigned i = 0; i < 3; i++)
			ADD(FLEET_REMOVE, FLEET_GPU, i);
		break;
	case KIND_CLEARED:
		b->event[b->n++] = (struct fleet_event){.op = FLEET_CLEAR, .tier = FLEET_GPU};
		ADD(FLEET_STORE, FLEET_GPU, 0);
		break;
	case KIND_CLEARED_OFFLOAD:
		b->event[b->n++] = (struct fleet_event){.op = FLEET_CLEAR, .tier = FLEET_OFFLOAD};
		break;
	case KIND_MIXED:
		ADD(FLEET_STORE, FLEET_OFFLOAD, 1);
		ADD(FLEET_REMOVE, FLEET_GPU, 0);
		ADD(FLEET_REMOVE, FLEET_OFFLOAD, 0);
		ADD(FLEET_STORE, FLEET_GPU, 2);
		break;
	case KIND_BROKEN:
		ADD(FLEET_STORE, FLEET_GPU, 0);
		b->event[b->n++] = (struct fleet_event){.op = FLEET_BROKEN, .tier = FLEET_GPU};
		break;
	case KIND_GAP:
		b->seq++;
		/* fallthrough */
	default:
		for (unsigned i = 0; i < 3; i++)
			ADD(FLEET_STORE, FLEET_GPU, 2 * i);
	}
#undef ADD
	for (unsigned i = 0; i < b->n; i++)     /* nothing to remove: nothing said */
		if (b->event[i].op == FLEET_REMOVE && b->event[i].n == 0)
			b->event[i] = b->event[--b->n];
}

static void
operate(struct fleet *f, enum kind kind)
{
	struct fleet_batch b;

	batch_of(f, kind, &b);
	switch (kind) {
	case KIND_RESTART:
		b.life++;
		b.seq = 0;
		fleet_deliver(f, ROW, &b);
		break;
	case KIND_RESTART_SAME:                 /* as many batches as the last life had */
		b.life++;
		b.seq--;
		fleet_deliver(f, ROW, &b);
		break;
	case KIND_NOTE:
		fleet_note(f, ROW, PROMPT_LAST, FLEET_DEPTH);
		break;
	case KIND_ROTATE:
		fleet_tick(f, APPLY_LEASE_SILENT_NS / 2);
		break;
	case KIND_EXPIRE:
		fleet_tick(f, 2 * APPLY_LEASE_SILENT_NS);
		break;
	case KIND_ENGINE_START:
		apply_engine_start(f->apply, ROW, 1, f->shared->start + 10000000000ull);
		break;
	case KIND_CLOSE:
		apply_row_close(f->apply, ROW);
		break;
	case KIND_REOPEN:
		atomic_store(&f->rows->row[ROW].row_gen, 2);
		apply_row_open(f->apply, ROW, true, f->shared->now);
		break;
	case KIND_MOVED:
		apply_row_moved(f->apply, ROW);
		break;
	default:
		fleet_deliver(f, ROW, &b);
	}
}

/* Whether its numbers say that a batch is half applied when it ends early. */
static bool
is_batch(enum kind kind)
{
	return kind <= KIND_BROKEN;
}

/* A child hears history and operation and ends before store n; 0: after all.  False: it did. */
static bool
child_run(struct place *at, uint64_t history, enum kind kind, uint64_t n)
{
	int status;
	pid_t pid;

	place_restore(at);
	pid = fork();
	if (pid == 0) {
		struct fleet f;

		fleet_begin(&f, at->shared, &at->rows, &at->process, at->f.seed, false);
		f.random = history;
		if (fleet_born(&f, &at->index) < 0)
			_exit(2);
		for (unsigned i = 0; i < HISTORY; i++)
			fleet_step(&f);
		/* Known content, some of it routed too, and a demoted slot beside a fresh one. */
		for (unsigned i = 0; i < 6; i++) {
			struct fleet_batch b;

			batch_of(&f, i == 1 ? KIND_GAP : i == 3 ? KIND_MIXED : KIND_STORED, &b);
			fleet_deliver(&f, ROW, &b);
		}
		fleet_note(&f, ROW, fleet_serves(ROW, 0) ? 0 : 2, FLEET_DEPTH / 2);
		if (!fleet_check_rest(&f))
			_exit(2);
		stores_left = n;
		operate(&f, kind);
		_exit(1);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
		fleet_wrong(at->shared, "a child failed: %d", status);
	return WEXITSTATUS(status) == 0;
}

/* ---- judging what it left ---- */

static uint16_t
name_of(const struct row *row, unsigned i)
{
	const _Atomic uint16_t *const names[] = {
		&row->slot_gpu,         &row->slot_offload,  &row->slot_demoted_gpu,
		&row->slot_demoted_offload, &row->slot_spec_cur, &row->slot_spec_old,
	};

	return atomic_load(names[i]);
}

/* Rule 11's order, as the table in apply.h has it. */
static const char *
found(const struct place *at)
{
	static const unsigned role[] = {INDEX_EXACT, INDEX_EXACT, INDEX_DEMOTED,
					INDEX_DEMOTED, INDEX_SPECULATIVE, INDEX_SPECULATIVE};
	uint32_t max;
	const struct index_slot *slot = index_slots(at->reader, &max);
	unsigned named[1024] = {0};
	uint16_t id[64];
	bool has_blocks[1024] = {false};

	for (unsigned n = 0; n < FLEET_NODES; n++)
		for (unsigned k = at->f.hash[n] ? index_holders(at->reader, at->f.hash[n], id, 64)
						: 0; k > 0; k--)
			has_blocks[id[k - 1]] = true;
	for (unsigned r = 0; r < FLEET_ROWS; r++)
		for (unsigned i = 0; i < 6; i++) {
			uint16_t name = name_of(&at->rows.row[r], i);
			uint64_t word = name ? atomic_load(&slot[name].word) : 0;

			if (name == 0)
				continue;
			named[name]++;
			if (index_slot_state(word) == INDEX_SLOT_FREE)
				return "a name whose slot is free: named before it was taken, or "
				       "scrubbed before its name went";
			if (index_slot_row(word) != r)
				return "a name of another row's slot";
			if (index_slot_state(word) == INDEX_SLOT_LIVE &&
			    index_slot_role(word) != role[i] &&
			    !(role[i] == INDEX_EXACT && index_slot_role(word) == INDEX_DEMOTED))
				return "a name of another role's slot";
		}
	for (uint32_t i = 1; i <= max; i++) {
		uint64_t word = atomic_load(&slot[i].word);

		if (named[i] > 1 && index_slot_role(word) != INDEX_DEMOTED)
			return "two names of one slot";
		if (index_slot_state(word) == INDEX_SLOT_LIVE && named[i] == 0 && has_blocks[i] &&
		    index_slot_role(word) != INDEX_SPECULATIVE)
			return "a live slot with blocks and without a name: first bit before the "
			       "name, or the name gone before the slot";
	}
	return NULL;
}

static void
audit(struct place *at, bool settled, const char *when)
{
	struct index_audit a;

	if (index_audit(at->reader, &a) < 0 || a.duplicates || a.unreachable || a.garbage ||
	    (settled && (a.saturated || a.overcounted)))
		fleet_wrong(at->shared, "%s: the table is damaged", when);
}

struct judged {
	struct holders before, after, settled_before, settled_after;
};

static bool
successor_settles(struct place *at)
{
	fleet_reaped(at->shared, &at->rows);
	if (fleet_born(&at->f, &at->index) < 0) {
		fleet_wrong(at->shared, "no successor");
		return false;
	}
	return true;
}

/* The row's engine begins anew and is heard whole; then all rows go, and nothing may be left. */
static void
again(struct place *at)
{
	struct fleet_side *s = &at->shared->row[ROW].side[at->shared->row[ROW].at & 1];
	struct fleet_batch b;
	struct holders h;

	batch_of(&at->f, KIND_STORED, &b);
	b.life = s->life + 1;
	b.seq = 0;
	b.told = 1;
	fleet_deliver(&at->f, ROW, &b);
	holders_read(at, &h);
	for (unsigned i = 0; i < b.n; i++)
		if (b.event[i].from == 0 &&
		    !(h.exact[fleet_node(b.event[i].prompt, 0)] & 1u << ROW))
			fleet_wrong(at->shared, "the row cannot hold anything any more");
	for (uint16_t r = 0; r < FLEET_ROWS; r++)
		apply_row_close(at->f.apply, r);
	while (index_scrub(at->f.writer, 1000) > 0)
		;
	if (atomic_load(&index_head(at->reader)->entries) != 0)
		fleet_wrong(at->shared, "rows went, blocks stayed");
	for (uint32_t id = 1; id <= index_max_slots(at->f.writer); id++)
		if (index_slot_state(index_slot_word(at->f.writer, (uint16_t)id)) !=
		    INDEX_SLOT_FREE)
			fleet_wrong(at->shared, "an id never came back");
}

static void
judge(struct place *at, enum kind kind, const struct judged *j)
{
	struct holders left, settled;
	unsigned all = (1u << FLEET_ROWS) - 1, mine = 1u << ROW, others = all & ~mine;
	const struct row *row = &at->rows.row[ROW];
	bool half = atomic_load(&row->open_seq) != atomic_load(&row->applied_seq), begun;
	const char *why = found(at);

	if (why)
		fleet_wrong(at->shared, "%s", why);
	audit(at, false, "as left");
	holders_read(at, &left);
	/* Sure for a moment may be what the end of the batch makes probable. */
	if (!within(left.exact, j->before.exact, j->after.any, all) ||
	    !within(left.any, j->before.any, j->after.any, all))
		fleet_wrong(at->shared, "a reader is told what neither was nor will be");
	begun = memcmp(&left, &j->before, sizeof left) != 0;
	if (!successor_settles(at))
		return;
	audit(at, true, "settled");
	holders_read(at, &settled);
	for (unsigned n = 0; n < FLEET_NODES; n++)
		if (settled.exact[n])
			fleet_wrong(at->shared, "something is sure without a map");
	if (is_batch(kind) && half && !within(settled.any, (uint8_t[FLEET_NODES]){0}, NULL, mine))
		fleet_wrong(at->shared, "half a batch, and the row holds blocks");
	if (is_batch(kind) && begun && !within(settled.any, j->settled_after.any, NULL, mine))
		fleet_wrong(at->shared, "the row holds what the batch took away");
	if (!within(settled.any, j->before.any, j->settled_after.any, all))
		fleet_wrong(at->shared, "a successor found what neither was nor will be");
	if (kind != KIND_EXPIRE && kind != KIND_ROTATE &&
	    (!within(settled.any, j->settled_before.any, NULL, others) ||
	     !within(j->settled_before.any, settled.any, NULL, others)))
		fleet_wrong(at->shared, "another row's blocks came or went");
	fleet_note(&at->f, ROW, PROMPT_LAST, 1);
	holders_read(at, &settled);
	if (!(settled.any[fleet_node(PROMPT_LAST, 0)] & mine))
		fleet_wrong(at->shared, "what is sent there is not noted any more");
	again(at);
	fleet_dies(&at->f);
}

static int
stop_everywhere(struct place *at, enum kind kind, uint64_t history, uint64_t *stops, uint64_t *seen)
{
	struct judged j;
	uint64_t n = 1;

	child_run(at, history, kind, 0);
	holders_read(at, &j.after);
	if (successor_settles(at)) {
		holders_read(at, &j.settled_after);
		fleet_dies(&at->f);
	}
	child_run(at, history, kind, 1);
	holders_read(at, &j.before);
	for (unsigned i = 0; i < FLEET_NODES; i++)
		*seen += (j.before.exact[i] >> ROW & 1u) + (j.before.any[i] >> ROW & 1u);
	if (successor_settles(at)) {
		holders_read(at, &j.settled_before);
		fleet_dies(&at->f);
	}
	for (; n < STORES_MAX && child_run(at, history, kind, n); n++) {
		judge(at, kind, &j);
		if (atomic_load(&at->shared->wrong) != 0) {
			printf("FALSE: %s, history %lu, before store %lu: %s\n", kind_names[kind],
			       (unsigned long)history, (unsigned long)n, at->shared->why);
			return 1;
		}
	}
	if (atomic_load(&at->shared->wrong) != 0)
		printf("FALSE: %s, history %lu: %s\n", kind_names[kind], (unsigned long)history,
		       at->shared->why);
	*stops += n - 1;
	return n == STORES_MAX || atomic_load(&at->shared->wrong) != 0;
}

static int
place_make(struct place *at, uint32_t max_slots)
{
	*at = (struct place){0};
	at->shared = mmap(NULL, sizeof *at->shared, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at->shared == MAP_FAILED ||
	    fleet_segments(&at->rows, &at->index, &at->process, max_slots) < 0 ||
	    index_attach(&at->reader, segment_readonly_fd(&at->index)) < 0)
		return -1;
	at->rows_bytes = copy_of(at->rows.seg.head, at->rows.seg.size);
	at->index_bytes = copy_of(at->index.head, at->index.size);
	return 0;
}

int
main(int argc, char **argv)
{
	uint64_t histories = argc > 1 ? strtoull(argv[1], NULL, 10) : 2;
	static const uint32_t max_slots[] = {44, 90};
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	log_open("race", 0, 0, 0, LEVEL_ERROR);
	for (unsigned shape = 0; shape < 2; shape++) {
		struct place at;

		if (place_make(&at, max_slots[shape]) < 0)
			return 1;
		for (unsigned kind = 0; kind < KINDS; kind++) {
			uint64_t stops = 0, seen = 0;

			for (uint64_t h = 1; h <= histories; h++)
				bad |= stop_everywhere(&at, (enum kind)kind, h, &stops, &seen);
			printf("ids %-3u %-20s stops %lu blocks before %lu\n", max_slots[shape],
			       kind_names[kind], (unsigned long)stops, (unsigned long)seen);
			bad |= stops == 0 || seen == 0;
		}
		index_detach(&at.reader);
		segment_detach(&at.index);
		process_detach(&at.process);
		rows_detach(&at.rows);
		munmap(at.shared, sizeof *at.shared);
		free(at.rows_bytes);
		free(at.index_bytes);
	}
	return bad;
}
