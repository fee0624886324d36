/* actors/kvevents/tap.c -- see tap.h. */
#include "actors/kvevents/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS 64u                    /* a turn */
#define FRAME_MAX 1024u                 /* bytes; texts are cut to fit */
#define TEXT_MAX 64u                    /* of an adapter, a medium, a reason */

int
tap_open(struct tap **ret, const char *endpoint, uint64_t word, struct process_segment *process)
{
	struct tap *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->word = word;
	t->process = process;
	t->sock = zsock_new(ZMQ_ROUTER);
	if (!t->sock) {
		free(t);
		return -ENOMEM;
	}
	zsock_set_sndhwm(t->sock, TAP_QUEUE);
	zsock_set_rcvhwm(t->sock, (int)REQUESTS);
	zsock_set_maxmsgsize(t->sock, (int)FRAME_MAX);
	zsock_set_linger(t->sock, 0);
	zsock_set_router_mandatory(t->sock, 1); /* who is gone or full is said, not swallowed */
	if (zsock_bind(t->sock, "%s", endpoint) < 0) {
		int r = -errno;

		tap_close(&t);
		return r;
	}
	*ret = t;
	return 0;
}

void
tap_close(struct tap **tap)
{
	if (!*tap)
		return;
	zsock_destroy(&(*tap)->sock);
	free(*tap);
	*tap = NULL;
}

zsock_t *
tap_socket(struct tap *tap)
{
	return tap->sock;
}

static void
row_drop(struct tap *t, unsigned i)
{
	t->row[i] = t->row[--t->n];
}

/* ---- telling ---- */

static struct slice
cut(struct slice text)
{
	if (text.len > TEXT_MAX)
		text.len = TEXT_MAX;
	return text;
}

/* 0; -EAGAIN: no room, dropped; -EHOSTUNREACH: it is gone. */
static int
send_to(struct tap *t, const struct tap_row *to, const void *frame, size_t len)
{
	void *sock = zsock_resolve(t->sock);

	if (zmq_send(sock, to->identity, to->n_identity, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
	    zmq_send(sock, frame, len, ZMQ_DONTWAIT) < 0)
		return -errno;
	return 0;
}

static int
tell(struct tap *t, struct tap_row *to, struct msg_tapped *m)
{
	char frame[FRAME_MAX];
	ssize_t n;

	m->row_gen = to->row_gen;
	m->number = to->number;
	m->lora = cut(m->lora);
	m->medium = cut(m->medium);
	m->reason = cut(m->reason);
	n = msg_pack(MSG_tapped, m, frame, sizeof frame);
	return n < 0 ? (int)n : send_to(t, to, frame, (size_t)n);
}

void
tap_tell(struct tap *tap, const struct msg_tapped *told)
{
	for (unsigned i = tap->n; i-- > 0;) {
		struct msg_tapped m = *told;

		if (tap->row[i].row != told->row)
			continue;
		tap->row[i].number++;
		if (tell(tap, &tap->row[i], &m) == -EHOSTUNREACH)
			row_drop(tap, i);
	}
}

/* ---- requests ---- */

static struct tap_row *
row_of(struct tap *t, const struct msg_tap *m, const void *identity, size_t n)
{
	struct tap_row *r;

	for (unsigned i = 0; i < t->n; i++) {
		r = &t->row[i];
		if (r->row == m->row && r->n_identity == n &&
		    memcmp(r->identity, identity, n) == 0)
			return r;
	}
	if (t->n == TAP_ROWS)
		return NULL;
	r = &t->row[t->n++];
	*r = (struct tap_row){.row = m->row, .n_identity = n};
	memcpy(r->identity, identity, n);
	return r;
}

static void
on_request(struct tap *t, const void *identity, size_t n, const void *frame, size_t len,
	   mono_ns now)
{
	struct msg_tapped begun = {0};
	struct tap_row *r;
	struct msg m;

	if (msg_unpack(frame, len, &m) < 0 || m.id != MSG_tap) {
		count_add(t->process, COUNTER_messages_unknown, 1);
		return;
	}
	if (m.u.tap.word != t->word) {
		count_add(t->process, COUNTER_messages_refused, 1);
		return;
	}
	r = n > 0 && n <= TAP_IDENTITY_MAX ? row_of(t, &m.u.tap, identity, n) : NULL;
	if (!r)
		return;                         /* it goes on asking */
	r->row_gen = m.u.tap.row_gen;
	r->until = now + TAP_LEASE_NS;
	begun.row = r->row;
	tell(t, r, &begun);
}

/* [identity][request]; what has another shape is read to its end and dropped. */
static bool
receive_one(struct tap *t, mono_ns now)
{
	void *sock = zsock_resolve(t->sock);
	zmq_msg_t frame[2], more;
	unsigned n = 0;
	bool last;

	do {
		zmq_msg_t *to = n < 2 ? &frame[n] : &more;

		zmq_msg_init(to);
		if (zmq_msg_recv(to, sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(to);
			for (unsigned i = 0; i < n && i < 2; i++)
				zmq_msg_close(&frame[i]);
			return false;
		}
		last = !zmq_msg_more(to);
		if (n >= 2)
			zmq_msg_close(to);
		n++;
	} while (!last);
	if (n == 2)
		on_request(t, zmq_msg_data(&frame[0]), zmq_msg_size(&frame[0]),
			   zmq_msg_data(&frame[1]), zmq_msg_size(&frame[1]), now);
	else
		count_add(t->process, COUNTER_messages_unknown, 1);
	for (unsigned i = 0; i < n && i < 2; i++)
		zmq_msg_close(&frame[i]);
	return true;
}

void
tap_receive(struct tap *tap, mono_ns now)
{
	for (unsigned i = 0; i < REQUESTS && receive_one(tap, now); i++)
		;
}

void
tap_tick(struct tap *tap, mono_ns now)
{
	for (unsigned i = tap->n; i-- > 0;)
		if (now >= tap->row[i].until)
			row_drop(tap, i);
}
