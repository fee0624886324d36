/* actors/ingress/relay.c -- to the worker and back; see request.h and relay.h. */
#include "actors/ingress/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/log.h"

#define GATHER_MAX 32u             /* pieces of body put into one chunk for the client */
#define SENT_WAIT_NS 1000000000ull /* after the whole answer, for the end of our sending */
#define HEAD_ROOM 1024u            /* bytes our own header fields take at most, besides names */

static void go(struct request *r);
static void response_broken(struct request *r, const char *code, const char *message);
static void response_finish(struct request *r);
static const struct upstream_ops conn_ops;

static const struct rec_candidate *
candidate(const struct request *r)
{
	return &r->decision->answer.candidates[r->candidate];
}

/* --- choosing and trying again ------------------------------------------------------------- */

/* The next candidate, from `from` on, that still is what was chosen.  Of one provider another model
 * may do where this one is busy; unreached: nobody at the same place. */
static bool
seek(struct request *r, unsigned from, const struct upstream *not_this, bool unreached)
{
	struct ingress *in = r->in;

	for (unsigned i = from; i < r->decision->answer.n_candidates; i++) {
		const struct rec_candidate *c = &r->decision->answer.candidates[i];
		struct upstream *to;
		uint8_t intent;

		if (c->row >= in->rows.capacity)
			continue;
		intent = atomic_load_explicit(&in->rows.row[c->row].intent, memory_order_acquire);
		if (atomic_load_explicit(&in->rows.row[c->row].row_gen, memory_order_acquire) !=
			    c->row_gen ||
		    (intent != INTENT_SERVE && intent != INTENT_DRAIN) ||
		    row_disabled(&in->rows.row[c->row]))
			continue;
		to = upstream_of_row(&in->upstreams, c->row);
		if (!to || (unreached ? upstream_same_place(to, not_this)
				      : to == not_this && !to->local))
			continue;
		r->candidate = i;
		r->to = to;
		return true;
	}
	return false;
}

void
relay_choose(struct request *r, const struct msg_answer *answer)
{
	free(r->decision);
	r->decision = decision_copy(answer);
	r->policy_gen = answer->policy_gen;
	r->candidate = 0;
	if (!r->decision) {
		request_fail(r, 503, "no_memory", "Out of memory.", 1);
		return;
	}
	if (!seek(r, 0, NULL, false)) {
		request_fail(r, 503, "no_candidate", "No worker for this model is available.", 1);
		return;
	}
	go(r);
}

static void
forget_response(struct request *r)
{
	free(r->response.buf);
	relay_watch_free(r->response.watch);
	r->response = (struct response){
		.usage = {OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN},
	};
}

static void
drop_conn(struct request *r)
{
	upstream_try_cancel(&r->attempt, r->in->io);
	if (r->conn)
		upstream_drop(r->conn);
	r->conn = NULL;
	r->sent = false;
	free(r->head);
	r->head = NULL;
}

void
relay_stop(struct request *r)
{
	drop_conn(r);
	deadline_stop(&r->limit);
	free(r->response.buf);
	relay_watch_free(r->response.watch);
	r->response.buf = NULL;
	r->response.watch = NULL;
}

void
relay_withdraw(struct request *r)
{
	drop_conn(r);
	ledger_release(&r->in->ledger, &r->charge);
	free(r->decision);
	r->decision = NULL;
	if (r->attempts > 0)
		r->attempts--; /* nothing was tried */
}

static void
ask_again(struct request *r)
{
	drop_conn(r);
	ledger_release(&r->in->ledger, &r->charge);
	free(r->decision);
	r->decision = NULL;
	r->slot->attempt =
		(uint8_t)r->attempts; /* with slot.row: policy avoids the one that failed */
	ask_put(&r->in->ask, r->slot_id, ingress_now(r->in));
}

static bool
budget(struct request *r)
{
	if (r->in->retry_milli < 1000)
		return false;
	r->in->retry_milli -= 1000;
	return true;
}

/* Another worker, once.  False: there is none, or no right to it; nothing was changed. */
static bool
retry_elsewhere(struct request *r, bool unreached)
{
	if (r->elsewhere || r->in->retry_milli < 1000)
		return false;
	if (ask_list_valid(&r->in->ask, r->policy_gen)) {
		if (!seek(r, r->candidate + 1, r->to, unreached) || !budget(r))
			return false;
		ingress_count(r->in, COUNTER_retries, 1);
		r->elsewhere = true;
		drop_conn(r);
		forget_response(r);
		go(r);
		return true;
	}
	if (!budget(r))
		return false;
	ingress_count(r->in, COUNTER_retries, 1);
	r->elsewhere = true;
	forget_response(r);
	ask_again(r);
	return true;
}

/* The operator has closed it since it was chosen: nothing was sent, and this is no failure. */
static void
closed_meanwhile(struct request *r)
{
	if (ask_list_valid(&r->in->ask, r->policy_gen) &&
	    seek(r, r->candidate + 1, r->to, false)) {
		drop_conn(r);
		go(r);
		return;
	}
	ask_again(r);
}

static void
turned(struct request *r, enum cell_turn how)
{
	ledger_turned(&r->in->ledger, r->slot->row, r->slot->row_gen, how, ingress_now(r->in));
}

static void
upstream_failed(struct request *r, enum cell_turn how)
{
	ingress_count(r->in, COUNTER_upstream_failures, 1);
	turned(r, how);
}

/* --- towards the worker -------------------------------------------------------------------- */

static void
on_limit(void *arg)
{
	struct request *r = arg;

	if (r->over)
		return;
	if (r->response.ended) {
		response_finish(r);
		return;
	}
	upstream_failed(r, CELL_BROKE);
	if (r->response.relayed)
		response_broken(r, "upstream_timeout", "The worker stopped answering.");
	else
		request_fail(r, 504, "upstream_timeout", "The worker did not answer in time.", 0);
}

static void
send_request(struct request *r)
{
	struct ingress *in = r->in;
	const struct rec_candidate *c = candidate(r);
	const char *bytes =
		arena_at(&in->arena, in->live[r->slot_id].region, r->head_len + r->body_len);
	struct http1_request rq;
	struct iovec iov[16];
	const char *why;
	struct relay_to_worker to = {.authority = r->conn->to->authority,
				     .request_id = r->slot->request_id,
				     .attempt = r->attempts,
				     .rank = c->rank,
				     .api_key = upstream_api_key(r->to),
				     .tenants = in->credentials->tenants,
				     .provider = upstream_provider(r->to)};
	size_t cap = r->head_len + HEAD_ROOM + to.api_key.len;
	ssize_t len;
	int pieces;

	if (row_disabled(&in->rows.row[c->row])) {      /* what the connection waited for may have
							 * taken long */
		closed_meanwhile(r);
		return;
	}
	free(r->head);
	r->head = malloc(cap);
	pieces = relay_body_pieces(c, bytes + r->head_len, r->body_len, iov + 1, 15, &to.body_len);
	len = r->head && pieces >= 0 && http1_parse_request(bytes, r->head_len, NULL, &rq, &why) > 0
		      ? relay_write_request(r->head, cap, &rq, &to)
		      : -EBADMSG;
	if (len < 0) {
		request_fail(r, 500, "bad_decision", "The decision could not be carried out.", 0);
		return;
	}
	iov[0] = (struct iovec){r->head, (size_t)len};
	ask_sent(&in->ask, r->slot_id);
	r->slot->dispatched_ns = r->sent_ns = ingress_now(in);
	if (upstream_send(r->conn, iov, (unsigned)pieces + 1) < 0) {
		request_fail(r, 503, "no_memory", "Out of memory.", 1);
		return;
	}
	deadline_set(&r->limit, r->sent_ns + ingress_settings(in)->timeouts.first_byte_ns);
}

static void
on_tried(void *arg, struct upstream_conn *conn, int error, const char *why)
{
	struct request *r = arg;

	r->conn = conn;
	if (conn) {
		send_request(r);
		return;
	}
	upstream_failed(r, CELL_UNREACHED);
	if (why)
		log_warn("worker's TLS row=%u url=%s: %s", r->slot->row, r->to->url, why);
	else
		log_debug("worker not reached row=%u: %s", r->slot->row, strerror(-error));
	if (retry_elsewhere(r, true))
		return;
	if (why)
		request_fail(r, 502, "upstream_tls", "The TLS handshake with the worker failed.",
			     0);
	else
		request_fail(r, 502, "upstream_unreachable", "No worker could be reached.", 0);
}

/* One attempt at the current candidate. */
static void
go(struct request *r)
{
	struct ingress *in = r->in;
	const struct rec_candidate *c;
	mono_ns now = ingress_now(in);

	while (!(r->conn = r->stale ? NULL : upstream_take(r->to, &conn_ops, r, now)) &&
	       upstream_full(r->to)) {
		ingress_count(in, COUNTER_worker_connections_full, 1);
		if (!seek(r, r->candidate + 1, r->to, false)) {
			request_fail(r, 503, "worker_connections",
				     "Too many connections to the workers are open; try again.", 1);
			return;
		}
		r->stale = false;
	}
	c = candidate(r);
	r->attempts++;
	if (r->slot->phase == PHASE_NONE || r->slot->row != c->row ||
	    r->slot->row_gen != c->row_gen)
		ledger_charge(&in->ledger, &r->charge, c->row, c->row_gen, c->uncached,
			      r->decision->answer.prompt, r->decision->answer.pick, now);
	r->slot->attempt = (uint8_t)(r->attempts - 1);
	if (!r->limit.f)
		deadline_init(&r->limit, in->io, on_limit, r);
	deadline_set(&r->limit, 0);
	if (r->conn)
		send_request(r);
	else
		upstream_try(&r->attempt, r->to, now + ingress_settings(in)->timeouts.connect_ns,
			     &conn_ops, on_tried, r);
}

static void
on_sent(void *user, int result)
{
	struct request *r = user;
	const struct rec_candidate *c = candidate(r);

	if (result < 0)
		return; /* what it means is told by the receiving side */
	r->sent = true;
	free(r->head);
	r->head = NULL;
	if (c->root < r->decision->answer.n_roots)
		notes_routed(&r->in->notes, c->row, c->row_gen,
			     &r->decision->answer.roots[c->root], ingress_now(r->in));
	if (r->response.ended)
		response_finish(r);
}

/* --- the answer ----------------------------------------------------------------------------- */

static void
watch_begin(struct request *r, const struct http1_response *head)
{
	struct response *a = &r->response;

	a->sse = http1_media_type_is(&head->head, "text/event-stream");
	a->encoded = http1_is_encoded(&head->head);
	/* encoded, or without memory: unread, not undelivered */
	if (!a->encoded && a->status < 400)
		a->watch = relay_watch_new(a->sse, openai_route_api(r->route));
	if (!a->watch && a->status < 400 && r->route == OPENAI_RESPONSES)
		ingress_count(r->in, COUNTER_pins_lost, 1);
}

/* An answer about a stored response speaks of that one only, whatever id it says. */
static bool
may_pin(const struct request *r, struct slice id)
{
	const char *head = arena_at(&r->in->arena, r->in->live[r->slot_id].region, r->head_len);
	struct http1_request rq;
	const char *why;

	if (r->route == OPENAI_RESPONSES)
		return true;
	return http1_parse_request(head, r->head_len, NULL, &rq, &why) > 0 &&
	       slice_eq(openai_route_id(rq.path), id);
}

/* The worker keeps a response under this id: whoever asks for it is to come here.  Noted before the
 * client can know it. */
static void
pin(struct request *r, struct slice id)
{
	struct ingress *in = r->in;

	if (!may_pin(r, id))
		return;
	if (r->slot->method == HTTP1_DELETE) {
		pins_drop(&in->pins, id.p, id.len);
		return;
	}
	ingress_count(in, COUNTER_pins, 1);
	switch (pins_put(&in->pins, id.p, id.len, r->slot->row, r->slot->row_gen,
			 ingress_now(in))) {
	case PINS_PUT:
		break;
	case PINS_EVICTED:
		ingress_count(in, COUNTER_pins_evicted, 1);
		break;
	case PINS_LOST:
		ingress_count(in, COUNTER_pins_lost, 1);
		break;
	}
}

static bool
emit(struct request *r, const struct slice *piece, unsigned n)
{
	struct response *a = &r->response;
	struct client *c = r->client;
	size_t total = 0, at = 0;
	char *to;

	for (unsigned i = 0; i < n; i++)
		total += piece[i].len;
	if (total == 0 || a->out == RESPONSE_NONE)
		return true;
	to = client_room(c, total + 24);
	if (!to)
		return false;
	if (a->out == RESPONSE_CHUNKED)
		at = http1_chunk_head(to, total);
	for (unsigned i = 0; i < n; i++) {
		memcpy(to + at, piece[i].p, piece[i].len);
		at += piece[i].len;
		if (a->watch)
			relay_watch_feed(a->watch, piece[i].p, piece[i].len);
	}
	struct slice id;

	if (a->watch && relay_watch_id(a->watch, &id))
		pin(r, id);
	if (a->out == RESPONSE_CHUNKED) {
		memcpy(to + at, "\r\n", 2);
		at += 2;
	}
	client_commit(c, at);
	a->bytes += total;
	ingress_count(r->in, COUNTER_bytes_out, at);
	if (!a->first_byte) {
		a->first_byte = true;
		r->slot->first_byte_ns = ingress_now(r->in);
		ledger_first_byte(&r->in->ledger, &r->charge, r->slot->first_byte_ns);
	}
	return true;
}

/* Headers went out, the rest will not come: say so, and never end cleanly. */
static void
response_broken(struct request *r, const char *code, const char *message)
{
	struct response *a = &r->response;
	struct client *c = r->client;
	enum client_finish how = a->out == RESPONSE_CLOSE ? CLIENT_RESET : CLIENT_CUT;

	snprintf(r->error, sizeof r->error, "%s", code);
	/* In what the worker encoded, a plain word of ours would be garbage. */
	if (a->sse && !a->encoded && a->out == RESPONSE_CHUNKED) {
		struct openai_error error = {.api = openai_route_api(r->route), .status = 502,
					     .code = code, .message = message};
		char event[640] = "\n\n"; /* ends an event that was cut */
		size_t before = !a->watch || sse_watch_at_boundary(&a->watch->sse) ? 0 : 2;
		ssize_t n = openai_write_error_event(event + before, sizeof event - before,
						     &error,
						     a->watch ? a->watch->sse.events : 0);
		struct slice piece = {event, 0};

		if (a->watch)
			a->usage = a->watch->usage;
		relay_watch_free(a->watch); /* our own words are not to be read as the engine's */
		a->watch = NULL;
		if (n > 0) {
			piece.len = before + (size_t)n;
			emit(r, &piece, 1);
		}
	}
	request_end(r, a->status ? a->status : 502, false);
	client_end(c, how);
}

void
relay_cut(struct request *r, const char *code, const char *text)
{
	if (r->over)
		return;
	if (r->response.ended)
		response_finish(r);
	else if (r->response.relayed)
		response_broken(r, code, text);
	else
		request_fail(r, 503, code, text, 1);
}

/* The answer is whole, and so is what we sent (or it never will be). */
static void
response_finish(struct request *r)
{
	struct response *a = &r->response;
	struct client *c = r->client;
	/* As the head said: the next request may be on its way, although we drain meanwhile. */
	bool keep = a->keeps_client && client_may_ask(c);

	if (r->sent && a->keep_alive && r->conn) {
		struct upstream_conn *conn = r->conn;

		r->conn = NULL;
		upstream_give_back(conn, a->keep_alive_s, ingress_now(r->in));
	}
	request_end(r, a->status, false);
	client_end(c, keep ? CLIENT_KEEP : CLIENT_CLOSE);
}

static void
response_done(struct request *r)
{
	struct response *a = &r->response;

	a->ended = true;
	if (a->out == RESPONSE_CHUNKED)
		client_write(r->client, "0\r\n\r\n", 5);
	if (a->watch) {
		relay_watch_end(a->watch);
		if (a->watch->kept && a->watch->kept->id_len == 0)
			ingress_count(r->in, COUNTER_pins_lost, 1);
		if (a->watch->failed)
			snprintf(r->error, sizeof r->error, "engine_error");
	}
	if (r->sent || !r->conn) {
		response_finish(r);
		return;
	}
	/* An answer may overtake the word that all was sent: the connection is good only after
	 * that. */
	deadline_set(&r->limit, ingress_now(r->in) + SENT_WAIT_NS);
	client_flush(r->client);
}

/* Body bytes as they come.  The request may be over afterwards. */
static void
response_body(struct request *r, const char *p, size_t n)
{
	struct response *a = &r->response;
	int event = HTTP1_BODY_MORE;
	const char *why;

	do {
		struct slice piece[GATHER_MAX];
		unsigned pieces = 0;

		while (pieces < GATHER_MAX) {
			size_t used = 0;

			event = http1_body_next(&a->body, p, n, &used, &piece[pieces], &why);
			if (event < 0)
				break;
			p += used;
			n -= used;
			if (event != HTTP1_BODY_DATA)
				break;
			pieces++;
		}
		if (!emit(r, piece, pieces)) {
			client_destroy(r->client); /* no memory: it learns it by the cut */
			return;
		}
	} while (event == HTTP1_BODY_DATA);
	if (event < 0) {
		upstream_failed(r, CELL_BROKE);
		response_broken(r, "upstream_bad_body", "The worker's answer was malformed.");
	} else if (event == HTTP1_BODY_END) {
		if (n > 0)
			a->keep_alive = false; /* bytes that nobody asked for */
		response_done(r);
	}
}

/* Does this head say that the worker is about to end?  503: it cannot serve.  A good answer that
 * closes a connection, where they were kept so far: it is being shut down.  One that goes on so is
 * just made so, and it is not held against it again.  An answer that ends by closing says
 * nothing. */
static void
look_for_end(struct request *r, const struct http1_response *head)
{
	if (head->status == 503) {
		turned(r, CELL_UNAVAILABLE);
	} else if (head->head.keep_alive) {
		r->to->keeps = true;
	} else if (r->to->keeps && head->status < 400 &&
		   head->head.framing != HTTP1_BODY_CLOSE) {
		r->to->keeps = false;
		turned(r, CELL_CLOSING);
	}
}

static void
worker_label(const struct request *r, char *buf, size_t cap)
{
	const struct rec_candidate *c = candidate(r);
	const struct row *row = &r->in->rows.row[c->row];
	char member[ROW_NAME_MAX];

	memcpy(member, r->in->rows.text[c->row].member, sizeof member);
	member[sizeof member - 1] = '\0';
	if (row->ranks > 1)
		snprintf(buf, cap, "%s:%u", member, row->rank);
	else
		snprintf(buf, cap, "%s", member);
}

static bool
relay_head(struct request *r, const struct http1_response *head, size_t head_len)
{
	struct response *a = &r->response;
	struct client *c = r->client;
	const struct msg_answer *d = &r->decision->answer;
	char worker[ROW_NAME_MAX + 8];
	struct relay_to_client to = {
		.request_id = r->slot->request_id,
		.client_id = request_client_id(r),
		.attempts = r->attempts,
		.model = d->model,
		.alias = d->alias,
		.minor = c->minor,
		.content_length = head->head.content_length,
		.left = tenant_left(r->in, &r->tenant),
	};
	size_t cap = head_len + HEAD_ROOM + d->model.len + d->alias.len;
	char *room;
	ssize_t len;

	switch (a->body.framing) {
	case HTTP1_BODY_NONE:
		a->out = RESPONSE_NONE;
		break;
	case HTTP1_BODY_LENGTH:
		a->out = RESPONSE_LENGTH;
		break;
	default:
		a->out = c->minor ? RESPONSE_CHUNKED : RESPONSE_CLOSE;
	}
	worker_label(r, worker, sizeof worker);
	to.worker = slice_str(worker);
	to.framing = a->out;
	/* 204 and 304 have no length to say; anything else without a body has length 0. */
	if (a->out == RESPONSE_NONE && head->status != 204 && head->status != 304) {
		to.framing = RESPONSE_LENGTH;
		to.content_length = 0;
	}
	to.keep_alive = a->keeps_client = a->out != RESPONSE_CLOSE && client_may_keep(c);
	room = client_room(c, cap);
	if (!room)
		return false;
	len = relay_write_response(room, cap, head, &to);
	if (len < 0)
		return false;
	client_commit(c, (size_t)len);
	if (a->out == RESPONSE_CLOSE)
		client_end_is_close(c);
	ingress_count(r->in, COUNTER_bytes_out, (uint64_t)len);
	a->relayed = true;
	uint64_t word = atomic_load_explicit(&r->slot->word, memory_order_relaxed);
	atomic_store_explicit(
		&r->slot->word,
		slot_word(slot_generation(word), slot_ask(word), SLOT_STREAM, slot_deaths(word)),
		memory_order_release);
	return true;
}

/* A whole head stands at p.  Returns what is left to do: true: body follows at p + head_len. */
static bool
response_head(struct request *r, const struct http1_response *head, size_t head_len)
{
	struct response *a = &r->response;

	a->status = (uint16_t)head->status;
	look_for_end(r, head);
	if ((head->status == 429 || head->status == 503) && retry_elsewhere(r, false))
		return false;
	a->keep_alive = head->head.keep_alive;
	a->keep_alive_s = head->keep_alive_s;
	http1_body_begin(&a->body, &head->head);
	watch_begin(r, head);
	if (!relay_head(r, head, head_len)) {
		request_fail(r, 502, "upstream_bad_head",
			     "The worker's answer could not be passed on.", 0);
		return false;
	}
	if (!a->sse) {
		/* Nothing streams: prefill and decode are over when this comes. */
		ledger_first_byte(&r->in->ledger, &r->charge, ingress_now(r->in));
	}
	return true;
}

/* Collects the head; p may be the receive buffer or ours. */
static void
response_bytes(struct request *r, const char *p, size_t n)
{
	struct response *a = &r->response;

	while (!r->over && !a->relayed) {
		struct http1_response head;
		const char *why = NULL;
		ssize_t used = http1_parse_response(p, n, false, &a->scan, &head, &why);

		if (used < 0) {
			upstream_failed(r, CELL_BROKE);
			log_warn("worker's answer is not HTTP row=%u: %s", r->slot->row, why);
			request_fail(r, 502, "upstream_bad_head",
				     "The worker's answer was malformed.", 0);
			return;
		}
		if (used == 0) {
			char *kept;

			if (p == a->buf)
				return;
			kept = malloc(n);
			if (!kept) {
				request_fail(r, 503, "no_memory", "Out of memory.", 1);
				return;
			}
			memcpy(kept, p, n);
			free(a->buf);
			a->buf = kept;
			a->len = a->cap = n;
			return;
		}
		a->scan = (struct http1_scan){0};
		if (head.status >= 200 && !response_head(r, &head, (size_t)used))
			return;
		p += used;
		n -= (size_t)used;
		if (head.status < 200 && n == 0) {
			a->len = 0;
			return;
		}
	}
	if (!r->over)
		response_body(r, p, n);
}

/* The connection ended, or broke. */
static void
response_eof(struct request *r, bool broke)
{
	struct response *a = &r->response;
	struct ingress *in = r->in;

	if (a->relayed) {
		/* Without a length, only an orderly end is one, and an event stream's only with its
		 * last word. */
		if (!broke && http1_body_eof(&a->body) &&
		    (!a->sse || !a->watch || a->watch->done)) {
			a->keep_alive = false;
			response_done(r);
			return;
		}
		upstream_failed(r, CELL_BROKE);
		response_broken(r, "upstream_cut",
				"The worker's connection broke in the middle of the answer.");
		return;
	}
	if (r->conn->reused && !a->any && !r->stale &&
	    ingress_now(in) - r->sent_ns < REQUEST_STALE_NS) {
		ingress_count(in, COUNTER_upstream_stale, 1);
		r->stale = true;
		drop_conn(r);
		forget_response(r);
		if (ask_list_valid(&in->ask, r->policy_gen))
			go(r);
		else
			ask_again(r);
		return;
	}
	upstream_failed(r, CELL_BROKE);
	request_fail(r, 502, "upstream_failed",
		     "The worker closed the connection without an answer.", 0);
}

static void
on_bytes(void *user, const void *bytes, ssize_t n)
{
	struct request *r = user;
	struct response *a = &r->response;
	struct client *c = r->client;
	struct ingress *in = r->in;

	if (n <= 0 && a->ended) {
		a->keep_alive = false;
		response_finish(r);
		return;
	}
	if (n <= 0) {
		response_eof(r, n < 0);
		return;
	}
	a->any = true;
	if (a->ended) {
		a->keep_alive = false;
		return;
	}
	if (a->relayed) {
		response_body(r, bytes, (size_t)n);
	} else if (a->len > 0) {
		char *grown = realloc(a->buf, a->len + (size_t)n);

		if (!grown) {
			request_fail(r, 503, "no_memory", "Out of memory.", 1);
			return;
		}
		a->buf = grown;
		memcpy(a->buf + a->len, bytes, (size_t)n);
		a->len += (size_t)n;
		response_bytes(r, a->buf, a->len);
	} else {
		response_bytes(r, bytes, (size_t)n);
	}
	if (!r->over && r->client && a->relayed && !a->ended) {
		if (a->first_byte)
			deadline_set(&r->limit,
				     ingress_now(in) +
					     ingress_settings(in)->timeouts.inter_chunk_ns);
		client_flush_soon(c);
		if (!r->over && r->conn &&
		    client_queued(c) >= ingress_settings(in)->limits.stream_buffer_bytes) {
			upstream_pause(r->conn);
			a->paused = true;
			deadline_set(&r->limit, 0); /* now it is the client who must move */
		}
	}
}

static const struct upstream_ops conn_ops = {.on_bytes = on_bytes, .on_sent = on_sent};

void
relay_client_drained(struct request *r)
{
	struct response *a = &r->response;

	if (!a->paused || !r->conn ||
	    client_queued(r->client) > ingress_settings(r->in)->limits.stream_buffer_bytes / 2)
		return;
	a->paused = false;
	upstream_resume(r->conn);
	deadline_set(&r->limit,
		     ingress_now(r->in) + ingress_settings(r->in)->timeouts.inter_chunk_ns);
}
