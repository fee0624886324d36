/* actors/ingress/router.c -- see router.h. */
#include "actors/ingress/router.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "actors/common/actor.h"

#define ROUTER_HIGH 40000     /* messages queued per policy: above all slots, twice */
#define ROUTER_SEND_MAX 4096u /* bytes; questions and cancels are under 50 */

int
router_open(struct router *ret, void *zmq_ctx, const char *run_dir, uint32_t index,
	    uint32_t incarnation)
{
	int zero = 0, one = 1, high = ROUTER_HIGH;
	int64_t max = MESSAGE_MAX;
	size_t len = sizeof ret->fd;
	char endpoint[160];
	int r;

	*ret = (struct router){.fd = -1};
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
	pm_policy_endpoint(endpoint, sizeof endpoint, run_dir, index, incarnation);
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
	char name[40];
	int n;

	if (len < 0)
		return (int)len;
	n = snprintf(name, sizeof name, "pol.%u.%u", gen, inc);
	/* MANDATORY tells on the first frame; then nothing of the rest must be sent. */
	if (zmq_send(r->sock, name, (size_t)n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		return -errno;
	if (zmq_send(r->sock, r->buf, (size_t)len, ZMQ_DONTWAIT) < 0)
		return -errno;
	return 0;
}

bool
router_readable(struct router *r)
{
	int events = 0;
	size_t len = sizeof events;

	return zmq_getsockopt(r->sock, ZMQ_EVENTS, &events, &len) == 0 && (events & ZMQ_POLLIN);
}

static bool
parse_name(const char *p, size_t n, uint32_t *ret_gen, uint32_t *ret_inc)
{
	char name[40];
	int used = 0;

	if (n >= sizeof name)
		return false;
	memcpy(name, p, n);
	name[n] = '\0';
	return sscanf(name, "pol.%10u.%10u%n", ret_gen, ret_inc, &used) == 2 && (size_t)used == n &&
	       *ret_inc != 0;
}

bool
router_next(struct router *r, struct router_message *ret)
{
	bool named = false;

	for (bool first = true;; first = false) {
		zmq_msg_init(&ret->frame);
		if (zmq_msg_recv(&ret->frame, r->sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&ret->frame);
			return false; /* later parts of a message are there when its first is */
		}
		if (first)
			named = parse_name(zmq_msg_data(&ret->frame), zmq_msg_size(&ret->frame),
					   &ret->policy_gen, &ret->policy_inc);
		if (!zmq_msg_more(&ret->frame))
			break; /* the last part is the message */
		zmq_msg_close(&ret->frame);
	}
	ret->error = -EBADMSG;
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
