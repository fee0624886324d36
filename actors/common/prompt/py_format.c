/* actors/common/prompt/py_format.c -- "…" % args, "…".format(…) and format specifications. */
#include "actors/common/prompt/jinja_private.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "actors/common/prompt/py_unicode.h"

#define DIGITS_MAX 500                  /* of precision: more than any double has */

struct spec {
	struct slice fill;
	char align, sign, type, group;          /* 0: not given */
	bool alt, zero;
	int64_t width, precision;               /* -1: not given */
};

static void
pad(struct run *run, int64_t n, struct slice with)
{
	run_steps(run, n > 0 ? (uint64_t)n / 8 : 0);
	for (; n > 0; n--)
		out_slice(run, with);
}

/* What is written between prefix and body when zeros fill the width. */
static void
out_padded(struct run *run, const struct spec *s, struct slice prefix, struct slice body,
	   char align)
{
	struct slice fill = s->fill.p ? s->fill : s->zero ? SLICE_LIT("0") : SLICE_LIT(" ");
	int64_t more = s->width - (int64_t)py_length(prefix) - (int64_t)py_length(body), left;

	if (s->align)
		align = s->align;
	else if (s->zero)
		align = '=';
	left = more <= 0 || align == '<' || align == '='
		       ? 0
		       : align == '^' ? more / 2 : more;
	pad(run, left, fill);
	out_slice(run, prefix);
	if (align == '=') {
		pad(run, more, fill);
		more = 0;
	}
	out_slice(run, body);
	pad(run, more - left, fill);
}

/* Puts a separator between groups of digits of the whole part. */
static size_t
group_digits(const char *in, size_t len, char group, unsigned every, char *out)
{
	size_t whole = strspn(in, "0123456789abcdefABCDEF"), n = 0;

	if (every == 3)
		whole = strspn(in, "0123456789");
	for (size_t i = 0; i < len; i++) {
		if (i && i < whole && (whole - i) % every == 0)
			out[n++] = group;
		out[n++] = in[i];
	}
	out[n] = 0;
	return n;
}

static char
sign_of(const struct spec *s, bool negative)
{
	return negative ? '-' : s->sign == '+' || s->sign == ' ' ? s->sign : 0;
}

static void
out_number(struct run *run, const struct spec *s, bool negative, const char *prefix,
	   const char *digits)
{
	char head[8], grouped[2 * (DIGITS_MAX + 400)];
	size_t n = 0, len = strlen(digits);
	struct slice body = slice_of(digits, len);

	if (sign_of(s, negative))
		head[n++] = sign_of(s, negative);
	n += (size_t)snprintf(head + n, sizeof(head) - n, "%s", prefix);
	if (s->group) {
		unsigned every = s->type && strchr("xXob", s->type) ? 4 : 3;

		if (s->zero && !s->align)
			run_fail(run, "unsupported: zero padding with separators");
		body = slice_of(grouped, group_digits(digits, len, s->group, every, grouped));
	}
	out_padded(run, s, slice_of(head, n), body, '>');
}

static void
out_int(struct run *run, const struct spec *s, struct value v)
{
	bool negative = v.kind == VALUE_BIG ? v.s[0] == '-' : v.i < 0;
	uint64_t u = negative ? -(uint64_t)v.i : (uint64_t)v.i;
	char buf[DIGITS_MAX], type = s->type ? s->type : 'd';
	const char *prefix = "";
	size_t n = sizeof(buf) - 1;
	unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;

	if (v.kind == VALUE_BIG && (base != 10 || v.n >= sizeof(buf)))
		run_fail(run, "unsupported: integers beyond 64 bits formatted so");
	if (v.kind == VALUE_BIG) {
		(void)snprintf(buf, sizeof(buf), "%.*s", (int)(v.n - negative), v.s + negative);
		out_number(run, s, negative, prefix, buf);
		return;
	}
	buf[n] = 0;
	do {
		buf[--n] = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
		u /= base;
	} while (u);
	if (s->alt && base != 10)
		prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : "0b";
	out_number(run, s, negative, prefix, buf + n);
}

/* Python's own form of a float with at most `precision` digits, and one behind the point. */
static void
general(double f, int precision, char *buf, size_t size)
{
	char *e;

	(void)snprintf(buf, size, "%.*e", precision - 1, f);
	e = strchr(buf, 'e');
	if (e && (atoi(e + 1) < -4 || atoi(e + 1) >= precision)) {
		(void)snprintf(buf, size, "%.*g", precision, f);
		return;
	}
	(void)snprintf(buf, size, "%.*g", precision, f);
	if (!strpbrk(buf, ".en"))
		(void)strncat(buf, ".0", size - strlen(buf) - 1);
}

static void
out_float(struct run *run, const struct spec *s, double f)
{
	char buf[DIGITS_MAX + 400], fmt[16], own[32], type = s->type;
	bool negative = signbit(f) != 0 && !isnan(f);
	int precision = s->precision < 0 ? 6 : (int)s->precision;

	if (s->precision > DIGITS_MAX)
		run_fail(run, "unsupported: a precision of more than %d", DIGITS_MAX);
	f = fabs(f);
	if (!isfinite(f)) {
		bool upper = type && isupper((unsigned char)type);

		(void)snprintf(buf, sizeof(buf), "%s%s",
			       isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"),
			       type == '%' ? "%" : "");
	} else if (!type && s->precision < 0) {
		struct slice text = py_float_text(f, own);

		(void)snprintf(buf, sizeof(buf), "%.*s", (int)text.len, text.p);
	} else if (!type) {
		general(f, precision ? precision : 1, buf, sizeof(buf));
	} else if (type == '%') {
		(void)snprintf(buf, sizeof(buf), "%.*f%%", precision, f * 100);
	} else {
		(void)snprintf(fmt, sizeof(fmt), "%%%s.*%c", s->alt ? "#" : "",
			       type == 'n' ? 'g' : type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		(void)snprintf(buf, sizeof(buf), fmt, precision, f);
#pragma GCC diagnostic pop
	}
	out_number(run, s, negative, "", buf);
}

static void
out_str(struct run *run, const struct spec *s, struct slice text)
{
	if (s->precision >= 0)
		text.len = py_offset(text, (size_t)s->precision);
	out_padded(run, s, SLICE_LIT(""), text, '<');
}

static int64_t
read_number(struct run *run, const char **p, const char *end)
{
	int64_t n = 0;

	while (*p < end && isdigit((unsigned char)**p)) {
		n = n * 10 + (*(*p)++ - '0');
		if (n > INT32_MAX)
			run_fail(run, "ValueError: Too many decimal digits in format string");
	}
	return n;
}

static bool
is_align(char c)
{
	return c == '<' || c == '>' || c == '=' || c == '^';
}

static struct spec
parse_spec(struct run *run, struct slice in)
{
	struct spec s = {.width = -1, .precision = -1};
	const char *p = in.p, *end = in.p + in.len;
	unsigned n = 0;

	if (p < end)
		(void)py_decode(p, end, &n);
	if (n && p + n < end && is_align(p[n])) {
		s.fill = slice_of(p, n);
		s.align = p[n];
		p += n + 1;
	} else if (p < end && is_align(*p)) {
		s.align = *p++;
	}
	if (p < end && (*p == '+' || *p == '-' || *p == ' '))
		s.sign = *p++;
	if (p < end && *p == '#') {
		s.alt = true;
		p++;
	}
	if (p < end && *p == '0') {
		s.zero = true;
		p++;
	}
	if (p < end && isdigit((unsigned char)*p))
		s.width = read_number(run, &p, end);
	if (p < end && (*p == ',' || *p == '_'))
		s.group = *p++;
	if (p < end && *p == '.') {
		p++;
		if (p == end || !isdigit((unsigned char)*p))
			run_fail(run, "ValueError: Format specifier missing precision");
		s.precision = read_number(run, &p, end);
	}
	if (p < end)
		s.type = *p++;
	if (p < end)
		run_fail(run, "ValueError: Invalid format specifier");
	return s;
}

void
py_format_spec(struct run *run, struct value v, struct slice in)
{
	struct spec s;

	if (in.len == 0) {
		py_str(run, v);
		return;
	}
	if (is_text(v)) {
		s = parse_spec(run, in);
		if ((s.type && s.type != 's') || s.sign || s.alt || s.group || s.align == '=')
			run_fail(run, "ValueError: format specifier not allowed for 'str'");
		if (s.zero && !s.align)
			s.align = '<';
		out_str(run, &s, value_slice(v));
		return;
	}
	if (!is_int(v) && v.kind != VALUE_BIG && v.kind != VALUE_FLOAT)
		run_fail(run, "TypeError: unsupported format string passed to %s.__format__",
			 type_name(v));
	s = parse_spec(run, in);
	if (v.kind != VALUE_FLOAT && (!s.type || strchr("bdoxXn", s.type))) {
		if (s.precision >= 0)
			run_fail(run, "ValueError: Precision not allowed in integer format "
				      "specifier");
		if (s.type == 'n')
			s.type = 'd';
		out_int(run, &s, v);
		return;
	}
	if (v.kind != VALUE_FLOAT && s.type == 'c') {
		char buf[4];

		if (!is_int(v) || v.i < 0 || v.i > 0x10ffff)
			run_fail(run, "OverflowError: %%c arg not in range(0x110000)");
		out_padded(run, &s, SLICE_LIT(""),
			   slice_of(buf, py_encode((uint32_t)v.i, buf)), '<');
		return;
	}
	if (s.type && !strchr("eEfFgGn%", s.type))
		run_fail(run, "ValueError: Unknown format code '%c' for object of type '%s'",
			 s.type, type_name(v));
	if (v.kind != VALUE_FLOAT) {
		bool ok;

		v = py_float_of(run, v, &ok);
	}
	out_float(run, &s, v.f);
}

/* "%…": where its arguments come from. */
struct percent {
	struct value args;
	uint32_t next;
	bool escape;                            /* of a Markup: texts are escaped */
};

static struct value
next_arg(struct run *run, struct percent *p)
{
	if (p->args.kind == VALUE_TUPLE && p->next < p->args.n)
		return p->args.items[p->next++];
	if (p->args.kind != VALUE_TUPLE && p->next++ == 0)
		return p->args;
	run_fail(run, "TypeError: not enough arguments for format string");
}

static void
percent_text(struct run *run, const struct percent *p, const struct spec *s, struct value v,
	     char type)
{
	size_t mark = run->out->len;
	struct value text;

	if (type == 's')
		py_str(run, v);
	else
		py_repr(run, v);
	text = out_capture(run, mark, v.flags);
	if (p->escape && (type != 's' || !is_text(v) || !v.flags)) {
		text.flags = 0;
		text = py_markup(run, text);
	}
	out_str(run, s, value_slice(text));
}

/* "%.5d": at least so many digits. */
static void
percent_digits(struct run *run, struct spec *s, struct value v)
{
	struct spec bare = {.width = -1, .precision = -1, .type = s->type};
	bool negative = v.kind == VALUE_BIG ? v.s[0] == '-' : v.i < 0;
	size_t mark = run->out->len;
	struct value digits;
	char buf[2 * DIGITS_MAX];

	out_int(run, &bare, v);
	digits = out_capture(run, mark, 0);
	digits.s += negative;
	digits.n -= negative;
	if (s->precision > DIGITS_MAX || digits.n > DIGITS_MAX)
		run_fail(run, "unsupported: a precision of more than %d", DIGITS_MAX);
	pad(run, s->precision - digits.n, SLICE_LIT("0"));
	out_slice(run, value_slice(digits));
	digits = out_capture(run, mark, 0);
	(void)snprintf(buf, sizeof(buf), "%.*s", (int)digits.n, digits.s);
	out_number(run, s, negative,
		   !s->alt          ? ""
		   : s->type == 'x' ? "0x"
		   : s->type == 'X' ? "0X"
		   : s->type == 'o' ? "0o"
				    : "",
		   buf);
}

static void
percent_int(struct run *run, struct spec *s, struct value v, char type)
{
	struct value from = v;
	bool ok = is_int(v) || v.kind == VALUE_BIG;

	if (!ok && v.kind == VALUE_FLOAT && (type == 'd' || type == 'i' || type == 'u'))
		v = py_int_of(run, v, 10, &ok);
	if (!ok)
		run_fail(run, "TypeError: %%%c format: a number is required, not %s", type,
			 type_name(from));
	s->type = type == 'i' || type == 'u' ? 'd' : type;
	if (s->precision > 0) {
		percent_digits(run, s, v);
		return;
	}
	s->precision = -1;
	out_int(run, s, v);
}

static void
percent_one(struct run *run, struct percent *p, struct spec *s, struct value v, char type)
{
	char buf[4];
	bool ok;

	switch (type) {
	case 's':
	case 'r':
	case 'a':
		s->zero = false;
		percent_text(run, p, s, v, type);
		return;
	case 'd': case 'i': case 'u': case 'x': case 'X': case 'o':
		percent_int(run, s, v, type);
		return;
	case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
		ok = v.kind == VALUE_FLOAT || is_int(v) || v.kind == VALUE_BIG;
		if (!ok)
			run_fail(run, "TypeError: must be real number, not %s", type_name(v));
		s->type = type;
		out_float(run, s, py_float_of(run, v, &ok).f);
		return;
	case 'c':
		s->zero = false;
		if (is_text(v) && py_length(value_slice(v)) == 1) {
			out_str(run, s, value_slice(v));
			return;
		}
		if (!is_int(v))
			run_fail(run, "TypeError: %%c requires int or char");
		if (v.i < 0 || v.i > 0x10ffff)
			run_fail(run, "OverflowError: %%c arg not in range(0x110000)");
		out_str(run, s, slice_of(buf, py_encode((uint32_t)v.i, buf)));
		return;
	default:
		run_fail(run, "ValueError: unsupported format character '%c'", type);
	}
}

/* Behind "%": (key), flags, width, precision, type.  Returns where it ends. */
static const char *
percent_spec(struct run *run, struct percent *p, const char *at, const char *end)
{
	struct spec s = {.width = -1, .precision = -1};
	struct value v = value_undefined();
	bool keyed = false;

	if (at < end && *at == '(') {
		const char *from = ++at;
		const struct value *found;
		unsigned depth = 1;

		for (; at < end; at++) {
			depth += *at == '(';
			depth -= *at == ')';
			if (depth == 0)
				break;
		}
		if (at == end)
			run_fail(run, "ValueError: incomplete format key");
		if (p->args.kind != VALUE_DICT)
			run_fail(run, "TypeError: format requires a mapping");
		found = value_get_str(p->args.dict, slice_of(from, (size_t)(at - from)));
		if (!found)
			run_fail(run, "KeyError: '%.*s'", (int)(at - from), from);
		v = *found;
		keyed = true;
		at++;
	}
	for (; at < end && strchr("-+ #0", *at) && *at; at++) {
		if (*at == '-')
			s.align = '<';
		else if (*at == '#')
			s.alt = true;
		else if (*at == '0')
			s.zero = true;
		else if (s.sign != '+')
			s.sign = *at;
	}
	if (s.align)
		s.zero = false;
	if (at < end && *at == '*') {
		s.width = arg_int(run, next_arg(run, p));
		if (s.width < 0) {
			s.align = '<';
			s.width = -s.width;
		}
		at++;
	} else if (at < end && isdigit((unsigned char)*at)) {
		s.width = read_number(run, &at, end);
	}
	if (at < end && *at == '.') {
		at++;
		if (at < end && *at == '*') {
			s.precision = arg_int(run, next_arg(run, p));
			s.precision = s.precision < 0 ? 0 : s.precision;
			at++;
		} else {
			s.precision = read_number(run, &at, end);
		}
	}
	if (at < end && strchr("hlL", *at) && *at)
		at++;
	if (at == end)
		run_fail(run, "ValueError: incomplete format");
	if (*at == '%') {
		out_add(run, "%", 1);
		return at + 1;
	}
	if (!keyed)
		v = next_arg(run, p);
	if (!s.align && (*at == 's' || *at == 'r' || *at == 'a' || *at == 'c'))
		s.align = '>';
	percent_one(run, p, &s, v, *at);
	return at + 1;
}

struct value
py_percent(struct run *run, struct value format, struct value args)
{
	struct percent p = {args, 0, (format.flags & VALUE_MARKUP) != 0};
	const char *at = format.s, *end = format.s + format.n;
	size_t mark = run->out->len;
	bool mapping = args.kind == VALUE_DICT || args.kind == VALUE_LIST ||
		       args.kind == VALUE_UNDEFINED || args.kind == VALUE_RANGE;

	while (at < end) {
		const char *pct = memchr(at, '%', (size_t)(end - at));

		out_add(run, at, (size_t)((pct ? pct : end) - at));
		if (!pct)
			break;
		at = percent_spec(run, &p, pct + 1, end);
	}
	if (args.kind == VALUE_TUPLE ? p.next < args.n : p.next == 0 && !mapping)
		run_fail(run, "TypeError: not all arguments converted during string formatting");
	return out_capture(run, mark, format.flags);
}

/* "{…}": its arguments, and how they are counted. */
struct braces {
	const struct args *args;
	struct value mapping;                   /* of format_map, else none */
	int64_t auto_next;                      /* -1: numbers are given */
	bool escape;
};

static struct value
named_arg(struct run *run, struct braces *b, struct slice name)
{
	bool digits = name.len > 0;
	int64_t n = 0;

	for (size_t i = 0; i < name.len; i++) {
		digits = digits && isdigit((unsigned char)name.p[i]) && n < INT32_MAX;
		n = n * 10 + (digits ? name.p[i] - '0' : 0);
	}
	if (name.len == 0 || digits) {
		if (name.len == 0 ? b->auto_next < 0 : b->auto_next > 0)
			run_fail(run, "ValueError: cannot switch between manual field "
				      "specification and automatic field numbering");
		if (name.len == 0)
			n = b->auto_next++;
		else
			b->auto_next = -1;
		if (n >= b->args->n)
			run_fail(run, "IndexError: Replacement index %lld out of range for "
				      "positional args tuple", (long long)n);
		return b->args->pos[n];
	}
	for (uint32_t i = 0; i < b->args->n_kw; i++)
		if (slice_eq(b->args->kw[i].name, name))
			return b->args->kw[i].value;
	if (b->mapping.kind == VALUE_DICT) {
		const struct value *found = value_get_str(b->mapping.dict, name);

		if (found)
			return *found;
	}
	run_fail(run, "KeyError: '%.*s'", (int)name.len, name.p);
}

/* name.attribute[item]… */
static struct value
field_value(struct run *run, struct braces *b, struct slice field)
{
	size_t n = 0;
	struct value v;

	while (n < field.len && field.p[n] != '.' && field.p[n] != '[')
		n++;
	v = named_arg(run, b, slice_of(field.p, n));
	while (n < field.len) {
		size_t from = n + 1;

		if (field.p[n] == '.') {
			for (n = from; n < field.len && field.p[n] != '.' && field.p[n] != '[';)
				n++;
			if (n == from)
				run_fail(run, "ValueError: Empty attribute in format string");
			v = attr_get(run, v, slice_of(field.p + from, n - from),
				     method_find(slice_of(field.p + from, n - from)));
		} else if (field.p[n] == '[') {
			struct slice key;
			bool digits = true;
			int64_t i = 0;

			for (n = from; n < field.len && field.p[n] != ']';)
				n++;
			if (n == field.len)
				run_fail(run, "ValueError: Missing ']' in format string");
			key = slice_of(field.p + from, n - from);
			if (key.len == 0)
				run_fail(run, "ValueError: Empty attribute in format string");
			for (size_t k = 0; k < key.len; k++) {
				digits = digits && isdigit((unsigned char)key.p[k]) &&
					 i < INT32_MAX;
				i = i * 10 + (digits ? key.p[k] - '0' : 0);
			}
			v = item_get(run, v, digits ? value_int(i) : value_string(key));
			n++;
		} else {
			run_fail(run, "ValueError: Only '.' or '[' may follow ']' in format field "
				      "specifier");
		}
	}
	return v;
}

static void format_text(struct run *run, struct braces *b, struct slice text, unsigned depth);

/* What stands between { and }. */
static void
replacement(struct run *run, struct braces *b, struct slice in, unsigned depth)
{
	size_t n = 0, mark;
	struct slice field, spec = SLICE_LIT("");
	struct value v, text;
	char conversion = 0;
	unsigned brackets = 0;

	while (n < in.len && (brackets || (in.p[n] != '!' && in.p[n] != ':'))) {
		brackets += in.p[n] == '[';
		brackets -= in.p[n] == ']' && brackets;
		n++;
	}
	field = slice_of(in.p, n);
	if (n < in.len && in.p[n] == '!') {
		if (n + 1 == in.len)
			run_fail(run, "ValueError: end of string while looking for conversion "
				      "specifier");
		conversion = in.p[n + 1];
		n += 2;
		if (n < in.len && in.p[n] != ':')
			run_fail(run, "ValueError: expected ':' after conversion specifier");
	}
	if (n < in.len)
		spec = slice_of(in.p + n + 1, in.len - n - 1);
	v = field_value(run, b, field);
	mark = run->out->len;
	if (conversion == 'r' || conversion == 'a') {
		py_repr(run, v);
		v = out_capture(run, mark, 0);
	} else if (conversion == 's') {
		v = value_string(py_text(run, v));
	} else if (conversion) {
		run_fail(run, "ValueError: Unknown conversion specifier %c", conversion);
	}
	if (memchr(spec.p, '{', spec.len)) {
		format_text(run, b, spec, depth + 1);
		spec = value_slice(out_capture(run, mark, 0));
	}
	if (!b->escape) {
		py_format_spec(run, v, spec);
		return;
	}
	if (is_text(v) && v.flags) {
		if (spec.len)
			run_fail(run, "ValueError: Unsupported format specification for Markup.");
		out_slice(run, value_slice(v));
		return;
	}
	py_format_spec(run, v, spec);
	text = out_capture(run, mark, 0);
	py_escape(run, value_slice(text));
}

static void
format_text(struct run *run, struct braces *b, struct slice text, unsigned depth)
{
	const char *p = text.p, *end = text.p + text.len;

	if (depth > 2)
		run_fail(run, "ValueError: Max string recursion exceeded");
	while (p < end) {
		const char *from = p;
		unsigned nested = 1;

		while (p < end && *p != '{' && *p != '}')
			p++;
		out_add(run, from, (size_t)(p - from));
		if (p == end)
			return;
		if (p + 1 < end && p[1] == *p) {
			out_add(run, p, 1);
			p += 2;
			continue;
		}
		if (*p == '}' || p + 1 == end)
			run_fail(run, "ValueError: Single '%c' encountered in format string", *p);
		from = ++p;
		for (; p < end; p++) {
			nested += *p == '{';
			nested -= *p == '}';
			if (nested == 0)
				break;
		}
		if (p == end)
			run_fail(run, "ValueError: expected '}' before end of string");
		run_steps(run, 1);
		replacement(run, b, slice_of(from, (size_t)(p - from)), depth);
		p++;
	}
}

struct value
py_format(struct run *run, struct value format, const struct args *args, struct value mapping)
{
	struct braces b = {args, mapping, 0, (format.flags & VALUE_MARKUP) != 0};
	size_t mark = run->out->len;

	format_text(run, &b, value_slice(format), 0);
	return out_capture(run, mark, format.flags);
}
