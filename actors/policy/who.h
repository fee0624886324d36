/* actors/policy/who.h -- whose question it is, as the ingress found out, under our documents.
 *
 * Meaning    Ingress knows who asks (actors/ingress/tenant.h) and writes the tenant's uid into the
 *            slot; here it becomes the tenant of the generation that decides.  A tenant that these
 *            documents do not name any more is refused, and so is one that they block, or nobody
 *            where they want somebody: an undecided request is never let in under older rules.
 * Ownership  who_free.  Nothing of the manifest is borrowed.
 * Threads    one.  Cost: a search among the tenants' uids.
 */
#pragma once
#include "actors/common/decide/manifest.h"

struct who;

int who_new(struct who **ret, const struct manifest *manifest);         /* 0, -ENOMEM */
void who_free(struct who **who);
bool who_named(const struct who *who, uint64_t uid, uint32_t *ret_tenant);
	/* uid 0: nobody, MANIFEST_NONE.  False: these documents name no such tenant. */
int32_t who_priority(const struct manifest *manifest, uint32_t tenant, int64_t said);
	/* Of a request: its tenant's, less what it says itself in "priority" (as vLLM counts, more
	 * is later); never more than the tenant's.  Nobody's: 50. */
