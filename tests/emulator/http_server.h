/* tests/emulator/http_server.h -- a small HTTP/1.1 server on an epoll set of its owner.
 *
 * Meaning    Reads whole requests, hands them to one function, and lets that answer now or later,
 *            in one piece or as a chunked stream.  One request at a time per connection; a
 *            pipelined one waits.  A client that closes (or half-closes) while its request is open
 *            has left.
 * Writing    Output is gathered and written by http_server_flush, once per connection, so all that
 *            one turn of the loop produced for a client leaves in one write.
 * Limits     Head as proto/http1.h says, body 32 MiB (413), 64 MiB of unsent output (then the
 *            client is dropped).  Idle connections are closed after keep_alive_s.
 * Errors     Negative errno where stated; bad requests are answered and the connection closed.
 * Ownership  A connection lives until on_closed or, without an open request, until the next call of
 *            the server; the owner keeps no pointer to one whose request is answered.
 * Threads    One.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/http1.h"

struct http_conn;
struct http_server;

struct http_handler {
	void *arg;
	void (*on_request)(void *arg, struct http_conn *, const struct http1_request *,
			   const char *body, size_t len_bytes);
		/* Request and body are good during the call only. */
	void (*on_closed)(void *arg, struct http_conn *);
		/* The client of an open request left.  Answering is a mistake from here on. */
};

int http_server_new(int epoll_fd, const struct http_handler *, double keep_alive_s,
		    struct http_server **ret_server);
void http_server_free(struct http_server **);
	/* Closes all connections, without on_closed. */
int http_server_bind(struct http_server *, const char *host, unsigned port, const char **why);
	/* Takes the port (0: any free one) but refuses connections until http_server_listen.
	 * host "unix:PATH": that socket, in the place of one that was there, open to everybody. */
int http_server_listen(struct http_server *);
unsigned http_server_port(const struct http_server *);
void http_server_shut(struct http_server *);
	/* Stop listening and reset all connections, as a dying process does; on_closed is
	 * called. */
void http_server_close_each(struct http_server *, bool on);
	/* Each answer ends its connection, and says so; off: again as the client wishes. */
void http_server_refuse(struct http_server *);
	/* Stop listening; connections live on. */
void http_server_event(struct http_server *, void *tag, uint32_t events, uint64_t now_ns);
	/* An epoll event whose data.ptr is not the owner's own. */
void http_server_flush(struct http_server *);
	/* Write what is to be written; serve pipelined requests.  At the end of each turn. */
uint64_t http_server_idle(struct http_server *, uint64_t now_ns);
	/* Close idle connections; returns when to call again (UINT64_MAX: nothing to wait for). */
unsigned http_server_conns(const struct http_server *);

void *http_conn_priv(const struct http_conn *);
void http_conn_set_priv(struct http_conn *, void *);
	/* One pointer for the owner, NULL at the start of each request. */
void http_conn_answer(struct http_conn *, unsigned status, const char *type, const char *headers,
		      const char *body, size_t len_bytes);
	/* The whole answer.  headers: more header lines, each with CRLF, or "". */
void http_conn_begin(struct http_conn *, unsigned status, const char *type, const char *headers);
	/* The head of a chunked answer (of one that ends by closing, to HTTP/1.0). */
void http_conn_chunk(struct http_conn *, const char *p, size_t len_bytes);
void http_conn_end(struct http_conn *);
	/* The stream is complete. */
void http_conn_cut(struct http_conn *);
	/* Write what was gathered, then close without completing the answer. */
void http_conn_reset(struct http_conn *);
	/* Close at once with a TCP reset. */
