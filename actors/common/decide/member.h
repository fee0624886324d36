/* actors/common/decide/member.h -- a row of the documents, be it a worker's or a provider's.
 *
 * Most of who walks members needs one of these answers and not the kind; who needs the kind asks
 * for the set or the provider and looks for NULL.
 * Threads    pure.  Nothing blocks or allocates.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "shm/rows.h"

#define MEMBER_PROVIDER_HEALTH "/health"        /* what a provider's socket is asked */
#define MEMBER_PROVIDER_SOCKET "provider.sock"  /* in the run directory, unless it says another */

static inline const struct manifest_set *
member_set(const struct manifest *m, const struct manifest_member *member)
{
	return member->set == MANIFEST_NONE ? NULL : &m->sets[member->set];
}

static inline const struct manifest_provider *
member_provider(const struct manifest *m, const struct manifest_member *member)
{
	return member->provider == MANIFEST_NONE ? NULL : &m->providers[member->provider];
}

const char *member_group(const struct manifest *m, const struct manifest_member *member);
	/* Name of its set, or of its provider. */
const char *member_model(const struct manifest *m, const struct manifest_member *member);
	/* As the engine, or the provider, calls it. */
void member_prior(const struct manifest *m, const struct manifest_member *member,
		  float ret[COEF_COUNT]);
	/* The predictor's start.  Of a provider: a time to the first token, whatever the prompt and
	 * whoever else asks. */
#define MEMBER_COMPLETION 512u          /* tokens an answer is taken to have, unless told */

double member_cost(const struct manifest *m, const struct manifest_member *member,
		   uint32_t prompt, uint32_t cached, uint32_t completion);
	/* What so many tokens cost there, `cached` of the prompt from a cache, in the unit of the
	 * prices; completion UINT32_MAX: not known.  0 of a worker: it is there anyway.  NaN: the
	 * provider has no price. */
