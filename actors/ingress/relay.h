/* actors/ingress/relay.h -- the two heads that are written anew: to the worker and to the client.
 *
 * Meaning    Heads are never passed through: hop-by-hop fields, the client's credentials and
 *            cookies, and fields that are ours (x-pointsman-*, x-request-id,
 *            x-data-parallel-rank) do not cross.
 * Errors     negative: does not fit, or a value that must not be in a head.
 * Threads    pure functions of their arguments.
 */
#pragma once
#include "actors/ingress/request.h"

bool relay_is_credential(struct slice name);
	/* Of a client, in a field of this name: for no process but ingress. */

struct relay_to_worker {
	const char *authority;          /* Host */
	uint64_t request_id;
	unsigned attempt;               /* from 1: an id is never seen twice by a worker */
	uint16_t rank;                  /* 65535: no rank header */
	uint64_t body_len;
	struct slice api_key;           /* ours for this worker; empty: none */
	const struct tenants *tenants;  /* whose fields stay here; NULL: nobody's */
	struct slice provider;          /* whose request it is, at a provider's socket; absent */
};
ssize_t relay_write_request(char *buf, size_t cap, const struct http1_request *from,
			    const struct relay_to_worker *to);

struct relay_to_client {
	uint64_t request_id;
	struct slice client_id;                 /* the client's X-Request-Id; absent: ours */
	unsigned attempts;
	struct slice worker, model, alias;      /* absent: not said */
	enum response_framing framing;
	uint64_t content_length;                /* RESPONSE_LENGTH */
	bool keep_alive, minor;                 /* minor: the client speaks 1.1 */
	struct tenant_left left;                /* of its tenant's limits */
};
ssize_t relay_write_response(char *buf, size_t cap, const struct http1_response *from,
			     const struct relay_to_client *to);

struct decision *decision_copy(const struct msg_answer *answer);        /* NULL: no memory */

int relay_body_pieces(const struct rec_candidate *c, const char *body, size_t body_len,
		      struct iovec *iov,
		      unsigned max, uint64_t *ret_len);
	/* The body with the candidate's edits, as pieces: how many; -EBADMSG: the edits do not
	 * fit. */
