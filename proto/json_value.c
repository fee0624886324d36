/* proto/json_value.c -- what a number or a string of a document means, and back. */
#include "proto/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

int
json_to_i64(struct slice number, int64_t *ret)
{
	const char *p = number.p, *end = p + number.len;
	bool negative = p < end && *p == '-';
	int64_t v = 0;
	double d;

	for (p += negative; p < end && *p >= '0' && *p <= '9'; p++) {
		int digit = *p - '0';

		if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
		    (negative ? __builtin_sub_overflow(v, (int64_t)digit, &v)
			      : __builtin_add_overflow(v, (int64_t)digit, &v)))
			return -ERANGE;
	}
	if (p == end) {
		*ret = v;
		return 0;
	}
	/* A fraction or an exponent: integral if its double is, as far as doubles count in ones. */
	if (json_to_double(number, &d) < 0)
		return -ERANGE;
	if (d != trunc(d))
		return -EINVAL;
	if (fabs(d) > 9007199254740992.0)
		return -ERANGE;
	*ret = (int64_t)d;
	return 0;
}

int
json_to_double(struct slice number, double *ret)
{
	enum { DIGITS_MAX = 40 };            /* well past what decides a double's last bit */
	char text[DIGITS_MAX + 32];
	size_t n = 0, digits = 0;
	long exponent = 0, written = 0;
	const char *p = number.p, *end = p + number.len;
	bool point = false;
	double d;

	if (p < end && *p == '-') {
		text[n++] = '-';
		p++;
	}
	for (; p < end && *p != 'e' && *p != 'E'; p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		exponent -= point;
		if (digits == 0 && *p == '0')
			continue;            /* zeros in front are no digits of it */
		if (digits < DIGITS_MAX) {
			text[n++] = *p;
			digits++;
		} else {
			exponent++;
		}
	}
	if (digits == 0)
		text[n++] = '0';
	if (p < end) {
		bool negative = *++p == '-';

		for (p += *p == '-' || *p == '+'; p < end; p++)
			if (written < 1000000)
				written = written * 10 + (*p - '0');
		exponent += negative ? -written : written;
	}
	/* No decimal point in it: strtod reads this the same in every locale. */
	snprintf(text + n, sizeof(text) - n, "e%ld", exponent);
	d = strtod(text, NULL);
	if (isinf(d))
		return -ERANGE;
	*ret = d;
	return 0;
}

static unsigned
hex4(const char *p)
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++) {
		unsigned char c = (unsigned char)p[i];

		v = v << 4 | (c <= '9' ? c - 0x30u : (c | 0x20u) - 0x57u);
	}
	return v;
}

/* Puts a code point; at most four bytes. */
static size_t
put_utf8(char out[4], unsigned u)
{
	if (u < 0x80) {
		out[0] = (char)u;
		return 1;
	}
	if (u < 0x800) {
		out[0] = (char)(0xc0 | u >> 6);
		out[1] = (char)(0x80 | (u & 0x3f));
		return 2;
	}
	if (u < 0x10000) {
		out[0] = (char)(0xe0 | u >> 12);
		out[1] = (char)(0x80 | (u >> 6 & 0x3f));
		out[2] = (char)(0x80 | (u & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | u >> 18);
	out[1] = (char)(0x80 | (u >> 12 & 0x3f));
	out[2] = (char)(0x80 | (u >> 6 & 0x3f));
	out[3] = (char)(0x80 | (u & 0x3f));
	return 4;
}

/* One escape at *p, which the cursor has checked; moves *p behind it. */
static size_t
unescape_one(const char **p, const char *end, char out[4])
{
	const char *q = *p;
	unsigned u;

	*p = q + 2;
	switch (q[1]) {
	case 'b':
		out[0] = '\b';
		return 1;
	case 'f':
		out[0] = '\f';
		return 1;
	case 'n':
		out[0] = '\n';
		return 1;
	case 'r':
		out[0] = '\r';
		return 1;
	case 't':
		out[0] = '\t';
		return 1;
	case 'u':
		break;
	default:
		out[0] = q[1];
		return 1;
	}
	u = hex4(q + 2);
	*p = q + 6;
	if (u >= 0xd800 && u <= 0xdbff && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
		unsigned low = hex4(*p + 2);

		if (low >= 0xdc00 && low <= 0xdfff) {
			*p += 6;
			return put_utf8(out, 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00));
		}
	}
	if (u >= 0xd800 && u <= 0xdfff)
		u = 0xfffd;                  /* half a pair */
	return put_utf8(out, u);
}

bool
json_string_eq(const struct json_string *s, const char *text)
{
	const char *p = s->raw.p, *end = p + s->raw.len;
	size_t left = strlen(text);

	if (!s->escaped)
		return s->raw.len == left && memcmp(p, text, left) == 0;
	while (p < end) {
		char one[4];
		size_t n = 1;

		if (*p == '\\')
			n = unescape_one(&p, end, one);
		else
			one[0] = *p++;
		if (n > left || memcmp(one, text, n) != 0)
			return false;
		text += n;
		left -= n;
	}
	return left == 0;
}

ssize_t
json_unescape(const struct json_string *s, char *out, size_t cap)
{
	const char *p = s->raw.p, *end = p + s->raw.len;
	size_t n = 0;

	while (p < end) {
		const char *slash = s->escaped ? memchr(p, '\\', (size_t)(end - p)) : NULL;
		size_t run = (size_t)((slash ? slash : end) - p);
		char one[4];

		if (run > cap - n)
			return -ENOSPC;
		memcpy(out + n, p, run);
		n += run;
		p += run;
		if (!slash)
			break;
		run = unescape_one(&p, end, one);
		if (run > cap - n)
			return -ENOSPC;
		memcpy(out + n, one, run);
		n += run;
	}
	return (ssize_t)n;
}

ssize_t
json_escape(struct slice text, char *out, size_t cap)
{
	static const char hex[] = "0123456789abcdef";
	const char *p = text.p, *end = p + text.len;
	size_t n = 0;

	while (p < end) {
		char one[6] = {'\\', 0, '0', '0', 0, 0};
		unsigned char c = (unsigned char)*p;
		const char *from = one;
		size_t len = 2, used = 1;

		switch (c) {
		case '"':
		case '\\':
			one[1] = (char)c;
			break;
		case '\n':
			one[1] = 'n';
			break;
		case '\r':
			one[1] = 'r';
			break;
		case '\t':
			one[1] = 't';
			break;
		default:
			if (c < 0x20) {
				one[1] = 'u';
				one[4] = hex[c >> 4];
				one[5] = hex[c & 15];
				len = 6;
				break;
			}
			len = used = utf8_len(p, (size_t)(end - p));
			from = p;
			if (used == 0) {
				from = "\xef\xbf\xbd";
				len = 3;
				used = 1;
			}
		}
		if (len > cap - n)
			return -ENOSPC;
		memcpy(out + n, from, len);
		n += len;
		p += used;
	}
	return (ssize_t)n;
}
