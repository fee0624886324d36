/* tests/scan_oracle.h -- the pieces of a text by PCRE2 alone, in its UTF mode.
 *
 * Nothing of it is shared with the scanners but the tables: properties are written into the pattern
 * as ranges of characters, case is folded by PCRE2.  Slow.
 */
#pragma once
#include "actors/common/prompt/scan.h"

struct scan_oracle;

struct scan_oracle *scan_oracle_new(const char *const *pattern, size_t n);
	/* Splits that isolate, one after another.  NULL: PCRE2 does not take one. */
size_t scan_oracle_pieces(struct scan_oracle *o, struct slice text, uint32_t *ret_len, size_t max);
	/* The text is valid UTF-8, and has at most max pieces. */
void scan_oracle_free(struct scan_oracle *o);
