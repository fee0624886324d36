/* tests/bench/bench_ledger.c -- what a decision pays to know who is busy: `name value unit` lines.
 *
 *	bench_ledger [--quick]
 *
 * The view of a policy process (actors/policy/view.h) over 8 columns of in-flight cells, 64
 * candidates and 1,000.  Another process, on another CPU where there is one, writes at 100,000
 * updates/s: a cell of a random column and row, and that column's watermark.  One decision reads
 * the watermarks, each candidate's cell in each column, and the overlay, in that order, and leaves
 * one answer in the overlay, which the writer's watermark then settles.
 *
 * Each figure is the best of three, CPU time of the thread; beside it stands how much a cell costs
 * of a dependent load over a table of the size of all columns, taken in the same run.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/fleet.h"
#include "tests/bench/measure.h"

#define COLUMNS         FLEET_COLUMNS
#define UPDATES_S       100000u
#define EVICT_BYTES     (64u << 20)             /* walked to empty the caches */

struct between {                                /* reader and writer, shared */
	_Atomic uint32_t stop, hold;            /* to the writer */
	_Atomic uint32_t pushed[COLUMNS];       /* number of the newest answer */
	_Atomic uint64_t updates;
};

struct bench {
	unsigned rows, decisions, times;
	struct fleet fleet;
	struct between *between;
	pid_t writer;
	uint32_t pick;
};

/* ---- the fleet ---- */

static struct manifest *
make_manifest(const struct bench *b)
{
	struct manifest *manifest;
	struct yaml_errors errs = {0};
	size_t len = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		cannot("write a manifest", ENOMEM);
	fputs("apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	      "spec:\n  listen: [\"127.0.0.1:8080\"]\n  models: [{name: demo, policy: p}]\n"
	      "---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\n"
	      "metadata: {name: pool}\nspec: {workerSets: [s]}\n"
	      "---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\n"
	      "metadata: {name: p}\nspec:\n  candidates: [{pool: pool}]\n"
	      "  minimize: PredictedTTFT\n"
	      "---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
	      "metadata: {name: s}\nspec:\n  engine: vllm\n  model: demo\n  members:\n", f);
	for (unsigned i = 0; i < b->rows; i++)
		fprintf(f, "    - {name: w%u, url: \"http://127.0.0.1:%u\"}\n", i, 9000 + i);
	fclose(f);
	if (manifest_load_text("bench", text, len, &manifest, &errs) < 0) {
		yaml_errors_print(&errs, stderr);
		cannot("load the manifest", EINVAL);
	}
	free(text);
	return manifest;
}

/* ---- the writer ---- */

static void
update(struct bench *b, uint64_t random)
{
	unsigned i = (unsigned)(random >> 32) % COLUMNS;
	unsigned row = (unsigned)random % b->rows;
	uint32_t ms = (uint32_t)(clock_mono() / 1000000u);
	struct cell_values v = {
		.pending = (uint32_t)(random >> 40), .context = (uint32_t)(random >> 48),
		.oldest_dispatch_ms = ms, .last_first_ms = ms, .last_pick = (uint32_t)random | 1,
		.prefilling = 1 + (random >> 50) % 3, .decoding = (random >> 52) % 64,
	};

	cell_write(&b->fleet.column[i].cell[row], FLEET_ROW_GEN, &v);
	column_apply(&b->fleet.column[i], FLEET_POLICY,
		     atomic_load_explicit(&b->between->pushed[i], memory_order_acquire));
}

static void __attribute__((noreturn))
write_on(struct bench *b)
{
	uint64_t due = clock_mono(), n = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_cpu(1);
	while (!atomic_load_explicit(&b->between->stop, memory_order_relaxed)) {
		uint64_t now = clock_mono();

		if (atomic_load_explicit(&b->between->hold, memory_order_relaxed))
			due = now;
		if (now <= due)
			continue;
		update(b, mix64(n++));
		atomic_store_explicit(&b->between->updates, n, memory_order_relaxed);
		due += 1000000000u / UPDATES_S;
		if (due + 10000000u < now)              /* was long off the CPU: no burst */
			due = now;
	}
	_exit(0);
}

static void
writer_start(struct bench *b)
{
	b->writer = fork();
	if (b->writer < 0)
		cannot("fork", errno);
	if (b->writer == 0)
		write_on(b);
}

static void
writer_stop(struct bench *b)
{
	int status;

	atomic_store(&b->between->stop, 1);
	if (waitpid(b->writer, &status, 0) != b->writer || status != 0)
		cannot("end the writer well", ECHILD);
}

/* ---- the reader ---- */

static uint64_t
read_all(struct bench *b, uint32_t now_ms)
{
	uint64_t sum = 0;

	view_settle(&b->fleet.view);
	for (unsigned i = 0; i < b->rows; i++) {
		struct view_load load;

		view_load(&b->fleet.view, (uint16_t)i, FLEET_ROW_GEN, now_ms, true, &load);
		sum += load.pending + load.prefilling + load.decoding + load.oldest_dispatch_ms;
	}
	return sum;
}

static void
leave_answer(struct bench *b)
{
	unsigned i = ++b->pick % COLUMNS;
	uint32_t number = overlay_push(b->fleet.view.overlay, b->fleet.view.ingress[i]->stream,
				       (uint16_t)(mix64(b->pick) % b->rows), FLEET_ROW_GEN, 500,
				       b->pick);

	if (number == 0)
		cannot("note an answer", ENOMEM);
	atomic_store_explicit(&b->between->pushed[b->fleet.view.ingress[i]->index], number,
			      memory_order_release);
}

struct result {
	double ns, updates_s;
};

static struct result
decisions(struct bench *b, bool candidates)
{
	struct result best = {0};
	uint64_t sum = 0;

	for (unsigned t = 0; t < b->times; t++) {
		uint64_t updates = atomic_load(&b->between->updates);
		uint64_t wall = clock_mono(), start = cpu_ns();
		uint32_t now_ms = (uint32_t)(wall / 1000000u);

		for (unsigned i = 0; i < b->decisions; i++) {
			if (candidates) {
				gather_candidates(b->fleet.gather, ROW_NONE, wall);
				sum += gather_choose(b->fleet.gather)[0].requests;
			} else {
				sum += read_all(b, now_ms);
			}
			leave_answer(b);
		}
		best.ns = lesser(best.ns, (double)(cpu_ns() - start) / b->decisions);
		best.updates_s = greater(best.updates_s,
					 (double)(atomic_load(&b->between->updates) - updates) *
						 1e9 / (double)(clock_mono() - wall));
	}
	if (sum == 0)
		cannot("read a charge", EPROTO);
	return best;
}

/* The median of decisions that find none of it in a cache.  The writer waits while the caches are
 * emptied, which takes as long as thousands of its updates. */
static double
decision_cold(struct bench *b)
{
	volatile char *other = mmap(NULL, EVICT_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t ns[31];
	unsigned n = b->times > 1 ? 31 : 3;
	uint64_t sum = 0;

	if (other == MAP_FAILED)
		cannot("map memory", ENOMEM);
	for (unsigned i = 0; i < n; i++) {
		atomic_store(&b->between->hold, 1);
		for (size_t at = 0; at < EVICT_BYTES; at += 64)
			other[at]++;
		atomic_store(&b->between->hold, 0);

		uint64_t start = clock_mono();

		sum += read_all(b, (uint32_t)(start / 1000000u));
		ns[i] = (uint32_t)(clock_mono() - start);
	}
	munmap((void *)(uintptr_t)other, EVICT_BYTES);
	if (sum == 0)
		cannot("read a charge", EPROTO);
	return percentile(ns, n, 500);
}

/* Cells that changed under each of a reader's tries, of a million read. */
static double
torn_ppm(struct bench *b)
{
	unsigned n = b->decisions * 16, torn = 0;
	struct cell_values v;

	for (unsigned i = 0; i < n; i++)
		torn += !cell_read(&b->fleet.column[i % COLUMNS].cell[i / COLUMNS % b->rows],
				   FLEET_ROW_GEN, &v);
	return torn * 1e6 / n;
}

static void
bench(unsigned rows, unsigned n, unsigned times)
{
	const bool many = rows == 1000;
	struct bench b = {.rows = rows, .decisions = n, .times = times};
	unsigned cells = rows * COLUMNS;
	double chase = chase_ns((size_t)cells * sizeof(struct cell), 1000000, times);
	struct gather_prompt prompt = {.tokens = 16000};
	struct result r;

	fleet_make(&b.fleet, make_manifest(&b), COLUMNS);
	b.between = mmap(NULL, sizeof *b.between, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b.between == MAP_FAILED)
		cannot("map memory", ENOMEM);
	for (unsigned i = 0; i < 4 * cells; i++)        /* every cell has something in it */
		update(&b, mix64(i + 1));
	gather_hash(b.fleet.gather, &b.fleet.manifest->models[0],
		    &b.fleet.manifest->models[0].routes[0], &prompt);
	writer_start(&b);

	say((struct figure){many ? "ledger_chase_w1000_ns" : "ledger_chase_ns", NULL, chase, "ns",
			    0, 0},
	    "the yardstick: a dependent load, table of %zu KiB",
	    cells * sizeof(struct cell) / 1024);
	r = decisions(&b, false);
	say((struct figure){many ? "ledger_read_w1000_ns" : "ledger_read_ns", NULL, r.ns, "ns",
			    many ? 40000 : 5000, 0},
	    "%u candidates x %u columns, %.0f updates/s beside; %.2f ns a cell, %.2f loads", rows,
	    COLUMNS, r.updates_s, r.ns / cells, r.ns / cells / chase);
	say((struct figure){many ? "ledger_read_cold_w1000_ns" : "ledger_read_cold_ns", NULL,
			    decision_cold(&b), "ns", 0, 0}, "the same, nothing of it in a cache");
	r = decisions(&b, true);
	say((struct figure){many ? "ledger_candidates_w1000_ns" : "ledger_candidates_ns", NULL,
			    r.ns, "ns", 0, 0},
	    "with readings, coefficients and prediction: gather_candidates");
	say((struct figure){many ? "ledger_torn_w1000_ppm" : "ledger_torn_ppm", NULL, torn_ppm(&b),
			    "ppm", 0, 0}, "cells that changed under each of %d tries", LATCH_TRIES);
	writer_stop(&b);
	fleet_free(&b.fleet);
	munmap(b.between, sizeof *b.between);
}

int
main(int argc, char **argv)
{
	bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;

	if (argc > (quick ? 2 : 1)) {
		fprintf(stderr, "usage: bench_ledger [--quick]\n");
		return 2;
	}
	say_limits(!quick);
	pin_cpu(0);
	bench(64, quick ? 500 : 50000, quick ? 1 : 3);
	bench(1000, quick ? 50 : 5000, quick ? 1 : 3);
	return 0;
}
