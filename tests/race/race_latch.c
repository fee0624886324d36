/* tests/race/race_latch.c -- latched groups are read whole, whatever the writer does.
 *
 * Threads    one writer, three readers: every group read whole is one that was written, and never
 *            an older one than before.  Under the tsan preset every unmarked access is a report.
 * Stops      a writer (its own process) ends before each single store, and so does its successor
 *            after it: a reader sees the last group that was published, and the next writer goes
 *            on.
 * Usage: race_latch [writes]
 */
#include "shm/cell.h"
#include "shm/rows.h"
#include "tests/race/stop.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define READERS 3
#ifdef __SANITIZE_THREAD__
#define WRITES 30000
#else
#define WRITES 400000
#endif
#define MOST_WORDS ROW_READING_WORDS

struct group {
	_Atomic uint64_t word;
	_Atomic uint32_t copies[2 * MOST_WORDS];
};

/* What the n-th write writes, word by word: n can be told from any of them. */
static uint32_t
mixed(uint32_t n, unsigned word)
{
	return n * 0x9e3779b1u + word * 0x85ebca6bu;
}

static void
write_nth(struct group *g, unsigned words, uint32_t n)
{
	uint32_t v[MOST_WORDS];

	for (unsigned i = 0; i < words; i++)
		v[i] = mixed(n, i);
	latch_write(&g->word, n, g->copies, words, v);
}

/* Is v the n-th group? */
static bool
is_nth(const uint32_t *v, unsigned words, uint32_t n)
{
	for (unsigned i = 0; i < words; i++)
		if (v[i] != mixed(n, i))
			return false;
	return true;
}

/* ---- threads ---- */

static struct {
	struct group group;
	unsigned words;
	_Atomic uint32_t last;          /* written, at least */
	_Atomic bool over;
	_Atomic uint64_t reads, torn, wrong;
} race;

static void *
read_on(void *unused)
{
	uint64_t reads = 0, torn = 0, wrong = 0;
	uint32_t before = 0, v[MOST_WORDS], tag;

	(void)unused;
	while (!atomic_load_explicit(&race.over, memory_order_relaxed)) {
		reads++;
		if (!latch_read(&race.group.word, &tag, race.group.copies, race.words, v)) {
			torn++;
			continue;
		}
		wrong += !is_nth(v, race.words, tag) || tag < before;
		before = tag;
	}
	atomic_fetch_add(&race.reads, reads);
	atomic_fetch_add(&race.torn, torn);
	atomic_fetch_add(&race.wrong, wrong);
	return unused;
}

static int
race_threads(unsigned words, uint32_t writes)
{
	pthread_t thread[READERS];

	race.words = words;
	race.reads = race.torn = race.wrong = 0;
	race.over = false;
	write_nth(&race.group, words, 0);
	for (unsigned i = 0; i < READERS; i++)
		if (pthread_create(&thread[i], NULL, read_on, NULL))
			return 1;
	for (uint32_t n = 1; n <= writes; n++) {
		write_nth(&race.group, words, n);
		/* Bursts and rests: readers are to succeed often, too. */
		if (n % 1024 == 0)
			sched_yield();
	}
	atomic_store(&race.over, true);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	printf("threads words %u writes %u reads %lu torn %lu wrong %lu\n", words, writes,
	       (unsigned long)race.reads, (unsigned long)race.torn, (unsigned long)race.wrong);
	return race.wrong != 0 || race.reads <= race.torn;
}

/* ---- stops ---- */

/* Another process writes the n-th group and ends before its k-th store; 0: not at all. */
static inline int
write_and_stop(struct group *g, unsigned words, uint32_t n, unsigned k)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -1;
	if (pid == 0) {
		stores_left = k;
		write_nth(g, words, n);
		_exit(k == 0 ? 0 : 1);  /* more stores than we thought: fewer */
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool
reads_as(const struct group *g, unsigned words, uint32_t n)
{
	uint32_t v[MOST_WORDS], tag;

	return latch_read(&g->word, &tag, g->copies, words, v) && tag == n && is_nth(v, words, n);
}

static inline int
race_stops(unsigned words)
{
	struct group *g = mmap(NULL, sizeof *g, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			       -1, 0);
	unsigned stops = 0, bad = 0;
	uint32_t n = 1;

	if (g == MAP_FAILED)
		return 1;
	write_nth(g, words, n);
	/* words stores into the copy, then the word: the last stop is before that one. */
	for (unsigned first = 1; first <= words + 1; first++)
		for (unsigned second = 1; second <= words + 1; second += words > 8 ? 3 : 1) {
			bad += write_and_stop(g, words, n + 1, first) != 0;
			bad += !reads_as(g, words, n);
			bad += write_and_stop(g, words, n + 2, second) != 0;
			bad += !reads_as(g, words, n);
			bad += write_and_stop(g, words, n + 3, 0) != 0;
			n += 3;
			bad += !reads_as(g, words, n);
			stops += 2;
		}
	bad += write_and_stop(g, words, n, words + 2) != 1;     /* there is no later store */
	munmap(g, sizeof *g);
	printf("stops words %u at %u stores, wrong %u\n", words, stops, bad);
	return bad != 0;
}

int
main(int argc, char **argv)
{
	uint32_t writes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : WRITES;
	int bad = 0;

#ifndef __SANITIZE_THREAD__             /* it does not see other processes */
	bad |= race_stops(CELL_WORDS);
	bad |= race_stops(ROW_READING_WORDS);
#endif
	bad |= race_threads(CELL_WORDS, writes);
	bad |= race_threads(ROW_READING_WORDS, writes);
	return bad;
}
