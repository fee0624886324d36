/* actors/common/prompt/value_dump.c -- values to JSON, as Python's json.dumps writes it. */
#include "actors/common/prompt/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "actors/common/prompt/jinja_private.h"
#include "actors/common/prompt/py_unicode.h"

struct writer {
	const struct value_dump *how;
	struct text *out;
	struct slice item, key;
	const char *why;
	int code;
	unsigned depth;
};

static bool
add(struct writer *w, const char *p, size_t n)
{
	int r = text_add(w->out, p, n);

	if (r < 0)
		w->code = r;
	return r == 0;
}

static bool
add_str(struct writer *w, const char *s)
{
	return add(w, s, strlen(s));
}

static bool
refuse(struct writer *w, const char *why)
{
	w->why = why;
	w->code = -EINVAL;
	return false;
}

static bool
write_escape(struct writer *w, uint32_t cp)
{
	char buf[16];
	int n;

	switch (cp) {
	case '"': return add_str(w, "\\\"");
	case '\\': return add_str(w, "\\\\");
	case '\n': return add_str(w, "\\n");
	case '\r': return add_str(w, "\\r");
	case '\t': return add_str(w, "\\t");
	case '\b': return add_str(w, "\\b");
	case '\f': return add_str(w, "\\f");
	default: break;
	}
	if (cp < 0x10000)
		n = snprintf(buf, sizeof(buf), "\\u%04x", cp);
	else
		n = snprintf(buf, sizeof(buf), "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
			     0xdc00 + ((cp - 0x10000) & 0x3ff));
	return add(w, buf, (size_t)n);
}

static bool
write_string(struct writer *w, struct slice s)
{
	const char *p = s.p, *end = s.p + s.len, *plain = p;
	bool ascii = w->how->ascii;

	if (!add(w, "\"", 1))
		return false;
	while (p < end) {
		unsigned char c = (unsigned char)*p;
		uint32_t cp = c;
		unsigned n = 1;

		if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7f)) {
			p++;
			continue;
		}
		if (!add(w, plain, (size_t)(p - plain)))
			return false;
		if (c >= 0x80)
			cp = py_decode(p, end, &n);
		if (!write_escape(w, cp))
			return false;
		p += n;
		plain = p;
	}
	return add(w, plain, (size_t)(p - plain)) && add(w, "\"", 1);
}

static bool
write_float(struct writer *w, double f)
{
	char buf[32];
	struct slice text;

	if (isnan(f))
		return add_str(w, "NaN");
	if (isinf(f))
		return add_str(w, f < 0 ? "-Infinity" : "Infinity");
	text = py_float_text(f, buf);
	return add(w, text.p, text.len);
}

static bool
line_break(struct writer *w)
{
	if (!w->how->indent)
		return true;
	if (!add(w, "\n", 1))
		return false;
	for (unsigned i = 0; i < w->depth; i++)
		if (!add(w, w->how->indent, w->how->indent_len))
			return false;
	return true;
}

static bool write_value(struct writer *w, struct value v);

static bool
write_list(struct writer *w, struct value v)
{
	if (v.n == 0)
		return add(w, "[]", 2);
	if (!add(w, "[", 1))
		return false;
	w->depth++;
	for (uint32_t i = 0; i < v.n; i++) {
		if (i && !add(w, w->item.p, w->item.len))
			return false;
		if (!line_break(w) || !write_value(w, v.items[i]))
			return false;
	}
	w->depth--;
	return line_break(w) && add(w, "]", 1);
}

static bool
write_key(struct writer *w, struct value key)
{
	char buf[32];

	switch (key.kind) {
	case VALUE_STRING:
		return write_string(w, value_slice(key));
	case VALUE_NONE:
		return add_str(w, "\"null\"");
	case VALUE_BOOL:
		return add_str(w, key.i ? "\"true\"" : "\"false\"");
	case VALUE_INT:
		return add(w, buf, (size_t)snprintf(buf, sizeof(buf), "\"%lld\"",
						    (long long)key.i));
	case VALUE_BIG:
	case VALUE_FLOAT:
		return add(w, "\"", 1) && write_value(w, key) && add(w, "\"", 1);
	default:
		return refuse(w, "keys must be str, int, float, bool or None");
	}
}

static int
by_key(const void *a, const void *b)
{
	const struct value *x = &((const struct value_pair *)a)->key;
	const struct value *y = &((const struct value_pair *)b)->key;
	int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);

	return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

static bool
write_pairs(struct writer *w, const struct value_pair *pair, uint32_t n)
{
	if (!add(w, "{", 1))
		return false;
	w->depth++;
	for (uint32_t i = 0; i < n; i++) {
		if (i && !add(w, w->item.p, w->item.len))
			return false;
		if (!line_break(w) || !write_key(w, pair[i].key) ||
		    !add(w, w->key.p, w->key.len) || !write_value(w, pair[i].value))
			return false;
	}
	w->depth--;
	return line_break(w) && add(w, "}", 1);
}

static bool
write_dict(struct writer *w, const struct value_dict *dict)
{
	struct value_pair *sorted;
	bool ok;

	if (dict->n == 0)
		return add(w, "{}", 2);
	if (!w->how->sort)
		return write_pairs(w, dict->pair, dict->n);
	for (uint32_t i = 0; i < dict->n; i++)
		if (dict->pair[i].key.kind != VALUE_STRING && dict->n > 1)
			return refuse(w, "keys of several kinds are not ordered");
	sorted = malloc(dict->n * sizeof(*sorted));
	if (!sorted) {
		w->code = -ENOMEM;
		return false;
	}
	memcpy(sorted, dict->pair, dict->n * sizeof(*sorted));
	if (dict->n > 1)
		qsort(sorted, dict->n, sizeof(*sorted), by_key);
	ok = write_pairs(w, sorted, dict->n);
	free(sorted);
	return ok;
}

static bool
write_value(struct writer *w, struct value v)
{
	char buf[32];

	if (w->depth > VALUE_DEPTH)
		return refuse(w, "nested too deeply");
	switch (v.kind) {
	case VALUE_NONE:
		return add(w, "null", 4);
	case VALUE_BOOL:
		return add_str(w, v.i ? "true" : "false");
	case VALUE_INT:
		return add(w, buf, (size_t)snprintf(buf, sizeof(buf), "%lld", (long long)v.i));
	case VALUE_BIG:
		return add(w, v.s, v.n);
	case VALUE_FLOAT:
		return write_float(w, v.f);
	case VALUE_STRING:
		return write_string(w, value_slice(v));
	case VALUE_LIST:
	case VALUE_TUPLE:
		return write_list(w, v);
	case VALUE_DICT:
		return write_dict(w, v.dict);
	default:
		return refuse(w, "an object that is not JSON serializable");
	}
}

int
value_to_json(struct value v, const struct value_dump *how, struct text *out, const char **why)
{
	static const struct value_dump plain;
	struct writer w = {.how = how ? how : &plain, .out = out};

	w.item = w.how->item.p          ? w.how->item
		 : w.how->indent ? SLICE_LIT(",")
				 : SLICE_LIT(", ");
	w.key = w.how->key.p ? w.how->key : SLICE_LIT(": ");
	if (write_value(&w, v))
		return 0;
	*why = w.why ? w.why : "the text is longer than it may be";
	return w.code;
}
