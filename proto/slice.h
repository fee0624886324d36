/* proto/slice.h -- bytes that belong to somebody else: a pointer and a length.
 *
 * Meaning    {p, len} names len bytes inside a buffer the slice does not own; it is good for as
 *            long as that buffer neither moves nor changes.  Never NUL-terminated.
 *            {NULL, 0} means absent, {non-NULL, 0} means present and empty.
 * Cost       two words, passed by value.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
	const char *p;
	size_t      len;
};

/* A slice of a string literal. */
#define SLICE_LIT(s) ((struct slice){(s), sizeof(s) - 1})

static inline struct slice
slice_of(const char *p, size_t len)
{
	return (struct slice){p, len};
}

/* Of a C string; NULL is absent. */
static inline struct slice
slice_str(const char *s)
{
	return (struct slice){s, s ? strlen(s) : 0};
}

static inline bool
slice_eq(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

static inline bool
slice_eq_str(struct slice a, const char *s)
{
	return a.len == strlen(s) && (a.len == 0 || memcmp(a.p, s, a.len) == 0);
}
