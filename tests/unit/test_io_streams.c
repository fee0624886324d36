/* tests/unit/test_io_streams.c -- the io layer loses, reorders and invents no byte. */
#include <pthread.h>
#include <sys/ioctl.h>

#include "tests/unit/io_each.h"

/* ---- receive and send ---- */

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
	OK(io_send(io, pair[0], &iov, 1, on_done, &s));
	pump(io, &s.n, 1);
	EQ(s.result, -EPIPE);
	io_close_fd(io, pair[0]);
	s.n = 0;
	/* Closed already: the number is nobody's. */
	OK(io_recv(io, pair[0], on_bytes, &r));
	OK(io_send(io, pair[0], &iov, 1, on_done, &s));
	pump(io, &r.n, 2);
	EQ(r.result, -EBADF);
	pump(io, &s.n, 1);
	EQ(s.result, -EBADF);
	s.n = 0;

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

struct order {
	struct told told;
	unsigned *clock, at;
};

static void
on_done_order(void *arg, int result)
{
	struct order *t = arg;

	on_done(&t->told, result);
	t->at = ++*t->clock;
}

static void
on_bytes_order(void *arg, const void *buf, ssize_t n)
{
	(void)buf;
	on_done_order(arg, (int)n);
}

IO_TEST(a_send_is_told_before_the_answer_to_it)
{
	unsigned clock = 0, i;
	struct order s = {.told.io = io, .clock = &clock}, r = {.told.io = io, .clock = &clock};
	struct iovec iov = {(void *)(uintptr_t)"ask", 3};
	int pair[2];

	tcp_pair(pair);
	for (i = 1; i <= 3; i++) {
		OK(io_send(io, pair[0], &iov, 1, on_done_order, &s));
		if (i == 1)
			OK(io_recv(io, pair[0], on_bytes_order, &r));
		if (i > 1 && io_backend(io) == IO_URING)
			EQ(io_turn(io, 0), 1);  /* only now does it go out */
		await(pair[1], POLLIN | POLLOUT);
		EQ(write(pair[1], "x", 1), 1);
		pump(io, &r.told.n, i);
		EQ(s.told.n, i);
		OK(s.at < r.at);
	}
	io_close_fd(io, pair[0]);
	close(pair[1]);
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

static void *
drain(void *arg)
{
	static _Thread_local uint8_t in[30000];
	int fd = *(int *)arg;
	ssize_t n, i;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		poll(&p, 1, 10000);
		n = read(fd, in, sizeof in);
		if (n <= 0)
			return NULL;
		for (i = 0; i < n; i++)
			if (in[i] != 0x11)
				return arg;
	}
}

IO_TEST(a_send_cancelled_while_another_cpu_makes_room_sends_no_byte_of_later)
{
	enum { LEN = 1 << 20, ROUNDS = 150 };
	uint8_t *bytes = malloc(LEN);
	struct told s = {.io = io};
	struct iovec iov = {bytes, LEN};
	int pair[2], round, i;

	srand(3);
	for (round = 0; round < ROUNDS; round++) {
		volatile unsigned spin = (unsigned)rand() % 200000;
		pthread_t thread;
		void *wrong;

		tcp_pair(pair);
		small_buffers(pair);
		memset(bytes, 0x11, LEN);
		/* Full first, so that the send below waits for room. */
		for (i = 0; i < 1000 && write(pair[0], bytes, 65536) > 0; i++)
			;
		s.op = io_send(io, pair[0], &iov, 1, on_done, &s);
		OK(s.op);
		EQ(io_turn(io, 0), 0);
		EQ(pthread_create(&thread, NULL, drain, &pair[1]), 0);
		while (spin)
			spin--;
		io_cancel(io, s.op);
		memset(bytes, 0xee, LEN);
		settle(io);
		io_close_fd(io, pair[0]);
		settle(io);
		EQ(pthread_join(thread, &wrong), 0);
		OK(!wrong);
		close(pair[1]);
	}
	EQ(s.n, 0);
	free(bytes);
}

/* ---- back-pressure: stop and go ---- */

/* How much the kernel still has of what was sent to fd. */
static size_t
waiting(int fd)
{
	int n = -1;

	EQ(ioctl(fd, FIONREAD, &n), 0);
	return (size_t)n;
}

struct slow {
	struct io *io;
	int fd;
	struct io_op *recv;
	size_t got, enough;
};

static void
slow_bytes(void *arg, const void *buf, ssize_t n)
{
	struct slow *s = arg;

	(void)buf;
	OK(s->recv && n > 0);
	s->got += (size_t)n;
	if (s->got < s->enough)
		return;
	io_cancel(s->io, s->recv);
	s->recv = NULL;
}

IO_TEST(a_reader_that_stops_and_goes_has_little_taken_ahead_of_it_however_much_waits)
{
	enum { PIECE = 1 << 16, SENT = 24 << 20, AHEAD_MAX = 6 << 20 };
	static uint8_t piece[PIECE];
	int bytes = 2 * SENT;
	struct slow s = {.io = io};
	size_t sent = 0, most = 0;
	int pair[2];

	tcp_pair(pair);
	s.fd = pair[0];
	if (setsockopt(pair[0], SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0 ||
	    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0)
		fprintf(stderr, "%s: not tried with much that waits: not root\n", variant);
	for (ssize_t n; sent < SENT && (n = write(pair[1], piece, sizeof piece)) > 0;)
		sent += (size_t)n;
	await(pair[0], POLLIN);
	srand(7);
	while (s.got < sent) {
		if (!s.recv) {
			s.enough = s.got + 1 + (size_t)rand() % (512 << 10);
			if (s.enough > sent)
				s.enough = sent;
			s.recv = io_recv(io, pair[0], slow_bytes, &s);
			OK(s.recv);
		}
		for (int turns = rand() % 4; turns >= 0; turns--)
			OK(io_turn(io, turns ? 0 : 1) >= 0);
		size_t ahead = sent - waiting(pair[0]) - s.got;

		most = ahead > most ? ahead : most;
	}
	cr_assert(most <= AHEAD_MAX, "%s: %zu bytes taken ahead", variant, most);
	io_close_fd(io, pair[0]);
	close(pair[1]);
}

struct stream {
	struct io *io;
	int fd, peer;
	struct io_op *recv;
	size_t got, sent, len;
	unsigned *n_ended;
	bool ended, ends_in_reset;
	uint8_t out[30000];
	size_t n_out;
	struct stream *next;    /* another one */
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
	/* Its cancel may be with the kernel just now. */
	if (!s->next->recv && !s->next->ended && s->next->fd && rand() % 2)
		stream_go(s->next);
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
		s[i].next = &s[(i + 1) % N];
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
			/* Between the event and its completion's being seen, then around the
			 * cancel. */
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
	enum { N = 150, LEN = 65536, N_FRESH = 100 };
	struct told *t = calloc(N, sizeof *t), *fresh, r = {.io = io};
	int fresh_pair[N_FRESH][2];
	int (*pair)[2] = calloc(N, sizeof *pair), one[2];
	unsigned i;

	for (i = 0; i < N; i++) {
		tcp_pair(pair[i]);
		t[i] = (struct told){.io = io, .cancel = true};
		send_pattern(pair[i][1], 0, LEN);
		t[i].op = io_recv(io, pair[i][0], on_bytes, &t[i]);
		OK(t[i].op);
	}
	/* Each reads one piece, and stops: more of most was in flight, over the buffers there are.
	 * */
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
	/* Not one by one, through the last buffer either. */
	fresh = calloc(N_FRESH, sizeof *fresh);
	for (i = 0; i < N_FRESH; i++) {
		tcp_pair(fresh_pair[i]);
		fresh[i] = (struct told){.io = io};
		send_pattern(fresh_pair[i][1], 0, 1000);
		await(fresh_pair[i][0], POLLIN);
		OK(io_recv(io, fresh_pair[i][0], on_bytes, &fresh[i]));
	}
	settle(io);
	for (i = 0; i < N_FRESH; i++) {
		EQ(fresh[i].bytes, 1000);
		io_close_fd(io, fresh_pair[i][0]);
		close(fresh_pair[i][1]);
	}
	free(fresh);
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

IO_TEST(an_fd_nobody_reads_wakes_nobody)
{
	struct told r = {.io = io}, s = {.io = io};
	static uint8_t big[8 << 20];
	struct iovec iov = {big, sizeof big};
	int pair[2], copy;

	tcp_pair(pair);
	r.op = io_recv(io, pair[0], on_bytes, &r);
	OK(r.op);
	settle(io);
	io_cancel(io, r.op);
	settle(io);                     /* else the kernel may still receive for it */
	send_pattern(pair[1], 0, 1000);
	await(pair[0], POLLIN);
	sleeps(io);
	/* Nor while it is being written to. */
	OK(io_send(io, pair[0], &iov, 1, on_done, &s));
	sleeps(io);
	r.op = io_recv(io, pair[0], on_bytes, &r);
	OK(r.op);
	while (r.bytes < 1000)
		pump(io, &r.n, r.n + 1);
	io_cancel(io, r.op);
	reset(pair[1]);
	pump(io, &s.n, 1);
	sleeps(io);                     /* hung up */
	io_close_fd(io, pair[0]);

	/* Nor one that another process, or a copy of the number, keeps open behind us. */
	tcp_pair(pair);
	r = (struct told){.io = io};
	OK(io_recv(io, pair[0], on_bytes, &r));
	settle(io);
	copy = dup(pair[0]);
	io_close_fd(io, pair[0]);
	settle(io);
	send_pattern(pair[1], 0, 1000);
	await(copy, POLLIN);
	sleeps(io);
	EQ(r.n, 0);
	close(copy);
	close(pair[1]);
}
