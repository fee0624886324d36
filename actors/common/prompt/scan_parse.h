/* actors/common/prompt/scan_parse.h -- a pattern of Oniguruma's, said for PCRE2.
 *
 * Source     Oniguruma 6.9, Ruby syntax, as the crate onig opens it: groups, alternatives, classes
 *            with && and nesting, properties of our tables, greedy, lazy and possessive repeats,
 *            look-ahead and look-behind, (?i) over ASCII, (?m), ^ $ \A \z \Z \b \B.
 * Result     syntax as bytes, in which each set of characters is SCAN_SET and its number; the
 *            sets, each once.
 * Bounds     patterns of SCAN_PATTERN_MAX bytes, SCAN_DEPTH groups deep, SCAN_SETS sets.
 */
#pragma once
#include "actors/common/prompt/scan_set.h"

#define SCAN_PATTERN_MAX 16384u
#define SCAN_DEPTH       32u
#define SCAN_SETS        256u
#define SCAN_SET         '\1'           /* followed by one byte: the set's number */

struct scan_parsed {
	char *text;                     /* owned */
	size_t len, cap;
	struct scan_set set[SCAN_SETS]; /* owned */
	size_t n_sets;
};

int scan_parse(struct slice pattern, struct scan_parsed *ret, const char **why, size_t *ret_at);
	/* ret is zero before, and must be freed after it in any case.  0; -EINVAL with why (static)
	 * and where: beyond us, or no pattern; -ENOMEM. */
void scan_parsed_free(struct scan_parsed *p);
