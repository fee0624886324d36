/* actors/policy/tokens.c -- sources of token ids, one after the other; see tokens.h. */
#include "actors/policy/tokens.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"
#include "actors/policy/prompt.h"
#include "shm/trust.h"

#define BYTES_PER_TOKEN 4u      /* guess where nobody told us tokens; only load is charged by it */

struct tokens {
	struct view *view;              /* borrowed, as are those below */
	struct tokensource *source;     /* NULL: none */
	struct process_segment *process;
	struct native *native;          /* NULL: none */
	struct aside *aside;            /* NULL: none */
	struct prompt *prompt;          /* owned */
};

int
tokens_new(struct tokens **ret, struct view *view, struct tokensource *source,
	   struct process_segment *process)
{
	struct tokens *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->view = view;
	t->source = source;
	t->process = process;
	if (prompt_new(&t->prompt) < 0) {
		free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void
tokens_free(struct tokens **ret)
{
	if (!*ret)
		return;
	prompt_free(&(*ret)->prompt);
	free(*ret);
	*ret = NULL;
}

void
tokens_natively(struct tokens *t, struct native *native, struct aside *aside)
{
	t->native = native;
	t->aside = aside;
}

struct aside *
tokens_aside(struct tokens *t)
{
	return t->aside;
}

__attribute__((format(printf, 2, 3))) static void
note(struct tokens_found *f, const char *format, ...)
{
	va_list args;

	if (f->note[0])
		return;                 /* the first reason is the one */
	va_start(args, format);
	vsnprintf(f->note, sizeof f->note, format, args);
	va_end(args);
}

static void
take(struct tokens_found *f, const uint32_t *ids, size_t n, uint64_t all, enum token_source source)
{
	uint32_t tokens = all > UINT32_MAX ? UINT32_MAX : (uint32_t)all;

	f->prompt.ids = ids;
	f->prompt.n_ids = n;
	f->prompt.tokens = tokens;
	f->whole = tokens;
	f->exact = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
	f->source = source;
}

/* ---- made here ---- */

/* The model of the first set that has one and may be believed.  *ret_why: of the first that has
 * none, though it was to have. */
static const struct model *
model_of(struct tokens *t, const struct manifest_model *model, uint8_t *ret_trust,
	 const char **ret_why)
{
	const struct manifest *manifest = t->view->manifest;
	uint32_t seen = UINT32_MAX;

	*ret_why = NULL;
	for (uint32_t i = 0; t->native && i < model->n_members; i++) {
		uint32_t set = manifest->members[model->members[i]].set;
		const char *why;
		enum trust_state trust;

		if (set == seen || set == MANIFEST_NONE)
			continue;
		seen = set;
		why = native_why(t->native, set);
		if (native_model(t->native, set)) {
			trust = trust_model(&t->view->rows,
					    native_trust(t->native, set,
							 manifest->sets[set].model));
			*ret_trust = (uint8_t)trust;
			if (trust != TRUST_MISMATCH)
				return native_model(t->native, set);
			why = "the engines' own ids were others";
		}
		if (why && !*ret_why)
			*ret_why = why;
	}
	return NULL;
}

static void
take_made(struct tokens_found *f, const struct native_made *made, uint32_t estimate)
{
	take(f, made->ids, made->n, made->all, TOKENS_NATIVE);
	note(f, "%s", made->why);
	if (made->whole)
		return;
	f->whole = 0;
	if (f->prompt.tokens < estimate)
		f->prompt.tokens = estimate;    /* more comes, by which load is charged */
}

enum made { MADE, NOT_MADE, WAITS };

static enum made
find_native(struct tokens *t, const struct tokens_question *q, struct tokens_found *f)
{
	uint32_t estimate = f->prompt.tokens;
	const struct model *model;
	struct native_made made;
	const char *why;

	model = model_of(t, q->model, &f->trust, &why);
	if (!model) {
		if (why)
			note(f, "%s", why);
		return NOT_MADE;
	}
	if (q->job && t->aside) {
		if (q->job->state == ASIDE_READ && q->failed)
			return NOT_MADE;
		if (q->job->state == ASIDE_READ)
			aside_make(t->aside, q->job, model);
		if (q->job->state != ASIDE_MADE)
			return WAITS;
		made = q->job->made;
	} else if (t->aside && q->body.len >= ASIDE_BYTES) {
		note(f, "no thread came to its tokens in time");
		return MADE;
	} else {
		native_make(native_maker(t->native), model, native_segments(t->native), q->route,
			    q->body, &made);
		f->aside = made.too_much && t->aside && !q->failed;
		if (f->aside) {
			note(f, "%s", made.why);
			return WAITS;
		}
	}
	count_add(t->process, made.n > 0 ? COUNTER_tokens_native : COUNTER_tokens_native_none, 1);
	if (made.n > 0) {
		f->prompt.hashed = openai_field(q->view, q->body.p,
						OPENAI_FIELD_PROMPT_LOGPROBS).len == 0;
		take_made(f, &made, estimate);
		return MADE;
	}
	note(f, "%s", made.why);
	return made.settled ? MADE : NOT_MADE;
}

/* ---- asked of a worker ---- */

/* The name under which a worker of this model is asked for tokens: that of its first set that may
 * be asked.  NULL: none may. */
static const char *
tokenizer_model(const struct tokens *t, const struct manifest_model *model)
{
	const struct manifest *manifest = t->view->manifest;

	for (uint32_t i = 0; i < model->n_members; i++) {
		const struct manifest_set *set =
			member_set(manifest, &manifest->members[model->members[i]]);

		if (set && set->tokenize)
			return set->model;
	}
	return NULL;
}

/* The worker that is asked: any of that name that is up; the same for the same content. */
static const struct manifest_member *
tokenizer_of(const struct tokens *t, const struct manifest_model *model, const char *name,
	     struct token_key key)
{
	const struct manifest *manifest = t->view->manifest;
	const struct manifest_member *found = NULL;
	uint32_t start = (uint32_t)(key.hi % model->n_members);

	for (uint32_t i = 0; i < model->n_members; i++) {
		uint32_t m = model->members[(start + i) % model->n_members];
		const struct manifest_member *member = &manifest->members[m];
		const struct manifest_set *set = member_set(manifest, member);
		struct row_reading reading;
		uint16_t row = t->view->row_of[m];

		if (!set || !set->tokenize || strcmp(set->model, name) != 0 || row == ROW_NONE)
			continue;
		row_reading_read(&t->view->rows.row[row], &reading);
		enum row_state state = row_state(&t->view->rows.row[row], &reading);

		if (state == ROW_UP)
			return member;
		if (state == ROW_SUSPECT || state == ROW_UNPROVEN)
			found = member;
	}
	return found;
}

static bool
find_asked(struct tokens *t, const struct tokens_question *q, struct tokens_found *f,
	   struct token_key *ret_key)
{
	const char *name = tokenizer_model(t, q->model);
	const struct manifest_member *member;
	const uint32_t *ids;
	struct slice text;
	size_t n;

	if (!t->source || !name) {
		note(f, "no tokenizer here, and tokenize is false");
		return true;
	}
	if (!f->prompt.hashed) {
		note(f, "no block of it can be known to be cached");
		return true;
	}
	if (!prompt_request(t->prompt, q->route, q->view, q->body.p, name, &text)) {
		note(f, "no /tokenize for such requests");
		return true;
	}
	*ret_key = tokensource_key(text.p, text.len);
	if (tokensource_find(t->source, *ret_key, &ids, &n)) {
		count_add(t->process, COUNTER_tokenize_hits, 1);
		take(f, ids, n, prompt_all_tokens(q->view, q->body.p, n), TOKENS_TOKENIZE);
		return true;
	}
	if (q->failed) {
		note(f, "/tokenize did not answer with ids in time");
		return true;
	}
	member = tokenizer_of(t, q->model, name, *ret_key);
	if (!member) {
		note(f, "no worker is up to be asked for /tokenize");
		return true;
	}
	const struct fetch_peer peer = fetch_peer(t->view->manifest, member, t->view->trust);

	if (tokensource_request(t->source, *ret_key, &peer, text.p, text.len, q->now) < 0) {
		note(f, "too much is being asked of /tokenize, or it does not answer");
		return true;
	}
	count_add(t->process, COUNTER_tokenize_calls, 1);
	return false;
}

bool
tokens_find(struct tokens *t, const struct tokens_question *q, struct tokens_found *ret,
	    struct token_key *ret_key)
{
	const uint32_t *ids;
	size_t n;

	*ret = (struct tokens_found){
		.prompt = {.tokens = (uint32_t)(q->body.len / BYTES_PER_TOKEN),
			   .hashed = q->job ? q->job->may_hit :
					      prompt_may_hit(q->view, q->body.p)},
	};
	if (!prompt_salt(t->prompt, q->view, q->body.p, &ret->prompt.salt)) {
		note(ret, "cache_salt is none that the engine takes");
		ret->prompt.hashed = false;
		return true;
	}
	if (prompt_ids(t->prompt, q->view, q->body.p, &ids, &n)) {
		take(ret, ids, n, q->view->n_prompt_tokens, TOKENS_IDS);
		return true;
	}
	switch (find_native(t, q, ret)) {
	case MADE:
		return true;
	case WAITS:
		*ret_key = q->job_key;  /* none yet where ret->aside */
		return false;
	case NOT_MADE:
		break;
	}
	return find_asked(t, q, ret, ret_key);
}
