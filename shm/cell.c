/* shm/cell.c -- columns of in-flight cells; layout and order in cell.h. */
#include "shm/cell.h"

#include <errno.h>

#ifndef COLUMN_STORE_POINT
#define COLUMN_STORE_POINT() ((void)0)  /* as latch.h's: for tests */
#define COLUMN_LOAD_POINT()  ((void)0)
#endif

static size_t
column_size(uint32_t rows)
{
	return SEGMENT_BODY + sizeof(struct column_header) + (size_t)rows * sizeof(struct cell);
}

static void
column_view(struct column *column)
{
	char *body = segment_body(&column->seg);

	column->head = (struct column_header *)(void *)body;
	column->cell = (struct cell *)(void *)(body + sizeof(struct column_header));
}

int
column_create(struct column *ret, uint32_t index, uint32_t incarnation, uint32_t rows)
{
	uint64_t geometry[4] = {rows};
	struct column column = {.rows = rows};
	int r;

	r = segment_create(&column.seg, SEGMENT_COLUMN, COLUMN_LAYOUT, column_size(rows), geometry);
	if (r < 0)
		return r;
	column_view(&column);
	column.seg.head->owner_role = ROLE_INGRESS;
	column.seg.head->owner_index = (uint16_t)index;
	column.seg.head->owner_incarnation = incarnation;
	column.head->index = index;
	column.head->incarnation = incarnation;
	column.head->rows = rows;
	atomic_store_explicit(&column.head->alive, 1, memory_order_relaxed);
	segment_publish(&column.seg);
	*ret = column;
	return 0;
}

int
column_attach(struct column *ret, int fd, bool writable)
{
	struct column column = {0};
	int r;

	r = segment_attach(&column.seg, fd, SEGMENT_COLUMN, COLUMN_LAYOUT, writable);
	if (r < 0)
		return r;
	uint64_t rows = column.seg.head->geometry[0];
	if (rows == 0 || rows > 0xffff || column_size((uint32_t)rows) > column.seg.size) {
		segment_detach(&column.seg);
		return -EBADMSG;
	}
	column.rows = (uint32_t)rows;
	column_view(&column);
	*ret = column;
	return 0;
}

void
column_detach(struct column *column)
{
	segment_detach(&column->seg);
	*column = (struct column){.seg.fd = -1};
}

const char *
cell_turn_name(enum cell_turn turn)
{
	static const char *const names[CELL_TURNS] = {
		"-", "unreached", "broke", "unavailable", "closing",
	};

	return (unsigned)turn < CELL_TURNS ? names[turn] : "unknown";
}

uint32_t
column_applied(const struct column *column, uint32_t policy_incarnation)
{
	for (unsigned i = 0; i < COLUMN_STREAMS; i++) {
		COLUMN_LOAD_POINT();
		uint64_t word =
			atomic_load_explicit(&column->head->applied[i], memory_order_acquire);

		if ((uint32_t)(word >> 32) == policy_incarnation)
			return (uint32_t)word;
	}
	return 0;
}

void
column_apply(struct column *column, uint32_t policy_incarnation, uint32_t number)
{
	unsigned oldest = 0;
	uint32_t least = UINT32_MAX;

	/* Incarnations only grow: a new one takes the place of the oldest. */
	for (unsigned i = 0; i < COLUMN_STREAMS; i++) {
		uint64_t word =
			atomic_load_explicit(&column->head->applied[i], memory_order_relaxed);
		uint32_t incarnation = (uint32_t)(word >> 32);

		if (incarnation == policy_incarnation) {
			oldest = i;
			break;
		}
		if (incarnation < least) {
			least = incarnation;
			oldest = i;
		}
	}
	COLUMN_STORE_POINT();
	atomic_store_explicit(&column->head->applied[oldest],
			      (uint64_t)policy_incarnation << 32 | number,
			      memory_order_release); /* C1 */
}

void
column_clear(struct column *column)
{
	static const struct cell_values none;

	atomic_store_explicit(&column->head->alive, 0, memory_order_release);
	for (uint32_t i = 0; i < column->rows; i++)
		cell_write(&column->cell[i],
			   (uint32_t)(atomic_load_explicit(&column->cell[i].word,
							   memory_order_relaxed) >> 32),
			   &none);
}

void
poison_add(struct poison_ring *ring, uint64_t body_hash, mono_ns until)
{
	struct poison *to = &ring->entry[0];

	for (unsigned i = 0; i < POISON_RING; i++) {
		struct poison *p = &ring->entry[i];

		if (atomic_load_explicit(&p->body_hash, memory_order_relaxed) == body_hash) {
			to = p;
			break;
		}
		if (atomic_load_explicit(&p->until_ns, memory_order_relaxed) <
		    atomic_load_explicit(&to->until_ns, memory_order_relaxed))
			to = p;
	}
	/* Never another's hash with our time: a writer that stops here forgets one entry. */
	atomic_store_explicit(&to->until_ns, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&to->body_hash, body_hash, memory_order_relaxed);
	atomic_store_explicit(&to->until_ns, until, memory_order_release);              /* P1 */
	if (atomic_load_explicit(&ring->newest_ns, memory_order_relaxed) < until)
		atomic_store_explicit(&ring->newest_ns, until, memory_order_release);   /* P2 */
}

bool
poison_has(const struct poison_ring *ring, uint64_t body_hash, mono_ns now)
{
	if (atomic_load_explicit(&ring->newest_ns, memory_order_acquire) <= now)        /* A2 */
		return false;
	for (unsigned i = 0; i < POISON_RING; i++)
		if (atomic_load_explicit(&ring->entry[i].until_ns, memory_order_acquire) > /* A1 */
			    now &&
		    atomic_load_explicit(&ring->entry[i].body_hash, memory_order_relaxed) ==
			    body_hash)
			return true;
	return false;
}

void
poison_copy(struct poison_ring *to, const struct poison_ring *from, mono_ns now)
{
	for (unsigned i = 0; i < POISON_RING; i++) {
		const struct poison *p = &from->entry[i];
		mono_ns until = atomic_load_explicit(&p->until_ns, memory_order_acquire);

		if (until > now)
			poison_add(to, atomic_load_explicit(&p->body_hash, memory_order_relaxed),
				   until);
	}
}
