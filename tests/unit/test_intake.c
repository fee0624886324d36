/* tests/unit/test_intake.c -- an engine that sends parts without a last one, as a raw TCP peer. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/kvevents/intake.h"
#include "actors/kvevents/subscriber.h"
#include "tests/unit/apply_world.h"

#define BOUND (32u << 20)
#define ENOUGH (16ull * BOUND) /* a peer that was never cut: the test fails */

struct mad {
	int listener;
	char endpoint[64];
	const unsigned char *bytes; /* sent again and again */
	size_t n;
	uint64_t most;
	atomic_bool enough; /* ends it without a fault */
	uint64_t sent;
	atomic_bool was_cut;
};

/* ZMTP 3.0, NULL: a greeting, READY as a PUB, and then its bytes. */
static void *
goes_mad(void *arg)
{
	static const unsigned char ready[] = "\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";
	unsigned char greeting[64] = {[0] = 0xff, [9] = 0x7f, [10] = 3}, heard[64];
	struct mad *m = arg;
	int fd = accept(m->listener, NULL, NULL);
	ssize_t n;

	memcpy(greeting + 12, "NULL", 4);
	if (send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting ||
	    recv(fd, heard, sizeof heard, MSG_WAITALL) != sizeof heard ||
	    send(fd, ready, sizeof ready - 1, MSG_NOSIGNAL) != sizeof ready - 1) {
		close(fd);
		return NULL;
	}
	while (m->sent < m->most && !m->enough && !m->was_cut) {
		n = send(fd, m->bytes, m->n, MSG_NOSIGNAL);
		m->was_cut = n != (ssize_t)m->n;
		m->sent += m->was_cut ? 0 : (uint64_t)n;
	}
	close(fd);
	return NULL;
}

static void
listen_at(struct mad *m)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;

	m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(m->listener, (const struct sockaddr *)&at, sizeof at), 0);
	cr_assert_eq(listen(m->listener, 1), 0);
	getsockname(m->listener, (struct sockaddr *)&at, &len);
	snprintf(m->endpoint, sizeof m->endpoint, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
}

Test(intake, a_message_without_an_end_is_cut_before_it_fills_the_memory)
{
	struct subscriber_config config = {.row = 2};
	struct subscriber *s;
	struct intake *intake;
	static const unsigned char part[9 + 65536] = {[0] = 0x03, [6] = 1}; /* more, long */
	struct mad mad = {.bytes = part, .n = sizeof part, .most = ENOUGH};
	struct world w;
	pthread_t peer;
	bool was_cut = false;
	mono_ns deadline = clock_mono() + 20000000000ull;

	begin(&w, 60);
	listen_at(&mad);
	cr_assert_eq(intake_new(&intake, &w.process, BOUND, 256), 0);
	cr_assert_eq(pthread_create(&peer, NULL, goes_mad, &mad), 0);
	config.apply = w.apply;
	config.endpoint = mad.endpoint;
	cr_assert_eq(subscriber_new(&s, &config), 0);
	while (!was_cut && clock_mono() < deadline) {
		sched_yield();
		was_cut = intake_look(intake, 0, clock_mono());
	}
	close(mad.listener);
	pthread_join(peer, NULL);
	cr_assert(was_cut);
	cr_assert_lt(mad.sent, ENOUGH, "its connection ended");
	cr_assert_eq(count_get(&w.process, COUNTER_streams_cut), 1);
	cr_assert_eq(subscriber_receive(s), 0, "and it never said anything");
	subscriber_free(&s);
	intake_free(&intake);
	end(&w);
}

/* Empty parts cost most: two bytes there, and 64 here. */
Test(intake, whoever_is_read_however_fast_is_not_blamed_for_small_parts_without_an_end)
{
	static unsigned char parts[1024], flood[64 * (2 + 10 + 9 + 4096)];
	struct mad mad = {.bytes = parts, .n = sizeof parts, .most = BOUND};
	struct mad fast = {.bytes = flood, .n = sizeof flood, .most = UINT64_MAX};
	struct subscriber *of_mad, *of_fast;
	struct intake *intake;
	pthread_t mad_peer, fast_peer;
	struct world w;
	uint64_t cuts = 0;
	bool fast_was_cut;
	mono_ns deadline = clock_mono() + 20000000000ull;

	for (size_t i = 0; i < sizeof parts; i += 2)
		parts[i] = 0x01;        /* more, short, empty */
	for (size_t i = 0; i < sizeof flood; i += 2 + 10 + 9 + 4096) {
		flood[i] = flood[i + 2] = 0x01;
		flood[i + 3] = 8;
		flood[i + 12] = 0x02;   /* the last, long */
		flood[i + 19] = 0x10;
	}
	begin(&w, 60);
	listen_at(&mad);
	listen_at(&fast);
	cr_assert_eq(intake_new(&intake, &w.process, BOUND, 256), 0);
	cr_assert_eq(pthread_create(&mad_peer, NULL, goes_mad, &mad), 0);
	cr_assert_eq(pthread_create(&fast_peer, NULL, goes_mad, &fast), 0);
	cr_assert_eq(subscriber_new(&of_mad, &(struct subscriber_config){
		.apply = w.apply, .intake = intake, .row = 2, .endpoint = mad.endpoint}), 0);
	cr_assert_eq(subscriber_new(&of_fast, &(struct subscriber_config){
		.apply = w.apply, .intake = intake, .row = 3, .endpoint = fast.endpoint}), 0);
	while (cuts == 0 && clock_mono() < deadline) {
		while (subscriber_receive(of_fast) > 0)
			;
		cuts += intake_look(intake, 0, clock_mono());
	}
	fast_was_cut = fast.was_cut;
	fast.enough = true;
	close(mad.listener);
	pthread_join(mad_peer, NULL);
	while (subscriber_receive(of_fast) > 0)
		;
	subscriber_free(&of_fast);
	pthread_join(fast_peer, NULL);
	cr_assert_eq(cuts, 1);
	cr_assert_not(fast_was_cut);
	cr_assert(mad.was_cut, "its %llu bytes are mostly in the kernel's buffers",
		  (unsigned long long)mad.sent);
	close(fast.listener);
	subscriber_free(&of_mad);
	intake_free(&intake);
	end(&w);
}

Test(intake, a_queue_that_nobody_reads_is_told_full_once_where_cutting_its_connection_does_not_help)
{
	static const unsigned char whole[9 + 65536] = {[0] = 0x02, [6] = 1}; /* the last, long */
	struct mad mad = {.bytes = whole, .n = sizeof whole, .most = ENOUGH};
	struct subscriber *s;
	struct intake *intake;
	pthread_t peer;
	struct world w;
	bool was_cut = false, full = false;
	mono_ns deadline = clock_mono() + 20000000000ull;

	begin(&w, 60);
	listen_at(&mad);
	cr_assert_eq(intake_new(&intake, &w.process, BOUND, 256), 0);
	cr_assert_eq(pthread_create(&peer, NULL, goes_mad, &mad), 0);
	cr_assert_eq(subscriber_new(&s, &(struct subscriber_config){
		.apply = w.apply, .intake = intake, .row = 2, .endpoint = mad.endpoint}), 0);
	while (!was_cut && clock_mono() < deadline) {
		sched_yield();
		was_cut = intake_look(intake, 0, clock_mono());
	}
	close(mad.listener);
	pthread_join(peer, NULL);
	cr_assert(was_cut);
	while (!full && clock_mono() < deadline) {
		intake_look(intake, 0, clock_mono());
		full = intake_full(intake);
	}
	cr_assert(full);
	cr_assert_not(intake_full(intake), "once");
	subscriber_free(&s);
	intake_free(&intake);
	end(&w);
}

Test(intake, whoever_stays_within_the_bound_is_left_alone)
{
	struct intake *intake;
	struct world w;

	begin(&w, 60);
	cr_assert_eq(intake_new(&intake, &w.process, BOUND, 256), 0);
	cr_assert_not(intake_look(intake, 0, clock_mono()));
	cr_assert_eq(count_get(&w.process, COUNTER_streams_cut), 0);
	intake_free(&intake);
	end(&w);
}
