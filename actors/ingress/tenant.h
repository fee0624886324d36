/* actors/ingress/tenant.h -- whose request it is, what it may still do, what it has used.
 *
 * Meaning    tenant_admit() before anything is taken: who asks (common/tenants), and whether that
 *            tenant may ask at all now.  tenant_enter() when the request has a slot: it is in
 *            flight and counted.  tenant_reserve() when its answer is applied: its tokens.
 *            tenant_leave() at its end, on every path: what was reserved is settled with what
 *            was used.
 * Once       what a slot has reserved it keeps when it is asked about again; limit.h says what a
 *            death leaves.
 * Tokens     of the prompt as policy counted them, else a quarter of the body's bytes; the worker's
 *            own count settles it.  Of the completion max_tokens, or a minute's worth if that is
 *            less; without it nothing is reserved, and what came is charged.  Where no answer says
 *            how many came, the events of a stream are counted and the request is "estimated".
 * Refused    429 with Retry-After where waiting helps; 401, 403; never a word of another tenant.
 * Threads    the loop's.
 * Cost       a tenant's request some 0.5 us and six words that other ingresses write, too.
 */
#pragma once
#include "actors/common/tenants/tenants.h"
#include "proto/http1.h"
#include "shm/limit.h"
#include "shm/slot.h"

struct client;
struct ingress;
struct reply;
struct request;

/* Of one request; row LIMIT_NO_ROW: it is nobody's, nothing else counts. */
struct tenant_of {
	uint32_t row;
	uint64_t uid;                   /* for the slot */
	uint32_t tenant;                /* of the manifest in force then; MANIFEST_NONE: nobody */
	bool believed;                  /* the connection's other end is a trusted peer */
	bool entered, estimated;
	struct manifest_limits limits;  /* as they were when it came */
	uint64_t prompt, completion;    /* tokens reserved */
};

bool tenant_admit(const struct client *c, const struct http1_head *head, struct tenant_of *ret,
		  struct reply *ret_why);
	/* False: say *ret_why. */
bool tenant_enter(struct request *r);
	/* False: it was refused, answered and is over. */
bool tenant_reserve(struct request *r, uint32_t prompt_tokens, uint32_t max_tokens);
	/* Likewise.  prompt 0: not known; max_tokens UINT32_MAX: not said. */
void tenant_leave(struct request *r, bool cancelled);

/* ---- what clients are told of it ---- */

struct tenant_left {                    /* limit 0: there is none */
	struct limit_left requests, tokens;
};
struct tenant_left tenant_left(const struct ingress *in, const struct tenant_of *t);
void tenant_write(struct http1_writer *w, const struct tenant_left *left);
	/* x-ratelimit-{limit,remaining,reset}-{requests,tokens}, as OpenAI writes them. */
