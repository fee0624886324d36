/* actors/common/tenants/tenants.h -- whose request is it?  Keys, tokens, headers of trusted peers.
 *
 * Meaning    One generation's tenants, made for looking up.  In this order, the first that is there
 *            says who asks, and nothing after it is looked at:
 *            1. a tenant's header field, where the connection's other end is a trusted peer;
 *            2. Authorization: Bearer, then x-api-key, then api-key: a token (jwt.h) or a key.
 *            Without any, it is the default tenant's, or nobody's.
 * Refused    a field given twice, or a tenant's header with a list: who put the first there?
 *            A key that nobody has and a token that is not believed: as `authentication` says.
 * Secrets    keys are known by their SHA-256 only.  A key is found by the hash of what came, then
 *            compared in constant time: how long it takes tells of hashes, not of keys.
 * Kept       a token's answer, under its SHA-256, until it expires: TENANTS_KEPT at most, the
 *            oldest of four give way.  Only good ones are kept.  A new generation begins empty.
 * Ownership  nothing of the manifest is borrowed: it may change its members meanwhile.
 * Threads    made beside the loop, then used by one thread.
 * Cost       a key some 0.5 us, a token that is kept the same, one that is not as jwt.h says.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "actors/common/tenants/jwt.h"
#include "proto/http1.h"

#define TENANTS_KEPT    4096u           /* tokens */
#define TENANTS_WHY_MAX 256u
#define TENANTS_KEY_MAX JWT_MAX         /* bytes of what a client shows */

struct tenants;

/* What the supervisor read for issuer i of the gateway; absent: not configured. */
typedef struct slice tenants_text_f(void *arg, uint32_t issuer, bool secret);

int tenants_new(struct tenants **ret, const struct manifest *manifest, tenants_text_f *text,
		void *arg, char why[TENANTS_WHY_MAX]);
	/* 0; -EINVAL and why: a JWK set or secret of an issuer cannot be used; -ENOMEM. */
void tenants_free(struct tenants **t);

enum tenants_result {
	TENANTS_FOUND,
	TENANTS_NOBODY,                 /* it may ask nevertheless */
	TENANTS_MISSING,                /* 401: it must say who it is */
	TENANTS_WRONG,                  /* 401: what it says is nobody's */
	TENANTS_TWICE,                  /* 400 */
};
enum tenants_by { TENANTS_BY_NOTHING, TENANTS_BY_KEY, TENANTS_BY_TOKEN, TENANTS_BY_HEADER };

struct tenants_who {
	enum tenants_result result;
	enum tenants_by by;
	uint32_t tenant;                /* index in the manifest; MANIFEST_NONE */
	const char *why;                /* for the client: static, nothing of what it sent */
};

void tenants_find(struct tenants *t, const struct http1_head *head, bool trusted, uint64_t now_s,
		  struct tenants_who *ret);
	/* trusted: so is the other end of the connection.  now_s: since 1970. */
bool tenants_is_identity(const struct tenants *t, struct slice name);
	/* A field of this name says who somebody is: no worker gets it, and from those who are not
	 * trusted nobody does. */
bool tenants_any(const struct tenants *t);      /* else nothing needs to be looked at */

void tenants_hash(struct slice key, uint8_t ret_hash[MANIFEST_KEY_BYTES]);
	/* As spec.keys has it. */
