/* actors/common/prompt/scan_set.c -- see scan_set.h. */
#include "actors/common/prompt/scan_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void
replace(struct scan_set *s, struct unicode_range *r, size_t n)
{
	free(s->r);
	s->r = r;
	s->n = n;
}

/* Both are sorted: merge, and join what touches. */
int
set_add_ranges(struct scan_set *s, const struct unicode_range *with, size_t n_with)
{
	struct unicode_range *r = malloc((s->n + n_with + 1) * sizeof *r);
	size_t n = 0, i = 0, k = 0;

	if (!r)
		return -ENOMEM;
	while (i < s->n || k < n_with) {
		bool mine = k == n_with || (i < s->n && s->r[i].first <= with[k].first);
		struct unicode_range next = mine ? s->r[i++] : with[k++];

		if (n > 0 && next.first <= r[n - 1].last + 1) {
			if (next.last > r[n - 1].last)
				r[n - 1].last = next.last;
		} else {
			r[n++] = next;
		}
	}
	replace(s, r, n);
	return 0;
}

int
set_add(struct scan_set *s, uint32_t first, uint32_t last)
{
	return set_add_ranges(s, &(struct unicode_range){first, last}, 1);
}

int
set_intersect(struct scan_set *s, const struct scan_set *with)
{
	struct unicode_range *r = malloc((s->n + with->n + 1) * sizeof *r);
	size_t n = 0, i = 0, k = 0;

	if (!r)
		return -ENOMEM;
	while (i < s->n && k < with->n) {
		struct unicode_range a = s->r[i], b = with->r[k];
		uint32_t first = a.first > b.first ? a.first : b.first;
		uint32_t last = a.last < b.last ? a.last : b.last;

		if (first <= last)
			r[n++] = (struct unicode_range){first, last};
		if (a.last < b.last)
			i++;
		else
			k++;
	}
	replace(s, r, n);
	return 0;
}

int
set_invert(struct scan_set *s)
{
	struct unicode_range *r = malloc((s->n + 1) * sizeof *r);
	size_t n = 0;
	uint32_t from = 0;

	if (!r)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++) {
		if (s->r[i].first > from)
			r[n++] = (struct unicode_range){from, s->r[i].first - 1};
		from = s->r[i].last + 1;
	}
	if (from <= UNICODE_MAX)
		r[n++] = (struct unicode_range){from, UNICODE_MAX};
	replace(s, r, n);
	return 0;
}

bool
set_eq(const struct scan_set *a, const struct scan_set *b)
{
	return a->n == b->n && (a->n == 0 || memcmp(a->r, b->r, a->n * sizeof *a->r) == 0);
}

void
set_free(struct scan_set *s)
{
	replace(s, NULL, 0);
}
