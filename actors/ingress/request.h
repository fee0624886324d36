/* actors/ingress/request.h -- one inference request from its head to its outcome.
 *
 * Meaning    Owns everything a request holds: slot, arena region, charge, decision, worker's
 *            connection. It ends in exactly one call of request_end (request_fail ends in it),
 *            which releases all of them, writes the outcome to the journal and leaves the
 *            region to `ask` until nobody reads it.
 * Retry      Only where the attempt before cannot have done work: once on another worker, within
 *            the retry budget, after a connect failure, 429 or 503 before anything was relayed;
 *            and once on a new connection to the same worker, outside of it, where a pooled one
 *            was found closed. A worker that ends shows both: three attempts then. A ranked list
 *            is used only under the generation that made it; else the question is asked again.
 * Turned     Who did not let a request in, broke off, said 503 or begins to close its connections
 *            is avoided from then on by every decision (cell.h enum cell_turn, policy/view.h).
 * Threads    the loop's.
 */
#pragma once
#include "actors/ingress/client.h"
#include "actors/ingress/relay_watch.h"
#include "actors/ingress/tenant.h"

#define REQUEST_STALE_NS 1000000000ull  /* a pooled connection that breaks later than this after the
					   request was not stale: the worker was at work */

struct decision;                        /* an applied answer, copied */

enum response_framing { RESPONSE_NONE, RESPONSE_LENGTH, RESPONSE_CHUNKED, RESPONSE_CLOSE };

struct response {                       /* what has come from the worker, this attempt */
	char *buf;                      /* an unfinished head */
	size_t len, cap;
	struct http1_scan scan;
	struct http1_body body;
	enum response_framing out;      /* how the client gets the body */
	/* any byte came; head went to the client; body is complete */
	bool any, relayed, ended;
	bool keeps_client; /* the head promised it another request */
	bool keep_alive, sse, encoded, looked_at, paused, first_byte;
	unsigned keep_alive_s;
	uint16_t status;
	uint64_t bytes;                 /* of body, to the client */
	struct relay_watch *watch;
	struct openai_usage usage;
};

struct request {
	struct ingress *in;
	struct client *client;          /* NULL once gone */
	struct request *next;           /* graveyard */
	bool over;
	uint32_t slot_id;
	struct slot *slot;
	enum openai_route route;
	size_t head_len, body_len;      /* in the region; the body follows the head */
	uint32_t id_off, id_len;        /* in the head: the client's X-Request-Id; len 0: none */
	struct decision *decision;
	unsigned candidate;
	uint32_t policy_gen;            /* of the decision */
	struct tenant_of tenant;
	struct charge charge;
	unsigned attempts;
	bool stale;     /* a pooled connection had ended: once more there, on a new one */
	bool elsewhere; /* a second worker was tried */
	struct upstream *to;            /* of the candidate */
	struct upstream_attempt attempt;
	struct upstream_conn *conn;
	bool sent;                      /* all of it */
	mono_ns sent_ns;
	char *head;                     /* as written upstream */
	struct deadline limit;
	struct response response;
	char error[32];                 /* for the journal */
	struct slice rule;              /* borrowed for request_fail(): that refused it */
};

struct decision {
	struct msg_answer answer;       /* slices point into bytes */
	char bytes[];
};

struct request *request_open(struct client *c, const struct http1_request *rq, const char *head,
			     size_t head_len, enum openai_route route, struct slice client_id,
			     const struct tenant_of *tenant, struct reply *ret_why);
	/* client_id lies in the head, or is absent.  NULL: no slot or no arena, or the client's
	 * address has its share of them; what to say. */
struct slice request_client_id(const struct request *r);
	/* Absent: none that is sane.  Good until the request is over. */
int request_body(struct request *r, struct slice data);
	/* 0, -413 too large, -429 more than the address's share of the arena; -EAGAIN: no room, and
	 * nothing was taken. */
void request_ready(struct request *r);          /* body complete: ask */

void request_fail(struct request *r, unsigned status, const char *code, const char *message,
		  unsigned retry_after_s);
	/* Nothing was relayed: the client gets an error.  Ends the request. */
void request_client_gone(struct request *r);
void request_end(struct request *r, unsigned status, bool cancelled);
void requests_cut_removed(struct ingress *in);
	/* Rows have changed: who was removed had timeouts.drain to end what it had begun. */
void requests_bury(struct ingress *in);

/* ask_ops of the process; arg is struct ingress */
extern const struct ask_ops request_ask_ops;

/* --- relay.c --- */
void relay_choose(struct request *r, const struct msg_answer *answer);  /* an applied CHOOSE */
void relay_withdraw(struct request *r);         /* chosen, nothing written: give it back */
void relay_cut(struct request *r, const char *code, const char *text);
	/* Its time is over: the client is told why. */
void relay_stop(struct request *r);             /* drop attempt, connection, timer, buffers */
void relay_client_drained(struct request *r);   /* the client took bytes */
