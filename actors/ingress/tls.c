/* actors/ingress/tls.c -- see tls.h. */
#include "actors/ingress/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/wire_tls.h"

#define CIPHERS      "ECDHE+AESGCM:ECDHE+CHACHA20" /* TLS 1.2; those of 1.3 are all good */
#define SECURE_BYTES ((size_t)4 << 20) /* for private keys: locked, in no core dump */
#define NAMES_MAX    1024u             /* of one certificate */

static const uint8_t http11[] = "\x08http/1.1";
#define HTTP11_LEN (sizeof http11 - 1)

struct name {
	char *text;                     /* owned; lower case; a wildcard's without its '*' */
	bool wildcard;
	unsigned certificate;
};

struct tls {
	_Atomic unsigned refs;
	BIO_METHOD *bio;                /* owned, as is all below */
	SSL_CTX **server;               /* by certificate */
	unsigned n_servers;
	struct name *name;
	unsigned n_names, cap_names;
	struct trust {
		SSL_CTX *ctx;           /* NULL: no workers behind https */
		char server_name[TLS_NAME_MAX + 1];
	} *trust;
	unsigned n_trusts;
};

void
tls_reason(char why[TLS_WHY_MAX], const SSL *ssl)
{
	long verified = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
	unsigned long e = ERR_get_error();
	const char *text = e ? ERR_reason_error_string(e) : NULL;

	ERR_clear_error();
	if (verified != X509_V_OK)
		snprintf(why, TLS_WHY_MAX, "%s", X509_verify_cert_error_string(verified));
	else
		snprintf(why, TLS_WHY_MAX, "%s", text ? text : "out of memory");
}

/* ---- which certificate ---- */

unsigned
tls_choose(const struct tls *t, const char *name)
{
	char lower[TLS_NAME_MAX + 1];
	size_t len = name ? strlen(name) : 0;
	const char *rest;

	if (len == 0 || len > TLS_NAME_MAX)
		return 0;
	for (size_t i = 0; i <= len; i++)
		lower[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
	if (lower[len - 1] == '.')
		lower[len - 1] = '\0';
	for (unsigned i = 0; i < t->n_names; i++)
		if (!t->name[i].wildcard && strcmp(t->name[i].text, lower) == 0)
			return t->name[i].certificate;
	rest = strchr(lower, '.');      /* a wildcard stands for exactly one label */
	for (unsigned i = 0; rest && rest != lower && i < t->n_names; i++)
		if (t->name[i].wildcard && strcmp(t->name[i].text, rest) == 0)
			return t->name[i].certificate;
	return 0;
}

static int
on_server_name(SSL *ssl, int *alert, void *arg)
{
	struct tls *t = arg;
	unsigned i = tls_choose(t, SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name));

	(void)alert;
	if (i != 0)
		SSL_set_SSL_CTX(ssl, t->server[i]);
	return SSL_TLSEXT_ERR_OK;
}

static int
on_alpn(SSL *ssl, const uint8_t **ret, uint8_t *ret_len, const uint8_t *offered, unsigned len,
	void *arg)
{
	uint8_t *chosen;

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto(&chosen, ret_len, http11, HTTP11_LEN, offered, len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;      /* no_application_protocol */
	*ret = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static bool
name_add(struct tls *t, unsigned certificate, const char *text, size_t len)
{
	struct name *n;

	if (len == 0 || len > TLS_NAME_MAX || memchr(text, '\0', len))
		return true;            /* nobody can ask for it */
	if (t->n_names == t->cap_names) {
		unsigned cap = t->cap_names ? 2 * t->cap_names : 16;
		struct name *grown = realloc(t->name, cap * sizeof *grown);

		if (!grown)
			return false;
		t->name = grown;
		t->cap_names = cap;
	}
	n = &t->name[t->n_names];
	*n = (struct name){.certificate = certificate,
			   .wildcard = len > 2 && text[0] == '*' && text[1] == '.'};
	n->text = strndup(text + n->wildcard, len - n->wildcard);
	if (!n->text)
		return false;
	for (char *c = n->text; *c; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c + 32);
	t->n_names++;
	return true;
}

static bool
names_of(struct tls *t, unsigned certificate, X509 *leaf)
{
	GENERAL_NAMES *list = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
	bool ok = true;

	for (int i = 0; ok && i < sk_GENERAL_NAME_num(list) && i < (int)NAMES_MAX; i++) {
		const GENERAL_NAME *g = sk_GENERAL_NAME_value(list, i);

		if (g->type == GEN_DNS)
			ok = name_add(t, certificate,
				      (const char *)ASN1_STRING_get0_data(g->d.dNSName),
				      (size_t)ASN1_STRING_length(g->d.dNSName));
	}
	GENERAL_NAMES_free(list);
	return ok;
}

/* ---- making contexts ---- */

static SSL_CTX *
context_new(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (!ctx)
		return NULL;
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_security_level(ctx, 2);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					 SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	if (SSL_CTX_set_cipher_list(ctx, CIPHERS) != 1) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

static BIO *
pem_of(struct slice text)
{
	return text.len > INT32_MAX ? NULL : BIO_new_mem_buf(text.p, (int)text.len);
}

static int
no_passphrase(char *buf, int size, int writing, void *arg)
{
	(void)buf;
	(void)size;
	(void)writing;
	(void)arg;
	return -1;                      /* nobody is there to be asked */
}

/* The first certificate is the server's, the others lead to a root. */
static bool
chain_use(SSL_CTX *ctx, struct slice pem, X509 **ret_leaf)
{
	BIO *bio = pem_of(pem);
	X509 *x = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
	bool ok = x && SSL_CTX_use_certificate(ctx, x) == 1;

	*ret_leaf = x;
	while (ok && (x = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)) != NULL) {
		ok = SSL_CTX_add0_chain_cert(ctx, x) == 1;
		if (!ok)
			X509_free(x);
	}
	if (ok)
		ERR_clear_error();      /* of the end of the text */
	BIO_free(bio);
	return ok;
}

static bool
key_use(SSL_CTX *ctx, struct slice pem)
{
	BIO *bio = pem_of(pem);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
	bool ok = key && SSL_CTX_use_PrivateKey(ctx, key) == 1 &&
		  SSL_CTX_check_private_key(ctx) == 1;

	EVP_PKEY_free(key);
	BIO_free(bio);
	return ok;
}

static int
server_new(struct tls *t, const struct tls_source *from, unsigned i, char why[TLS_WHY_MAX])
{
	const struct tls_certificate *c = &from->certificate[i];
	SSL_CTX *ctx = t->server[i] = context_new(TLS_server_method());
	X509 *leaf = NULL;
	bool ok = false;
	char reason[TLS_WHY_MAX];

	if (!ctx)
		return -ENOMEM;
	if (chain_use(ctx, c->chain, &leaf) && key_use(ctx, c->key))
		ok = names_of(t, i, leaf);
	X509_free(leaf);
	if (!ok) {
		tls_reason(reason, NULL);
		snprintf(why, TLS_WHY_MAX, "%.80s: %.70s", c->file, reason);
		return -EINVAL;
	}
	SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
	SSL_CTX_set_tlsext_servername_callback(ctx, on_server_name);
	SSL_CTX_set_tlsext_servername_arg(ctx, t);
	SSL_CTX_set_session_id_context(ctx, (const uint8_t *)"pointsman", 9);
	SSL_CTX_set_num_tickets(ctx, from->ticket_key ? 1 : 0);
	if (from->ticket_key) {
		uint8_t copy[TLS_TICKET_KEY];

		memcpy(copy, from->ticket_key, sizeof copy);
		SSL_CTX_set_tlsext_ticket_keys(ctx, copy, sizeof copy);
		OPENSSL_cleanse(copy, sizeof copy);
	} else {
		SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
	}
	return 0;
}

static bool
store_fill(SSL_CTX *ctx, struct slice pem)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ctx);
	BIO *bio = pem_of(pem);
	unsigned n = 0;
	X509 *x;

	while (bio && (x = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)) != NULL) {
		n += X509_STORE_add_cert(store, x) == 1;
		X509_free(x);
	}
	BIO_free(bio);
	if (n > 0)
		ERR_clear_error();
	return n > 0;
}

/* Sets without a CA of their own share one context: the system's store is large. */
static int
trust_new(struct tls *t, unsigned i, const struct tls_trust *from, SSL_CTX **system,
	  char why[TLS_WHY_MAX])
{
	struct trust *to = &t->trust[i];
	SSL_CTX *ctx;
	bool ok;

	if (!from->used)
		return 0;
	snprintf(to->server_name, sizeof to->server_name, "%s", from->server_name);
	if (from->ca.len == 0 && *system) {
		SSL_CTX_up_ref(*system);
		to->ctx = *system;
		return 0;
	}
	ctx = to->ctx = context_new(TLS_client_method());
	if (!ctx)
		return -ENOMEM;
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	/* An intermediate that the operator names is trusted as such, as libcurl does. */
	X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ctx), X509_V_FLAG_PARTIAL_CHAIN);
	SSL_CTX_set_alpn_protos(ctx, http11, HTTP11_LEN);
	ok = from->ca.len > 0 ? store_fill(ctx, from->ca)
			      : SSL_CTX_set_default_verify_paths(ctx) == 1;
	if (!ok) {
		tls_reason(why, NULL);
		return -EINVAL;
	}
	if (from->ca.len == 0)
		*system = ctx;
	return 0;
}

static void
tls_free(struct tls *t)
{
	for (unsigned i = 0; t->server && i < t->n_servers; i++)
		SSL_CTX_free(t->server[i]);
	for (unsigned i = 0; t->trust && i < t->n_trusts; i++)
		SSL_CTX_free(t->trust[i].ctx);
	for (unsigned i = 0; i < t->n_names; i++)
		free(t->name[i].text);
	BIO_meth_free(t->bio);
	free(t->server);
	free(t->trust);
	free(t->name);
	free(t);
}

int
tls_new(struct tls **ret, const struct tls_source *from, char why[TLS_WHY_MAX])
{
	struct tls *t = calloc(1, sizeof *t);
	SSL_CTX *system = NULL;
	int r = 0;

	if (!t)
		return -ENOMEM;
	atomic_init(&t->refs, 1);
	if (from->n_certificates > 0 && !CRYPTO_secure_malloc_initialized())
		CRYPTO_secure_malloc_init(SECURE_BYTES, 0); /* else keys lie in the common heap */
	t->bio = wire_tls_bio();
	t->n_servers = from->n_certificates;
	t->n_trusts = from->n_trusts;
	t->server = calloc(t->n_servers + 1, sizeof *t->server);
	t->trust = calloc(t->n_trusts + 1, sizeof *t->trust);
	if (!t->bio || !t->server || !t->trust)
		r = -ENOMEM;
	for (unsigned i = 0; r == 0 && i < from->n_certificates; i++)
		r = server_new(t, from, i, why);
	for (unsigned i = 0; r == 0 && i < from->n_trusts; i++)
		r = trust_new(t, i, &from->trust[i], &system, why);
	if (r < 0)
		tls_free(t);
	else
		*ret = t;
	return r;
}

struct tls *
tls_keep(struct tls *t)
{
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
	return t;
}

void
tls_drop(struct tls **ret)
{
	struct tls *t = *ret;

	*ret = NULL;
	if (t && atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
		tls_free(t);
}

/* ---- connections ---- */

SSL *
tls_for_client(struct tls *t)
{
	SSL *ssl = t->n_servers > 0 ? SSL_new(t->server[0]) : NULL;

	if (ssl)
		SSL_set_accept_state(ssl);
	return ssl;
}

SSL *
tls_for_worker(struct tls *t, unsigned set, const char *host)
{
	struct trust *trust = set < t->n_trusts ? &t->trust[set] : NULL;
	SSL *ssl = trust && trust->ctx ? SSL_new(trust->ctx) : NULL;
	const char *name = trust && trust->server_name[0] ? trust->server_name : host;
	struct in6_addr ignored;
	bool ok;

	if (!ssl)
		return NULL;
	SSL_set_connect_state(ssl);
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (inet_pton(AF_INET, name, &ignored) == 1 || inet_pton(AF_INET6, name, &ignored) == 1)
		ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	else
		/* As SSL_set_tlsext_host_name, whose cast drops a const before clang's eyes. */
		ok = SSL_set1_host(ssl, name) == 1 &&
		     SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
			      (void *)(uintptr_t)name) == 1;
	if (!ok) {
		SSL_free(ssl);
		return NULL;
	}
	return ssl;
}

const BIO_METHOD *
tls_bio(const struct tls *t)
{
	return t->bio;
}
