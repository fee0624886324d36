/* actors/common/prompt/bump.c -- chunks that double; see bump.h. */
#include "actors/common/prompt/bump.h"

#include <stdint.h>
#include <stdlib.h>

#define FIRST_CHUNK (64u << 10)         /* a conversation of thirty messages fits */
#define ALIGN       16u

struct bump_chunk {
	struct bump_chunk *older;
	size_t size;                            /* bytes behind this head */
	_Alignas(ALIGN) char bytes[];
};

void
bump_init(struct bump *bump, size_t max)
{
	*bump = (struct bump){.max = max};
}

static void
free_from(struct bump_chunk *chunk)
{
	while (chunk) {
		struct bump_chunk *older = chunk->older;

		free(chunk);
		chunk = older;
	}
}

void
bump_free(struct bump *bump)
{
	free_from(bump->newest);
	bump_init(bump, bump->max);
}

void
bump_reset(struct bump *bump)
{
	struct bump_chunk *chunk = bump->newest;

	bump->used = 0;
	if (!chunk)
		return;
	free_from(chunk->older);                /* the newest is the largest */
	chunk->older = NULL;
	bump->p = chunk->bytes;
	bump->end = chunk->bytes + chunk->size;
}

void
bump_give_back(struct bump *bump, size_t most)
{
	bump_reset(bump);
	if (bump->newest && bump->newest->size > most)
		bump_free(bump);
}

static bool
new_chunk(struct bump *bump, size_t n)
{
	size_t size = bump->newest ? 2 * bump->newest->size : FIRST_CHUNK;
	struct bump_chunk *chunk;

	if (size > bump->max)
		size = bump->max;
	if (size < n)
		size = n;
	chunk = malloc(sizeof(*chunk) + size);
	if (!chunk)
		return false;
	chunk->older = bump->newest;
	chunk->size = size;
	bump->newest = chunk;
	bump->p = chunk->bytes;
	bump->end = chunk->bytes + size;
	return true;
}

void *
bump_take(struct bump *bump, size_t n)
{
	size_t pad = bump->p ? -(uintptr_t)bump->p & (ALIGN - 1) : 0;
	void *ret;

	if (n > bump->max || n + pad > bump->max - bump->used)
		return NULL;
	if (!bump->p || n + pad > (size_t)(bump->end - bump->p)) {
		if (!new_chunk(bump, n + ALIGN))
			return NULL;
		pad = 0;
	}
	ret = bump->p + pad;
	bump->p += n + pad;
	bump->used += n + pad;
	return ret;
}

char *
bump_bytes(struct bump *bump, size_t n)
{
	char *ret;

	if (n > bump->max - bump->used)
		return NULL;
	if ((!bump->p || n > (size_t)(bump->end - bump->p)) && !new_chunk(bump, n))
		return NULL;
	ret = bump->p;
	bump->p += n;
	bump->used += n;
	return ret;
}

bool
bump_extend(struct bump *bump, const char *end, size_t n)
{
	if (!bump->p || end != bump->p || n > (size_t)(bump->end - bump->p) ||
	    n > bump->max - bump->used)
		return false;
	bump->p += n;
	bump->used += n;
	return true;
}
