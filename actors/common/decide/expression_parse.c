/* actors/common/decide/expression_parse.c -- tokens as a tree; CEL's grammar and precedence. */
#include "actors/common/decide/expression_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct parser {
	struct expression_tree *t;
	struct expression_source *s;
	unsigned depth;
};

static int expression(struct parser *p, struct expression_node **ret);

static bool
is_mark(const struct parser *p, const char *mark)
{
	return p->s->token.type == TOKEN_MARK && strcmp(p->s->token.mark, mark) == 0;
}

static struct slice
token_text(const struct expression_source *s)
{
	if (s->token.type == TOKEN_END)
		return (struct slice){0};
	return slice_of(s->text.p + s->token.offset, s->token.len);
}

static int
unexpected(struct parser *p, const char *expected)
{
	return expression_fail(p->s, p->s->token.offset, token_text(p->s), NULL, "%s", expected);
}

static int
expect(struct parser *p, const char *mark)
{
	char expected[8];

	if (is_mark(p, mark))
		return expression_lex(p->s);
	snprintf(expected, sizeof expected, "'%s'", mark);
	return unexpected(p, expected);
}

/* Every node has a byte of the text that no other has, so there is room. */
static struct expression_node *
node(struct parser *p, enum expression_node_type kind, uint32_t offset)
{
	struct expression_node *n = &p->t->nodes[p->t->n_nodes++];

	n->kind = kind;
	n->offset = offset;
	n->len = p->s->token.offset + p->s->token.len - offset;
	n->depth = 1;
	return n;
}

/* Behind the children it has. */
static int
adopt(struct parser *p, struct expression_node *n, struct expression_node *child)
{
	struct expression_node **at = &n->child;

	if (n->n_children == 0 && child->offset < n->offset) {
		n->len += n->offset - child->offset;
		n->offset = child->offset;
	}
	while (*at)
		at = &(*at)->next;
	*at = child;
	n->n_children++;
	if (child->offset + child->len > n->offset + n->len)
		n->len = child->offset + child->len - n->offset;
	if (n->depth <= child->depth)
		n->depth = child->depth + 1;
	if (n->depth > EXPRESSION_TREE_MAX)
		return expression_fail(p->s, n->offset, slice_of(p->s->text.p + n->offset, n->len),
				       NULL, "at most %u operators in a row", EXPRESSION_TREE_MAX);
	return 0;
}

static int
enter(struct parser *p)
{
	if (++p->depth > EXPRESSION_DEPTH_MAX)
		return expression_fail(p->s, p->s->token.offset, token_text(p->s), NULL,
				       "at most %u levels of nesting", EXPRESSION_DEPTH_MAX);
	return 0;
}

/* Up to the closing mark: children of n. */
static int
list(struct parser *p, struct expression_node *n, const char *close, bool comma_last)
{
	struct expression_node **at = &n->child;
	int r = 0;

	while (*at)
		at = &(*at)->next;
	while (r == 0 && !is_mark(p, close)) {
		struct expression_node *item;

		r = expression(p, &item);
		if (r < 0)
			return r;
		*at = item;             /* not adopt(): a list may be long */
		at = &item->next;
		n->n_children++;
		if (n->depth <= item->depth)
			n->depth = item->depth + 1;
		if (is_mark(p, close))
			break;
		if (!is_mark(p, ","))
			return expression_fail(p->s, p->s->token.offset, token_text(p->s), NULL,
					       "',' or '%s'", close);
		r = expression_lex(p->s);
		if (r == 0 && is_mark(p, close) && !comma_last)
			return unexpected(p, "a value");
	}
	if (r == 0)
		n->len = p->s->token.offset + p->s->token.len - n->offset;
	return r < 0 ? r : expect(p, close);
}

static int
literal(struct parser *p, bool minus, uint32_t offset, struct expression_node **ret)
{
	struct expression_node *n = node(p, NODE_LITERAL, offset);

	n->value = p->s->token.value;
	if (n->value.type == TYPE_INT) {
		if (n->value.u > (uint64_t)INT64_MAX + minus)
			return expression_fail(p->s, offset,
					       slice_of(p->s->text.p + offset, n->len), NULL,
					       "an int, which ends at %s9223372036854775%s",
					       minus ? "-" : "", minus ? "808" : "807");
		n->value.i = (int64_t)(minus ? 0 - n->value.u : n->value.u);
	} else if (minus) {
		n->value.d = -n->value.d;
	}
	*ret = n;
	return expression_lex(p->s);
}

/* From its '(' to its ')': n is a call with these arguments. */
static int
arguments(struct parser *p, struct expression_node *n)
{
	int r = enter(p);

	n->kind = NODE_CALL;
	if (r == 0)
		r = expression_lex(p->s);
	if (r == 0)
		r = list(p, n, ")", false);
	p->depth--;
	return r;
}

static int
primary(struct parser *p, struct expression_node **ret)
{
	static const char *const words[] = {"true", "false"};
	struct expression_token token = p->s->token;
	struct expression_node *n;
	int r;

	if (token.type == TOKEN_LITERAL)
		return literal(p, false, token.offset, ret);
	if (is_mark(p, "(")) {
		r = enter(p);
		if (r == 0)
			r = expression_lex(p->s);
		if (r == 0)
			r = expression(p, ret);
		p->depth--;
		return r < 0 ? r : expect(p, ")");
	}
	if (is_mark(p, "[")) {
		r = enter(p);
		n = r < 0 ? NULL : node(p, NODE_LIST, token.offset);
		if (r == 0)
			r = expression_lex(p->s);
		if (r == 0)
			r = list(p, n, "]", true);
		p->depth--;
		*ret = n;
		return r;
	}
	if (token.type != TOKEN_NAME)
		return unexpected(p, "a name, a value or '('");
	for (unsigned i = 0; i < 2; i++)
		if (slice_eq_str(token_text(p->s), words[i])) {
			n = *ret = node(p, NODE_LITERAL, token.offset);
			n->value = (struct expression_value){.type = TYPE_BOOL, .b = i == 0};
			return expression_lex(p->s);
		}
	if (slice_eq_str(token_text(p->s), "null"))
		return unexpected(p, "a value: nothing is null here, ask has(NAME)");
	n = *ret = node(p, NODE_NAME, token.offset);
	n->name = token_text(p->s);
	r = expression_lex(p->s);
	if (r < 0 || !is_mark(p, "("))
		return r;
	return arguments(p, n);
}

/* What stands behind a value: .name, .name(...), [...] */
static int
member(struct parser *p, struct expression_node **ret)
{
	int r = primary(p, ret);

	while (r == 0 && (is_mark(p, ".") || is_mark(p, "["))) {
		bool dot = is_mark(p, ".");
		struct expression_node *n = node(p, dot ? NODE_SELECT : NODE_INDEX,
						 p->s->token.offset);

		r = adopt(p, n, *ret);
		*ret = n;
		if (r == 0)
			r = expression_lex(p->s);
		if (r < 0)
			return r;
		if (!dot) {
			struct expression_node *index;

			r = enter(p);
			if (r == 0)
				r = expression(p, &index);
			p->depth--;
			if (r == 0)
				r = adopt(p, n, index);
			if (r == 0)
				n->len = p->s->token.offset + p->s->token.len - n->offset;
			if (r == 0)
				r = expect(p, "]");
			continue;
		}
		if (p->s->token.type != TOKEN_NAME)
			return unexpected(p, "a name");
		n->name = token_text(p->s);
		n->len = p->s->token.offset + p->s->token.len - n->offset;
		r = expression_lex(p->s);
		if (r == 0 && is_mark(p, "(")) {
			n->method = true;
			r = arguments(p, n);
		}
	}
	return r;
}

static int
unary(struct parser *p, struct expression_node **ret)
{
	uint32_t offset = p->s->token.offset;
	bool not = is_mark(p, "!"), minus = is_mark(p, "-");
	struct expression_node *n, *operand;
	int r;

	if (!not && !minus)
		return member(p, ret);
	r = enter(p);
	if (r == 0)
		r = expression_lex(p->s);
	if (r < 0)
		return r;
	if (minus && p->s->token.type == TOKEN_LITERAL &&
	    (p->s->token.value.type == TYPE_INT || p->s->token.value.type == TYPE_DOUBLE)) {
		r = literal(p, true, offset, ret);
		p->depth--;
		return r;
	}
	n = node(p, not ? NODE_NOT : NODE_MINUS, offset);
	r = unary(p, &operand);
	p->depth--;
	*ret = n;
	return r < 0 ? r : adopt(p, n, operand);
}

static const struct {
	const char *mark;
	unsigned level;                 /* more binds closer */
	enum expression_node_type kind;
} binary[] = {
	{"||", 0, NODE_OR}, {"&&", 1, NODE_AND},
	{"==", 2, NODE_EQUAL}, {"!=", 2, NODE_UNEQUAL}, {"<", 2, NODE_LESS},
	{"<=", 2, NODE_LESS_EQUAL}, {">", 2, NODE_MORE}, {">=", 2, NODE_MORE_EQUAL},
	{"in", 2, NODE_IN},
	{"+", 3, NODE_ADD}, {"-", 3, NODE_SUBTRACT},
	{"*", 4, NODE_MULTIPLY}, {"/", 4, NODE_DIVIDE}, {"%", 4, NODE_MODULO},
};
#define LEVELS 5u

static int
operation(struct parser *p, unsigned level, struct expression_node **ret)
{
	int r;

	if (level == LEVELS)
		return unary(p, ret);
	r = operation(p, level + 1, ret);
	while (r == 0) {
		struct expression_node *n = NULL, *right;

		for (unsigned i = 0; i < sizeof binary / sizeof *binary; i++)
			if (binary[i].level == level && is_mark(p, binary[i].mark))
				n = node(p, binary[i].kind, p->s->token.offset);
		if (!n)
			break;
		r = expression_lex(p->s);
		if (r == 0)
			r = operation(p, level + 1, &right);
		if (r == 0)
			r = adopt(p, n, *ret);
		if (r == 0)
			r = adopt(p, n, right);
		*ret = n;
	}
	return r;
}

static int
expression(struct parser *p, struct expression_node **ret)
{
	struct expression_node *n, *yes, *no;
	int r = enter(p);

	if (r == 0)
		r = operation(p, 0, ret);
	if (r == 0 && is_mark(p, "?")) {
		n = node(p, NODE_TERNARY, p->s->token.offset);
		r = adopt(p, n, *ret);
		*ret = n;
		if (r == 0)
			r = expression_lex(p->s);
		if (r == 0)
			r = operation(p, 0, &yes);
		if (r == 0)
			r = expect(p, ":");
		if (r == 0)
			r = expression(p, &no);
		if (r == 0)
			r = adopt(p, n, yes);
		if (r == 0)
			r = adopt(p, n, no);
	}
	p->depth--;
	return r;
}

int
expression_parse(struct slice text, struct expression_tree *ret, struct expression_error *ret_error)
{
	struct parser p = {.t = ret, .s = &ret->source};
	int r;

	*ret = (struct expression_tree){.source = {.text = text, .error = ret_error}};
	*ret_error = (struct expression_error){0};
	if (text.len > EXPRESSION_TEXT_MAX)
		return expression_fail(p.s, EXPRESSION_TEXT_MAX,
				       slice_of(text.p + EXPRESSION_TEXT_MAX, 1), NULL,
				       "at most %u bytes", EXPRESSION_TEXT_MAX);
	ret->cap_nodes = (uint32_t)text.len + 1;
	ret->nodes = calloc(ret->cap_nodes, sizeof *ret->nodes);
	ret->source.strings = malloc(text.len + 1);
	if (!ret->nodes || !ret->source.strings)
		return -ENOMEM;
	r = expression_lex(p.s);
	if (r == 0)
		r = expression(&p, &ret->root);
	if (r == 0 && p.s->token.type != TOKEN_END)
		r = unexpected(&p, is_mark(&p, ")") ? "no ')' without a '(' before it" :
						      "an operator, or the end");
	return r;
}

void
expression_tree_free(struct expression_tree *t)
{
	free(t->nodes);
	free(t->items);
	free(t->source.strings);
	*t = (struct expression_tree){0};
}
