/* actors/policy/what.c -- what is asked: body, model, and the worker that alone can answer. */
#include <string.h>

#include "actors/policy/question.h"
#include "proto/multipart.h"

#define AUDIO_BYTES_PER_TOKEN 640u      /* of sound: 32 kB and 50 tokens a second */

/* ---- the model ---- */

static bool
find_model(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;

	if (q->body.n_model == 0) {
		/* an engine serves such a request by its only model; so do we */
		q->model = manifest_only_model(manifest);
		if (q->model)
			return true;
		question_refuse(e, answer, 400, "model_required", "model",
				"you must provide a model parameter");
		return false;
	}
	q->model = manifest_find_model(manifest, q->body.model, q->body.n_model);
	if (!q->model)
		question_refuse(e, answer, 404, "model_not_found", "model",
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
		question_refuse(e, answer, 404, "response_not_found", "pinned",
				"Response with id '%.*s' not found: no worker is known to keep it",
				(int)(id.len < 200 ? id.len : 200), id.p);
		return false;
	}
	row_reading_read(row, &reading);
	enum row_state state = row_state(row, &reading);

	if (state == ROW_DRAINING || state == ROW_DOWN || state == ROW_DISABLED) {
		bool down = state == ROW_DOWN;

		question_refuse(e, answer, 503,
				down ? "pinned_worker_down" : "pinned_worker_draining", "pinned",
				"the worker that keeps response '%.*s' %s", (int)id.len, id.p,
				down ? "does not answer" : "is being taken out of service");
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
read_head(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	if (question_head(e, q))
		return true;
	question_refuse(e, answer, 500, "internal_error", "head",
			"the request's head is out of reach");
	return false;
}

/* A path says which response; its model is one that the worker serves. */
static bool
find_by_path(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;

	if (!read_head(e, q, answer))
		return false;
	view_refresh(e->view);
	if (!find_pin(e, q, openai_route_id(q->head->path), answer))
		return false;
	for (uint32_t i = 0; i < manifest->n_models && (!q->model || q->model->alias); i++)
		if (serves(e, &manifest->models[i], q->pin) &&
		    (!q->model || !manifest->models[i].alias))
			q->model = &manifest->models[i];        /* rather its name than an alias */
	if (!q->model)
		question_refuse(e, answer, 503, "no_candidate", "pinned",
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
	question_refuse(e, answer, 400, "invalid_request", "pinned",
			"previous_response_id names a response of a worker that does not serve "
			"`%s`",
			q->model->name);
	return false;
}

/* ---- the body ---- */

/* Audio comes as a form. */
static bool
read_form(struct evaluate *e, struct question *q, const char *body, struct msg_answer *answer)
{
	const struct http1_header *type;
	struct multipart_view form;
	struct slice boundary;
	const char *why = "Content-Type is given twice";
	int r = -415;

	if (!read_head(e, q, answer))
		return false;
	type = http1_find(&q->head->head, "content-type", NULL);
	if (type && http1_find(&q->head->head, "content-type", type))
		r = -400;
	else if (type)
		r = multipart_boundary(type->value, &boundary, &why);
	if (r < 0) {
		question_refuse(e, answer, (unsigned)-r,
				r == -415 ? "unsupported_media_type" : "invalid_request", "body",
				"%s",
				r == -415 ? "this route takes multipart/form-data" : why);
		return false;
	}
	if (multipart_parse(body, q->slot->body_len, boundary, &form, &why) < 0) {
		question_refuse(e, answer, 400, "invalid_request", "body",
				"%s, at byte %zu of the body", why, form.error_off_bytes);
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

/* A thread begins with this body.  NULL: no memory. */
static struct aside_job *
begin_aside(struct evaluate *e, const struct question *q, const char *body)
{
	count_add(e->process, COUNTER_bodies_aside, 1);
	return aside_read(tokens_aside(e->tokens), q->from, q->ask->slot, q->ask->slot_gen,
			  (enum openai_route)q->slot->route,
			  (struct slice){body, q->slot->body_len}, q->slot->peer_addr);
}

bool
what_aside(struct evaluate *e, const struct question *q, struct token_key *ret_key)
{
	*ret_key = aside_key(q->from, q->ask->slot, q->ask->slot_gen);
	return begin_aside(e, q, q->text) != NULL;
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
	question_refuse(e, answer, 400, "invalid_request", "body",
			"%s, at byte %zu of the body", why, q->body.error_off_bytes);
	q->body.max_tokens = q->body.priority = OPENAI_UNKNOWN;
	q->body.model[0] = '\0';
	return false;
}

/* The model, and where its prompt may lie.  False: refused, or q->waits. */
static bool
find(struct evaluate *e, struct question *q, bool failed, struct msg_answer *answer)
{
	const char *body;

	q->body.max_tokens = q->body.priority = OPENAI_UNKNOWN;
	if (q->slot->route == OPENAI_RESPONSE || q->slot->route == OPENAI_RESPONSE_CANCEL)
		return find_by_path(e, q, answer);
	body = arena_at(&q->from->arena, q->slot->body_off, q->slot->body_len);
	if (!body) {
		question_refuse(e, answer, 500, "internal_error", "body",
				"the request's body is out of reach");
		return false;
	}
	if (q->slot->route == OPENAI_TRANSCRIPTIONS || q->slot->route == OPENAI_TRANSLATIONS)
		return read_form(e, q, body, answer) && find_model(e, q, answer);
	if (!read_body(e, q, body, failed, answer))
		return false;
	if (q->body.n_prompts > EVALUATE_PROMPTS) {
		question_refuse(e, answer, 400, "too_many_prompts", "body",
				"%zu prompts in one request; at most %u", q->body.n_prompts,
				EVALUATE_PROMPTS);
		return false;
	}
	q->text = body;
	return find_model(e, q, answer) && find_previous(e, q, answer);
}

enum step
what_find(struct evaluate *e, struct question *q, bool failed, struct msg_answer *answer)
{
	if (find(e, q, failed, answer))
		return STEP_FOUND;
	return q->waits ? STEP_WAIT : STEP_REFUSED;
}
