/* actors/common/tags/plain.c -- texts as patterns read them; see plain.h. */
#include "actors/common/tags/plain.h"

#include <stdint.h>
#include <string.h>

#include "actors/common/prompt/unicode.h"

#define PHA	   "\xe0\xa4\xab" /* DEVANAGARI LETTER PHA */
#define NUKTA	   0x093cu
#define PHA_NUKTA  "\xe0\xa5\x9e" /* both in one: the same, by Unicode */
#define FULL_FIRST 0xff01u /* full-width "!" to "~" */
#define FULL_LAST  0xff5eu

enum { GONE = 0 };      /* plain_char: it is as if it were not there */

static const struct unicode_range format[] = {
	{0x00ad, 0x00ad},   {0x0600, 0x0605},   {0x061c, 0x061c},   {0x06dd, 0x06dd},
	{0x070f, 0x070f},   {0x0890, 0x0891},   {0x08e2, 0x08e2},   {0x180e, 0x180e},
	{0x200b, 0x200f},   {0x202a, 0x202e},   {0x2060, 0x2064},   {0x2066, 0x206f},
	{0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
	{0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe0001},
	{0xe0020, 0xe007f},
};

/* 0 to 9; -1: no digit.  Digits come by tens, in order; ranges of them may touch. */
static int
digit_of(uint32_t c, const struct unicode_property *digits)
{
	size_t low = 0, high = digits->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (c > digits->range[middle].last)
			low = middle + 1;
		else if (c < digits->range[middle].first)
			high = middle;
		else
			return (int)((c - digits->range[middle].first) % 10);
	}
	return -1;
}

static bool
is_blank(uint32_t c)
{
	return c == 0xa0 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f ||
	       c == 0x3000;
}

static bool
is_hyphen(uint32_t c)
{
	return (c >= 0x2010 && c <= 0x2015) || c == 0x2212;
}

static uint32_t
plain_char(uint32_t c, const struct unicode_property *digits)
{
	if (is_blank(c))
		return ' ';
	if (is_hyphen(c))
		return '-';
	if (c >= FULL_FIRST && c <= FULL_LAST)
		return c - FULL_FIRST + '!';
	if (unicode_in(format, sizeof format / sizeof format[0], c))
		return GONE;
	if (unicode_class(c) & UNICODE_NUMBER) {
		int digit = digit_of(c, digits);

		if (digit >= 0)
			return '0' + (uint32_t)digit;
	}
	return c;
}

size_t
plain_same(struct slice text)
{
	return unicode_ascii(text.p, text.len);
}

size_t
plain_text(char *text, size_t len)
{
	const struct unicode_property *digits = unicode_property(SLICE_LIT("d"));
	size_t at = plain_same((struct slice){text, len}), to = at;

	while (at < len) {
		size_t ascii = unicode_ascii(text + at, len - at);
		unsigned n;

		if (ascii > 0) {
			memmove(text + to, text + at, ascii);
			at += ascii;
			to += ascii;
			continue;
		}
		uint32_t c = unicode_at(text + at, len - at, &n), is = plain_char(c, digits);

		if (c == NUKTA && to >= 3 && memcmp(text + to - 3, PHA, 3) == 0)
			memcpy(text + to - 3, PHA_NUKTA, 3);
		else if (c == NUKTA || is == c)
			memmove(text + to, text + at, n), to += n;
		else if (is != GONE)
			text[to++] = (char)is;
		at += n;
	}
	return to;
}
