/* manifest_resolve.c -- references between documents: names become indexes, or complaints. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

bool
manifest_index_add(struct manifest_loader *l, uint32_t **arrayp, uint32_t *n, uint32_t value)
{
	uint32_t *bigger = realloc(*arrayp, (*n + 1) * sizeof(*bigger));

	if (!bigger) {
		l->oom = true;
		return false;
	}
	bigger[(*n)++] = value;
	*arrayp = bigger;
	return true;
}

void
manifest_complain_name(struct manifest_loader *l, const char *file, const struct yaml_node *node,
	      const char *what, const char *const *names, size_t n_names)
{
	const char *near = yaml_nearest(node->text, names, n_names);

	if (near)
		MANIFEST_COMPLAIN(l, file, node, "there is no %s \"%.60s\"; did you mean \"%s\"?",
				  what, node->text, near);
	else
		MANIFEST_COMPLAIN(l, file, node, "there is no %s \"%.60s\"", what, node->text);
	yaml_errors_detail(l->errs, node->text, what, near);
}

/* The document that node names, or NULL and a complaint. */
const struct manifest_doc *
manifest_doc_named(struct manifest_loader *l, const char *file, enum manifest_kind kind,
	  const struct yaml_node *node)
{
	const char *names[MANIFEST_SUGGEST_MAX];
	size_t n = 0;

	if (node->kind != YAML_KIND_SCALAR)
		return NULL; /* complained of already */
	for (uint32_t i = 0; i < l->n_docs; i++) {
		if (l->docs[i].kind != kind)
			continue;
		if (strcmp(l->docs[i].name, node->text) == 0)
			return &l->docs[i];
		if (n < MANIFEST_SUGGEST_MAX)
			names[n++] = l->docs[i].name;
	}
	manifest_complain_name(l, file, node, manifest_kinds[kind], names, n);
	return NULL;
}

static const struct yaml_node *
first_of(const struct yaml_node *map, const char *key)
{
	const struct yaml_node *list = yaml_map_get(map, key);

	return list && list->kind == YAML_KIND_LIST ? list->child : NULL;
}

static void
pool_resolve(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_pool *pool = &l->m->pools[doc->index];
	const struct yaml_node *item = first_of(doc->spec, "workerSets");

	for (; item && !l->oom; item = item->next) {
		const struct manifest_doc *set = manifest_doc_named(l, doc->file, KIND_SET, item);
		struct manifest_set *s;

		if (!set)
			continue;
		s = &l->m->sets[set->index];
		manifest_index_add(l, &pool->sets, &pool->n_sets, set->index);
		manifest_index_add(l, &s->pools, &s->n_pools, doc->index);
	}
}

/* ---- policies ---- */

/* The provider's model that an entry names; MANIFEST_NONE: none is named, or a complaint. */
static uint32_t
provider_model(struct manifest_loader *l, const struct manifest_doc *doc,
	       const struct yaml_node *item, const struct manifest_provider *provider)
{
	const struct yaml_node *node = yaml_map_get(item, "model");
	const char *names[MANIFEST_SUGGEST_MAX];
	char what[MANIFEST_NAME_MAX + 32];
	size_t n = 0;

	if (!node)
		return MANIFEST_NONE;
	for (uint32_t i = 0; i < provider->n_models; i++) {
		if (strcmp(provider->models[i].name, node->text) == 0)
			return i;
		if (n < MANIFEST_SUGGEST_MAX)
			names[n++] = provider->models[i].name;
	}
	snprintf(what, sizeof(what), "model of the provider \"%s\"", provider->name);
	manifest_complain_name(l, doc->file, node, what, names, n);
	return MANIFEST_NONE;
}

static void
candidate_add(struct manifest_loader *l, const struct manifest_doc *doc,
	      const struct yaml_node *item, const struct manifest_candidate *candidate)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];

	for (uint32_t i = 0; i < policy->n_candidates; i++) {
		const struct manifest_candidate *old = &policy->candidates[i];

		if (old->pool == candidate->pool && old->provider == candidate->provider &&
		    old->provider_model == candidate->provider_model) {
			const struct yaml_node *pool = yaml_map_get(item, "pool");
			const struct yaml_node *at = pool ? pool : yaml_map_get(item, "provider");

			MANIFEST_COMPLAIN(l, doc->file, at,
					  "spec.candidates has the %s \"%s\" twice",
					  pool ? "pool" : "provider", at->text);
			return;
		}
	}
	policy->candidates[policy->n_candidates++] = *candidate;
}

static void
candidates_resolve(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *list = manifest_list(doc->spec, "candidates");

	if (!list)
		return;
	policy->candidates = calloc(list->n_children + 1, sizeof(*policy->candidates));
	if (!policy->candidates) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_candidate is = {.pool = MANIFEST_NONE, .provider = MANIFEST_NONE,
						.provider_model = MANIFEST_NONE};
		const struct yaml_node *pool = yaml_map_get(item, "pool");
		const struct yaml_node *provider = yaml_map_get(item, "provider");
		const struct yaml_node *weight = yaml_map_get(item, "weight"), *node;
		const struct manifest_doc *named;
		uint64_t amount;
		const char *why;

		node = pool ? pool : provider;
		named = node ? manifest_doc_named(l, doc->file, pool ? KIND_POOL : KIND_PROVIDER,
						  node)
			     : NULL;
		if (!named || (pool && provider))
			continue;
		if (pool) {
			is.pool = named->index;
		} else {
			is.provider = named->index;
			is.provider_model = provider_model(l, doc, item,
							   &l->m->providers[named->index]);
		}
		if (weight && yaml_get_u64(weight, &amount, &why) == 0)
			is.weight = (uint32_t)amount; /* the table's bounds keep it in range */
		policy->weighted |= weight != NULL;
		candidate_add(l, doc, item, &is);
	}
}

static bool
index_list(struct manifest_loader *l, const char *file, enum manifest_kind kind,
	   const struct yaml_node *item, uint32_t **arrayp, uint32_t *n)
{
	for (; item && !l->oom; item = item->next) {
		const struct manifest_doc *named = manifest_doc_named(l, file, kind, item);

		if (named)
			manifest_index_add(l, arrayp, n, named->index);
	}
	return !l->oom;
}

static void
policy_resolve(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *match = yaml_map_get(doc->spec, "match");
	const struct yaml_node *tenant = first_of(match, "tenants");
	const struct yaml_node *fallback =
		yaml_map_get(yaml_map_get(doc->spec, "onEmpty"), "policy");

	candidates_resolve(l, doc);
	policy->any_tenant = tenant == NULL;
	for (const struct yaml_node *t = tenant; t; t = t->next)
		policy->any_tenant |= t->kind == YAML_KIND_SCALAR && strcmp(t->text, "*") == 0;
	if (!policy->any_tenant)
		index_list(l, doc->file, KIND_TENANT, tenant, &policy->tenants,
			   &policy->n_tenants);
	if (fallback) {
		const struct manifest_doc *to =
			manifest_doc_named(l, doc->file, KIND_POLICY, fallback);

		if (to)
			policy->fallback = to->index;
	}
}

/* From each policy on: no loop, and not too deep.  A loop is told of once. */
static void
fallbacks_check(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct manifest_policy *all = l->m->policies;
	const struct yaml_node *node = yaml_map_get(yaml_map_get(doc->spec, "onEmpty"), "policy");
	char chain[6 * (MANIFEST_NAME_MAX + 4)] = "";
	uint32_t at = doc->index, least = at, depth = 0;
	size_t used = 0;

	for (; at != MANIFEST_NONE && depth <= l->m->n_policies; depth++) {
		if (depth <= MANIFEST_FALLBACKS_MAX + 1 && used < sizeof(chain))
			used += (size_t)snprintf(chain + used, sizeof(chain) - used, "%s%s",
						 depth ? " > " : "", all[at].name);
		if (at < least)
			least = at;
		at = all[at].fallback;
		if (at == doc->index) {
			if (least == at)
				MANIFEST_COMPLAIN(l, doc->file, node,
						  "fallbacks go round: %s%s > %s", chain,
						  depth > MANIFEST_FALLBACKS_MAX + 1 ? " > ..."
										     : "",
						  all[at].name);
			return;
		}
	}
	if (depth > l->m->n_policies)
		return; /* into a loop that another begins */
	if (depth > MANIFEST_FALLBACKS_MAX + 1)
		MANIFEST_COMPLAIN(l, doc->file, node,
				  "more than %u fallbacks behind each other: %s%s",
				  MANIFEST_FALLBACKS_MAX, chain,
				  depth > MANIFEST_FALLBACKS_MAX + 2 ? " > ..." : "");
}

static void
default_tenant_resolve(struct manifest_loader *l, const struct manifest_doc *gw)
{
	const struct yaml_node *node = yaml_map_get(gw->spec, "defaultTenant");
	const struct manifest_doc *tenant =
		node ? manifest_doc_named(l, gw->file, KIND_TENANT, node) : NULL;

	if (tenant)
		l->m->gateway.default_tenant = tenant->index;
}

void
manifest_resolve(struct manifest_loader *l)
{
	const struct manifest_doc *gw = NULL;
	bool whole = !l->bad; /* each document by itself is right: names may be followed further */

	if (l->partial)
		return;
	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++)
		if (l->docs[i].kind == KIND_PROVIDER)
			manifest_provider_rows(l, &l->docs[i]);
	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++) {
		if (l->docs[i].kind == KIND_POOL)
			pool_resolve(l, &l->docs[i]);
		else if (l->docs[i].kind == KIND_POLICY)
			policy_resolve(l, &l->docs[i]);
		else if (l->docs[i].kind == KIND_TENANT)
			manifest_tenant_resolve(l, &l->docs[i]);
		else if (l->docs[i].kind == KIND_TAG)
			manifest_tag_resolve(l, &l->docs[i]);
		else if (l->docs[i].kind == KIND_GATEWAY)
			gw = &l->docs[i];
	}
	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++)
		if (l->docs[i].kind == KIND_POLICY)
			fallbacks_check(l, &l->docs[i]);
	if (!gw || !whole || l->oom)
		return;
	default_tenant_resolve(l, gw);
	if (l->m->gateway.authentication == MANIFEST_AUTHENTICATION_REQUIRED &&
	    l->m->n_tenants == 0)
		MANIFEST_COMPLAIN(l, gw->file, yaml_map_get(gw->spec, "authentication"),
				  "spec.authentication: required lets nobody in: there is no "
				  "InferenceTenant");
	for (uint32_t i = 0; i < l->n_docs; i++)
		if (l->docs[i].kind == KIND_POLICY)
			manifest_match_resolve(l, &l->docs[i], gw);
	if (!l->bad)
		manifest_models_resolve(l, gw);
}
