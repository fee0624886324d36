/* tests/unit/index_pair.h -- one index, its writer and one reader; for test_index*.c. */
#pragma once
#include <criterion/criterion.h>

#include "shm/index.h"
#include "tests/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bitmaps in the set word; lists of 5 and bitmaps; lists of 5, chunks of 40 ids and bitmaps; lists
 * of 3, chunks of 64 ids and bitmaps. */
static const uint32_t forms[] = {40, 200, 1000, 5000};
#define FORMS (sizeof forms / sizeof forms[0])

struct pair {                           /* one index, its writer and one reader */
	struct segment seg;
	struct index_writer *w;
	struct index *reader;
};

static inline int
fd_of(const struct segment *seg)
{
	return fcntl(seg->fd, F_DUPFD_CLOEXEC, 0);
}

static inline void
pair_open(struct pair *p, uint64_t blocks, uint32_t max_slots)
{
	cr_assert_eq(index_create(&p->seg, blocks, max_slots, 42), 0);
	cr_assert_eq(index_writer_open(&p->w, fd_of(&p->seg)), 0);
	cr_assert_eq(index_attach(&p->reader, segment_readonly_fd(&p->seg)), 0);
}

static inline void
pair_close(struct pair *p)
{
	index_detach(&p->reader);
	index_writer_close(&p->w);
	segment_detach(&p->seg);
}

static inline void
writer_restart(struct pair *p)
{
	index_writer_close(&p->w);
	cr_assert_eq(index_writer_open(&p->w, fd_of(&p->seg)), 0);
}

static inline void
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
	cr_assert_eq(a.miscounted, 0u);
	cr_assert_eq(a.entries, index_head(p->reader)->entries);
	cr_assert_eq(a.holders, index_head(p->reader)->holders);
}

static inline uint16_t
take(struct pair *p, uint16_t row, enum index_role role, enum index_tier tier)
{
	uint16_t id = index_slot_take(p->w, row, 1, role, tier, 16);

	cr_assert_neq(id, 0);
	return id;
}

static inline bool
put(struct pair *p, uint16_t id, uint64_t hash)
{
	return index_put(p->w, id, hash, NULL, 0);
}

/* Depths of one row; zeros when it is not among the answers. */
static inline struct index_depth
depth_of(struct pair *p, uint16_t row, const uint64_t *hash, unsigned n)
{
	struct index_depth depth[256];
	unsigned rows = index_match(p->reader, hash, n, depth, 256);

	for (unsigned i = 0; i < rows; i++)
		if (depth[i].row == row)
			return depth[i];
	return (struct index_depth){.row = row};
}

static inline void
hashes(uint64_t seed, uint64_t *ret, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ret[i] = random_next(&seed);
}
