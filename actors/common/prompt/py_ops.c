/* actors/common/prompt/py_ops.c -- Python's operators, comparisons and conversions to numbers. */
#include "actors/common/prompt/jinja_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "actors/common/prompt/py_unicode.h"

#define DIGITS_MAX 4300u                /* of an integer read from text, as Python */

static const char *
op_name(enum node_kind op)
{
	switch (op) {
	case N_ADD: return "+";
	case N_SUB: return "-";
	case N_MUL: return "*";
	case N_DIV: return "/";
	case N_FLOORDIV: return "//";
	case N_MOD: return "%";
	default: return "** or pow()";
	}
}

static _Noreturn void
bad_operands(struct run *run, enum node_kind op, struct value a, struct value b)
{
	run_fail(run, "TypeError: unsupported operand type(s) for %s: '%s' and '%s'", op_name(op),
		 type_name(a), type_name(b));
}

static _Noreturn void
too_large(struct run *run)
{
	run_fail(run, "unsupported: to compute with integers beyond 64 bits");
}

static bool
is_number(struct value v)
{
	return is_int(v) || v.kind == VALUE_FLOAT || v.kind == VALUE_BIG;
}

static double
as_double(struct run *run, struct value v)
{
	char buf[DIGITS_MAX + 8];
	double f;

	if (v.kind == VALUE_FLOAT)
		return v.f;
	if (v.kind != VALUE_BIG)
		return (double)v.i;
	if (v.n >= sizeof(buf))
		too_large(run);
	memcpy(buf, v.s, v.n);
	buf[v.n] = 0;
	f = strtod(buf, NULL);
	if (isinf(f))
		run_fail(run, "OverflowError: int too large to convert to float");
	return f;
}

static struct value
int_floor(struct run *run, enum node_kind op, int64_t a, int64_t b)
{
	int64_t q, r;

	if (b == 0)
		run_fail(run, "ZeroDivisionError: integer division or modulo by zero");
	if (b == -1) {
		if (op == N_MOD)
			return value_int(0);
		if (a == INT64_MIN)
			too_large(run);
		return value_int(-a);
	}
	q = a / b;
	r = a % b;
	if (r != 0 && (r < 0) != (b < 0)) {
		q--;
		r += b;
	}
	return value_int(op == N_MOD ? r : q);
}

static struct value
int_pow(struct run *run, int64_t base, int64_t exp)
{
	int64_t r = 1;

	if (exp < 0) {
		if (base == 0)
			run_fail(run, "ZeroDivisionError: zero to a negative power");
		return value_float(pow((double)base, (double)exp));
	}
	if (base == 0 || base == 1)
		return value_int(exp == 0 ? 1 : base);
	if (base == -1)
		return value_int(exp % 2 ? -1 : 1);
	for (; exp > 0; exp--)
		if (__builtin_mul_overflow(r, base, &r))
			too_large(run);
	return value_int(r);
}

static struct value
float_op(struct run *run, enum node_kind op, double a, double b)
{
	double r, q;

	switch (op) {
	case N_ADD:
		return value_float(a + b);
	case N_SUB:
		return value_float(a - b);
	case N_MUL:
		return value_float(a * b);
	case N_POW:
		if (a == 0 && b < 0)
			run_fail(run, "ZeroDivisionError: zero to a negative power");
		r = pow(a, b);
		if (isnan(r) && !isnan(a) && !isnan(b))
			run_fail(run, "unsupported: complex numbers");
		if (isinf(r) && !isinf(a) && !isinf(b))
			run_fail(run, "OverflowError: (34, 'Numerical result out of range')");
		return value_float(r);
	default:
		break;
	}
	if (b == 0)
		run_fail(run, "ZeroDivisionError: float division by zero");
	if (op == N_DIV)
		return value_float(a / b);
	r = fmod(a, b);
	q = (a - r) / b;
	if (r != 0) {
		if ((b < 0) != (r < 0)) {
			r += b;
			q -= 1;
		}
	} else {
		r = copysign(0, b);
	}
	if (op == N_MOD)
		return value_float(r);
	if (q != 0) {
		double f = floor(q);

		return value_float(q - f > 0.5 ? f + 1 : f);
	}
	return value_float(copysign(0, a / b));
}

/* Python rounds the quotient once; a double on each side would be rounded before. */
static bool
is_exact(int64_t i)
{
	return i >= -((int64_t)1 << 53) && i <= (int64_t)1 << 53;
}

static struct value
int_op(struct run *run, enum node_kind op, struct value x, struct value y)
{
	int64_t a = x.i, b = y.i, r;

	switch (op) {
	case N_ADD:
		if (__builtin_add_overflow(a, b, &r))
			too_large(run);
		return value_int(r);
	case N_SUB:
		if (__builtin_sub_overflow(a, b, &r))
			too_large(run);
		return value_int(r);
	case N_MUL:
		if (__builtin_mul_overflow(a, b, &r))
			too_large(run);
		return value_int(r);
	case N_DIV:
		if (b == 0)
			run_fail(run, "ZeroDivisionError: division by zero");
		if (!is_exact(a) || !is_exact(b))
			run_fail(run, "unsupported: to divide integers beyond 53 bits");
		return value_float((double)a / (double)b);
	case N_POW:
		return int_pow(run, a, b);
	default:
		return int_floor(run, op, a, b);
	}
}

/* markupsafe: what is added to a Markup is escaped first. */
static struct value
add_texts(struct run *run, struct value a, struct value b)
{
	if (a.flags == b.flags)
		return run_concat(run, value_slice(a), value_slice(b), a.flags);
	a = py_markup(run, a);
	b = py_markup(run, b);
	return run_concat(run, value_slice(a), value_slice(b), VALUE_MARKUP);
}

static struct value
add_sequences(struct run *run, struct value a, struct value b)
{
	struct value_items items = {0};

	if ((uint64_t)a.n + b.n > UINT32_MAX / sizeof(a))
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
	run_steps(run, a.n / 4 + b.n / 4);
	items.item = run_take(run, ((size_t)a.n + b.n) * sizeof(a));
	if (a.n)
		memcpy(items.item, a.items, a.n * sizeof(a));
	if (b.n)
		memcpy(items.item + a.n, b.items, b.n * sizeof(a));
	return a.kind == VALUE_LIST ? value_list(items.item, a.n + b.n)
				    : value_tuple(items.item, a.n + b.n);
}

static struct value
repeat(struct run *run, struct value v, int64_t times)
{
	size_t each = v.kind == VALUE_STRING ? v.n : v.n * sizeof(v), all;
	char *own;

	if (times <= 0 || v.n == 0) {
		v.n = 0;
		return v;
	}
	if (__builtin_mul_overflow(each, (size_t)times, &all) || all > UINT32_MAX)
		run_stop(run, -ENOMEM, "the template needs more memory than it may have");
	own = v.kind == VALUE_STRING ? run_bytes(run, all) : run_take(run, all);
	for (size_t at = 0; at < all; at += each)
		memcpy(own + at, v.kind == VALUE_STRING ? v.s : (const char *)v.items, each);
	run_steps(run, all / 64);
	if (v.kind == VALUE_STRING)
		return value_text(slice_of(own, all), v.flags);
	v.p = own;
	v.n *= (uint32_t)times;
	v.flags = 0;
	return v;
}

struct value
py_binary(struct run *run, enum node_kind op, struct value a, struct value b)
{
	bool seq_a = a.kind == VALUE_STRING || a.kind == VALUE_LIST || a.kind == VALUE_TUPLE;
	bool seq_b = b.kind == VALUE_STRING || b.kind == VALUE_LIST || b.kind == VALUE_TUPLE;

	if (op == N_MOD && is_text(a))
		return py_percent(run, a, b);
	if (is_undefined(a))
		fail_undefined(run, a);
	if (is_undefined(b))
		fail_undefined(run, b);
	if (op == N_ADD && seq_a && a.kind == b.kind)
		return is_text(a) ? add_texts(run, a, b) : add_sequences(run, a, b);
	if (op == N_MUL && seq_a && is_int(b))
		return repeat(run, a, b.i);
	if (op == N_MUL && seq_b && is_int(a))
		return repeat(run, b, a.i);
	if (!is_number(a) || !is_number(b))
		bad_operands(run, op, a, b);
	if (is_int(a) && is_int(b))
		return int_op(run, op, a, b);
	if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT)
		too_large(run);
	return float_op(run, op, as_double(run, a), as_double(run, b));
}

struct value
py_unary(struct run *run, enum node_kind op, struct value a)
{
	if (is_undefined(a))
		fail_undefined(run, a);
	if (!is_number(a))
		run_fail(run, "TypeError: bad operand type for unary %s: '%s'",
			 op == N_NEG ? "-" : "+", type_name(a));
	if (a.kind == VALUE_FLOAT)
		return value_float(op == N_NEG ? -a.f : a.f);
	if (a.kind == VALUE_BIG) {
		char *own;

		if (op == N_POS)
			return a;
		if (a.s[0] == '-')
			return (struct value){.kind = VALUE_BIG, .n = a.n - 1, .s = a.s + 1};
		if (slice_eq_str(value_slice(a), "9223372036854775808"))
			return value_int(INT64_MIN);
		own = run_bytes(run, (size_t)a.n + 1);
		own[0] = '-';
		memcpy(own + 1, a.s, a.n);
		return (struct value){.kind = VALUE_BIG, .n = a.n + 1, .s = own};
	}
	if (op == N_NEG && a.i == INT64_MIN)
		too_large(run);
	return value_int(op == N_NEG ? -a.i : a.i);
}

static int
order(double a, double b)
{
	return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

static int
order_int_float(int64_t i, double f)
{
	if (isnan(f))
		return 2;
	if (f >= 0x1p63)
		return -1;
	if (f < -0x1p63)
		return 1;
	if (i != (int64_t)f)
		return i < (int64_t)f ? -1 : 1;
	return order(0, f - trunc(f));
}

/* Digits of any length, perhaps negative. */
static int
order_digits(struct slice a, struct slice b)
{
	bool na = a.p[0] == '-', nb = b.p[0] == '-';
	int c;

	if (na != nb)
		return na ? -1 : 1;
	c = a.len != b.len ? (a.len < b.len ? -1 : 1) : memcmp(a.p, b.p, a.len);
	c = c < 0 ? -1 : c > 0;
	return na ? -c : c;
}

/* A float beyond 64 bits is whole, and printf writes every digit of it. */
static int
order_big_float(struct value big, double f)
{
	char buf[400];
	int n;

	if (isnan(f))
		return 2;
	if (isinf(f))
		return f < 0 ? 1 : -1;
	if (fabs(f) < 0x1p63)
		return big.s[0] == '-' ? -1 : 1;
	n = snprintf(buf, sizeof(buf), "%.0f", f);
	return order_digits(value_slice(big), slice_of(buf, (size_t)n));
}

static int
order_numbers(struct value a, struct value b)
{
	int c;

	if (is_int(a) && is_int(b))
		return a.i < b.i ? -1 : a.i > b.i;
	if (a.kind == VALUE_BIG && b.kind == VALUE_BIG)
		return order_digits(value_slice(a), value_slice(b));
	if (a.kind == VALUE_BIG && is_int(b))
		return a.s[0] == '-' ? -1 : 1;
	if (b.kind == VALUE_BIG && is_int(a))
		return b.s[0] == '-' ? 1 : -1;
	if (is_int(a))
		return order_int_float(a.i, b.f);
	if (is_int(b)) {
		c = order_int_float(b.i, a.f);
		return c == 2 ? 2 : -c;
	}
	if (a.kind == VALUE_BIG)
		return order_big_float(a, b.f);
	if (b.kind == VALUE_BIG) {
		c = order_big_float(b, a.f);
		return c == 2 ? 2 : -c;
	}
	return order(a.f, b.f);
}

static int
order_texts(struct value a, struct value b)
{
	int c = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n);

	if (c)
		return c < 0 ? -1 : 1;
	return a.n < b.n ? -1 : a.n > b.n;
}

int
py_compare(struct run *run, enum compare_op op, struct value a, struct value b)
{
	static const char *const name[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

	run_deep(run);
	if (is_undefined(a))
		fail_undefined(run, a);
	if (is_undefined(b))
		fail_undefined(run, b);
	if (is_number(a) && is_number(b))
		return order_numbers(a, b);
	if (is_text(a) && is_text(b))
		return order_texts(a, b);
	if ((a.kind != VALUE_LIST && a.kind != VALUE_TUPLE) || a.kind != b.kind)
		run_fail(run, "TypeError: '%s' not supported between instances of '%s' and '%s'",
			 name[op], type_name(a), type_name(b));
	for (uint32_t i = 0; i < a.n && i < b.n; i++) {
		run_steps(run, 1);
		if (!value_equal(a.items[i], b.items[i]))
			return py_compare(run, op, a.items[i], b.items[i]);
	}
	return a.n < b.n ? -1 : a.n > b.n;
}

static bool
ranges_equal(struct value a, struct value b)
{
	const struct range *x = a.p, *y = b.p;

	if (a.n != b.n)
		return false;
	return a.n == 0 || (x->start == y->start && (a.n == 1 || x->step == y->step));
}

bool
py_relation(struct run *run, enum compare_op op, struct value a, struct value b)
{
	bool eq;
	int c;

	if (op == OP_EQ || op == OP_NE) {
		eq = a.kind == VALUE_RANGE && b.kind == VALUE_RANGE ? ranges_equal(a, b)
								    : value_equal(a, b);
		return eq == (op == OP_EQ);
	}
	if (op == OP_IN || op == OP_NOT_IN)
		return py_contains(run, b, a) == (op == OP_IN);
	c = py_compare(run, op, a, b);
	switch (op) {
	case OP_LT:
		return c == -1;
	case OP_LE:
		return c == -1 || c == 0;
	case OP_GT:
		return c == 1;
	default:
		return c == 1 || c == 0;
	}
}

bool
py_contains(struct run *run, struct value in, struct value item)
{
	struct iter it;
	struct value v;

	switch (in.kind) {
	case VALUE_STRING:
		if (!is_text(item))
			run_fail(run, "TypeError: 'in <string>' requires string as left operand, "
				      "not %s", type_name(item));
		run_steps(run, in.n / 64);
		return py_find(value_slice(in), value_slice(item)) != NULL;
	case VALUE_DICT:
		if (!value_hashable(item))
			run_fail(run, "TypeError: unhashable type: '%s'", type_name(item));
		return value_get(in.dict, item) != NULL;
	case VALUE_VIEW:
		if (in.flags == VIEW_KEYS) {
			in.kind = VALUE_DICT;
			return py_contains(run, in, item);
		}
		break;
	default:
		if (!iter_able(in))
			run_fail(run, "TypeError: argument of type '%s' is not iterable",
				 type_name(in));
	}
	iter_begin(run, &it, in);
	while (iter_next(run, &it, &v)) {
		run_steps(run, 1);
		if (value_equal(v, item))
			return true;
	}
	return false;
}

bool
py_has_len(struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_STRING:
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_DICT:
	case VALUE_RANGE:
	case VALUE_VIEW:
	case VALUE_LOOP:
		return true;
	default:
		return false;
	}
}

int64_t
py_len(struct run *run, struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
		return 0;
	case VALUE_STRING:
		return (int64_t)py_length(value_slice(v));
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_RANGE:
		return v.n;
	case VALUE_DICT:
	case VALUE_VIEW:
		return v.dict->n;
	case VALUE_LOOP:
		return loop_attr(run, (struct loop *)(uintptr_t)v.p, SLICE_LIT("length")).i;
	default:
		run_fail(run, "TypeError: object of type '%s' has no len()", type_name(v));
	}
}

static int
digit_value(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'z' ? c - 'a' + 10
	       : c >= 'A' && c <= 'Z' ? c - 'A' + 10
				      : 99;
}

/* Digits of the base with single underscores between: without these into out, and how many. */
static bool
collect_digits(struct slice s, int base, char *out, size_t *ret_n)
{
	bool last_digit = false;
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] == '_' && last_digit) {
			last_digit = false;
			continue;
		}
		if (digit_value(s.p[i]) >= base || n == DIGITS_MAX)
			return false;
		out[n++] = s.p[i];
		last_digit = true;
	}
	out[n] = 0;
	*ret_n = n;
	return last_digit;
}

static bool
parse_int(struct run *run, struct slice s, int64_t base, struct value *ret)
{
	char digits[DIGITS_MAX + 2], *from = digits + 1;
	bool negative, prefixed = false;
	size_t n;
	long long i;

	s = py_strip(s, true, true);
	negative = s.len && s.p[0] == '-';
	if (negative || (s.len && s.p[0] == '+')) {
		s.p++;
		s.len--;
	}
	if ((base != 0 && base < 2) || base > 36)
		return false;
	if (s.len > 1 && s.p[0] == '0') {
		char x = (char)(s.p[1] | 0x20);
		int named = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;

		if (named && (base == 0 || base == named)) {
			base = named;
			s.p += 2;
			s.len -= 2;
			if (s.len && s.p[0] == '_') {
				s.p++;
				s.len--;
			}
			prefixed = true;
		}
	}
	if (!collect_digits(s, base ? (int)base : 10, from, &n))
		return false;
	if (base == 0 && !prefixed && n > 1 && from[0] == '0' && strspn(from, "0") != n)
		return false;
	while (n > 1 && *from == '0') {
		from++;
		n--;
	}
	if (negative)
		*--from = '-';
	errno = 0;
	i = strtoll(from, NULL, base ? (int)base : 10);
	if (errno != ERANGE) {
		*ret = value_int(i);
		return true;
	}
	if (base != 10 && base != 0)
		too_large(run);
	*ret = run_copy(run, slice_of(from, n + negative), 0);
	ret->kind = VALUE_BIG;
	return true;
}

static struct value
int_of_float(struct run *run, double f)
{
	struct value v;
	char buf[400];
	int n;

	f = trunc(f);
	if (f >= -0x1p63 && f < 0x1p63)
		return value_int((int64_t)f);
	n = snprintf(buf, sizeof(buf), "%.0f", f);
	v = run_copy(run, slice_of(buf, (size_t)n), 0);
	v.kind = VALUE_BIG;
	return v;
}

/* int(v, base); *ok false: TypeError or ValueError. */
struct value
py_int_of(struct run *run, struct value v, int64_t base, bool *ok)
{
	struct value r = value_int(0);

	*ok = true;
	if (is_undefined(v))
		fail_undefined(run, v);
	if (is_int(v))
		return value_int(v.i);
	if (v.kind == VALUE_BIG)
		return v;
	if (v.kind == VALUE_FLOAT && isinf(v.f))
		run_fail(run, "OverflowError: cannot convert float infinity to integer");
	if (v.kind == VALUE_FLOAT && !isnan(v.f))
		return int_of_float(run, v.f);
	*ok = is_text(v) && parse_int(run, value_slice(v), base, &r);
	return r;
}

static bool
parse_float(struct run *run, struct slice s, double *ret)
{
	static const char *const word[] = {"inf", "infinity", "nan"};
	char *buf, *end;
	size_t n = 0;
	bool digit = false, any = false;

	s = py_strip(s, true, true);
	if (s.len == 0)
		return false;
	buf = run_bytes(run, s.len + 1);
	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (c == '_') {
			if (!digit || i + 1 == s.len || s.p[i + 1] < '0' || s.p[i + 1] > '9')
				return false;
			digit = false;
			continue;
		}
		digit = c >= '0' && c <= '9';
		any = any || digit;
		buf[n++] = c;
	}
	buf[n] = 0;
	for (int i = 0; i < 3; i++) {
		const char *p = buf + (buf[0] == '-' || buf[0] == '+');

		if (strcasecmp(p, word[i]) == 0) {
			*ret = i == 2 ? NAN : buf[0] == '-' ? -INFINITY : INFINITY;
			return true;
		}
	}
	if (!any || strspn(buf, "0123456789+-.eE") != n)
		return false;
	*ret = strtod(buf, &end);
	return *end == 0;
}

struct value
py_float_of(struct run *run, struct value v, bool *ok)
{
	double f = 0;

	*ok = true;
	if (is_undefined(v))
		fail_undefined(run, v);
	if (is_number(v))
		return value_float(as_double(run, v));
	*ok = is_text(v) && parse_float(run, value_slice(v), &f);
	return value_float(f);
}
