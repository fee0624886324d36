/* actors/common/prompt/jinja_filters_seq.c -- filters of sequences. */
#include "actors/common/prompt/jinja_private.h"

#define UNUSED __attribute__((unused))
#undef FILTER
#define FILTER(name)                                                                               \
	struct value filter_##name(struct run *run UNUSED, struct value in,                        \
				   const struct value *a UNUSED, const struct args *all UNUSED)

static bool
flag(struct run *run, struct value v)
{
	return given(v) && run_true(run, v);
}

static struct value
folded(struct run *run, struct value v, bool case_sensitive)
{
	return is_text(v) && !case_sensitive ? py_case(run, v, "lower") : v;
}

FILTER(batch)
{
	struct gen gen = {.kind = GEN_BATCH, .source = in,
			  .fill = given(a[1]) ? a[1] : value_none()};

	gen.count = is_int(a[0]) ? a[0].i : -1;
	return gen_new(run, &gen);
}

FILTER(slice)
{
	struct gen gen = {.kind = GEN_SLICE, .source = in, .count = arg_int(run, a[0]),
			  .fill = given(a[1]) ? a[1] : value_none()};

	return gen_new(run, &gen);
}

FILTER(items)
{
	return gen_new(run, &(struct gen){.kind = GEN_ITEMS, .source = in});
}

FILTER(unique)
{
	struct gen gen = {.kind = GEN_UNIQUE, .source = in, .fold_case = !flag(run, a[0]),
			  .attribute = a[1]};

	return gen_new(run, &gen);
}

FILTER(first)
{
	struct iter it;
	struct value v;

	iter_begin(run, &it, in);
	return iter_next(run, &it, &v) ? v : undefined_name(SLICE_LIT("the first item of nothing"));
}

static bool
reversible(struct value v)
{
	return v.kind != VALUE_ITER && v.kind != VALUE_LOOP && iter_able(v);
}

FILTER(last)
{
	struct value_items items;

	if (!reversible(in))
		run_fail(run, "TypeError: '%s' object is not reversible", type_name(in));
	if (is_text(in) || in.kind == VALUE_RANGE) {
		struct value v = in.n ? item_get(run, in, value_int(-1)) : value_undefined();

		v.flags = is_text(v) ? 0 : v.flags;
		return in.n ? v : undefined_name(SLICE_LIT("the last item of nothing"));
	}
	items = items_of(run, in);
	return items.n ? items.item[items.n - 1]
		       : undefined_name(SLICE_LIT("the last item of nothing"));
}

FILTER(reverse)
{
	struct value_items items;
	struct gen gen = {.kind = GEN_WALK, .begun = true};

	if (is_text(in))
		return item_slice(run, in, value_none(), value_none(), value_int(-1));
	if (!iter_able(in))
		run_fail(run, "FilterArgumentError: argument must be iterable");
	items = items_of(run, in);
	if (!reversible(in))
		return item_slice(run, value_list_of(&items), value_none(), value_none(),
				  value_int(-1));
	gen.from = (struct iter){.kind = ITER_BACK, .items = items.item, .n = items.n};
	return gen_new(run, &gen);
}

FILTER(list)
{
	struct value_items items = items_of(run, in);

	return value_list_of(&items);
}

FILTER(join)
{
	struct gen path = {.attribute = given(a[1]) ? a[1] : value_none()};
	struct slice sep = given(a[0]) ? py_text(run, a[0]) : SLICE_LIT("");
	size_t mark;
	struct iter it;
	struct value item;
	bool more = false;

	iter_begin(run, &it, in);
	mark = run->out->len;
	while (iter_next(run, &it, &item)) {
		run_steps(run, 1);
		if (more)
			out_slice(run, sep);
		more = true;
		py_str(run, attr_path(run, &path, item));
	}
	return out_capture(run, mark, 0);
}

FILTER(sum)
{
	struct gen path = {.attribute = given(a[0]) ? a[0] : value_none()};
	struct value sum = given(a[1]) ? a[1] : value_int(0), item;
	struct iter it;

	if (is_text(sum))
		run_fail(run, "TypeError: sum() can't sum strings [use ''.join(seq) instead]");
	iter_begin(run, &it, in);
	while (iter_next(run, &it, &item)) {
		run_steps(run, 1);
		sum = py_binary(run, N_ADD, sum, attr_path(run, &path, item));
	}
	return sum;
}

FILTER(map)
{
	struct gen gen = {.kind = GEN_MAP, .source = in};

	if (all->n == 0 && all->n_kw) {
		for (uint32_t i = 0; i < all->n_kw; i++) {
			if (slice_eq_str(all->kw[i].name, "attribute")) {
				gen.attribute = all->kw[i].value;
				gen.by_attribute = true;
			} else if (slice_eq_str(all->kw[i].name, "default")) {
				gen.fallback = all->kw[i].value;
				gen.has_fallback = gen.fallback.kind != VALUE_NONE;
			} else {
				run_fail(run, "FilterArgumentError: Unexpected keyword argument");
			}
		}
		if (gen.by_attribute)
			return gen_new(run, &gen);
	}
	if (all->n == 0)
		run_fail(run, "FilterArgumentError: map requires a filter argument");
	gen.name = all->pos[0];
	gen.args = *all;
	gen.args.pos++;
	gen.args.n--;
	return gen_new(run, &gen);
}

static struct value
select_(struct run *run, struct value in, const struct args *all, bool attribute, bool negate)
{
	struct gen gen = {.kind = GEN_SELECT, .source = in, .by_attribute = attribute,
			  .negate = negate, .args = *all,
			  .name = {.kind = VALUE_UNDEFINED, .flags = ARG_MISSING}};

	if (attribute) {
		if (gen.args.n == 0)
			run_fail(run, "FilterArgumentError: Missing parameter for attribute name");
		gen.attribute = *gen.args.pos++;
		gen.args.n--;
	}
	if (gen.args.n) {
		gen.name = *gen.args.pos++;
		gen.args.n--;
	}
	return gen_new(run, &gen);
}

FILTER(select)
{
	return select_(run, in, all, false, false);
}

FILTER(selectattr)
{
	return select_(run, in, all, true, false);
}

FILTER(reject)
{
	return select_(run, in, all, false, true);
}

FILTER(rejectattr)
{
	return select_(run, in, all, true, true);
}

static struct value
extreme(struct run *run, struct value in, const struct value *a, bool max)
{
	struct gen path = {.attribute = given(a[1]) ? a[1] : value_none()};
	bool case_sensitive = flag(run, a[0]);
	struct value best, best_key, item, key;
	struct iter it;

	iter_begin(run, &it, in);
	if (!iter_next(run, &it, &best))
		return undefined_name(SLICE_LIT("the extreme item of nothing"));
	best_key = folded(run, attr_path(run, &path, best), case_sensitive);
	while (iter_next(run, &it, &item)) {
		run_steps(run, 1);
		key = folded(run, attr_path(run, &path, item), case_sensitive);
		if (py_compare(run, max ? OP_GT : OP_LT, key, best_key) == (max ? 1 : -1)) {
			best = item;
			best_key = key;
		}
	}
	return best;
}

FILTER(max)
{
	return extreme(run, in, a, true);
}

FILTER(min)
{
	return extreme(run, in, a, false);
}

/* What is sorted: an item, and its keys, of which the first that differ decide. */
struct sorted {
	struct value item;
	const struct value *key;
};

struct sorting {
	struct run *run;
	uint32_t keys;
	bool single;                            /* keys compared as themselves, not as lists */
	bool reverse;
};

static bool
comes_before(const struct sorting *s, const struct sorted *a, const struct sorted *b)
{
	run_steps(s->run, 1);
	for (uint32_t i = 0; i < s->keys; i++) {
		if (!s->single && value_equal(a->key[i], b->key[i]))
			continue;
		return py_compare(s->run, OP_LT, a->key[i], b->key[i]) == -1;
	}
	return false;
}

/* Stable: equal ones keep their order, also when it is reversed. */
static void
merge_sort(const struct sorting *s, struct sorted *v, struct sorted *spare, uint32_t n)
{
	uint32_t half = n / 2, i = 0, k = half, out = 0;

	if (n < 2)
		return;
	merge_sort(s, v, spare, half);
	merge_sort(s, v + half, spare, n - half);
	memcpy(spare, v, half * sizeof(*v));
	while (i < half && k < n) {
		bool take_right = s->reverse ? comes_before(s, &spare[i], &v[k])
					     : comes_before(s, &v[k], &spare[i]);

		v[out++] = take_right ? v[k++] : spare[i++];
	}
	while (i < half)
		v[out++] = spare[i++];
}

/* attribute: a path, or with commas several; folded unless case_sensitive. */
static struct sorted *
sort_items(struct run *run, const struct value_items *items, struct value attribute,
	   const struct gen *path, bool case_sensitive, struct sorting *s)
{
	struct sorted *v = run_take(run, (items->n + 1) * sizeof(*v));
	struct sorted *spare = run_take(run, (items->n + 1) * sizeof(*v));
	struct gen part[16];
	struct slice rest = is_text(attribute) ? value_slice(attribute) : SLICE_LIT("");

	s->run = run;
	s->keys = 0;
	do {
		const char *comma = path ? NULL : rest.len ? memchr(rest.p, ',', rest.len) : NULL;
		size_t n = comma ? (size_t)(comma - rest.p) : rest.len;

		if (s->keys == 16)
			run_fail(run, "unsupported: more than 16 attributes to sort by");
		part[s->keys] = path ? *path : (struct gen){.attribute = attribute};
		if (!path && is_text(attribute))
			part[s->keys].attribute = value_string(slice_of(rest.p, n));
		s->keys++;
		rest.p = comma ? comma + 1 : NULL;
		rest.len -= comma ? n + 1 : n;
	} while (rest.p);
	for (uint32_t i = 0; i < items->n; i++) {
		struct value *key = run_take(run, s->keys * sizeof(*key));

		for (uint32_t k = 0; k < s->keys; k++)
			key[k] = folded(run, attr_path(run, &part[k], items->item[i]),
					case_sensitive);
		v[i] = (struct sorted){items->item[i], key};
	}
	merge_sort(s, v, spare, items->n);
	return v;
}

FILTER(sort)
{
	struct value_items items = items_of(run, in), out = {0};
	struct sorting s = {.reverse = flag(run, a[0])};
	struct sorted *v = sort_items(run, &items, given(a[2]) ? a[2] : value_none(), NULL,
				      flag(run, a[1]), &s);

	for (uint32_t i = 0; i < items.n; i++)
		run_push(run, &out, v[i].item);
	return value_list_of(&out);
}

FILTER(dictsort)
{
	struct gen path = {.attribute = value_int(0)};
	struct sorting s = {.reverse = flag(run, a[2]), .single = true};
	struct value_items items, out = {0};
	struct sorted *v;

	if (given(a[1]) && value_is_text(a[1], "value"))
		path.attribute = value_int(1);
	else if (given(a[1]) && !value_is_text(a[1], "key"))
		run_fail(run, "FilterArgumentError: You can only sort by either \"key\" or "
			      "\"value\"");
	if (is_undefined(in))
		fail_undefined(run, in);
	if (in.kind != VALUE_DICT)
		run_fail(run, "AttributeError: '%s' object has no attribute 'items'",
			 type_name(in));
	in.kind = VALUE_VIEW;
	in.flags = VIEW_ITEMS;
	items = items_of(run, in);
	v = sort_items(run, &items, value_none(), &path, flag(run, a[0]), &s);
	for (uint32_t i = 0; i < items.n; i++)
		run_push(run, &out, v[i].item);
	return value_list_of(&out);
}

FILTER(groupby)
{
	struct gen path = {.attribute = a[0], .fallback = a[1],
			   .has_fallback = given(a[1]) && a[1].kind != VALUE_NONE};
	bool case_sensitive = flag(run, a[2]);
	struct sorting s = {.single = true};
	struct value_items items = items_of(run, in), out = {0};
	struct sorted *v = sort_items(run, &items, value_none(), &path, case_sensitive, &s);

	for (uint32_t i = 0, k; i < items.n; i = k) {
		struct value_items group = {0};
		struct value tuple;

		for (k = i; k < items.n && value_equal(v[i].key[0], v[k].key[0]); k++)
			run_push(run, &group, v[k].item);
		if (k == i)
			k++;            /* NaN is not even itself */
		tuple = run_pair(run, attr_path(run, &path, v[i].item), value_list_of(&group));
		tuple.flags = 1;        /* has grouper and list */
		run_push(run, &out, tuple);
	}
	return value_list_of(&out);
}
