/* manifest_load.c -- each document's own fields; manifest_resolve.c does what needs several. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const manifest_kind_names[KINDS] = {
	[KIND_GATEWAY] = "GatewayBackend",
	[KIND_SET] = "InferenceWorkerSet",
	[KIND_POOL] = "InferencePool",
	[KIND_POLICY] = "InferencePolicy",
};

/* Texts in a list of scalars: each one word, none twice. */
static bool
words_ok(struct manifest_loader *l, const char *file, const char *path,
	 const struct yaml_node *list)
{
	const char *text, *why;
	bool ok = true;

	for (const struct yaml_node *a = list->child; a; a = a->next) {
		if (yaml_get_text(a, &text, &why) < 0) {
			MANIFEST_COMPLAIN(l, file, a, "an item of %s %s", path, why);
			ok = false;
			continue;
		}
		for (const struct yaml_node *b = list->child; b != a; b = b->next)
			if (b->kind == YAML_KIND_SCALAR && strcmp(a->text, b->text) == 0) {
				MANIFEST_COMPLAIN(
					l, file, a,
					"%s has \"%.60s\" twice: first at line %u, column %u", path,
					text, b->line, b->column);
				ok = false;
				break;
			}
	}
	return ok;
}

/* Every map in a list, by the table; false where any is bad. */
static bool
items_ok(struct manifest_loader *l, const struct manifest_doc *doc, const char *parent,
	 const struct yaml_node *list)
{
	bool ok = true;

	for (const struct yaml_node *item = list->child; item; item = item->next)
		ok = manifest_fields_load(l, doc->file, manifest_kind_names[doc->kind], parent,
					  item, NULL) &&
		     ok;
	return ok;
}

static const struct yaml_node *
list_get(const struct yaml_node *map, const char *key)
{
	const struct yaml_node *list = yaml_map_get(map, key);

	return list && list->kind == YAML_KIND_LIST ? list : NULL;
}

/* ---- GatewayBackend ---- */

static void
listen_load(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *list)
{
	struct manifest_gateway *gw = &l->m->gateway;

	if (!words_ok(l, doc->file, "spec.listen", list))
		return;
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_addr addr;
		const char *why;

		if (item->text[0] == ':') {
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.listen: \"%.60s\" has no address; did you mean "
					  "\"0.0.0.0%.60s\"?",
					  item->text, item->text);
			continue;
		}
		why = manifest_addr_parse(item->text, &addr);
		if (!why && !manifest_addr_is_numeric(&addr))
			why = "must be an IP address and a port";
		if (why)
			MANIFEST_COMPLAIN(l, doc->file, item, "spec.listen: \"%.60s\" %s",
					  item->text, why);
		else if (gw->n_listen < MANIFEST_LISTEN_MAX)
			gw->listen[gw->n_listen++] = addr;
	}
}

static void
model_name_ok(struct manifest_loader *l, const struct manifest_doc *doc, const char *path,
	      const struct yaml_node *node)
{
	const struct manifest_field as = {.type = MANIFEST_T_TEXT, .size = 0};
	char why[256];

	if (!manifest_value_read(&as, node, NULL, why, sizeof(why)))
		MANIFEST_COMPLAIN(l, doc->file, node, "%s %s", path, why);
}

static void
models_check(struct manifest_loader *l, const struct manifest_doc *doc,
	     const struct yaml_node *list)
{
	if (!items_ok(l, doc, "spec.models[]", list))
		return;
	for (const struct yaml_node *a = list->child; a; a = a->next) {
		const struct yaml_node *name = yaml_map_get(a, "name");
		const struct yaml_node *alias = yaml_map_get(a, "aliasOf");

		for (const struct yaml_node *b = list->child; b != a; b = b->next) {
			const struct yaml_node *other = yaml_map_get(b, "name");

			if (strcmp(name->text, other->text) == 0) {
				MANIFEST_COMPLAIN(
					l, doc->file, name,
					"the model \"%.60s\" is given twice: first at line "
					"%u, column %u",
					name->text, other->line, other->column);
				break;
			}
		}
		if (alias && alias->kind == YAML_KIND_SCALAR)
			model_name_ok(l, doc, "spec.models[].aliasOf", alias);
		else if (alias && alias->n_children == 0)
			MANIFEST_COMPLAIN(l, doc->file, alias, "spec.models[].aliasOf is empty");
		else if (alias)
			words_ok(l, doc->file, "spec.models[].aliasOf", alias);
	}
}

static void
gateway_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_gateway *gw = &l->m->gateway;
	const struct yaml_node *list;

	strcpy(gw->name, doc->name);
	manifest_defaults("GatewayBackend", gw);
	manifest_fields_load(l, doc->file, "GatewayBackend", "spec", doc->spec, gw);
	list = list_get(doc->spec, "listen");
	if (list)
		listen_load(l, doc, list);
	list = list_get(doc->spec, "models");
	if (list)
		models_check(l, doc, list);
}

/* ---- InferenceWorkerSet ---- */

static bool
same_addr(const struct manifest_addr *a, const struct manifest_addr *b)
{
	return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

/* A worker must be written once, or its load would be counted in two places. */
static bool
member_is_new(struct manifest_loader *l, const struct manifest_doc *doc,
	      const struct manifest_member *row, const struct yaml_node *item)
{
	for (uint32_t i = 0; i < l->m->n_members; i++) {
		const struct manifest_member *old = &l->m->members[i];
		const struct manifest_place *at = &l->places[i];

		if (old->set == row->set && strcmp(old->name, row->name) == 0) {
			MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, "name"),
					  "the member \"%s\" is given twice: first at %s:%u:%u",
					  row->name, at->file, at->node->line, at->node->column);
			return false;
		}
		if (same_addr(&old->url, &row->url)) {
			MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, "url"),
					  "the worker %s:%u is given twice: first at %s:%u:%u",
					  row->url.host, row->url.port, at->file, at->node->line,
					  at->node->column);
			return false;
		}
	}
	return true;
}

static bool
endpoint_is_new(struct manifest_loader *l, const struct manifest_doc *doc, const char *endpoint,
		const struct yaml_node *node, uint32_t n_rows)
{
	for (uint32_t i = 0; i < n_rows; i++) {
		const struct manifest_member *old = &l->m->members[i];

		if (strcmp(old->kv_events, endpoint) != 0)
			continue;
		MANIFEST_COMPLAIN(l, doc->file, node,
				  "%s already belongs to rank %u of the member at %s:%u:%u",
				  endpoint, old->rank, l->places[i].file, l->places[i].node->line,
				  l->places[i].node->column);
		return false;
	}
	return true;
}

static bool
row_add(struct manifest_loader *l, const struct manifest_doc *doc,
	const struct manifest_member *row, const struct yaml_node *item)
{
	uint32_t n = l->m->n_members;
	struct manifest_member *members;
	struct manifest_place *places;

	if (n == MANIFEST_ROWS_MAX) {
		MANIFEST_COMPLAIN(l, doc->file, item, "more than %u workers and ranks",
				  MANIFEST_ROWS_MAX);
		return false;
	}
	members = realloc(l->m->members, (n + 1) * sizeof(*members));
	if (members)
		l->m->members = members;
	places = realloc(l->places, (n + 1) * sizeof(*places));
	if (places)
		l->places = places;
	if (!members || !places) {
		l->oom = true;
		return false;
	}
	members[n] = *row;
	places[n] = (struct manifest_place){doc->file, item};
	l->m->n_members = n + 1;
	l->m->sets[row->set].n_members++;
	return true;
}

/* One rank's endpoint into at; a member without one leaves it empty. */
static bool
endpoint_load(struct manifest_loader *l, const struct manifest_doc *doc,
	      const struct yaml_node *item, unsigned rank, char at[MANIFEST_ENDPOINT_MAX + 1])
{
	const struct yaml_node *node = yaml_map_get(item, "kvEvents");
	const char *why;

	if (!node)
		return true;
	why = manifest_endpoint_parse(node->text, rank, at);
	if (why) {
		MANIFEST_COMPLAIN(l, doc->file, node, "spec.members[].kvEvents %s", why);
		return false;
	}
	return endpoint_is_new(l, doc, at, node, l->m->n_members);
}

static void
member_load(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *item)
{
	const struct manifest_set *set = &l->m->sets[doc->index];
	const struct yaml_node *url = yaml_map_get(item, "url");
	struct manifest_member row = {.set = doc->index};
	char where[MANIFEST_ENDPOINT_MAX + 1];
	const char *why;

	if (!manifest_fields_load(l, doc->file, "InferenceWorkerSet", "spec.members[]", item, NULL))
		return;
	strcpy(row.name, yaml_map_get(item, "name")->text);
	why = manifest_url_parse(url->text, &row.url);
	if (why) {
		MANIFEST_COMPLAIN(l, doc->file, url, "spec.members[].url %s", why);
		return;
	}
	if (!member_is_new(l, doc, &row, item))
		return;
	snprintf(where, sizeof(where), "%s:%u", row.url.host, row.url.port);
	for (unsigned rank = 0; rank < set->ranks; rank++) {
		row.rank = (uint16_t)rank;
		row.uid = manifest_member_uid(set->name, row.name, where, rank);
		row.kv_events[0] = '\0';
		if (!endpoint_load(l, doc, item, rank, row.kv_events) ||
		    !row_add(l, doc, &row, item))
			return;
	}
}

static void
set_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_set *set = &l->m->sets[doc->index];
	const struct yaml_node *list;

	strcpy(set->name, doc->name);
	manifest_defaults("InferenceWorkerSet", set);
	manifest_fields_load(l, doc->file, "InferenceWorkerSet", "spec", doc->spec, set);
	set->first_member = l->m->n_members;
	list = list_get(doc->spec, "members");
	for (const struct yaml_node *item = list ? list->child : NULL; item; item = item->next)
		member_load(l, doc, item);
}

/* ---- InferencePool, InferencePolicy ---- */

static void
pool_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct yaml_node *list;

	strcpy(l->m->pools[doc->index].name, doc->name);
	manifest_fields_load(l, doc->file, "InferencePool", "spec", doc->spec, NULL);
	list = list_get(doc->spec, "workerSets");
	if (list)
		words_ok(l, doc->file, "spec.workerSets", list);
}

static void
policy_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *list;

	strcpy(policy->name, doc->name);
	manifest_defaults("InferencePolicy", policy);
	manifest_fields_load(l, doc->file, "InferencePolicy", "spec", doc->spec, policy);
	list = list_get(yaml_map_get(doc->spec, "match"), "models");
	if (list)
		words_ok(l, doc->file, "spec.match.models", list);
	list = list_get(doc->spec, "candidates");
	if (list)
		items_ok(l, doc, "spec.candidates[]", list);
}

void
manifest_docs_load(struct manifest_loader *l)
{
	static void (*const load[KINDS])(struct manifest_loader *, const struct manifest_doc *) = {
		[KIND_GATEWAY] = gateway_load,
		[KIND_SET] = set_load,
		[KIND_POOL] = pool_load,
		[KIND_POLICY] = policy_load,
	};

	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++)
		load[l->docs[i].kind](l, &l->docs[i]);
}
