/* actors/common/prompt/jinja_eval.c -- expressions. */
#include "actors/common/prompt/jinja_private.h"

#define CHAIN_MAX 32u                   /* operands of one a + b + c … written straight out */

bool
run_true(struct run *run, struct value v)
{
	struct loop *loop;

	if (v.kind != VALUE_LOOP)
		return value_true(v);
	loop = (struct loop *)(uintptr_t)v.p;
	return py_len(run, v) > 0 && loop;
}

static struct value
name_value(struct frame *frame, const struct node *node)
{
	struct value v;

	for (uint16_t hops = node->hops; hops; hops--)
		frame = frame->parent;
	v = frame->slot[node->slot];
	if (v.kind == VALUE_UNDEFINED && !v.s)
		return undefined_name(value_slice(node->value));
	return v;
}

static struct value
make_dict(struct run *run, struct frame *frame, const struct node *node)
{
	struct value_dict *dict = run_dict(run, node->list.n / 2);

	for (uint32_t i = 0; i < node->list.n; i += 2) {
		struct value key = eval(run, frame, node->list.node[i]);

		run_put(run, dict, key, eval(run, frame, node->list.node[i + 1]));
	}
	return value_of_dict(dict);
}

static struct value
make_items(struct run *run, struct frame *frame, const struct node *node)
{
	struct value *item = run_take(run, node->list.n * sizeof(*item));

	for (uint32_t i = 0; i < node->list.n; i++)
		item[i] = eval(run, frame, node->list.node[i]);
	return node->kind == N_LIST ? value_list(item, node->list.n)
				    : value_tuple(item, node->list.n);
}

/* A macro among the operands takes its own text back before we write it. */
static void
emit_concat(struct run *run, struct frame *frame, const struct node *node)
{
	for (uint32_t i = 0; i < node->list.n; i++)
		py_str(run, eval(run, frame, node->list.node[i]));
}

static struct value
concat(struct run *run, struct frame *frame, const struct node *node)
{
	size_t mark = run->out->len;

	emit_concat(run, frame, node);
	return out_capture(run, mark, 0);
}

static struct value
compare(struct run *run, struct frame *frame, const struct node *node)
{
	struct value left = eval(run, frame, node->a);
	bool ok = false;

	for (uint32_t i = 0; i < node->list.n; i++) {
		const struct node *operand = node->list.node[i];
		struct value right = eval(run, frame, operand->a);

		ok = py_relation(run, operand->op, left, right);
		if (!ok)
			break;
		left = right;
	}
	return value_bool(ok);
}

static struct value
get_attr(struct run *run, struct value obj, const struct node *node)
{
	const struct value *found;

	if (obj.kind == VALUE_DICT && !node->method && node->value.s[0] != '_') {
		found = value_get_str(obj.dict, value_slice(node->value));
		return found ? *found : undefined_of(obj, value_slice(node->value));
	}
	return attr_get(run, obj, value_slice(node->value), node->method);
}

static struct value
slice(struct run *run, struct frame *frame, const struct node *node)
{
	struct value obj = eval(run, frame, node->a), part[3];
	const struct node *at[3] = {node->b, node->c, node->d};

	for (int i = 0; i < 3; i++)
		part[i] = at[i] ? eval(run, frame, at[i]) : value_none();
	return item_slice(run, obj, part[0], part[1], part[2]);
}

static struct value
filter(struct run *run, struct frame *frame, const struct node *node)
{
	struct value in = node->a ? eval(run, frame, node->a) : run->captured;
	struct args args = {0};

	if (node->args->pos.n || node->args->n_kw || node->args->star || node->args->star_star)
		args_eval(run, frame, node->args, &args);
	run->line = node->line;
	if (!node->filter)
		run_fail(run, "TemplateRuntimeError: No filter named '%.*s' found.",
			 (int)node->value.n, node->value.s);
	return call_filter(run, node->filter, in, &args);
}

static struct value
test(struct run *run, struct frame *frame, const struct node *node)
{
	struct value in = eval(run, frame, node->a);
	struct args args = {0};

	if (node->args->pos.n || node->args->n_kw || node->args->star || node->args->star_star)
		args_eval(run, frame, node->args, &args);
	run->line = node->line;
	if (!node->test)
		run_fail(run, "TemplateRuntimeError: No test named '%.*s' found.",
			 (int)node->value.n, node->value.s);
	return value_bool(call_test(run, node->test, in, &args));
}

static struct value
call(struct run *run, struct frame *frame, const struct node *node)
{
	const struct node *callee = node->a;
	struct args args;
	struct value self, fn;

	run_steps(run, 1);
	if (callee->kind == N_GETATTR && callee->method) {
		self = eval(run, frame, callee->a);
		if (method_has(self, callee->method)) {
			args_eval(run, frame, node->args, &args);
			run->line = node->line;
			return call_method(run, self, callee->method, &args);
		}
		fn = get_attr(run, self, callee);
	} else {
		fn = eval(run, frame, callee);
	}
	args_eval(run, frame, node->args, &args);
	run->line = node->line;
	return call_value(run, fn, &args);
}

struct value
eval(struct run *run, struct frame *frame, const struct node *node)
{
	struct value v, w;

	switch (node->kind) {
	case N_CONST:
		return node->value;
	case N_NAME:
		return name_value(frame, node);
	default:
		break;
	}
	run_deep(run);
	run->line = node->line;
	switch (node->kind) {
	case N_TUPLE:
	case N_LIST:
		return make_items(run, frame, node);
	case N_DICT:
		return make_dict(run, frame, node);
	case N_AND:
		v = eval(run, frame, node->a);
		return run_true(run, v) ? eval(run, frame, node->b) : v;
	case N_OR:
		v = eval(run, frame, node->a);
		return run_true(run, v) ? v : eval(run, frame, node->b);
	case N_NOT:
		return value_bool(!run_true(run, eval(run, frame, node->a)));
	case N_NEG:
	case N_POS:
		v = eval(run, frame, node->a);
		return py_unary(run, node->kind, v);
	case N_CONCAT:
		return concat(run, frame, node);
	case N_COMPARE:
		return compare(run, frame, node);
	case N_GETATTR:
		return get_attr(run, eval(run, frame, node->a), node);
	case N_GETITEM:
		v = eval(run, frame, node->a);
		w = eval(run, frame, node->b);
		return item_get(run, v, w);
	case N_SLICE:
		return slice(run, frame, node);
	case N_FILTER:
		return filter(run, frame, node);
	case N_TEST:
		return test(run, frame, node);
	case N_COND:
		if (run_true(run, eval(run, frame, node->a)))
			return eval(run, frame, node->b);
		return node->c ? eval(run, frame, node->c)
			       : undefined_name(SLICE_LIT("the else of an inline if"));
	case N_CALL:
		return call(run, frame, node);
	default:                        /* N_ADD … N_POW */
		v = eval(run, frame, node->a);
		w = eval(run, frame, node->b);
		run->line = node->line;
		return py_binary(run, node->kind, v, w);
	}
}

/* a + b + c …: as long as all are text, each is written as it comes. */
static void
emit_sum(struct run *run, struct frame *frame, const struct node *node)
{
	const struct node *right[CHAIN_MAX];
	size_t mark = run->out->len;
	unsigned n = 0;
	struct value sum;
	bool out;

	while (node->kind == N_ADD && n < CHAIN_MAX) {
		right[n++] = node->b;
		node = node->a;
	}
	sum = eval(run, frame, node);
	out = is_text(sum) && !sum.flags;
	if (out)
		out_slice(run, value_slice(sum));
	while (n-- > 0) {
		struct value v = eval(run, frame, right[n]);

		if (out && is_text(v) && !v.flags) {
			out_slice(run, value_slice(v));
			continue;
		}
		if (out)
			sum = out_capture(run, mark, 0);
		out = false;
		run->line = node->line;
		sum = py_binary(run, N_ADD, sum, v);
	}
	if (!out)
		py_str(run, sum);
}

/* {{ macro(…) }}: its text goes straight out. */
static bool
emit_macro(struct run *run, struct frame *frame, const struct node *node)
{
	struct args args;
	struct value fn;

	if (node->a->kind != N_NAME)
		return false;
	fn = name_value(frame, node->a);
	if (fn.kind != VALUE_MACRO)
		return false;
	run_steps(run, 1);
	args_eval(run, frame, node->args, &args);
	run->line = node->line;
	(void)call_macro(run, fn.p, &args, true);
	return true;
}

void
emit(struct run *run, struct frame *frame, const struct node *node)
{
	run->line = node->line;
	switch (node->kind) {
	case N_ADD:
		run_deep(run);
		emit_sum(run, frame, node);
		return;
	case N_CONCAT:
		emit_concat(run, frame, node);
		return;
	case N_COND:
		if (run_true(run, eval(run, frame, node->a)))
			emit(run, frame, node->b);
		else if (node->c)
			emit(run, frame, node->c);
		return;
	case N_CALL:
		if (emit_macro(run, frame, node))
			return;
		/* fallthrough */
	default:
		py_str(run, eval(run, frame, node));
	}
}
