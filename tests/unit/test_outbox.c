/* tests/unit/test_outbox.c -- frames for a peer that does not read keep their order and their fds.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/birth.h"
#include "actors/supervisor/supervisor.h"

Test(outbox, everything_said_to_a_slow_peer_arrives_once_and_in_order)
{
	struct outbox out = {0};
	struct stat sent, got;
	unsigned heard = 0;
	char buf[4096];
	int pair[2], fd, file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct msg m;

	cr_assert_eq(fstat(file, &sent), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		struct msg_adopt adopt = {.index = i};

		cr_assert_eq(
			outbox_send(&out, pair[0], MSG_adopt, &adopt, i % 100 == 0 ? file : -1), 0);
	}
	cr_assert_gt(out.n, 0, "the socket took all: nothing was tried");
	while (heard < 3000) {
		ssize_t n = msg_recv_fd(pair[1], buf, sizeof buf, &fd);

		if (n == -EAGAIN) {
			int r = outbox_flush(&out, pair[0]);

			cr_assert(r == 0 || r == -EAGAIN);
			continue;
		}
		cr_assert_gt(n, 0);
		cr_assert_eq(msg_unpack(buf, (size_t)n, &m), 0);
		cr_assert_eq(m.u.adopt.index, heard);
		cr_assert_eq(fd >= 0, heard % 100 == 0);
		if (fd >= 0) {
			cr_assert_eq(fstat(fd, &got), 0);
			cr_assert_eq(got.st_rdev, sent.st_rdev);
			close(fd);
		}
		heard++;
	}
	cr_assert_eq(out.n, 0);
	outbox_clear(&out);
}

Test(outbox, peer_too_far_behind_is_told_to_the_caller)
{
	struct outbox out = {0};
	int pair[2], r = 0;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	for (uint32_t i = 0; i < 10000 && r == 0; i++)
		r = outbox_send(&out, pair[0], MSG_adopt, &(struct msg_adopt){.index = i}, -1);
	cr_assert_eq(r, -ENOBUFS);
	outbox_clear(&out);
	cr_assert_eq(out.n, 0);
}

Test(outbox, dead_peer_is_an_error_at_once)
{
	struct outbox out = {0};
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	close(pair[1]);
	cr_assert_eq(outbox_send(&out, pair[0], MSG_go, &(struct msg_go){0}, -1), -EPIPE);
}
