/* actors/common/prompt/py_str.c -- the methods of Python's str (and of markupsafe's Markup). */
#include "actors/common/prompt/jinja_private.h"

#include "actors/common/prompt/methods.h"
#include "actors/common/prompt/py_unicode.h"

void
py_escape(struct run *run, struct slice s)
{
	static const struct {
		char c;
		const char *text;
	} entity[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"},
		      {'"', "&#34;"}};
	size_t plain = 0;

	for (size_t i = 0; i < s.len; i++) {
		for (int e = 0; e < 5; e++) {
			if (s.p[i] != entity[e].c)
				continue;
			out_add(run, s.p + plain, i - plain);
			out_add(run, entity[e].text, strlen(entity[e].text));
			plain = i + 1;
		}
	}
	out_add(run, s.p + plain, s.len - plain);
}

struct value
py_markup(struct run *run, struct value v)
{
	size_t mark = run->out->len;

	if (is_text(v) && v.flags & VALUE_MARKUP)
		return v;
	py_escape(run, py_text(run, v));
	return out_capture(run, mark, VALUE_MARKUP);
}

static void
out_cp(struct run *run, uint32_t cp)
{
	char buf[4];

	out_add(run, buf, py_encode(cp, buf));
}

static void
out_mapped(struct run *run, enum py_case to, uint32_t cp)
{
	uint32_t map[3];
	unsigned n = py_map(to, cp, map);

	for (unsigned i = 0; i < n; i++)
		out_cp(run, map[i]);
}

/* Is a capital sigma at p the last letter of its word? */
static bool
final_sigma(struct slice s, const char *p)
{
	const char *q = p, *end = s.p + s.len;
	bool before = false;
	unsigned n;

	while (q > s.p) {
		unsigned bits;

		q -= py_back(s.p, q);
		bits = py_bits(py_decode(q, end, &n));
		if (bits & PY_IGNORABLE)
			continue;
		before = (bits & PY_CASED) != 0;
		break;
	}
	if (!before)
		return false;
	(void)py_decode(p, end, &n);
	for (q = p + n; q < end; q += n) {
		unsigned bits = py_bits(py_decode(q, end, &n));

		if (!(bits & PY_IGNORABLE))
			return !(bits & PY_CASED);
	}
	return true;
}

static void
out_lower(struct run *run, struct slice s, const char *p, uint32_t cp)
{
	if (cp == 0x3a3)
		out_cp(run, final_sigma(s, p) ? 0x3c2 : 0x3c3);
	else
		out_mapped(run, PY_TO_LOWER, cp);
}

/* how: lower, upper, capitalize, title, swapcase, casefold. */
struct value
py_case(struct run *run, struct value v, const char *how)
{
	struct slice s = value_slice(v);
	size_t mark = run->out->len;
	const char *end = s.p + s.len;
	bool first = true, in_word = false;
	unsigned n;

	run_steps(run, s.len / 8);
	for (const char *p = s.p; p < end; p += n, first = false) {
		uint32_t cp = py_decode(p, end, &n);
		unsigned bits = how[0] == 't' || how[0] == 's' ? py_bits(cp) : 0;

		switch (how[0]) {
		case 'l':
			out_lower(run, s, p, cp);
			break;
		case 'u':
			out_mapped(run, PY_TO_UPPER, cp);
			break;
		case 's':
			if (bits & PY_UPPER)
				out_lower(run, s, p, cp);
			else
				out_mapped(run, bits & PY_LOWER ? PY_TO_UPPER : PY_TO_LOWER, cp);
			break;
		case 't':
			if (in_word)
				out_lower(run, s, p, cp);
			else
				out_mapped(run, PY_TO_TITLE, cp);
			in_word = (bits & PY_CASED) != 0;
			break;
		default:
			if (how[2] == 's')
				out_mapped(run, PY_TO_FOLD, cp);
			else if (first)
				out_mapped(run, PY_TO_TITLE, cp);
			else
				out_lower(run, s, p, cp);
		}
	}
	return out_capture(run, mark, v.flags);
}

/* Words begin behind blanks, "-", "(", "{", "[" and "<": their first letter in upper case. */
struct value
py_title_words(struct run *run, struct value v)
{
	struct slice s = value_slice(v), word;
	size_t mark = run->out->len;
	const char *end = s.p + s.len, *p = s.p, *q;
	unsigned n;

	while (p < end) {
		uint32_t cp = py_decode(p, end, &n);

		if (py_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) && cp)) {
			out_add(run, p, n);
			p += n;
			continue;
		}
		out_mapped(run, PY_TO_UPPER, cp);
		word.p = p + n;
		for (q = word.p; q < end; q += n) {
			cp = py_decode(q, end, &n);
			if (py_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) && cp))
				break;
		}
		word.len = (size_t)(q - word.p);
		py_str(run, py_case(run, value_string(word), "lower"));
		p = q;
	}
	return out_capture(run, mark, 0);
}

struct value
py_replace(struct run *run, struct slice s, struct slice from, struct slice to, int64_t count,
	   unsigned flags)
{
	const char *p = s.p, *end = s.p + s.len;
	size_t mark = run->out->len;
	unsigned n;

	run_steps(run, s.len / 16);
	if (from.len == 0) {
		while (count != 0) {
			out_slice(run, to);
			count--;
			if (p == end)
				break;
			(void)py_decode(p, end, &n);
			out_add(run, p, n);
			p += n;
		}
		out_add(run, p, (size_t)(end - p));
		return out_capture(run, mark, flags);
	}
	if (count == 0 || !py_find(slice_of(p, (size_t)(end - p)), from))
		return value_text(s, flags);
	while (count != 0 && p < end) {
		const char *at = py_find(slice_of(p, (size_t)(end - p)), from);

		if (!at)
			break;
		out_add(run, p, (size_t)(at - p));
		out_slice(run, to);
		p = at + from.len;
		count--;
	}
	out_add(run, p, (size_t)(end - p));
	return out_capture(run, mark, flags);
}

static bool
is_line_end(uint32_t cp)
{
	return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
	       cp == 0x2028 || cp == 0x2029;
}

struct value_items
py_splitlines(struct run *run, struct value v, bool keep_ends)
{
	struct slice s = value_slice(v);
	struct value_items items = {0};
	const char *end = s.p + s.len, *line = s.p, *p = s.p;
	unsigned n;

	while (p < end) {
		uint32_t cp = py_decode(p, end, &n);
		const char *stop = p;

		p += n;
		if (!is_line_end(cp))
			continue;
		if (cp == '\r' && p < end && *p == '\n')
			p++;
		run_push(run, &items,
			 value_text(slice_of(line, (size_t)((keep_ends ? p : stop) - line)),
				    v.flags));
		line = p;
	}
	if (line < end)
		run_push(run, &items, value_text(slice_of(line, (size_t)(end - line)), v.flags));
	return items;
}

static struct slice
text_arg(struct run *run, const char *who, struct value v)
{
	if (is_undefined(v) && given(v))
		run_fail(run, "TypeError: %s() argument must be str, not Undefined", who);
	if (!is_text(v))
		run_fail(run, "TypeError: %s() argument must be str, not %s", who, type_name(v));
	return value_slice(v);
}

/* Markup escapes the texts given to its methods. */
static void
escape_args(struct run *run, struct value self, struct value *a)
{
	if (self.flags & VALUE_MARKUP)
		for (unsigned i = 0; i < ARGS_MAX; i++)
			if (is_text(a[i]))
				a[i] = py_markup(run, a[i]);
}

static struct value
split_blanks(struct run *run, struct value self, int64_t max, bool right)
{
	struct slice s = value_slice(self);
	struct value_items items = {0};
	const char *p, *q, *end;
	unsigned n;

	s = py_strip(s, true, true);
	p = s.p;
	end = s.p + s.len;
	while (p < end && max != 0) {
		if (right) {
			for (q = end; q > p; q -= n) {
				unsigned m;

				n = py_back(p, q);
				if (py_is_space(py_decode(q - n, end, &m)))
					break;
			}
			run_push(run, &items, value_text(slice_of(q, (size_t)(end - q)),
							 self.flags));
			end = p + py_strip(slice_of(p, (size_t)(q - p)), false, true).len;
		} else {
			for (q = p; q < end; q += n)
				if (py_is_space(py_decode(q, end, &n)))
					break;
			run_push(run, &items, value_text(slice_of(p, (size_t)(q - p)),
							 self.flags));
			p = end - py_strip(slice_of(q, (size_t)(end - q)), true, false).len;
		}
		max--;
	}
	/* what is left keeps the blanks on its far side only where Python leaves them */
	if (p < end) {
		struct slice rest = slice_of(p, (size_t)(end - p));

		if (right) {
			rest.p = self.s;
			rest.len = (size_t)(end - self.s);
		} else {
			rest.len = (size_t)(self.s + self.n - p);
		}
		run_push(run, &items, value_text(rest, self.flags));
	}
	for (uint32_t i = 0; right && i < items.n / 2; i++) {
		struct value t = items.item[i];

		items.item[i] = items.item[items.n - 1 - i];
		items.item[items.n - 1 - i] = t;
	}
	return value_list_of(&items);
}

static const char *
find_last(struct slice s, struct slice what)
{
	if (what.len > s.len)
		return NULL;
	for (const char *p = s.p + s.len - what.len;; p--) {
		if (memcmp(p, what.p, what.len) == 0)
			return p;
		if (p == s.p)
			return NULL;
	}
}

static struct value
split(struct run *run, struct value self, unsigned id, const struct args *args)
{
	bool right = id == METHOD_rsplit;
	struct slice s = value_slice(self), sep, part;
	struct value_items items = {0};
	struct value a[ARGS_MAX];
	int64_t max;

	args_bind(run, method_name(id), "|sep,maxsplit", args, a);
	max = given(a[1]) ? arg_int(run, a[1]) : -1;
	run_steps(run, s.len / 16);
	if (!given(a[0]) || a[0].kind == VALUE_NONE)
		return split_blanks(run, self, max, right);
	sep = text_arg(run, method_name(id), a[0]);
	if (sep.len == 0)
		run_fail(run, "ValueError: empty separator");
	for (; max != 0; max--) {
		const char *at = right ? find_last(s, sep) : py_find(s, sep);

		if (!at)
			break;
		if (right) {
			part.p = at + sep.len;
			part.len = s.len - (size_t)(part.p - s.p);
			s.len = (size_t)(at - s.p);
		} else {
			part = slice_of(s.p, (size_t)(at - s.p));
			s.len -= part.len + sep.len;
			s.p = at + sep.len;
		}
		run_push(run, &items, value_text(part, self.flags));
	}
	run_push(run, &items, value_text(s, self.flags));
	for (uint32_t i = 0; right && i < items.n / 2; i++) {
		struct value t = items.item[i];

		items.item[i] = items.item[items.n - 1 - i];
		items.item[items.n - 1 - i] = t;
	}
	return value_list_of(&items);
}

static struct value
partition(struct run *run, struct value self, unsigned id, const struct args *args)
{
	bool right = id == METHOD_rpartition;
	struct slice s = value_slice(self), sep, empty = SLICE_LIT("");
	struct value *item = run_take(run, 3 * sizeof(*item)), a[ARGS_MAX];
	const char *at;

	args_bind(run, method_name(id), "-", args, a);
	escape_args(run, self, a);
	sep = text_arg(run, method_name(id), a[0]);
	if (sep.len == 0)
		run_fail(run, "ValueError: empty separator");
	at = right ? find_last(s, sep) : py_find(s, sep);
	if (at) {
		item[0] = value_text(slice_of(s.p, (size_t)(at - s.p)), self.flags);
		item[1] = value_text(sep, self.flags);
		item[2] = value_text(slice_of(at + sep.len,
					      s.len - sep.len - (size_t)(at - s.p)), self.flags);
	} else {
		item[0] = value_text(right ? empty : s, self.flags);
		item[1] = value_text(empty, self.flags);
		item[2] = value_text(right ? s : empty, self.flags);
	}
	return value_tuple(item, 3);
}

/* s[start:end] of a method's arguments; false: start lies behind the end. */
static bool
sub_range(struct run *run, struct slice s, struct value start, struct value end,
	  struct slice *ret, int64_t *ret_start)
{
	int64_t n, from = 0, to;
	size_t begin, stop;

	*ret = s;
	*ret_start = 0;
	if (start.kind == VALUE_NONE)
		start.flags = ARG_MISSING, start.kind = VALUE_UNDEFINED;
	if (end.kind == VALUE_NONE)
		end.flags = ARG_MISSING, end.kind = VALUE_UNDEFINED;
	if (!given(start) && !given(end))
		return true;
	n = (int64_t)py_length(s);
	to = n;
	if (given(start))
		from = arg_int(run, start);
	if (given(end))
		to = arg_int(run, end);
	from = from < 0 ? (from < -n ? 0 : from + n) : from;
	to = to < 0 ? (to < -n ? 0 : to + n) : to > n ? n : to;
	if (from > to)
		return false;
	begin = py_offset(s, (size_t)from);
	stop = py_offset(s, (size_t)to);
	*ret = slice_of(s.p + begin, stop - begin);
	*ret_start = from;
	return true;
}

static struct value
find(struct run *run, struct value self, unsigned id, const struct args *args)
{
	bool right = id == METHOD_rfind || id == METHOD_rindex;
	struct value a[ARGS_MAX];
	struct slice what, in;
	const char *at = NULL;
	int64_t start, count = 0;

	args_bind(run, method_name(id), "-|-,-", args, a);
	what = text_arg(run, method_name(id), a[0]);
	run_steps(run, self.n / 16);
	if (sub_range(run, value_slice(self), a[1], a[2], &in, &start)) {
		if (id == METHOD_count) {
			if (what.len == 0)
				return value_int((int64_t)py_length(in) + 1);
			while ((at = py_find(in, what))) {
				count++;
				in.len -= (size_t)(at - in.p) + what.len;
				in.p = at + what.len;
			}
			return value_int(count);
		}
		at = right ? find_last(in, what) : py_find(in, what);
	}
	if (id == METHOD_count)
		return value_int(0);
	if (at)
		return value_int(start +
				 (int64_t)py_length(slice_of(in.p, (size_t)(at - in.p))));
	if (id == METHOD_index || id == METHOD_rindex)
		run_fail(run, "ValueError: substring not found");
	return value_int(-1);
}

static bool
affix(struct slice s, struct slice what, bool at_end)
{
	return what.len <= s.len &&
	       memcmp(at_end ? s.p + s.len - what.len : s.p, what.p, what.len) == 0;
}

static struct value
starts_or_ends(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct value a[ARGS_MAX];
	struct slice in;
	int64_t start;
	bool inside;

	if (args->n == 1 && !args->n_kw && is_text(args->pos[0]))
		return value_bool(affix(value_slice(self), value_slice(args->pos[0]),
					id == METHOD_endswith));
	args_bind(run, method_name(id), "-|-,-", args, a);
	inside = sub_range(run, value_slice(self), a[1], a[2], &in, &start);
	if (a[0].kind != VALUE_TUPLE) {
		struct slice what = text_arg(run, method_name(id), a[0]);

		return value_bool(inside && affix(in, what, id == METHOD_endswith));
	}
	for (uint32_t i = 0; i < a[0].n; i++) {
		struct slice what = text_arg(run, method_name(id), a[0].items[i]);

		if (inside && affix(in, what, id == METHOD_endswith))
			return value_bool(true);
	}
	return value_bool(false);
}

static struct value
strip(struct run *run, struct value self, unsigned id, const struct args *args)
{
	bool left = id != METHOD_rstrip, right = id != METHOD_lstrip;
	struct value a[ARGS_MAX];

	if (args->n == 0 && args->n_kw == 0)
		return value_text(py_strip(value_slice(self), left, right), self.flags);
	args_bind(run, method_name(id), "|-", args, a);
	escape_args(run, self, a);
	if (a[0].kind == VALUE_NONE)
		return value_text(py_strip(value_slice(self), left, right), self.flags);
	return value_text(py_strip_set(value_slice(self), text_arg(run, method_name(id), a[0]),
				       left, right), self.flags);
}

static void
pad(struct run *run, int64_t n, struct slice with)
{
	run_steps(run, n > 0 ? (uint64_t)n / 8 : 0);
	for (; n > 0; n--)
		out_slice(run, with);
}

static struct value
justify(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct slice s = value_slice(self), fill = SLICE_LIT(" ");
	struct value a[ARGS_MAX];
	size_t mark = run->out->len;
	int64_t width, more, left;

	args_bind(run, method_name(id), id == METHOD_zfill ? "-" : "-|-", args, a);
	escape_args(run, self, a);
	width = arg_int(run, a[0]);
	if (id != METHOD_zfill && given(a[1])) {
		fill = text_arg(run, method_name(id), a[1]);
		if (py_length(fill) != 1)
			run_fail(run, "TypeError: The fill character must be exactly one "
				      "character long");
	}
	more = width - (int64_t)py_length(s);
	if (more <= 0)
		return self;
	if (id == METHOD_zfill) {
		if (s.len && (s.p[0] == '+' || s.p[0] == '-')) {
			out_add(run, s.p, 1);
			s.p++;
			s.len--;
		}
		pad(run, more, SLICE_LIT("0"));
		out_slice(run, s);
		return out_capture(run, mark, self.flags);
	}
	left = id == METHOD_ljust   ? 0
	       : id == METHOD_rjust ? more
				    : more / 2 + (more & width & 1);
	pad(run, left, fill);
	out_slice(run, s);
	pad(run, more - left, fill);
	return out_capture(run, mark, self.flags);
}

static struct value
expand_tabs(struct run *run, struct value self, const struct args *args)
{
	struct slice s = value_slice(self);
	const char *end = s.p + s.len;
	struct value a[ARGS_MAX];
	size_t mark = run->out->len;
	int64_t size, column = 0;
	unsigned n;

	args_bind(run, "expandtabs", "|tabsize", args, a);
	size = given(a[0]) ? arg_int(run, a[0]) : 8;
	for (const char *p = s.p; p < end; p += n) {
		uint32_t cp = py_decode(p, end, &n);

		if (cp == '\t') {
			int64_t more = size > 0 ? size - column % size : 0;

			pad(run, more, SLICE_LIT(" "));
			column += more;
			continue;
		}
		column = cp == '\n' || cp == '\r' ? 0 : column + 1;
		out_add(run, p, n);
	}
	return out_capture(run, mark, self.flags);
}

static struct value
join(struct run *run, struct value self, const struct args *args)
{
	struct value a[ARGS_MAX], item;
	size_t mark;
	struct value_items items;

	args_bind(run, "join", "-", args, a);
	if (!iter_able(a[0]))
		run_fail(run, "TypeError: can only join an iterable");
	items = items_of(run, a[0]);
	mark = run->out->len;
	for (uint32_t i = 0; i < items.n; i++) {
		item = items.item[i];
		if (self.flags & VALUE_MARKUP)
			item = py_markup(run, item);
		if (!is_text(item))
			run_fail(run, "TypeError: sequence item %u: expected str instance, "
				      "%s found", i, type_name(item));
		if (i)
			out_slice(run, value_slice(self));
		out_slice(run, value_slice(item));
	}
	return out_capture(run, mark, self.flags);
}

/* isalpha and its like: every character has one of the bits, and there is one. */
static bool
all_have(struct slice s, unsigned bits)
{
	const char *end = s.p + s.len;
	unsigned n;

	for (const char *p = s.p; p < end; p += n)
		if (!(py_bits(py_decode(p, end, &n)) & bits))
			return false;
	return s.len > 0;
}

static bool
is_cased_as(struct slice s, unsigned want, unsigned not_want)
{
	const char *end = s.p + s.len;
	bool any = false;
	unsigned n;

	for (const char *p = s.p; p < end; p += n) {
		unsigned bits = py_bits(py_decode(p, end, &n));

		if (bits & not_want)
			return false;
		any = any || (bits & want);
	}
	return any;
}

static bool
is_title(struct slice s)
{
	const char *end = s.p + s.len;
	bool any = false, in_word = false;
	unsigned n;

	for (const char *p = s.p; p < end; p += n) {
		unsigned bits = py_bits(py_decode(p, end, &n));

		if (bits & (PY_UPPER | PY_TITLE)) {
			if (in_word)
				return false;
			in_word = any = true;
		} else if (bits & PY_LOWER) {
			if (!in_word)
				return false;
		} else {
			in_word = false;
		}
	}
	return any;
}

static bool
is_identifier(struct slice s)
{
	const char *end = s.p + s.len;
	unsigned n;

	if (s.len == 0 || !(py_bits(py_decode(s.p, end, &n)) & PY_XID_START))
		return false;
	return all_have(s, PY_XID_CONTINUE);
}

static struct value
is_what(struct run *run, struct slice s, unsigned id, const struct args *args)
{
	struct value a[ARGS_MAX];

	args_bind(run, method_name(id), "", args, a);
	switch (id) {
	case METHOD_isalnum:
		return value_bool(all_have(s, PY_ALPHA | PY_DECIMAL | PY_DIGIT | PY_NUMERIC));
	case METHOD_isalpha:
		return value_bool(all_have(s, PY_ALPHA));
	case METHOD_isdecimal:
		return value_bool(all_have(s, PY_DECIMAL));
	case METHOD_isdigit:
		return value_bool(all_have(s, PY_DIGIT));
	case METHOD_isnumeric:
		return value_bool(all_have(s, PY_NUMERIC));
	case METHOD_isspace:
		return value_bool(all_have(s, PY_SPACE));
	case METHOD_isprintable:
		return value_bool(s.len == 0 || all_have(s, PY_PRINTABLE));
	case METHOD_islower:
		return value_bool(is_cased_as(s, PY_LOWER, PY_UPPER | PY_TITLE));
	case METHOD_isupper:
		return value_bool(is_cased_as(s, PY_UPPER, PY_LOWER | PY_TITLE));
	case METHOD_istitle:
		return value_bool(is_title(s));
	case METHOD_isidentifier:
		return value_bool(is_identifier(s));
	default:
		return value_bool(py_length(s) == s.len);       /* isascii */
	}
}

static struct value
replace(struct run *run, struct value self, const struct args *args)
{
	struct value a[ARGS_MAX];
	struct slice from, to;

	args_bind(run, "replace", "-,-|-", args, a);
	escape_args(run, self, a);
	from = text_arg(run, "replace", a[0]);
	to = text_arg(run, "replace", a[1]);
	return py_replace(run, value_slice(self), from, to, given(a[2]) ? arg_int(run, a[2]) : -1,
			  self.flags);
}

static struct value
remove_affix(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct slice s = value_slice(self), what;
	struct value a[ARGS_MAX];

	args_bind(run, method_name(id), "-", args, a);
	escape_args(run, self, a);
	what = text_arg(run, method_name(id), a[0]);
	if (what.len == 0 || !affix(s, what, id == METHOD_removesuffix))
		return self;
	if (id == METHOD_removeprefix)
		s.p += what.len;
	s.len -= what.len;
	return value_text(s, self.flags);
}

struct value
str_method(struct run *run, struct value self, unsigned id, const struct args *args)
{
	struct value a[ARGS_MAX];
	struct value_items lines;

	switch (id) {
	case METHOD_capitalize:
	case METHOD_lower:
	case METHOD_swapcase:
	case METHOD_title:
	case METHOD_upper:
		args_bind(run, method_name(id), "", args, a);
		return py_case(run, self, method_name(id));
	case METHOD_casefold:
		args_bind(run, "casefold", "", args, a);
		self.flags = 0;
		return py_case(run, self, "casefold");
	case METHOD_strip:
	case METHOD_lstrip:
	case METHOD_rstrip:
		return strip(run, self, id, args);
	case METHOD_split:
	case METHOD_rsplit:
		return split(run, self, id, args);
	case METHOD_splitlines:
		args_bind(run, "splitlines", "|keepends", args, a);
		lines = py_splitlines(run, self, given(a[0]) && run_true(run, a[0]));
		return value_list_of(&lines);
	case METHOD_partition:
	case METHOD_rpartition:
		return partition(run, self, id, args);
	case METHOD_startswith:
	case METHOD_endswith:
		return starts_or_ends(run, self, id, args);
	case METHOD_find:
	case METHOD_rfind:
	case METHOD_index:
	case METHOD_rindex:
	case METHOD_count:
		return find(run, self, id, args);
	case METHOD_replace:
		return replace(run, self, args);
	case METHOD_removeprefix:
	case METHOD_removesuffix:
		return remove_affix(run, self, id, args);
	case METHOD_join:
		return join(run, self, args);
	case METHOD_center:
	case METHOD_ljust:
	case METHOD_rjust:
	case METHOD_zfill:
		return justify(run, self, id, args);
	case METHOD_expandtabs:
		return expand_tabs(run, self, args);
	case METHOD_format:
		return py_format(run, self, args, value_none());
	case METHOD_format_map:
		args_bind(run, "format_map", "-", args, a);
		return py_format(run, self, &(struct args){0}, a[0]);
	case METHOD_encode:
	case METHOD_maketrans:
	case METHOD_translate:
		run_fail(run, "unsupported: the method str.%s", method_name(id));
	default:
		return is_what(run, value_slice(self), id, args);
	}
}
