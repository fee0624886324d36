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
 *            P1/A1 a poison's until after its hash; P2/A2 newest_ns after the entry.
 * Crash      the ingress stops before a store of: a cell: latch.h, the charge or release is not
 *            shown; `applied`, after the cell: the answer counts twice (cell and overlay) until
 *            `gone`; a poison's hash or until: that entry is forgotten, no other body is refused;
 *            newest_ns: it may be forgotten.  Between the two cells of a retry that moves: the
 *            request counts on both rows.  The supervisor repairs all of it: `gone` to everybody,
 *            then column_clear; live poison goes to the successors' columns.
 * A cell whose row_gen differs from the row's reads as zero.
 */
#pragma once
#include "shm/latch.h"
#include "shm/segment.h"

#define COLUMN_LAYOUT   3u
#define CELL_WORDS      7u
#define COLUMN_STREAMS  4u              /* policy incarnations with a watermark at once */
#define POISON_RING     16u

/* How a worker let a request know that it should not have come. */
enum cell_turn {
	CELL_TURN_NONE = 0,
	CELL_UNREACHED,                 /* no connection, or no TLS */
	CELL_BROKE,                     /* no answer, half of one, or one that is not HTTP */
	CELL_UNAVAILABLE,               /* 503 */
	CELL_CLOSING,                   /* "Connection: close" from one that kept them before */
	CELL_TURNS
};
#define CELL_TURN_STEP_MS 8u            /* a time is told so exactly */
#define CELL_TURN_AHEAD_MS 1000u        /* a writer's clock reading may be newer than ours */

struct cell_values {
	uint32_t pending; /* prefill tokens dispatched, no first byte yet (uncached part) */
	uint32_t context;               /* prompt tokens of requests that are decoding */
	uint32_t oldest_dispatch_ms;    /* mono ms, wrapping; of the oldest without first byte */
	uint32_t last_first_ms;         /* mono ms, wrapping; of the newest first byte */
	uint32_t last_pick;             /* pick number of the newest choice: ties go to the least */
	uint16_t prefilling, decoding;  /* requests */
	uint32_t turned;                /* cell_turned() of the newest time it sent us away; 0 */
};
_Static_assert(sizeof(struct cell_values) == CELL_WORDS * 4, "cell_values");

struct cell {
	_Atomic uint64_t word;
	_Atomic uint32_t copies[2 * CELL_WORDS];
};
_Static_assert(sizeof(struct cell) == 64, "cell");

struct poison_ring {                    /* bodies that made policy processes crash */
	_Atomic uint64_t newest_ns;             /* until the last of them ends; 0 never any */
	struct poison {
		_Atomic uint64_t body_hash, until_ns;   /* mono */
	} entry[POISON_RING];
};

struct column_header {
	uint32_t index, incarnation;
	_Atomic uint32_t alive;                         /* S */
	uint32_t rows;
	_Atomic uint64_t applied[COLUMN_STREAMS]; /* policy incarnation 32 | answer number 32 */
	_Atomic uint64_t routed_sent;                   /* seq of the newest `routed` to kvevents */
	struct poison_ring poison;
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

/* When and how in one word: mono ms, wrapping, in steps; never 0. */
static inline uint32_t
cell_turned(mono_ns when, enum cell_turn how)
{
	return ((uint32_t)(when / 1000000u) & ~(CELL_TURN_STEP_MS - 1)) | (uint32_t)how;
}

static inline enum cell_turn
cell_turn_of(uint32_t turned)
{
	return (enum cell_turn)(turned & (CELL_TURN_STEP_MS - 1));
}

/* Milliseconds from then to now: at most a step too few. */
static inline uint32_t
cell_turn_age_ms(uint32_t turned, uint32_t now_ms)
{
	uint32_t age = now_ms - (turned | (CELL_TURN_STEP_MS - 1));

	return -age < CELL_TURN_AHEAD_MS ? 0 : age;
}
const char *cell_turn_name(enum cell_turn turn);        /* one word, static; "-" for none */

/* Watermark of one policy incarnation: its highest answer number applied or discarded; 0 none. */
uint32_t column_applied(const struct column *column, uint32_t policy_incarnation);
void column_apply(struct column *column, uint32_t policy_incarnation,
		  uint32_t number); /* owner, C1 */
void column_clear(struct column *column);
	/* S, when the owner is dead and `gone` was said to all: not alive, nothing in flight. */

/* Poison: whose body is in a ring, of any ingress, is refused for a while. */
void poison_add(struct poison_ring *ring, uint64_t body_hash, mono_ns until);
	/* Owner of the ring.  The one that would end first gives way. */
bool poison_has(const struct poison_ring *ring, uint64_t body_hash, mono_ns now);
	/* Anybody.  One load where nothing is poisoned. */
void poison_copy(struct poison_ring *to, const struct poison_ring *from, mono_ns now);
	/* Adds what has not ended: a ring outlives its writer in the rings of others. */
