/* tests/unit/test_wire.c -- a wire with a TLS peer at the other end of a socket pair.
 *
 * The peer is OpenSSL over two memory BIOs, whose bytes the test carries: in any pieces it likes.
 */
#include "actors/ingress/wire.h"

#include "tests/unit/io_each.h"
#include "tests/unit/tls_world.h"

#define BIG 300000u

struct side {                           /* what a wire told */
	struct wire wire;
	unsigned opened, sent, ended, told;
	int open_result, sent_result;
	ssize_t end;
	char why[TLS_WHY_MAX];
	uint8_t *got;
	size_t len;
	bool pause;                     /* after each piece */
	bool starting;                  /* a call of ours is on the stack */
};

struct peer {
	int fd;
	SSL_CTX *ctx;
	SSL *ssl;
	BIO *in, *out;
	size_t piece;                   /* bytes written to the socket at once */
	uint8_t *got;
	size_t len;
	bool closed, eof;               /* close_notify came; the socket ended */
};

struct world {
	struct io *io;
	struct pair ca, front, worker;
	struct tls *tls;
	struct side side;
	struct peer peer;
};

static void
on_received(void *arg, const void *buf, ssize_t n)
{
	struct side *s = arg;

	OK(!s->starting);
	OK(!s->ended);
	s->told++;
	if (n <= 0) {
		s->ended++;
		s->end = n;
		return;
	}
	OK(s->len + (size_t)n <= 2 * BIG);
	memcpy(s->got + s->len, buf, (size_t)n);
	s->len += (size_t)n;
	if (s->pause)
		wire_pause(&s->wire);
}

static void
on_sent(void *arg, int result)
{
	struct side *s = arg;

	OK(!s->starting);
	s->sent++;
	s->sent_result = result;
}

static void
on_opened(void *arg, int result, const char *why)
{
	struct side *s = arg;

	OK(!s->starting);
	OK(!s->opened);
	s->opened++;
	s->open_result = result;
	snprintf(s->why, sizeof s->why, "%s", why ? why : "");
}

static const struct wire_ops ops = {on_received, on_sent, on_opened};

/* ---- the peer ---- */

static void
peer_open(struct peer *p, int fd, bool client, const struct pair *mine)
{
	*p = (struct peer){.fd = fd, .piece = 65536, .got = malloc(2 * BIG)};
	p->ctx = SSL_CTX_new(client ? TLS_client_method() : TLS_server_method());
	if (mine) {
		EQ(SSL_CTX_use_certificate(p->ctx, mine->x), 1);
		EQ(SSL_CTX_use_PrivateKey(p->ctx, mine->key), 1);
	}
	p->ssl = SSL_new(p->ctx);
	p->in = BIO_new(BIO_s_mem());
	p->out = BIO_new(BIO_s_mem());
	SSL_set_bio(p->ssl, p->in, p->out);
	if (client)
		SSL_set_connect_state(p->ssl);
	else
		SSL_set_accept_state(p->ssl);
}

/* Carries what there is, both ways; false: nothing moved. */
static bool
peer_carry(struct peer *p)
{
	uint8_t buf[65536];
	bool moved = false;
	char *data;
	long n;

	while (!p->eof && (n = recv(p->fd, buf, sizeof buf, MSG_DONTWAIT)) >= 0) {
		moved = true;
		if (n == 0)
			p->eof = true;
		else
			EQ(BIO_write(p->in, buf, (int)n), n);
	}
	if (!SSL_is_init_finished(p->ssl))
		SSL_do_handshake(p->ssl);
	while (SSL_is_init_finished(p->ssl) && !p->closed) {
		int got = SSL_read(p->ssl, buf, sizeof buf);

		if (got <= 0) {
			p->closed = SSL_get_error(p->ssl, got) == SSL_ERROR_ZERO_RETURN;
			break;
		}
		OK(p->len + (size_t)got <= 2 * BIG);
		memcpy(p->got + p->len, buf, (size_t)got);
		p->len += (size_t)got;
		moved = true;
	}
	n = BIO_get_mem_data(p->out, &data);
	if (n > 0) {
		size_t want = (size_t)n < p->piece ? (size_t)n : p->piece;
		ssize_t sent = send(p->fd, data, want, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent > 0) {
			EQ(BIO_read(p->out, buf, (int)sent), sent);
			moved = true;
		}
	}
	return moved;
}

static void
peer_close(struct peer *p)
{
	SSL_free(p->ssl);
	SSL_CTX_free(p->ctx);
	if (p->fd >= 0)
		close(p->fd);
	free(p->got);
}

#define RUN_UNTIL(w, condition) \
	do { \
		for (unsigned turns_ = 0; !(condition); turns_++) { \
			cr_assert(turns_ < 2000000, "%s: never: %s", variant, #condition); \
			peer_carry(&(w)->peer); \
			OK(io_turn((w)->io, 0) >= 0); \
		} \
	} while (0)

/* ---- the world ---- */

static void
world_open(struct world *w, struct io *io, bool to_worker, const char *host)
{
	struct tls_certificate c;
	struct tls_trust trust = {.used = true, .server_name = ""};
	struct tls_source from = {.certificate = &c, .n_certificates = 1, .trust = &trust,
				  .n_trusts = 1};
	char why[TLS_WHY_MAX] = "";
	int pair[2];

	*w = (struct world){.io = io};
	w->ca = pair_make("ca", NULL, NULL, 30);
	w->front = pair_make("front", "DNS:front.test", &w->ca, 30);
	w->worker = pair_make("worker", "DNS:worker.test,IP:127.0.0.1", &w->ca, 30);
	c = (struct tls_certificate){"front", text(w->front.chain), text(w->front.pem)};
	trust.ca = text(w->ca.chain);
	EQ(tls_new(&w->tls, &from, why), 0);
	EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	w->side.got = malloc(2 * BIG);
	wire_open(&w->side.wire, io, pair[0], &ops, &w->side);
	peer_open(&w->peer, pair[1], !to_worker, to_worker ? &w->worker : NULL);
	w->side.starting = true;
	if (to_worker)                  /* before or after: it means the same */
		EQ(wire_receive(&w->side.wire), 0);
	EQ(to_worker ? wire_connect_tls(&w->side.wire, w->tls, 0, host)
		     : wire_accept_tls(&w->side.wire, w->tls), 0);
	if (!to_worker)
		EQ(wire_receive(&w->side.wire), 0);
	w->side.starting = false;
}

static void
world_close(struct world *w)
{
	wire_close(&w->side.wire);
	wire_close(&w->side.wire);
	peer_close(&w->peer);
	tls_drop(&w->tls);
	pair_free(&w->ca);
	pair_free(&w->front);
	pair_free(&w->worker);
	free(w->side.got);
}

static uint8_t *
noise(size_t n)
{
	uint8_t *p = malloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 13);
	return p;
}

static void
send_all(struct world *w, const struct iovec *iov, unsigned n)
{
	unsigned before = w->side.sent;

	w->side.starting = true;
	EQ(wire_send(&w->side.wire, iov, n), 0);
	w->side.starting = false;
	OK(wire_sends(&w->side.wire));
	RUN_UNTIL(w, w->side.sent > before);
	OK(!wire_sends(&w->side.wire));
}

#define WIRE_TEST(name) \
	static void name(struct io *io); \
	Test(wire, name) \
	{ \
		on_each_backend(name); \
	} \
	static void name(struct io *io)

/* ---- tests ---- */

WIRE_TEST(bytes_pass_whole_both_ways_however_the_ciphertext_is_split)
{
	static const size_t pieces[] = {1, 2, 5, 6, 333, 65536};
	uint8_t *data = noise(BIG);

	for (unsigned i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
		size_t n = pieces[i] < 100 ? 2000 : BIG;
		struct iovec iov[3] = {{data, 10}, {data + 10, 0}, {data + 10, n - 10}};
		struct world w;

		world_open(&w, io, false, NULL);
		w.peer.piece = pieces[i];
		OK(wire_opening(&w.side.wire));
		RUN_UNTIL(&w, w.side.opened);
		EQ(w.side.open_result, 0);
		OK(!wire_opening(&w.side.wire));
		EQ(SSL_write(w.peer.ssl, data, (int)n), n);
		RUN_UNTIL(&w, w.side.len == n);
		EQ(memcmp(w.side.got, data, n), 0);
		send_all(&w, iov, 3);
		EQ(w.side.sent_result, 0);
		RUN_UNTIL(&w, w.peer.len == n);
		EQ(memcmp(w.peer.got, data, n), 0);
		world_close(&w);
	}
	free(data);
}

WIRE_TEST(pause_in_every_callback_loses_nothing)
{
	uint8_t *data = noise(BIG);
	struct world w;
	size_t seen = 0;

	world_open(&w, io, false, NULL);
	RUN_UNTIL(&w, w.side.opened);
	w.side.pause = true;
	EQ(SSL_write(w.peer.ssl, data, (int)BIG), BIG);
	SSL_shutdown(w.peer.ssl);
	while (!w.side.ended) {
		unsigned told = w.side.told;

		RUN_UNTIL(&w, w.side.told > told);
		if (w.side.ended)
			break;
		OK(!wire_receives(&w.side.wire));
		seen = w.side.len;
		for (unsigned i = 0; i < 5; i++) {      /* nothing is told meanwhile */
			peer_carry(&w.peer);
			OK(io_turn(io, 0) >= 0);
		}
		EQ(w.side.len, seen);
		w.side.starting = true;
		EQ(wire_receive(&w.side.wire), 0);
		w.side.starting = false;
	}
	EQ(w.side.len, BIG);
	EQ(memcmp(w.side.got, data, BIG), 0);
	EQ(w.side.end, 0);
	world_close(&w);
	free(data);
}

WIRE_TEST(a_paused_wire_makes_its_peer_wait)
{
	uint8_t *data = noise(BIG);
	struct world w;
	unsigned still = 0;

	world_open(&w, io, false, NULL);
	RUN_UNTIL(&w, w.side.opened);
	wire_pause(&w.side.wire);
	for (unsigned i = 0; i < 64; i++)
		EQ(SSL_write(w.peer.ssl, data, (int)BIG), BIG);
	while (still < 50) {
		still = peer_carry(&w.peer) ? 0 : still + 1;
		OK(io_turn(io, 0) >= 0);
	}
	OK(BIO_ctrl_pending(w.peer.out) > 32 * (size_t)BIG);    /* most is still on its side */
	EQ(w.side.len, 0);
	world_close(&w);
	free(data);
}

WIRE_TEST(what_a_client_does_not_read_is_not_gathered_here)
{
	uint8_t *data = noise(BIG);
	struct iovec iov = {data, BIG};
	struct world w;
	unsigned n = 0;

	world_open(&w, io, false, NULL);
	RUN_UNTIL(&w, w.side.opened && SSL_is_init_finished(w.peer.ssl));
	EQ(wire_send(&w.side.wire, &iov, 1), 0);
	for (unsigned i = 0; i < 100; i++)      /* the peer reads nothing */
		OK(io_turn(io, 0) >= 0);
	if (w.side.sent == 0)                   /* the socket pair may hold it all */
		n++;
	RUN_UNTIL(&w, w.peer.len == BIG);
	RUN_UNTIL(&w, w.side.sent == 1);
	EQ(memcmp(w.peer.got, data, BIG), 0);
	EQ(n, 1);
	world_close(&w);
	free(data);
}

WIRE_TEST(clients_end_without_close_notify_is_an_end_of_stream)
{
	struct world w;

	world_open(&w, io, false, NULL);
	RUN_UNTIL(&w, w.side.opened && SSL_is_init_finished(w.peer.ssl));
	shutdown(w.peer.fd, SHUT_WR);
	RUN_UNTIL(&w, w.side.ended);
	EQ(w.side.end, 0);
	world_close(&w);
}

WIRE_TEST(workers_end_counts_only_with_close_notify)
{
	for (unsigned whole = 0; whole < 2; whole++) {
		struct world w;

		world_open(&w, io, true, "worker.test");
		RUN_UNTIL(&w, w.side.opened && SSL_is_init_finished(w.peer.ssl));
		EQ(w.side.open_result, 0);
		EQ(SSL_write(w.peer.ssl, "answer", 6), 6);
		if (whole)
			SSL_shutdown(w.peer.ssl);
		RUN_UNTIL(&w, w.side.len == 6 && BIO_ctrl_pending(w.peer.out) == 0);
		shutdown(w.peer.fd, SHUT_WR);
		RUN_UNTIL(&w, w.side.ended);
		EQ(w.side.end, whole ? 0 : -ECONNABORTED);
		world_close(&w);
	}
}

WIRE_TEST(shut_says_close_notify_only_for_a_whole_end)
{
	for (unsigned whole = 0; whole < 2; whole++) {
		struct world w;

		world_open(&w, io, false, NULL);
		RUN_UNTIL(&w, w.side.opened && SSL_is_init_finished(w.peer.ssl));
		send_all(&w, &(struct iovec){(char *)(uintptr_t)"bye", 3}, 1);
		wire_shut(&w.side.wire, whole);
		RUN_UNTIL(&w, w.peer.eof);
		EQ(w.peer.len, 3);
		EQ(w.peer.closed, whole);
		EQ(SSL_write(w.peer.ssl, "still", 5), 5);       /* received as before */
		RUN_UNTIL(&w, w.side.len == 5);
		world_close(&w);
	}
}

WIRE_TEST(bye_says_close_notify_at_once)
{
	struct world w;

	world_open(&w, io, false, NULL);
	RUN_UNTIL(&w, w.side.opened && SSL_is_init_finished(w.peer.ssl));
	RUN_UNTIL(&w, !w.side.wire.send);       /* its session ticket is out */
	wire_bye(&w.side.wire);
	wire_close(&w.side.wire);
	RUN_UNTIL(&w, w.peer.eof);
	OK(w.peer.closed);
	world_close(&w);
}

WIRE_TEST(worker_with_another_name_or_another_authority_is_refused)
{
	struct world w;

	world_open(&w, io, true, "other.test");
	RUN_UNTIL(&w, w.side.opened);
	EQ(w.side.open_result, -EPROTO);
	OK(strcasestr(w.side.why, "hostname mismatch"));
	world_close(&w);

	world_open(&w, io, true, "127.0.0.1");
	RUN_UNTIL(&w, w.side.opened);
	EQ(w.side.open_result, 0);
	world_close(&w);

	world_open(&w, io, true, "127.0.0.2");
	RUN_UNTIL(&w, w.side.opened);
	EQ(w.side.open_result, -EPROTO);
	OK(strcasestr(w.side.why, "IP address mismatch"));
	world_close(&w);

	world_open(&w, io, true, "worker.test");
	struct pair stranger = pair_make("worker", "DNS:worker.test", NULL, 30);
	EQ(SSL_use_certificate(w.peer.ssl, stranger.x), 1);
	EQ(SSL_use_PrivateKey(w.peer.ssl, stranger.key), 1);
	RUN_UNTIL(&w, w.side.opened);
	EQ(w.side.open_result, -EPROTO);
	OK(strcasestr(w.side.why, "self-signed"));
	world_close(&w);
	pair_free(&stranger);
}

WIRE_TEST(plain_http_is_told_apart_and_can_be_answered)
{
	static const char ask[] = "GET / HTTP/1.1\r\n\r\n", answer[] = "HTTP/1.1 400 no\r\n\r\n";
	struct world w;
	char got[64];

	world_open(&w, io, false, NULL);
	EQ(send(w.peer.fd, ask, sizeof ask - 1, 0), sizeof ask - 1);
	while (!w.side.opened)
		OK(io_turn(io, 1000) >= 0);
	EQ(w.side.open_result, -EPROTOTYPE);
	struct iovec iov = {(char *)(uintptr_t)answer, sizeof answer - 1};
	EQ(wire_send(&w.side.wire, &iov, 1), 0);
	while (!w.side.sent)
		OK(io_turn(io, 1000) >= 0);
	EQ(recv(w.peer.fd, got, sizeof got, 0), sizeof answer - 1);
	EQ(memcmp(got, answer, sizeof answer - 1), 0);
	world_close(&w);
}

WIRE_TEST(garbage_and_an_end_in_the_handshake_are_told_once)
{
	static const char *const said[] = {
		"\x16\x03\x01\xff\xff", "SSH-2.0-x\r\n", "\0\0\0\0\0\0", "\x16"};

	for (unsigned i = 0; i < sizeof said / sizeof said[0]; i++) {
		struct world w;

		world_open(&w, io, false, NULL);
		EQ(send(w.peer.fd, said[i], i == 2 ? 6 : strlen(said[i]), 0),
		   i == 2 ? 6 : strlen(said[i]));
		shutdown(w.peer.fd, SHUT_WR);
		while (!w.side.opened)
			OK(io_turn(io, 1000) >= 0);
		OK(w.side.open_result < 0);
		OK(w.side.why[0]);
		for (unsigned k = 0; k < 5; k++)
			OK(io_turn(io, 0) >= 0);
		EQ(w.side.told, 0);
		world_close(&w);
	}
}

WIRE_TEST(a_wire_may_be_closed_at_every_step)
{
	for (unsigned turns = 0; turns < 12; turns++) {
		struct iovec iov = {(char *)(uintptr_t)"x", 1};
		struct world w;

		world_open(&w, io, turns % 2, "worker.test");
		for (unsigned i = 0; i < turns; i++) {
			peer_carry(&w.peer);
			OK(io_turn(io, 0) >= 0);
		}
		if (w.side.opened)
			EQ(wire_send(&w.side.wire, &iov, 1), 0);
		wire_close(&w.side.wire);
		unsigned told = w.side.told + w.side.sent;
		for (unsigned i = 0; i < 3; i++)
			OK(io_turn(io, 0) >= 0);
		EQ(w.side.told + w.side.sent, told);
		world_close(&w);
	}
}
