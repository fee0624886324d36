/* fuzz_jwt.c -- a token from a stranger, and a set of keys from a file: nothing crashes, and what
 * nobody signed is not believed.  First byte odd: the rest is a set of keys. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/tenants/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
keys(struct slice text)
{
	struct jwt_keys *k = NULL;
	char why[JWT_WHY_MAX] = "";

	int r = jwt_keys_new(&k, JWT_HS256 | JWT_RS256 | JWT_ES256, text,
			     (struct slice){NULL, 0}, why);

	if (r < 0 && !why[0])
		abort();
	jwt_keys_free(&k);
}

/* Nobody knows this secret: whatever comes is not signed by it. */
static void
token(struct slice text)
{
	static const char secret[] = "0c7e5f0b8d2a4c1e9f3b6a7d5c8e1f20";
	static struct jwt_keys *k;
	struct jwt_rules rules = {.issuer = "joe"};
	char why[JWT_WHY_MAX];
	struct jwt *jwt;

	if (!k && jwt_keys_new(&k, JWT_HS256, (struct slice){NULL, 0}, slice_str(secret), why) < 0)
		abort();
	if (jwt_open(&jwt, text) < 0)
		return;
	if (jwt_check(jwt, k, &rules, 1) == JWT_GOOD) {
		fprintf(stderr, "fuzz_jwt: believed\n");
		abort();
	}
	jwt_issuer(jwt);
	jwt_expires_s(jwt);
	jwt_says(jwt, "aud", "x");
	jwt_free(&jwt);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy;

	if (size == 0)
		return 0;
	copy = malloc(size);            /* exactly that long: what is read behind it is told */
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		keys(slice_of(copy, size - 1));
	else
		token(slice_of(copy, size - 1));
	free(copy);
	return 0;
}
