/* proto/utf8.h -- one character of UTF-8. */
#pragma once
#include <stddef.h>

/* Bytes of the well-formed character at `at`, of which `left` (at least 1) may be read: 1 to 4; 0:
 * it is none (RFC 3629: nothing overlong, no surrogates, at most U+10FFFF). */
static inline size_t
utf8_len(const char *at, size_t left)
{
	const unsigned char *p = (const unsigned char *)at;
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3
		 : p[0] < 0xf5 ? 4 : 0;

	if (n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}
