/* actors/kvevents/door.c -- see door.h. */
#include "actors/kvevents/door.h"

#include <string.h>

#include "actors/common/log.h"
#include "actors/kvevents/peer_address.h"

#define FIELDS 6u /* of a question: version, id, domain, address, identity, mechanism */
#define FIELD_MAX 256u

struct question {
	char field[FIELDS][FIELD_MAX];
	unsigned n;
};

/* Frames beyond those six (credentials) are read and dropped. */
static bool
question_receive(void *sock, struct question *q)
{
	int more = 1;

	memset(q, 0, sizeof *q);
	while (more) {
		char dropped[FIELD_MAX];
		size_t len = sizeof more;
		int n = zmq_recv(sock, q->n < FIELDS ? q->field[q->n] : dropped, FIELD_MAX - 1, 0);

		if (n < 0)
			return false;
		if (q->n < FIELDS)
			q->field[q->n++][n < (int)FIELD_MAX ? n : (int)FIELD_MAX - 1] = '\0';
		zmq_getsockopt(sock, ZMQ_RCVMORE, &more, &len);
	}
	return true;
}

static void
answer(void *sock, const struct question *q, bool in)
{
	const char *const frames[] = {"1.0", q->field[1], in ? "200" : "400",
				      in ? "OK" : "not the member's host", "", ""};
	size_t n = sizeof frames / sizeof frames[0];

	for (size_t i = 0; i < n; i++)
		zmq_send(sock, frames[i], strlen(frames[i]), i + 1 < n ? ZMQ_SNDMORE : 0);
}

static void
decide(struct process_segment *process, void *sock)
{
	struct question q;
	struct in6_addr peer;
	bool in;

	if (!question_receive(sock, &q))
		return;
	in = q.n == FIELDS && peer_address_parse(q.field[3], &peer) &&
	     peer_address_is_of(q.field[2], &peer);
	if (!in)
		count_add(process, COUNTER_publishers_refused, 1);
	answer(sock, &q, in);
}

static void
door_main(zsock_t *pipe, void *arg)
{
	zsock_t *zap = zsock_new(ZMQ_REP);
	int bound = zap ? zsock_bind(zap, "inproc://zeromq.zap.01") : -1;

	zsock_signal(pipe, bound < 0);
	while (bound >= 0) {
		zmq_pollitem_t item[] = {
			{.socket = zsock_resolve(pipe), .events = ZMQ_POLLIN},
			{.socket = zsock_resolve(zap), .events = ZMQ_POLLIN},
		};

		if (zmq_poll(item, 2, -1) < 0 || item[0].revents)
			break;
		if (item[1].revents)
			decide(arg, zsock_resolve(zap));
	}
	zsock_destroy(&zap);
}

zactor_t *
door_open(struct process_segment *process)
{
	return zactor_new(door_main, process);
}
