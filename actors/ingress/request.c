/* actors/ingress/request.c -- see request.h. */
#include "actors/ingress/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/log.h"
#include "actors/ingress/relay.h"
#include "actors/ingress/room.h"

/* --- slots and regions -------------------------------------------------------------------- */

static void
slot_free(struct ingress *in, uint32_t id)
{
	struct ingress_live *live = &in->live[id];
	struct slot *slot = &in->slots.slot[id];
	uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);

	if (live->region)
		arena_free(&in->arena, live->region, live->region_cap);
	in->arena_freed = true;
	live->bucket->slots--;
	live->bucket->arena_bytes -= live->region_cap;
	fair_drop(&in->fair, live->bucket);
	*live = (struct ingress_live){0};
	atomic_store_explicit(&slot->word, slot_word(slot_generation(word), 0, SLOT_FREE, 0),
			      memory_order_release);
	in->free_slot[in->n_free++] = id;
	count_set(&in->actor.process, COUNTER_slots_used, in->slots.capacity - in->n_free);
	count_set(&in->actor.process, COUNTER_arena_used, in->arena.used);
}

static void
slot_begin(struct request *r, const struct peer *peer)
{
	struct ingress *in = r->in;
	struct slot *slot = r->slot;
	uint32_t generation =
		slot_generation(atomic_load_explicit(&slot->word, memory_order_relaxed)) + 1;

	/* Readers go by the word, which says READ only after the rest is there. */
	atomic_store_explicit(&slot->word, slot_word(generation, 0, SLOT_FREE, 0),
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	memset((char *)slot + sizeof slot->word, 0, sizeof *slot - sizeof slot->word);
	slot->request_id = (uint64_t)in->actor.birth.incarnation << 40 | ++in->next_request;
	slot->arrival_ns = ingress_now(in);
	memcpy(slot->peer_addr, peer->addr, sizeof slot->peer_addr);
	slot->peer_port = peer->port;
	slot->peer_flags = (uint8_t)(peer->flags | (r->client->peer.flags & PEER_TLS) |
				     (r->tenant.believed ? PEER_BELIEVED : 0));
	slot->tenant_uid = r->tenant.uid;
	slot->listener = r->client->listener;
	slot->route = (uint16_t)r->route;
	slot->row = ROW_NONE;
	atomic_store_explicit(&slot->word, slot_word(generation, 0, SLOT_READ, 0),
			      memory_order_release);
}

static const struct reply no_slot = {
	.status = 503,
	.code = "overloaded",
	.message = "Too many requests are being served; try again.",
	.retry_after_s = 1,
};
static const struct reply over_share = {
	.status = 429,
	.code = "client_share",
	.message = ROOM_SHARE_TEXT,
	.retry_after_s = 1,
};

/* Policy processes read the arena: what a client proves itself by is crossed out, and so is what it
 * says of itself without being trusted. */
static void
head_to_arena(const struct request *r, const struct http1_head *parsed, const char *head,
	      size_t len, char *ret)
{
	const struct tenants *tenants = r->in->credentials->tenants;

	memcpy(ret, head, len);
	for (unsigned i = 0; i < parsed->n_headers; i++) {
		const struct http1_header *h = &parsed->headers[i];

		if (h->value.len > 0 &&
		    (relay_is_credential(h->name) ||
		     (!r->tenant.believed && tenants_is_identity(tenants, h->name))))
			memset(ret + (h->value.p - head), '*', h->value.len);
	}
}

struct request *
request_open(struct client *c, const struct http1_request *rq, const char *head, size_t head_len,
	     enum openai_route route, struct slice client_id, const struct tenant_of *tenant,
	     struct reply *ret_why)
{
	struct ingress *in = c->in;
	struct fair_bucket *bucket;
	struct ingress_live *live;
	struct peer peer = c->peer;
	struct request *r;
	uint32_t id;

	bucket = room_bucket(c, &rq->head, &peer);
	if (!bucket || !room_slot(in, bucket)) {
		fair_drop(&in->fair, bucket);
		*ret_why = over_share;
		return NULL;
	}
	*ret_why = no_slot;
	if (in->n_free == 0)
		ingress_count(in, COUNTER_slots_full, 1);
	r = in->n_free > 0 ? calloc(1, sizeof *r) : NULL;
	if (!r) {
		fair_drop(&in->fair, bucket);
		return NULL;
	}
	id = in->free_slot[in->n_free - 1];
	live = &in->live[id];
	live->region = arena_alloc(&in->arena, head_len, &live->region_cap);
	if (live->region == 0) {
		ingress_count(in, COUNTER_arena_full, 1);
		fair_drop(&in->fair, bucket);
		free(r);
		return NULL;
	}
	in->n_free--;
	live->request = r;
	live->bucket = bucket;
	bucket->slots++;
	bucket->arena_bytes += live->region_cap;
	*r = (struct request){
		.in = in,
		.client = c,
		.slot_id = id,
		.slot = &in->slots.slot[id],
		.route = route,
		.head_len = head_len,
		.tenant = *tenant,
		.response.usage = {OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
				   OPENAI_TOKENS_UNKNOWN},
	};
	r->charge.slot = r->slot;
	if (client_id.p) {
		r->id_off = (uint32_t)(client_id.p - head);
		r->id_len = (uint32_t)client_id.len;
	}
	slot_begin(r, &peer);
	r->slot->method = (uint8_t)rq->method;
	head_to_arena(r, &rq->head, head, head_len,
		      arena_at(&in->arena, live->region, head_len));
	ingress_count(in, COUNTER_requests, 1);
	count_set(&in->actor.process, COUNTER_slots_used, in->slots.capacity - in->n_free);
	if (in->retry_milli < INGRESS_RETRY_BURST)
		in->retry_milli += INGRESS_RETRY_SHARE;
	return r;
}

struct slice
request_client_id(const struct request *r)
{
	const char *head = arena_at(&r->in->arena, r->in->live[r->slot_id].region, r->head_len);

	return r->id_len > 0 && head ? (struct slice){head + r->id_off, r->id_len}
				     : (struct slice){NULL, 0};
}

/* The region grows by copy, as bytes come: what a client announces is not believed. */
static int
grow(struct request *r, size_t want)
{
	struct ingress_live *live = &r->in->live[r->slot_id];
	size_t cap, used = r->head_len + r->body_len;
	uint64_t bigger;

	if (want <= live->region_cap)
		return 0;
	if (want > 1u << ARENA_MAX_SHIFT)
		return -413;            /* no wait would help */
	if (!room_bytes(r->in, live, want))
		return -429;
	bigger = arena_alloc(&r->in->arena, want, &cap);
	if (bigger == 0)
		return -EAGAIN;
	memcpy(arena_at(&r->in->arena, bigger, used), arena_at(&r->in->arena, live->region, used),
	       used);
	arena_free(&r->in->arena, live->region, live->region_cap);
	r->in->arena_freed = true;
	live->bucket->arena_bytes += cap - live->region_cap;
	live->region = bigger;
	live->region_cap = cap;
	count_set(&r->in->actor.process, COUNTER_arena_used, r->in->arena.used);
	return 0;
}

int
request_body(struct request *r, struct slice data)
{
	struct ingress_live *live = &r->in->live[r->slot_id];
	size_t used = r->head_len + r->body_len;
	int error;

	if (used - r->head_len + data.len > ingress_settings(r->in)->limits.body_bytes)
		return -413;
	error = grow(r, used + data.len);
	if (error < 0)
		return error;
	memcpy((char *)arena_at(&r->in->arena, live->region, used + data.len) + used, data.p,
	       data.len);
	r->body_len += data.len;
	ingress_count(r->in, COUNTER_bytes_in, data.len);
	return 0;
}

static void
poison(struct request *r)
{
	poisons_add(&r->in->poisons, r->slot->body_hash, ingress_now(r->in));
	ingress_count(r->in, COUNTER_requests_poisoned, 1);
	log_error("a request was unanswered in %u deaths of policy processes: refused for 60 s "
		  "request=%016llx body_hash=%016llx",
		  slot_deaths(atomic_load_explicit(&r->slot->word, memory_order_relaxed)),
		  (unsigned long long)r->slot->request_id,
		  (unsigned long long)r->slot->body_hash);
}

void
request_ready(struct request *r)
{
	struct ingress_live *live = &r->in->live[r->slot_id];
	struct slot *slot = r->slot;

	slot->head_off = live->region;
	slot->head_len = (uint32_t)r->head_len;
	slot->body_off = live->region + r->head_len;
	slot->body_len = (uint32_t)r->body_len;
	/* What has no body is told apart by its head. */
	slot->body_hash = r->body_len > 0
		? XXH3_64bits(arena_at(&r->in->arena, slot->body_off, r->body_len), r->body_len)
		: XXH3_64bits(arena_at(&r->in->arena, slot->head_off, r->head_len), r->head_len);
	count_set(&r->in->actor.process, COUNTER_arena_used, r->in->arena.used);
	if (poisons_has(&r->in->poisons, slot->body_hash, ingress_now(r->in))) {
		ingress_count(r->in, COUNTER_requests_poisoned, 1);
		request_fail(
			r, 500, "policy_crash",
			"This request made the policy process fail before and is refused for now.",
			0);
		return;
	}
	if (ask_full(&r->in->ask)) {
		ingress_count(r->in, COUNTER_questions_full, 1);
		request_fail(r, 503, "questions_full",
			     "Too many requests wait for a decision; try again.", 1);
		return;
	}
	ask_put(&r->in->ask, r->slot_id, ingress_now(r->in));
}

/* --- the end ------------------------------------------------------------------------------ */

static uint32_t
micros(mono_ns from, mono_ns to)
{
	if (from == 0 || to < from)
		return UINT32_MAX;
	return (to - from) / 1000 < UINT32_MAX ? (uint32_t)((to - from) / 1000) : UINT32_MAX - 1;
}

static void
write_outcome(struct request *r, unsigned status, bool cancelled)
{
	const struct slot *slot = r->slot;
	const struct response *a = &r->response;
	uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
	struct journal_record head = {
		.kind = JOURNAL_OUTCOME,
		.config_hash = r->in->manifest->hash,
		.request_id = slot->request_id,
		.when = clock_wall(),
		.policy_gen = slot->policy_gen,
		.policy_inc = slot->policy_inc,
		.ask = slot_ask(word),
	};
	/* Without streaming the first byte is the last one: it says nothing of prefill.  Nor does
	 * that of an answer which was kept. */
	bool computed = r->route != OPENAI_RESPONSE && r->route != OPENAI_RESPONSE_CANCEL;
	struct journal_outcome o = {
		.row = slot->row,
		.status = (uint16_t)status,
		.attempts = (uint8_t)r->attempts,
		.cancelled = cancelled,
		.row_gen = slot->row_gen,
		.ttft_us = a->sse && computed ? micros(slot->dispatched_ns, slot->first_byte_ns)
					      : UINT32_MAX,
		.e2e_us = a->ended ? micros(slot->dispatched_ns, slot->last_byte_ns) : UINT32_MAX,
		.queue_us = micros(slot->arrival_ns, slot->dispatched_ns),
		.prompt = computed ? a->usage.prompt_tokens : OPENAI_TOKENS_UNKNOWN,
		.cached = computed ? a->usage.cached_tokens : OPENAI_TOKENS_UNKNOWN,
		.completion = computed ? a->usage.completion_tokens : OPENAI_TOKENS_UNKNOWN,
		.bytes_out = a->bytes,
		.our_prompt = slot->prompt,
		.predicted_us = UINT32_MAX,
	};

	if (r->decision && r->candidate < r->decision->answer.n_candidates) {
		const struct rec_candidate *c = &r->decision->answer.candidates[r->candidate];

		o.source = r->decision->answer.source;
		o.our_cached = c->cached;
		o.pending = c->pending;
		o.context = c->context;
		o.decoding = c->decoding;
		o.predicted_us = c->ttft;
	}
	memcpy(o.error, r->error, sizeof o.error);
	struct {
		struct journal_client client;
		char id[JOURNAL_CLIENT_ID_MAX];
	} more = {.client = {.port = slot->peer_port, .flags = slot->peer_flags}};
	struct slice id = request_client_id(r);

	memcpy(more.client.addr, slot->peer_addr, sizeof more.client.addr);
	if (id.len > 0 && id.len <= sizeof more.id) {
		more.client.id_len = (uint8_t)id.len;
		memcpy(more.id, id.p, id.len);
	}
	journal_append(&r->in->actor.process.journal, &head, &o, sizeof o, &more,
		       sizeof more.client + more.client.id_len);
}

/* The engine's count of cached tokens proves that the first blocks of this prompt are there. */
static void
write_proof(struct request *r)
{
	uint32_t cached = r->response.usage.cached_tokens;
	const struct rec_candidate *c;

	if (!r->decision || cached == OPENAI_TOKENS_UNKNOWN || cached == 0)
		return;
	c = &r->decision->answer.candidates[r->candidate];
	if (c->root < r->decision->answer.n_roots)
		notes_proof(&r->in->notes, c->row, c->row_gen, &r->decision->answer.roots[c->root],
			    cached, ingress_now(r->in));
}

static void
count_outcome(struct request *r, unsigned status, bool cancelled)
{
	enum counter which = COUNTER_requests_ok;

	if (cancelled)
		which = COUNTER_requests_cancelled;
	else if (status >= 500 || (r->response.relayed && !r->response.ended))
		which = COUNTER_requests_failed;
	else if (status >= 400)
		which = COUNTER_requests_client_error;
	ingress_count(r->in, which, 1);
}

void
request_end(struct request *r, unsigned status, bool cancelled)
{
	struct ingress *in = r->in;

	if (r->over)
		return;
	r->over = true;
	r->slot->last_byte_ns = ingress_now(in);
	if (r->response.watch)
		r->response.usage = r->response.watch->usage;
	write_outcome(r, status, cancelled);
	if (r->response.ended)
		write_proof(r);
	count_outcome(r, status, cancelled);
	tenant_leave(r, cancelled);
	relay_stop(r);
	ledger_release(&in->ledger, &r->charge);
	free(r->decision);
	r->decision = NULL;
	if (r->client)
		r->client->request = NULL;
	r->client = NULL;
	in->live[r->slot_id].request = NULL;
	r->next = in->dead_requests;
	in->dead_requests = r;
	if (in->ask.entry[r->slot_id].state == ASK_NONE)
		slot_free(in, r->slot_id); /* never asked: nobody reads its bytes */
	else
		ask_end(&in->ask, r->slot_id, ingress_now(in));
}

void
requests_cut_removed(struct ingress *in)
{
	struct client *next;

	for (struct client *c = in->clients; c; c = next) {
		const struct request *r = c->request;
		const struct row *row;

		next = c->next;
		if (!r || r->over || r->slot->phase == PHASE_NONE ||
		    r->slot->row >= in->rows.capacity)
			continue;
		row = &in->rows.row[r->slot->row];
		if (atomic_load_explicit(&row->row_gen, memory_order_acquire) ==
			    r->slot->row_gen &&
		    atomic_load_explicit(&row->intent, memory_order_acquire) == INTENT_REMOVE)
			relay_cut(c->request, "worker_removed",
				  "The worker was taken out of service, and is waited for no "
				  "longer.");
	}
}

void
requests_bury(struct ingress *in)
{
	struct request *next;

	for (struct request *r = in->dead_requests; r; r = next) {
		next = r->next;
		free(r);
	}
	in->dead_requests = NULL;
}

void
request_fail(struct request *r, unsigned status, const char *code, const char *message,
	     unsigned retry_after_s)
{
	struct client *c = r->client;
	struct reply reply = {.status = status,
			      .code = code,
			      .message = message,
			      .retry_after_s = retry_after_s,
			      .request_id = r->slot->request_id,
			      .client_id = request_client_id(r),
			      .attempts = r->attempts,
			      .left = tenant_left(r->in, &r->tenant),
			      .rule = r->rule};

	snprintf(r->error, sizeof r->error, "%s", code ? code : "");
	if (c)
		c->request = NULL;
	r->client = NULL;
	/* The texts may lie in the decision or in the frame of the answer: reply first. */
	if (c)
		client_reply_error(c, &reply, false);
	request_end(r, status, false);
}

void
request_client_gone(struct request *r)
{
	r->client = NULL;
	snprintf(r->error, sizeof r->error, "client_gone");
	request_end(r, 499, true);
}

/* --- what ask wants done ------------------------------------------------------------------- */

static int
op_send(void *arg, uint32_t gen, uint32_t inc, enum msg_id id, const void *msg)
{
	struct ingress *in = arg;

	return router_send(&in->router, gen, inc, id, msg);
}

static void
op_withdraw(void *arg, uint32_t slot)
{
	struct ingress *in = arg;

	if (in->live[slot].request)
		relay_withdraw(in->live[slot].request);
}

static void
reject(struct request *r, const struct msg_answer *a)
{
	unsigned status = a->status >= 400 && a->status < 600 ? a->status : 503;
	char code[64], text[1024];

	snprintf(code, sizeof code, "%.*s", (int)a->code.len, a->code.p ? a->code.p : "");
	snprintf(text, sizeof text, "%.*s", (int)a->text.len, a->text.p ? a->text.p : "");
	if (r->tenant.row != LIMIT_NO_ROW)
		limit_count(&r->in->use[r->tenant.row].refused[LIMIT_BY_RULE], 1);
	if (strcmp(code, "refused_by_rule") == 0)
		r->rule = a->rule;
	request_fail(r, status, code[0] ? code : NULL, text, a->retry_after);
}

static void
op_apply(void *arg, uint32_t id, const struct msg_answer *a)
{
	struct ingress *in = arg;
	struct request *r = in->live[id].request;

	if (!r)
		return;
	r->slot->tenant = a->tenant;
	r->slot->priority = a->priority;
	r->slot->policy_gen = a->policy_gen;
	r->slot->policy_inc = a->policy_inc;
	r->slot->prompt = a->prompt;
	r->slot->chosen_ns = ingress_now(in);
	if (a->verdict != VERDICT_CHOOSE || a->n_candidates == 0)
		reject(r, a);
	else if (tenant_reserve(r, a->prompt, a->max_tokens))
		relay_choose(r, a);
}

static void
op_fail(void *arg, uint32_t id, enum ask_failure why)
{
	struct ingress *in = arg;
	struct request *r = in->live[id].request;

	switch (why) {
	case ASK_FAIL_ABSENT:
		ingress_count(in, COUNTER_policy_absent, 1);
		request_fail(r, 503, "policy_absent", "No policy process is running; try again.",
			     1);
		break;
	case ASK_FAIL_TIMEOUT:
		ingress_count(in, COUNTER_policy_timeouts, 1);
		request_fail(r, 503, "policy_timeout",
			     "The policy process did not answer in time; try again.", 1);
		break;
	case ASK_FAIL_CRASH:
		poison(r);
		request_fail(r, 500, "policy_crash", "The policy process failed on this request.",
			     0);
		break;
	}
}

static void
op_released(void *arg, uint32_t slot)
{
	slot_free(arg, slot);
}

static void
op_tell(void *arg, enum msg_id id, const void *msg)
{
	ingress_tell(arg, id, msg);
}

const struct ask_ops request_ask_ops = {
	.send = op_send,
	.tell = op_tell,
	.withdraw = op_withdraw,
	.apply = op_apply,
	.fail = op_fail,
	.released = op_released,
};
