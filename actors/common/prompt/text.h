/* actors/common/prompt/text.h -- bytes that grow up to a bound: what a template renders to.
 *
 * Meaning    p[0, len) is the text so far.  text_clear keeps the memory.
 * Bound      `max` bytes; a text that would pass it fails and stays as it was.
 * Errors     0, -ENOSPC over the bound, -ENOMEM.
 * Ownership  the text's own memory, malloc; text_free gives it back.  Threads: one at a time.
 */
#pragma once
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "proto/slice.h"

struct text {
	char *p;
	size_t len, cap, max;
};

void text_init(struct text *text, size_t max);  /* takes no memory yet */
void text_free(struct text *text);
void text_give_back(struct text *text, size_t most);    /* what it has, if that is more */
int text_room(struct text *text, size_t n);
	/* After it, n more bytes can be written behind p + len. */

static inline void
text_clear(struct text *text)
{
	text->len = 0;
}

static inline struct slice
text_slice(const struct text *text)
{
	return (struct slice){text->p ? text->p : "", text->len};
}

static inline int
text_add(struct text *text, const char *p, size_t n)
{
	if (n > text->cap - text->len || n > text->max - text->len) {
		int r = text_room(text, n);

		if (r < 0)
			return r;
	}
	if (n)
		memcpy(text->p + text->len, p, n);
	text->len += n;
	return 0;
}
