/* actors/policy/answer.c -- a choice as the ingress hears it. */
#include <string.h>

#include "actors/policy/question.h"
#include "proto/json.h"

uint32_t
answer_uncached(const struct gather_candidate *c)
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

void
answer_choice(struct evaluate *e, const struct question *q, struct msg_answer *answer)
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
			.uncached = answer_uncached(c),
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
