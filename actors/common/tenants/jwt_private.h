/* actors/common/tenants/jwt_private.h -- what jwt.c and jwt_keys.c share. */
#pragma once
#include <openssl/evp.h>
#include <stdbool.h>
#include <sys/types.h>

#include "actors/common/tenants/jwt.h"

struct jwt_key {
	unsigned algorithm;             /* enum jwt_algorithm; the only one it is for */
	char *kid;                      /* owned; NULL: has none */
	EVP_PKEY *key;                  /* owned; RS256, ES256 */
	uint8_t *secret;                /* owned; HS256 */
	size_t n_secret;
};

struct jwt_keys {
	struct jwt_key key[JWT_KEYS_MAX + 1];   /* a set's, and one secret */
	unsigned n;
};

ssize_t jwt_base64url(struct slice text, uint8_t *buf, size_t cap);
	/* Without padding, strictly: bytes, or -EINVAL. */
unsigned jwt_algorithm_named(const char *name);         /* 0: none of ours */
