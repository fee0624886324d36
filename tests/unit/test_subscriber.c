/* tests/unit/test_subscriber.c -- a real publisher over loopback; waits for events, never for time.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/kvevents/subscriber.h"
#include "tests/unit/apply_world.h"

#define WAIT_MS 10000

struct wire {
	struct world world;
	void *zmq, *pub;
	char endpoint[64];
	struct subscriber *subscriber;
};

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
	cr_assert_eq(subscriber_new(&w->subscriber, w->world.apply, 2, w->endpoint), 0);
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
	cr_assert_eq(subscriber_new(&absent, w.world.apply, 3, "tcp://127.0.0.1:1"), 0);
	cr_assert_not(subscriber_wait(absent, now + 20000000));
	cr_assert_geq(clock_mono(), now + 20000000);
	subscriber_free(&absent);
	part(&w);
}

Test(subscriber, says_no_to_what_is_no_endpoint)
{
	struct world w;
	struct subscriber *s = NULL;

	begin(&w, 60);
	cr_assert_eq(subscriber_new(&s, w.apply, 0, "nonsense"), -EINVAL);
	cr_assert_null(s);
	end(&w);
}
