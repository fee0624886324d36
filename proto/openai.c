/* proto/openai.c -- the view of a request body. */
#include "proto/openai.h"

#include <errno.h>
#include <string.h>

/* --- the view --- */

static const char *const field_keys[] = {
#define FIELD_KEY(suffix, key) [OPENAI_FIELD_##suffix] = key,
	OPENAI_FIELDS(FIELD_KEY)
#undef FIELD_KEY
};

/* Fields of which a second one is refused: what a policy checks must be what the engine runs. */
static const uint64_t once_only = 1ULL << OPENAI_FIELD_MODEL | 1ULL << OPENAI_FIELD_STREAM |
				  1ULL << OPENAI_FIELD_USER | 1ULL << OPENAI_FIELD_MESSAGES |
				  1ULL << OPENAI_FIELD_PROMPT |
				  1ULL << OPENAI_FIELD_PREVIOUS_RESPONSE_ID;
_Static_assert(OPENAI_N_FIELDS <= 64, "one bit per field");

/* What a value that may be a prompt looks like. */
struct prompt {
	enum openai_prompt form;
	size_t             n_prompts;
	size_t             n_tokens;
};

static enum openai_field
field_of(const struct json_string *key)
{
	for (unsigned i = 0; i < OPENAI_N_FIELDS; i++)
		if (json_string_eq(key, field_keys[i]))
			return (enum openai_field)i;
	return OPENAI_N_FIELDS;
}

/* An array of integers, or, from the same place, whatever else it is. */
static bool
take_tokens(struct json_cursor *c, size_t *ret_n)
{
	struct json_cursor retry = *c;

	if (json_get_u32_array(c, NULL, 0, ret_n))
		return true;
	*c = retry;
	json_skip(c);
	return false;
}

/* An array whose elements are all strings, or all arrays of integers. */
static struct prompt
take_prompt_list(struct json_cursor *c)
{
	struct prompt got = {.form = OPENAI_PROMPT_OTHER};

	json_enter_array(c);
	while (json_next_element(c)) {
		enum openai_prompt form = OPENAI_PROMPT_OTHER;
		enum json_type type = json_peek(c);
		size_t n;

		if (type == JSON_IS_ARRAY) {
			if (take_tokens(c, &n)) {
				form = OPENAI_PROMPT_TOKEN_LISTS;
				got.n_tokens += n;
			}
		} else {
			json_skip(c);
			if (type == JSON_IS_STRING)
				form = OPENAI_PROMPT_TEXTS;
		}
		if (got.n_prompts++ == 0)
			got.form = form;
		else if (got.form != form)
			got.form = OPENAI_PROMPT_OTHER;
	}
	if (got.form == OPENAI_PROMPT_OTHER)
		return (struct prompt){OPENAI_PROMPT_OTHER, 1, 0};
	return got;
}

static struct prompt
take_prompt(struct json_cursor *c)
{
	struct json_cursor ahead = *c;
	size_t n;

	switch (json_peek(c)) {
	case JSON_IS_NULL:
		json_skip(c);
		return (struct prompt){OPENAI_PROMPT_NONE, 0, 0};
	case JSON_IS_STRING:
		json_skip(c);
		return (struct prompt){OPENAI_PROMPT_TEXT, 1, 0};
	case JSON_IS_ARRAY:
		json_enter_array(&ahead);
		if (!json_next_element(&ahead) || json_peek(&ahead) != JSON_IS_NUMBER)
			return take_prompt_list(c);
		if (take_tokens(c, &n))
			return (struct prompt){OPENAI_PROMPT_TOKENS, 1, n};
		return (struct prompt){OPENAI_PROMPT_OTHER, 1, 0};
	default:
		json_skip(c);
		return (struct prompt){OPENAI_PROMPT_OTHER, 1, 0};
	}
}

/* An int64, or OPENAI_UNKNOWN for every other value. */
static int64_t
take_i64(struct json_cursor *c)
{
	struct slice number;
	int64_t v;

	if (json_peek(c) != JSON_IS_NUMBER) {
		json_skip(c);
		return OPENAI_UNKNOWN;
	}
	if (!json_get_number(c, &number) || json_to_i64(number, &v) < 0)
		return OPENAI_UNKNOWN;
	return v;
}

/* The value when it is a string; else absent. */
static struct json_string
take_string(struct json_cursor *c)
{
	struct json_string s = {0};

	if (json_peek(c) == JSON_IS_STRING)
		json_get_string(c, &s);
	else
		json_skip(c);
	return s;
}

static bool
take_include_usage(struct json_cursor *c)
{
	struct json_string key;
	bool on = false;

	if (json_peek(c) != JSON_IS_OBJECT) {
		json_skip(c);
		return false;
	}
	json_enter_object(c);
	while (json_next_member(c, &key)) {
		if (json_string_eq(&key, "include_usage"))
			on = json_peek(c) == JSON_IS_TRUE;
		json_skip(c);
	}
	return on;
}

static const char *
take_model(struct json_cursor *c, struct openai_view *v)
{
	struct json_string s;
	ssize_t n;

	v->n_model = 0;
	v->model[0] = '\0';
	switch (json_peek(c)) {
	case JSON_IS_NULL:
		json_skip(c);
		return NULL;
	case JSON_IS_STRING:
		break;
	default:
		return "model is not a string";
	}
	if (!json_get_string(c, &s))
		return NULL;
	n = json_unescape(&s, v->model, OPENAI_MODEL_MAX_BYTES);
	if (n < 0)
		return "model is longer than 255 bytes";
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)v->model[i] < 0x20 || v->model[i] == 0x7f)
			return "model holds a control character";
	v->n_model = (size_t)n;
	v->model[n] = '\0';
	return NULL;
}

static int
refuse(struct openai_view *v, size_t off_bytes, const char *text, const char **why)
{
	v->error_off_bytes = off_bytes;
	*why = text;
	return -400;
}

static const char *
why_twice(enum openai_field f)
{
	switch (f) {
	case OPENAI_FIELD_MODEL:
		return "model is given twice";
	case OPENAI_FIELD_STREAM:
		return "stream is given twice";
	case OPENAI_FIELD_USER:
		return "user is given twice";
	case OPENAI_FIELD_MESSAGES:
		return "messages is given twice";
	case OPENAI_FIELD_PREVIOUS_RESPONSE_ID:
		return "previous_response_id is given twice";
	default:
		return "prompt is given twice";
	}
}

int
openai_view_parse(const char *body, size_t len, struct openai_view *v, const char **why)
{
	struct prompt prompts[OPENAI_N_FIELDS];
	int64_t number[OPENAI_N_FIELDS];
	const char *wrong = NULL;
	struct json_string key;
	struct json_cursor c;
	uint64_t seen = 0;

	memset(v, 0, sizeof(*v));
	for (unsigned i = 0; i < OPENAI_N_FIELDS; i++) {
		number[i] = OPENAI_UNKNOWN;
		prompts[i] = (struct prompt){OPENAI_PROMPT_NONE, 0, 0};
	}
	if (len > UINT32_MAX)
		return refuse(v, 0, "body is longer than 4 GiB", why);
	if (len == 0)
		return refuse(v, 0, "body is empty, not a JSON object", why);

	json_begin(&c, body, len);
	if (json_peek(&c) == JSON_IS_INVALID)
		return refuse(v, c.error_off, c.why, why);
	if (!json_enter_object(&c))
		return refuse(v, c.error_off, "body is JSON, but not an object", why);
	while (json_next_member(&c, &key)) {
		enum openai_field f = field_of(&key);
		size_t key_off = (size_t)(key.raw.p - body);

		if (f == OPENAI_N_FIELDS) {
			json_skip(&c);
			continue;
		}
		if (seen & once_only & 1ULL << f)
			return refuse(v, key_off, why_twice(f), why);
		seen |= 1ULL << f;

		enum json_type type = json_peek(&c);  /* and c.p is at its first byte */
		const char *from = c.p;

		switch (f) {
		case OPENAI_FIELD_MODEL:
			wrong = take_model(&c, v);
			if (wrong)
				return refuse(v, (size_t)(from - body), wrong, why);
			break;
		case OPENAI_FIELD_PROMPT:
		case OPENAI_FIELD_INPUT:
		case OPENAI_FIELD_TOKEN_IDS:
			prompts[f] = take_prompt(&c);
			break;
		case OPENAI_FIELD_STREAM:
			v->stream = type == JSON_IS_TRUE;
			json_skip(&c);
			break;
		case OPENAI_FIELD_STREAM_OPTIONS:
			v->include_usage = take_include_usage(&c);
			break;
		case OPENAI_FIELD_USER:
			v->user = take_string(&c);
			break;
		case OPENAI_FIELD_CACHE_SALT:
			v->cache_salt = take_string(&c);
			break;
		case OPENAI_FIELD_PREVIOUS_RESPONSE_ID:
			v->previous = take_string(&c);
			break;
		case OPENAI_FIELD_MAX_TOKENS:
		case OPENAI_FIELD_MAX_COMPLETION_TOKENS:
		case OPENAI_FIELD_MAX_OUTPUT_TOKENS:
		case OPENAI_FIELD_N:
		case OPENAI_FIELD_PRIORITY:
			number[f] = take_i64(&c);
			break;
		default:
			json_skip(&c);
		}
		v->field[f] = (struct openai_span){
			.off_bytes = (uint32_t)(from - body),
			.len_bytes = type == JSON_IS_NULL ? 0 : (uint32_t)(c.p - from),
			.type = type,
		};
	}
	if (json_end(&c) < 0)
		return refuse(v, c.error_off, c.why, why);

	v->max_tokens = number[OPENAI_FIELD_MAX_COMPLETION_TOKENS];
	if (v->max_tokens == OPENAI_UNKNOWN)
		v->max_tokens = number[OPENAI_FIELD_MAX_TOKENS];
	if (v->max_tokens == OPENAI_UNKNOWN)
		v->max_tokens = number[OPENAI_FIELD_MAX_OUTPUT_TOKENS];
	v->n = number[OPENAI_FIELD_N] >= 1 ? number[OPENAI_FIELD_N] : 1;
	v->priority = number[OPENAI_FIELD_PRIORITY];

	static const enum openai_field order[] = {
		OPENAI_FIELD_PROMPT, OPENAI_FIELD_INPUT, OPENAI_FIELD_TOKEN_IDS,
	};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		const struct prompt *p = &prompts[order[i]];

		if (p->form == OPENAI_PROMPT_NONE)
			continue;
		v->prompt = p->form;
		v->prompt_span = v->field[order[i]];
		v->n_prompts = p->n_prompts;
		v->n_prompt_tokens = p->n_tokens;
		break;
	}
	return 0;
}

ssize_t
openai_prompt_tokens(const struct openai_view *v, const char *body, uint32_t *out, size_t max)
{
	struct json_cursor c;
	size_t n;

	if (v->prompt != OPENAI_PROMPT_TOKENS)
		return -EINVAL;
	json_begin(&c, body + v->prompt_span.off_bytes, v->prompt_span.len_bytes);
	return json_get_u32_array(&c, out, max, &n) ? (ssize_t)n : -EINVAL;
}

ssize_t
openai_prompt_list(const struct openai_view *v, const char *body, size_t which, uint32_t *out,
		   size_t max)
{
	struct json_cursor c;
	size_t n;

	if (v->prompt != OPENAI_PROMPT_TOKEN_LISTS)
		return -EINVAL;
	json_begin(&c, body + v->prompt_span.off_bytes, v->prompt_span.len_bytes);
	json_enter_array(&c);
	while (json_next_element(&c)) {
		if (which-- == 0)
			return json_get_u32_array(&c, out, max, &n) ? (ssize_t)n : -EINVAL;
		json_skip(&c);
	}
	return -ENOENT;
}

bool
openai_salt_fits(struct slice salt)
{
	size_t n = 0;

	for (size_t i = 0; i < salt.len; i++) {
		if (memchr("@/\\", salt.p[i], 4))      /* 4: NUL too */
			return false;
		n += ((uint8_t)salt.p[i] & 0xc0) != 0x80;
	}
	return n > 0 && n <= 128;
}

struct slice
openai_field(const struct openai_view *v, const char *body, enum openai_field f)
{
	if (v->field[f].len_bytes == 0)
		return (struct slice){NULL, 0};
	return (struct slice){body + v->field[f].off_bytes, v->field[f].len_bytes};
}
