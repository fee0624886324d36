/* actors/ingress/router.c -- see router.h. */
#include "actors/ingress/router.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "actors/common/actor.h"

#define ROUTER_HIGH 40000     /* messages queued per policy: above all slots, twice */
#define ROUTER_SEND_MAX 4096u /* bytes; questions and cancels are under 50 */

int
router_open(struct router *ret, void *zmq_ctx, const struct birth *birth)
{
	int zero = 0, one = 1, high = ROUTER_HIGH;
	int64_t max = MESSAGE_MAX;
	size_t len = sizeof ret->fd;
	char endpoint[160];
	int r;

	*ret = (struct router){.fd = -1, .maybe = true};
	memcpy(ret->key, birth->key, sizeof ret->key);
	ret->buf = malloc(ROUTER_SEND_MAX);
	ret->sock = zmq_socket(zmq_ctx, ZMQ_ROUTER);
	if (!ret->buf || !ret->sock) {
		r = ret->sock ? -ENOMEM : -errno;
		goto fail;
	}
	zmq_setsockopt(ret->sock, ZMQ_LINGER, &zero, sizeof zero);
	zmq_setsockopt(ret->sock, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
	zmq_setsockopt(ret->sock, ZMQ_ROUTER_HANDOVER, &one, sizeof one);
	zmq_setsockopt(ret->sock, ZMQ_SNDHWM, &high, sizeof high);
	zmq_setsockopt(ret->sock, ZMQ_RCVHWM, &high, sizeof high);
	zmq_setsockopt(ret->sock, ZMQ_MAXMSGSIZE, &max, sizeof max);
	pm_policy_endpoint(endpoint, sizeof endpoint, birth->run_dir, birth->index,
			   birth->incarnation);
	if (zmq_bind(ret->sock, endpoint) < 0 ||
	    zmq_getsockopt(ret->sock, ZMQ_FD, &ret->fd, &len) < 0) {
		r = -errno;
		goto fail;
	}
	return 0;
fail:
	router_close(ret);
	return r;
}

void
router_close(struct router *r)
{
	if (r->sock)
		zmq_close(r->sock);
	free(r->buf);
	*r = (struct router){.fd = -1};
}

int
router_send(struct router *r, uint32_t gen, uint32_t inc, enum msg_id id, const void *msg)
{
	ssize_t len = msg_pack(id, msg, r->buf, ROUTER_SEND_MAX);

	if (len < 0)
		return (int)len;
	if (r->said.inc != inc || r->said.gen != gen) {
		r->said = (struct router_name){.gen = gen, .inc = inc};
		r->said.len = policy_name(r->said.text, gen, inc, token_of(r->key, gen, inc));
	}
	r->maybe = true;
	/* MANDATORY tells on the first frame; then nothing of the rest must be sent. */
	if (zmq_send(r->sock, r->said.text, (size_t)r->said.len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		return -errno;
	if (zmq_send(r->sock, r->buf, (size_t)len, ZMQ_DONTWAIT) < 0)
		return -errno;
	return 0;
}

void
router_woken(struct router *r)
{
	r->maybe = true;
}

bool
router_readable(struct router *r)
{
	int events = 0;
	size_t len = sizeof events;

	r->maybe = r->maybe && zmq_getsockopt(r->sock, ZMQ_EVENTS, &events, &len) == 0 &&
		   (events & ZMQ_POLLIN);
	return r->maybe;
}

/* Is it who it says?  Then it is r->heard. */
static bool
knows(struct router *r, const void *name, size_t len)
{
	struct router_name is = {.len = (int)len};
	uint64_t token;

	if (r->heard.inc != 0 && (size_t)r->heard.len == len &&
	    memcmp(r->heard.text, name, len) == 0)
		return true;
	if (!policy_name_read(name, len, &is.gen, &is.inc, &token) ||
	    token != token_of(r->key, is.gen, is.inc))
		return false;
	memcpy(is.text, name, len);
	r->heard = is;
	return true;
}

bool
router_next(struct router *r, struct router_message *ret)
{
	bool named = false;

	for (bool first = true;; first = false) {
		zmq_msg_init(&ret->frame);
		if (zmq_msg_recv(&ret->frame, r->sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&ret->frame);
			r->maybe = false;
			return false; /* later parts of a message are there when its first is */
		}
		if (first)
			named = knows(r, zmq_msg_data(&ret->frame), zmq_msg_size(&ret->frame));
		if (!zmq_msg_more(&ret->frame))
			break; /* the last part is the message */
		zmq_msg_close(&ret->frame);
	}
	ret->error = -EBADMSG;
	ret->policy_gen = named ? r->heard.gen : 0;
	ret->policy_inc = named ? r->heard.inc : 0;
	if (named)
		ret->error =
			msg_unpack(zmq_msg_data(&ret->frame), zmq_msg_size(&ret->frame), &ret->msg);
	return true;
}

void
router_done(struct router_message *m)
{
	zmq_msg_close(&m->frame);
}
