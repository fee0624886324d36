/* actors/policy/record.c -- fills and appends decision records; layout in shm/journal.h. */
#include "actors/policy/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct journal_record) + sizeof(struct journal_decision) +
		       RECORD_CANDIDATES * sizeof(struct journal_candidate) <= JOURNAL_RECORD_MAX,
	       "a full decision record fits");

struct record {
	struct journal_candidate candidate[RECORD_CANDIDATES];
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
fill(struct journal_candidate *to, const struct gather_candidate *c, uint8_t removed_by)
{
	double us = c->out.ttft_s * 1e6;

	*to = (struct journal_candidate){
		.row = c->row,
		.removed_by = removed_by,
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
fill_candidates(struct record *r, const struct record_input *input)
{
	const struct choose_candidate *choose;
	unsigned n = 0;

	if (!input->gather)
		return 0;
	choose = gather_choose(input->gather);
	for (unsigned k = 0; k < input->n_ranked; k++)
		fill(&r->candidate[n++], gather_at(input->gather, input->order[k]), 0);
	for (uint32_t i = 0; i < gather_n(input->gather) && n < RECORD_CANDIDATES; i++)
		if (!ranked(input, i))
			fill(&r->candidate[n++], gather_at(input->gather, i), choose[i].removed_by);
	return n;
}

uint64_t
record_decision(struct record *r, struct journal *journal, const struct record_input *input)
{
	const struct msg_answer *answer = input->answer;
	unsigned n = fill_candidates(r, input);
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
	};

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
	return journal_append(journal, &head, &d, sizeof d, r->candidate, n * sizeof *r->candidate);
}
