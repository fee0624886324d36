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
	return model->adapter[0] ? model->adapter : m->sets[m->members[member].set].model;
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
model_add(struct manifest_loader *l, const char *name, uint32_t policy)
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
	to->policy = policy;
	return l->m->n_models++;
}

/* One adapter of a set beside that model: all rows of the model's that have it. */
static void
adapter_model(struct manifest_loader *l, uint32_t base, const char *name)
{
	uint32_t at;

	if (manifest_find_model(l->m, name, strlen(name)))
		return; /* the document names it, or an earlier set had it */
	at = model_add(l, name, l->m->models[base].policy);
	if (at == UINT32_MAX)
		return;
	for (uint32_t i = 0; i < l->m->models[base].n_members && !l->oom; i++) {
		struct manifest_model *to = &l->m->models[at];
		uint32_t member = l->m->models[base].members[i];

		if (manifest_adapter(&l->m->sets[l->m->members[member].set], name))
			manifest_index_add(l, &to->members, &to->n_members, member);
	}
}

/* Sets behind that model, also those that have no rows yet. */
static void
model_adapters(struct manifest_loader *l, uint32_t base, const struct yaml_node *item)
{
	const struct manifest_policy *policy = &l->m->policies[l->m->models[base].policy];

	for (uint32_t p = 0; p < policy->n_pools; p++) {
		const struct manifest_pool *pool = &l->m->pools[policy->pools[p]];

		for (uint32_t s = 0; s < pool->n_sets; s++) {
			const struct manifest_set *set = &l->m->sets[pool->sets[s]];

			for (uint32_t a = 0; a < set->n_adapters && !l->oom &&
			     manifest_entry_wants(item, set->model); a++)
				adapter_model(l, base, set->adapters[a]);
		}
	}
}

void
manifest_adapters_resolve(struct manifest_loader *l, const struct yaml_node *list)
{
	uint32_t at = 0;

	for (const struct yaml_node *item = list->child; item && !l->oom; item = item->next, at++)
		if (!l->m->models[at].adapter[0])
			model_adapters(l, at, item);
}
