/* actors/policy/overlay.c -- answers sent and not applied; meaning and order in overlay.h. */
#include "actors/policy/overlay.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_FIRST 256u               /* answers a stream's ring begins with; a power of two */
#define AHEAD 12u                       /* entries: memory latency over the work on one */
#define SLOTS (OVERLAY_PREFIXES * 2)    /* of a prefix table: load at most one half */

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
	uint64_t hash;
	uint32_t row;
	uint32_t turn;                  /* of its table when it was noted; another: empty */
};

struct prefixes {
	struct prefix *table;
	uint32_t turn;                  /* from 1 */
	uint32_t n;
};

struct overlay {
	struct row_sum *row;
	uint32_t rows;
	struct overlay_stream *streams;
	size_t length;
	struct prefixes prefixes[2];
	unsigned young;                 /* the one that notes go to */
	mono_ns rotated;                /* when it began */
};

int
overlay_new(struct overlay **ret, uint32_t rows)
{
	struct overlay *o = calloc(1, sizeof *o);

	if (!o)
		return -ENOMEM;
	o->rows = rows;
	o->row = calloc(rows ? rows : 1, sizeof *o->row);
	for (unsigned i = 0; i < 2; i++) {
		o->prefixes[i].turn = 1;
		o->prefixes[i].table = calloc(SLOTS, sizeof(struct prefix));
	}
	if (!o->row || !o->prefixes[0].table || !o->prefixes[1].table) {
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
	free(o->prefixes[0].table);
	free(o->prefixes[1].table);
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
overlay_push(struct overlay *o, struct overlay_stream *s, uint16_t row, uint32_t row_gen,
	     uint32_t tokens, uint32_t pick)
{
	if (s->next - s->first == s->size && stream_grow(s) < 0)
		return 0;
	s->ring[s->next & (s->size - 1)] =
		(struct entry){.row = row, .row_gen = row_gen, .tokens = tokens};
	if (row < o->rows) {
		struct row_sum *sum = &o->row[row];

		/* re-added: what went to its predecessor is nobody's */
		if (sum->row_gen != row_gen)
			*sum = (struct row_sum){.row_gen = row_gen};
		sum->charge.pending += tokens;
		sum->charge.prefilling++;
		sum->charge.last_pick = pick;
	}
	o->length++;
	if (s->next == UINT32_MAX) { /* number 0 means none: a stream ends before it wraps */
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

/* ---- prefixes ----
 *
 * Two generations of one table: notes go to the younger, questions to both; when the younger is
 * half a lifetime old, or full, the older is forgotten and takes its place.  Nothing is ever
 * removed singly: an entry of another turn of its table is an empty place, so forgetting is one
 * increment. */

static uint32_t
home_of(uint64_t hash, uint32_t row)
{
	/* hash is well mixed already; the row must move it, since one block may go to several
	 * rows */
	return (uint32_t)((hash ^ row * 0x9e3779b97f4a7c15ull) >> 20) & (SLOTS - 1);
}

/* The tables are larger than the caches: what will be looked at AHEAD entries on is asked for
 * now. */
static void
ask_for(const struct prefixes *p, uint64_t hash, uint32_t row)
{
	__builtin_prefetch(&p->table[home_of(hash, row)], 1);
}

/* Where {hash, row} is, or the empty place where it would go; there is one, at most half are
 * taken. */
static uint32_t
prefix_place(const struct prefixes *p, uint64_t hash, uint32_t row)
{
	uint32_t at = home_of(hash, row);

	while (p->table[at].turn == p->turn &&
	       (p->table[at].hash != hash || p->table[at].row != row))
		at = (at + 1) & (SLOTS - 1);
	return at;
}

static bool
prefix_known(const struct prefixes *p, uint64_t hash, uint32_t row)
{
	return p->n > 0 && p->table[prefix_place(p, hash, row)].turn == p->turn;
}

static void
prefixes_forget(struct prefixes *p)
{
	p->n = 0;
	if (++p->turn == 0) {           /* once in 2^32: old entries would look new */
		memset(p->table, 0, SLOTS * sizeof *p->table);
		p->turn = 1;
	}
}

static void
rotate(struct overlay *o, mono_ns now)
{
	const mono_ns half = OVERLAY_PREFIX_NS / 2;

	if (now - o->rotated >= 2 * half)       /* both are too old */
		prefixes_forget(&o->prefixes[o->young]);
	o->young ^= 1;
	prefixes_forget(&o->prefixes[o->young]);
	o->rotated = now;
}

void
overlay_note(struct overlay *o, uint16_t row, const uint64_t *hash, size_t n, mono_ns now)
{
	struct prefixes *young;

	if (now - o->rotated >= OVERLAY_PREFIX_NS / 2)
		rotate(o, now);
	young = &o->prefixes[o->young];
	for (size_t i = 0; i < n; i++) {
		if (i + AHEAD < n)
			ask_for(young, hash[i + AHEAD], row);
		if (young->n == OVERLAY_PREFIXES) {
			rotate(o, now);
			young = &o->prefixes[o->young];
		}
		struct prefix *p = &young->table[prefix_place(young, hash[i], row)];

		young->n += p->turn != young->turn;
		*p = (struct prefix){.hash = hash[i], .row = row, .turn = young->turn};
	}
}

size_t
overlay_depth(struct overlay *o, uint16_t row, const uint64_t *hash, size_t known, size_t n,
	      mono_ns now)
{
	if (now - o->rotated >= OVERLAY_PREFIX_NS / 2)
		rotate(o, now);
	if (o->prefixes[0].n + o->prefixes[1].n == 0)
		return known;
	while (known < n) {
		if (known + AHEAD < n) {
			ask_for(&o->prefixes[0], hash[known + AHEAD], row);
			ask_for(&o->prefixes[1], hash[known + AHEAD], row);
		}
		if (!prefix_known(&o->prefixes[0], hash[known], row) &&
		    !prefix_known(&o->prefixes[1], hash[known], row))
			break;
		known++;
	}
	return known;
}
