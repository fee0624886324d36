/* tests/bench/bench_index.c -- what the prefix index costs alone: `name value unit` lines.
 *
 *	bench_index [--quick] [--blocks N] [--rows 64|1000]
 *
 * Twice: 64 rows, and 1,000 (names end in _w1000).  The fleet is index_world.h's; lookups are made
 * by another process, on another CPU where there is one.  In order:
 *
 *	load 0.70, exact slots alone    memory; store and remove; lookup
 *	both speculative slots filled   lookup, alone and beside a writer at full speed;
 *	                                clear; rotation
 *	a segment of 1 GiB              attach
 *
 * Each figure is the best of three; beside it stands how much it is of a cold dependent load
 * (index_chase_ns, over a table of the same size in the same run).  Times are CPU time of the
 * thread: nothing that is measured here sleeps, and who else wants the machine changes little.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/blockhash.h"
#include "tests/bench/index_client.h"
#include "tests/bench/measure.h"

#define EXTRA_BLOCKS 50000u     /* of the worker that is cleared */
#define NEW_PER_MILLE 440u      /* of the speculative blocks nobody else has: load 0.70 to 0.855 */

/* Slot ids: enough for three slots a row.  What the supervisor makes of as many workers leaves room
 * for six a row and for growth: that table's memory is measured too. */
#define IDS_64          254u
#define IDS_64_SERVED   1022u
#define IDS_1000        4094u
#define IDS_1000_SERVED 16382u

struct size {
	uint64_t blocks, attach_bytes;
	unsigned times, lookups, churn_chains, extra_blocks, speculative_bits;
};
static const struct size whole = {
	.blocks = 12600000, .attach_bytes = 1u << 30, .times = 3, .lookups = 5000,
	.churn_chains = 2048, .extra_blocks = EXTRA_BLOCKS, .speculative_bits = 6400000,
};
static const struct size small = {
	.blocks = 600000, .attach_bytes = 80u << 20, .times = 1, .lookups = 300,
	.churn_chains = 512, .extra_blocks = 4000, .speculative_bits = 128000,
};

struct bench {
	struct size size;
	struct world world;
	struct client *client;
	const char *suffix;                     /* "" or "_w1000" */
	double chase;                           /* ns */
};

/* ---- memory ---- */

static uint64_t
slot_table_bytes(const struct world *world)
{
	return sizeof(struct index_slot) * (world->max_slots + 1ull);
}

static void
memory(struct bench *b)
{
	struct world *world = &b->world;
	const struct index_header *head = index_writer_head(world->w);
	double entries = (double)head->entries;
	uint64_t touched = mapping_touched(index_writer_segment(world->w)->head);
	size_t reverse = 0;
	double lists = (double)index_writer_bytes(world->w);

	for (unsigned i = 0; i < world->workers; i++)
		reverse += reverse_bytes(world->worker[i].reverse);

	say((struct figure){"index_load", b->suffix, entries / ((double)head->nbuckets * 4), "0..1",
			    0, 0},
	    "%.0f blocks, %.0f (slot, block) pairs, %u ids, %llu evicted, %llu refused", entries,
	    (double)head->holders, world->max_slots, (unsigned long long)head->evictions,
	    (unsigned long long)index_refused(head));
	say((struct figure){"index_bytes_per_block", b->suffix,
			    (double)(touched - slot_table_bytes(world)) / entries, "B",
			    *b->suffix ? 26 : 24, 0},
	    "table and pool pages touched; buckets alone %.2f",
	    (double)(head->nbuckets * 64) / entries);
	say((struct figure){"index_segment_bytes_per_block", b->suffix,
			    (double)world->seg.size / entries, "B", 0, 0}, "touched or not");
	say((struct figure){"index_slot_table_bytes_per_block", b->suffix,
			    (double)slot_table_bytes(world) / entries, "B", 0, 0}, NULL);
	say((struct figure){"index_reverse_bytes_per_block", b->suffix,
			    (double)reverse / entries, "B", 0, 0},
	    "%.1f a pair; kvevents' private memory", (double)reverse / (double)head->holders);
	say((struct figure){"index_list_bytes_per_block", b->suffix, lists / entries, "B", 0, 0},
	    "%.1f a pair; the slots' own lists, private too", lists / (double)head->holders);
}

/* The same fleet where the ids are as many as the supervisor makes. */
static void
memory_served(const struct size *size, unsigned workers)
{
	struct world world;
	const struct index_header *head;
	double touched;

	world_new(&world, workers, size->blocks, workers == 1000 ? IDS_1000_SERVED : IDS_64_SERVED);
	world_open(&world);
	fill_exact(&world);
	head = index_writer_head(world.w);
	touched = (double)(mapping_touched(index_writer_segment(world.w)->head) -
			   slot_table_bytes(&world));
	say((struct figure){"index_bytes_per_block_served", workers == 1000 ? "_w1000" : "",
			    touched / (double)head->entries, "B", 0, 0},
	    "%u ids, as the supervisor makes for %u workers", world.max_slots, workers);
	world_free(&world);
}

/* ---- store and remove ---- */

static void
say_rate(struct bench *b, const char *name, double ns, bool limited, const char *what)
{
	say((struct figure){name, b->suffix, 1e9 / ns, "blocks/s", 0, limited ? 5e6 : 0},
	    "%.0f ns, %.2f cold loads; %s", ns, ns / b->chase, what);
}

/* All that some chains' holders of this kind have: out, and in again. */
static void
churn(struct bench *b, unsigned first, unsigned last, double *ret_remove, double *ret_store)
{
	struct churn c = {.chains = b->size.churn_chains, .first = first, .last = last};
	double blocks;

	if (c.chains > b->world.chains / CHURN_GROUP * CHURN_GROUP)
		c.chains = b->world.chains / CHURN_GROUP * CHURN_GROUP;
	blocks = (double)churn_blocks(&c);
	for (unsigned t = 0; t < b->size.times; t++) {
		*ret_remove = lesser(*ret_remove, churn_pass(&b->world, &c, false) / blocks);
		*ret_store = lesser(*ret_store, churn_pass(&b->world, &c, true) / blocks);
	}
}

/* One row that stores and removes the same blocks again and again: its list is tidied too. */
static void
churn_one(struct bench *b, double *ret_remove, double *ret_store)
{
	struct world *world = &b->world;
	struct worker *k = &world->worker[world->workers];
	unsigned n = b->size.extra_blocks / EVENT, cycles = 4;
	struct event *e = calloc(n, sizeof e[0]);
	uint64_t store = 0, remove = 0;

	if (!e || reverse_new(&k->reverse, b->size.extra_blocks, SIZE_MAX) < 0)
		cannot("list events", ENOMEM);
	for (unsigned i = 0; i < n; i++)
		event_make(&e[i], world->workers, world->next_chain + i / 31, i % 31 * EVENT,
			   EVENT);
	world->next_chain += n / 31 + 1;
	for (unsigned t = 0; t < b->size.times; t++) {
		store = remove = 0;
		for (unsigned cycle = 0; cycle < cycles; cycle++) {
			uint64_t at = cpu_ns();

			for (unsigned i = 0; i < n; i++)
				event_store(world, &e[i]);
			store += cpu_ns() - at;
			at = cpu_ns();
			for (unsigned i = 0; i < n; i++)
				event_remove(world, &e[i]);
			remove += cpu_ns() - at;
		}
		*ret_store = lesser(*ret_store, (double)store / (cycles * n * EVENT));
		*ret_remove = lesser(*ret_remove, (double)remove / (cycles * n * EVENT));
	}
	reverse_free(&k->reverse);
	free(e);
}

static void
store_and_remove(struct bench *b)
{
	double out[4] = {0}, in[4] = {0};

	churn(b, 2, HOLDERS, &out[2], &in[2]);
	churn(b, 1, 2, &out[1], &in[1]);
	churn(b, 0, 1, &out[0], &in[0]);
	churn_one(b, &out[3], &in[3]);
	say_rate(b, "index_store_per_s", in[0], true, "new blocks, events of 32, rows mixed");
	say_rate(b, "index_remove_per_s", out[0], true, "last holders, events of 32, rows mixed");
	say_rate(b, "index_store_held_per_s", in[1], false, "blocks that another row has");
	say_rate(b, "index_remove_held_per_s", out[1], false, "blocks that another row has");
	say_rate(b, "index_store_wide_per_s", in[2], false, "32 further holders: pool chunks");
	say_rate(b, "index_remove_wide_per_s", out[2], false, "32 further holders: pool chunks");
	say_rate(b, "index_store_one_row_per_s", in[3], false, "of one row, in a circle");
	say_rate(b, "index_remove_one_row_per_s", out[3], false, "of one row, in a circle");
}

/* ---- lookup ---- */

static struct client_answer
ask(struct bench *b, enum client_task task, unsigned seed)
{
	client_ask(b->client, task, b->size.lookups, seed);
	return client_answer(b->client);
}

static void
say_lookup(struct bench *b, const char *name, const struct client_answer *a, double limit)
{
	say((struct figure){name, b->suffix, a->ns / 1000, "us", limit, 0},
	    "%.2f cold loads a block; %.1f of %u blocks exact, %.1f either way, %.1f rows",
	    a->ns / b->chase / CHAIN, a->exact, CHAIN, a->any, a->rows);
}

static struct client_answer
best_lookup(struct bench *b, enum client_task task)
{
	struct client_answer best = {0}, a;

	for (unsigned t = 0; t < b->size.times; t++) {
		a = ask(b, task, t + 1);
		a.ns = lesser(best.ns, a.ns);
		a.p99_ns = lesser(best.p99_ns, a.p99_ns);
		best = a;
	}
	return best;
}

/* A writer at full speed, in turn: chains nobody asks for, all of their first holder's blocks out
 * and in (keys); one more holder of chains that are asked for, in and out (sets).  Returns blocks
 * written. */
static uint64_t
write_meanwhile(struct bench *b)
{
	struct world *world = &b->world;
	unsigned asked = chains_asked(world), n = CHAIN / EVENT;
	struct event e[CHAIN / EVENT];
	uint64_t blocks = 0;

	for (unsigned turn = 0; !client_done(b->client); turn++) {
		uint64_t random = mix64(turn);
		bool keys = turn & 1;
		unsigned chain = keys ? asked + (unsigned)(random % (world->chains - asked))
				      : (unsigned)(random % asked);
		unsigned worker = chain_holder(world, chain, keys ? 0 : HOLDERS);

		for (unsigned i = 0; i < n; i++)
			event_make(&e[i], worker, chain, i * EVENT, EVENT);
		for (unsigned i = 0; i < n; i++)
			(keys ? event_remove : event_store)(world, &e[i]);
		for (unsigned i = 0; i < n; i++)
			(keys ? event_store : event_remove)(world, &e[i]);
		blocks += 2ull * n * EVENT;
	}
	return blocks;
}

static void
lookup_under_writes(struct bench *b)
{
	struct client_answer alone = {0}, beside = {0}, a;
	double rate = 0;

	for (unsigned t = 0; t < b->size.times; t++) {
		a = ask(b, CLIENT_LOOK_UP, t + 10);
		a.p99_ns = lesser(alone.p99_ns, a.p99_ns);
		a.ns = lesser(alone.ns, a.ns);
		alone = a;

		uint64_t start = cpu_ns(), blocks;

		client_ask(b->client, CLIENT_LOOK_UP, b->size.lookups, t + 10);
		blocks = write_meanwhile(b);
		rate = greater(rate, (double)blocks * 1e9 / (double)(cpu_ns() - start));
		a = client_answer(b->client);
		a.p99_ns = lesser(beside.p99_ns, a.p99_ns);
		a.ns = lesser(beside.ns, a.ns);
		beside = a;
	}
	say((struct figure){"index_lookup_p99_us", b->suffix, alone.p99_ns / 1000, "us", 0, 0},
	    "%u lookups of %u blocks; median %.1f; %.1f blocks exact", b->size.lookups, CHAIN,
	    alone.ns / 1000, alone.exact);
	say((struct figure){"index_lookup_p99_under_writes_us", b->suffix, beside.p99_ns / 1000,
			    "us", 2 * alone.p99_ns / 1000, 0},
	    "%.2f of the one without; median %.1f; %.1f blocks exact; writer %.1f M blocks/s",
	    beside.p99_ns / alone.p99_ns, beside.ns / 1000, beside.exact, rate / 1e6);
}

static void
lookups(struct bench *b)
{
	const struct index_header *head = index_writer_head(b->world.w);
	struct client_answer a;

	say((struct figure){"index_live_blocks", b->suffix, (double)head->entries, "blocks", 0,
			    b->size.blocks == whole.blocks ? 12e6 : 0},
	    "load %.3f, %u rows x 3 slots, %.1f M pairs",
	    (double)head->entries / ((double)head->nbuckets * 4), b->world.workers,
	    (double)head->holders / 1e6);
	a = best_lookup(b, CLIENT_LOOK_UP);
	say_lookup(b, "index_exact_p50_us", &a, 40);
	a = best_lookup(b, CLIENT_LOOK_UP_WIDE);
	say_lookup(b, "index_exact_wide_p50_us", &a, 0);
	a = best_lookup(b, CLIENT_MISS);
	say((struct figure){"index_miss_p50_ns", b->suffix, a.ns, "ns", 0, 0},
	    "%.2f cold loads, the clock's reading included", a.ns / b->chase);
	lookup_under_writes(b);
}

/* ---- clear ---- */

/* What kvevents does for AllBlocksCleared, and for the next block stored: to the moment at which a
 * reader's mapping shows the new slot live. */
static void
clear(struct bench *b)
{
	struct world *world = &b->world;
	struct worker *k = &world->worker[world->workers];
	unsigned n = b->size.extra_blocks;
	double best = 0, best_slots = 0, best_scrub = 0;
	const struct index_slot *slots;
	struct index *reader;
	struct event e;
	uint32_t max;

	if (index_attach_mapped(&reader, index_writer_segment(world->w)) < 0)
		cannot("read the index", ENOMEM);
	slots = index_slots(reader, &max);
	for (unsigned t = 0; t < b->size.times; t++) {
		if (reverse_new(&k->reverse, n, SIZE_MAX) < 0)
			cannot("make a reverse map", ENOMEM);
		for (unsigned i = 0; i < n; i += EVENT) {
			event_make(&e, world->workers, world->next_chain, i, EVENT);
			event_store(world, &e);
		}
		fill_speculative(world, world->workers, 1000, 1000);

		uint64_t start = clock_mono(), slots_ns;

		index_slot_retire(world->w, k->exact);
		slots_ns = clock_mono() - start;
		reverse_free(&k->reverse);
		index_slot_retire(world->w, k->cur);
		if (reverse_new(&k->reverse, n, SIZE_MAX) < 0)
			cannot("make a reverse map", ENOMEM);

		uint64_t middle = clock_mono();

		k->exact = index_slot_take(world->w, (uint16_t)world->workers, 1, INDEX_EXACT,
					   INDEX_GPU, 16);

		uint64_t word = atomic_load_explicit(&slots[k->exact].word, memory_order_acquire);
		uint64_t end = clock_mono();

		if (k->exact == 0 || index_slot_state(word) != INDEX_SLOT_LIVE ||
		    index_slot_row(word) != world->workers)
			cannot("see the new slot", EPROTO);
		best = lesser(best, (double)(end - start));
		best_slots = lesser(best_slots, (double)(slots_ns + end - middle));
		reverse_free(&k->reverse);
		k->cur = index_slot_take(world->w, (uint16_t)world->workers, 1, INDEX_SPECULATIVE,
					 INDEX_GPU, 16);

		uint64_t walked = 0, scrub = cpu_ns();

		for (unsigned steps; (steps = index_scrub(world->w, 4096)) > 0;)
			walked += steps;
		best_scrub = lesser(best_scrub, (double)(cpu_ns() - scrub) / (double)walked);
		world->next_chain++;
	}
	index_detach(&reader);
	say((struct figure){"index_clear_us", b->suffix, best / 1000, "us", 50, 0},
	    "%u blocks, reverse map freed and made anew; its slots alone %.2f; %.0f cold loads", n,
	    best_slots / 1000, best / b->chase);
	say((struct figure){"index_scrub_ns", b->suffix, best_scrub, "ns/block", 0, 0},
	    "%.2f cold loads; afterwards, in slices", best_scrub / b->chase);
}

/* ---- rotation ---- */

static void
rotation(struct bench *b)
{
	struct world *world = &b->world;
	unsigned blocks = b->size.speculative_bits / 2 / world->workers;
	double insert = 0, scrub = 0, bits = (double)blocks * world->workers;

	for (unsigned t = 0; t < b->size.times; t++) {
		uint64_t inserts = 0, scrubs = 0;

		for (unsigned i = 0; i < world->workers; i++) {
			uint64_t start = cpu_ns();

			rotate(world, i);
			while (index_scrub(world->w, 4096) > 0)
				;
			scrubs += cpu_ns() - start;
			start = cpu_ns();
			fill_speculative(world, i, blocks, 150);
			inserts += cpu_ns() - start;
		}
		if (insert == 0 || inserts + scrubs < insert + scrub) {
			insert = (double)inserts;
			scrub = (double)scrubs;
		}
	}
	say((struct figure){"index_rotate_core_share", b->suffix, (insert + scrub) / 15e9, "0..1",
			    *b->suffix ? 0 : 0.03, 0},
	    "%u rows x %u blocks every 15 s; insert %.0f ns, scrub %.0f ns a block: %.2f and %.2f "
	    "cold loads",
	    world->workers, blocks, insert / bits, scrub / bits, insert / bits / b->chase,
	    scrub / bits / b->chase);
}

/* ---- attach, hash, recovery ---- */

static void
attach(const struct size *size, double chase)
{
	struct bench b = {.size = *size, .suffix = ""};
	double best = 0, recover = 0;
	uint64_t touched = 0;

	world_new(&b.world, 64, size->attach_bytes / 26, IDS_64);
	client_start(&b.client, &b.world);
	for (unsigned t = 0; t < size->times; t++) {
		uint64_t start = cpu_ns();
		int r = index_writer_open(&b.world.w, fcntl(b.world.seg.fd, F_DUPFD_CLOEXEC, 0));

		if (r < 0)
			cannot("open the index for writing", r);
		recover = lesser(recover, (double)(cpu_ns() - start));
		index_writer_close(&b.world.w);
	}
	for (unsigned t = 0; t < size->times; t++) {
		struct client_answer a = ask(&b, CLIENT_ATTACH, 0);

		best = lesser(best, a.ns);
		touched = a.touched;
	}
	client_stop(&b.client);
	say((struct figure){"index_attach_ms", NULL, best / 1e6, "ms", 300, 0},
	    "a segment of %.0f MiB, %.0f of them mapped; %.0f cold loads a MiB",
	    (double)b.world.seg.size / (1 << 20), (double)touched / (1 << 20),
	    best / chase / ((double)b.world.seg.size / (1 << 20)));
	say((struct figure){"index_recover_ms", NULL, recover / 1e6, "ms", 0, 0},
	    "a new writer's scan of the same");
	world_free(&b.world);
}

static void
blockhash(unsigned times)
{
	static uint32_t token[16 * CHAIN];
	uint64_t hash[CHAIN], sum = 0;
	double best = 0;

	for (unsigned i = 0; i < 16 * CHAIN; i++)
		token[i] = i * 7919;
	for (unsigned t = 0; t < times; t++) {
		uint64_t start = cpu_ns();

		for (unsigned i = 0; i < 1000; i++) {
			token[0] = i;
			blockhash_chain(1, token, 16 * CHAIN, 16, hash, CHAIN);
			sum += hash[CHAIN - 1];
		}
		best = lesser(best, (double)(cpu_ns() - start) / 1000);
	}
	if (sum == 0)
		cannot("hash", EPROTO);
	say((struct figure){"index_blockhash_16k_us", NULL, best / 1000, "us", 0, 0},
	    "hashes of %u blocks", CHAIN);
}

static void
bench(const struct size *size, unsigned workers, double chase)
{
	struct bench b = {
		.size = *size, .suffix = workers == 1000 ? "_w1000" : "", .chase = chase,
	};
	struct client_answer a;

	world_new(&b.world, workers, size->blocks, workers == 1000 ? IDS_1000 : IDS_64);
	client_start(&b.client, &b.world);
	world_open(&b.world);

	uint64_t start = cpu_ns();

	fill_exact(&b.world);
	say((struct figure){"index_fill_ns", b.suffix,
			    (double)(cpu_ns() - start) /
				    (double)index_writer_head(b.world.w)->holders,
			    "ns/pair", 0, 0}, "making the hashes included");
	memory(&b);
	ask(&b, CLIENT_ATTACH, 0);
	store_and_remove(&b);
	a = best_lookup(&b, CLIENT_LOOK_UP);
	say_lookup(&b, "index_exact_alone_p50_us", &a, 0);
	for (unsigned turn = 0; turn < 2; turn++)
		for (unsigned i = 0; i < workers; i++) {
			if (turn)
				rotate(&b.world, i);
			fill_speculative(&b.world, i, size->speculative_bits / 2 / workers,
					 NEW_PER_MILLE);
		}
	lookups(&b);
	clear(&b);
	rotation(&b);
	client_stop(&b.client);
	world_free(&b.world);
}

int
main(int argc, char **argv)
{
	struct size size = whole;
	unsigned only = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			size = small;
			say_limits(false);
		} else if (strcmp(argv[i], "--blocks") == 0 && i + 1 < argc) {
			size.blocks = strtoull(argv[++i], NULL, 10);
		} else if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc) {
			only = (unsigned)strtoul(argv[++i], NULL, 10);
		} else {
			fprintf(stderr, "usage: bench_index [--quick] [--blocks N] "
					"[--rows 64|1000]\n");
			return 2;
		}
	}
	if (size.blocks < CHURN_GROUP * CHAIN) {
		fprintf(stderr, "bench_index: at least %u blocks\n", CHURN_GROUP * CHAIN);
		return 2;
	}
	pin_cpu(1);

	double chase = chase_ns(size.blocks * 64 / 4 * 10 / 7, size.lookups * 400, size.times);

	say((struct figure){"index_chase_ns", NULL, chase, "ns", 0, 0},
	    "the yardstick: a dependent load, table of the same size");
	blockhash(size.times);
	if (only != 1000) {
		bench(&size, 64, chase);
		memory_served(&size, 64);
	}
	if (only != 64) {
		bench(&size, 1000, chase);
		memory_served(&size, 1000);
	}
	attach(&size, chase);
	return 0;
}
