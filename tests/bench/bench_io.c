/* tests/bench/bench_io.c -- what the io layer costs, on each back end.
 *
 *	bench_io [CONNECTIONS] [SECONDS]
 *
 * A child process (plain epoll) keeps one 160-byte message a connection in flight over loopback
 * TCP; the io layer echoes it.  Prints `name value unit` lines: echoes/s as the pair reached them,
 * and the echo process's own CPU time an echo, which is the figure to compare.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/ingress/io.h"

#define MESSAGE_BYTES 160               /* an SSE event of one token */

struct bench {
	struct io *io;
	unsigned long n_echoes;
	unsigned n_open;
};

struct echo {
	struct bench *bench;
	int fd;
	uint8_t out[65536];
};

static void
on_sent(void *arg, int result)
{
	struct echo *me = arg;

	if (!result)
		me->bench->n_echoes++;
}

static void
on_bytes(void *arg, const void *buf, ssize_t n)
{
	struct echo *me = arg;
	struct iovec iov = {me->out, 0};

	if (n <= 0) {
		me->bench->n_open--;
		io_close_fd(me->bench->io, me->fd);
		free(me);
		return;
	}
	memcpy(me->out, buf, (size_t)n);
	iov.iov_len = (size_t)n;
	if (!io_send(me->bench->io, me->fd, &iov, 1, on_sent, me))
		abort();
}

static void
on_connection(void *arg, int fd, int err)
{
	struct bench *bench = arg;
	struct echo *echo;
	int one = 1;

	if (fd < 0) {
		fprintf(stderr, "accept: %s\n", strerror(-err));
		exit(1);
	}
	echo = malloc(sizeof *echo);
	if (!echo)
		exit(1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	echo->bench = bench;
	echo->fd = fd;
	bench->n_open++;
	if (!io_recv(bench->io, fd, on_bytes, echo))
		exit(1);
}

static void
ask(const struct sockaddr_in *addr, int n)
{
	int ep = epoll_create1(0), i, one = 1;
	char message[MESSAGE_BYTES] = "data: ";

	for (i = 0; i < n; i++) {
		struct epoll_event event = {.events = EPOLLIN};
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (connect(fd, (const struct sockaddr *)addr, sizeof *addr))
			_exit(1);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		event.data.fd = fd;
		epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
		if (write(fd, message, sizeof message) < 0)
			_exit(1);
	}
	for (;;) {
		struct epoll_event event[64];
		int k = epoll_wait(ep, event, 64, -1);

		for (i = 0; i < k; i++) {
			ssize_t got = read(event[i].data.fd, message, sizeof message);

			if (got <= 0 || write(event[i].data.fd, message, (size_t)got) < 0)
				_exit(1);
		}
	}
}

static double
cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
		(double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int
run(enum io_backend backend, int n_connections, int seconds)
{
	struct bench bench = {0};
	struct sockaddr_in addr = {.sin_family = AF_INET};
	socklen_t len = sizeof addr;
	const char *why, *name = io_backend_name(backend);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t start_ns, end_ns;
	double cpu_start_s;
	unsigned long from;
	pid_t pid;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&addr, sizeof addr) || listen(listener, 1024) ||
	    getsockname(listener, (struct sockaddr *)&addr, &len)) {
		perror("listen");
		return 1;
	}
	pid = fork();
	if (!pid)
		ask(&addr, n_connections);
	if (io_open(&bench.io, backend, &why)) {
		fprintf(stderr, "%s: %s\n", name, why);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(listener);
		return backend == IO_EPOLL;
	}
	if (!io_accept(bench.io, listener, on_connection, &bench))
		return 1;
	while (bench.n_open < (unsigned)n_connections)
		io_turn(bench.io, 1000);
	cpu_start_s = cpu_s();
	from = bench.n_echoes;
	start_ns = io_now(bench.io);
	end_ns = start_ns + (uint64_t)seconds * 1000000000ull;
	while (io_now(bench.io) < end_ns)
		io_turn(bench.io, 100);
	printf("io_%s_echoes %lu echoes\n", name, bench.n_echoes - from);
	printf("io_%s_rate %.0f echoes/s\n", name, (double)(bench.n_echoes - from) / seconds);
	printf("io_%s_cpu %.2f us/echo\n", name,
	       (cpu_s() - cpu_start_s) * 1e6 / (double)(bench.n_echoes - from));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (bench.n_open)
		io_turn(bench.io, 1000);
	io_close(&bench.io);
	close(listener);
	return 0;
}

int
main(int argc, char **argv)
{
	int n_connections = argc > 1 ? atoi(argv[1]) : 100;
	int seconds = argc > 2 ? atoi(argv[2]) : 3;

	if (n_connections < 1 || n_connections > 1000 || seconds < 1) {
		fprintf(stderr, "usage: bench_io [CONNECTIONS 1..1000] [SECONDS]\n");
		return 2;
	}
	printf("io_connections %d connections\n", n_connections);
	return run(IO_EPOLL, n_connections, seconds) || run(IO_URING, n_connections, seconds);
}
