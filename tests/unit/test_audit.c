/* tests/unit/test_audit.c -- what an audit beside the writer may call exact. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>

static void writer_works(void);
#define AUDIT_POINT() writer_works()
#include "actors/pointsctl/audit.c"

#define BLOCKS 1000u

struct world {
	struct segment seg;
	struct index_writer *writer;
	struct index *index;
	uint16_t id;
};

/* What it does in each of the next `busy` passes. */
static enum { PUT, TAKE, SLOT, DEMOTE, RETIRE } works;
static unsigned busy;
static struct world *working;
static _Atomic uint64_t *breaks;        /* a set, from the second pass on */

static uint64_t
hash_of(uint64_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15u;
}

static void
writer_works(void)
{
	static uint64_t n = BLOCKS;
	struct world *w = working;

	if (busy == 0)
		return;
	busy--;
	n++;
	if (breaks)
		atomic_store(breaks, 0);
	if (works == PUT) {
		cr_assert(index_put(w->writer, w->id, hash_of(n), NULL, 0));
	} else if (works == TAKE) {
		cr_assert(index_has(w->writer, w->id, hash_of(n - BLOCKS)));
		index_take(w->writer, hash_of(n - BLOCKS), &w->id, 1);
	} else {
		uint16_t id = index_slot_take(w->writer, 1, 1, INDEX_EXACT, INDEX_GPU, 16);

		cr_assert_neq(id, 0);
		if (works == DEMOTE)
			index_slot_demote(w->writer, id);
		if (works == RETIRE)
			index_slot_retire(w->writer, id);
	}
}

static void
world_begin(struct world *w)
{
	working = w;
	busy = 0;
	cr_assert_eq(index_create(&w->seg, BLOCKS, 100, 7), 0);
	cr_assert_eq(index_writer_open(&w->writer, fcntl(w->seg.fd, F_DUPFD_CLOEXEC, 3)), 0);
	cr_assert_eq(index_attach(&w->index, segment_readonly_fd(&w->seg)), 0);
	w->id = index_slot_take(w->writer, 0, 1, INDEX_EXACT, INDEX_GPU, 16);
	for (uint64_t i = 0; i < BLOCKS / 2; i++)
		cr_assert(index_put(w->writer, w->id, hash_of(i), NULL, 0));
}

static void
world_end(struct world *w)
{
	index_detach(&w->index);
	index_writer_close(&w->writer);
	segment_detach(&w->seg);
}

Test(audit, beside_a_writer_that_rests_one_pass_is_exact)
{
	struct index_audit a;
	struct world w;
	bool exact = false;

	world_begin(&w);
	cr_assert_eq(audit_passes(w.index, &a, &exact), 1);
	cr_assert(exact);
	cr_assert_eq(a.entries, BLOCKS / 2);
	cr_assert_eq(a.holders, BLOCKS / 2);
	cr_assert_eq(a.duplicates + a.unreachable + a.saturated + a.overcounted + a.garbage, 0);
	world_end(&w);
}

/* The set of some key: buckets are four keys, then their four sets. */
static _Atomic uint64_t *
some_set(struct world *w)
{
	const struct index_header *h = index_head(w->index);
	_Atomic uint64_t *bucket =
		(_Atomic uint64_t *)(void *)((char *)w->seg.head + h->off_buckets);

	while (atomic_load(bucket) >> 24 == 0)          /* a key in its first lane */
		bucket += 8;
	return &bucket[4];
}

Test(audit, a_set_no_writer_made_is_found)
{
	struct index_audit a;
	struct world w;
	bool exact = false;

	world_begin(&w);
	atomic_store(some_set(&w), 0);                  /* held by nobody */
	cr_assert_eq(audit_passes(w.index, &a, &exact), 1);
	cr_assert(exact);
	cr_assert_eq(a.garbage, 1);
	busy = UINT_MAX;
	cr_assert_eq(audit_passes(w.index, &a, &exact), AUDIT_PASSES);
	cr_assert_not(exact);
	cr_assert_eq(a.garbage, 1);                     /* it stood in every pass */
	world_end(&w);
}

Test(audit, what_did_not_stand_in_every_pass_is_not_told)
{
	struct index_audit a;
	struct world w;
	bool exact = false;

	world_begin(&w);
	breaks = some_set(&w);
	busy = UINT_MAX;
	cr_assert_eq(audit_passes(w.index, &a, &exact), AUDIT_PASSES);
	cr_assert_eq(a.garbage, 0);
	cr_assert_eq(a.entries, BLOCKS / 2 + AUDIT_PASSES - 1);         /* of the newest */
	world_end(&w);
}

Test(audit, a_pass_in_which_the_writer_did_anything_is_not_called_exact)
{
	struct index_audit a;
	struct world w;
	bool exact = true;

	world_begin(&w);
	for (works = PUT; works <= RETIRE; works++) {
		busy = UINT_MAX;
		cr_assert_eq(audit_passes(w.index, &a, &exact), AUDIT_PASSES, "%u", works);
		cr_assert_not(exact, "%u", works);
		busy = 2;                               /* then it rests */
		cr_assert_eq(audit_passes(w.index, &a, &exact), 3, "%u", works);
		cr_assert(exact, "%u", works);
		cr_assert_eq(a.duplicates + a.unreachable + a.garbage + a.saturated, 0);
	}
	world_end(&w);
}
