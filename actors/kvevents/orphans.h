/* actors/kvevents/orphans.h -- blocks of a worker whose parent we never heard of, kept until we do.
 *
 * An engine names a block by its own hash and its parent's.  After a late join or a gap the parent
 * is unknown, so where the block lies in a prompt is unknown too.  It is kept with the hash of its
 * own content; when the parent is stored, the chain follows.  Linking is by parent only: the same
 * tokens stand in many prompts, and linking by content was false in 26 - 93 % of cases.
 *
 * Counts     as on the wire: stored twice needs two removals.  An orphan whose count reaches 0
 *            but that has children stays as a ghost: it links them, and is itself held by nobody;
 *            it goes with the last of them.
 * Bounds     ORPHANS_MAX blocks, or fewer where the caller allows no growth; over it some old one
 *            gives way (only ever under-counts).  Without orphans next to no memory.
 * Threads    one; private to kvevents.   Cost: tens of ns an operation.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORPHANS_MAX 65536u

struct orphans;
struct orphan {
	uint64_t hash;                          /* engine's */
	uint64_t local;                         /* blockhash_local of its content */
	uint32_t count;                         /* 0: a ghost */
	uint8_t tier;                           /* enum index_tier */
};

int orphans_new(struct orphans **ret);                                  /* 0, -ENOMEM */
void orphans_free(struct orphans **ret);
int orphans_add(struct orphans *o, uint64_t hash, uint64_t parent, uint64_t local, unsigned tier,
		bool may_grow);
	/* Count + 1; another parent or content than before: the newer stands.  0; 1: an old one
	 * gave way; -ENOMEM, also when there is no room at all and it may not grow. */
bool orphans_remove(struct orphans *o, uint64_t hash, unsigned tier);
	/* Count - 1.  False: no such orphan. */
unsigned orphans_take(struct orphans *o, uint64_t hash, unsigned tier);
	/* Forgets it (its place is known now); the count it had, 0: none. */
bool orphans_take_child(struct orphans *o, uint64_t parent, struct orphan *ret);
	/* Any child of `parent`, ghosts included, forgotten here.  False: no more. */
void orphans_clear(struct orphans *o);
void orphans_clear_tier(struct orphans *o, unsigned tier);              /* walks all */
size_t orphans_bytes(const struct orphans *o);                          /* memory it has */
size_t orphans_growth(const struct orphans *o);
	/* Bytes more that it has after growing, should the next one need that; 0: it will not. */
size_t orphans_size(const struct orphans *o);                           /* ghosts included */
