/* actors/ingress/fair.h -- what each client address holds, so that none takes all.
 *
 * Meaning    Slots, arena bytes and connections of one ingress are counted per bucket: an IPv4
 *            address, an IPv6 /64, or all clients on unix sockets.  A bucket may hold no more of a
 *            resource than what is still free of it: one alone gets half, n of them a share of
 *            1 / (n + 1) each, and something is always free for who comes next.
 * Source     Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
 *            switches" (1998), with alpha 1.
 * Bounds     A bucket lives as long as it holds something, so there are no more than connections
 *            and slots together; the table has room for these from the start.
 * Ownership  fair_hold gives a reference, fair_drop takes it back.
 * Threads    the loop's.
 * Cost       one hash and a short chain for a connection, and for a request that a trusted peer
 *            forwards; other requests use their connection's bucket.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/ingress/peer.h"

struct client;

struct fair_bucket {
	struct fair_bucket *next;       /* of the chain, or free */
	uint8_t key[16];
	uint32_t holds;                 /* references */
	uint32_t slots, connections;
	uint64_t arena_bytes;
	struct client *first, *last;    /* room.c: its connections, next to be looked at first */
};

struct fair {
	struct fair_bucket *pool;       /* owned */
	struct fair_bucket **chain;     /* owned */
	struct fair_bucket *free;
	uint32_t n_pool, fresh, n_chains, n_used;
	uint64_t seed;                  /* strangers do not choose their chain */
};

int fair_open(struct fair *ret, uint32_t buckets);      /* 0, -ENOMEM */
void fair_close(struct fair *f);
struct fair_bucket *fair_hold(struct fair *f, const struct peer *peer);
	/* NULL: no bucket is left; never with room for all that hold. */
void fair_drop(struct fair *f, struct fair_bucket *b);  /* NULL is fine */

static inline bool
fair_allows(uint64_t held, uint64_t more, uint64_t free)
{
	/* As it would be afterwards; the first of anything is everybody's right. */
	return held == 0 || (more <= free / 2 && held <= free - 2 * more);
}
