/* actors/ingress/client.h -- the client's side: its connection, its requests in order, its answers.
 *
 * Meaning    Reads one request at a time (strict heads, bounded bodies); what a client
 *            pipelines waits in a bounded buffer.  Writing is buffered here: one send under
 *            way, one buffer filling; whoever fills watches client_queued (back-pressure).
 * Gone       A reset always means the client is gone.  The end of its stream after a whole
 *            request means so too (a full close and a half-close look alike until we write),
 *            unless the gateway says `halfClose: serve`: then all that it asked for before is
 *            answered.  One that has pipelined more than is kept is not read, and leaves unseen
 *            until it is.
 * Arena      Without room for its body a client is not read any more (TCP stops its sender) until
 *            there is room, or timeouts.arena have passed: 503.  First come, first served.
 * Bounds     head 64 KiB, pipelined bytes 64 KiB and one read, both bytes that came, never
 *            bytes announced.
 * Ownership  A client owns its wire and buffers; its request points back at it until one of them
 *            ends.
 * Threads    the loop's.
 */
#pragma once
#include "actors/ingress/fair.h"
#include "actors/ingress/bytes.h"
#include "actors/ingress/ingress.h"
#include "actors/ingress/peer.h"
#include "actors/ingress/tenant.h"
#include "actors/ingress/wire.h"
#include "proto/http1.h"
#include "proto/openai.h"

enum client_state { CLIENT_HEAD, CLIENT_BODY, CLIENT_BUSY, CLIENT_LINGER };
enum client_finish {
	CLIENT_GOES_ON = 0,
	CLIENT_KEEP,                    /* answer whole, the next request may come */
	CLIENT_CLOSE,                   /* answer whole, then close */
	CLIENT_CUT,                     /* answer broken: close without its end */
	CLIENT_RESET,                   /* the same where closing would look like the end */
};

struct client {
	struct ingress *in;
	struct client *prev, *next;     /* all clients; next: also the graveyard */
	struct wire wire;
	struct client *next_flush;      /* in ingress.to_flush, if flush_soon */
	enum client_state state;
	enum client_finish finish;      /* once everything is written */
	bool dead, eof, paused, flush_soon;
	bool minor, keep_alive;         /* of the request being served */
	enum openai_api api;            /* whose words its errors are in */
	bool to_head;                   /* a HEAD request: no body in the answer */
	bool hard_close;                /* client_end_is_close() was said */
	bool continued;                 /* waits for "100 Continue" */
	bool counted;                   /* in its bucket's connections: not a trusted peer's */
	struct peer peer;
	uint16_t listener;
	struct fair_bucket *bucket;     /* reference held */
	struct client *own_prev, *own_next;     /* of the bucket's, if counted */
	struct deadline limit;
	struct bytes in_buf;       /* an unfinished head, or pipelined bytes */
	struct http1_scan scan;
	struct http1_body body;
	mono_ns body_until;             /* more of the body must have come by then */
	mono_ns starved_ns;             /* its body waits for room since then; 0: it does not */
	struct client *starved_prev, *starved_next;
	struct request *request;        /* the one being read or served */
	struct bytes fill, flight; /* answer bytes: being filled, being sent */
	mono_ns idle_since;
};

void client_accept(struct ingress *in, int fd, uint16_t listener);      /* takes fd */
/* idle ones end soon, others with their answer */
void client_drain(struct client *c, mono_ns now);
/* at once; its request learns it is alone */
void client_destroy(struct client *c);
void clients_bury(struct ingress *in);                  /* between turns */
void clients_feed(struct ingress *in);
	/* Between turns, when arena was freed: bodies that waited for it go on. */

/* --- the way back, for relay and replies --- */
char *client_room(struct client *c, size_t want);
	/* At least want bytes to write to, or NULL: no memory. */
void client_commit(struct client *c, size_t len);
/* false: no memory; the client is cut */
bool client_write(struct client *c, const void *p, size_t len);
void client_flush(struct client *c);
void client_flush_soon(struct client *c);
	/* At the end of this turn: what a worker sends in several pieces leaves in one. */
void clients_flush(struct ingress *in);                 /* between turns, before clients_bury */
/* bytes not yet taken by the kernel */
size_t client_queued(const struct client *c);
void client_end(struct client *c, enum client_finish how);
	/* The answer is complete in the buffers (or never will be); detach the request first. */
void client_end_is_close(struct client *c);
	/* The answer being written has no end but that of the connection: until client_end() with
	 * CLIENT_CLOSE, whatever closes it, our own death too, resets it. */
bool client_may_ask(const struct client *c);
	/* Its stream has not ended, or what it pipelined before is not served yet. */
bool client_may_keep(const struct client *c);
	/* May the connection go on after the answer being written? */

/* --- replies of our own (reply.c) --- */
struct reply {
	unsigned status;
	const char *code;               /* static or borrowed for the call; NULL */
	const char *message;
	const char *param;              /* NULL */
	unsigned retry_after_s;         /* 0: not said */
	const char *allow;              /* NULL; for 405 */
	uint64_t request_id;            /* 0: not known */
	struct slice client_id;         /* the client's X-Request-Id; absent: none that is sane */
	unsigned attempts;              /* upstream; 0: not said */
	bool challenge;                 /* 401: how to say who one is */
	struct tenant_left left;        /* of its tenant's limits */
	struct slice rule;              /* by which policy refused; absent: none did */
};
void client_reply_error(struct client *c, const struct reply *r, bool close);
	/* In the words of the client's API; then keep-alive or close. */
void client_reply_json(struct client *c, struct slice body, struct slice client_id);    /* 200 */
