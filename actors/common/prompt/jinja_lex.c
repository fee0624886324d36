/* actors/common/prompt/jinja_lex.c -- a template's text to tokens, by the rules of Jinja2's lexer:
 * trim_blocks and lstrip_blocks on, no line statements, the last newline dropped. */
#include "actors/common/prompt/jinja_private.h"

#include <stdio.h>
#include <stdlib.h>

#include "actors/common/prompt/py_unicode.h"

struct lexer {
	struct compile *c;
	const char *start, *p, *end;
	uint32_t line;
	bool line_starting;                     /* what was matched last ended a line */
	uint32_t cap;
};

static void
add(struct lexer *l, enum token_type type, uint32_t line, struct value value)
{
	struct compile *c = l->c;

	c->token = compile_grow(c, c->token, c->n_token, &l->cap, 512, sizeof(*c->token));
	c->token[c->n_token++] = (struct token){type, line, value};
}

static void
count_lines(struct lexer *l, const char *from, const char *to)
{
	while (from < to && (from = memchr(from, '\n', (size_t)(to - from)))) {
		l->line++;
		from++;
	}
}

static bool
at(const struct lexer *l, const char *what)
{
	size_t n = strlen(what);

	return (size_t)(l->end - l->p) >= n && memcmp(l->p, what, n) == 0;
}

static const char *
skip_space(const char *p, const char *end)
{
	unsigned n;

	while (p < end && py_is_space(py_decode(p, end, &n)))
		p += n;
	return p;
}

/* Moves behind what was matched, up to `to`. */
static void
pass(struct lexer *l, const char *to)
{
	count_lines(l, l->p, to);
	if (to > l->p)
		l->line_starting = to[-1] == '\n';
	l->p = to;
}

/* The text before a tag whose sign is '-', '+' or 0, as far as it stays. */
static struct slice
before_tag(const struct lexer *l, struct slice text, char sign, bool is_variable)
{
	const char *nl, *from;

	if (sign == '-')
		return py_strip(text, false, true);
	if (sign == '+' || is_variable)
		return text;
	nl = text.len ? memrchr(text.p, '\n', text.len) : NULL;
	from = nl ? nl + 1 : text.p;
	if ((nl || l->line_starting) &&
	    skip_space(from, text.p + text.len) == text.p + text.len)
		text.len = (size_t)(from - text.p);
	return text;
}

static void
add_data(struct lexer *l, struct slice text, uint32_t line)
{
	if (text.len)
		add(l, T_DATA, line, value_string(text));
}

/* Behind a tag's end: white space after '-', one newline after a plain one. */
static const char *
after_end(const struct lexer *l, const char *p, char sign, bool trim)
{
	if (sign == '-')
		return skip_space(p, l->end);
	if (sign == 0 && trim && p < l->end && *p == '\n')
		p++;
	return p;
}

static void
comment(struct lexer *l)
{
	uint32_t line = l->line;

	for (const char *p = l->p;; p++) {
		char sign;

		p = p < l->end ? memmem(p, (size_t)(l->end - p), "#}", 2) : NULL;
		if (!p)
			compile_fail(l->c, line, "Missing end of comment tag");
		sign = p > l->p && (p[-1] == '-' || p[-1] == '+') ? p[-1] : 0;
		pass(l, after_end(l, p + 2, sign, true));
		return;
	}
}

/* At "raw" behind "{%" and its sign: is it a raw tag?  Where its text begins, or NULL. */
static const char *
raw_begin(const struct lexer *l, const char *p)
{
	p = skip_space(p, l->end);
	if (l->end - p < 3 || memcmp(p, "raw", 3) != 0)
		return NULL;
	p = skip_space(p + 3, l->end);
	if (l->end - p >= 3 && memcmp(p, "-%}", 3) == 0)
		return skip_space(p + 3, l->end);
	return l->end - p >= 2 && memcmp(p, "%}", 2) == 0 ? p + 2 : NULL;
}

static void
raw(struct lexer *l)
{
	uint32_t line = l->line;

	for (const char *p = l->p;; p += 2) {
		const char *q;
		char sign = 0, end_sign = 0;

		p = p < l->end ? memmem(p, (size_t)(l->end - p), "{%", 2) : NULL;
		if (!p)
			compile_fail(l->c, line, "Missing end of raw directive");
		q = p + 2;
		if (q < l->end && (*q == '-' || *q == '+'))
			sign = *q++;
		q = skip_space(q, l->end);
		if (l->end - q < 6 || memcmp(q, "endraw", 6) != 0)
			continue;
		q = skip_space(q + 6, l->end);
		if (q < l->end && (*q == '-' || *q == '+'))
			end_sign = *q++;
		if (l->end - q < 2 || memcmp(q, "%}", 2) != 0)
			continue;
		add_data(l, before_tag(l, slice_of(l->p, (size_t)(p - l->p)), sign, false), line);
		pass(l, after_end(l, q + 2, end_sign, true));
		return;
	}
}

static int
digit_of(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : 99;
}

/* Digits of a base with single underscores between them. */
static const char *
digits(const char *p, const char *end, int base, bool may_lead)
{
	for (;; p++) {
		const char *q = p;

		if (may_lead && q < end && *q == '_')
			q++;
		if (q >= end || digit_of(*q) >= base)
			return p;
		p = q;
		may_lead = true;
	}
}

static const char *
float_end(const struct lexer *l)
{
	const char *p = digits(l->p, l->end, 10, false), *q, *exponent;

	if (p == l->p || (l->p > l->start && l->p[-1] == '.'))
		return NULL;
	q = p;
	if (q < l->end && *q == '.') {
		const char *fraction = digits(q + 1, l->end, 10, false);

		if (fraction > q + 1)
			q = fraction;
	}
	if (q < l->end && (*q == 'e' || *q == 'E')) {
		exponent = q + 1;
		if (exponent < l->end && (*exponent == '+' || *exponent == '-'))
			exponent++;
		if (digits(exponent, l->end, 10, false) > exponent)
			return digits(exponent, l->end, 10, false);
	}
	return q > p ? q : NULL;
}

/* The number's characters without underscores. */
static char *
plain_digits(struct lexer *l, const char *from, const char *to)
{
	char *text = compile_take(l->c, (size_t)(to - from) + 1), *out = text;

	for (; from < to; from++)
		if (*from != '_')
			*out++ = *from;
	*out = 0;
	return text;
}

static void
integer(struct lexer *l)
{
	const char *p = l->p, *to;
	char *text, *end;
	int base = 10;
	long long i;

	if (p[0] == '0' && p + 1 < l->end) {
		char x = (char)(p[1] | 0x20);

		base = x == 'b' ? 2 : x == 'o' ? 8 : x == 'x' ? 16 : 10;
		if (base != 10 && digits(p + 2, l->end, base, true) == p + 2)
			base = 10;
	}
	if (base != 10) {
		to = digits(p + 2, l->end, base, true);
		text = plain_digits(l, p + 2, to);
	} else if (*p == '0') {
		for (to = p + 1; to < l->end && (*to == '0' || (*to == '_' && to + 1 < l->end &&
								to[1] == '0'));)
			to++;
		text = plain_digits(l, to - 1, to);
	} else {
		to = digits(p, l->end, 10, false);
		text = plain_digits(l, p, to);
	}
	errno = 0;
	i = strtoll(text, &end, base);
	if (errno == ERANGE && base != 10)
		compile_fail(l->c, l->line, "integer too large");
	add(l, T_INT, l->line,
	    errno == ERANGE ? (struct value){.kind = VALUE_BIG, .n = (uint32_t)strlen(text),
					     .s = text}
			    : value_int(i));
	pass(l, to);
}

/* Python's escapes in a string, as Jinja2 reads them: text to ASCII first, then unescaped. */
static size_t
unescape(struct lexer *l, struct slice in, char *out)
{
	const char *p = in.p, *end = in.p + in.len;
	char *o = out;

	while (p < end) {
		unsigned n, hex = 0;
		uint32_t cp = 0;

		if (*p != '\\') {
			*o++ = *p++;
			continue;
		}
		p++;
		switch (*p) {
		case '\n':
			p++;
			continue;
		case '\\': case '\'': case '"':
			*o++ = *p++;
			continue;
		case 'a': *o++ = '\a'; p++; continue;
		case 'b': *o++ = '\b'; p++; continue;
		case 'f': *o++ = '\f'; p++; continue;
		case 'n': *o++ = '\n'; p++; continue;
		case 'r': *o++ = '\r'; p++; continue;
		case 't': *o++ = '\t'; p++; continue;
		case 'v': *o++ = '\v'; p++; continue;
		case 'x': hex = 2; break;
		case 'u': hex = 4; break;
		case 'U': hex = 8; break;
		case 'N':
			compile_fail(l->c, l->line, "characters by name (\\N) are not supported");
		default:
			break;
		}
		if (*p >= '0' && *p <= '7') {
			for (n = 0; n < 3 && p < end && *p >= '0' && *p <= '7'; n++)
				cp = cp * 8 + (uint32_t)(*p++ - '0');
			o += py_encode(cp, o);
		} else if (hex) {
			p++;
			for (n = 0; n < hex; n++) {
				if (p >= end || digit_of(*p) > 15)
					compile_fail(l->c, l->line, "truncated \\%c escape",
						     hex == 2 ? 'x' : hex == 4 ? 'u' : 'U');
				cp = cp << 4 | (uint32_t)digit_of(*p++);
			}
			if (cp > 0x10ffff)
				compile_fail(l->c, l->line, "illegal Unicode character");
			o += py_encode(cp, o);
		} else if ((unsigned char)*p >= 0x80) {
			cp = py_decode(p, end, &n);
			p += n;
			o += sprintf(o, cp < 0x100     ? "\\x%02x"
					: cp < 0x10000 ? "\\u%04x"
						       : "\\U%08x", cp);
		} else {
			*o++ = '\\';
			*o++ = *p++;
		}
	}
	return (size_t)(o - out);
}

static void
string(struct lexer *l)
{
	const char *p = l->p + 1;
	bool escaped = false;
	struct slice text;
	char *own;

	while (p < l->end && *p != *l->p) {
		if (*p == '\\') {
			escaped = true;
			p++;
		}
		p++;
	}
	if (p >= l->end)
		compile_fail(l->c, l->line, "unexpected char '%c'", *l->p);
	text = slice_of(l->p + 1, (size_t)(p - l->p - 1));
	if (escaped) {
		own = compile_take(l->c, 10 * text.len + 4);
		text = slice_of(own, unescape(l, text, own));
	}
	add(l, T_STRING, l->line, value_string(text));
	pass(l, p + 1);
}

static bool
name_char(const char *p, const char *end, unsigned *ret_len)
{
	uint32_t cp = py_decode(p, end, ret_len);

	return cp == '_' || (cp < 0x80 ? (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z' ? true
							: cp >= '0' && cp <= '9'
				       : (py_bits(cp) & PY_XID_CONTINUE) != 0);
}

static void
operator_(struct lexer *l, char *stack, uint32_t *depth)
{
	static const struct {
		const char *text;
		enum token_type type;
	} op[] = {
		{"//", T_FLOORDIV}, {"**", T_POW},     {"==", T_EQ},      {"!=", T_NE},
		{">=", T_GE},       {"<=", T_LE},      {"+", T_ADD},      {"-", T_SUB},
		{"/", T_DIV},       {"*", T_MUL},      {"%", T_MOD},      {"~", T_TILDE},
		{"[", T_LBRACKET},  {"]", T_RBRACKET}, {"(", T_LPAREN},   {")", T_RPAREN},
		{"{", T_LBRACE},    {"}", T_RBRACE},   {">", T_GT},       {"<", T_LT},
		{"=", T_ASSIGN},    {".", T_DOT},      {":", T_COLON},    {"|", T_PIPE},
		{",", T_COMMA},     {";", T_SEMICOLON},
	};

	for (size_t i = 0; i < sizeof(op) / sizeof(op[0]); i++) {
		char c = *op[i].text;

		if (!at(l, op[i].text))
			continue;
		if (c == '(' || c == '[' || c == '{') {
			if (*depth == 255)
				compile_fail(l->c, l->line, "too many brackets in each other");
			stack[(*depth)++] = (char)(c == '(' ? ')' : c == '[' ? ']' : '}');
		} else if (c == ')' || c == ']' || c == '}') {
			if (*depth == 0)
				compile_fail(l->c, l->line, "unexpected '%c'", c);
			if (stack[--*depth] != c)
				compile_fail(l->c, l->line, "unexpected '%c', expected '%c'", c,
					     stack[*depth]);
		}
		add(l, op[i].type, l->line, value_undefined());
		pass(l, l->p + strlen(op[i].text));
		return;
	}
	compile_fail(l->c, l->line, "unexpected char '%c' at %zu", *l->p,
		     (size_t)(l->p - l->start));
}

/* Inside {% %} or {{ }}. */
static void
inside(struct lexer *l, bool block)
{
	const char *close = block ? "%}" : "}}";
	char stack[256];
	uint32_t depth = 0;

	for (;;) {
		const char *p = l->p;
		unsigned n;

		if (p >= l->end)
			return;         /* the parser finds the end of file */
		if (depth == 0) {
			char sign = *p == '-' || (block && *p == '+') ? *p : 0;
			const char *q = p + (sign ? 1 : 0);

			if (l->end - q >= 2 && memcmp(q, close, 2) == 0) {
				add(l, block ? T_BLOCK_END : T_VAR_END, l->line, value_undefined());
				pass(l, after_end(l, q + 2, sign, block));
				return;
			}
		}
		if (py_is_space(py_decode(p, l->end, &n))) {
			pass(l, skip_space(p, l->end));
		} else if (*p >= '0' && *p <= '9') {
			const char *to = float_end(l);

			if (to) {
				add(l, T_FLOAT, l->line,
				    value_float(strtod(plain_digits(l, p, to), NULL)));
				pass(l, to);
			} else {
				integer(l);
			}
		} else if (name_char(p, l->end, &n)) {
			if (!(py_bits(py_decode(p, l->end, &n)) & PY_XID_START) && *p != '_')
				compile_fail(l->c, l->line, "Invalid character in identifier");
			while (p < l->end && name_char(p, l->end, &n))
				p += n;
			add(l, T_NAME, l->line,
			    value_string(slice_of(l->p, (size_t)(p - l->p))));
			pass(l, p);
		} else if (*p == '\'' || *p == '"') {
			string(l);
		} else {
			operator_(l, stack, &depth);
		}
	}
}

/* One kind of line end, and not the last one. */
static struct slice
normalize(struct compile *c, struct slice source)
{
	char *own = compile_take(c, source.len + 1), *o = own;

	for (size_t i = 0; i < source.len; i++) {
		if (source.p[i] == '\r') {
			*o++ = '\n';
			if (i + 1 < source.len && source.p[i + 1] == '\n')
				i++;
		} else {
			*o++ = source.p[i];
		}
	}
	if (o > own && o[-1] == '\n')
		o--;
	return slice_of(own, (size_t)(o - own));
}

static const char *
next_tag(const char *p, const char *end)
{
	for (; p < end && (p = memchr(p, '{', (size_t)(end - p))); p++)
		if (p + 1 < end && (p[1] == '%' || p[1] == '{' || p[1] == '#'))
			return p;
	return NULL;
}

void
jinja_lex(struct compile *c, struct slice source)
{
	struct lexer lexer = {.c = c, .line = 1, .line_starting = true}, *l = &lexer;

	source = normalize(c, source);
	l->start = l->p = source.p;
	l->end = source.p + source.len;
	while (l->p < l->end) {
		const char *tag = next_tag(l->p, l->end), *text;
		struct slice data;
		uint32_t line = l->line;
		char sign = 0;

		if (!tag) {
			add_data(l, slice_of(l->p, (size_t)(l->end - l->p)), line);
			break;
		}
		if (tag + 2 < l->end && (tag[2] == '-' || tag[2] == '+'))
			sign = tag[2];
		data = before_tag(l, slice_of(l->p, (size_t)(tag - l->p)), sign, tag[1] == '{');
		add_data(l, data, line);
		pass(l, tag + 2 + (sign ? 1 : 0));
		if (tag[1] == '#') {
			comment(l);
		} else if (tag[1] == '%' && (text = raw_begin(l, l->p))) {
			pass(l, text);
			raw(l);
		} else {
			add(l, tag[1] == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, l->line,
			    value_undefined());
			inside(l, tag[1] == '%');
		}
	}
	add(l, T_EOF, l->line, value_undefined());
}
