/* manifest_resolve.c -- references between documents: names become indexes, or complaints. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 256 /* looked through for a suggestion */

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

static bool
index_has(const uint32_t *array, uint32_t n, uint32_t value)
{
	for (uint32_t i = 0; i < n; i++)
		if (array[i] == value)
			return true;
	return false;
}

static void
complain_name(struct manifest_loader *l, const char *file, const struct yaml_node *node,
	      const char *what, const char *const *names, size_t n_names)
{
	const char *near = yaml_nearest(node->text, names, n_names);

	if (near)
		MANIFEST_COMPLAIN(l, file, node, "there is no %s \"%.60s\"; did you mean \"%s\"?",
				  what, node->text, near);
	else
		MANIFEST_COMPLAIN(l, file, node, "there is no %s \"%.60s\"", what, node->text);
}

/* The document that node names, or NULL and a complaint. */
static const struct manifest_doc *
doc_named(struct manifest_loader *l, const char *file, enum manifest_kind kind,
	  const struct yaml_node *node)
{
	const char *names[NAMES_MAX];
	size_t n = 0;

	if (node->kind != YAML_KIND_SCALAR)
		return NULL; /* complained of already */
	for (uint32_t i = 0; i < l->n_docs; i++) {
		if (l->docs[i].kind != kind)
			continue;
		if (strcmp(l->docs[i].name, node->text) == 0)
			return &l->docs[i];
		if (n < NAMES_MAX)
			names[n++] = l->docs[i].name;
	}
	complain_name(l, file, node, manifest_kind_names[kind], names, n);
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
		const struct manifest_doc *set = doc_named(l, doc->file, KIND_SET, item);
		struct manifest_set *s;

		if (!set)
			continue;
		s = &l->m->sets[set->index];
		manifest_index_add(l, &pool->sets, &pool->n_sets, set->index);
		manifest_index_add(l, &s->pools, &s->n_pools, doc->index);
	}
}

static void
policy_resolve(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *item = first_of(doc->spec, "candidates");

	for (; item && !l->oom; item = item->next) {
		const struct yaml_node *name = yaml_map_get(item, "pool");
		const struct manifest_doc *pool =
			name ? doc_named(l, doc->file, KIND_POOL, name) : NULL;

		if (!pool)
			continue;
		if (index_has(policy->pools, policy->n_pools, pool->index))
			MANIFEST_COMPLAIN(l, doc->file, name,
					  "spec.candidates has the pool \"%s\" twice", pool->name);
		else
			manifest_index_add(l, &policy->pools, &policy->n_pools, pool->index);
	}
}

/* ---- models: name -> policy -> rows ---- */

/* Does the policy's match.models have this name?  A policy without the list takes all that name
 * it (by_name) but is nobody's by itself. */
static bool
policy_takes(const struct manifest_doc *policy, const char *model, bool by_name)
{
	const struct yaml_node *match = yaml_map_get(policy->spec, "match");
	const struct yaml_node *item = first_of(match, "models");

	if (!item)
		return by_name;
	for (; item; item = item->next)
		if (item->kind == YAML_KIND_SCALAR &&
		    (strcmp(item->text, "*") == 0 || strcmp(item->text, model) == 0))
			return true;
	return false;
}

static const struct manifest_doc *
model_policy(struct manifest_loader *l, const struct manifest_doc *gw, const struct yaml_node *item)
{
	const struct yaml_node *name = yaml_map_get(item, "name");
	const struct yaml_node *node = yaml_map_get(item, "policy");
	const struct manifest_doc *policy;

	if (node) {
		policy = doc_named(l, gw->file, KIND_POLICY, node);
		if (policy && !policy_takes(policy, name->text, true)) {
			MANIFEST_COMPLAIN(l, gw->file, node,
					  "the policy \"%s\" does not take the model \"%s\": its "
					  "match.models does not have it",
					  policy->name, name->text);
			return NULL;
		}
		return policy;
	}
	for (uint32_t i = 0; i < l->n_docs; i++)
		if (l->docs[i].kind == KIND_POLICY && policy_takes(&l->docs[i], name->text, false))
			return &l->docs[i];
	MANIFEST_COMPLAIN(
		l, gw->file, name,
		"no policy decides for the model \"%s\": give it a policy, or put it into a "
		"policy's match.models",
		name->text);
	return NULL;
}

/* May a request for this entry go to workers that call their model, or an adapter, so? */
bool
manifest_entry_wants(const struct yaml_node *item, const char *worker_model)
{
	const struct yaml_node *alias = yaml_map_get(item, "aliasOf");

	if (!alias)
		return strcmp(yaml_map_get(item, "name")->text, worker_model) == 0;
	if (alias->kind == YAML_KIND_SCALAR)
		return strcmp(alias->text, worker_model) == 0;
	for (const struct yaml_node *a = alias->child; a; a = a->next)
		if (a->kind == YAML_KIND_SCALAR && strcmp(a->text, worker_model) == 0)
			return true;
	return false;
}

/* The adapter of that set which this entry is, or NULL. */
static const char *
entry_adapter(const struct yaml_node *item, const struct manifest_set *set)
{
	for (uint32_t i = 0; i < set->n_adapters; i++)
		if (manifest_entry_wants(item, set->adapters[i]))
			return set->adapters[i];
	return NULL;
}

/* What the entry's requests are called at the workers of that set; NULL: they do not go there.  An
 * entry is one adapter everywhere, or none anywhere: its blocks hang on its name. */
static const char *
entry_upstream(struct manifest_loader *l, const struct manifest_doc *gw,
	       const struct yaml_node *item, const struct manifest_set *set,
	       struct manifest_model *model, bool first)
{
	const char *adapter = entry_adapter(item, set);
	bool base = manifest_entry_wants(item, set->model);

	if (!adapter && !base)
		return NULL;
	if ((adapter && base) || (!first && strcmp(model->adapter, adapter ? adapter : "") != 0)) {
		MANIFEST_COMPLAIN(l, gw->file, item,
				  "the model \"%.60s\" would be a LoRA adapter at some workers "
				  "and something else at others", model->name);
		return set->model;
	}
	if (adapter)
		strcpy(model->adapter, adapter);
	return adapter ? adapter : set->model;
}

/* Each set of the policy's pools, once, in order.  False: none can serve it, ever. */
static bool
model_rows(struct manifest_loader *l, const struct manifest_doc *gw,
	   const struct manifest_policy *policy, const struct yaml_node *item,
	   struct manifest_model *model)
{
	bool some = false, first = true;

	for (uint32_t p = 0; p < policy->n_pools; p++) {
		const struct manifest_pool *pool = &l->m->pools[policy->pools[p]];

		for (uint32_t s = 0; s < pool->n_sets; s++) {
			const struct manifest_set *set = &l->m->sets[pool->sets[s]];
			const char *name = entry_upstream(l, gw, item, set, model, first);

			if (!name)
				continue;
			first = false;
			some |= set->n_members > 0 || set->discovery.source != MANIFEST_SOURCE_NONE;
			if (strcmp(name, model->name) != 0)
				model->alias = true;
			if (set->n_members == 0 ||
			    index_has(model->members, model->n_members, set->first_member))
				continue;
			for (uint32_t i = 0; i < set->n_members; i++)
				if (!manifest_index_add(l, &model->members,
							&model->n_members,
							set->first_member + i))
					return some;
		}
	}
	return some;
}

static void
complain_nobody(struct manifest_loader *l, const struct manifest_doc *gw,
		const struct yaml_node *item, const struct manifest_policy *policy)
{
	const struct yaml_node *alias = yaml_map_get(item, "aliasOf");
	const struct yaml_node *name = yaml_map_get(item, "name");
	const struct yaml_node *at = !alias			      ? name
				     : alias->kind == YAML_KIND_LIST ? alias->child
								      : alias;
	const char *names[NAMES_MAX], *near;
	size_t n = 0;

	for (uint32_t p = 0; p < policy->n_pools; p++) {
		const struct manifest_pool *pool = &l->m->pools[policy->pools[p]];

		for (uint32_t s = 0; s < pool->n_sets && n < NAMES_MAX; s++)
			names[n++] = l->m->sets[pool->sets[s]].model;
	}
	near = yaml_nearest(at->text, names, n);
	MANIFEST_COMPLAIN(l, gw->file, at,
			  "no worker of the policy \"%s\" serves the model \"%.60s\"%s%s%s",
			  policy->name, at->text,
			  near ? "; did you mean \""
			  : alias ? ""
				  : "; if workers call it otherwise, say so with aliasOf",
			  near ? near : "", near ? "\"?" : "");
}

static void
model_resolve(struct manifest_loader *l, const struct manifest_doc *gw,
	      const struct yaml_node *item)
{
	const struct manifest_doc *doc = model_policy(l, gw, item);
	struct manifest_model *model;

	if (!doc)
		return;
	model = &l->m->models[l->m->n_models++];
	strcpy(model->name, yaml_map_get(item, "name")->text);
	model->policy = doc->index;
	if (!model_rows(l, gw, &l->m->policies[doc->index], item, model) && !l->oom)
		complain_nobody(l, gw, item, &l->m->policies[doc->index]);
}

static void
gateway_resolve(struct manifest_loader *l, const struct manifest_doc *gw)
{
	const struct yaml_node *list = yaml_map_get(gw->spec, "models");

	l->m->models = calloc(list->n_children, sizeof(*l->m->models));
	if (!l->m->models) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item && !l->oom; item = item->next)
		model_resolve(l, gw, item);
	if (!l->bad && !l->oom)
		manifest_adapters_resolve(l, list);
}

/* A policy that matches a model nobody may ask for is a typing error. */
static void
match_resolve(struct manifest_loader *l, const struct manifest_doc *policy,
	      const struct manifest_doc *gw)
{
	const struct yaml_node *match = yaml_map_get(policy->spec, "match");
	const struct yaml_node *item = first_of(match, "models");

	for (; item; item = item->next) {
		const struct yaml_node *entry = first_of(gw->spec, "models");
		const char *names[NAMES_MAX];
		bool known = strcmp(item->text, "*") == 0;
		size_t n = 0;

		for (; entry && !known; entry = entry->next) {
			const char *name = yaml_map_get(entry, "name")->text;

			known = strcmp(name, item->text) == 0;
			if (n < NAMES_MAX)
				names[n++] = name;
		}
		if (!known)
			complain_name(l, policy->file, item, "model of the GatewayBackend", names,
				      n);
	}
}

void
manifest_resolve(struct manifest_loader *l)
{
	const struct manifest_doc *gw = NULL;
	bool whole = !l->bad; /* each document by itself is right: names may be followed further */

	if (l->partial)
		return;
	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++) {
		if (l->docs[i].kind == KIND_POOL)
			pool_resolve(l, &l->docs[i]);
		else if (l->docs[i].kind == KIND_POLICY)
			policy_resolve(l, &l->docs[i]);
		else if (l->docs[i].kind == KIND_GATEWAY)
			gw = &l->docs[i];
	}
	if (!gw || !whole || l->oom)
		return;
	for (uint32_t i = 0; i < l->n_docs; i++)
		if (l->docs[i].kind == KIND_POLICY)
			match_resolve(l, &l->docs[i], gw);
	if (!l->bad)
		gateway_resolve(l, gw);
}
