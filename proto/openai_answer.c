/* proto/openai_answer.c -- the errors we write, and what the router reads in engines' answers. */
#include "proto/openai.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- errors --- */

static const char *
type_of_status(unsigned status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 429:
		return "rate_limit_error";
	}
	return status >= 500 ? "server_error" : "invalid_request_error";
}

static const char *
messages_type_of_status(unsigned status)
{
	switch (status) {
	case 404:
		return "not_found_error";
	case 413:
		return "request_too_large";
	case 503:
		return "overloaded_error";
	case 504:
		return "timeout_error";
	}
	return status >= 500 ? "api_error" : type_of_status(status);
}

/* Appends to out[*n]; false when it does not fit. */
static bool
put(char *out, size_t cap, size_t *n, const char *text)
{
	size_t len = strlen(text);

	if (len > cap - *n)
		return false;
	memcpy(out + *n, text, len);
	*n += len;
	return true;
}

/* Appends "text" as a JSON string, or null. */
static bool
put_string(char *out, size_t cap, size_t *n, const char *text)
{
	ssize_t len;

	if (!text)
		return put(out, cap, n, "null");
	if (!put(out, cap, n, "\""))
		return false;
	len = json_escape((struct slice){text, strlen(text)}, out + *n, cap - *n);
	if (len < 0)
		return false;
	*n += (size_t)len;
	return put(out, cap, n, "\"");
}

/* head, the message as far as it fits, tail. */
static ssize_t
write_around(char *out, size_t cap, struct slice head, const char *message, struct slice tail)
{
	const char *p = message, *end = p + strlen(p);
	size_t n = head.len;

	if (cap < head.len + tail.len)
		return -ENOSPC;
	memcpy(out, head.p, head.len);
	cap -= tail.len;
	while (p < end) {                    /* a character at a time, as far as there is room */
		size_t len = 1;

		while (len < 4 && p + len < end && ((unsigned char)p[len] & 0xc0) == 0x80)
			len++;
		ssize_t r = json_escape((struct slice){p, len}, out + n, cap - n);
		if (r < 0)
			break;
		n += (size_t)r;
		p += len;
	}
	memcpy(out + n, tail.p, tail.len);
	return (ssize_t)(n + tail.len);
}

static ssize_t
write_messages_error(char *out, size_t cap, const struct openai_error *e, struct slice end)
{
	char head[256];
	size_t n = 0;

	if (!put(head, sizeof(head), &n, "{\"type\":\"error\",\"error\":{\"type\":") ||
	    !put_string(head, sizeof(head), &n,
			e->type ? e->type : messages_type_of_status(e->status)) ||
	    !put(head, sizeof(head), &n, ",\"message\":\""))
		return -ENOSPC;
	return write_around(out, cap, slice_of(head, n), e->message, end);
}

/* type, param and code of an error of OpenAI's, behind its message. */
static bool
put_details(char *out, size_t cap, size_t *n, const struct openai_error *e, bool type)
{
	if (!put(out, cap, n, "\"") ||
	    (type && (!put(out, cap, n, ",\"type\":") ||
		      !put_string(out, cap, n, e->type ? e->type : type_of_status(e->status)))))
		return false;
	return put(out, cap, n, ",\"param\":") && put_string(out, cap, n, e->param) &&
	       put(out, cap, n, ",\"code\":") && put_string(out, cap, n, e->code);
}

ssize_t
openai_write_error(char *out, size_t cap, const struct openai_error *e)
{
	char tail[512];
	size_t n = 0;

	if (e->api == OPENAI_API_MESSAGES)
		return write_messages_error(out, cap, e, SLICE_LIT("\"}}"));
	if (!put_details(tail, sizeof(tail), &n, e, true) ||
	    !put(tail, sizeof(tail), &n, "}}"))
		return -ENOSPC;
	return write_around(out, cap, SLICE_LIT("{\"error\":{\"message\":\""), e->message,
			    slice_of(tail, n));
}

static ssize_t
write_responses_event(char *out, size_t cap, const struct openai_error *e, uint64_t events)
{
	char tail[512];
	size_t n = 0;

	if (!put_details(tail, sizeof(tail) - 64, &n, e, false))
		return -ENOSPC;
	n += (size_t)snprintf(tail + n, 64, ",\"sequence_number\":%llu}\n\n",
			      (unsigned long long)events);
	return write_around(out, cap, SLICE_LIT("{\"type\":\"error\",\"message\":\""),
			    e->message, slice_of(tail, n));
}

ssize_t
openai_write_error_event(char *out, size_t cap, const struct openai_error *e, uint64_t events)
{
	const char *before = e->api == OPENAI_API_PLAIN ? "data: " : "event: error\ndata: ";
	size_t n = 0;
	ssize_t r;

	if (cap < 2 || !put(out, cap - 2, &n, before))
		return -ENOSPC;
	if (e->api == OPENAI_API_RESPONSES) {
		r = write_responses_event(out + n, cap - n, e, events);
		return r < 0 ? r : (ssize_t)n + r;
	}
	r = openai_write_error(out + n, cap - 2 - n, e);
	if (r < 0)
		return r;
	memcpy(out + n + r, "\n\n", 2);
	return (ssize_t)n + r + 2;
}

/* --- answers --- */

static bool
is_error(struct slice data)
{
	struct json_string key, s;
	struct json_cursor c;

	if (data.len == 0 || !memmem(data.p, data.len, "\"error\"", 7))
		return false;
	json_begin(&c, data.p, data.len);
	if (json_peek(&c) != JSON_IS_OBJECT)
		return false;
	json_enter_object(&c);
	while (json_next_member(&c, &key)) {
		enum json_type type = json_peek(&c);

		if (json_string_eq(&key, "error") && type != JSON_IS_NULL &&
		    type != JSON_IS_INVALID)
			return true;
		/* {"object":"error", ...} and {"type":"error", ...} */
		if (type == JSON_IS_STRING &&
		    (json_string_eq(&key, "object") || json_string_eq(&key, "type"))) {
			if (json_get_string(&c, &s) && json_string_eq(&s, "error"))
				return true;
			continue;
		}
		json_skip(&c);
	}
	return false;
}

/* The top-level member of that name, when it is a string; absent. */
static struct json_string
string_member(struct slice json, const char *in, const char *name)
{
	struct json_string key, s = {0};
	struct json_cursor c;

	json_begin(&c, json.p, json.len);
	if (json_peek(&c) != JSON_IS_OBJECT)
		return s;
	json_enter_object(&c);
	while (json_next_member(&c, &key)) {
		enum json_type type = json_peek(&c);

		if (in && type == JSON_IS_OBJECT && json_string_eq(&key, in)) {
			json_enter_object(&c);
			in = NULL;
		} else if (!in && type == JSON_IS_STRING && json_string_eq(&key, name)) {
			if (!json_get_string(&c, &s))
				s = (struct json_string){0};
			return s;
		} else {
			json_skip(&c);
		}
	}
	return s;
}

/* Named events say what they are by name, and, engines agree, once more in `type`. */
static enum openai_event
named_event_kind(enum openai_api api, struct slice name, struct slice data)
{
	struct json_string type;

	if (name.len == 0 && data.len > 0) {
		type = string_member(data, NULL, "type");
		name = type.raw;
	}
	if (slice_eq_str(name, "error"))
		return OPENAI_EVENT_ERROR;
	if (api == OPENAI_API_MESSAGES)
		return slice_eq_str(name, "message_stop") ? OPENAI_EVENT_DONE : OPENAI_EVENT_DATA;
	if (slice_eq_str(name, "response.completed") || slice_eq_str(name, "response.incomplete"))
		return OPENAI_EVENT_DONE;
	return slice_eq_str(name, "response.failed") ? OPENAI_EVENT_FAILED : OPENAI_EVENT_DATA;
}

enum openai_event
openai_event_kind(enum openai_api api, struct slice name, struct slice data)
{
	if (slice_eq_str(data, "[DONE]"))
		return OPENAI_EVENT_DONE;
	if (api != OPENAI_API_PLAIN) {
		enum openai_event kind = named_event_kind(api, name, data);

		/* A failure before the first event comes as an engine's plain error. */
		if (kind != OPENAI_EVENT_DATA || name.len > 0)
			return kind;
	}
	return is_error(data) ? OPENAI_EVENT_ERROR : OPENAI_EVENT_DATA;
}

bool
openai_find_id(struct slice json, const char *in, struct slice *ret)
{
	struct json_string s = string_member(json, in, "id");

	if (!s.raw.p || s.escaped || !openai_is_id(s.raw))
		return false;
	*ret = s.raw;
	return true;
}

void
openai_usage_add(struct openai_usage *sum, const struct openai_usage *said)
{
	if (said->prompt_tokens != OPENAI_TOKENS_UNKNOWN)
		sum->prompt_tokens = said->prompt_tokens;
	if (said->completion_tokens != OPENAI_TOKENS_UNKNOWN)
		sum->completion_tokens = said->completion_tokens;
	if (said->cached_tokens != OPENAI_TOKENS_UNKNOWN)
		sum->cached_tokens = said->cached_tokens;
}

static void
take_count(struct json_cursor *c, uint32_t *ret)
{
	struct slice number;
	int64_t v;

	if (json_peek(c) != JSON_IS_NUMBER) {
		json_skip(c);
		return;
	}
	if (json_get_number(c, &number) && json_to_i64(number, &v) == 0 && v >= 0 &&
	    v < OPENAI_TOKENS_UNKNOWN)
		*ret = (uint32_t)v;
}

/* Unknown counts nothing. */
static uint32_t
sum_of(uint32_t a, uint32_t b)
{
	uint64_t sum = (uint64_t)(a == OPENAI_TOKENS_UNKNOWN ? 0 : a) +
		       (b == OPENAI_TOKENS_UNKNOWN ? 0 : b);

	return sum < OPENAI_TOKENS_UNKNOWN ? (uint32_t)sum : OPENAI_TOKENS_UNKNOWN - 1;
}

/* The object the cursor stands at, as usage.  False when the object is not whole. */
static bool
take_usage(struct json_cursor *c, struct openai_usage *ret)
{
	struct openai_usage u = {OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
				 OPENAI_TOKENS_UNKNOWN};
	uint32_t created = OPENAI_TOKENS_UNKNOWN, read = OPENAI_TOKENS_UNKNOWN;
	struct json_string key;

	if (!json_enter_object(c))
		return false;
	while (json_next_member(c, &key)) {
		if (json_string_eq(&key, "prompt_tokens") || json_string_eq(&key, "input_tokens")) {
			take_count(c, &u.prompt_tokens);
		} else if (json_string_eq(&key, "completion_tokens") ||
			   json_string_eq(&key, "output_tokens")) {
			take_count(c, &u.completion_tokens);
		} else if (json_string_eq(&key, "cache_read_input_tokens")) {
			take_count(c, &read);
		} else if (json_string_eq(&key, "cache_creation_input_tokens")) {
			take_count(c, &created);
		} else if ((json_string_eq(&key, "prompt_tokens_details") ||
			    json_string_eq(&key, "input_tokens_details")) &&
			   json_peek(c) == JSON_IS_OBJECT) {
			json_enter_object(c);
			while (json_next_member(c, &key)) {
				if (json_string_eq(&key, "cached_tokens"))
					take_count(c, &u.cached_tokens);
				else
					json_skip(c);
			}
		} else {
			json_skip(c);
		}
	}
	if (c->why)
		return false;
	if (read != OPENAI_TOKENS_UNKNOWN)
		u.cached_tokens = read;
	if (u.prompt_tokens != OPENAI_TOKENS_UNKNOWN)
		u.prompt_tokens = sum_of(u.prompt_tokens, sum_of(read, created));
	*ret = u;
	return true;
}

bool
openai_scan_usage(struct slice json, struct openai_usage *ret)
{
	static const char word[] = "\"usage\"";
	const char *p = json.p, *end = p + json.len;
	bool found = false;

	while (p && p < end && (p = memmem(p, (size_t)(end - p), word, sizeof(word) - 1))) {
		struct json_cursor c;

		p += sizeof(word) - 1;
		while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
			p++;
		if (p == end || *p != ':')
			continue;
		p++;
		json_begin(&c, p, (size_t)(end - p));
		if (json_peek(&c) == JSON_IS_OBJECT && take_usage(&c, ret))
			found = true;
	}
	return found;
}

void
openai_tail_feed(struct openai_tail *t, const char *bytes, size_t len)
{
	if (len >= OPENAI_TAIL_BYTES) {
		memcpy(t->buf, bytes + len - OPENAI_TAIL_BYTES, OPENAI_TAIL_BYTES);
		t->len_bytes = OPENAI_TAIL_BYTES;
		return;
	}
	if (len > sizeof(t->buf) - t->len_bytes) {
		memmove(t->buf, t->buf + t->len_bytes - OPENAI_TAIL_BYTES, OPENAI_TAIL_BYTES);
		t->len_bytes = OPENAI_TAIL_BYTES;
	}
	if (len > 0)
		memcpy(t->buf + t->len_bytes, bytes, len);
	t->len_bytes += len;
}

struct slice
openai_tail_bytes(const struct openai_tail *t)
{
	return (struct slice){t->buf, t->len_bytes};
}

/* --- token ids --- */

bool
openai_answer_ids(struct slice json, uint32_t *ids, size_t max, size_t *ret_n, const char **why)
{
	struct json_cursor j;
	struct json_string key;
	bool found = false;

	json_begin(&j, json.p, json.len);
	*why = "answer is no JSON object";
	if (json_peek(&j) != JSON_IS_OBJECT || !json_enter_object(&j))
		return false;
	while (json_next_member(&j, &key)) {
		if (found || !json_string_eq(&key, "tokens")) {
			json_skip(&j);
			continue;
		}
		*why = "tokens in the answer are no token ids";
		if (!json_get_u32_array(&j, ids, max, ret_n))
			return false;
		found = true;
	}
	*why = json_end(&j) < 0 ? "answer is no JSON" : found ? NULL : "answer has no tokens";
	return !*why;
}
