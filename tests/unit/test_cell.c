/* shm/cell, shm/slot, shm/arena: the ledger's cells, live requests and their bytes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/arena.h"
#include "shm/cell.h"
#include "shm/slot.h"

Test(cell, a_cell_of_another_row_generation_reads_as_zero)
{
	struct column column;
	struct cell_values in = {.pending = 5, .prefilling = 1}, out;

	cr_assert_eq(column_create(&column, 0, 1, 4), 0);
	cell_write(&column.cell[2], 7, &in);
	cr_assert(cell_read(&column.cell[2], 7, &out));
	cr_assert_eq(out.pending, 5);
	cr_assert(cell_read(&column.cell[2], 8, &out));
	cr_assert_eq(out.pending, 0);
	column_detach(&column);
}

Test(cell, each_policy_incarnation_has_its_own_watermark_and_the_oldest_gives_way)
{
	struct column column;

	cr_assert_eq(column_create(&column, 0, 1, 4), 0);
	for (uint32_t inc = 10; inc < 14; inc++)
		column_apply(&column, inc, inc * 2);
	for (uint32_t inc = 10; inc < 14; inc++)
		cr_assert_eq(column_applied(&column, inc), inc * 2);
	column_apply(&column, 14, 1);
	cr_assert_eq(column_applied(&column, 10), 0);
	cr_assert_eq(column_applied(&column, 14), 1);
	cr_assert_eq(column_applied(&column, 13), 26);
	column_detach(&column);
}

Test(poison, what_is_in_a_ring_is_refused_until_its_time_and_the_first_to_end_gives_way)
{
	static struct poison_ring ring;

	cr_assert(!poison_has(&ring, 0, 1), "an empty ring refuses nothing, not even hash 0");
	for (uint64_t i = 0; i < POISON_RING; i++)
		poison_add(&ring, 1000 + i, 100 + i);
	for (uint64_t i = 0; i < POISON_RING; i++) {
		cr_assert(poison_has(&ring, 1000 + i, 99 + i));
		cr_assert(!poison_has(&ring, 1000 + i, 100 + i));
	}
	poison_add(&ring, 1003, 500);           /* again: one entry, longer */
	poison_add(&ring, 7, 600);
	cr_assert(!poison_has(&ring, 1000, 99));
	cr_assert(poison_has(&ring, 1001, 100));
	cr_assert(poison_has(&ring, 1003, 499));
	cr_assert(poison_has(&ring, 7, 599));
}

Test(poison, what_has_not_ended_outlives_its_ring)
{
	static struct poison_ring dead, next;

	poison_add(&dead, 1, 100);
	poison_add(&dead, 2, 300);
	poison_copy(&next, &dead, 200);
	cr_assert(!poison_has(&next, 1, 50), "it had ended");
	cr_assert(poison_has(&next, 2, 299));
	cr_assert(!poison_has(&next, 2, 300));
}

Test(slot, its_word_packs_and_unpacks)
{
	uint64_t w = slot_word(0xdeadbeef, 0x1234, SLOT_HELD, 9);

	cr_assert_eq(slot_generation(w), 0xdeadbeef);
	cr_assert_eq(slot_ask(w), 0x1234);
	cr_assert_eq(slot_state(w), SLOT_HELD);
	cr_assert_eq(slot_deaths(w), 9);
}

Test(arena, regions_never_overlap_and_freed_ones_are_used_again)
{
	struct { uint64_t off; size_t cap; } live[64] = {{0}};
	struct arena arena, owner;
	unsigned refused = 0;

	cr_assert_eq(arena_create(&arena, 0, 1, 1 << 20), 0);
	cr_assert_eq(arena_attach(&owner, dup(arena.seg.fd), true), 0);
	srand(1);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = (unsigned)rand() % 64;

		if (live[i].off) {
			unsigned char *p = arena_at(&owner, live[i].off, live[i].cap);

			cr_assert_not_null(p);
			cr_assert_eq(p[0], i);
			cr_assert_eq(p[live[i].cap - 1], i);
			arena_free(&owner, live[i].off, live[i].cap);
			live[i].off = 0;
		} else {
			live[i].off = arena_alloc(&owner, (size_t)rand() % 30000 + 1, &live[i].cap);
			if (!live[i].off) {
				refused++;
				continue;
			}
			memset(arena_at(&owner, live[i].off, live[i].cap), (int)i, live[i].cap);
		}
	}
	cr_assert_lt(refused, 15000);
	arena_detach(&owner);
	arena_detach(&arena);
}

Test(arena, an_offset_outside_is_refused)
{
	struct arena arena;

	cr_assert_eq(arena_create(&arena, 0, 1, 1 << 16), 0);
	cr_assert_null(arena_at(&arena, 0, 10));
	cr_assert_null(arena_at(&arena, arena.size - 5, 10));
	cr_assert_null(arena_at(&arena, UINT64_MAX - 3, 10));
	cr_assert_null(arena_at(&arena, 4096, SIZE_MAX));
	cr_assert_not_null(arena_at(&arena, arena.size - 10, 10));
	arena_detach(&arena);
}

static struct arena
arena_owned(uint64_t size)
{
	struct arena made, owner;

	cr_assert_eq(arena_create(&made, 0, 1, size), 0);
	cr_assert_eq(arena_attach(&owner, dup(made.seg.fd), true), 0);
	arena_detach(&made);
	return owner;
}

Test(arena, many_small_regions_do_not_keep_large_ones_away_when_they_are_gone)
{
	struct arena arena = arena_owned(8 << 20);
	static uint64_t off[4096];
	static size_t cap[4096];
	size_t n = 0, large;
	uint64_t at;

	while (n < 4096 && (off[n] = arena_alloc(&arena, 4096u << n % 3, &cap[n])) != 0)
		n++;
	while (n < 4096 && (off[n] = arena_alloc(&arena, 4096, &cap[n])) != 0)
		n++;
	cr_assert(n > 500 && n < 4096);
	cr_assert_eq(arena_alloc(&arena, 1 << 20, &large), 0u);
	for (size_t i = 0; i < n; i += 2)       /* half of them: no two are neighbours */
		arena_free(&arena, off[i], cap[i]);
	cr_assert_eq(arena_alloc(&arena, 1 << 20, &large), 0u);
	for (size_t i = 1; i < n; i += 2)
		arena_free(&arena, off[i], cap[i]);
	cr_assert_eq(arena.used, 0u);
	for (unsigned i = 0; i < 3; i++) {
		at = arena_alloc(&arena, 2 << 20, &large);
		cr_assert(at != 0, "region %u of 2 MiB", i);
		memset(arena_at(&arena, at, large), 1, large);
	}
	cr_assert_eq(arena.used, 3u * (2 << 20));
	arena_detach(&arena);
}

Test(arena, large_regions_give_their_pages_back)
{
	struct arena arena = arena_owned(64 << 20);
	struct stat before, full, after;
	size_t cap;
	uint64_t at = arena_alloc(&arena, 32 << 20, &cap);

	cr_assert(at != 0);
	cr_assert_eq(fstat(arena.seg.fd, &before), 0);
	memset(arena_at(&arena, at, cap), 7, cap);
	cr_assert_eq(fstat(arena.seg.fd, &full), 0);
	cr_assert_geq(full.st_blocks - before.st_blocks, (32 << 20) / 512);
	arena_free(&arena, at, cap);
	cr_assert_eq(fstat(arena.seg.fd, &after), 0);
	cr_assert_eq(after.st_blocks, before.st_blocks);
	cr_assert_eq(arena_alloc(&arena, 32 << 20, &cap), at);
	cr_assert_eq(*(unsigned char *)arena_at(&arena, at, 1), 0);
	arena_detach(&arena);
}
