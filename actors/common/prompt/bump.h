/* actors/common/prompt/bump.h -- memory of one request: taken piece by piece, given back at once.
 *
 * Meaning    bytes are taken from large chunks in order; nothing is freed alone.  bump_reset makes
 *            all of it free again and keeps one chunk, so that a thread's next request asks malloc
 *            for nothing.
 * Bound      at most `max` bytes taken since the last reset: past it, NULL.
 * Ownership  what was taken is good until the next reset or free.
 * Threads    one at a time.   Cost: a few instructions; a chunk is one malloc.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct bump_chunk;

struct bump {
	char *p, *end;                          /* what is left of the newest chunk */
	struct bump_chunk *newest;
	size_t used, max;                       /* bytes taken; bound */
};

void bump_init(struct bump *bump, size_t max);  /* takes no memory yet */
void bump_free(struct bump *bump);
void bump_reset(struct bump *bump);
void bump_give_back(struct bump *bump, size_t most);
	/* Like bump_reset, and no chunk of more than `most` bytes stays. */

void *bump_take(struct bump *bump, size_t n);
	/* n bytes, aligned for any type, not cleared; never NULL for n 0.  NULL: over the bound, or
	 * no memory. */
char *bump_bytes(struct bump *bump, size_t n);
	/* The same, for text: not aligned. */
bool bump_extend(struct bump *bump, const char *end, size_t n);
	/* Are the n bytes that follow `end` free?  Then they are taken: what ends there has grown
	 * in place.  (A string that grows by concatenation is so copied once, not each time.) */
