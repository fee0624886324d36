/* actors/ingress/wire_tls.c -- see wire_tls.h.
 *
 * Ciphertext in: io's buffer is `in` while its callback runs, and OpenSSL reads from there; what is
 * left when the owner pauses is kept.  Ciphertext out: OpenSSL writes to `fill`; when the socket is
 * free, fill and flight change places and io sends flight.  What has to be told later, because a
 * starting call must not call back, is told by a timer that is due at once.
 */
#include "actors/ingress/wire_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "actors/ingress/bytes.h"

#define RECORD_BYTES 16384u             /* of plaintext in a record at most */
#define AHEAD_BYTES  65536u             /* plaintext encrypted before the socket took it */
#define FILL_BYTES   262144u            /* ciphertext that may wait */

struct wire_tls {
	struct wire *w;                 /* NULL: closed within a callback of ours */
	SSL *ssl;                       /* owned */
	struct tls *of;                 /* reference */
	/* a worker's end; the handshake is over; the owner wants to read; a callback runs */
	bool worker, open, wants, running;
	bool ended;                     /* the end was told: nothing is read any more */
	bool broken;                    /* nothing can be sent any more */
	bool end_due, result_due;       /* to be told: */
	ssize_t end;
	int result;
	bool sending;                   /* the owner's iov is being sent */
	bool shut, shut_due;
	const uint8_t *in;              /* being read; borrowed from io or kept */
	size_t in_len;
	uint8_t *kept;                  /* owned */
	struct bytes fill, flight;      /* owned */
	struct iovec iov[IO_SEND_PIECES_MAX];
	unsigned at, n;
	struct io_op *later;
	char why[TLS_WHY_MAX];
};

/* ---- the BIO ---- */

static int
bio_read(BIO *bio, char *to, int cap)
{
	struct wire_tls *t = BIO_get_data(bio);
	size_t n = t->in_len < (size_t)cap ? t->in_len : (size_t)cap;

	BIO_clear_retry_flags(bio);
	if (n == 0) {
		BIO_set_retry_read(bio);
		return -1;
	}
	memcpy(to, t->in, n);
	t->in += n;
	t->in_len -= n;
	return (int)n;
}

static int
bio_write(BIO *bio, const char *p, int n)
{
	struct wire_tls *t = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	return t->fill.len + (size_t)n <= FILL_BYTES && bytes_add(&t->fill, p, (size_t)n) ? n : -1;
}

static long
bio_ctrl(BIO *bio, int what, long n, void *p)
{
	(void)bio;
	(void)n;
	(void)p;
	return what == BIO_CTRL_FLUSH;
}

BIO_METHOD *
wire_tls_bio(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");

	if (m && BIO_meth_set_read(m, bio_read) && BIO_meth_set_write(m, bio_write) &&
	    BIO_meth_set_ctrl(m, bio_ctrl))
		return m;
	BIO_meth_free(m);
	return NULL;
}

/* ---- life ---- */

static void
session_free(struct wire_tls *t)
{
	SSL_free(t->ssl);
	tls_drop(&t->of);
	free(t->kept);
	bytes_free(&t->fill);
	bytes_free(&t->flight);
	free(t);
}

/* Out of the wire: at once, or when the callback that is running has returned. */
static void
session_leave(struct wire_tls *t)
{
	if (t->later)
		io_cancel(t->w->io, t->later);
	t->later = NULL;
	t->w->tls = NULL;
	t->w = NULL;
	if (!t->running)
		session_free(t);
}

void
wire_tls_close(struct wire *w)
{
	session_leave(w->tls);
}

/* ---- out ---- */

static void flush(struct wire_tls *t);
static void turn(struct wire_tls *t);

static void
on_later(void *arg, int ignored)
{
	struct wire_tls *t = arg;

	(void)ignored;
	t->later = NULL;
	turn(t);
}

static bool
later(struct wire_tls *t)
{
	if (!t->later)
		t->later = io_timer(t->w->io, 0, on_later, t);
	return t->later != NULL;
}

/* OpenSSL's word on a failure.  After it, SSL_shutdown is forbidden. */
static void
failed(struct wire_tls *t)
{
	t->broken = true;
	tls_reason(t->why, t->worker ? t->ssl : NULL);
}

/* The owner's bytes, as far as the bound lets: whole records, gathered where pieces are small. */
static void
encrypt(struct wire_tls *t)
{
	uint8_t gathered[RECORD_BYTES];

	while (t->sending && !t->broken && t->at < t->n && t->fill.len < AHEAD_BYTES) {
		struct iovec *v = &t->iov[t->at];
		const uint8_t *p = v->iov_base;
		size_t n = v->iov_len < RECORD_BYTES ? v->iov_len : RECORD_BYTES;

		if (n < RECORD_BYTES && t->at + 1 < t->n) {
			size_t have = 0;

			for (unsigned i = t->at; i < t->n && have < RECORD_BYTES; i++) {
				n = t->iov[i].iov_len < RECORD_BYTES - have
					    ? t->iov[i].iov_len : RECORD_BYTES - have;
				if (n > 0)
					memcpy(gathered + have, t->iov[i].iov_base, n);
				have += n;
			}
			p = gathered;
			n = have;
		}
		ERR_clear_error();
		if (n > 0 && SSL_write(t->ssl, p, (int)n) != (int)n) {
			failed(t);
			break;
		}
		do {                    /* what was taken, and pieces that are empty now */
			v = &t->iov[t->at];
			size_t used = v->iov_len < n ? v->iov_len : n;

			v->iov_base = (uint8_t *)v->iov_base + used;
			v->iov_len -= used;
			n -= used;
			if (v->iov_len == 0)
				t->at++;
		} while (t->at < t->n && (n > 0 || t->iov[t->at].iov_len == 0));
	}
}

/* All of the owner's bytes are gone, or will never go. */
static void
result_is(struct wire_tls *t, int result)
{
	t->sending = false;
	t->result_due = true;
	t->result = result;
}

static void
on_flight(void *arg, int result)
{
	struct wire_tls *t = arg;

	t->w->send = NULL;
	t->flight.len = 0;
	if (result < 0) {
		t->broken = true;
		t->fill.len = 0;
	}
	if (t->sending && t->broken)
		result_is(t, result < 0 ? result : -EPIPE);
	encrypt(t);
	if (t->sending && t->at == t->n && t->fill.len == 0)
		result_is(t, 0);
	turn(t);
}

static void
flush(struct wire_tls *t)
{
	struct bytes b = t->fill;
	struct iovec v;

	if (t->w->send)
		return;
	if (b.len == 0) {
		bytes_free(&t->fill);   /* an idle connection keeps none */
		bytes_free(&t->flight);
		if (t->shut_due)
			shutdown(t->w->fd, SHUT_WR);
		t->shut_due = false;
		return;
	}
	t->fill = t->flight;
	t->flight = b;
	v = (struct iovec){t->flight.p, t->flight.len};
	t->w->send = io_send(t->w->io, t->w->fd, &v, 1, on_flight, t);
	if (!t->w->send) {
		t->broken = true;
		t->flight.len = 0;
	}
}

/* One alert, where io has nothing under way: it fits the socket or is not worth waiting for. */
static void
send_alert(struct wire_tls *t)
{
	if (!t->w->send && t->fill.len > 0)
		(void)!send(t->w->fd, t->fill.p, t->fill.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	t->fill.len = 0;
}

/* ---- in ---- */

static void
tell_opened(struct wire_tls *t, int result)
{
	struct wire *w = t->w;

	if (result < 0)
		t->ended = t->broken = true;
	else
		t->open = true;
	w->ops->opened(w->arg, result, t->why);
}

static void
handshake(struct wire_tls *t)
{
	struct wire *w = t->w;
	unsigned long e;
	int r;

	ERR_clear_error();
	r = SSL_do_handshake(t->ssl);
	if (r == 1) {
		tell_opened(t, 0);
		return;
	}
	if (SSL_get_error(t->ssl, r) == SSL_ERROR_WANT_READ)
		return;
	e = ERR_peek_error();
	failed(t);
	if (!t->worker && ERR_GET_LIB(e) == ERR_LIB_SSL &&
	    ERR_GET_REASON(e) == SSL_R_HTTP_REQUEST && !w->send) {
		session_leave(t);       /* freed by turn() */
		w->ops->opened(w->arg, -EPROTOTYPE, t->why);
		return;
	}
	send_alert(t);
	tell_opened(t, -EPROTO);
}

static void
tell_end(struct wire_tls *t, ssize_t n)
{
	struct wire *w = t->w;

	t->ended = true;
	t->wants = false;
	w->ops->received(w->arg, NULL, n);
}

static void
decrypt(struct wire_tls *t)
{
	uint8_t plain[RECORD_BYTES];

	while (t->w && t->wants && !t->ended) {
		struct wire *w = t->w;
		int n;

		ERR_clear_error();
		n = SSL_read(t->ssl, plain, sizeof plain);
		if (n > 0) {
			w->ops->received(w->arg, plain, n);
			continue;
		}
		switch (SSL_get_error(t->ssl, n)) {
		case SSL_ERROR_WANT_READ:
			return;
		case SSL_ERROR_ZERO_RETURN:
			tell_end(t, 0);
			return;
		default:
			failed(t);
			send_alert(t);
			tell_end(t, -EPROTO);
			return;
		}
	}
}

/* io's end of the stream, after all that came before it. */
static void
transport_end(struct wire_tls *t)
{
	ssize_t end = t->end;

	t->end_due = false;
	if (t->ended)
		return;
	if (!t->open) {
		snprintf(t->why, sizeof t->why, "%s",
			 end == 0 ? "the peer closed in the handshake" : strerror((int)-end));
		tell_opened(t, end == 0 ? -ECONNRESET : (int)end);
		return;
	}
	/* Without close_notify anybody on the way may have cut it. */
	tell_end(t, end == 0 && t->worker ? -ECONNABORTED : end);
}

/* What the owner left is kept, so that io has its buffer back. */
static void
keep_rest(struct wire_tls *t)
{
	uint8_t *kept = NULL;

	if (t->in_len > 0 && !t->ended) {
		kept = malloc(t->in_len);
		if (kept) {
			memcpy(kept, t->in, t->in_len);
		} else {                /* a hole in the stream: no stream any more */
			t->in_len = 0;
			t->end_due = true;
			t->end = -ENOMEM;
		}
	} else {
		t->in_len = 0;
	}
	free(t->kept);
	t->in = t->kept = kept;
}

static void
listen_on(struct wire_tls *t)
{
	struct wire *w = t->w;
	bool should = !t->ended && !t->end_due && t->in_len == 0 && (t->wants || !t->open);

	if (should && !w->recv) {
		w->recv = io_recv(w->io, w->fd, wire_on_recv, w);
		if (!w->recv) {
			t->end_due = true;
			t->end = -ENOMEM;
			later(t);
		}
	} else if (!should && w->recv) {
		io_cancel(w->io, w->recv);
		w->recv = NULL;
	}
}

/* Everything that can be done now: results first, as io tells them before an answer. */
static void
turn(struct wire_tls *t)
{
	t->running = true;
	if (t->result_due) {
		struct wire *w = t->w;

		t->result_due = false;
		w->ops->sent(w->arg, t->result);
	}
	if (t->w && !t->open && !t->ended)
		handshake(t);
	if (t->w && t->open)
		decrypt(t);
	if (t->w && t->end_due && t->in_len == 0 && (t->wants || !t->open))
		transport_end(t);
	t->running = false;
	if (!t->w) {
		session_free(t);
		return;
	}
	keep_rest(t);
	flush(t);
	if (t->broken && t->sending && !t->w->send) {
		result_is(t, -EPIPE);
		later(t);
	}
	listen_on(t);
}

void
wire_tls_received(struct wire *w, const void *buf, ssize_t n)
{
	struct wire_tls *t = w->tls;

	if (n > 0) {                    /* io receives only while nothing is kept */
		t->in = buf;
		t->in_len = (size_t)n;
	} else {
		t->end_due = true;
		t->end = n;
	}
	turn(t);
}

/* ---- the owner's calls ---- */

static int
begin(struct wire *w, struct tls *of, SSL *ssl, bool worker)
{
	struct wire_tls *t = ssl ? calloc(1, sizeof *t) : NULL;
	BIO *bio = t ? BIO_new(tls_bio(of)) : NULL;

	if (!bio) {
		SSL_free(ssl);
		free(t);
		return -ENOMEM;
	}
	BIO_set_data(bio, t);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	*t = (struct wire_tls){.w = w, .ssl = ssl, .of = tls_keep(of), .worker = worker,
			       .wants = w->recv != NULL};
	w->tls = t;
	listen_on(t);
	if (!worker)
		return 0;
	if (!later(t))                  /* our first word: sent in the next turn */
		return -ENOMEM;
	return 0;
}

int
wire_accept_tls(struct wire *w, struct tls *tls)
{
	return tls ? begin(w, tls, tls_for_client(tls), false) : -ENOENT;
}

int
wire_connect_tls(struct wire *w, struct tls *tls, unsigned set, const char *host)
{
	return tls ? begin(w, tls, tls_for_worker(tls, set, host), true) : -ENOENT;
}

bool
wire_opening(const struct wire *w)
{
	return w->tls && !w->tls->open;
}

int
wire_tls_receive(struct wire *w)
{
	struct wire_tls *t = w->tls;

	if (t->ended || t->wants)
		return 0;
	t->wants = true;
	if (t->running)
		return 0;               /* turn() looks */
	if (t->in_len > 0 || t->end_due || SSL_has_pending(t->ssl))
		return later(t) ? 0 : -ENOMEM;
	listen_on(t);
	return 0;
}

void
wire_tls_pause(struct wire *w)
{
	struct wire_tls *t = w->tls;

	t->wants = false;
	if (!t->running)
		listen_on(t);
}

bool
wire_tls_receives(const struct wire *w)
{
	return w->tls->wants && !w->tls->ended;
}

int
wire_tls_send(struct wire *w, const struct iovec *iov, unsigned n)
{
	struct wire_tls *t = w->tls;

	if (n > IO_SEND_PIECES_MAX || t->sending)
		return -EINVAL;
	memcpy(t->iov, iov, n * sizeof *iov);
	t->at = 0;
	t->n = n;
	t->sending = true;
	encrypt(t);
	flush(t);
	if (t->broken || (t->at == t->n && !w->send)) {
		result_is(t, t->broken ? -EPIPE : 0);
		return later(t) ? 0 : -ENOMEM;
	}
	return 0;
}

bool
wire_tls_sends(const struct wire *w)
{
	return w->tls->sending || w->tls->result_due;
}

void
wire_tls_shut(struct wire *w, bool whole)
{
	struct wire_tls *t = w->tls;

	if (t->shut)
		return;
	t->shut = t->shut_due = true;
	if (whole && t->open && !t->broken) {
		ERR_clear_error();
		SSL_shutdown(t->ssl);
	}
	flush(t);
}

void
wire_tls_bye(struct wire *w)
{
	struct wire_tls *t = w->tls;

	if (t->shut || !t->open || t->broken || w->send || t->sending)
		return;
	t->shut = true;
	ERR_clear_error();
	SSL_shutdown(t->ssl);
	send_alert(t);
}
