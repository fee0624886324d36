/* actors/ingress/tenant.c -- see tenant.h. */
#include "actors/ingress/tenant.h"

#include <string.h>

#include "actors/ingress/client.h"
#include "actors/ingress/credentials.h"
#include "actors/ingress/request.h"

#define S_NS 1000000000ull
#define PRICE_PER 1000000u              /* tokens that a price is for */
#define BYTES_PER_TOKEN 4u              /* where nobody has counted */

_Static_assert((int)LIMIT_KINDS <= (int)SLOT_RESERVES, "a slot reserves of each rate");
_Static_assert(LIMIT_MONEY == 1000000u, "as the manifest has money: millionths");

/* ---- refusals ---- */

struct refusal {
	unsigned status;
	const char *code, *message;
};

static const struct refusal refusals[LIMIT_REFUSALS] = {
	[LIMIT_BY_REQUESTS] = {429, "tenant_requests_per_minute",
			       "Your requests per minute are used up; try again later."},
	[LIMIT_BY_PROMPT] = {429, "tenant_prompt_tokens_per_minute",
			     "Your prompt tokens per minute do not allow this request now; try "
			     "again later."},
	[LIMIT_BY_COMPLETION] = {429, "tenant_completion_tokens_per_minute",
				 "Your completion tokens per minute do not allow this request "
				 "now; try again later."},
	[LIMIT_BY_CONCURRENT] = {429, "tenant_concurrent",
				 "You have as many requests in flight as you may; try again when "
				 "one is over."},
	[LIMIT_BY_BUDGET] = {429, "tenant_budget",
			     "Your budget of this day is spent; it begins anew at midnight UTC."},
	[LIMIT_BY_BLOCK] = {403, "tenant_blocked", "Your access is blocked."},
};

static const char too_large[] =
	"This request has more tokens than you may use in a minute: it is never let in.";

static unsigned
seconds(uint64_t ns)
{
	if (ns == LIMIT_NEVER)
		return 0;
	return ns / S_NS + 1 < UINT32_MAX ? (unsigned)((ns + S_NS - 1) / S_NS) : UINT32_MAX;
}

static struct reply
refusal(struct ingress *in, const struct tenant_of *t, enum limit_refusal why, uint64_t wait_ns)
{
	const struct refusal *f = &refusals[why];

	limit_count(&in->use[t->row].refused[why], 1);
	ingress_count(in, COUNTER_tenant_refused, 1);
	return (struct reply){.status = f->status, .code = f->code,
			      .message = wait_ns == LIMIT_NEVER ? too_large : f->message,
			      .retry_after_s = seconds(wait_ns), .left = tenant_left(in, t)};
}

/* ---- before the request has anything ---- */

static bool
identify(const struct client *c, const struct http1_head *head, struct tenant_of *ret,
	 struct tenants_who *who, struct reply *ret_why)
{
	tenants_find(c->in->credentials->tenants, head, ret->believed, clock_wall() / S_NS, who);
	switch (who->result) {
	case TENANTS_FOUND:
	case TENANTS_NOBODY:
		return true;
	case TENANTS_TWICE:
		*ret_why = (struct reply){.status = 400, .code = "ambiguous_credentials",
					  .message = who->why};
		break;
	case TENANTS_MISSING:
	case TENANTS_WRONG:
		*ret_why = (struct reply){.status = 401, .code = "invalid_api_key",
					  .message = who->why, .challenge = true};
		break;
	}
	ingress_count(c->in, COUNTER_requests_unidentified, 1);
	return false;
}

static uint64_t
rate_of(const struct manifest_limits *l, enum limit_kind kind)
{
	switch (kind) {
	case LIMIT_REQUESTS:
		return l->requests_per_minute;
	case LIMIT_PROMPT:
		return l->prompt_tokens_per_minute;
	case LIMIT_COMPLETION:
		return l->completion_tokens_per_minute;
	case LIMIT_KINDS:
		break;
	}
	return 0;
}

/* What is known before anything is read: nothing is taken for it. */
static bool
may_ask(struct ingress *in, const struct tenant_of *t, bool blocked, struct reply *ret_why)
{
	struct limit_tenant *words = &in->limits.tenant[t->row];
	wall_ns wall = clock_wall();
	mono_ns now = ingress_now(in);
	uint64_t wait;

	if (blocked || atomic_load_explicit(&words->blocked, memory_order_relaxed)) {
		*ret_why = refusal(in, t, LIMIT_BY_BLOCK, 0);
		return false;
	}
	if (t->limits.budget_per_day &&
	    limit_spent(words, limit_day(wall)) >= t->limits.budget_per_day) {
		*ret_why = refusal(in, t, LIMIT_BY_BUDGET, limit_day_left_ns(wall));
		return false;
	}
	for (unsigned k = 0; k < LIMIT_KINDS; k++) {
		uint64_t rate = rate_of(&t->limits, (enum limit_kind)k);

		if (rate && !limit_has(&words->full[k], rate, 1, now, &wait)) {
			*ret_why = refusal(in, t, (enum limit_refusal)(LIMIT_BY_REQUESTS + k),
					   wait);
			return false;
		}
	}
	return true;
}

bool
tenant_admit(const struct client *c, const struct http1_head *head, struct tenant_of *ret,
	     struct reply *ret_why)
{
	struct ingress *in = c->in;
	const struct manifest_tenant *tenant;
	struct tenants_who who;

	*ret = (struct tenant_of){.row = LIMIT_NO_ROW, .tenant = MANIFEST_NONE,
				  .believed = peer_trusted(ingress_settings(in), &c->peer)};
	if (!tenants_any(in->credentials->tenants))
		return true;
	if (!identify(c, head, ret, &who, ret_why))
		return false;
	if (who.result == TENANTS_NOBODY || who.tenant >= in->manifest->n_tenants)
		return true;
	ret->tenant = who.tenant;
	tenant = &in->manifest->tenants[who.tenant];
	ret->uid = limit_uid(tenant->name, strlen(tenant->name));
	ret->row = limits_find(&in->limits, ret->uid);
	ret->limits = tenant->limits;
	if (ret->row == LIMIT_NO_ROW) { /* never uncounted instead */
		*ret_why = (struct reply){.status = 503, .code = "tenants_full",
					  .message = "There is no room to count your requests."};
		return false;
	}
	return may_ask(in, ret, tenant->blocked, ret_why);
}

/* ---- in flight ---- */

static void
refuse(struct request *r, enum limit_refusal why, uint64_t wait_ns)
{
	struct reply say = refusal(r->in, &r->tenant, why, wait_ns);

	request_fail(r, say.status, say.code, say.message, say.retry_after_s);
}

bool
tenant_enter(struct request *r)
{
	struct tenant_of *t = &r->tenant;
	struct ingress *in = r->in;
	uint64_t most = t->limits.concurrent ? t->limits.concurrent : UINT64_MAX, wait;

	if (t->row == LIMIT_NO_ROW)
		return true;
	if (!limit_enter(&in->limits, in->use, t->row, most)) {
		refuse(r, LIMIT_BY_CONCURRENT, S_NS);
		return false;
	}
	t->entered = true;
	if (!limit_reserve(&in->limits, r->slot, t->row, LIMIT_REQUESTS,
			   t->limits.requests_per_minute, 1, ingress_now(in), &wait)) {
		refuse(r, LIMIT_BY_REQUESTS, wait);     /* another ingress was faster */
		return false;
	}
	limit_count(&in->use[t->row].requests, 1);
	return true;
}

bool
tenant_reserve(struct request *r, uint32_t prompt_tokens, uint32_t max_tokens)
{
	struct tenant_of *t = &r->tenant;
	struct ingress *in = r->in;
	uint64_t prompt = prompt_tokens ? prompt_tokens : r->body_len / BYTES_PER_TOKEN + 1;
	uint64_t rate = t->limits.completion_tokens_per_minute;
	uint64_t completion = max_tokens == UINT32_MAX ? 0 : max_tokens, wait;

	if (t->row == LIMIT_NO_ROW)
		return true;
	if (atomic_load_explicit(&in->limits.tenant[t->row].blocked, memory_order_relaxed)) {
		refuse(r, LIMIT_BY_BLOCK, 0);
		return false;
	}
	if (!limit_reserve(&in->limits, r->slot, t->row, LIMIT_PROMPT,
			   t->limits.prompt_tokens_per_minute, prompt, ingress_now(in), &wait)) {
		refuse(r, LIMIT_BY_PROMPT, wait);
		return false;
	}
	t->prompt = prompt;
	if (rate && completion > rate)
		completion = rate;
	if (!limit_reserve(&in->limits, r->slot, t->row, LIMIT_COMPLETION, rate, completion,
			   ingress_now(in), &wait)) {
		refuse(r, LIMIT_BY_COMPLETION, wait);   /* its end gives the prompt back */
		return false;
	}
	t->completion = completion;
	return true;
}

/* ---- the end ---- */

struct used {
	uint64_t prompt, cached, completion;
};

/* The worker's own words, else what can be counted. */
static struct used
used_by(struct request *r, bool cancelled)
{
	const struct response *a = &r->response;
	struct used u = {0};
	bool stored = r->route == OPENAI_RESPONSE || r->route == OPENAI_RESPONSE_CANCEL;

	if (stored || r->slot->dispatched_ns == 0 || a->status >= 400 ||
	    (!a->relayed && !cancelled))
		return u;               /* nobody has worked for it, as far as is known */
	if (a->usage.cached_tokens != OPENAI_TOKENS_UNKNOWN)
		u.cached = a->usage.cached_tokens;
	if (a->usage.prompt_tokens != OPENAI_TOKENS_UNKNOWN) {
		u.prompt = a->usage.prompt_tokens;
	} else {
		u.prompt = r->tenant.prompt;
		r->tenant.estimated = true;
	}
	if (a->usage.completion_tokens != OPENAI_TOKENS_UNKNOWN)
		u.completion = a->usage.completion_tokens;
	else if (a->sse && a->watch)
		u.completion = a->watch->sse.events - (a->watch->done ? 1 : 0);
	else if (r->tenant.estimated)
		u.completion = a->bytes / BYTES_PER_TOKEN;
	if (u.cached > u.prompt)
		u.cached = u.prompt;
	return u;
}

/* What the row that served it asks for; workers of our own cost nothing. */
static uint64_t
cost_of(const struct request *r, const struct used *u)
{
	const struct manifest *m = r->in->manifest;
	unsigned __int128 cost;
	uint64_t uid;

	if (r->slot->row >= r->in->rows.capacity)
		return 0;
	uid = r->in->rows.row[r->slot->row].uid;
	for (uint32_t p = 0; p < m->n_providers; p++)
		for (uint32_t i = 0; i < m->providers[p].n_models; i++) {
			const struct manifest_price *price = &m->providers[p].models[i].price;
			uint32_t member = m->providers[p].first_member + i;

			if (member >= m->n_members || m->members[member].uid != uid)
				continue;
			cost = (unsigned __int128)(u->prompt - u->cached) * price->input +
			       (unsigned __int128)u->cached * price->cached_input +
			       (unsigned __int128)u->completion * price->output;
			return (uint64_t)((cost + PRICE_PER - 1) / PRICE_PER);
		}
	return 0;
}

static void
count(struct request *r, const struct used *u, uint64_t cost)
{
	struct limit_use *use = &r->in->use[r->tenant.row];
	const struct response *a = &r->response;

	limit_count(&use->prompt, u->prompt);
	limit_count(&use->completion, u->completion);
	limit_count(&use->cached, u->cached);
	limit_count(&use->estimated, r->tenant.estimated);
	limit_count(&use->cost, cost);
	if (a->sse && a->first_byte && r->slot->first_byte_ns >= r->slot->arrival_ns)
		limit_ttft(use, (r->slot->first_byte_ns - r->slot->arrival_ns) / 1000);
}

void
tenant_leave(struct request *r, bool cancelled)
{
	const struct tenant_of *t = &r->tenant;
	struct ingress *in = r->in;
	mono_ns now = ingress_now(in);
	struct used u;
	uint64_t cost;

	if (t->row == LIMIT_NO_ROW)
		return;
	u = used_by(r, cancelled);
	cost = cost_of(r, &u);
	limit_return(&in->limits, r->slot, LIMIT_REQUESTS, t->limits.requests_per_minute, 1, now);
	limit_return(&in->limits, r->slot, LIMIT_PROMPT, t->limits.prompt_tokens_per_minute,
		     u.prompt, now);
	limit_return(&in->limits, r->slot, LIMIT_COMPLETION,
		     t->limits.completion_tokens_per_minute, u.completion, now);
	if (cost)
		limit_spend(&in->limits.tenant[t->row], limit_day(clock_wall()), cost);
	if (!t->entered)
		return;
	count(r, &u, cost);
	limit_leave(in->use, t->row);
	r->tenant.row = LIMIT_NO_ROW;   /* once */
}

struct tenant_left
tenant_left(const struct ingress *in, const struct tenant_of *t)
{
	struct tenant_left left = {0};
	mono_ns now = ingress_now(in);

	if (t->row == LIMIT_NO_ROW)
		return left;
	if (t->limits.requests_per_minute)
		left.requests = limit_look(&in->limits.tenant[t->row].full[LIMIT_REQUESTS],
					   t->limits.requests_per_minute, now);
	if (t->limits.prompt_tokens_per_minute)
		left.tokens = limit_look(&in->limits.tenant[t->row].full[LIMIT_PROMPT],
					 t->limits.prompt_tokens_per_minute, now);
	return left;
}
