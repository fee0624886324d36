/* tests/jinja/compare.c -- renders templates and compares with what Jinja2 made of them.
 *
 * Input      JSON lines on stdin: {"template": text, "context": object, "now": seconds, "rendered":
 *            text} or, instead of rendered, {"error": text}; "continue": true for
 *            continue_final_message; "name": what to call it.  A null template is the last one.
 * Output     what differs, at most so many as the first argument says; last a line of counts.
 *            What we say to be unsupported is counted apart.
 *            Exit 1 if anything did, or if there was nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "actors/common/prompt/jinja.h"

#define MEMORY (256u << 20)

struct counts {
	unsigned cases, differ, errors, unsupported, shown, max_shown;
};

static struct jinja *template;
static struct jinja_error compile_error;

/* 0 and the text, or not and the error. */
static int
make(struct value row, struct bump *bump, struct text *out, struct jinja_error *err)
{
	struct value source = value_member(row, "template"), context = value_member(row, "context");
	struct jinja_options options = {.now_s = value_member(row, "now").i};
	struct value messages, marked;
	struct value_dict *own;
	const char *why;
	int r;

	if (source.kind == VALUE_STRING) {
		jinja_free(&template);
		if (jinja_compile(value_slice(source), &template, &compile_error) < 0)
			template = NULL;
	}
	if (!template) {
		*err = compile_error;
		return -EBADMSG;
	}
	if (!value_true(value_member(row, "continue")))
		return jinja_render(template, &context, &options, bump, out, err);
	messages = value_member(context, "messages");
	own = value_dict_new(bump, context.dict->n);
	for (uint32_t i = 0; i < context.dict->n; i++)
		(void)value_put(own, context.dict->pair[i].key, context.dict->pair[i].value);
	if (!jinja_continue_mark(bump, &messages, &marked, &why)) {
		(void)snprintf(err->text, sizeof(err->text), "%s", why);
		return -EINVAL;
	}
	(void)value_put_str(own, "messages", marked);
	context = value_of_dict(own);
	r = jinja_render(template, &context, &options, bump, out, err);
	if (r == 0)
		r = jinja_continue_cut(out, 0);
	return r;
}

static void
show(struct counts *c, struct value row, const struct text *out, int r,
     const struct jinja_error *err)
{
	struct value want = value_member(row, "rendered"), name = value_member(row, "name"),
		     error = value_member(row, "error"), source = value_member(row, "template");

	c->differ++;
	if (c->shown++ >= c->max_shown)
		return;
	printf("---- %.*s\n%.*s\n", (int)name.n, name.n ? name.s : "",
	       source.kind == VALUE_STRING && source.n < 2000 ? (int)source.n : 0, source.s);
	if (want.kind == VALUE_STRING)
		printf("want: %.*s\n", (int)want.n, want.s);
	else
		printf("want error: %.*s\n", (int)error.n, error.s);
	if (r == 0)
		printf("have: %.*s\n", (int)out->len, out->p ? out->p : "");
	else
		printf("have error %d: line %u: %s\n", r, err->line, err->text);
}

static void
compare(struct counts *c, struct slice line, struct bump *bump, struct text *out)
{
	struct jinja_error err = {0};
	struct value row, want;
	const char *why = "";
	bool equal;
	int r;

	bump_reset(bump);
	text_clear(out);
	if (value_from_json(bump, line, &row, &why, NULL) < 0) {
		printf("a line that is no JSON: %s\n", why);
		c->differ++;
		return;
	}
	c->cases++;
	r = make(row, bump, out, &err);
	want = value_member(row, "rendered");
	equal = want.kind == VALUE_STRING ? r == 0 && slice_eq(text_slice(out), value_slice(want))
					  : r < 0;
	c->errors += want.kind != VALUE_STRING;
	if (!equal && r < 0 && strncmp(err.text, "unsupported:", 12) == 0)
		c->unsupported++;
	else if (!equal)
		show(c, row, out, r, &err);
}

int
main(int argc, char **argv)
{
	struct counts c = {.max_shown = argc > 1 ? (unsigned)atoi(argv[1]) : 10};
	struct bump bump;
	struct text out;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	bump_init(&bump, MEMORY);
	text_init(&out, MEMORY);
	while ((n = getline(&line, &cap, stdin)) > 0)
		compare(&c, slice_of(line, (size_t)n), &bump, &out);
	printf("%u cases (%u of them errors), %u differ, %u unsupported\n", c.cases, c.errors,
	       c.differ, c.unsupported);
	free(line);
	jinja_free(&template);
	bump_free(&bump);
	text_free(&out);
	return c.differ || !c.cases;
}
