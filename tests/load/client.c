/* tests/load/client.c -- see client.h. */
#include "tests/load/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "proto/http1.h"
#include "proto/openai.h"
#include "proto/sse.h"

#define READ_BYTES (256u << 10)
#define EVENT_MAX_BYTES 4096 /* of an SSE event; ours are below 1 KB */

struct link {
	struct link *prev, *next;
};

/* One connection and the request on it. */
struct conn {
	struct link link;        /* open (by start), or idle (of its target), or closed */
	struct client *client;
	int fd;
	unsigned target;
	bool busy, connecting, sending, closed, reused;
	uint64_t idle_ns;
	struct client_request req;
	struct client_result res;
	char head[768];
	size_t head_len, sent;
	/* the answer */
	bool head_read, stream, done_seen, peer_keeps;
	struct http1_scan scan;
	struct http1_body body;
	struct sse_watch sse;
	char event[EVENT_MAX_BYTES];
	char *part;              /* the beginning of an answer head that came in pieces */
	size_t part_len;
	char *text;              /* answer text (stream), or whole answer */
	size_t text_len, text_cap;
};

struct client {
	int epoll_fd;
	struct client_config cfg;
	struct link open, closed, *idle;
	unsigned n_open;
	char *read_buf;
};

static uint64_t
mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("client: out of memory\n", stderr);
		abort();
	}
	return p;
}

static void
link_init(struct link *list)
{
	list->prev = list->next = list;
}

static void
link_append(struct link *list, struct link *item)
{
	item->prev = list->prev;
	item->next = list;
	list->prev->next = item;
	list->prev = item;
}

static void
link_remove(struct link *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
}

/* The link is a connection's first member. */
static struct conn *
conn_of(struct link *link)
{
	return (struct conn *)(void *)link;
}

static void
conn_close(struct conn *conn)
{
	if (conn->closed)
		return;
	conn->closed = true;
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	link_remove(&conn->link);
	link_append(&conn->client->closed, &conn->link);
}

static void
conn_free(struct conn *conn)
{
	link_remove(&conn->link);
	free(conn->part);
	free(conn->text);
	free(conn);
}

/* The request is over.  error NULL: it was answered, with whatever status. */
static void
finish(struct conn *conn, const char *error)
{
	struct client *client = conn->client;
	struct client_result *res = &conn->res;
	bool keep = error == NULL && client->cfg.keep_alive && conn->peer_keeps && conn->body.ended;

	res->end_ns = mono_ns();
	if (error == NULL && res->status != 200)
		error = "refused by the server";
	res->error = error;
	if (!conn->stream && res->status == 200 && conn->text != NULL) {
		struct openai_usage usage;

		if (openai_scan_usage((struct slice){conn->text, conn->text_len}, &usage)) {
			res->prompt_tokens = usage.prompt_tokens;
			res->output_tokens = usage.completion_tokens;
			res->cached_tokens = usage.cached_tokens;
		}
		res->first_token_ns = res->first_byte_ns;
		res->last_token_ns = res->end_ns;
	}
	if (res->cached_tokens == OPENAI_TOKENS_UNKNOWN)
		res->cached_tokens = 0;
	res->answer = conn->text;
	res->answer_len_bytes = conn->text_len;
	conn->busy = false;
	client->n_open--;
	if (keep) {
		link_remove(&conn->link);
		link_append(&client->idle[conn->target], &conn->link);
		conn->idle_ns = res->end_ns;
	} else {
		conn_close(conn);
	}
	client->cfg.done(client->cfg.arg, conn->req.priv, res);
}

/* ---- reading ---- */

static void
text_add(struct conn *conn, const char *p, size_t len)
{
	if (len == 0)
		return;
	if (conn->text_len + len > conn->text_cap) {
		conn->text_cap = (conn->text_len + len) * 2;
		conn->text = must(realloc(conn->text, conn->text_cap));
	}
	memcpy(conn->text + conn->text_len, p, len);
	conn->text_len += len;
}

/* Keep the string value of the first such key, still escaped. */
static void
keep_string(struct conn *conn, struct slice data, const char *key)
{
	const char *p = memmem(data.p, data.len, key, strlen(key)), *end = data.p + data.len, *q;

	if (p == NULL)
		return;
	p += strlen(key);
	for (q = p; q < end && *q != '"'; q++)
		if (*q == '\\' && q + 1 < end)
			q++;
	text_add(conn, p, (size_t)(q - p));
}

static void
on_event(void *arg, const struct sse_event *event)
{
	struct conn *conn = arg;
	struct client_result *res = &conn->res;
	struct openai_usage usage;

	if (slice_eq_str(event->data, "[DONE]")) {
		conn->done_seen = true;
		return;
	}
	if (memmem(event->data.p, event->data.len, "\"error\":{", 9) != NULL) {
		res->error = "error event in the stream";
		return;
	}
	if (memmem(event->data.p, event->data.len, "\"choices\":[]", 12) == NULL) {
		res->last_token_ns = mono_ns();
		if (res->first_token_ns == 0)
			res->first_token_ns = res->last_token_ns;
		if (conn->req.keep_answer)
			keep_string(conn, event->data, "\"content\":\"");
	}
	if (memmem(event->data.p, event->data.len, "\"usage\":{", 9) != NULL &&
	    openai_scan_usage(event->data, &usage)) {
		res->prompt_tokens = usage.prompt_tokens;
		res->output_tokens = usage.completion_tokens;
		res->cached_tokens = usage.cached_tokens;
	}
}

static void
on_head(struct conn *conn, const struct http1_response *head)
{
	const struct http1_header *h = http1_find(&head->head, "x-pointsman-worker", NULL);

	if (h == NULL)
		h = http1_find(&head->head, "x-emu-worker", NULL);
	if (h != NULL)
		snprintf(conn->res.worker, sizeof conn->res.worker, "%.*s", (int)h->value.len,
			 h->value.p);
	conn->res.status = head->status;
	conn->stream = http1_media_type_is(&head->head, "text/event-stream");
	conn->peer_keeps = head->head.keep_alive;
	conn->head_read = true;
	http1_body_begin(&conn->body, &head->head);
	if (conn->stream)
		sse_watch_init(&conn->sse, conn->event, sizeof conn->event, on_event, conn);
}

/* Bytes of the body.  True: the request is over (finish was called). */
static bool
on_body(struct conn *conn, const char *p, size_t len)
{
	for (;;) {
		size_t used = 0;
		struct slice data = {0};
		const char *why;
		int r = http1_body_next(&conn->body, p, len, &used, &data, &why);

		p += used;
		len -= used;
		if (r == HTTP1_BODY_DATA && conn->stream) {
			sse_watch_feed(&conn->sse, data.p, data.len);
			if (conn->done_seen && !conn->client->cfg.keep_alive) {
				finish(conn, conn->res.error);
				return true;
			}
		} else if (r == HTTP1_BODY_DATA) {
			text_add(conn, data.p, data.len);
		} else if (r == HTTP1_BODY_END) {
			const char *error = conn->res.error;

			if (error == NULL && conn->stream && !conn->done_seen)
				error = "stream ended without [DONE]";
			finish(conn, error);
			return true;
		} else if (r == HTTP1_BODY_MORE) {
			return false;
		} else {
			finish(conn, "bad chunking in the answer");
			return true;
		}
	}
}

/* New bytes, behind what is left of the head.  True: the request is over. */
static bool
on_bytes(struct conn *conn, char *p, size_t len)
{
	while (!conn->head_read) {
		struct http1_response head;
		const char *why;
		ssize_t n = http1_parse_response(p, len, false, &conn->scan, &head, &why);

		if (n < 0) {
			finish(conn, "bad answer head");
			return true;
		}
		if (n == 0) {
			char *part = must(malloc(len + 1));

			memcpy(part, p, len);
			free(conn->part);
			conn->part = part;
			conn->part_len = len;
			return false;
		}
		conn->scan = (struct http1_scan){0};
		if (head.status >= 200)
			on_head(conn, &head);
		p += n;
		len -= (size_t)n;
	}
	conn->part_len = 0;
	return on_body(conn, p, len);
}

static const char *
broken(const struct conn *conn)
{
	if (conn->head_read)
		return "answer cut short";
	return conn->reused ? "kept connection closed by the server" : "closed without an answer";
}

static void
conn_read(struct conn *conn)
{
	char *buf = conn->client->read_buf;

	for (unsigned turns = 0; turns < 8; turns++) {
		size_t part = conn->head_read ? 0 : conn->part_len;
		ssize_t n;

		if (part > 0)
			memcpy(buf, conn->part, part);
		n = recv(conn->fd, buf + part, READ_BYTES - part, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			if (!conn->busy)
				conn_close(conn);
			else if (n == 0 && conn->head_read && http1_body_eof(&conn->body) &&
				 (!conn->stream || conn->done_seen))
				finish(conn, conn->res.error);
			else
				finish(conn, n == 0 ? broken(conn) : "connection reset");
			return;
		}
		if (!conn->busy) { /* nobody asked for this */
			conn_close(conn);
			return;
		}
		if (conn->res.first_byte_ns == 0)
			conn->res.first_byte_ns = mono_ns();
		if (on_bytes(conn, buf, part + (size_t)n) || (size_t)n < READ_BYTES - part)
			return;
	}
}

/* ---- sending ---- */

static void
poll_for(struct conn *conn, uint32_t events, int op)
{
	struct epoll_event ev = {.events = events, .data.ptr = conn};

	epoll_ctl(conn->client->epoll_fd, op, conn->fd, &ev);
}

static void
conn_write(struct conn *conn)
{
	const struct client_request *req = &conn->req;

	while (conn->sent < conn->head_len + req->len_bytes) {
		struct iovec iov[2];
		struct msghdr msg = {.msg_iov = iov};
		size_t body_off = conn->sent > conn->head_len ? conn->sent - conn->head_len : 0;
		ssize_t n;

		if (conn->sent < conn->head_len)
			iov[msg.msg_iovlen++] = (struct iovec){conn->head + conn->sent,
							       conn->head_len - conn->sent};
		iov[msg.msg_iovlen++] = (struct iovec){(char *)(uintptr_t)(req->body + body_off),
						       req->len_bytes - body_off};
		n = sendmsg(conn->fd, &msg, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!conn->sending)
				poll_for(conn, EPOLLIN | EPOLLRDHUP | EPOLLOUT, EPOLL_CTL_MOD);
			conn->sending = true;
			return;
		}
		if (n < 0) {
			finish(conn, "connection broken while sending");
			return;
		}
		conn->sent += (size_t)n;
	}
	if (conn->sending)
		poll_for(conn, EPOLLIN | EPOLLRDHUP, EPOLL_CTL_MOD);
	conn->sending = false;
	if (conn->client->cfg.on_sent != NULL)
		conn->client->cfg.on_sent(conn->client->cfg.arg, req->priv);
}

static void
begin(struct conn *conn, const struct client_request *req)
{
	struct client *client = conn->client;
	int n;

	conn->req = *req;
	conn->res = (struct client_result){.start_ns = mono_ns(),
					   .cached_tokens = OPENAI_TOKENS_UNKNOWN};
	conn->busy = true;
	conn->head_read = conn->stream = conn->done_seen = false;
	conn->scan = (struct http1_scan){0};
	conn->part_len = conn->text_len = conn->sent = 0;
	n = snprintf(conn->head, sizeof conn->head,
		     "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
		     "Content-Length: %zu\r\nX-Request-Id: %s\r\n%s\r\n", req->path,
		     req->target->host, req->len_bytes, req->id, req->headers);
	link_append(&client->open, &conn->link);
	client->n_open++;
	if (n < 0 || (size_t)n >= sizeof conn->head) {
		finish(conn, "request head too long");
		return;
	}
	conn->head_len = (size_t)n;
}

/* A kept connection that is still good, or NULL. */
static struct conn *
take_idle(struct client *client, unsigned target)
{
	uint64_t now_ns = mono_ns();

	while (client->idle[target].next != &client->idle[target]) {
		struct conn *conn = conn_of(client->idle[target].next);
		char byte;

		if (now_ns - conn->idle_ns > client->cfg.idle_max_ns ||
		    recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
			conn_close(conn); /* too old, or the server closed it */
			continue;
		}
		link_remove(&conn->link);
		return conn;
	}
	return NULL;
}

void
client_send(struct client *client, const struct client_request *req)
{
	struct conn *conn = client->cfg.keep_alive ? take_idle(client, req->target_index) : NULL;
	int one = 1;

	if (conn != NULL) {
		conn->reused = true;
		begin(conn, req);
		if (conn->busy) {
			conn->res.conn_ns = conn->res.start_ns;
			conn_write(conn);
		}
		return;
	}
	conn = must(calloc(1, sizeof *conn));
	conn->client = client;
	conn->target = req->target_index;
	conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	begin(conn, req);
	if (!conn->busy)
		return;
	if (conn->fd < 0) {
		finish(conn, "no socket");
		return;
	}
	setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	conn->connecting = true;
	if (connect(conn->fd, (const struct sockaddr *)&req->target->addr,
		    sizeof req->target->addr) < 0 && errno != EINPROGRESS) {
		finish(conn, errno == EADDRNOTAVAIL ? "no local port left" : "cannot connect");
		return;
	}
	poll_for(conn, EPOLLIN | EPOLLRDHUP | EPOLLOUT, EPOLL_CTL_ADD);
	conn->sending = true;
}

void
client_event(struct client *client, void *tag, uint32_t events)
{
	struct conn *conn = tag;

	(void)client;
	if (conn->closed)
		return;
	if (conn->connecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
		int error = 0;
		socklen_t len = sizeof error;

		getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len);
		conn->connecting = false;
		if (error != 0) {
			finish(conn,
			       error == ECONNREFUSED ? "connection refused" : "cannot connect");
			return;
		}
		conn->res.conn_ns = mono_ns();
	}
	if (conn->connecting)
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn_read(conn); /* first: an answer that came before all was sent still counts */
	if (!conn->closed && conn->busy && conn->sending && (events & EPOLLOUT))
		conn_write(conn);
}

void
client_sweep(struct client *client, uint64_t now_ns)
{
	while (client->closed.next != &client->closed)
		conn_free(conn_of(client->closed.next));
	while (client->open.next != &client->open) { /* ordered by start */
		struct conn *conn = conn_of(client->open.next);

		if (now_ns < conn->res.start_ns + client->cfg.timeout_ns)
			break;
		finish(conn, "timed out");
	}
}

void
client_stop(struct client *client, const char *why)
{
	while (client->open.next != &client->open)
		finish(conn_of(client->open.next), why);
}

unsigned
client_open(const struct client *client)
{
	return client->n_open;
}

int
client_parse_target(const char *url, struct client_target *ret, const char **why)
{
	struct client_target target = {.addr.sin_family = AF_INET};
	const char *p = strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
	const char *colon = p != NULL ? strrchr(p, ':') : NULL;
	char host[48];
	unsigned long port;
	char *end;

	if (colon == NULL || colon - p >= (ptrdiff_t)sizeof host) {
		*why = "a target looks like http://127.0.0.1:8000";
		return -EINVAL;
	}
	memcpy(host, p, (size_t)(colon - p));
	host[colon - p] = '\0';
	port = strtoul(colon + 1, &end, 10);
	if (port == 0 || port > 65535 || (*end != '\0' && strcmp(end, "/") != 0)) {
		*why = "the port of a target must be 1 to 65535";
		return -EINVAL;
	}
	if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
		      &target.addr.sin_addr) != 1) {
		*why = "the host of a target must be an IPv4 address or localhost";
		return -EINVAL;
	}
	target.addr.sin_port = htons((uint16_t)port);
	snprintf(target.host, sizeof target.host, "%s:%lu", host, port);
	*ret = target;
	return 0;
}

int
client_new(int epoll_fd, const struct client_config *cfg, struct client **ret_client)
{
	struct client *client = calloc(1, sizeof *client);

	if (client == NULL)
		return -ENOMEM;
	client->epoll_fd = epoll_fd;
	client->cfg = *cfg;
	client->idle = calloc(cfg->targets, sizeof *client->idle);
	client->read_buf = malloc(READ_BYTES);
	if (client->idle == NULL || client->read_buf == NULL) {
		free(client->idle);
		free(client->read_buf);
		free(client);
		return -ENOMEM;
	}
	link_init(&client->open);
	link_init(&client->closed);
	for (unsigned i = 0; i < cfg->targets; i++)
		link_init(&client->idle[i]);
	*ret_client = client;
	return 0;
}

void
client_free(struct client **clientp)
{
	struct client *client = *clientp;

	*clientp = NULL;
	if (client == NULL)
		return;
	while (client->open.next != &client->open)
		conn_close(conn_of(client->open.next));
	for (unsigned i = 0; i < client->cfg.targets; i++)
		while (client->idle[i].next != &client->idle[i])
			conn_close(conn_of(client->idle[i].next));
	while (client->closed.next != &client->closed)
		conn_free(conn_of(client->closed.next));
	free(client->idle);
	free(client->read_buf);
	free(client);
}
