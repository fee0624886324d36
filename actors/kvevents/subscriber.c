/* actors/kvevents/subscriber.c -- frames off the wire; see subscriber.h. */
#include "actors/kvevents/subscriber.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"
#include "proto/kv_events.h"

#define RECONNECT_MS 20 /* an engine that restarts publishes within a second */
#define RECONNECT_MAX_MS 1000

struct subscriber {
	struct apply *apply; /* borrowed */
	uint16_t row;
	zsock_t *sock; /* owned */
	void *monitor; /* owned; NULL once it told or nobody waits any more */
	char endpoint[MANIFEST_ENDPOINT_MAX + 1];
};

/* Only for subscriber_wait: what the transport says of its handshake. */
static void
monitor_open(struct subscriber *s)
{
	char at[64];

	snprintf(at, sizeof at, "inproc://subscriber-%p", (void *)s);
	if (zmq_socket_monitor(zsock_resolve(s->sock), at, ZMQ_EVENT_HANDSHAKE_SUCCEEDED) < 0)
		return;
	s->monitor = zmq_socket(zsys_init(), ZMQ_PAIR);
	if (s->monitor && zmq_connect(s->monitor, at) < 0) {
		zmq_close(s->monitor);
		s->monitor = NULL;
	}
}

static void
monitor_close(struct subscriber *s)
{
	if (!s->monitor)
		return;
	zmq_socket_monitor(zsock_resolve(s->sock), NULL, 0);
	zmq_close(s->monitor);
	s->monitor = NULL;
}

int
subscriber_new(struct subscriber **ret, struct apply *apply, uint16_t row, const char *endpoint)
{
	struct subscriber *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->apply = apply;
	s->row = row;
	s->sock = zsock_new(ZMQ_SUB);
	if (!s->sock || strlen(endpoint) >= sizeof s->endpoint) {
		subscriber_free(&s);
		return -ENOMEM;
	}
	memcpy(s->endpoint, endpoint, strlen(endpoint) + 1);
	zsock_set_rcvhwm(s->sock, SUBSCRIBER_QUEUE);
	zsock_set_maxmsgsize(s->sock, (int)KV_PAYLOAD_MAX_BYTES);
	zsock_set_linger(s->sock, 0);
	zsock_set_reconnect_ivl(s->sock, RECONNECT_MS);
	zsock_set_reconnect_ivl_max(s->sock, RECONNECT_MAX_MS);
	zsock_set_tcp_keepalive(s->sock, 1); /* a host that vanished says nothing */
	zsock_set_tcp_keepalive_idle(s->sock, 10);
	zsock_set_tcp_keepalive_intvl(s->sock, 5);
	zsock_set_tcp_keepalive_cnt(s->sock, 3);
	zsock_set_ipv6(s->sock, 1);
	zsock_set_subscribe(s->sock, "");
	monitor_open(s);
	if (zmq_connect(zsock_resolve(s->sock), endpoint) < 0) {
		subscriber_free(&s);
		return -EINVAL;
	}
	*ret = s;
	return 0;
}

bool
subscriber_wait(struct subscriber *s, mono_ns deadline)
{
	bool joined = false;

	while (s->monitor && !joined) {
		zmq_pollitem_t item = {.socket = s->monitor, .events = ZMQ_POLLIN};
		mono_ns now = clock_mono();
		char event[6], address[256];

		if (now >= deadline ||
		    zmq_poll(&item, 1, (long)((deadline - now) / 1000000) + 1) <= 0)
			break;
		/* Two frames: event u16, value u32; address. */
		joined = zmq_recv(s->monitor, event, sizeof event, ZMQ_DONTWAIT) == sizeof event;
		zmq_recv(s->monitor, address, sizeof address, ZMQ_DONTWAIT);
	}
	monitor_close(s);
	return joined;
}

void
subscriber_free(struct subscriber **ret)
{
	if (!*ret)
		return;
	monitor_close(*ret);
	zsock_destroy(&(*ret)->sock);
	free(*ret);
	*ret = NULL;
}

zsock_t *
subscriber_socket(struct subscriber *s)
{
	return s->sock;
}

const char *
subscriber_endpoint(const struct subscriber *s)
{
	return s->endpoint;
}

/* One multipart message; false: none is there.  Frames beyond three are read and dropped. */
static bool
receive_one(struct subscriber *s)
{
	void *sock = zsock_resolve(s->sock);
	zmq_msg_t frame[3], more;
	unsigned n = 0;
	uint64_t seq;
	bool last;

	do {
		zmq_msg_t *to = n < 3 ? &frame[n] : &more;

		zmq_msg_init(to);
		if (zmq_msg_recv(to, sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(to); /* only before the first frame: messages arrive whole */
			for (unsigned i = 0; i < n && i < 3; i++)
				zmq_msg_close(&frame[i]);
			return false;
		}
		last = !zmq_msg_more(to);
		if (n >= 3)
			zmq_msg_close(to);
		n++;
	} while (!last);
	if (n == 3 && kv_seq_decode(zmq_msg_data(&frame[1]), zmq_msg_size(&frame[1]), &seq) == 0)
		apply_message(s->apply, s->row, seq, zmq_msg_data(&frame[2]),
			      zmq_msg_size(&frame[2]));
	else
		apply_frames_bad(s->apply, s->row);
	for (unsigned i = 0; i < n && i < 3; i++)
		zmq_msg_close(&frame[i]);
	return true;
}

unsigned
subscriber_receive(struct subscriber *s)
{
	mono_ns until = clock_mono() + SUBSCRIBER_TURN_NS;
	unsigned n = 0;

	while (n < SUBSCRIBER_BATCH && receive_one(s)) {
		n++;
		if (clock_mono() >= until)
			break;
	}
	return n;
}
