/* tests/race/race_apply_kill.c -- kvevents' half of the index killed at random moments, readers
 * going on.
 *
 * Each writer is a process with the apply that serves: it is born into the segments of the last,
 * settles them, and hears a fleet of model engines (race_apply_fleet.h) until it is killed, often
 * within a batch.  Two readers look up all the time.  Nobody may ever be told a holder that the
 * model does not allow at that moment; at birth and at rest between batches every depth must be the
 * model's, a row said to be exact must be known whole, and the table must be sound.  In the end
 * leases run out and nothing probable is left.
 * Usage: race_apply_kill [kills [shape]]
 */
#include "tests/race/race_apply_fleet.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/common/log.h"

#define READERS 2
#define REST_EVERY 4u

struct life {                           /* shared memory */
	struct fleet_shared fleet;
	_Atomic uint32_t born, go, over;
	_Atomic uint64_t steps, lookups, skipped;
};

struct place {
	struct rows rows;
	struct segment index;
	struct process_segment process;
	struct life *life;
	uint64_t seed;
};

static const struct {
	const char *name;
	uint32_t max_slots;
} shapes[] = {{"bitmap", 44}, {"list12", 90}, {"chunks", 700}};

static void
writer_main(struct place *at, uint32_t number, uint64_t random)
{
	struct fleet f;

	fleet_begin(&f, &at->life->fleet, &at->rows, &at->process, at->seed, false);
	f.random = random;
	atomic_store(&at->life->steps, 0);
	if (fleet_born(&f, &at->index) < 0)
		_exit(1);
	fleet_check_rest(&f);
	atomic_store(&at->life->born, number);
	while (atomic_load(&at->life->go) != number)
		sched_yield();
	for (uint64_t step = 1;; step++) {
		fleet_step(&f);
		if (step % REST_EVERY == 0)
			fleet_check_rest(&f);
		atomic_store_explicit(&at->life->steps, step, memory_order_relaxed);
	}
}

static void
reader_main(struct place *at, uint64_t random)
{
	struct index *index;
	struct fleet f;
	uint64_t lookups = 0, skipped = 0;

	fleet_begin(&f, &at->life->fleet, &at->rows, &at->process, at->seed, false);
	if (index_attach(&index, segment_readonly_fd(&at->index)) < 0)
		_exit(1);
	for (; !atomic_load_explicit(&at->life->over, memory_order_relaxed); lookups++)
		fleet_judge(&f, index, (unsigned)(random_next(&random) % FLEET_PROMPTS),
			    &skipped);
	atomic_fetch_add(&at->life->lookups, lookups);
	atomic_fetch_add(&at->life->skipped, skipped);
	_exit(0);
}

static pid_t
start(struct place *at, bool writer, uint32_t number, uint64_t random)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (writer)
		writer_main(at, number, random);
	else
		reader_main(at, random);
	_exit(1);
}

static void
audit(struct place *at, struct index *index, bool recovered, const char *when)
{
	struct index_audit a;

	if (index_audit(index, &a) < 0 || a.duplicates || a.unreachable || a.garbage ||
	    (recovered && (a.saturated || a.overcounted)))
		fleet_wrong(&at->life->fleet,
			    "%s: duplicates %lu unreachable %lu garbage %lu saturated %lu "
			    "overcounted %lu",
			    when, (unsigned long)a.duplicates, (unsigned long)a.unreachable,
			    (unsigned long)a.garbage, (unsigned long)a.saturated,
			    (unsigned long)a.overcounted);
}

/* One life of a writer.  False: the test cannot go on. */
static bool
live_and_die(struct place *at, struct index *index, uint32_t number, uint64_t *random)
{
	pid_t pid = start(at, true, number, random_next(random));
	uint64_t steps = random_next(random) % 200, spin = random_next(random) % 4000;

	while (atomic_load(&at->life->born) != number) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return false;
		sched_yield();
	}
	audit(at, index, true, "at birth");
	atomic_store(&at->life->go, number);
	while (atomic_load_explicit(&at->life->steps, memory_order_relaxed) < steps)
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return false;
	for (volatile uint64_t i = 0; i < spin; i++)
		;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	audit(at, index, false, "after a death");
	fleet_reaped(&at->life->fleet, &at->rows);
	return true;
}

/* The last of them: leases end, and only what is sure is left; rows go, and nothing is. */
static void
last_words(struct place *at, struct index *index)
{
	struct fleet f;
	struct index_depth depth[FLEET_ROWS];
	uint64_t hash[FLEET_DEPTH];

	fleet_begin(&f, &at->life->fleet, &at->rows, &at->process, at->seed, false);
	f.random = 99;
	if (fleet_born(&f, &at->index) < 0) {
		fleet_wrong(&at->life->fleet, "no last writer");
		return;
	}
	for (unsigned i = 0; i < 300; i++)
		fleet_step(&f);
	for (unsigned i = 0; i < 3; i++)
		fleet_tick(&f, APPLY_LEASE_SILENT_NS);
	fleet_check_rest(&f);
	for (unsigned p = 0; p < FLEET_PROMPTS; p++) {
		for (unsigned b = 0; b < FLEET_DEPTH; b++)
			hash[b] = f.hash[fleet_node(p, b)];
		for (unsigned n = index_match(f.reader, hash, FLEET_DEPTH, depth, FLEET_ROWS);
		     n > 0; n--)
			if (depth[n - 1].any != depth[n - 1].exact)
				fleet_wrong(&at->life->fleet, "a lease did not end");
	}
	for (uint16_t r = 0; r < FLEET_ROWS; r++)
		apply_row_close(f.apply, r);
	while (index_scrub(f.writer, 1000) > 0)
		;
	audit(at, index, true, "at the end");
	if (atomic_load(&index_head(index)->entries) != 0)
		fleet_wrong(&at->life->fleet, "all rows are gone, and blocks are held");
	fleet_dies(&f);
}

static int
run(const char *name, uint32_t max_slots, unsigned kills)
{
	struct place at = {0};
	struct index *index;
	struct fleet f;
	pid_t reader[READERS];
	uint64_t random = max_slots, halves = 0, steps = 0;
	int bad = 0, status;

	at.life = mmap(NULL, sizeof *at.life, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (at.life == MAP_FAILED ||
	    fleet_segments(&at.rows, &at.index, &at.process, max_slots) < 0 ||
	    index_attach(&index, segment_readonly_fd(&at.index)) < 0)
		return 1;
	at.seed = index_seed(index);
	fleet_begin(&f, &at.life->fleet, &at.rows, &at.process, at.seed, true);
	for (unsigned i = 0; i < READERS; i++)
		reader[i] = start(&at, false, 0, 1000 + i);
	for (uint32_t k = 1; k <= kills && !atomic_load(&at.life->fleet.wrong); k++) {
		if (!live_and_die(&at, index, k, &random)) {
			fleet_wrong(&at.life->fleet, "writer %u ended by itself", k);
			break;
		}
		steps += atomic_load(&at.life->steps);
		for (unsigned r = 0; r < FLEET_ROWS; r++)
			halves += at.life->fleet.half[r];
	}
	last_words(&at, index);
	atomic_store(&at.life->over, 1);
	for (unsigned i = 0; i < READERS; i++)
		bad |= waitpid(reader[i], &status, 0) != reader[i] || !WIFEXITED(status) ||
		       WEXITSTATUS(status) != 0;
	printf("%-7s kills %u within a batch %lu steps %lu batches %lu lookups %lu (rows not "
	       "judged %lu) at rest %lu rows exact %lu depth %lu wrong %lu %s\n",
	       name, kills, (unsigned long)halves, (unsigned long)steps,
	       (unsigned long)at.life->fleet.batches, (unsigned long)at.life->lookups,
	       (unsigned long)at.life->skipped, (unsigned long)at.life->fleet.rest_checks,
	       (unsigned long)at.life->fleet.exact_checks,
	       (unsigned long)at.life->fleet.depth_seen, (unsigned long)at.life->fleet.wrong,
	       at.life->fleet.why);
	bad |= at.life->fleet.wrong != 0 || halves == 0 || at.life->fleet.exact_checks == 0 ||
	       at.life->fleet.depth_seen == 0 || at.life->skipped > at.life->lookups;
	index_detach(&index);
	segment_detach(&at.index);
	process_detach(&at.process);
	rows_detach(&at.rows);
	munmap(at.life, sizeof *at.life);
	return bad;
}

int
main(int argc, char **argv)
{
	unsigned kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 360,
		 n = sizeof shapes / sizeof shapes[0];
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	log_open("race", 0, 0, 0, LEVEL_ERROR);
	for (unsigned i = 0; i < n; i++)
		if (argc <= 2 || strcmp(argv[2], shapes[i].name) == 0)
			bad |= run(shapes[i].name, shapes[i].max_slots,
				   argc > 2 ? kills : kills / n);
	return bad;
}
