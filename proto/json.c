/* proto/json.c -- the cursor: what comes next, checked byte by byte, built into nothing. */
#include "proto/json.h"

#include <errno.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "proto/hex.h"

static bool
fail(struct json_cursor *c, const char *at, const char *why)
{
	if (!c->why) {
		c->why = why;
		c->error_off = (size_t)(at - c->start);
	}
	return false;
}

static inline void
skip_blank(struct json_cursor *c)
{
	const char *p = c->p;

	while (p < c->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
		p++;
	c->p = p;
}

void
json_begin(struct json_cursor *c, const char *doc, size_t len)
{
	*c = (struct json_cursor){.start = doc, .p = doc, .end = doc + len, .need_value = true};
	if (len >= 3 && memcmp(doc, "\xef\xbb\xbf", 3) == 0)
		c->p += 3;
}

int
json_end(struct json_cursor *c)
{
	if (c->why)
		return -EBADMSG;
	if (c->depth > 0 || c->need_value) {
		fail(c, c->p, "value was not read to its end");
		return -EBADMSG;
	}
	skip_blank(c);
	if (c->p != c->end) {
		fail(c, c->p, "something follows the JSON value");
		return -EBADMSG;
	}
	return 0;
}

/* --- scalars --- */

/* Bytes of the UTF-8 sequence at p, whose first byte is >= 0x80; 0 when it is none. */
static inline size_t
utf8_len(const char *at, size_t left)
{
	const uint8_t *p = (const uint8_t *)at;

	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		return left >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
	if ((p[0] & 0xf0) == 0xe0) {
		if (left < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80)
			return 0;
		if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f))
			return 0;            /* overlong, or a surrogate */
		return 3;
	}
	if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		if (left < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 ||
		    (p[3] & 0xc0) != 0x80)
			return 0;
		if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
			return 0;            /* overlong, or past U+10FFFF */
		return 4;
	}
	return 0;
}

/* First byte at or behind p that is not plain text of a string: quote, backslash, control, or a
 * byte of a longer character. */
static inline const char *
plain_end(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
	const __m128i blank = _mm_set1_epi8(' ');

	while (end - p >= 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		/* Signed: bytes >= 0x80 are negative and so below the blank, like controls. */
		__m128i stop = _mm_or_si128(_mm_cmplt_epi8(v, blank),
					    _mm_or_si128(_mm_cmpeq_epi8(v, quote),
							 _mm_cmpeq_epi8(v, slash)));
		unsigned mask = (unsigned)_mm_movemask_epi8(stop);

		if (mask)
			return p + __builtin_ctz(mask);
		p += 16;
	}
#endif
	while (p < end && (uint8_t)*p >= 0x20 && (uint8_t)*p < 0x80 && *p != '"' && *p != '\\')
		p++;
	return p;
}

/* Four hexadecimal digits, or -1. */
static int
hex4(const char *p, const char *end)
{
	int v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int d = hex_digit(p[i]);

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

/* c->p is at the opening quote. */
static bool
scan_string(struct json_cursor *c, struct json_string *ret)
{
	const char *from = c->p + 1;
	const char *p = from;
	bool escaped = false;

	for (;;) {
		p = plain_end(p, c->end);
		if (p == c->end)
			return fail(c, from - 1, "string does not end");
		uint8_t ch = (uint8_t)*p;

		if (ch == '"')
			break;
		if (ch >= 0x80) {
			do {
				size_t n = utf8_len(p, (size_t)(c->end - p));

				if (n == 0)
					return fail(c, p, "string is not UTF-8");
				p += n;
			} while (p < c->end && (uint8_t)*p >= 0x80);
			continue;
		}
		if (ch != '\\')
			return fail(c, p, "control character in a string");
		escaped = true;
		if (c->end - p < 2)
			return fail(c, from - 1, "string does not end");
		if (p[1] == 'u') {
			if (hex4(p + 2, c->end) < 0)
				return fail(c, p, "\\u without four hexadecimal digits");
			p += 6;
		} else if (p[1] != '\0' && strchr("\"\\/bfnrt", p[1])) {
			p += 2;
		} else {
			return fail(c, p, "unknown escape in a string");
		}
	}
	ret->raw = (struct slice){from, (size_t)(p - from)};
	ret->escaped = escaped;
	c->p = p + 1;
	return true;
}

static const char *
digits_end(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

static bool
scan_number(struct json_cursor *c, struct slice *ret)
{
	const char *from = c->p, *p = from, *q;

	if (*p == '-')
		p++;
	q = digits_end(p, c->end);
	if (q == p)
		return fail(c, from, "number without digits");
	if (*p == '0' && q - p > 1)
		return fail(c, from, "number with a leading zero");
	p = q;
	if (p < c->end && *p == '.') {
		q = digits_end(++p, c->end);
		if (q == p)
			return fail(c, from, "number without digits behind its point");
		p = q;
	}
	if (p < c->end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < c->end && (*p == '+' || *p == '-'))
			p++;
		q = digits_end(p, c->end);
		if (q == p)
			return fail(c, from, "number without digits in its exponent");
		p = q;
	}
	*ret = (struct slice){from, (size_t)(p - from)};
	c->p = p;
	return true;
}

static bool
scan_word(struct json_cursor *c, const char *word, size_t len)
{
	if ((size_t)(c->end - c->p) < len || memcmp(c->p, word, len) != 0)
		return fail(c, c->p, "neither a JSON value nor one of null, true, false");
	c->p += len;
	return true;
}

/* --- moving --- */

/* The next value begins at c->p, if there is one. */
static bool
at_value(struct json_cursor *c)
{
	if (c->why)
		return false;
	if (!c->need_value)
		return fail(c, c->p, "no value stands here");
	skip_blank(c);
	if (c->p == c->end)
		return fail(c, c->p, "document ends where a value should be");
	return true;
}

enum json_type
json_peek(struct json_cursor *c)
{
	if (!at_value(c))
		return JSON_IS_INVALID;
	switch (*c->p) {
	case '{':
		return JSON_IS_OBJECT;
	case '[':
		return JSON_IS_ARRAY;
	case '"':
		return JSON_IS_STRING;
	case 'n':
		return JSON_IS_NULL;
	case 't':
		return JSON_IS_TRUE;
	case 'f':
		return JSON_IS_FALSE;
	case '-':
	case '0' ... '9':
		return JSON_IS_NUMBER;
	}
	fail(c, c->p, "this begins no JSON value");
	return JSON_IS_INVALID;
}

static bool
enter(struct json_cursor *c, char brace, bool object)
{
	uint64_t bit;

	if (!at_value(c))
		return false;
	if (*c->p != brace)
		return fail(c, c->p, object ? "expected an object" : "expected an array");
	if (c->depth == JSON_DEPTH_MAX)
		return fail(c, c->p, "nested deeper than 64");
	bit = 1ULL << c->depth++;
	c->in_object = object ? c->in_object | bit : c->in_object & ~bit;
	c->has_member &= ~bit;
	c->need_value = false;
	c->p++;
	return true;
}

bool
json_enter_object(struct json_cursor *c)
{
	return enter(c, '{', true);
}

bool
json_enter_array(struct json_cursor *c)
{
	return enter(c, '[', false);
}

/* Inside a container of that kind: true when one more member begins at c->p. */
static bool
next_in(struct json_cursor *c, bool object)
{
	if (c->why)
		return false;
	uint64_t bit = c->depth > 0 ? 1ULL << (c->depth - 1) : 0;

	if (bit == 0 || ((c->in_object & bit) != 0) != object || c->need_value)
		return fail(c, c->p, "reader left a value unread");
	skip_blank(c);
	if (c->p == c->end)
		return fail(c, c->p, object ? "object does not end" : "array does not end");
	if (*c->p == (object ? '}' : ']')) {
		c->p++;
		c->depth--;
		return false;
	}
	if (c->has_member & bit) {
		if (*c->p != ',')
			return fail(c, c->p, object ? "expected , or } in an object"
						    : "expected , or ] in an array");
		c->p++;
		skip_blank(c);
	}
	c->has_member |= bit;
	return true;
}

bool
json_next_member(struct json_cursor *c, struct json_string *ret_key)
{
	if (!next_in(c, true))
		return false;
	if (c->p == c->end || *c->p != '"')
		return fail(c, c->p, "expected a key in an object");
	if (!scan_string(c, ret_key))
		return false;
	skip_blank(c);
	if (c->p == c->end || *c->p != ':')
		return fail(c, c->p, "expected : behind a key");
	c->p++;
	c->need_value = true;
	return true;
}

bool
json_next_element(struct json_cursor *c)
{
	if (!next_in(c, false))
		return false;
	c->need_value = true;
	return true;
}

/* --- reading --- */

bool
json_get_string(struct json_cursor *c, struct json_string *ret)
{
	if (!at_value(c))
		return false;
	if (*c->p != '"')
		return fail(c, c->p, "expected a string");
	if (!scan_string(c, ret))
		return false;
	c->need_value = false;
	return true;
}

bool
json_get_number(struct json_cursor *c, struct slice *ret)
{
	if (!at_value(c))
		return false;
	if (*c->p != '-' && (*c->p < '0' || *c->p > '9'))
		return fail(c, c->p, "expected a number");
	if (!scan_number(c, ret))
		return false;
	c->need_value = false;
	return true;
}

#ifdef __SSE2__
/* One bit for each of 64 bytes: is it of that kind? */
struct kinds {
	uint64_t digit, zero, comma, blank;
};

static inline struct kinds
kinds_of(const char *p)
{
	struct kinds k = {0};

	for (unsigned i = 0; i < 4; i++) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
		__m128i d = _mm_sub_epi8(v, _mm_set1_epi8('0'));
		__m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(d, _mm_set1_epi8(9)), d);
		__m128i zero = _mm_cmpeq_epi8(d, _mm_setzero_si128());
		__m128i comma = _mm_cmpeq_epi8(v, _mm_set1_epi8(','));
		__m128i blank = _mm_cmpeq_epi8(v, _mm_set1_epi8(' '));

		k.digit |= (uint64_t)(unsigned)_mm_movemask_epi8(digit) << 16 * i;
		k.zero |= (uint64_t)(unsigned)_mm_movemask_epi8(zero) << 16 * i;
		k.comma |= (uint64_t)(unsigned)_mm_movemask_epi8(comma) << 16 * i;
		k.blank |= (uint64_t)(unsigned)_mm_movemask_epi8(blank) << 16 * i;
	}
	return k;
}

/* The decimal digits in the first len (1..7) of the eight bytes at p. */
static inline uint32_t
decimal(const char *p, unsigned len)
{
	uint64_t t;

	memcpy(&t, p, 8);
	/* Digits to the top, zeros below: then pairs, fours, eight. */
	t = (t ^ 0x3030303030303030) << (64 - 8 * len);
	t = t * 10 + (t >> 8);
	return (uint32_t)(((t & 0x000000ff000000ff) * 0x000f424000000064 +
			   (t >> 16 & 0x000000ff000000ff) * 0x0000271000000001) >> 32);
}
#endif

/* c->p is at an element: takes integers of at most seven digits, each with the comma and at most
 * one blank behind it, 64 bytes at a time.  *n counts them, out has room for max.  Stops at an
 * element (there is one: a comma was taken) that the careful way must read. */
static void
integer_run(struct json_cursor *c, uint32_t *out, size_t max, size_t *n)
{
#ifdef __SSE2__
	const char *p = c->p;

	while (c->end - p >= 64 + 8) {       /* 8: decimal() may load past the block */
		struct kinds k = kinds_of(p);
		uint64_t other = ~(k.digit | k.comma | k.blank);

		if (other)                   /* only what lies in front of the first other byte */
			k.comma &= (other & -other) - 1;
		if (!k.comma)
			break;
		/* All up to the last comma of it. */
		unsigned last = 63 - (unsigned)__builtin_clzll(k.comma);
		uint64_t mask = ~0ULL >> (63 - last);
		uint64_t start = k.digit & ~(k.digit << 1) & mask;
		uint64_t runs = k.digit & k.digit >> 1;

		runs &= runs >> 2;
		runs &= runs >> 4;           /* where eight digits or more begin */
		k.blank &= mask;
		if (!(k.digit & 1) || (k.comma & ~(k.digit << 1)) ||
		    (k.blank & ~(k.comma << 1)) || (k.zero & start & k.digit >> 1) ||
		    (runs & mask))
			break;
		p += last + 1;
		if (*n >= max) {
			*n += (size_t)__builtin_popcountll(k.comma);
		} else {
			const char *block = p - last - 1;

			for (; k.comma; k.comma &= k.comma - 1, start &= start - 1) {
				unsigned from = (unsigned)__builtin_ctzll(start);
				unsigned to = (unsigned)__builtin_ctzll(k.comma);

				if (*n < max)
					out[*n] = decimal(block + from, to - from);
				++*n;
			}
		}
		if (*p == ' ')
			p++;
	}
	c->p = p;
#else
	(void)c, (void)out, (void)max, (void)n;
#endif
}

bool
json_skip(struct json_cursor *c)
{
	unsigned base = c->depth;
	struct json_string s;
	struct slice num;
	size_t n;

	do {
		switch (json_peek(c)) {
		case JSON_IS_INVALID:
			return false;
		case JSON_IS_NULL:
			if (!scan_word(c, "null", 4))
				return false;
			break;
		case JSON_IS_TRUE:
			if (!scan_word(c, "true", 4))
				return false;
			break;
		case JSON_IS_FALSE:
			if (!scan_word(c, "false", 5))
				return false;
			break;
		case JSON_IS_NUMBER:
			if (c->depth > base && !(c->in_object >> (c->depth - 1) & 1)) {
				n = 0;
				integer_run(c, NULL, 0, &n);
				if (n > 0)
					continue;    /* the next element may be anything */
			}
			if (!scan_number(c, &num))
				return false;
			break;
		case JSON_IS_STRING:
			if (!scan_string(c, &s))
				return false;
			break;
		case JSON_IS_ARRAY:
			if (!json_enter_array(c))
				return false;
			break;
		case JSON_IS_OBJECT:
			if (!json_enter_object(c))
				return false;
			break;
		}
		c->need_value = false;
		/* Out of everything that ends here, up to where the value began. */
		while (c->depth > base) {
			bool object = c->in_object >> (c->depth - 1) & 1;

			if (object ? json_next_member(c, &s) : json_next_element(c))
				break;
			if (c->why)
				return false;
		}
	} while (c->depth > base);
	return true;
}

bool
json_get_raw(struct json_cursor *c, struct slice *ret)
{
	if (!at_value(c))
		return false;
	const char *from = c->p;

	if (!json_skip(c))
		return false;
	*ret = (struct slice){from, (size_t)(c->p - from)};
	return true;
}

bool
json_get_u32_array(struct json_cursor *c, uint32_t *out, size_t max, size_t *ret_n)
{
	size_t n = 0;

	if (!json_enter_array(c))
		return false;
	while (json_next_element(c)) {
		struct slice num;
		uint64_t v = 0;

		if (json_peek(c) != JSON_IS_NUMBER)
			return fail(c, c->p, "expected an integer");
		integer_run(c, out, max, &n);
		const char *at = c->p;

		if (!json_get_number(c, &num))
			return false;
		for (size_t i = 0; i < num.len && v <= UINT32_MAX; i++) {
			if (num.p[i] < '0' || num.p[i] > '9')
				return fail(c, at, "expected an integer of 0 or more");
			v = v * 10 + (unsigned)(num.p[i] - '0');
		}
		if (v > UINT32_MAX)
			return fail(c, at, "integer is past 2^32-1");
		if (n < max)
			out[n] = (uint32_t)v;
		n++;
	}
	if (c->why)
		return false;
	*ret_n = n;
	return true;
}

int
json_validate(const char *doc, size_t len, const char **why, size_t *ret_error_off)
{
	struct json_cursor c;

	json_begin(&c, doc, len);
	json_skip(&c);
	if (json_end(&c) == 0)
		return 0;
	*why = c.why;
	*ret_error_off = c.error_off;
	return -EBADMSG;
}
