/* actors/ingress/request.c -- see request.h. */
#include "actors/ingress/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/log.h"

#define POISON_NS 60000000000ull /* a body that killed a policy process twice is refused so long   \
				  */

/* --- slots and regions -------------------------------------------------------------------- */

static void
slot_free(struct ingress *in, uint32_t id)
{
	struct ingress_live *live = &in->live[id];
	struct slot *slot = &in->slots.slot[id];
	uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);

	if (live->region)
		arena_free(&in->arena, live->region, live->region_cap);
	*live = (struct ingress_live){0};
	atomic_store_explicit(&slot->word, slot_word(slot_generation(word), 0, SLOT_FREE, 0),
			      memory_order_release);
	in->free_slot[in->n_free++] = id;
	count_set(&in->actor.process, COUNTER_slots_used, in->slots.capacity - in->n_free);
	count_set(&in->actor.process, COUNTER_arena_used, in->arena.used);
}

static void
slot_begin(struct request *r)
{
	struct ingress *in = r->in;
	struct slot *slot = r->slot;
	struct client *c = r->client;
	uint32_t generation =
		slot_generation(atomic_load_explicit(&slot->word, memory_order_relaxed)) + 1;

	/* Readers go by the word, which says READ only after the rest is there. */
	atomic_store_explicit(&slot->word, slot_word(generation, 0, SLOT_FREE, 0),
			      memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	memset((char *)slot + sizeof slot->word, 0, sizeof *slot - sizeof slot->word);
	slot->request_id = (uint64_t)in->actor.birth.incarnation << 40 | ++in->next_request;
	slot->arrival_ns = ingress_now(in);
	memcpy(slot->peer_addr, c->peer_addr, sizeof slot->peer_addr);
	slot->peer_port = c->peer_port;
	slot->listener = c->listener;
	slot->route = (uint16_t)r->route;
	slot->row = ROW_NONE;
	atomic_store_explicit(&slot->word, slot_word(generation, 0, SLOT_READ, 0),
			      memory_order_release);
}

struct request *
request_open(struct client *c, const struct http1_request *rq, const char *head, size_t head_len,
	     enum openai_route route, unsigned *ret_status)
{
	struct ingress *in = c->in;
	struct ingress_live *live;
	struct request *r;
	uint32_t id;

	*ret_status = 503;
	if (in->n_free == 0)
		return NULL;
	r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	id = in->free_slot[in->n_free - 1];
	live = &in->live[id];
	live->region = arena_alloc(&in->arena, head_len, &live->region_cap);
	if (live->region == 0) {
		ingress_count(in, COUNTER_arena_full, 1);
		free(r);
		return NULL;
	}
	in->n_free--;
	live->request = r;
	*r = (struct request){
		.in = in,
		.client = c,
		.slot_id = id,
		.slot = &in->slots.slot[id],
		.route = route,
		.head_len = head_len,
		.response.usage = {OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
				   OPENAI_TOKENS_UNKNOWN},
	};
	r->charge.slot = r->slot;
	slot_begin(r);
	r->slot->method = (uint8_t)rq->method;
	memcpy(arena_at(&in->arena, live->region, head_len), head, head_len);
	ingress_count(in, COUNTER_requests, 1);
	count_set(&in->actor.process, COUNTER_slots_used, in->slots.capacity - in->n_free);
	if (in->retry_milli < INGRESS_RETRY_BURST)
		in->retry_milli += INGRESS_RETRY_SHARE;
	return r;
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
	bigger = arena_alloc(&r->in->arena, want, &cap);
	if (bigger == 0) {
		ingress_count(r->in, COUNTER_arena_full, 1);
		return -503;
	}
	memcpy(arena_at(&r->in->arena, bigger, used), arena_at(&r->in->arena, live->region, used),
	       used);
	arena_free(&r->in->arena, live->region, live->region_cap);
	live->region = bigger;
	live->region_cap = cap;
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

static bool
poisoned(const struct request *r)
{
	const struct poison *ring = r->in->column.head->poison;
	mono_ns now = ingress_now(r->in);

	for (unsigned i = 0; i < POISON_RING; i++)
		if (atomic_load_explicit(&ring[i].body_hash, memory_order_acquire) ==
			    r->slot->body_hash &&
		    atomic_load_explicit(&ring[i].until_ns, memory_order_relaxed) > now)
			return true;
	return false;
}

static void
poison(struct request *r)
{
	struct poison *ring = r->in->column.head->poison, *to = &ring[0];

	for (unsigned i = 1; i < POISON_RING; i++)
		if (atomic_load_explicit(&ring[i].until_ns, memory_order_relaxed) <
		    atomic_load_explicit(&to->until_ns, memory_order_relaxed))
			to = &ring[i];
	atomic_store_explicit(&to->until_ns, ingress_now(r->in) + POISON_NS, memory_order_relaxed);
	atomic_store_explicit(&to->body_hash, r->slot->body_hash, memory_order_release);
	log_error("a request was unanswered in %u deaths of policy processes: refused for 60 s "
		  "request=%016llx body_hash=%016llx",
		  ASK_DEATHS_MAX, (unsigned long long)r->slot->request_id,
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
	slot->body_hash =
		XXH3_64bits(arena_at(&r->in->arena, slot->body_off, r->body_len), r->body_len);
	count_set(&r->in->actor.process, COUNTER_arena_used, r->in->arena.used);
	if (poisoned(r)) {
		request_fail(
			r, 500, "policy_crash",
			"This request made the policy process fail before and is refused for now.",
			0);
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
	struct journal_outcome o = {
		.row = slot->row,
		.status = (uint16_t)status,
		.attempts = (uint8_t)r->attempts,
		.cancelled = cancelled,
		.row_gen = slot->row_gen,
		/* Without streaming the first byte is the last one: it says nothing of prefill. */
		.ttft_us = a->sse ? micros(slot->dispatched_ns, slot->first_byte_ns) : UINT32_MAX,
		.e2e_us = a->ended ? micros(slot->dispatched_ns, slot->last_byte_ns) : UINT32_MAX,
		.queue_us = micros(slot->arrival_ns, slot->dispatched_ns),
		.prompt = a->usage.prompt_tokens,
		.cached = a->usage.cached_tokens,
		.completion = a->usage.completion_tokens,
		.bytes_out = a->bytes,
		.our_prompt = slot->prompt,
		.predicted_us = UINT32_MAX,
	};

	if (r->decision && r->candidate < r->decision->answer.n_candidates) {
		const struct rec_candidate *c = &r->decision->answer.candidates[r->candidate];

		o.our_cached = c->cached;
		o.pending = c->pending;
		o.context = c->context;
		o.decoding = c->decoding;
		o.predicted_us = c->ttft;
	}
	memcpy(o.error, r->error, sizeof o.error);
	journal_append(&r->in->actor.process.journal, &head, &o, sizeof o, NULL, 0);
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
			    cached);
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
			      .attempts = r->attempts};

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
	if (a->verdict == VERDICT_CHOOSE && a->n_candidates > 0)
		relay_choose(r, a);
	else
		reject(r, a);
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
