/* proto/openai_answer.c -- the errors we write, and what the router reads in engines' answers. */
#include "proto/openai.h"

#include <errno.h>
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

ssize_t
openai_write_error(char *out, size_t cap, const struct openai_error *e)
{
	static const char head[] = "{\"error\":{\"message\":\"";
	const char *p = e->message, *end = p + strlen(p);
	size_t n = 0, n_tail = 0;
	char tail[512];

	if (!put(tail, sizeof(tail), &n_tail, "\",\"type\":") ||
	    !put_string(tail, sizeof(tail), &n_tail, e->type ? e->type
							      : type_of_status(e->status)) ||
	    !put(tail, sizeof(tail), &n_tail, ",\"param\":") ||
	    !put_string(tail, sizeof(tail), &n_tail, e->param) ||
	    !put(tail, sizeof(tail), &n_tail, ",\"code\":") ||
	    !put_string(tail, sizeof(tail), &n_tail, e->code) ||
	    !put(tail, sizeof(tail), &n_tail, "}}"))
		return -ENOSPC;
	if (cap < sizeof(head) - 1 + n_tail)
		return -ENOSPC;
	put(out, cap, &n, head);
	cap -= n_tail;
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
	memcpy(out + n, tail, n_tail);
	return (ssize_t)(n + n_tail);
}

/* --- answers --- */

enum openai_event
openai_event_kind(struct slice data)
{
	struct json_string key, s;
	struct json_cursor c;

	if (slice_eq_str(data, "[DONE]"))
		return OPENAI_EVENT_DONE;
	if (data.len == 0 || !memmem(data.p, data.len, "\"error\"", 7))
		return OPENAI_EVENT_DATA;
	json_begin(&c, data.p, data.len);
	if (json_peek(&c) != JSON_IS_OBJECT)
		return OPENAI_EVENT_DATA;
	json_enter_object(&c);
	while (json_next_member(&c, &key)) {
		enum json_type type = json_peek(&c);

		if (json_string_eq(&key, "error") && type != JSON_IS_NULL &&
		    type != JSON_IS_INVALID)
			return OPENAI_EVENT_ERROR;
		/* {"object":"error", ...} and {"type":"error", ...} */
		if (type == JSON_IS_STRING &&
		    (json_string_eq(&key, "object") || json_string_eq(&key, "type"))) {
			if (json_get_string(&c, &s) && json_string_eq(&s, "error"))
				return OPENAI_EVENT_ERROR;
			continue;
		}
		json_skip(&c);
	}
	return OPENAI_EVENT_DATA;
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

/* The object the cursor stands at, as usage.  False when the object is not whole. */
static bool
take_usage(struct json_cursor *c, struct openai_usage *ret)
{
	struct openai_usage u = {OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
				 OPENAI_TOKENS_UNKNOWN};
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
			take_count(c, &u.cached_tokens);
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
