/* manifest_free.c -- the end of a manifest: everything it owns, also of one that is half made. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>

#include "actors/common/decide/expression.h"

static void
model_free(struct manifest_model *model)
{
	for (uint32_t i = 0; i < model->n_routes; i++) {
		free(model->routes[i].members);
		free(model->routes[i].candidate);
	}
	free(model->routes);
	free(model->members);
	free(model->tenants);
}

static void
expression_end(struct manifest_expression *e)
{
	expression_free(&e->program);
	free(e->text);
}

static void
policy_free(struct manifest_policy *policy)
{
	for (uint32_t i = 0; i < policy->n_rules; i++) {
		struct manifest_rule *rule = &policy->rules[i];

		expression_end(&rule->when);
		expression_end(&rule->keep);
		expression_end(&rule->remove);
		expression_end(&rule->prefer);
		for (uint32_t k = 0; k < rule->n_keep_first; k++)
			expression_end(&rule->keep_first[k]);
		free(rule->keep_first);
	}
	expression_end(&policy->objective);
	free(policy->rules);
	free(policy->candidates);
	free(policy->tenants);
	free(policy->file);
}

static void
tag_free(struct manifest_tag *tag)
{
	for (uint32_t i = 0; i < tag->n_patterns; i++)
		free(tag->patterns[i].regex);
	expression_end(&tag->when);
	free(tag->patterns);
	free(tag->file);
}

void
manifest_free(struct manifest **mp)
{
	struct manifest *m = *mp;

	if (!m)
		return;
	*mp = NULL;
	for (uint32_t i = 0; i < m->n_models; i++)
		model_free(&m->models[i]);
	for (uint32_t i = 0; i < m->n_sets && m->sets; i++) {
		free(m->sets[i].pools);
		free(m->sets[i].tokenizer.kwargs);
		free(m->sets[i].tokenizer.file);
		free(m->sets[i].adapters);
		manifest_labels_free(m->sets[i].labels, m->sets[i].n_labels);
	}
	for (uint32_t i = 0; i < m->n_pools && m->pools; i++)
		free(m->pools[i].sets);
	for (uint32_t i = 0; i < m->n_policies && m->policies; i++)
		policy_free(&m->policies[i]);
	for (uint32_t i = 0; i < m->n_providers && m->providers; i++) {
		free(m->providers[i].models);
		manifest_labels_free(m->providers[i].labels, m->providers[i].n_labels);
	}
	for (uint32_t i = 0; i < m->n_tenants && m->tenants; i++)
		free(m->tenants[i].keys);
	for (uint32_t i = 0; i < m->n_tags && m->tags; i++)
		tag_free(&m->tags[i]);
	free(m->gateway.certificates);
	free(m->gateway.hosts);
	free(m->gateway.issuers);
	free(m->models);
	free(m->sets);
	free(m->members);
	free(m->pools);
	free(m->policies);
	free(m->providers);
	free(m->tenants);
	free(m->tags);
	free(m->snapshot);
	yaml_errors_free(&m->warnings);
	free(m);
}
