/* tests/race/race_index_scripts.c -- a lookup interrupted between each two of its loads.
 *
 * Read    The writer does whole operations between any two loads of a lookup, at random.
 * Play    A script does what one check of the reader is there for, at the load it is there for.
 * Usage: race_index_scripts [interrupted lookups per form]
 */
#include "shm/index_writer.h"
#include "tests/race/index_load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct load *meddler;                   /* works between a reader's loads */
	bool inside;
	struct script *script;                  /* or this happens, at its load points */
	unsigned loads;
	struct index *onlooker;                 /* looks block 1 up before each store */
	bool absent;                            /* and row 0 was not among its holders */
} points;

#define BLOCK(n)        (5ull << 58 | (n))  /* one home bucket: the next key takes the freed lane */

static void script_play(struct script *script, unsigned load_point);

void
points_store(void)
{
	struct index_depth depth[16];
	uint64_t block = BLOCK(1);
	bool seen = false;

	if (!points.onlooker)
		return;
	for (unsigned n = index_match(points.onlooker, &block, 1, depth, 16); n > 0; n--)
		seen |= depth[n - 1].row == 0;
	points.absent |= !seen;
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
	for (uint64_t n = random_next(&l->random) % 128; n < 32; n++)
		load_one(l);
	points.inside = false;
}

/* ---- at random ---- */

static int
read_between(const char *name, uint32_t max_slots, unsigned rows, unsigned chains,
	     uint64_t lookups)
{
	static struct load_row row[LOAD_ROWS_MAX];
	struct load load = {.rows = rows,
			    .chains = chains,
			    .hot = 1,
			    .phase = 5000,
			    .seed = max_slots,
			    .random = 3};
	uint64_t random = 11, hits = 0, wrong = 0;
	struct index_writer *w;
	struct index_audit a;
	struct index *reader;
	struct segment seg;
	bool pools[INDEX_CLASSES] = {false};

	memset(row, 0, sizeof row);
	load.row = row;
	if (index_create(&seg, 1, max_slots, 1) < 0 || index_attach_mapped(&reader, &seg) < 0 ||
	    index_writer_open(&w, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	load_adopt(&load, w);
	for (uint64_t i = 0; i < lookups; i++) {
		unsigned chain = (unsigned)(random_next(&random) % chains);

		points.meddler = &load;
		wrong += !load_judge(&load, reader, chain, &hits);
		points.meddler = NULL;
		load_one(&load);
		for (unsigned c = 0; c < INDEX_CLASSES; c++)
			pools[c] |= index_writer_head(w)->pool_used[c] > 0;
	}
	if (index_audit(reader, &a) < 0)
		return 1;
	printf("%-6s interrupted lookups %lu depth %lu operations %lu wrong %lu damaged %lu pools "
	       "%d %d\n",
	       name, (unsigned long)lookups, (unsigned long)hits, (unsigned long)load.done,
	       (unsigned long)wrong,
	       (unsigned long)(a.duplicates + a.unreachable + a.garbage + a.saturated +
			       a.overcounted + a.miscounted),
	       pools[0], pools[1]);
	wrong += a.duplicates + a.unreachable + a.garbage + a.saturated + a.overcounted +
		 a.miscounted;
	index_detach(&reader);
	index_writer_close(&w);
	segment_detach(&seg);
	return wrong || hits == 0 || pools[0] != (max_slots > 511) || pools[1] != (max_slots > 62);
}

/* ---- on purpose ---- */

#define SCRIPT_ROWS 16u

enum plot {
	REKEY,
	REKEY_BACK,
	CHUNK_REUSED,
	CHUNK_REUSED_BACK,
	SMALL_REUSED,
	SMALL_REUSED_BACK,
	SMALL_TWICE,
	SLOT_REOWNED,
	SLOT_SLICED,
	SLOT_DEMOTED,
	PLOTS
};

static const struct {
	const char *sentence;
	uint32_t max_slots;
	unsigned blocks;                        /* asked for: 1 .. */
	unsigned holders;                       /* rows 0 .. of each of them */
} plots[PLOTS] = {
	[REKEY] = {"a lane that got another key is a miss", 70, 1, 1},
	[REKEY_BACK] = {"a lane that got another key and its old one back is a miss", 70, 1, 1},
	[CHUNK_REUSED] = {"a bitmap that went to another lane is a miss", 70, 1, 8},
	[CHUNK_REUSED_BACK] = {"a bitmap that went to another lane and came back is a miss", 70, 1,
			       8},
	[SMALL_REUSED] = {"a chunk of ids that went to another lane is a miss", 600, 1, 8},
	[SMALL_REUSED_BACK] = {"a chunk of ids that went to another lane and came back is a miss",
			       600, 1, 8},
	[SMALL_TWICE] = {"an id that moved within a chunk while it was copied counts once", 600, 3,
			 8},
	[SLOT_REOWNED] = {"a bit of an id's next owner is not its last owner's", 70, 1, 2},
	[SLOT_SLICED] = {"an id scrubbed in slices and taken again is neither owner's", 70, 3, 2},
	[SLOT_DEMOTED] = {"what was demoted meanwhile is not called exact", 70, 1, 2},
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

static uint64_t
set_of(struct script *me, uint64_t block)
{
	struct lane at;

	return lane_find(&me->w->v, block, &at) ?
		       load(&me->w->v.bucket[at.bucket].s[at.lane]) :
		       0;
}

/* Block `to` takes and gives up chunks until it has this one. */
static void
chunk_wanted(struct script *me, uint64_t to, unsigned from_row, unsigned to_row, uint64_t wanted)
{
	for (unsigned i = 0; i < 4 * QUARANTINE; i++) {
		holders(me, to, from_row, to_row, true);

		uint64_t s = set_of(me, to);

		if (pool_chunk(s) == pool_chunk(wanted) && pool_class(s) == pool_class(wanted))
			return;
		holders(me, to, from_row, to_row, false);
	}
}

/* Block 1 gives its chunk up, and enough others pass through quarantine for it to be used again: by
 * block 2, held by rows 8 .. 15 alone. */
static void
chunk_to_other(struct script *me)
{
	uint64_t s = set_of(me, BLOCK(1));

	holders(me, BLOCK(1), 2, 8, false);     /* two are left: a list again */
	chunk_wanted(me, BLOCK(2), 8, 16, s);
}

static void
chunk_back(struct script *me)
{
	uint64_t s = set_of(me, BLOCK(2));

	holders(me, BLOCK(2), 8, 16, false);
	chunk_wanted(me, BLOCK(1), 2, 8, s);
}

/* Row 0's slot becomes row 9's, who holds all that is asked for. */
static void
slot_next_owner(struct script *me)
{
	uint16_t id = index_slot_take(me->w, 9, 1, INDEX_EXACT, INDEX_GPU, 16);

	if (id != me->id[0])
		abort();                        /* the id freed last is taken first */
	for (unsigned b = 1; b <= 4; b++)
		index_put(me->w, id, BLOCK(b), NULL, 0);
}

static void
script_play(struct script *me, unsigned point)
{
	/* Point 1: w is read; 2: s too; 3 ..: each word of a chunk. */
	switch (me->plot) {
	case REKEY:
	case REKEY_BACK:
		if (point == 1) {
			holders(me, BLOCK(1), 0, 1, false);
			holders(me, BLOCK(2), 8, 9, true);
		} else if (point == 2 && me->plot == REKEY_BACK) {
			holders(me, BLOCK(2), 8, 9, false);
			holders(me, BLOCK(1), 0, 1, true);
		}
		break;
	case CHUNK_REUSED:
	case CHUNK_REUSED_BACK:
	case SMALL_REUSED:
	case SMALL_REUSED_BACK:
		if (point == 2)
			chunk_to_other(me);
		if (point == 4 && (me->plot == CHUNK_REUSED_BACK || me->plot == SMALL_REUSED_BACK))
			chunk_back(me);
		break;
	case SMALL_TWICE:
		if (point != 3)
			break;
		holders(me, BLOCK(1), 0, 1, false);
		holders(me, BLOCK(1), 9, 10, true);     /* in the place of row 0 */
		holders(me, BLOCK(1), 0, 1, true);      /* in the next word */
		break;
	case SLOT_REOWNED:
		if (point != 1)
			break;
		index_slot_retire(me->w, me->id[0]);
		while (index_scrub(me->w, 10) > 0)
			;
		slot_next_owner(me);
		break;
	case SLOT_SLICED:
		if (point == 1)
			index_slot_retire(me->w, me->id[0]);
		else if (index_slot_state(index_slot_word(me->w, me->id[0])) == INDEX_SLOT_RETIRED)
			index_scrub(me->w, 1);
		else if (index_slot_state(index_slot_word(me->w, me->id[0])) == INDEX_SLOT_FREE)
			slot_next_owner(me);
		break;
	case SLOT_DEMOTED:
		if (point == 1)
			index_slot_demote(me->w, me->id[0]);
		break;
	case PLOTS:
		break;
	}
}

/* Is a lie told? */
static bool
false_answer(enum plot plot, const struct index_depth *depth, unsigned n)
{
	bool lie = false;

	for (unsigned i = 0; i < n; i++)
		switch (plot) {
		case SMALL_TWICE:
			lie |= depth[i].row == 0 && depth[i].any > 2;
			break;
		case SLOT_REOWNED:
		case SLOT_SLICED:
			lie |= depth[i].row == 0 || depth[i].row == 9;
			break;
		case SLOT_DEMOTED:
			lie |= depth[i].row == 0 && depth[i].exact > 0;
			break;
		default:
			lie |= depth[i].row >= 8;       /* holders of block 2 */
		}
	return lie;
}

static int
play(enum plot plot)
{
	struct index_depth depth[SCRIPT_ROWS];
	struct script script = {.plot = plot};
	struct segment seg;
	struct index *reader;
	uint64_t block[4] = {BLOCK(1), BLOCK(3), BLOCK(4)};
	unsigned n, blocks = plots[plot].blocks;
	int bad = 0;

	if (index_create(&seg, 1, plots[plot].max_slots, 1) < 0 ||
	    index_attach_mapped(&reader, &seg) < 0 ||
	    index_writer_open(&script.w, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	for (unsigned r = 0; r < SCRIPT_ROWS; r++)
		script.id[r] =
			index_slot_take(script.w, (uint16_t)r, 1, INDEX_EXACT, INDEX_GPU, 16);
	for (unsigned b = 0; b < blocks; b++)
		holders(&script, block[b], plot == SMALL_TWICE && b == 2 ? 1 : 0,
			plots[plot].holders, true);
	if (plot == SLOT_REOWNED)               /* of block 2 row 0 never was a holder */
		holders(&script, block[0] = BLOCK(2), 1, 2, true);
	n = index_match(reader, block, blocks, depth, SCRIPT_ROWS);
	if (n != plots[plot].holders - (plot == SLOT_REOWNED))
		bad = 1;                        /* undisturbed, it finds them */
	points.loads = 0;
	points.script = &script;
	n = index_match(reader, block, blocks, depth, SCRIPT_ROWS);
	points.script = NULL;
	bad |= false_answer(plot, depth, n);
	/* And the reader after it finds what there is now. */
	if (plot == SLOT_REOWNED || plot == SLOT_SLICED) {
		n = index_match(reader, block, blocks, depth, SCRIPT_ROWS);
		bad |= n != 2 || depth[0].row + depth[1].row != 10 || depth[0].any != blocks ||
		       depth[1].any != blocks;
	}
	printf("%s %s\n", bad ? "FALSE:" : "true:", plots[plot].sentence);
	index_detach(&reader);
	index_writer_close(&script.w);
	segment_detach(&seg);
	return bad;
}

/* Each change of a slot is stored before the epoch that tells of it: a reader that copies the slot
 * words in between would keep the old word for good. */
static int
play_onlooker(void)
{
	struct index_depth d[4];
	struct index_writer *w;
	struct segment seg;
	struct index *reader;
	uint64_t block = BLOCK(1);
	int bad = 0;

	if (index_create(&seg, 1, 70, 1) < 0 || index_attach_mapped(&reader, &seg) < 0 ||
	    index_writer_open(&w, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	points.onlooker = reader;
	for (unsigned round = 0; round < 3; round++) {
		uint16_t id = index_slot_take(w, (uint16_t)round, 1, INDEX_EXACT, INDEX_GPU, 16);

		index_put(w, id, block, NULL, 0);
		bad |= index_match(reader, &block, 1, d, 4) != 1 || d[0].row != round ||
		       d[0].exact != 1;
		index_slot_demote(w, id);
		bad |= index_match(reader, &block, 1, d, 4) != 1 || d[0].exact != 0;
		index_slot_retire(w, id);
		bad |= index_match(reader, &block, 1, d, 4) != 0;
		while (round % 2 && index_scrub(w, 1) > 0)
			;
	}
	points.onlooker = NULL;
	printf("%s a reader that looks between any two stores of a change knows of it after\n",
	       bad ? "FALSE:" : "true:");
	index_detach(&reader);
	index_writer_close(&w);
	segment_detach(&seg);
	return bad;
}

/* Row 0 holds block 1 speculatively, with ids in two words of its chunk, then exactly: of a bitmap
 * in a third word. */
static int
play_instead(uint32_t max_slots)
{
	uint16_t id[140], guess[2];
	struct index_writer *w;
	struct segment seg;
	struct index *reader;
	int bad = 0;

	if (index_create(&seg, 1, max_slots, 1) < 0 || index_attach_mapped(&reader, &seg) < 0 ||
	    index_writer_open(&w, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	for (unsigned i = 0; i < 140; i++)
		id[i] = index_slot_take(w, i % 66 == 1 ? 0 : (uint16_t)(i + 1), 1,
					i % 66 == 1 ? INDEX_SPECULATIVE : INDEX_EXACT, INDEX_GPU,
					16);
	index_slot_retire(w, id[130]);
	while (index_scrub(w, 1) > 0)
		;
	guess[0] = id[1];
	guess[1] = id[67];

	uint16_t exact = index_slot_take(w, 0, 1, INDEX_EXACT, INDEX_GPU, 16);

	index_put(w, guess[0], BLOCK(1), NULL, 0);
	for (unsigned i = 2; i < 9; i++)
		index_put(w, id[i], BLOCK(1), NULL, 0);
	index_put(w, guess[1], BLOCK(1), NULL, 0);
	points.onlooker = reader;
	points.absent = false;
	bad |= !index_put(w, exact, BLOCK(1), guess, 2);
	points.onlooker = NULL;
	bad |= points.absent || index_has(w, guess[0], BLOCK(1)) ||
	       index_has(w, guess[1], BLOCK(1)) || !index_has(w, exact, BLOCK(1));
	printf("%s a row is in the set at each store while an id replaces others of it (%u ids)\n",
	       bad ? "FALSE:" : "true:", max_slots);
	index_detach(&reader);
	index_writer_close(&w);
	segment_detach(&seg);
	return bad;
}

int
main(int argc, char **argv)
{
	uint64_t lookups = argc > 1 ? strtoull(argv[1], NULL, 10) : 60000;
	int bad = 0;

	for (unsigned plot = 0; plot < PLOTS; plot++)
		bad |= play((enum plot)plot);
	bad |= play_onlooker();
	bad |= play_instead(200);               /* a bitmap */
	bad |= play_instead(600);               /* a chunk of ids */
	bad |= read_between("bitmap", 40, 12, 30, lookups);
	bad |= read_between("list12", 70, 24, 30, lookups);
	bad |= read_between("ids12", 512, 128, 20, lookups / 2);
	bad |= read_between("ids16", 4095, 128, 20, lookups / 2);
	return bad;
}
