/* tests/race/race_index_points.c -- the index's writer stopped before each single store.
 *
 * The writer is a process of its own.  It stands still before every store a reader could see, of
 * the operation at hand or of its recovery at birth; the parent then judges the shared bytes as if
 * it had died there, and at some of these stops it does die (SIGKILL).  At each stop: a reader sees
 * nothing false; nothing is double, unreachable or garbage; what the operation does not touch is
 * there.  Then a copy of the bytes is recovered by a next writer, and of that the same is true, no
 * counter is too high or saturated, and every count is that of a recount.
 * Usage: race_index_points [stops per form]
 */
#include "shm/index_writer.h"
#include "tests/race/index_load.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BETWEEN         12u             /* operations not looked at between two that are */
#define LADDER_TRIES    2000u
#define WARM_UP         6000u           /* operations until the table is full */

/* ---- the writer's side: one byte each way ---- */

enum word {
	BEGIN = 'b',                    /* an operation that is looked at begins */
	STORE = 's',                    /* before a store */
	DONE = 'd',
	GO = 'g',
	ANY = 'a',                      /* do any operation */
	LADDER = 'l',                   /* one that is near the border of two forms */
	WARM = 'w',                     /* many, and none is looked at */
	QUIT = 'q',
};

static struct {
	bool stepping;
	int to, from;
} points;

static void
say(int fd, enum word word)
{
	char c = (char)word;

	if (write(fd, &c, 1) != 1)
		_exit(1);
}

static enum word
hear(int fd)
{
	char c;

	return read(fd, &c, 1) == 1 ? (enum word)c : QUIT;
}

static void
tell(enum word word)
{
	say(points.to, word);
	if (hear(points.from) != GO)
		_exit(0);
}

void
points_store(void)
{
	if (points.stepping)
		tell(STORE);
}

void
points_load(void)
{
}

static void
stepped(struct load *l, void (*operation)(struct load *l))
{
	tell(BEGIN);
	points.stepping = true;
	operation(l);
	points.stepping = false;
}

/* ---- up and down the forms of a block ---- */

static struct {
	uint16_t ids[INDEX_MAX_SLOTS];
	unsigned n;                             /* of a block's set */
	unsigned block, row;
	bool down;
} ladder;

static void
ladder_look(const struct load *l)
{
	const struct index_view *v = &l->w->v;
	uint64_t hash[LOAD_CHAIN];
	struct lane at;

	load_hashes(l, 0, hash);
	ladder.n = 0;
	if (lane_find(v, hash[ladder.block], &at))
		ladder.n = index_set_ids(v, load(&v->bucket[at.bucket].s[at.lane]), ladder.ids);
}

static unsigned
ladder_row_of(const struct load *l, unsigned i)
{
	return index_slot_row(load(&l->w->v.slot[ladder.ids[i]].word));
}

/* A row that is not in the set; or one that is, to be taken out. */
static unsigned
ladder_row(struct load *l)
{
	unsigned row = (unsigned)(random_next(&l->random) % l->rows), i = 0;

	if (ladder.down && ladder.n > 0)
		return ladder_row_of(l, (unsigned)(random_next(&l->random) % ladder.n));
	while (i < ladder.n)
		if (ladder_row_of(l, i++) == row) {
			row = (row + 1) % l->rows;
			i = ladder.n < l->rows ? 0 : ladder.n;
		}
	return row;
}

/* Does the next id that goes or comes change the form, or leave nobody? */
static bool
ladder_border(const struct load *l)
{
	const struct index_view *v = &l->w->v;

	if (ladder.down)
		return ladder.n == v->list_ids / 2 + 1 || ladder.n == v->small_ids / 2 + 1 ||
		       ladder.n == 1;
	return ladder.n == v->list_ids || ladder.n == v->small_ids;
}

static void
ladder_step(struct load *l)
{
	load_block(l, ladder.row % l->rows, 0, ladder.block, !ladder.down);
}

static void
ladder_on(struct load *l)
{
	unsigned top = (l->w->v.pool[POOL_SMALL].chunks ? l->w->v.small_ids : l->w->v.list_ids) + 4;

	for (unsigned i = 0; i < LADDER_TRIES; i++) {
		ladder_look(l);
		if (ladder.down ? ladder.n == 0 : ladder.n >= top) {
			if (ladder.down)
				ladder.block = (unsigned)(random_next(&l->random) % LOAD_CHAIN);
			ladder.down = !ladder.down;
			continue;
		}
		ladder.row = ladder_row(l);
		if (ladder_border(l)) {
			stepped(l, ladder_step);
			return;
		}
		ladder_step(l);
	}
	stepped(l, load_one);
}

static void
writer_main(struct load *l, int fd)
{
	struct index_writer *w;

	tell(BEGIN);
	points.stepping = true;
	if (index_writer_open(&w, fd) < 0)
		_exit(1);
	load_adopt(l, w);
	points.stepping = false;
	ladder.down = random_next(&l->random) % 2;
	for (;;) {
		say(points.to, DONE);

		enum word what = hear(points.from);

		if (what == QUIT)
			_exit(0);
		for (unsigned i = 0; i < (what == WARM ? WARM_UP : BETWEEN); i++)
			load_one(l);
		if (what == LADDER)
			ladder_on(l);
		else if (what == ANY)
			stepped(l, load_one);
	}
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
	uint64_t state = tag ^ home << 40, key = random_next(&state);

	state = key ^ (uint64_t)id << 32 ^ index_slot_gen(load(&v->slot[id].word));
	return random_next(&state);
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
	if (d->n > 0)
		qsort(d->pair, d->n, sizeof d->pair[0], pair_compare);
}

/* All sorted: everything in `mid` was there before or is there after; everything in both is in
 * `mid`. */
static bool
dump_between(const struct dump *before, const struct dump *mid, const struct dump *after)
{
	size_t b = 0, a = 0;

	for (size_t m = 0; m <= mid->n; m++) {
		uint64_t pair = m < mid->n ? mid->pair[m] : UINT64_MAX;

		for (; b < before->n && before->pair[b] < pair; b++) {
			while (a < after->n && after->pair[a] < before->pair[b])
				a++;
			if (a < after->n && after->pair[a] == before->pair[b])
				return false;   /* lost */
		}
		while (a < after->n && after->pair[a] < pair)
			a++;
		if (m < mid->n && !(b < before->n && before->pair[b] == pair) &&
		    !(a < after->n && after->pair[a] == pair))
			return false;           /* from nowhere */
		if (m < mid->n && b < before->n && before->pair[b] == pair)
			b++;
	}
	return true;
}

/* ---- one form of the set word ---- */

enum form { NOBODY, WORD, SMALL, BITMAP, FORMS };

struct bench {
	struct segment seg, copy;
	struct index_view v, copy_v;
	struct index *reader, *copy_reader;
	struct load load;                       /* its rows are shared with the writers */
	struct load_row copy_row[LOAD_ROWS_MAX];
	pid_t pid;
	int to, from;
	uint64_t random;
	uint64_t *key;                          /* per lane: key << 8 | enum form */
	struct dump before, after, *mid;        /* mid: of the bytes as they are, and recovered */
	size_t n_mid, cap_mid;
	uint64_t hits, wrong, damaged, lost, stops, kills, operations, recovered;
	uint64_t moved[FORMS][FORMS], unkeyed, keyed;
};

static enum form
form_of(const struct index_view *v, uint64_t s)
{
	if (v->list_bits == 0 || !set_is_pool(s))
		return WORD;
	return pool_class(s) == POOL_SMALL ? SMALL : BITMAP;
}

/* Which sets went from one form to another, which lanes from key to key. */
static void
forms_note(struct bench *me, bool count)
{
	for (uint64_t b = 0; b < me->v.nbuckets; b++)
		for (unsigned lane = 0; lane < LANES; lane++) {
			uint64_t w = load(&me->v.bucket[b].w[lane]);
			uint64_t s = load(&me->v.bucket[b].s[lane]);
			uint64_t *was = &me->key[b * LANES + lane];
			uint64_t is = w_tag(w) ? w_key(w) << 8 | form_of(&me->v, s) : NOBODY;

			if (count && *was != is) {
				me->unkeyed += is == NOBODY;
				me->keyed += is != NOBODY && *was >> 8 != is >> 8;
				if (*was >> 8 == is >> 8)
					me->moved[*was & 0xff][is & 0xff]++;
			}
			*was = is;
		}
}

static void
judge(struct bench *me, struct index *reader)
{
	unsigned chain = (unsigned)(random_next(&me->random) % me->load.chains);

	me->wrong += !load_judge(&me->load, reader, chain, &me->hits);
}

static void
audit(struct bench *me, struct index *reader, const struct index_header *head, bool recovered)
{
	struct index_audit a;

	if (index_audit(reader, &a) < 0)
		abort();
	me->damaged += a.duplicates + a.unreachable + a.garbage;
	if (recovered)
		me->damaged += a.saturated + a.overcounted + a.miscounted +
			       (a.entries != head->entries) + (a.holders != head->holders);
}

static struct dump *
mid_new(struct bench *me)
{
	if (me->n_mid == me->cap_mid) {
		me->cap_mid = me->cap_mid ? me->cap_mid * 2 : 64;
		me->mid = realloc(me->mid, me->cap_mid * sizeof me->mid[0]);
		if (!me->mid)
			abort();
		memset(&me->mid[me->n_mid], 0, (me->cap_mid - me->n_mid) * sizeof me->mid[0]);
	}
	return &me->mid[me->n_mid++];
}

/* The writer stands before a store.  If it never goes on: */
static void
judge_stop(struct bench *me)
{
	struct load next = me->load;
	struct index_writer *w;

	me->stops++;
	audit(me, me->reader, me->v.head, false);
	judge(me, me->reader);
	dump_take(mid_new(me), &me->v);

	memcpy(me->copy.head, me->seg.head, me->seg.size);
	memcpy(me->copy_row, me->load.row, sizeof me->copy_row);
	if (index_writer_open(&w, fcntl(me->copy.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		abort();
	next.row = me->copy_row;
	load_adopt(&next, w);
	audit(me, me->copy_reader, me->copy_v.head, true);
	judge(me, me->copy_reader);
	dump_take(mid_new(me), &me->copy_v);
	index_writer_close(&w);
}

static void
writer_start(struct bench *me)
{
	int down[2], up[2];

	if (pipe2(down, O_CLOEXEC) < 0 || pipe2(up, O_CLOEXEC) < 0)
		abort();
	me->load.random = random_next(&me->random);
	fflush(stdout);
	me->pid = fork();
	if (me->pid < 0)
		abort();
	if (me->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		points.from = down[0];
		points.to = up[1];
		writer_main(&me->load, fcntl(me->seg.fd, F_DUPFD_CLOEXEC, 0));
	}
	close(down[0]);
	close(up[1]);
	me->to = down[1];
	me->from = up[0];
}

static void
writer_end(struct bench *me)
{
	close(me->to);
	close(me->from);
	waitpid(me->pid, NULL, 0);
}

/* Follows the writer through one operation, or until it is killed at stop number kill_at. */
static bool
operation_follow(struct bench *me, uint64_t kill_at)
{
	enum word said = hear(me->from);

	if (said != BEGIN)
		return false;
	me->operations++;
	me->n_mid = 0;
	dump_take(&me->before, &me->v);
	forms_note(me, false);
	say(me->to, GO);
	for (uint64_t stop = 1; (said = hear(me->from)) == STORE; stop++) {
		judge_stop(me);
		if (stop == kill_at) {
			kill(me->pid, SIGKILL);
			me->kills++;
			writer_end(me);
			writer_start(me);
			/* Its successor may die in recovery, and that one's. */
			return operation_follow(me, random_next(&me->random) % 2 ? stop : 0);
		}
		say(me->to, GO);
	}
	if (said != DONE)
		return false;
	forms_note(me, true);
	dump_take(&me->after, &me->v);
	for (size_t i = 0; i < me->n_mid; i++)
		me->lost += !dump_between(&me->before, &me->mid[i], &me->after);
	audit(me, me->reader, me->v.head, false);
	return true;
}

static bool
stop_everywhere(struct bench *me, uint64_t stops)
{
	bool well;

	writer_start(me);
	well = operation_follow(me, 0);
	say(me->to, WARM);
	well = well && hear(me->from) == DONE;
	while (well && me->stops < stops) {
		uint64_t kill_at = random_next(&me->random) % 16 == 0 ?
					   1 + random_next(&me->random) % 8 :
					   0;

		say(me->to, random_next(&me->random) % 2 ? LADDER : ANY);
		well = operation_follow(me, kill_at);
	}
	if (well)
		say(me->to, QUIT);
	writer_end(me);
	return well;
}

/* Every border between two forms that this size has was crossed both ways under our eyes. */
static bool
forms_crossed(const struct bench *me)
{
	bool small = me->v.pool[POOL_SMALL].chunks > 0;

	if (me->v.list_bits == 0)
		return true;
	if (!small)
		return me->moved[WORD][BITMAP] && me->moved[BITMAP][WORD];
	return me->moved[WORD][SMALL] && me->moved[SMALL][BITMAP] && me->moved[BITMAP][SMALL] &&
	       me->moved[SMALL][WORD];
}

static int
form(const char *name, uint32_t max_slots, unsigned rows, unsigned chains, uint64_t stops)
{
	static struct bench me;
	const struct index_header *head;
	uint64_t reused = 0;
	bool well;

	me = (struct bench){.random = max_slots,
			    .load = {.rows = rows,
				     .chains = chains,
				     .hot = 1,
				     .phase = 3000,
				     .seed = max_slots}};
	me.load.row = mmap(NULL, sizeof me.copy_row, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (me.load.row == MAP_FAILED || index_create(&me.seg, 1, max_slots, 1) < 0 ||
	    index_create(&me.copy, 1, max_slots, 1) < 0 ||
	    index_attach_mapped(&me.reader, &me.seg) < 0 ||
	    index_attach_mapped(&me.copy_reader, &me.copy) < 0 ||
	    index_view_open(&me.v, &me.seg) < 0 || index_view_open(&me.copy_v, &me.copy) < 0)
		return 1;
	me.key = calloc(me.v.nbuckets * LANES, sizeof me.key[0]);
	if (!me.key)
		return 1;
	head = me.v.head;
	well = stop_everywhere(&me, stops);
	for (uint32_t id = 1; id <= max_slots; id++)
		reused += index_slot_gen(load(&me.v.slot[id].word)) > 1;
	printf("%-6s stops %lu in %lu operations, kills %lu; depth %lu wrong %lu damaged %lu lost "
	       "%lu; sets list>ids %lu ids>bitmap %lu bitmap>ids %lu ids>list %lu list>bitmap %lu "
	       "bitmap>list %lu; lanes unkeyed %lu keyed %lu evicted %lu; ids reused %lu\n",
	       name, (unsigned long)me.stops, (unsigned long)me.operations,
	       (unsigned long)me.kills, (unsigned long)me.hits, (unsigned long)me.wrong,
	       (unsigned long)me.damaged, (unsigned long)me.lost,
	       (unsigned long)me.moved[WORD][SMALL], (unsigned long)me.moved[SMALL][BITMAP],
	       (unsigned long)me.moved[BITMAP][SMALL], (unsigned long)me.moved[SMALL][WORD],
	       (unsigned long)me.moved[WORD][BITMAP], (unsigned long)me.moved[BITMAP][WORD],
	       (unsigned long)me.unkeyed, (unsigned long)me.keyed,
	       (unsigned long)atomic_load(&head->evictions), (unsigned long)reused);
	well = well && !me.wrong && !me.damaged && !me.lost && me.hits && me.kills && me.unkeyed &&
	       me.keyed && reused && atomic_load(&head->evictions) && forms_crossed(&me);
	if (!well)
		printf("%s: NOT WELL\n", name);
	for (size_t i = 0; i < me.cap_mid; i++)
		free(me.mid[i].pair);
	free(me.mid);
	free(me.before.pair);
	free(me.after.pair);
	free(me.key);
	index_detach(&me.reader);
	index_detach(&me.copy_reader);
	segment_detach(&me.seg);
	segment_detach(&me.copy);
	munmap(me.load.row, sizeof me.copy_row);
	return !well;
}

int
main(int argc, char **argv)
{
	uint64_t stops = argc > 1 ? strtoull(argv[1], NULL, 10) : 6000;
	int bad = 0;

	signal(SIGPIPE, SIG_IGN);
	bad |= form("bitmap", 40, 24, 200, stops);
	bad |= form("list12", 70, 24, 200, stops);
	bad |= form("ids12", 512, 128, 60, stops);
	bad |= form("ids16", 4095, 128, 60, stops / 2);
	return bad;
}
