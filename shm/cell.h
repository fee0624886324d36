/* shm/cell.h -- what one ingress incarnation has in flight on each row.
 *
 *      segment header | column_header 512 | cell 64 x rows capacity
 *
 *      cell    0: row_gen 32 | latch n 32      8: copy 0, 7 x u32      36: copy 1, 7 x u32
 *
 * Writers    the owning ingress; `alive` by the supervisor, which zeroes the column after the
 *            ingress died and `gone` reached the policies.
 * Readers    policy (sums over live columns, adds its overlay), metrics, admin.
 * Order      latch.h; `applied` is release-stored after the cells it covers (C1), acquire-loaded
 *            before the cells are read (A1): watermarks, then cells, then overlay (rules
 *            of actors/README.md).
 * A cell whose row_gen differs from the row's reads as zero.
 */
#pragma once
#include "shm/latch.h"
#include "shm/segment.h"

#define COLUMN_LAYOUT   1u
#define CELL_WORDS      7u
#define COLUMN_STREAMS  4u              /* policy incarnations with a watermark at once */
#define POISON_RING     16u

struct cell_values {
	uint32_t pending; /* prefill tokens dispatched, no first byte yet (uncached part) */
	uint32_t context;               /* prompt tokens of requests that are decoding */
	uint32_t oldest_dispatch_ms;    /* mono ms, wrapping; of the oldest without first byte */
	uint32_t last_first_ms;         /* mono ms, wrapping; of the newest first byte */
	uint32_t last_pick;             /* pick number of the newest choice: ties go to the least */
	uint16_t prefilling, decoding;  /* requests */
	uint16_t failures;              /* upstream failures in a row */
	uint16_t zero;
};
_Static_assert(sizeof(struct cell_values) == CELL_WORDS * 4, "cell_values");

struct cell {
	_Atomic uint64_t word;
	_Atomic uint32_t copies[2 * CELL_WORDS];
};
_Static_assert(sizeof(struct cell) == 64, "cell");

struct poison {                         /* bodies that killed a policy process twice */
	_Atomic uint64_t body_hash, until_ns;
};

struct column_header {
	uint32_t index, incarnation;
	_Atomic uint32_t alive;                         /* S */
	uint32_t rows;
	_Atomic uint64_t applied[COLUMN_STREAMS]; /* policy incarnation 32 | answer number 32 */
	_Atomic uint64_t routed_sent;                   /* seq of the newest `routed` to kvevents */
	uint64_t pad0;
	struct poison poison[POISON_RING];
	uint64_t pad1[24];
};
_Static_assert(sizeof(struct column_header) == 512, "column_header");

struct column {                         /* process-local view */
	struct segment seg;
	struct column_header *head;
	struct cell *cell;
	uint32_t rows;
};

int column_create(struct column *ret, uint32_t index, uint32_t incarnation, uint32_t rows); /* S */
int column_attach(struct column *ret, int fd, bool writable); /* takes fd */
void column_detach(struct column *column);

static inline void
cell_write(struct cell *cell, uint32_t row_gen, const struct cell_values *values)
{
	latch_write(&cell->word, row_gen, cell->copies, CELL_WORDS,
		    (const uint32_t *)(const void *)values);
}

/* Zeroes when the cell speaks of another row generation.  False: torn. */
static inline bool
cell_read(const struct cell *cell, uint32_t row_gen, struct cell_values *ret)
{
	uint32_t tag;
	bool whole =
		latch_read(&cell->word, &tag, cell->copies, CELL_WORDS, (uint32_t *)(void *)ret);

	if (tag != row_gen)
		*ret = (struct cell_values){0};
	return whole;
}

/* Watermark of one policy incarnation: its highest answer number applied or discarded; 0 none. */
uint32_t column_applied(const struct column *column, uint32_t policy_incarnation);
void column_apply(struct column *column, uint32_t policy_incarnation,
		  uint32_t number); /* owner, C1 */
