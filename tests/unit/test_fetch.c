/* tests/unit/test_fetch.c -- HTTP beside the loop, against a socket that answers as told. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "actors/common/fetch.h"

#define SOON_NS 10000000000ull

struct server {
	int fd;
	uint16_t port;
};

static struct server
server_open(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct server s = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	socklen_t len = sizeof a;

	cr_assert_eq(bind(s.fd, (struct sockaddr *)&a, sizeof a), 0);
	cr_assert_eq(listen(s.fd, 8), 0);
	cr_assert_eq(getsockname(s.fd, (struct sockaddr *)&a, &len), 0);
	s.port = ntohs(a.sin_port);
	return s;
}

static struct fetch
to(const struct server *s, size_t answer_max)
{
	struct fetch f = {.deadline_ns = clock_mono() + SOON_NS, .answer_max = answer_max};

	snprintf(f.url, sizeof f.url, "http://127.0.0.1:%u/path", s->port);
	return f;
}

/* Takes one request up to `last`, says `answer` and closes. */
static void
serve(const struct server *s, const char *last, const char *answer, char *ret, size_t cap)
{
	int fd = accept(s->fd, NULL, NULL);
	size_t n = 0;

	cr_assert_geq(fd, 0);
	while (n < cap - 1) {
		ssize_t r = recv(fd, ret + n, cap - 1 - n, 0);

		cr_assert_gt(r, 0, "the request ends early: %.*s", (int)n, ret);
		n += (size_t)r;
		ret[n] = '\0';
		if (strstr(ret, last))
			break;
	}
	cr_assert_eq(send(fd, answer, strlen(answer), MSG_NOSIGNAL), (ssize_t)strlen(answer));
	close(fd);
}

static struct fetch *
collect(struct fetcher *f)
{
	zmq_pollitem_t item = {.socket = zsock_resolve(fetcher_socket(f)), .events = ZMQ_POLLIN};

	cr_assert_eq(zmq_poll(&item, 1, 20000), 1, "no call ended");
	return fetcher_collect(f);
}

static void
count_bytes(struct fetch *f)
{
	*(size_t *)f->owner = f->len;
}

Test(fetch, a_provider_is_asked_over_its_socket_by_name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct server s = {.fd = socket(AF_UNIX, SOCK_STREAM, 0)};
	struct fetch call = {.deadline_ns = clock_mono() + SOON_NS}, again = call;
	struct fetch_peer peer = {.socket = a.sun_path, .provider = "cloud",
				  .api_key = SLICE_LIT("secret")};
	struct fetcher *f;
	char said[1024];

	snprintf(a.sun_path, sizeof a.sun_path, "/tmp/test_fetch.%d", getpid());
	unlink(a.sun_path);
	cr_assert_eq(bind(s.fd, (struct sockaddr *)&a, sizeof a), 0);
	cr_assert_eq(listen(s.fd, 8), 0);
	cr_assert_eq(fetcher_new(&f, 1), 0);
	cr_assert_eq(fetch_to(&call, &peer, "/health"), 0);
	fetcher_send(f, &call);
	serve(&s, "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", said, sizeof said);
	cr_assert_eq(collect(f), &call);
	cr_assert_eq(call.result, FETCH_OK, "%s", call.why);
	cr_assert_eq(call.status, 200);
	cr_assert_not_null(strstr(said, "GET /health HTTP/1.1\r\nHost: localhost\r\n"), "%s", said);
	cr_assert_not_null(strstr(said, "\r\nx-pointsman-provider: cloud\r\n"), "%s", said);
	cr_assert_null(strstr(said, "secret"), "keys are for workers");
	close(s.fd);
	unlink(a.sun_path);
	cr_assert_eq(fetch_to(&again, &peer, "/health"), 0);
	fetcher_send(f, &again);
	cr_assert_eq(collect(f), &again);
	cr_assert_eq(again.result, FETCH_BROKEN);
	cr_assert_eq(again.cause, FETCH_REFUSED, "%s", again.why);
	fetch_clear(&call);
	fetch_clear(&again);
	fetcher_free(&f, NULL);
}

Test(fetch, a_body_goes_out_as_json_and_the_answer_comes_back_whole)
{
	struct server s = server_open();
	struct fetch call = to(&s, 100);
	struct fetcher *f;
	char request[4096];
	size_t seen = 0;

	cr_assert_eq(fetcher_new(&f, 0), 0);
	call.body = "{\"n\":1}";
	call.body_len = 7;
	call.ended = count_bytes;
	call.owner = &seen;
	fetcher_send(f, &call);
	cr_assert_eq(fetcher_under_way(f), &call);
	serve(&s, "{\"n\":1}", "HTTP/1.1 201 Made\r\nContent-Length: 5\r\n\r\nhello", request,
	      sizeof request);
	cr_assert_eq(collect(f), &call);
	cr_assert_null(fetcher_under_way(f));
	cr_assert_null(fetcher_collect(f));
	cr_assert(strncmp(request, "POST /path HTTP/1.1\r\n", 21) == 0, "%s", request);
	cr_assert_not_null(strstr(request, "Content-Type: application/json\r\n"));
	cr_assert_eq(call.result, FETCH_OK);
	cr_assert_eq(call.status, 201);
	cr_assert_eq(call.len, 5);
	cr_assert_eq(memcmp(call.answer, "hello", 5), 0);
	cr_assert_eq(seen, 5, "`ended` saw the answer before it came back");
	fetch_clear(&call);
	fetcher_free(&f, NULL);
	close(s.fd);
}

Test(fetch, an_answer_over_its_bound_is_cut_and_one_nobody_wants_is_not)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
	struct server s = server_open();
	struct fetch small = to(&s, 4), unwanted = to(&s, 0);
	struct fetcher *f;
	char request[4096];

	cr_assert_eq(fetcher_new(&f, 0), 0);
	fetcher_send(f, &small);
	serve(&s, "\r\n\r\n", answer, request, sizeof request);
	cr_assert_eq(collect(f), &small);
	cr_assert_eq(small.result, FETCH_LARGE);
	cr_assert(strncmp(request, "GET /path HTTP/1.1\r\n", 20) == 0, "%s", request);
	fetcher_send(f, &unwanted);
	serve(&s, "\r\n\r\n", answer, request, sizeof request);
	cr_assert_eq(collect(f), &unwanted);
	cr_assert_eq(unwanted.result, FETCH_OK);
	cr_assert_eq(unwanted.status, 200);
	cr_assert_null(unwanted.answer);
	fetch_clear(&small);
	fetch_clear(&unwanted);
	fetcher_free(&f, NULL);
	close(s.fd);
}

Test(fetch, says_how_far_a_call_came_that_did_not_end_well)
{
	struct server s = server_open();
	struct fetch cut = to(&s, 100), silent = to(&s, 100), late = to(&s, 100),
		     refused = to(&s, 100);
	struct fetcher *f;
	char request[4096];

	cr_assert_eq(fetcher_new(&f, 0), 0);
	fetcher_send(f, &cut);
	serve(&s, "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", request,
	      sizeof request);
	cr_assert_eq(collect(f), &cut);
	cr_assert_eq(cut.result, FETCH_BROKEN);
	cr_assert_eq(cut.status, 200);

	silent.deadline_ns = clock_mono() + 50000000u;
	fetcher_send(f, &silent);               /* the backlog accepts; nobody answers */
	cr_assert_eq(collect(f), &silent);
	cr_assert_eq(silent.result, FETCH_LATE);
	cr_assert(silent.connected);
	cr_assert_eq(silent.status, 0);

	late.deadline_ns = clock_mono();
	fetcher_send(f, &late);
	cr_assert_eq(collect(f), &late);
	cr_assert_eq(late.result, FETCH_NO_TIME);

	close(s.fd);
	fetcher_send(f, &refused);
	cr_assert_eq(collect(f), &refused);
	cr_assert_eq(refused.result, FETCH_BROKEN);
	cr_assert_eq(refused.status, 0);
	fetch_clear(&cut);
	fetch_clear(&silent);
	fetch_clear(&late);
	fetch_clear(&refused);
	fetcher_free(&f, NULL);
}

static void
drop(struct fetch *f)
{
	++*(unsigned *)f->owner;
	fetch_clear(f);
}

Test(fetch, what_is_under_way_at_the_end_is_given_back_once)
{
	struct server s = server_open();
	struct fetch call[5];
	struct fetcher *f;
	unsigned dropped = 0;

	cr_assert_eq(fetcher_new(&f, 2), 0);
	for (unsigned i = 0; i < 5; i++) {
		call[i] = to(&s, 100);
		call[i].owner = &dropped;
		fetcher_send(f, &call[i]);
	}
	close(accept(s.fd, NULL, NULL));        /* one is begun for certain */
	fetcher_free(&f, drop);
	cr_assert_eq(dropped, 5);
	cr_assert_null(f);
	close(s.fd);
}
