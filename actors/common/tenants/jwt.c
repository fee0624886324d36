/* actors/common/tenants/jwt.c -- see jwt.h: a token's parts, and whether it is to be believed. */
#include "actors/common/tenants/jwt_private.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#define SIGNATURE_MAX 2048u
#define ES256_BYTES 64u                 /* r and s */
#define DER_MAX 80u                     /* the same as OpenSSL wants them */

struct jwt {
	struct slice input;             /* what is signed: borrowed */
	json_t *header, *claims;        /* owned */
	uint8_t signature[SIGNATURE_MAX];
	size_t n_signature;
};

/* ---- taking apart ---- */

static bool
parts(struct slice token, struct slice part[3])
{
	const char *end = token.p + token.len, *p = token.p;

	if (!token.p || token.len > JWT_MAX)
		return false;
	for (unsigned i = 0; i < 3; i++) {
		const char *dot = i < 2 ? memchr(p, '.', (size_t)(end - p)) : end;

		if (!dot || dot == p)
			return false;
		part[i] = (struct slice){p, (size_t)(dot - p)};
		p = dot + 1;
	}
	return !memchr(part[2].p, '.', part[2].len);
}

static json_t *
object_of(struct slice text)
{
	uint8_t buf[JWT_MAX];
	ssize_t n = jwt_base64url(text, buf, sizeof buf);
	json_t *o = n > 0 ? json_loadb((const char *)buf, (size_t)n, JSON_REJECT_DUPLICATES, NULL)
			  : NULL;

	if (o && !json_is_object(o)) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

int
jwt_open(struct jwt **ret, struct slice token)
{
	struct slice part[3];
	struct jwt *jwt;
	ssize_t n;

	if (!parts(token, part))
		return -EINVAL;
	jwt = calloc(1, sizeof *jwt);
	if (!jwt)
		return -ENOMEM;
	jwt->input = (struct slice){token.p, part[0].len + 1 + part[1].len};
	jwt->header = object_of(part[0]);
	jwt->claims = object_of(part[1]);
	n = jwt_base64url(part[2], jwt->signature, sizeof jwt->signature);
	if (!jwt->header || !jwt->claims || n <= 0 || json_object_get(jwt->header, "crit")) {
		jwt_free(&jwt);
		return -EINVAL;
	}
	jwt->n_signature = (size_t)n;
	*ret = jwt;
	return 0;
}

void
jwt_free(struct jwt **ret)
{
	struct jwt *jwt = *ret;

	if (!jwt)
		return;
	*ret = NULL;
	json_decref(jwt->header);
	json_decref(jwt->claims);
	free(jwt);
}

bool
jwt_looks_like_one(struct slice token)
{
	struct slice part[3];

	if (!parts(token, part))
		return false;
	for (unsigned i = 0; i < 3; i++)
		for (size_t k = 0; k < part[i].len; k++) {
			char c = part[i].p[k];

			if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			      (c >= '0' && c <= '9') || c == '-' || c == '_'))
				return false;
		}
	return part[0].len >= 2 && memcmp(part[0].p, "ey", 2) == 0;     /* {" */
}

/* ---- what it says ---- */

struct slice
jwt_issuer(const struct jwt *jwt)
{
	const json_t *iss = json_object_get(jwt->claims, "iss");

	return (struct slice){json_string_value(iss), json_string_length(iss)};
}

/* A time claim in whole seconds, rounded towards "not valid".  False: it is none. */
static bool
time_of(const struct jwt *jwt, const char *claim, bool up, uint64_t *ret)
{
	const json_t *at = json_object_get(jwt->claims, claim);
	double s = json_number_value(at);

	if (!json_is_number(at) || !(s >= 0) || s > 9007199254740992.0)
		return false;
	*ret = (uint64_t)(up ? ceil(s) : floor(s));
	return true;
}

uint64_t
jwt_expires_s(const struct jwt *jwt)
{
	uint64_t at;

	return time_of(jwt, "exp", false, &at) ? at : 0;
}

static bool
text_is(const json_t *text, const char *value)
{
	return json_is_string(text) && json_string_length(text) == strlen(value) &&
	       memcmp(json_string_value(text), value, strlen(value)) == 0;
}

bool
jwt_says(const struct jwt *jwt, const char *claim, const char *value)
{
	const json_t *said = json_object_get(jwt->claims, claim), *item;
	size_t i;

	json_array_foreach(said, i, item)
		if (text_is(item, value))
			return true;
	return text_is(said, value);
}

/* ---- signatures ---- */

static bool
hs256(const struct jwt *jwt, const struct jwt_key *key)
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	return HMAC(EVP_sha256(), key->secret, (int)key->n_secret,
		    (const unsigned char *)jwt->input.p, jwt->input.len, mac, &n) &&
	       n == jwt->n_signature && CRYPTO_memcmp(mac, jwt->signature, n) == 0;
}

/* r and s, 32 bytes each, as the sequence that OpenSSL wants. */
static int
der_of(const struct jwt *jwt, uint8_t der[DER_MAX])
{
	ECDSA_SIG *sig = jwt->n_signature == ES256_BYTES ? ECDSA_SIG_new() : NULL;
	BIGNUM *r = sig ? BN_bin2bn(jwt->signature, ES256_BYTES / 2, NULL) : NULL;
	BIGNUM *s = sig ? BN_bin2bn(jwt->signature + ES256_BYTES / 2, ES256_BYTES / 2, NULL) : NULL;
	int n = -1;

	if (r && s && ECDSA_SIG_set0(sig, r, s) == 1) {
		if (i2d_ECDSA_SIG(sig, NULL) <= (int)DER_MAX)
			n = i2d_ECDSA_SIG(sig, &der);
	} else {
		BN_free(r);
		BN_free(s);
	}
	ECDSA_SIG_free(sig);
	return n;
}

static bool
signed_by(const struct jwt *jwt, const struct jwt_key *key)
{
	const unsigned char *p = jwt->signature;
	uint8_t der[DER_MAX];
	size_t n = jwt->n_signature;
	EVP_MD_CTX *ctx;
	bool good;

	if (key->algorithm == JWT_HS256)
		return hs256(jwt, key);
	if (key->algorithm == JWT_ES256) {
		int len = der_of(jwt, der);

		if (len <= 0)
			return false;
		p = der;
		n = (size_t)len;
	}
	ctx = EVP_MD_CTX_new();
	good = ctx && EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, key->key) == 1 &&
	       EVP_DigestVerify(ctx, p, n, (const unsigned char *)jwt->input.p,
				jwt->input.len) == 1;
	EVP_MD_CTX_free(ctx);
	ERR_clear_error();
	return good;
}

/* The keys that it may be signed by: of its algorithm, and of its name if it says one. */
static enum jwt_result
check_signature(const struct jwt *jwt, const struct jwt_keys *keys)
{
	unsigned algorithm = jwt_algorithm_named(
		json_string_value(json_object_get(jwt->header, "alg"))), tries = 0;
	const char *kid = json_string_value(json_object_get(jwt->header, "kid"));
	bool known = false;

	if (json_object_get(jwt->header, "kid") && !kid)
		return JWT_MALFORMED;
	for (unsigned i = 0; i < keys->n; i++) {
		const struct jwt_key *key = &keys->key[i];

		if (!algorithm || key->algorithm != algorithm)
			continue;
		known = true;
		if (kid && key->kid && strcmp(kid, key->kid) != 0)
			continue;
		if (++tries > JWT_TRIES)
			break;
		if (signed_by(jwt, key))
			return JWT_GOOD;
	}
	return !known ? JWT_ALGORITHM : tries == 0 ? JWT_UNKNOWN_KEY : JWT_SIGNATURE;
}

/* ---- all of it ---- */

enum jwt_result
jwt_check(const struct jwt *jwt, const struct jwt_keys *keys, const struct jwt_rules *rules,
	  uint64_t now_s)
{
	uint64_t expires, begins;

	if (!text_is(json_object_get(jwt->claims, "iss"), rules->issuer))
		return JWT_ISSUER;
	if (rules->audience && rules->audience[0] && !jwt_says(jwt, "aud", rules->audience))
		return JWT_AUDIENCE;
	if (!time_of(jwt, "exp", false, &expires))
		return JWT_EXPIRED;
	if (now_s >= expires + rules->leeway_s)
		return JWT_EXPIRED;
	if (json_object_get(jwt->claims, "nbf") &&
	    (!time_of(jwt, "nbf", true, &begins) || now_s + rules->leeway_s < begins))
		return JWT_EARLY;
	return check_signature(jwt, keys);
}

const char *
jwt_result_name(enum jwt_result result)
{
	static const char *const names[JWT_RESULTS] = {
		"good", "malformed", "issuer", "audience", "expired", "early", "algorithm",
		"unknown_key", "signature",
	};

	return (unsigned)result < JWT_RESULTS ? names[result] : "unknown";
}
