/* actors/common/prompt/jinja_filters_text.c -- filters that make text, and numbers' own. */
#include "actors/common/prompt/jinja_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "actors/common/prompt/py_unicode.h"

#define UNUSED __attribute__((unused))
#define LEEWAY 5                        /* truncate.leeway */
#undef FILTER
#define FILTER(name)                                                                               \
	struct value filter_##name(struct run *run, struct value in, const struct value *a UNUSED, \
				   const struct args *all UNUSED)

FILTER(filesizeformat)
{
	static const char *const unit[2][8] = {
		{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
		{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"},
	};
	bool binary = given(a[0]) && run_true(run, a[0]), ok;
	double base = binary ? 1024 : 1000, size = base, bytes;

	bytes = py_float_of(run, in, &ok).f;
	if (!ok || !isfinite(bytes))
		run_fail(run, "ValueError: could not convert to float");
	if (bytes == 1)
		return value_str("1 Byte");
	if (bytes < base)
		return run_printf(run, "%lld Bytes", (long long)bytes);
	for (int i = 0;; i++) {
		size *= base;
		if (bytes < size || i == 7)
			return run_printf(run, "%.1f %s", base * bytes / size, unit[binary][i]);
	}
}

FILTER(format)
{
	struct value format = is_text(in) ? in : value_string(py_text(run, in));
	struct value_dict *dict;

	if (all->n && all->n_kw)
		run_fail(run, "FilterArgumentError: can't handle positional and keyword arguments "
			      "at the same time");
	if (!all->n_kw)
		return py_percent(run, format, value_tuple(all->pos, all->n));
	dict = run_dict(run, all->n_kw);
	for (uint32_t i = 0; i < all->n_kw; i++)
		run_put(run, dict, value_string(all->kw[i].name), all->kw[i].value);
	return py_percent(run, format, value_of_dict(dict));
}

FILTER(indent)
{
	struct value by = given(a[0]) ? a[0] : value_int(4);
	bool first = given(a[1]) && run_true(run, a[1]), blank = given(a[2]) && run_true(run, a[2]);
	struct slice indent;
	struct value_items lines;
	size_t mark;

	if (is_undefined(in))
		fail_undefined(run, in);
	if (!is_text(in))
		run_fail(run, "TypeError: can only concatenate str to '%s'", type_name(in));
	if (!is_text(by))
		by = py_binary(run, N_MUL, value_str(" "), by);
	if (!is_text(by))
		run_fail(run, "TypeError: can't indent by a '%s'", type_name(a[0]));
	if (in.flags & VALUE_MARKUP && !by.flags)
		by = given(a[0]) && is_text(a[0]) ? value_text(value_slice(by), VALUE_MARKUP) : by;
	indent = value_slice(by);
	lines = py_splitlines(run, run_concat(run, value_slice(in), SLICE_LIT("\n"), in.flags),
			      false);
	mark = run->out->len;
	for (uint32_t i = 0; i < lines.n; i++) {
		if (i)
			out_add(run, "\n", 1);
		if (i ? blank || lines.item[i].n : first)
			out_slice(run, indent);
		out_slice(run, value_slice(lines.item[i]));
	}
	return out_capture(run, mark, in.flags);
}

static double
round_digits(double f, int64_t digits)
{
	char buf[700];
	double scale;

	if (!isfinite(f) || digits > 340)
		return f;
	if (digits >= 0) {
		(void)snprintf(buf, sizeof(buf), "%.*f", (int)digits, f);
		return strtod(buf, NULL);
	}
	if (digits < -340)
		return copysign(0, f);
	scale = pow(10, (double)-digits);
	return nearbyint(f / scale) * scale;
}

static struct value
round_int(struct run *run, int64_t i, int64_t digits)
{
	int64_t scale = 1, rest, half;

	if (digits >= 0)
		return value_int(i);
	if (digits < -18)
		return value_int(0);
	for (; digits < 0; digits++)
		scale *= 10;
	rest = i % scale;
	half = scale / 2;
	if (rest < 0)
		rest += scale;
	i -= rest;
	if (rest > half || (rest == half && (i / scale) % 2))
		return py_binary(run, N_ADD, value_int(i), value_int(scale));
	return value_int(i);
}

FILTER(round)
{
	int64_t digits = given(a[0]) ? arg_int(run, a[0]) : 0;
	struct value method = given(a[1]) ? a[1] : value_str("common"), scaled, ten;
	bool up = value_is_text(method, "ceil"), ok;

	if (!up && !value_is_text(method, "common") && !value_is_text(method, "floor"))
		run_fail(run, "FilterArgumentError: method must be common, ceil or floor");
	if (!is_int(in) && in.kind != VALUE_FLOAT)
		run_fail(run, "TypeError: type %s doesn't define __round__ method", type_name(in));
	if (value_is_text(method, "common"))
		return is_int(in) ? round_int(run, in.i, digits)
				  : value_float(round_digits(in.f, digits));
	ten = py_binary(run, N_POW, value_int(10), value_int(digits));
	scaled = py_binary(run, N_MUL, in, ten);
	if (scaled.kind == VALUE_FLOAT) {
		scaled.f = up ? ceil(scaled.f) : floor(scaled.f);
		if (!isfinite(scaled.f))
			run_fail(run, "OverflowError: cannot convert float to integer");
		scaled = py_int_of(run, scaled, 10, &ok);
	}
	return py_binary(run, N_DIV, scaled, ten);
}

FILTER(tojson)
{
	struct value_dump how = {.ascii = given(a[0]) && run_true(run, a[0]),
				 .sort = given(a[3]) && run_true(run, a[3])};
	size_t mark = run->out->len;
	const char *why;
	int r;

	if (given(a[1]) && a[1].kind != VALUE_NONE) {
		struct value indent = is_text(a[1]) ? a[1] : value_int(arg_int(run, a[1]));

		if (!is_text(indent))
			indent = py_binary(run, N_MUL, value_str(" "), indent);
		how.indent = indent.s;
		how.indent_len = indent.n;
	}
	if (given(a[2]) && a[2].kind != VALUE_NONE) {
		struct value_items pair = items_of(run, a[2]);

		if (pair.n != 2)
			run_fail(run, "ValueError: separators are two");
		if (!is_text(pair.item[0]) || !is_text(pair.item[1]))
			run_fail(run, "TypeError: separators are texts");
		how.item = value_slice(pair.item[0]);
		how.key = value_slice(pair.item[1]);
	}
	run_deep(run);
	r = value_to_json(in, &how, run->out, &why);
	if (r == -EINVAL)
		run_fail(run, "TypeError: %s", why);
	if (r < 0)
		run_stop(run, r, "the text is longer than it may be");
	return out_capture(run, mark, 0);
}

FILTER(truncate)
{
	int64_t length = given(a[0]) ? arg_int(run, a[0]) : 255, end_len, leeway;
	bool kill = given(a[1]) && run_true(run, a[1]);
	struct value end = given(a[2]) ? a[2] : value_str("..."), cut;
	struct slice s;

	leeway = given(a[3]) && a[3].kind != VALUE_NONE ? arg_int(run, a[3]) : LEEWAY;
	end_len = py_len(run, end);
	if (length < end_len || leeway < 0)
		run_fail(run, "AssertionError: expected length >= %lld, got %lld",
			 (long long)end_len, (long long)length);
	if (py_len(run, in) <= length + leeway)
		return in;
	if (!is_text(in) || !is_text(end))
		run_fail(run, "TypeError: truncate wants texts, not '%s'", type_name(in));
	cut = item_slice(run, in, value_none(), value_int(length - end_len), value_none());
	s = value_slice(cut);
	if (!kill) {
		const char *space = s.len ? memrchr(s.p, ' ', s.len) : NULL;

		if (space)
			cut.n = (uint32_t)(space - s.p);
	}
	return py_binary(run, N_ADD, cut, end);
}

static void
quote(struct run *run, struct value v, bool query)
{
	struct slice s = py_text(run, v);
	char buf[4];

	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
			out_add(run, s.p + i, 1);
		else if ((c >= '0' && c <= '9') || (c && strchr("_.-~", c)) || (c == '/' && !query))
			out_add(run, s.p + i, 1);
		else if (c == ' ' && query)
			out_add(run, "+", 1);
		else
			out_add(run, buf, (size_t)snprintf(buf, sizeof(buf), "%%%02X", c));
	}
}

FILTER(urlencode)
{
	size_t mark = run->out->len;
	struct iter it;
	struct value item;
	bool more = false;

	if (is_text(in) || !iter_able(in)) {
		quote(run, in, false);
		return out_capture(run, mark, 0);
	}
	if (in.kind == VALUE_DICT) {
		in.kind = VALUE_VIEW;
		in.flags = VIEW_ITEMS;
	}
	iter_begin(run, &it, in);
	while (iter_next(run, &it, &item)) {
		struct value_items pair = items_of(run, item);

		if (pair.n != 2)
			run_fail(run, "ValueError: not a pair");
		if (more)
			out_add(run, "&", 1);
		more = true;
		quote(run, pair.item[0], true);
		out_add(run, "=", 1);
		quote(run, pair.item[1], true);
	}
	return out_capture(run, mark, 0);
}

FILTER(wordcount)
{
	struct slice s = py_text(run, in);
	const char *end = s.p + s.len;
	bool inside = false;
	int64_t words = 0;
	unsigned n;

	for (const char *p = s.p; p < end; p += n) {
		uint32_t cp = py_decode(p, end, &n);
		bool word = cp == '_' ||
			    (py_bits(cp) & (PY_ALPHA | PY_DECIMAL | PY_DIGIT | PY_NUMERIC));

		words += word && !inside;
		inside = word;
	}
	return value_int(words);
}

FILTER(xmlattr)
{
	size_t mark = run->out->len;
	bool space = !given(a[0]) || run_true(run, a[0]), more = false;

	if (in.kind != VALUE_DICT)
		run_fail(run, "AttributeError: '%s' object has no attribute 'items'",
			 type_name(in));
	for (uint32_t i = 0; i < in.dict->n; i++) {
		const struct value_pair *pair = &in.dict->pair[i];

		if (pair->value.kind == VALUE_NONE || is_undefined(pair->value))
			continue;
		if (!is_text(pair->key))
			run_fail(run, "TypeError: expected string or bytes-like object");
		for (uint32_t k = 0; k < pair->key.n; k++)
			if (pair->key.s[k] && strchr(" \t\n\r\f\v/>=", pair->key.s[k]))
				run_fail(run, "ValueError: Invalid character in attribute name");
		if (more || space)
			out_add(run, " ", 1);
		more = true;
		out_slice(run, value_slice(py_markup(run, pair->key)));
		out_add(run, "=\"", 2);
		out_slice(run, value_slice(py_markup(run, pair->value)));
		out_add(run, "\"", 1);
	}
	return out_capture(run, mark, 0);
}
