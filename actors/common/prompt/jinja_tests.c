/* actors/common/prompt/jinja_tests.c -- the table of tests (x is …). */
#include "actors/common/prompt/jinja_private.h"

#include <stdlib.h>

#include "actors/common/prompt/methods.h"

#define TEST(name)                                                                                 \
	static bool t_##name(struct run *run __attribute__((unused)), struct value v,              \
			     const struct value *a __attribute__((unused)))

TEST(boolean)
{
	return v.kind == VALUE_BOOL;
}

TEST(callable)
{
	return v.kind == VALUE_METHOD || v.kind == VALUE_MACRO || v.kind == VALUE_FUNCTION ||
	       v.kind == VALUE_LOOP || v.kind == VALUE_JOINER || v.kind == VALUE_UNDEFINED;
}

TEST(defined)
{
	return !is_undefined(v);
}

TEST(divisibleby)
{
	return value_equal(py_binary(run, N_MOD, v, a[0]), value_int(0));
}

TEST(escaped)
{
	return is_text(v) && (v.flags & VALUE_MARKUP);
}

TEST(even)
{
	return value_equal(py_binary(run, N_MOD, v, value_int(2)), value_int(0));
}

TEST(odd)
{
	return value_equal(py_binary(run, N_MOD, v, value_int(2)), value_int(1));
}

TEST(false)
{
	return v.kind == VALUE_BOOL && !v.i;
}

TEST(true)
{
	return v.kind == VALUE_BOOL && v.i;
}

TEST(filter)
{
	if (!value_hashable(v))
		run_fail(run, "TypeError: unhashable type: '%s'", type_name(v));
	return is_text(v) && filter_find(value_slice(v));
}

TEST(test)
{
	if (!value_hashable(v))
		run_fail(run, "TypeError: unhashable type: '%s'", type_name(v));
	return is_text(v) && test_find(value_slice(v));
}

TEST(float)
{
	return v.kind == VALUE_FLOAT;
}

TEST(in)
{
	return py_contains(run, a[0], v);
}

TEST(integer)
{
	return v.kind == VALUE_INT || v.kind == VALUE_BIG;
}

TEST(iterable)
{
	return iter_able(v);
}

static bool
is_case(struct run *run, struct value v, unsigned method)
{
	struct value s = value_string(py_text(run, v));

	return value_true(str_method(run, s, method, &(struct args){0}));
}

TEST(lower)
{
	return is_case(run, v, METHOD_islower);
}

TEST(upper)
{
	return is_case(run, v, METHOD_isupper);
}

TEST(mapping)
{
	return v.kind == VALUE_DICT;
}

TEST(none)
{
	return v.kind == VALUE_NONE;
}

TEST(number)
{
	return is_int(v) || v.kind == VALUE_BIG || v.kind == VALUE_FLOAT;
}

TEST(sameas)
{
	if (v.kind != a[0].kind)
		return false;
	if (v.kind == VALUE_NONE)
		return true;
	if (is_int(v))
		return v.i == a[0].i;
	return v.kind == VALUE_FLOAT ? v.f == a[0].f : v.p == a[0].p && v.n == a[0].n;
}

TEST(sequence)
{
	return py_has_len(v) && v.kind != VALUE_VIEW && v.kind != VALUE_LOOP;
}

TEST(string)
{
	return is_text(v);
}

TEST(undefined)
{
	return is_undefined(v);
}

#define RELATION(name, op)                                                                         \
	TEST(name)                                                                                 \
	{                                                                                          \
		return py_relation(run, op, v, a[0]);                                              \
	}

RELATION(eq, OP_EQ)
RELATION(ne, OP_NE)
RELATION(lt, OP_LT)
RELATION(le, OP_LE)
RELATION(gt, OP_GT)
RELATION(ge, OP_GE)

/* In order of their bytes. */
static const struct test_def test[] = {
	{"!=", t_ne, "-"},
	{"<", t_lt, "-"},
	{"<=", t_le, "-"},
	{"==", t_eq, "-"},
	{">", t_gt, "-"},
	{">=", t_ge, "-"},
	{"boolean", t_boolean, ""},
	{"callable", t_callable, ""},
	{"defined", t_defined, ""},
	{"divisibleby", t_divisibleby, "num"},
	{"eq", t_eq, "-"},
	{"equalto", t_eq, "-"},
	{"escaped", t_escaped, ""},
	{"even", t_even, ""},
	{"false", t_false, ""},
	{"filter", t_filter, ""},
	{"float", t_float, ""},
	{"ge", t_ge, "-"},
	{"greaterthan", t_gt, "-"},
	{"gt", t_gt, "-"},
	{"in", t_in, "seq"},
	{"integer", t_integer, ""},
	{"iterable", t_iterable, ""},
	{"le", t_le, "-"},
	{"lessthan", t_lt, "-"},
	{"lower", t_lower, ""},
	{"lt", t_lt, "-"},
	{"mapping", t_mapping, ""},
	{"ne", t_ne, "-"},
	{"none", t_none, ""},
	{"number", t_number, ""},
	{"odd", t_odd, ""},
	{"sameas", t_sameas, "other"},
	{"sequence", t_sequence, ""},
	{"string", t_string, ""},
	{"test", t_test, ""},
	{"true", t_true, ""},
	{"undefined", t_undefined, ""},
	{"upper", t_upper, ""},
};

static int
by_name(const void *key, const void *row)
{
	const struct slice *name = key;
	const struct test_def *def = row;
	size_t n = strlen(def->name);
	int c = memcmp(name->p, def->name, name->len < n ? name->len : n);

	return c ? c : name->len < n ? -1 : name->len > n;
}

const struct test_def *
test_find(struct slice name)
{
	return bsearch(&name, test, sizeof(test) / sizeof(test[0]), sizeof(test[0]), by_name);
}
