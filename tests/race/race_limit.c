/* tests/race/race_limit.c -- tenants get their limits exactly, whoever races, stops or dies.
 *
 * Threads    several ingresses take, settle, enter and leave one tenant's words.  At a clock that
 *            stands still a bucket is given out exactly once: never more, and at rest what is
 *            missing from it is the sum of what was kept, to the nanosecond.  Never more in flight
 *            than the limit at any moment, and at rest none.  Money adds up.  Under the tsan preset
 *            every unmarked access is a report.
 * Stops      an ingress (its own process) notes, takes and gives back, and ends before each single
 *            store; the supervisor then repairs.  Nothing is in flight, no slot has a reservation,
 *            and the bucket is as full as without it, or off by that one request, just where
 *            limit.h says so.
 * Usage: race_limit [rounds]
 */
#include "shm/limit.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define INGRESSES 4u
#define RATE      1000u                 /* a minute, and at once */
#define MOST      3u                    /* in flight */
#define NOW       600000000000ull
#ifdef __SANITIZE_THREAD__
#define ROUNDS 8000
#else
#define ROUNDS 60000
#endif

static struct limits limits;
static struct slots slots;
static uint32_t row;
static uint64_t stores_left;            /* before this process ends; 0: it lives on */
static _Thread_local unsigned points;

void points_store(void);

void
points_store(void)
{
	if (stores_left != 0 && --stores_left == 0)
		_exit(0);
	if (++points % 41 == 0)
		sched_yield();
}

static bool
reserve(struct slot *slot, uint64_t n)
{
	uint64_t wait;

	return limit_reserve(&limits, slot, row, LIMIT_PROMPT, RATE, n, NOW, &wait);
}

static void
settle(struct slot *slot, uint64_t used)
{
	limit_return(&limits, slot, LIMIT_PROMPT, RATE, used, NOW);
}

/* ---- threads ---- */

static struct {
	uint32_t rounds;
	_Atomic uint64_t kept_ns, let_in, refused, above, spent;
	_Atomic int64_t inside;
} race;

static void *
ingress(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg, seed = me * 77777u + 1;
	struct limit_use *use = limits_use(&limits, me);
	struct slot *slot = &slots.slot[me];
	uint64_t kept = 0, let_in = 0, refused = 0, above = 0, spent = 0;

	for (uint32_t n = 0; n < race.rounds; n++) {
		seed = seed * 1664525u + 1013904223u;
		uint64_t want = 1 + (seed >> 16) % 300, used = (seed >> 8) % (want + 1);

		if (!limit_enter(&limits, use, row, MOST)) {
			refused++;
			sched_yield();
			continue;
		}
		above += atomic_fetch_add(&race.inside, 1) + 1 > (int64_t)MOST;
		if (reserve(slot, want)) {
			let_in++;
			/* Few tokens are kept, so that the bucket lasts for all rounds. */
			used = n % 997 == 0 && used > 0 ? 1 : 0;
			settle(slot, used);
			kept += limit_ns(RATE, used);
			limit_spend(&limits.tenant[row], 3, want);
			spent += want;
		}
		atomic_fetch_sub(&race.inside, 1);
		limit_leave(use, row);
	}
	atomic_fetch_add(&race.kept_ns, kept);
	atomic_fetch_add(&race.let_in, let_in);
	atomic_fetch_add(&race.refused, refused);
	atomic_fetch_add(&race.above, above);
	atomic_fetch_add(&race.spent, spent);
	return NULL;
}

static int
race_threads(uint32_t rounds)
{
	pthread_t thread[INGRESSES];
	struct limit_use sum;

	race.rounds = rounds;
	for (uint32_t i = 1; i <= INGRESSES; i++)
		if (limits_column_take(&limits, i) < 0)
			return 1;
	for (uint32_t i = 0; i < INGRESSES; i++)
		if (pthread_create(&thread[i], NULL, ingress, (void *)(uintptr_t)(i + 1)))
			return 1;
	for (uint32_t i = 0; i < INGRESSES; i++)
		pthread_join(thread[i], NULL);
	uint64_t full = limits.tenant[row].full[LIMIT_PROMPT];
	uint64_t taken = full > NOW ? full - NOW : 0;

	limits_sum(&limits, row, &sum);
	printf("threads rounds %u let in %lu refused %lu above %lu left in flight %lu; "
	       "kept %lu ns, missing from the bucket %lu\n", INGRESSES * rounds,
	       (unsigned long)race.let_in, (unsigned long)race.refused,
	       (unsigned long)race.above, (unsigned long)sum.concurrent,
	       (unsigned long)race.kept_ns, (unsigned long)taken);
	return race.above != 0 || sum.concurrent != 0 || race.let_in == 0 ||
	       race.refused == 0 || taken != race.kept_ns ||
	       limit_spent(&limits.tenant[row], 3) != race.spent;
}

/* All together never take more than a bucket, and nobody is refused while there is some. */
static _Atomic uint64_t taken_units;

static void *
taker(void *arg)
{
	uint64_t wait, units = 0;

	while (limit_take(&limits.tenant[row].full[LIMIT_REQUESTS], 60000, 1, NOW, &wait))
		units++;
	atomic_fetch_add(&taken_units, units);
	return arg;
}

static int
race_bucket(void)
{
	pthread_t thread[INGRESSES];

	for (uint32_t i = 0; i < INGRESSES; i++)
		if (pthread_create(&thread[i], NULL, taker, NULL))
			return 1;
	for (uint32_t i = 0; i < INGRESSES; i++)
		pthread_join(thread[i], NULL);
	printf("bucket of 60000: %u took %lu\n", INGRESSES, (unsigned long)taken_units);
	return taken_units != 60000;
}

/* ---- stops ---- */

enum { USED = 30, WANTED = 100, OTHERS = 500 };

/* Returns 1 when it went through all its stores, 0 when it ended before store k. */
static int
request_and_stop(unsigned k)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct limit_use *use = limits_use(&limits, 1);

		stores_left = k;
		if (!limit_enter(&limits, use, row, MOST) || !reserve(&slots.slot[1], WANTED))
			_exit(2);
		settle(&slots.slot[1], USED);
		limit_leave(use, row);
		_exit(1);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ?
	       WEXITSTATUS(status) : -1;
}

static int
stop_at(unsigned k)
{
	_Atomic uint64_t *full = &limits.tenant[row].full[LIMIT_PROMPT];
	struct limit_use sum;
	uint64_t wait;
	int ended;

	*full = 0;
	if (!limit_take(full, RATE, OTHERS, NOW, &wait) || limits_column_take(&limits, 1) < 0)
		return -1;
	ended = request_and_stop(k);
	limits_refund(&limits, &slots);
	limits_column_leave(&limits, 1);
	limits_sum(&limits, row, &sum);
	struct limit_left left = limit_look(full, RATE, NOW);

	static const struct {
		const char *before;
		int off;                /* of what the others left */
	} stop[] = {
		{"it is in flight", 0},
		{"it is noted", 0},
		{"it is taken: given back nevertheless", WANTED},
		{"that is marked", 0},
		{"it is settled", 0},
		{"the slot says so: given back once more", WANTED - USED},
		{"it is in flight no more", -USED},
		{"nothing", -USED},
	};

	if (k > sizeof stop / sizeof *stop ||
	    (int64_t)left.remaining != (int64_t)(RATE - OTHERS) + stop[k - 1].off ||
	    sum.concurrent != 0 || slots.slot[1].reserve[LIMIT_PROMPT].state != RESERVE_NONE ||
	    ended < 0 || ended > 1) {
		printf("stop before store %u, %s: ended %d left %lu in flight %lu\n", k,
		       k > sizeof stop / sizeof *stop ? "?" : stop[k - 1].before, ended,
		       (unsigned long)left.remaining, (unsigned long)sum.concurrent);
		return -1;
	}
	return ended;
}

int
main(int argc, char **argv)
{
	uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : ROUNDS;
	int bad = 0;

	if (limits_create(&limits) < 0 || slots_create(&slots, 0, 1, INGRESSES) < 0)
		return 1;
	row = limits_name(&limits, "a", 1, 1);
#ifndef __SANITIZE_THREAD__             /* it does not see other processes */
	unsigned k = 1;
	int r;

	while ((r = stop_at(k)) == 0)
		k++;
	bad |= r < 0 || k < 8;
	printf("stops before %u stores, wrong %d\n", k - 1, r < 0);
	limits.tenant[row].full[LIMIT_PROMPT] = 0;
#else
	(void)stop_at;
#endif
	bad |= race_threads(rounds);
	bad |= race_bucket();
	slots_detach(&slots);
	limits_detach(&limits);
	return bad;
}
