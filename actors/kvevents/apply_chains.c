/* actors/kvevents/apply_chains.c -- are the prompts that were sent to a worker in its events?
 *
 * Of some prompts the hash of the last whole block is looked for among what the worker stored, once
 * a second, until it is found or APPLY_CHAIN_NS have passed.  A share, and never a proof: a block
 * may be evicted before we look, and who was sent a prompt may not have begun it.
 */
#include "actors/kvevents/apply_row.h"

#define LOOK_NS 1000000000ull

static bool
stored(struct apply *a, const struct apply_row *r, uint64_t hash)
{
	for (enum index_tier tier = 0; tier < APPLY_TIERS; tier++) {
		uint16_t id = row_slot(r, INDEX_EXACT, tier);

		if (id != 0 && index_has(a->w, id, hash))
			return true;
	}
	return false;
}

void
row_chain_sent(struct apply *a, struct apply_row *r, uint64_t last)
{
	if (!r->events || r->n_chains == APPLY_CHAINS || last == 0)
		return;
	r->chain[r->n_chains].hash = last;
	r->chain[r->n_chains++].sent = a->now;
}

void
row_chains_look(struct apply *a, struct apply_row *r)
{
	unsigned kept = 0;

	if (r->n_chains == 0 || a->now < r->chains_at)
		return;
	r->chains_at = a->now + LOOK_NS;
	for (unsigned i = 0; i < r->n_chains; i++) {
		bool found = stored(a, r, r->chain[i].hash);

		if (!found && a->now - r->chain[i].sent < APPLY_CHAIN_NS) {
			r->chain[kept++] = r->chain[i];
			continue;
		}
		row_count(&r->shared->chains_routed, 1);
		row_count(&r->shared->chains_stored, found);
	}
	r->n_chains = kept;
}
