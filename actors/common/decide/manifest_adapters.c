/* manifest_adapters.c -- LoRA adapters of a set: names that clients may say as they say a model's.
 *
 * An adapter that the gateway's document does not name is a model of its own all the same, as at
 * the engine: decided by the policy of the model that it stands beside.
 */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

void
manifest_adapters_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	static const struct manifest_field as = {.type = MANIFEST_T_TEXT};
	struct manifest_set *set = &l->m->sets[doc->index];
	const struct yaml_node *list = yaml_map_get(doc->spec, "loraAdapters");
	const struct yaml_node *item = list && list->kind == YAML_KIND_LIST ? list->child : NULL;
	char why[256];

	if (!item)
		return;
	set->adapters = calloc(list->n_children, sizeof *set->adapters);
	if (!set->adapters) {
		l->oom = true;
		return;
	}
	for (; item; item = item->next) {
		if (!manifest_value_read(&as, item, NULL, why, sizeof why) ||
		    item->len > MANIFEST_MODEL_MAX) {
			MANIFEST_COMPLAIN(l, doc->file, item, "an item of spec.loraAdapters %s",
					  item->len > MANIFEST_MODEL_MAX ? "is too long" : why);
			continue;
		}
		if (strcmp(item->text, set->model) == 0)
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.loraAdapters has the model itself, \"%.60s\"",
					  item->text);
		else if (manifest_adapter(set, item->text))
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.loraAdapters has \"%.60s\" twice", item->text);
		else
			strcpy(set->adapters[set->n_adapters++], item->text);
	}
}

const char *
manifest_adapter(const struct manifest_set *set, const char *name)
{
	for (uint32_t i = 0; i < set->n_adapters; i++)
		if (strcmp(set->adapters[i], name) == 0)
			return set->adapters[i];
	return NULL;
}

const char *
manifest_upstream(const struct manifest *m, const struct manifest_model *model, uint32_t member)
{
	const struct manifest_member *row = &m->members[member];

	if (row->provider != MANIFEST_NONE)
		return m->providers[row->provider].models[row->provider_model].upstream;
	return model->adapter[0] ? model->adapter : m->sets[row->set].model;
}

const struct manifest_model *
manifest_only_model(const struct manifest *m)
{
	const struct manifest_model *only = NULL;

	for (uint32_t i = 0; i < m->n_models; i++) {
		if (m->models[i].adapter[0])
			continue;
		if (only)
			return NULL;
		only = &m->models[i];
	}
	return only;
}

/* The index of a new model of that name; UINT32_MAX: no memory. */
static uint32_t
model_add(struct manifest_loader *l, const char *name)
{
	struct manifest_model *grown =
		realloc(l->m->models, (l->m->n_models + 1) * sizeof *grown), *to;

	if (!grown) {
		l->oom = true;
		return UINT32_MAX;
	}
	l->m->models = grown;
	to = &grown[l->m->n_models];
	memset(to, 0, sizeof *to);
	strcpy(to->name, name);
	strcpy(to->adapter, name);
	return l->m->n_models++;
}

static bool
row_has(const struct manifest *m, uint32_t row, const char *adapter)
{
	const struct manifest_member *member = &m->members[row];

	return member->set != MANIFEST_NONE && manifest_adapter(&m->sets[member->set], adapter);
}

/* The base's routes, with those of their rows that have the adapter. */
static void
routes_copy(struct manifest_loader *l, const struct manifest_model *base,
	    struct manifest_model *to)
{
	to->routes = calloc(base->n_routes, sizeof(*to->routes));
	if (!to->routes) {
		l->oom = true;
		return;
	}
	to->n_routes = base->n_routes;
	to->n_matches = base->n_matches;
	for (uint32_t r = 0; r < base->n_routes; r++) {
		const struct manifest_route *from = &base->routes[r];
		struct manifest_route *route = &to->routes[r];

		route->policy = from->policy;
		for (uint32_t i = 0; i < from->n_members && !l->oom; i++) {
			uint32_t n = route->n_members;

			if (row_has(l->m, from->members[i], to->name) &&
			    manifest_index_add(l, &route->candidate, &n, from->candidate[i]))
				manifest_index_add(l, &route->members, &route->n_members,
						   from->members[i]);
		}
	}
}

/* One adapter of a set beside that model: all rows of the model's that have it. */
static void
adapter_model(struct manifest_loader *l, uint32_t base_at, const char *name)
{
	const struct manifest_model *base;
	struct manifest_model *to;
	uint32_t at;

	if (manifest_find_model(l->m, name, strlen(name)))
		return; /* the document names it, or an earlier set had it */
	at = model_add(l, name);
	if (at == UINT32_MAX)
		return;
	base = &l->m->models[base_at];
	to = &l->m->models[at];
	to->policy = base->policy;
	for (uint32_t i = 0; i < base->n_tenants && !l->oom; i++)
		manifest_index_add(l, &to->tenants, &to->n_tenants, base->tenants[i]);
	for (uint32_t i = 0; i < base->n_members && !l->oom; i++)
		if (row_has(l->m, base->members[i], name))
			manifest_index_add(l, &to->members, &to->n_members, base->members[i]);
	if (!l->oom)
		routes_copy(l, base, to);
}

/* Sets behind that model, also those that have no rows yet. */
static void
pool_adapters(struct manifest_loader *l, uint32_t base, const struct yaml_node *item,
	      const struct manifest_pool *pool)
{
	for (uint32_t s = 0; s < pool->n_sets; s++) {
		const struct manifest_set *set = &l->m->sets[pool->sets[s]];

		for (uint32_t a = 0;
		     a < set->n_adapters && !l->oom && manifest_entry_wants(item, set->model); a++)
			adapter_model(l, base, set->adapters[a]);
	}
}

static void
model_adapters(struct manifest_loader *l, uint32_t base, const struct yaml_node *item)
{
	for (uint32_t r = 0; r < l->m->models[base].n_routes; r++) {
		const struct manifest_policy *policy =
			&l->m->policies[l->m->models[base].routes[r].policy];

		for (uint32_t c = 0; c < policy->n_candidates; c++)
			if (policy->candidates[c].pool != MANIFEST_NONE)
				pool_adapters(l, base, item,
					      &l->m->pools[policy->candidates[c].pool]);
	}
}

/* Does a model of the gateway's document go to that adapter? */
static bool
adapter_is_named(const struct manifest *m, const char *adapter)
{
	for (uint32_t i = 0; i < m->n_models; i++)
		if (strcmp(m->models[i].adapter, adapter) == 0)
			return true;
	return false;
}

/* Its name is taken by an alias of something else, and no alias is of it. */
static void
adapters_hidden(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct yaml_node *list = yaml_map_get(doc->spec, "loraAdapters");

	for (const struct yaml_node *item = list ? list->child : NULL; item; item = item->next) {
		const struct manifest_model *is = item->kind == YAML_KIND_SCALAR ?
			manifest_find_model(l->m, item->text, item->len) : NULL;

		if (is && is->alias && !adapter_is_named(l->m, item->text))
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.loraAdapters has \"%.60s\", which no client can "
					  "ask for: the GatewayBackend has that name as an alias "
					  "of something else", item->text);
	}
}

void
manifest_adapters_resolve(struct manifest_loader *l, const struct yaml_node *list)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < l->n_docs; i++)
		if (l->docs[i].kind == KIND_SET)
			adapters_hidden(l, &l->docs[i]);
	for (const struct yaml_node *item = list->child; item && !l->oom; item = item->next, at++)
		if (!l->m->models[at].adapter[0])
			model_adapters(l, at, item);
}
