/* tests/emulator/tiers.h -- what an engine keeps beside its first group's blocks on the GPU: copies
 * in an offload tier, and further cache groups; engine.h says what they mean.
 *
 * Errors     Out of memory ends the program.   Threads  One.
 */
#pragma once
#include "tests/emulator/pool.h"

struct pool_entry tier_entry(const struct engine_config *, const struct engine_seq *, unsigned i);
	/* What block i of the first group caches.  Its hash is known. */
struct engine_event *tier_stored(struct event_log *, const struct engine_config *,
				 const struct engine_seq *, bool first);
	/* A stored event of a sequence, as yet without hashes, tokens and parent. */
void tier_copy(struct pool *tier, struct event_log *, const struct engine_config *,
	       const struct engine_seq *, unsigned first, unsigned full);
	/* Copy blocks first to full to the offload tier, as far as they are not there. */
void tier_group(struct pool *, struct event_log *, const struct engine_config *,
		const struct blockhash *root, struct engine_seq *, unsigned g, unsigned upto);
	/* Cache the blocks of further group g that the sequence's tokens up to upto fill. */
