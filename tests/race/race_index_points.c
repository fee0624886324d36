/* tests/race/race_index_points.c -- the index's writer stopped before each single store, a reader
 * interrupted between each two loads.
 *
 * Stop   An operation is run once whole, then from the same bytes again and again, dying one store
 *        later each time.  At each point: a reader sees nothing false; the next writer recovers;
 *        nothing is double, unreachable, overcounted or garbage; nothing the operation did not
 *        touch is lost.
 * Read   A lookup during which the writer does whole operations between any two loads, at random
 *        and by four scripts that aim at one check each.
 * Usage: race_index_points [points per form] [interrupted lookups per form]
 */
#include "shm/index_writer.h"
#include "tests/race/index_load.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	uint64_t stores_left;                   /* before the writer dies; 0: it lives */
	bool armed;
	jmp_buf dead;
	struct load *meddler;                   /* works between a reader's loads */
	bool inside;
	struct script *script;                  /* or this happens, at its load points */
	unsigned loads;
} points;

static void script_play(struct script *script, unsigned load_point);

void
points_store(void)
{
	if (points.armed && --points.stores_left == 0) {
		points.armed = false;
		longjmp(points.dead, 1);
	}
}

void
points_load(void)
{
	struct load *l = points.meddler;

	if (points.script)
		script_play(points.script, ++points.loads);
	if (!l || points.inside)
		return;
	points.inside = true;
	/* At one load point in four. */
	for (uint64_t n = load_random(&l->random) % 128; n < 32; n++)
		load_one(l);
	points.inside = false;
}

/* ---- what the table says, as a sorted set of hashes of (home, tag, id, generation of id) ---- */

struct dump {
	uint64_t *pair;
	size_t n, cap;
};

static int
pair_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The generation too: an id scrubbed from a block and given to it again is another holder. */
static uint64_t
pair_of(const struct index_view *v, uint64_t home, uint64_t tag, uint16_t id)
{
	uint64_t state = tag ^ home << 40, key = load_random(&state);

	state = key ^ (uint64_t)id << 32 ^ index_slot_gen(load(&v->slot[id].word));
	return load_random(&state);
}

static void
dump_take(struct dump *d, const struct index_view *v)
{
	static uint16_t ids[INDEX_MAX_SLOTS];

	d->n = 0;
	for (uint64_t b = 0; b < v->nbuckets; b++)
		for (unsigned lane = 0; lane < LANES; lane++) {
			uint64_t w = load(&v->bucket[b].w[lane]);
			uint64_t s = load(&v->bucket[b].s[lane]);
			unsigned n = w_tag(w) ? index_set_ids(v, s, ids) : 0;

			for (unsigned i = 0; n != SET_MALFORMED && i < n; i++) {
				if (d->n == d->cap) {
					d->cap = d->cap ? d->cap * 2 : 1024;
					d->pair = realloc(d->pair, d->cap * sizeof d->pair[0]);
					if (!d->pair)
						abort();
				}
				d->pair[d->n++] = pair_of(v, bucket_back(v, b, w_displacement(w)),
							  w_tag(w), ids[i]);
			}
		}
	qsort(d->pair, d->n, sizeof d->pair[0], pair_compare);
}

static bool
dump_has(const struct dump *d, uint64_t pair)
{
	return bsearch(&pair, d->pair, d->n, sizeof pair, pair_compare) != NULL;
}

/* Everything in `mid` was there before or is there after; everything in both is in `mid`. */
static bool
dump_between(const struct dump *before, const struct dump *mid, const struct dump *after)
{
	for (size_t i = 0; i < mid->n; i++)
		if (!dump_has(before, mid->pair[i]) && !dump_has(after, mid->pair[i]))
			return false;
	for (size_t i = 0; i < before->n; i++)
		if (dump_has(after, before->pair[i]) && !dump_has(mid, before->pair[i]))
			return false;
	return true;
}

/* ---- one form of the set word ---- */

struct bench {
	struct segment seg;
	struct index *reader;
	struct index_view v;
	struct load load;
	struct load_row row[LOAD_ROWS_MAX];
	uint64_t hits, wrong, damaged, lost, stops;
};

static struct index_writer *
writer_open(struct bench *me)
{
	struct index_writer *w;

	if (index_writer_open(&w, fcntl(me->seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		abort();
	load_adopt(&me->load, w);
	return w;
}

static void
judge(struct bench *me, uint64_t *random)
{
	unsigned chain = (unsigned)(load_random(random) % me->load.chains);

	me->wrong += !load_judge(&me->load, me->reader, chain, &me->hits);
}

static void
audit(struct bench *me, bool recovered)
{
	struct index_audit a;

	if (index_audit(me->reader, &a) < 0)
		abort();
	me->damaged += a.duplicates + a.unreachable + a.garbage;
	if (recovered)
		me->damaged += a.saturated + a.overcounted;
}

static void
stop_everywhere(struct bench *me, uint64_t points_wanted)
{
	struct dump before = {0}, mid = {0}, after = {0};
	char *bytes = malloc(me->seg.size);
	struct load_row names[LOAD_ROWS_MAX];
	uint64_t warm = 4000, random = 7;
	volatile uint64_t at;

	if (!bytes)
		abort();
	struct index_writer *w = writer_open(me);

	for (; warm > 0; warm--)
		load_one(&me->load);
	index_writer_close(&w);
	while (me->stops < points_wanted) {
		w = writer_open(me);
		for (unsigned i = (unsigned)(load_random(&random) % 20); i > 0; i--)
			load_one(&me->load);
		index_writer_close(&w);
		/* The operation is a function of these bytes and this random state. */
		w = writer_open(me);

		struct load state = me->load;

		memcpy(bytes, me->seg.head, me->seg.size);
		memcpy(names, me->row, sizeof names);
		dump_take(&before, &me->v);
		load_one(&me->load);
		dump_take(&after, &me->v);
		audit(me, false);
		index_writer_close(&w);

		struct load state_after = me->load;
		bool stopped = true;

		for (at = 1; stopped; at++) {
			memcpy(me->seg.head, bytes, me->seg.size);
			memcpy(me->row, names, sizeof names);
			me->load = state;
			w = writer_open(me);
			me->load.w = w;
			points.stores_left = at;
			points.armed = true;
			stopped = setjmp(points.dead) != 0;
			if (!stopped)
				load_one(&me->load);
			points.armed = false;
			index_writer_close(&w);

			audit(me, false);
			for (unsigned i = 0; i < 3; i++)
				judge(me, &random);
			w = writer_open(me);
			audit(me, true);
			dump_take(&mid, &me->v);
			me->lost += !dump_between(&before, &mid, &after);
			index_writer_close(&w);
			me->stops++;
		}
		me->load = state_after;
	}
	free(bytes);
	free(before.pair);
	free(mid.pair);
	free(after.pair);
}

static void
read_between(struct bench *me, uint64_t lookups)
{
	struct index_writer *w = writer_open(me);
	uint64_t random = 11;

	for (; lookups > 0; lookups--) {
		points.meddler = &me->load;
		judge(me, &random);
		points.meddler = NULL;
		load_one(&me->load);
	}
	audit(me, true);
	index_writer_close(&w);
}

static int
form(const char *name, uint32_t max_slots, unsigned rows, unsigned chains, uint64_t stops,
     uint64_t lookups)
{
	static struct bench me;
	uint64_t hits;

	me = (struct bench){
		.load = {.rows = rows, .chains = chains, .seed = max_slots, .random = 3}};
	me.load.row = me.row;
	if (index_create(&me.seg, 1, max_slots, 1) < 0 ||
	    index_attach_mapped(&me.reader, &me.seg) < 0 || index_view_open(&me.v, &me.seg) < 0)
		return 1;
	stop_everywhere(&me, stops);
	hits = me.hits;
	read_between(&me, lookups);
	printf("%-7s stops %lu depth %lu; interrupted lookups %lu depth %lu; wrong %lu damaged %lu "
	       "lost %lu\n",
	       name, (unsigned long)me.stops, (unsigned long)hits, (unsigned long)lookups,
	       (unsigned long)(me.hits - hits), (unsigned long)me.wrong, (unsigned long)me.damaged,
	       (unsigned long)me.lost);
	index_detach(&me.reader);
	segment_detach(&me.seg);
	return me.wrong || me.damaged || me.lost || hits == 0 || me.hits == hits;
}

/* ---- four lookups interrupted on purpose ---- */

#define SCRIPT_ROWS 16u
#define BLOCK(n)        (5ull << 58 | (n))  /* one home bucket: the next key takes the freed lane */

enum plot { PLOT_REKEY, PLOT_REKEY_BACK, PLOT_CHUNK_REUSED, PLOT_CHUNK_REUSED_BACK, PLOTS };
static const char *const plot_names[] = {
	"a lane that got another key is a miss",
	"a lane that got another key and its old one back is a miss",
	"a chunk that went to another lane is a miss",
	"a chunk that went to another lane and came back is a miss",
};

struct script {
	struct index_writer *w;
	enum plot plot;
	uint16_t id[SCRIPT_ROWS];               /* the exact slot of row r */
};

static void
holders(struct script *me, uint64_t block, unsigned from, unsigned to, bool put)
{
	for (unsigned r = from; r < to; r++)
		if (put)
			index_put(me->w, me->id[r], block, NULL, 0);
		else
			index_take(me->w, block, &me->id[r], 1);
}

/* Block 1 gives its chunk up, and enough others pass through quarantine for it to be used again: by
 * block 2, held by rows 8 .. 15 alone. */
static void
chunk_to_other(struct script *me)
{
	uint32_t chunk;
	struct lane at;

	lane_find(&me->w->v, BLOCK(1), &at);
	chunk = pool_chunk(load(&me->w->v.bucket[at.bucket].s[at.lane]));
	holders(me, BLOCK(1), 2, 8, false);     /* two are left: a list again */
	for (unsigned i = 0; i < 4 * QUARANTINE; i++) {
		holders(me, BLOCK(2), 8, 16, true);
		lane_find(&me->w->v, BLOCK(2), &at);
		if (pool_chunk(load(&me->w->v.bucket[at.bucket].s[at.lane])) == chunk)
			return;
		holders(me, BLOCK(2), 8, 16, false);
	}
}

static void
script_play(struct script *me, unsigned point)
{
	/* Point 1: w is read; 2: s too; 3: the first word of a chunk; 4: the second. */
	struct lane at;

	switch (me->plot) {
	case PLOT_REKEY:
	case PLOT_REKEY_BACK:
		if (point == 1) {
			holders(me, BLOCK(1), 0, 1, false);
			holders(me, BLOCK(2), 8, 9, true);
		} else if (point == 2 && me->plot == PLOT_REKEY_BACK) {
			holders(me, BLOCK(2), 8, 9, false);
			holders(me, BLOCK(1), 0, 1, true);
		}
		break;
	case PLOT_CHUNK_REUSED:
	case PLOT_CHUNK_REUSED_BACK:
		if (point == 2)
			chunk_to_other(me);
		if (point != 4 || me->plot == PLOT_CHUNK_REUSED)
			break;
		lane_find(&me->w->v, BLOCK(2), &at);
		uint32_t chunk = pool_chunk(load(&me->w->v.bucket[at.bucket].s[at.lane]));
		holders(me, BLOCK(2), 8, 16, false);
		for (unsigned i = 0; i < 4 * QUARANTINE; i++) {
			holders(me, BLOCK(1), 2, 8, true);
			lane_find(&me->w->v, BLOCK(1), &at);
			if (pool_chunk(load(&me->w->v.bucket[at.bucket].s[at.lane])) == chunk)
				break;
			holders(me, BLOCK(1), 2, 8, false);
		}
		break;
	case PLOTS:
		break;
	}
}

static int
play(enum plot plot)
{
	struct index_depth depth[SCRIPT_ROWS];
	struct script script = {.plot = plot};
	struct segment seg;
	struct index *reader;
	uint64_t block = BLOCK(1);
	bool pool = plot == PLOT_CHUNK_REUSED || plot == PLOT_CHUNK_REUSED_BACK;
	unsigned n;
	int bad = 0;

	if (index_create(&seg, 1, 70, 1) < 0 || index_attach_mapped(&reader, &seg) < 0 ||
	    index_writer_open(&script.w, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	for (unsigned r = 0; r < SCRIPT_ROWS; r++)
		script.id[r] =
			index_slot_take(script.w, (uint16_t)r, 1, INDEX_EXACT, INDEX_GPU, 16);
	holders(&script, block, 0, pool ? 8 : 1, true);
	if (index_match(reader, &block, 1, depth, SCRIPT_ROWS) != (pool ? 8 : 1))
		bad = 1;                        /* undisturbed, it finds them */
	points.loads = 0;
	points.script = &script;
	n = index_match(reader, &block, 1, depth, SCRIPT_ROWS);
	points.script = NULL;
	for (unsigned i = 0; i < n; i++)
		bad |= depth[i].row >= 8;       /* holders of block 2 */
	printf("%s %s\n", bad ? "FALSE:" : "true:", plot_names[plot]);
	index_detach(&reader);
	index_writer_close(&script.w);
	segment_detach(&seg);
	return bad;
}

int
main(int argc, char **argv)
{
	uint64_t stops = argc > 1 ? strtoull(argv[1], NULL, 10) : 6000;
	uint64_t lookups = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
	int bad = 0;

	for (unsigned plot = 0; plot < PLOTS; plot++)
		bad |= play((enum plot)plot);
	bad |= form("bitmap", 40, 12, 30, stops, lookups);
	bad |= form("list12", 70, 24, 30, stops, lookups);
	bad |= form("list16", 300 + 4095, 24, 30, stops / 4, lookups / 4);
	return bad;
}
