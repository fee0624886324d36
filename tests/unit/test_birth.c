/* tests/unit/test_birth.c -- what a child is given at birth. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "actors/common/birth.h"

static struct birth
born_with(unsigned segments)
{
	struct birth b = {.fd = -1};

	b.segment = calloc(segments, sizeof *b.segment);
	cr_assert(b.segment);
	for (unsigned i = 0; i < segments; i++)
		b.segment[b.n_segments++] = (struct birth_segment){
			.kind = SEGMENT_PROCESS, .role = ROLE_POLICY, .incarnation = i + 1,
			.fd = memfd_create("test", MFD_CLOEXEC)};
	return b;
}

static bool
open_still(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

Test(birth, a_segment_nobody_took_is_closed_and_a_taken_one_is_not)
{
	struct birth b = born_with(3);
	int untaken[] = {b.segment[0].fd, b.segment[2].fd};
	int taken = birth_segment_fd(&b, SEGMENT_PROCESS, ROLE_POLICY, 2, NULL);

	cr_assert_geq(taken, 0);
	birth_drop_segments(&b);
	cr_assert(open_still(taken));
	cr_assert_not(open_still(untaken[0]));
	cr_assert_not(open_still(untaken[1]));
	cr_assert_eq(birth_segment_fd(&b, SEGMENT_PROCESS, ROLE_POLICY, 1, NULL), -ENOENT);
	birth_close(&b);
	cr_assert(open_still(taken));
	close(taken);
}
