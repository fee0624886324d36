/* actors/kvevents/apply_events.c -- stored, removed, cleared: one event's effect on the index.
 *
 * Rules 4, 5 and 8 of shm/README.md live here.  A block stored exactly takes the row's speculative
 * and demoted ids out of the same set; a removal that reaches zero takes the exact one and those.
 */
#include "actors/kvevents/apply_row.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/log.h"
#include "actors/common/prompt/blocks.h"
#include "shm/blockhash.h"

#define PUT_AHEAD 16u /* blocks prefetched: a cold bucket costs 100 ns */

static enum index_tier
tier_of(const struct kv_event *ev)
{
	return ev->medium == KV_MEDIUM_GPU ? INDEX_GPU : INDEX_OFFLOAD;
}

/* Does this group say how long a prefix is held? */
static bool
group_counts(struct apply_row *r, const struct kv_event *ev)
{
	if (ev->spec != KV_SPEC_UNSAID && ev->spec != KV_SPEC_FULL && ev->spec != KV_SPEC_MLA)
		return false;
	return !ev->has_group || !r->group_known || ev->group == r->group;
}

static uint64_t
chain_in(const struct reverse *map, uint64_t hash)
{
	return map ? reverse_find(map, hash) : 0;
}

/* Where an engine's block hangs: all exact slots of the row, then all demoted ones. */
static uint64_t
chain_of(const struct apply_row *r, uint64_t hash)
{
	uint64_t chain = 0;

	for (unsigned i = 0; i < APPLY_TIERS && !chain; i++)
		chain = chain_in(r->tier[i].fresh, hash);
	for (unsigned i = 0; i < APPLY_TIERS && !chain; i++)
		chain = chain_in(r->tier[i].demoted, hash);
	return chain;
}

/* The row's ids that an exact one of this tier makes superfluous: both speculative, and the
 * demoted. */
static unsigned
lesser_ids(const struct apply_row *r, enum index_tier tier, uint16_t ret[3])
{
	const uint16_t ids[] = {
		row_slot(r, INDEX_SPECULATIVE, INDEX_GPU),
		row_slot_older(r),
		row_slot(r, INDEX_DEMOTED, tier),
	};
	unsigned n = 0;

	for (unsigned i = 0; i < 3; i++)
		if (ids[i] != 0)
			ret[n++] = ids[i];
	return n;
}

/* `count` stores of this block, whose place is known. */
static bool
put_block(struct apply *a, struct apply_row *r, enum index_tier tier, uint64_t hash, uint64_t chain,
	  unsigned count)
{
	uint16_t lesser[3], id = row_slot_exact(a, r, tier);
	struct apply_tier *t = &r->tier[tier];
	unsigned n = lesser_ids(r, tier, lesser);
	uint64_t before;

	if (id == 0 || !t->fresh)
		return false; /* no slot or no memory: under-counted */
	before = reverse_find(t->fresh, hash);
	if (before != 0 && before != chain)
		index_take(a->w, before, &id,
			   1); /* the engine uses its hash for another block now */
	count += orphans_take(r->orphans, hash, tier);
	for (unsigned i = 0; i < count; i++)
		if (reverse_add(t->fresh, hash, chain, NULL) == -ENOMEM)
			return false;
	index_put(a->w, id, chain, lesser, n);
	return true;
}

static bool
work_push(struct apply *a, size_t *n, uint64_t hash, uint64_t chain)
{
	if (*n == a->cap_work) {
		size_t cap = a->cap_work ? a->cap_work * 2 : 256;
		struct apply_work *grown = realloc(a->work, cap * sizeof *grown);

		if (!grown)
			return false;
		a->work = grown;
		a->cap_work = cap;
	}
	a->work[(*n)++] = (struct apply_work){.hash = hash, .chain = chain};
	return true;
}

/* This block's place is known now, and so is that of every orphan below it. */
static void
link_orphans(struct apply *a, struct apply_row *r, uint64_t hash, uint64_t chain)
{
	size_t n = 0;

	if (orphans_size(r->orphans) == 0 || !work_push(a, &n, hash, chain))
		return;
	while (n > 0) {
		struct apply_work at = a->work[--n];
		struct orphan o;

		while (orphans_take_child(r->orphans, at.hash, &o)) {
			uint64_t here = blockhash_link(at.chain, o.local);

			if (o.count > 0)
				put_block(a, r, (enum index_tier)o.tier, o.hash, here, o.count);
			if (!work_push(a, &n, o.hash, here))
				return;
		}
	}
}

/* ---- stored ---- */

/* Hashes without trustworthy tokens: they say where blocks lie that are known already. */
static bool
stored_hashes(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	bool any = false;

	for (size_t i = 0; i < ev->n_hashes; i++) {
		uint64_t chain = chain_of(r, ev->hashes[i]);

		if (chain != 0)
			any |= put_block(a, r, tier_of(ev), ev->hashes[i], chain, 1);
	}
	return any;
}

/* The row's block size is its events'.  A shorter one is a partial block, skipped; a longer one
 * shows that what we took for whole blocks was partial. */
static bool
size_fits(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	if (r->block_tokens == ev->block_tokens)
		return true;
	if (r->block_tokens != 0 &&
	    (ev->block_tokens < r->block_tokens || tier_of(ev) != INDEX_GPU))
		return false;
	if (r->block_tokens != 0) {
		if (row_may_tell(a, r))
			log_warn("block size row=%u member=%.63s: %u -> %u; what was learned in "
				 "the smaller is forgotten",
				 r->id, a->rows->text[r->id].member, r->block_tokens,
				 ev->block_tokens);
		row_retire_all(a, r);
	}
	r->block_tokens = ev->block_tokens;
	atomic_store_explicit(&r->shared->event_block_tokens, ev->block_tokens,
			      memory_order_release);
	if (r->shared->block_tokens != 0 && r->shared->block_tokens != ev->block_tokens &&
	    !r->size_told) {
		r->size_told = true;
		log_warn("block size row=%u member=%.63s: configured %u, its events say %u; its "
			 "prefixes will not match",
			 r->id, a->rows->text[r->id].member, r->shared->block_tokens,
			 ev->block_tokens);
	}
	return true;
}

/* What a block's hash covers beyond its tokens.  False: something that no prompt of ours could say.
 */
static bool
extra_of(const struct kv_event *ev, size_t block, struct kv_extra *ret_extra,
	 struct kv_slice *ret_bytes)
{
	kv_extra_split(ev, block, ret_extra);
	if (ret_extra->unknown || (ret_extra->mm.p && ret_extra->embeds.p))
		return false;
	*ret_bytes = ret_extra->mm.p ? ret_extra->mm : ret_extra->embeds;
	return true;
}

static struct slice
text_of(struct kv_slice s)
{
	return (struct slice){(const char *)s.p, s.p ? s.n : 0};
}

static uint64_t
root_of(const struct apply *a, const struct apply_row *r, const struct kv_event *ev,
	const struct kv_extra *first)
{
	struct slice lora = text_of(ev->lora_name.p ? ev->lora_name : first->lora);
	char number[32];

	if (lora.len == 0 && ev->has_lora_id) {
		/* Before 0.14 only a process-local number: an adapter's blocks, not the base
		 * model's. */
		lora.len =
			(size_t)snprintf(number, sizeof number, "\x01%lld", (long long)ev->lora_id);
		lora.p = number;
	}
	return blocks_root(a->seed, r->model, lora, text_of(first->salt), ev->block_tokens);
}

static bool
orphan_block(struct apply_row *r, enum index_tier tier, uint64_t hash, uint64_t parent,
	     uint64_t local)
{
	if (orphans_add(r->orphans, hash, parent, local, tier) < 0)
		return false;
	row_count(&r->shared->orphaned, 1);
	return true;
}

/* Fills a->chain with the place of each block, 0 where it is unknown (kept as an orphan then).
 * Returns how many blocks could be understood. */
static size_t
stored_chains(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	uint64_t chain = ev->has_parent ? chain_of(r, ev->parent) : 0;
	enum index_tier tier = tier_of(ev);

	for (size_t i = 0; i < ev->n_hashes; i++) {
		const uint32_t *tokens = ev->token_ids + i * ev->block_tokens;
		struct kv_extra extra;
		struct kv_slice bytes;

		if (!extra_of(ev, i, &extra, &bytes))
			return i;
		if (i == 0 && !ev->has_parent)
			chain = root_of(a, r, ev, &extra);
		uint64_t local =
			blockhash_local(tokens, ev->block_tokens, bytes.p, bytes.p ? bytes.n : 0);

		chain = chain ? blockhash_link(chain, local) : chain_of(r, ev->hashes[i]);
		if (!chain && !orphan_block(r, tier, ev->hashes[i],
					    i ? ev->hashes[i - 1] : ev->parent, local))
			return i;
		a->chain[i] = chain;
	}
	return ev->n_hashes;
}

static bool
stored_blocks(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	enum index_tier tier = tier_of(ev);
	bool any = false;
	size_t n;

	if (ev->n_hashes > a->cap_chain) {
		uint64_t *grown = realloc(a->chain, ev->n_hashes * sizeof *grown);

		if (!grown)
			return false;
		a->chain = grown;
		a->cap_chain = ev->n_hashes;
	}
	n = stored_chains(a, r, ev);
	for (size_t i = 0; i < n; i++) {
		if (i + PUT_AHEAD < n) {
			index_prefetch(a->w, a->chain[i + PUT_AHEAD]);
			if (r->tier[tier].fresh)
				reverse_prefetch(r->tier[tier].fresh, ev->hashes[i + PUT_AHEAD]);
		}
		if (a->chain[i] == 0)
			continue;
		any |= put_block(a, r, tier, ev->hashes[i], a->chain[i], 1);
		link_orphans(a, r, ev->hashes[i], a->chain[i]);
	}
	return any;
}

static bool
stored(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	/* Offload events leave the keys out: a salted block would look like everybody's. */
	bool tokens = ev->tokens_usable && ev->block_tokens > 0 &&
		      (tier_of(ev) == INDEX_GPU || ev->extra_span.p != NULL);

	if (!group_counts(r, ev))
		return false;
	if (!tokens)
		return stored_hashes(a, r, ev);
	if (!size_fits(a, r, ev))
		return false;
	if (ev->has_group && !r->group_known) {
		r->group_known = true;
		r->group = ev->group;
	}
	return stored_blocks(a, r, ev);
}

/* ---- removed, cleared ---- */

static bool
removed_block(struct apply *a, struct apply_row *r, enum index_tier tier, uint64_t hash)
{
	struct apply_tier *t = &r->tier[tier];
	uint16_t ids[4];
	unsigned left = 0, n = lesser_ids(r, tier, ids);
	uint64_t chain = chain_in(t->fresh, hash);
	bool known;

	if (chain != 0) {
		reverse_drop(t->fresh, hash, &left);
		if (left == 0) {
			ids[n++] = row_slot(r, INDEX_EXACT, tier);
			index_take(a->w, chain, ids, n);
		}
		return true;
	}
	/* Stored before the gap, or since then without a known place: whichever, it is one less of
	 * each. */
	known = orphans_remove(r->orphans, hash, tier);
	chain = chain_in(t->demoted, hash);
	if (chain == 0)
		return known;
	reverse_drop(t->demoted, hash, &left);
	if (left == 0)
		index_take(a->w, chain, ids, n);
	return true;
}

static bool
removed(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	bool any = false;

	if (!group_counts(r, ev))
		return false;
	for (size_t i = 0; i < ev->n_hashes; i++)
		any |= removed_block(a, r, tier_of(ev), ev->hashes[i]);
	return any;
}

static bool
cleared(struct apply *a, struct apply_row *r)
{
	row_retire_tier(a, r, INDEX_GPU); /* the GPU pool; offload tiers keep their blocks */
	row_retire_speculative(a, r);
	orphans_clear(r->orphans);
	return true;
}

bool
row_apply_event(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	switch (ev->type) {
	case KV_STORED:
		return stored(a, r, ev);
	case KV_REMOVED:
		return removed(a, r, ev);
	case KV_CLEARED:
		return cleared(a, r);
	}
	return false;
}
