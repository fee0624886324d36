/* actors/kvevents/subscriber.h -- one SUB socket on one engine's event stream (one rank).
 *
 * Shape      three frames: topic (any: identity is the connection), sequence number, payload.
 *            Others are counted and dropped.  Subscribed to "": a filter matches by prefix and
 *            hides mistakes.
 * Bounds     SUBSCRIBER_BATCH messages or SUBSCRIBER_TURN_NS a call, whichever is first: one
 *            flooding engine does not starve the others.  Frames above KV_PAYLOAD_MAX_BYTES cut
 *            the connection. The receive queue holds what an engine may buffer: a drop shows as a
 *            hole in the numbers.
 * Reconnects by itself, quickly: what is published before is lost, and shows as a hole.
 * Threads    the loop's.
 */
#pragma once
#include <czmq.h>

#include "actors/kvevents/apply.h"

#define SUBSCRIBER_BATCH   64u
#define SUBSCRIBER_TURN_NS 2000000u
#define SUBSCRIBER_QUEUE   100000       /* messages; the engine's own default */

struct subscriber;

int subscriber_new(struct subscriber **ret, struct apply *apply, uint16_t row,
		   const char *endpoint);
	/* Connects.  0, -EINVAL: no such endpoint form, -ENOMEM. */
void subscriber_free(struct subscriber **ret);
bool subscriber_wait(struct subscriber *s, mono_ns deadline);
	/* Blocks until the engine has taken us in, so that what it publishes from now on comes;
	 * false: not by the deadline, it goes on trying.  Once, after subscriber_new. */
zsock_t *subscriber_socket(struct subscriber *s);       /* borrowed; to be watched */
const char *subscriber_endpoint(const struct subscriber *s);
unsigned subscriber_receive(struct subscriber *s);
	/* Applies what is there, within bounds; how many messages. */
