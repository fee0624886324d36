/* actors/common/secrets_read.c -- see secrets.h: reading and checking the files. */
#include "actors/common/secrets.h"
#include "actors/common/tenants/jwt.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIELD_MAX 160u

struct record {
	enum secret kind;
	uint32_t index;
	char *p;                        /* owned */
	size_t len;
};

struct secret_files {
	struct record *record;          /* owned */
	unsigned n, cap;
	size_t bytes;
};

struct reader {
	struct secret_files *files;
	struct yaml_errors *errs, *warnings;
	bool bad, oom;
};

#define COMPLAIN(r, file, ...)                                        \
	do {                                                          \
		(r)->bad = true;                                      \
		yaml_errors_add((r)->errs, file, 0, 0, __VA_ARGS__);  \
	} while (0)

#define WARN(r, file, ...)                                                       \
	do {                                                                     \
		if ((r)->warnings)                                               \
			yaml_errors_add((r)->warnings, file, 0, 0, "warning: " __VA_ARGS__); \
	} while (0)

/* ---- files ---- */

static bool
record_add(struct reader *r, enum secret kind, uint32_t index, const void *p, size_t len)
{
	struct secret_files *f = r->files;
	struct record *grown;
	char *copy;

	if (f->n == f->cap) {
		unsigned cap = f->cap ? 2 * f->cap : 16;

		grown = realloc(f->record, cap * sizeof *grown);
		if (!grown) {
			r->oom = true;
			return false;
		}
		f->record = grown;
		f->cap = cap;
	}
	copy = malloc(len + 1);
	if (!copy) {
		r->oom = true;
		return false;
	}
	memcpy(copy, p, len);
	copy[len] = '\0';
	f->record[f->n++] = (struct record){kind, index, copy, len};
	f->bytes += 16 + ((len + 7) & ~(size_t)7);
	return true;
}

static const struct record *
record_of(const struct secret_files *f, enum secret kind, uint32_t index)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->record[i].kind == kind && f->record[i].index == index)
			return &f->record[i];
	return NULL;
}

/* Into buf of SECRETS_FILE_MAX + 1 bytes.  False: complained. */
static bool
file_read(struct reader *r, const char *path, const char *field, char *buf, size_t *ret_len,
	  mode_t *ret_mode)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t len = 0;
	ssize_t n = -1;

	if (fd < 0 || fstat(fd, &st) < 0) {
		COMPLAIN(r, path, "cannot be read: %s (%s)", strerror(errno), field);
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (!S_ISREG(st.st_mode)) {
		COMPLAIN(r, path, "is no regular file (%s)", field);
		close(fd);
		return false;
	}
	while (len <= SECRETS_FILE_MAX) {
		n = read(fd, buf + len, SECRETS_FILE_MAX + 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (n < 0)
		COMPLAIN(r, path, "cannot be read: %s (%s)", strerror(errno), field);
	else if (len > SECRETS_FILE_MAX)
		COMPLAIN(r, path, "is larger than 1 MiB (%s)", field);
	close(fd);
	*ret_len = len;
	*ret_mode = st.st_mode;
	return n >= 0 && len <= SECRETS_FILE_MAX;
}

/* The file as a record; NULL: complained. */
static const struct record *
file_take(struct reader *r, enum secret kind, uint32_t index, const char *path, const char *field)
{
	char *buf = malloc(SECRETS_FILE_MAX + 1);
	bool secret = kind == SECRET_KEY || kind == SECRET_API_KEY || kind == SECRET_JWT;
	bool ok = false;
	size_t len = 0;
	mode_t mode = 0;

	if (!buf) {
		r->oom = true;
		return NULL;
	}
	if (file_read(r, path, field, buf, &len, &mode)) {
		if (secret && (mode & S_IRWXO))
			WARN(r, path, "everybody on this machine may read it (%s)", field);
		if (r->files->bytes + len > SECRETS_MAX)
			COMPLAIN(r, path, "all certificates and keys together are larger than "
				 "16 MiB (%s)", field);
		else
			ok = record_add(r, kind, index, buf, len);
	}
	OPENSSL_cleanse(buf, SECRETS_FILE_MAX + 1);
	free(buf);
	return ok ? record_of(r->files, kind, index) : NULL;
}

/* ---- certificates ---- */

static int
no_passphrase(char *buf, int size, int writing, void *arg)
{
	(void)buf;
	(void)size;
	(void)writing;
	(void)arg;
	return -1;                      /* nobody is there to be asked */
}

static BIO *
bio_of(const struct record *r)
{
	return BIO_new_mem_buf(r->p, (int)r->len);
}

static const char *
reason(void)
{
	unsigned long e = ERR_peek_last_error();
	const char *text = ERR_reason_error_string(e);

	return text ? text : "unknown";
}

static void
time_check(struct reader *r, const char *path, const X509 *x, const char *field)
{
	if (X509_cmp_current_time(X509_get0_notAfter(x)) < 0)
		WARN(r, path, "the certificate has expired: clients will refuse it (%s)", field);
	else if (X509_cmp_current_time(X509_get0_notBefore(x)) > 0)
		WARN(r, path, "the certificate is not valid yet: clients will refuse it (%s)",
		     field);
}

/* What a context with our settings takes; the chain is no better than its weakest. */
static void
pair_check(struct reader *r, const struct record *chain, const struct record *key,
	   const struct manifest_certificate *c, const char *field, const char *key_field)
{
	BIO *bio = bio_of(chain), *key_bio = bio_of(key);
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	X509 *leaf = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL, *x;
	EVP_PKEY *pkey = NULL;

	if (!bio || !key_bio || !ctx) {
		r->oom = true;
		goto out;
	}
	SSL_CTX_set_security_level(ctx, 2);
	if (!leaf) {
		COMPLAIN(r, c->certificate, "holds no certificate in PEM (%s)", field);
		goto out;
	}
	if (SSL_CTX_use_certificate(ctx, leaf) != 1) {
		COMPLAIN(r, c->certificate, "the certificate cannot be used: %s (%s)", reason(),
			 field);
		goto out;
	}
	while ((x = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)) != NULL) {
		if (SSL_CTX_add0_chain_cert(ctx, x) != 1) {
			X509_free(x);
			COMPLAIN(r, c->certificate, "a certificate of the chain cannot be used: "
				 "%s (%s)", reason(), field);
			goto out;
		}
	}
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		COMPLAIN(r, c->certificate, "a certificate of the chain is damaged: %s (%s)",
			 reason(), field);
	time_check(r, c->certificate, leaf, field);
	pkey = PEM_read_bio_PrivateKey(key_bio, NULL, no_passphrase, NULL);
	if (!pkey)
		COMPLAIN(r, c->key, "holds no private key in PEM that needs no passphrase (%s)",
			 key_field);
	else if (X509_check_private_key(leaf, pkey) != 1)
		COMPLAIN(r, c->key, "the key does not belong to the certificate in %s (%s)",
			 c->certificate, key_field);
	else if (SSL_CTX_use_PrivateKey(ctx, pkey) != 1)
		COMPLAIN(r, c->key, "the key cannot be used: %s (%s)", reason(), key_field);
out:
	EVP_PKEY_free(pkey);
	X509_free(leaf);
	SSL_CTX_free(ctx);
	BIO_free(bio);
	BIO_free(key_bio);
	ERR_clear_error();
}

static void
certificate_read(struct reader *r, const struct manifest_certificate *c, uint32_t i)
{
	char field[FIELD_MAX], key_field[FIELD_MAX];
	const struct record *chain, *key;
	bool both;

	snprintf(field, sizeof field, "GatewayBackend spec.tls.certificates[%u].certificate", i);
	snprintf(key_field, sizeof key_field, "GatewayBackend spec.tls.certificates[%u].key", i);
	both = file_take(r, SECRET_CHAIN, i, c->certificate, field) != NULL;
	both = file_take(r, SECRET_KEY, i, c->key, key_field) != NULL && both;
	chain = record_of(r->files, SECRET_CHAIN, i);   /* records may have moved */
	key = record_of(r->files, SECRET_KEY, i);
	if (both)
		pair_check(r, chain, key, c, field, key_field);
}

static void
ca_read(struct reader *r, const struct manifest_set *set, uint32_t i)
{
	char field[FIELD_MAX];
	const struct record *ca;
	bool live = false;
	unsigned n = 0;
	BIO *bio;
	X509 *x;

	snprintf(field, sizeof field, "InferenceWorkerSet %s spec.tls.ca", set->name);
	ca = file_take(r, SECRET_CA, i, set->tls_ca, field);
	bio = ca ? bio_of(ca) : NULL;
	if (!bio)
		return;
	for (; (x = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)) != NULL; n++) {
		live |= X509_cmp_current_time(X509_get0_notAfter(x)) > 0;
		X509_free(x);
	}
	if (n == 0)
		COMPLAIN(r, set->tls_ca, "holds no certificate in PEM (%s)", field);
	else if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		COMPLAIN(r, set->tls_ca, "a certificate is damaged: %s (%s)", reason(), field);
	else if (!live)
		WARN(r, set->tls_ca, "every certificate in it has expired (%s)", field);
	BIO_free(bio);
	ERR_clear_error();
}

/* ---- API keys ---- */

static void
trim_end(struct record *r)
{
	while (r->len > 0 && (r->p[r->len - 1] == '\n' || r->p[r->len - 1] == '\r'))
		r->len--;               /* bytes stays an upper bound */
}

static bool
api_key_good(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] <= ' ' || p[i] > '~')
			return false;
	return len > 0 && len <= SECRETS_API_KEY;
}

static void
api_key_read(struct reader *r, const struct manifest_set *set, uint32_t i)
{
	static const char must[] =
		"must hold one API key: up to 4,096 visible ASCII characters, no spaces";
	bool in_file = set->api_key_file[0] != '\0';
	char field[FIELD_MAX];
	struct record *key;

	secrets_guard();
	snprintf(field, sizeof field, "InferenceWorkerSet %s spec.apiKeyFrom.%s", set->name,
		 in_file ? "file" : "env");
	if (!in_file) {
		const char *text = getenv(set->api_key_env);

		if (!text)
			COMPLAIN(r, set->api_key_env, "no such environment variable (%s)", field);
		else if (!api_key_good(text, strlen(text)))
			COMPLAIN(r, set->api_key_env, "%s (%s)", must, field);
		else
			record_add(r, SECRET_API_KEY, i, text, strlen(text));
		return;
	}
	if (!file_take(r, SECRET_API_KEY, i, set->api_key_file, field))
		return;
	key = &r->files->record[r->files->n - 1];
	trim_end(key);
	if (!api_key_good(key->p, key->len))
		COMPLAIN(r, set->api_key_file, "%s (%s)", must, field);
}

/* ---- issuers of tokens ---- */

static bool
jwt_secret_read(struct reader *r, const struct manifest_issuer *issuer, uint32_t i)
{
	bool in_file = issuer->secret_file[0] != '\0';
	char field[FIELD_MAX];

	secrets_guard();
	snprintf(field, sizeof field, "GatewayBackend spec.jwt.issuers[%u].secretFrom.%s", i,
		 in_file ? "file" : "env");
	if (in_file) {
		if (!file_take(r, SECRET_JWT, i, issuer->secret_file, field))
			return false;
		trim_end(&r->files->record[r->files->n - 1]);
		return true;
	}
	const char *text = getenv(issuer->secret_env);

	if (!text)
		COMPLAIN(r, issuer->secret_env, "no such environment variable (%s)", field);
	return text && record_add(r, SECRET_JWT, i, text, strlen(text));
}

/* Whatever tokens are to be believed by must be good for that, now and not with the first token. */
static void
issuer_read(struct reader *r, const struct manifest_issuer *issuer, uint32_t i)
{
	const struct record *jwks, *secret;
	struct slice set = {NULL, 0}, text = {NULL, 0};
	struct jwt_keys *keys = NULL;
	char field[FIELD_MAX], why[JWT_WHY_MAX];
	bool good = true;
	int error;

	snprintf(field, sizeof field, "GatewayBackend spec.jwt.issuers[%u].jwks", i);
	if (issuer->jwks[0])
		good = file_take(r, SECRET_JWKS, i, issuer->jwks, field) != NULL;
	if (issuer->secret_file[0] || issuer->secret_env[0])
		good = jwt_secret_read(r, issuer, i) && good;
	if (!good)
		return;
	jwks = record_of(r->files, SECRET_JWKS, i);     /* records may have moved */
	secret = record_of(r->files, SECRET_JWT, i);
	if (jwks)
		set = slice_of(jwks->p, jwks->len);
	if (secret)
		text = slice_of(secret->p, secret->len);
	error = jwt_keys_new(&keys, issuer->algorithms, set, text, why);
	if (error == -ENOMEM)
		r->oom = true;
	else if (error < 0)
		COMPLAIN(r, jwks ? issuer->jwks :
			 issuer->secret_file[0] ? issuer->secret_file : issuer->secret_env,
			 "%s (GatewayBackend spec.jwt.issuers[%u])", why, i);
	jwt_keys_free(&keys);
}

/* ---- all of it ---- */

void
secrets_files_free(struct secret_files **files)
{
	struct secret_files *f = *files;

	if (!f)
		return;
	*files = NULL;
	for (unsigned i = 0; i < f->n; i++) {
		OPENSSL_cleanse(f->record[i].p, f->record[i].len);
		free(f->record[i].p);
	}
	free(f->record);
	free(f);
}

int
secrets_read(const struct manifest *manifest, struct secret_files **ret, struct yaml_errors *errs,
	     struct yaml_errors *warnings)
{
	struct reader r = {.errs = errs, .warnings = warnings};
	const struct manifest_gateway *gw = &manifest->gateway;
	uint8_t ticket[SECRETS_TICKET_KEY];

	r.files = calloc(1, sizeof *r.files);
	if (!r.files)
		return -ENOMEM;
	ERR_clear_error();
	if (gw->n_certificates > 0)
		secrets_guard();
	for (uint32_t i = 0; i < gw->n_certificates && !r.oom; i++)
		certificate_read(&r, &gw->certificates[i], i);
	if (gw->n_certificates > 0) {
		if (getrandom(ticket, sizeof ticket, 0) != (ssize_t)sizeof ticket)
			r.oom = true;
		record_add(&r, SECRET_TICKET, 0, ticket, sizeof ticket);
		OPENSSL_cleanse(ticket, sizeof ticket);
	}
	for (uint32_t i = 0; i < gw->n_issuers && !r.oom; i++)
		issuer_read(&r, &gw->issuers[i], i);
	for (uint32_t i = 0; i < manifest->n_sets && !r.oom; i++) {
		const struct manifest_set *set = &manifest->sets[i];

		if (set->tls_ca[0])
			ca_read(&r, set, i);
		if (set->api_key_file[0] || set->api_key_env[0])
			api_key_read(&r, set, i);
	}
	if (r.bad || r.oom || r.files->n == 0)
		secrets_files_free(&r.files);
	if (r.oom)
		return -ENOMEM;
	if (r.bad)
		return -EINVAL;
	*ret = r.files;
	return 0;
}

int
secrets_create(struct segment *ret, const struct secret_files *files, enum segment_kind kind,
	       uint32_t generation)
{
	uint64_t geometry[4] = {0, 0, generation, 0};
	struct segment seg;
	char *p;
	int r;

	r = segment_create(&seg, kind, SECRETS_LAYOUT, SEGMENT_BODY + files->bytes, geometry);
	if (r < 0)
		return r;
	madvise(seg.head, seg.size, MADV_DONTDUMP);
	p = segment_body(&seg);
	for (unsigned i = 0; i < files->n; i++) {
		const struct record *f = &files->record[i];
		uint32_t head[4] = {(uint32_t)f->kind, f->index, (uint32_t)f->len, 0};
		size_t whole = sizeof head + ((f->len + 7) & ~(size_t)7);

		bool to_policy = f->kind == SECRET_CA;
		bool to_metrics = to_policy || f->kind == SECRET_API_KEY;

		if ((kind == SEGMENT_TRUST && !to_policy) ||
		    (kind == SEGMENT_PROBES && !to_metrics))
			continue;
		memcpy(p, head, sizeof head);
		memcpy(p + sizeof head, f->p, f->len);
		p += whole;
		seg.head->geometry[0] += whole;
	}
	seg.head->owner_role = ROLE_SUPERVISOR;
	segment_publish(&seg);
	*ret = seg;
	return 0;
}
