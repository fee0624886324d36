/* tests/bench/files.c -- see files.h. */
#include "tests/bench/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/measure.h"

void
fail(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("bench: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	exit(1);
}

struct slice
map_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0)
		fail("%s: %s", path, strerror(errno));
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);

	if (p == MAP_FAILED)
		fail("%s: %s", path, strerror(errno));
	close(fd);
	return slice_of(p, (size_t)st.st_size);
}

double
ms_since(uint64_t start)
{
	return (double)(cpu_ns() - start) / 1e6;
}

static int
by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double
median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_size);
	return v[n / 2];
}
