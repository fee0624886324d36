/* actors/common/prompt/jinja_call.c -- arguments, and who is called with them. */
#include "actors/common/prompt/jinja_private.h"

#include "actors/common/prompt/methods.h"

#define RANGE_MAX 100000                /* jinja2.sandbox.MAX_RANGE */

static void
add_star(struct run *run, struct value_items *pos, struct value v)
{
	struct iter it;
	struct value item;

	if (!iter_able(v))
		run_fail(run, "TypeError: Value after * must be an iterable, not %s", type_name(v));
	iter_begin(run, &it, v);
	while (iter_next(run, &it, &item)) {
		run_steps(run, 1);
		run_push(run, pos, item);
	}
}

static void
add_star_star(struct run *run, struct args *args, const struct call_args *from, struct value v)
{
	struct kwarg *kw;

	if (v.kind != VALUE_DICT)
		run_fail(run, "TypeError: argument after ** must be a mapping, not %s",
			 type_name(v));
	kw = run_take(run, (from->n_kw + v.dict->n) * sizeof(*kw));
	for (uint32_t i = 0; i < args->n_kw; i++)
		kw[i] = args->kw[i];
	for (uint32_t i = 0; i < v.dict->n; i++) {
		const struct value_pair *pair = &v.dict->pair[i];

		if (!is_text(pair->key))
			run_fail(run, "TypeError: keywords must be strings");
		run_steps(run, args->n_kw);
		for (uint32_t k = 0; k < from->n_kw; k++)
			if (slice_eq(kw[k].name, value_slice(pair->key)))
				run_fail(run, "TypeError: got multiple values for keyword "
					      "argument '%.*s'",
					 (int)pair->key.n, pair->key.s);
		kw[args->n_kw++] = (struct kwarg){value_slice(pair->key), pair->value};
	}
	args->kw = kw;
}

void
args_eval(struct run *run, struct frame *frame, const struct call_args *from, struct args *ret)
{
	struct value *pos = NULL;
	struct kwarg *kw = NULL;

	*ret = (struct args){.n = from->pos.n, .n_kw = from->n_kw};
	if (from->pos.n)
		pos = run_take(run, from->pos.n * sizeof(*pos));
	for (uint32_t i = 0; i < from->pos.n; i++)
		pos[i] = eval(run, frame, from->pos.node[i]);
	ret->pos = pos;
	if (from->n_kw)
		kw = run_take(run, from->n_kw * sizeof(*kw));
	for (uint32_t i = 0; i < from->n_kw; i++)
		kw[i] = (struct kwarg){from->kw[i].name, eval(run, frame, from->kw[i].value)};
	ret->kw = kw;
	if (from->star) {
		struct value_items all = {0};
		struct value star = eval(run, frame, from->star);

		for (uint32_t i = 0; i < ret->n; i++)
			run_push(run, &all, ret->pos[i]);
		add_star(run, &all, star);
		ret->pos = all.item;
		ret->n = all.n;
	}
	if (from->star_star)
		add_star_star(run, ret, from, eval(run, frame, from->star_star));
}

/* The next name of a signature: its text, whether what follows is optional or by keyword only. */
struct signature {
	const char *p;
	bool optional, keyword_only;
};

static bool
signature_next(struct signature *s, struct slice *ret)
{
	const char *end;

	if (*s->p == '|') {
		s->optional = true;
		s->p++;
	}
	if (s->p[0] == '*') {
		s->keyword_only = true;
		s->p += s->p[1] ? 2 : 1;
	}
	if (!*s->p)
		return false;
	end = s->p + strcspn(s->p, ",|");
	*ret = slice_of(s->p, (size_t)(end - s->p));
	s->p = *end == ',' ? end + 1 : end;
	return true;
}

void
args_bind(struct run *run, const char *who, const char *signature, const struct args *args,
	  struct value *ret)
{
	struct signature s = {.p = signature};
	uint32_t pos = 0, used = 0;
	struct slice name;

	for (unsigned i = 0; i < ARGS_MAX; i++)
		ret[i] = (struct value){.kind = VALUE_UNDEFINED, .flags = ARG_MISSING};
	if (args->n == 0 && args->n_kw == 0 && (!*signature || *signature == '|'))
		return;
	for (unsigned i = 0; signature_next(&s, &name); i++) {
		bool found = false;

		if (pos < args->n && !s.keyword_only) {
			ret[i] = args->pos[pos++];
			found = true;
		}
		for (uint32_t k = 0; name.len && name.p[0] != '-' && k < args->n_kw; k++) {
			if (!slice_eq(args->kw[k].name, name))
				continue;
			if (found)
				run_fail(run, "TypeError: %s() got multiple values for argument "
					      "'%.*s'", who, (int)name.len, name.p);
			ret[i] = args->kw[k].value;
			found = true;
			used++;
		}
		if (!found && !s.optional)
			run_fail(run, "TypeError: %s() missing a required argument", who);
	}
	if (pos < args->n)
		run_fail(run, "TypeError: %s() takes fewer arguments (%u given)", who, args->n);
	if (used < args->n_kw)
		run_fail(run, "TypeError: %s() got an unexpected keyword argument", who);
}

struct value
call_filter(struct run *run, const struct filter_def *def, struct value in,
	    const struct args *args)
{
	struct value a[ARGS_MAX];

	run_steps(run, 1);
	if (def->signature)
		args_bind(run, def->name, def->signature, args, a);
	return def->fn(run, in, a, args);
}

bool
call_test(struct run *run, const struct test_def *def, struct value in, const struct args *args)
{
	struct value a[ARGS_MAX];

	args_bind(run, def->name, def->signature, args, a);
	return def->fn(run, in, a);
}

int64_t
arg_int(struct run *run, struct value v)
{
	if (is_undefined(v) && given(v))
		fail_undefined(run, v);
	if (v.kind == VALUE_BIG)
		run_fail(run, "OverflowError: Python int too large to convert to C ssize_t");
	if (!is_int(v))
		run_fail(run, "TypeError: '%s' object cannot be interpreted as an integer",
			 type_name(v));
	return v.i;
}

static struct value
fn_range(struct run *run, const struct args *args)
{
	struct range range = {.step = 1}, *own;
	struct value a[ARGS_MAX];
	__int128 n;

	args_bind(run, "range", "-|-,-", args, a);
	range.start = arg_int(run, a[0]);
	if (given(a[1])) {
		range.stop = arg_int(run, a[1]);
	} else {
		range.stop = range.start;
		range.start = 0;
	}
	if (given(a[2]))
		range.step = arg_int(run, a[2]);
	if (range.step == 0)
		run_fail(run, "ValueError: range() arg 3 must not be zero");
	if (range.step > 0)
		n = ((__int128)range.stop - range.start + range.step - 1) / range.step;
	else
		n = ((__int128)range.start - range.stop - range.step - 1) / -(__int128)range.step;
	if (n < 0)
		n = 0;
	if (n > RANGE_MAX)
		run_fail(run, "OverflowError: Range too big. The sandbox blocks ranges larger than "
			      "MAX_RANGE (%d).", RANGE_MAX);
	own = run_take(run, sizeof(*own));
	*own = range;
	return (struct value){.kind = VALUE_RANGE, .n = (uint32_t)n, .p = own};
}

/* dict(mapping or pairs, **kwargs) */
static struct value_dict *
make_dict(struct run *run, const char *who, const struct args *args)
{
	struct value_dict *dict = run_dict(run, args->n_kw);
	struct iter it;
	struct value item;

	if (args->n > 1)
		run_fail(run, "TypeError: %s expected at most 1 argument, got %u", who, args->n);
	if (args->n && is_undefined(args->pos[0])) {
		/* dict() looks for a method `keys`, and an undefined has none */
		fail_undefined(run, args->pos[0]);
	} else if (args->n && args->pos[0].kind == VALUE_DICT) {
		const struct value_dict *from = args->pos[0].dict;

		run_steps(run, from->n);
		for (uint32_t i = 0; i < from->n; i++)
			run_put(run, dict, from->pair[i].key, from->pair[i].value);
	} else if (args->n) {
		iter_begin(run, &it, args->pos[0]);
		while (iter_next(run, &it, &item)) {
			struct value_items pair;

			if (!iter_able(item))
				run_fail(run, "TypeError: cannot convert dictionary update "
					      "sequence element to a sequence");
			pair = items_of(run, item);
			if (pair.n != 2)
				run_fail(run, "ValueError: dictionary update sequence element has "
					      "length %u; 2 is required", pair.n);
			run_put(run, dict, pair.item[0], pair.item[1]);
		}
	}
	for (uint32_t i = 0; i < args->n_kw; i++)
		run_put(run, dict, value_string(args->kw[i].name), args->kw[i].value);
	return dict;
}

static struct value
fn_namespace(struct run *run, const struct args *args)
{
	struct namespace_ *ns = run_take(run, sizeof(*ns));

	ns->dict = make_dict(run, "dict", args);
	return (struct value){.kind = VALUE_NAMESPACE, .p = ns};
}

static struct value
fn_cycler(struct run *run, const struct args *args)
{
	struct cycler *cycler = run_take(run, sizeof(*cycler));

	if (args->n_kw)
		run_fail(run, "TypeError: Cycler() got an unexpected keyword argument");
	if (args->n == 0)
		run_fail(run, "RuntimeError: at least one item has to be provided");
	*cycler = (struct cycler){args->pos, args->n, 0};
	return (struct value){.kind = VALUE_CYCLER, .p = cycler};
}

static struct value
fn_joiner(struct run *run, const struct args *args)
{
	struct joiner *joiner = run_take(run, sizeof(*joiner));
	struct value a[ARGS_MAX];

	args_bind(run, "Joiner", "|sep", args, a);
	*joiner = (struct joiner){given(a[0]) ? a[0] : value_str(", "), false};
	return (struct value){.kind = VALUE_JOINER, .p = joiner};
}

static struct value
call_function(struct run *run, enum function_id id, const struct args *args)
{
	struct value a[ARGS_MAX];
	struct slice text;

	switch (id) {
	case FN_RANGE:
		return fn_range(run, args);
	case FN_DICT:
		return value_of_dict(make_dict(run, "dict", args));
	case FN_NAMESPACE:
		return fn_namespace(run, args);
	case FN_CYCLER:
		return fn_cycler(run, args);
	case FN_JOINER:
		return fn_joiner(run, args);
	case FN_RAISE:
		args_bind(run, "raise_exception", "message", args, a);
		text = py_text(run, a[0]);
		run_fail(run, "TemplateError: %.*s", (int)(text.len > 200 ? 200 : text.len),
			 text.p);
	case FN_STRFTIME:
		args_bind(run, "strftime_now", "format", args, a);
		if (!is_text(a[0]))
			run_fail(run, "TypeError: strftime() argument 1 must be str, not %s",
				 type_name(a[0]));
		return py_strftime(run, value_slice(a[0]));
	default:
		run_fail(run, "unsupported: lipsum() makes random text");
	}
}

struct value
call_value(struct run *run, struct value callee, const struct args *args)
{
	const struct method *method = callee.p;
	struct joiner *joiner;
	struct value a[ARGS_MAX];

	run_deep(run);
	switch (callee.kind) {
	case VALUE_UNDEFINED:
		fail_undefined(run, callee);
	case VALUE_MACRO:
		return call_macro(run, callee.p, args, false);
	case VALUE_METHOD:
		return call_method(run, method->self, method->id, args);
	case VALUE_FUNCTION:
		return call_function(run, (enum function_id)callee.i, args);
	case VALUE_LOOP:
		args_bind(run, "loop", "iterable", args, a);
		return call_loop(run, (struct loop *)(uintptr_t)callee.p, a[0]);
	case VALUE_JOINER:
		joiner = (struct joiner *)(uintptr_t)callee.p;
		args_bind(run, "Joiner", "", args, a);
		if (joiner->used)
			return joiner->sep;
		joiner->used = true;
		return value_str("");
	default:
		run_fail(run, "TypeError: '%s' object is not callable", type_name(callee));
	}
}

static struct value
loop_method(struct run *run, struct loop *loop, unsigned id, const struct args *args)
{
	if (args->n_kw)
		run_fail(run, "TypeError: loop.%s() got an unexpected keyword argument",
			 method_name(id));
	if (id == METHOD_cycle) {
		if (args->n == 0)
			run_fail(run, "TypeError: no items for cycling given");
		return args->pos[loop->index0 % args->n];
	}
	if (loop->has_changed && value_equal(loop->changed, value_tuple(args->pos, args->n)))
		return value_bool(false);
	loop->changed = value_tuple(args->pos, args->n);
	loop->has_changed = true;
	return value_bool(true);
}

static struct value
sequence_method(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct value_items items = items_of(run, self);
	struct value a[ARGS_MAX];
	int64_t count = 0, from = 0, to = items.n;

	if (id == METHOD_copy) {
		args_bind(run, "copy", "", args, a);
		return self;
	}
	if (id == METHOD_count) {
		args_bind(run, "count", "-", args, a);
		for (uint32_t i = 0; i < items.n; i++)
			count += value_equal(items.item[i], a[0]);
		return value_int(count);
	}
	args_bind(run, "index", "-|-,-", args, a);
	if (given(a[1]))
		from = arg_int(run, a[1]);
	if (given(a[2]))
		to = arg_int(run, a[2]);
	from = from < 0 ? (from + items.n < 0 ? 0 : from + items.n) : from;
	to = to < 0 ? to + items.n : to;
	for (int64_t i = from; i < to && i < items.n; i++)
		if (value_equal(items.item[i], a[0]))
			return value_int(i);
	run_fail(run, "ValueError: the value is not in the %s", type_name(self));
}

static struct value
dict_method(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct value a[ARGS_MAX];
	const struct value *found;
	struct value_dict *dict;
	struct value_items keys;

	switch (id) {
	case METHOD_get:
		args_bind(run, "get", "-|-", args, a);
		if (!value_hashable(a[0]))
			run_fail(run, "TypeError: unhashable type: '%s'", type_name(a[0]));
		found = value_get(self.dict, a[0]);
		return found ? *found : given(a[1]) ? a[1] : value_none();
	case METHOD_copy:
		args_bind(run, "copy", "", args, a);
		return self;
	case METHOD_fromkeys:
		args_bind(run, "fromkeys", "-|-", args, a);
		keys = items_of(run, a[0]);
		dict = run_dict(run, keys.n);
		for (uint32_t i = 0; i < keys.n; i++)
			run_put(run, dict, keys.item[i], given(a[1]) ? a[1] : value_none());
		return value_of_dict(dict);
	default:
		args_bind(run, method_name(id), "", args, a);
		return (struct value){.kind = VALUE_VIEW, .n = self.dict->n, .dict = self.dict,
				      .flags = id == METHOD_keys     ? VIEW_KEYS
					       : id == METHOD_values ? VIEW_VALUES
								     : VIEW_ITEMS};
	}
}

static struct value
number_method(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct value a[ARGS_MAX];
	uint64_t u = self.i < 0 ? -(uint64_t)self.i : (uint64_t)self.i;

	args_bind(run, method_name(id), "", args, a);
	if (self.kind != VALUE_FLOAT && self.kind != VALUE_BIG) {
		if (id == METHOD_bit_length)
			return value_int(u ? 64 - __builtin_clzll(u) : 0);
		if (id == METHOD_bit_count)
			return value_int(__builtin_popcountll(u));
		if (id == METHOD_conjugate)
			return value_int(self.i);
		if (id == METHOD_as_integer_ratio)
			return run_pair(run, value_int(self.i), value_int(1));
	}
	if (self.kind == VALUE_FLOAT && id == METHOD_conjugate)
		return self;
	if (id == METHOD_is_integer)
		return value_bool(__builtin_isfinite(self.f) && self.f == __builtin_trunc(self.f));
	run_fail(run, "unsupported: the method %s.%s", type_name(self), method_name(id));
}

struct value
call_method(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct cycler *cycler;
	struct value v, a[ARGS_MAX];

	run_steps(run, 1);
	switch (self.kind) {
	case VALUE_STRING:
		return str_method(run, self, id, args);
	case VALUE_DICT:
		return dict_method(run, self, id, args);
	case VALUE_LIST:
	case VALUE_TUPLE:
	case VALUE_RANGE:
		return sequence_method(run, self, id, args);
	case VALUE_LOOP:
		return loop_method(run, (struct loop *)(uintptr_t)self.p, id, args);
	case VALUE_CYCLER:
		cycler = (struct cycler *)(uintptr_t)self.p;
		args_bind(run, method_name(id), "", args, a);
		v = cycler->items[cycler->pos];
		cycler->pos = id == METHOD_reset ? 0 : (cycler->pos + 1) % cycler->n;
		return id == METHOD_reset ? value_none() : v;
	default:
		return number_method(run, self, id, args);
	}
}

static const struct {
	const char *name;
	enum function_id id;
} function[] = {
	{"range", FN_RANGE},       {"dict", FN_DICT},           {"lipsum", FN_LIPSUM},
	{"cycler", FN_CYCLER},     {"joiner", FN_JOINER},       {"namespace", FN_NAMESPACE},
	{"raise_exception", FN_RAISE}, {"strftime_now", FN_STRFTIME},
};

bool
global_find(struct slice name, struct value *ret)
{
	for (size_t i = 0; i < sizeof(function) / sizeof(function[0]); i++) {
		if (slice_eq_str(name, function[i].name)) {
			*ret = (struct value){.kind = VALUE_FUNCTION, .i = function[i].id};
			return true;
		}
	}
	return false;
}

bool
global_of_jinja(struct slice name)
{
	struct value v;

	return global_find(name, &v) && v.i != FN_RAISE && v.i != FN_STRFTIME;
}
