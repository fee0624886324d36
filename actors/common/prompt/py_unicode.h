/* actors/common/prompt/py_unicode.h -- code points as Python's str knows them.
 *
 * Meaning    the classes and case mappings behind str.isspace, isalpha, upper, repr and so on, of
 *            Unicode 14 (Python 3.11; py_c*_tables.c are made by make_py_unicode.py).
 * Text       UTF-8; three bytes of a lone surrogate decode to it; a byte that begins no character
 *            is taken alone, as U+FFFD.
 * Threads    pure.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

enum {
	PY_ALPHA = 1, PY_DECIMAL = 2, PY_DIGIT = 4, PY_NUMERIC = 8, PY_SPACE = 16, PY_LOWER = 32,
	PY_UPPER = 64, PY_PRINTABLE = 128, PY_CASED = 256, PY_IGNORABLE = 512, PY_TITLE = 1024,
	PY_XID_START = 2048, PY_XID_CONTINUE = 4096
};

struct py_class {
	uint32_t first;                         /* up to the next row's */
	uint16_t bits;
};

/* From `first` to `last`, every `step`th: add `delta`. */
struct py_shift {
	uint32_t first, last;
	uint32_t step;
	int32_t delta;
};

/* A character that becomes several. */
struct py_special {
	uint32_t from;
	uint32_t to[3];                         /* 0: none */
};

extern const struct py_class py_class_table[];
extern const uint32_t py_class_rows;
extern const struct py_shift py_upper_table[], py_lower_table[], py_title_table[], py_fold_table[];
extern const uint32_t py_upper_rows, py_lower_rows, py_title_rows, py_fold_rows;
extern const struct py_special py_upper_special[], py_lower_special[], py_title_special[],
	py_fold_special[];
extern const uint32_t py_upper_specials, py_lower_specials, py_title_specials, py_fold_specials;

enum py_case { PY_TO_UPPER, PY_TO_LOWER, PY_TO_TITLE, PY_TO_FOLD };

unsigned py_bits(uint32_t cp);
unsigned py_map(enum py_case to, uint32_t cp, uint32_t ret[3]); /* how many, 1 to 3 */
unsigned py_encode(uint32_t cp, char out[4]);                   /* bytes written */

/* The character at p: its code point, and how many bytes it takes (at least 1). */
static inline uint32_t
py_decode(const char *p, const char *end, unsigned *ret_len)
{
	const unsigned char *u = (const unsigned char *)p;
	size_t left = (size_t)(end - p);

	*ret_len = 1;
	if (u[0] < 0x80)
		return u[0];
	if (u[0] >= 0xc2 && u[0] < 0xe0 && left >= 2) {
		*ret_len = 2;
		return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
	}
	if (u[0] >= 0xe0 && u[0] < 0xf0 && left >= 3) {
		*ret_len = 3;
		return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
	}
	if (u[0] >= 0xf0 && u[0] < 0xf5 && left >= 4) {
		*ret_len = 4;
		return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 |
		       (u[3] & 0x3fu);
	}
	return 0xfffd;
}

/* Bytes of the character that ends at `end`, which lies behind start. */
static inline unsigned
py_back(const char *start, const char *end)
{
	unsigned n = 1;

	while (n < 4 && end - n > start && ((unsigned char)end[-(int)n] & 0xc0) == 0x80)
		n++;
	return n;
}

static inline bool
py_is_space(uint32_t cp)
{
	if (cp < 0x80)
		return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x1f);
	return (py_bits(cp) & PY_SPACE) != 0;
}

const char *py_find(struct slice in, struct slice what);        /* memmem, made for rare firsts */
size_t py_length(struct slice s);               /* in code points */
size_t py_offset(struct slice s, size_t index); /* bytes before code point `index` (at most len) */
struct slice py_strip(struct slice s, bool left, bool right);           /* white space */
struct slice py_strip_set(struct slice s, struct slice set, bool left, bool right);
