/* actors/ingress/tls.h -- one generation's certificates, keys and trust, as OpenSSL wants them.
 *
 * Meaning    Made once per generation from what the supervisor read (common/secrets.h), beside the
 *            loop; connections are made by the one in force and keep the one they were made by.
 *            TLS 1.2 with ECDHE and AEAD ciphers, and 1.3; no renegotiation, no compression, no
 *            early data; ALPN http/1.1, which a client may leave out but not replace.
 * SNI        A certificate's names are its DNS subject alternative names.  A client's name chooses
 *            the first certificate that has it, else the first with a wildcard for it, else the
 *            first of all.
 * Tickets    Sealed by a key that all ingress processes of the generation have, so any of them
 *            resumes what another began.  A new generation has another key.
 * Workers    By set: who may sign their certificates (none given: the system's store), and under
 *            which name (none given: the host of the URL; an address by its IP subject name).
 * Ownership  counted; tls_drop.
 * Threads    made by any; used by the loop.
 */
#pragma once
#include <openssl/ssl.h>
#include <stddef.h>

#include "proto/slice.h"

#define TLS_NAME_MAX   253u             /* bytes: a DNS name */
#define TLS_TICKET_KEY 80u              /* bytes: what OpenSSL takes */
#define TLS_WHY_MAX    256u             /* bytes: why something was refused */

struct tls;

struct tls_certificate {
	const char *file;               /* for complaints */
	struct slice chain, key;        /* PEM */
};

struct tls_trust {                      /* of one worker set */
	bool used;                      /* it has workers behind https */
	const char *server_name;        /* "": the URL's host */
	struct slice ca;                /* PEM; empty: the system's */
};

struct tls_source {                     /* borrowed for the call */
	const struct tls_certificate *certificate;
	unsigned n_certificates;        /* 0: no TLS for clients */
	const uint8_t *ticket_key;      /* TLS_TICKET_KEY bytes; NULL: no tickets */
	const struct tls_trust *trust;  /* by set */
	unsigned n_trusts;
};

int tls_new(struct tls **ret, const struct tls_source *from, char why[TLS_WHY_MAX]);
	/* 0; -EINVAL and why; -ENOMEM.  Milliseconds. */
struct tls *tls_keep(struct tls *t);    /* another reference to t */
void tls_drop(struct tls **t);

unsigned tls_choose(const struct tls *t, const char *name);
	/* Which certificate a client that asks for name gets; NULL: it did not ask. */
SSL *tls_for_client(struct tls *t);
	/* A server's end, or NULL: no certificates, no memory. */
SSL *tls_for_worker(struct tls *t, unsigned set, const char *host);
	/* A client's end that will want host's certificate; NULL. */
const BIO_METHOD *tls_bio(const struct tls *t);
	/* A BIO over memory: wire_tls.c's, by BIO_get_data. */
void tls_reason(char why[TLS_WHY_MAX], const SSL *ssl);
	/* What OpenSSL's queue of errors, which this empties, says of a failure. */
