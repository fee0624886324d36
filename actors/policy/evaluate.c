/* actors/policy/evaluate.c -- a question's way to its answer; steps and rules in evaluate.h. */
#include "actors/policy/evaluate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/policy/question.h"
#include "actors/policy/tokens.h"

_Static_assert((int)CHOOSE_PREDICTED_TTFT == (int)MANIFEST_MINIMIZE_PREDICTED_TTFT &&
		       (int)CHOOSE_RANDOM == (int)MANIFEST_MINIMIZE_RANDOM &&
		       (int)CHOOSE_ROUND_ROBIN == (int)MANIFEST_MINIMIZE_ROUND_ROBIN &&
		       (int)CHOOSE_LEAST_PREFILL == (int)MANIFEST_MINIMIZE_LEAST_PREFILL &&
		       (int)CHOOSE_LEAST_REQUESTS == (int)MANIFEST_MINIMIZE_LEAST_REQUESTS,
	       "one order of objectives");
_Static_assert(sizeof((struct msg_answer *)0)->candidates / sizeof(struct rec_candidate) ==
		       CHOOSE_RANKED,
	       "an answer carries what choose ranks");
_Static_assert(sizeof ((struct msg_answer *)0)->roots / sizeof(struct rec_root) == GATHER_CHAINS,
	       "an answer carries every chain");

int
evaluate_new(struct evaluate **ret, struct view *view, struct tokensource *tokens,
	     struct process_segment *process, uint32_t policy_gen)
{
	struct evaluate *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->view = view;
	e->process = process;
	e->policy_gen = policy_gen;
	if (gather_new(&e->gather, view) < 0 || tokens_new(&e->tokens, view, tokens, process) < 0 ||
	    record_new(&e->record) < 0 || who_new(&e->who, view->manifest) < 0) {
		evaluate_free(&e);
		return -ENOMEM;
	}
	*ret = e;
	return 0;
}

void
evaluate_free(struct evaluate **ret)
{
	struct evaluate *e = *ret;

	if (!e)
		return;
	who_free(&e->who);
	record_free(&e->record);
	tokens_free(&e->tokens);
	gather_free(&e->gather);
	free(e);
	*ret = NULL;
}

void
evaluate_natively(struct evaluate *e, struct native *native, struct aside *aside)
{
	tokens_natively(e->tokens, native, aside);
}

int
evaluate_documents(struct evaluate *e, const struct manifest *manifest)
{
	int r = gather_documents(e->gather, manifest);

	return r < 0 ? r : view_documents(e->view, manifest);
}

/* ---- what the rooms share ---- */

void
question_refuse(struct evaluate *e, struct msg_answer *answer, unsigned status, const char *code,
		const char *rule, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(e->text, sizeof e->text, format, args);
	va_end(args);
	answer->verdict = VERDICT_REJECT;
	answer->status = (uint16_t)status;
	answer->code = slice_str(code);
	answer->text = slice_str(e->text);
	answer->rule = slice_str(rule);
	answer->retry_after = status == 503 ? 1 : 0;
}

const struct http1_request *
question_head(struct evaluate *e, struct question *q)
{
	const char *why, *head;

	if (q->head)
		return q->head;
	head = arena_at(&q->from->arena, q->slot->head_off, q->slot->head_len);
	if (head && http1_parse_request(head, q->slot->head_len, NULL, &e->head, &why) > 0)
		q->head = &e->head;
	return q->head;
}

/* ---- the choice ---- */

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
decide(struct evaluate *e, struct question *q, uint16_t failed_row, mono_ns now)
{
	const struct manifest_policy *policy = &e->view->manifest->policies[q->model->policy];
	struct choose_input input;

	/* without memory there is no prefix; the rest stands */
	gather_hash(e->gather, q->model, &q->found.prompt);
	q->stage_ns[STAGE_HASHED] = clock_mono();
	looked_up(e, gather_match(e->gather));
	q->stage_ns[STAGE_MATCHED] = clock_mono();
	gather_candidates(e->gather, failed_row, now);
	q->stage_ns[STAGE_PREDICTED] = clock_mono();
	input = (struct choose_input){
		.candidate = gather_choose(e->gather),
		.n = gather_n(e->gather),
		.objective = (enum choose_objective)policy->minimize,
		.seed = q->seed,
		.pinned = q->pinned,
		.pin = q->pin,
	};
	q->n_ranked = choose(&input, q->order);
	q->stage_ns[STAGE_CHOSEN] = clock_mono();
}

static void
remember(struct evaluate *e, struct question *q)
{
	const struct gather_candidate *best = gather_at(e->gather, q->order[0]);

	if (best->chain == GATHER_NO_CHAIN)
		return;
	const struct gather_chain *c = gather_chain(e->gather, best->chain);
	size_t known = best->exact / c->block_tokens;

	overlay_note(e->view->overlay, best->row, c->hash + known, c->n - known,
		     q->stage_ns[STAGE_CHOSEN]);
}

static void
take_pick(struct evaluate *e)
{
	uint32_t seen = gather_last_pick(e->gather);

	if (e->pick == 0 || (seen != 0 && (int32_t)(seen - e->pick) > 0))
		e->pick = seen;
	if (++e->pick == 0)
		e->pick = 1;
}

static void
write_record(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;
	struct record_input input = {
		.request_id = q->slot->request_id,
		.config_hash = manifest->hash,
		.policy_gen = e->policy_gen,
		.policy_inc = e->view->policy_inc,
		.seed = q->seed,
		.ask = q->ask->ask,
		.answer = answer,
		.prompt_tokens = q->found.whole,
		.exact_tokens = q->found.exact,
		.trust = q->found.trust,
		.note = q->found.note,
		.max_tokens = answer->max_tokens,
		.minimize = q->model ? (uint8_t)manifest->policies[q->model->policy].minimize : 0,
		.model = q->model ? q->model->name : q->body.model,
		.policy = q->model ? manifest->policies[q->model->policy].name : "",
		.gather = q->model ? e->gather : NULL,
		.order = q->order,
		.n_ranked = q->n_ranked,
		.stage_ns = q->stage_ns,
	};

	q->stage_ns[STAGE_SENT] = clock_mono();
	answer->record = record_decision(e->record, &e->process->journal, &input);
}

/* From here on the answer exists: charge it, number it, record it. */
static void
conclude(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct rec_candidate *best = answer->n_candidates > 0 ? &answer->candidates[0] : NULL;
	bool chosen = answer->verdict == VERDICT_CHOOSE && best;

	answer->slot = q->ask->slot;
	answer->slot_gen = q->ask->slot_gen;
	answer->ask = q->ask->ask;
	answer->policy_gen = e->policy_gen;
	answer->policy_inc = e->view->policy_inc;
	answer->priority = who_priority(e->view->manifest, q->tenant, q->body.priority);
	answer->max_tokens = q->body.max_tokens < 0 || q->body.max_tokens > UINT32_MAX ?
		UINT32_MAX : (uint32_t)q->body.max_tokens;
	answer->prompt = q->found.whole;
	answer->source = (uint8_t)q->found.source;
	write_record(e, q, answer);
	answer->number =
		overlay_push(e->view->overlay, q->from->stream, chosen ? best->row : OVERLAY_NO_ROW,
			     chosen ? best->row_gen : 0, chosen ? best->uncached : 0, answer->pick);
	if (chosen)
		remember(e, q);
	count_add(e->process, chosen ? COUNTER_decisions : COUNTER_rejections, 1);
	if (chosen && gather_blind(e->gather))
		count_add(e->process, COUNTER_decisions_blind, 1);
}

/* ---- one question ---- */

static const struct slot *
current_slot(const struct view_ingress *from, const struct msg_ask *ask)
{
	if (ask->slot == 0 || ask->slot > from->slots.capacity)
		return NULL;
	const struct slot *slot = &from->slots.slot[ask->slot];
	uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);        /* A1 */

	if (slot_generation(word) != ask->slot_gen || slot_ask(word) != (uint16_t)ask->ask ||
	    slot_state(word) != SLOT_ASKED)
		return NULL;
	return slot;
}

static enum step
find_tokens(struct evaluate *e, struct question *q, bool failed, mono_ns now,
	    struct token_key *ret_key)
{
	const struct tokens_question about = {
		.model = q->model,
		.route = (enum openai_route)q->slot->route,
		.view = &q->body,
		.body = {q->text, q->slot->body_len},
		.job = q->job,
		.job_key = q->job ? aside_key(q->from, q->ask->slot, q->ask->slot_gen) :
				    (struct token_key){0},
		.failed = failed,
		.now = now,
	};

	if (!q->text || tokens_find(e->tokens, &about, &q->found, ret_key))
		return STEP_FOUND;
	return q->found.aside && !what_aside(e, q, ret_key) ? STEP_FOUND : STEP_WAIT;
}

/* All that is to be known of the request itself, room by room. */
static enum step
find_request(struct evaluate *e, struct question *q, bool failed, mono_ns now,
	     struct msg_answer *answer, struct token_key *ret_key)
{
	enum step step = what_find(e, q, failed, answer);

	if (step == STEP_WAIT)
		*ret_key = aside_key(q->from, q->ask->slot, q->ask->slot_gen);
	if (step == STEP_FOUND)
		step = who_find(e, q, answer);
	if (step != STEP_FOUND)
		return step;
	q->stage_ns[STAGE_PARSED] = q->job ? q->job->read_ns : clock_mono();
	step = find_tokens(e, q, failed, now, ret_key);
	if (step == STEP_FOUND)
		q->stage_ns[STAGE_TOKENIZED] = clock_mono();
	return step;
}

/* Where it goes, or why nowhere. */
static void
choose_row(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	decide(e, q, q->slot->attempt > 0 ? q->slot->row : ROW_NONE, q->stage_ns[STAGE_TOKENIZED]);
	if (q->n_ranked == 0) {
		question_refuse(e, answer, 503, "no_candidate", "no-candidate",
				"no worker of `%s` can take requests now", q->model->name);
		return;
	}
	take_pick(e);
	answer_choice(e, q, answer);
}

enum evaluate_result
evaluate_question(struct evaluate *e, struct view_ingress *from, const struct msg_ask *ask,
		  mono_ns asked_ns, bool tokens_failed, struct msg_answer *ret,
		  struct token_key *ret_key)
{
	mono_ns began_ns = clock_mono();
	struct question q = {.from = from, .ask = ask, .tenant = MANIFEST_NONE,
			     .stage_ns = {[STAGE_ASKED] = asked_ns}};
	enum step step;

	q.slot = current_slot(from, ask);
	if (!q.slot) {
		count_add(e->process, COUNTER_questions_stale, 1);
		return EVALUATE_STALE;
	}
	memset(ret, 0, sizeof *ret);
	q.seed = q.slot->request_id * 0x9e3779b97f4a7c15ull + ask->ask;
	step = find_request(e, &q, tokens_failed, began_ns, ret, ret_key);
	if (step == STEP_WAIT)
		return EVALUATE_WAIT;
	if (step == STEP_FOUND)
		choose_row(e, &q, ret);
	conclude(e, &q, ret);
	if (q.job)
		aside_done(tokens_aside(e->tokens), q.job);
	count_add(e->process, COUNTER_decide_ns, clock_mono() - began_ns);
	return EVALUATE_ANSWER;
}

int
evaluate_self_test(struct evaluate *e, const char **why)
{
	static const uint32_t ids[64] = {1, 2, 3};      /* any prompt */
	const struct manifest *manifest = e->view->manifest;

	for (uint32_t i = 0; i < manifest->n_models; i++) {
		struct slot slot = {.row = ROW_NONE};
		struct question q = {
			.slot = &slot, .model = &manifest->models[i], .seed = i,
			.found.prompt = {.ids = ids, .n_ids = 64, .tokens = 64,
					 .hashed = true},
		};

		decide(e, &q, ROW_NONE, clock_mono());
		for (unsigned k = 0; k < q.n_ranked; k++) {
			const struct gather_candidate *c = gather_at(e->gather, q.order[k]);

			if (c->row == ROW_NONE || !(c->out.ttft_s >= 0)) {
				*why = "a candidate has no row, or its prediction is no time";
				return -EBADMSG;
			}
		}
	}
	return 0;
}
