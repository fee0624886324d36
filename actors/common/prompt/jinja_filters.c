/* actors/common/prompt/jinja_filters.c -- the table of filters, and those of one line. */
#include "actors/common/prompt/jinja_private.h"

#include <math.h>
#include <stdlib.h>

#include "actors/common/prompt/methods.h"
#include "actors/common/prompt/py_unicode.h"

/* soft_str: text as it is, Markup kept; anything else by str(). */
static struct value
soft(struct run *run, struct value v)
{
	return is_text(v) ? v : value_string(py_text(run, v));
}

#define PLAIN(name)                                                                                \
	static struct value f_##name(struct run *run, struct value in,                             \
				     const struct value *a __attribute__((unused)),                \
				     const struct args *all __attribute__((unused)))

PLAIN(abs)
{
	struct value zero = value_int(0);

	if (is_undefined(in))
		fail_undefined(run, in);
	if (in.kind == VALUE_FLOAT)
		return value_float(fabs(in.f));
	if (!is_int(in) && in.kind != VALUE_BIG)
		run_fail(run, "TypeError: bad operand type for abs(): '%s'", type_name(in));
	return py_compare(run, OP_LT, in, zero) < 0 ? py_unary(run, N_NEG, in)
						    : py_unary(run, N_POS, in);
}

PLAIN(attr)
{
	struct slice name;
	struct value v;

	if (is_undefined(in))
		fail_undefined(run, in);
	if (!is_text(a[0]))
		run_fail(run, "TypeError: attribute name must be string, not '%s'",
			 type_name(a[0]));
	name = value_slice(a[0]);
	if (in.kind == VALUE_DICT && !method_find(name) && (name.len == 0 || name.p[0] != '_'))
		return undefined_of(in, name);
	v = attr_get(run, in, name, method_find(name));
	return v;
}

PLAIN(capitalize)
{
	return py_case(run, soft(run, in), "capitalize");
}

PLAIN(center)
{
	struct value width = given(a[0]) ? a[0] : value_int(80);

	return str_method(run, soft(run, in), METHOD_center, &(struct args){.pos = &width, .n = 1});
}

PLAIN(default)
{
	if (is_undefined(in) || (given(a[1]) && run_true(run, a[1]) && !run_true(run, in)))
		return given(a[0]) ? a[0] : value_str("");
	return in;
}

PLAIN(escape)
{
	return py_markup(run, in);
}

PLAIN(forceescape)
{
	return py_markup(run, value_string(py_text(run, in)));
}

PLAIN(float)
{
	bool ok;
	struct value v = py_float_of(run, in, &ok);

	return ok ? v : given(a[0]) ? a[0] : value_float(0);
}

PLAIN(int)
{
	int64_t base = given(a[1]) ? arg_int(run, a[1]) : 10;
	struct value fallback = given(a[0]) ? a[0] : value_int(0), v;
	bool ok;

	v = py_int_of(run, in, base, &ok);
	if (ok)
		return v;
	v = py_float_of(run, in, &ok);
	if (!ok || isinf(v.f))
		return fallback;
	v = py_int_of(run, v, 10, &ok);
	return ok ? v : fallback;
}

PLAIN(length)
{
	return value_int(py_len(run, in));
}

PLAIN(lower)
{
	return py_case(run, soft(run, in), "lower");
}

PLAIN(upper)
{
	return py_case(run, soft(run, in), "upper");
}

PLAIN(title)
{
	return py_title_words(run, soft(run, in));
}

PLAIN(replace)
{
	struct slice s = py_text(run, in), from = py_text(run, a[0]), to = py_text(run, a[1]);
	int64_t count = given(a[2]) && a[2].kind != VALUE_NONE ? arg_int(run, a[2]) : -1;

	return py_replace(run, s, from, to, count, 0);
}

PLAIN(safe)
{
	return value_text(py_text(run, in), VALUE_MARKUP);
}

PLAIN(string)
{
	return soft(run, in);
}

PLAIN(trim)
{
	struct value s = soft(run, in);

	if (!given(a[0]))
		return value_text(py_strip(value_slice(s), true, true), s.flags);
	return str_method(run, s, METHOD_strip, &(struct args){.pos = a, .n = 1});
}

/* What cannot be foreseen, or what no chat template has use for. */
PLAIN(refused)
{
	(void)in;
	run_fail(run, "unsupported: this filter");
}

static const struct filter_def filter[] = {
	{"abs", f_abs, ""},
	{"attr", f_attr, "name"},
	{"batch", filter_batch, "linecount|fill_with"},
	{"capitalize", f_capitalize, ""},
	{"center", f_center, "|width"},
	{"count", f_length, ""},
	{"d", f_default, "|default_value,boolean"},
	{"default", f_default, "|default_value,boolean"},
	{"dictsort", filter_dictsort, "|case_sensitive,by,reverse"},
	{"e", f_escape, ""},
	{"escape", f_escape, ""},
	{"filesizeformat", filter_filesizeformat, "|binary"},
	{"first", filter_first, ""},
	{"float", f_float, "|default"},
	{"forceescape", f_forceescape, ""},
	{"format", filter_format, NULL},
	{"groupby", filter_groupby, "attribute|default,case_sensitive"},
	{"indent", filter_indent, "|width,first,blank"},
	{"int", f_int, "|default,base"},
	{"items", filter_items, ""},
	{"join", filter_join, "|d,attribute"},
	{"last", filter_last, ""},
	{"length", f_length, ""},
	{"list", filter_list, ""},
	{"lower", f_lower, ""},
	{"map", filter_map, NULL},
	{"max", filter_max, "|case_sensitive,attribute"},
	{"min", filter_min, "|case_sensitive,attribute"},
	{"pprint", f_refused, ""},
	{"random", f_refused, ""},
	{"reject", filter_reject, NULL},
	{"rejectattr", filter_rejectattr, NULL},
	{"replace", f_replace, "old,new|count"},
	{"reverse", filter_reverse, ""},
	{"round", filter_round, "|precision,method"},
	{"safe", f_safe, ""},
	{"select", filter_select, NULL},
	{"selectattr", filter_selectattr, NULL},
	{"slice", filter_slice, "slices|fill_with"},
	{"sort", filter_sort, "|reverse,case_sensitive,attribute"},
	{"string", f_string, ""},
	{"striptags", f_refused, ""},
	{"sum", filter_sum, "|attribute,start"},
	{"title", f_title, ""},
	{"tojson", filter_tojson, "|ensure_ascii,indent,separators,sort_keys"},
	{"trim", f_trim, "|chars"},
	{"truncate", filter_truncate, "|length,killwords,end,leeway"},
	{"unique", filter_unique, "|case_sensitive,attribute"},
	{"upper", f_upper, ""},
	{"urlencode", filter_urlencode, ""},
	{"urlize", f_refused, NULL},
	{"wordcount", filter_wordcount, ""},
	{"wordwrap", f_refused, NULL},
	{"xmlattr", filter_xmlattr, "|autospace"},
};

static int
by_name(const void *key, const void *row)
{
	const struct slice *name = key;
	const struct filter_def *def = row;
	size_t n = strlen(def->name);
	int c = memcmp(name->p, def->name, name->len < n ? name->len : n);

	return c ? c : name->len < n ? -1 : name->len > n;
}

const struct filter_def *
filter_find(struct slice name)
{
	return bsearch(&name, filter, sizeof(filter) / sizeof(filter[0]), sizeof(filter[0]),
		       by_name);
}
