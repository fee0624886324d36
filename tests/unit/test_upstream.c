/* tests/unit/test_upstream.c -- which address of a worker is taken, and for how long. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "actors/common/log.h"
#include "actors/ingress/upstream.h"

#define MS 1000000ull

/* On both back ends; where the machine forbids io_uring, epoll does twice what it is asked. */
#define EACH_BACKEND(name) \
	static void name(enum io_backend backend); \
	Test(upstream, name##_epoll) { name(IO_EPOLL); } \
	Test(upstream, name##_auto) { name(IO_AUTO); } \
	static void \
	name(enum io_backend backend)

static struct io *io;
static struct rows rows;
static struct process_segment process;
static struct upstreams all;

static int got;         /* what the attempt came to; 1: nothing yet */
static mono_ns got_ns;
static struct upstream_conn *lent;
static int owner;

static void
on_bytes(void *user, const void *bytes, ssize_t n)
{
	(void)user;
	(void)bytes;
	(void)n;
}

static const struct upstream_ops ops = {.on_bytes = on_bytes};

static void
on_got(void *arg, struct upstream_conn *conn, int error, const char *why)
{
	(void)arg;
	(void)why;
	lent = conn;
	got = conn ? 0 : error;
	got_ns = clock_mono();
}

static void
until_got(void)
{
	mono_ns end = clock_mono() + 20000 * MS;

	while (got == 1 && clock_mono() < end) {
		io_turn(io, 10);
		upstreams_bury(&all);
	}
	cr_assert_neq(got, 1, "no end");
}

static struct sockaddr_in
at(const char *host, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	inet_pton(AF_INET, host, &a.sin_addr);
	return a;
}

/* Listens there; its port. */
static int
listens(const char *host, int *ret_fd, int backlog)
{
	struct sockaddr_in a = at(host, 0);
	socklen_t len = sizeof a;

	*ret_fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(bind(*ret_fd, (struct sockaddr *)&a, sizeof a), 0);
	cr_assert_eq(listen(*ret_fd, backlog), 0);
	getsockname(*ret_fd, (struct sockaddr *)&a, &len);
	return ntohs(a.sin_port);
}

/* An address that answers nothing at all: its queue is full, the kernel drops what comes. */
static int
silent(const char *host, int fd[3])
{
	int port = listens(host, &fd[0], 0);
	struct sockaddr_in a = at(host, port);

	for (unsigned i = 1; i < 3; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fd[i], (struct sockaddr *)&a, sizeof a);
	}
	return port;
}

static struct upstream *
row(uint16_t id, const char *set, const char *url)
{
	struct row_text text = {.member = "w"};

	snprintf(text.url, sizeof text.url, "%s", url);
	snprintf(text.set, sizeof text.set, "%s", set);
	rows.row[id].uid = id + 1u;
	rows.row[id].intent = INTENT_NONE;
	rows_text_write(&rows, id, &text);
	rows.row[id].row_gen++;
	rows.row[id].intent = INTENT_SERVE;
	return upstream_of_row(&all, id);
}

static struct upstream *
worker(const char *url)
{
	return row(0, "", url);
}

/* A fresh path, and who listens there. */
static int
listens_path(char ret_url[ROW_URL_MAX])
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "/tmp/test_upstream.%d", getpid());
	unlink(a.sun_path);
	cr_assert_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	cr_assert_eq(listen(fd, 8), 0);
	snprintf(ret_url, ROW_URL_MAX, "unix:%s", a.sun_path);
	return fd;
}

static void
address(struct upstream *to, const char *host, int port)
{
	struct upstream_addr *a = &to->addr[to->n_addrs++];
	struct sockaddr_in in = at(host, port);

	*a = (struct upstream_addr){.len = sizeof in};
	memcpy(&a->addr, &in, sizeof in);
}

static void
begin(enum io_backend backend)
{
	const char *why;

	log_open("test", 0, 0, 0, LEVEL_ERROR);
	cr_assert_eq(io_open(&io, backend, &why), 0);
	cr_assert_eq(rows_create(&rows, 4), 0);
	cr_assert_eq(process_create(&process, ROLE_INGRESS, 0, 1, 0, 32768), 0);
	cr_assert_eq(upstreams_open(&all, io, &rows, &process), 0);
	got = 1;
}

static void
end(void)
{
	upstreams_close(&all);
	io_close(&io);
	process_detach(&process);
	rows_detach(&rows);
}

static unsigned
open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

EACH_BACKEND(silent_address_costs_a_quarter_second_and_no_time_out)
{
	int dead[3], fd, dead_port, port;
	struct upstream_attempt a = {.to = NULL};
	struct upstream *to;
	mono_ns began;

	begin(backend);
	dead_port = silent("127.0.0.1", dead);
	port = listens("127.0.0.1", &fd, 8);
	to = worker("http://127.0.0.1:1");
	to->n_addrs = 0;
	address(to, "127.0.0.1", dead_port);
	address(to, "127.0.0.1", port);
	unsigned files = open_files();

	began = clock_mono();
	upstream_try(&a, to, began + 20000 * MS, &ops, on_got, &owner);
	cr_assert_eq(to->n_open, 1);
	until_got();
	cr_assert_geq(got, 0);
	cr_assert(got_ns - began >= 200 * MS && got_ns - began < 10000 * MS);
	cr_assert_eq(to->n_open, 1, "the caller's now");
	upstream_drop(lent);
	for (unsigned i = 0; i < 5; i++)
		io_turn(io, 10);
	cr_assert_eq(open_files(), files, "the losing connection is closed");
	end();
	for (unsigned i = 0; i < 3; i++)
		close(dead[i]);
	close(fd);
}

EACH_BACKEND(refusing_address_costs_nothing)
{
	struct upstream_attempt a = {.to = NULL};
	struct upstream *to;
	mono_ns began;
	int fd, port;

	begin(backend);
	port = listens("127.0.0.1", &fd, 8);
	to = worker("http://127.0.0.1:1");
	to->n_addrs = 0;
	address(to, "127.0.0.2", port);         /* nobody listens there */
	address(to, "127.0.0.3", port);
	address(to, "127.0.0.1", port);
	began = clock_mono();
	upstream_try(&a, to, began + 20000 * MS, &ops, on_got, &owner);
	until_got();
	cr_assert_geq(got, 0);
	cr_assert_lt(got_ns - began, 240 * MS, "without waiting for the pace");
	upstream_drop(lent);
	end();
	close(fd);
}

EACH_BACKEND(all_silent_is_a_time_out_at_the_deadline_and_all_refusing_a_refusal)
{
	struct upstream_attempt a = {.to = NULL};
	int dead[3], port;
	struct upstream *to;
	mono_ns began;

	begin(backend);
	port = silent("127.0.0.1", dead);
	to = worker("http://127.0.0.1:1");
	to->n_addrs = 0;
	for (unsigned i = 0; i < 4; i++)
		address(to, "127.0.0.1", port);
	began = clock_mono();
	upstream_try(&a, to, began + 300 * MS, &ops, on_got, &owner);
	until_got();
	cr_assert_eq(got, -ETIMEDOUT);
	cr_assert_geq(got_ns - began, 299 * MS);
	cr_assert_eq(to->n_open, 0);
	to->n_addrs = 0;
	address(to, "127.0.0.2", port);
	address(to, "127.0.0.3", port);
	got = 1;
	upstream_try(&a, to, clock_mono() + 20000 * MS, &ops, on_got, &owner);
	until_got();
	cr_assert_eq(got, -ECONNREFUSED);
	end();
	for (unsigned i = 0; i < 3; i++)
		close(dead[i]);
}

EACH_BACKEND(attempt_given_up_leaves_nothing)
{
	struct upstream_attempt a = {.to = NULL};
	int dead[3], port;
	struct upstream *to;

	begin(backend);
	port = silent("127.0.0.1", dead);
	to = worker("http://127.0.0.1:1");
	to->n_addrs = 0;
	address(to, "127.0.0.1", port);
	address(to, "127.0.0.1", port);
	unsigned files = open_files();

	upstream_try(&a, to, clock_mono() + 20000 * MS, &ops, on_got, &owner);
	for (mono_ns until = clock_mono() + 300 * MS; clock_mono() < until;)
		io_turn(io, 10);
	cr_assert_eq(a.n_trying, 2);
	upstream_try_cancel(&a, io);
	for (unsigned i = 0; i < 5; i++)
		io_turn(io, 10);
	cr_assert(got == 1 && to->n_open == 0);
	cr_assert_eq(open_files(), files);
	end();
	for (unsigned i = 0; i < 3; i++)
		close(dead[i]);
}

EACH_BACKEND(address_where_nobody_serves_any_more_is_forgotten_when_nothing_uses_it)
{
	struct upstream *to;
	mono_ns later;
	int fd, port;
	struct upstream_attempt a = {.to = NULL};
	char url[64];

	begin(backend);
	port = listens("127.0.0.1", &fd, 8);
	snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
	to = worker(url);
	upstream_try(&a, to, io_now(io) + 5000 * MS, &ops, on_got, &owner);
	until_got();
	rows.row[0].intent = INTENT_REMOVE;
	upstreams_rows_changed(&all);
	later = io_now(io) + UPSTREAM_FORGET_NS + MS;
	upstreams_tick(&all, later);
	cr_assert_eq(all.list, to, "an answer still comes from there");
	upstream_drop(lent);
	upstreams_bury(&all);
	upstreams_tick(&all, to->unwanted_ns + UPSTREAM_FORGET_NS - MS);
	cr_assert_eq(all.list, to, "it may come back");
	upstreams_tick(&all, later);
	cr_assert_null(all.list);
	cr_assert_null(all.row[0].to);
	cr_assert_not_null(worker(url), "back, and known again");
	upstreams_tick(&all, later + UPSTREAM_FORGET_NS);
	cr_assert_not_null(all.list);
	close(fd);
	end();
}

EACH_BACKEND(connection_to_an_address_the_name_lost_is_not_used_again)
{
	struct upstream_attempt a = {.to = NULL};
	int fd, port;
	struct upstream *to;
	char url[64];

	begin(backend);
	port = listens("127.0.0.9", &fd, 8);
	snprintf(url, sizeof url, "http://localhost:%d", port);
	to = worker(url);
	cr_assert(to && to->named);
	for (unsigned i = 0; to->n_addrs == 0 && i < 1000; i++) {      /* the first look-up */
		io_turn(io, 10);
		upstreams_tick(&all, clock_mono());
	}
	cr_assert_gt(to->n_addrs, 0);
	to->n_addrs = 0;
	address(to, "127.0.0.9", port);
	for (unsigned i = 0; i < 2; i++) {
		got = 1;
		upstream_try(&a, to, clock_mono() + 20000 * MS, &ops, on_got, &owner);
		until_got();
		cr_assert(lent);
		if (i == 0)
			upstream_give_back(lent, 0, clock_mono());
	}
	cr_assert_eq(to->n_idle, 1);
	to->resolved_ns = 1;            /* long ago */
	for (unsigned i = 0; to->n_idle > 0 && i < 1000; i++) {
		io_turn(io, 10);
		upstreams_tick(&all, clock_mono());
	}
	cr_assert_eq(to->n_idle, 0, "localhost is not 127.0.0.9");
	upstream_give_back(lent, 0, clock_mono());
	cr_assert_eq(to->n_idle, 0);
	cr_assert_eq(to->n_open, 0);
	end();
	close(fd);
}

EACH_BACKEND(name_that_is_none_fails_soon_and_is_not_asked_for_at_each_request)
{
	struct upstream_attempt a = {.to = NULL};
	struct upstream *to;

	begin(backend);
	to = worker("http://no-such-worker.invalid:80");
	upstream_try(&a, to, clock_mono() + 15000 * MS, &ops, on_got, &owner);
	until_got();
	cr_assert(got == -EHOSTUNREACH || got == -ETIMEDOUT);
	to->resolved_ns = clock_mono();
	for (unsigned i = 0; got == -EHOSTUNREACH && i < 10; i++) {
		got = 1;
		upstream_try(&a, to, clock_mono() + 15000 * MS, &ops, on_got, &owner);
		until_got();
		cr_assert_eq(got, -EHOSTUNREACH);
		cr_assert_null(to->lookup);
	}
	end();
}

EACH_BACKEND(provider_is_reached_over_its_socket_and_a_missing_one_is_a_refusal_at_once)
{
	struct upstream_attempt a = {.to = NULL};
	char url[ROW_URL_MAX];
	struct upstream *to;
	mono_ns began;
	int fd;

	begin(backend);
	fd = listens_path(url);
	to = row(0, "cloud", url);
	cr_assert_not_null(to);
	cr_assert(slice_eq_str(upstream_provider(to), "cloud"));
	cr_assert_eq(upstream_api_key(to).len, 0);
	cr_assert_str_eq(to->authority, "localhost");
	upstream_try(&a, to, clock_mono() + 20000 * MS, &ops, on_got, &owner);
	until_got();
	cr_assert_eq(got, 0);
	cr_assert_eq(to->n_open, 1);
	upstream_give_back(lent, 0, clock_mono());
	cr_assert_eq(to->n_idle, 1);
	cr_assert_eq(upstream_take(to, &ops, &owner, clock_mono()), lent, "kept and used again");
	upstream_drop(lent);
	unlink(url + strlen(ROW_URL_UNIX));
	close(fd);
	got = 1;
	began = clock_mono();
	upstream_try(&a, to, began + 20000 * MS, &ops, on_got, &owner);
	until_got();
	cr_assert_eq(got, -ENOENT);
	cr_assert_lt(got_ns - began, 5000 * MS, "not by the deadline");
	cr_assert_eq(to->n_open, 0);
	end();
}

Test(upstream, providers_behind_one_socket_have_pools_of_their_own_but_are_at_one_place)
{
	struct upstream *a, *b, *again, *elsewhere;

	begin(IO_EPOLL);
	a = row(0, "cloud", "unix:/run/p.sock");
	b = row(1, "other", "unix:/run/p.sock");
	again = row(2, "cloud", "unix:/run/p.sock");
	elsewhere = row(3, "http", "http://127.0.0.1:1");
	cr_assert_neq(a, b);
	cr_assert_eq(a, again);
	cr_assert(upstream_same_place(a, b));
	cr_assert_not(upstream_same_place(a, elsewhere));
	cr_assert_eq(upstream_provider(elsewhere).len, 0, "a worker is no provider");
	end();
}

Test(upstream, paths_that_are_none_are_refused)
{
	char url[ROW_URL_MAX];

	begin(IO_EPOLL);
	cr_assert_not_null(row(0, "p", "unix:p.sock"), "in the run directory");
	cr_assert_null(row(1, "p", "unix:"));
	memset(url, 'x', sizeof url);
	memcpy(url, "unix:/", 6);
	url[5 + 108] = '\0';            /* one byte more than a name may have */
	cr_assert_null(row(2, "p", url));
	url[5 + 107] = '\0';
	cr_assert_not_null(row(3, "p", url));
	end();
}
