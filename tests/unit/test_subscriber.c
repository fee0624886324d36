/* tests/unit/test_subscriber.c -- a real publisher over loopback; waits for events, never for time.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/kvevents/door.h"
#include "actors/kvevents/subscriber.h"
#include "tests/unit/apply_world.h"

#define WAIT_MS 10000

struct wire {
	struct world world;
	void *zmq, *pub;
	char endpoint[64];
	struct subscriber *subscriber;
};

static int
open_at(struct subscriber **ret, struct apply *apply, uint16_t row, const char *endpoint,
	bool to_wait)
{
	struct subscriber_config config = {
		.apply = apply, .row = row, .endpoint = endpoint, .to_wait = to_wait};

	return subscriber_new(ret, &config);
}

/* XPUB: the subscription itself arrives as a message, so nothing is sent into the void. */
static void
connect_both(struct wire *w)
{
	size_t len = sizeof w->endpoint;
	int manual = 1, none = 0;
	char subscribed[8];

	begin(&w->world, 60);
	w->zmq = zmq_ctx_new();
	w->pub = zmq_socket(w->zmq, ZMQ_XPUB);
	zmq_setsockopt(w->pub, ZMQ_XPUB_NODROP, &manual, sizeof manual);
	zmq_setsockopt(w->pub, ZMQ_SNDHWM, &none, sizeof none);
	cr_assert_eq(zmq_bind(w->pub, "tcp://127.0.0.1:*"), 0);
	cr_assert_eq(zmq_getsockopt(w->pub, ZMQ_LAST_ENDPOINT, w->endpoint, &len), 0);
	cr_assert_eq(open_at(&w->subscriber, w->world.apply, 2, w->endpoint, true), 0);
	cr_assert_str_eq(subscriber_endpoint(w->subscriber), w->endpoint);
	cr_assert_eq(zmq_recv(w->pub, subscribed, sizeof subscribed, 0), 1);
}

static void
part(struct wire *w)
{
	int none = 0;

	subscriber_free(&w->subscriber);
	zmq_setsockopt(w->pub, ZMQ_LINGER, &none, sizeof none);
	zmq_close(w->pub);
	zmq_ctx_term(w->zmq);
	end(&w->world);
}

static void
publish(struct wire *w, unsigned frames, uint64_t seq)
{
	static const unsigned char payload[] = {0x93, 0x01, 0x90, 0x00}; /* [1, [], 0] */
	unsigned char number[8];

	for (unsigned i = 0; i < 8; i++)
		number[i] = (unsigned char)(seq >> (56 - 8 * i));
	for (unsigned i = 0; i < frames; i++) {
		int more = i + 1 < frames ? ZMQ_SNDMORE : 0;

		if (i == 0)
			zmq_send(w->pub, "topic", 5, more);
		else if (i == 1)
			zmq_send(w->pub, number, sizeof number, more);
		else
			zmq_send(w->pub, payload, sizeof payload, more);
	}
}

static void
readable(struct wire *w)
{
	zmq_pollitem_t item = {.socket = zsock_resolve(subscriber_socket(w->subscriber)),
			       .events = ZMQ_POLLIN};

	cr_assert_eq(zmq_poll(&item, 1, WAIT_MS), 1);
}

static void
receive(struct wire *w, unsigned messages)
{
	while (messages > 0) {
		readable(w);
		messages -= subscriber_receive(w->subscriber);
	}
}

Test(subscriber, three_frames_are_a_batch_and_any_topic_will_do)
{
	struct wire w;
	struct row *row;

	connect_both(&w);
	row = &w.world.rows.row[2];
	publish(&w, 3, 0);
	publish(&w, 3, 1);
	receive(&w, 2);
	cr_assert_eq(atomic_load(&row->received), 2);
	cr_assert_eq(atomic_load(&row->seen_seq), 2);
	cr_assert_eq(atomic_load(&row->failed), 0);
	cr_assert_eq(subscriber_receive(w.subscriber), 0, "nothing is there, and it does not wait");
	part(&w);
}

Test(subscriber, other_frame_counts_are_counted_and_the_stream_goes_on)
{
	struct wire w;
	struct row *row;

	connect_both(&w);
	row = &w.world.rows.row[2];
	publish(&w, 3, 0);
	publish(&w, 1, 0);
	publish(&w, 2, 0);
	publish(&w, 5, 0);
	publish(&w, 3, 1);
	receive(&w, 5);
	cr_assert_eq(atomic_load(&row->failed), 3);
	cr_assert_eq(atomic_load(&row->gaps), 0);
	cr_assert_eq(atomic_load(&row->seen_seq), 2);
	part(&w);
}

Test(subscriber, a_short_sequence_frame_is_refused)
{
	struct wire w;

	connect_both(&w);
	zmq_send(w.pub, "", 0, ZMQ_SNDMORE);
	zmq_send(w.pub, "\x00\x01", 2, ZMQ_SNDMORE);
	zmq_send(w.pub, "\x93\x01\x90\x00", 4, 0);
	receive(&w, 1);
	cr_assert_eq(atomic_load(&w.world.rows.row[2].failed), 1);
	part(&w);
}

Test(subscriber, one_turn_is_bounded_and_nothing_is_lost)
{
	struct wire w;
	unsigned got = 0;

	connect_both(&w);
	for (uint64_t i = 0; i < 5000; i++)
		publish(&w, 3, i);
	while (got < 5000) {
		unsigned n;

		readable(&w);
		n = subscriber_receive(w.subscriber);
		cr_assert_leq(n, SUBSCRIBER_BATCH);
		got += n;
	}
	cr_assert_eq(atomic_load(&w.world.rows.row[2].gaps), 0);
	cr_assert_eq(atomic_load(&w.world.rows.row[2].seen_seq), 5000);
	part(&w);
}

Test(subscriber, waiting_ends_when_the_engine_has_taken_us_in_or_at_the_deadline)
{
	struct subscriber *absent;
	struct wire w;
	mono_ns now;

	connect_both(&w);
	cr_assert(subscriber_wait(w.subscriber, clock_mono() + WAIT_MS * 1000000ull));
	now = clock_mono();
	cr_assert_eq(open_at(&absent, w.world.apply, 3, "tcp://127.0.0.1:1", true), 0);
	cr_assert_not(subscriber_wait(absent, now + 20000000));
	cr_assert_geq(clock_mono(), now + 20000000);
	subscriber_free(&absent);
	part(&w);
}

static unsigned
eventfds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	cr_assert(dir);
	for (struct dirent *e; (e = readdir(dir));) {
		char to[64];
		ssize_t len = readlinkat(dirfd(dir), e->d_name, to, sizeof to - 1);

		to[len > 0 ? len : 0] = '\0';
		n += strcmp(to, "anon_inode:[eventfd]") == 0;
	}
	closedir(dir);
	return n;
}

Test(subscriber, one_that_nobody_waits_for_holds_one_descriptor_of_its_own)
{
	struct subscriber *first, *waited, *not_waited;
	unsigned before, with_waited, with_both;
	struct world w;

	begin(&w, 60);
	/* The first of a process makes the library's own. */
	cr_assert_eq(open_at(&first, w.apply, 1, "tcp://127.0.0.1:1", false), 0);
	before = eventfds();
	cr_assert_eq(open_at(&waited, w.apply, 2, "tcp://127.0.0.1:1", true), 0);
	with_waited = eventfds();
	cr_assert_eq(open_at(&not_waited, w.apply, 3, "tcp://127.0.0.1:1", false), 0);
	with_both = eventfds();
	cr_assert_gt(with_waited - before, 1);
	cr_assert_eq(with_both - with_waited, 1);
	subscriber_free(&not_waited);
	subscriber_free(&waited);
	subscriber_free(&first);
	end(&w);
}

static void
publish_topic(struct wire *w, const char *topic, uint64_t seq)
{
	unsigned char number[8] = {[7] = (unsigned char)seq};

	zmq_send(w->pub, topic, strlen(topic), ZMQ_SNDMORE);
	zmq_send(w->pub, number, sizeof number, ZMQ_SNDMORE);
	zmq_send(w->pub, "\x93\x01\x90\x00", 4, 0);
}

static void
connect_with_topic(struct wire *w, const char *topic, const char *host)
{
	struct subscriber_config config = {
		.apply = w->world.apply, .row = 1, .endpoint = w->endpoint, .topic = topic,
		.host = host};
	char subscribed[64];

	cr_assert_eq(subscriber_new(&w->subscriber, &config), 0);
	while (zmq_recv(w->pub, subscribed, sizeof subscribed, 0) != 1 + (int)strlen(topic))
		; /* the other one's goodbye */
}

Test(subscriber, ten_thousand_topics_of_others_are_counted_and_change_nothing)
{
	struct wire w;
	struct row *row;

	connect_both(&w);
	subscriber_free(&w.subscriber);
	row = &w.world.rows.row[1];
	connect_with_topic(&w, "kv@10.0.0.1", "10.0.0.1");
	publish_topic(&w, "kv@10.0.0.1@m", 0);
	for (unsigned i = 0; i < 10000; i++) {
		char topic[64];

		snprintf(topic, sizeof topic, "kv@10.0.0.1%u@m", i);
		publish_topic(&w, topic, 7);
	}
	publish_topic(&w, "kv@10.0.0.1:8000@org/m@v2", 1);
	receive(&w, 10002);
	cr_assert_eq(atomic_load(&row->seen_seq), 2);
	cr_assert_eq(atomic_load(&row->gaps), 0);
	cr_assert_eq(atomic_load(&row->skipped), 10000);
	cr_assert_eq(row_trouble_kind(atomic_load(&row->trouble)), TROUBLE_TOPIC);
	cr_assert_eq(count_get(&w.world.process, COUNTER_topics_refused), 10000);
	part(&w);
}

/* ---- publishers that connect ---- */

struct door {
	struct world world;
	zactor_t *door;
	struct subscriber *subscriber;
	void *zmq, *pub, *monitor;
};

/* A port that was free a moment ago. */
static void
open_door(struct door *d, const char *host)
{
	struct subscriber_config config = {.row = 2, .host = host};
	char endpoint[64], bound[80];
	size_t len = sizeof endpoint;
	void *zmq = zmq_ctx_new(), *probe = zmq_socket(zmq, ZMQ_PUB);

	begin(&d->world, 60);
	cr_assert_eq(zmq_bind(probe, "tcp://127.0.0.1:*"), 0);
	zmq_getsockopt(probe, ZMQ_LAST_ENDPOINT, endpoint, &len);
	zmq_close(probe);
	zmq_ctx_term(zmq);
	d->door = door_open(&d->world.process);
	cr_assert(d->door);
	snprintf(bound, sizeof bound, "bind:%s", endpoint);
	config.apply = d->world.apply;
	config.endpoint = bound;
	cr_assert_eq(subscriber_new(&d->subscriber, &config), 0);
	d->zmq = zmq_ctx_new();
	d->pub = zmq_socket(d->zmq, ZMQ_XPUB);
	cr_assert_eq(zmq_socket_monitor(d->pub, "inproc://m",
					ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
						ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
						ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
						ZMQ_EVENT_DISCONNECTED),
		     0);
	d->monitor = zmq_socket(d->zmq, ZMQ_PAIR);
	cr_assert_eq(zmq_connect(d->monitor, "inproc://m"), 0);
	cr_assert_eq(zmq_connect(d->pub, endpoint), 0);
}

static void
close_door(struct door *d)
{
	int none = 0;

	zmq_setsockopt(d->pub, ZMQ_LINGER, &none, sizeof none);
	zmq_close(d->monitor);
	zmq_close(d->pub);
	zmq_ctx_term(d->zmq);
	subscriber_free(&d->subscriber);
	zactor_destroy(&d->door);
	end(&d->world);
}

static void
member_connects(const char *host)
{
	mono_ns late = clock_mono() + WAIT_MS * 1000000ull;
	struct door d;
	char subscribed[8];

	open_door(&d, host);
	/* What we bound says whom it hears when its owner looks at it, as the loop does. */
	while (zmq_recv(d.pub, subscribed, sizeof subscribed, ZMQ_DONTWAIT) != 1) {
		zmq_pollitem_t item[] = {
			{.socket = zsock_resolve(subscriber_socket(d.subscriber)),
			 .events = ZMQ_POLLIN},
			{.socket = d.pub, .events = ZMQ_POLLIN},
		};

		cr_assert_geq(zmq_poll(item, 2, 100), 0);
		cr_assert_lt(clock_mono(), late, "it was not let in");
	}
	zmq_send(d.pub, "", 0, ZMQ_SNDMORE);
	zmq_send(d.pub, "\0\0\0\0\0\0\0\0", 8, ZMQ_SNDMORE);
	zmq_send(d.pub, "\x93\x01\x90\x00", 4, 0);
	for (unsigned n = 0; n == 0;) {
		zmq_pollitem_t item = {.socket = zsock_resolve(subscriber_socket(d.subscriber)),
				       .events = ZMQ_POLLIN};

		cr_assert_eq(zmq_poll(&item, 1, WAIT_MS), 1);
		n = subscriber_receive(d.subscriber);
	}
	cr_assert_eq(atomic_load(&d.world.rows.row[2].seen_seq), 1);
	cr_assert_eq(count_get(&d.world.process, COUNTER_publishers_refused), 0);
	close_door(&d);
}

Test(subscriber, a_publisher_that_connects_from_the_member_s_host_is_heard)
{
	member_connects("127.0.0.1");
}

Test(subscriber, the_member_s_host_may_be_a_name)
{
	member_connects("localhost");
}

Test(subscriber, a_publisher_from_another_host_is_refused_and_counted)
{
	struct door d;
	char event[256];

	open_door(&d, "10.0.0.1");
	cr_assert_gt(zmq_recv(d.monitor, event, sizeof event, 0), 0, "it was sent away");
	cr_assert_geq(count_get(&d.world.process, COUNTER_publishers_refused), 1);
	cr_assert_eq(subscriber_receive(d.subscriber), 0);
	close_door(&d);
}

Test(subscriber, nothing_is_bound_for_a_host_that_is_not_known)
{
	struct subscriber_config config = {.row = 2, .endpoint = "bind:tcp://127.0.0.1:1"};
	struct subscriber *s = NULL;
	struct world w;

	begin(&w, 60);
	config.apply = w.apply;
	cr_assert_eq(subscriber_new(&s, &config), -EINVAL);
	cr_assert_null(s);
	end(&w);
}

Test(subscriber, says_no_to_what_is_no_endpoint)
{
	struct world w;
	struct subscriber *s = NULL;

	begin(&w, 60);
	cr_assert_eq(open_at(&s, w.apply, 0, "nonsense", false), -EINVAL);
	cr_assert_null(s);
	end(&w);
}
