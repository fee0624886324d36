/* actors/common/decide/expression_values.c -- what operators do with values, as CEL says; and where
 * facts are read.  What CEL calls an error is the unknown value. */
#include "actors/common/decide/expression_private.h"

#include <math.h>

static const struct expression_value unknown = {.type = TYPE_UNKNOWN};

static struct expression_value
a_bool(bool b)
{
	return (struct expression_value){.type = TYPE_BOOL, .b = b};
}

static struct expression_value
an_int(int64_t i)
{
	return (struct expression_value){.type = TYPE_INT, .i = i};
}

/* ---- arithmetic ---- */

static struct expression_value
ints(enum expression_node_type op, int64_t a, int64_t b, enum expression_type type)
{
	struct expression_value v = {.type = type};
	bool over;

	switch (op) {
	case NODE_ADD:
		over = __builtin_add_overflow(a, b, &v.i);
		break;
	case NODE_SUBTRACT:
		over = __builtin_sub_overflow(a, b, &v.i);
		break;
	case NODE_MULTIPLY:
		over = __builtin_mul_overflow(a, b, &v.i);
		break;
	default:
		over = b == 0 || (a == INT64_MIN && b == -1);
		if (!over)
			v.i = op == NODE_DIVIDE ? a / b : a % b;
		break;
	}
	return over ? unknown : v;
}

static struct expression_value
uints(enum expression_node_type op, uint64_t a, uint64_t b)
{
	struct expression_value v = {.type = TYPE_UINT};
	bool over;

	switch (op) {
	case NODE_ADD:
		over = __builtin_add_overflow(a, b, &v.u);
		break;
	case NODE_SUBTRACT:
		over = __builtin_sub_overflow(a, b, &v.u);
		break;
	case NODE_MULTIPLY:
		over = __builtin_mul_overflow(a, b, &v.u);
		break;
	default:
		over = b == 0;
		if (!over)
			v.u = op == NODE_DIVIDE ? a / b : a % b;
		break;
	}
	return over ? unknown : v;
}

static struct expression_value
doubles(enum expression_node_type op, double a, double b)
{
	struct expression_value v = {.type = TYPE_DOUBLE};

	switch (op) {
	case NODE_ADD:
		v.d = a + b;
		break;
	case NODE_SUBTRACT:
		v.d = a - b;
		break;
	case NODE_MULTIPLY:
		v.d = a * b;
		break;
	default:
		v.d = a / b;
		break;
	}
	return v;
}

struct expression_value
expression_minus(const struct expression_value *a)
{
	struct expression_value v = *a;

	if (a->type == TYPE_INT)
		return a->i == INT64_MIN ? unknown : an_int(-a->i);
	if (a->type == TYPE_DOUBLE)
		v.d = -a->d;
	return v;
}

/* ---- order ---- */

#define UNORDERED 2

static int
order_ints(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

/* Exactly, however large: as points on one line. */
static int
order_int_double(int64_t a, double b)
{
	double whole;

	if (isnan(b))
		return UNORDERED;
	if (b >= 0x1p63)
		return -1;
	if (b < -0x1p63)
		return 1;
	whole = trunc(b);
	if ((int64_t)whole != a)
		return a < (int64_t)whole ? -1 : 1;
	return b > whole ? -1 : b < whole;
}

static int
order_uint_double(uint64_t a, double b)
{
	double whole;

	if (isnan(b))
		return UNORDERED;
	if (b >= 0x1p64)
		return -1;
	if (b < 0)
		return 1;
	whole = trunc(b);
	if ((uint64_t)whole != a)
		return a < (uint64_t)whole ? -1 : 1;
	return b > whole ? -1 : 0;
}

static int
back(int order)
{
	return order == UNORDERED ? order : -order;
}

static int
order_numbers(const struct expression_value *a, const struct expression_value *b)
{
	if (a->type == TYPE_INT && b->type == TYPE_INT)
		return order_ints(a->i, b->i);
	if (a->type == TYPE_DOUBLE && b->type == TYPE_DOUBLE)
		return a->d < b->d ? -1 : a->d > b->d ? 1 : a->d == b->d ? 0 : UNORDERED;
	if (a->type == TYPE_UINT && b->type == TYPE_UINT)
		return a->u < b->u ? -1 : a->u > b->u;
	if (a->type == TYPE_INT)
		return b->type == TYPE_DOUBLE ? order_int_double(a->i, b->d) :
			a->i < 0 || (uint64_t)a->i < b->u ? -1 : (uint64_t)a->i > b->u;
	if (a->type == TYPE_UINT && b->type == TYPE_DOUBLE)
		return order_uint_double(a->u, b->d);
	return back(order_numbers(b, a));
}

static int
order_strings(struct slice a, struct slice b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int r = n ? memcmp(a.p, b.p, n) : 0;

	if (r == 0)
		return a.len < b.len ? -1 : a.len > b.len;
	return r < 0 ? -1 : 1;
}

static int
order(const struct expression_value *a, const struct expression_value *b)
{
	switch (a->type) {
	case TYPE_STRING:
		return order_strings(a->s, b->s);
	case TYPE_BOOL:
		return (int)a->b - (int)b->b;
	case TYPE_DURATION:
		return order_ints(a->i, b->i);
	default:
		return order_numbers(a, b);
	}
}

static bool
equal(const struct expression_value *a, const struct expression_value *b)
{
	return a->type == TYPE_STRING ? slice_eq(a->s, b->s) : order(a, b) == 0;
}

/* ---- the rest ---- */

static struct expression_value
in_list(const struct expression_value *a, const struct expression_value *list)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (equal(a, &list->item[i]))
			return a_bool(true);
	return a_bool(false);
}

static bool
affix(enum expression_node_type op, struct slice a, struct slice b)
{
	if (b.len > a.len)
		return false;
	if (b.len == 0)
		return true;
	switch (op) {
	case NODE_STARTS:
		return memcmp(a.p, b.p, b.len) == 0;
	case NODE_ENDS:
		return memcmp(a.p + a.len - b.len, b.p, b.len) == 0;
	default:
		return memmem(a.p, a.len, b.p, b.len) != NULL;
	}
}

struct expression_value
expression_operate(enum expression_node_type op, const struct expression_value *a,
		   const struct expression_value *b)
{
	int r;

	if (a->type == TYPE_UNKNOWN || b->type == TYPE_UNKNOWN)
		return unknown;
	switch (op) {
	case NODE_ADD: case NODE_SUBTRACT: case NODE_MULTIPLY: case NODE_DIVIDE: case NODE_MODULO:
		if (a->type == TYPE_DOUBLE)
			return doubles(op, a->d, b->d);
		if (a->type == TYPE_UINT)
			return uints(op, a->u, b->u);
		return ints(op, a->i, b->i, a->type);
	case NODE_IN:
		return in_list(a, b);
	case NODE_INDEX:
		return b->i < 0 || b->i >= a->n ? unknown : a->item[b->i];
	case NODE_STARTS: case NODE_ENDS: case NODE_CONTAINS:
		return a_bool(affix(op, a->s, b->s));
	case NODE_EQUAL:
		return a_bool(equal(a, b));
	case NODE_UNEQUAL:
		return a_bool(!equal(a, b));
	default:
		break;
	}
	r = order(a, b);
	switch (op) {
	case NODE_LESS:
		return a_bool(r == -1);
	case NODE_LESS_EQUAL:
		return a_bool(r == -1 || r == 0);
	case NODE_MORE:
		return a_bool(r == 1);
	default:
		return a_bool(r == 1 || r == 0);
	}
}

struct expression_value
expression_convert(const struct expression_value *a, enum expression_type to)
{
	struct expression_value v = {.type = to};

	if (a->type == TYPE_UNKNOWN)
		return unknown;
	if (to == TYPE_DOUBLE) {
		v.d = a->type == TYPE_INT ? (double)a->i : a->type == TYPE_UINT ? (double)a->u :
			a->type == TYPE_DURATION ? (double)a->i / 1e9 : a->d;
		return v;
	}
	if (a->type == TYPE_DOUBLE) {
		/* cut, as CEL does; what is not between the ends is an error there */
		if (to == TYPE_INT ? !(a->d > -0x1p63 && a->d < 0x1p63) :
				     !(a->d > -1 && a->d < 0x1p64))
			return unknown;
		if (to == TYPE_UINT && a->d < 0)
			return unknown;
		if (to == TYPE_INT)
			v.i = (int64_t)a->d;
		else
			v.u = (uint64_t)a->d;
		return v;
	}
	if (a->type == to)
		return *a;
	if (a->type == TYPE_UINT ? a->u > INT64_MAX : a->i < 0)
		return unknown;
	v.u = a->u;
	return v;
}

struct expression_value
expression_size(const struct expression_value *a)
{
	int64_t n = 0;

	if (a->type == TYPE_UNKNOWN)
		return unknown;
	if (a->type == TYPE_LIST)
		return an_int(a->n);
	for (size_t i = 0; i < a->s.len; i++)
		n += (a->s.p[i] & 0xc0) != 0x80;        /* code points */
	return an_int(n);
}

/* ---- facts ---- */

static struct expression_value
load(const struct fact_row *row, const void *base)
{
	const char *at = (const char *)base + row->offset;
	struct expression_value v = unknown;
	int8_t flag;
	uint8_t choice;

	switch (row->type) {
	case FACTS_BOOL:
		memcpy(&flag, at, sizeof flag);
		return flag < 0 ? unknown : a_bool(flag != 0);
	case FACTS_INT:
		memcpy(&v.i, at, sizeof v.i);
		v.type = v.i == FACTS_INT_UNKNOWN ? TYPE_UNKNOWN : TYPE_INT;
		return v;
	case FACTS_DOUBLE:
		memcpy(&v.d, at, sizeof v.d);
		v.type = isnan(v.d) ? TYPE_UNKNOWN : TYPE_DOUBLE;
		return v;
	case FACTS_STRING:
		memcpy(&v.s, at, sizeof v.s);
		v.type = v.s.p ? TYPE_STRING : TYPE_UNKNOWN;
		return v;
	case FACTS_CHOICE:
		memcpy(&choice, at, sizeof choice);
		v.s = slice_str(row->choice(choice));
		v.type = slice_eq_str(v.s, "unknown") ? TYPE_UNKNOWN : TYPE_STRING;
		return v;
	default:
		return v;
	}
}

struct expression_value
expression_fact(enum fact fact, const struct facts *f, uint32_t pool)
{
	const struct fact_row *row = &facts_table()[fact];
	const void *base = f->candidate;

	if (row->class & (FACTS_OF_REQUEST | FACTS_OF_TAGS))
		base = f->request;
	else if (row->class == FACTS_POOL)
		base = pool < f->n_pools ? &f->pools[pool] : NULL;
	return base ? load(row, base) : unknown;
}

const struct facts_label *
expression_label(const struct facts *f, struct slice key)
{
	for (uint32_t i = 0; i < f->candidate->n_labels; i++)
		if (slice_eq(f->candidate->labels[i].key, key))
			return &f->candidate->labels[i];
	return NULL;
}
