/* shm/arena.c -- powers of two, freed regions first; see arena.h. */
#include "shm/arena.h"

#include <errno.h>
#include <stdlib.h>

int
arena_create(struct arena *ret, uint32_t index, uint32_t incarnation, uint64_t size)
{
	struct arena arena = {0};
	int r;

	r = segment_create(&arena.seg, SEGMENT_ARENA, ARENA_LAYOUT, size, NULL);
	if (r < 0)
		return r;
	arena.size = arena.seg.size;
	arena.seg.head->owner_role = ROLE_INGRESS;
	arena.seg.head->owner_index = (uint16_t)index;
	arena.seg.head->owner_incarnation = incarnation;
	segment_publish(&arena.seg);
	*ret = arena;
	return 0;
}

int
arena_attach(struct arena *ret, int fd, bool writable)
{
	struct arena arena = {0};
	int r;

	r = segment_attach(&arena.seg, fd, SEGMENT_ARENA, ARENA_LAYOUT, writable);
	if (r < 0)
		return r;
	arena.size = arena.seg.size;
	arena.fresh = 1u << ARENA_MIN_SHIFT;    /* the header's page is never handed out */
	*ret = arena;
	return 0;
}

void
arena_detach(struct arena *arena)
{
	segment_detach(&arena->seg);
	for (unsigned s = 0; s <= ARENA_MAX_SHIFT; s++)
		free(arena->list[s].off);
	*arena = (struct arena){.seg.fd = -1};
}

static unsigned
arena_shift(size_t len)
{
	unsigned shift = ARENA_MIN_SHIFT;

	while (shift <= ARENA_MAX_SHIFT && ((size_t)1 << shift) < len)
		shift++;
	return shift;
}

uint64_t
arena_alloc(struct arena *arena, size_t len, size_t *ret_cap)
{
	unsigned shift = arena_shift(len);

	if (shift > ARENA_MAX_SHIFT)
		return 0;
	size_t cap = (size_t)1 << shift;
	uint64_t off;
	if (arena->list[shift].n > 0) {
		off = arena->list[shift].off[--arena->list[shift].n];
	} else {
		unsigned s = shift + 1;

		while (s <= ARENA_MAX_SHIFT && arena->list[s].n == 0)
			s++;
		if (arena->size - arena->fresh >= cap) {
			off = arena->fresh;
			arena->fresh += cap;
		} else if (s <= ARENA_MAX_SHIFT) {
			/* Nothing fresh: split a larger freed region, giving back the upper halves.
			 */
			off = arena->list[s].off[--arena->list[s].n];
			arena->used += (uint64_t)1 << s;
			while (s-- > shift)
				arena_free(arena, off + ((uint64_t)1 << s), (size_t)1 << s);
			arena->used -= cap;
		} else {
			return 0;
		}
	}
	arena->used += cap;
	*ret_cap = cap;
	return off;
}

void
arena_free(struct arena *arena, uint64_t off, size_t cap)
{
	struct arena_list *list = &arena->list[arena_shift(cap)];

	arena->used -= cap;
	if (list->n == list->cap) {
		uint32_t more = list->cap ? list->cap * 2 : 64;
		uint64_t *grown = realloc(list->off, more * sizeof *grown);

		if (!grown)
			return;                 /* the region is lost, the arena is not */
		list->off = grown;
		list->cap = more;
	}
	list->off[list->n++] = off;
}

void *
arena_at(const struct arena *arena, uint64_t off, size_t len)
{
	if (off < SEGMENT_BODY || off > arena->size || len > arena->size - off)
		return NULL;
	return (char *)arena->seg.head + off;
}
