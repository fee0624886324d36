/* actors/common/prompt/py_repr.c -- str() and repr(), written to the output. */
#include "actors/common/prompt/jinja_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "actors/common/prompt/py_unicode.h"

/* The shortest digits that read back as f, in Python's form. */
struct slice
py_float_text(double f, char buf[static 32])
{
	char digits[32], *e;
	int n = 0, exp, len;

	if (isnan(f))
		return slice_str("nan");
	if (isinf(f))
		return slice_str(f < 0 ? "-inf" : "inf");
	for (int precision = 0; precision < 17; precision++) {
		(void)snprintf(digits, sizeof(digits), "%.*e", precision, fabs(f));
		if (strtod(digits, NULL) == fabs(f))
			break;
	}
	e = strchr(digits, 'e');
	exp = atoi(e + 1);
	*e = 0;
	if (digits[1] == '.')
		memmove(digits + 1, digits + 2, strlen(digits + 2) + 1);
	len = (int)strlen(digits);
	if (signbit(f))
		buf[n++] = '-';
	if (exp < -4 || exp >= 16) {
		buf[n++] = digits[0];
		if (len > 1) {
			buf[n++] = '.';
			memcpy(buf + n, digits + 1, (size_t)len - 1);
			n += len - 1;
		}
		n += snprintf(buf + n, (size_t)(32 - n), "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
		return slice_of(buf, (size_t)n);
	}
	if (exp < 0) {
		buf[n++] = '0';
		buf[n++] = '.';
		for (int i = -1; i > exp; i--)
			buf[n++] = '0';
		memcpy(buf + n, digits, (size_t)len);
		return slice_of(buf, (size_t)(n + len));
	}
	for (int i = 0; i <= exp || i < len; i++) {
		if (i == exp + 1)
			buf[n++] = '.';
		buf[n++] = i < len ? digits[i] : '0';
	}
	if (len <= exp + 1) {
		buf[n++] = '.';
		buf[n++] = '0';
	}
	return slice_of(buf, (size_t)n);
}

static void
add_str(struct run *run, const char *s)
{
	out_add(run, s, strlen(s));
}

static void
repr_text(struct run *run, struct slice s)
{
	char quote = s.len && memchr(s.p, '\'', s.len) && !memchr(s.p, '"', s.len) ? '"' : '\'';
	const char *p = s.p, *end = s.p + s.len, *plain = p;
	char buf[16];
	unsigned n;

	out_add(run, &quote, 1);
	while (p < end) {
		uint32_t cp = py_decode(p, end, &n);
		int len;

		if (cp >= 0x20 && cp < 0x7f ? cp != '\\' && cp != (uint32_t)quote
					    : cp >= 0xa1 && (py_bits(cp) & PY_PRINTABLE)) {
			p += n;
			continue;
		}
		out_add(run, plain, (size_t)(p - plain));
		switch (cp) {
		case '\n': len = snprintf(buf, sizeof(buf), "\\n"); break;
		case '\r': len = snprintf(buf, sizeof(buf), "\\r"); break;
		case '\t': len = snprintf(buf, sizeof(buf), "\\t"); break;
		case '\\':
		case '\'':
		case '"': len = snprintf(buf, sizeof(buf), "\\%c", (int)cp); break;
		default:
			len = snprintf(buf, sizeof(buf),
				       cp < 0x100     ? "\\x%02x"
				       : cp < 0x10000 ? "\\u%04x"
						      : "\\U%08x", cp);
		}
		out_add(run, buf, (size_t)len);
		p += n;
		plain = p;
	}
	out_add(run, plain, (size_t)(p - plain));
	out_add(run, &quote, 1);
}

static void
repr_items(struct run *run, struct value v, const char *open, const char *close)
{
	add_str(run, open);
	for (uint32_t i = 0; i < v.n; i++) {
		if (i)
			add_str(run, ", ");
		py_repr(run, v.items[i]);
	}
	if (v.kind == VALUE_TUPLE && v.n == 1)
		add_str(run, ",");
	add_str(run, close);
}

static void
repr_dict(struct run *run, const struct value_dict *dict)
{
	add_str(run, "{");
	for (uint32_t i = 0; i < dict->n; i++) {
		if (i)
			add_str(run, ", ");
		py_repr(run, dict->pair[i].key);
		add_str(run, ": ");
		py_repr(run, dict->pair[i].value);
	}
	add_str(run, "}");
}

static void
repr_view(struct run *run, struct value v)
{
	static const char *const name[] = {"dict_keys([", "dict_values([", "dict_items(["};
	struct iter it;
	struct value item;

	add_str(run, name[v.flags]);
	iter_begin(run, &it, v);
	for (uint32_t i = 0; iter_next(run, &it, &item); i++) {
		if (i)
			add_str(run, ", ");
		py_repr(run, item);
	}
	add_str(run, "])");
}

static void
repr_object(struct run *run, struct value v)
{
	const struct range *range = v.p;
	const struct macro *macro = v.p;
	struct loop *loop = (struct loop *)(uintptr_t)v.p;
	char buf[128];

	switch (v.kind) {
	case VALUE_RANGE:
		(void)snprintf(buf, sizeof(buf), range->step == 1 ? "range(%lld, %lld)"
								   : "range(%lld, %lld, %lld)",
			       (long long)range->start, (long long)range->stop,
			       (long long)range->step);
		break;
	case VALUE_NAMESPACE:
		add_str(run, "<Namespace ");
		repr_dict(run, ((const struct namespace_ *)v.p)->dict);
		(void)snprintf(buf, sizeof(buf), ">");
		break;
	case VALUE_MACRO:
		if (!macro->name.p) {
			(void)snprintf(buf, sizeof(buf), "<Macro anonymous>");
			break;
		}
		add_str(run, "<Macro ");
		repr_text(run, macro->name);
		(void)snprintf(buf, sizeof(buf), ">");
		break;
	case VALUE_LOOP:
		(void)snprintf(buf, sizeof(buf), "<LoopContext %lld/%lld>",
			       (long long)loop->index0 + 1,
			       (long long)loop_attr(run, loop, SLICE_LIT("length")).i);
		break;
	default:
		run_fail(run, "unsupported: the text of a %s is its address",
			 type_name(v));
	}
	add_str(run, buf);
}

void
py_repr(struct run *run, struct value v)
{
	char buf[32];
	int n;

	run_deep(run);
	run_steps(run, 1);
	switch (v.kind) {
	case VALUE_UNDEFINED:
		add_str(run, "Undefined");
		return;
	case VALUE_NONE:
		add_str(run, "None");
		return;
	case VALUE_BOOL:
		add_str(run, v.i ? "True" : "False");
		return;
	case VALUE_INT:
		n = snprintf(buf, sizeof(buf), "%lld", (long long)v.i);
		out_add(run, buf, (size_t)n);
		return;
	case VALUE_BIG:
		out_slice(run, value_slice(v));
		return;
	case VALUE_FLOAT:
		out_slice(run, py_float_text(v.f, buf));
		return;
	case VALUE_STRING:
		if (v.flags)
			add_str(run, "Markup(");
		repr_text(run, value_slice(v));
		if (v.flags)
			add_str(run, ")");
		return;
	case VALUE_LIST:
		repr_items(run, v, "[", "]");
		return;
	case VALUE_TUPLE:
		repr_items(run, v, "(", ")");
		return;
	case VALUE_DICT:
		repr_dict(run, v.dict);
		return;
	case VALUE_VIEW:
		repr_view(run, v);
		return;
	default:
		repr_object(run, v);
	}
}

void
py_str(struct run *run, struct value v)
{
	if (v.kind == VALUE_STRING)
		out_slice(run, value_slice(v));
	else if (v.kind != VALUE_UNDEFINED)
		py_repr(run, v);
}

struct slice
py_text(struct run *run, struct value v)
{
	size_t mark = run->out->len;

	if (v.kind == VALUE_STRING)
		return value_slice(v);
	py_str(run, v);
	return value_slice(out_capture(run, mark, 0));
}
