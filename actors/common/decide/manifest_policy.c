/* manifest_policy.c -- InferencePolicy: its own fields, its candidates and its rules. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

static const char *const actions[] = {"keep", "remove", "keepFirst", "prefer"};
#define ACTIONS (sizeof(actions) / sizeof(actions[0]))

/* The rule's one action, as an index into actions; ACTIONS: none, or a complaint. */
static size_t
rule_action(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *item)
{
	size_t has = ACTIONS;

	for (size_t i = 0; i < ACTIONS; i++) {
		const struct yaml_node *node = yaml_map_get(item, actions[i]);

		if (!node)
			continue;
		if (has == ACTIONS) {
			has = i;
			continue;
		}
		MANIFEST_COMPLAIN(l, doc->file, node,
				  "a rule does one thing: this one has \"%s\" and \"%s\"; make it "
				  "two rules", actions[has], actions[i]);
		return ACTIONS;
	}
	if (has == ACTIONS)
		MANIFEST_COMPLAIN(l, doc->file, item,
				  "spec.rules[] needs one of keep, remove, keepFirst and prefer");
	return has;
}

static void
keep_first_load(struct manifest_loader *l, const struct manifest_doc *doc,
		const struct yaml_node *list, struct manifest_rule *rule)
{
	static const struct manifest_field as = {
		.type = MANIFEST_T_EXPRESSION, .size = sizeof(struct manifest_expression)};
	char why[256];

	rule->keep_first = calloc(list->n_children + 1, sizeof(*rule->keep_first));
	if (!rule->keep_first) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		if (manifest_value_read(&as, item, &rule->keep_first[rule->n_keep_first], why,
					sizeof(why)))
			rule->n_keep_first++;
		else
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "an item of spec.rules[].keepFirst %s", why);
	}
}

/* What belongs together within one rule. */
static void
rule_check(struct manifest_loader *l, const struct manifest_doc *doc,
	   const struct yaml_node *item, const struct manifest_rule *rule)
{
	const struct yaml_node *on_empty = yaml_map_get(item, "onEmpty");
	const struct yaml_node *up_to = yaml_map_get(item, "upTo");
	size_t action = rule_action(l, doc, item);

	if (action < ACTIONS && action > 1 && on_empty)
		MANIFEST_COMPLAIN(l, doc->file, on_empty,
				  "spec.rules[].onEmpty is for keep and remove: %s never "
				  "leaves none",
				  actions[action]);
	if (up_to && rule->on_empty != MANIFEST_RULE_WAIT)
		MANIFEST_COMPLAIN(l, doc->file, up_to,
				  "spec.rules[].upTo is for onEmpty: Wait; there is none");
}

static void
rules_load(struct manifest_loader *l, const struct manifest_doc *doc,
	   const struct yaml_node *list, struct manifest_policy *policy)
{
	policy->rules = calloc(list->n_children + 1, sizeof(*policy->rules));
	if (!policy->rules) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_rule *rule = &policy->rules[policy->n_rules++];
		const struct yaml_node *first;

		rule->line = item->line;
		rule->column = item->column;
		manifest_defaults("InferencePolicy", "spec.rules[]", rule);
		if (!manifest_fields_load(l, doc->file, "InferencePolicy", "spec.rules[]", item,
					  rule))
			continue;
		first = manifest_list(item, "keepFirst");
		if (first)
			keep_first_load(l, doc, first, rule);
		rule_check(l, doc, item, rule);
		for (uint32_t i = 0; i + 1 < policy->n_rules; i++)
			if (strcmp(policy->rules[i].name, rule->name) == 0)
				MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, "name"),
						  "the rule \"%s\" is given twice: first at "
						  "line %u, "
						  "column %u", rule->name, policy->rules[i].line,
						  policy->rules[i].column);
	}
}

static void
candidates_check(struct manifest_loader *l, const struct manifest_doc *doc,
		 const struct yaml_node *list)
{
	const struct yaml_node *with = NULL, *without = NULL, *weight;
	bool some = false;

	if (!manifest_items_ok(l, doc, "spec.candidates[]", list))
		return;
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		const struct yaml_node *pool = yaml_map_get(item, "pool");
		const struct yaml_node *provider = yaml_map_get(item, "provider");
		const struct yaml_node *model = yaml_map_get(item, "model");

		if (!pool == !provider)
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.candidates[] needs either \"pool\" or "
					  "\"provider\"");
		else if (model && !provider)
			MANIFEST_COMPLAIN(l, doc->file, model,
					  "spec.candidates[].model is for a provider: what a "
					  "pool's "
					  "workers are asked for is the client's model, or "
					  "what that "
					  "is aliasOf");
		weight = yaml_map_get(item, "weight");
		some = some || (weight && strcmp(weight->text, "0") != 0);
		if (weight)
			with = item;
		else if (!without)
			without = item;
	}
	if (with && without)
		MANIFEST_COMPLAIN(l, doc->file, without,
				  "spec.candidates[] needs a \"weight\" too: others have one");
	else if (with && !some)
		MANIFEST_COMPLAIN(l, doc->file, list, "spec.candidates: all weights are 0");
	else if (!with && yaml_map_get(doc->spec, "split"))
		MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(doc->spec, "split"),
				  "spec.split is for candidates with a \"weight\"; there is none");
}

/* "minimize" is one of its words, which the table stores, or an expression. */
static void
objective_load(struct manifest_loader *l, const struct manifest_doc *doc,
	       struct manifest_policy *policy)
{
	static const struct manifest_field as = {
		.type = MANIFEST_T_EXPRESSION, .size = sizeof(struct manifest_expression)};
	const struct yaml_node *node = yaml_map_get(doc->spec, "minimize");
	char why[256];

	if (!node || node->kind != YAML_KIND_SCALAR || manifest_is_word(node->text))
		return;
	policy->minimize = MANIFEST_MINIMIZE_EXPRESSION;
	if (!manifest_value_read(&as, node, &policy->objective, why, sizeof(why)))
		MANIFEST_COMPLAIN(l, doc->file, node, "spec.minimize %s", why);
}

static void
on_empty_check(struct manifest_loader *l, const struct manifest_doc *doc,
	       const struct manifest_policy *policy)
{
	const struct yaml_node *map = yaml_map_get(doc->spec, "onEmpty");
	const struct yaml_node *up_to = yaml_map_get(map, "upTo");
	const struct yaml_node *then = yaml_map_get(map, "then");
	const struct yaml_node *name = yaml_map_get(map, "policy");
	bool waits = policy->on_empty == MANIFEST_ON_EMPTY_WAIT;
	bool falls = policy->on_empty == MANIFEST_ON_EMPTY_FALLBACK ||
		     (waits && policy->then == MANIFEST_ON_EMPTY_FALLBACK);

	if (up_to && !waits)
		MANIFEST_COMPLAIN(l, doc->file, up_to, "spec.onEmpty.upTo is for action: Wait");
	if (then && !waits)
		MANIFEST_COMPLAIN(l, doc->file, then, "spec.onEmpty.then is for action: Wait");
	if (name && !falls)
		MANIFEST_COMPLAIN(l, doc->file, name,
				  "spec.onEmpty.policy is for action: Fallback, or then: Fallback");
	if (falls && !name)
		MANIFEST_COMPLAIN(l, doc->file, map,
				  "spec.onEmpty needs \"policy\": to which one to fall back");
}

static void
affinity_check(struct manifest_loader *l, const struct manifest_doc *doc,
	       const struct manifest_policy *policy)
{
	const struct yaml_node *map = yaml_map_get(doc->spec, "affinity");
	const struct yaml_node *header = yaml_map_get(map, "header");
	const struct yaml_node *split = yaml_map_get(doc->spec, "split");

	if (header && policy->affinity != MANIFEST_AFFINITY_HEADER)
		MANIFEST_COMPLAIN(l, doc->file, header, "spec.affinity.header is for by: Header");
	if (!header && policy->affinity == MANIFEST_AFFINITY_HEADER)
		MANIFEST_COMPLAIN(l, doc->file, map,
				  "spec.affinity needs \"header\": the name of the field");
	if (split && policy->split == MANIFEST_SPLIT_SESSION &&
	    policy->affinity == MANIFEST_AFFINITY_NONE)
		MANIFEST_COMPLAIN(l, doc->file, split,
				  "spec.split: Session is by spec.affinity's key; there is none");
}

void
manifest_policy_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_policy *policy = &l->m->policies[doc->index];
	const struct yaml_node *match = yaml_map_get(doc->spec, "match"), *list;

	strcpy(policy->name, doc->name);
	policy->fallback = MANIFEST_NONE;
	policy->file = manifest_strdup(l, doc->file);
	manifest_defaults("InferencePolicy", "", policy);
	if (!manifest_fields_load(l, doc->file, "InferencePolicy", "spec", doc->spec, policy))
		l->bad = true;
	list = manifest_list(match, "models");
	if (list)
		manifest_words_ok(l, doc->file, "spec.match.models", list);
	list = manifest_list(match, "tenants");
	if (list)
		manifest_words_ok(l, doc->file, "spec.match.tenants", list);
	list = manifest_list(doc->spec, "candidates");
	if (list)
		candidates_check(l, doc, list);
	list = manifest_list(doc->spec, "rules");
	if (list)
		rules_load(l, doc, list, policy);
	objective_load(l, doc, policy);
	on_empty_check(l, doc, policy);
	affinity_check(l, doc, policy);
}
