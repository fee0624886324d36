/* actors/common/prompt/jinja_parse_expr.c -- expressions, as Jinja2's parser groups them. */
#include "actors/common/prompt/jinja_parse.h"

#define PARSE_DEPTH 150u                /* expressions and statements in each other */

static struct node *parse_unary(struct compile *c, bool with_filter);

const struct token *
parse_now(const struct compile *c)
{
	return &c->token[c->at];
}

const struct token *
parse_look(const struct compile *c)
{
	return &c->token[c->at + 1 < c->n_token ? c->at + 1 : c->at];
}

const struct token *
parse_next(struct compile *c)
{
	const struct token *t = parse_now(c);

	if (t->type != T_EOF)
		c->at++;
	return t;
}

bool
parse_is(const struct compile *c, enum token_type type)
{
	return parse_now(c)->type == type;
}

bool
parse_token_is_name(const struct token *t, const char *name)
{
	return t->type == T_NAME && slice_eq_str(value_slice(t->value), name);
}

bool
parse_is_name(const struct compile *c, const char *name)
{
	return parse_token_is_name(parse_now(c), name);
}

bool
parse_skip(struct compile *c, enum token_type type)
{
	if (!parse_is(c, type))
		return false;
	c->at++;
	return true;
}

bool
parse_skip_name(struct compile *c, const char *name)
{
	if (!parse_is_name(c, name))
		return false;
	c->at++;
	return true;
}

const char *
parse_describe(const struct token *t)
{
	static const char *const name[] = {
		[T_EOF] = "end of template", [T_DATA] = "template data",
		[T_VAR_BEGIN] = "begin of print statement", [T_VAR_END] = "end of print statement",
		[T_BLOCK_BEGIN] = "begin of statement block",
		[T_BLOCK_END] = "end of statement block", [T_NAME] = "name", [T_STRING] = "string",
		[T_INT] = "integer", [T_FLOAT] = "float", [T_ADD] = "+", [T_SUB] = "-",
		[T_MUL] = "*", [T_DIV] = "/", [T_FLOORDIV] = "//", [T_MOD] = "%", [T_POW] = "**",
		[T_TILDE] = "~", [T_LBRACKET] = "[", [T_RBRACKET] = "]", [T_LPAREN] = "(",
		[T_RPAREN] = ")", [T_LBRACE] = "{", [T_RBRACE] = "}", [T_EQ] = "==", [T_NE] = "!=",
		[T_GT] = ">", [T_GE] = ">=", [T_LT] = "<", [T_LE] = "<=", [T_ASSIGN] = "=",
		[T_DOT] = ".", [T_COLON] = ":", [T_PIPE] = "|", [T_COMMA] = ",",
		[T_SEMICOLON] = ";",
	};

	return name[t->type];
}

const struct token *
parse_expect(struct compile *c, enum token_type type)
{
	struct token want = {.type = type};

	if (!parse_is(c, type))
		compile_fail(c, parse_now(c)->line, "expected token '%s', got '%s'",
			     parse_describe(&want), parse_describe(parse_now(c)));
	return parse_next(c);
}

struct node *
parse_node(struct compile *c, enum node_kind kind, uint32_t line)
{
	struct node *node = compile_take(c, sizeof(*node));

	node->kind = (uint8_t)kind;
	node->line = line;
	return node;
}

void
parse_deeper(struct compile *c)
{
	if (++c->depth > PARSE_DEPTH)
		compile_fail(c, parse_now(c)->line, "expressions or statements nested too deeply");
}

static bool
tuple_end(const struct compile *c, const char *extra)
{
	return parse_is(c, T_VAR_END) || parse_is(c, T_BLOCK_END) || parse_is(c, T_RPAREN) ||
	       (extra && parse_is_name(c, extra));
}

static struct node *parse_primary(struct compile *c, bool target);

struct node *
parse_tuple(struct compile *c, enum tuple_of of, const char *extra_end, bool parentheses)
{
	uint32_t line = parse_now(c)->line;
	struct node_list items = {0};
	struct node *tuple;
	bool is_tuple = false;

	for (;;) {
		if (items.n)
			parse_expect(c, T_COMMA);
		if (tuple_end(c, extra_end))
			break;
		node_push(c, &items,
			  of == TUPLE_OF_TARGETS ? parse_primary(c, true)
						 : parse_expression(c, of == TUPLE_OF_EXPRESSIONS));
		if (!parse_is(c, T_COMMA))
			break;
		is_tuple = true;
		line = parse_now(c)->line;
	}
	if (!is_tuple && items.n)
		return items.node[0];
	if (!is_tuple && !parentheses)
		compile_fail(c, parse_now(c)->line, "Expected an expression, got '%s'",
			     parse_describe(parse_now(c)));
	tuple = parse_node(c, N_TUPLE, line);
	tuple->list = items;
	return tuple;
}

static struct node *
constant(struct compile *c, uint32_t line, struct value value)
{
	struct node *node = parse_node(c, N_CONST, line);

	node->value = value;
	return node;
}

/* 'a' 'b' is 'ab'. */
static struct node *
strings(struct compile *c)
{
	uint32_t from = c->at, line = parse_now(c)->line;
	size_t len = 0;
	char *own;

	if (parse_look(c)->type != T_STRING)
		return constant(c, line, parse_next(c)->value);
	for (; parse_is(c, T_STRING); c->at++)
		len += parse_now(c)->value.n;
	own = compile_take(c, len + 1);
	len = 0;
	for (uint32_t i = from; i < c->at; i++) {
		memcpy(own + len, c->token[i].value.s, c->token[i].value.n);
		len += c->token[i].value.n;
	}
	return constant(c, line, value_string(slice_of(own, len)));
}

static struct node *
parse_list(struct compile *c)
{
	struct node *node = parse_node(c, N_LIST, parse_expect(c, T_LBRACKET)->line);

	while (!parse_is(c, T_RBRACKET)) {
		if (node->list.n)
			parse_expect(c, T_COMMA);
		if (parse_is(c, T_RBRACKET))
			break;
		node_push(c, &node->list, parse_expression(c, true));
	}
	parse_expect(c, T_RBRACKET);
	return node;
}

/* list: key, value, key, value … */
static struct node *
parse_dict(struct compile *c)
{
	struct node *node = parse_node(c, N_DICT, parse_expect(c, T_LBRACE)->line);

	while (!parse_is(c, T_RBRACE)) {
		if (node->list.n)
			parse_expect(c, T_COMMA);
		if (parse_is(c, T_RBRACE))
			break;
		node_push(c, &node->list, parse_expression(c, true));
		parse_expect(c, T_COLON);
		node_push(c, &node->list, parse_expression(c, true));
	}
	parse_expect(c, T_RBRACE);
	return node;
}

struct node *
parse_named(struct compile *c, const struct token *t)
{
	static const struct {
		const char *word;
		uint8_t kind, i;
	} word[] = {
		{"true", VALUE_BOOL, 1},  {"True", VALUE_BOOL, 1},  {"false", VALUE_BOOL, 0},
		{"False", VALUE_BOOL, 0}, {"none", VALUE_NONE, 0}, {"None", VALUE_NONE, 0},
	};
	struct node *node;

	for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++)
		if (parse_token_is_name(t, word[i].word))
			return constant(c, t->line,
					(struct value){.kind = word[i].kind, .i = word[i].i});
	node = parse_node(c, N_NAME, t->line);
	node->value = t->value;
	return node;
}

/* target: a.b is a namespace's member to be set. */
static struct node *
parse_primary(struct compile *c, bool target)
{
	const struct token *t = parse_now(c);
	struct node *node;

	switch (t->type) {
	case T_NAME:
		c->at++;
		node = parse_named(c, t);
		if (target && node->kind == N_NAME && parse_is(c, T_DOT)) {
			c->at++;
			node->kind = N_NSREF;
			node->a = constant(c, t->line, parse_expect(c, T_NAME)->value);
		}
		return node;
	case T_STRING:
		return strings(c);
	case T_INT:
	case T_FLOAT:
		c->at++;
		return constant(c, t->line, t->value);
	case T_LPAREN:
		c->at++;
		node = parse_tuple(c, TUPLE_OF_EXPRESSIONS, NULL, true);
		parse_expect(c, T_RPAREN);
		return node;
	case T_LBRACKET:
		return parse_list(c);
	case T_LBRACE:
		return parse_dict(c);
	default:
		compile_fail(c, t->line, "unexpected '%s'", parse_describe(t));
	}
}

static void
add_keyword(struct compile *c, struct call_args *args, uint32_t line, struct slice name,
	    struct node *value)
{
	struct keyword *kw = compile_take(c, (args->n_kw + 1) * sizeof(*kw));

	for (uint32_t i = 0; i < args->n_kw; i++) {
		if (slice_eq(args->kw[i].name, name))
			compile_fail(c, line, "keyword argument repeated: %.*s", (int)name.len,
				     name.p);
		kw[i] = args->kw[i];
	}
	kw[args->n_kw++] = (struct keyword){name, value};
	args->kw = kw;
}

static struct call_args *
parse_call_args(struct compile *c)
{
	uint32_t line = parse_expect(c, T_LPAREN)->line;
	struct call_args *args = compile_take(c, sizeof(*args));
	bool comma = false, ok = true;

	for (; !parse_is(c, T_RPAREN); comma = true) {
		if (comma) {
			parse_expect(c, T_COMMA);
			if (parse_is(c, T_RPAREN))
				break;
		}
		if (parse_skip(c, T_MUL)) {
			ok = !args->star && !args->star_star;
			args->star = parse_expression(c, true);
		} else if (parse_skip(c, T_POW)) {
			ok = !args->star_star;
			args->star_star = parse_expression(c, true);
		} else if (parse_is(c, T_NAME) && parse_look(c)->type == T_ASSIGN) {
			struct slice name = value_slice(parse_next(c)->value);

			c->at++;
			ok = !args->star_star;
			add_keyword(c, args, line, name, parse_expression(c, true));
		} else {
			ok = !args->star && !args->star_star && !args->n_kw;
			node_push(c, &args->pos, parse_expression(c, true));
		}
		if (!ok)
			compile_fail(c, line, "invalid syntax for function call expression");
	}
	parse_expect(c, T_RPAREN);
	return args;
}

/* One of a subscript's: an expression or a slice. */
static struct node *
parse_subscribed(struct compile *c)
{
	uint32_t line = parse_now(c)->line;
	struct node *part[3] = {0}, *node;

	if (!parse_is(c, T_COLON)) {
		part[0] = parse_expression(c, true);
		if (!parse_is(c, T_COLON))
			return part[0];
	}
	c->at++;
	if (!parse_is(c, T_COLON) && !parse_is(c, T_RBRACKET) && !parse_is(c, T_COMMA))
		part[1] = parse_expression(c, true);
	if (parse_skip(c, T_COLON) && !parse_is(c, T_RBRACKET) && !parse_is(c, T_COMMA))
		part[2] = parse_expression(c, true);
	node = parse_node(c, N_SLICE, line);
	node->b = part[0];
	node->c = part[1];
	node->d = part[2];
	return node;
}

/* A slice that is not yet of anything: not one that has been taken of a value. */
static bool
is_slice(const struct node *node)
{
	return node->kind == N_SLICE && !node->a;
}

static struct node *
parse_subscript(struct compile *c, struct node *of)
{
	const struct token *t = parse_next(c);
	struct node_list args = {0};
	struct node *node = parse_node(c, N_GETITEM, t->line);

	node->a = of;
	if (t->type == T_DOT) {
		const struct token *attr = parse_next(c);

		if (attr->type == T_NAME) {
			node->kind = N_GETATTR;
			node->value = attr->value;
			node->method = (uint16_t)method_find(value_slice(attr->value));
			return node;
		}
		if (attr->type != T_INT)
			compile_fail(c, attr->line, "expected name or number");
		node->b = constant(c, attr->line, attr->value);
		return node;
	}
	while (!parse_is(c, T_RBRACKET)) {
		if (args.n)
			parse_expect(c, T_COMMA);
		node_push(c, &args, parse_subscribed(c));
	}
	parse_expect(c, T_RBRACKET);
	if (args.n == 1 && is_slice(args.node[0])) {
		args.node[0]->a = of;
		return args.node[0];
	}
	if (args.n == 1) {
		node->b = args.node[0];
		return node;
	}
	for (uint32_t i = 0; i < args.n; i++)
		if (is_slice(args.node[i]))
			compile_fail(c, t->line, "slices of several dimensions");
	node->b = parse_node(c, N_TUPLE, t->line);
	node->b->list = args;
	return node;
}

static struct node *
parse_call(struct compile *c, struct node *callee)
{
	struct node *node = parse_node(c, N_CALL, parse_now(c)->line);

	node->a = callee;
	node->args = parse_call_args(c);
	return node;
}

static struct node *
parse_postfix(struct compile *c, struct node *node)
{
	for (;;) {
		if (parse_is(c, T_DOT) || parse_is(c, T_LBRACKET))
			node = parse_subscript(c, node);
		else if (parse_is(c, T_LPAREN))
			node = parse_call(c, node);
		else
			return node;
	}
}

/* A filter's or test's name: words with dots between. */
static struct slice
dotted(struct compile *c)
{
	struct slice name = value_slice(parse_expect(c, T_NAME)->value);

	while (parse_skip(c, T_DOT)) {
		struct slice more = value_slice(parse_expect(c, T_NAME)->value);
		char *own = compile_take(c, name.len + more.len + 1);

		memcpy(own, name.p, name.len);
		own[name.len] = '.';
		memcpy(own + name.len + 1, more.p, more.len);
		name = slice_of(own, name.len + more.len + 1);
	}
	return name;
}

struct node *
parse_filter(struct compile *c, struct node *node, bool is_inline)
{
	while (is_inline || parse_is(c, T_PIPE)) {
		struct node *filter;

		if (!is_inline)
			c->at++;
		is_inline = false;
		filter = parse_node(c, N_FILTER, parse_now(c)->line);
		filter->value = value_string(dotted(c));
		filter->a = node;
		filter->filter = filter_find(value_slice(filter->value));
		filter->args = parse_is(c, T_LPAREN) ? parse_call_args(c)
					       : compile_take(c, sizeof(*filter->args));
		node = filter;
	}
	return node;
}

static struct node *
parse_test(struct compile *c, struct node *of)
{
	struct node *node = parse_node(c, N_TEST, parse_next(c)->line), *not_;
	bool negated = parse_skip_name(c, "not");

	node->a = of;
	node->value = value_string(dotted(c));
	node->test = test_find(value_slice(node->value));
	switch (parse_now(c)->type) {
	case T_LPAREN:
		node->args = parse_call_args(c);
		break;
	case T_NAME:
		if (parse_is_name(c, "else") || parse_is_name(c, "or") || parse_is_name(c, "and"))
			goto none;
		if (parse_is_name(c, "is"))
			compile_fail(c, parse_now(c)->line,
				     "You cannot chain multiple tests with is");
		/* fallthrough */
	case T_STRING:
	case T_INT:
	case T_FLOAT:
	case T_LBRACKET:
	case T_LBRACE:
		node->args = compile_take(c, sizeof(*node->args));
		node_push(c, &node->args->pos, parse_postfix(c, parse_primary(c, false)));
		break;
	default:
none:
		node->args = compile_take(c, sizeof(*node->args));
	}
	if (!negated)
		return node;
	not_ = parse_node(c, N_NOT, node->line);
	not_->a = node;
	return not_;
}

static struct node *
parse_filter_expr(struct compile *c, struct node *node)
{
	for (;;) {
		if (parse_is(c, T_PIPE))
			node = parse_filter(c, node, false);
		else if (parse_is_name(c, "is"))
			node = parse_test(c, node);
		else if (parse_is(c, T_LPAREN))
			node = parse_call(c, node);
		else
			return node;
	}
}

static struct node *
parse_unary(struct compile *c, bool with_filter)
{
	struct node *node;

	parse_deeper(c);
	if (parse_is(c, T_SUB) || parse_is(c, T_ADD)) {
		node = parse_node(c, parse_is(c, T_SUB) ? N_NEG : N_POS, parse_now(c)->line);
		c->at++;
		node->a = parse_unary(c, false);
	} else {
		node = parse_primary(c, false);
	}
	node = parse_postfix(c, node);
	if (with_filter)
		node = parse_filter_expr(c, node);
	c->depth--;
	return node;
}

/* The operators that group to the left, strongest last. */
static const struct level {
	struct {
		enum token_type type;
		enum node_kind kind;
	} op[4];
	unsigned n;
} level_add = {{{T_ADD, N_ADD}, {T_SUB, N_SUB}}, 2},
  level_mul = {{{T_MUL, N_MUL}, {T_DIV, N_DIV}, {T_FLOORDIV, N_FLOORDIV}, {T_MOD, N_MOD}}, 4},
  level_pow = {{{T_POW, N_POW}}, 1};

static struct node *parse_concat(struct compile *c);

static struct node *
parse_level(struct compile *c, const struct level *level)
{
	uint32_t line = parse_now(c)->line;
	struct node *left = NULL;
	enum node_kind kind = N_CONST;

	for (unsigned n = 0;; n++) {
		struct node *right = level == &level_add   ? parse_concat(c)
				     : level == &level_mul ? parse_level(c, &level_pow)
							   : parse_unary(c, true);
		unsigned i = 0;

		if (left) {
			struct node *node = parse_node(c, kind, line);

			node->a = left;
			node->b = right;
			left = node;
			line = parse_now(c)->line;
		} else {
			left = right;
		}
		while (i < level->n && !parse_is(c, level->op[i].type))
			i++;
		if (i == level->n)
			return left;
		if (n > 2000)
			compile_fail(c, line, "expression too long");
		kind = level->op[i].kind;
		c->at++;
	}
}

static struct node *
parse_concat(struct compile *c)
{
	uint32_t line = parse_now(c)->line;
	struct node *first = parse_level(c, &level_mul), *node;

	if (!parse_is(c, T_TILDE))
		return first;
	node = parse_node(c, N_CONCAT, line);
	node_push(c, &node->list, first);
	while (parse_skip(c, T_TILDE))
		node_push(c, &node->list, parse_level(c, &level_mul));
	return node;
}

/* a: the first operand; list: the others, each an N_COMPARE of its own with op and a. */
static struct node *
parse_compare(struct compile *c)
{
	uint32_t line = parse_now(c)->line;
	struct node *node = NULL, *first = parse_level(c, &level_add);

	for (;;) {
		struct node *operand;
		enum compare_op op;

		switch (parse_now(c)->type) {
		case T_EQ: op = OP_EQ; break;
		case T_NE: op = OP_NE; break;
		case T_LT: op = OP_LT; break;
		case T_LE: op = OP_LE; break;
		case T_GT: op = OP_GT; break;
		case T_GE: op = OP_GE; break;
		default:
			if (parse_is_name(c, "in")) {
				op = OP_IN;
			} else if (parse_is_name(c, "not") &&
				   parse_token_is_name(parse_look(c), "in")) {
				op = OP_NOT_IN;
				c->at++;
			} else {
				return node ? node : first;
			}
		}
		c->at++;
		if (!node) {
			node = parse_node(c, N_COMPARE, line);
			node->a = first;
		}
		operand = parse_node(c, N_COMPARE, parse_now(c)->line);
		operand->op = (uint8_t)op;
		operand->a = parse_level(c, &level_add);
		node_push(c, &node->list, operand);
	}
}

static struct node *
parse_not(struct compile *c)
{
	struct node *node;

	if (!parse_is_name(c, "not"))
		return parse_compare(c);
	parse_deeper(c);
	node = parse_node(c, N_NOT, parse_next(c)->line);
	node->a = parse_not(c);
	c->depth--;
	return node;
}

static struct node *
parse_logic(struct compile *c, bool or_)
{
	uint32_t line = parse_now(c)->line;
	struct node *left = or_ ? parse_logic(c, false) : parse_not(c);

	for (unsigned n = 0; parse_skip_name(c, or_ ? "or" : "and"); n++) {
		struct node *node = parse_node(c, or_ ? N_OR : N_AND, line);

		if (n > 2000)
			compile_fail(c, line, "expression too long");
		node->a = left;
		node->b = or_ ? parse_logic(c, false) : parse_not(c);
		left = node;
		line = parse_now(c)->line;
	}
	return left;
}

/* a: test, b: when true, c: else or NULL. */
struct node *
parse_expression(struct compile *c, bool with_cond)
{
	uint32_t line = parse_now(c)->line;
	struct node *node;

	parse_deeper(c);
	node = parse_logic(c, true);
	for (unsigned n = 0; with_cond && parse_skip_name(c, "if"); n++) {
		struct node *cond = parse_node(c, N_COND, line);

		if (n > 100)
			compile_fail(c, line, "expression too long");
		cond->b = node;
		cond->a = parse_logic(c, true);
		if (parse_skip_name(c, "else"))
			cond->c = parse_expression(c, true);
		node = cond;
		line = parse_now(c)->line;
	}
	c->depth--;
	return node;
}
