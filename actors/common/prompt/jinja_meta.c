/* actors/common/prompt/jinja_meta.c -- does a template walk message.content as a list?
 *
 * vLLM decides by the tree whether a template wants contents as lists ("openai") or as text
 * ("string"): it looks for a loop over X.content where X is the variable of a loop over messages,
 * or over a variable set from messages.  Where its own look fails (targets that are no plain
 * names) the answer is "string".
 */
#include "actors/common/prompt/jinja_private.h"

#define NAMES 64u                       /* more variables of messages nobody has */

struct names {
	struct slice name[NAMES];
	uint32_t n;
};

struct search {
	struct names messages, message;         /* variables that hold them all, and one */
	enum { FIND_SETS, FIND_LOOPS, FIND_CONTENT } what;
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
	case FIND_CONTENT:
		if (s->found || node->kind != N_FOR ||
		    !accesses_any(node->b, &s->message, "content"))
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

		look_at(s, node);
		walk(s, &node->list);
		if (node->kind == N_FOR)
			walk(s, &node->body->els);
		for (const struct node *elif = node->kind == N_IF ? node->b : NULL; elif;
		     elif = elif->b)
			walk(s, &elif->list);
		if (node->kind == N_IF && node->c)
			walk(s, &node->c->list);
	}
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
	s.what = FIND_CONTENT;
	walk(&s, &jinja->body);
	return s.found && !s.failed;
}
