/* actors/ingress/client.h -- the client's side: its connection, its requests in order, its answers.
 *
 * Meaning    Reads one request at a time (strict heads, bounded bodies); what a client
 *            pipelines waits in a bounded buffer.  Writing is buffered here: one send under
 *            way, one buffer filling; whoever fills watches client_queued (back-pressure).
 * Gone       A reset always means the client is gone.  The end of its stream after a whole
 *            request means so too (a full close and a half-close look alike until we write),
 *            unless the gateway says `halfClose: serve`.
 * Bounds     head 64 KiB, pipelined bytes 64 KiB and one read, both bytes that came, never
 *            bytes announced.
 * Ownership  A client owns its fd and buffers; its request points back at it until one of them
 *            ends.
 * Threads    the loop's.
 */
#pragma once
#include "actors/ingress/ingress.h"
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

struct client_buf {
	char *p;
	size_t len, cap;
};

struct client {
	struct ingress *in;
	struct client *prev, *next;     /* all clients; next: also the graveyard */
	int fd;
	enum client_state state;
	enum client_finish finish;      /* once everything is written */
	bool dead, eof, paused;
	bool minor, keep_alive;         /* of the request being served */
	bool to_head;                   /* a HEAD request: no body in the answer */
	bool continued;                 /* waits for "100 Continue" */
	uint8_t peer_addr[16];
	uint16_t peer_port, listener;
	struct io_op *recv, *send;
	struct deadline limit;
	struct client_buf in_buf;       /* an unfinished head, or pipelined bytes */
	struct http1_scan scan;
	struct http1_body body;
	mono_ns body_began;
	uint64_t body_bytes;
	struct request *request;        /* the one being read or served */
	struct client_buf fill, flight; /* answer bytes: being filled, being sent */
	mono_ns idle_since;
};

void client_accept(struct ingress *in, int fd, uint16_t listener);      /* takes fd */
/* idle ones end soon, others with their answer */
void client_drain(struct client *c, mono_ns now);
/* at once; its request learns it is alone */
void client_destroy(struct client *c);
void clients_bury(struct ingress *in);                  /* between turns */

/* --- the way back, for relay and replies --- */
char *client_room(struct client *c, size_t want);
	/* At least want bytes to write to, or NULL: no memory. */
void client_commit(struct client *c, size_t len);
/* false: no memory; the client is cut */
bool client_write(struct client *c, const void *p, size_t len);
void client_flush(struct client *c);
/* bytes not yet taken by the kernel */
size_t client_queued(const struct client *c);
void client_end(struct client *c, enum client_finish how);
	/* The answer is complete in the buffers (or never will be); detach the request first. */
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
	unsigned attempts;              /* upstream; 0: not said */
};
void client_reply_error(struct client *c, const struct reply *r, bool close);
	/* OpenAI's error shape; then keep-alive or close. */
void client_reply_models(struct client *c, struct slice path);
	/* GET /v1/models, GET /v1/models/NAME: the gateway's names. */
