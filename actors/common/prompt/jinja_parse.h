/* actors/common/prompt/jinja_parse.h -- between the two halves of the parser: expressions
 * (jinja_parse_expr.c) and statements (jinja_parse.c). */
#pragma once
#include "actors/common/prompt/jinja_private.h"

/* Which items a tuple has. */
enum tuple_of { TUPLE_OF_TARGETS, TUPLE_OF_EXPRESSIONS, TUPLE_WITHOUT_COND };

const struct token *parse_now(const struct compile *c);
const struct token *parse_look(const struct compile *c);        /* the one behind */
const struct token *parse_next(struct compile *c);              /* and goes on */
bool parse_is(const struct compile *c, enum token_type type);
bool parse_token_is_name(const struct token *t, const char *name);
bool parse_is_name(const struct compile *c, const char *name);
bool parse_skip(struct compile *c, enum token_type type);
bool parse_skip_name(struct compile *c, const char *name);
const char *parse_describe(const struct token *t);
const struct token *parse_expect(struct compile *c, enum token_type type);
struct node *parse_node(struct compile *c, enum node_kind kind, uint32_t line);
void parse_deeper(struct compile *c);                           /* and c->depth-- on the way back */

struct node *parse_tuple(struct compile *c, enum tuple_of of, const char *extra_end,
			 bool parentheses);
struct node *parse_named(struct compile *c, const struct token *t);
struct node *parse_filter(struct compile *c, struct node *node, bool is_inline);
struct node *parse_expression(struct compile *c, bool with_cond);
