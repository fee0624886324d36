/* actors/ingress/router.h -- the one socket on which all policy processes are asked.
 *
 * Meaning    A ZMQ ROUTER bound once per ingress incarnation (a second bind on a live ipc path
 *            would steal it silently).  Peers are DEALERs named as token.h says; a message under
 *            a name whose token is not that process's is nobody's.
 * Waking     ZMQ_FD says "maybe something changed", never "readable"; and any call on the socket
 *            may take that word away from it.  So after a wake-up by it and after each send the
 *            socket is asked until it says there is nothing, before the next sleep.  Asking costs
 *            two system calls, so otherwise it is not asked.
 * Threads    the loop's.
 */
#pragma once
#include <zmq.h>

#include "actors/common/birth.h"
#include "actors/common/token.h"
#include "proto/messages.h"

struct router_name {                    /* inc 0: none */
	uint32_t gen, inc;
	int len;
	char text[POLICY_NAME_MAX];
};

struct router {
	void *sock;                     /* owned */
	int fd;                         /* ZMQ_FD, to watch */
	char *buf;                      /* owned; for packing */
	uint8_t key[TOKEN_KEY];         /* makes the tokens of their names */
	struct router_name said, heard; /* the last ones: mostly one process is asked */
	bool maybe;                     /* something may have changed since it was last asked */
};

int router_open(struct router *ret, void *zmq_ctx, const struct birth *birth);
void router_close(struct router *r);

int router_send(struct router *r, uint32_t policy_gen, uint32_t policy_inc, enum msg_id id,
		const void *msg);
	/* 0; -EAGAIN its queue is full; -EHOSTUNREACH it is not connected. */
void router_woken(struct router *r);    /* its fd fired, or nobody knows */
bool router_readable(struct router *r);

struct router_message {
	uint32_t policy_gen, policy_inc;
	struct msg msg;
	zmq_msg_t frame;                /* owned until router_done; msg points into it */
	/* -EBADMSG, -ENOMSG: count and drop; msg is not to be used */
	int error;
};
bool router_next(struct router *r, struct router_message *ret);
	/* false: nothing now, and router_readable needs not be asked. */
void router_done(struct router_message *m);
