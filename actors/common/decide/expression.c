/* actors/common/decide/expression.c -- an expression's life, and its evaluation. */
#include "actors/common/decide/expression.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "actors/common/decide/expression_private.h"

void
expression_free(struct expression **ret)
{
	struct expression *e = *ret;

	if (!e)
		return;
	for (uint32_t i = 0; i < EXPRESSION_REGEXES; i++)
		pcre2_code_free(e->regex[i]);
	pcre2_match_context_free(e->match);
	free(e->steps);
	free(e->constants);
	free(e->items);
	free(e->strings);
	free(e->text);
	free(e);
	*ret = NULL;
}

int
expression_compile(struct slice text, enum expression_place place,
		   const struct expression_names *names, struct expression **ret,
		   struct expression_error *ret_error)
{
	struct expression_tree t;
	struct expression *e = NULL;
	int r = expression_parse(text, &t, ret_error);

	if (r == 0)
		r = expression_check(&t, place, names, true);
	if (r == 0) {
		e = calloc(1, sizeof *e);
		if (e)
			e->text = malloc(text.len + 1);
		r = e && e->text ? expression_emit(&t, e) : -ENOMEM;
	}
	if (r == 0) {
		memcpy(e->text, text.p, text.len);
		e->len = text.len;
		e->type = t.root->type;
		e->strings = t.source.strings;  /* constants point into these two */
		e->items = t.items;
		t.source.strings = NULL;
		t.items = NULL;
		*ret = e;
	} else {
		expression_free(&e);
	}
	expression_tree_free(&t);
	return r;
}

void
expression_error_say(const struct expression_error *error, char *buf, size_t cap)
{
	int n = snprintf(buf, cap, "has %s, expected %s", error->found, error->expected);

	if (error->nearest[0] && n > 0 && (size_t)n < cap)
		snprintf(buf + n, cap - (size_t)n, "; did you mean '%s'?", error->nearest);
}

/* ---- evaluation ---- */

static struct expression_value
truth(enum expression_truth t)
{
	return (struct expression_value){
		.type = t == EXPRESSION_UNKNOWN ? TYPE_UNKNOWN : TYPE_BOOL,
		.b = t == EXPRESSION_YES,
	};
}

static struct expression_value
tag(const struct facts *f, uint32_t bit)
{
	if (!f->request || (f->request->tags_unknown >> bit & 1))
		return truth(EXPRESSION_UNKNOWN);
	return truth(f->request->tags >> bit & 1 ? EXPRESSION_YES : EXPRESSION_NO);
}

static struct expression_value
header(const struct facts *f, struct slice key, bool has)
{
	struct slice value;
	int found = f->request ? facts_header(f->request->head, key.p, &value) : -1;

	if (has)
		return truth(found < 0 ? EXPRESSION_UNKNOWN : found ? EXPRESSION_YES :
							    EXPRESSION_NO);
	if (found <= 0)
		return truth(EXPRESSION_UNKNOWN);
	return (struct expression_value){.type = TYPE_STRING, .s = value};
}

static struct expression_value
label(const struct facts *f, struct slice key, bool has)
{
	const struct facts_label *l = f->candidate ? expression_label(f, key) : NULL;

	if (!f->candidate)
		return truth(EXPRESSION_UNKNOWN);
	if (has)
		return truth(l ? EXPRESSION_YES : EXPRESSION_NO);
	return l ? (struct expression_value){.type = TYPE_STRING, .s = l->value} :
		   truth(EXPRESSION_UNKNOWN);
}

static void
choice(const struct facts *f, const struct expression_step *s, struct expression_value *ret)
{
	uint8_t is;

	ret->type = TYPE_UNKNOWN;
	if (!f->candidate)
		return;
	is = *((const uint8_t *)f->candidate + facts_table()[s->arg].offset);
	if (is >= s->more)
		return;
	ret->type = TYPE_BOOL;
	ret->b = s->b >> is & 1;
}

/* What lies there; base NULL: unknown. */
static inline void
load_int(const void *base, uint32_t offset, struct expression_value *ret)
{
	ret->type = TYPE_UNKNOWN;
	if (!base)
		return;
	memcpy(&ret->i, (const char *)base + offset, sizeof ret->i);
	if (ret->i != FACTS_INT_UNKNOWN)
		ret->type = TYPE_INT;
}

static inline void
load_double(const void *base, uint32_t offset, struct expression_value *ret)
{
	ret->type = TYPE_UNKNOWN;
	if (!base)
		return;
	memcpy(&ret->d, (const char *)base + offset, sizeof ret->d);
	if (!isnan(ret->d))
		ret->type = TYPE_DOUBLE;
}

static inline void
load_string(const void *base, uint32_t offset, struct expression_value *ret)
{
	ret->type = TYPE_UNKNOWN;
	if (!base)
		return;
	memcpy(&ret->s, (const char *)base + offset, sizeof ret->s);
	if (ret->s.p)
		ret->type = TYPE_STRING;
}

#define COMPARED(op, a, b)                                                                         \
	((op) == NODE_EQUAL ? (a) == (b) : (op) == NODE_UNEQUAL ? (a) != (b) :                     \
	 (op) == NODE_LESS ? (a) < (b) : (op) == NODE_LESS_EQUAL ? (a) <= (b) :                    \
	 (op) == NODE_MORE ? (a) > (b) : (a) >= (b))

/* dst may be a: both are read before it is written. */
static inline void
compare(const struct expression_step *s, const struct expression_value *a,
	const struct expression_value *b, struct expression_value *dst)
{
	bool known = a->type != TYPE_UNKNOWN && b->type != TYPE_UNKNOWN, is = false;

	if (known)
		is = s->code == STEP_COMPARE_INTS ? COMPARED(s->arg, a->i, b->i) :
			COMPARED(s->arg, a->d, b->d);
	dst->type = known ? TYPE_BOOL : TYPE_UNKNOWN;
	dst->b = is;
}

/* One side does not decide alone: what is left when it is known, and when it is not. */
static struct expression_value
both(const struct expression_value *a, const struct expression_value *b, bool decides)
{
	if (b->type == TYPE_BOOL && b->b == decides)
		return *b;
	if (a->type == TYPE_BOOL && a->b == decides)
		return *a;
	return a->type == TYPE_UNKNOWN ? *a : *b;
}

static struct expression_value
list(const struct expression_value *item, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (item[i].type == TYPE_UNKNOWN)
			return item[i];
	return (struct expression_value){.type = TYPE_LIST, .n = n, .item = item};
}

static const struct expression_value *
operand(const struct expression *e, const struct expression_value *reg, uint16_t at)
{
	return at & CONSTANT ? &e->constants[at & ~CONSTANT] : &reg[at];
}

static struct expression_value
run(const struct expression *e, const struct facts *f)
{
	struct expression_value reg[EXPRESSION_REGISTERS];
	uint32_t at = 0;

	while (at < e->n_steps) {
		const struct expression_step *s = &e->steps[at++];
		const struct expression_value *a = operand(e, reg, s->a);
		struct expression_value *dst = &reg[s->dst];

		switch ((enum expression_code)s->code) {
		case STEP_COPY:
			*dst = *a;
			break;
		case STEP_FACT:
			*dst = expression_fact((enum fact)s->arg, f, 0);
			break;
		case STEP_REQUEST_INT:
			load_int(f->request, s->arg, dst);
			break;
		case STEP_INT:
			load_int(f->candidate, s->arg, dst);
			break;
		case STEP_REQUEST_DOUBLE:
			load_double(f->request, s->arg, dst);
			break;
		case STEP_DOUBLE:
			load_double(f->candidate, s->arg, dst);
			break;
		case STEP_STRING:
			load_string(f->candidate, s->arg, dst);
			break;
		case STEP_COMPARE_INTS:
		case STEP_COMPARE_DOUBLES:
			compare(s, a, operand(e, reg, s->b), dst);
			break;
		case STEP_POOL:
			*dst = expression_fact((enum fact)s->arg, f, s->b);
			break;
		case STEP_POOL_HERE:
			*dst = expression_fact((enum fact)s->arg, f, f->candidate ?
					       f->candidate->pool_index : UINT32_MAX);
			break;
		case STEP_KNOWN:
			*dst = truth(a->type == TYPE_UNKNOWN ? EXPRESSION_NO : EXPRESSION_YES);
			break;
		case STEP_TAG:
			*dst = tag(f, s->arg);
			break;
		case STEP_TAGS_SIZE:
			*dst = (struct expression_value){.type = TYPE_UNKNOWN};
			if (f->request && f->request->tags_unknown == 0)
				*dst = (struct expression_value){
					.type = TYPE_INT,
					.i = __builtin_popcountll(f->request->tags),
				};
			break;
		case STEP_HEADER:
		case STEP_HAS_HEADER:
			*dst = header(f, a->s, s->code == STEP_HAS_HEADER);
			break;
		case STEP_LABEL:
		case STEP_HAS_LABEL:
			*dst = label(f, a->s, s->code == STEP_HAS_LABEL);
			break;
		case STEP_CHOICE:
			choice(f, s, dst);
			break;
		case STEP_NOT:
			*dst = *a;
			if (a->type == TYPE_BOOL)
				dst->b = !a->b;
			break;
		case STEP_MINUS:
			*dst = expression_minus(a);
			break;
		case STEP_OPERATE:
			*dst = expression_operate((enum expression_node_type)s->arg, a,
						  operand(e, reg, s->b));
			break;
		case STEP_CONVERT:
			*dst = expression_convert(a, (enum expression_type)s->arg);
			break;
		case STEP_SIZE:
			*dst = expression_size(a);
			break;
		case STEP_MATCHES:
			*dst = a->type == TYPE_UNKNOWN ? *a :
				truth(expression_regex_test(e->regex[s->b], e->match, a->s));
			break;
		case STEP_LIST:
			*dst = list(&reg[s->arg], s->b);
			break;
		case STEP_AND:
		case STEP_OR:
			*dst = both(a, operand(e, reg, s->b), s->code == STEP_OR);
			break;
		case STEP_JUMP:
			at = s->arg;
			break;
		case STEP_JUMP_NO:
		case STEP_JUMP_YES:
			if (a->type == TYPE_BOOL && a->b == (s->code == STEP_JUMP_YES)) {
				*dst = *a;
				at = s->arg;
			}
			break;
		case STEP_BRANCH:
			if (a->type == TYPE_UNKNOWN) {
				*dst = *a;
				at = s->b;
			} else if (!a->b) {
				at = s->arg;
			}
			break;
		}
	}
	return *operand(e, reg, e->result);
}

enum expression_truth
expression_test(const struct expression *e, const struct facts *f)
{
	struct expression_value v = run(e, f);

	if (v.type != TYPE_BOOL)
		return EXPRESSION_UNKNOWN;
	return v.b ? EXPRESSION_YES : EXPRESSION_NO;
}

double
expression_number(const struct expression *e, const struct facts *f)
{
	struct expression_value v = run(e, f);

	if (v.type == TYPE_UNKNOWN)
		return NAN;
	return v.type == TYPE_BOOL ? v.b : expression_convert(&v, TYPE_DOUBLE).d;
}

uint64_t
expression_reads(const struct expression *e)
{
	return e->reads;
}

uint64_t
expression_tags(const struct expression *e)
{
	return e->tags;
}

struct slice
expression_text(const struct expression *e)
{
	return slice_of(e->text, e->len);
}

bool
expression_is_number(const struct expression *e)
{
	return e->type != TYPE_BOOL;
}

enum expression_truth
expression_constant(const struct expression *e)
{
	const struct expression_value *v;

	if (!(e->result & CONSTANT))
		return EXPRESSION_UNKNOWN;
	v = &e->constants[e->result & ~CONSTANT];
	if (v->type != TYPE_BOOL)
		return EXPRESSION_UNKNOWN;
	return v->b ? EXPRESSION_YES : EXPRESSION_NO;
}
