/* actors/ingress/router.h -- the one socket on which all policy processes are asked.
 *
 * Meaning    A ZMQ ROUTER bound once per ingress incarnation (a second bind on a live ipc path
 *            would steal it silently).  Peers are DEALERs named pol.<generation>.<incarnation>.
 * Waking     ZMQ_FD says "maybe something changed", never "readable": before every sleep, and
 *            after every wake-up, router_next is called until it says there is nothing.
 * Threads    the loop's.
 */
#pragma once
#include <zmq.h>

#include "proto/messages.h"

struct router {
	void *sock;                     /* owned */
	int fd;                         /* ZMQ_FD, to watch */
	char *buf;                      /* owned; for packing */
};

int router_open(struct router *ret, void *zmq_ctx, const char *run_dir, uint32_t index,
		uint32_t incarnation);
void router_close(struct router *r);

int router_send(struct router *r, uint32_t policy_gen, uint32_t policy_inc, enum msg_id id,
		const void *msg);
	/* 0; -EAGAIN its queue is full; -EHOSTUNREACH it is not connected. */
bool router_readable(struct router *r);

struct router_message {
	uint32_t policy_gen, policy_inc;
	struct msg msg;
	zmq_msg_t frame;                /* owned until router_done; msg points into it */
	/* -EBADMSG, -ENOMSG: count and drop; msg is not to be used */
	int error;
};
bool router_next(struct router *r, struct router_message *ret);         /* false: nothing now */
void router_done(struct router_message *m);
