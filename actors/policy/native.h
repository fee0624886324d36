/* actors/policy/native.h -- token ids made here: the generation's models, and what makes ids.
 *
 * Models     one MODEL segment (common/models.h) a set that has a tokenizer, taken at birth; sets
 *            of one folder share one.  A set without a usable one has a reason instead.
 * Segments   one cache of segments' ids for all models and threads (prompt/segments.h).
 * Maker      one a thread: the loop's own is in here, and stops where others would have to wait
 *            for it; threads have theirs (aside.h).
 * Ownership  what native_make() gave is the maker's, good until its next call.
 * Threads    models and cache: any, once the last is taken.
 */
#pragma once
#include "actors/common/models.h"
#include "actors/common/prompt/request.h"

#define NATIVE_CACHE_BYTES (64u << 20)
#define NATIVE_IDS_MAX     (2u << 20)   /* tokens, where nothing says how many a model takes */
#define NATIVE_LOOP_STEPS  200000u      /* of a template, some 10 ms; more: beside the loop */
#define NATIVE_LOOP_BYTES  (16u << 20)
#define NATIVE_WHY         80u          /* a reason's room, the 0 with it; longer ones are cut */

struct native_made {
	const uint32_t *ids;            /* of the first prompt, all exact; NULL with n 0: none */
	size_t n;
	uint64_t all;                   /* tokens of all prompts, as far as they are known */
	bool whole;                     /* all of every prompt is */
	bool settled;                   /* nobody is to be asked: the engine refuses it, or .. */
	bool too_much;                  /* .. it is more work than this maker may do */
	char why[NATIVE_WHY];           /* "": whole */
};

struct native;

int native_new(struct native **ret, uint32_t n_sets);   /* 0, -ENOMEM */
void native_free(struct native **ret);
int native_take(struct native *n, uint32_t set, int fd);
	/* That set's MODEL segment; takes fd.  0, also where it cannot be used: native_why says
	 * so; -EINVAL no such set. */

const struct model *native_model(const struct native *n, uint32_t set);
	/* NULL: its prompts are not made here. */
const char *native_why(const struct native *n, uint32_t set);
	/* Why there is none; NULL: it has no tokenizer, or there is one. */
uint64_t native_trust(const struct native *n, uint32_t set, const char *name);
	/* trust_key() of it under the name that the workers call it by; 0: there is none. */

struct segments *native_segments(struct native *n);
struct prompt_maker *native_maker(struct native *n);            /* the loop's */
void native_make(struct prompt_maker *maker, const struct model *model, struct segments *segments,
		 enum openai_route route, struct slice body, struct native_made *ret);
	/* Never fails: what cannot be made has a reason. */
