/* tests/emulator/http_server.c -- see http_server.h. */
#include "tests/emulator/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BODY_MAX_BYTES (32u << 20)
#define UNSENT_MAX_BYTES (64u << 20)
#define READ_BYTES (64u << 10)
#define ACCEPTS_PER_EVENT 64 /* so that a burst of new clients does not stop the old ones */

enum conn_state {
	CONN_HEAD, /* no complete head yet */
	CONN_BODY,
	CONN_OPEN, /* the handler has the request */
};

struct buf {
	char *p;
	size_t len, cap;
};

struct http_conn {
	struct http_server *server;
	void *priv;
	int fd;
	enum conn_state state;
	bool keep_alive, http10;
	bool chunking;       /* a chunked answer is under way */
	bool to_head;        /* HEAD: no body is sent */
	bool closing;        /* close once all is written */
	bool dead;           /* closed; freed at the end of the turn */
	bool dirty;          /* in the list of http_server_flush */
	bool polling_out;
	uint64_t idle_ns;    /* since when */
	struct buf in, body, out;
	size_t out_off;
	size_t head_len;
	struct http1_scan scan;
	struct http1_request req;
	struct http1_body framing;
	size_t body_off;     /* of the body bytes not yet decoded, into in */
	struct http_conn *prev, *next; /* all connections, longest idle first */
	struct http_conn *next_dirty;
};

struct http_server {
	int epoll_fd, fd;
	unsigned port;
	struct http_handler handler;
	uint64_t keep_alive_ns, now_ns;
	struct http_conn *head, *tail, *dirty;
	unsigned conns;
	bool close_each;
};

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("http_server: out of memory\n", stderr);
		abort();
	}
	return p;
}

static void
buf_room(struct buf *buf, size_t more)
{
	size_t cap = buf->cap > 0 ? buf->cap : 4096;

	if (buf->len + more <= buf->cap)
		return;
	while (cap < buf->len + more)
		cap *= 2;
	buf->p = must(realloc(buf->p, cap));
	buf->cap = cap;
}

static void
buf_add(struct buf *buf, const char *p, size_t len)
{
	buf_room(buf, len);
	memcpy(buf->p + buf->len, p, len);
	buf->len += len;
}

/* ---- the list of connections ---- */

static void
conn_unlink(struct http_conn *conn)
{
	struct http_server *s = conn->server;

	if (conn->prev != NULL)
		conn->prev->next = conn->next;
	else
		s->head = conn->next;
	if (conn->next != NULL)
		conn->next->prev = conn->prev;
	else
		s->tail = conn->prev;
}

static void
conn_append(struct http_conn *conn)
{
	struct http_server *s = conn->server;

	conn->idle_ns = s->now_ns;
	conn->next = NULL;
	conn->prev = s->tail;
	if (s->tail != NULL)
		s->tail->next = conn;
	else
		s->head = conn;
	s->tail = conn;
}

static void
conn_dirty(struct http_conn *conn)
{
	if (conn->dirty)
		return;
	conn->dirty = true;
	conn->next_dirty = conn->server->dirty;
	conn->server->dirty = conn;
}

/* Close now; the memory goes at the end of the turn.  The owner is told unless it did it. */
static void
conn_kill(struct http_conn *conn, bool tell)
{
	struct http_server *s = conn->server;

	if (conn->dead)
		return;
	conn->dead = true;
	close(conn->fd);
	conn->fd = -1;
	conn_unlink(conn);
	s->conns--;
	conn_dirty(conn);
	if (tell && conn->state == CONN_OPEN)
		s->handler.on_closed(s->handler.arg, conn);
}

static void
conn_free(struct http_conn *conn)
{
	free(conn->in.p);
	free(conn->body.p);
	free(conn->out.p);
	free(conn);
}

static void
conn_poll(struct http_conn *conn, bool out)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | (out ? EPOLLOUT : 0u),
				 .data.ptr = conn};

	if (conn->polling_out != out)
		epoll_ctl(conn->server->epoll_fd, EPOLL_CTL_MOD, conn->fd, &ev);
	conn->polling_out = out;
}

static void
conn_write(struct http_conn *conn)
{
	while (conn->out_off < conn->out.len) {
		ssize_t n = send(conn->fd, conn->out.p + conn->out_off,
				 conn->out.len - conn->out_off, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (conn->out.len - conn->out_off > UNSENT_MAX_BYTES)
				conn_kill(conn, true);
			else
				conn_poll(conn, true);
			return;
		}
		if (n < 0) {
			conn_kill(conn, true);
			return;
		}
		conn->out_off += (size_t)n;
	}
	conn->out.len = conn->out_off = 0;
	if (conn->closing) {
		/* closing with bytes unread would reset the connection and might lose the answer */
		char sink[16384];

		shutdown(conn->fd, SHUT_WR);
		for (unsigned i = 0; i < 64 && recv(conn->fd, sink, sizeof sink, 0) > 0; i++)
			;
		conn_kill(conn, true);
	} else {
		conn_poll(conn, false);
	}
}

/* ---- requests ---- */

/* An answer the server gives by itself; the connection ends with it. */
static void
refuse(struct http_conn *conn, unsigned status, const char *why)
{
	char body[256];
	int n = snprintf(body, sizeof body,
			 "{\"error\":{\"message\":\"%s\",\"type\":\"BadRequestError\","
			 "\"param\":null,\"code\":%u}}", why, status);

	conn->keep_alive = false;
	conn->state = CONN_OPEN;
	http_conn_answer(conn, status, "application/json", "", body, (size_t)n);
}

/* All bytes of the request are used: the next one begins. */
static void
conn_next(struct http_conn *conn, size_t used)
{
	conn->in.len -= used;
	memmove(conn->in.p, conn->in.p + used, conn->in.len);
	if (conn->in.cap > 1u << 20 && conn->in.len < 4096) { /* a large body was an exception */
		conn->in.p = must(realloc(conn->in.p, 4096));
		conn->in.cap = 4096;
	}
	conn->scan = (struct http1_scan){0};
	conn->head_len = 0;
	conn->body.len = 0;
}

static void
hand_over(struct http_conn *conn, const char *body, size_t len, size_t used)
{
	struct http_server *s = conn->server;

	conn->state = CONN_OPEN;
	conn->priv = NULL;
	conn->chunking = false;
	s->handler.on_request(s->handler.arg, conn, &conn->req, body, len);
	if (!conn->dead)
		conn_next(conn, used);
}

/* Decode what there is of the body.  A body of known length is left where it is. */
static void
read_body(struct http_conn *conn)
{
	const char *why;

	if (conn->framing.framing == HTTP1_BODY_LENGTH) {
		size_t len = (size_t)conn->req.head.content_length;

		if (conn->in.len - conn->head_len >= len)
			hand_over(conn, conn->in.p + conn->head_len, len, conn->head_len + len);
		return;
	}
	for (;;) {
		size_t used = 0;
		struct slice data = {0};
		int r = http1_body_next(&conn->framing, conn->in.p + conn->body_off,
					conn->in.len - conn->body_off, &used, &data, &why);

		conn->body_off += used;
		if (r == HTTP1_BODY_DATA) {
			if (conn->body.len + data.len > BODY_MAX_BYTES) {
				refuse(conn, 413, "body larger than 32 MiB");
				return;
			}
			buf_add(&conn->body, data.p, data.len);
		} else if (r == HTTP1_BODY_END) {
			hand_over(conn, conn->body.len > 0 ? conn->body.p : "", conn->body.len,
				  conn->body_off);
			return;
		} else if (r == HTTP1_BODY_MORE) {
			/* what was decoded is not needed again: keep the head only */
			memmove(conn->in.p + conn->head_len, conn->in.p + conn->body_off,
				conn->in.len - conn->body_off);
			conn->in.len -= conn->body_off - conn->head_len;
			conn->body_off = conn->head_len;
			return;
		} else {
			refuse(conn, 400, why);
			return;
		}
	}
}

static void
read_head(struct http_conn *conn)
{
	const char *why;
	ssize_t n = http1_parse_request(conn->in.p, conn->in.len, &conn->scan, &conn->req, &why);

	if (n == 0)
		return;
	if (n < 0) {
		refuse(conn, (unsigned)-n, why);
		return;
	}
	conn->head_len = conn->body_off = (size_t)n;
	conn->keep_alive = conn->req.head.keep_alive;
	conn->http10 = conn->req.head.minor == 0;
	conn->to_head = conn->req.method == HTTP1_HEAD;
	http1_body_begin(&conn->framing, &conn->req.head);
	if (conn->framing.framing == HTTP1_BODY_LENGTH &&
	    conn->req.head.content_length > BODY_MAX_BYTES) {
		refuse(conn, 413, "body larger than 32 MiB");
		return;
	}
	conn->state = CONN_BODY;
	if (conn->req.expect_continue) {
		static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

		buf_add(&conn->out, go_on, sizeof go_on - 1);
		conn_dirty(conn);
	}
}

/* Take requests from what was read, until one is open. */
static void
conn_work(struct http_conn *conn)
{
	while (!conn->dead && !conn->closing && conn->state != CONN_OPEN && conn->in.len > 0) {
		enum conn_state state = conn->state;
		size_t left = conn->in.len;

		if (state == CONN_HEAD)
			read_head(conn);
		if (conn->state == CONN_BODY)
			read_body(conn);
		if (conn->state == state && conn->in.len == left)
			return; /* more bytes are needed */
	}
}

static void
conn_read(struct http_conn *conn)
{
	if (conn->state == CONN_OPEN && conn->in.len > READ_BYTES) {
		/* a client that floods while it waits: nothing more is read until it is answered,
		 * and level-triggered polling would spin */
		conn_kill(conn, true);
		return;
	}
	for (unsigned turns = 0; turns < 16; turns++) {
		char *was = conn->in.p;
		size_t want = READ_BYTES;
		ssize_t n;

		if (conn->state == CONN_BODY && conn->framing.framing == HTTP1_BODY_LENGTH) {
			size_t left = conn->head_len + (size_t)conn->req.head.content_length;

			left = left > conn->in.len ? left - conn->in.len : 0;
			if (left > want)
				want = left > 1u << 20 ? 1u << 20 : left; /* grown as bytes come */
		} else if (conn->in.len == 0) {
			want = 4096;
		}
		buf_room(&conn->in, want);
		if (conn->state == CONN_BODY && conn->in.p != was)
			http1_rebase_request(&conn->req, was, conn->in.p);
		n = recv(conn->fd, conn->in.p + conn->in.len, conn->in.cap - conn->in.len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			conn_kill(conn, true);
			return;
		}
		conn->in.len += (size_t)n;
		conn_work(conn);
		if (conn->dead || conn->state == CONN_OPEN || conn->in.len < conn->in.cap)
			return;
	}
}

static void
accept_some(struct http_server *s)
{
	for (unsigned i = 0; i < ACCEPTS_PER_EVENT; i++) {
		int one = 1;
		int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct http_conn *conn;
		struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP};

		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		conn = must(calloc(1, sizeof *conn));
		conn->server = s;
		conn->fd = fd;
		conn_append(conn);
		s->conns++;
		ev.data.ptr = conn;
		if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
			conn_kill(conn, false);
	}
}

void
http_server_event(struct http_server *s, void *tag, uint32_t events, uint64_t now_ns)
{
	struct http_conn *conn = tag;

	s->now_ns = now_ns;
	if (tag == s) {
		accept_some(s);
		return;
	}
	if (conn->dead)
		return;
	if (conn->state == CONN_OPEN && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
		conn_kill(conn, true);
		return;
	}
	if (events & EPOLLOUT)
		conn_write(conn);
	if (!conn->dead && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
		conn_read(conn);
}

void
http_server_flush(struct http_server *s)
{
	while (s->dirty != NULL) {
		struct http_conn *conn = s->dirty;

		s->dirty = conn->next_dirty;
		conn->dirty = false;
		if (!conn->dead && (conn->out.len > 0 || conn->closing))
			conn_write(conn);
		if (!conn->dead)
			conn_work(conn); /* a pipelined request */
		if (conn->dead && !conn->dirty)
			conn_free(conn);
	}
}

uint64_t
http_server_idle(struct http_server *s, uint64_t now_ns)
{
	struct http_conn *next;

	s->now_ns = now_ns;
	for (struct http_conn *conn = s->head; conn != NULL; conn = next) {
		next = conn->next;
		if (conn->idle_ns + s->keep_alive_ns > now_ns)
			return conn->idle_ns + s->keep_alive_ns;
		if (conn->state == CONN_HEAD && conn->in.len == 0) {
			conn_kill(conn, true);
		} else { /* busy: look again later */
			conn_unlink(conn);
			conn_append(conn);
		}
	}
	return s->head != NULL ? s->head->idle_ns + s->keep_alive_ns : UINT64_MAX;
}

/* ---- life ---- */

int
http_server_new(int epoll_fd, const struct http_handler *handler, double keep_alive_s,
		struct http_server **ret_server)
{
	struct http_server *s = calloc(1, sizeof *s);

	if (s == NULL)
		return -ENOMEM;
	s->epoll_fd = epoll_fd;
	s->fd = -1;
	s->handler = *handler;
	s->keep_alive_ns = (uint64_t)(keep_alive_s * 1e9);
	*ret_server = s;
	return 0;
}

void
http_server_free(struct http_server **sp)
{
	struct http_server *s = *sp;

	*sp = NULL;
	if (s == NULL)
		return;
	while (s->head != NULL)
		conn_kill(s->head, false);
	http_server_flush(s);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

static int
bind_path(struct http_server *s, const char *path, const char **why)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;

	if (path[0] == '\0' || strlen(path) >= sizeof addr.sun_path) {
		*why = "not a path of a unix socket";
		return -EINVAL;
	}
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
	if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
	    chmod(path, 0666) < 0) {
		int r = -errno;

		*why = strerror(-r);
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		return r;
	}
	s->port = 0;
	return 0;
}

int
http_server_bind(struct http_server *s, const char *host, unsigned port, const char **why)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	socklen_t len = sizeof addr;
	int one = 1;

	if (strncmp(host, "unix:", 5) == 0)
		return bind_path(s, host + 5, why);
	if (inet_pton(AF_INET, host, &addr.sin_addr) != 1) {
		*why = "not an IPv4 address";
		return -EINVAL;
	}
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
	    getsockname(s->fd, (struct sockaddr *)&addr, &len) < 0) {
		int r = -errno;

		*why = strerror(-r);
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		return r;
	}
	s->port = ntohs(addr.sin_port);
	return 0;
}

int
http_server_listen(struct http_server *s)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};

	if (listen(s->fd, 4096) < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
		return -errno;
	return 0;
}

unsigned
http_server_port(const struct http_server *s)
{
	return s->port;
}

static void
conn_reset(struct http_conn *conn, bool tell)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};

	setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	conn_kill(conn, tell);
}

void
http_server_shut(struct http_server *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	while (s->head != NULL)
		conn_reset(s->head, true);
}

void
http_server_close_each(struct http_server *s, bool on)
{
	s->close_each = on;
}

void
http_server_refuse(struct http_server *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

unsigned
http_server_conns(const struct http_server *s)
{
	return s->conns;
}

/* ---- answers ---- */

void *
http_conn_priv(const struct http_conn *conn)
{
	return conn->priv;
}

void
http_conn_set_priv(struct http_conn *conn, void *priv)
{
	conn->priv = priv;
}

/* The answer is complete. */
static void
answered(struct http_conn *conn)
{
	conn->state = CONN_HEAD;
	conn->priv = NULL;
	conn->closing = !conn->keep_alive;
	conn_unlink(conn);
	conn_append(conn);
	conn_dirty(conn);
}

static void
put_head(struct http_conn *conn, unsigned status, const char *type, const char *headers,
	 const char *framing)
{
	char line[512];
	int n;

	conn->keep_alive = conn->keep_alive && !conn->server->close_each;
	n = snprintf(line, sizeof line, "HTTP/1.1 %u %s\r\nserver: pointsman-emulator\r\n"
			 "content-type: %s\r\n%s%s", status, http1_reason(status), type, framing,
			 conn->keep_alive ? (conn->http10 ? "connection: keep-alive\r\n" : "")
					  : "connection: close\r\n");

	buf_add(&conn->out, line, (size_t)n);
	buf_add(&conn->out, headers, strlen(headers));
	buf_add(&conn->out, "\r\n", 2);
}

void
http_conn_answer(struct http_conn *conn, unsigned status, const char *type, const char *headers,
		 const char *body, size_t len_bytes)
{
	char framing[64];

	if (conn->dead)
		return;
	snprintf(framing, sizeof framing, "content-length: %zu\r\n", len_bytes);
	put_head(conn, status, type, headers, framing);
	if (!conn->to_head)
		buf_add(&conn->out, body, len_bytes);
	answered(conn);
}

void
http_conn_begin(struct http_conn *conn, unsigned status, const char *type, const char *headers)
{
	if (conn->dead)
		return;
	conn->chunking = !conn->http10;
	if (conn->http10)
		conn->keep_alive = false;
	put_head(conn, status, type, headers,
		 conn->chunking ? "transfer-encoding: chunked\r\n" : "");
	conn_dirty(conn);
}

void
http_conn_chunk(struct http_conn *conn, const char *p, size_t len_bytes)
{
	char size[20];

	if (conn->dead || len_bytes == 0)
		return;
	buf_room(&conn->out, len_bytes + 32);
	if (conn->chunking)
		buf_add(&conn->out, size, http1_chunk_head(size, len_bytes));
	buf_add(&conn->out, p, len_bytes);
	if (conn->chunking)
		buf_add(&conn->out, "\r\n", 2);
	conn_dirty(conn);
}

void
http_conn_end(struct http_conn *conn)
{
	if (conn->dead)
		return;
	if (conn->chunking)
		buf_add(&conn->out, "0\r\n\r\n", 5);
	answered(conn);
}

void
http_conn_cut(struct http_conn *conn)
{
	if (conn->dead)
		return;
	conn->state = CONN_HEAD;
	conn->closing = true;
	conn_dirty(conn);
}

void
http_conn_reset(struct http_conn *conn)
{
	if (conn->dead)
		return;
	conn_reset(conn, false);
}
