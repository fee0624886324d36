/* tests/unit/test_io.c -- the io layer keeps its word, the same on every back end.
 *
 * Each test runs on io_uring, on io_uring as kernel 6.0 has it (no DEFER_TASKRUN) and on epoll; where the
 * machine forbids io_uring, on epoll alone, and says so.  Nothing here waits for time but timers: pump()
 * turns until a condition holds and fails when nothing at all happens for ten seconds.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <poll.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actors/ingress/io_back.h"

static const char *variant;             /* of the back end, for messages */

#define OK(x) cr_assert((x), "%s: %s", variant, #x)
#define EQ(a, b) \
	do { \
		long long a_ = (long long)(a), b_ = (long long)(b); \
		cr_assert(a_ == b_, "%s: %s is %lld, not %lld", variant, #a, a_, b_); \
	} while (0)

static void
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
static void
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
static void
settle(struct io *io)
{
	int i;

	for (i = 0; i < 5; i++)
		cr_assert(io_turn(io, 0) >= 0);
}

/* Waits for the kernel to have bits on fd: loopback delivers in softirq, so this is an event, not time. */
static void
await(int fd, short bits)
{
	struct pollfd p = {.fd = fd, .events = bits};

	EQ(poll(&p, 1, 10000), 1);
}

static int
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

static int
dial(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	OK(fd >= 0);
	EQ(connect(fd, (const struct sockaddr *)addr, sizeof *addr), 0);
	return fd;
}

/* TCP over loopback, both ends non-blocking. */
static void
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

static void
reset(int fd)
{
	struct linger l = {.l_onoff = 1, .l_linger = 0};

	EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
	close(fd);
}

static void
small_buffers(int pair[2])
{
	int bytes = 262144, i;         /* below a few segments TCP itself dawdles */

	for (i = 0; i < 2; i++) {
		setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
		setsockopt(pair[i], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
	}
}

static unsigned
open_fds(void)
{
	unsigned n = 0;
	int fd;

	for (fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static uint8_t
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

static void
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

static void
on_bytes(void *arg, const void *buf, ssize_t n)
{
	struct told *t = arg;
	const uint8_t *byte = buf;
	ssize_t i;

	for (i = 0; i < n; i++)
		cr_assert(byte[i] == pattern(t->bytes + (size_t)i), "%s: byte %zu is wrong", variant,
			  t->bytes + (size_t)i);
	if (n > 0)
		t->bytes += (size_t)n;
	on_done(t, (int)n);
}

static void
on_bytes_any(void *arg, const void *buf, ssize_t n)
{
	(void)buf;
	on_done(arg, (int)n);
}

static void
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

/* ---- timers ---- */

struct clocked {
	struct io *io;
	uint64_t deadline_ns, *last_ns;
	struct io_op *op;
	unsigned *n;
	bool cancelled;
};

static void
on_clocked(void *arg, int result)
{
	struct clocked *t = arg;

	EQ(result, 0);
	OK(!t->cancelled);
	OK(io_now(t->io) >= t->deadline_ns);
	OK(t->deadline_ns >= *t->last_ns);
	*t->last_ns = t->deadline_ns;
	t->op = NULL;
	++*t->n;
}

IO_TEST(timers_fire_once_in_order_and_not_before_their_deadline)
{
	enum { N = 2000 };
	struct clocked *t = calloc(N, sizeof *t);
	unsigned n = 0, want = N, i;
	uint64_t last_ns = 0;

	srand(7);
	for (i = 0; i < N; i++) {
		t[i] = (struct clocked){.io = io, .n = &n, .last_ns = &last_ns};
		t[i].deadline_ns = io_now(io) + (uint64_t)(rand() % 50) * 1000000;
		t[i].op = io_timer(io, t[i].deadline_ns, on_clocked, &t[i]);
		OK(t[i].op);
	}
	for (i = 0; i < N; i += 3) {
		t[i].cancelled = true;
		io_cancel(io, t[i].op);
		want--;
	}
	pump(io, &n, want);
	settle(io);
	EQ(n, want);
	free(t);
}

IO_TEST(a_turn_sleeps_no_longer_than_the_next_timer_or_its_limit)
{
	struct told t = {.io = io}, far = {.io = io};
	uint64_t start_ns = io_now(io);

	OK(io_timer(io, IO_NEVER, on_done, &far));
	OK(io_timer(io, io_now(io) + 3600000000000ull, on_done, &far));
	EQ(io_turn(io, 5), 0);
	OK(io_now(io) - start_ns >= 5000000);
	OK(io_timer(io, io_now(io) + 5000000, on_done, &t));
	pump(io, &t.n, 1);
	OK(io_now(io) - start_ns < 3600000000000ull);
	t.starting = true;
	OK(io_timer(io, 0, on_done, &t));
	t.starting = false;
	EQ(io_turn(io, -1), 1);
	EQ(t.n, 2);
	EQ(far.n, 0);
}

/* ---- receive and send ---- */

static void
send_pattern(int fd, size_t from, size_t len)
{
	uint8_t *bytes = malloc(len);
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = pattern(from + i);
	EQ(write(fd, bytes, len), len);
	free(bytes);
}

IO_TEST(a_half_close_is_told_as_zero_and_the_other_direction_still_works)
{
	struct told r = {.io = io, .starting = true}, s = {.io = io, .starting = true};
	struct iovec iov = {(void *)(uintptr_t)"answer", 6};
	char answer[8];
	int pair[2];

	tcp_pair(pair);
	send_pattern(pair[1], 0, 100);
	OK(io_recv(io, pair[0], on_bytes, &r));
	r.starting = false;
	pump(io, &r.n, 1);
	EQ(r.bytes, 100);
	shutdown(pair[1], SHUT_WR);
	pump(io, &r.n, 2);
	EQ(r.result, 0);
	OK(io_send(io, pair[0], &iov, 1, on_done, &s));
	s.starting = false;
	pump(io, &s.n, 1);
	EQ(s.result, 0);
	settle(io);
	EQ(r.n, 2);
	EQ(s.n, 1);
	await(pair[1], POLLIN);
	EQ(read(pair[1], answer, sizeof answer), 6);
	io_close_fd(io, pair[0]);
	close(pair[1]);
}

IO_TEST(a_reset_is_told_while_a_recv_is_armed_and_to_a_send_that_waits)
{
	static uint8_t big[8 << 20];
	struct told r = {.io = io}, s = {.io = io};
	struct iovec iov = {big, sizeof big};
	int pair[2];

	tcp_pair(pair);
	OK(io_recv(io, pair[0], on_bytes, &r));
	settle(io);
	EQ(r.n, 0);
	reset(pair[1]);
	pump(io, &r.n, 1);
	EQ(r.result, -ECONNRESET);
	io_close_fd(io, pair[0]);

	tcp_pair(pair);
	OK(io_send(io, pair[0], &iov, 1, on_done, &s));
	settle(io);
	EQ(s.n, 0);
	reset(pair[1]);
	pump(io, &s.n, 1);
	OK(s.result == -ECONNRESET || s.result == -EPIPE);
	io_close_fd(io, pair[0]);
}

IO_TEST(a_send_of_many_pieces_arrives_whole_and_in_order)
{
	enum { LEN = 3000000 };
	static uint8_t bytes[LEN];
	struct iovec iov[IO_SEND_PIECES_MAX + 1];
	struct told r = {.io = io}, s = {.io = io, .starting = true};
	size_t at = 0;
	int pair[2], i;

	tcp_pair(pair);
	small_buffers(pair);
	for (i = 0; i < LEN; i++)
		bytes[i] = pattern((size_t)i);
	for (i = 0; i < IO_SEND_PIECES_MAX; i++) {
		size_t len = i == IO_SEND_PIECES_MAX - 1 ? LEN - at : i % 3 ? (size_t)i * 20011 : 0;

		iov[i] = (struct iovec){bytes + at, len};
		at += len;
	}
	errno = 0;
	OK(!io_send(io, pair[0], iov, IO_SEND_PIECES_MAX + 1, on_done, &s) && errno == EINVAL);
	OK(io_send(io, pair[0], iov, IO_SEND_PIECES_MAX, on_done, &s));
	OK(!io_send(io, pair[0], iov, 1, on_done, &s) && errno == EBUSY);
	memset(iov, 0, sizeof iov);     /* copied */
	OK(io_recv(io, pair[1], on_bytes, &r));
	OK(!io_recv(io, pair[1], on_bytes, &r) && errno == EBUSY);
	s.starting = false;
	pump(io, &s.n, 1);
	EQ(s.result, 0);
	while (r.bytes < LEN)
		pump(io, &r.n, r.n + 1);
	settle(io);
	EQ(s.n, 1);
	EQ(r.bytes, LEN);
	io_close_fd(io, pair[0]);
	pump(io, &r.n, r.n + 1);
	EQ(r.result, 0);
	io_close_fd(io, pair[1]);
}

IO_TEST(a_send_of_nothing_is_done_in_the_next_turn)
{
	struct told s = {.io = io, .starting = true};
	int pair[2];

	tcp_pair(pair);
	OK(io_send(io, pair[0], NULL, 0, on_done, &s));
	s.starting = false;
	EQ(io_turn(io, -1), 1);
	EQ(s.n, 1);
	EQ(s.result, 0);
	io_close_fd(io, pair[0]);
	close(pair[1]);
}

IO_TEST(after_the_cancel_of_a_send_its_memory_is_the_callers)
{
	enum { LEN = 4 << 20 };
	struct told s = {.io = io};
	uint8_t *bytes, in[65536];
	struct iovec iov[2];
	size_t got = 0;
	ssize_t n;
	int pair[2], round;

	for (round = 0; round < 40; round++) {
		unsigned turns = (unsigned)round % 3, i;
		size_t drain = (size_t)(round % 5) * 30000;

		tcp_pair(pair);
		small_buffers(pair);
		bytes = malloc(LEN);
		memset(bytes, 0x11, LEN);
		iov[0] = (struct iovec){bytes, LEN / 2};
		iov[1] = (struct iovec){bytes + LEN / 2, LEN / 2};
		s.op = io_send(io, pair[0], iov, 1 + (unsigned)round % 2, on_done, &s);
		OK(s.op);
		for (i = 0; i < turns; i++)
			OK(io_turn(io, 0) >= 0);
		/* Room appears: the kernel may be about to go on. */
		for (got = 0; got < drain; got += (size_t)n) {
			n = read(pair[1], in, sizeof in);
			if (n <= 0)
				break;
		}
		io_cancel(io, s.op);
		memset(bytes, 0xee, LEN);
		free(bytes);
		settle(io);
		io_close_fd(io, pair[0]);
		settle(io);
		do {
			ssize_t i_byte;

			await(pair[1], POLLIN);
			n = read(pair[1], in, sizeof in);
			for (i_byte = 0; i_byte < n; i_byte++)
				OK(in[i_byte] == 0x11);
		} while (n > 0);
		close(pair[1]);
	}
	EQ(s.n, 0);
}

/* ---- back-pressure: stop and go ---- */

struct stream {
	struct io *io;
	int fd, peer;
	struct io_op *recv;
	size_t got, sent, len;
	unsigned *n_ended;
	bool ended, ends_in_reset;
	uint8_t out[30000];
	size_t n_out;
	unsigned *busy;
};

static void stream_bytes(void *arg, const void *buf, ssize_t n);

static void
stream_go(struct stream *s)
{
	s->recv = io_recv(s->io, s->fd, stream_bytes, s);
	OK(s->recv);
}

static void
stream_bytes(void *arg, const void *buf, ssize_t n)
{
	struct stream *s = arg;
	const uint8_t *byte = buf;
	ssize_t i;

	OK(s->recv);            /* none after a cancel */
	OK(!s->ended);
	if (n <= 0) {
		EQ(n, 0);
		EQ(s->got, s->len);
		s->ended = true;
		s->recv = NULL;
		++*s->n_ended;
		return;
	}
	for (i = 0; i < n; i++)
		cr_assert(byte[i] == pattern(s->got + (size_t)i), "%s: byte %zu", variant,
			  s->got + (size_t)i);
	s->got += (size_t)n;
	switch (rand() % 6) {
	case 0:
		io_cancel(s->io, s->recv);
		s->recv = NULL;
		break;
	case 1:
		io_cancel(s->io, s->recv);
		stream_go(s);
		break;
	case 2:
		io_cancel(s->io, s->recv);
		stream_go(s);
		io_cancel(s->io, s->recv);
		s->recv = NULL;
		break;
	default:
		break;
	}
}

static void
stream_sent(void *arg, int result)
{
	struct stream *s = arg;
	size_t i;
	struct iovec iov;

	EQ(result, 0);
	s->sent += s->n_out;
	s->n_out = s->len - s->sent < sizeof s->out ? s->len - s->sent : sizeof s->out;
	if (!s->n_out) {
		shutdown(s->peer, SHUT_WR);
		return;
	}
	s->n_out = 1 + (size_t)rand() % s->n_out;
	for (i = 0; i < s->n_out; i++)
		s->out[i] = pattern(s->sent + i);
	iov = (struct iovec){s->out, s->n_out};
	OK(io_send(s->io, s->peer, &iov, 1, stream_sent, s));
}

IO_TEST(random_stops_and_starts_of_reading_lose_and_reorder_no_byte)
{
	enum { N = 12, LEN = 3000000 };
	struct stream *s = calloc(N, sizeof *s);
	unsigned n_ended = 0, i, idle = 0;

	srand(11);
	for (i = 0; i < N; i++) {
		int pair[2];

		tcp_pair(pair);
		s[i] = (struct stream){.io = io, .fd = pair[0], .peer = pair[1], .len = LEN};
		s[i].n_ended = &n_ended;
		stream_sent(&s[i], 0);
		stream_go(&s[i]);
	}
	while (n_ended < N) {
		int told = io_turn(io, 10);

		OK(told >= 0);
		idle = told ? 0 : idle + 1;
		cr_assert(idle < 1000, "%s: stuck, %u of %u ended", variant, n_ended, N);
		for (i = 0; i < N; i++) {
			if (s[i].ended)
				continue;
			if (!s[i].recv && rand() % 3 == 0) {
				stream_go(&s[i]);
			} else if (s[i].recv && rand() % 4 == 0) {
				io_cancel(io, s[i].recv);
				s[i].recv = NULL;
				if (rand() % 2)
					stream_go(&s[i]);
			}
		}
	}
	for (i = 0; i < N; i++) {
		EQ(s[i].got, LEN);
		io_close_fd(io, s[i].fd);
		io_close_fd(io, s[i].peer);
	}
	free(s);
}

IO_TEST(the_end_or_error_that_comes_while_reading_is_stopped_is_told_to_the_next_recv)
{
	struct told r;
	int pair[2], kind, turns;

	for (kind = 0; kind < 2; kind++) {
		for (turns = 0; turns < 3; turns++) {
			int i;

			r = (struct told){.io = io};
			tcp_pair(pair);
			r.op = io_recv(io, pair[0], on_bytes, &r);
			OK(r.op);
			settle(io);
			if (kind)
				reset(pair[1]);
			else
				close(pair[1]);
			await(pair[0], POLLIN);
			/* Between the event and its completion's being seen, then around the cancel. */
			io_cancel(io, r.op);
			for (i = 0; i < turns; i++)
				OK(io_turn(io, 0) == 0);
			OK(io_recv(io, pair[0], on_bytes, &r));
			pump(io, &r.n, 1);
			EQ(r.result, kind ? -ECONNRESET : 0);
			settle(io);
			EQ(r.n, 1);
			io_close_fd(io, pair[0]);
		}
	}
}

IO_TEST(a_crowd_that_stopped_reading_leaves_buffers_for_the_others_and_loses_nothing)
{
	enum { N = 150, LEN = 65536 };
	struct told *t = calloc(N, sizeof *t), r = {.io = io};
	int (*pair)[2] = calloc(N, sizeof *pair), one[2];
	unsigned i;

	for (i = 0; i < N; i++) {
		tcp_pair(pair[i]);
		t[i] = (struct told){.io = io, .cancel = true};
		send_pattern(pair[i][1], 0, LEN);
		t[i].op = io_recv(io, pair[i][0], on_bytes, &t[i]);
		OK(t[i].op);
	}
	/* Each reads one piece, and stops: more of most was in flight, over the buffers there are. */
	for (i = 0; i < N; i++)
		pump(io, &t[i].n, 1);
	settle(io);
	tcp_pair(one);
	OK(io_recv(io, one[0], on_bytes, &r));
	for (i = 0; i < 100; i++) {
		send_pattern(one[1], i * (size_t)LEN, LEN);
		while (r.bytes < (i + 1) * (size_t)LEN)
			pump(io, &r.n, r.n + 1);
	}
	for (i = 0; i < N; i++) {
		EQ(t[i].n, 1);
		t[i].cancel = false;
		if (i % 10 == 9) {
			io_close_fd(io, pair[i][0]);    /* held bytes of these are dropped */
			close(pair[i][1]);
			continue;
		}
		OK(io_recv(io, pair[i][0], on_bytes, &t[i]));
	}
	for (i = 0; i < N; i++) {
		if (i % 10 == 9)
			continue;
		while (t[i].bytes < LEN)
			pump(io, &t[i].n, t[i].n + 1);
		close(pair[i][1]);
		pump(io, &t[i].n, t[i].n + 1);
		EQ(t[i].result, 0);
		EQ(t[i].bytes, LEN);
		io_close_fd(io, pair[i][0]);
	}
	io_close_fd(io, one[0]);
	close(one[1]);
	free(pair);
	free(t);
}

/* ---- accept ---- */

IO_TEST(an_accept_tells_every_connection_and_after_a_cancel_the_backlog_and_then_its_end)
{
	struct sockaddr_in addr;
	int listener = listen_tcp(64, &addr), client[48], i;
	struct told a = {.io = io, .starting = true};

	a.op = io_accept(io, listener, on_accepted, &a);
	OK(a.op);
	a.starting = false;
	OK(fcntl(listener, F_GETFL) & O_NONBLOCK);
	for (i = 0; i < 16; i++)
		client[i] = dial(&addr);
	pump(io, &a.n, 16);
	for (; i < 32; i++)             /* perhaps accepted by the kernel, told by nobody */
		client[i] = dial(&addr);
	a.starting = true;
	io_cancel(io, a.op);
	io_cancel(io, a.op);
	a.starting = false;
	for (; i < 48; i++)
		client[i] = dial(&addr);
	pump(io, &a.n, 49);
	EQ(a.bytes, 48);
	EQ(a.result, -ECANCELED);
	settle(io);
	EQ(a.n, 49);
	EQ(accept4(listener, NULL, NULL, 0), -1);
	EQ(errno, EAGAIN);
	for (i = 0; i < 48; i++)
		close(client[i]);

	/* And again on the same listener, cancelled before the first turn. */
	a = (struct told){.io = io};
	a.op = io_accept(io, listener, on_accepted, &a);
	OK(a.op);
	io_cancel(io, a.op);
	pump(io, &a.n, 1);
	EQ(a.result, -ECANCELED);
	io_close_fd(io, listener);
}

IO_TEST(an_accept_without_fds_left_says_so_and_goes_on_when_there_are)
{
	struct rlimit was, few;
	struct sockaddr_in addr;
	int listener = listen_tcp(8, &addr), client = dial(&addr), spare = dup(client);
	struct told a = {.io = io};

	EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = (rlim_t)spare;
	close(spare);
	a.op = io_accept(io, listener, on_accepted, &a);
	OK(a.op);
	EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	pump(io, &a.n, 2);              /* twice: it pauses, and tries again */
	EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	EQ(a.result, -EMFILE);
	EQ(a.bytes, 0);
	pump(io, &a.n, 3);
	EQ(a.bytes, 1);
	EQ(a.result, 0);
	close(client);
	client = dial(&addr);
	pump(io, &a.n, 4);
	EQ(a.bytes, 2);
	close(client);

	io_cancel(io, a.op);
	pump(io, &a.n, 5);

	/* A cancel during the pause ends it at once. */
	client = dial(&addr);
	a = (struct told){.io = io};
	a.op = io_accept(io, listener, on_accepted, &a);
	OK(a.op);
	EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	pump(io, &a.n, 1);
	EQ(a.result, -EMFILE);
	EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	io_cancel(io, a.op);
	pump(io, &a.n, 3);
	EQ(a.bytes, 1);
	EQ(a.result, -ECANCELED);
	close(client);
	io_close_fd(io, listener);
}

IO_TEST(closing_a_listener_ends_its_accept_without_a_word_and_without_leaking_connections)
{
	struct sockaddr_in addr;
	unsigned before = open_fds();
	int listener = listen_tcp(8, &addr), client[8], i;
	struct told a = {.io = io};

	OK(io_accept(io, listener, on_accepted, &a));
	settle(io);
	for (i = 0; i < 8; i++)
		client[i] = dial(&addr);
	io_close_fd(io, listener);
	settle(io);
	for (i = 0; i < 8; i++)
		close(client[i]);
	EQ(a.n, 0);
	EQ(open_fds(), before);
}

/* ---- connect ---- */

IO_TEST(a_connect_gives_an_fd_or_the_reason_why_not)
{
	struct sockaddr_in addr;
	int listener = listen_tcp(8, &addr), fd;
	struct told c = {.io = io, .starting = true}, r = {.io = io};
	unsigned before;

	OK(io_connect(io, (struct sockaddr *)&addr, sizeof addr, IO_NEVER, on_done, &c));
	c.starting = false;
	pump(io, &c.n, 1);
	OK(c.result >= 0);
	OK(fcntl(c.result, F_GETFD) & FD_CLOEXEC);
	fd = accept4(listener, NULL, NULL, 0);
	send_pattern(fd, 0, 10);
	OK(io_recv(io, c.result, on_bytes, &r));
	pump(io, &r.n, 1);
	EQ(r.bytes, 10);
	io_close_fd(io, c.result);
	close(fd);
	close(listener);
	settle(io);

	before = open_fds();
	OK(io_connect(io, (struct sockaddr *)&addr, sizeof addr, IO_NEVER, on_done, &c));
	pump(io, &c.n, 2);
	EQ(c.result, -ECONNREFUSED);
	settle(io);
	EQ(c.n, 2);
	EQ(open_fds(), before);
	OK(!io_connect(io, (struct sockaddr *)&addr, 1, IO_NEVER, on_done, &c) && errno == EINVAL);
	addr.sin_family = 200;
	OK(io_connect(io, (struct sockaddr *)&addr, sizeof addr, IO_NEVER, on_done, &c));
	pump(io, &c.n, 3);
	EQ(c.result, -EAFNOSUPPORT);
}

IO_TEST(a_connect_ends_at_its_deadline_or_by_cancel_and_leaks_no_fd)
{
	struct sockaddr_in addr;
	int listener = listen_tcp(0, &addr), full[2];
	struct told c = {.io = io}, d = {.io = io};
	unsigned before;

	full[0] = dial(&addr);          /* backlog 0 takes one; the next SYN is dropped */
	before = open_fds();
	OK(io_connect(io, (struct sockaddr *)&addr, sizeof addr, io_now(io) + 20000000, on_done, &c));
	d.op = io_connect(io, (struct sockaddr *)&addr, sizeof addr, io_now(io) + 20000000, on_done,
			  &d);
	OK(d.op);
	settle(io);
	io_cancel(io, d.op);
	EQ(c.n, 0);
	pump(io, &c.n, 1);
	EQ(c.result, -ETIMEDOUT);
	settle(io);
	EQ(c.n, 1);
	EQ(d.n, 0);
	EQ(open_fds(), before);
	close(full[0]);
	close(listener);
}

IO_TEST(a_unix_connect_waits_for_room_in_the_backlog)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(sa_family_t);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	struct told c[3] = {{.io = io}, {.io = io}, {.io = io}};
	unsigned i, n;

	EQ(bind(listener, (struct sockaddr *)&addr, len), 0);   /* autobind */
	len = sizeof addr;
	EQ(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	EQ(listen(listener, 0), 0);
	for (i = 0; i < 3; i++)
		OK(io_connect(io, (struct sockaddr *)&addr, len, IO_NEVER, on_done, &c[i]));
	for (n = 0; n < 3; n = c[0].n + c[1].n + c[2].n) {
		OK(io_turn(io, 1) >= 0);
		/* Taken only now and then. */
		if (c[0].n + c[1].n + c[2].n > n) {
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			OK(fd >= 0);
			close(fd);
		}
	}
	for (i = 0; i < 3; i++) {
		OK(c[i].result >= 0);
		io_close_fd(io, c[i].result);
	}
	close(listener);
}

/* ---- watch ---- */

IO_TEST(a_watch_tells_as_long_as_the_fd_stays_readable)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), pipes[2];
	struct told w = {.io = io, .starting = true}, p = {.io = io};
	eventfd_t value;

	EQ(pipe2(pipes, O_CLOEXEC), 0);
	eventfd_write(fd, 1);
	w.op = io_watch(io, fd, on_done, &w);
	OK(w.op);
	w.starting = false;
	pump(io, &w.n, 5);
	EQ(w.result, POLLIN);
	eventfd_read(fd, &value);
	settle(io);
	w.n = 0;
	EQ(io_turn(io, 0), 0);
	eventfd_write(fd, 1);
	pump(io, &w.n, 2);
	w.cancel = true;                /* within its own callback */
	pump(io, &w.n, 3);
	settle(io);
	EQ(w.n, 3);
	io_close_fd(io, fd);

	p.op = io_watch(io, pipes[0], on_done, &p);
	OK(p.op);
	settle(io);
	close(pipes[1]);
	pump(io, &p.n, 2);
	OK(p.result & POLLHUP);
	io_cancel(io, p.op);
	p.n = 0;
	settle(io);
	EQ(p.n, 0);
	io_close_fd(io, pipes[0]);
	OK(io_watch(io, pipes[0], on_done, &p));
	pump(io, &p.n, 1);
	EQ(p.result, -EBADF);
	OK(!io_watch(io, -1, on_done, &p) && errno == EBADF);
}

IO_TEST(more_completions_than_the_queue_holds_are_all_told)
{
	enum { N = 6000 };              /* above CQ_ENTRIES */
	struct rlimit limit;
	struct told *w = calloc(N, sizeof *w);
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	unsigned i, n = N;

	EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < N + 100)
		n = (unsigned)limit.rlim_max - 100;
	for (i = 0; i < n; i++) {
		w[i] = (struct told){.io = io, .fd = dup(fd), .cancel = true};
		OK(w[i].fd >= 0);
		w[i].op = io_watch(io, w[i].fd, on_done, &w[i]);
		OK(w[i].op);
	}
	for (i = 0; i < n; i++)
		pump(io, &w[i].n, 1);
	settle(io);
	for (i = 0; i < n; i++) {
		EQ(w[i].n, 1);
		io_close_fd(io, w[i].fd);
	}
	close(fd);
	free(w);
}

/* ---- closing ---- */

IO_TEST(a_closed_fd_is_silent_and_its_number_may_be_used_again_at_once)
{
	struct told old = {.io = io}, new = {.io = io}, s = {.io = io};
	static uint8_t big[4 << 20];
	struct iovec iov = {big, sizeof big};
	int first[2], second[2], round;
	char byte;

	for (round = 0; round < 6; round++) {
		tcp_pair(first);
		tcp_pair(second);
		EQ(write(first[1], "wrong", 5), 5);
		OK(io_recv(io, first[0], on_bytes_any, &old));
		OK(io_send(io, first[0], &iov, 1, on_done, &s));
		if (round % 3 > 0)
			io_turn(io, 0);
		old.n = 0;
		old.bytes = 0;
		EQ(write(first[1], "wrong", 5), 5);
		io_close_fd(io, first[0]);
		/* The very number, another stream. */
		EQ(dup2(second[0], first[0]), first[0]);
		close(second[0]);
		new.bytes = 0;
		OK(io_recv(io, first[0], on_bytes, &new));
		if (round % 2)
			settle(io);
		send_pattern(second[1], 0, 1000);
		while (new.bytes < 1000)
			pump(io, &new.n, new.n + 1);
		EQ(old.n, 0);
		EQ(s.n, 0);
		/* The old peer sees the end. */
		do
			await(first[1], POLLIN);
		while (read(first[1], &byte, 1) > 0);
		io_close_fd(io, first[0]);
		close(first[1]);
		close(second[1]);
	}
}

IO_TEST(callbacks_may_close_what_they_and_others_in_the_same_turn_are_about)
{
	enum { N = 20 };
	struct told t[N];
	int pair[N][2];
	unsigned i, total = 0;

	/* All ready in one turn; each callback closes its neighbour's fd, the last its own. */
	for (i = 0; i < N; i++) {
		tcp_pair(pair[i]);
		EQ(write(pair[i][1], "x", 1), 1);
	}
	for (i = 0; i < N; i++) {
		t[i] = (struct told){.io = io, .close_fd = pair[i == N - 1 ? i : i ^ 1][0]};
		t[i].op = io_recv(io, pair[i][0], on_bytes_any, &t[i]);
		OK(t[i].op);
	}
	pump(io, &t[0].n, 1);
	settle(io);
	for (i = 0; i < N; i += 2) {
		/* One of each two was closed before it could be told. */
		EQ(t[i].n + t[i + 1].n, 1);
		total += t[i].n + t[i + 1].n;
	}
	EQ(total, N / 2);
	for (i = 0; i < N; i++) {
		close(pair[i][1]);
		if (t[i].n)
			io_close_fd(io, pair[i][0]);
	}
}

IO_TEST(a_cancel_within_the_final_callback_does_nothing)
{
	struct told r = {.io = io, .cancel = true}, t = {.io = io, .cancel = true};
	int pair[2];

	tcp_pair(pair);
	close(pair[1]);
	r.close_fd = pair[0];
	r.op = io_recv(io, pair[0], on_bytes, &r);
	t.op = io_timer(io, 0, on_done, &t);
	OK(r.op && t.op);
	pump(io, &r.n, 1);
	pump(io, &t.n, 1);
	settle(io);
	EQ(r.n, 1);
	EQ(t.n, 1);
}

Test(io, closing_the_loop_drops_what_is_pending_and_lets_go_of_its_memory)
{
	static const struct io_back *const back[] = {&io_back_epoll, &io_back_uring, &io_back_uring};
	unsigned i;

	for (i = 0; i < 3; i++) {
		struct told t = {.close_fd = 0};
		struct sockaddr_in addr, full;
		uint8_t *bytes = calloc(1, 8 << 20);
		struct iovec iov = {bytes, 8 << 20};
		struct io *io = NULL;
		const char *why;
		int pair[2], listener, busy, client, event = eventfd(0, EFD_CLOEXEC), late;
		unsigned before = open_fds();

		variant = i ? "io_uring" : "epoll";
		if (io_open_back(&io, back[i], i == 2 ? IO_URING_PLAIN : 0, &why) < 0) {
			free(bytes);
			continue;
		}
		t.io = io;
		listener = listen_tcp(8, &addr);
		busy = listen_tcp(0, &full);
		client = dial(&full);
		tcp_pair(pair);
		OK(io_accept(io, listener, on_accepted, &t));
		OK(io_recv(io, pair[0], on_bytes, &t));
		OK(io_send(io, pair[0], &iov, 1, on_done, &t));
		OK(io_watch(io, event, on_done, &t));
		OK(io_timer(io, IO_NEVER, on_done, &t));
		OK(io_connect(io, (struct sockaddr *)&full, sizeof full, IO_NEVER, on_done, &t));
		settle(io);
		OK(io_recv(io, pair[1], on_bytes, &t)); /* never armed */
		late = dial(&addr);
		EQ(t.n, 0);
		io_close(&io);
		memset(bytes, 0xee, 8 << 20);
		free(bytes);
		close(listener);
		close(busy);
		close(client);
		close(late);
		close(pair[0]);
		close(pair[1]);
		EQ(open_fds(), before);
		EQ(t.n, 0);
		close(event);
	}
}

/* The link wraps the submit of a turn that does not wait, so that it can be refused for want of memory. */
static bool submit_is_refused;
int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);

int
__wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
	return submit_is_refused ? -EAGAIN : __real_io_uring_submit_and_get_events(ring);
}

IO_TEST(what_the_kernel_had_no_memory_to_take_never_reaches_it_once_closed)
{
	enum { LEN = 100000 };
	struct told old = {.io = io}, new = {.io = io}, a = {.io = io};
	struct sockaddr_in addr;
	uint8_t *bytes = calloc(1, LEN);
	struct iovec iov = {bytes, LEN};
	int first[2], second[2], listener = listen_tcp(8, &addr);
	bool had_stdin = fcntl(0, F_GETFD) >= 0;
	char byte;

	if (io_backend(io) != IO_URING) {
		free(bytes);
		close(listener);
		return;
	}
	tcp_pair(first);
	tcp_pair(second);
	submit_is_refused = true;
	OK(io_recv(io, first[0], on_bytes, &old));
	OK(io_send(io, first[0], &iov, 1, on_done, &old));
	OK(io_accept(io, listener, on_accepted, &a));
	EQ(io_turn(io, 0), 0);
	io_close_fd(io, first[0]);
	io_close_fd(io, listener);
	memset(bytes, 0xee, LEN);
	free(bytes);
	EQ(dup2(second[0], first[0]), first[0]);
	close(second[0]);
	OK(io_recv(io, first[0], on_bytes, &new));
	EQ(io_turn(io, 0), 0);
	submit_is_refused = false;
	settle(io);
	send_pattern(second[1], 0, 1000);
	while (new.bytes < 1000)
		pump(io, &new.n, new.n + 1);
	EQ(recv(second[1], &byte, 1, MSG_DONTWAIT), -1);
	EQ(errno, EAGAIN);
	EQ(old.n, 0);
	EQ(a.n, 0);
	EQ(fcntl(0, F_GETFD) >= 0, had_stdin);         /* a NOP's result 0 is no accepted fd */
	io_close_fd(io, first[0]);
	close(first[1]);
	close(second[1]);
}

/* ---- choice of back end ---- */

static int
choose_under_filter(const char *call, uint32_t action)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
		const char *why = NULL;
		struct io *io = NULL;
		int code = 0;

		if (!filter || seccomp_rule_add(filter, action, seccomp_syscall_resolve_name(call), 0) ||
		    seccomp_load(filter))
			_exit(100);
		seccomp_release(filter);
		if (io_open(&io, IO_AUTO, &why) || io_backend(io) != IO_EPOLL || !why ||
		    !strstr(why, "io_uring"))
			code |= 1;
		if (io && io_turn(io, 0) < 0)
			code |= 2;
		io_close(&io);
		why = NULL;
		if (io_open(&io, IO_URING, &why) >= 0 || io || !why)
			code |= 4;
		why = "stale";
		if (io_open(&io, IO_EPOLL, &why) || why || io_backend(io) != IO_EPOLL)
			code |= 8;
		io_close(&io);
		_exit(code);
	}
	EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(io, where_io_uring_is_forbidden_epoll_is_taken_and_the_reason_told)
{
	variant = "seccomp";
	EQ(choose_under_filter("io_uring_setup", SCMP_ACT_ERRNO(EPERM)), 0);
	EQ(choose_under_filter("io_uring_setup", SCMP_ACT_ERRNO(ENOSYS)), 0);
	EQ(choose_under_filter("io_uring_setup", SCMP_ACT_ERRNO(ENOMEM)), 0);
	EQ(choose_under_filter("io_uring_enter", SCMP_ACT_ERRNO(EPERM)), 0);
	EQ(choose_under_filter("io_uring_register", SCMP_ACT_ERRNO(EPERM)), 0);
}

Test(io, back_ends_have_the_names_of_the_configuration)
{
	cr_assert_str_eq(io_backend_name(IO_AUTO), "auto");
	cr_assert_str_eq(io_backend_name(IO_URING), "io_uring");
	cr_assert_str_eq(io_backend_name(IO_EPOLL), "epoll");
}
