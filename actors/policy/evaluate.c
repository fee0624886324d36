/* actors/policy/evaluate.c -- a question's way to its answer; steps and rules in evaluate.h. */
#include "actors/policy/evaluate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/expression.h"
#include "actors/policy/question.h"
#include "actors/policy/tokens.h"

_Static_assert(sizeof((struct msg_answer *)0)->candidates / sizeof(struct rec_candidate) ==
		       CHOOSE_RANKED,
	       "an answer carries what choose ranks");
_Static_assert(sizeof ((struct msg_answer *)0)->roots / sizeof(struct rec_root) == GATHER_CHAINS,
	       "an answer carries every chain");

/* What it takes to know of requests, under these documents. */
static void
look_at(struct evaluate *e, const struct manifest *m)
{
	e->reads = 0;
	e->sessions = false;
	for (uint32_t i = 0; i < m->n_policies; i++) {
		e->reads |= rules_reads(&m->policies[i]);
		e->sessions |= m->policies[i].affinity == MANIFEST_AFFINITY_HEADER;
	}
	for (uint32_t i = 0; i < m->n_tags; i++)
		if (m->tags[i].when.text)
			e->reads |= expression_reads(m->tags[i].when.program);
}

int
evaluate_new(struct evaluate **ret, struct view *view, struct tokensource *tokens,
	     struct process_segment *process, uint32_t policy_gen)
{
	struct evaluate *e = calloc(1, sizeof *e);
	int r;

	if (!e)
		return -ENOMEM;
	e->view = view;
	e->process = process;
	e->policy_gen = policy_gen;
	r = tagging_new(&e->tagging, view, process);
	if (r == 0 && (gather_new(&e->gather, view) < 0 ||
		       tokens_new(&e->tokens, view, tokens, process) < 0 ||
		       ruling_new(&e->ruling, view) < 0 || record_new(&e->record) < 0 ||
		       who_new(&e->who, view->manifest) < 0))
		r = -ENOMEM;
	if (r < 0) {
		evaluate_free(&e);
		return r;
	}
	look_at(e, view->manifest);
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
	ruling_free(&e->ruling);
	tagging_free(&e->tagging);
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

struct tagging *
evaluate_tagging(struct evaluate *e)
{
	return e->tagging;
}

int
evaluate_documents(struct evaluate *e, const struct manifest *manifest)
{
	int r = gather_documents(e->gather, manifest);

	if (r == 0)
		r = ruling_documents(e->ruling, manifest);
	if (r == 0)
		r = view_documents(e->view, manifest);
	if (r == 0)
		look_at(e, manifest);
	return r;
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

/* ---- what an answer leaves behind ---- */

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
	bool ruled = q->n_chain > 0;
	const struct manifest_policy *policy =
		ruled ? &manifest->policies[q->chain[q->n_chain - 1]] : NULL;
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
		.minimize = policy ? (uint8_t)policy->minimize : 0,
		.model = q->model ? q->model->name : q->body.model,
		.policy = policy ? policy->name : "",
		.gather = ruled ? e->gather : NULL,
		.rules = ruled ? ruling_input(e->ruling) : NULL,
		.ruled = &q->ruled,
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
	if (answer->verdict != VERDICT_HOLD)
		count_add(e->process, chosen ? COUNTER_decisions : COUNTER_rejections, 1);
	if (chosen && gather_blind(e->gather))
		count_add(e->process, COUNTER_decisions_blind, 1);
}

/* ---- one question ---- */

static const struct slot *
current_slot(const struct view_ingress *from, const struct msg_ask *ask, bool held)
{
	if (ask->slot == 0 || ask->slot > from->slots.capacity)
		return NULL;
	const struct slot *slot = &from->slots.slot[ask->slot];
	uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);        /* A1 */
	unsigned state = slot_state(word);

	if (slot_generation(word) != ask->slot_gen || slot_ask(word) != (uint16_t)ask->ask ||
	    (state != SLOT_ASKED && !(held && state == SLOT_HELD)))
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

static enum step
find_tags(struct evaluate *e, struct question *q, bool last, mono_ns now, struct token_key *ret_key)
{
	const struct aside *aside = tokens_aside(e->tokens);
	bool believed = q->slot->peer_flags & PEER_BELIEVED;
	const struct http1_request *head = believed && tagging_reads_head(e->tagging) ?
		question_head(e, q) : NULL;
	const struct tagging_question about = {
		.request = &q->facts,
		.head = head ? &head->head : NULL,
		.request_id = q->slot->request_id,
		.believed = believed,
		.form = q->form,
		.body = q->text ? (struct slice){q->text, q->slot->body_len} :
				  (struct slice){NULL, 0},
		.read = q->job && q->job->tagged ? &q->job->tags : NULL,
		.too_large = aside && !q->job && q->slot->body_len >= ASIDE_BYTES,
		.last = last,
		.now = now,
	};

	return tagging_find(e->tagging, &about, &q->facts.tags, &q->facts.tags_unknown, ret_key) ?
		STEP_FOUND : STEP_WAIT;
}

/* All that is to be known of the request itself, room by room. */
static enum step
find_request(struct evaluate *e, struct question *q, const struct evaluate_asked *how, mono_ns now,
	     struct msg_answer *answer, struct token_key *ret_key)
{
	bool failed = how->tokens_failed;
	enum step step = what_find(e, q, failed, answer);

	if (step == STEP_WAIT)
		*ret_key = aside_key(q->from, q->ask->slot, q->ask->slot_gen);
	if (step == STEP_FOUND)
		step = who_find(e, q, answer);
	if (step != STEP_FOUND)
		return step;
	q->stage_ns[STAGE_PARSED] = q->job ? q->job->read_ns : clock_mono();
	step = find_tokens(e, q, failed, now, ret_key);
	if (step != STEP_FOUND)
		return step;
	rule_find(e, q);
	step = find_tags(e, q, how->last, now, ret_key);
	if (step == STEP_FOUND)
		q->stage_ns[STAGE_TOKENIZED] = clock_mono();
	return step;
}

/* Held: for how long, and with whom it waits. */
static void
hold(struct evaluate *e, const struct question *q, const struct evaluate_asked *how,
     struct msg_answer *answer)
{
	answer->verdict = VERDICT_HOLD;
	answer->rule = slice_str(rules_name(ruling_input(e->ruling), q->ruled.policy,
					    q->ruled.rule));
	answer->hold_key = q->slot->hold_key;
	answer->hold_until = q->slot->hold_deadline_ns;
	if (answer->hold_until == 0)
		answer->hold_until = how->asked_ns + q->ruled.up_to_ns;
}

enum evaluate_result
evaluate_question(struct evaluate *e, struct view_ingress *from, const struct msg_ask *ask,
		  const struct evaluate_asked *how, struct msg_answer *ret,
		  struct evaluate_later *ret_later)
{
	mono_ns began_ns = clock_mono(), until_ns;
	struct question q = {.from = from, .ask = ask, .tenant = MANIFEST_NONE};
	bool held = how->held_until_ns != 0;
	enum step step;

	q.stage_ns[STAGE_ASKED] = how->asked_ns;
	q.again = held;
	q.slot = current_slot(from, ask, held);
	if (!q.slot) {
		count_add(e->process, COUNTER_questions_stale, 1);
		return EVALUATE_STALE;
	}
	memset(ret, 0, sizeof *ret);
	facts_request_init(&q.facts);
	q.seed = q.slot->request_id * 0x9e3779b97f4a7c15ull + ask->ask;
	until_ns = held ? how->held_until_ns : q.slot->hold_deadline_ns;
	q.waited = how->full || (until_ns != 0 && until_ns <= began_ns);
	step = find_request(e, &q, how, began_ns, ret, &ret_later->key);
	if (step == STEP_WAIT)
		return EVALUATE_WAIT;
	if (step == STEP_FOUND)
		rule_choose(e, &q, q.stage_ns[STAGE_TOKENIZED], ret);
	if (q.n_chain > 0 && q.ruled.verdict == RULES_WAIT) {
		ret_later->kind = rule_kind(e, &q);
		ret_later->tenant = q.tenant;
		if (held)
			return EVALUATE_HELD;   /* as before: there is nothing to say */
		hold(e, &q, how, ret);
		conclude(e, &q, ret);
		count_add(e->process, COUNTER_held, 1);
		return EVALUATE_HELD;
	}
	if (q.n_ranked > 0) {
		take_pick(e);
		answer_choice(e, &q, ret);
	}
	conclude(e, &q, ret);
	if (q.job)
		aside_done(tokens_aside(e->tokens), q.job);
	count_add(e->process, COUNTER_held_late, held && q.ruled.would_wait);
	count_add(e->process, COUNTER_held_full, how->full && q.ruled.would_wait);
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
		struct msg_answer answer = {0};
		struct question q = {
			.slot = &slot, .model = &manifest->models[i], .seed = i,
			.tenant = MANIFEST_NONE,
			.found.prompt = {.ids = ids, .n_ids = 64, .tokens = 64,
					 .hashed = true},
		};

		facts_request_init(&q.facts);
		rule_choose(e, &q, clock_mono(), &answer);
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
