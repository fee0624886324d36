/* manifest_tag.c -- RequestTag: its sources, each by itself. */
#include "actors/common/decide/manifest_private.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Does it compile as the tagger will compile it? */
static void
regex_check(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *node)
{
	struct yaml_node at = {.line = node->line, .column = node->column};
	PCRE2_UCHAR why[160];
	PCRE2_SIZE offset = 0;
	int error = 0;
	pcre2_code *code = pcre2_compile((PCRE2_SPTR)node->text, node->len,
					 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
					 &offset, NULL);

	if (code) {
		pcre2_code_free(code);
		return;
	}
	if (error == PCRE2_ERROR_HEAP_FAILED) {
		l->oom = true;
		return;
	}
	pcre2_get_error_message(error, why, sizeof(why));
	if (offset < node->len)
		yaml_place(doc->from, node, offset, &at.line, &at.column);
	MANIFEST_COMPLAIN(l, doc->file, &at, "spec.patterns[].regex does not compile: %s",
			  (const char *)why);
}

static void
pattern_load(struct manifest_loader *l, const struct manifest_doc *doc,
	     const struct yaml_node *item, struct manifest_pattern *pattern)
{
	const struct yaml_node *type = yaml_map_get(item, "type");
	const struct yaml_node *regex = yaml_map_get(item, "regex");
	const struct yaml_node *at = regex ? regex : item;

	pattern->line = at->line;
	pattern->column = at->column;
	pattern->validator = MANIFEST_VALIDATOR_REGEX;
	manifest_defaults("RequestTag", "spec.patterns[]", pattern);
	if (!manifest_fields_load(l, doc->file, "RequestTag", "spec.patterns[]", item, pattern))
		return;
	if (!regex && pattern->validator == MANIFEST_VALIDATOR_REGEX)
		MANIFEST_COMPLAIN(l, doc->file, type ? type : item,
				  type ? "spec.patterns[] needs \"regex\" for type: regex"
				       : "spec.patterns[] needs \"type\" or \"regex\"");
	else if (regex && pattern->validator != MANIFEST_VALIDATOR_REGEX)
		MANIFEST_COMPLAIN(l, doc->file, regex,
				  "spec.patterns[].regex is for type: regex: make it two patterns");
	if (regex)
		regex_check(l, doc, regex);
	if (regex)
		pattern->regex = manifest_strdup(l, regex->text);
}

static void
patterns_load(struct manifest_loader *l, const struct manifest_doc *doc,
	      const struct yaml_node *list, struct manifest_tag *tag)
{
	tag->patterns = calloc(list->n_children + 1, sizeof(*tag->patterns));
	if (!tag->patterns) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next)
		pattern_load(l, doc, item, &tag->patterns[tag->n_patterns++]);
}

static void
classifier_check(struct manifest_loader *l, const struct manifest_doc *doc,
		 const struct manifest_tag *tag)
{
	const struct yaml_node *map = yaml_map_get(doc->spec, "classifier");
	const struct yaml_node *url = yaml_map_get(map, "url");

	if (!map)
		return;
	if (!url == !yaml_map_get(map, "pool"))
		MANIFEST_COMPLAIN(l, doc->file, map,
				  "spec.classifier needs either \"url\" or \"pool\"");
	else if (url && strncmp(tag->classifier.url, "http://", 7) != 0 &&
		 strncmp(tag->classifier.url, "https://", 8) != 0)
		MANIFEST_COMPLAIN(l, doc->file, url,
				  "spec.classifier.url must be http://host:port/path or "
				  "https://host:port/path");
}

void
manifest_tag_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_tag *tag = &l->m->tags[doc->index];
	const struct yaml_node *list;

	strcpy(tag->name, doc->name);
	if (doc->index >= MANIFEST_TAGS_MAX)
		MANIFEST_COMPLAIN(l, doc->file, doc->name_node, "more than %u RequestTags",
				  MANIFEST_TAGS_MAX);
	tag->file = manifest_strdup(l, doc->file);
	tag->classifier.pool = MANIFEST_NONE;
	manifest_defaults("RequestTag", "", tag);
	manifest_fields_load(l, doc->file, "RequestTag", "spec", doc->spec, tag);
	list = manifest_list(doc->spec, "patterns");
	if (list)
		patterns_load(l, doc, list, tag);
	classifier_check(l, doc, tag);
	if (!list && !yaml_map_get(doc->spec, "when") && !yaml_map_get(doc->spec, "header") &&
	    !yaml_map_get(doc->spec, "classifier"))
		MANIFEST_COMPLAIN(l, doc->file, doc->spec,
				  "spec needs one of patterns, when, header and classifier");
}

void
manifest_tag_resolve(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_tag *tag = &l->m->tags[doc->index];
	const struct yaml_node *map = yaml_map_get(doc->spec, "classifier");
	const struct yaml_node *name = yaml_map_get(map, "pool");
	const struct yaml_node *header = yaml_map_get(doc->spec, "header");
	const struct manifest_doc *pool =
		name ? manifest_doc_named(l, doc->file, KIND_POOL, name) : NULL;

	if (pool)
		tag->classifier.pool = pool->index;
	if (header && l->m->gateway.n_trusted == 0 && !l->m->gateway.trusted_unix)
		MANIFEST_COMPLAIN(l, doc->file, header,
				  "spec.header is believed from trusted peers only: the "
				  "GatewayBackend's client.trustedPeers has none");
}
