/* shm/rows.c -- the worker table; layout and writers in rows.h. */
#include "shm/rows.h"

#include <errno.h>
#include <string.h>

#include "shm/journal.h"

_Static_assert(COEF_COUNT == COEF_IN_JOURNAL, "a decision record keeps every coefficient");

static size_t
rows_size(uint32_t capacity)
{
	return SEGMENT_BODY + sizeof(struct rows_header) +
	       (size_t)capacity * (sizeof(struct row) + sizeof(struct row_text));
}

static void
rows_view(struct rows *rows)
{
	char *body = segment_body(&rows->seg);

	rows->head = (struct rows_header *)(void *)body;
	rows->row = (struct row *)(void *)(body + sizeof(struct rows_header));
	rows->text = (struct row_text *)(void *)(rows->row + rows->capacity);
}

int
rows_create(struct rows *ret, uint32_t capacity)
{
	uint64_t geometry[4] = {capacity};
	struct rows rows = {.capacity = capacity};
	int r;

	r = segment_create(&rows.seg, SEGMENT_ROWS, ROWS_LAYOUT, rows_size(capacity), geometry);
	if (r < 0)
		return r;
	rows_view(&rows);
	rows.head->capacity = capacity;
	segment_publish(&rows.seg);
	*ret = rows;
	return 0;
}

int
rows_attach(struct rows *ret, int fd, bool writable)
{
	struct rows rows = {0};
	int r;

	r = segment_attach(&rows.seg, fd, SEGMENT_ROWS, ROWS_LAYOUT, writable);
	if (r < 0)
		return r;
	uint64_t capacity = rows.seg.head->geometry[0];
	if (capacity == 0 || capacity > ROW_NONE || rows_size((uint32_t)capacity) > rows.seg.size) {
		segment_detach(&rows.seg);
		return -EBADMSG;
	}
	rows.capacity = (uint32_t)capacity;
	rows_view(&rows);
	*ret = rows;
	return 0;
}

void
rows_detach(struct rows *rows)
{
	segment_detach(&rows->seg);
	*rows = (struct rows){.seg.fd = -1};
}

uint16_t
rows_find(const struct rows *rows, uint64_t uid)
{
	uint32_t count = atomic_load_explicit(&rows->head->count, memory_order_acquire);

	if (count > rows->capacity)
		count = rows->capacity;
	for (uint32_t i = 0; i < count; i++)
		if (atomic_load_explicit(&rows->row[i].intent, memory_order_acquire) !=
			    INTENT_NONE &&
		    rows->row[i].uid == uid)
			return (uint16_t)i;
	return ROW_NONE;
}

void
row_reading_write(struct row *row, const struct row_reading *reading)
{
	latch_write(&row->reading_word, 0, row->reading, ROW_READING_WORDS,
		    (const uint32_t *)(const void *)reading);
}

bool
row_reading_read(const struct row *row, struct row_reading *ret)
{
	return latch_read(&row->reading_word, NULL, row->reading, ROW_READING_WORDS,
			  (uint32_t *)(void *)ret);
}

void
row_predictor_write(struct row *row, const struct row_predictor *predictor)
{
	latch_write(&row->predictor_word, 0, row->predictor, ROW_PREDICTOR_WORDS,
		    (const uint32_t *)(const void *)predictor);
}

bool
row_predictor_read(const struct row *row, struct row_predictor *ret)
{
	return latch_read(&row->predictor_word, NULL, row->predictor, ROW_PREDICTOR_WORDS,
			  (uint32_t *)(void *)ret);
}

enum row_state
row_state(const struct row *row, const struct row_reading *reading)
{
	switch (atomic_load_explicit(&row->intent, memory_order_acquire)) {
	case INTENT_SERVE:
		break;
	case INTENT_DRAIN:
		return ROW_DRAINING;
	default:
		return ROW_ABSENT;
	}
	switch (reading->health) {
	case HEALTH_UP:
		return ROW_UP;
	case HEALTH_SUSPECT:
		return ROW_SUSPECT;
	case HEALTH_DOWN:
		return ROW_DOWN;
	default:
		return ROW_UNPROVEN;
	}
}

const char *
row_state_name(enum row_state state)
{
	static const char *const names[] = {"absent",  "draining", "down",
					    "suspect", "unproven", "up"};

	return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *
cache_state_name(unsigned state)
{
	static const char *const names[] = {"none",      "exact", "gap",
					    "replaying", "stale", "approximate"};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *
cache_reason_name(unsigned reason)
{
	static const char *const names[] = {
		"-", "no-events", "first-sequence", "sequence-hole", "sequence-back",
		"engine-start", "half-batch", "writer-restart", "cleared",
	};

	return reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}
