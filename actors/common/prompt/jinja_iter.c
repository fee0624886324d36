/* actors/common/prompt/jinja_iter.c -- what is walked: sequences, texts, dicts, and what the lazy
 * filters give, which is walked once. */
#include "actors/common/prompt/jinja_private.h"

#include "actors/common/prompt/py_unicode.h"

bool
iter_able(struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_STRING:
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_DICT:
	case VALUE_ITER:
	case VALUE_RANGE:
	case VALUE_VIEW:
	case VALUE_LOOP:
		return true;
	default:
		return false;
	}
}

void
iter_begin(struct run *run, struct iter *it, struct value over)
{
	*it = (struct iter){.kind = ITER_DONE};
	switch (over.kind) {
	case VALUE_UNDEFINED:
		return;
	case VALUE_LIST:
	case VALUE_TUPLE:
		it->kind = ITER_ARRAY;
		it->items = over.items;
		it->n = over.n;
		return;
	case VALUE_STRING:
		it->kind = ITER_TEXT;
		it->text = over.s;
		it->end = over.s + over.n;
		return;
	case VALUE_DICT:
	case VALUE_VIEW:
		it->kind = ITER_DICT;
		it->dict = over.dict;
		it->n = over.dict->n;
		it->view = over.kind == VALUE_DICT ? VIEW_KEYS : (enum view_of)over.flags;
		return;
	case VALUE_RANGE:
		it->kind = ITER_RANGE;
		it->range = over.p;
		it->n = over.n;
		return;
	case VALUE_ITER:
		it->kind = ITER_GEN;
		it->gen = (struct gen *)(uintptr_t)over.p;
		return;
	default:
		run_fail(run, "TypeError: '%s' object is not iterable", type_name(over));
	}
}

static bool gen_next(struct run *run, struct gen *gen, struct value *ret);

bool
iter_next(struct run *run, struct iter *it, struct value *ret)
{
	const struct value_pair *pair;
	unsigned n;

	switch (it->kind) {
	case ITER_ARRAY:
		if (it->i == it->n)
			return false;
		*ret = it->items[it->i++];
		return true;
	case ITER_TEXT:
		if (it->text == it->end)
			return false;
		(void)py_decode(it->text, it->end, &n);
		*ret = value_string(slice_of(it->text, n));
		it->text += n;
		return true;
	case ITER_DICT:
		if (it->i == it->n)
			return false;
		pair = &it->dict->pair[it->i++];
		*ret = it->view == VIEW_KEYS     ? pair->key
		       : it->view == VIEW_VALUES ? pair->value
						 : run_pair(run, pair->key, pair->value);
		return true;
	case ITER_RANGE:
		if (it->i == it->n)
			return false;
		*ret = value_int(it->range->start + it->range->step * (int64_t)it->i++);
		return true;
	case ITER_BACK:
		if (it->n == 0)
			return false;
		*ret = it->items[--it->n];
		return true;
	case ITER_GEN:
		return gen_next(run, it->gen, ret);
	default:
		return false;
	}
}

struct value_items
items_of(struct run *run, struct value v)
{
	struct value_items items = {0};
	struct iter it;
	struct value item;

	if (v.kind == VALUE_LIST || v.kind == VALUE_TUPLE) {
		union {
			const struct value *from;
			struct value *to;
		} own = {.from = v.items};      /* lists never change: only read again */

		return (struct value_items){own.to, v.n, v.n};
	}
	iter_begin(run, &it, v);
	if (it.kind == ITER_DICT || it.kind == ITER_RANGE) {
		items.item = run_take(run, it.n * sizeof(item));
		items.cap = it.n;
	}
	while (iter_next(run, &it, &item)) {
		run_steps(run, 1);
		run_push(run, &items, item);
	}
	return items;
}

struct value
gen_new(struct run *run, const struct gen *from)
{
	struct gen *gen = run_take(run, sizeof(*gen));

	*gen = *from;
	return (struct value){.kind = VALUE_ITER, .p = gen};
}

/* "a.b.0": item after item, parts of digits as numbers; an int is one part. */
struct value
attr_path(struct run *run, const struct gen *gen, struct value item)
{
	struct slice path, part;

	if (gen->attribute.kind == VALUE_NONE || !given(gen->attribute))
		return item;
	if (!is_text(gen->attribute))
		return item_get(run, item, gen->attribute);
	path = value_slice(gen->attribute);
	for (;;) {
		const char *dot = path.len ? memchr(path.p, '.', path.len) : NULL;
		bool digits;
		int64_t number = 0;

		part = slice_of(path.p, dot ? (size_t)(dot - path.p) : path.len);
		digits = part.len > 0 && part.len < 18;
		for (size_t i = 0; digits && i < part.len; i++) {
			digits = part.p[i] >= '0' && part.p[i] <= '9';
			number = number * 10 + (part.p[i] - '0');
		}
		item = item_get(run, item, digits ? value_int(number) : value_string(part));
		if (gen->has_fallback && is_undefined(item))
			item = gen->fallback;
		if (!dot)
			return item;
		path.len -= part.len + 1;
		path.p = dot + 1;
	}
}

static struct value
map_one(struct run *run, struct gen *gen, struct value item)
{
	const struct filter_def *def;

	if (gen->by_attribute)
		return attr_path(run, gen, item);
	def = is_text(gen->name) ? filter_find(value_slice(gen->name)) : NULL;
	if (!def)
		run_fail(run, "TemplateRuntimeError: No filter named '%.*s'.",
			 is_text(gen->name) ? (int)gen->name.n : 1,
			 is_text(gen->name) ? gen->name.s : "?");
	return call_filter(run, def, item, &gen->args);
}

static bool
select_one(struct run *run, struct gen *gen, struct value item)
{
	const struct test_def *def;

	if (gen->by_attribute)
		item = attr_path(run, gen, item);
	if (is_undefined(gen->name) && !given(gen->name))
		return run_true(run, item) != gen->negate;
	def = is_text(gen->name) ? test_find(value_slice(gen->name)) : NULL;
	if (!def)
		run_fail(run, "TemplateRuntimeError: No test named '%.*s'.",
			 is_text(gen->name) ? (int)gen->name.n : 1,
			 is_text(gen->name) ? gen->name.s : "?");
	return call_test(run, def, item, &gen->args) != gen->negate;
}

static bool
next_batch(struct run *run, struct gen *gen, struct value *ret)
{
	struct value_items row = {0};
	struct value item;

	while (row.n == 0 || row.n != gen->count) {
		if (!iter_next(run, &gen->from, &item)) {
			gen->done = true;
			if (row.n == 0)
				return false;
			while (gen->fill.kind != VALUE_NONE && row.n < gen->count) {
				run_steps(run, 1);
				run_push(run, &row, gen->fill);
			}
			break;
		}
		run_push(run, &row, item);
	}
	*ret = value_list_of(&row);
	return true;
}

static bool
next_slice(struct run *run, struct gen *gen, struct value *ret)
{
	int64_t each = gen->all.n / gen->count, more = gen->all.n % gen->count, from, to;
	struct value_items row = {0};

	if (gen->at >= gen->count)
		return false;
	from = gen->offset + gen->at * each;
	if (gen->at < more)
		gen->offset++;
	to = gen->offset + (gen->at + 1) * each;
	for (int64_t i = from; i < to; i++)
		run_push(run, &row, gen->all.item[i]);
	if (gen->fill.kind != VALUE_NONE && gen->at >= more)
		run_push(run, &row, gen->fill);
	gen->at++;
	*ret = value_list_of(&row);
	return true;
}

static bool
next_unique(struct run *run, struct gen *gen, struct value *ret)
{
	while (iter_next(run, &gen->from, ret)) {
		struct value key = attr_path(run, gen, *ret);

		run_steps(run, 1);
		if (gen->fold_case && is_text(key))
			key = py_case(run, key, "lower");
		if (value_hashable(key) && value_get(gen->seen, key))
			continue;
		run_put(run, gen->seen, key, value_none());
		return true;
	}
	return false;
}

/* A generator does nothing before its first item is asked for. */
static void
gen_begin(struct run *run, struct gen *gen)
{
	gen->begun = true;
	switch (gen->kind) {
	case GEN_ITEMS:
		if (is_undefined(gen->source)) {
			gen->done = true;
			return;
		}
		if (gen->source.kind != VALUE_DICT)
			run_fail(run, "TypeError: Can only get item pairs from a mapping.");
		gen->source.kind = VALUE_VIEW;
		gen->source.flags = VIEW_ITEMS;
		break;
	case GEN_SLICE:
		gen->all = items_of(run, gen->source);
		if (gen->count == 0)
			run_fail(run, "ZeroDivisionError: integer division or modulo by zero");
		return;
	case GEN_MAP:
	case GEN_SELECT:
		if (!run_true(run, gen->source)) {
			gen->done = true;
			return;
		}
		break;
	case GEN_UNIQUE:
		gen->seen = run_dict(run, 0);
		break;
	default:
		break;
	}
	iter_begin(run, &gen->from, gen->source);
}

static bool
gen_next(struct run *run, struct gen *gen, struct value *ret)
{
	bool more;

	run_deep(run);
	run_steps(run, 1);
	if (!gen->begun && gen->kind != GEN_WALK)
		gen_begin(run, gen);
	if (gen->done)
		return false;
	switch (gen->kind) {
	case GEN_MAP:
		more = iter_next(run, &gen->from, ret);
		if (more)
			*ret = map_one(run, gen, *ret);
		break;
	case GEN_SELECT:
		do {
			run_steps(run, 1);
			more = iter_next(run, &gen->from, ret);
		} while (more && !select_one(run, gen, *ret));
		break;
	case GEN_UNIQUE:
		more = next_unique(run, gen, ret);
		break;
	case GEN_BATCH:
		more = next_batch(run, gen, ret);
		break;
	case GEN_SLICE:
		more = next_slice(run, gen, ret);
		break;
	default:
		more = iter_next(run, &gen->from, ret);
	}
	gen->done = gen->done || !more;
	return more;
}

/* The next item that passes the loop's own test. */
static bool
loop_raw(struct run *run, struct loop *loop, struct value *ret)
{
	const struct node *node = loop->node;

	if (!node->c)
		return iter_next(run, &loop->it, ret);
	while (iter_next(run, &loop->it, ret)) {
		struct value item = *ret;
		const struct node *target = node->body->test_target;

		run_steps(run, 1);
		if (target->kind == N_NAME) {
			loop->frame->slot[target->slot] = item;
		} else {
			struct value_items items = items_of(run, item);

			if (items.n != target->list.n)
				run_fail(run, "ValueError: %s values to unpack (expected %u)",
					 items.n < target->list.n ? "not enough" : "too many",
					 target->list.n);
			for (uint32_t i = 0; i < items.n; i++) {
				const struct node *name = target->list.node[i];

				if (name->kind != N_NAME)
					run_fail(run, "unsupported: nested targets and a test");
				loop->frame->slot[name->slot] = items.item[i];
			}
		}
		if (run_true(run, eval(run, loop->frame, node->c)))
			return true;
	}
	return false;
}

bool
loop_peek(struct run *run, struct loop *loop, struct value *ret)
{
	if (!loop->has_after)
		loop->has_after = loop_raw(run, loop, &loop->after);
	if (loop->has_after)
		*ret = loop->after;
	return loop->has_after;
}

bool
loop_next(struct run *run, struct loop *loop, struct value *ret)
{
	if (loop->has_after)
		*ret = loop->after;
	else if (!loop_raw(run, loop, ret))
		return false;
	loop->has_after = false;
	loop->index0++;
	loop->before = loop->current;
	loop->current = *ret;
	return true;
}

static int64_t
loop_length(struct run *run, struct loop *loop)
{
	struct value_items rest = {0};
	struct value item;

	if (loop->length >= 0)
		return loop->length;
	if (!loop->node->c && py_has_len(loop->source)) {
		loop->length = py_len(run, loop->source);
		return loop->length;
	}
	while (loop_raw(run, loop, &item)) {
		run_steps(run, 1);
		run_push(run, &rest, item);
	}
	loop->length = rest.n + loop->index0 + 1 + loop->has_after;
	/* what was drawn has passed the test already */
	loop->it = (struct iter){.kind = ITER_ARRAY, .items = rest.item, .n = rest.n};
	if (loop->node->c) {
		struct node *plain = run_take(run, sizeof(*plain));

		*plain = *loop->node;
		plain->c = NULL;
		loop->node = plain;
	}
	return loop->length;
}

struct value
loop_attr(struct run *run, struct loop *loop, struct slice name)
{
	struct value v;

	if (slice_eq_str(name, "index0"))
		return value_int(loop->index0);
	if (slice_eq_str(name, "index"))
		return value_int(loop->index0 + 1);
	if (slice_eq_str(name, "first"))
		return value_bool(loop->index0 == 0);
	if (slice_eq_str(name, "last"))
		return value_bool(!loop_peek(run, loop, &v));
	if (slice_eq_str(name, "length"))
		return value_int(loop_length(run, loop));
	if (slice_eq_str(name, "revindex"))
		return value_int(loop_length(run, loop) - loop->index0);
	if (slice_eq_str(name, "revindex0"))
		return value_int(loop_length(run, loop) - loop->index0 - 1);
	if (slice_eq_str(name, "depth"))
		return value_int(loop->depth0 + 1);
	if (slice_eq_str(name, "depth0"))
		return value_int(loop->depth0);
	if (slice_eq_str(name, "previtem"))
		return loop->index0 == 0 ? undefined_name(SLICE_LIT("loop.previtem"))
					 : loop->before;
	if (slice_eq_str(name, "nextitem"))
		return loop_peek(run, loop, &v) ? v : undefined_name(SLICE_LIT("loop.nextitem"));
	return (struct value){.kind = VALUE_UNDEFINED, .flags = ARG_MISSING};
}
