/* actors/common/tenants/jwt.h -- JSON web tokens (RFC 7519), as far as they say who asks.
 *
 * Meaning    A token is believed when its signature is one of a key that its issuer gave us, by the
 *            one algorithm that this key is for, and its times and audience are right.  Signed by
 *            HS256, RS256 or ES256 (RFC 7515, 7518); keys of a JWK set (RFC 7517), or one secret.
 * Refused    whatever else: "alg": "none" or any other algorithm; an algorithm that the issuer is
 *            not configured for, or that is not the key's own (a public key is never a secret);
 *            "crit"; a name given twice; encrypted tokens; RSA keys under 2,048 bits, secrets under
 *            32 bytes; a token without "exp".  Keys inside a token, and URLs of keys, are not
 *            looked at.
 * Bounds     JWT_MAX bytes of a token, JWT_KEYS_MAX keys of a set; no more than JWT_TRIES
 *            signatures are tried where a token names no key.
 * Errors     never asserts on what a client sent.
 * Threads    keys are immutable; a token belongs to one.
 * Cost       checks that cost little come first.  HS256 some 2 us, RS256 some 30, ES256 some 80: a
 *            caller keeps the result (tenants.h).
 */
#pragma once
#include <stdint.h>

#include "proto/slice.h"

#define JWT_MAX         8192u           /* bytes of a token */
#define JWT_KEYS_MAX    64u
#define JWT_TRIES       4u              /* signatures tried for one token */
#define JWT_SECRET_MIN  32u             /* bytes of an HS256 secret: RFC 7518 3.2 */
#define JWT_WHY_MAX     160u

enum jwt_algorithm { JWT_HS256 = 1, JWT_RS256 = 2, JWT_ES256 = 4 };     /* bits */

struct jwt_keys;                        /* of one issuer */

int jwt_keys_new(struct jwt_keys **ret, unsigned algorithms, struct slice jwks,
		 struct slice secret, char why[JWT_WHY_MAX]);
	/* From a JWK set's text, from a secret, or both; absent: not given.  Keys of the set that
	 * are for something else, or of an algorithm that is not wanted, are left out.  0; -EINVAL
	 * and why: not readable, or no key is left; -ENOMEM. */
void jwt_keys_free(struct jwt_keys **keys);
unsigned jwt_keys_count(const struct jwt_keys *keys);

struct jwt;                             /* a token, not yet believed */

enum jwt_result {
	JWT_GOOD = 0,
	JWT_MALFORMED,                  /* no token, or one that must not be so */
	JWT_ISSUER,                     /* of nobody we know */
	JWT_AUDIENCE,                   /* not for us */
	JWT_EXPIRED,                    /* or says not until when */
	JWT_EARLY,                      /* not yet */
	JWT_ALGORITHM,                  /* not one that its issuer may use */
	JWT_UNKNOWN_KEY,
	JWT_SIGNATURE,
	JWT_RESULTS
};
const char *jwt_result_name(enum jwt_result result);    /* one word */

int jwt_open(struct jwt **ret, struct slice token);
	/* Takes it apart; the bytes stay the caller's and must stay.  0, -EINVAL, -ENOMEM. */
void jwt_free(struct jwt **jwt);
bool jwt_looks_like_one(struct slice token);
	/* Three parts of base64url: an API key, rather, where not. */

struct jwt_rules {
	const char *issuer;             /* "iss", exactly */
	const char *audience;           /* "aud" or one of it; "" or NULL: not looked at */
	uint64_t leeway_s;              /* of "exp" and "nbf" */
};
enum jwt_result jwt_check(const struct jwt *jwt, const struct jwt_keys *keys,
			  const struct jwt_rules *rules, uint64_t now_s);
	/* now_s: since 1970. */

/* What it says; to be believed only after JWT_GOOD. */
struct slice jwt_issuer(const struct jwt *jwt);                 /* absent: none */
uint64_t jwt_expires_s(const struct jwt *jwt);                  /* 0: does not say */
bool jwt_says(const struct jwt *jwt, const char *claim, const char *value);
	/* The claim is that text, or a list with it. */
