/* actors/common/tenants/tenants.c -- see tenants.h. */
#include "actors/common/tenants/tenants.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAYS 4u
#define NS 1000000000ull

_Static_assert(SHA256_DIGEST_LENGTH == MANIFEST_KEY_BYTES, "a key's hash");
_Static_assert((int)JWT_HS256 == (int)MANIFEST_JWT_HS256 &&
		       (int)JWT_RS256 == (int)MANIFEST_JWT_RS256 &&
		       (int)JWT_ES256 == (int)MANIFEST_JWT_ES256,
	       "one order of algorithms");

struct key {                            /* tenant MANIFEST_NONE: an empty place */
	uint8_t hash[MANIFEST_KEY_BYTES];
	uint32_t tenant;
};

struct issuer {
	char name[MANIFEST_VALUE_MAX + 1], audience[MANIFEST_VALUE_MAX + 1];
	uint64_t leeway_s;
	struct jwt_keys *keys;          /* owned */
};

struct claim {
	char issuer[MANIFEST_VALUE_MAX + 1];    /* "": any */
	char name[MANIFEST_NAME_MAX + 1], value[MANIFEST_VALUE_MAX + 1];
	uint32_t tenant;
};

struct header {
	char name[MANIFEST_HEADER_MAX + 1], value[MANIFEST_VALUE_MAX + 1];
	uint32_t tenant;
};

struct kept {                           /* until_s 0: empty */
	uint8_t hash[MANIFEST_KEY_BYTES];
	uint64_t until_s, used;
	uint32_t tenant;
};

struct tenants {
	enum manifest_authentication authentication;
	uint32_t default_tenant;
	struct key *key;                /* owned, as are those below; open addressing */
	uint32_t n_places;              /* a power of 2; 0: no keys */
	struct issuer *issuer;
	uint32_t n_issuers;
	struct claim *claim;
	uint32_t n_claims;
	struct header *header;
	uint32_t n_headers;
	struct kept *kept;              /* TENANTS_KEPT where there are issuers */
	uint64_t uses;
};

static const char *const credential_names[] = {"authorization", "x-api-key", "api-key"};

void
tenants_hash(struct slice key, uint8_t ret_hash[MANIFEST_KEY_BYTES])
{
	SHA256((const unsigned char *)(key.p ? key.p : ""), key.len, ret_hash);
}

static uint64_t
word_of(const uint8_t hash[MANIFEST_KEY_BYTES])
{
	uint64_t word;

	memcpy(&word, hash, sizeof word);
	return word;
}

/* ---- making ---- */

static bool
keys_make(struct tenants *t, const struct manifest *m)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < m->n_tenants; i++)
		n += m->tenants[i].n_keys;
	if (n == 0)
		return true;
	for (t->n_places = 16; t->n_places < 2 * n;)
		t->n_places *= 2;
	t->key = malloc(t->n_places * sizeof *t->key);
	if (!t->key)
		return false;
	for (uint32_t i = 0; i < t->n_places; i++)
		t->key[i].tenant = MANIFEST_NONE;
	for (uint32_t i = 0; i < m->n_tenants; i++)
		for (uint32_t k = 0; k < m->tenants[i].n_keys; k++) {
			const uint8_t *hash = m->tenants[i].keys[k];
			uint32_t at = (uint32_t)word_of(hash) & (t->n_places - 1);

			while (t->key[at].tenant != MANIFEST_NONE)
				at = (at + 1) & (t->n_places - 1);
			memcpy(t->key[at].hash, hash, MANIFEST_KEY_BYTES);
			t->key[at].tenant = i;
		}
	return true;
}

static int
issuers_make(struct tenants *t, const struct manifest *m, tenants_text_f *text, void *arg,
	     char why[TENANTS_WHY_MAX])
{
	const struct manifest_gateway *gw = &m->gateway;

	if (gw->n_issuers == 0)
		return 0;
	t->issuer = calloc(gw->n_issuers, sizeof *t->issuer);
	t->kept = calloc(TENANTS_KEPT, sizeof *t->kept);
	if (!t->issuer || !t->kept)
		return -ENOMEM;
	for (uint32_t i = 0; i < gw->n_issuers; i++) {
		const struct manifest_issuer *from = &gw->issuers[i];
		struct issuer *to = &t->issuer[t->n_issuers++];
		char what[JWT_WHY_MAX];
		int r;

		memcpy(to->name, from->issuer, sizeof to->name);
		memcpy(to->audience, from->audience, sizeof to->audience);
		to->leeway_s = from->leeway_ns / NS;
		r = jwt_keys_new(&to->keys, from->algorithms, text(arg, i, false),
				 text(arg, i, true), what);
		if (r < 0) {
			snprintf(why, TENANTS_WHY_MAX, "issuer %.60s: %s", from->issuer, what);
			return r;
		}
	}
	return 0;
}

static bool
names_make(struct tenants *t, const struct manifest *m)
{
	t->claim = calloc(m->n_tenants + 1, sizeof *t->claim);
	t->header = calloc(m->n_tenants + 1, sizeof *t->header);
	if (!t->claim || !t->header)
		return false;
	for (uint32_t i = 0; i < m->n_tenants; i++) {
		const struct manifest_tenant *from = &m->tenants[i];

		if (from->jwt_claim[0]) {
			struct claim *c = &t->claim[t->n_claims++];

			memcpy(c->issuer, from->jwt_issuer, sizeof c->issuer);
			memcpy(c->name, from->jwt_claim, sizeof c->name);
			memcpy(c->value, from->jwt_value, sizeof c->value);
			c->tenant = i;
		}
		if (from->header_name[0]) {
			struct header *h = &t->header[t->n_headers++];

			memcpy(h->name, from->header_name, sizeof h->name);
			memcpy(h->value, from->header_value, sizeof h->value);
			h->tenant = i;
		}
	}
	return true;
}

int
tenants_new(struct tenants **ret, const struct manifest *manifest, tenants_text_f *text, void *arg,
	    char why[TENANTS_WHY_MAX])
{
	struct tenants *t = calloc(1, sizeof *t);
	int r;

	snprintf(why, TENANTS_WHY_MAX, "out of memory");
	if (!t)
		return -ENOMEM;
	t->authentication = manifest->gateway.authentication;
	t->default_tenant = manifest->gateway.default_tenant;
	r = keys_make(t, manifest) && names_make(t, manifest) ? 0 : -ENOMEM;
	if (r == 0)
		r = issuers_make(t, manifest, text, arg, why);
	if (r < 0)
		tenants_free(&t);
	else
		*ret = t;
	return r;
}

void
tenants_free(struct tenants **ret)
{
	struct tenants *t = *ret;

	if (!t)
		return;
	*ret = NULL;
	for (uint32_t i = 0; i < t->n_issuers; i++)
		jwt_keys_free(&t->issuer[i].keys);
	free(t->issuer);
	free(t->kept);
	free(t->claim);
	free(t->header);
	free(t->key);
	free(t);
}

bool
tenants_any(const struct tenants *t)
{
	return t && (t->n_places > 0 || t->n_issuers > 0 || t->n_headers > 0 ||
		     t->default_tenant != MANIFEST_NONE ||
		     t->authentication == MANIFEST_AUTHENTICATION_REQUIRED);
}

bool
tenants_is_identity(const struct tenants *t, struct slice name)
{
	for (uint32_t i = 0; t && i < t->n_headers; i++)
		if (http1_name_eq(name, t->header[i].name))
			return true;
	return false;
}

/* ---- headers of trusted peers ---- */

/* False: there is none of these fields. */
static bool
by_header(const struct tenants *t, const struct http1_head *head, struct tenants_who *ret)
{
	const struct http1_header *said = NULL;

	for (unsigned i = 0; i < head->n_headers; i++) {
		if (!tenants_is_identity(t, head->headers[i].name))
			continue;
		if (said || memchr(head->headers[i].value.p, ',', head->headers[i].value.len)) {
			ret->result = TENANTS_TWICE;
			ret->why = "Two fields, or one with a list, say whose request this is.";
			return true;
		}
		said = &head->headers[i];
	}
	if (!said)
		return false;
	ret->by = TENANTS_BY_HEADER;
	ret->result = TENANTS_WRONG;
	for (uint32_t i = 0; i < t->n_headers; i++)
		if (http1_name_eq(said->name, t->header[i].name) &&
		    slice_eq_str(said->value, t->header[i].value)) {
			ret->result = TENANTS_FOUND;
			ret->tenant = t->header[i].tenant;
			break;
		}
	return true;
}

/* ---- keys and tokens ---- */

static bool
by_key(const struct tenants *t, const uint8_t hash[MANIFEST_KEY_BYTES], struct tenants_who *ret)
{
	uint32_t at = (uint32_t)word_of(hash) & (t->n_places - 1);

	for (; t->n_places > 0 && t->key[at].tenant != MANIFEST_NONE;
	     at = (at + 1) & (t->n_places - 1))
		if (CRYPTO_memcmp(t->key[at].hash, hash, MANIFEST_KEY_BYTES) == 0) {
			ret->tenant = t->key[at].tenant;
			return true;
		}
	return false;
}

static struct kept *
kept_find(struct tenants *t, const uint8_t hash[MANIFEST_KEY_BYTES])
{
	struct kept *set = &t->kept[word_of(hash) % (TENANTS_KEPT / WAYS) * WAYS];

	for (unsigned i = 0; i < WAYS; i++)
		if (set[i].until_s && CRYPTO_memcmp(set[i].hash, hash, MANIFEST_KEY_BYTES) == 0)
			return &set[i];
	return NULL;
}

static void
kept_put(struct tenants *t, const uint8_t hash[MANIFEST_KEY_BYTES], uint32_t tenant,
	 uint64_t until_s)
{
	struct kept *set = &t->kept[word_of(hash) % (TENANTS_KEPT / WAYS) * WAYS], *to = set;

	for (unsigned i = 1; i < WAYS; i++)
		if (set[i].used < to->used)
			to = &set[i];
	memcpy(to->hash, hash, MANIFEST_KEY_BYTES);
	to->tenant = tenant;
	to->until_s = until_s;
	to->used = ++t->uses;
}

static uint32_t
claimed_by(const struct tenants *t, const struct jwt *jwt, const char *issuer)
{
	for (uint32_t i = 0; i < t->n_claims; i++) {
		const struct claim *c = &t->claim[i];

		if ((!c->issuer[0] || strcmp(c->issuer, issuer) == 0) &&
		    jwt_says(jwt, c->name, c->value))
			return c->tenant;
	}
	return MANIFEST_NONE;
}

static const char *
token_why(enum jwt_result result)
{
	switch (result) {
	case JWT_EXPIRED:
		return "The token has expired, or does not say until when it is good.";
	case JWT_EARLY:
		return "The token is not good yet.";
	case JWT_AUDIENCE:
		return "The token is not for this gateway.";
	default:
		return "The token is not one of an issuer that is known here.";
	}
}

/* False: it is no token. */
static bool
by_token(struct tenants *t, struct slice text, const uint8_t hash[MANIFEST_KEY_BYTES],
	 uint64_t now_s, struct tenants_who *ret)
{
	enum jwt_result result = JWT_ISSUER;
	struct kept *kept;
	struct jwt *jwt;

	if (t->n_issuers == 0 || !jwt_looks_like_one(text))
		return false;
	ret->by = TENANTS_BY_TOKEN;
	kept = kept_find(t, hash);
	if (kept && now_s < kept->until_s) {
		kept->used = ++t->uses;
		ret->tenant = kept->tenant;
		ret->result = TENANTS_FOUND;
		return true;
	}
	ret->result = TENANTS_WRONG;
	ret->why = token_why(JWT_MALFORMED);
	if (jwt_open(&jwt, text) < 0)
		return true;
	for (uint32_t i = 0; i < t->n_issuers; i++) {
		const struct issuer *from = &t->issuer[i];
		struct jwt_rules rules = {from->name, from->audience, from->leeway_s};

		if (!slice_eq_str(jwt_issuer(jwt), from->name))
			continue;
		result = jwt_check(jwt, from->keys, &rules, now_s);
		ret->why = token_why(result);
		if (result != JWT_GOOD)
			break;
		ret->tenant = claimed_by(t, jwt, from->name);
		ret->why = "The token is good, and no tenant's.";
		if (ret->tenant != MANIFEST_NONE) {
			ret->result = TENANTS_FOUND;
			kept_put(t, hash, ret->tenant, jwt_expires_s(jwt) + from->leeway_s);
		}
		break;
	}
	jwt_free(&jwt);
	return true;
}

/* "Bearer" and a blank before it, in whatever case; empty: there is none. */
static struct slice
bearer(struct slice value)
{
	if (value.len < 7 || !http1_name_eq((struct slice){value.p, 6}, "bearer") ||
	    value.p[6] != ' ')
		return (struct slice){"", 0};
	while (value.len > 7 && value.p[7] == ' ')
		value = (struct slice){value.p + 1, value.len - 1};
	return (struct slice){value.p + 7, value.len - 7};
}

/* False: there is none of these fields. */
static bool
by_credential(struct tenants *t, const struct http1_head *head, uint64_t now_s,
	      struct tenants_who *ret)
{
	uint8_t hash[MANIFEST_KEY_BYTES];
	const struct http1_header *h = NULL;
	struct slice shown;

	for (unsigned i = 0; !h && i < sizeof credential_names / sizeof *credential_names; i++) {
		h = http1_find(head, credential_names[i], NULL);
		if (h && http1_find(head, credential_names[i], h)) {
			ret->result = TENANTS_TWICE;
			ret->why = "A field of credentials is given twice.";
			return true;
		}
	}
	if (!h)
		return false;
	shown = http1_name_eq(h->name, "authorization") ? bearer(h->value) : h->value;
	ret->by = TENANTS_BY_KEY;
	ret->result = TENANTS_WRONG;
	ret->why = "The API key is nobody's.";
	if (shown.len == 0 || shown.len > TENANTS_KEY_MAX)
		return true;
	tenants_hash(shown, hash);
	if (by_key(t, hash, ret))
		ret->result = TENANTS_FOUND;
	else
		by_token(t, shown, hash, now_s, ret);
	OPENSSL_cleanse(hash, sizeof hash);
	return true;
}

/* ---- all of it ---- */

static void
nobody(const struct tenants *t, struct tenants_who *ret)
{
	*ret = (struct tenants_who){.tenant = t->default_tenant, .why = ""};
	ret->result = t->default_tenant != MANIFEST_NONE ? TENANTS_FOUND : TENANTS_NOBODY;
}

void
tenants_find(struct tenants *t, const struct http1_head *head, bool trusted, uint64_t now_s,
	     struct tenants_who *ret)
{
	*ret = (struct tenants_who){.tenant = MANIFEST_NONE, .why = ""};
	if (trusted && t->n_headers > 0 && by_header(t, head, ret)) {
		if (ret->result == TENANTS_WRONG)
			ret->why = "The tenant that a trusted peer names is not known.";
	} else if (!by_credential(t, head, now_s, ret)) {
		nobody(t, ret);
		if (t->authentication == MANIFEST_AUTHENTICATION_REQUIRED) {
			ret->tenant = MANIFEST_NONE;
			ret->result = TENANTS_MISSING;
			ret->why = "You must say who you are: Authorization: Bearer and an API key "
				   "or token.";
		}
		return;
	}
	if (ret->result != TENANTS_FOUND)
		ret->tenant = MANIFEST_NONE;
	if (ret->result == TENANTS_WRONG && t->authentication == MANIFEST_AUTHENTICATION_OFF)
		nobody(t, ret);
}
