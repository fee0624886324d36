/* manifest_lint.c -- of documents without a mistake: what is hardly meant, as warnings. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/expression.h"

static const struct yaml_node *
list_item(const struct yaml_node *list, uint32_t at)
{
	const struct yaml_node *item = list ? list->child : NULL;

	while (item && at-- > 0)
		item = item->next;
	return item;
}

/* Is a price needed to choose, or looked at? */
static bool
wants_cost(const struct manifest_policy *policy)
{
	return policy->minimize == MANIFEST_MINIMIZE_COST ||
	       (policy->objective.program &&
		(expression_reads(policy->objective.program) >> FACT_CANDIDATE_COST & 1));
}

static void
prices(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *list = manifest_list(doc->spec, "candidates");

	if (!wants_cost(policy))
		return;
	for (uint32_t c = 0; c < policy->n_candidates; c++) {
		const struct manifest_candidate *is = &policy->candidates[c];
		const struct manifest_provider *provider;

		if (is->provider == MANIFEST_NONE)
			continue;
		provider = &l->m->providers[is->provider];
		for (uint32_t i = 0; i < provider->n_models; i++)
			if ((is->provider_model == MANIFEST_NONE || is->provider_model == i) &&
			    !provider->models[i].price.known)
				MANIFEST_WARN(l, doc->file, list_item(list, c),
					      "the model \"%s\" of the provider \"%s\" has no "
					      "price: by cost it comes last",
					      provider->models[i].name, provider->name);
	}
}

static bool
policy_is_used(const struct manifest *m, uint32_t policy)
{
	for (uint32_t i = 0; i < m->n_models; i++)
		if (manifest_route_of(&m->models[i], policy))
			return true;
	return false;
}

/* Tags that some rule, some objective or some other tag looks at. */
static uint64_t
tags_asked_for(const struct manifest *m)
{
	uint64_t tags = 0;

#define ADD(e) tags |= (e).program ? expression_tags((e).program) : 0
	for (uint32_t p = 0; p < m->n_policies; p++) {
		const struct manifest_policy *policy = &m->policies[p];

		ADD(policy->objective);
		for (uint32_t r = 0; r < policy->n_rules; r++) {
			const struct manifest_rule *rule = &policy->rules[r];

			ADD(rule->when);
			ADD(rule->keep);
			ADD(rule->remove);
			ADD(rule->prefer);
			for (uint32_t i = 0; i < rule->n_keep_first; i++)
				ADD(rule->keep_first[i]);
		}
	}
#undef ADD
	return tags;
}

static bool
candidates_have(const struct manifest *m, uint32_t pool, uint32_t provider)
{
	for (uint32_t p = 0; p < m->n_policies; p++)
		for (uint32_t c = 0; c < m->policies[p].n_candidates; c++) {
			const struct manifest_candidate *is = &m->policies[p].candidates[c];

			if ((pool != MANIFEST_NONE && is->pool == pool) ||
			    (provider != MANIFEST_NONE && is->provider == provider))
				return true;
		}
	return false;
}

static bool
pool_is_used(const struct manifest *m, uint32_t pool)
{
	for (uint32_t t = 0; t < m->n_tags; t++)
		if (m->tags[t].classifier.pool == pool)
			return true;
	return candidates_have(m, pool, MANIFEST_NONE);
}

static void
tenant_lint(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct manifest_tenant *tenant = &l->m->tenants[doc->index];

	if (tenant->n_keys == 0 && !tenant->jwt_claim[0] && !tenant->header_name[0] &&
	    l->m->gateway.default_tenant != doc->index)
		MANIFEST_WARN(l, doc->file, doc->name_node,
			      "nobody can be the tenant \"%s\": it has no keys, jwt or header, and "
			      "is not the defaultTenant", tenant->name);
}

void
manifest_lint(struct manifest_loader *l)
{
	const struct manifest *m = l->m;
	uint64_t tags = tags_asked_for(m);

	for (uint32_t i = 0; i < l->n_docs; i++) {
		const struct manifest_doc *doc = &l->docs[i];

		if (doc->kind == KIND_POLICY)
			prices(l, doc);
		if (doc->kind == KIND_TENANT)
			tenant_lint(l, doc);
		else if (doc->kind == KIND_POLICY && !policy_is_used(m, doc->index))
			MANIFEST_WARN(l, doc->file, doc->name_node,
				      "the policy \"%s\" never decides: no model names it, and "
				      "where its match has one, another decides before it",
				      doc->name);
		else if (doc->kind == KIND_TAG && !(tags >> doc->index & 1))
			MANIFEST_WARN(l, doc->file, doc->name_node,
				      "no rule asks for the tag \"%s\"", doc->name);
		else if (doc->kind == KIND_POOL && !pool_is_used(m, doc->index))
			MANIFEST_WARN(l, doc->file, doc->name_node,
				      "no policy names the pool \"%s\"", doc->name);
		else if (doc->kind == KIND_PROVIDER &&
			 !candidates_have(m, MANIFEST_NONE, doc->index))
			MANIFEST_WARN(l, doc->file, doc->name_node,
				      "no policy names the provider \"%s\"", doc->name);
		else if (doc->kind == KIND_SET && m->sets[doc->index].n_pools == 0)
			MANIFEST_WARN(l, doc->file, doc->name_node,
				      "no pool names the worker set \"%s\"", doc->name);
	}
}
