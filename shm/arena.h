/* shm/arena.h -- heads and bodies of live requests, one arena per ingress incarnation.
 *
 *      segment header | bytes
 *
 * Regions are powers of two from 4 KiB; the free lists live in the ingress's private memory (the
 * arena dies with the incarnation, nothing has to be rebuilt).  Freed chunks are reused before
 * fresh ones are touched: first touch costs 4.5 us a page.  Large ones give their pages back: what
 * a burst of long prompts took does not stay taken.  When nothing of a size is left, freed
 * neighbours are joined: many small regions at once must not keep large ones away for ever.
 * Crash      bytes half written were never asked about (slot.h W1 comes after them); the lists die
 *            with the ingress, the segment with its last reader.  Nobody repairs.
 * Writers    the owning ingress.  Readers: policy processes, by slot.
 */
#pragma once
#include "shm/segment.h"

#define ARENA_LAYOUT    1u
#define ARENA_DEFAULT   (1ull << 30)    /* address space; pages are taken when touched */
#define ARENA_MIN_SHIFT 12u
#define ARENA_MAX_SHIFT 26u             /* 64 MiB: the largest region */
#define ARENA_RETURN    (4ull << 20)    /* freed regions of so many bytes give their pages back */

struct arena {                          /* process-local */
	struct segment seg;
	uint64_t size;                          /* bytes usable, offsets from the segment's start */
	uint64_t fresh;                         /* owner: next never-used offset */
	uint64_t used;                          /* owner: bytes handed out */
	uint64_t freed; /* owner: bytes freed since neighbours were joined */
	struct arena_list {
		uint64_t *off;
		uint32_t n, cap;
	} list[ARENA_MAX_SHIFT + 1];            /* owner: freed regions per power of two */
};

int arena_create(struct arena *ret, uint32_t index, uint32_t incarnation, uint64_t size); /* S */
int arena_attach(struct arena *ret, int fd, bool writable); /* takes fd */
void arena_detach(struct arena *arena);

uint64_t arena_alloc(struct arena *arena, size_t len, size_t *ret_cap);
	/* Owner.  Offset of a region of at least len bytes (its size in ret_cap), 0: none left.
	 * Joins neighbours when there is none, 50 ns a free region, and not again before len bytes
	 * were freed. */
void arena_free(struct arena *arena, uint64_t off, size_t cap);         /* owner; cap as returned */
void *arena_at(const struct arena *arena, uint64_t off, size_t len);
	/* Bytes at off, or NULL when [off, +len) is not inside: offsets from shared memory are
	 * checked
	 * here before use. */
