/* actors/common/prompt/jinja_attr.c -- what hangs on a value: methods, members, items, slices, as
 * jinja2.sandbox lets templates reach them. */
#include "actors/common/prompt/jinja_private.h"

#include "actors/common/prompt/methods.h"
#include "actors/common/prompt/py_unicode.h"

enum { S = 1, L = 2, T = 4, D = 8, I = 16, F = 32, C = 64, O = 128, R = 256 };

static const struct {
	const char *name;
	uint16_t kinds, refused;
} method[METHODS] = {
	{"", 0, 0},
#define M(name, kinds, refused) {#name, kinds, refused},
#include "actors/common/prompt/methods.def"
#undef M
};

static unsigned
kind_bit(struct value v)
{
	switch (v.kind) {
	case VALUE_STRING: return S;
	case VALUE_LIST: return L;
	case VALUE_TUPLE: return T;
	case VALUE_DICT: return D;
	case VALUE_BOOL:
	case VALUE_INT:
	case VALUE_BIG: return I;
	case VALUE_FLOAT: return F;
	case VALUE_CYCLER: return C;
	case VALUE_LOOP: return O;
	case VALUE_RANGE: return R;
	default: return 0;
	}
}

unsigned
method_find(struct slice name)
{
	unsigned low = 1, high = METHODS;

	while (low < high) {
		unsigned mid = (low + high) / 2;
		size_t n = strlen(method[mid].name);
		int c = memcmp(name.p, method[mid].name, name.len < n ? name.len : n);

		if (c == 0 && name.len == n)
			return mid;
		if (c < 0 || (c == 0 && name.len < n))
			high = mid;
		else
			low = mid + 1;
	}
	return 0;
}

const char *
method_name(unsigned id)
{
	return method[id].name;
}

bool
method_has(struct value v, unsigned id)
{
	unsigned bit = kind_bit(v);

	return (method[id].kinds & bit) && !(method[id].refused & bit);
}

static bool
is_dunder(struct slice name)
{
	return name.len > 4 && memcmp(name.p, "__", 2) == 0 &&
	       memcmp(name.p + name.len - 2, "__", 2) == 0;
}

static struct value
absent(void)
{
	return (struct value){.kind = VALUE_UNDEFINED, .flags = ARG_MISSING};
}

static struct value
number_property(struct value v, struct slice name)
{
	bool real = slice_eq_str(name, "real");

	if (v.kind == VALUE_BOOL)
		v.kind = VALUE_INT;
	if (real || (v.kind != VALUE_FLOAT && slice_eq_str(name, "numerator")))
		return v;
	if (slice_eq_str(name, "imag"))
		return v.kind == VALUE_FLOAT ? value_float(0) : value_int(0);
	if (v.kind != VALUE_FLOAT && slice_eq_str(name, "denominator"))
		return value_int(1);
	return absent();
}

static struct value
macro_property(struct run *run, const struct macro *m, struct slice name)
{
	const struct body *body = m->node->body;
	struct value_items items = {0};

	if (slice_eq_str(name, "name"))
		return m->name.p ? value_string(m->name) : value_none();
	if (slice_eq_str(name, "arguments")) {
		for (uint32_t i = 0; i < body->params.n; i++)
			run_push(run, &items, body->params.node[i]->value);
		return value_tuple(items.item, items.n);
	}
	if (slice_eq_str(name, "catch_kwargs"))
		return value_bool(body->kwargs);
	if (slice_eq_str(name, "catch_varargs"))
		return value_bool(body->varargs);
	if (slice_eq_str(name, "caller"))
		return value_bool(body->caller);
	if (slice_eq_str(name, "explicit_caller"))
		return value_bool(body->explicit_caller);
	return absent();
}

/* getattr(): what is no method. */
static struct value
property(struct run *run, struct value obj, struct slice name)
{
	const struct cycler *cycler = obj.p;
	const struct range *range = obj.p;
	const struct value *found;

	switch (obj.kind) {
	case VALUE_BOOL:
	case VALUE_INT:
	case VALUE_BIG:
	case VALUE_FLOAT:
		return number_property(obj, name);
	case VALUE_NAMESPACE:
		found = value_get_str(((const struct namespace_ *)obj.p)->dict, name);
		return found ? *found : absent();
	case VALUE_LOOP:
		return loop_attr(run, (struct loop *)(uintptr_t)obj.p, name);
	case VALUE_MACRO:
		return macro_property(run, obj.p, name);
	case VALUE_CYCLER:
		if (slice_eq_str(name, "current"))
			return cycler->items[cycler->pos];
		if (slice_eq_str(name, "items"))
			return value_tuple(cycler->items, cycler->n);
		return slice_eq_str(name, "pos") ? value_int(cycler->pos) : absent();
	case VALUE_RANGE:
		return slice_eq_str(name, "start")  ? value_int(range->start)
		       : slice_eq_str(name, "stop") ? value_int(range->stop)
		       : slice_eq_str(name, "step") ? value_int(range->step)
						    : absent();
	case VALUE_TUPLE:
		if (obj.flags && slice_eq_str(name, "grouper"))
			return obj.items[0];
		return obj.flags && slice_eq_str(name, "list") ? obj.items[1] : absent();
	default:
		return absent();
	}
}

/* An attribute, method or not; given() is false when there is none. */
static struct value
attribute(struct run *run, struct value obj, struct slice name, unsigned id)
{
	unsigned bit = kind_bit(obj);
	struct value v;

	if (id && method[id].kinds & bit) {
		struct method *bound;

		if (method[id].refused & bit)
			return undefined_refused(obj, name);
		bound = run_take(run, sizeof(*bound));
		*bound = (struct method){obj, id};
		return (struct value){.kind = VALUE_METHOD, .p = bound};
	}
	if (is_dunder(name) && obj.kind != VALUE_NAMESPACE)
		return undefined_refused(obj, name);
	v = property(run, obj, name);
	return given(v) && name.len && name.p[0] == '_' ? undefined_refused(obj, name) : v;
}

static int64_t
sequence_length(struct value v)
{
	return v.kind == VALUE_STRING ? (int64_t)py_length(value_slice(v)) : v.n;
}

static struct value
element(struct value obj, int64_t i)
{
	struct slice s = value_slice(obj);
	const struct range *range = obj.p;
	size_t at;
	unsigned n;

	switch (obj.kind) {
	case VALUE_STRING:
		at = py_offset(s, (size_t)i);
		(void)py_decode(s.p + at, s.p + s.len, &n);
		return value_text(slice_of(s.p + at, n), obj.flags);
	case VALUE_RANGE:
		return value_int(range->start + range->step * i);
	default:
		return obj.items[i];
	}
}

static bool
is_sequence(struct value v)
{
	return v.kind == VALUE_STRING || v.kind == VALUE_LIST || v.kind == VALUE_TUPLE ||
	       v.kind == VALUE_RANGE;
}

/* obj[key]; given() is false where Python has a TypeError or LookupError. */
static struct value
item(struct value obj, struct value key)
{
	const struct value *found;
	int64_t n, i;

	if (obj.kind == VALUE_DICT) {
		found = value_hashable(key) ? value_get(obj.dict, key) : NULL;
		return found ? *found : absent();
	}
	if (!is_sequence(obj) || !is_int(key))
		return absent();
	n = sequence_length(obj);
	i = key.i < 0 ? key.i + n : key.i;
	return i >= 0 && i < n ? element(obj, i) : absent();
}

struct value
attr_get(struct run *run, struct value obj, struct slice name, unsigned id)
{
	struct value v;

	if (is_undefined(obj))
		fail_undefined(run, obj);
	v = attribute(run, obj, name, id);
	if (!given(v))
		v = item(obj, value_string(name));
	return given(v) ? v : undefined_of(obj, name);
}

struct value
item_get(struct run *run, struct value obj, struct value key)
{
	struct value v;

	if (is_undefined(obj))
		fail_undefined(run, obj);
	v = item(obj, key);
	if (given(v))
		return v;
	if (!is_text(key))
		return undefined_of(obj, SLICE_LIT("such an element"));
	v = attribute(run, obj, value_slice(key), method_find(value_slice(key)));
	return given(v) ? v : undefined_of(obj, value_slice(key));
}

static int64_t
slice_index(struct run *run, struct value v, int64_t n, int64_t none, bool back)
{
	int64_t i;

	if (v.kind == VALUE_NONE)
		return none;
	if (v.kind == VALUE_BIG)
		i = v.s[0] == '-' ? INT64_MIN / 2 : INT64_MAX / 2;
	else if (is_int(v))
		i = v.i;
	else
		run_fail(run, "TypeError: slice indices must be integers or None or have an "
			      "__index__ method");
	if (i < 0)
		i = i < -n ? (back ? -1 : 0) : i + n;
	else if (i >= n)
		i = back ? n - 1 : n;
	return i;
}

static struct value
slice_text(struct run *run, struct value obj, int64_t start, int64_t count, int64_t step)
{
	struct slice s = value_slice(obj);
	bool ascii = py_length(s) == s.len;
	char *own, *o;

	if (count == 0)
		return value_text(SLICE_LIT(""), obj.flags);
	if (step == 1) {
		size_t from = ascii ? (size_t)start : py_offset(s, (size_t)start), len;
		struct slice rest = slice_of(s.p + from, s.len - from);

		len = ascii ? (size_t)count : py_offset(rest, (size_t)count);
		return value_text(slice_of(rest.p, len), obj.flags);
	}
	if (!ascii && step == -1) {
		const char *p = s.p + py_offset(s, (size_t)start + 1);

		own = o = run_bytes(run, s.len);
		for (; count > 0; count--) {
			unsigned n = py_back(s.p, p);

			p -= n;
			memcpy(o, p, n);
			o += n;
		}
		return value_text(slice_of(own, (size_t)(o - own)), obj.flags);
	}
	own = o = run_bytes(run, 4 * (size_t)count);
	for (int64_t i = 0; i < count; i++, start += step) {
		if (ascii) {
			*o++ = s.p[start];
		} else {
			struct value c = element(obj, start);

			run_steps(run, s.len / 16);
			memcpy(o, c.s, c.n);
			o += c.n;
		}
	}
	return value_text(slice_of(own, (size_t)(o - own)), obj.flags);
}

struct value
item_slice(struct run *run, struct value obj, struct value start, struct value stop,
	   struct value step)
{
	int64_t n, from, to, by = 1, count;
	struct value *items;
	struct range *range;

	if (is_undefined(obj))
		fail_undefined(run, obj);
	if (!is_sequence(obj))
		run_fail(run, "TypeError: '%s' object is not subscriptable", type_name(obj));
	if (step.kind != VALUE_NONE) {
		by = slice_index(run, step, 0, 1, false);       /* checks its type */
		by = step.kind == VALUE_BIG ? INT64_MAX / 4 : step.i;
	}
	if (by == 0)
		run_fail(run, "ValueError: slice step cannot be zero");
	if (by > INT64_MAX / 4 || by < -(INT64_MAX / 4))
		by = by > 0 ? INT64_MAX / 4 : -(INT64_MAX / 4);
	n = sequence_length(obj);
	from = slice_index(run, start, n, by < 0 ? n - 1 : 0, by < 0);
	to = slice_index(run, stop, n, by < 0 ? -1 : n, by < 0);
	count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0)
		       : (from > to ? (from - to - 1) / -by + 1 : 0);
	if (obj.kind == VALUE_STRING)
		return slice_text(run, obj, from, count, by);
	if (obj.kind == VALUE_RANGE) {
		const struct range *old = obj.p;

		range = run_take(run, sizeof(*range));
		*range = (struct range){old->start + old->step * from, old->start + old->step * to,
					count ? old->step * by : old->step};
		return (struct value){.kind = VALUE_RANGE, .n = (uint32_t)count, .p = range};
	}
	if (by == 1 || count == 0) {
		obj.items += count ? from : 0;
	} else {
		items = run_take(run, (size_t)count * sizeof(*items));
		for (int64_t i = 0; i < count; i++)
			items[i] = obj.items[from + i * by];
		obj.items = items;
	}
	obj.n = (uint32_t)count;
	obj.flags = 0;
	return obj;
}
