/* actors/policy/evaluate.c -- a question's way to its answer; steps and rules in evaluate.h. */
#include "actors/policy/evaluate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/choose.h"
#include "actors/policy/record.h"
#include "actors/policy/tokens.h"
#include "proto/multipart.h"
#include "proto/openai.h"

#define EDIT_TEXT_MAX (6 * MANIFEST_MODEL_MAX + 2)      /* a quoted name, every byte escaped */
#define AUDIO_BYTES_PER_TOKEN 640u      /* the same of sound: 32 kB and 50 tokens a second */

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

struct evaluate {
	struct view *view;              /* borrowed */
	struct tokens *tokens;          /* owned */
	struct process_segment *process;/* borrowed */
	struct gather *gather;          /* owned */
	struct record *record;          /* owned */
	uint32_t policy_gen;
	uint32_t pick;                  /* newest pick number we gave */
	char text[512];                 /* of a reject */
	char edit[CHOOSE_RANKED][EDIT_TEXT_MAX];
};

/* One question under way; on the stack. */
struct question {
	struct view_ingress *from;
	const struct msg_ask *ask;
	const struct slot *slot;
	struct openai_view body;
	const struct manifest_model *model;     /* NULL until known */
	bool form;                              /* multipart: names stand there without quotes */
	bool pinned;                            /* about what row `pin` keeps */
	uint16_t pin;
	struct aside_job *job;                  /* NULL: the body is read in our turn */
	bool waits;                             /* until it has been read elsewhere */
	struct tokens_found found;
	uint64_t seed;
	uint64_t stage_ns[8];
	uint32_t order[CHOOSE_RANKED];
	unsigned n_ranked;
};

enum stage {
	STAGE_ASKED,
	STAGE_PARSED,
	STAGE_TOKENIZED,
	STAGE_HASHED,
	STAGE_MATCHED,
	STAGE_PREDICTED,
	STAGE_CHOSEN,
	STAGE_SENT
};

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
	    record_new(&e->record) < 0) {
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

/* ---- reject ---- */

__attribute__((format(printf, 6, 7))) static void
reject(struct evaluate *e, struct msg_answer *answer, unsigned status, const char *code,
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

/* ---- from the bytes to a model and its tokens ---- */

static bool
find_model(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;

	if (q->body.n_model == 0) {
		/* an engine serves such a request by its only model; so do we */
		q->model = manifest_only_model(manifest);
		if (q->model)
			return true;
		reject(e, answer, 400, "model_required", "model",
		       "you must provide a model parameter");
		return false;
	}
	q->model = manifest_find_model(manifest, q->body.model, q->body.n_model);
	if (!q->model)
		reject(e, answer, 404, "model_not_found", "model",
		       "The model `%.200s` does not exist", q->body.model);
	return q->model != NULL;
}

/* ---- what one worker keeps ---- */

static const struct row *
live_row(const struct evaluate *e, uint16_t row, uint32_t row_gen)
{
	const struct row *r;
	uint8_t intent;

	if (row >= e->view->rows.capacity)      /* any ingress may have written anything */
		return NULL;
	r = &e->view->rows.row[row];
	intent = atomic_load_explicit(&r->intent, memory_order_acquire);
	return atomic_load_explicit(&r->row_gen, memory_order_acquire) == row_gen &&
	       (intent == INTENT_SERVE || intent == INTENT_DRAIN) ? r : NULL;
}

/* The worker that keeps the response of that id: nobody else can answer for it. */
static bool
find_pin(struct evaluate *e, struct question *q, struct slice id, struct msg_answer *answer)
{
	const struct row *row = NULL;
	struct row_reading reading;
	uint32_t row_gen;

	if (openai_is_id(id) && e->view->pins.bucket &&
	    pins_find(&e->view->pins, id.p, id.len, &q->pin, &row_gen))
		row = live_row(e, q->pin, row_gen);
	if (!row) {
		count_add(e->process, COUNTER_pins_unknown, 1);
		reject(e, answer, 404, "response_not_found", "pinned",
		       "Response with id '%.*s' not found: no worker is known to keep it",
		       (int)(id.len < 200 ? id.len : 200), id.p);
		return false;
	}
	row_reading_read(row, &reading);
	enum row_state state = row_state(row, &reading);

	if (state == ROW_DRAINING || state == ROW_DOWN) {
		reject(e, answer, 503,
		       state == ROW_DOWN ? "pinned_worker_down" : "pinned_worker_draining",
		       "pinned", "the worker that keeps response '%.*s' %s", (int)id.len, id.p,
		       state == ROW_DOWN ? "does not answer" : "is being taken out of service");
		return false;
	}
	q->pinned = true;
	return true;
}

static bool
serves(const struct evaluate *e, const struct manifest_model *model, uint16_t row)
{
	for (uint32_t i = 0; i < model->n_members; i++)
		if (e->view->row_of[model->members[i]] == row)
			return true;
	return false;
}

static bool
read_head(struct evaluate *e, const struct question *q, struct http1_request *ret,
	  struct msg_answer *answer)
{
	const char *why, *head =
		arena_at(&q->from->arena, q->slot->head_off, q->slot->head_len);

	if (head && http1_parse_request(head, q->slot->head_len, NULL, ret, &why) > 0)
		return true;
	reject(e, answer, 500, "internal_error", "head", "the request's head is out of reach");
	return false;
}

/* A path says which response; its model is one that the worker serves. */
static bool
find_by_path(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;
	struct http1_request rq;

	if (!read_head(e, q, &rq, answer))
		return false;
	view_refresh(e->view);
	if (!find_pin(e, q, openai_route_id(rq.path), answer))
		return false;
	for (uint32_t i = 0; i < manifest->n_models && (!q->model || q->model->alias); i++)
		if (serves(e, &manifest->models[i], q->pin) &&
		    (!q->model || !manifest->models[i].alias))
			q->model = &manifest->models[i];        /* rather its name than an alias */
	if (!q->model)
		reject(e, answer, 503, "no_candidate", "pinned",
		       "the worker that keeps this response serves no model here now");
	return q->model != NULL;
}

/* A request that goes on from a response: there is nothing to go on from elsewhere. */
static bool
find_previous(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	struct json_string *previous = &q->body.previous;

	if (q->slot->route != OPENAI_RESPONSES || !previous->raw.p)
		return true;
	view_refresh(e->view);
	if (!find_pin(e, q, previous->raw, answer))
		return false;
	if (serves(e, q->model, q->pin))
		return true;
	reject(e, answer, 400, "invalid_request", "pinned",
	       "previous_response_id names a response of a worker that does not serve `%s`",
	       q->model->name);
	return false;
}

/* A thread begins with this body.  NULL: no memory. */
static struct aside_job *
begin_aside(struct evaluate *e, const struct question *q, const char *body)
{
	count_add(e->process, COUNTER_bodies_aside, 1);
	return aside_read(tokens_aside(e->tokens), q->from, q->ask->slot, q->ask->slot_gen,
			  (enum openai_route)q->slot->route,
			  (struct slice){body, q->slot->body_len}, q->slot->peer_addr);
}

static bool
find_tokens(struct evaluate *e, struct question *q, const char *body, bool tokens_failed,
	    mono_ns now, struct token_key *ret_key)
{
	const struct tokens_question about = {
		.model = q->model,
		.route = (enum openai_route)q->slot->route,
		.view = &q->body,
		.body = {body, q->slot->body_len},
		.job = q->job,
		.job_key = q->job ? aside_key(q->from, q->ask->slot, q->ask->slot_gen) :
				    (struct token_key){0},
		.failed = tokens_failed,
		.now = now,
	};

	if (tokens_find(e->tokens, &about, &q->found, ret_key))
		return true;
	if (!q->found.aside)
		return false;
	*ret_key = aside_key(q->from, q->ask->slot, q->ask->slot_gen);
	return !begin_aside(e, q, body);
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

static uint32_t
uncached_of(const struct gather_candidate *c)
{
	return c->in.prompt - (c->in.cached < c->in.prompt ? c->in.cached : c->in.prompt);
}

static uint32_t
microseconds(double seconds)
{
	double us = seconds * 1e6;

	return us <= 0 ? 0 : us >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static void
add_edits(struct evaluate *e, const struct question *q, unsigned rank, const char *model,
	  struct rec_candidate *to)
{
	const struct openai_span *span = &q->body.field[OPENAI_FIELD_MODEL];
	ssize_t n;

	if (span->len_bytes == 0 || (q->body.n_model == strlen(model) &&
				     memcmp(q->body.model, model, q->body.n_model) == 0))
		return;
	char *text = e->edit[rank];

	if (q->form) {                  /* names hold no control characters: manifest */
		to->edits[0] = (struct rec_edit){
			.off = span->off_bytes, .len = span->len_bytes, .text = slice_str(model),
		};
		to->n_edits = 1;
		return;
	}

	n = json_escape(slice_str(model), text + 1, EDIT_TEXT_MAX - 2);
	if (n < 0)
		return;                         /* cannot be: the manifest bounds names */
	text[0] = text[n + 1] = '"';
	to->edits[0] = (struct rec_edit){
		.off = span->off_bytes, .len = span->len_bytes, .text = {text, (size_t)n + 2},
	};
	to->n_edits = 1;
}

static void
fill_choice(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;

	answer->verdict = VERDICT_CHOOSE;
	if (q->pinned)
		answer->rule = SLICE_LIT("pinned");
	answer->pick = e->pick;
	answer->alias = q->model->alias ? slice_str(q->model->name) : (struct slice){"", 0};
	answer->n_roots = gather_n_chains(e->gather);
	for (unsigned i = 0; i < answer->n_roots; i++) {
		const struct gather_chain *c = gather_chain(e->gather, i);

		answer->roots[i] = (struct rec_root){
			.root = c->root, .block_tokens = c->block_tokens,
			.hashes = {(const char *)c->hash, c->n * sizeof *c->hash},
		};
	}
	answer->n_candidates = q->n_ranked;
	for (unsigned i = 0; i < q->n_ranked; i++) {
		const struct gather_candidate *c = gather_at(e->gather, q->order[i]);
		const char *model = manifest_upstream(manifest, q->model, c->member);
		struct rec_candidate *to = &answer->candidates[i];

		*to = (struct rec_candidate){
			.row = c->row,
			.row_gen = c->row_gen,
			.uncached = uncached_of(c),
			.cached = c->cached,
			.ttft = microseconds(c->out.ttft_s),
			.root = c->chain,
			.rank = c->rank,
			.pending = c->out.ahead,
			.context = c->in.context,
			.decoding = c->in.decoding,
		};
		add_edits(e, q, i, model, to);
		if (i == 0)
			answer->model = slice_str(model);
	}
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
		.max_tokens = q->body.max_tokens < 0 || q->body.max_tokens > UINT32_MAX ?
			UINT32_MAX : (uint32_t)q->body.max_tokens,
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
	answer->priority = q->body.priority < INT32_MIN || q->body.priority > INT32_MAX ? 0 :
		(int32_t)q->body.priority;
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

/* Audio comes as a form. */
static bool
read_form(struct evaluate *e, struct question *q, const char *body, struct msg_answer *answer)
{
	const struct http1_header *type;
	struct multipart_view form;
	struct http1_request rq;
	struct slice boundary;
	const char *why = "Content-Type is given twice";
	int r = -415;

	if (!read_head(e, q, &rq, answer))
		return false;
	type = http1_find(&rq.head, "content-type", NULL);
	if (type && http1_find(&rq.head, "content-type", type))
		r = -400;
	else if (type)
		r = multipart_boundary(type->value, &boundary, &why);
	if (r < 0) {
		reject(e, answer, (unsigned)-r,
		       r == -415 ? "unsupported_media_type" : "invalid_request", "body", "%s",
		       r == -415 ? "this route takes multipart/form-data" : why);
		return false;
	}
	if (multipart_parse(body, q->slot->body_len, boundary, &form, &why) < 0) {
		reject(e, answer, 400, "invalid_request", "body", "%s, at byte %zu of the body",
		       why, form.error_off_bytes);
		return false;
	}
	q->form = true;
	q->body.stream = form.stream;
	q->body.n_model = form.model_len_bytes;
	memcpy(q->body.model, form.model, sizeof form.model);
	q->body.field[OPENAI_FIELD_MODEL] = (struct openai_span){
		.off_bytes = form.model_off_bytes, .len_bytes = form.model_len_bytes,
	};
	q->found.prompt.tokens = q->slot->body_len / AUDIO_BYTES_PER_TOKEN + 1;
	return true;
}

/* The view of the body, made here or elsewhere.  False: refused, or q->waits. */
static bool
read_body(struct evaluate *e, struct question *q, const char *body, bool tokens_failed,
	  struct msg_answer *answer)
{
	struct aside *aside = tokens_aside(e->tokens);
	const char *why = NULL;
	int r;

	if (aside)
		q->job = aside_find(aside, q->from, q->ask->slot, q->ask->slot_gen);
	if (aside && q->slot->body_len >= ASIDE_BYTES && !q->job && !tokens_failed)
		q->job = begin_aside(e, q, body);
	if (q->job && q->job->state == ASIDE_READING) {
		q->waits = true;
		return false;
	}
	if (q->job) {
		q->body = q->job->view;
		why = q->job->why;
		r = q->job->read;
	} else {
		r = openai_view_parse(body, q->slot->body_len, &q->body, &why);
	}
	if (r == 0)
		return true;
	reject(e, answer, 400, "invalid_request", "body", "%s, at byte %zu of the body", why,
	       q->body.error_off_bytes);
	q->body.max_tokens = q->body.priority = OPENAI_UNKNOWN;
	q->body.model[0] = '\0';
	return false;
}

/* The model, and where its prompt may lie: *ret_body NULL where there is none.  False: refused, or
 * q->waits. */
static bool
find_what(struct evaluate *e, struct question *q, bool tokens_failed, struct msg_answer *answer,
	  const char **ret_body)
{
	const char *body;

	q->body.max_tokens = q->body.priority = OPENAI_UNKNOWN;
	if (q->slot->route == OPENAI_RESPONSE || q->slot->route == OPENAI_RESPONSE_CANCEL)
		return find_by_path(e, q, answer);
	body = arena_at(&q->from->arena, q->slot->body_off, q->slot->body_len);
	if (!body) {
		reject(e, answer, 500, "internal_error", "body",
		       "the request's body is out of reach");
		return false;
	}
	if (q->slot->route == OPENAI_TRANSCRIPTIONS || q->slot->route == OPENAI_TRANSLATIONS)
		return read_form(e, q, body, answer) && find_model(e, q, answer);
	if (!read_body(e, q, body, tokens_failed, answer))
		return false;
	if (q->body.n_prompts > EVALUATE_PROMPTS) {
		reject(e, answer, 400, "too_many_prompts", "body",
		       "%zu prompts in one request; at most %u", q->body.n_prompts,
		       EVALUATE_PROMPTS);
		return false;
	}
	*ret_body = body;
	return find_model(e, q, answer) && find_previous(e, q, answer);
}

enum evaluate_result
evaluate_question(struct evaluate *e, struct view_ingress *from, const struct msg_ask *ask,
		  mono_ns asked_ns, bool tokens_failed, struct msg_answer *ret,
		  struct token_key *ret_key)
{
	mono_ns began_ns = clock_mono();
	struct question q = {.from = from, .ask = ask, .stage_ns = {[STAGE_ASKED] = asked_ns}};
	const char *body = NULL;

	q.slot = current_slot(from, ask);
	if (!q.slot) {
		count_add(e->process, COUNTER_questions_stale, 1);
		return EVALUATE_STALE;
	}
	memset(ret, 0, sizeof *ret);
	q.seed = q.slot->request_id * 0x9e3779b97f4a7c15ull + ask->ask;
	if (find_what(e, &q, tokens_failed, ret, &body)) {
		q.stage_ns[STAGE_PARSED] = q.job ? q.job->read_ns : clock_mono();
		if (body && !find_tokens(e, &q, body, tokens_failed, began_ns, ret_key))
			return EVALUATE_WAIT;
		q.stage_ns[STAGE_TOKENIZED] = clock_mono();
		decide(e, &q, q.slot->attempt > 0 ? q.slot->row : ROW_NONE,
		       q.stage_ns[STAGE_TOKENIZED]);
		if (q.n_ranked > 0) {
			take_pick(e);
			fill_choice(e, &q, ret);
		} else {
			reject(e, ret, 503, "no_candidate", "no-candidate",
			       "no worker of `%s` can take requests now", q.model->name);
		}
	} else if (q.waits) {
		*ret_key = aside_key(from, ask->slot, ask->slot_gen);
		return EVALUATE_WAIT;
	}
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
