/* actors/policy/prompt.c -- ids, salt and /tokenize requests; see prompt.h. */
#include "actors/policy/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SALT_MAX_BYTES 1024u
#define NAME_MAX_BYTES 1024u            /* a model name, escaped */

struct prompt {
	uint32_t *ids;
	size_t cap_ids;
	char *text;
	size_t n_text, cap_text;
	char salt[SALT_MAX_BYTES];
};

int
prompt_new(struct prompt **ret)
{
	struct prompt *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	*ret = p;
	return 0;
}

void
prompt_free(struct prompt **ret)
{
	if (!*ret)
		return;
	free((*ret)->ids);
	free((*ret)->text);
	free(*ret);
	*ret = NULL;
}

/* Does the key of a media part stand at this quote, as its first byte or its last? */
static bool
media_at(const char *begin, const char *quote, const char *end)
{
	static const char *const media[] = {"\"input_audio\"", "\"image\"", "\"image_pil\""};
	size_t left = (size_t)(end - quote);

	if (quote - begin >= 4 && memcmp(quote - 4, "_url", 4) == 0)
		return true;
	for (unsigned i = 0; i < sizeof media / sizeof *media; i++)
		if (left >= strlen(media[i]) && memcmp(quote, media[i], strlen(media[i])) == 0)
			return true;
	return false;
}

/* Inside a string these quotes would be escaped, so text that speaks of them does not match; a key
 * spelled with escapes misroutes its own request and nothing else.  From quote to quote, since a
 * prompt may be long and is read once for this. */
static bool
holds_media(struct slice where)
{
	const char *p = where.p, *quote;

	for (size_t left = where.len; left > 0 && (quote = memchr(p, '"', left)); p = quote + 1) {
		left -= (size_t)(quote - p) + 1;
		if (media_at(where.p, quote, where.p + where.len))
			return true;
	}
	return false;
}

bool
prompt_may_hit(const struct openai_view *view, const char *body)
{
	/* features: media that a client has rendered to placeholder ids (/inference/v1/generate) */
	return openai_field(view, body, OPENAI_FIELD_PROMPT_LOGPROBS).len == 0 &&
	       openai_field(view, body, OPENAI_FIELD_FEATURES).len == 0 &&
	       openai_field(view, body, OPENAI_FIELD_TRUNCATE_PROMPT_TOKENS).len == 0 &&
	       !holds_media(openai_field(view, body, OPENAI_FIELD_MESSAGES));
}

bool
prompt_salt(struct prompt *p, const struct openai_view *view, const char *body, struct slice *ret)
{
	*ret = (struct slice){NULL, 0};
	if (!view->cache_salt.raw.p)
		return openai_field(view, body, OPENAI_FIELD_CACHE_SALT).len == 0;
	ssize_t n = json_unescape(&view->cache_salt, p->salt, sizeof p->salt);

	if (n < 0 || !openai_salt_fits(slice_of(p->salt, (size_t)n)))
		return false;
	*ret = (struct slice){p->salt, (size_t)n};
	return true;
}

static bool
room_for_ids(struct prompt *p, size_t n)
{
	if (n <= p->cap_ids)
		return true;
	size_t cap = p->cap_ids ? p->cap_ids : 4096;

	while (cap < n)
		cap *= 2;
	free(p->ids);                   /* nothing in it is worth a copy */
	p->ids = malloc(cap * sizeof *p->ids);
	p->cap_ids = p->ids ? cap : 0;
	return p->ids != NULL;
}

bool
prompt_ids(struct prompt *p, const struct openai_view *view, const char *body,
	   const uint32_t **ret_ids, size_t *ret_n)
{
	ssize_t n;

	if (view->prompt != OPENAI_PROMPT_TOKENS && view->prompt != OPENAI_PROMPT_TOKEN_LISTS)
		return false;
	/* the view has counted them over bytes that are there: no declared number */
	if (!room_for_ids(p, view->n_prompt_tokens))
		return false;
	if (view->prompt == OPENAI_PROMPT_TOKENS)
		n = openai_prompt_tokens(view, body, p->ids, p->cap_ids);
	else
		n = openai_prompt_list(view, body, 0, p->ids, p->cap_ids);
	if (n < 0 || (size_t)n > p->cap_ids)
		return false;
	*ret_ids = p->ids;
	*ret_n = (size_t)n;
	return true;
}

/* ---- the /tokenize request ---- */

static bool
put(struct prompt *p, const char *bytes, size_t len)
{
	if (len > p->cap_text - p->n_text) {
		size_t cap = p->cap_text ? p->cap_text : 65536;

		while (cap - p->n_text < len)
			cap *= 2;
		char *grown = realloc(p->text, cap);

		if (!grown)
			return false;
		p->text = grown;
		p->cap_text = cap;
	}
	memcpy(p->text + p->n_text, bytes, len);
	p->n_text += len;
	return true;
}

static bool
put_str(struct prompt *p, const char *s)
{
	return put(p, s, strlen(s));
}

static bool
put_field(struct prompt *p, const struct openai_view *view, const char *body,
	  enum openai_field field, const char *before)
{
	struct slice value = openai_field(view, body, field);

	return value.len == 0 || (put_str(p, before) && put(p, value.p, value.len));
}

static bool
put_model(struct prompt *p, const char *model)
{
	char name[NAME_MAX_BYTES];
	ssize_t n = json_escape((struct slice){model, strlen(model)}, name, sizeof name);

	return n >= 0 && put_str(p, "{\"model\":\"") && put(p, name, (size_t)n) && put_str(p, "\"");
}

/* chat_template_kwargs, and beside them what the engine hands to the template the same way. */
static bool
put_kwargs(struct prompt *p, const struct openai_view *view, const char *body)
{
	struct slice kwargs = openai_field(view, body, OPENAI_FIELD_CHAT_TEMPLATE_KWARGS);
	struct slice documents = openai_field(view, body, OPENAI_FIELD_DOCUMENTS);
	struct slice effort = openai_field(view, body, OPENAI_FIELD_REASONING_EFFORT);
	const char *comma = "";

	if (kwargs.len == 0 && documents.len == 0 && effort.len == 0)
		return true;
	if (kwargs.len > 0 && view->field[OPENAI_FIELD_CHAT_TEMPLATE_KWARGS].type != JSON_IS_OBJECT)
		return false;           /* the engine will refuse it */
	if (!put_str(p, ",\"chat_template_kwargs\":{"))
		return false;
	if (documents.len > 0) {
		if (!put_str(p, "\"documents\":") || !put(p, documents.p, documents.len))
			return false;
		comma = ",";
	}
	if (effort.len > 0) {
		if (!put_str(p, comma) || !put_str(p, "\"reasoning_effort\":") ||
		    !put(p, effort.p, effort.len))
			return false;
		comma = ",";
	}
	if (kwargs.len == 0)
		return put_str(p, "}");
	/* the object's own members last: they win, as they do in the engine */
	const char *inside = kwargs.p + 1;
	size_t left = kwargs.len - 1;

	while (left > 0 && strchr(" \t\r\n", *inside)) {
		inside++;
		left--;
	}
	if (*inside == '}')
		comma = "";
	return put_str(p, comma) && put(p, inside, left);
}

/* ---- messages ---- */

#define REASONING	  "reasoning"
#define REASONING_CONTENT "reasoning_content"

struct named {                          /* two keys of a message, as they stand; NULL: not there */
	struct slice reasoning, content;
	bool said;                              /* reasoning, and it is not null */
};

static bool
message_names(struct slice message, struct named *ret)
{
	struct json_string key;
	struct json_cursor c;

	*ret = (struct named){0};
	json_begin(&c, message.p, message.len);
	if (json_peek(&c) != JSON_IS_OBJECT)
		return true;            /* the engine will refuse it */
	if (!json_enter_object(&c))
		return false;
	while (json_next_member(&c, &key)) {
		if (json_string_eq(&key, REASONING)) {
			ret->reasoning = key.raw;
			ret->said = json_peek(&c) != JSON_IS_NULL;
		} else if (json_string_eq(&key, REASONING_CONTENT)) {
			ret->content = key.raw;
		}
		if (!json_skip(&c))
			return false;
	}
	return json_end(&c) == 0;
}

/* All from *at up to this key, and another one in its place. */
static bool
put_renamed(struct prompt *p, const char **at, struct slice key, const char *name)
{
	const char *begin = *at;

	*at = key.p + key.len;
	return put(p, begin, (size_t)(key.p - begin)) && put_str(p, name);
}

/* What was `reasoning_content` goes as `reasoning`, unless that is said: /tokenize does not know
 * the older name, which the engine takes in a chat.  A null `reasoning` beside it swaps names. */
static bool
put_messages(struct prompt *p, struct slice messages)
{
	const char *at = messages.p, *end = messages.p + messages.len;
	struct json_cursor c;
	struct slice message;
	struct named n;

	json_begin(&c, messages.p, messages.len);
	if (!put_str(p, ",\"messages\":") || !json_enter_array(&c))
		return false;
	while (json_next_element(&c)) {
		if (!json_get_raw(&c, &message) || !message_names(message, &n))
			return false;
		if (!n.content.p || n.said)
			continue;
		if (n.reasoning.p && n.reasoning.p < n.content.p &&
		    !put_renamed(p, &at, n.reasoning, REASONING_CONTENT))
			return false;
		if (!put_renamed(p, &at, n.content, REASONING))
			return false;
		if (n.reasoning.p && n.reasoning.p > n.content.p &&
		    !put_renamed(p, &at, n.reasoning, REASONING_CONTENT))
			return false;
	}
	return json_end(&c) == 0 && put(p, at, (size_t)(end - at));
}

static bool
put_chat(struct prompt *p, const struct openai_view *view, const char *body)
{
	static const struct {
		enum openai_field field;
		const char *before;
	} same[] = {
		{OPENAI_FIELD_TOOLS, ",\"tools\":"},
		{OPENAI_FIELD_CHAT_TEMPLATE, ",\"chat_template\":"},
		{OPENAI_FIELD_ADD_GENERATION_PROMPT, ",\"add_generation_prompt\":"},
		{OPENAI_FIELD_CONTINUE_FINAL_MESSAGE, ",\"continue_final_message\":"},
		{OPENAI_FIELD_ADD_SPECIAL_TOKENS, ",\"add_special_tokens\":"},
	};

	if (!put_messages(p, openai_field(view, body, OPENAI_FIELD_MESSAGES)))
		return false;
	for (unsigned i = 0; i < sizeof same / sizeof *same; i++)
		if (!put_field(p, view, body, same[i].field, same[i].before))
			return false;
	return put_kwargs(p, view, body);
}

/* The bytes of the first prompt: the string itself, or the first of an array. */
static struct slice
first_text(const struct openai_view *view, const char *body)
{
	struct slice all = {body + view->prompt_span.off_bytes, view->prompt_span.len_bytes}, first;
	struct json_cursor c;

	if (view->prompt == OPENAI_PROMPT_TEXT)
		return all;
	json_begin(&c, all.p, all.len);
	if (!json_enter_array(&c) || !json_next_element(&c) || !json_get_raw(&c, &first))
		return (struct slice){NULL, 0};
	return first;
}

bool
prompt_request(struct prompt *p, enum openai_route route, const struct openai_view *view,
	       const char *body, const char *model, struct slice *ret)
{
	struct slice first;

	p->n_text = 0;
	switch (route) {
	case OPENAI_CHAT:
		if (view->field[OPENAI_FIELD_MESSAGES].type != JSON_IS_ARRAY ||
		    !put_model(p, model) || !put_chat(p, view, body))
			return false;
		break;
	case OPENAI_COMPLETIONS:
		if (view->prompt != OPENAI_PROMPT_TEXT && view->prompt != OPENAI_PROMPT_TEXTS)
			return false;
		first = first_text(view, body);
		if (first.len == 0 || !put_model(p, model) || !put_str(p, ",\"prompt\":") ||
		    !put(p, first.p, first.len) ||
		    !put_field(p, view, body, OPENAI_FIELD_ADD_SPECIAL_TOKENS,
			       ",\"add_special_tokens\":"))
			return false;
		break;
	default:
		return false;
	}
	if (!put_str(p, "}"))
		return false;
	*ret = (struct slice){p->text, p->n_text};
	return true;
}

uint32_t
prompt_all_tokens(const struct openai_view *view, const char *body, size_t first)
{
	uint64_t all = first;

	if (view->prompt == OPENAI_PROMPT_TEXTS && view->n_prompts > 1) {
		struct slice text = first_text(view, body);

		if (text.len > 0)
			all = first * (uint64_t)view->prompt_span.len_bytes / text.len;
	}
	return all > UINT32_MAX ? UINT32_MAX : (uint32_t)all;
}
