/* actors/common/decide/manifest_tenant.h -- InferenceTenant: who asks, and what they may take.
 *
 * A request is the tenant's whose key, claim or header it bears.  Keys themselves are nowhere in
 * the documents, only their hashes.  Owned by the manifest; immutable.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/decide/manifest_limits.h"

#define MANIFEST_KEY_BYTES 32u /* SHA-256 */

enum manifest_authentication {
	MANIFEST_AUTHENTICATION_OFF,      /* nobody is asked; who bears a key is its tenant */
	MANIFEST_AUTHENTICATION_OPTIONAL, /* a wrong one is 401, none is the default tenant */
	MANIFEST_AUTHENTICATION_REQUIRED, /* none is 401 */
};

/* Bits of struct manifest_issuer's algorithms. */
#define MANIFEST_JWT_HS256 1u
#define MANIFEST_JWT_RS256 2u
#define MANIFEST_JWT_ES256 4u

/* Whose JSON web tokens are believed. */
struct manifest_issuer {
	char issuer[MANIFEST_VALUE_MAX + 1];   /* the claim "iss", exactly */
	char audience[MANIFEST_VALUE_MAX + 1]; /* "": "aud" is not looked at */
	uint32_t algorithms;
	char jwks[MANIFEST_FILE_MAX + 1];        /* file; "": none */
	char secret_file[MANIFEST_FILE_MAX + 1]; /* of HS256; "": none, as the next */
	char secret_env[MANIFEST_ENV_MAX + 1];	 /* of the supervisor */
	uint64_t leeway_ns; /* of "exp" and "nbf" */
};

struct manifest_tenant {
	char name[MANIFEST_NAME_MAX + 1];
	uint8_t (*keys)[MANIFEST_KEY_BYTES]; /* owned; SHA-256 of each key */
	uint32_t n_keys;
	char jwt_issuer[MANIFEST_VALUE_MAX + 1]; /* "": any of the gateway's */
	char jwt_claim[MANIFEST_NAME_MAX + 1];   /* "": tokens are not its */
	char jwt_value[MANIFEST_VALUE_MAX + 1];  /* the claim's, or one item of its list */
	char header_name[MANIFEST_HEADER_MAX + 1]; /* in lower case, from trusted peers; "": none */
	char header_value[MANIFEST_VALUE_MAX + 1];
	uint32_t priority; /* 0..100; more goes first */
	uint32_t weight;   /* its share among equals; at least 1 */
	struct manifest_limits limits; /* the gateway's defaultLimits where it writes none */
	bool blocked; /* every request is 403 */
};
