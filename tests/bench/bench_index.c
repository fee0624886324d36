/* tests/bench/bench_index.c -- what the prefix index costs alone: `name value unit` lines.
 *
 * Chains of 1,000 blocks (16,000 tokens of 16).  One row holds each chain whole; one more its first
 * half; every tenth chain has its first 200 blocks on half of all rows.  Chains are asked for at
 * random, so on a table larger than the caches each lookup is cold.  Times are CPU time of the
 * thread: nothing here sleeps, and a busy machine changes little of what it costs.
 * Usage: bench_index [blocks in the table, default 1,000,000]
 */
#include "shm/blockhash.h"
#include "shm/index.h"
#include "shm/reverse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHAIN   1000u
#define LOOKUPS 3000u
#define BATCH   16u

static uint64_t
random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
say(const char *what, unsigned workers, double value, const char *unit)
{
	printf("index_%s_%u %.1f %s\n", what, workers, value, unit);
}

static void
chain_put(struct index_writer *w, uint16_t id, const uint64_t *hash, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (i + BATCH < n)
			index_prefetch(w, hash[i + BATCH]);
		index_put(w, id, hash[i], NULL, 0);
	}
}

struct bench {
	struct segment seg;
	struct index_writer *w;
	struct index *reader;
	unsigned workers, chains;
	uint64_t *hash;
	uint16_t id[64];
};

static void
lookups(struct bench *b)
{
	struct index_depth depth[64];
	uint64_t random = 3, sum = 0, rows = 0, other[CHAIN];
	uint64_t start = cpu_ns();

	for (unsigned i = 0; i < LOOKUPS; i++) {
		unsigned c = (unsigned)(random_next(&random) % b->chains), best = 0;
		unsigned n = index_match(b->reader, b->hash + (size_t)c * CHAIN, CHAIN, depth, 64);

		for (unsigned k = 0; k < n; k++)
			best = depth[k].any > best ? depth[k].any : best;
		sum += best;
		rows += n;
	}
	double ns = (double)(cpu_ns() - start);

	say("match_1000", b->workers, ns / LOOKUPS / 1000, "us");
	say("match", b->workers, ns / (double)sum, "ns/block");
	say("match_blocks_found", b->workers, (double)sum / LOOKUPS, "blocks/lookup");
	say("match_rows_found", b->workers, (double)rows / LOOKUPS, "rows/lookup");

	for (unsigned i = 0; i < CHAIN; i++)
		other[i] = random_next(&random);
	start = cpu_ns();
	for (unsigned i = 0; i < LOOKUPS; i++) {
		other[0] = random_next(&random);
		sum += index_match(b->reader, other, CHAIN, depth, 64);
	}
	say("match_miss", b->workers, (double)(cpu_ns() - start) / LOOKUPS, "ns");
	if (sum == 0)
		exit(1);
}

/* What kvevents does per block of a batch: reverse map and table, then the removal of all of it. */
static void
events(struct bench *b)
{
	struct reverse *reverse;
	uint16_t id = index_slot_take(b->w, (uint16_t)b->workers, 1, INDEX_EXACT, INDEX_GPU, 16);
	unsigned n = b->chains / 8 * CHAIN, count;
	uint64_t random = 11, *engine = calloc(n, sizeof engine[0]);

	if (!engine || id == 0 || reverse_new(&reverse, n, SIZE_MAX) < 0)
		exit(1);
	for (unsigned i = 0; i < n; i++)
		engine[i] = random_next(&random);

	uint64_t start = cpu_ns();
	for (unsigned i = 0; i < n; i++) {
		if (i + BATCH < n) {
			reverse_prefetch(reverse, engine[i + BATCH]);
			index_prefetch(b->w, b->hash[i + BATCH]);
		}
		reverse_add(reverse, engine[i], b->hash[i], &count);
		index_put(b->w, id, b->hash[i], NULL, 0);
	}
	say("store", b->workers, (double)(cpu_ns() - start) / n, "ns/block");
	start = cpu_ns();
	for (unsigned i = 0; i < n; i++) {
		if (i + BATCH < n) {
			reverse_prefetch(reverse, engine[i + BATCH]);
			index_prefetch(b->w, b->hash[i + BATCH]);
		}
		uint64_t chain = reverse_drop(reverse, engine[i], &count);
		index_take(b->w, chain, &id, 1);
	}
	say("remove", b->workers, (double)(cpu_ns() - start) / n, "ns/block");
	chain_put(b->w, id, b->hash, n);
	start = cpu_ns();
	index_slot_retire(b->w, id);
	say("clear", b->workers, (double)(cpu_ns() - start), "ns");
	start = cpu_ns();
	while (index_scrub(b->w, 4096) > 0)
		;
	say("scrub", b->workers, (double)(cpu_ns() - start) / n, "ns/block");
	reverse_free(&reverse);
	free(engine);
}

static int
bench(unsigned workers, uint64_t blocks)
{
	struct bench b = {.workers = workers, .chains = (unsigned)(blocks / CHAIN)};
	uint32_t max_slots = workers <= 8 ? workers * 6 + 6 : 255;
	uint64_t random = 5;

	b.hash = calloc((size_t)b.chains * CHAIN, sizeof b.hash[0]);
	if (!b.hash || index_create(&b.seg, blocks, max_slots, 1) < 0 ||
	    index_writer_open(&b.w, fcntl(b.seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	for (unsigned i = 0; i < workers; i++)
		b.id[i] = index_slot_take(b.w, (uint16_t)i, 1, INDEX_EXACT, INDEX_GPU, 16);
	for (size_t i = 0; i < (size_t)b.chains * CHAIN; i++)
		b.hash[i] = random_next(&random);

	uint64_t start = cpu_ns();
	for (unsigned c = 0; c < b.chains; c++) {
		const uint64_t *hash = b.hash + (size_t)c * CHAIN;

		chain_put(b.w, b.id[c % workers], hash, CHAIN);
		chain_put(b.w, b.id[(c + 1) % workers], hash, CHAIN / 2);
		for (unsigned i = 0; c % 10 == 0 && i < workers / 2; i++)
			chain_put(b.w, b.id[i], hash, 200);
	}
	say("fill", workers, (double)(cpu_ns() - start) / (double)index_writer_head(b.w)->holders,
	    "ns/put");
	if (index_attach(&b.reader, segment_readonly_fd(&b.seg)) < 0)
		return 1;
	say("entries", workers, (double)index_head(b.reader)->entries, "blocks");
	say("holders", workers, (double)index_head(b.reader)->holders, "pairs");
	say("load", workers, (double)index_head(b.reader)->entries /
		((double)index_head(b.reader)->nbuckets * 4), "0..1");
	say("bytes", workers, (double)b.seg.size / (double)blocks, "B/block");
	say("lost", workers,
	    (double)(index_head(b.reader)->evictions + index_head(b.reader)->refused), "puts");
	lookups(&b);
	events(&b);

	start = cpu_ns();
	index_writer_close(&b.w);
	if (index_writer_open(&b.w, fcntl(b.seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	say("recover", workers, (double)(cpu_ns() - start) / 1e6, "ms");
	index_detach(&b.reader);
	index_writer_close(&b.w);
	segment_detach(&b.seg);
	free(b.hash);
	return 0;
}

static int
bench_hash(void)
{
	static uint32_t token[16000];
	uint64_t hash[CHAIN], sum = 0;
	uint64_t start;

	for (unsigned i = 0; i < 16000; i++)
		token[i] = i * 7919;
	start = cpu_ns();
	for (unsigned i = 0; i < 2000; i++) {
		token[0] = i;
		blockhash_chain(1, token, 16000, 16, hash, CHAIN);
		sum += hash[CHAIN - 1];
	}
	printf("index_blockhash_16k %.1f us\n", (double)(cpu_ns() - start) / 2000 / 1000);
	return sum == 0;
}

int
main(int argc, char **argv)
{
	uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;

	if (blocks < 8 * CHAIN) {
		fprintf(stderr, "bench_index: at least %u blocks\n", 8 * CHAIN);
		return 2;
	}
	return bench_hash() || bench(3, blocks) || bench(64, blocks);
}
