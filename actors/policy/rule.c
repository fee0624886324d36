/* actors/policy/rule.c -- what the operator's rules make of a question: rules.h, from policy to
 * policy. */
#include <string.h>
#include <xxhash.h>

#include "actors/common/decide/expression.h"
#include "actors/policy/question.h"
#include "proto/json.h"

/* ---- what rules may ask of the request ---- */

/* Elements of an array; unknown where it is another thing. */
static int64_t
elements(struct slice text)
{
	struct json_cursor at;
	int64_t n = 0;

	json_begin(&at, text.p, text.len);
	if (json_peek(&at) != JSON_IS_ARRAY || !json_enter_array(&at))
		return FACTS_INT_UNKNOWN;
	while (json_next_element(&at)) {
		if (!json_skip(&at))
			return FACTS_INT_UNKNOWN;
		n++;
	}
	return n;
}

/* Of the responses API: input items, or one text. */
static int64_t
messages_of(const struct question *q)
{
	struct slice text = openai_field(&q->body, q->text, OPENAI_FIELD_MESSAGES);
	struct json_cursor at;

	if (!text.p && q->slot->route == OPENAI_RESPONSES)
		text = openai_field(&q->body, q->text, OPENAI_FIELD_INPUT);
	if (!text.p)
		return FACTS_INT_UNKNOWN;
	json_begin(&at, text.p, text.len);
	return json_peek(&at) == JSON_IS_STRING ? 1 : elements(text);
}

static int64_t
tools_of(const struct question *q)
{
	struct slice text = openai_field(&q->body, q->text, OPENAI_FIELD_TOOLS);

	return text.p ? elements(text) : 0;
}

void
rule_find(struct evaluate *e, struct question *q)
{
	struct facts_request *f = &q->facts;
	const struct http1_request *head = NULL;
	bool head_read = e->reads & (1ull << FACT_REQUEST_HEADERS | 1ull << FACT_REQUEST_PATH);

	f->model = q->body.n_model ? (struct slice){q->body.model, q->body.n_model} :
				     slice_str(q->model->name);
	if (q->found.whole > 0 || q->found.prompt.tokens > 0)
		f->prompt_tokens = q->found.whole ? q->found.whole : q->found.prompt.tokens;
	f->max_tokens = q->body.max_tokens == OPENAI_UNKNOWN ? FACTS_INT_UNKNOWN :
							       q->body.max_tokens;
	f->priority = who_priority(e->view->manifest, q->tenant, q->body.priority);
	f->tenant = slice_str(q->tenant == MANIFEST_NONE ? "" :
			      e->view->manifest->tenants[q->tenant].name);
	f->stream = q->body.stream;
	if (q->text && (e->reads & 1ull << FACT_REQUEST_MESSAGES))
		f->messages = messages_of(q);
	if (q->text && (e->reads & 1ull << FACT_REQUEST_TOOLS))
		f->tools = tools_of(q);
	if (head_read || e->sessions)
		head = question_head(e, q);
	if (head) {
		f->head = &head->head;
		f->path = head->path;
	}
}

/* ---- what is kept together ---- */

static uint64_t
hash_of(struct slice text)
{
	uint64_t h = text.len > 0 ? XXH3_64bits(text.p, text.len) : 0;

	return text.len > 0 && h == 0 ? 1 : h;
}

static struct rules_keys
keys_of(const struct question *q, const struct manifest_policy *policy)
{
	struct rules_keys keys = {
		.user = hash_of(q->body.user.raw),
		.tenant = hash_of(q->facts.tenant),
	};
	struct slice value;

	if (policy->affinity != MANIFEST_AFFINITY_HEADER)
		keys.session = keys.user;
	else if (facts_header(q->facts.head, policy->affinity_header, &value) == 1)
		keys.session = hash_of(value);
	return keys;
}

/* ---- no ---- */

static void
refuse_nobody(struct evaluate *e, const struct question *q, struct msg_answer *answer)
{
	question_refuse(e, answer, 503, "no_candidate", "no-candidate",
			"no worker of `%s` can take requests now", q->model->name);
}

static void
refuse_by_rule(struct evaluate *e, const struct question *q, struct msg_answer *answer)
{
	const struct rules_input *in = ruling_input(e->ruling);
	const char *rule = rules_name(in, q->ruled.policy, q->ruled.rule);
	const char *policy = in->manifest->policies[q->chain[q->ruled.policy]].name;

	count_add(e->process, COUNTER_rejections_by_rule, 1);
	if (q->ruled.lasting)
		question_refuse(e, answer, 403, "refused_by_rule", rule,
				"rule `%s` of policy `%s` leaves nobody who may answer this "
				"request", rule, policy);
	else
		question_refuse(e, answer, 503, "refused_by_rule", rule,
				"rule `%s` of policy `%s` leaves nobody who can answer this "
				"request now%s", rule, policy,
				q->waited ? "; it has waited for as long as it may" : "");
}

/* ---- from policy to policy ---- */

/* The last stages of what engines' events were for: a fleet with traffic and no matches is the sign
 * that two sides name blocks differently. */
static void
looked_up(struct evaluate *e, unsigned matched)
{
	bool any = false;

	for (unsigned i = 0; i < gather_n_chains(e->gather); i++)
		any |= gather_chain(e->gather, i)->n > 0;
	count_add(e->process, any ? COUNTER_prefix_lookups : COUNTER_prefix_unknown, 1);
	count_add(e->process, COUNTER_prefix_matched, matched > 0);
}

static void
look(struct evaluate *e, struct question *q, const struct manifest_route *route, mono_ns now)
{
	uint16_t failed = q->slot->attempt > 0 ? q->slot->row : ROW_NONE;
	unsigned matched;

	/* without memory there is no prefix; the rest stands */
	gather_hash(e->gather, q->model, route, &q->found.prompt);
	q->stage_ns[STAGE_HASHED] = clock_mono();
	matched = gather_match(e->gather);
	if (!q->again && q->n_chain == 1)
		looked_up(e, matched);
	q->stage_ns[STAGE_MATCHED] = clock_mono();
	gather_candidates(e->gather, failed, now);
	q->stage_ns[STAGE_PREDICTED] = clock_mono();
}

void
rule_choose(struct evaluate *e, struct question *q, mono_ns now, struct msg_answer *answer)
{
	const struct manifest *m = e->view->manifest;
	const struct manifest_route *route = manifest_route(m, q->model, q->tenant);
	struct ruling_question about = {
		.request = &q->facts, .chain = q->chain, .seed = q->seed,
		.pinned = q->pinned, .pin = q->pin, .waited = q->waited, .now = now,
	};

	if (!route) {
		question_refuse(e, answer, 403, "no_policy", "policy",
				"no policy takes your requests for `%s`", q->model->name);
		return;
	}
	for (; route; route = manifest_route_of(q->model, q->ruled.fallback)) {
		q->chain[q->n_chain++] = route->policy;
		look(e, q, route, now);
		about.n_chain = q->n_chain;
		about.keys = keys_of(q, &m->policies[route->policy]);
		ruling_apply(e->ruling, e->gather, &about, &q->ruled);
		if (q->ruled.verdict != RULES_FALLBACK)
			break;
		count_add(e->process, COUNTER_fallbacks, 1);
	}
	if (q->ruled.verdict == RULES_CHOOSE)
		q->n_ranked = ruling_rank(e->ruling, q->order);
	else if (q->ruled.verdict == RULES_REJECT && q->ruled.rule != RULES_NOBODY)
		refuse_by_rule(e, q, answer);
	else if (q->ruled.verdict != RULES_WAIT)
		refuse_nobody(e, q, answer);
	q->stage_ns[STAGE_CHOSEN] = clock_mono();
}

uint64_t
rule_kind(const struct evaluate *e, const struct question *q)
{
	const struct {
		uint64_t model, tags, tags_unknown, tenant, policy, rule;
	} kind = {
		.model = (uint64_t)(q->model - e->view->manifest->models),
		.tags = q->facts.tags,
		.tags_unknown = q->facts.tags_unknown,
		.tenant = q->tenant,
		.policy = q->chain[q->ruled.policy],
		.rule = q->ruled.rule,
	};

	return XXH3_64bits(&kind, sizeof kind);
}
