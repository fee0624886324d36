/* actors/common/tags/plain.h -- a text as patterns read it: one way to write a digit or a blank.
 *
 * Meaning    Format characters (Cf: zero-width blanks, soft hyphens, direction marks) are gone;
 *            decimal digits of every script are 0 to 9; full-width forms are their ASCII; every
 *            blank within a line is U+0020, every hyphen and dash U+002D; DEVANAGARI PHA with a
 *            nukta is one character.  All else is as it was, letters' case too.
 * Source     Unicode 16 (prompt/unicode.h) for digits; Cf as in Unicode 15.
 * Threads    pure functions.   Cost: 10 GB/s of ASCII, some 4 ns another character.
 */
#pragma once
#include <stddef.h>

#include "proto/slice.h"

size_t plain_same(struct slice text);
	/* Bytes at its beginning that stay as they are; text.len: all of it. */
size_t plain_text(char *text, size_t len);
	/* In place, UTF-8; the new length, never more. */
