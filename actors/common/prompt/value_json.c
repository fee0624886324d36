/* actors/common/prompt/value_json.c -- JSON to values, as Python's json.loads takes it. */
#include "actors/common/prompt/value.h"

#include <math.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define DIGITS_MAX 4300u                /* sys.get_int_max_str_digits() */

struct reader {
	struct bump *bump;
	const char *start, *p, *end;
	char *own;                      /* where the next string with escapes goes, or NULL */
	const char *why;
	int code;
	unsigned depth;
};

static bool
refuse(struct reader *r, int code, const char *why)
{
	if (!r->why) {
		r->why = why;
		r->code = code;
	}
	return false;
}

static bool
no_memory(struct reader *r)
{
	return refuse(r, -ENOMEM, "no memory for the document");
}

static void
skip_space(struct reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
		r->p++;
}

/* Up to the first byte that is no plain character of a string: quote, backslash, control. */
static const char *
plain_end(const char *p, const char *end, bool *ascii)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
		      control = _mm_set1_epi8(0x1f);

	for (; end - p >= 16; p += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i stop = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote),
							 _mm_cmpeq_epi8(v, slash)),
					    _mm_cmpeq_epi8(_mm_min_epu8(v, control), v));
		unsigned high = (unsigned)_mm_movemask_epi8(v);
		unsigned mask = (unsigned)_mm_movemask_epi8(stop);

		if (mask) {
			unsigned n = (unsigned)__builtin_ctz(mask);

			*ascii = *ascii && !(high & ((1u << n) - 1));
			return p + n;
		}
		*ascii = *ascii && !high;
	}
#endif
	for (; p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20; p++)
		*ascii = *ascii && (unsigned char)*p < 0x80;
	return p;
}

static int
hex4(const char *p, const char *end)
{
	int cp = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int d = c >= '0' && c <= '9'   ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10
					       : -1;

		if (d < 0)
			return -1;
		cp = cp << 4 | d;
	}
	return cp;
}

static char *
put_utf8(char *o, unsigned cp)
{
	if (cp < 0x80) {
		*o++ = (char)cp;
	} else if (cp < 0x800) {
		*o++ = (char)(0xc0 | cp >> 6);
		*o++ = (char)(0x80 | (cp & 0x3f));
	} else if (cp < 0x10000) {
		*o++ = (char)(0xe0 | cp >> 12);
		*o++ = (char)(0x80 | (cp >> 6 & 0x3f));
		*o++ = (char)(0x80 | (cp & 0x3f));
	} else {
		*o++ = (char)(0xf0 | cp >> 18);
		*o++ = (char)(0x80 | (cp >> 12 & 0x3f));
		*o++ = (char)(0x80 | (cp >> 6 & 0x3f));
		*o++ = (char)(0x80 | (cp & 0x3f));
	}
	return o;
}

/* At a backslash: what it stands for, written to *o. */
static bool
escape(struct reader *r, char **o)
{
	int cp, low;
	char c;

	if (r->end - r->p < 2)
		return refuse(r, -EBADMSG, "a string without end");
	c = r->p[1];
	r->p += 2;
	switch (c) {
	case '"': case '\\': case '/': *(*o)++ = c; return true;
	case 'b': *(*o)++ = '\b'; return true;
	case 'f': *(*o)++ = '\f'; return true;
	case 'n': *(*o)++ = '\n'; return true;
	case 'r': *(*o)++ = '\r'; return true;
	case 't': *(*o)++ = '\t'; return true;
	case 'u': break;
	default: return refuse(r, -EBADMSG, "an escape JSON has not");
	}
	cp = hex4(r->p, r->end);
	if (cp < 0)
		return refuse(r, -EBADMSG, "\\u wants four hexadecimal digits");
	r->p += 4;
	if (cp >= 0xd800 && cp < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' &&
	    r->p[1] == 'u') {
		low = hex4(r->p + 2, r->end);
		if (low >= 0xdc00 && low < 0xe000) {
			cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
			r->p += 6;
		}
	}
	*o = put_utf8(*o, (unsigned)cp);
	return true;
}

static bool
valid(struct reader *r, const char *from, const char *to, bool ascii)
{
	return ascii || value_text_whole(slice_of(from, (size_t)(to - from))) ||
	       refuse(r, -EBADMSG, "a string that is no UTF-8");
}

/* Plain characters from r->p on, copied to *o, which has 16 bytes more than it needs. */
static void
copy_plain(struct reader *r, char **o, bool *ascii)
{
	const char *p = r->p;
	char *to = *o;
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
		      control = _mm_set1_epi8(0x1f);
	unsigned above = 0;

	for (; r->end - p >= 16; p += 16, to += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i stop = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote),
							 _mm_cmpeq_epi8(v, slash)),
					    _mm_cmpeq_epi8(_mm_min_epu8(v, control), v));
		unsigned high = (unsigned)_mm_movemask_epi8(v);
		unsigned mask = (unsigned)_mm_movemask_epi8(stop);

		_mm_storeu_si128((__m128i *)(void *)to, v);
		if (mask) {
			unsigned n = (unsigned)__builtin_ctz(mask);

			above |= high & ((1u << n) - 1);
			*ascii = *ascii && !above;
			r->p = p + n;
			*o = to + n;
			return;
		}
		above |= high;
	}
	*ascii = *ascii && !above;
#endif
	for (; p < r->end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20; p++) {
		*ascii = *ascii && (unsigned char)*p < 0x80;
		*to++ = *p;
	}
	r->p = p;
	*o = to;
}

/* The rest of a string with escapes, of which [from, r->p) is plain so far, and checked.  What it
 * stands for is never longer than it is: all such strings of a document are written one behind the
 * other into memory for the rest of it, taken once, so that their ends need not be sought first. */
static bool
escaped_string(struct reader *r, const char *from, struct value *ret)
{
	const char *checked = r->p;
	bool ascii = true;
	char *o;

	if (!r->own) {
		r->own = bump_bytes(r->bump, (size_t)(r->end - from) + 16);
		if (!r->own)
			return no_memory(r);
	}
	o = r->own;
	memcpy(o, from, (size_t)(r->p - from));
	o += r->p - from;
	while (r->p < r->end && *r->p == '\\') {
		if (!escape(r, &o))
			return false;
		copy_plain(r, &o, &ascii);
	}
	if (!valid(r, checked, r->p, ascii))
		return false;           /* escapes are ASCII: they part no character */
	if (r->p >= r->end || *r->p != '"')
		return refuse(r, -EBADMSG, r->p >= r->end ? "a string without end"
							  : "a control character in a string");
	r->p++;
	*ret = value_string(slice_of(r->own, (size_t)(o - r->own)));
	r->own = o;
	return true;
}

static bool
read_string(struct reader *r, struct value *ret)
{
	const char *from = ++r->p;
	bool ascii = true;

	r->p = plain_end(from, r->end, &ascii);
	if (!valid(r, from, r->p, ascii))
		return false;
	if (r->p < r->end && *r->p == '\\')
		return escaped_string(r, from, ret);
	if (r->p >= r->end || *r->p != '"')
		return refuse(r, -EBADMSG, r->p >= r->end ? "a string without end"
							  : "a control character in a string");
	*ret = value_string(slice_of(from, (size_t)(r->p - from)));
	r->p++;
	return true;
}

static const char *
digits(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static bool
read_float(struct reader *r, const char *from, struct value *ret)
{
	size_t n = (size_t)(r->p - from);
	char buf[64], *text = n < sizeof(buf) ? buf : bump_bytes(r->bump, n + 1);

	if (!text)
		return no_memory(r);
	memcpy(text, from, n);
	text[n] = 0;
	*ret = value_float(strtod(text, NULL));
	return true;
}

static bool
read_number(struct reader *r, struct value *ret)
{
	const char *from = r->p, *p = from + (*from == '-'), *whole = p, *q;
	bool is_float = false;
	uint64_t u = 0;

	p = digits(p, r->end);
	if (p == whole)
		return refuse(r, -EBADMSG, "a value JSON has not");
	if (*whole == '0')
		p = whole + 1;
	q = p;
	if (q < r->end && *q == '.' && digits(q + 1, r->end) > q + 1) {
		p = digits(q + 1, r->end);
		is_float = true;
	}
	q = p;
	if (q < r->end && (*q == 'e' || *q == 'E')) {
		q++;
		if (q < r->end && (*q == '+' || *q == '-'))
			q++;
		if (digits(q, r->end) > q) {
			p = digits(q, r->end);
			is_float = true;
		}
	}
	r->p = p;
	if (is_float)
		return read_float(r, from, ret);
	for (q = whole; q < p; q++) {
		if (__builtin_mul_overflow(u, 10u, &u) ||
		    __builtin_add_overflow(u, (unsigned)(*q - '0'), &u))
			break;
	}
	if (q == p && u <= (uint64_t)INT64_MAX + (*from == '-')) {
		*ret = value_int(*from == '-' ? (int64_t)-u : (int64_t)u);
		return true;
	}
	if (p - whole > DIGITS_MAX)
		return refuse(r, -EBADMSG, "an integer of more than 4300 digits");
	*ret = value_string(slice_of(from, (size_t)(p - from)));
	ret->kind = VALUE_BIG;
	return true;
}

static bool read_value(struct reader *r, struct value *ret);

static bool
read_array(struct reader *r, struct value *ret)
{
	struct value_items items = {0};
	struct value v;

	r->p++;
	skip_space(r);
	if (r->p < r->end && *r->p == ']') {
		r->p++;
		*ret = value_list(NULL, 0);
		return true;
	}
	for (;;) {
		if (!read_value(r, &v))
			return false;
		if (!value_push(r->bump, &items, v))
			return no_memory(r);
		skip_space(r);
		if (r->p < r->end && *r->p == ']')
			break;
		if (r->p >= r->end || *r->p != ',')
			return refuse(r, -EBADMSG, "expected ',' or ']'");
		r->p++;
	}
	r->p++;
	*ret = value_list_of(&items);
	return true;
}

static bool
read_object(struct reader *r, struct value *ret)
{
	struct value_dict *dict = value_dict_new(r->bump, 0);
	struct value key, v;

	if (!dict)
		return no_memory(r);
	*ret = value_of_dict(dict);
	r->p++;
	skip_space(r);
	if (r->p < r->end && *r->p == '}') {
		r->p++;
		return true;
	}
	for (;;) {
		if (r->p >= r->end || *r->p != '"')
			return refuse(r, -EBADMSG, "expected a key in double quotes");
		if (!read_string(r, &key))
			return false;
		skip_space(r);
		if (r->p >= r->end || *r->p != ':')
			return refuse(r, -EBADMSG, "expected ':'");
		r->p++;
		if (!read_value(r, &v))
			return false;
		if (!value_put(dict, key, v))
			return no_memory(r);
		skip_space(r);
		if (r->p < r->end && *r->p == '}')
			break;
		if (r->p >= r->end || *r->p != ',')
			return refuse(r, -EBADMSG, "expected ',' or '}'");
		r->p++;
		skip_space(r);
	}
	r->p++;
	return true;
}

static bool
word(struct reader *r, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0)
		return false;
	r->p += n;
	return true;
}

static bool
read_word(struct reader *r, struct value *ret)
{
	if (word(r, "null"))
		*ret = value_none();
	else if (word(r, "true"))
		*ret = value_bool(true);
	else if (word(r, "false"))
		*ret = value_bool(false);
	else if (word(r, "NaN"))
		*ret = value_float(NAN);
	else if (word(r, "Infinity"))
		*ret = value_float(INFINITY);
	else if (word(r, "-Infinity"))
		*ret = value_float(-INFINITY);
	else
		return read_number(r, ret);
	return true;
}

static bool
read_value(struct reader *r, struct value *ret)
{
	bool ok;

	skip_space(r);
	if (r->p >= r->end)
		return refuse(r, -EBADMSG, "expected a value");
	if (*r->p == '"')
		return read_string(r, ret);
	if (*r->p != '{' && *r->p != '[')
		return read_word(r, ret);
	if (++r->depth > VALUE_DEPTH)
		return refuse(r, -EMSGSIZE, "nested too deeply");
	ok = *r->p == '{' ? read_object(r, ret) : read_array(r, ret);
	r->depth--;
	return ok;
}

int
value_from_json(struct bump *bump, struct slice doc, struct value *ret, const char **why,
		size_t *ret_off)
{
	struct reader r = {.bump = bump, .start = doc.p, .p = doc.p, .end = doc.p + doc.len};
	struct value v;

	if (doc.len > UINT32_MAX)
		(void)refuse(&r, -EBADMSG, "the document is too long");
	if (doc.len >= 3 && memcmp(doc.p, "\xef\xbb\xbf", 3) == 0)
		r.p += 3;
	if (!r.why && read_value(&r, &v)) {
		skip_space(&r);
		if (r.p == r.end) {
			*ret = v;
			return 0;
		}
		(void)refuse(&r, -EBADMSG, "something stands behind the document");
	}
	*why = r.why;
	if (ret_off)
		*ret_off = (size_t)(r.p - r.start);
	return r.code;
}
