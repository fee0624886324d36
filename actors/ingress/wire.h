/* actors/ingress/wire.h -- one connection of a client or to a worker, as its owner sees it.
 *
 * Meaning    What io.h does to a descriptor, for a connection that has one owner: receive, send,
 *            end, close.  Owners never touch the descriptor, and cannot tell TLS from none but by
 *            `opened`.  Callbacks keep the rules of io.h: never inside a starting call, none after
 *            wire_close, exactly one end of receiving.
 * TLS        wire_accept_tls or wire_connect_tls right after wire_open; then `opened` comes once,
 *            before anything else.  A client's end of stream without close_notify is an end of
 *            stream; a worker's is an error (-ECONNABORTED): an answer may have been cut there.
 * Ownership  Embedded in its owner, which must not free it before wire_close, nor within a
 *            callback; the descriptor is the wire's.
 * Threads    the loop's.
 * Cost       an indirect call for what arrives and for what was sent; no copy.With TLS: the
 *            ciphers, a handshake with one private-key operation (P-256 costs far less than RSA),
 *            and OpenSSL's memory of the connection.
 */
#pragma once
#include "actors/ingress/io.h"
#include "actors/ingress/tls.h"

struct wire_ops {
	void (*received)(void *arg, const void *buf, ssize_t n);        /* as io_recv_f */
	void (*sent)(void *arg, int result);                            /* as io_done_f */
	void (*opened)(void *arg, int result, const char *why);
	/* The handshake is over.  0; < 0 and why, then the owner closes.  -EPROTOTYPE: the peer
	 * spoke plain HTTP, and so does the wire from here on. */
};

struct wire {
	struct io *io;                  /* borrowed */
	int fd;                         /* owned; -1: closed */
	const struct wire_ops *ops;
	void *arg;
	struct io_op *recv, *send;
	struct wire_tls *tls;           /* owned; NULL: plain */
};

void wire_open(struct wire *ret, struct io *io, int fd, const struct wire_ops *ops, void *arg);
	/* Takes fd.  Nothing is received before wire_receive. */
int wire_accept_tls(struct wire *w, struct tls *tls);
int wire_connect_tls(struct wire *w, struct tls *tls, unsigned set, const char *host);
	/* Begins the handshake.  0, -ENOMEM; -ENOENT: tls has nothing for that. */
bool wire_opening(const struct wire *w);        /* the handshake is under way */
int wire_receive(struct wire *w);
	/* Starts, or goes on after wire_pause: nothing was lost.  0, also when it receives already;
	 * -ENOMEM.  Not after the end has been received. */
void wire_pause(struct wire *w);
bool wire_receives(const struct wire *w);
int wire_send(struct wire *w, const struct iovec *iov, unsigned n);
	/* One at a time; the bytes stay the caller's and in place until `sent`.  0, -ENOMEM. */
bool wire_sends(const struct wire *w);
void wire_shut(struct wire *w, bool whole);
	/* Nothing more will be sent, and nothing is being sent: the peer sees the end, and what it
	 * sends is received as before.  whole: the end is meant, so TLS says close_notify. */
void wire_bye(struct wire *w);
	/* Before wire_close of an idle connection: TLS says close_notify, if that needs no wait. */
void wire_close(struct wire *w);
	/* At once, whatever is under way.  Does nothing the second time. */
