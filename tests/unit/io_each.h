/* tests/unit/io_each.h -- what the tests of the io layer share.
 *
 * IO_TEST   runs on epoll, on io_uring, and on io_uring as kernel 6.0 has it (no DEFER_TASKRUN);
 *           where the machine forbids io_uring, on epoll alone, and says so.
 * Waiting   is for events: pump() turns until a condition holds, and fails when nothing at all
 *           happens for ten seconds; await() polls for what loopback delivers.
 */
#pragma once
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/ingress/io_back.h"

static const char *variant;             /* of the back end, for messages */

#define OK(x) cr_assert((x), "%s: %s", variant, #x)
#define EQ(a, b) \
	do { \
		long long a_ = (long long)(a), b_ = (long long)(b); \
		cr_assert(a_ == b_, "%s: %s is %lld, not %lld", variant, #a, a_, b_); \
	} while (0)

static inline void
on_each_backend(void (*test)(struct io *))
{
	static const struct {
		const char *name;
		const struct io_back *back;
		unsigned option;
	} variants[] = {
		{"epoll", &io_back_epoll, 0},
		{"io_uring", &io_back_uring, 0},
		{"io_uring without DEFER_TASKRUN", &io_back_uring, IO_URING_PLAIN},
	};
	unsigned i;

	for (i = 0; i < sizeof variants / sizeof variants[0]; i++) {
		struct io *io = NULL;
		const char *why = NULL;
		int r = io_open_back(&io, variants[i].back, variants[i].option, &why);

		variant = variants[i].name;
		if (r < 0 && variants[i].back == &io_back_uring) {
			fprintf(stderr, "%s not tried: %s\n", variant, why);
			continue;
		}
		EQ(r, 0);
		test(io);
		io_close(&io);
		OK(!io);
	}
}

#define IO_TEST(name) \
	static void name(struct io *io); \
	Test(io, name) \
	{ \
		on_each_backend(name); \
	} \
	static void name(struct io *io)

/* Turns until *n reaches want. */
static inline void
pump(struct io *io, const unsigned *n, unsigned want)
{
	while (*n < want) {
		uint64_t before_ns = io_now(io);
		int told = io_turn(io, 10000);

		cr_assert(told >= 0, "%s: io_turn: %d", variant, told);
		cr_assert(told || io_now(io) - before_ns < 10000000000ull,
			  "%s: nothing happened for 10 s, %u of %u", variant, *n, want);
	}
}

/* Whatever is due by now has run after these: they do not sleep. */
static inline void
settle(struct io *io)
{
	int i;

	for (i = 0; i < 5; i++)
		cr_assert(io_turn(io, 0) >= 0);
}

/* A turn in which nothing is due sleeps its time out: what nobody asked for must not wake it. */
static inline void
sleeps(struct io *io)
{
	uint64_t start_ns;

	settle(io);
	start_ns = io_now(io);
	EQ(io_turn(io, 20), 0);
	OK(io_now(io) - start_ns >= 20000000);
}

/* Waits for the kernel to have bits on fd: loopback delivers in softirq, so this is an event, not
 * time. */
static inline void
await(int fd, short bits)
{
	struct pollfd p = {.fd = fd, .events = bits};

	EQ(poll(&p, 1, 10000), 1);
}

static inline int
listen_tcp(int backlog, struct sockaddr_in *ret_addr)
{
	socklen_t len = sizeof *ret_addr;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret_addr = (struct sockaddr_in){.sin_family = AF_INET};
	ret_addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	OK(fd >= 0);
	EQ(bind(fd, (struct sockaddr *)ret_addr, sizeof *ret_addr), 0);
	EQ(listen(fd, backlog), 0);
	EQ(getsockname(fd, (struct sockaddr *)ret_addr, &len), 0);
	return fd;
}

static inline int
dial(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	OK(fd >= 0);
	EQ(connect(fd, (const struct sockaddr *)addr, sizeof *addr), 0);
	return fd;
}

/* TCP over loopback, both ends non-blocking. */
static inline void
tcp_pair(int pair[2])
{
	struct sockaddr_in addr;
	int listener = listen_tcp(1, &addr);

	pair[1] = dial(&addr);
	pair[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	OK(pair[0] >= 0);
	EQ(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
	close(listener);
}

static inline void
reset(int fd)
{
	struct linger l = {.l_onoff = 1, .l_linger = 0};

	EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
	close(fd);
}

static inline void
small_buffers(int pair[2])
{
	int bytes = 262144, i;         /* below a few segments TCP itself dawdles */

	for (i = 0; i < 2; i++) {
		setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
		setsockopt(pair[i], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
	}
}

static inline unsigned
open_fds(void)
{
	unsigned n = 0;
	int fd;

	for (fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static inline uint8_t
pattern(size_t at)
{
	return (uint8_t)(at * 31 + (at >> 8) * 7 + (at >> 16));
}

/* What one operation told. */
struct told {
	struct io *io;
	struct io_op *op;
	unsigned n;             /* callbacks */
	int result;             /* of the last one */
	size_t bytes;
	int fd;
	bool starting;
	int close_fd;           /* close this in the callback, if set */
	bool cancel;            /* cancel op in the callback */
};

static inline void
on_done(void *arg, int result)
{
	struct told *t = arg;

	cr_assert(!t->starting, "%s: told from inside the starting call", variant);
	t->n++;
	t->result = result;
	if (t->cancel)
		io_cancel(t->io, t->op);
	if (t->close_fd)
		io_close_fd(t->io, t->close_fd);
}

static inline void
on_bytes(void *arg, const void *buf, ssize_t n)
{
	struct told *t = arg;
	const uint8_t *byte = buf;
	ssize_t i;

	for (i = 0; i < n; i++)
		cr_assert(byte[i] == pattern(t->bytes + (size_t)i), "%s: byte %zu", variant,
			  t->bytes + (size_t)i);
	if (n > 0)
		t->bytes += (size_t)n;
	on_done(t, (int)n);
}

static inline void
on_bytes_any(void *arg, const void *buf, ssize_t n)
{
	(void)buf;
	on_done(arg, (int)n);
}

static inline void
on_accepted(void *arg, int fd, int err)
{
	struct told *t = arg;

	if (fd >= 0) {
		EQ(err, 0);
		OK(fcntl(fd, F_GETFL) & O_NONBLOCK);
		OK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		t->bytes++;
		io_close_fd(t->io, fd);
	}
	on_done(t, err);
}

static inline void
send_pattern(int fd, size_t from, size_t len)
{
	uint8_t *bytes = malloc(len);
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = pattern(from + i);
	EQ(write(fd, bytes, len), len);
	free(bytes);
}
