/* actors/policy/overlay.c -- answers sent and not applied; meaning and order in overlay.h. */
#include "actors/policy/overlay.h"

#include <errno.h>
#include <stdlib.h>

#define STREAM_FIRST 256u               /* answers a stream's ring begins with; a power of two */
#define SLOTS (OVERLAY_PREFIXES * 2)    /* of the prefix table: load at most one half */

struct entry {                          /* one answer; its number is its place in the stream */
	uint32_t row_gen, tokens;
	uint16_t row;
};

struct overlay_stream {
	struct entry *ring;
	uint32_t size;                  /* of ring, a power of two */
	uint32_t first;                 /* number of the oldest answer in it */
	uint32_t next;                  /* number the next answer gets */
	struct overlay_stream *newer;
};

struct row_sum {
	uint32_t row_gen;
	struct overlay_charge charge;
};

struct prefix {
	uint64_t hash;                  /* 0: empty */
	uint32_t expires_ms;            /* since `born` */
	uint32_t row;
};

struct overlay {
	struct row_sum *row;
	uint32_t rows;
	struct overlay_stream *streams;
	size_t length;
	mono_ns born;
	/* prefixes: a table, and a queue of its entries in the order they expire */
	struct prefix *table;
	struct prefix *queue;
	uint32_t head, n;               /* of queue */
};

int
overlay_new(struct overlay **ret, uint32_t rows)
{
	struct overlay *o = calloc(1, sizeof *o);

	if (!o)
		return -ENOMEM;
	o->rows = rows;
	o->row = calloc(rows ? rows : 1, sizeof *o->row);
	o->table = calloc(SLOTS, sizeof *o->table);
	o->queue = calloc(OVERLAY_PREFIXES, sizeof *o->queue);
	if (!o->row || !o->table || !o->queue) {
		overlay_free(&o);
		return -ENOMEM;
	}
	*ret = o;
	return 0;
}

void
overlay_free(struct overlay **ret)
{
	struct overlay *o = *ret;

	if (!o)
		return;
	while (o->streams) {
		struct overlay_stream *s = o->streams;

		overlay_stream_close(o, &s);
	}
	free(o->row);
	free(o->table);
	free(o->queue);
	free(o);
	*ret = NULL;
}

/* ---- charges ---- */

int
overlay_stream_open(struct overlay *o, struct overlay_stream **ret)
{
	struct overlay_stream *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->ring = calloc(STREAM_FIRST, sizeof *s->ring);
	if (!s->ring) {
		free(s);
		return -ENOMEM;
	}
	s->size = STREAM_FIRST;
	s->first = s->next = 1;
	s->newer = o->streams;
	o->streams = s;
	*ret = s;
	return 0;
}

void
overlay_stream_close(struct overlay *o, struct overlay_stream **ret)
{
	struct overlay_stream *s = *ret, **at = &o->streams;

	if (!s)
		return;
	overlay_settle(o, s, s->next - 1);
	while (*at && *at != s)
		at = &(*at)->newer;
	if (*at)
		*at = s->newer;
	free(s->ring);
	free(s);
	*ret = NULL;
}

static int
stream_grow(struct overlay_stream *s)
{
	struct entry *ring = calloc((size_t)s->size * 2, sizeof *ring);

	if (!ring)
		return -ENOMEM;
	for (uint32_t number = s->first; number != s->next; number++)
		ring[number & (s->size * 2 - 1)] = s->ring[number & (s->size - 1)];
	free(s->ring);
	s->ring = ring;
	s->size *= 2;
	return 0;
}

uint32_t
overlay_push(struct overlay *o, struct overlay_stream *s, uint16_t row, uint32_t row_gen, uint32_t tokens,
	     uint32_t pick)
{
	if (s->next - s->first == s->size && stream_grow(s) < 0)
		return 0;
	s->ring[s->next & (s->size - 1)] = (struct entry){.row = row, .row_gen = row_gen, .tokens = tokens};
	if (row < o->rows) {
		struct row_sum *sum = &o->row[row];

		if (sum->row_gen != row_gen)    /* re-added: what went to its predecessor is nobody's */
			*sum = (struct row_sum){.row_gen = row_gen};
		sum->charge.pending += tokens;
		sum->charge.prefilling++;
		sum->charge.last_pick = pick;
	}
	o->length++;
	if (s->next == UINT32_MAX) {            /* number 0 means none: a stream ends before it wraps */
		o->length--;
		return 0;
	}
	return s->next++;
}

void
overlay_settle(struct overlay *o, struct overlay_stream *s, uint32_t applied)
{
	while (s->first != s->next && (int32_t)(applied - s->first) >= 0) {
		const struct entry *e = &s->ring[s->first & (s->size - 1)];

		if (e->row < o->rows && o->row[e->row].row_gen == e->row_gen) {
			o->row[e->row].charge.pending -= e->tokens;
			o->row[e->row].charge.prefilling--;
		}
		o->length--;
		s->first++;
	}
}

struct overlay_charge
overlay_row(const struct overlay *o, uint16_t row, uint32_t row_gen)
{
	if (row >= o->rows || o->row[row].row_gen != row_gen)
		return (struct overlay_charge){0};
	return o->row[row].charge;
}

size_t
overlay_length(const struct overlay *o)
{
	return o->length;
}

/* ---- prefixes ---- */

static uint32_t
home_of(uint64_t hash, uint32_t row)
{
	/* hash is well mixed already; the row must move it, since one block may go to several rows */
	return (uint32_t)((hash ^ row * 0x9e3779b97f4a7c15ull) >> 20) & (SLOTS - 1);
}

/* Where {hash, row} is, or the empty place where it would go. */
static uint32_t
prefix_place(const struct overlay *o, uint64_t hash, uint32_t row)
{
	uint32_t at = home_of(hash, row);

	while (o->table[at].hash != 0 && (o->table[at].hash != hash || o->table[at].row != row))
		at = (at + 1) & (SLOTS - 1);
	return at;
}

/* Linear probing without tombstones: whoever probed past the hole moves back into it. */
static void
prefix_remove(struct overlay *o, uint32_t hole)
{
	uint32_t at = hole;

	for (;;) {
		at = (at + 1) & (SLOTS - 1);
		const struct prefix *p = &o->table[at];

		if (p->hash == 0)
			break;
		uint32_t home = home_of(p->hash, p->row);

		if (((at - home) & (SLOTS - 1)) >= ((at - hole) & (SLOTS - 1))) {
			o->table[hole] = *p;
			hole = at;
		}
	}
	o->table[hole].hash = 0;
}

static void
queue_pop(struct overlay *o)
{
	const struct prefix *old = &o->queue[o->head];
	uint32_t at = prefix_place(o, old->hash, old->row);

	/* an entry noted again has a newer place in the queue: that one will take it out */
	if (o->table[at].hash != 0 && o->table[at].expires_ms == old->expires_ms)
		prefix_remove(o, at);
	o->head = (o->head + 1) & (OVERLAY_PREFIXES - 1);
	o->n--;
}

static uint32_t
since_born_ms(struct overlay *o, mono_ns now)
{
	if (o->born == 0)
		o->born = now;
	return (uint32_t)((now - o->born) / 1000000u);
}

void
overlay_note(struct overlay *o, uint16_t row, const uint64_t *hash, size_t n, mono_ns now)
{
	uint32_t now_ms = since_born_ms(o, now);
	uint32_t expires_ms = now_ms + (uint32_t)(OVERLAY_PREFIX_NS / 1000000u);

	while (o->n > 0 && (int32_t)(now_ms - o->queue[o->head].expires_ms) >= 0)
		queue_pop(o);
	for (size_t i = 0; i < n; i++) {
		if (hash[i] == 0)
			continue;
		if (o->n == OVERLAY_PREFIXES)
			queue_pop(o);
		struct prefix *p = &o->table[prefix_place(o, hash[i], row)];

		if (p->hash != 0 && p->expires_ms == expires_ms)
			continue;       /* noted in this very millisecond: it is in the queue already */
		*p = (struct prefix){.hash = hash[i], .expires_ms = expires_ms, .row = row};
		o->queue[(o->head + o->n) & (OVERLAY_PREFIXES - 1)] = *p;
		o->n++;
	}
}

size_t
overlay_depth(struct overlay *o, uint16_t row, const uint64_t *hash, size_t known, size_t n, mono_ns now)
{
	uint32_t now_ms = since_born_ms(o, now);

	if (o->n == 0)
		return known;
	while (known < n) {
		const struct prefix *p = &o->table[prefix_place(o, hash[known], row)];

		if (p->hash == 0 || (int32_t)(now_ms - p->expires_ms) >= 0)
			break;
		known++;
	}
	return known;
}
