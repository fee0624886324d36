/* tests/race/race_journal.c -- a tailing reader gets whole records in order, or is told how many
 * bytes it lost.
 *
 * Threads    one writer, three readers of a ring that is far too small: what a record says follows
 *            from its number, so each can be judged; positions and losses add up to what was
 *            written.  Under the tsan preset every unmarked access is a report.
 * Stops      a writer (its own process) ends before each single store of an append, in a fresh
 *            ring, a full one, one that wraps: readers see what was there before, whole, and never
 *            half a record; a writer that went on would go on.
 * Usage: race_journal [records]
 */
#include "shm/process.h"
#include "tests/race/stop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define READERS 3
#ifdef __SANITIZE_THREAD__
#define RECORDS 10000
#else
#define RECORDS 60000
#endif
#define RING 32768u

union record {
	struct journal_record head;
	unsigned char bytes[JOURNAL_RECORD_MAX];
};

static uint64_t
mixed(uint64_t n, uint64_t i)
{
	return (n + 1) * 0x9e3779b97f4a7c15ull ^ i * 0xc2b2ae3d27d4eb4full;
}

/* The n-th record: its payload is of 8-byte words and a rest, both told by n. */
static size_t
payload_of(uint64_t n, unsigned char *to)
{
	size_t len = mixed(n, 0) >> 40 & 1023;

	for (size_t i = 0; i < len; i++)
		to[i] = (unsigned char)(mixed(n, i / 8 + 1) >> 8 * (i % 8));
	return len;
}

static void
append_nth(struct journal *journal, uint64_t n)
{
	struct journal_record head = {.kind = JOURNAL_OUTCOME, .request_id = n,
				      .seed = mixed(n, 7), .ask = (uint32_t)n};
	unsigned char payload[1024];
	size_t len = payload_of(n, payload), first = len / 3;

	/* In two pieces, cut anywhere. */
	if (journal_append(journal, &head, payload, first, payload + first, len - first) == 0)
		abort();
}

static bool
is_nth(const union record *r, uint64_t n)
{
	unsigned char payload[1024];
	size_t len = payload_of(n, payload);

	return r->head.request_id == n && r->head.seed == mixed(n, 7) &&
	       r->head.ask == (uint32_t)n && r->head.kind == JOURNAL_OUTCOME &&
	       r->head.len >= sizeof r->head + len && r->head.len < sizeof r->head + len + 64 &&
	       memcmp(r->bytes + sizeof r->head, payload, len) == 0;
}

/* ---- threads ---- */

static struct {
	struct process_segment process;
	_Atomic bool over;
	_Atomic uint64_t got, losses, wrong;
} race;

static void *
read_on(void *unused)
{
	union record r;
	uint64_t position = 0, lost = 0, next = 0, got = 0, losses = 0, wrong = 0, lost_before = 0;

	(void)unused;
	for (bool last = false; !last;) {
		last = atomic_load(&race.over);         /* then everything is there */
		for (;;) {
			int n = journal_read(&race.process.journal, &position, &r, sizeof r, &lost);

			if (n == 0) {
				sched_yield();
				break;
			}
			if (n < 0) {
				wrong++;
				break;
			}
			got++;
			wrong += !is_nth(&r, r.head.request_id);
			wrong += r.head.request_id < next;
			wrong += lost == lost_before && r.head.request_id != next;
			losses += lost != lost_before;
			lost_before = lost;
			next = r.head.request_id + 1;
		}
	}
	wrong += position != journal_head(&race.process.journal);
	atomic_fetch_add(&race.got, got);
	atomic_fetch_add(&race.losses, losses);
	atomic_fetch_add(&race.wrong, wrong);
	return unused;
}

static int
race_threads(uint64_t records)
{
	pthread_t thread[READERS];

	if (process_create(&race.process, ROLE_INGRESS, 0, 1, 0, RING) < 0)
		return 1;
	for (unsigned i = 0; i < READERS; i++)
		if (pthread_create(&thread[i], NULL, read_on, NULL))
			return 1;
	for (uint64_t n = 0; n < records; n++) {
		append_nth(&race.process.journal, n);
		if (n % 64 == 0)        /* readers are to keep up now and then */
			sched_yield();
	}
	atomic_store(&race.over, true);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	printf("threads records %lu got %lu overtaken %lu wrong %lu\n", (unsigned long)records,
	       (unsigned long)race.got, (unsigned long)race.losses, (unsigned long)race.wrong);
	process_detach(&race.process);
	return race.wrong != 0 || race.got == 0 || race.losses == 0;
}

/* ---- stops ---- */

/* Everything from the tail on is whole, in order, and ends with record `last`. */
static inline bool
ends_with(const struct journal *journal, uint64_t last, uint64_t written)
{
	uint64_t position = 0, lost = 0, got = 0, next = 0;
	union record r;
	int n;

	while ((n = journal_read(journal, &position, &r, sizeof r, &lost)) == 1) {
		if (!is_nth(&r, r.head.request_id) || (got > 0 && r.head.request_id != next))
			return false;
		next = r.head.request_id + 1;
		got++;
	}
	/* Of a ring of many records most stay: what is given up makes room for one. */
	return n == 0 && position == journal_head(journal) &&
	       (got == 0 ? written == 0 : next == last + 1) &&
	       (lost > 0 || got == written);
}

/* The n-th record by another process, which ends before its k-th store.  1: there is none. */
static inline int
append_and_stop(struct journal *journal, uint64_t n, unsigned k)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -1;
	if (pid == 0) {
		stores_left = k;
		append_nth(journal, n);
		_exit(1);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline int
race_stops(const char *name, uint64_t before)
{
	struct process_segment p;
	static char was[RING + sizeof(struct journal_header)];
	unsigned k = 0, bad = 0;
	int r;

	if (process_create(&p, ROLE_INGRESS, 0, 1, 0, RING) < 0)
		return 1;
	for (uint64_t n = 0; n < before; n++)
		append_nth(&p.journal, n);
	memcpy(was, p.journal.head, sizeof was);
	do {
		memcpy(p.journal.head, was, sizeof was);
		r = append_and_stop(&p.journal, before, ++k);
		bad += r < 0;
		bad += !ends_with(&p.journal, r == 1 ? before : before - 1, before + (r == 1));
		if (r == 0) {           /* the same record again, by one that lives */
			append_nth(&p.journal, before);
			bad += !ends_with(&p.journal, before, before + 1);
		}
	} while (r == 0);
	printf("stops %s: before each of %u stores, wrong %u\n", name, k - 1, bad);
	process_detach(&p);
	return bad != 0 || k < 10;
}

/* How many records until the next append writes a PAD first. */
static inline uint64_t
before_a_wrap(void)
{
	struct process_segment p;
	uint64_t n = 0, head, after;
	unsigned char payload[1024];

	if (process_create(&p, ROLE_INGRESS, 0, 1, 0, RING) < 0)
		abort();
	for (;; n++) {
		size_t len = sizeof(struct journal_record) + payload_of(n, payload);

		head = journal_head(&p.journal);
		after = RING - (head & (RING - 1));
		if (after < (len + 63) / 64 * 64)
			break;
		append_nth(&p.journal, n);
	}
	process_detach(&p);
	return n;
}

int
main(int argc, char **argv)
{
	uint64_t records = argc > 1 ? strtoull(argv[1], NULL, 10) : RECORDS;
	int bad = 0;

#ifndef __SANITIZE_THREAD__             /* it does not see other processes */
	bad |= race_stops("empty", 0);
	bad |= race_stops("three records", 3);
	bad |= race_stops("wrapping", before_a_wrap());
	bad |= race_stops("full", 100);
	bad |= race_stops("later", 1001);
#endif
	bad |= race_threads(records);
	return bad;
}
