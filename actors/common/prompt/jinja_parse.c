/* actors/common/prompt/jinja_parse.c -- statements: tokens to a tree. */
#include "actors/common/prompt/jinja_parse.h"

static void subparse(struct compile *c, const char *const *end, struct node_list *ret);

static struct body *
new_body(struct compile *c, struct node *node)
{
	node->body = compile_take(c, sizeof(*node->body));
	return node->body;
}

/* What may stand left of "=", in for and in signatures. */
static void
set_target(struct compile *c, struct node *node, uint8_t flag)
{
	if (node->kind == N_NAME) {
		node->op = flag;
	} else if (node->kind == N_TUPLE) {
		for (uint32_t i = 0; i < node->list.n; i++)
			set_target(c, node->list.node[i], flag);
	} else if (node->kind != N_NSREF) {
		compile_fail(c, node->line, "can't assign to this");
	}
}

static struct node *
name_target(struct compile *c, uint8_t flag)
{
	struct node *node = parse_named(c, parse_expect(c, T_NAME));

	set_target(c, node, flag);
	return node;
}

static struct node *
parse_target(struct compile *c, bool namespaces, const char *extra_end, uint8_t flag)
{
	uint32_t from = c->at;
	struct node *node = parse_tuple(c, TUPLE_OF_TARGETS, extra_end, false);

	if (!namespaces)
		for (uint32_t i = from; i < c->at; i++)
			if (c->token[i].type == T_DOT)
				compile_fail(c, node->line, "can't assign to an attribute here");
	set_target(c, node, flag);
	return node;
}

static void
body_until(struct compile *c, const char *const *end, struct node_list *ret)
{
	parse_skip(c, T_COLON);
	parse_expect(c, T_BLOCK_END);
	subparse(c, end, ret);
	if (parse_is(c, T_EOF))
		compile_fail(c, parse_now(c)->line, "Unexpected end of template. Jinja was looking "
						    "for the following tags: '%s'.", end[0]);
}

static void
body_to(struct compile *c, const char *end, struct node_list *ret)
{
	const char *const ends[] = {end, NULL};

	body_until(c, ends, ret);
	c->at++;
}

static struct node *
parse_set(struct compile *c)
{
	uint32_t line = parse_next(c)->line;
	struct node *target = parse_target(c, true, NULL, NODE_STORE), *node;

	if (parse_skip(c, T_ASSIGN)) {
		node = parse_node(c, N_SET, line);
		node->a = target;
		node->b = parse_tuple(c, TUPLE_OF_EXPRESSIONS, NULL, false);
		return node;
	}
	node = parse_node(c, N_SET_BLOCK, line);
	node->a = target;
	node->b = parse_filter(c, NULL, false);
	body_to(c, "endset", &node->list);
	return node;
}

/* a: target, b: what is walked, c: test or NULL; list: body. */
static struct node *
parse_for(struct compile *c)
{
	static const char *const ends[] = {"endfor", "else", NULL};
	struct node *node = parse_node(c, N_FOR, parse_next(c)->line);
	struct body *body = new_body(c, node);

	node->a = parse_target(c, false, "in", NODE_STORE);
	if (!parse_skip_name(c, "in"))
		compile_fail(c, parse_now(c)->line, "expected token 'in', got '%s'",
			     parse_describe(parse_now(c)));
	node->b = parse_tuple(c, TUPLE_WITHOUT_COND, "recursive", false);
	if (parse_skip_name(c, "if"))
		node->c = parse_expression(c, true);
	if (parse_skip_name(c, "recursive")) {
		node->op = NODE_RECURSIVE;
		body->is_function = true;
	}
	body_until(c, ends, &node->list);
	if (parse_token_is_name(parse_next(c), "else"))
		body_to(c, "endfor", &body->els);
	return node;
}

/* a: test; list: body; b: the N_IF of an elif, or an N_SCOPE-like list of else in c. */
static struct node *
parse_if(struct compile *c)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct node *first = NULL, *node = NULL;

	for (;;) {
		struct node *branch = parse_node(c, N_IF, parse_next(c)->line);
		const struct token *t;

		branch->a = parse_tuple(c, TUPLE_WITHOUT_COND, NULL, false);
		body_until(c, ends, &branch->list);
		if (node)
			node->b = branch;
		else
			first = branch;
		node = branch;
		t = parse_now(c);
		if (parse_token_is_name(t, "elif"))
			continue;
		c->at++;
		if (parse_token_is_name(t, "else")) {
			first->c = parse_node(c, N_SCOPE, t->line);
			body_to(c, "endif", &first->c->list);
		}
		return first;
	}
}

/* list: the body; body->params: targets; body->defaults: their values. */
static struct node *
parse_with(struct compile *c)
{
	struct node *node = parse_node(c, N_WITH, parse_next(c)->line);
	struct body *body = new_body(c, node);

	while (!parse_is(c, T_BLOCK_END)) {
		if (body->params.n)
			parse_expect(c, T_COMMA);
		node_push(c, &body->params, parse_target(c, false, NULL, NODE_PARAM));
		parse_expect(c, T_ASSIGN);
		node_push(c, &body->defaults, parse_expression(c, true));
	}
	body_to(c, "endwith", &node->list);
	return node;
}

static void
parse_signature(struct compile *c, struct body *body)
{
	parse_expect(c, T_LPAREN);
	while (!parse_is(c, T_RPAREN)) {
		struct node *param;

		if (body->params.n)
			parse_expect(c, T_COMMA);
		param = name_target(c, NODE_PARAM);
		for (uint32_t i = 0; i < body->params.n; i++)
			if (value_equal(body->params.node[i]->value, param->value))
				compile_fail(c, param->line, "duplicate argument '%.*s'",
					     (int)param->value.n, param->value.s);
		if (parse_skip(c, T_ASSIGN))
			node_push(c, &body->defaults, parse_expression(c, true));
		else if (body->defaults.n)
			compile_fail(c, param->line,
				     "non-default argument follows default argument");
		node_push(c, &body->params, param);
	}
	parse_expect(c, T_RPAREN);
}

static struct node *
parse_macro(struct compile *c)
{
	struct node *node = parse_node(c, N_MACRO, parse_next(c)->line);
	struct body *body = new_body(c, node);

	body->is_function = true;
	node->value = name_target(c, NODE_STORE)->value;
	parse_signature(c, body);
	body_to(c, "endmacro", &node->list);
	return node;
}

static struct node *
parse_call_block(struct compile *c)
{
	struct node *node = parse_node(c, N_CALL_BLOCK, parse_next(c)->line);
	struct body *body = new_body(c, node);

	body->is_function = true;
	if (parse_is(c, T_LPAREN))
		parse_signature(c, body);
	node->a = parse_expression(c, true);
	if (node->a->kind != N_CALL)
		compile_fail(c, node->line, "expected call");
	for (uint32_t i = 0; i < node->a->args->n_kw; i++)
		if (slice_eq_str(node->a->args->kw[i].name, "caller"))
			compile_fail(c, node->line, "keyword argument repeated: caller");
	body_to(c, "endcall", &node->list);
	return node;
}

static struct node *
parse_statement(struct compile *c)
{
	static const char *const refused[] = {"include", "import", "from", "extends", "block",
					      "autoescape", NULL};
	const struct token *t = parse_now(c);
	struct node *node;

	if (t->type != T_NAME)
		compile_fail(c, t->line, "tag name expected");
	if (parse_token_is_name(t, "if"))
		return parse_if(c);
	if (parse_token_is_name(t, "for"))
		return parse_for(c);
	if (parse_token_is_name(t, "set"))
		return parse_set(c);
	if (parse_token_is_name(t, "macro"))
		return parse_macro(c);
	if (parse_token_is_name(t, "call"))
		return parse_call_block(c);
	if (parse_token_is_name(t, "with"))
		return parse_with(c);
	if (parse_skip_name(c, "break"))
		return parse_node(c, N_BREAK, t->line);
	if (parse_skip_name(c, "continue"))
		return parse_node(c, N_CONTINUE, t->line);
	if (parse_token_is_name(t, "filter")) {
		node = parse_node(c, N_FILTER_BLOCK, parse_next(c)->line);
		node->a = parse_filter(c, NULL, true);
		body_to(c, "endfilter", &node->list);
		return node;
	}
	if (parse_token_is_name(t, "generation")) {
		/* marks what the assistant said; in a function of its own, so no loop's end is
		 * inside */
		node = parse_node(c, N_SCOPE, parse_next(c)->line);
		node->op = 1;
		body_to(c, "endgeneration", &node->list);
		return node;
	}
	if (parse_token_is_name(t, "print")) {
		node = parse_node(c, N_OUTPUT, parse_next(c)->line);
		while (!parse_is(c, T_BLOCK_END)) {
			if (node->list.n)
				parse_expect(c, T_COMMA);
			node_push(c, &node->list, parse_expression(c, true));
		}
		return node;
	}
	for (const char *const *tag = refused; *tag; tag++)
		if (parse_token_is_name(t, *tag))
			compile_fail(c, t->line, "the tag '%s' is not supported", *tag);
	compile_fail(c, t->line, "Encountered unknown tag '%.*s'.", (int)t->value.n, t->value.s);
}

static void
subparse(struct compile *c, const char *const *end, struct node_list *ret)
{
	struct node *output = NULL;

	parse_deeper(c);
	while (!parse_is(c, T_EOF)) {
		const struct token *t = parse_next(c);

		if (t->type == T_BLOCK_BEGIN) {
			output = NULL;
			for (const char *const *e = end; e && *e; e++) {
				if (parse_is_name(c, *e)) {
					c->depth--;
					return;
				}
			}
			node_push(c, ret, parse_statement(c));
			parse_expect(c, T_BLOCK_END);
			continue;
		}
		if (!output) {
			output = parse_node(c, N_OUTPUT, t->line);
			node_push(c, ret, output);
		}
		if (t->type == T_DATA) {
			struct node *data = parse_node(c, N_DATA, t->line);

			data->value = t->value;
			node_push(c, &output->list, data);
		} else {
			node_push(c, &output->list,
				  parse_tuple(c, TUPLE_OF_EXPRESSIONS, NULL, false));
			parse_expect(c, T_VAR_END);
		}
	}
	c->depth--;
}

void
jinja_parse(struct compile *c, struct node_list *ret)
{
	subparse(c, NULL, ret);
}
