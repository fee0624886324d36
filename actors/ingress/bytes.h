/* actors/ingress/bytes.h -- a buffer that grows with what came, and is never grown by a promise.
 *
 * Ownership  p is the buffer's; bytes_free gives it back and leaves an empty one.
 * Threads    its owner's.
 * Cost       doubling: no more than two copies of a byte.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
	char *p;
	size_t len, cap;
};

/* Room for at least want more, at its end, or NULL: no memory, and nothing changed. */
static inline char *
bytes_room(struct bytes *b, size_t want)
{
	size_t cap = b->cap ? b->cap : 2048;
	char *grown;

	if (b->cap - b->len >= want)
		return b->p + b->len;
	while (cap - b->len < want)
		cap *= 2;
	grown = realloc(b->p, cap);
	if (!grown)
		return NULL;
	b->p = grown;
	b->cap = cap;
	return b->p + b->len;
}

/* False: no memory, and nothing changed. */
static inline bool
bytes_add(struct bytes *b, const void *p, size_t n)
{
	char *room = bytes_room(b, n);

	if (!room)
		return false;
	memcpy(room, p, n);
	b->len += n;
	return true;
}

static inline void
bytes_free(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){0};
}
