/* actors/common/tenants/jwt_keys.c -- see jwt.h: the keys that an issuer's tokens are signed by. */
#include "actors/common/tenants/jwt_private.h"

#include <errno.h>
#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <stdio.h>
#include <stdlib.h>

#define RSA_BITS_MIN 2048
#define RSA_BYTES_MAX 2048u             /* of a modulus: 16,384 bits */
#define P256_BYTES 32u
#define JWKS_DEPTH_BYTES (1u << 20)     /* of a set's text */

ssize_t
jwt_base64url(struct slice text, uint8_t *buf, size_t cap)
{
	uint32_t bits = 0;
	unsigned n_bits = 0;
	size_t n = 0;

	if (text.len % 4 == 1)
		return -EINVAL;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.p[i];
		uint32_t v;

		if (c >= 'A' && c <= 'Z')
			v = (uint32_t)(c - 'A');
		else if (c >= 'a' && c <= 'z')
			v = (uint32_t)(c - 'a') + 26;
		else if (c >= '0' && c <= '9')
			v = (uint32_t)(c - '0') + 52;
		else if (c == '-' || c == '_')
			v = c == '-' ? 62 : 63;
		else
			return -EINVAL;
		bits = bits << 6 | v;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			if (n == cap)
				return -EINVAL;
			buf[n++] = (uint8_t)(bits >> n_bits);
		}
	}
	if (bits & ((1u << n_bits) - 1))        /* one text for the same bytes, no other */
		return -EINVAL;
	return (ssize_t)n;
}

/* ---- one key ---- */

static EVP_PKEY *
key_of(const char *type, OSSL_PARAM *params)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	EVP_PKEY *key = NULL;

	if (!ctx || !params || EVP_PKEY_fromdata_init(ctx) != 1 ||
	    EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		key = NULL;
	EVP_PKEY_CTX_free(ctx);
	return key;
}

static ssize_t
member_bytes(const json_t *jwk, const char *name, uint8_t *buf, size_t cap)
{
	const char *text = json_string_value(json_object_get(jwk, name));

	return text ? jwt_base64url(slice_str(text), buf, cap) : -EINVAL;
}

static EVP_PKEY *
rsa_key(const json_t *jwk)
{
	uint8_t modulus[RSA_BYTES_MAX], exponent[8];
	ssize_t n = member_bytes(jwk, "n", modulus, sizeof modulus);
	ssize_t e = member_bytes(jwk, "e", exponent, sizeof exponent);
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	BIGNUM *bn_n = n > 0 ? BN_bin2bn(modulus, (int)n, NULL) : NULL;
	BIGNUM *bn_e = e > 0 ? BN_bin2bn(exponent, (int)e, NULL) : NULL;
	OSSL_PARAM *params = NULL;
	EVP_PKEY *key = NULL;

	if (build && bn_n && bn_e && BN_num_bits(bn_n) >= RSA_BITS_MIN && BN_is_odd(bn_e) &&
	    !BN_is_one(bn_e) && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, bn_n) == 1 &&
	    OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, bn_e) == 1) {
		params = OSSL_PARAM_BLD_to_param(build);
		key = key_of("RSA", params);
	}
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(build);
	BN_free(bn_n);
	BN_free(bn_e);
	return key;
}

static EVP_PKEY *
ec_key(const json_t *jwk)
{
	const char *curve = json_string_value(json_object_get(jwk, "crv"));
	char group[] = "P-256";
	uint8_t point[1 + 2 * P256_BYTES] = {4};        /* not compressed */
	OSSL_PARAM params[3] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
		OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point),
		OSSL_PARAM_construct_end(),
	};

	if (!curve || strcmp(curve, "P-256") != 0 ||
	    member_bytes(jwk, "x", point + 1, P256_BYTES) != P256_BYTES ||
	    member_bytes(jwk, "y", point + 1 + P256_BYTES, P256_BYTES) != P256_BYTES)
		return NULL;
	return key_of("EC", params);    /* refuses what is not on the curve */
}

static bool
secret_set(struct jwt_key *key, const void *bytes, size_t len)
{
	key->secret = len >= JWT_SECRET_MIN ? malloc(len) : NULL;
	if (!key->secret)
		return false;
	memcpy(key->secret, bytes, len);
	key->n_secret = len;
	return true;
}

/* ---- a set ---- */

static unsigned
algorithm_named(const char *name)
{
	static const struct {
		const char *name;
		unsigned algorithm;
	} all[] = {{"HS256", JWT_HS256}, {"RS256", JWT_RS256}, {"ES256", JWT_ES256}};

	for (unsigned i = 0; name && i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].algorithm;
	return 0;
}

unsigned
jwt_algorithm_named(const char *name)
{
	return algorithm_named(name);
}

/* False: it is for something else, or not good enough. */
static bool
take(struct jwt_key *key, const json_t *jwk, unsigned algorithms)
{
	const char *kty = json_string_value(json_object_get(jwk, "kty"));
	const char *alg = json_string_value(json_object_get(jwk, "alg"));
	const char *use = json_string_value(json_object_get(jwk, "use"));
	const char *kid = json_string_value(json_object_get(jwk, "kid"));
	uint8_t secret[1024];
	ssize_t n;

	if (!kty || (use && strcmp(use, "sig") != 0))
		return false;
	*key = (struct jwt_key){.algorithm = strcmp(kty, "RSA") == 0 ? JWT_RS256 :
				strcmp(kty, "EC") == 0 ? JWT_ES256 :
				strcmp(kty, "oct") == 0 ? JWT_HS256 : 0};
	if (!(key->algorithm & algorithms) || (alg && algorithm_named(alg) != key->algorithm))
		return false;
	if (key->algorithm == JWT_RS256)
		key->key = rsa_key(jwk);
	else if (key->algorithm == JWT_ES256)
		key->key = ec_key(jwk);
	else if ((n = member_bytes(jwk, "k", secret, sizeof secret)) > 0)
		secret_set(key, secret, (size_t)n);
	OPENSSL_cleanse(secret, sizeof secret);
	if (kid && (key->key || key->secret))
		key->kid = strdup(kid);
	return key->key || key->secret;
}

static int
take_set(struct jwt_keys *keys, unsigned algorithms, struct slice jwks, char why[JWT_WHY_MAX])
{
	json_error_t error;
	json_t *set = jwks.len <= JWKS_DEPTH_BYTES ?
		json_loadb(jwks.p, jwks.len, JSON_REJECT_DUPLICATES, &error) : NULL;
	const json_t *list = json_object_get(set, "keys"), *jwk;
	size_t i;
	int r = 0;

	if (!json_is_array(list)) {
		snprintf(why, JWT_WHY_MAX, "is no JWK set: {\"keys\": [...]} in JSON%s%.80s",
			 set ? "" : ": ", set ? "" : error.text);
		r = -EINVAL;
	}
	json_array_foreach(list, i, jwk) {
		if (r == 0 && keys->n == JWT_KEYS_MAX) {
			snprintf(why, JWT_WHY_MAX, "has more than %u keys", JWT_KEYS_MAX);
			r = -EINVAL;
		}
		if (r == 0 && take(&keys->key[keys->n], jwk, algorithms))
			keys->n++;
	}
	json_decref(set);
	if (r == 0 && keys->n == 0) {
		snprintf(why, JWT_WHY_MAX, "has no key that can be used: kty RSA of 2,048 bits or "
			 "more, EC with crv P-256, oct of 32 bytes or more, as `algorithms` says");
		r = -EINVAL;
	}
	return r;
}

int
jwt_keys_new(struct jwt_keys **ret, unsigned algorithms, struct slice jwks, struct slice secret,
	     char why[JWT_WHY_MAX])
{
	struct jwt_keys *keys = calloc(1, sizeof *keys);
	int r = 0;

	snprintf(why, JWT_WHY_MAX, "out of memory");
	if (!keys)
		return -ENOMEM;
	if (jwks.p)
		r = take_set(keys, algorithms, jwks, why);
	if (r == 0 && secret.p && (algorithms & JWT_HS256)) {
		struct jwt_key *key = &keys->key[keys->n];

		*key = (struct jwt_key){.algorithm = JWT_HS256};
		if (secret.len < JWT_SECRET_MIN) {
			snprintf(why, JWT_WHY_MAX, "a secret for HS256 has at least %u bytes",
				 JWT_SECRET_MIN);
			r = -EINVAL;
		} else if (!secret_set(key, secret.p, secret.len)) {
			r = -ENOMEM;
		} else {
			keys->n++;
		}
	}
	if (r == 0 && keys->n == 0) {
		snprintf(why, JWT_WHY_MAX, "no key is given");
		r = -EINVAL;
	}
	ERR_clear_error();
	if (r < 0)
		jwt_keys_free(&keys);
	else
		*ret = keys;
	return r;
}

void
jwt_keys_free(struct jwt_keys **ret)
{
	struct jwt_keys *keys = *ret;

	if (!keys)
		return;
	*ret = NULL;
	for (unsigned i = 0; i < keys->n; i++) {
		EVP_PKEY_free(keys->key[i].key);
		if (keys->key[i].secret)
			OPENSSL_cleanse(keys->key[i].secret, keys->key[i].n_secret);
		free(keys->key[i].secret);
		free(keys->key[i].kid);
	}
	free(keys);
}

unsigned
jwt_keys_count(const struct jwt_keys *keys)
{
	return keys ? keys->n : 0;
}
