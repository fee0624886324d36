/* actors/common/prompt/jinja_exec.c -- statements, macros, and the two calls of jinja.h. */
#include "actors/common/prompt/jinja_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TEMPLATE_BYTES (256u << 20)     /* of a compiled template: a source of 1 MiB fits */

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec_list(struct run *run, struct frame *frame, const struct node_list *list);

static struct frame *
new_frame(struct run *run, struct frame *parent, unsigned slots)
{
	struct frame *frame = run_take(run, sizeof(*frame) + slots * sizeof(struct value));

	memset(frame->slot, 0, slots * sizeof(struct value));
	frame->parent = parent;
	return frame;
}

static void
enter(struct run *run, struct frame *frame, const struct loads *loads)
{
	for (uint32_t i = 0; i < loads->n; i++) {
		const struct load *load = &loads->load[i];
		const struct frame *from = frame;

		switch (load->kind) {
		case LOAD_RESOLVE:
			frame->slot[load->slot] = run->global[load->name];
			break;
		case LOAD_ALIAS:
			for (uint16_t hops = load->hops; hops; hops--)
				from = from->parent;
			frame->slot[load->slot] = from->slot[load->from];
			break;
		default:
			frame->slot[load->slot] = value_undefined();
		}
	}
}

static struct value *
variable(struct frame *frame, uint16_t slot, uint16_t hops)
{
	for (; hops; hops--)
		frame = frame->parent;
	return &frame->slot[slot];
}

static void
assign(struct run *run, struct frame *frame, const struct node *target, struct value v)
{
	struct value_items items;
	struct value *at;

	if (target->kind == N_TUPLE) {
		items = items_of(run, v);
		if (items.n != target->list.n)
			run_fail(run, "ValueError: %s values to unpack (expected %u)",
				 items.n < target->list.n ? "not enough" : "too many",
				 target->list.n);
		for (uint32_t i = 0; i < items.n; i++)
			assign(run, frame, target->list.node[i], items.item[i]);
		return;
	}
	at = variable(frame, target->slot, target->hops);
	if (target->kind == N_NAME) {
		*at = v;
		return;
	}
	if (at->kind != VALUE_NAMESPACE)
		run_fail(run, "TemplateRuntimeError: cannot assign attribute on non-namespace "
			      "object");
	run_put(run, ((const struct namespace_ *)at->p)->dict, target->a->value, v);
}

/* The rounds of a for whose loop is ready, and its else. */
static enum flow
rounds(struct run *run, struct frame *frame, const struct node *node, struct loop *loop)
{
	const struct body *body = node->body;
	enum flow flow = FLOW_ON;
	bool none = true;
	struct value v;

	if (node->op & NODE_LOOP_VAR)
		frame->slot[body->loop_slot] = (struct value){.kind = VALUE_LOOP, .p = loop};
	if (node->c)
		enter(run, frame, &body->test_loads);
	/* else is for loops of which no round reached its end: a Jinja2 trait */
	while (loop_next(run, loop, &v)) {
		run_steps(run, 1);
		assign(run, frame, node->a, v);
		enter(run, frame, &body->loads);
		flow = exec_list(run, frame, &node->list);
		if (flow == FLOW_BREAK)
			break;
		none = none && flow == FLOW_CONTINUE;
	}
	if (!none || !body->els.n)
		return FLOW_ON;
	enter(run, frame, &body->els_loads);
	return exec_list(run, frame, &body->els);
}

static enum flow
exec_for(struct run *run, struct frame *frame, const struct node *node)
{
	struct value over = eval(run, frame, node->b);
	struct loop *loop, here = {.source = over, .index0 = -1, .length = -1, .node = node,
				   .frame = frame};

	if (node->op & NODE_RECURSIVE) {
		struct loop outermost = here;

		outermost.depth0 = -1;
		(void)call_loop(run, &outermost, over);
		return FLOW_ON;
	}
	if (node->op & NODE_LOOP_VAR) {
		loop = run_take(run, sizeof(*loop));    /* it may outlive the loop */
		*loop = here;
	} else {
		loop = &here;
	}
	iter_begin(run, &loop->it, over);
	return rounds(run, frame, node, loop);
}

/* {{ loop(items) }} and a recursive loop's first round: writes to out. */
static void
recurse(struct run *run, const struct loop *outer, struct value items)
{
	struct frame *frame = new_frame(run, outer->frame, outer->node->body->slots);
	struct loop *loop = run_take(run, sizeof(*loop));

	if (run->depth == 0)
		run_stop(run, -E2BIG, "RecursionError: maximum recursion depth exceeded");
	run->depth--;
	run_deep(run);
	*loop = (struct loop){.source = items, .index0 = -1, .length = -1, .node = outer->node,
			      .frame = outer->frame, .depth0 = outer->depth0 + 1};
	iter_begin(run, &loop->it, items);
	loop->frame = frame;
	(void)rounds(run, frame, outer->node, loop);
	run->depth++;
}

struct value
call_loop(struct run *run, struct loop *loop, struct value items)
{
	struct loop outer = *loop;
	size_t mark = run->out->len;

	if (!(loop->node->op & NODE_RECURSIVE))
		run_fail(run, "TypeError: The loop must have the 'recursive' marker to be called "
			      "recursively.");
	if (loop->depth0 >= 0)
		outer.frame = loop->frame->parent;
	recurse(run, &outer, items);
	return loop->depth0 < 0 ? value_none() : out_capture(run, mark, 0);
}

static enum flow
exec_filter_block(struct run *run, struct frame *frame, const struct node *node)
{
	size_t mark = run->out->len;
	enum flow flow;
	struct value v;

	enter(run, frame, node->loads);
	flow = exec_list(run, frame, &node->list);
	run->captured = out_capture(run, mark, 0);
	if (flow != FLOW_ON)
		return flow;            /* break inside: what was written is lost */
	v = eval(run, frame, node->a);
	if (!is_text(v))
		run_fail(run, "TypeError: sequence item: expected str instance, %s found",
			 type_name(v));
	out_slice(run, value_slice(v));
	return FLOW_ON;
}

static enum flow
exec_set_block(struct run *run, struct frame *frame, const struct node *node)
{
	size_t mark = run->out->len;
	enum flow flow;
	struct value v;

	enter(run, frame, node->loads);
	flow = exec_list(run, frame, &node->list);
	v = out_capture(run, mark, 0);
	if (flow != FLOW_ON)
		return flow;
	if (node->b) {
		run->captured = v;
		v = eval(run, frame, node->b);
	}
	assign(run, frame, node->a, v);
	return FLOW_ON;
}

/* {% call f(…) %}: its body is the macro `caller` of the call. */
static void
exec_call_block(struct run *run, struct frame *frame, const struct node *node)
{
	struct macro *macro = run_take(run, sizeof(*macro));
	struct args args;
	struct kwarg *kw;
	struct value fn, v;

	*macro = (struct macro){.node = node, .closure = frame};
	fn = eval(run, frame, node->a->a);
	args_eval(run, frame, node->a->args, &args);
	kw = run_take(run, (args.n_kw + 1) * sizeof(*kw));
	for (uint32_t i = 0; i < args.n_kw; i++) {
		if (slice_eq_str(args.kw[i].name, "caller"))
			run_fail(run, "TypeError: got multiple values for keyword argument "
				      "'caller'");
		kw[i] = args.kw[i];
	}
	kw[args.n_kw] = (struct kwarg){SLICE_LIT("caller"),
				       {.kind = VALUE_MACRO, .p = macro}};
	args.kw = kw;
	args.n_kw++;
	run->line = node->line;
	v = call_value(run, fn, &args);
	if (!is_text(v))
		run_fail(run, "TypeError: sequence item: expected str instance, %s found",
			 type_name(v));
	out_slice(run, value_slice(v));
}

static enum flow
exec_with(struct run *run, struct frame *frame, const struct node *node)
{
	const struct body *body = node->body;

	enter(run, frame, &body->loads);
	for (uint32_t i = 0; i < body->params.n; i++)
		assign(run, frame, body->params.node[i],
		       eval(run, frame, body->defaults.node[i]));
	return exec_list(run, frame, &node->list);
}

static void
exec_output(struct run *run, struct frame *frame, const struct node *node)
{
	for (uint32_t i = 0; i < node->list.n; i++) {
		const struct node *child = node->list.node[i];

		if (child->kind == N_DATA)
			out_add(run, child->value.s, child->value.n);
		else
			emit(run, frame, child);
	}
}

static enum flow
exec_if(struct run *run, struct frame *frame, const struct node *node)
{
	for (const struct node *branch = node; branch; branch = branch->b)
		if (run_true(run, eval(run, frame, branch->a)))
			return exec_list(run, frame, &branch->list);
	return node->c ? exec_list(run, frame, &node->c->list) : FLOW_ON;
}

static void
exec_macro(struct run *run, struct frame *frame, const struct node *node)
{
	struct macro *macro = run_take(run, sizeof(*macro));

	*macro = (struct macro){node, frame, value_slice(node->value)};
	*variable(frame, node->body->store_slot, node->body->store_hops) =
		(struct value){.kind = VALUE_MACRO, .p = macro};
}

static enum flow
exec(struct run *run, struct frame *frame, const struct node *node)
{
	run->line = node->line;
	run_steps(run, 1);
	switch (node->kind) {
	case N_OUTPUT:
		exec_output(run, frame, node);
		return FLOW_ON;
	case N_IF:
		return exec_if(run, frame, node);
	case N_FOR:
		run_deep(run);
		return exec_for(run, frame, node);
	case N_SET:
		assign(run, frame, node->a, eval(run, frame, node->b));
		return FLOW_ON;
	case N_SET_BLOCK:
		run_deep(run);
		return exec_set_block(run, frame, node);
	case N_MACRO:
		exec_macro(run, frame, node);
		return FLOW_ON;
	case N_CALL_BLOCK:
		exec_call_block(run, frame, node);
		return FLOW_ON;
	case N_FILTER_BLOCK:
		return exec_filter_block(run, frame, node);
	case N_WITH:
		return exec_with(run, frame, node);
	case N_SCOPE:
		enter(run, frame, node->loads);
		return exec_list(run, frame, &node->list);
	case N_BREAK:
		return FLOW_BREAK;
	default:
		return FLOW_CONTINUE;
	}
}

static enum flow
exec_list(struct run *run, struct frame *frame, const struct node_list *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		enum flow flow = exec(run, frame, list->node[i]);

		if (flow != FLOW_ON)
			return flow;
	}
	return FLOW_ON;
}

/* Takes a keyword argument out of those that are left. */
static bool
take_kwarg(struct kwarg *left, uint32_t *n, struct slice name, struct value *ret)
{
	for (uint32_t i = 0; i < *n; i++) {
		if (!slice_eq(left[i].name, name))
			continue;
		*ret = left[i].value;
		memmove(&left[i], &left[i + 1], (*n - i - 1) * sizeof(*left));
		(*n)--;
		return true;
	}
	return false;
}

/* Arguments to parameters, as jinja2.runtime.Macro does it.  given[i]: no default needed. */
static void
bind_macro(struct run *run, const struct macro *macro, const struct args *args,
	   struct frame *frame, bool *has)
{
	const struct body *body = macro->node->body;
	uint32_t params = body->params.n, n = args->n < params ? args->n : params;
	struct kwarg *left = run_take(run, args->n_kw * sizeof(*left));
	uint32_t n_left = args->n_kw;
	bool found_caller = body->explicit_caller && n == params;
	struct value v;

	if (n_left)
		memcpy(left, args->kw, n_left * sizeof(*left));
	for (uint32_t i = 0; i < params; i++) {
		const struct node *param = body->params.node[i];
		struct value *slot = &frame->slot[param->slot];

		has[i] = i < n;
		if (i < n) {
			*slot = args->pos[i];
			continue;
		}
		has[i] = take_kwarg(left, &n_left, value_slice(param->value), slot);
		found_caller = found_caller || value_is_text(param->value, "caller");
	}
	if (body->caller && !found_caller) {
		if (!take_kwarg(left, &n_left, SLICE_LIT("caller"), &v) || v.kind == VALUE_NONE)
			v = undefined_name(SLICE_LIT("caller"));
		frame->slot[body->caller_slot] = v;
	}
	if (body->kwargs) {
		struct value_dict *dict = run_dict(run, n_left);

		for (uint32_t i = 0; i < n_left; i++)
			run_put(run, dict, value_string(left[i].name), left[i].value);
		frame->slot[body->kwargs_slot] = value_of_dict(dict);
	} else if (n_left) {
		run_fail(run, "TypeError: macro '%.*s' takes no keyword argument '%.*s'",
			 (int)macro->name.len, macro->name.p, (int)left[0].name.len,
			 left[0].name.p);
	}
	if (body->varargs)
		frame->slot[body->varargs_slot] =
			value_tuple(args->n > n ? args->pos + n : NULL, args->n - n);
	else if (args->n > params)
		run_fail(run, "TypeError: macro '%.*s' takes not more than %u argument(s)",
			 (int)macro->name.len, macro->name.p, params);
}

struct value
call_macro(struct run *run, const struct macro *macro, const struct args *args, bool direct)
{
	const struct body *body = macro->node->body;
	struct frame *frame = new_frame(run, macro->closure, body->slots);
	bool *has = run_take(run, body->params.n);
	uint32_t first_default = body->params.n - body->defaults.n;
	size_t mark = run->out->len;

	if (run->depth == 0)
		run_stop(run, -E2BIG, "RecursionError: maximum recursion depth exceeded");
	run->depth--;
	run_deep(run);
	bind_macro(run, macro, args, frame, has);
	enter(run, frame, &body->loads);
	for (uint32_t i = 0; i < body->params.n; i++) {
		const struct node *param = body->params.node[i];

		if (has[i])
			continue;
		if (i < first_default)
			frame->slot[param->slot] = undefined_name(value_slice(param->value));
		else
			frame->slot[param->slot] =
				eval(run, frame, body->defaults.node[i - first_default]);
	}
	(void)exec_list(run, frame, &macro->node->list);
	run->depth++;
	return direct ? value_undefined() : out_capture(run, mark, 0);
}

void
compile_fail(struct compile *c, uint32_t line, const char *fmt, ...)
{
	va_list ap;

	if (c->err) {
		int n = snprintf(c->err->text, sizeof(c->err->text), "TemplateSyntaxError: ");

		va_start(ap, fmt);
		(void)vsnprintf(c->err->text + n, sizeof(c->err->text) - (size_t)n, fmt, ap);
		va_end(ap);
		c->err->line = line;
	}
	c->code = -EBADMSG;
	longjmp(c->fail, 1);
}

void *
compile_take(struct compile *c, size_t n)
{
	void *p = bump_take(c->bump, n);

	if (!p) {
		c->code = -ENOMEM;
		if (c->err)
			*c->err = (struct jinja_error){0, "no memory for the template"};
		longjmp(c->fail, 1);
	}
	memset(p, 0, n);
	return p;
}

void *
compile_grow(struct compile *c, void *array, uint32_t n, uint32_t *cap, uint32_t first, size_t size)
{
	void *more;

	if (n < *cap)
		return array;
	*cap = *cap ? 2 * *cap : first;
	more = compile_take(c, *cap * size);
	if (n)
		memcpy(more, array, n * size);
	return more;
}

void
node_push(struct compile *c, struct node_list *list, struct node *node)
{
	list->node = compile_grow(c, list->node, list->n, &list->cap, 4, sizeof(struct node *));
	list->node[list->n++] = node;
}

int
jinja_compile(struct slice source, struct jinja **ret, struct jinja_error *err)
{
	struct compile c = {.err = err};

	if (err)
		*err = (struct jinja_error){0};
	if (source.len > JINJA_SOURCE_MAX) {
		if (err)
			*err = (struct jinja_error){0, "the template is too long"};
		return -EMSGSIZE;
	}
	c.jinja = calloc(1, sizeof(*c.jinja));
	if (!c.jinja)
		return -ENOMEM;
	bump_init(&c.jinja->bump, TEMPLATE_BYTES);
	c.bump = &c.jinja->bump;
	if (setjmp(c.fail) != 0) {
		jinja_free(&c.jinja);
		return c.code;
	}
	jinja_lex(&c, source);
	jinja_parse(&c, &c.jinja->body);
	c.depth = 0;
	jinja_resolve(&c);
	c.jinja->loops_over_content = jinja_meta_content(c.jinja);
	*ret = c.jinja;
	return 0;
}

void
jinja_free(struct jinja **jinja)
{
	if (!*jinja)
		return;
	bump_free(&(*jinja)->bump);
	free(*jinja);
	*jinja = NULL;
}

bool
jinja_loops_over_content(const struct jinja *jinja)
{
	return jinja->loops_over_content;
}

static void
find_globals(struct run *run, const struct value *context)
{
	const struct jinja *j = run->jinja;

	run->global = run_take(run, j->n_name * sizeof(struct value));
	for (uint32_t i = 0; i < j->n_name; i++) {
		const struct value *v = context && context->kind == VALUE_DICT
						? value_get_str(context->dict, j->name[i])
						: NULL;

		if (v)
			run->global[i] = *v;
		else if (!global_find(j->name[i], &run->global[i]))
			run->global[i] = value_undefined();
	}
}

int
jinja_render(const struct jinja *jinja, const struct value *context,
	     const struct jinja_options *options, struct bump *bump, struct text *out,
	     struct jinja_error *err)
{
	static const struct jinja_options plain;
	struct run run = {.jinja = jinja, .bump = bump, .out = out,
			  .options = options ? options : &plain, .err = err};
	struct frame *root;

	run.steps = run.options->max_steps ? run.options->max_steps : JINJA_STEPS;
	run.depth = run.options->max_depth ? run.options->max_depth : JINJA_DEPTH;
	run.stack = __builtin_frame_address(0);
	if (err)
		*err = (struct jinja_error){0};
	if (setjmp(run.fail) != 0)
		return run.code;
	find_globals(&run, context);
	root = new_frame(&run, NULL, jinja->slots);
	enter(&run, root, &jinja->loads);
	(void)exec_list(&run, root, &jinja->body);
	return 0;
}
