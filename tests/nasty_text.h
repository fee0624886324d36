/* tests/nasty_text.h -- random short texts of what tells tokenizers apart. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/random.h"

#define NASTY_MAX 256u                  /* bytes of one text, at most */

/* Into out, at least NASTY_MAX bytes: up to `most` <= 32 items.  Valid UTF-8.  Its length. */
static inline size_t
nasty_text(uint64_t *state, unsigned most, char *out)
{
	static const char *const group[][16] = {
		{"a", "b", "s", "t", "e", "S", "T", "D", "LL", "re", "VE", "word", "Word", "HTTP"},
		{" ", " ", "  ", "\t", "\n", "\n", "\r", "\r\n", "\u00a0", "\u3000", "\u2028",
		 "\xc2\x85", "\v", "\u1680", "\n\n"},
		{"'", "'s", "'S", "'t", "'ll", "'Re", "'vE", "'m", "'d", "'\u017f", "'r", "'l",
		 "\u2019s", "'M", "''"},
		{"1", "2", "34", "567", "\u00b2", "\u2163", "\u0663", "\u3007", "\u3021",
		 "\U0001d7d8", "12345", "\u0be7"},
		{".", ",", "/", "//", "!", "-", "(", ")", "_", "#", "\"", "{", "\u00a1",
		 "\u20ac", "\u300c", "\u30fb"},
		{"\u0301", "\u0323", "\u093f", "\u20e3", "\u3099", "\U0001e8d0", "\ufe0f",
		 "\U00016ff0", "\u0bcd"},
		{"\u4e2d", "\u6587", "\u3042", "\u30a2", "\ud55c", "\u0e01", "\u05d0", "\u0627",
		 "\u2e80", "\u3005", "\u9fa5", "\u9fa6", "\U00020000", "\u303b", "\uf900"},
		{"\u00e9", "\u00c9", "\u01c5", "\u02b0", "\u00aa", "\u0130", "\u0131", "\u017f",
		 "\u1e9e", "\u10d0", "\u13a0", "\u24b6", "\U00010d40", "\u1c89", "\ua7ce"},
		{"\x01", "\x7f", "\u00ad", "\u200b", "\u200d", "\ufeff", "\u0378", "\ue000",
		 "\U000e0001", "\U0010ffff", "\x1c", "\x1f"},
	};
	const size_t groups = sizeof group / sizeof *group;
	unsigned n = 1 + (unsigned)(random_next(state) % most);
	uint64_t kinds = random_next(state);
	size_t len = 0;

	while (n-- > 0 && len + 8 < NASTY_MAX) {
		uint64_t x = random_next(state);
		/* Of three groups mostly: what stands beside what is what matters. */
		size_t g = (x & 7 ? kinds >> 8 * (x >> 3 & 3) & 0xff : x >> 5 & 0xff) % groups;
		const char *item = group[g][(x >> 16) % 16];
		size_t size = item ? strlen(item) : 0;

		if (size > 0)
			memcpy(out + len, item, size);
		len += size;
	}
	return len;
}
