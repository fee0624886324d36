/* tests/unit/test_tokensource.c -- /tokenize calls against a real (emulated) worker. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/policy/tokensource.h"

struct worker {
	pid_t pid;
	uint16_t port;
};

#define at(at_port) (&(struct fetch_peer){.host = "127.0.0.1", .port = (at_port)})

/* Started beside this very test binary; its ready line says where it listens. */
static struct worker
worker_start(void)
{
	struct worker w = {0};
	char self[512], line[512] = "";
	int out[2];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 32);

	cr_assert_gt(n, 0);
	self[n] = '\0';
	strcpy(strrchr(self, '/') + 1, "pointsman-emulator");
	cr_assert_eq(pipe(out), 0);
	w.pid = fork();
	if (w.pid == 0) {
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl(self, self, "--port", "0", "--profile", "zero", "--model", "m",
		      "--kv-endpoint", "tcp://127.0.0.1:*", (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	FILE *f = fdopen(out[0], "r");
	cr_assert_not_null(fgets(line, sizeof line, f), "%s says nothing", self);
	fclose(f);
	const char *at = strstr(line, "port=");
	cr_assert_not_null(at, "%s", line);
	w.port = (uint16_t)strtoul(at + 5, NULL, 10);
	return w;
}

static void
worker_stop(struct worker *w)
{
	kill(w->pid, SIGTERM);
	waitpid(w->pid, NULL, 0);
}

static const char *
collect(struct tokensource *t, struct token_key *ret_key)
{
	const char *why = "nothing came";

	for (int i = 0; i < 100; i++) {         /* the socket, not the clock, ends this */
		zmq_pollitem_t item = {.socket = zsock_resolve(tokensource_socket(t)),
				       .events = ZMQ_POLLIN};

		zmq_poll(&item, 1, 100);
		if (tokensource_collect(t, clock_mono(), ret_key, &why) > 0)
			return why;
	}
	cr_assert_fail("no call ended");
	return why;
}

static const char chat[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"how "
			   "many tokens is this, and why?\"}]}";

Test(tokensource, a_worker_says_the_ids_and_they_are_kept)
{
	struct tokensource *t;
	struct worker w = worker_start();
	struct token_key key = tokensource_key(chat, strlen(chat)), got;
	const uint32_t *ids;
	size_t n = 0;

	cr_assert_eq(tokensource_new(&t), 0);
	cr_assert_not(tokensource_find(t, key, &ids, &n));
	cr_assert_eq(
		tokensource_request(t, key, at(w.port), chat, strlen(chat), clock_mono()),
		0);
	cr_assert_eq(
		tokensource_request(t, key, at(w.port), chat, strlen(chat), clock_mono()),
		0, "joins the call under way");
	cr_assert_null(collect(t, &got));
	cr_assert(got.lo == key.lo && got.hi == key.hi);
	cr_assert(tokensource_find(t, key, &ids, &n));
	cr_assert_gt(n, 5);
	const char *why;
	cr_assert_eq(tokensource_collect(t, clock_mono(), &got, &why), 0, "one call, not two");

	/* the same ids for the prompt form of the same text are not promised; but it is
	 * understood */
	const char prompt[] = "{\"model\":\"m\",\"prompt\":\"abcdefgh\"}";
	struct token_key other = tokensource_key(prompt, strlen(prompt));
	cr_assert_eq(tokensource_request(t, other, at(w.port), prompt, strlen(prompt),
					 clock_mono()),
		     0);
	cr_assert_null(collect(t, &got));
	cr_assert(tokensource_find(t, other, &ids, &n));
	cr_assert_gt(n, 0);
	tokensource_free(&t);
	worker_stop(&w);
}

Test(tokensource, a_refusal_says_why_and_the_worker_is_asked_again)
{
	struct tokensource *t;
	struct worker w = worker_start();
	const char bad[] = "{\"model\":\"m\"}";
	struct token_key key = tokensource_key(bad, strlen(bad)), got;
	const uint32_t *ids;
	size_t n;

	tokensource_new(&t);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(tokensource_request(t, key, at(w.port), bad, strlen(bad),
						 clock_mono()),
			     0);
		cr_assert_str_eq(collect(t, &got), "worker answered with an error");
		cr_assert_not(tokensource_find(t, key, &ids, &n));
	}
	tokensource_free(&t);
	worker_stop(&w);
}

/* A port that is bound and does not listen: nobody else can have it. */
static int
port_of_nobody(bool listening, uint16_t *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	cr_assert_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	if (listening)
		cr_assert_eq(listen(fd, 8), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

Test(tokensource, a_worker_that_cannot_be_reached_rests_for_a_second)
{
	struct tokensource *t;
	uint16_t port;
	int fd = port_of_nobody(false, &port);
	struct token_key key = tokensource_key(chat, strlen(chat)), got;
	mono_ns now = clock_mono();

	tokensource_new(&t);
	cr_assert_eq(tokensource_request(t, key, at(port), chat, strlen(chat), now), 0);
	cr_assert_str_eq(collect(t, &got), "worker cannot be reached");
	now = clock_mono();
	cr_assert_eq(tokensource_request(t, key, at(port), chat, strlen(chat), now),
		     -EHOSTDOWN);
	cr_assert_eq(tokensource_request(t, key, at(port), chat, strlen(chat),
					 now + TOKENSOURCE_REST_NS),
		     0);
	cr_assert_str_eq(collect(t, &got), "worker cannot be reached");
	tokensource_free(&t);
	close(fd);
}

Test(tokensource, a_worker_that_is_silent_is_given_up_after_two_seconds)
{
	struct tokensource *t;
	uint16_t port;
	int fd = port_of_nobody(true, &port);
	struct token_key key = tokensource_key(chat, strlen(chat)), got;
	mono_ns before = clock_mono();

	tokensource_new(&t);
	cr_assert_eq(tokensource_request(t, key, at(port), chat, strlen(chat), before), 0);
	cr_assert_str_eq(collect(t, &got), "no answer in time");
	cr_assert_geq(clock_mono() - before, TOKENSOURCE_CALL_NS - 100000000ull);
	tokensource_free(&t);
	close(fd);
}

Test(tokensource, ends_cleanly_with_calls_under_way_and_bounds_them)
{
	struct tokensource *t;
	uint16_t port;
	int fd = port_of_nobody(true, &port), refused = 0;
	char text[64];

	tokensource_new(&t);
	for (int i = 0; i < (int)TOKENSOURCE_CALLS + 10; i++) {
		int len = snprintf(text, sizeof text, "{\"prompt\":\"%d\"}", i);

		if (tokensource_request(t, tokensource_key(text, (size_t)len), at(port),
					text, (size_t)len, clock_mono()) == -EBUSY)
			refused++;
	}
	cr_assert_eq(refused, 10);
	tokensource_free(&t);
	close(fd);
}
