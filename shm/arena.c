/* shm/arena.c -- powers of two, freed regions first; see arena.h. */
#include "shm/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

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

/* False: no memory; the region is lost, the arena is not. */
static bool
list_push(struct arena_list *list, uint64_t off)
{
	if (list->n == list->cap) {
		uint32_t more = list->cap ? list->cap * 2 : 64;
		uint64_t *grown = realloc(list->off, more * sizeof *grown);

		if (!grown)
			return false;
		list->off = grown;
		list->cap = more;
	}
	list->off[list->n++] = off;
	return true;
}

/* A freed region or part of one; 0: none. */
static uint64_t
take_freed(struct arena *arena, unsigned shift)
{
	unsigned s = shift;
	uint64_t off;

	while (s <= ARENA_MAX_SHIFT && arena->list[s].n == 0)
		s++;
	if (s > ARENA_MAX_SHIFT)
		return 0;
	off = arena->list[s].off[--arena->list[s].n];
	while (s-- > shift)                     /* the upper halves stay free */
		list_push(&arena->list[s], off + ((uint64_t)1 << s));
	return off;
}

struct extent {
	uint64_t off, len;
};

static int
extent_order(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static void
extent_carve(struct arena *arena, struct extent e)
{
	for (unsigned s = ARENA_MAX_SHIFT + 1; s-- > ARENA_MIN_SHIFT;)
		for (uint64_t cap = (uint64_t)1 << s; e.len >= cap; e.off += cap, e.len -= cap)
			list_push(&arena->list[s], e.off);
}

/* Freed neighbours become one region again, of whatever sizes they were. */
static void
join_freed(struct arena *arena)
{
	size_t n = 0, joined = 0;
	struct extent *all;

	for (unsigned s = ARENA_MIN_SHIFT; s <= ARENA_MAX_SHIFT; s++)
		n += arena->list[s].n;
	all = n ? malloc(n * sizeof *all) : NULL;
	if (!all)
		return;
	n = 0;
	for (unsigned s = ARENA_MIN_SHIFT; s <= ARENA_MAX_SHIFT; s++) {
		for (uint32_t i = 0; i < arena->list[s].n; i++)
			all[n++] = (struct extent){arena->list[s].off[i], (uint64_t)1 << s};
		arena->list[s].n = 0;
	}
	qsort(all, n, sizeof *all, extent_order);
	for (size_t i = 1; i < n; i++)
		if (all[joined].off + all[joined].len == all[i].off)
			all[joined].len += all[i].len;
		else
			all[++joined] = all[i];
	for (size_t i = 0; i <= joined; i++)
		extent_carve(arena, all[i]);
	free(all);
}

uint64_t
arena_alloc(struct arena *arena, size_t len, size_t *ret_cap)
{
	unsigned shift = arena_shift(len);

	if (shift > ARENA_MAX_SHIFT)
		return 0;
	size_t cap = (size_t)1 << shift;
	uint64_t off = 0;
	if (arena->list[shift].n > 0) {
		off = arena->list[shift].off[--arena->list[shift].n];
	} else if (arena->size - arena->fresh >= cap) {
		off = arena->fresh;
		arena->fresh += cap;
	} else {
		off = take_freed(arena, shift);
	}
	if (off == 0 && arena->freed >= cap) {
		arena->freed = 0;
		join_freed(arena);
		off = take_freed(arena, shift);
	}
	if (off == 0)
		return 0;
	arena->used += cap;
	*ret_cap = cap;
	return off;
}

void
arena_free(struct arena *arena, uint64_t off, size_t cap)
{
	arena->used -= cap;
	arena->freed += cap;
	if (cap >= ARENA_RETURN)                /* kept where the kernel cannot */
		madvise((char *)arena->seg.head + off, cap, MADV_REMOVE);
	list_push(&arena->list[arena_shift(cap)], off);
}

void *
arena_at(const struct arena *arena, uint64_t off, size_t len)
{
	if (off < SEGMENT_BODY || off > arena->size || len > arena->size - off)
		return NULL;
	return (char *)arena->seg.head + off;
}
