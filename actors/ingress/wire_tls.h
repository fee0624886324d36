/* actors/ingress/wire_tls.h -- TLS between a wire's owner and its socket; wire.c's, nobody else's.
 *
 * Meaning    OpenSSL never sees a descriptor: what io receives is read by it in place, what it
 *            writes is gathered and sent by io.  So both back ends run the same code.
 * Bounds     At most 64 KiB of an owner's bytes are encrypted ahead of the socket; what a pause
 *            leaves undecrypted is at most what io had handed over.  256 KiB of ciphertext that
 *            waits (a peer that makes us answer and does not read) breaks the connection.
 * Reading    Bytes that were decrypted are told during the callback only, as io's.
 */
#pragma once
#include "actors/ingress/wire.h"

struct wire_tls;

BIO_METHOD *wire_tls_bio(void);         /* NULL: no memory */

void wire_on_recv(void *arg, const void *buf, ssize_t n);        /* wire.c: what io is given */

void wire_tls_received(struct wire *w, const void *buf, ssize_t n);     /* by io */
int wire_tls_receive(struct wire *w);
void wire_tls_pause(struct wire *w);
bool wire_tls_receives(const struct wire *w);
int wire_tls_send(struct wire *w, const struct iovec *iov, unsigned n);
bool wire_tls_sends(const struct wire *w);
void wire_tls_shut(struct wire *w, bool whole);
void wire_tls_bye(struct wire *w);
void wire_tls_close(struct wire *w);
