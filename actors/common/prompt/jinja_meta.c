/* actors/common/prompt/jinja_meta.c -- does a template walk message.content as a list?
 *
 * vLLM decides by the tree whether a template wants contents as lists ("openai") or as text
 * ("string"): it looks for a loop over X.content where X is the variable of a loop over messages,
 * or over a variable set from messages; in a macro, over a parameter that some call of its name
 * gives such a content; outside of macros, over any variable called content.  (The last two came
 * later than 0.31; read in 0.32.0.)  Where its own look fails (targets that are no plain names)
 * the answer is "string".
 */
#include "actors/common/prompt/jinja_private.h"

#define NAMES  64u                      /* more variables of messages nobody has */
#define MACROS 64u
#define PARAMS 64u
#define DEPTH  400u                     /* of expressions within each other */

struct names {
	struct slice name[NAMES];
	uint32_t n;
};

struct taker {
	const struct node *node;
	uint64_t content;                       /* its parameters that are given a content */
};

struct search {
	struct names messages, message;         /* variables that hold them all, and one */
	struct taker macro[MACROS];
	uint32_t n_macro;
	const struct taker *within;             /* FIND_CONTENT: of this macro */
	enum { FIND_SETS, FIND_LOOPS, FIND_MACROS, FIND_CONTENT } what;
	struct slice related;                   /* FIND_SETS: the variable set from */
	bool found, failed;
};

static bool
names_have(const struct names *names, struct slice name)
{
	for (uint32_t i = 0; i < names->n; i++)
		if (slice_eq(names->name[i], name))
			return true;
	return false;
}

static void
names_add(struct names *names, struct slice name)
{
	if (names->n < NAMES && !names_have(names, name))
		names->name[names->n++] = name;
}

static bool
is_variable(const struct node *node, struct slice name)
{
	return node->kind == N_NAME && !node->op && slice_eq(value_slice(node->value), name);
}

/* The variable itself, or its member `key`; through filters, tests and slices. */
static bool
accesses(const struct node *node, struct slice name, const char *key)
{
	while (node && (node->kind == N_FILTER || node->kind == N_TEST || node->kind == N_SLICE))
		node = node->a;
	if (!node)
		return false;
	if (!key)
		return is_variable(node, name);
	if (node->kind == N_GETATTR)
		return is_variable(node->a, name) && value_is_text(node->value, key);
	return node->kind == N_GETITEM && is_variable(node->a, name) &&
	       node->b->kind == N_CONST && value_is_text(node->b->value, key);
}

static bool
accesses_any(const struct node *node, const struct names *names, const char *key)
{
	for (uint32_t i = 0; i < names->n; i++)
		if (accesses(node, names->name[i], key))
			return true;
	return false;
}

/* What a loop in a macro, or outside of all, walks under a name that a content may have there. */
static bool
walks_by_name(const struct search *s, const struct node *iter)
{
	const struct node_list *params;

	if (!s->within)
		return is_variable(iter, SLICE_LIT("content"));
	params = &s->within->node->body->params;
	for (uint32_t i = 0; i < params->n && i < PARAMS; i++)
		if ((s->within->content >> i & 1) &&
		    is_variable(iter, value_slice(params->node[i]->value)))
			return true;
	return false;
}

static void
look_at(struct search *s, const struct node *node)
{
	const struct node *target = node->a;

	switch (s->what) {
	case FIND_SETS:
		if (node->kind != N_SET || !accesses(node->b, s->related, NULL))
			return;
		if (target->kind != N_NAME)
			s->failed = true;
		else
			names_add(&s->messages, value_slice(target->value));
		return;
	case FIND_LOOPS:
		if (node->kind != N_FOR || !accesses_any(node->b, &s->messages, NULL))
			return;
		if (target->kind != N_NAME)
			s->failed = true;
		else
			names_add(&s->message, value_slice(target->value));
		return;
	case FIND_MACROS:
		if (node->kind == N_MACRO && s->n_macro < MACROS)
			s->macro[s->n_macro++] = (struct taker){.node = node};
		return;
	case FIND_CONTENT:
		if (s->found || node->kind != N_FOR ||
		    !(accesses_any(node->b, &s->message, "content") ||
		      walks_by_name(s, node->b)))
			return;
		s->found = true;
		s->failed = target->kind != N_NAME;
	}
}

static void
walk(struct search *s, const struct node_list *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		const struct node *node = list->node[i];
		const struct taker *outer = s->within;

		look_at(s, node);
		for (uint32_t k = 0; s->what == FIND_CONTENT && k < s->n_macro; k++)
			if (s->macro[k].node == node)
				s->within = &s->macro[k];
		walk(s, &node->list);
		s->within = outer;
		if (node->kind == N_FOR)
			walk(s, &node->body->els);
		for (const struct node *elif = node->kind == N_IF ? node->b : NULL; elif;
		     elif = elif->b)
			walk(s, &elif->list);
		if (node->kind == N_IF && node->c)
			walk(s, &node->c->list);
	}
}

/* ---- which parameters are given a content ---- */

static void
call_gives(struct search *s, const struct node *call)
{
	const struct call_args *args = call->args;

	for (uint32_t k = 0; k < s->n_macro; k++) {
		struct taker *m = &s->macro[k];
		const struct node_list *params = &m->node->body->params;

		if (!is_variable(call->a, value_slice(m->node->value)))
			continue;
		for (uint32_t i = 0; i < params->n && i < PARAMS; i++) {
			struct slice name = value_slice(params->node[i]->value);

			if (i < args->pos.n &&
			    accesses_any(args->pos.node[i], &s->message, "content"))
				m->content |= 1ull << i;
			for (uint32_t kw = 0; kw < args->n_kw; kw++)
				if (slice_eq(args->kw[kw].name, name) &&
				    accesses_any(args->kw[kw].value, &s->message, "content"))
					m->content |= 1ull << i;
		}
	}
}

static void calls_in_list(struct search *s, const struct node_list *list, unsigned depth);

static void
calls_in(struct search *s, const struct node *node, unsigned depth)
{
	const struct call_args *args = NULL;

	if (!node || depth > DEPTH)
		return;
	if (node->kind == N_CALL)
		call_gives(s, node);
	if (node->kind == N_CALL || node->kind == N_FILTER || node->kind == N_TEST)
		args = node->args;
	if (args) {
		calls_in_list(s, &args->pos, depth + 1);
		for (uint32_t i = 0; i < args->n_kw; i++)
			calls_in(s, args->kw[i].value, depth + 1);
		calls_in(s, args->star, depth + 1);
		calls_in(s, args->star_star, depth + 1);
	}
	if (node->kind == N_FOR || node->kind == N_MACRO || node->kind == N_CALL_BLOCK ||
	    node->kind == N_WITH) {
		calls_in_list(s, &node->body->defaults, depth + 1);
		calls_in_list(s, &node->body->els, depth + 1);
	}
	calls_in(s, node->a, depth + 1);
	/* elif after elif is a chain, not a depth. */
	for (const struct node *elif = node->kind == N_IF ? node->b : NULL; elif; elif = elif->b) {
		calls_in(s, elif->a, depth + 1);
		calls_in_list(s, &elif->list, depth + 1);
	}
	if (node->kind != N_IF)
		calls_in(s, node->b, depth + 1);
	calls_in(s, node->c, depth + 1);
	calls_in(s, node->d, depth + 1);
	calls_in_list(s, &node->list, depth + 1);
}

static void
calls_in_list(struct search *s, const struct node_list *list, unsigned depth)
{
	for (uint32_t i = 0; i < list->n; i++)
		calls_in(s, list->node[i], depth);
}

bool
jinja_meta_content(const struct jinja *jinja)
{
	struct search s = {.what = FIND_SETS};

	names_add(&s.messages, SLICE_LIT("messages"));
	for (uint32_t i = 0; i < s.messages.n; i++) {
		s.related = s.messages.name[i];
		walk(&s, &jinja->body);
	}
	s.what = FIND_LOOPS;
	walk(&s, &jinja->body);
	if (s.failed)
		return false;
	s.what = FIND_MACROS;
	walk(&s, &jinja->body);
	calls_in_list(&s, &jinja->body, 0);
	s.what = FIND_CONTENT;
	walk(&s, &jinja->body);
	return s.found && !s.failed;
}
