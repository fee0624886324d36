/* manifest_expressions.c -- expressions of policies and tags, compiled once all names are known,
 * and what their constants tell: rules that can never fire, rules that are never reached.
 */
#include "actors/common/decide/manifest_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/expression.h"

/* All names that expressions may say, borrowed from the documents. */
struct names {
	const char **all; /* owned; one array, parts of which `of` points to */
	struct expression_names of;
};

static const char **
doc_names(const struct manifest_loader *l, enum manifest_kind kind, const char **to,
	  const char *const **ret, size_t *ret_n)
{
	*ret = to;
	for (uint32_t i = 0; i < l->n_docs; i++)
		if (l->docs[i].kind == kind)
			*to++ = l->docs[i].name;
	*ret_n = (size_t)(to - *ret);
	return to;
}

/* What a request's model can be: the gateway's names, and adapters that it does not name. */
static const char **
model_names(const struct manifest_loader *l, const char **to, const char *const **ret,
	    size_t *ret_n)
{
	*ret = to;
	for (uint32_t i = 0; i < l->n_docs; i++) {
		const struct yaml_node *list = l->docs[i].kind == KIND_GATEWAY
						       ? manifest_list(l->docs[i].spec, "models")
						       : NULL;

		for (const struct yaml_node *m = list ? list->child : NULL; m; m = m->next) {
			const struct yaml_node *name = yaml_map_get(m, "name");

			if (name && name->kind == YAML_KIND_SCALAR)
				*to++ = name->text;
		}
	}
	for (uint32_t s = 0; s < l->m->n_sets; s++)
		for (uint32_t a = 0; a < l->m->sets[s].n_adapters; a++)
			*to++ = l->m->sets[s].adapters[a];
	*ret_n = (size_t)(to - *ret);
	return to;
}

static size_t
names_count(const struct manifest_loader *l)
{
	size_t n = l->n_docs;

	for (uint32_t i = 0; i < l->n_docs; i++) {
		const struct yaml_node *list = manifest_list(l->docs[i].spec, "models");

		n += list ? list->n_children : 0;
	}
	for (uint32_t s = 0; s < l->m->n_sets; s++)
		n += l->m->sets[s].n_adapters;
	return n;
}

static bool
names_make(struct manifest_loader *l, struct names *names)
{
	struct expression_names *of = &names->of;
	const char **to;

	names->all = calloc(names_count(l) + 1, sizeof(*names->all));
	if (!names->all) {
		l->oom = true;
		return false;
	}
	to = doc_names(l, KIND_POOL, names->all, &of->pools, &of->n_pools);
	to = doc_names(l, KIND_TAG, to, &of->tags, &of->n_tags);
	if (of->n_tags > MANIFEST_TAGS_MAX)
		of->n_tags = MANIFEST_TAGS_MAX; /* complained of already */
	to = doc_names(l, KIND_PROVIDER, to, &of->providers, &of->n_providers);
	to = doc_names(l, KIND_TENANT, to, &of->tenants, &of->n_tenants);
	model_names(l, to, &of->models, &of->n_models);
	return true;
}

static void
compile(struct manifest_loader *l, const struct manifest_doc *doc, const struct names *names,
	enum expression_place place, const char *path, const struct yaml_node *node,
	struct manifest_expression *e)
{
	struct expression_error error;
	struct yaml_node at = {.line = 0};
	char say[400];
	int r;

	if (!e->text || l->oom)
		return;
	r = expression_compile((struct slice){e->text, strlen(e->text)}, place, &names->of,
			       &e->program, &error);
	if (r == -ENOMEM) {
		l->oom = true;
	} else if (r < 0) {
		yaml_place(doc->from, node, error.offset, &at.line, &at.column);
		expression_error_say(&error, say, sizeof(say));
		MANIFEST_COMPLAIN(l, doc->file, &at, "%s %s", path, say);
		yaml_errors_detail(l->errs, error.found, error.expected,
				   error.nearest[0] ? error.nearest : NULL);
	}
}

/* ---- what can be told of a rule without any request ---- */

static enum expression_truth
constant(const struct manifest_expression *e)
{
	return e->program ? expression_constant(e->program) : EXPRESSION_UNKNOWN;
}

/* Does it leave no candidate to any request? */
static bool
rule_closes(const struct manifest_rule *rule)
{
	if (rule->on_empty == MANIFEST_RULE_SKIP ||
	    (rule->when.text && constant(&rule->when) != EXPRESSION_YES))
		return false;
	return constant(&rule->keep) == EXPRESSION_NO || constant(&rule->remove) == EXPRESSION_YES;
}

static void
rule_judge(struct manifest_loader *l, const struct manifest_doc *doc,
	   const struct yaml_node *item, const struct manifest_rule *rule)
{
	const char *what = rule->keep.text ? "keep" : "remove";
	bool skip = rule->on_empty == MANIFEST_RULE_SKIP;
	enum expression_truth none = rule->keep.text ? EXPRESSION_YES : EXPRESSION_NO;
	enum expression_truth is = constant(rule->keep.text ? &rule->keep : &rule->remove);

	if (constant(&rule->when) == EXPRESSION_NO)
		MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, "when"),
				  "the rule \"%s\" can never fire: its when is always false",
				  rule->name);
	else if (is == none)
		MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, what),
				  "the rule \"%s\" removes nothing: its %s is always %s",
				  rule->name, what, rule->keep.text ? "true" : "false");
	else if (is != EXPRESSION_UNKNOWN && skip)
		MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, what),
				  "the rule \"%s\" is always skipped: its %s is always %s, which "
				  "leaves none", rule->name, what,
				  rule->keep.text ? "false" : "true");
}

static void
rules_judge(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct manifest_policy *policy, const struct yaml_node *list)
{
	const struct manifest_rule *closes = NULL;
	const struct yaml_node *item = list->child;

	for (uint32_t i = 0; i < policy->n_rules; i++, item = item->next) {
		const struct manifest_rule *rule = &policy->rules[i];
		const struct yaml_node *name = yaml_map_get(item, "name");

		if (closes && name)
			MANIFEST_COMPLAIN(l, doc->file, name,
					  "the rule \"%s\" is never reached: \"%s\" removes every "
					  "candidate of every request", rule->name, closes->name);
		else
			rule_judge(l, doc, item, rule);
		if (!closes && rule_closes(rule))
			closes = rule;
	}
}

/* ---- documents ---- */

static void
rule_compile(struct manifest_loader *l, const struct manifest_doc *doc, const struct names *names,
	     const struct yaml_node *item, struct manifest_rule *rule)
{
	const struct yaml_node *list = manifest_list(item, "keepFirst");
	const struct yaml_node *first = list ? list->child : NULL;

	compile(l, doc, names, EXPRESSION_WHEN, "spec.rules[].when", yaml_map_get(item, "when"),
		&rule->when);
	compile(l, doc, names, EXPRESSION_CANDIDATE, "spec.rules[].keep",
		yaml_map_get(item, "keep"), &rule->keep);
	compile(l, doc, names, EXPRESSION_CANDIDATE, "spec.rules[].remove",
		yaml_map_get(item, "remove"), &rule->remove);
	compile(l, doc, names, EXPRESSION_PREFER, "spec.rules[].prefer",
		yaml_map_get(item, "prefer"), &rule->prefer);
	if (rule->n_keep_first == (list ? list->n_children : 0)) /* each of them is there */
		for (uint32_t i = 0; i < rule->n_keep_first; i++, first = first->next)
			compile(l, doc, names, EXPRESSION_CANDIDATE, "spec.rules[].keepFirst",
				first, &rule->keep_first[i]);
}

static void
policy_compile(struct manifest_loader *l, const struct manifest_doc *doc,
	       const struct names *names)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *list = manifest_list(doc->spec, "rules");
	const struct yaml_node *item = list ? list->child : NULL;

	for (uint32_t i = 0; i < policy->n_rules; i++, item = item->next)
		rule_compile(l, doc, names, item, &policy->rules[i]);
	compile(l, doc, names, EXPRESSION_OBJECTIVE, "spec.minimize",
		yaml_map_get(doc->spec, "minimize"), &policy->objective);
	if (policy->n_rules > 0 && !l->oom)
		rules_judge(l, doc, policy, list);
}

void
manifest_expressions_compile(struct manifest_loader *l)
{
	struct names names = {.all = NULL};

	if (!names_make(l, &names))
		return;
	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++) {
		const struct manifest_doc *doc = &l->docs[i];

		if (doc->kind == KIND_POLICY)
			policy_compile(l, doc, &names);
		else if (doc->kind == KIND_TAG)
			compile(l, doc, &names, EXPRESSION_TAG, "spec.when",
				yaml_map_get(doc->spec, "when"), &l->m->tags[doc->index].when);
	}
	free(names.all);
}
