/* actors/common/prompt/value.c -- lists, dicts, equality and hashes of Python's values. */
#include "actors/common/prompt/value.h"

#include <math.h>
#include <stdio.h>
#include <xxhash.h>

const struct value value_nothing[1];

bool
value_push(struct bump *bump, struct value_items *items, struct value v)
{
	if (items->n == items->cap) {
		uint32_t cap = items->cap ? 2 * items->cap : 8;
		struct value *item;

		if (cap <= items->cap)
			return false;
		if (items->item && bump_extend(bump, (const char *)(items->item + items->cap),
					       (cap - items->cap) * sizeof(*item))) {
			items->cap = cap;
		} else {
			item = bump_take(bump, cap * sizeof(*item));
			if (!item)
				return false;
			if (items->n)
				memcpy(item, items->item, items->n * sizeof(*item));
			items->item = item;
			items->cap = cap;
		}
	}
	items->item[items->n++] = v;
	return true;
}

bool
value_copy(struct bump *bump, struct slice text, struct value *ret)
{
	char *p = text.len <= UINT32_MAX ? bump_bytes(bump, text.len) : NULL;

	if (!p)
		return false;
	if (text.len)
		memcpy(p, text.p, text.len);
	*ret = value_string(slice_of(p, text.len));
	return true;
}

struct value_dict *
value_dict_new(struct bump *bump, uint32_t room)
{
	struct value_dict *dict = bump_take(bump, sizeof(*dict));

	if (!dict)
		return NULL;
	*dict = (struct value_dict){.bump = bump};
	if (room) {
		dict->pair = bump_take(bump, room * sizeof(*dict->pair));
		if (!dict->pair)
			return NULL;
		dict->cap = room;
	}
	return dict;
}

static struct value_pair *
find(const struct value_dict *dict, struct value key)
{
	if (!dict->index) {
		for (uint32_t i = 0; i < dict->n; i++)
			if (value_equal(dict->pair[i].key, key))
				return &dict->pair[i];
		return NULL;
	}
	for (uint32_t h = (uint32_t)value_hash(key);; h++) {
		uint32_t at = dict->index[h & dict->mask];

		if (!at)
			return NULL;
		if (value_equal(dict->pair[at - 1].key, key))
			return &dict->pair[at - 1];
	}
}

static void
enter(struct value_dict *dict, uint32_t i)
{
	uint32_t h = (uint32_t)value_hash(dict->pair[i].key);

	while (dict->index[h & dict->mask])
		h++;
	dict->index[h & dict->mask] = i + 1;
}

/* An index twice as large as the pairs there is room for. */
static bool
make_index(struct value_dict *dict)
{
	uint32_t size = 4 * VALUE_LINEAR;

	while (size < 2 * dict->cap)
		size *= 2;
	dict->index = bump_take(dict->bump, size * sizeof(*dict->index));
	if (!dict->index)
		return false;
	memset(dict->index, 0, size * sizeof(*dict->index));
	dict->mask = size - 1;
	for (uint32_t i = 0; i < dict->n; i++)
		enter(dict, i);
	return true;
}

static bool
grow(struct value_dict *dict)
{
	uint32_t cap = dict->cap ? 2 * dict->cap : 4;
	struct value_pair *pair;

	if (cap > UINT32_MAX / 8)
		return false;
	pair = bump_take(dict->bump, cap * sizeof(*pair));
	if (!pair)
		return false;
	if (dict->n)
		memcpy(pair, dict->pair, dict->n * sizeof(*pair));
	dict->pair = pair;
	dict->cap = cap;
	return !dict->index || make_index(dict);
}

bool
value_put(struct value_dict *dict, struct value key, struct value v)
{
	struct value_pair *pair = find(dict, key);

	if (pair) {
		pair->value = v;
		return true;
	}
	if (dict->n == dict->cap && !grow(dict))
		return false;
	dict->pair[dict->n++] = (struct value_pair){key, v};
	if (dict->index)
		enter(dict, dict->n - 1);
	else if (dict->n > VALUE_LINEAR)
		return make_index(dict);
	return true;
}

bool
value_put_str(struct value_dict *dict, const char *key, struct value v)
{
	return value_put(dict, value_str(key), v);
}

const struct value *
value_get(const struct value_dict *dict, struct value key)
{
	struct value_pair *pair = find(dict, key);

	return pair ? &pair->value : NULL;
}

const struct value *
value_get_str(const struct value_dict *dict, struct slice key)
{
	if (dict->index)
		return value_get(dict, value_string(key));
	for (uint32_t i = 0; i < dict->n; i++) {
		const struct value *k = &dict->pair[i].key;

		if (k->n == key.len && k->kind == VALUE_STRING && memcmp(k->s, key.p, key.len) == 0)
			return &dict->pair[i].value;
	}
	return NULL;
}

struct value
value_member(struct value v, const char *key)
{
	const struct value *found;

	if (v.kind != VALUE_DICT)
		return value_undefined();
	found = value_get_str(v.dict, slice_str(key));
	return found ? *found : value_undefined();
}

bool
value_true(struct value v)
{
	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return false;
	case VALUE_BOOL:
	case VALUE_INT:
		return v.i != 0;
	case VALUE_FLOAT:
		return v.f != 0;
	case VALUE_STRING:
	case VALUE_LIST:
	case VALUE_TUPLE:
		return v.n > 0;
	case VALUE_DICT:
		return v.dict->n > 0;
	default:
		return true;
	}
}

/* The exact decimal digits of a whole float: long enough for the largest. */
struct digits {
	char s[320];
	uint32_t n;
};

static struct digits
float_digits(double f)
{
	struct digits d;

	d.n = (uint32_t)snprintf(d.s, sizeof(d.s), "%.0f", f);
	return d;
}

static bool
int_is_float(int64_t i, double f)
{
	return f >= -0x1p63 && f < 0x1p63 && f == trunc(f) && (int64_t)f == i;
}

static bool
big_is_float(struct value big, double f)
{
	struct digits d;

	if (!isfinite(f) || f != trunc(f))
		return false;
	d = float_digits(f);
	return slice_eq(value_slice(big), slice_of(d.s, d.n));
}

static bool equal(struct value a, struct value b, unsigned depth);

static bool
dict_equal(const struct value_dict *a, const struct value_dict *b, unsigned depth)
{
	if (a == b)
		return true;
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		const struct value *other = value_get(b, a->pair[i].key);

		if (!other || !equal(a->pair[i].value, *other, depth))
			return false;
	}
	return true;
}

static bool
equal(struct value a, struct value b, unsigned depth)
{
	if (depth == 0)
		return false;
	if (a.kind == VALUE_STRING && b.kind == VALUE_STRING)
		return a.n == b.n && (a.s == b.s || memcmp(a.s, b.s, a.n) == 0);
	if (a.kind == VALUE_BOOL)
		a.kind = VALUE_INT;
	if (b.kind == VALUE_BOOL)
		b.kind = VALUE_INT;
	if (a.kind != b.kind) {
		if (b.kind != VALUE_FLOAT) {
			struct value t = a;

			a = b;
			b = t;
		}
		if (b.kind != VALUE_FLOAT)
			return false;
		return a.kind == VALUE_INT   ? int_is_float(a.i, b.f)
		       : a.kind == VALUE_BIG ? big_is_float(a, b.f)
					     : false;
	}
	switch (a.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return true;
	case VALUE_INT:
		return a.i == b.i;
	case VALUE_BIG:
		return slice_eq(value_slice(a), value_slice(b));
	case VALUE_FLOAT:
		return a.f == b.f;
	case VALUE_LIST:
	case VALUE_TUPLE:
		if (a.n != b.n)
			return false;
		for (uint32_t i = 0; a.items != b.items && i < a.n; i++)
			if (!equal(a.items[i], b.items[i], depth - 1))
				return false;
		return true;
	case VALUE_DICT:
		return dict_equal(a.dict, b.dict, depth - 1);
	default:
		return a.n == b.n && a.p == b.p;        /* one and the same object */
	}
}

bool
value_equal(struct value a, struct value b)
{
	return equal(a, b, VALUE_DEPTH);
}

static bool
hashable(struct value v, unsigned depth)
{
	if (v.kind == VALUE_LIST || v.kind == VALUE_DICT || depth == 0)
		return false;
	if (v.kind == VALUE_TUPLE)
		for (uint32_t i = 0; i < v.n; i++)
			if (!hashable(v.items[i], depth - 1))
				return false;
	return true;
}

bool
value_hashable(struct value v)
{
	return hashable(v, VALUE_DEPTH);
}

static uint64_t
hash(struct value v, unsigned depth)
{
	struct digits d;
	uint64_t h;

	switch (v.kind) {
	case VALUE_STRING:
	case VALUE_BIG:
		return XXH3_64bits(v.s, v.n);
	case VALUE_BOOL:
	case VALUE_INT:
		return XXH3_64bits(&v.i, sizeof(v.i));
	case VALUE_FLOAT:
		if (!isfinite(v.f) || v.f != trunc(v.f))
			return XXH3_64bits(&v.f, sizeof(v.f));
		if (v.f >= -0x1p63 && v.f < 0x1p63)
			return hash(value_int((int64_t)v.f), depth);
		d = float_digits(v.f);
		return XXH3_64bits(d.s, d.n);
	case VALUE_TUPLE:
		h = v.n;
		for (uint32_t i = 0; depth && i < v.n; i++)
			h = h * 0x9e3779b97f4a7c15ull + hash(v.items[i], depth - 1);
		return h;
	default:
		return v.kind;
	}
}

uint64_t
value_hash(struct value v)
{
	return hash(v, VALUE_DEPTH);
}

bool
value_text_whole(struct slice text)
{
	const unsigned char *p = (const unsigned char *)text.p, *end = p + text.len;

	while (p < end) {
		unsigned c = *p;
		uint64_t eight;
		size_t n;

		if (c < 0x80) {
			p++;
			while (end - p >= 8) {
				memcpy(&eight, p, 8);
				if (eight & 0x8080808080808080ull)
					break;
				p += 8;
			}
			continue;
		}
		n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
		if (c < 0xc2 || c > 0xf4 || n > (size_t)(end - p))
			return false;
		for (size_t i = 1; i < n; i++)
			if ((p[i] & 0xc0) != 0x80)
				return false;
		if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) ||
		    (c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f))
			return false;
		p += n;
	}
	return true;
}
