/* actors/common/show_index.h -- the prefix index as JSON: its fill, its slots, who holds a block.
 *
 * Meaning    Fill and refusals are the writer's own counts (shm/index.h); slots are read word by
 *            word; holders by the very reader that decisions use, so what is told here is what a
 *            decision would have seen at that moment.  A block a slot has put and not taken counts
 *            as held.
 * Bounds     PM_SHOW_SLOTS_MAX slots and PM_SHOW_HASHES_MAX hashes an answer; the ids of at most
 *            PM_SHOW_HOLDERS_MAX holders are named, those of further blocks only counted.
 * Refusals   each may answer NULL and a refusal in *ret_refused (verbs.h), for what cannot be seen
 *            from a request's form: no index here, no such worker or model.  NULL alone: no memory.
 * Ownership  results are the caller's (json_decref).
 * Threads    any that owns the view.  Cost: a scan of the slot table (64 B each); 1 us a hash.
 */
#pragma once
#include <jansson.h>

#include "actors/common/view.h"

#define PM_SHOW_SLOTS_DEFAULT 1000u
#define PM_SHOW_SLOTS_MAX       10000u
#define PM_SHOW_HASHES_MAX      256u
#define PM_SHOW_HOLDERS_MAX     16384u
#define PM_SHOW_TOKENS_MAX      16384u

json_t *pm_show_index(const struct pm_view *view, json_t **ret_refused);
	/* {"entries", "lanes", .., "refused": {..}, "pool": [..], "slots": {..}, "groups": [..],
	 * "workers": [..]} */
json_t *pm_show_index_slots(const struct pm_view *view, const char *worker, unsigned after,
			    unsigned limit, json_t **ret_refused);
	/* {"slots": [..], "next"}: those that are not free, by id, above `after`; worker NULL: of
	 * all.  next: `after` of the next question; null: that was all. */
json_t *pm_show_index_holders(const struct pm_view *view, const uint64_t *hash, unsigned n,
			      json_t **ret_refused);
	/* {"blocks": [{"hash", "holders", "slots"}], "slots": [..], "depth": [..]}: blocks as
	 * asked; depth: leading blocks of this list that each worker holds. */

struct pm_show_prompt {
	const char *model;                      /* as clients or as workers call it */
	const char *adapter, *salt;             /* NULL: none */
	uint32_t block_tokens;                  /* 0: as the model's workers have it */
	uint64_t parent;                        /* hash of the block before; 0: the prompt begins */
};
json_t *pm_show_index_prompt(const struct pm_view *view, const struct pm_show_prompt *prompt,
			     const uint32_t *tokens, size_t n, json_t **ret_refused);
	/* The same for the full blocks of a prompt, with "model", "block_tokens" and
	 * "tokens_used". */

const char *pm_show_tier_name(unsigned tier);
const char *pm_show_role_name(unsigned role);
