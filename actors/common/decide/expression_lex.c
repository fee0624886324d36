/* actors/common/decide/expression_lex.c -- an expression's text as tokens; literals as values. */
#include "actors/common/decide/expression_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "proto/json.h"
#include "proto/utf8.h"

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int
hex(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int
expression_fail(struct expression_source *s, uint32_t offset, struct slice found,
		const char *nearest, const char *expected, ...)
{
	struct expression_error *e = s->error;
	size_t max = sizeof e->found - 6, len = found.len < max ? found.len : max;
	/* a text has quotes already */
	const char *quote = found.p && strchr("'\"", found.p[0]) && found.p[0] ? "" : "'";
	va_list args;

	if (e->expected[0])
		return -EINVAL;
	while (len < found.len && len > 0 && (found.p[len] & 0xc0) == 0x80)
		len--;                  /* not in the middle of a character */
	e->offset = offset;
	if (!found.p)
		snprintf(e->found, sizeof e->found, "the end");
	else
		snprintf(e->found, sizeof e->found, "%s%.*s%s%s", quote, (int)len, found.p,
			 len < found.len ? "..." : "", quote);
	snprintf(e->nearest, sizeof e->nearest, "%s", nearest ? nearest : "");
	va_start(args, expected);
	vsnprintf(e->expected, sizeof e->expected, expected, args);
	va_end(args);
	return -EINVAL;
}

static char
at(const struct expression_source *s, uint32_t ahead)
{
	return s->at + ahead < s->text.len ? s->text.p[s->at + ahead] : '\0';
}

static struct slice
rest(const struct expression_source *s, uint32_t from, size_t max)
{
	size_t n = s->text.len - from;

	return slice_of(s->text.p + from, n < max ? n : max);
}

static void
put_utf8(struct expression_source *s, uint32_t c)
{
	char *p = s->strings + s->n_strings;

	if (c < 0x80) {
		*p++ = (char)c;
	} else if (c < 0x800) {
		*p++ = (char)(0xc0 | c >> 6);
		*p++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*p++ = (char)(0xe0 | c >> 12);
		*p++ = (char)(0x80 | (c >> 6 & 0x3f));
		*p++ = (char)(0x80 | (c & 0x3f));
	} else {
		*p++ = (char)(0xf0 | c >> 18);
		*p++ = (char)(0x80 | (c >> 12 & 0x3f));
		*p++ = (char)(0x80 | (c >> 6 & 0x3f));
		*p++ = (char)(0x80 | (c & 0x3f));
	}
	s->n_strings = (size_t)(p - s->strings);
}

/* Behind a backslash.  What is written is never longer than what is read. */
static int
escape(struct expression_source *s)
{
	static const char from[] = "abfnrtv\\?\"'`", to[] = "\a\b\f\n\r\t\v\\?\"'`";
	uint32_t start = s->at - 1, c = 0;
	char kind = at(s, 0);
	const char *simple = kind ? strchr(from, kind) : NULL;
	unsigned digits = kind == 'x' || kind == 'X' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;

	if (simple) {
		s->at++;
		put_utf8(s, (uint32_t)to[simple - from]);
		return 0;
	}
	if (kind >= '0' && kind <= '3') {
		for (unsigned i = 0; i < 3; i++) {
			if (at(s, i) < '0' || at(s, i) > '7')
				return expression_fail(s, start, rest(s, start, 4), NULL,
						       "three octal digits");
			c = c * 8 + (uint32_t)(at(s, i) - '0');
		}
		s->at += 3;
		put_utf8(s, c);
		return 0;
	}
	if (digits == 0)
		return expression_fail(s, start, rest(s, start, 2), NULL,
				       "an escape (\\n, \\t, \\\\, \\', \\xHH, \\uHHHH), or r'...' "
				       "for a text without escapes");
	for (unsigned i = 1; i <= digits; i++) {
		int h = hex(at(s, i));

		if (h < 0)
			return expression_fail(s, start, rest(s, start, digits + 2), NULL,
					       "%u hexadecimal digits", digits);
		c = c << 4 | (uint32_t)h;
	}
	if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return expression_fail(s, start, rest(s, start, digits + 2), NULL,
				       "a character of Unicode");
	s->at += 1 + digits;
	put_utf8(s, c);
	return 0;
}

static int
string(struct expression_source *s, bool raw)
{
	char quote = at(s, 0);
	bool three = at(s, 1) == quote && at(s, 2) == quote;
	size_t begin = s->n_strings;
	int r = 0;

	s->at += three ? 3 : 1;
	while (r == 0) {
		char c = at(s, 0);
		unsigned n;

		if (s->at == s->text.len || (!three && (c == '\n' || c == '\r')))
			return expression_fail(s, s->at, s->at == s->text.len ?
					       (struct slice){0} : SLICE_LIT("end of line"), NULL,
					       "the end of the text that began at offset %u",
					       s->token.offset);
		if (c == quote && (!three || (at(s, 1) == quote && at(s, 2) == quote)))
			break;
		if (c == '\\' && !raw) {
			s->at++;
			r = escape(s);
			continue;
		}
		n = (unsigned)utf8_len(s->text.p + s->at, s->text.len - s->at);
		if (n == 0)
			return expression_fail(s, s->at, SLICE_LIT("a stray byte"), NULL, "UTF-8");
		memcpy(s->strings + s->n_strings, s->text.p + s->at, n);
		s->n_strings += n;
		s->at += n;
	}
	if (r < 0)
		return r;
	s->at += three ? 3 : 1;
	s->token.type = TOKEN_LITERAL;
	s->token.value.type = TYPE_STRING;
	s->token.value.s = slice_of(s->strings + begin, s->n_strings - begin);
	s->strings[s->n_strings++] = '\0';
	return 0;
}

/* A sign is an operator; the least int is made where that is read. */
static int
number(struct expression_source *s)
{
	uint32_t start = s->at, end = s->at, base = 10;
	uint64_t u = 0;
	bool real = false, over = false;

	if (at(s, 0) == '0' && at(s, 1) == 'x') {
		base = 16;
		end += 2;
		if (hex(at(s, 2)) < 0)
			return expression_fail(s, start, rest(s, start, 3), NULL,
					       "hexadecimal digits");
	}
	for (int h; end < s->text.len; end++) {
		h = base == 16 ? hex(s->text.p[end]) :
			is_digit(s->text.p[end]) ? s->text.p[end] - '0' : -1;
		if (h < 0)
			break;
		over |= __builtin_mul_overflow(u, (uint64_t)base, &u);
		over |= __builtin_add_overflow(u, (uint64_t)h, &u);
	}
	if (base == 10 && end + 1 < s->text.len && s->text.p[end] == '.' &&
	    is_digit(s->text.p[end + 1])) {
		real = true;
		for (end++; end < s->text.len && is_digit(s->text.p[end]); end++)
			;
	}
	if (base == 10 && end < s->text.len && (s->text.p[end] | 0x20) == 'e') {
		uint32_t e = end + 1;

		if (e < s->text.len && (s->text.p[e] == '+' || s->text.p[e] == '-'))
			e++;
		if (e < s->text.len && is_digit(s->text.p[e])) {
			real = true;
			for (end = e; end < s->text.len && is_digit(s->text.p[end]); end++)
				;
		}
	}
	s->token.type = TOKEN_LITERAL;
	if (real) {
		double d;

		if (json_to_double(rest(s, start, end - start), &d) < 0)
			return expression_fail(s, start, rest(s, start, end - start), NULL,
					       "a double");
		s->token.value = (struct expression_value){.type = TYPE_DOUBLE, .d = d};
	} else if (end < s->text.len && (s->text.p[end] | 0x20) == 'u') {
		end++;
		s->token.value = (struct expression_value){.type = TYPE_UINT, .u = u};
	} else {
		s->token.value = (struct expression_value){.type = TYPE_INT, .u = u};
	}
	if (end < s->text.len && (is_name_start(s->text.p[end]) || is_digit(s->text.p[end]))) {
		uint32_t stop = end;

		while (stop < s->text.len &&
		       (is_name_start(s->text.p[stop]) || is_digit(s->text.p[stop])))
			stop++;
		return expression_fail(s, start, rest(s, start, stop - start), NULL,
				       "a number; a text is in quotes, a time duration('2s'), an "
				       "amount quantity('64k')");
	}
	if (over && !real)
		return expression_fail(s, start, rest(s, start, end - start), NULL,
				       "a number of at most 64 bits");
	s->at = end;
	return 0;
}

static void
skip_blanks(struct expression_source *s)
{
	for (;;) {
		char c = at(s, 0);

		if (s->at < s->text.len && (c == ' ' || c == '\t' || c == '\n' || c == '\r' ||
					    c == '\f')) {
			s->at++;
		} else if (c == '/' && at(s, 1) == '/') {
			while (s->at < s->text.len && at(s, 0) != '\n')
				s->at++;
		} else {
			return;
		}
	}
}

static int
mark(struct expression_source *s)
{
	static const char two[][3] = {"&&", "||", "==", "!=", "<=", ">="};
	char c = at(s, 0), next = at(s, 1);
	unsigned n = 0;

	for (unsigned i = 0; i < sizeof two / sizeof *two; i++)
		if (c == two[i][0] && next == two[i][1])
			n = 2;
	if (n == 0 && c && strchr("!<>+-*/%?:.,()[]", c))
		n = 1;
	if (n == 0) {
		const char *meant = c == '&' ? "&&" : c == '|' ? "||" : c == '=' ? "==" : NULL;
		size_t len = utf8_len(s->text.p + s->at, s->text.len - s->at);

		if (c == '{' || c == '}')
			return expression_fail(s, s->at, rest(s, s->at, 1), NULL,
					       "no map: the subset of CEL that is read here has "
					       "none");
		return expression_fail(s, s->at, len && (unsigned char)c >= ' ' ?
				       rest(s, s->at, len) : SLICE_LIT("a stray byte"), meant,
				       "a name, a value or an operator");
	}
	s->token.type = TOKEN_MARK;
	memcpy(s->token.mark, s->text.p + s->at, n);
	s->at += n;
	return 0;
}

int
expression_lex(struct expression_source *s)
{
	char c, quote;
	bool raw;
	int r;

	skip_blanks(s);
	s->token = (struct expression_token){.offset = s->at};
	if (s->at == s->text.len)
		return 0;
	c = at(s, 0);
	raw = c == 'r' || c == 'R';
	quote = raw ? at(s, 1) : c;
	if (quote == '"' || quote == '\'') {
		s->at += raw;
		r = string(s, raw);
	} else if ((c == 'b' || c == 'B') && (at(s, 1) == '"' || at(s, 1) == '\'')) {
		r = expression_fail(s, s->at, rest(s, s->at, 2), NULL,
				    "no bytes: the subset of CEL that is read here has none");
	} else if (is_digit(c) || (c == '.' && is_digit(at(s, 1)))) {
		r = number(s);
	} else if (is_name_start(c)) {
		while (is_name_start(at(s, 0)) || is_digit(at(s, 0)))
			s->at++;
		s->token.type = TOKEN_NAME;
		if (s->at - s->token.offset == 2 &&
		    memcmp(s->text.p + s->token.offset, "in", 2) == 0) {
			s->token.type = TOKEN_MARK;
			memcpy(s->token.mark, "in", 3);
		}
		r = 0;
	} else {
		r = mark(s);
	}
	s->token.len = s->at - s->token.offset;
	return r;
}

/* ---- texts that stand for amounts ---- */

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit times[] = {
	{"ns", 1}, {"us", 1000}, {"\xc2\xb5s", 1000}, {"\xce\xbcs", 1000}, {"ms", 1000000},
	{"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000},
};
static const struct unit amounts[] = {
	{"", 1}, {"k", 1000}, {"M", 1000000}, {"G", 1000000000}, {"T", 1000000000000},
	{"Ki", 1ull << 10}, {"Mi", 1ull << 20}, {"Gi", 1ull << 30}, {"Ti", 1ull << 40},
};

/* "1.5ms" at *p, times its unit, cut to a whole number; *p then is behind it. */
static bool
amount(const char **p, const char *end, const struct unit *unit, size_t n_units, bool whole,
       uint64_t *ret)
{
	uint64_t n = 0, part = 0, scale = 1, sum;
	const struct unit *found = NULL;
	const char *at = *p, *digits = at;
	bool any = false;

	for (; at < end && is_digit(*at); at++, any = true)
		if (__builtin_mul_overflow(n, 10ull, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*at - '0'), &n))
			return false;
	if (at < end && *at == '.')
		for (at++; at < end && is_digit(*at); at++, any = true)
			if (scale < 100000000000000ull) {
				part = part * 10 + (uint64_t)(*at - '0');
				scale *= 10;
			}
	if (!any || at == digits)
		return false;
	for (size_t i = 0; i < n_units; i++) {
		size_t len = strlen(unit[i].name);

		/* the longest that fits: "ms" rather than "m" */
		if ((size_t)(end - at) >= len && memcmp(at, unit[i].name, len) == 0 &&
		    (!found || len > strlen(found->name)))
			found = &unit[i];
	}
	if (!found || __builtin_mul_overflow(n, found->factor, &sum))
		return false;
	unsigned __int128 fraction = (unsigned __int128)part * found->factor;

	if (whole && fraction % scale != 0)
		return false;
	if (__builtin_add_overflow(sum, (uint64_t)(fraction / scale), &sum))
		return false;
	*p = at + strlen(found->name);
	*ret = sum;
	return true;
}

bool
expression_duration(struct slice text, int64_t *ret_ns)
{
	const char *p = text.p, *end = text.p + text.len;
	bool minus = p < end && *p == '-';
	uint64_t sum = 0, one;

	if (p < end && (*p == '-' || *p == '+'))
		p++;
	if (end - p == 1 && *p == '0') {
		*ret_ns = 0;
		return true;
	}
	do {
		if (!amount(&p, end, times, sizeof times / sizeof *times, false, &one) ||
		    __builtin_add_overflow(sum, one, &sum) || sum > INT64_MAX)
			return false;
	} while (p < end);
	*ret_ns = minus ? -(int64_t)sum : (int64_t)sum;
	return true;
}

bool
expression_quantity(struct slice text, int64_t *ret)
{
	const char *p = text.p, *end = text.p + text.len;
	bool minus = p < end && *p == '-';
	uint64_t n;

	p += minus;
	if (!amount(&p, end, amounts, sizeof amounts / sizeof *amounts, true, &n) || p != end ||
	    n > INT64_MAX)
		return false;
	*ret = minus ? -(int64_t)n : (int64_t)n;
	return true;
}
