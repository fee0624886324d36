/* tests/race/race_index_kill.c -- the index's writer killed at random moments, readers going on.
 *
 * Each writer is a process: it recovers, lets the parent audit the table at rest, and works until
 * it is killed.  Two reader processes live through all of it.  At each birth nothing may be
 * garbage, double, unreachable, saturated or overcounted, and every count must be that of a
 * recount; no reader may ever have seen a holder that could not be.  There are too few ids and
 * lanes, so both change hands all the time, and one chain's sets go up and down the forms.
 * Usage: race_index_kill [kills]
 */
#include "shm/index.h"
#include "tests/race/index_load.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define READERS 2

struct shared {
	struct load_row row[LOAD_ROWS_MAX];
	_Atomic uint64_t done;                  /* operations of the writer at work */
	_Atomic uint32_t born, go, over;        /* writer number that rests; that may work */
	_Atomic uint64_t lookups, hits, wrong;
};

struct shape {
	const char *name;
	uint32_t max_slots;
	unsigned rows, chains;
};
static const struct shape shapes[] = {
	{"bitmap", 40, 12, 300},
	{"list12", 70, 24, 300},
	{"ids12", 512, 128, 100},
	{"ids16", 5000, 128, 100},
};

static void
writer_main(int fd, struct load *load, struct shared *shared, uint32_t number)
{
	struct index_writer *w;

	if (index_writer_open(&w, fd) < 0)
		_exit(1);
	load_adopt(load, w);
	atomic_store(&shared->done, load->done);
	atomic_store(&shared->born, number);
	while (atomic_load(&shared->go) != number)
		sched_yield();
	for (;;) {
		load_one(load);
		load_step(load);
		atomic_store_explicit(&shared->done, load->done, memory_order_relaxed);
	}
}

static void
reader_main(int fd, struct load *load, struct shared *shared, uint64_t random)
{
	struct index *index;
	uint64_t lookups = 0, hits = 0, wrong = 0;

	if (index_attach(&index, fd) < 0)
		_exit(1);
	while (!atomic_load_explicit(&shared->over, memory_order_relaxed)) {
		wrong += !load_judge(load, index, (unsigned)(random_next(&random) % load->chains),
				     &hits);
		lookups++;
	}
	atomic_fetch_add(&shared->lookups, lookups);
	atomic_fetch_add(&shared->hits, hits);
	atomic_fetch_add(&shared->wrong, wrong);
	index_detach(&index);
	_exit(0);
}

static pid_t
start(int role, int fd, struct load *load, struct shared *shared, uint64_t number)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (role == 0)
		writer_main(fd, load, shared, (uint32_t)number);
	else
		reader_main(fd, load, shared, number);
	_exit(1);
}

static int
ended_well(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* At rest everything; after a kill what even then is no lie. */
static uint64_t
audit_faults(struct index *index, bool rest)
{
	const struct index_header *head = index_head(index);
	struct index_audit a;
	uint64_t faults;

	if (index_audit(index, &a) < 0)
		return 1;
	faults = a.duplicates + a.unreachable + a.garbage;
	if (rest)
		faults += a.saturated + a.overcounted + a.miscounted +
			  (a.entries != atomic_load(&head->entries)) +
			  (a.holders != atomic_load(&head->holders));
	if (faults)
		printf("%s: duplicates %lu unreachable %lu garbage %lu saturated %lu overcounted "
		       "%lu miscounted %lu entries %lu of %lu holders %lu of %lu\n",
		       rest ? "at rest" : "killed", (unsigned long)a.duplicates,
		       (unsigned long)a.unreachable, (unsigned long)a.garbage,
		       (unsigned long)a.saturated, (unsigned long)a.overcounted,
		       (unsigned long)a.miscounted, (unsigned long)a.entries,
		       (unsigned long)atomic_load(&head->entries), (unsigned long)a.holders,
		       (unsigned long)atomic_load(&head->holders));
	return faults;
}

/* What the run was for did happen. */
static bool
was_crowded(struct index *index, const bool pools[INDEX_CLASSES], const struct shape *shape)
{
	const struct index_header *head = index_head(index);
	uint32_t max_slots;
	const struct index_slot *slots = index_slots(index, &max_slots);
	uint64_t reused = 0;

	for (uint32_t id = 1; id <= max_slots; id++)
		reused += index_slot_gen(atomic_load(&slots[id].word)) > 1;
	printf("%-7s evictions %lu ids reused %lu, not to be had %lu; scrubbed %lu pools %d %d\n",
	       shape->name, (unsigned long)atomic_load(&head->evictions), (unsigned long)reused,
	       (unsigned long)atomic_load(&head->refused[INDEX_CAUSE_ID]),
	       (unsigned long)atomic_load(&head->scrubbed), pools[0], pools[1]);
	return atomic_load(&head->evictions) && reused && atomic_load(&head->scrubbed) &&
	       pools[0] == (max_slots > 511) && pools[1] == (max_slots > 62);
}

static int
run(const struct shape *shape, unsigned kills)
{
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct load load = {.rows = shape->rows,
			    .chains = shape->chains,
			    .hot = 1,
			    .phase = 4000,
			    .seed = shape->max_slots};
	struct index *index;
	struct segment seg;
	pid_t reader[READERS];
	uint64_t random = shape->max_slots, faults = 0, recovered = 0;
	bool pools[INDEX_CLASSES] = {false};
	int bad = 0;

	if (shared == MAP_FAILED || index_create(&seg, 1200, shape->max_slots, 1) < 0)
		return 1;
	load.row = shared->row;

	int ro = segment_readonly_fd(&seg);

	for (unsigned i = 0; i < READERS; i++)
		reader[i] = start(1, fcntl(ro, F_DUPFD_CLOEXEC, 0), &load, shared, 1000 + i);
	if (index_attach(&index, ro) < 0)
		return 1;
	for (unsigned k = 1; k <= kills && !faults; k++) {
		load.random = random + k;

		pid_t pid = start(0, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0), &load, shared, k);
		uint64_t target = load.done + 1 + random_next(&random) % 300;

		while (atomic_load(&shared->born) != k)
			if (waitpid(pid, NULL, WNOHANG) != 0)
				return 1;
			else
				sched_yield();
		faults += audit_faults(index, true);
		recovered += atomic_load(&index_head(index)->holders);
		atomic_store(&shared->go, k);
		while (atomic_load_explicit(&shared->done, memory_order_relaxed) < target)
			if (waitpid(pid, NULL, WNOHANG) != 0)
				return 1;
			else
				sched_yield();
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		load.done = atomic_load(&shared->done);
		/* What a dead writer leaves is no lie either, before anybody repairs it. */
		faults += audit_faults(index, false);
		for (unsigned c = 0; c < INDEX_CLASSES; c++)
			pools[c] |= index_head(index)->pool_used[c] > 0;
	}
	atomic_store(&shared->over, 1);
	for (unsigned i = 0; i < READERS; i++)
		bad |= !ended_well(reader[i]);
	bad |= shared->wrong || faults || shared->hits == 0 || recovered == 0;
	printf("%-7s kills %u operations %lu lookups %lu depth %lu wrong %lu faults %lu\n",
	       shape->name, kills, (unsigned long)load.done, (unsigned long)shared->lookups,
	       (unsigned long)shared->hits, (unsigned long)shared->wrong, (unsigned long)faults);
	bad |= !was_crowded(index, pools, shape);
	index_detach(&index);
	segment_detach(&seg);
	munmap(shared, sizeof *shared);
	return bad;
}

int
main(int argc, char **argv)
{
	unsigned kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 300,
		 n = sizeof shapes / sizeof shapes[0];
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < n; i++)
		bad |= run(&shapes[i], kills / n);
	return bad;
}
