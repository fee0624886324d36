/* tests/bench/measure.c -- clocks, repetitions, the printed line; see measure.h. */
#include "tests/bench/measure.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 64u                                /* bytes the processor fetches at once */

static bool with_limits = true;

void
say_limits(bool on)
{
	with_limits = on;
}

static int
decimals(double value)
{
	value = fabs(value);
	return value >= 1000 ? 0 : value >= 100 ? 1 : value >= 1 ? 2 : 4;
}

void
say(struct figure f, const char *beside, ...)
{
	bool limit = with_limits && (f.most > 0 || f.least > 0);
	bool over = (f.most > 0 && f.value > f.most) || (f.least > 0 && f.value < f.least);

	if (!isfinite(f.value)) {
		fprintf(stderr, "%s: not a finite number\n", f.name);
		exit(1);
	}
	printf("%s%s %.*f %s", f.name, f.suffix ? f.suffix : "", decimals(f.value), f.value,
	       f.unit);
	if (limit)
		printf(" (limit %s %.*f%s", f.most > 0 ? "<=" : ">=",
		       decimals(f.most > 0 ? f.most : f.least), f.most > 0 ? f.most : f.least,
		       over ? " over" : "");
	if (beside) {
		va_list ap;

		printf(limit ? "; " : " (");
		va_start(ap, beside);
		vprintf(beside, ap);
		va_end(ap);
	}
	printf(limit || beside ? ")\n" : "\n");
	fflush(stdout);
}

uint64_t
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t
mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

void
pin_cpu(unsigned cpu)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0 || !CPU_ISSET(cpu, &allowed))
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof one, &one);
}

void
cannot(const char *what, int error)
{
	fprintf(stderr, "cannot %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

static int
compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

uint32_t
percentile(uint32_t *sample, size_t n, unsigned per_mille)
{
	qsort(sample, n, sizeof sample[0], compare);
	return sample[(n - 1) * per_mille / 1000];
}

double
chase_ns(size_t bytes, unsigned loads, unsigned times)
{
	struct line {
		_Alignas(LINE) uint32_t next;
	} *table;
	uint32_t n = (uint32_t)(bytes / LINE), at = 0;
	double best = 0;

	table = mmap(NULL, (size_t)n * LINE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (table == MAP_FAILED)
		cannot("map the yardstick", ENOMEM);
	for (uint32_t i = 0; i < n; i++)
		table[i].next = i;
	for (uint32_t i = n - 1; i > 0; i--) {          /* Sattolo: one cycle through all */
		uint32_t k = (uint32_t)(mix64(i) % i), was = table[i].next;

		table[i].next = table[k].next;
		table[k].next = was;
	}
	for (unsigned t = 0; t < times; t++) {
		uint64_t start = cpu_ns();

		for (unsigned i = 0; i < loads; i++)
			at = *(volatile uint32_t *)&table[at].next;
		best = lesser(best, (double)(cpu_ns() - start) / loads);
	}
	munmap(table, (size_t)n * LINE);
	return best;
}

uint64_t
mapping_touched(const void *at)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool here = false;

	if (!f)
		cannot("open /proc/self/smaps", errno);
	while (fgets(line, sizeof line, f)) {
		unsigned long first, end, kib;

		if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
			here = (unsigned long)(uintptr_t)at >= first &&
			       (unsigned long)(uintptr_t)at < end;
		else if (here && sscanf(line, "Rss: %lu kB", &kib) == 1) {
			fclose(f);
			return kib * 1024u;
		}
	}
	fclose(f);
	cannot("find a mapping in /proc/self/smaps", ENOENT);
	return 0;
}
