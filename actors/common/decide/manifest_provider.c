/* manifest_provider.c -- InferenceProvider: its own fields, and the rows of its models. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

static void
price_load(const struct yaml_node *item, struct manifest_price *price)
{
	const struct yaml_node *map = yaml_map_get(item, "price");

	price->known = map != NULL;
	if (map && !yaml_map_get(map, "cachedInput"))
		price->cached_input = price->input;
}

static void
models_load(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *list, struct manifest_provider *provider)
{
	provider->models = calloc(list->n_children + 1, sizeof(*provider->models));
	if (!provider->models) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_provider_model *model = &provider->models[provider->n_models];

		if (!manifest_fields_load(l, doc->file, "InferenceProvider", "spec.models[]", item,
					  model))
			continue;
		if (!model->upstream[0])
			strcpy(model->upstream, model->name);
		price_load(item, &model->price);
		provider->n_models++;
		for (uint32_t i = 0; i + 1 < provider->n_models; i++)
			if (strcmp(provider->models[i].name, model->name) == 0)
				MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, "name"),
						  "the model \"%.60s\" is given twice",
						  model->name);
	}
}

/* What the type needs, or does not know. */
static void
type_check(struct manifest_loader *l, const struct manifest_doc *doc,
	   const struct manifest_provider *provider)
{
	const struct yaml_node *type = yaml_map_get(doc->spec, "type");
	const struct yaml_node *region = yaml_map_get(doc->spec, "region");
	const struct yaml_node *url = yaml_map_get(doc->spec, "baseURL");
	const struct yaml_node *from = yaml_map_get(doc->spec, "apiKeyFrom");
	bool bedrock = provider->type == MANIFEST_PROVIDER_BEDROCK ||
		       provider->type == MANIFEST_PROVIDER_BEDROCK_OPENAI;
	bool own = provider->type == MANIFEST_PROVIDER_AZURE ||
		   provider->type == MANIFEST_PROVIDER_OPENAI_COMPATIBLE;

	if (!type || type->kind != YAML_KIND_SCALAR)
		return;
	if (bedrock && !region)
		MANIFEST_COMPLAIN(l, doc->file, doc->spec, "spec needs \"region\" for type: %s",
				  type->text);
	if (region && !bedrock)
		MANIFEST_COMPLAIN(l, doc->file, region,
				  "spec.region is for bedrock and bedrock-openai, not for "
				  "type: %.60s",
				  type->text);
	if (own && !url)
		MANIFEST_COMPLAIN(l, doc->file, doc->spec, "spec needs \"baseURL\" for type: %s",
				  type->text);
	if (url && url->kind == YAML_KIND_SCALAR && strncmp(url->text, "https://", 8) != 0 &&
	    strncmp(url->text, "http://", 7) != 0)
		MANIFEST_COMPLAIN(l, doc->file, url,
				  "spec.baseURL must be https://host/path, or http:// within a "
				  "machine");
	if (from && (provider->api_key_file[0] != '\0') == (provider->api_key_env[0] != '\0'))
		MANIFEST_COMPLAIN(l, doc->file, from,
				  "spec.apiKeyFrom needs either \"file\" or \"env\"");
}

void
manifest_provider_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_provider *provider = &l->m->providers[doc->index];
	const struct yaml_node *list, *path = yaml_map_get(doc->spec, "socket");
	char fits[MANIFEST_SOCKET_MAX + 1];
	const char *why;

	strcpy(provider->name, doc->name);
	manifest_defaults("InferenceProvider", "", provider);
	manifest_fields_load(l, doc->file, "InferenceProvider", "spec", doc->spec, provider);
	list = manifest_list(doc->spec, "models");
	if (list)
		models_load(l, doc, list, provider);
	type_check(l, doc, provider);
	manifest_labels_load(l, doc, &provider->labels, &provider->n_labels);
	if (path && provider->socket[0]) {
		why = manifest_socket_parse(provider->socket, fits);
		if (why)
			MANIFEST_COMPLAIN(l, doc->file, path, "spec.socket %s", why);
	}
}

void
manifest_provider_rows(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_provider *provider = &l->m->providers[doc->index];

	provider->first_member = l->m->n_members;
	for (uint32_t i = 0; i < provider->n_models; i++) {
		struct manifest_member row = {.set = MANIFEST_NONE, .provider = doc->index,
					      .provider_model = i};

		strcpy(row.name, provider->name);
		row.uid = manifest_member_uid(provider->name, provider->models[i].name, "provider",
					      0);
		if (!manifest_row_add(l, doc->file, &row, doc->name_node))
			return;
	}
}
