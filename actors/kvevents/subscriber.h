/* actors/kvevents/subscriber.h -- one SUB socket on one engine's event stream (one rank).
 *
 * Shape      three frames: topic (topic.h: identity is the connection), sequence number, payload.
 *            Others are counted and dropped.  A topic that is another's is counted, and told once
 *            a topic for SUBSCRIBER_TOPICS of them.
 * Endpoint   tcp:// and ipc:// are connected to.  bind:tcp:// is bound, for publishers that
 *            connect (vLLM does, where its own endpoint has no '*'); only the member's host gets in
 *            (door.h), and what several of that host say is one stream.
 * Bounds     SUBSCRIBER_BATCH messages or SUBSCRIBER_TURN_NS a call, whichever is first: one
 *            flooding engine does not starve the others.  Frames above KV_PAYLOAD_MAX_BYTES cut
 *            the connection.  The receive queue is short, because its messages may be large and
 *            are no part of privateBytes: what does not fit waits in the engine's own.
 * Reconnects by itself, quickly: what is published before is lost, and shows as a hole.
 * Threads    the loop's.
 */
#pragma once
#include <czmq.h>

#include "actors/kvevents/apply.h"
#include "actors/kvevents/intake.h"
#include "actors/kvevents/replay.h"

#define SUBSCRIBER_BATCH   64u
#define SUBSCRIBER_TURN_NS 2000000u
#define SUBSCRIBER_QUEUE   1000         /* messages: some 10 s of a busy engine */
#define SUBSCRIBER_TOPICS  8u

struct subscriber;

struct subscriber_config {
	struct apply *apply; /* borrowed */
	struct replay *replay; /* borrowed; takes the batches.  NULL: apply does */
	struct intake *intake; /* borrowed; learns what was read.  NULL: none */
	uint16_t row;
	const char *endpoint;
	const char *topic; /* how theirs begin; "" or NULL: any */
	const char *host;  /* of the member's URL; NULL: unknown, and nobody may connect to us */
	bool to_wait;      /* subscriber_wait() follows; what it hears by is held until then */
};

int subscriber_new(struct subscriber **ret, const struct subscriber_config *config);
	/* Connects, or binds.  0; -EINVAL: no such endpoint form; -errno: cannot be bound;
	 * -ENOMEM. */
void subscriber_free(struct subscriber **ret);
bool subscriber_wait(struct subscriber *s, mono_ns deadline);
	/* Blocks until the engine has taken us in, so that what it publishes from now on comes;
	 * false: not by the deadline, it goes on trying.  Once, after subscriber_new. */
zsock_t *subscriber_socket(struct subscriber *s);       /* borrowed; to be watched */
const char *subscriber_endpoint(const struct subscriber *s);
unsigned subscriber_receive(struct subscriber *s);
	/* Applies what is there, within bounds, until the replay holds; how many messages. */
