/* tests/unit/test_classify.c -- a classifier's answers, and a real call over HTTP. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/policy/classify.h"

static int
reads(const char *answer, double threshold)
{
	bool has = false;

	if (!classify_read(slice_str(answer), "pii", threshold, &has))
		return -1;
	return has;
}

Test(classify, answers_of_vllm_and_of_others_are_understood)
{
	cr_expect_eq(reads("{\"data\":[{\"index\":0,\"label\":\"pii\",\"probs\":[0.1,0.9]}]}", .5),
		1);
	cr_expect_eq(reads("{\"data\":[{\"index\":0,\"label\":\"ok\",\"probs\":[0.9,0.1]}]}", .5),
		0);
	cr_expect_eq(reads("{\"data\":[{\"label\":\"ok\"},{\"label\":\"pii\",\"probs\":[1]}]}", .5),
		1);
	cr_expect_eq(reads("{\"data\":[{\"label\":\"pii\",\"probs\":[0.6,0.4]}]}", .7), 0);
	cr_expect_eq(reads("[[{\"score\":0.7,\"label\":\"pii\"},{\"score\":0.3,\"label\":\"ok\"}]]",
		.5), 1);
	cr_expect_eq(reads("[[{\"score\":0.2,\"label\":\"pii\"},{\"score\":0.8,\"label\":\"ok\"}]]",
		.5), 0);
	cr_expect_eq(reads("{\"label\":\"pii\"}", .5), 1);
}

Test(classify, what_has_no_label_says_nothing)
{
	cr_expect_eq(reads("{\"data\":[]}", .5), -1);
	cr_expect_eq(reads("{\"error\":\"busy\"}", .5), -1);
	cr_expect_eq(reads("{\"label\":\"pii\"", .5), -1);
	cr_expect_eq(reads("", .5), -1);
	cr_expect_eq(reads("{\"label\":7}", .5), -1);
}

Test(classify, a_bodys_texts_are_one_array)
{
	struct classify *c;
	char large[CLASSIFY_TEXT_BYTES + 100] = "{\"prompt\":\"";
	size_t n = strlen(large);
	struct slice texts;

	cr_assert_eq(classify_new(&c), 0);
	texts = classify_texts(c, SLICE_LIT("{\"model\":\"m\",\"prompt\":[\"a\\n\",\"b\"],"
					    "\"metadata\":{\"k\":\"v\"}}"));
	cr_assert(slice_eq_str(texts, "[\"a\\n\",\"b\",\"{\\\"k\\\":\\\"v\\\"}\"]"));
	cr_assert_null(classify_texts(c, SLICE_LIT("no json")).p);
	memset(large + n, 'x', CLASSIFY_TEXT_BYTES);
	strcpy(large + n + CLASSIFY_TEXT_BYTES, "\"}");
	cr_assert_null(classify_texts(c, slice_str(large)).p, "too long");
	classify_free(&c);
	cr_assert_null(c);
}

/* ---- over HTTP ---- */

struct server {
	pid_t pid;
	uint16_t port;
};

/* Answers each connection's one request with that, or, NULL, not at all. */
static void
serve(int fd, const char *answer)
{
	char request[4096], reply[1024];

	for (;;) {
		int c = accept(fd, NULL, NULL);
		ssize_t n = 0, k;

		while (c >= 0 && (k = read(c, request + n, sizeof request - 1 - (size_t)n)) > 0) {
			n += k;
			request[n] = '\0';
			if (strstr(request, "\"]}"))
				break;
		}
		if (!answer)
			continue;               /* the connection stays, and nothing comes */
		bool good = strncmp(request, "POST /judge HTTP/1.1", 20) == 0 &&
			    strstr(request, "\r\n\r\n{\"model\":\"m\",\"input\":[\"hello\"]}");

		snprintf(reply, sizeof reply,
			 "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
			 good ? "200 OK" : "400 Bad", strlen(answer), answer);
		if (write(c, reply, strlen(reply)) < 0)
			_exit(1);
		close(c);
	}
}

static struct server
server_start(const char *answer)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct server s;

	cr_assert_eq(bind(fd, (struct sockaddr *)&a, len), 0);
	cr_assert_eq(listen(fd, 8), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	s.port = ntohs(a.sin_port);
	s.pid = fork();
	if (s.pid == 0)
		serve(fd, answer);
	close(fd);
	return s;
}

static void
server_stop(struct server *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
}

static const struct slice hello = {"[\"hello\"]", 9};

static int
ask(struct classify *c, const struct manifest_classifier *about, uint16_t port,
	struct token_key key)
{
	const struct fetch_peer peer = {.host = "127.0.0.1", .port = port};

	return classify_ask(c, about, &peer, "/judge", "m", hello, key, clock_mono());
}

static const char *
collect(struct classify *c)
{
	const char *why = "nothing came";
	struct token_key key;

	for (int i = 0; i < 100; i++) {         /* the socket, not the clock, ends this */
		zmq_pollitem_t item = {.socket = zsock_resolve(classify_socket(c)),
				       .events = ZMQ_POLLIN};

		zmq_poll(&item, 1, 100);
		if (classify_collect(c, clock_mono(), &key, &why))
			return why;
	}
	cr_assert_fail("no call ended");
	return why;
}

static struct manifest_classifier
classifier(void)
{
	return (struct manifest_classifier){
		.url = "http://h/judge", .pool = MANIFEST_NONE, .label = "pii", .threshold = 0.5,
		.deadline_ns = 5000000000ull,
	};
}

Test(classify, its_word_is_asked_once_and_kept)
{
	struct server s = server_start("{\"data\":[{\"label\":\"pii\",\"probs\":[0.9]}]}");
	struct manifest_classifier about = classifier();
	struct classify *c;
	struct token_key key;

	cr_assert_eq(classify_new(&c), 0);
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &key), CLASSIFY_WAIT);
	cr_assert_eq(ask(c, &about, s.port, key), 0);
	cr_assert(classify_pending(c, key));
	cr_assert_null(collect(c));
	cr_assert_not(classify_pending(c, key));
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &key), CLASSIFY_YES);
	about.threshold = 0.95;
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &key), CLASSIFY_WAIT,
		     "another question");
	classify_free(&c);
	server_stop(&s);
}

Test(classify, one_that_does_not_answer_in_time_is_unknown_and_asked_again_later)
{
	struct server s = server_start(NULL);
	struct manifest_classifier about = classifier();
	struct classify *c;
	struct token_key key;

	about.deadline_ns = 30000000;
	cr_assert_eq(classify_new(&c), 0);
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &key), CLASSIFY_WAIT);
	cr_assert_eq(ask(c, &about, s.port, key), 0);
	cr_assert_str_eq(collect(c), "no answer in time");
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono() + CLASSIFY_REST_NS, &key),
		     CLASSIFY_WAIT);
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &key), CLASSIFY_UNKNOWN);
	key.lo++;
	cr_assert_eq(ask(c, &about, s.port, key), 0, "another text may be easier");
	classify_free(&c);
	server_stop(&s);
}

Test(classify, one_that_is_not_there_rests_and_one_that_errs_or_babbles_is_unknown)
{
	struct server s = server_start("{\"data\":\"?\"}");
	struct manifest_classifier about = classifier();
	struct classify *c;
	struct token_key key, other;

	cr_assert_eq(classify_new(&c), 0);
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &key), CLASSIFY_WAIT);
	cr_assert_eq(ask(c, &about, s.port, key), 0);
	cr_assert_str_eq(collect(c), "its answer has no label");
	cr_assert_eq(classify_find(c, &about, "m", hello, clock_mono(), &other), CLASSIFY_UNKNOWN);
	server_stop(&s);
	key.lo++;
	cr_assert_eq(ask(c, &about, s.port, key), 0);
	cr_assert_str_eq(collect(c), "it cannot be reached");
	key.lo++;
	cr_assert_eq(ask(c, &about, s.port, key), -EHOSTDOWN);
	classify_free(&c);
}
