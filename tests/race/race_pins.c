/* tests/race/race_pins.c -- a pin that is found is one that was put, whoever writes or stops.
 *
 * Threads    writers and droppers of the same few ids in one bucket or two, and readers: what is
 *            found for an id was put for that id, row and generation together, and at rest every
 *            entry is whole.  Under the tsan preset every unmarked access is a report.
 * Stops      a writer (its own process) ends before each single store: nothing is found that was
 *            not put, nobody else's pin but the evicted one is missing, and the next writer goes
 *            on.
 * Usage: race_pins [puts]
 */
#include "shm/pins.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 3
#define READERS 2
#define IDS 11u                         /* in 8 entries: all forms of put happen all the time */
#ifdef __SANITIZE_THREAD__
#define PUTS 15000
#else
#define PUTS 60000
#endif

static struct pins pins;
static uint64_t stores_left;            /* before this process ends; 0: it lives on */
static _Thread_local unsigned points;

void points_store(void);

/* Where a writer may end; the threads let others go first there, now and then. */
void
points_store(void)
{
	if (stores_left != 0 && --stores_left == 0)
		_exit(0);
	if (++points % 37 == 0)
		sched_yield();
}

static size_t
id_of(unsigned i, char buf[static 16])
{
	return (size_t)snprintf(buf, 16, "resp_%u", i);
}

/* The generation tells whose pin it is, and of which row. */
static uint32_t
generation(unsigned id, uint16_t row)
{
	return (id * 0x9e3779b1u) ^ (row * 0x85ebca6bu) ^ 0x5bd1e995u;
}

static enum pins_result
put(unsigned id, uint16_t row)
{
	char buf[16];
	size_t n = id_of(id, buf);

	return pins_put(&pins, buf, n, row, generation(id, row), clock_mono());
}

/* 1 found, 0 not, -1 what nobody put. */
static int
find(unsigned id, uint16_t *ret_row)
{
	uint32_t row_gen;
	char buf[16];
	size_t n = id_of(id, buf);

	if (!pins_find(&pins, buf, n, ret_row, &row_gen))
		return 0;
	return row_gen == generation(id, *ret_row) ? 1 : -1;
}

/* ---- threads ---- */

static struct {
	uint32_t puts;
	_Atomic bool over;
	_Atomic uint64_t finds, found, wrong, evicted, lost;
} race;

static void *
write_on(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg * 77777u + 1;
	uint64_t evicted = 0, lost = 0;

	for (uint32_t n = 0; n < race.puts; n++) {
		seed = seed * 1664525u + 1013904223u;
		unsigned id = (seed >> 16) % IDS;

		if (seed >> 28 == 0) {
			char buf[16];
			size_t len = id_of(id, buf);

			pins_drop(&pins, buf, len);
			continue;
		}
		enum pins_result r = put(id, (uint16_t)(seed >> 20));
		evicted += r == PINS_EVICTED;
		lost += r == PINS_LOST;
		if (n % 512 == 0)
			sched_yield();
	}
	atomic_fetch_add(&race.evicted, evicted);
	atomic_fetch_add(&race.lost, lost);
	return NULL;
}

static void *
read_on(void *arg)
{
	uint64_t finds = 0, found = 0, wrong = 0;
	uint16_t row;

	while (!atomic_load_explicit(&race.over, memory_order_relaxed)) {
		int r = find((unsigned)(finds++ % IDS), &row);

		found += r == 1;
		wrong += r < 0;
	}
	atomic_fetch_add(&race.finds, finds);
	atomic_fetch_add(&race.found, found);
	atomic_fetch_add(&race.wrong, wrong);
	return arg;
}

/* At rest a key and its value are one writer's: else a pin is in the way that nobody finds. */
static unsigned
halves(void)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < pins.buckets; i++)
		for (unsigned k = 0; k < PINS_WAYS; k++) {
			uint64_t key = atomic_load(&pins.bucket[i].entry[k].key);
			uint64_t value = atomic_load(&pins.bucket[i].entry[k].value);

			n += key >> 16 != 0 && (uint16_t)key != (uint16_t)value;
		}
	return n;
}

static int
race_threads(uint32_t puts)
{
	pthread_t writer[WRITERS], reader[READERS];

	race.puts = puts;
	for (unsigned i = 0; i < READERS; i++)
		if (pthread_create(&reader[i], NULL, read_on, NULL))
			return 1;
	for (unsigned i = 0; i < WRITERS; i++)
		if (pthread_create(&writer[i], NULL, write_on, (void *)(uintptr_t)(i + 1)))
			return 1;
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(writer[i], NULL);
	atomic_store(&race.over, true);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(reader[i], NULL);
	printf("threads puts %u finds %lu found %lu evicted %lu lost %lu wrong %lu\n",
	       WRITERS * puts, (unsigned long)race.finds, (unsigned long)race.found,
	       (unsigned long)race.evicted, (unsigned long)race.lost, (unsigned long)race.wrong);
	return race.wrong != 0 || halves() != 0 || race.found == 0 || race.evicted == 0 ||
	       race.lost > (uint64_t)WRITERS * puts / 100;
}

/* ---- stops ---- */

/* Another process puts it and ends before its k-th store; 0: not at all. */
static int
put_and_stop(unsigned id, uint16_t row, unsigned k)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -1;
	if (pid == 0) {
		stores_left = k;
		put(id, row);
		_exit(k == 0 ? 0 : 1);  /* more stores than we thought: fewer */
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Fills one bucket, stops a writer in it, looks, and goes on. */
static int
stop_at(unsigned k, bool known)
{
	unsigned newcomer = known ? 0 : 100, there = 0, bad = 0;
	uint16_t row;

	if (pins_create(&pins, PINS_WAYS) < 0)
		return 1;
	for (unsigned id = 0; id < PINS_WAYS; id++)
		bad += put(id, 1) != PINS_PUT;
	bad += put_and_stop(newcomer, 2, k) != 0;
	for (unsigned id = 0; id < PINS_WAYS; id++) {
		int r = find(id, &row);

		bad += r < 0 || (r == 1 && row != 1 && id != newcomer);
		there += r == 1;
	}
	/* Before the claim all are there; after it the oldest, or the one put anew, is not. */
	bad += there != (k == 1 ? PINS_WAYS : PINS_WAYS - 1);
	if (!known)
		bad += find(newcomer, &row) != 0;
	bad += pins_used(&pins) != there;
	bad += put_and_stop(newcomer, 3, 0) != 0;
	bad += find(newcomer, &row) != 1 || row != 3;
	bad += pins_used(&pins) != PINS_WAYS;
	pins_detach(&pins);
	return bad != 0;
}

int
main(int argc, char **argv)
{
	uint32_t puts = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : PUTS;
	int bad = 0;

#ifndef __SANITIZE_THREAD__             /* it does not see other processes */
	for (unsigned k = 1; k <= 4; k++)
		bad |= stop_at(k, false) | stop_at(k, true);
	printf("stops before 4 stores, wrong %d\n", bad);
#else
	(void)stop_at;
#endif
	if (pins_create(&pins, 2 * PINS_WAYS) < 0)
		return 1;
	bad |= race_threads(puts);
	pins_detach(&pins);
	return bad;
}
