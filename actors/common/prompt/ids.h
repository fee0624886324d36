/* actors/common/prompt/ids.h -- token ids that grow: what a text becomes.
 *
 * Meaning    id[0, n) are the ids so far; n = 0 keeps the memory.  Zero-initialised: empty.
 * Bound      none of its own: who adds has one (tokenizer_encode: max_ids).
 * Errors     0, -ENOMEM: nothing added.
 * Ownership  the ids' own memory, malloc; ids_free gives it back.  Threads: one at a time.
 */
#pragma once
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ids {
	uint32_t *id;
	size_t n, cap;
};

/* After it, `more` ids can be written behind id + n. */
static inline int
ids_room(struct ids *ids, size_t more)
{
	if (more <= ids->cap - ids->n)
		return 0;
	if (more > SIZE_MAX / 8 - ids->n)
		return -ENOMEM;
	size_t cap = ids->n + more + ids->n / 2 + 64;
	uint32_t *id = realloc(ids->id, cap * sizeof(*id));

	if (!id)
		return -ENOMEM;
	ids->id = id;
	ids->cap = cap;
	return 0;
}

static inline int
ids_add(struct ids *ids, const uint32_t *id, size_t n)
{
	int r = ids_room(ids, n);

	if (r < 0)
		return r;
	if (n)
		memcpy(ids->id + ids->n, id, n * sizeof(*id));
	ids->n += n;
	return 0;
}

static inline void
ids_free(struct ids *ids)
{
	free(ids->id);
	*ids = (struct ids){0};
}
