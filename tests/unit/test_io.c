/* tests/unit/test_io.c -- the io layer keeps its word about everything but streams of bytes. */
#include <liburing.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/unit/io_each.h"

/* The link wraps the two submits that do not wait, so that they can be refused for want of memory.
 * */
static bool submit_is_refused;
static struct io_uring *submitted;              /* the ring of the last one */
int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int
__wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
	submitted = ring;
	return submit_is_refused ? -EAGAIN : __real_io_uring_submit_and_get_events(ring);
}

int
__wrap_io_uring_submit(struct io_uring *ring)
{
	return submit_is_refused ? -EAGAIN : __real_io_uring_submit(ring);
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

static void
on_alarm(int signal)
{
	(void)signal;
}

IO_TEST(a_signal_ends_a_turn_and_is_no_error)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};

	EQ(sigaction(SIGALRM, &action, NULL), 0);
	EQ(setitimer(ITIMER_REAL, &every, NULL), 0);
	EQ(io_turn(io, -1), 0);
	EQ(io_turn(io, 60000), 0);
	EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
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

	/* And the listener closed by a callback of the sweep: not a word more. */
	a = (struct told){.io = io, .close_fd = listener};
	a.op = io_accept(io, listener, on_accepted, &a);
	OK(a.op);
	client[0] = dial(&addr);
	client[1] = dial(&addr);
	io_cancel(io, a.op);
	pump(io, &a.n, 1);
	settle(io);
	EQ(a.n, 1);
	close(client[0]);
	close(client[1]);
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
	c.op = io_connect(io, (struct sockaddr *)&addr, sizeof addr, io_now(io) + 20000000, on_done,
			  &c);
	OK(c.op);
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
	sleeps(io);
	EQ(p.n, 0);
	io_close_fd(io, pipes[0]);

	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p.op = io_watch(io, fd, on_done, &p);
	OK(p.op);
	settle(io);
	io_cancel(io, p.op);            /* while it waits in the kernel */
	eventfd_write(fd, 1);
	settle(io);
	EQ(p.n, 0);
	io_close_fd(io, fd);
	OK(io_watch(io, pipes[0], on_done, &p));
	pump(io, &p.n, 1);
	EQ(p.result, -EBADF);
	OK(!io_watch(io, -1, on_done, &p) && errno == EBADF);
}

IO_TEST(more_completions_than_the_queue_holds_are_all_told)
{
	enum { N = 6000, N_STREAMS = 20, LEN = 60000 }; /* above CQ_ENTRIES */
	struct rlimit limit;
	struct told *w = calloc(N, sizeof *w), r[N_STREAMS], a = {.io = io};
	struct sockaddr_in addr;
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), pair[N_STREAMS][2];
	int listener = listen_tcp(32, &addr), client[20];
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
	/* Multishots end when a completion finds no room: behind all those, these must be started
	 * again. */
	for (i = 0; i < N_STREAMS; i++) {
		tcp_pair(pair[i]);
		send_pattern(pair[i][1], 0, LEN);
		r[i] = (struct told){.io = io};
		OK(io_recv(io, pair[i][0], on_bytes, &r[i]));
	}
	a.op = io_accept(io, listener, on_accepted, &a);
	OK(a.op);
	for (i = 0; i < 20; i++)
		client[i] = dial(&addr);
	submit_is_refused = true;       /* and the queue of submissions is too short as well */
	OK(io_turn(io, 0) >= 0);
	submit_is_refused = false;
	for (i = 0; i < n; i++)
		pump(io, &w[i].n, 1);
	for (i = 0; i < N_STREAMS; i++) {
		while (r[i].bytes < LEN)
			pump(io, &r[i].n, r[i].n + 1);
		send_pattern(pair[i][1], LEN, 1000);
		while (r[i].bytes < LEN + 1000)
			pump(io, &r[i].n, r[i].n + 1);
		io_close_fd(io, pair[i][0]);
		close(pair[i][1]);
	}
	pump(io, &a.n, 20);
	EQ(a.bytes, 20);
	for (i = 0; i < 20; i++)
		close(client[i]);
	client[0] = dial(&addr);
	pump(io, &a.n, 21);
	close(client[0]);
	io_close_fd(io, listener);
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
	static char in[65536];

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
		while (read(first[1], in, sizeof in) > 0);
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

struct reuse {
	struct told own;
	int fd, new_fd;         /* new_fd takes fd's number, and is watched */
	struct told *watch;
};

static void
on_bytes_reuse(void *arg, const void *buf, ssize_t n)
{
	struct reuse *t = arg;

	(void)buf;
	on_done(&t->own, (int)n);
	io_close_fd(t->own.io, t->fd);
	EQ(dup2(t->new_fd, t->fd), t->fd);
	OK(io_watch(t->own.io, t->fd, on_done, t->watch));
}

IO_TEST(an_event_of_a_closed_fd_is_not_told_to_the_next_user_of_its_number)
{
	int first[2], second[2], event = eventfd(0, EFD_CLOEXEC);
	struct told w = {.io = io};
	struct reuse t[2] = {
		{.own.io = io, .new_fd = event, .watch = &w},
		{.own.io = io, .new_fd = event, .watch = &w},
	};

	/* Both ready in one turn; the callback of one closes the other and reuses its number. */
	tcp_pair(first);
	tcp_pair(second);
	t[0].fd = second[0];
	t[1].fd = first[0];
	EQ(write(first[1], "x", 1), 1);
	EQ(write(second[1], "x", 1), 1);
	await(first[0], POLLIN);
	await(second[0], POLLIN);
	OK(io_recv(io, first[0], on_bytes_reuse, &t[0]));
	OK(io_recv(io, second[0], on_bytes_reuse, &t[1]));
	EQ(io_turn(io, 1000), 1);
	settle(io);
	EQ(t[0].own.n + t[1].own.n, 1);
	EQ(w.n, 0);
	eventfd_write(event, 1);
	pump(io, &w.n, 1);
	EQ(w.result, POLLIN);
	io_close_fd(io, first[0]);
	io_close_fd(io, second[0]);
	close(first[1]);
	close(second[1]);
	close(event);
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
	static const struct io_back *const back[] = {
		&io_back_epoll, &io_back_uring, &io_back_uring,
	};
	unsigned i;

	for (i = 0; i < 3; i++) {
		struct told t = {.close_fd = 0};
		struct sockaddr_in addr, full;
		uint8_t *bytes = calloc(1, 8 << 20);
		struct iovec iov = {bytes, 8 << 20};
		struct io *io = NULL;
		const char *why;
		struct told stopped;
		int held[2], pair[2], listener, busy, client, event = eventfd(0, EFD_CLOEXEC), late;
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
		tcp_pair(held);
		send_pattern(held[1], 0, 65536);
		stopped = (struct told){.io = io, .cancel = true};
		stopped.op = io_recv(io, held[0], on_bytes, &stopped);
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
		close(held[0]);
		close(held[1]);
		EQ(stopped.n, 1);
		EQ(open_fds(), before);
		EQ(t.n, 0);
		close(event);
	}
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

		if (!filter ||
		    seccomp_rule_add(filter, action, seccomp_syscall_resolve_name(call), 0) ||
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

/* What a ring does is done without a system call that a filter sees. */
Test(io, the_ring_opens_no_file_and_changes_none, .timeout = 20)
{
	const char *why = NULL;
	struct io *io = NULL;
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;

	if (io_open(&io, IO_URING, &why) < 0)
		cr_skip_test("%s", why);
	cr_assert_geq(io_turn(io, 0), 0);
	cr_assert_not_null(submitted);
	for (unsigned i = 0; i < 2; i++) {
		sqe = io_uring_get_sqe(submitted);
		if (i == 0)
			io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_WRONLY, 0);
		else
			io_uring_prep_fsetxattr(sqe, 0, "user.x", "", 0, 0);
		io_uring_sqe_set_data64(sqe, 0);
		cr_assert_eq(io_uring_submit_and_wait(submitted, 1), 1);
		cr_assert_eq(io_uring_peek_cqe(submitted, &cqe), 0);
		cr_assert_eq(cqe->res, -EACCES, "%d", cqe->res);
		io_uring_cqe_seen(submitted, cqe);
	}
	cr_assert_eq(io_uring_register_eventfd(submitted, 0), -EACCES);
	io_close(&io);
}

Test(io, back_ends_have_the_names_of_the_configuration)
{
	cr_assert_str_eq(io_backend_name(IO_AUTO), "auto");
	cr_assert_str_eq(io_backend_name(IO_URING), "io_uring");
	cr_assert_str_eq(io_backend_name(IO_EPOLL), "epoll");
}
