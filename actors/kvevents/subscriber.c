/* actors/kvevents/subscriber.c -- frames off the wire; see subscriber.h. */
#include "actors/kvevents/subscriber.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/decide/manifest.h"
#include "actors/common/log.h"
#include "actors/kvevents/topic.h"
#include "proto/kv_events.h"

#define RECONNECT_MS 20 /* an engine that restarts publishes within a second */
#define RECONNECT_MAX_MS 1000
#define WIRE_TOLD 65536u /* bytes read of which intake need not know yet */
#define TOPIC_TOLD 100u /* bytes of it in the log */

struct subscriber {
	struct apply *apply; /* borrowed */
	struct replay *replay; /* borrowed; NULL: none */
	struct intake *intake; /* borrowed; NULL: none */
	size_t wire_most, wire; /* bytes read and not told to intake */
	uint16_t row;
	char topic[MANIFEST_MODEL_MAX + 1], host[MANIFEST_HOST_MAX + 1];
	uint64_t refused[SUBSCRIBER_TOPICS]; /* XXH3 of topics that were told */
	unsigned n_refused;
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

static int
text_copy(char *to, size_t cap, const char *text)
{
	size_t len = text ? strlen(text) : 0;

	if (len >= cap)
		return -EINVAL;
	if (text)
		memcpy(to, text, len);
	to[len] = '\0';
	return 0;
}

static void
options_set(struct subscriber *s)
{
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
	zsock_set_subscribe(s->sock, s->topic);
}

/* A socket with a domain lets nobody in who was not asked about (door.h). */
static int
bind_for(struct subscriber *s, const char *endpoint)
{
	void *sock = zsock_resolve(s->sock);

	if (s->host[0] == '\0' ||
	    zmq_setsockopt(sock, ZMQ_ZAP_DOMAIN, s->host, strlen(s->host)) < 0)
		return -EINVAL;
	return zmq_bind(sock, endpoint) < 0 ? -errno : 0;
}

int
subscriber_new(struct subscriber **ret, const struct subscriber_config *config)
{
	const char *endpoint = config->endpoint;
	bool bound = strncmp(endpoint, MANIFEST_BIND, strlen(MANIFEST_BIND)) == 0;
	struct subscriber *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return -ENOMEM;
	s->apply = config->apply;
	s->replay = config->replay;
	s->intake = config->intake;
	s->wire_most = bound ? 0 : WIRE_TOLD; /* bound, the next may be another's */
	s->row = config->row;
	r = text_copy(s->endpoint, sizeof s->endpoint, endpoint);
	if (r == 0)
		r = text_copy(s->topic, sizeof s->topic, config->topic);
	if (r == 0)
		r = text_copy(s->host, sizeof s->host, config->host);
	s->sock = r == 0 ? zsock_new(ZMQ_SUB) : NULL;
	if (!s->sock) {
		subscriber_free(&s);
		return r < 0 ? r : -ENOMEM;
	}
	options_set(s);
	if (config->to_wait && !bound)
		monitor_open(s);
	if (bound)
		r = bind_for(s, endpoint + strlen(MANIFEST_BIND));
	else if (zmq_connect(zsock_resolve(s->sock), endpoint) < 0)
		r = -EINVAL;
	if (r < 0) {
		subscriber_free(&s);
		return r;
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

/* Each topic once: what a hub sends for others comes a thousand times a second. */
static void
topic_refused(struct subscriber *s, const char *topic, size_t len)
{
	uint64_t hash = XXH3_64bits(topic, len);
	char text[TOPIC_TOLD + 1];
	size_t n = len < TOPIC_TOLD ? len : TOPIC_TOLD;

	apply_topic_refused(s->apply, s->row);
	for (unsigned i = 0; i < s->n_refused; i++)
		if (s->refused[i] == hash)
			return;
	if (s->n_refused == SUBSCRIBER_TOPICS)
		return;
	s->refused[s->n_refused++] = hash;
	for (size_t i = 0; i < n; i++)
		text[i] = topic[i] >= ' ' && topic[i] <= '~' && topic[i] != '"' ? topic[i] : '?';
	text[n] = '\0';
	log_warn("events row=%u endpoint=%s topic=\"%s\" is another's: dropped, as all of that "
		 "topic%s",
		 s->row, s->endpoint, text,
		 s->n_refused == SUBSCRIBER_TOPICS ? "; further topics are only counted" : "");
}

/* One multipart message; false: none is there.  Frames beyond three are read and dropped. */
static bool
receive_one(struct subscriber *s)
{
	void *sock = zsock_resolve(s->sock);
	zmq_msg_t frame[3], more;
	unsigned n = 0;
	size_t wire = 0;
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
		wire += intake_wire(zmq_msg_size(to));
		if (n >= 3)
			zmq_msg_close(to);
		n++;
	} while (!last);
	s->wire += wire;
	if (s->wire > s->wire_most) {
		intake_took(s->intake, &frame[0], s->wire);
		s->wire = 0;
	}
	if (n != 3 || kv_seq_decode(zmq_msg_data(&frame[1]), zmq_msg_size(&frame[1]), &seq) < 0)
		apply_frames_bad(s->apply, s->row);
	else if (!topic_is_ours(s->topic, s->host, zmq_msg_data(&frame[0]),
				zmq_msg_size(&frame[0])))
		topic_refused(s, zmq_msg_data(&frame[0]), zmq_msg_size(&frame[0]));
	else if (s->replay && seq != UINT64_MAX)
		replay_live(s->replay, seq, &frame[2], clock_mono());
	else
		apply_message(s->apply, s->row, seq, zmq_msg_data(&frame[2]),
			      zmq_msg_size(&frame[2]));
	for (unsigned i = 0; i < n && i < 3; i++)
		zmq_msg_close(&frame[i]);
	return true;
}

unsigned
subscriber_receive(struct subscriber *s)
{
	mono_ns until = clock_mono() + SUBSCRIBER_TURN_NS;
	unsigned n = 0;

	while (n < SUBSCRIBER_BATCH && !(s->replay && replay_holds(s->replay)) && receive_one(s)) {
		n++;
		if (clock_mono() >= until)
			break;
	}
	return n;
}
