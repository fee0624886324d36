/* shm/cell.c -- columns of in-flight cells; layout and order in cell.h. */
#include "shm/cell.h"

#include <errno.h>

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

uint32_t
column_applied(const struct column *column, uint32_t policy_incarnation)
{
	for (unsigned i = 0; i < COLUMN_STREAMS; i++) {
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
	atomic_store_explicit(&column->head->applied[oldest],
			      (uint64_t)policy_incarnation << 32 | number,
			      memory_order_release); /* C1 */
}
