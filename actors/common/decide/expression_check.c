/* actors/common/decide/expression_check.c -- what a tree's names and types are, and whether they
 * fit; what reads no fact is computed now. */
#include "actors/common/decide/expression_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/yaml.h"

static bool
is_number(enum expression_type type)
{
	return type == TYPE_INT || type == TYPE_UINT || type == TYPE_DOUBLE;
}

static int
want(struct checker *c, const struct expression_node *n, enum expression_type type)
{
	if (n->type == type)
		return 0;
	return FAIL(c, n, NULL, "%s, not %s", expression_type_name(type),
		    expression_type_name(n->type));
}

static int
check_index(struct checker *c, struct expression_node *n)
{
	struct expression_node *of = n->child, *key = of->next;
	int r;

	if (expression_is_pool(n))
		return FAIL(c, n, NULL, "its .ready, .waiting or .kvUsage");
	r = expression_check_node(c, of);
	if (r == 0)
		r = expression_check_node(c, key);
	if (r < 0)
		return r;
	if (of->type == TYPE_HEADERS || of->type == TYPE_LABELS) {
		r = expression_want_literal(c, key, "a name");
		return r < 0 ? r : expression_keyed(c, n, of, key, key->value.s, false);
	}
	r = want(c, of, TYPE_LIST);
	if (r == 0)
		r = want(c, key, TYPE_INT);
	if (r == 0 && of->item == TYPE_UNKNOWN)
		r = FAIL(c, of, NULL, "a list with something in it");
	n->type = of->item;
	return r;
}

/* ---- operators ---- */

static int
one_type(struct checker *c, const struct expression_node *n)
{
	const struct expression_node *a = n->child, *b = a->next;

	if (a->type == b->type)
		return 0;
	if (is_number(a->type) && is_number(b->type))
		return FAIL(c, n, NULL, "two numbers of one type, not %s and %s: double(...) makes "
					"one",
			    expression_type_name(a->type), expression_type_name(b->type));
	return FAIL(c, n, NULL, "two of one type, not %s and %s", expression_type_name(a->type),
		    expression_type_name(b->type));
}

static int
check_arithmetic(struct checker *c, struct expression_node *n)
{
	struct expression_node *a = n->child;
	bool sum = n->kind == NODE_ADD || n->kind == NODE_SUBTRACT;
	const char *expected = n->kind == NODE_MODULO ? "an int or a uint" : sum ?
		"a number or a duration" : "a number";

	for (struct expression_node *i = a; i; i = i->next) {
		bool ok = n->kind == NODE_MODULO ? i->type == TYPE_INT || i->type == TYPE_UINT :
			is_number(i->type) || (sum && i->type == TYPE_DURATION);

		if (!ok)
			return FAIL(c, i, NULL, "%s, not %s", expected,
				    expression_type_name(i->type));
	}
	n->type = a->type;
	return one_type(c, n);
}

/* Seconds may be compared with a duration, which becomes such. */
static void
to_seconds(struct checker *c, struct expression_node *seconds, struct expression_node **at)
{
	struct expression_node *duration = *at, *n;

	if (seconds->kind != NODE_FACT || strcmp(facts_table()[seconds->fact].unit, "s") != 0 ||
	    duration->type != TYPE_DURATION)
		return;
	n = &c->t->nodes[c->t->n_nodes++];
	*n = (struct expression_node){
		.kind = NODE_CONVERT, .type = TYPE_DOUBLE, .offset = duration->offset,
		.len = duration->len, .child = duration, .next = duration->next, .n_children = 1,
	};
	duration->next = NULL;
	*at = n;
	if (c->fold && duration->kind == NODE_LITERAL) {
		n->kind = NODE_LITERAL;
		n->value = expression_convert(&duration->value, TYPE_DOUBLE);
	}
}

static int
check_comparison(struct checker *c, struct expression_node *n)
{
	struct expression_node *a, *b;
	int r;

	to_seconds(c, n->child, &n->child->next);
	to_seconds(c, n->child->next, &n->child);
	a = n->child;
	b = a->next;
	n->type = TYPE_BOOL;
	for (struct expression_node *i = a; i; i = i->next)
		if (i->type >= TYPE_LIST)
			return FAIL(c, i, NULL, "one value to compare, not %s: ask with `in`",
				    expression_type_name(i->type));
	if (!is_number(a->type) || !is_number(b->type)) {
		r = one_type(c, n);
		if (r < 0)
			return r;
	}
	r = expression_check_against(c, a, b);
	return r < 0 ? r : expression_check_against(c, b, a);
}

static int
check_in(struct checker *c, struct expression_node *n)
{
	struct expression_node *a = n->child, *b = a->next;
	int r;

	n->type = TYPE_BOOL;
	switch (b->type) {
	case TYPE_TAGS:
		r = expression_want_literal(c, a, "a tag's name");
		if (r == 0)
			r = expression_find_name(c, a, c->names->tags, c->names->n_tags,
				      "the name of a RequestTag", a->value.s, &n->index);
		n->kind = NODE_TAG;
		n->fact = b->fact;
		return r;
	case TYPE_HEADERS:
	case TYPE_LABELS:
		r = expression_want_literal(c, a, "a name");
		return r < 0 ? r : expression_keyed(c, n, b, a, a->value.s, true);
	case TYPE_LIST:
		if (b->item != TYPE_UNKNOWN && a->type != b->item &&
		    !(is_number(a->type) && is_number(b->item)))
			return FAIL(c, n, NULL, "one type on both sides of `in`, not %s and %s",
				    expression_type_name(a->type), expression_type_name(b->item));
		if (a->type >= TYPE_LIST)
			return FAIL(c, a, NULL, "one value, not %s", expression_type_name(a->type));
		return expression_check_against(c, a, b);
	default:
		return FAIL(c, b, NULL, "a list, request.tags, or a map, not %s",
			    expression_type_name(b->type));
	}
}

static int
check_logic(struct checker *c, struct expression_node *n)
{
	int r = 0;

	for (struct expression_node *i = n->child; i && r == 0; i = i->next)
		r = want(c, i, TYPE_BOOL);
	n->type = TYPE_BOOL;
	return r;
}

static int
check_ternary(struct checker *c, struct expression_node *n)
{
	struct expression_node *yes = n->child->next, *no = yes->next;
	int r = want(c, n->child, TYPE_BOOL);

	if (r < 0)
		return r;
	if (yes->type >= TYPE_LIST)
		return FAIL(c, yes, NULL, "one value, not %s", expression_type_name(yes->type));
	n->type = yes->type;
	return yes->type == no->type ? 0 :
		FAIL(c, no, NULL, "%s, as before the ':', not %s", expression_type_name(yes->type),
		     expression_type_name(no->type));
}

static int
check_list(struct checker *c, struct expression_node *n)
{
	n->type = TYPE_LIST;
	n->item = n->child ? n->child->type : TYPE_UNKNOWN;
	for (struct expression_node *i = n->child; i; i = i->next) {
		if (i->type >= TYPE_LIST)
			return FAIL(c, i, NULL, "one value, not %s", expression_type_name(i->type));
		if (i->type != n->item)
			return FAIL(c, i, NULL, "%s, as the first of the list, not %s",
				    expression_type_name(n->item), expression_type_name(i->type));
	}
	return 0;
}

/* ---- functions ---- */

enum function {
	FUNCTION_HAS, FUNCTION_SIZE, FUNCTION_MATCHES, FUNCTION_DURATION, FUNCTION_QUANTITY,
	FUNCTION_INT, FUNCTION_UINT, FUNCTION_DOUBLE, FUNCTION_STARTS, FUNCTION_ENDS,
	FUNCTION_CONTAINS,
	FUNCTIONS
};

static const struct {
	const char *name;
	bool function, method;
	uint32_t n;                     /* operands, with what a method is called on */
} functions[FUNCTIONS] = {
	[FUNCTION_HAS] = {"has", true, false, 1}, [FUNCTION_SIZE] = {"size", true, true, 1},
	[FUNCTION_MATCHES] = {"matches", true, true, 2},
	[FUNCTION_DURATION] = {"duration", true, false, 1},
	[FUNCTION_QUANTITY] = {"quantity", true, false, 1},
	[FUNCTION_INT] = {"int", true, false, 1}, [FUNCTION_UINT] = {"uint", true, false, 1},
	[FUNCTION_DOUBLE] = {"double", true, false, 1},
	[FUNCTION_STARTS] = {"startsWith", false, true, 2},
	[FUNCTION_ENDS] = {"endsWith", false, true, 2},
	[FUNCTION_CONTAINS] = {"contains", false, true, 2},
};

static int
check_has(struct checker *c, struct expression_node *n)
{
	struct expression_node *a = n->child;

	n->type = TYPE_BOOL;
	switch (a->kind) {
	case NODE_HEADER:
	case NODE_LABEL:
		n->kind = a->kind == NODE_HEADER ? NODE_HAS_HEADER : NODE_HAS_LABEL;
		n->fact = a->fact;
		n->value = a->value;
		return 0;
	case NODE_FACT:
	case NODE_POOL:
		if (a->type < TYPE_LIST) {
			n->kind = NODE_KNOWN;
			return 0;
		}
		return FAIL(c, a, NULL, "one value of it, not %s", expression_type_name(a->type));
	default:
		return FAIL(c, a, NULL, "a name: has() asks whether its value is known");
	}
}

static int
check_amount(struct checker *c, struct expression_node *n, bool time)
{
	struct expression_node *a = n->child;
	int64_t v;
	bool ok;
	int r = expression_want_literal(c, a, time ? "a duration such as '2s'" :
						     "an amount such as '64k'");

	if (r < 0)
		return r;
	ok = time ? expression_duration(a->value.s, &v) : expression_quantity(a->value.s, &v);
	if (!ok)
		return FAIL(c, a, NULL, time ?
			    "a duration such as '2s', '1m30s' or '250ms'" :
			    "a whole amount such as '500', '64k', '8Ki' or '1.5M'");
	n->kind = NODE_LITERAL;
	n->type = time ? TYPE_DURATION : TYPE_INT;
	n->value = (struct expression_value){.type = n->type, .i = v};
	return 0;
}

static int
check_convert(struct checker *c, struct expression_node *n, enum expression_type to)
{
	if (!is_number(n->child->type))
		return FAIL(c, n->child, NULL, "a number, not %s",
			    expression_type_name(n->child->type));
	n->kind = NODE_CONVERT;
	n->type = to;
	return 0;
}

static int
check_size(struct checker *c, struct expression_node *n)
{
	struct expression_node *a = n->child;

	n->kind = NODE_SIZE;
	n->type = TYPE_INT;
	if (a->type == TYPE_STRING || a->type == TYPE_LIST || a->type == TYPE_TAGS)
		return 0;
	if (is_number(a->type) && a->kind == NODE_FACT)
		return FAIL(c, a, NULL, "a string, a list or request.tags: this is a number "
					"already");
	return FAIL(c, a, NULL, "a string, a list or request.tags, not %s",
		    expression_type_name(a->type));
}

static int
check_call(struct checker *c, struct expression_node *n)
{
	static const enum expression_node_type kinds[FUNCTIONS] = {
		[FUNCTION_MATCHES] = NODE_MATCHES, [FUNCTION_STARTS] = NODE_STARTS,
		[FUNCTION_ENDS] = NODE_ENDS, [FUNCTION_CONTAINS] = NODE_CONTAINS,
	};
	const char *names[FUNCTIONS];
	char word[EXPRESSION_PATH_MAX];
	unsigned f = 0;
	int r = 0;

	while (f < FUNCTIONS && !slice_eq_str(n->name, functions[f].name))
		f++;
	if (f == FUNCTIONS || !(n->method ? functions[f].method : functions[f].function)) {
		size_t k = 0;

		for (unsigned i = 0; i < FUNCTIONS; i++)
			if (n->method ? functions[i].method : functions[i].function)
				names[k++] = functions[i].name;
		snprintf(word, sizeof word, "%.*s", (int)(n->name.len < 40 ? n->name.len : 40),
			 n->name.p);
		return FAIL(c, n, yaml_nearest(word, names, k), n->method ?
			    "a method: size(), startsWith(), endsWith(), contains() or matches()" :
			    "a function: has(), size(), matches(), duration(), quantity(), int(), "
			    "uint() or double()");
	}
	if (n->n_children != functions[f].n)
		return FAIL(c, n, NULL, "%s(%s", functions[f].name,
			    functions[f].n - n->method == 1 ? "...), with one operand" :
			    n->method ? "), without operands" : "text, pattern)");
	for (struct expression_node *i = n->child; i && r == 0; i = i->next)
		r = expression_check_node(c, i);
	if (r < 0)
		return r;
	switch (f) {
	case FUNCTION_HAS:
		return check_has(c, n);
	case FUNCTION_SIZE:
		return check_size(c, n);
	case FUNCTION_DURATION:
		return check_amount(c, n, true);
	case FUNCTION_QUANTITY:
		return check_amount(c, n, false);
	case FUNCTION_INT:
		return check_convert(c, n, TYPE_INT);
	case FUNCTION_UINT:
		return check_convert(c, n, TYPE_UINT);
	case FUNCTION_DOUBLE:
		return check_convert(c, n, TYPE_DOUBLE);
	default:
		break;
	}
	n->kind = kinds[f];
	n->type = TYPE_BOOL;
	r = want(c, n->child, TYPE_STRING);
	if (r == 0)
		r = want(c, n->child->next, TYPE_STRING);
	return r < 0 || f != FUNCTION_MATCHES ? r :
		expression_want_literal(c, n->child->next, "a pattern");
}

static int
check_children(struct checker *c, struct expression_node *n)
{
	int r = 0;

	for (struct expression_node *i = n->child; i && r == 0; i = i->next)
		r = expression_check_node(c, i);
	return r;
}

int
expression_check_node(struct checker *c, struct expression_node *n)
{
	bool own = n->kind == NODE_NAME || n->kind == NODE_SELECT || n->kind == NODE_INDEX ||
		n->kind == NODE_CALL;
	int r = own ? 0 : check_children(c, n);

	if (r < 0)
		return r;
	switch (n->kind) {
	case NODE_LITERAL:
		n->type = n->value.type;
		return 0;
	case NODE_NAME:
	case NODE_SELECT:
		r = expression_check_name(c, n);
		break;
	case NODE_INDEX:
		r = check_index(c, n);
		break;
	case NODE_CALL:
		r = check_call(c, n);
		break;
	case NODE_LIST:
		r = check_list(c, n);
		break;
	case NODE_NOT:
	case NODE_AND:
	case NODE_OR:
		r = check_logic(c, n);
		break;
	case NODE_MINUS:
		n->type = n->child->type;
		if (n->type != TYPE_INT && n->type != TYPE_DOUBLE)
			r = FAIL(c, n->child, NULL, "an int or a double, not %s",
				 expression_type_name(n->type));
		break;
	case NODE_IN:
		r = check_in(c, n);
		break;
	case NODE_TERNARY:
		r = check_ternary(c, n);
		break;
	case NODE_EQUAL: case NODE_UNEQUAL: case NODE_LESS: case NODE_LESS_EQUAL: case NODE_MORE:
	case NODE_MORE_EQUAL:
		r = check_comparison(c, n);
		break;
	default:
		r = check_arithmetic(c, n);
		break;
	}
	return r < 0 || !c->fold ? r : expression_fold(c, n);
}

int
expression_check(struct expression_tree *t, enum expression_place place,
		 const struct expression_names *names, bool fold_too)
{
	static const unsigned all = FACTS_OF_REQUEST | FACTS_OF_TAGS | FACTS_STATIC | FACTS_POOL |
		FACTS_DYNAMIC;
	struct checker c = {
		.t = t, .names = names, .fold = fold_too,
		.classes = place == EXPRESSION_TAG ? FACTS_OF_REQUEST :
			place == EXPRESSION_WHEN ? FACTS_OF_REQUEST | FACTS_OF_TAGS | FACTS_POOL :
			all,
	};
	enum expression_type type;
	int r;

	t->place = place;
	r = expression_check_node(&c, t->root);
	if (r < 0)
		return r;
	type = t->root->type;
	if (place == EXPRESSION_OBJECTIVE || place == EXPRESSION_PREFER) {
		if (is_number(type) || (type == TYPE_BOOL && place == EXPRESSION_PREFER))
			return 0;
		return FAIL(&c, t->root, NULL, "a number%s, not %s",
			    place == EXPRESSION_PREFER ? " or a bool" : "",
			    expression_type_name(type));
	}
	return want(&c, t->root, TYPE_BOOL);
}
