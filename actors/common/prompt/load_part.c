/* actors/common/prompt/load_part.c -- objects of a tokenizer's JSON. */
#include "actors/common/prompt/load_part.h"

#include <errno.h>

int
part_read(struct build *b, const char *where, struct slice raw, const char *const *names,
	  struct slice *ret, unsigned n)
{
	struct json_cursor c;
	struct json_string key;
	struct slice value;

	for (unsigned i = 0; i < n; i++)
		ret[i] = (struct slice){0};
	json_begin(&c, raw.p ? raw.p : "", raw.len);
	if (json_enter_object(&c))
		while (json_next_member(&c, &key) && json_get_raw(&c, &value))
			for (unsigned i = 0; i < n; i++)
				if (json_string_eq(&key, names[i]))
					ret[i] = value;
	if (json_end(&c) < 0)
		return build_fail(b, -EBADMSG, "%s: %s at byte %zu", where, c.why, c.error_off);
	return 0;
}

static bool
get_string(struct slice raw, struct json_string *ret)
{
	struct json_cursor c;

	json_begin(&c, raw.p ? raw.p : "", raw.len);
	return json_get_string(&c, ret);
}

bool
part_is(struct slice raw, const char *text)
{
	struct json_string s;

	return get_string(raw, &s) && json_string_eq(&s, text);
}

bool
part_true(struct slice raw)
{
	return slice_eq_str(raw, "true");
}

bool
part_null(struct slice raw)
{
	return slice_eq_str(raw, "null");
}

bool
part_zero(struct slice raw)
{
	double v;

	return !raw.p || part_null(raw) || (json_to_double(raw, &v) == 0 && v == 0);
}

bool
part_empty(struct slice raw)
{
	return !raw.p || part_null(raw) || part_is(raw, "");
}

uint32_t
part_text(struct build *b, const char *where, struct slice raw, uint32_t *ret_len)
{
	struct json_string s;

	*ret_len = 0;
	if (!get_string(raw, &s)) {
		build_fail(b, -EINVAL, "%s is no text", where);
		return 0;
	}
	return build_json_text(b, &s, ret_len);
}

void
part_unknown(struct build *b, const char *where, struct slice type)
{
	build_fail(b, -ENOTSUP, "%s %.*s is not reproduced", where,
		   (int)(type.p ? type.len < 60 ? type.len : 60 : 7), type.p ? type.p : "(none)");
}

void
part_added(struct build *b, const char *where, struct slice raw, uint32_t id)
{
	enum { CONTENT, SINGLE, LSTRIP, RSTRIP, NORMALIZED, SPECIAL, N };
	static const char *const names[] = {
		"content", "single_word", "lstrip", "rstrip", "normalized", "special",
	};
	struct slice v[N];
	uint32_t len, off;

	if (part_read(b, where, raw, names, v, N) < 0)
		return;
	if (!v[CONTENT].p) {
		build_fail(b, -EINVAL, "%s: a token without content", where);
		return;
	}
	off = part_text(b, where, v[CONTENT], &len);
	build_added(b, off, len,
		    (part_true(v[SINGLE]) ? ADDED_SINGLE_WORD : 0) |
			    (part_true(v[LSTRIP]) ? ADDED_LSTRIP : 0) |
			    (part_true(v[RSTRIP]) ? ADDED_RSTRIP : 0) |
			    (part_true(v[SPECIAL]) ? ADDED_SPECIAL : 0),
		    part_true(v[NORMALIZED]), id);
}
