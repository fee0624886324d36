/* actors/common/prompt/request.c -- from a request's body to its token ids. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "actors/common/prompt/request_private.h"
#include "actors/common/prompt/segments.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/unicode.h"

static uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool
prompt_stop(struct prompt_maker *p, enum prompt_end end, const char *format, ...)
{
	va_list args;

	p->end = end;
	va_start(args, format);
	vsnprintf(p->why, sizeof p->why, format, args);
	va_end(args);
	return false;
}

bool
prompt_no_memory(struct prompt_maker *p)
{
	p->no_memory = true;
	return prompt_stop(p, PROMPT_TOO_MUCH, "no memory, or more than one request may take");
}

bool
prompt_body(struct prompt_maker *p, struct slice body, struct value *ret)
{
	const char *why = "";
	size_t off = 0;
	int r;

	if (body.len >= 3 && memcmp(body.p, "\xef\xbb\xbf", 3) == 0)
		body = slice_of(body.p + 3, body.len - 3);
	r = value_from_json(&p->bump, body, ret, &why, &off);
	if (r == -ENOMEM)
		return prompt_no_memory(p);
	if (r < 0)
		return prompt_stop(p, PROMPT_REFUSED, "body, byte %zu: %s", off, why);
	if (ret->kind != VALUE_DICT)
		return prompt_stop(p, PROMPT_REFUSED, "the body is no JSON object");
	return true;
}

bool
prompt_take_salt(struct prompt_maker *p, struct value salt)
{
	if (salt.kind == VALUE_UNDEFINED || salt.kind == VALUE_NONE)
		return true;
	if (salt.kind != VALUE_STRING || !openai_salt_fits(value_slice(salt)))
		return prompt_stop(p, PROMPT_REFUSED, "cache_salt is no text of 1 to 128 "
				   "characters without @, /, \\ and NUL");
	if (!value_copy(&p->bump, value_slice(salt), &salt))
		return prompt_no_memory(p);
	p->salt = value_slice(salt);
	return true;
}

/* --- prompts ------------------------------------------------------------------------------- */

/* The ids from `from` on are one more prompt.  Where they lie is found at the end: they move. */
static bool
add_prompt(struct prompt_maker *p, size_t from)
{
	if (p->n_prompts == p->room) {
		uint32_t room = p->room ? p->room * 2 : 16;
		struct prompt_one *more = realloc(p->prompts, room * sizeof more[0]);

		if (!more)
			return prompt_no_memory(p);
		p->prompts = more;
		p->room = room;
	}
	p->prompts[p->n_prompts++] = (struct prompt_one){.n = p->ids.n - from};
	return true;
}

static bool
encode(struct prompt_maker *p, struct slice text, bool special, size_t most)
{
	const struct tokenizer *t = p->m->tokenizer;
	uint64_t since = now_ns();
	char why[PROMPT_WHY_BYTES / 2];
	int r;

	if (p->ids.n + most > PROMPT_IDS_MAX)
		most = PROMPT_IDS_MAX > p->ids.n ? PROMPT_IDS_MAX - p->ids.n : 0;
	r = segments_encode(p->cache, t, p->scratch, text, special, most, &p->ids);
	p->tokenize_ns += now_ns() - since;
	if (r == 0)
		return true;
	if (r == -ENOMEM)
		return prompt_no_memory(p);
	tokenizer_trouble(t, p->scratch, r, why, sizeof why);
	return prompt_stop(p, r == -EILSEQ ? PROMPT_REFUSED : PROMPT_TOO_MUCH, "the text: %s", why);
}

/* How many tokens truncation leaves; SIZE_MAX: all.  False: the model's length is not known. */
static bool
left_by(struct prompt_maker *p, const struct prompt_cut *cut, size_t *ret)
{
	uint32_t len = p->m->max_len;

	*ret = SIZE_MAX;
	if (cut->keep == PROMPT_ABSENT)
		return true;
	if (cut->keep >= 0) {
		*ret = (size_t)cut->keep;
		return *ret > 0 || prompt_stop(p, PROMPT_REFUSED, "truncate_prompt_tokens 0");
	}
	if (len == 0)
		return prompt_stop(p, PROMPT_UNKNOWN, "truncated to what the model takes, and "
				   "that is not known");
	*ret = cut->max_output ? len - 1u : len;
	return true;
}

/* Takes from the ids behind `from` all but `keep`: the last ones, or the first. */
static void
keep_of(struct prompt_maker *p, size_t from, size_t keep, bool first)
{
	size_t n = p->ids.n - from;

	if (n <= keep)
		return;
	if (!first)
		memmove(p->ids.id + from, p->ids.id + from + n - keep,
			keep * sizeof p->ids.id[0]);
	p->ids.n = from + keep;
}

static bool
whole(struct prompt_maker *p, size_t from, size_t most)
{
	size_t n = p->ids.n - from;

	if (n == 0)
		return prompt_stop(p, PROMPT_REFUSED, "the prompt is empty");
	if (p->m->max_len && n > p->m->max_len)
		prompt_stop(p, PROMPT_TOO_LONG, "more than the %u tokens the model takes",
			    p->m->max_len);
	else if (n >= most)
		prompt_stop(p, PROMPT_TOO_LONG, "stopped at %zu tokens", most);
	return add_prompt(p, from);
}

/* Truncated: all of it is made, then cut as the tokenizer, or the engine behind it, cuts. */
static bool
add_truncated(struct prompt_maker *p, struct slice text, const struct prompt_cut *cut, size_t keep)
{
	const uint32_t *before, *after;
	size_t from = p->ids.n, n_after = 0, n_before, inner;
	bool own = cut->side == PROMPT_SIDE_DEFAULT;
	bool first = own ? cut->keeps_first : cut->side == PROMPT_SIDE_RIGHT;

	n_before = tokenizer_specials(p->m->tokenizer, &before, &after, &n_after);
	if (!cut->add_special)
		n_before = n_after = 0;
	if (!own) {
		if (!encode(p, text, cut->add_special, PROMPT_IDS_MAX))
			return false;
		keep_of(p, from, keep, first);
		return whole(p, from, SIZE_MAX);
	}
	/* The tokenizer's own truncation keeps room for its special tokens. */
	inner = keep > n_before + n_after ? keep - n_before - n_after : 0;
	if (ids_add(&p->ids, before, n_before) < 0)
		return prompt_no_memory(p);
	if (!encode(p, text, false, PROMPT_IDS_MAX))
		return false;
	keep_of(p, from + n_before, inner, first);
	if (ids_add(&p->ids, after, n_after) < 0)
		return prompt_no_memory(p);
	keep_of(p, from, keep, first);
	return whole(p, from, SIZE_MAX);
}

static void
note_text(struct prompt_maker *p, struct slice text, const struct prompt_cut *cut)
{
	if (p->n_prompts)
		return;
	p->rendered = text;
	p->add_special = cut->add_special;
}

bool
prompt_add_text(struct prompt_maker *p, struct slice text, const struct prompt_cut *cut)
{
	size_t from = p->ids.n, keep;

	note_text(p, text, cut);
	if (p->text_only)
		return true;
	if (!left_by(p, cut, &keep))
		return false;
	if (keep != SIZE_MAX)
		return add_truncated(p, text, cut, keep);
	return encode(p, text, cut->add_special, p->max_ids) && whole(p, from, p->max_ids);
}

bool
prompt_add_prefix(struct prompt_maker *p, struct slice text, size_t common,
		  const struct prompt_cut *cut)
{
	const uint32_t *before, *after;
	struct tokenizer_cut stretch;
	size_t from = p->ids.n, n_after, n, off = 0, sure = 0, bad;

	note_text(p, text, cut);
	if (p->text_only)
		return true;
	if (cut->keep != PROMPT_ABSENT && !cut->keeps_first && cut->side != PROMPT_SIDE_RIGHT)
		return prompt_stop(p, PROMPT_UNKNOWN, "truncated from the left, with media");
	if (!unicode_valid(text, &bad))
		return prompt_stop(p, PROMPT_REFUSED, "the text is no UTF-8, or has half a "
				   "surrogate pair: no tokenizer takes it");
	while (tokenizer_cut(p->m->tokenizer, text, &off, &stretch) && off <= common)
		sure = off;
	n = tokenizer_specials(p->m->tokenizer, &before, &after, &n_after);
	if (cut->add_special && ids_add(&p->ids, before, n) < 0)
		return prompt_no_memory(p);
	if (!encode(p, slice_of(text.p, sure), false, p->max_ids))
		return false;
	prompt_stop(p, PROMPT_PREFIX, "exact up to the first medium: its tokens are the engine's "
		    "to say");
	return add_prompt(p, from);
}

bool
prompt_add_ids(struct prompt_maker *p, const uint32_t *id, size_t n, const struct prompt_cut *cut)
{
	bool first = cut->side == PROMPT_SIDE_DEFAULT ? cut->keeps_first :
		     cut->side == PROMPT_SIDE_RIGHT;
	size_t from = p->ids.n, keep;

	if (!left_by(p, cut, &keep))
		return false;
	if (n > keep) {
		id += first ? 0 : n - keep;
		n = keep;
	}
	if (n > p->max_ids)
		n = p->max_ids;
	if (n > PROMPT_IDS_MAX - from)
		n = PROMPT_IDS_MAX - from;
	if (ids_add(&p->ids, id, n) < 0)
		return prompt_no_memory(p);
	return whole(p, from, p->max_ids);
}

bool
prompt_add_id_list(struct prompt_maker *p, struct value list, const struct prompt_cut *cut)
{
	uint32_t *id = bump_take(&p->bump, list.n * sizeof id[0]);

	if (!id)
		return prompt_no_memory(p);
	for (uint32_t i = 0; i < list.n; i++) {
		struct value v = list.items[i];

		if (v.kind != VALUE_INT || v.i < 0 || v.i > UINT32_MAX)
			return prompt_stop(p, PROMPT_REFUSED, "token %u is no id", i);
		id[i] = (uint32_t)v.i;
	}
	return prompt_add_ids(p, id, list.n, cut);
}

/* --- the maker ----------------------------------------------------------------------------- */

int
prompt_maker_new(struct prompt_maker **ret)
{
	struct prompt_maker *p = calloc(1, sizeof *p);
	int r;

	if (!p)
		return -ENOMEM;
	bump_init(&p->bump, PROMPT_ARENA_BYTES);
	text_init(&p->text, PROMPT_TEXT_BYTES);
	text_init(&p->marked, PROMPT_TEXT_BYTES);
	p->clock = INT64_MIN;
	r = tokenizer_scratch_new(&p->scratch);
	if (r < 0)
		prompt_maker_free(&p);
	else
		*ret = p;
	return r;
}

void
prompt_maker_free(struct prompt_maker **ret)
{
	struct prompt_maker *p = *ret;

	*ret = NULL;
	if (!p)
		return;
	if (p->scratch)
		tokenizer_scratch_free(&p->scratch);
	text_free(&p->marked);
	text_free(&p->text);
	bump_free(&p->bump);
	ids_free(&p->ids);
	free(p->prompts);
	free(p);
}

void
prompt_maker_clock(struct prompt_maker *p, int64_t unix_seconds)
{
	p->clock = unix_seconds;
}

void
prompt_maker_stop(struct prompt_maker *p, const atomic_bool *stop)
{
	p->stop = stop;
	tokenizer_scratch_stop(p->scratch, stop);
}

void
prompt_maker_bounds(struct prompt_maker *p, uint64_t steps, size_t bytes)
{
	p->max_steps = steps;
	p->bump.max = p->text.max = p->marked.max = bytes;
}

void
prompt_maker_give_back(struct prompt_maker *p)
{
	bump_give_back(&p->bump, PROMPT_KEEP_BYTES);
	text_give_back(&p->text, PROMPT_KEEP_BYTES);
	text_give_back(&p->marked, PROMPT_KEEP_BYTES);
	if (p->ids.cap * sizeof p->ids.id[0] > PROMPT_KEEP_BYTES)
		ids_free(&p->ids);
	tokenizer_scratch_give_back(p->scratch, PROMPT_KEEP_BYTES);
}

const char *
prompt_end_name(enum prompt_end end)
{
	static const char *const names[] = {"exact", "prefix", "too-long", "refused", "unknown",
					   "too-much"};

	return names[end];
}

static bool
by_template(struct prompt_maker *p, enum openai_route route, struct slice body)
{
	struct prompt_ask ask = {0};
	uint64_t since = now_ns(), tokenized = p->tokenize_ns;
	struct value v;
	bool fine = prompt_body(p, body, &v);

	if (fine && route == OPENAI_RESPONSES)
		fine = responses_ask(p, v, &ask);
	else if (fine && route == OPENAI_CHAT)
		fine = chat_ask(p, v, &ask);
	else if (fine && route == OPENAI_TOKENIZE)
		fine = chat_tokenize_ask(p, v, &ask);
	else if (fine)
		fine = messages_ask(p, v, route == OPENAI_COUNT_TOKENS, &ask);
	p->parse_ns = now_ns() - since;
	since = now_ns();
	fine = fine && render_ask(p, &ask);
	p->render_ns = now_ns() - since - (p->tokenize_ns - tokenized);
	return fine;
}

static bool
by_route(struct prompt_maker *p, enum openai_route route, struct slice body)
{
	struct openai_view view;
	const char *why;

	switch (route) {
	case OPENAI_CHAT:
	case OPENAI_RESPONSES:
	case OPENAI_MESSAGES:
	case OPENAI_COUNT_TOKENS:
		return by_template(p, route, body);
	case OPENAI_COMPLETIONS:
		return completions_add(p, body);
	case OPENAI_EMBEDDINGS:
	case OPENAI_POOLING:
	case OPENAI_CLASSIFY:
		return embeddings_add(p, body);
	case OPENAI_GENERATE:
		return generate_add(p, body);
	case OPENAI_TOKENIZE:
		if (openai_view_parse(body.p, body.len, &view, &why) == 0 &&
		    view.field[OPENAI_FIELD_MESSAGES].len_bytes)
			return by_template(p, route, body);
		return tokenize_add(p, body);
	case OPENAI_SCORE:
	case OPENAI_RERANK:
		return prompt_stop(p, PROMPT_UNKNOWN, "how pairs are put together is the model's "
				   "own rule");
	default:
		return prompt_stop(p, PROMPT_UNKNOWN, "this route has no prompt");
	}
}

static void
begin(struct prompt_maker *p, const struct model *m, struct segments *cache, size_t max_ids)
{
	bump_reset(&p->bump);
	text_clear(&p->text);
	p->ids.n = 0;
	p->n_prompts = 0;
	p->m = m;
	p->cache = cache;
	p->max_ids = max_ids ? max_ids : m->max_len ? m->max_len + 1u : PROMPT_IDS_MAX;
	p->end = PROMPT_EXACT;
	p->no_memory = p->add_special = false;
	p->salt = p->rendered = (struct slice){NULL, 0};
	p->parse_ns = p->render_ns = p->tokenize_ns = 0;
	p->why[0] = '\0';
}

static int
finish(struct prompt_maker *p, bool fine, struct prompt_made *ret)
{
	size_t at = 0;

	for (uint32_t i = 0; i < p->n_prompts; i++) {
		p->prompts[i].ids = p->ids.id + at;
		at += p->prompts[i].n;
	}
	*ret = (struct prompt_made){.end = p->end, .why = p->why, .prompts = p->prompts,
		.n_prompts = fine ? p->n_prompts : 0, .salt = p->salt, .text = p->rendered,
		.add_special = p->add_special, .parse_ns = p->parse_ns,
		.render_ns = p->render_ns, .tokenize_ns = p->tokenize_ns};
	return p->no_memory ? -ENOMEM : 0;
}

int
prompt_make(struct prompt_maker *p, const struct model *m, struct segments *cache,
	    enum openai_route route, struct slice body, size_t max_ids, struct prompt_made *ret)
{
	bool fine;

	begin(p, m, cache, max_ids);
	p->text_only = false;
	if (!m->tokenizer)
		fine = prompt_stop(p, PROMPT_UNKNOWN, "the model has no tokenizer");
	else if (m->foreign && route != OPENAI_COMPLETIONS && route != OPENAI_GENERATE)
		fine = prompt_stop(p, PROMPT_UNKNOWN, "%s", m->foreign);
	else
		fine = by_route(p, route, body);
	return finish(p, fine, ret);
}

int
prompt_text(struct prompt_maker *p, const struct model *m, enum openai_route route,
	    struct slice body, struct prompt_made *ret)
{
	begin(p, m, NULL, 0);
	p->text_only = true;
	return finish(p, by_route(p, route, body), ret);
}

int
prompt_context(struct prompt_maker *p, const struct model *m, struct slice context,
	       struct prompt_made *ret)
{
	struct value v;

	begin(p, m, NULL, 0);
	p->text_only = true;
	return finish(p, prompt_body(p, context, &v) && render_context(p, v), ret);
}
