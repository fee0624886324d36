/* tests/race/race_index.c -- one writer and three readers as threads over one mapping.
 *
 * Under the tsan preset every unmarked shared access is a report; everywhere, a row credited with
 * what it never held fails.  Every form of a set, tables too small for what is stored.
 * Usage: race_index [operations per form]
 */
#include "shm/index.h"
#include "tests/race/index_load.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define READERS 3

static struct load_row row_names[LOAD_ROWS_MAX];

struct race {
	struct load load;
	_Atomic int over;
	_Atomic uint64_t lookups, hits, wrong;
};

struct reader {
	struct race *race;
	struct index *index;
	uint64_t random;
};

static void *
read_on(void *arg)
{
	struct reader *me = arg;
	uint64_t lookups = 0, hits = 0, wrong = 0;

	while (!atomic_load(&me->race->over)) {
		unsigned chain = (unsigned)(random_next(&me->random) % me->race->load.chains);

		wrong += !load_judge(&me->race->load, me->index, chain, &hits);
		lookups++;
	}
	atomic_fetch_add(&me->race->lookups, lookups);
	atomic_fetch_add(&me->race->hits, hits);
	atomic_fetch_add(&me->race->wrong, wrong);
	return NULL;
}

static int
race(const char *name, uint32_t max_slots, unsigned rows, unsigned chains, uint64_t operations)
{
	struct race race = {.load = {.row = row_names,
				     .rows = rows,
				     .chains = chains,
				     .hot = 1,
				     .phase = 2000,
				     .seed = max_slots,
				     .random = max_slots}};
	struct reader reader[READERS];
	pthread_t thread[READERS];
	struct index_writer *w;
	struct index_audit audit;
	struct segment seg;
	bool pools[INDEX_CLASSES] = {false};
	int bad = 0;

	if (index_create(&seg, 1200, max_slots, 1) < 0 ||
	    index_writer_open(&w, fcntl(seg.fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return 1;
	for (unsigned r = 0; r < LOAD_ROWS_MAX; r++)
		row_names[r] = (struct load_row){0};
	load_adopt(&race.load, w);
	for (unsigned i = 0; i < READERS; i++) {
		reader[i] = (struct reader){.race = &race, .random = i + 100};
		/* The writer's own mapping: a second one would hide races from TSan. */
		if (index_attach_mapped(&reader[i].index, index_writer_segment(w)) < 0 ||
		    pthread_create(&thread[i], NULL, read_on, &reader[i]))
			return 1;
	}
	for (uint64_t i = 0; i < operations; i++) {
		load_step(&race.load);
		for (unsigned c = 0; c < INDEX_CLASSES; c++)
			pools[c] |= index_writer_head(w)->pool_used[c] > 0;
	}
	atomic_store(&race.over, 1);
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	if (index_audit(reader[0].index, &audit) < 0)
		return 1;
	bad = race.wrong || audit.duplicates || audit.unreachable || audit.saturated ||
	      audit.overcounted || audit.garbage || audit.miscounted || race.hits == 0 ||
	      pools[0] != (max_slots > 511) || pools[1] != (max_slots > 62) ||
	      audit.entries != index_writer_head(w)->entries ||
	      audit.holders != index_writer_head(w)->holders;
	printf("%-7s operations %lu lookups %lu depth %lu wrong %lu entries %lu evictions %lu "
	       "pools %lu %lu\n",
	       name, (unsigned long)operations, (unsigned long)race.lookups,
	       (unsigned long)race.hits, (unsigned long)race.wrong, (unsigned long)audit.entries,
	       (unsigned long)index_writer_head(w)->evictions,
	       (unsigned long)index_writer_head(w)->pool_used[0],
	       (unsigned long)index_writer_head(w)->pool_used[1]);
	if (bad)
		printf("%s: duplicates %lu unreachable %lu saturated %lu overcounted %lu garbage "
		       "%lu miscounted %lu\n",
		       name, (unsigned long)audit.duplicates, (unsigned long)audit.unreachable,
		       (unsigned long)audit.saturated, (unsigned long)audit.overcounted,
		       (unsigned long)audit.garbage,
		       (unsigned long)audit.miscounted);
	for (unsigned i = 0; i < READERS; i++)
		index_detach(&reader[i].index);
	index_writer_close(&w);
	segment_detach(&seg);
	return bad;
}

int
main(int argc, char **argv)
{
	uint64_t operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 30000;
	int bad = 0;

	bad |= race("bitmap", 40, 12, 300, operations);
	bad |= race("list12", 70, 24, 300, operations);
	bad |= race("ids12", 512, 128, 100, operations);
	bad |= race("ids16", 5000, 128, 100, operations / 2);
	return bad;
}
