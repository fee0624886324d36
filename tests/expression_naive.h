/* tests/expression_naive.h -- what an expression says, read off its tree: no folding, no steps, no
 * short ways.  For tests that hold the compiled form against it. */
#pragma once
#include <stdlib.h>

#include "actors/common/decide/expression_private.h"

static struct expression_value naive(const struct expression_node *n, const struct facts *f);

static inline struct expression_value
naive_bool(bool b)
{
	return (struct expression_value){.type = TYPE_BOOL, .b = b};
}

/* Both sides always; what is known and decides wins. */
static inline struct expression_value
naive_logic(const struct expression_node *n, const struct facts *f, bool decides)
{
	struct expression_value a = naive(n->child, f), b = naive(n->child->next, f);

	if ((a.type == TYPE_BOOL && a.b == decides) || (b.type == TYPE_BOOL && b.b == decides))
		return naive_bool(decides);
	if (a.type == TYPE_UNKNOWN || b.type == TYPE_UNKNOWN)
		return (struct expression_value){0};
	return naive_bool(!decides);
}

static inline struct expression_value
naive_map(const struct expression_node *n, const struct facts *f)
{
	bool has = n->kind == NODE_HAS_HEADER || n->kind == NODE_HAS_LABEL;
	bool header = n->kind == NODE_HEADER || n->kind == NODE_HAS_HEADER;
	struct expression_value v = {.type = TYPE_STRING};
	int found = header && f->request ? facts_header(f->request->head, n->value.s.p, &v.s) : -1;

	if (!header && f->candidate) {
		const struct facts_label *l = expression_label(f, n->value.s);

		found = l != NULL;
		if (l)
			v.s = l->value;
	}
	if (found < 0 || (found == 0 && !has))
		return (struct expression_value){0};
	return has ? naive_bool(found) : v;
}

/* Of a list on the right of an operator. */
static inline struct expression_value
naive_with_list(const struct expression_node *n, const struct expression_node *list,
		const struct expression_value *other, const struct facts *f)
{
	struct expression_value *item = calloc(list->n_children + 1u, sizeof *item), v, r;
	uint32_t k = 0;

	v = (struct expression_value){.type = TYPE_LIST, .n = list->n_children, .item = item};
	for (const struct expression_node *i = list->child; i; i = i->next) {
		item[k] = naive(i, f);
		if (item[k++].type == TYPE_UNKNOWN)
			v.type = TYPE_UNKNOWN;
	}
	r = n->kind == NODE_SIZE ? expression_size(&v) :
		n->kind == NODE_IN ? expression_operate(NODE_IN, other, &v) :
		expression_operate(NODE_INDEX, &v, other);
	free(item);
	return r;
}

static inline struct expression_value
naive_matches(const struct expression_node *n, const struct facts *f)
{
	struct expression_value subject = naive(n->child, f);
	pcre2_match_context *limits = pcre2_match_context_create(NULL);
	pcre2_code *code;
	enum expression_truth t;
	char why[120];
	uint32_t at;

	if (subject.type == TYPE_UNKNOWN ||
	    expression_regex_compile(n->child->next->value.s, &code, why, &at) < 0) {
		pcre2_match_context_free(limits);
		return (struct expression_value){0};
	}
	pcre2_set_match_limit(limits, EXPRESSION_MATCH_MAX);
	t = expression_regex_test(code, limits, subject.s);
	pcre2_code_free(code);
	pcre2_match_context_free(limits);
	return t == EXPRESSION_UNKNOWN ? (struct expression_value){0} :
		naive_bool(t == EXPRESSION_YES);
}

/* n must have been checked without folding. */
static struct expression_value
naive(const struct expression_node *n, const struct facts *f)
{
	const struct expression_node *a = n->child, *b = a ? a->next : NULL;
	struct expression_value x, y;

	switch (n->kind) {
	case NODE_LITERAL:
		return n->value;
	case NODE_FACT:
		return expression_fact(n->fact, f, 0);
	case NODE_POOL:
		return expression_fact(n->fact, f, n->index != POOL_OF_CANDIDATE ? n->index :
				       f->candidate ? f->candidate->pool_index : UINT32_MAX);
	case NODE_TAG:
		if (!f->request || f->request->tags_unknown >> n->index & 1)
			return (struct expression_value){0};
		return naive_bool(f->request->tags >> n->index & 1);
	case NODE_HEADER: case NODE_HAS_HEADER: case NODE_LABEL: case NODE_HAS_LABEL:
		return naive_map(n, f);
	case NODE_KNOWN:
		return naive_bool(naive(a, f).type != TYPE_UNKNOWN);
	case NODE_AND:
	case NODE_OR:
		return naive_logic(n, f, n->kind == NODE_OR);
	case NODE_NOT:
		x = naive(a, f);
		return x.type == TYPE_UNKNOWN ? x : naive_bool(!x.b);
	case NODE_TERNARY:
		x = naive(a, f);
		return x.type == TYPE_UNKNOWN ? x : naive(x.b ? b : b->next, f);
	case NODE_MINUS:
		x = naive(a, f);
		return expression_minus(&x);
	case NODE_CONVERT:
		x = naive(a, f);
		return expression_convert(&x, n->type);
	case NODE_MATCHES:
		return naive_matches(n, f);
	case NODE_SIZE:
		if (a->type == TYPE_LIST)
			return naive_with_list(n, a, NULL, f);
		if (a->type == TYPE_TAGS) {
			if (!f->request || f->request->tags_unknown)
				return (struct expression_value){0};
			return (struct expression_value){
				.type = TYPE_INT, .i = __builtin_popcountll(f->request->tags)};
		}
		x = naive(a, f);
		return expression_size(&x);
	case NODE_IN:
		x = naive(a, f);
		return naive_with_list(n, b, &x, f);
	case NODE_INDEX:
		x = naive(b, f);
		return naive_with_list(n, a, &x, f);
	default:
		x = naive(a, f);
		y = naive(b, f);
		return expression_operate(n->kind, &x, &y);
	}
}
