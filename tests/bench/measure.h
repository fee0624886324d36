/* tests/bench/measure.h -- what benches in C share: clocks, repetitions, the printed line.
 *
 * Line       `name value unit (limit L over; beside)`: the limit where there is one, `over` where
 *            it is missed, beside it whatever says how much work that was.  A missed limit is not
 *            an error of the program.
 * Yardstick  dependent loads over a table of the same size: what this machine charges for one
 *            visit to memory today.  A figure divided by it can be compared between machines.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/segment.h"

struct figure {
	const char *name;                       /* printed with `suffix` behind it */
	const char *suffix;                     /* NULL: none */
	double value;
	const char *unit;
	double most, least;                     /* limits; 0: none */
};

void say(struct figure figure, const char *beside, ...) __attribute__((format(printf, 2, 3)));
	/* beside: NULL, or text in printf's manner.  Not finite: the program ends, 1. */
void say_limits(bool on);                       /* off: a small run proves nothing about limits */

uint64_t cpu_ns(void);                          /* of this thread */
uint64_t mix64(uint64_t x);                     /* splitmix64: well mixed, one to one */
void pin_cpu(unsigned cpu);                     /* this process; without that CPU: nothing */
void cannot(const char *what, int error);       /* says why and ends the program, 1 */

static inline double
lesser(double a, double b)                      /* 0: nothing measured yet */
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

static inline double
greater(double a, double b)
{
	return a > b ? a : b;
}

uint32_t percentile(uint32_t *sample, size_t n, unsigned per_mille);
	/* Sorts them. */
double chase_ns(size_t bytes, unsigned loads, unsigned times);
	/* Least of `times`: ns a dependent load, over 64-byte lines of a table in one random cycle;
	 * the table is new memory in 4-KiB pages. */
uint64_t mapping_touched(const void *at);
	/* Bytes of the pages of the mapping around `at` that this process has touched
	 * (/proc/self/smaps, Rss). */
