/* actors/policy/record.c -- fills and appends decision records; layout in shm/journal.h. */
#include "actors/policy/record.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_MAX                                                                                   \
	(RECORD_CANDIDATES * sizeof(struct journal_candidate) +                                    \
	 RULES_NOTES * sizeof(struct journal_rule))

_Static_assert(sizeof(struct journal_record) + sizeof(struct journal_decision) + TAIL_MAX <=
		       JOURNAL_RECORD_MAX,
	       "a full decision record fits");
_Static_assert(JOURNAL_FROM == RULES_CHAIN - 1, "every policy of a chain has a place");

struct record {
	_Alignas(8) char tail[TAIL_MAX];        /* candidates, rules */
};

int
record_new(struct record **ret)
{
	*ret = calloc(1, sizeof **ret);
	return *ret ? 0 : -ENOMEM;
}

void
record_free(struct record **ret)
{
	free(*ret);
	*ret = NULL;
}

static void
cut(char *to, size_t cap, const char *from, size_t len)
{
	if (len >= cap)
		len = cap - 1;
	memcpy(to, from, len);
	memset(to + len, 0, cap - len);
}

static uint16_t
narrowed(uint32_t n)
{
	return n > UINT16_MAX ? UINT16_MAX : (uint16_t)n;
}

static void
fill(struct journal_candidate *to, const struct record_input *input, uint32_t i)
{
	const struct gather_candidate *c = gather_at(input->gather, i);
	const struct choose_candidate *choose = &input->rules->choose.candidate[i];
	double us = c->out.ttft_s * 1e6;

	*to = (struct journal_candidate){
		.row = c->row,
		.removed_by = choose->removed_by,
		.row_gen = c->row_gen,
		.cached = c->exact,
		.speculative = c->cached > c->exact ? c->cached - c->exact : 0,
		.pending = c->in.pending,
		.context = c->in.context,
		.prefilling = narrowed(c->in.prefilling),
		.decoding = narrowed(c->in.decoding),
		.waiting = c->waiting,
		.running = c->running,
		.kv_usage = c->kv_usage,
		.age_ms = c->age_ms,
		.ttft_us = us <= 0 ? 0 : us >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)us,
		.wait_s = (float)c->out.wait_s,
		.load_s = (float)c->out.load_s,
		.handicap = c->handicap,
		.cost = (float)input->rules->facts[i].cost,
		.score = input->n_ranked > 0 && choose->removed_by == 0 ? (float)choose->score :
									  NAN,
		.entry = (uint16_t)input->rules->entry[i],
		.tier = choose->tier,
	};
	memcpy(to->coef, c->in.coef, sizeof to->coef);
}

static bool
ranked(const struct record_input *input, uint32_t i)
{
	for (unsigned k = 0; k < input->n_ranked; k++)
		if (input->order[k] == i)
			return true;
	return false;
}

static unsigned
fill_candidates(struct journal_candidate *to, const struct record_input *input)
{
	unsigned n = 0;

	if (!input->gather)
		return 0;
	for (unsigned k = 0; k < input->n_ranked; k++)
		fill(&to[n++], input, input->order[k]);
	for (uint32_t i = 0; i < gather_n(input->gather) && n < RECORD_CANDIDATES; i++)
		if (!ranked(input, i))
			fill(&to[n++], input, i);
	return n;
}

static unsigned
fill_rules(struct journal_rule *to, const struct record_input *input)
{
	if (!input->rules)
		return 0;
	for (unsigned i = 0; i < input->ruled->n_notes; i++) {
		const struct rules_note *note = &input->ruled->note[i];
		const char *name = rules_name(input->rules, note->policy, note->rule);

		to[i] = (struct journal_rule){
			.policy = note->policy,
			.rule = note->rule,
			.outcome = note->outcome,
			.removed = note->removed,
		};
		cut(to[i].name, sizeof to[i].name, name, strlen(name));
	}
	return input->ruled->n_notes;
}

static void
name_tags(struct journal_decision *d, const struct manifest *m)
{
	size_t at = 0;

	for (uint32_t i = 0; i < m->n_tags; i++) {
		bool unknown = d->tags_unknown >> i & 1;
		size_t len = strlen(m->tags[i].name);

		if (!unknown && !(d->tags >> i & 1))
			continue;
		if (at + len + 3 > sizeof d->tag_names)
			return;
		if (at > 0)
			d->tag_names[at++] = ',';
		memcpy(d->tag_names + at, m->tags[i].name, len);
		at += len;
		if (unknown)
			d->tag_names[at++] = '?';
	}
}

/* What rules decided by, and from which policies it came to this one. */
static void
fill_ruled(struct journal_decision *d, const struct record_input *input)
{
	const struct rules_input *rules = input->rules;
	const struct manifest *m = rules->manifest;
	uint64_t known = m->n_tags < 64 ? (1ull << m->n_tags) - 1 : UINT64_MAX;

	d->tags = rules->request->tags & known;
	d->tags_unknown = rules->request->tags_unknown & known;
	d->lasting = input->ruled->lasting;
	name_tags(d, m);
	d->n_from = (uint8_t)(rules->n_chain - 1);
	for (uint32_t i = 0; i + 1 < rules->n_chain; i++) {
		const char *name = m->policies[rules->chain[i]].name;

		cut(d->from[i], sizeof d->from[i], name, strlen(name));
	}
}

uint64_t
record_decision(struct record *r, struct journal *journal, const struct record_input *input)
{
	const struct msg_answer *answer = input->answer;
	struct journal_candidate *candidate = (struct journal_candidate *)(void *)r->tail;
	unsigned n = fill_candidates(candidate, input);
	unsigned n_rules = fill_rules((struct journal_rule *)(void *)(candidate + n), input);
	struct journal_record head = {
		.kind = JOURNAL_DECISION,
		.n = (uint16_t)n,
		.request_id = input->request_id,
		.when = clock_wall(),
		.config_hash = input->config_hash,
		.policy_gen = input->policy_gen,
		.policy_inc = input->policy_inc,
		.seed = input->seed,
		.ask = input->ask,
	};
	struct journal_decision d = {
		.prompt_tokens = input->prompt_tokens,
		.max_tokens = input->max_tokens,
		.exact_tokens = input->exact_tokens,
		.trust = input->trust,
		.tenant = answer->tenant,
		.priority = answer->priority,
		.verdict = answer->verdict,
		.token_source = answer->source,
		.minimize = input->minimize,
		.status = answer->status,
		.chosen_row = input->n_ranked > 0 ? gather_at(input->gather, input->order[0])->row
						  : ROW_NONE,
		.hold_until = answer->hold_until,
		.n_rules = (uint8_t)n_rules,
	};

	if (input->rules)
		fill_ruled(&d, input);

	if (input->gather && input->n_ranked > 0) {
		const struct gather_candidate *best = gather_at(input->gather, input->order[0]);

		if (best->chain != GATHER_NO_CHAIN) {
			d.block_tokens = best->block_tokens;
			d.blocks = (uint32_t)gather_chain(input->gather, best->chain)->n;
		}
	}
	memcpy(d.stage_ns, input->stage_ns, sizeof d.stage_ns);
	cut(d.model, sizeof d.model, input->model, strlen(input->model));
	cut(d.policy, sizeof d.policy, input->policy, strlen(input->policy));
	cut(d.note, sizeof d.note, input->note, strlen(input->note));
	cut(d.rule, sizeof d.rule, answer->rule.p ? answer->rule.p : "", answer->rule.len);
	return journal_append(journal, &head, &d, sizeof d, r->tail,
			      n * sizeof *candidate + n_rules * sizeof(struct journal_rule));
}
