/* actors/ingress/client.c -- see client.h. */
#include "actors/ingress/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/log.h"
#include "actors/ingress/models.h"
#include "actors/ingress/request.h"
#include "actors/ingress/room.h"

#define PIPELINE_MAX 65536u           /* bytes kept while a request is served; then reading stops */
#define BODY_FREE_NS 10000000000ull   /* a body may be slow for so long ... */
#define BODY_NS_PER_KIB 1000000000ull /* ... then it must come at 1 KiB/s ... */
#define BODY_AHEAD_NS 30000000000ull  /* ... and what came faster lets it be silent for so long */
#define LINGER_NS 1000000000ull       /* what still comes after we closed is read away */
#define DRAIN_IDLE_NS 1000000000ull   /* idle connections may send one more request */
#define TLS_TELL_NS 1000000000ull     /* between two lines of failed handshakes */
#define KEEP_BUF 16384u               /* bytes an idle connection keeps allocated at most */

static const struct wire_ops wire_ops;

static void on_recv(void *arg, const void *buf, ssize_t n);
static void settle(struct client *c);
static void end_of_stream(struct client *c, bool reset);

/* --- birth and death ----------------------------------------------------------------------- */

static void
set_idle(struct client *c)
{
	c->state = CLIENT_HEAD;
	c->finish = CLIENT_GOES_ON;
	c->scan = (struct http1_scan){0};
	c->idle_since = ingress_now(c->in);
	if (c->in_buf.len == 0)
		bytes_free(&c->in_buf);
	if (c->fill.cap > KEEP_BUF)
		bytes_free(&c->fill);
	if (c->flight.cap > KEEP_BUF)
		bytes_free(&c->flight);
	deadline_set(&c->limit,
		     c->idle_since + (c->in->draining
					      ? DRAIN_IDLE_NS
					      : ingress_settings(c->in)->timeouts.keep_alive_ns));
}

/* Whoever can connect can make it fail: the log has one line a second.  Who only looks whether
 * somebody listens is not worth a line. */
static void
tls_failed(struct client *c, int error, const char *why)
{
	struct ingress *in = c->in;
	mono_ns now = ingress_now(in);

	ingress_count(in, COUNTER_tls_failed, 1);
	if (error == -ECONNRESET) {
		client_destroy(c);
		return;
	}
	if (now - in->tls_told < TLS_TELL_NS) {
		in->tls_untold++;
	} else {
		char from[INET6_ADDRSTRLEN] = "";

		inet_ntop(AF_INET6, c->peer.addr, from, sizeof from);
		log_warn("client's TLS handshake failed peer=%s: %s; %llu more since the last "
			 "such line",
			 from, why, (unsigned long long)in->tls_untold);
		in->tls_told = now;
		in->tls_untold = 0;
	}
	client_destroy(c);
}

static void
on_opened(void *arg, int result, const char *why)
{
	struct client *c = arg;

	if (c->dead)
		return;
	if (result == 0) {
		ingress_count(c->in, COUNTER_tls_handshakes, 1);
		set_idle(c);
	} else if (result == -EPROTOTYPE) {
		struct reply r = {.status = 400, .code = "tls_required",
				  .message = "This port speaks TLS: use https://."};

		ingress_count(c->in, COUNTER_tls_failed, 1);
		c->minor = true;
		client_reply_error(c, &r, true);
	} else {
		tls_failed(c, result, why);
	}
}

static void
on_limit(void *arg)
{
	struct client *c = arg;
	struct reply slow = {.status = 408,
			     .code = "request_timeout",
			     .message = "The request did not arrive in time."};

	if (c->dead)
		return;
	if (c->starved_ns) {
		request_fail(c->request, 503, "arena_full",
			     "Too many request bytes are being held; try again.", 1);
	} else if (c->state == CLIENT_BODY) {
		if (c->request)
			request_fail(c->request, 408, slow.code, slow.message, 0);
	} else if (wire_opening(&c->wire)) {
		tls_failed(c, -ETIMEDOUT, "the handshake took too long");
	} else if (c->state == CLIENT_HEAD && c->in_buf.len > 0) {
		ingress_count(c->in, COUNTER_requests_refused, 1);
		client_reply_error(c, &slow, true);
	} else {
		client_destroy(c); /* idle too long, does not read, or lingered enough */
	}
}

static void
starved_unlink(struct client *c)
{
	struct ingress *in = c->in;

	if (!c->starved_ns)
		return;
	if (c->starved_prev)
		c->starved_prev->starved_next = c->starved_next;
	else
		in->starved_first = c->starved_next;
	if (c->starved_next)
		c->starved_next->starved_prev = c->starved_prev;
	else
		in->starved_last = c->starved_prev;
	c->starved_prev = c->starved_next = NULL;
	c->starved_ns = 0;
}

void
client_accept(struct ingress *in, int fd, uint16_t listener)
{
	struct fair_bucket *bucket;
	struct client *c;
	struct peer peer;
	int one = 1;
	bool tls;

	peer_of_socket(fd, &peer);
	bucket = room_for(in, &peer);
	c = bucket ? calloc(1, sizeof *c) : NULL;
	if (!c) {
		fair_drop(&in->fair, bucket);
		close(fd);
		return;
	}
	*c = (struct client){.in = in, .listener = listener, .peer = peer, .bucket = bucket};
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	deadline_init(&c->limit, in->io, on_limit, c);
	wire_open(&c->wire, in->io, fd, &wire_ops, c);
	tls = in->listener[listener].tls;
	if ((tls && wire_accept_tls(&c->wire, in->credentials->tls) < 0) ||
	    wire_receive(&c->wire) < 0) {
		wire_close(&c->wire);
		fair_drop(&in->fair, bucket);
		free(c);
		return;
	}
	room_enter(c);
	c->next = in->clients;
	if (in->clients)
		in->clients->prev = c;
	in->clients = c;
	in->n_clients++;
	ingress_count(in, COUNTER_connections, 1);
	count_set(&in->actor.process, COUNTER_connections_open, in->n_clients);
	set_idle(c);
	if (tls) {
		c->peer.flags |= PEER_TLS;
		deadline_set(&c->limit, c->idle_since + ingress_settings(in)->timeouts.head_ns);
	}
}

void
client_destroy(struct client *c)
{
	struct ingress *in = c->in;
	struct request *r = c->request;

	if (c->dead)
		return;
	c->dead = true;
	starved_unlink(c);
	room_leave(c);
	c->request = NULL;
	if (r)
		request_client_gone(r);
	deadline_stop(&c->limit);
	if (c->state == CLIENT_HEAD && c->in_buf.len == 0 && c->fill.len == 0)
		wire_bye(&c->wire);
	wire_close(&c->wire);
	if (c->prev)
		c->prev->next = c->next;
	else
		in->clients = c->next;
	if (c->next)
		c->next->prev = c->prev;
	in->n_clients--;
	count_set(&in->actor.process, COUNTER_connections_open, in->n_clients);
	c->next = in->dead_clients;
	in->dead_clients = c;
}

void
clients_bury(struct ingress *in)
{
	struct client *next;

	for (struct client *c = in->dead_clients; c; c = next) {
		next = c->next;
		bytes_free(&c->in_buf);
		bytes_free(&c->fill);
		bytes_free(&c->flight);
		free(c);
	}
	in->dead_clients = NULL;
}

void
client_drain(struct client *c, mono_ns now)
{
	if (c->state == CLIENT_HEAD && c->in_buf.len == 0 && !wire_sends(&c->wire) &&
	    c->fill.len == 0)
		deadline_set(&c->limit, now + DRAIN_IDLE_NS);
}

bool
client_may_keep(const struct client *c)
{
	return c->keep_alive && !c->in->draining && c->body.ended && client_may_ask(c);
}

bool
client_may_ask(const struct client *c)
{
	return !c->eof || c->in_buf.len > 0;
}

/* --- writing ------------------------------------------------------------------------------- */

char *
client_room(struct client *c, size_t want)
{
	return bytes_room(&c->fill, want);
}

void
client_commit(struct client *c, size_t len)
{
	c->fill.len += len;
}

bool
client_write(struct client *c, const void *p, size_t len)
{
	if (bytes_add(&c->fill, p, len))
		return true;
	c->finish = CLIENT_RESET;
	return false;
}

size_t
client_queued(const struct client *c)
{
	return c->fill.len + c->flight.len;
}

static mono_ns
body_due(const struct client *c)
{
	if (c->starved_ns)
		return c->starved_ns + ingress_settings(c->in)->timeouts.arena_ns;
	return c->body_until;
}

static void
body_came(struct client *c, size_t bytes)
{
	mono_ns most = ingress_now(c->in) + BODY_AHEAD_NS;

	c->body_until += bytes * BODY_NS_PER_KIB / 1024;
	if (c->body_until > most)
		c->body_until = most;
}

static void
on_sent(void *arg, int result)
{
	struct client *c = arg;

	c->flight.len = 0;
	if (result < 0) {
		client_destroy(c);
		return;
	}
	deadline_set(&c->limit, c->state == CLIENT_BODY ? body_due(c) : 0);
	client_flush(c);
	if (c->dead)
		return;
	if (c->request && c->state == CLIENT_BUSY)
		relay_client_drained(c->request);
	settle(c);
}

void
client_flush(struct client *c)
{
	struct bytes swap;
	struct iovec iov;

	if (c->dead || wire_sends(&c->wire) || c->fill.len == 0)
		return;
	swap = c->flight;
	c->flight = c->fill;
	c->fill = swap;
	iov = (struct iovec){c->flight.p, c->flight.len};
	if (wire_send(&c->wire, &iov, 1) < 0) {
		client_destroy(c);
		return;
	}
	deadline_set(&c->limit,
		     ingress_now(c->in) + ingress_settings(c->in)->timeouts.write_stall_ns);
}

void
client_flush_soon(struct client *c)
{
	if (c->flush_soon || c->dead)
		return;
	c->flush_soon = true;
	c->next_flush = c->in->to_flush;
	c->in->to_flush = c;
}

void
clients_flush(struct ingress *in)
{
	while (in->to_flush) {
		struct client *c = in->to_flush;

		in->to_flush = c->next_flush;
		c->flush_soon = false;
		client_flush(c);
	}
}

/* Serves what was pipelined, reads on. */
static void
next_request(struct client *c)
{
	struct bytes kept = c->in_buf;

	c->in_buf = (struct bytes){0};
	c->request = NULL;
	set_idle(c);
	if (kept.len > 0)
		on_recv(c, kept.p, (ssize_t)kept.len);
	bytes_free(&kept);
	if (!c->dead && c->paused && c->in_buf.len < PIPELINE_MAX) {
		c->paused = false;
		if (!c->eof)
			wire_receive(&c->wire);
	}
	/* Nothing more comes: half a request is none, and whole ones are as when it was served. */
	if (!c->dead && c->eof && !c->starved_ns && (c->state != CLIENT_BUSY || c->request))
		end_of_stream(c, false);
}

/* hard: the kernel resets it at close(), whoever closes. */
static void
set_close(struct client *c, bool hard)
{
	struct linger how = {.l_onoff = hard, .l_linger = 0};

	setsockopt(c->wire.fd, SOL_SOCKET, SO_LINGER, &how, sizeof how);
	c->hard_close = hard;
}

void
client_end_is_close(struct client *c)
{
	set_close(c, true);
}

/* Everything is written: what the answer's end was to be. */
static void
settle(struct client *c)
{
	if (c->dead || wire_sends(&c->wire) || c->fill.len > 0)
		return;
	switch (c->finish) {
	case CLIENT_GOES_ON:
		break;
	case CLIENT_KEEP:
		next_request(c);
		break;
	case CLIENT_RESET:
		set_close(c, true);
		client_destroy(c);
		break;
	case CLIENT_CLOSE:
	case CLIENT_CUT:
		/* Closing with unread bytes would reset the connection and could take the answer
		 * with it: say the end, read away what still comes. */
		if (c->hard_close)
			set_close(c, false);
		wire_shut(&c->wire, c->finish == CLIENT_CLOSE);
		c->state = CLIENT_LINGER;
		c->finish = CLIENT_GOES_ON;
		bytes_free(&c->in_buf);
		if (c->eof) {
			client_destroy(c);
			break;
		}
		wire_receive(&c->wire);
		deadline_set(&c->limit, ingress_now(c->in) + LINGER_NS);
		break;
	}
}

void
client_end(struct client *c, enum client_finish how)
{
	if (c->dead)
		return;
	if (c->finish != CLIENT_RESET)
		c->finish = how;
	starved_unlink(c);
	c->state = CLIENT_BUSY; /* until written: what comes now waits */
	client_flush(c);
	settle(c);
}

/* --- reading ------------------------------------------------------------------------------- */

static void
refuse(struct client *c, struct slice client_id, unsigned status, const char *code,
       const char *message)
{
	struct reply r = {
		.status = status, .code = code, .message = message, .client_id = client_id};

	ingress_count(c->in, COUNTER_requests_refused, 1);
	client_reply_error(c, &r, false);
}

/* What the client calls its request, if it is fit to be said again: in the answer, in the log. */
static struct slice
client_id_of(const struct http1_head *head)
{
	const struct http1_header *h = http1_find(head, "x-request-id", NULL);

	if (!h || h->value.len == 0 || h->value.len > JOURNAL_CLIENT_ID_MAX)
		return (struct slice){NULL, 0};
	for (size_t i = 0; i < h->value.len; i++)
		if (h->value.p[i] < ' ' || h->value.p[i] > '~')
			return (struct slice){NULL, 0};
	return h->value;
}

/* The head is whole.  c->body is begun. */
static void
route_request(struct client *c, const struct http1_request *rq, const char *head, size_t head_len)
{
	enum openai_route route = openai_route(rq->method, rq->path);
	const struct manifest_gateway *set = ingress_settings(c->in);
	struct slice id = client_id_of(&rq->head);
	struct reply full = {.status = 503};
	struct tenant_of tenant;

	c->api = openai_path_api(rq->path);
	if (!manifest_host_served(set, rq->host.p, rq->host.len)) {
		refuse(c, id, 421, "unknown_host", "This host is not served here.");
		return;
	}
	if (route != OPENAI_NONE && route != OPENAI_WRONG_METHOD &&
	    !tenant_admit(c, &rq->head, &tenant, &full)) {
		full.client_id = id;
		client_reply_error(c, &full, false);
		return;
	}
	if (route == OPENAI_MODELS || route == OPENAI_MODEL) {
		models_reply(c, rq->path, tenant.tenant, id);
		return;
	}
	if (route == OPENAI_WRONG_METHOD) {
		struct reply r = {.status = 405,
				  .code = "method_not_allowed",
				  .message = "This path has another method.",
				  .allow = openai_route_allow(rq->path),
				  .client_id = id};

		ingress_count(c->in, COUNTER_requests_refused, 1);
		client_reply_error(c, &r, false);
		return;
	}
	if (route == OPENAI_NONE) {
		refuse(c, id, 404, "unknown_url", "This path is not served here.");
		return;
	}
	if (rq->method != HTTP1_POST && !c->body.ended) {
		refuse(c, id, 400, "unexpected_body", "A request of this method has no body.");
		return;
	}
	if (http1_is_encoded(&rq->head)) {
		refuse(c, id, 415, "encoded_body", "Send the body without Content-Encoding.");
		return;
	}
	if (rq->head.content_length != HTTP1_LENGTH_NONE &&
	    rq->head.content_length > set->limits.body_bytes) {
		refuse(c, id, 413, "body_too_large",
		       "The request body is larger than this gateway allows.");
		return;
	}
	c->request = request_open(c, rq, head, head_len, route, id, &tenant, &full);
	if (!c->request) {
		full.client_id = id;
		client_reply_error(c, &full, false);
		return;
	}
	if (!tenant_enter(c->request))
		return;
	c->state = CLIENT_BODY;
	c->body_until = ingress_now(c->in) + BODY_FREE_NS;
	deadline_set(&c->limit, c->body_until);
	if (rq->expect_continue && rq->head.minor >= 1 && rq->head.framing != HTTP1_BODY_NONE) {
		client_write(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
		client_flush(c);
	}
}

static void
body_complete(struct client *c)
{
	deadline_set(&c->limit, 0);
	c->state = CLIENT_BUSY;
	request_ready(c->request);
}

/* Not read any more until clients_feed() has room for these bytes. */
static void
starve(struct client *c, const char *p, size_t n)
{
	struct ingress *in = c->in;

	if (!bytes_add(&c->in_buf, p, n)) {
		client_destroy(c);
		return;
	}
	wire_pause(&c->wire);
	c->starved_ns = ingress_now(in);
	c->starved_prev = in->starved_last;
	if (in->starved_last)
		in->starved_last->starved_next = c;
	else
		in->starved_first = c;
	in->starved_last = c;
	deadline_set(&c->limit, body_due(c));
	ingress_count(in, COUNTER_arena_full, 1);
}

/* Feeds body bytes; returns how many were used. */
static size_t
take_body(struct client *c, const char *p, size_t n)
{
	size_t left = n;

	for (;;) {
		struct http1_body before = c->body;
		struct slice data;
		size_t used = 0;
		const char *why;
		int event = http1_body_next(&c->body, p, left, &used, &data, &why);

		if (event < 0) {
			ingress_count(c->in, COUNTER_http_bad, 1);
			request_fail(c->request, 400, "bad_http", why, 0);
			return n;
		}
		p += used;
		left -= used;
		if (event == HTTP1_BODY_MORE) {
			deadline_set(&c->limit, body_due(c));
			return n - left;
		}
		if (event == HTTP1_BODY_END) {
			body_complete(c);
			return n - left;
		}
		int error = request_body(c->request, data);
		if (error == -413) {
			request_fail(c->request, 413, "body_too_large",
				     "The request body is larger than this gateway allows.", 0);
			return n;
		}
		if (error == -429) {
			request_fail(c->request, 429, "client_share", ROOM_SHARE_TEXT, 1);
			return n;
		}
		if (error < 0) {        /* no room: as if these bytes had not come yet */
			c->body = before;
			starve(c, p - used, left + used);
			return n;
		}
		body_came(c, data.len);
	}
}

/* Feeds head bytes; returns how many of the n at p were used. */
static size_t
take_head(struct client *c, const char *p, size_t n)
{
	const struct manifest_gateway *set = ingress_settings(c->in);
	bool kept = c->in_buf.len > 0;
	struct http1_request rq;
	const char *why = NULL, *head;
	size_t len;
	ssize_t used;

	if (kept && !bytes_add(&c->in_buf, p, n)) {
		client_destroy(c);
		return n;
	}
	head = kept ? c->in_buf.p : p;
	len = kept ? c->in_buf.len : n;
	used = http1_parse_request(head, len, &c->scan, &rq, &why);
	if (used == 0 && len < set->limits.head_bytes) {
		if (!kept) {
			if (!bytes_add(&c->in_buf, p, n)) {
				client_destroy(c);
				return n;
			}
			deadline_set(&c->limit, ingress_now(c->in) + set->timeouts.head_ns);
		}
		return n;
	}
	if (used == 0 || (used > 0 && ((size_t)used > set->limits.head_bytes ||
				       rq.head.n_headers > set->limits.headers))) {
		used = -431;
		why = "The request head is larger than this gateway allows.";
	}
	if (used < 0) {
		struct reply r = {.status = (unsigned)-used, .code = "bad_http", .message = why};

		ingress_count(c->in, COUNTER_http_bad, 1);
		c->keep_alive = false;
		c->minor = true;
		c->to_head = false;
		c->api = OPENAI_API_PLAIN;
		c->body = (struct http1_body){0};
		client_reply_error(c, &r, true);
		return n;
	}
	c->minor = rq.head.minor >= 1;
	c->keep_alive = rq.head.keep_alive;
	c->to_head = rq.method == HTTP1_HEAD;
	c->scan = (struct http1_scan){0};
	deadline_set(&c->limit, 0);
	http1_body_begin(&c->body, &rq.head);
	if (rq.head.framing == HTTP1_BODY_NONE || rq.head.content_length == 0)
		c->body.ended = true;
	/* The head's bytes may lie in in_buf, which a pipelined rest must not be mixed with. */
	struct bytes mine = {0};
	if (kept) {
		mine = c->in_buf;
		c->in_buf = (struct bytes){0};
	}
	size_t rest = len - (size_t)used;
	route_request(c, &rq, head, (size_t)used);
	bytes_free(&mine);
	if (!c->dead && c->state == CLIENT_BODY && c->body.ended)
		body_complete(c);
	return n - rest;
}

static void
end_of_stream(struct client *c, bool reset)
{
	c->eof = true;
	if (c->dead)
		return;
	/* A whole request was read and is being served: gone, unless the gateway believes in
	 * half-closes. */
	if (!reset && c->state == CLIENT_BUSY &&
	    (c->request || wire_sends(&c->wire) || c->fill.len > 0) &&
	    (ingress_settings(c->in)->half_close == MANIFEST_HALF_CLOSE_SERVE || !c->request))
		return;
	client_destroy(c);
}

static void
on_recv(void *arg, const void *buf, ssize_t n)
{
	struct client *c = arg;
	const char *p = buf;
	size_t left;

	if (n <= 0) {
		end_of_stream(c, n < 0);
		return;
	}
	for (left = (size_t)n; left > 0 && !c->dead;) {
		size_t used = left;

		switch (c->state) {
		case CLIENT_HEAD:
			used = take_head(c, p, left);
			break;
		case CLIENT_BODY:
			used = take_body(c, p, left);
			break;
		case CLIENT_BUSY:
			if (!bytes_add(&c->in_buf, p, left)) {
				client_destroy(c);
				return;
			}
			if (c->in_buf.len > PIPELINE_MAX && wire_receives(&c->wire)) {
				wire_pause(&c->wire);
				c->paused = true;
			}
			break;
		case CLIENT_LINGER:
			break;
		}
		p += used;
		left -= used;
	}
}

static const struct wire_ops wire_ops = {
	.received = on_recv, .sent = on_sent, .opened = on_opened};

/* The first body that waits is tried again.  False: there is still no room for it. */
static bool
feed(struct client *c)
{
	struct ingress *in = c->in;
	struct bytes kept = c->in_buf;
	mono_ns since = c->starved_ns;
	size_t left = kept.len;

	starved_unlink(c);
	c->in_buf = (struct bytes){0};
	c->body_until += ingress_now(in) - since;       /* the wait was ours */
	on_recv(c, kept.p, (ssize_t)kept.len);
	bytes_free(&kept);
	if (c->dead || !c->starved_ns) {
		if (!c->dead && !c->eof && !c->paused && wire_receive(&c->wire) < 0)
			client_destroy(c);
		return true;
	}
	/* It keeps its place, and unless something of it was taken, its time. */
	bool moved = c->in_buf.len < left;
	mono_ns now = c->starved_ns;

	starved_unlink(c);
	c->starved_ns = moved ? now : since;
	if (!moved)
		c->body_until -= now - since;           /* ... which goes on */
	c->starved_next = in->starved_first;
	if (in->starved_first)
		in->starved_first->starved_prev = c;
	else
		in->starved_last = c;
	in->starved_first = c;
	deadline_set(&c->limit, body_due(c));
	return false;
}

void
clients_feed(struct ingress *in)
{
	if (!in->arena_freed)
		return;
	in->arena_freed = false;
	while (in->starved_first && feed(in->starved_first))
		;
}
