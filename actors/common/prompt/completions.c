/* actors/common/prompt/completions.c -- routes whose prompts are given as they are.
 *
 * The body is walked once by the strict cursor for where the few members lie that matter; ids are
 * read where they stand, so that a prompt of a hundred thousand of them is no hundred thousand
 * values.
 */
#include <string.h>

#include "actors/common/prompt/request_private.h"
#include "proto/json.h"

#define COMPLETION_TOKENS 16            /* of an answer, where the request does not say */

enum member {
	AT_PROMPT, AT_INPUT, AT_TOKEN_IDS, AT_MESSAGES, AT_EMBEDS, AT_SUFFIX, AT_SALT, AT_FEATURES,
	AT_TRUNCATE, AT_SIDE, AT_SPECIAL, AT_MAX_TOKENS, AT_MEMBERS
};

static const char *const names[AT_MEMBERS] = {
	"prompt", "input", "token_ids", "messages", "prompt_embeds", "suffix", "cache_salt",
	"features", "truncate_prompt_tokens", "truncation_side", "add_special_tokens", "max_tokens",
};

struct walk {
	struct prompt_maker *p;
	struct slice at[AT_MEMBERS];            /* p NULL: absent or null */
	struct prompt_cut cut;
};

/* The last of equal keys counts, as in Python. */
static bool
walk_body(struct walk *w, struct slice body)
{
	struct json_cursor c;
	struct json_string key;

	json_begin(&c, body.p, body.len);
	if (json_peek(&c) != JSON_IS_OBJECT)
		return prompt_stop(w->p, PROMPT_REFUSED, "the body is no JSON object");
	json_enter_object(&c);
	while (json_next_member(&c, &key)) {
		struct slice raw;
		unsigned i = 0;

		while (i < AT_MEMBERS && !json_string_eq(&key, names[i]))
			i++;
		if (i == AT_MEMBERS)
			json_skip(&c);
		else if (json_get_raw(&c, &raw))
			w->at[i] = slice_eq_str(raw, "null") ? (struct slice){NULL, 0} : raw;
	}
	if (json_end(&c) < 0)
		return prompt_stop(w->p, PROMPT_UNKNOWN, "body, byte %zu: %s", c.error_off, c.why);
	return true;
}

/* The members in the form that the chat routes have them. */
static bool
value_of(struct walk *w, enum member i, struct value *ret)
{
	const char *why;

	*ret = value_none();
	if (!w->at[i].p)
		return true;
	return value_from_json(&w->p->bump, w->at[i], ret, &why, NULL) == 0 ||
	       prompt_no_memory(w->p);
}

static bool
cut_of(struct walk *w)
{
	static const enum member from[] = {AT_TRUNCATE, AT_SIDE, AT_SPECIAL};
	struct value_dict *d = value_dict_new(&w->p->bump, 3);
	struct value v;

	for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
		if (!value_of(w, from[i], &v))
			return false;
		if (!d || (v.kind != VALUE_NONE && !value_put_str(d, names[from[i]], v)))
			return prompt_no_memory(w->p);
	}
	if (!lax_cut(w->p, value_of_dict(d), &w->cut))
		return false;
	return value_of(w, AT_MAX_TOKENS, &v) &&
	       lax_output(w->p, "max_tokens", v, COMPLETION_TOKENS, &w->cut);
}

static bool
add_ids(struct walk *w, struct json_cursor *c)
{
	struct json_cursor again = *c;
	uint32_t *id;
	size_t n = 0;

	if (!json_get_u32_array(c, NULL, 0, &n))
		return prompt_stop(w->p, PROMPT_REFUSED, "a prompt is neither text nor token ids");
	id = bump_take(&w->p->bump, n * sizeof id[0]);
	if (!id)
		return prompt_no_memory(w->p);
	json_get_u32_array(&again, id, n, &n);
	return prompt_add_ids(w->p, id, n, &w->cut);
}

static bool
add_text(struct walk *w, struct json_cursor *c)
{
	struct slice raw;
	struct value text;
	const char *why;

	if (!json_get_raw(c, &raw) ||
	    value_from_json(&w->p->bump, raw, &text, &why, NULL) < 0)
		return prompt_no_memory(w->p);
	return prompt_add_text(w->p, value_slice(text), &w->cut);
}

/* "text" | [1, 2] | ["text", ...] | [[1, 2], ...] */
static bool
add_prompts(struct walk *w, struct slice raw)
{
	struct json_cursor c;
	uint32_t n = 0;

	json_begin(&c, raw.p, raw.len);
	if (json_peek(&c) == JSON_IS_STRING)
		return add_text(w, &c);
	if (json_peek(&c) != JSON_IS_ARRAY)
		return prompt_stop(w->p, PROMPT_REFUSED, "the prompt is neither text nor list");
	json_enter_array(&c);
	while (json_next_element(&c)) {
		enum json_type type = json_peek(&c);

		if (type == JSON_IS_NUMBER && n == 0) {
			json_begin(&c, raw.p, raw.len);
			return add_ids(w, &c);
		}
		if (n++ == PROMPT_LISTS_MAX)
			break;          /* more of them route no better */
		if (type == JSON_IS_STRING ? !add_text(w, &c) : !add_ids(w, &c))
			return false;
	}
	return n > 0 || prompt_stop(w->p, PROMPT_REFUSED, "there is no prompt");
}

static bool
salt_of(struct walk *w)
{
	struct value salt;

	return value_of(w, AT_SALT, &salt) && prompt_take_salt(w->p, salt);
}

bool
completions_add(struct prompt_maker *p, struct slice body)
{
	struct walk w = {.p = p, .cut = {.add_special = true}};

	if (!walk_body(&w, body) || !salt_of(&w) || !cut_of(&w))
		return false;
	if (w.at[AT_SUFFIX].p)
		return prompt_stop(p, PROMPT_REFUSED, "suffix is not supported");
	if (w.at[AT_EMBEDS].p)
		return prompt_stop(p, PROMPT_UNKNOWN, "the prompt is embeddings");
	if (!w.at[AT_PROMPT].p)
		return prompt_stop(p, PROMPT_REFUSED, "there is no prompt");
	return add_prompts(&w, w.at[AT_PROMPT]);
}

bool
embeddings_add(struct prompt_maker *p, struct slice body)
{
	struct walk w = {.p = p, .cut = {.add_special = true, .keeps_first = true}};

	if (!walk_body(&w, body) || !salt_of(&w) || !cut_of(&w))
		return false;
	w.cut.max_output = 0;
	if (w.at[AT_MESSAGES].p)
		return prompt_stop(p, PROMPT_UNKNOWN, "embeddings of a conversation");
	if (!w.at[AT_INPUT].p)
		return prompt_stop(p, PROMPT_REFUSED, "there is no input");
	return add_prompts(&w, w.at[AT_INPUT]);
}

bool
tokenize_add(struct prompt_maker *p, struct slice body)
{
	struct walk w = {.p = p, .cut = {.add_special = true}};

	if (!walk_body(&w, body))
		return false;
	w.at[AT_TRUNCATE] = w.at[AT_SIDE] = w.at[AT_MAX_TOKENS] = (struct slice){NULL, 0};
	if (!cut_of(&w))
		return false;
	if (!w.at[AT_PROMPT].p || w.at[AT_PROMPT].p[0] != '"')
		return prompt_stop(p, PROMPT_REFUSED, "the prompt is no text");
	return add_prompts(&w, w.at[AT_PROMPT]);
}

bool
generate_add(struct prompt_maker *p, struct slice body)
{
	struct walk w = {.p = p, .cut = {.keep = PROMPT_ABSENT}};
	struct json_cursor c;

	if (!walk_body(&w, body) || !salt_of(&w))
		return false;
	if (w.at[AT_FEATURES].p)
		return prompt_stop(p, PROMPT_UNKNOWN, "media with features of their own");
	if (!w.at[AT_TOKEN_IDS].p)
		return prompt_stop(p, PROMPT_REFUSED, "there are no token_ids");
	json_begin(&c, w.at[AT_TOKEN_IDS].p, w.at[AT_TOKEN_IDS].len);
	return add_ids(&w, &c);
}
