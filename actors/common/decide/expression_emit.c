/* actors/common/decide/expression_emit.c -- a checked tree as steps; see expression_private.h.
 *
 * Registers are a stack: a node's value goes to register `to`, what it needs meanwhile lies above.
 * A literal is a constant, and no step.  All jumps go forward, so every run ends.
 */
#include "actors/common/decide/expression_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct emitter {
	struct expression_tree *t;
	struct expression *e;
	uint32_t cap_steps, cap_constants;
};

static int emit(struct emitter *m, const struct expression_node *n, uint16_t to, uint16_t *ret);

static int
step(struct emitter *m, struct expression_step s)
{
	struct expression *e = m->e;

	if (e->n_steps == EXPRESSION_STEPS_MAX)
		return expression_fail(&m->t->source, 0, m->t->source.text, NULL,
				       "at most %u steps", EXPRESSION_STEPS_MAX);
	if (e->n_steps == m->cap_steps) {
		uint32_t cap = m->cap_steps ? 2 * m->cap_steps : 8;
		struct expression_step *more = realloc(e->steps, cap * sizeof *more);

		if (!more)
			return -ENOMEM;
		e->steps = more;
		m->cap_steps = cap;
	}
	e->steps[e->n_steps++] = s;
	return 0;
}

static int
constant(struct emitter *m, struct expression_value v, uint16_t *ret)
{
	struct expression *e = m->e;

	if (e->n_constants == m->cap_constants) {
		uint32_t cap = m->cap_constants ? 2 * m->cap_constants : 4;
		struct expression_value *more = realloc(e->constants, cap * sizeof *more);

		if (!more)
			return -ENOMEM;
		e->constants = more;
		m->cap_constants = cap;
	}
	e->constants[e->n_constants] = v;       /* fewer than bytes of the text */
	*ret = (uint16_t)(CONSTANT | e->n_constants++);
	return 0;
}

/* What a step put into `to`, or a copy of what it need not. */
static int
emit_to(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	uint16_t at;
	int r = emit(m, n, to, &at);

	if (r < 0 || at == to)
		return r;
	return step(m, (struct expression_step){.code = STEP_COPY, .dst = to, .a = at});
}

static int
emit_logic(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	bool and = n->kind == NODE_AND;
	struct expression_step s = {.dst = to, .b = (uint16_t)(to + 1)};
	uint32_t jump;
	int r = emit(m, n->child, to, &s.a);

	if (r < 0)
		return r;
	jump = m->e->n_steps;
	s.code = and ? STEP_JUMP_NO : STEP_JUMP_YES;
	r = step(m, s);
	if (r == 0)
		r = emit(m, n->child->next, (uint16_t)(to + 1), &s.b);
	s.code = and ? STEP_AND : STEP_OR;
	if (r == 0)
		r = step(m, s);
	if (r == 0)
		m->e->steps[jump].arg = m->e->n_steps;
	return r;
}

static int
emit_ternary(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	struct expression_step s = {.code = STEP_BRANCH, .dst = to};
	uint32_t branch, jump;
	int r = emit(m, n->child, to, &s.a);

	if (r < 0)
		return r;
	branch = m->e->n_steps;
	r = step(m, s);
	if (r == 0)
		r = emit_to(m, n->child->next, to);
	jump = m->e->n_steps;
	if (r == 0)
		r = step(m, (struct expression_step){.code = STEP_JUMP});
	if (r < 0)
		return r;
	m->e->steps[branch].arg = m->e->n_steps;
	r = emit_to(m, n->child->next->next, to);
	if (r < 0)
		return r;
	m->e->steps[jump].arg = m->e->n_steps;
	m->e->steps[branch].b = (uint16_t)m->e->n_steps;
	return 0;
}

/* Its items lie above it, so it must be the last operand that is computed. */
static int
emit_list(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	struct expression_step s = {
		.code = STEP_LIST, .dst = to, .b = (uint16_t)n->n_children, .arg = to + 1u,
	};
	uint32_t at = to + 1u;
	int r = 0;

	for (const struct expression_node *i = n->child; i && r == 0; i = i->next)
		r = emit_to(m, i, (uint16_t)at++);
	return r < 0 ? r : step(m, s);
}

static int
emit_regex(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	struct expression *e = m->e;
	const struct expression_node *pattern = n->child->next;
	struct expression_step s = {
		.code = STEP_MATCHES, .dst = to, .b = (uint16_t)e->n_regexes,
	};
	struct slice found = slice_of(m->t->source.text.p + pattern->offset, pattern->len);
	char why[120];
	uint32_t at;
	int r;

	if (e->n_regexes == EXPRESSION_REGEXES)
		return expression_fail(&m->t->source, pattern->offset, found, NULL,
				       "at most %u patterns", EXPRESSION_REGEXES);
	r = expression_regex_compile(pattern->value.s, &e->regex[e->n_regexes], why, &at);
	if (r == -EINVAL)
		return expression_fail(&m->t->source, pattern->offset, found, NULL,
				       "a pattern of RE2: at its byte %u it %s", at, why);
	if (r < 0)
		return r;
	e->n_regexes++;
	r = emit(m, n->child, to, &s.a);
	return r < 0 ? r : step(m, s);
}

/* A fact with named values beside one of these names, or a list of them: no text need be looked
 * at. */
static bool
is_choice(const struct expression_node *n, struct expression_step *ret)
{
	const struct expression_node *a = n->child, *b = a->next, *swap = a;
	const struct expression_value *v;
	const struct fact_row *row;
	unsigned count = 0, mask = 0;

	if (n->kind != NODE_EQUAL && n->kind != NODE_UNEQUAL && n->kind != NODE_IN)
		return false;
	if (a->kind == NODE_LITERAL) {
		a = b;
		b = swap;
	}
	if (a->kind != NODE_FACT || b->kind != NODE_LITERAL ||
	    facts_table()[a->fact].type != FACTS_CHOICE || b->value.type == TYPE_UNKNOWN)
		return false;
	row = &facts_table()[a->fact];
	v = b->value.type == TYPE_LIST ? b->value.item : &b->value;
	for (; strcmp(row->choice(count), "unknown") != 0; count++)
		for (uint32_t i = 0; i < (b->value.type == TYPE_LIST ? b->value.n : 1); i++)
			if (slice_eq_str(v[i].s, row->choice(count)))
				mask |= 1u << count;
	if (count > 16)
		return false;
	ret->code = STEP_CHOICE;
	ret->arg = a->fact;
	ret->more = (uint8_t)count;
	ret->b = (uint16_t)(n->kind == NODE_UNEQUAL ? ~mask : mask);
	return true;
}

/* Two of one type, the usual ones: no need to look again which. */
static enum expression_code
operation(const struct expression_node *n)
{
	enum expression_type a = n->child->type;

	if (n->kind < NODE_EQUAL || n->kind > NODE_MORE_EQUAL || a != n->child->next->type)
		return STEP_OPERATE;
	return a == TYPE_INT || a == TYPE_DURATION ? STEP_COMPARE_INTS :
		a == TYPE_DOUBLE ? STEP_COMPARE_DOUBLES : STEP_OPERATE;
}

static int
emit_operation(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	struct expression_step s = {
		.code = (uint8_t)operation(n), .dst = to, .arg = n->kind,
	};
	int r;

	if (is_choice(n, &s)) {
		m->e->reads |= 1ull << s.arg;
		return step(m, s);
	}
	if (n->kind == NODE_INDEX) {            /* the list last */
		r = emit(m, n->child->next, to, &s.b);
		if (r == 0)
			r = emit(m, n->child, (uint16_t)(to + 1), &s.a);
	} else {
		r = emit(m, n->child, to, &s.a);
		if (r == 0)
			r = emit(m, n->child->next, (uint16_t)(to + 1), &s.b);
	}
	return r < 0 ? r : step(m, s);
}

static int
emit_unary(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	struct expression_step s = {.dst = to, .arg = n->type};
	int r = emit(m, n->child, to, &s.a);

	s.code = n->kind == NODE_NOT ? STEP_NOT : n->kind == NODE_MINUS ? STEP_MINUS :
		n->kind == NODE_CONVERT ? STEP_CONVERT : n->kind == NODE_KNOWN ? STEP_KNOWN :
		STEP_SIZE;
	return r < 0 ? r : step(m, s);
}

static enum expression_code
load(const struct fact_row *row)
{
	bool request = row->class & (FACTS_OF_REQUEST | FACTS_OF_TAGS);

	switch (row->type) {
	case FACTS_INT:
		return request ? STEP_REQUEST_INT : STEP_INT;
	case FACTS_DOUBLE:
		return request ? STEP_REQUEST_DOUBLE : STEP_DOUBLE;
	case FACTS_STRING:
		return request ? STEP_FACT : STEP_STRING;
	default:
		return STEP_FACT;
	}
}

/* What reads a fact. */
static int
emit_fact(struct emitter *m, const struct expression_node *n, uint16_t to)
{
	struct expression_step s = {.dst = to, .arg = n->fact};
	int r = 0;

	m->e->reads |= 1ull << n->fact;
	switch (n->kind) {
	case NODE_FACT:
		s.code = (uint8_t)load(&facts_table()[n->fact]);
		if (s.code != STEP_FACT)
			s.arg = (uint32_t)facts_table()[n->fact].offset;
		break;
	case NODE_POOL:
		s.code = n->index == POOL_OF_CANDIDATE ? STEP_POOL_HERE : STEP_POOL;
		s.b = (uint16_t)n->index;
		if (n->index == POOL_OF_CANDIDATE)
			m->e->reads |= 1ull << FACT_CANDIDATE_POOL;
		break;
	case NODE_TAG:
		s.code = STEP_TAG;
		s.arg = n->index;
		m->e->tags |= 1ull << n->index;
		break;
	default:
		s.code = n->kind == NODE_HEADER ? STEP_HEADER : n->kind == NODE_LABEL ? STEP_LABEL :
			n->kind == NODE_HAS_HEADER ? STEP_HAS_HEADER : STEP_HAS_LABEL;
		r = constant(m, n->value, &s.a);
		break;
	}
	return r < 0 ? r : step(m, s);
}

static int
emit(struct emitter *m, const struct expression_node *n, uint16_t to, uint16_t *ret)
{
	*ret = to;
	if (n->kind == NODE_LITERAL)
		return constant(m, n->value, ret);
	if (to + n->n_children >= EXPRESSION_REGISTERS)
		return expression_fail(&m->t->source, n->offset,
				       slice_of(m->t->source.text.p + n->offset, n->len), NULL,
				       "fewer values at once");
	switch (n->kind) {
	case NODE_AND:
	case NODE_OR:
		return emit_logic(m, n, to);
	case NODE_TERNARY:
		return emit_ternary(m, n, to);
	case NODE_LIST:
		return emit_list(m, n, to);
	case NODE_MATCHES:
		return emit_regex(m, n, to);
	case NODE_SIZE:
		if (n->child->type != TYPE_TAGS)
			return emit_unary(m, n, to);
		m->e->reads |= 1ull << FACT_REQUEST_TAGS;
		m->e->tags = UINT64_MAX;
		return step(m, (struct expression_step){.code = STEP_TAGS_SIZE, .dst = to});
	case NODE_NOT: case NODE_MINUS: case NODE_CONVERT: case NODE_KNOWN:
		return emit_unary(m, n, to);
	case NODE_FACT: case NODE_POOL: case NODE_TAG: case NODE_HEADER: case NODE_HAS_HEADER:
	case NODE_LABEL: case NODE_HAS_LABEL:
		return emit_fact(m, n, to);
	default:
		return emit_operation(m, n, to);
	}
}

int
expression_emit(struct expression_tree *t, struct expression *e)
{
	struct emitter m = {.t = t, .e = e};
	int r = emit(&m, t->root, 0, &e->result);

	if (r == 0 && e->n_regexes > 0) {
		e->match = pcre2_match_context_create(NULL);
		if (!e->match)
			return -ENOMEM;
		pcre2_set_match_limit(e->match, EXPRESSION_MATCH_MAX);
	}
	return r;
}
