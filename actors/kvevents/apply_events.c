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

#define TAKE_AHEAD 32u /* blocks prefetched, where the map must say first which bucket it is */
#define CHUNK_MOST 65535u /* blocks an engine offloads as one; what is above teaches nothing */

static enum index_tier
tier_of(const struct kv_event *ev)
{
	return ev->medium == KV_MEDIUM_GPU ? INDEX_GPU : INDEX_OFFLOAD;
}

static bool
spec_is_full(const struct kv_event *ev)
{
	return ev->spec == KV_SPEC_FULL || ev->spec == KV_SPEC_MLA;
}

/* Does this group say how long a prefix is held?  One that says it is full counts, whatever its
 * number; one that says nothing only until such a one is heard. */
static bool
group_counts(const struct apply_row *r, const struct kv_event *ev)
{
	if (ev->spec != KV_SPEC_UNSAID && !spec_is_full(ev))
		return false;
	return !ev->has_group || !r->group_known || ev->group == r->group ||
	       (spec_is_full(ev) && !r->group_full);
}

static void
group_follow(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	if (!ev->has_group)
		return;
	if (r->group_known && ev->group != r->group) {
		if (row_may_tell(a, r))
			log_warn("cache group row=%u member=%.63s: %u -> %u, which says that it is "
				 "full; what was learned from the other is forgotten",
				 r->id, a->rows->text[r->id].member, r->group, ev->group);
		row_retire_all(a, r);
		r->block_tokens = 0;
	}
	r->group_known = true;
	r->group = ev->group;
	r->group_full |= spec_is_full(ev);
}

/* Its other groups are what a hybrid model is; only what hides the row's one group is trouble. */
static void
group_tell(struct apply_row *r, const struct kv_event *ev)
{
	if (ev->spec == KV_SPEC_OTHER || r->block_tokens == 0)
		row_trouble(r, TROUBLE_GROUP, ev->group, 1);
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

/* Has the map room for one more engine hash? */
static bool
map_has_room(struct apply *a, struct apply_row *r, const struct reverse *map)
{
	size_t more = reverse_growth(map);

	if (more == 0 || budget_allows(a, r, more))
		return true;
	budget_refused(a, r, COUNTER_index_private_full, 1);
	return false;
}

/* `count` stores of this block, whose place is known. */
static bool
put_block(struct apply *a, struct apply_row *r, enum index_tier tier, uint64_t hash, uint64_t chain,
	  unsigned count)
{
	uint16_t lesser[3], id = row_slot_exact(a, r, tier);
	struct reverse *map = r->tier[tier].fresh;
	unsigned n = lesser_ids(r, tier, lesser);
	uint64_t before;
	size_t bytes;

	if (id == 0 || !map)
		return false; /* no slot or no memory: under-counted */
	before = reverse_find(map, hash);
	if (before == 0 && (!row_share_allows(a, r) || !map_has_room(a, r, map)))
		return false;
	if (before != 0 && before != chain)
		index_take(a->w, before, &id,
			   1); /* the engine uses its hash for another block now */
	count += orphans_take(r->orphans, hash, tier);
	bytes = reverse_bytes(map);
	for (unsigned i = 0; i < count; i++)
		if (reverse_add(map, hash, chain, NULL) == -ENOMEM) {
			budget_refused(a, r, COUNTER_index_row_full, 1);
			return false;
		}
	if (reverse_bytes(map) != bytes)
		budget_account(a, r);
	row_put(a, r, 0, id, chain, lesser, n);
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
		else if (tier_of(ev) != INDEX_GPU)
			row_trouble(r, TROUBLE_TIER, 0, 1);
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
	    (ev->block_tokens < r->block_tokens || tier_of(ev) != INDEX_GPU)) {
		row_trouble(r, TROUBLE_SIZE, ev->block_tokens, 1);
		return false;
	}
	if (r->block_tokens != 0) {
		if (row_may_tell(a, r))
			log_warn("block size row=%u member=%.63s: %u -> %u; what was learned in "
				 "the smaller is forgotten",
				 r->id, a->rows->text[r->id].member, r->block_tokens,
				 ev->block_tokens);
		row_retire_all(a, r);
	}
	r->block_tokens = ev->block_tokens;
	APPLY_STORE_POINT();
	atomic_store_explicit(&r->shared->event_block_tokens, ev->block_tokens,
			      memory_order_release);
	if (r->shared->block_tokens != 0 && r->shared->block_tokens != ev->block_tokens) {
		row_trouble(r, TROUBLE_CONFIGURED, ev->block_tokens, 1);
		if (!r->size_told)
			log_warn("block size row=%u member=%.63s: configured %u, its events say "
				 "%u; theirs counts",
				 r->id, a->rows->text[r->id].member, r->shared->block_tokens,
				 ev->block_tokens);
		r->size_told = true;
	}
	return true;
}

/* What a block's hash covers beyond its tokens, adapter and salt.  What cannot be told apart parts
 * the block from those of all prompts that we know, as a whole; those below it still hang on it. */
static struct kv_slice
extra_of(struct apply_row *r, const struct kv_event *ev, size_t block, struct kv_extra *ret_extra)
{
	kv_extra_split(ev, block, ret_extra);
	row_trouble(r, TROUBLE_KEYS, 0, ret_extra->unknown);
	if (ret_extra->unknown || (ret_extra->mm.p && ret_extra->embeds.p))
		return ret_extra->entry;
	return ret_extra->mm.p ? ret_extra->mm : ret_extra->embeds;
}

static struct slice
text_of(struct kv_slice s)
{
	return (struct slice){(const char *)s.p, s.p ? s.n : 0};
}

static uint64_t
root_of(const struct apply *a, struct apply_row *r, const struct kv_event *ev,
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
		row_trouble(r, TROUBLE_ADAPTER, (uint64_t)ev->lora_id, 1);
	}
	return blocks_root(a->seed, r->model, lora, text_of(first->salt), ev->block_tokens);
}

static bool
orphan_block(struct apply *a, struct apply_row *r, enum index_tier tier, uint64_t hash,
	     uint64_t parent, uint64_t local)
{
	size_t more = orphans_growth(r->orphans);
	int added = orphans_add(r->orphans, hash, parent, local, tier,
				more == 0 || budget_allows(a, r, more));

	if (more > 0)
		budget_account(a, r);
	if (added < 0) {
		budget_refused(a, r, COUNTER_index_private_full, 1);
		return false;
	}
	count_add(a->process, COUNTER_orphans_dropped, added > 0);
	row_count(&r->shared->orphaned, 1);
	row_trouble(r, TROUBLE_PARENT, 0, 1);
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
		struct kv_slice bytes = extra_of(r, ev, i, &extra);

		if (i == 0 && !ev->has_parent)
			chain = root_of(a, r, ev, &extra);
		uint64_t local =
			blockhash_local(tokens, ev->block_tokens, bytes.p, bytes.p ? bytes.n : 0);

		chain = chain ? blockhash_link(chain, local) : chain_of(r, ev->hashes[i]);
		if (!chain && !orphan_block(a, r, tier, ev->hashes[i],
					    i ? ev->hashes[i - 1] : ev->parent, local))
			return i;
		a->chain[i] = chain;
	}
	return ev->n_hashes;
}

/* Before the i-th of the n blocks that are understood. */
static void
stored_prefetch(struct apply *a, const struct reverse *map, const struct kv_event *ev, size_t i,
		size_t n)
{
	struct index_span span = index_ahead(i, n);

	for (size_t k = span.from; k < span.to; k++) {
		index_prefetch(a->w, a->chain[k]);
		if (map)
			reverse_prefetch(map, ev->hashes[k]);
	}
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
		stored_prefetch(a, r->tier[tier].fresh, ev, i, n);
		if (a->chain[i] == 0)
			continue;
		any |= put_block(a, r, tier, ev->hashes[i], a->chain[i], 1);
		link_orphans(a, r, ev->hashes[i], a->chain[i]);
	}
	return any;
}

static uint32_t
common_measure(uint32_t a, uint32_t b)
{
	while (b != 0) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* An engine that offloads several blocks as one can fetch them back only so.  Some say how many
 * tokens that is; of the others, what they announce at once is whole chunks, so that their size
 * divides all they said.  Where that is more than the truth the row is told to hold less than it
 * does, until it announces fewer. */
static void
chunk_learn(struct apply_row *r, const struct kv_event *ev)
{
	uint32_t was = atomic_load_explicit(&r->shared->offload_chunk, memory_order_relaxed), now;
	bool said = r->block_tokens > 0 && ev->block_tokens > r->block_tokens &&
		    ev->block_tokens % r->block_tokens == 0;
	size_t at_once = said ? ev->block_tokens / r->block_tokens : ev->n_hashes;

	if (ev->n_hashes == 0 || at_once > CHUNK_MOST || was == 1)
		return;
	now = common_measure(was, (uint32_t)at_once);
	if (now != was)
		atomic_store_explicit(&r->shared->offload_chunk, (uint16_t)now,
				      memory_order_relaxed);
}

static bool
stored(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	/* Offload events leave the keys out: a salted block would look like everybody's. */
	bool tokens = ev->tokens_usable && ev->block_tokens > 0 &&
		      (tier_of(ev) == INDEX_GPU || ev->extra_span.p != NULL);

	if (!group_counts(r, ev)) {
		group_tell(r, ev);
		return false;
	}
	if (tier_of(ev) == INDEX_OFFLOAD)
		chunk_learn(r, ev);
	if (!row_rate_allows(a, r, ev->n_hashes))
		return false;
	if (!tokens) {
		if (tier_of(ev) == INDEX_GPU && ev->n_hashes > 0)
			row_trouble(r,
				    ev->keys_unread	 ? TROUBLE_KEYS
				    : ev->adapter_unread ? TROUBLE_ADAPTER
							 : TROUBLE_TOKENS,
				    0, 1);
		return stored_hashes(a, r, ev);
	}
	group_follow(a, r, ev);
	if (!size_fits(a, r, ev))
		return tier_of(ev) == INDEX_OFFLOAD && stored_hashes(a, r, ev);
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

/* Entries of the map, then the buckets they name. */
static void
removed_prefetch(struct apply *a, const struct reverse *map, const uint64_t *hash, size_t n)
{
	for (size_t i = 0; i < n; i++)
		reverse_prefetch(map, hash[i]);
	for (size_t i = 0; i < n; i++) {
		uint64_t chain = reverse_find(map, hash[i]);

		if (chain != 0)
			index_prefetch(a->w, chain);
	}
}

static bool
removed(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	enum index_tier tier = tier_of(ev);
	size_t known = 0;

	if (!group_counts(r, ev))
		return false;
	for (size_t i = 0; i < ev->n_hashes; i++) {
		size_t left = ev->n_hashes - i;

		if (i % TAKE_AHEAD == 0 && r->tier[tier].fresh)
			removed_prefetch(a, r->tier[tier].fresh, ev->hashes + i,
					 left < TAKE_AHEAD ? left : TAKE_AHEAD);
		known += removed_block(a, r, tier, ev->hashes[i]);
	}
	count_add(a->process, COUNTER_removals_unknown, ev->n_hashes - known);
	return known > 0;
}

static bool
cleared(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	enum index_tier tier = tier_of(ev); /* unsaid is the GPU; other tiers keep their blocks */

	row_retire_tier(a, r, tier);
	if (tier == INDEX_GPU)
		row_retire_speculative(a, r);
	orphans_clear_tier(r->orphans, tier);
	budget_account(a, r);
	r->holes = (uint8_t)(r->holes & ~(1u << tier));
	return true;
}

static void
tier_seen(struct apply_row *r, const struct kv_event *ev)
{
	uint16_t was = atomic_load_explicit(&r->shared->tiers_seen, memory_order_relaxed);
	enum index_tier tier = tier_of(ev);
	uint16_t now = (uint16_t)(was | 1u << tier |
				  (ev->type == KV_REMOVED ? ROW_TIER_REMOVES(tier) : 0));

	if (now == was)
		return;
	APPLY_STORE_POINT();
	atomic_store_explicit(&r->shared->tiers_seen, now, memory_order_relaxed);
}

bool
row_apply_event(struct apply *a, struct apply_row *r, const struct kv_event *ev)
{
	tier_seen(r, ev);
	switch (ev->type) {
	case KV_STORED:
		return stored(a, r, ev);
	case KV_REMOVED:
		return removed(a, r, ev);
	case KV_CLEARED:
		return cleared(a, r, ev);
	}
	return false;
}
