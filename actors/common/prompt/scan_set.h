/* actors/common/prompt/scan_set.h -- sets of characters, as patterns write them.
 *
 * Meaning    ranges, sorted, none touching, all <= UNICODE_MAX.  Zero is the empty set.
 * Ownership  set_free; a failed call leaves its set as it was.
 * Errors     0 or -ENOMEM.
 * Cost       linear in the ranges; cold.
 */
#pragma once
#include "actors/common/prompt/unicode.h"

struct scan_set {
	struct unicode_range *r;        /* owned */
	size_t n;
};

int set_add(struct scan_set *s, uint32_t first, uint32_t last);
int set_add_ranges(struct scan_set *s, const struct unicode_range *r, size_t n);
int set_intersect(struct scan_set *s, const struct scan_set *with);
int set_invert(struct scan_set *s);
bool set_eq(const struct scan_set *a, const struct scan_set *b);
void set_free(struct scan_set *s);
