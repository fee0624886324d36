/* manifest_tokenizer.c -- spec.tokenizer of a set: what the table of fields cannot store.
 *
 * Kwargs     a template's variables are JSON's values, and templates tell 1 from "1": what is
 *            plain and reads as JSON's number, true, false or null is that; all else is text.
 */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

#include "proto/json.h"

static bool
is_literal(const struct yaml_node *node)
{
	struct json_cursor c;
	struct slice number;

	if (node->quoted || node->len == 0)
		return false;
	if (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0 ||
	    strcmp(node->text, "null") == 0)
		return true;
	if (!strchr("-0123456789", node->text[0]))
		return false;
	json_begin(&c, node->text, node->len);
	return json_get_number(&c, &number) && json_end(&c) == 0;
}

static void
put(struct manifest_bytes *to, const char *text)
{
	manifest_bytes_add(to, text, strlen(text));
}

static void
put_string(struct manifest_bytes *to, const char *text, size_t len)
{
	size_t cap = 6 * len + 1;       /* every byte may be escaped */
	char *escaped = malloc(cap);
	ssize_t n = escaped ? json_escape((struct slice){text, len}, escaped, cap) : -1;

	to->oom = to->oom || n < 0;
	put(to, "\"");
	if (n > 0)
		manifest_bytes_add(to, escaped, (size_t)n);
	put(to, "\"");
	free(escaped);
}

/* Recursion: as deep as the YAML parser lets a tree be. */
static void
put_value(struct manifest_bytes *to, const struct yaml_node *node)
{
	bool map = node->kind == YAML_KIND_MAP;

	if (node->kind == YAML_KIND_SCALAR) {
		if (node->len == 0 && !node->quoted)
			put(to, "null");
		else if (is_literal(node))
			manifest_bytes_add(to, node->text, node->len);
		else
			put_string(to, node->text, node->len);
		return;
	}
	put(to, map ? "{" : "[");
	for (const struct yaml_node *child = node->child; child; child = child->next) {
		if (child != node->child)
			put(to, ",");
		if (map) {
			put_string(to, child->key, strlen(child->key));
			put(to, ":");
		}
		put_value(to, child);
	}
	put(to, map ? "}" : "]");
}

static void
kwargs_load(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *map, struct manifest_tokenizer *to)
{
	struct manifest_bytes json = {0};

	put_value(&json, map);
	manifest_bytes_add(&json, "", 1);
	if (json.oom) {
		l->oom = true;
		free(json.bytes);
	} else if (json.len > MANIFEST_KWARGS_MAX) {
		MANIFEST_COMPLAIN(l, doc->file, map,
				  "spec.tokenizer.defaultChatTemplateKwargs has more than %u bytes",
				  MANIFEST_KWARGS_MAX);
		free(json.bytes);
	} else {
		to->kwargs = (char *)json.bytes;
	}
}

void
manifest_tokenizer_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_set *set = &l->m->sets[doc->index];
	struct manifest_tokenizer *to = &set->tokenizer;
	const struct yaml_node *map = yaml_map_get(doc->spec, "tokenizer");
	const struct yaml_node *path = yaml_map_get(map, "path");
	const struct yaml_node *kwargs = yaml_map_get(map, "defaultChatTemplateKwargs");

	if (!map || map->kind != YAML_KIND_MAP || !path)
		return;                         /* none, or complained of already */
	if (set->engine != 0 && set->engine != MANIFEST_ENGINE_VLLM)
		MANIFEST_COMPLAIN(l, doc->file, map,
				  "spec.tokenizer is not there yet for the engine \"%s\", which "
				  "prepares prompts in its own way",
				  manifest_engine_name(set->engine));
	if (kwargs && kwargs->kind == YAML_KIND_MAP)
		kwargs_load(l, doc, kwargs, to);
	to->line = path->line;
	to->column = path->column;
	to->file = strdup(doc->file);
	l->oom = l->oom || !to->file;
}
