/* tests/bench/files.h -- for benches that read files: whole ones, times, the middle of several.
 *
 * Clock      the thread's CPU time: the machine does other things too.
 * Errors     end the program, 1, with a line that says what is wrong.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
struct slice map_file(const char *path);        /* mapped and touched, for good */
double ms_since(uint64_t start);                /* start: cpu_ns() */
double median(double *v, size_t n);             /* sorts them; n > 0 */
