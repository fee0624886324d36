/* tests/race/index_load.h -- a small kvevents and the readers who catch it out.
 *
 * The load does to an index what kvevents does: stores, removals, clears, speculative rotation,
 * demotion, scrubbing, with too few ids and too few lanes, so that ids and lanes change hands all
 * the time.  Which row may ever hold which chain, and whether exactly, is a pure function; so
 * whatever a reader is told at any moment can be judged without knowing what happened (load_judge).
 */
#pragma once
#include "shm/index.h"
#include "tests/random.h"

#define LOAD_ROWS_MAX   128u
#define LOAD_CHAIN      24u             /* blocks per chain */

/* The names a row gives its slots; shared memory where writers die. */
struct load_row {
	_Atomic uint16_t gpu, offload, cur, old, demoted;
};

struct load {
	struct index_writer *w;
	struct load_row *row;                   /* LOAD_ROWS_MAX, borrowed */
	unsigned rows, chains;
	unsigned hot;                           /* chains that any row may hold, and most do by and
						 * by, then fewer and fewer */
	unsigned phase;                         /* operations until that turns; 0: never */
	uint64_t seed, random;
	uint64_t done;                          /* operations */
};

void load_hashes(const struct load *l, unsigned chain, uint64_t ret[LOAD_CHAIN]);
bool load_allowed(const struct load *l, unsigned chain, unsigned row);
bool load_allowed_exact(const struct load *l, unsigned chain, unsigned row);

void load_adopt(struct load *l, struct index_writer *w);
	/* Rule 11: a live slot no row names is retired, a name whose slot is not live becomes 0. */
void load_step(struct load *l);                         /* one operation of kvevents */
void load_block(struct load *l, unsigned row, unsigned chain, unsigned block, bool put);
	/* One put or take of that block. */
void load_one(struct load *l);                          /* one put or take, or one slot change */

/* Where a writer's private process may die: between the index's stores and those of the names. */
#ifndef LOAD_STORE_POINT
#define LOAD_STORE_POINT() ((void)0)
#endif

bool load_judge(const struct load *l, struct index *index, unsigned chain, uint64_t *hits);
	/* One lookup of the chain, and the holders of one of its blocks.  false: a row was
	 * credited with what it never held. */
