/* actors/common/decide/expression_fold.c -- what of an expression is known at load. */
#include "actors/common/decide/expression_private.h"

#include <errno.h>
#include <stdlib.h>

static int
fold_list(struct checker *c, struct expression_node *n)
{
	struct expression_tree *t = c->t;
	struct expression_value v = {.type = TYPE_LIST, .n = n->n_children};

	if (!t->items)
		t->items = calloc(t->cap_nodes, sizeof *t->items);
	if (!t->items)
		return -ENOMEM;
	v.item = t->items + t->n_items;
	for (struct expression_node *i = n->child; i; i = i->next) {
		t->items[t->n_items++] = i->value;
		if (i->value.type == TYPE_UNKNOWN)
			v.type = TYPE_UNKNOWN;
	}
	n->value = v;
	n->kind = NODE_LITERAL;
	return 0;
}

/* Does one side decide?  Or say nothing, so that the other is the result? */
static void
fold_logic(struct expression_node *n)
{
	struct expression_node *a = n->child, *b = a->next, *next = n->next;
	bool decides = n->kind == NODE_OR;

	for (unsigned i = 0; i < 2; i++) {
		struct expression_node *this = i == 0 ? a : b, *other = i == 0 ? b : a;

		if (this->kind != NODE_LITERAL)
			continue;
		if (this->value.type == TYPE_UNKNOWN) {
			if (other->kind != NODE_LITERAL)
				continue;
			if (other->value.type == TYPE_BOOL && other->value.b == decides)
				this = other;
		} else if (this->value.b != decides) {
			this = other;
		}
		*n = *this;
		n->next = next;
		return;
	}
}

int
expression_fold(struct checker *c, struct expression_node *n)
{
	struct expression_node *a = n->child, *b = a ? a->next : NULL, *next = n->next;

	switch (n->kind) {
	case NODE_AND:
	case NODE_OR:
		fold_logic(n);
		return 0;
	case NODE_TERNARY:
		if (a->kind != NODE_LITERAL)
			return 0;
		if (a->value.type == TYPE_UNKNOWN) {
			n->kind = NODE_LITERAL;
			n->value = a->value;
			return 0;
		}
		*n = a->value.b ? *b : *b->next;
		n->next = next;
		return 0;
	default:
		break;
	}
	for (struct expression_node *i = a; i; i = i->next)
		if (i->kind != NODE_LITERAL)
			return 0;
	switch (n->kind) {
	case NODE_LIST:
		return fold_list(c, n);
	case NODE_NOT:
		n->value = a->value;
		n->value.b = !a->value.b;
		break;
	case NODE_MINUS:
		n->value = expression_minus(&a->value);
		break;
	case NODE_CONVERT:
		n->value = expression_convert(&a->value, n->type);
		break;
	case NODE_SIZE:
		n->value = expression_size(&a->value);
		break;
	case NODE_ADD: case NODE_SUBTRACT: case NODE_MULTIPLY: case NODE_DIVIDE: case NODE_MODULO:
	case NODE_EQUAL: case NODE_UNEQUAL: case NODE_LESS: case NODE_LESS_EQUAL: case NODE_MORE:
	case NODE_MORE_EQUAL: case NODE_IN: case NODE_INDEX: case NODE_STARTS: case NODE_ENDS:
	case NODE_CONTAINS:
		n->value = expression_operate(n->kind, &a->value, &b->value);
		break;
	default:
		return 0;
	}
	n->kind = NODE_LITERAL;
	return 0;
}

