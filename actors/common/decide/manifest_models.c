/* manifest_models.c -- what clients may ask for: model -> policies -> rows.
 *
 * A model has a route for each policy that may decide for it, and for each one that these fall back
 * to.  A route's rows are those of the policy's candidates that serve the model.
 */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

/* One entry of spec.models while its routes are made. */
struct entry {
	struct manifest_loader *l;
	const struct manifest_doc *gw;
	const struct yaml_node *item;
	struct manifest_model *model;
	bool first; /* no worker set yet: none has said whether it is an adapter */
	bool told;  /* that it is an adapter here and none there */
};

/* Is name one of the pattern's: the same, or beginning as "begin*" says? */
static bool
pattern_takes(const char *pattern, const char *name)
{
	size_t len = strlen(pattern);

	if (len > 0 && pattern[len - 1] == '*')
		return strncmp(pattern, name, len - 1) == 0;
	return strcmp(pattern, name) == 0;
}

/* Does the policy's match.models have this name?  A policy without the list takes all that name
 * it (by_name) but is nobody's by itself. */
static bool
policy_takes(const struct manifest_doc *policy, const char *model, bool by_name)
{
	const struct yaml_node *match = yaml_map_get(policy->spec, "match");
	const struct yaml_node *list = manifest_list(match, "models");

	if (!list)
		return by_name;
	for (const struct yaml_node *item = list->child; item; item = item->next)
		if (item->kind == YAML_KIND_SCALAR && pattern_takes(item->text, model))
			return true;
	return false;
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
entry_upstream(struct entry *e, const struct manifest_set *set)
{
	struct manifest_loader *l = e->l;
	const char *adapter = entry_adapter(e->item, set);
	bool base = manifest_entry_wants(e->item, set->model);

	if (!adapter && !base)
		return NULL;
	if ((adapter && base) ||
	    (!e->first && strcmp(e->model->adapter, adapter ? adapter : "") != 0)) {
		if (!e->told)
			MANIFEST_COMPLAIN(l, e->gw->file, e->item,
					  "the model \"%.60s\" would be a LoRA adapter at some "
					  "workers and something else at others", e->model->name);
		e->told = true;
		return set->model;
	}
	if (adapter)
		strcpy(e->model->adapter, adapter);
	return adapter ? adapter : set->model;
}

static bool
has(const uint32_t *array, uint32_t n, uint32_t value)
{
	for (uint32_t i = 0; i < n; i++)
		if (array[i] == value)
			return true;
	return false;
}

/* False: no memory. */
static bool
row_take(struct manifest_loader *l, struct manifest_model *model, struct manifest_route *route,
	 uint32_t row, uint32_t candidate)
{
	uint32_t n = route->n_members;

	if (has(route->members, n, row))
		return true;
	if (!manifest_index_add(l, &route->candidate, &n, candidate) ||
	    !manifest_index_add(l, &route->members, &route->n_members, row))
		return false;
	return has(model->members, model->n_members, row) ||
	       manifest_index_add(l, &model->members, &model->n_members, row);
}

/* Each set of a pool, once, in order.  False: none can serve it, ever. */
static bool
pool_rows(struct entry *e, struct manifest_route *route, uint32_t candidate, uint32_t at)
{
	struct manifest_loader *l = e->l;
	const struct manifest_pool *pool = &l->m->pools[at];
	bool some = false;

	for (uint32_t s = 0; s < pool->n_sets; s++) {
		const struct manifest_set *set = &l->m->sets[pool->sets[s]];
		const char *name = entry_upstream(e, set);

		if (!name)
			continue;
		e->first = false;
		some |= set->n_members > 0 || set->discovery.source != MANIFEST_SOURCE_NONE;
		e->model->alias |= strcmp(name, e->model->name) != 0;
		for (uint32_t i = 0; i < set->n_members; i++)
			if (!row_take(l, e->model, route, set->first_member + i, candidate))
				return some;
	}
	return some;
}

/* The model that the policy names, or those that are called as the client's.  False: none. */
static bool
provider_rows(struct entry *e, struct manifest_route *route, uint32_t candidate,
	      const struct manifest_candidate *is)
{
	const struct manifest_provider *provider = &e->l->m->providers[is->provider];
	bool some = false;

	for (uint32_t i = 0; i < provider->n_models; i++) {
		const struct manifest_provider_model *model = &provider->models[i];

		if (is->provider_model == MANIFEST_NONE
			    ? !manifest_entry_wants(e->item, model->name)
			    : is->provider_model != i)
			continue;
		some = true;
		e->model->alias |= strcmp(model->upstream, e->model->name) != 0;
		if (!row_take(e->l, e->model, route, provider->first_member + i, candidate))
			break;
	}
	return some;
}

/* False: no candidate of the policy can serve it, ever. */
static bool
route_rows(struct entry *e, struct manifest_route *route)
{
	const struct manifest_policy *policy = &e->l->m->policies[route->policy];
	bool some = false;

	for (uint32_t c = 0; c < policy->n_candidates && !e->l->oom; c++) {
		const struct manifest_candidate *is = &policy->candidates[c];

		some |= is->pool != MANIFEST_NONE ? pool_rows(e, route, c, is->pool)
						  : provider_rows(e, route, c, is);
	}
	return some;
}

/* The entry of the gateway's list that has this name and is an alias of one other name, or NULL. */
static const struct yaml_node *
alias_named(const struct yaml_node *list, const char *name)
{
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		const struct yaml_node *alias = yaml_map_get(item, "aliasOf");

		if (strcmp(yaml_map_get(item, "name")->text, name) == 0)
			return alias && alias->kind == YAML_KIND_SCALAR ? item : NULL;
	}
	return NULL;
}

/* An alias of another alias serves nothing: only what workers say is followed.  Of names that go
 * round, the first tells.  False: it is not that. */
static bool
complain_alias(const struct entry *e, const struct yaml_node *at)
{
	struct manifest_loader *l = e->l;
	const struct yaml_node *alias = at;
	bool first = true;
	const struct yaml_node *list = yaml_map_get(e->gw->spec, "models");
	const struct yaml_node *next = alias_named(list, alias->text);
	char chain[4 * (MANIFEST_MODEL_MAX + 4)];
	size_t used = (size_t)snprintf(chain, sizeof(chain), "%s", e->model->name);

	if (!next)
		return false;
	for (size_t n = 0; next && n < list->n_children; n++) {
		const char *name = yaml_map_get(next, "name")->text;

		if (used < sizeof(chain))
			used += (size_t)snprintf(chain + used, sizeof(chain) - used, " > %s", name);
		if (strcmp(name, e->model->name) == 0) {
			if (first)
				MANIFEST_COMPLAIN(l, e->gw->file, at, "aliases go round: %s",
						  chain);
			return true;
		}
		first = first && next->line >= e->item->line;
		alias = yaml_map_get(next, "aliasOf");
		next = alias_named(list, alias->text);
	}
	MANIFEST_COMPLAIN(l, e->gw->file, at,
			  "\"%.60s\" is an alias itself: say what its workers call it, \"%.60s\"",
			  at->text, alias->text);
	return true;
}

static size_t
provider_names(const struct manifest_provider *provider, const char **names, size_t n)
{
	for (uint32_t i = 0; i < provider->n_models && n < MANIFEST_SUGGEST_MAX; i++)
		names[n++] = provider->models[i].name;
	return n;
}

static size_t
pool_names(const struct manifest *m, const struct manifest_pool *pool, const char **names, size_t n)
{
	for (uint32_t s = 0; s < pool->n_sets && n < MANIFEST_SUGGEST_MAX; s++)
		names[n++] = m->sets[pool->sets[s]].model;
	return n;
}

static void
complain_nobody(const struct entry *e, const struct manifest_policy *policy)
{
	struct manifest_loader *l = e->l;
	const struct yaml_node *alias = yaml_map_get(e->item, "aliasOf");
	const struct yaml_node *name = yaml_map_get(e->item, "name");
	const struct yaml_node *at = !alias			      ? name
				     : alias->kind == YAML_KIND_LIST ? alias->child
								      : alias;
	const char *names[MANIFEST_SUGGEST_MAX], *near;
	size_t n = 0;

	if (alias && alias->kind == YAML_KIND_SCALAR && complain_alias(e, alias))
		return;
	for (uint32_t c = 0; c < policy->n_candidates; c++) {
		const struct manifest_candidate *is = &policy->candidates[c];

		if (is->pool == MANIFEST_NONE)
			n = provider_names(&l->m->providers[is->provider], names, n);
		else
			n = pool_names(l->m, &l->m->pools[is->pool], names, n);
	}
	near = yaml_nearest(at->text, names, n);
	MANIFEST_COMPLAIN(l, e->gw->file, at,
			  "no worker of the policy \"%s\" serves the model \"%.60s\"%s%s%s",
			  policy->name, at->text,
			  near ? "; did you mean \""
			  : alias ? ""
				  : "; if workers call it otherwise, say so with aliasOf",
			  near ? near : "", near ? "\"?" : "");
}

static bool
route_add(struct entry *e, uint32_t policy)
{
	struct manifest_model *model = e->model;
	struct manifest_route *grown =
		realloc(model->routes, (model->n_routes + 1) * sizeof(*grown));

	if (!grown) {
		e->l->oom = true;
		return false;
	}
	model->routes = grown;
	grown[model->n_routes++] = (struct manifest_route){.policy = policy};
	return true;
}

/* The policies that may decide for it.  False: none, or no memory. */
static bool
matches_add(struct entry *e)
{
	struct manifest_loader *l = e->l;
	const struct yaml_node *name = yaml_map_get(e->item, "name");
	const struct yaml_node *node = yaml_map_get(e->item, "policy");

	if (node) {
		const struct manifest_doc *policy =
			manifest_doc_named(l, e->gw->file, KIND_POLICY, node);

		if (policy && !policy_takes(policy, name->text, true)) {
			MANIFEST_COMPLAIN(l, e->gw->file, node,
					  "the policy \"%s\" does not take the model \"%s\": its "
					  "match.models does not have it",
					  policy->name, name->text);
			return false;
		}
		return policy && route_add(e, policy->index);
	}
	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++) {
		const struct manifest_doc *doc = &l->docs[i];

		if (doc->kind != KIND_POLICY || !policy_takes(doc, name->text, false) ||
		    !route_add(e, doc->index))
			continue;
		if (l->m->policies[doc->index].any_tenant)
			break; /* behind it none is asked */
	}
	if (e->model->n_routes == 0 && !l->oom)
		MANIFEST_COMPLAIN(
			l, e->gw->file, name,
			"no policy decides for the model \"%s\": give it a policy, or put it "
			"into a "
			"policy's match.models",
			name->text);
	return e->model->n_routes > 0;
}

static void
fallbacks_add(struct entry *e)
{
	for (uint32_t i = 0; i < e->model->n_routes && !e->l->oom; i++) {
		uint32_t to = e->l->m->policies[e->model->routes[i].policy].fallback;

		if (to != MANIFEST_NONE && !manifest_route_of(e->model, to))
			route_add(e, to);
	}
}

static void
model_resolve(struct manifest_loader *l, const struct manifest_doc *gw,
	      const struct yaml_node *item)
{
	struct manifest_model *model = &l->m->models[l->m->n_models++];
	struct entry e = {.l = l, .gw = gw, .item = item, .model = model, .first = true};
	const struct yaml_node *tenants = manifest_list(item, "tenants");

	strcpy(model->name, yaml_map_get(item, "name")->text);
	for (const struct yaml_node *t = tenants ? tenants->child : NULL; t; t = t->next) {
		const struct manifest_doc *tenant =
			manifest_doc_named(l, gw->file, KIND_TENANT, t);

		if (tenant)
			manifest_index_add(l, &model->tenants, &model->n_tenants, tenant->index);
	}
	if (!matches_add(&e))
		return;
	model->n_matches = model->n_routes;
	model->policy = model->routes[0].policy;
	fallbacks_add(&e);
	for (uint32_t i = 0; i < model->n_routes && !l->oom; i++)
		if (!route_rows(&e, &model->routes[i]) && i < model->n_matches && !l->oom)
			complain_nobody(&e, &l->m->policies[model->routes[i].policy]);
}

void
manifest_models_resolve(struct manifest_loader *l, const struct manifest_doc *gw)
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
void
manifest_match_resolve(struct manifest_loader *l, const struct manifest_doc *policy,
		       const struct manifest_doc *gw)
{
	const struct yaml_node *match = yaml_map_get(policy->spec, "match");
	const struct yaml_node *list = manifest_list(match, "models");
	const struct yaml_node *entries = yaml_map_get(gw->spec, "models");

	for (const struct yaml_node *item = list ? list->child : NULL; item; item = item->next) {
		const struct yaml_node *entry = entries->child;
		const char *names[MANIFEST_SUGGEST_MAX];
		bool known = strcmp(item->text, "*") == 0;
		size_t n = 0;

		for (; entry && !known; entry = entry->next) {
			const char *name = yaml_map_get(entry, "name")->text;

			known = pattern_takes(item->text, name);
			if (n < MANIFEST_SUGGEST_MAX)
				names[n++] = name;
		}
		if (!known)
			manifest_complain_name(l, policy->file, item,
					       "model of the GatewayBackend", names, n);
	}
}

const struct manifest_route *
manifest_route_of(const struct manifest_model *model, uint32_t policy)
{
	for (uint32_t i = 0; i < model->n_routes; i++)
		if (model->routes[i].policy == policy)
			return &model->routes[i];
	return NULL;
}

const struct manifest_route *
manifest_route(const struct manifest *m, const struct manifest_model *model, uint32_t tenant)
{
	for (uint32_t i = 0; i < model->n_matches; i++) {
		const struct manifest_policy *policy = &m->policies[model->routes[i].policy];

		if (policy->any_tenant ||
		    (tenant != MANIFEST_NONE && has(policy->tenants, policy->n_tenants, tenant)))
			return &model->routes[i];
	}
	return NULL;
}

bool
manifest_model_open(const struct manifest_model *model, uint32_t tenant)
{
	return model->n_tenants == 0 || has(model->tenants, model->n_tenants, tenant);
}
