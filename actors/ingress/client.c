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
#include "actors/ingress/request.h"

#define PIPELINE_MAX 65536u           /* bytes kept while a request is served; then reading stops */
#define BODY_FREE_NS 10000000000ull   /* a body may be slow for so long ... */
#define BODY_NS_PER_KIB 1000000000ull /* ... then it must come at 1 KiB/s */
#define LINGER_NS 1000000000ull       /* what still comes after we closed is read away */
#define DRAIN_IDLE_NS 1000000000ull   /* idle connections may send one more request */
#define KEEP_BUF 16384u               /* bytes an idle connection keeps allocated at most */
#define ROOM_LOOKS 64u                /* connections looked at for one that is idle */
#define ROOM_IDLE_NS 1000000000ull    /* a newer one may be about to send */

static void on_recv(void *arg, const void *buf, ssize_t n);
static void settle(struct client *c);

/* --- birth and death ----------------------------------------------------------------------- */

static void
buf_free(struct client_buf *b)
{
	free(b->p);
	*b = (struct client_buf){0};
}

static void
set_idle(struct client *c)
{
	c->state = CLIENT_HEAD;
	c->finish = CLIENT_GOES_ON;
	c->scan = (struct http1_scan){0};
	c->idle_since = ingress_now(c->in);
	if (c->in_buf.len == 0)
		buf_free(&c->in_buf);
	if (c->fill.cap > KEEP_BUF)
		buf_free(&c->fill);
	if (c->flight.cap > KEEP_BUF)
		buf_free(&c->flight);
	deadline_set(&c->limit,
		     c->idle_since + (c->in->draining
					      ? DRAIN_IDLE_NS
					      : ingress_settings(c->in)->timeouts.keep_alive_ns));
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
	if (c->state == CLIENT_BODY) {
		if (c->request)
			request_fail(c->request, 408, slow.code, slow.message, 0);
	} else if (c->state == CLIENT_HEAD && c->in_buf.len > 0) {
		client_reply_error(c, &slow, true);
	} else {
		client_destroy(c); /* idle too long, does not read, or lingered enough */
	}
}

/* An idle connection gives way to a new one: its client will connect again when it has something to
 * ask. */
static bool
make_room(struct ingress *in)
{
	for (unsigned i = 0; i < ROOM_LOOKS && in->clients; i++) {
		struct client *c = in->room_hand ? in->room_hand : in->clients;

		in->room_hand = c->next;
		if (c->state != CLIENT_HEAD || c->in_buf.len > 0 || c->send || c->fill.len > 0 ||
		    ingress_now(in) - c->idle_since < ROOM_IDLE_NS)
			continue;
		client_destroy(c);
		return true;
	}
	return false;
}

/* Without descriptors we could neither ask a worker nor hear of a new configuration. */
static bool
room_for_one(struct ingress *in)
{
	mono_ns now = ingress_now(in);

	if (in->n_clients < in->clients_max)
		return true;
	ingress_count(in, COUNTER_connections_refused, 1);
	if (now - in->room_told >= ROOM_IDLE_NS) {
		in->room_told = now;
		log_warn("connections=%u: no descriptors for more; idle ones give way, then new "
			 "ones",
			 in->n_clients);
	}
	return make_room(in);
}

void
client_accept(struct ingress *in, int fd, uint16_t listener)
{
	struct client *c = room_for_one(in) ? calloc(1, sizeof *c) : NULL;
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	int one = 1;

	if (!c) {
		close(fd);
		return;
	}
	*c = (struct client){.in = in, .fd = fd, .listener = listener};
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&peer;

		c->peer_addr[10] = c->peer_addr[11] = 0xff;
		memcpy(c->peer_addr + 12, &v4->sin_addr, 4);
		c->peer_port = ntohs(v4->sin_port);
	} else if (peer.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&peer;

		memcpy(c->peer_addr, &v6->sin6_addr, 16);
		c->peer_port = ntohs(v6->sin6_port);
	}
	deadline_init(&c->limit, in->io, on_limit, c);
	c->recv = io_recv(in->io, fd, on_recv, c);
	if (!c->recv) {
		io_close_fd(in->io, fd);
		free(c);
		return;
	}
	c->next = in->clients;
	if (in->clients)
		in->clients->prev = c;
	in->clients = c;
	in->n_clients++;
	ingress_count(in, COUNTER_connections, 1);
	count_set(&in->actor.process, COUNTER_connections_open, in->n_clients);
	set_idle(c);
}

void
client_destroy(struct client *c)
{
	struct ingress *in = c->in;
	struct request *r = c->request;

	if (c->dead)
		return;
	c->dead = true;
	if (in->room_hand == c)
		in->room_hand = c->next;
	c->request = NULL;
	if (r)
		request_client_gone(r);
	deadline_stop(&c->limit);
	if (c->send)
		io_cancel(in->io, c->send);
	if (c->recv)
		io_cancel(in->io, c->recv);
	c->send = c->recv = NULL;
	io_close_fd(in->io, c->fd);
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
		buf_free(&c->in_buf);
		buf_free(&c->fill);
		buf_free(&c->flight);
		free(c);
	}
	in->dead_clients = NULL;
}

void
client_drain(struct client *c, mono_ns now)
{
	if (c->state == CLIENT_HEAD && c->in_buf.len == 0 && !c->send && c->fill.len == 0)
		deadline_set(&c->limit, now + DRAIN_IDLE_NS);
}

bool
client_may_keep(const struct client *c)
{
	return c->keep_alive && !c->in->draining && !c->eof && c->body.ended;
}

/* --- writing ------------------------------------------------------------------------------- */

char *
client_room(struct client *c, size_t want)
{
	struct client_buf *b = &c->fill;

	if (b->cap - b->len < want) {
		size_t cap = b->cap ? b->cap : 2048;
		char *grown;

		while (cap - b->len < want)
			cap *= 2;
		grown = realloc(b->p, cap);
		if (!grown)
			return NULL;
		b->p = grown;
		b->cap = cap;
	}
	return b->p + b->len;
}

void
client_commit(struct client *c, size_t len)
{
	c->fill.len += len;
}

bool
client_write(struct client *c, const void *p, size_t len)
{
	char *room = client_room(c, len);

	if (!room) {
		c->finish = CLIENT_RESET;
		return false;
	}
	memcpy(room, p, len);
	c->fill.len += len;
	return true;
}

size_t
client_queued(const struct client *c)
{
	return c->fill.len + c->flight.len;
}

static mono_ns
body_due(const struct client *c)
{
	return c->body_began + BODY_FREE_NS + c->body_bytes / 1024 * BODY_NS_PER_KIB;
}

static void
on_sent(void *arg, int result)
{
	struct client *c = arg;

	c->send = NULL;
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
	struct client_buf swap;
	struct iovec iov;

	if (c->dead || c->send || c->fill.len == 0)
		return;
	swap = c->flight;
	c->flight = c->fill;
	c->fill = swap;
	iov = (struct iovec){c->flight.p, c->flight.len};
	c->send = io_send(c->in->io, c->fd, &iov, 1, on_sent, c);
	if (!c->send) {
		client_destroy(c);
		return;
	}
	deadline_set(&c->limit,
		     ingress_now(c->in) + ingress_settings(c->in)->timeouts.write_stall_ns);
}

/* Serves what was pipelined, reads on. */
static void
next_request(struct client *c)
{
	struct client_buf kept = c->in_buf;

	c->in_buf = (struct client_buf){0};
	c->request = NULL;
	set_idle(c);
	if (kept.len > 0)
		on_recv(c, kept.p, (ssize_t)kept.len);
	buf_free(&kept);
	if (!c->dead && c->paused && c->in_buf.len < PIPELINE_MAX) {
		c->paused = false;
		if (!c->eof && !c->recv)
			c->recv = io_recv(c->in->io, c->fd, on_recv, c);
	}
	if (!c->dead && c->eof && c->state == CLIENT_HEAD)
		client_destroy(c);
}

/* Everything is written: what the answer's end was to be. */
static void
settle(struct client *c)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};

	if (c->dead || c->send || c->fill.len > 0)
		return;
	switch (c->finish) {
	case CLIENT_GOES_ON:
		break;
	case CLIENT_KEEP:
		next_request(c);
		break;
	case CLIENT_RESET:
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
		client_destroy(c);
		break;
	case CLIENT_CLOSE:
	case CLIENT_CUT:
		/* Closing with unread bytes would reset the connection and could take the answer
		 * with it: say the end, read away what still comes. */
		shutdown(c->fd, SHUT_WR);
		c->state = CLIENT_LINGER;
		c->finish = CLIENT_GOES_ON;
		buf_free(&c->in_buf);
		if (c->eof) {
			client_destroy(c);
			break;
		}
		if (!c->recv)
			c->recv = io_recv(c->in->io, c->fd, on_recv, c);
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
	c->state = CLIENT_BUSY; /* until written: what comes now waits */
	client_flush(c);
	settle(c);
}

/* --- reading ------------------------------------------------------------------------------- */

static bool
served(enum openai_route route)
{
	switch (route) {
	case OPENAI_CHAT:
	case OPENAI_COMPLETIONS:
	case OPENAI_EMBEDDINGS:
	case OPENAI_POOLING:
	case OPENAI_CLASSIFY:
	case OPENAI_SCORE:
	case OPENAI_RERANK:
	case OPENAI_TOKENIZE:
	case OPENAI_DETOKENIZE:
		return true;
	default:
		return false; /* stateful or not spoken yet: better none than a wrong one */
	}
}

static void
refuse(struct client *c, unsigned status, const char *code, const char *message)
{
	struct reply r = {.status = status,
			  .code = code,
			  .message = message,
			  .retry_after_s = status == 503 ? 1 : 0};

	client_reply_error(c, &r, false);
}

/* The head is whole.  c->body is begun. */
static void
route_request(struct client *c, const struct http1_request *rq, const char *head, size_t head_len)
{
	enum openai_route route = openai_route(rq->method, rq->path);
	const struct manifest_gateway *set = ingress_settings(c->in);
	unsigned status;

	if (route == OPENAI_MODELS || route == OPENAI_MODEL) {
		client_reply_models(c, rq->path);
		return;
	}
	if (route == OPENAI_WRONG_METHOD) {
		struct reply r = {.status = 405,
				  .code = "method_not_allowed",
				  .message = "This path has another method.",
				  .allow = openai_route_allow(rq->path)};

		client_reply_error(c, &r, false);
		return;
	}
	if (!served(route)) {
		refuse(c, 404, "unknown_url", "This path is not served here.");
		return;
	}
	if (http1_is_encoded(&rq->head)) {
		refuse(c, 415, "encoded_body", "Send the body without Content-Encoding.");
		return;
	}
	if (rq->head.content_length != HTTP1_LENGTH_NONE &&
	    rq->head.content_length > set->limits.body_bytes) {
		refuse(c, 413, "body_too_large",
		       "The request body is larger than this gateway allows.");
		return;
	}
	c->request = request_open(c, rq, head, head_len, route, &status);
	if (!c->request) {
		refuse(c, status, "overloaded", "Too many requests are being served; try again.");
		return;
	}
	c->state = CLIENT_BODY;
	c->body_began = ingress_now(c->in);
	c->body_bytes = 0;
	deadline_set(&c->limit, c->body_began + BODY_FREE_NS);
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

/* Feeds body bytes; returns how many were used. */
static size_t
take_body(struct client *c, const char *p, size_t n)
{
	size_t left = n;

	for (;;) {
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
		c->body_bytes += data.len;
		if (error == -413) {
			request_fail(c->request, 413, "body_too_large",
				     "The request body is larger than this gateway allows.", 0);
			return n;
		}
		if (error < 0) {
			request_fail(c->request, 503, "overloaded",
				     "Too many request bytes are being held; try again.", 1);
			return n;
		}
	}
}

static bool
keep_bytes(struct client *c, const char *p, size_t n)
{
	struct client_buf *b = &c->in_buf;

	if (b->cap - b->len < n) {
		size_t cap = b->cap ? b->cap : 2048;
		char *grown;

		while (cap - b->len < n)
			cap *= 2;
		grown = realloc(b->p, cap);
		if (!grown)
			return false;
		b->p = grown;
		b->cap = cap;
	}
	memcpy(b->p + b->len, p, n);
	b->len += n;
	return true;
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

	if (kept && !keep_bytes(c, p, n)) {
		client_destroy(c);
		return n;
	}
	head = kept ? c->in_buf.p : p;
	len = kept ? c->in_buf.len : n;
	used = http1_parse_request(head, len, &c->scan, &rq, &why);
	if (used == 0 && len < set->limits.head_bytes) {
		if (!kept) {
			if (!keep_bytes(c, p, n)) {
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
	struct client_buf mine = {0};
	if (kept) {
		mine = c->in_buf;
		c->in_buf = (struct client_buf){0};
	}
	size_t rest = len - (size_t)used;
	route_request(c, &rq, head, (size_t)used);
	buf_free(&mine);
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
	if (!reset && c->state == CLIENT_BUSY && (c->request || c->send || c->fill.len > 0) &&
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
		c->recv = NULL;
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
			if (!keep_bytes(c, p, left)) {
				client_destroy(c);
				return;
			}
			if (c->in_buf.len > PIPELINE_MAX && c->recv) {
				io_cancel(c->in->io, c->recv);
				c->recv = NULL;
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
