/* tests/bench/index_world.h -- the fleet that bench_index measures: who holds which chain.
 *
 * Chains     of 1,000 blocks (16,000 tokens of 16).  One row holds each whole, one more its first
 *            half, and every tenth chain's first 200 blocks are on 32 further rows.  Hashes are
 *            computed from chain and block, so nobody keeps them.
 * Rows       three slots each: exact with its reverse map, two speculative in turn.  What is done
 *            to them is what kvevents does (apply_events.c, apply_note): events of 32 blocks,
 *            prefetched, the reverse map with its counts, the row's speculative ids taken out in
 *            the same store; notes of a prompt's blocks that leave out what the exact slot has.
 * Processes  the writer is the process that called world_new; index_client.h has the reader.
 * Errors     out of memory or a refused segment ends the program: there is nothing to measure.
 */
#pragma once
#include "shm/index.h"
#include "shm/reverse.h"

#define CHAIN           1000u           /* blocks */
#define CHAIN_HALF      500u            /* what the second holder has */
#define CHAIN_WIDE      200u            /* what the further holders of a wide chain have */
#define WIDE_HOLDERS    32u
#define HOLDERS         (2 + WIDE_HOLDERS)
#define EVENT           32u             /* blocks of one event */

struct worker {
	uint16_t exact, cur, old;               /* slot ids */
	struct reverse *reverse;
};

struct world {
	unsigned workers, chains;
	uint32_t max_slots;
	struct segment seg;                     /* owned */
	int reader_fd;                          /* read-only descriptor of it */
	struct index_writer *w;                 /* owned; NULL before world_open */
	struct worker *worker;                  /* `workers`, and one more without chains */
	unsigned next_chain;                    /* chains from here on nobody holds yet */
};

void world_new(struct world *ret, unsigned workers, uint64_t blocks, uint32_t max_slots);
	/* The segment only: load 0.70 at `blocks`. */
void world_open(struct world *world);           /* the writer and every row's slots */
void world_free(struct world *world);

uint64_t chain_hash(unsigned chain, unsigned block);
static inline unsigned
chains_asked(const struct world *world)         /* the others come and go under a reader */
{
	return world->chains / 10 * 9;
}
unsigned chain_holder(const struct world *world, unsigned chain, unsigned k);
	/* Row of the k-th of HOLDERS; all different, and the HOLDERS-th is none of them. */
unsigned chain_held(unsigned chain, unsigned k);        /* leading blocks its k-th holder has */

/* ---- what kvevents does ---- */
struct event {
	unsigned worker, n;
	uint64_t engine[EVENT], chain[EVENT];
};
void event_make(struct event *ret, unsigned worker, unsigned chain, unsigned from, unsigned n);
void event_store(struct world *world, const struct event *e);
void event_remove(struct world *world, const struct event *e);

unsigned note(struct world *world, unsigned worker, unsigned chain, unsigned n);
	/* The first n blocks of the chain were sent there.  Returns how many its current slot holds
	 * more. */
void rotate(struct world *world, unsigned worker);      /* retire the older, begin a new one */

/* ---- fill and churn ---- */
void fill_exact(struct world *world);
unsigned fill_speculative(struct world *world, unsigned worker, unsigned blocks,
			  unsigned per_mille_new);
	/* Notes into the current slot: prompts of known chains, and of new ones.  Returns blocks
	 * put. */

struct churn {                                  /* some chains' holders out, and in again */
	unsigned chains;                        /* a multiple of CHURN_GROUP: the first ones */
	unsigned first, last;                   /* holders first .. last - 1 of each */
};
#define CHURN_GROUP 512u
uint64_t churn_blocks(const struct churn *c);           /* (slot, block) pairs of one pass */
double churn_pass(struct world *world, const struct churn *c, bool store);
	/* ns of one pass, cold: events of CHURN_GROUP different rows and chains one after the
	 * other.  Making the events is not counted. */
