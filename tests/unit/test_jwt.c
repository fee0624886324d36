/* Tokens: the published ones are believed, and nothing that only looks like them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/tenants/jwt.h"
#include "tests/random.h"
#include "tests/unit/jwt_made.h"

#define ALL (JWT_HS256 | JWT_RS256 | JWT_ES256)

/* RFC 7515, appendices A.1, A.2 and A.3: issuer joe, until 1300819380. */
#define RFC_EXP 1300819380u
#define RFC_CLAIMS \
	"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp" \
	"0cnVlfQ"
#define RFC_HS256                                                                         \
	"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." RFC_CLAIMS                            \
	".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
#define RFC_HS256_KEY                                                                     \
	"{\"keys\":[{\"kty\":\"oct\",\"k\":\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZ" \
	"H75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow\"}]}"
#define RFC_RS256                                                                         \
	"eyJhbGciOiJSUzI1NiJ9." RFC_CLAIMS                                                \
	".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc"  \
	"_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO7" \
	"5vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkH" \
	"WEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywl" \
	"VmtVrBp0igcN_IoypGlUPQGe77Rw"
#define RFC_RSA_N                                                                         \
	"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2m" \
	"JPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OM" \
	"g0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY" \
	"4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91" \
	"kzk2PAcDTW9gb54h4FRWyuXpoQ"
#define RFC_RS256_KEY \
	"{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\",\"n\":\"" RFC_RSA_N "\",\"e\":\"AQAB\"}]}"
#define RFC_ES256                                                                         \
	"eyJhbGciOiJFUzI1NiJ9." RFC_CLAIMS                                                \
	".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3" \
	"-Kg6NU1Q"
#define RFC_ES256_KEY                                                                     \
	"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus" \
	"9uPHvRVEU\"," \
	"\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}"

static const char secret[] = "a secret of thirty-two bytes, or";

static struct jwt_keys *
keys_of(unsigned algorithms, const char *jwks, const char *text)
{
	struct jwt_keys *keys = NULL;
	char why[JWT_WHY_MAX];

	cr_assert_eq(jwt_keys_new(&keys, algorithms, slice_str(jwks), slice_str(text), why), 0,
		"%s",
		     why);
	return keys;
}

static enum jwt_result
check(const char *token, const struct jwt_keys *keys, const struct jwt_rules *rules, uint64_t now)
{
	enum jwt_result result;
	struct jwt *jwt;

	if (jwt_open(&jwt, slice_str(token)) < 0)
		return JWT_MALFORMED;
	result = jwt_check(jwt, keys, rules, now);
	jwt_free(&jwt);
	return result;
}

static const char *
hs(const char *claims)
{
	return made("{\"alg\":\"HS256\"}", claims, secret, strlen(secret));
}

static const struct jwt_rules joe = {.issuer = "joe"};

Test(jwt, the_published_tokens_are_believed_and_changed_ones_are_not)
{
	static const struct {
		const char *token, *jwks;
		unsigned algorithm;
	} all[] = {
		{RFC_HS256, RFC_HS256_KEY, JWT_HS256},
		{RFC_RS256, RFC_RS256_KEY, JWT_RS256},
		{RFC_ES256, RFC_ES256_KEY, JWT_ES256},
	};

	for (unsigned i = 0; i < 3; i++) {
		struct jwt_keys *keys = keys_of(all[i].algorithm, all[i].jwks, NULL);
		char *token = strdup(all[i].token);
		size_t n = strlen(token), dot = (size_t)(strrchr(token, '.') - token);

		cr_assert_eq(check(token, keys, &joe, RFC_EXP - 1), JWT_GOOD, "%u", i);
		for (size_t at = dot + 1; at < n; at += 7) {
			char was = token[at];

			token[at] = was == 'A' ? 'B' : 'A';
			cr_assert_neq(check(token, keys, &joe, RFC_EXP - 1), JWT_GOOD, "%u %zu", i,
				      at);
			token[at] = was;
		}
		cr_assert_eq(check(token, keys, &joe, RFC_EXP), JWT_EXPIRED);
		free(token);
		jwt_keys_free(&keys);
	}
}

Test(jwt, no_algorithm_is_none)
{
	struct jwt_keys *keys = keys_of(ALL, RFC_RS256_KEY, secret);
	static const char *const headers[] = {
		"{\"alg\":\"none\"}", "{\"alg\":\"None\"}", "{\"alg\":\"NONE\"}", "{\"alg\":\"\"}",
		"{\"alg\":null}", "{}", "{\"alg\":[\"HS256\"]}", "{\"alg\":\"hs256\"}",
		"{\"alg\":\"HS512\"}", "{\"alg\":\"HS256 \"}", "{\"alg\":\"HS256\\u0000\"}",
	};

	for (unsigned i = 0; i < sizeof headers / sizeof *headers; i++)
		cr_assert_neq(check(made(headers[i], "{\"iss\":\"joe\",\"exp\":9}", secret,
					 strlen(secret)), keys, &joe, 1), JWT_GOOD, "%s",
						headers[i]);
	cr_assert_neq(check("eyJhbGciOiJub25lIn0.eyJpc3MiOiJqb2UiLCJleHAiOjl9.", keys, &joe, 1),
		      JWT_GOOD, "and no signature is none");
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":9}"), keys, &joe, 1), JWT_GOOD);
	jwt_keys_free(&keys);
}

Test(jwt, a_public_key_is_no_secret)
{
	struct jwt_keys *keys = keys_of(ALL, RFC_RS256_KEY, NULL);
	struct jwt_keys *both = keys_of(ALL, RFC_RS256_KEY, secret);
	const char *as[] = {RFC_RSA_N, RFC_RS256_KEY, "AQAB", ""};

	for (unsigned i = 0; i < 4; i++) {
		const char *token = made("{\"alg\":\"HS256\",\"kid\":\"r\"}",
					 "{\"iss\":\"joe\",\"exp\":9}", as[i], strlen(as[i]));

		cr_assert_eq(check(token, keys, &joe, 1), JWT_ALGORITHM);
		cr_assert_eq(check(token, both, &joe, 1), JWT_SIGNATURE);
	}
	jwt_keys_free(&keys);
	jwt_keys_free(&both);
}

Test(jwt, an_algorithm_that_the_issuer_may_not_use_is_refused)
{
	struct jwt_keys *keys = keys_of(JWT_ES256 | JWT_RS256, RFC_ES256_KEY, NULL);
	struct jwt_keys *none = NULL;
	char why[JWT_WHY_MAX];

	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":9}"), keys, &joe, 1), JWT_ALGORITHM);
	cr_assert_eq(check(RFC_RS256, keys, &joe, 1), JWT_ALGORITHM);
	jwt_keys_free(&keys);
	cr_assert_eq(jwt_keys_new(&none, JWT_RS256, slice_str(RFC_ES256_KEY), slice_str(NULL), why),
		     -EINVAL);
	cr_assert(strstr(why, "no key"));
	cr_assert_eq(jwt_keys_new(&none, JWT_RS256, slice_str(NULL), slice_str(secret), why),
		-EINVAL);
}

Test(jwt, times_count_with_their_leeway_and_a_token_without_end_is_none)
{
	struct jwt_keys *keys = keys_of(JWT_HS256, NULL, secret);
	struct jwt_rules lax = {.issuer = "joe", .leeway_s = 30};

	cr_assert_eq(check(hs("{\"iss\":\"joe\"}"), keys, &joe, 1), JWT_EXPIRED);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":\"9\"}"), keys, &joe, 1), JWT_EXPIRED);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":-1}"), keys, &joe, 1), JWT_EXPIRED);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":1e300}"), keys, &joe, 1), JWT_EXPIRED);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100}"), keys, &joe, 99), JWT_GOOD);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100.9}"), keys, &joe, 100), JWT_EXPIRED);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100}"), keys, &lax, 129), JWT_GOOD);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100}"), keys, &lax, 130), JWT_EXPIRED);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100,\"nbf\":50}"), keys, &joe, 49),
		JWT_EARLY);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100,\"nbf\":50}"), keys, &joe, 50),
		JWT_GOOD);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100,\"nbf\":50}"), keys, &lax, 20),
		JWT_GOOD);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":100,\"nbf\":\"soon\"}"), keys, &joe, 60),
		     JWT_EARLY);
	jwt_keys_free(&keys);
}

Test(jwt, issuer_and_audience_are_those_that_are_configured)
{
	struct jwt_keys *keys = keys_of(JWT_HS256, NULL, secret);
	struct jwt_rules us = {.issuer = "joe", .audience = "us"};

	cr_assert_eq(check(hs("{\"exp\":9}"), keys, &joe, 1), JWT_ISSUER);
	cr_assert_eq(check(hs("{\"iss\":\"Joe\",\"exp\":9}"), keys, &joe, 1), JWT_ISSUER);
	cr_assert_eq(check(hs("{\"iss\":\"joe\\u0000\",\"exp\":9}"), keys, &joe, 1), JWT_MALFORMED);
	cr_assert_eq(check(hs("{\"iss\":[\"joe\"],\"exp\":9}"), keys, &joe, 1), JWT_ISSUER);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":9}"), keys, &us, 1), JWT_AUDIENCE);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":9,\"aud\":\"them\"}"), keys, &us, 1),
		     JWT_AUDIENCE);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":9,\"aud\":\"us\"}"), keys, &us, 1),
		JWT_GOOD);
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"exp\":9,\"aud\":[\"them\",\"us\"]}"), keys,
		&us, 1),
		     JWT_GOOD);
	jwt_keys_free(&keys);
}

Test(jwt, a_token_that_names_its_key_is_checked_by_no_other)
{
	static const char jwks[] =
		"{\"keys\":[{\"kty\":\"oct\",\"kid\":\"a\",\"k\":\"YSBzZWNyZXQgb2YgdGhpcnR5LXR3b"
		"yBieXRlcywgb3I\"},"
		"{\"kty\":\"oct\",\"kid\":\"b\",\"k\":\"YW5vdGhlciBvZiB0aGlydHktdHdvIGJ5dGVzLCBi"
		"dXQ\"},"
		"{\"kty\":\"oct\",\"use\":\"enc\",\"k\":\"YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcy"
		"wgb3I\"},"
		"{\"kty\":\"oct\",\"alg\":\"HS512\",\"k\":\"YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRl"
		"cywgb3I\"},"
		"{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AA\"},{\"kty\":7},7]}";
	struct jwt_keys *keys = keys_of(ALL, jwks, NULL);
	const char *claims = "{\"iss\":\"joe\",\"exp\":9}";

	cr_assert_eq(jwt_keys_count(keys), 2, "%u", jwt_keys_count(keys));
	cr_assert_eq(check(made("{\"alg\":\"HS256\",\"kid\":\"a\"}", claims, secret, 32), keys,
		&joe,
			   1), JWT_GOOD);
	cr_assert_eq(check(made("{\"alg\":\"HS256\",\"kid\":\"b\"}", claims, secret, 32), keys,
		&joe,
			   1), JWT_SIGNATURE);
	cr_assert_eq(check(made("{\"alg\":\"HS256\",\"kid\":\"c\"}", claims, secret, 32), keys,
		&joe,
			   1), JWT_UNKNOWN_KEY);
	cr_assert_eq(check(made("{\"alg\":\"HS256\",\"kid\":1}", claims, secret, 32), keys,
		&joe, 1),
		     JWT_MALFORMED);
	cr_assert_eq(check(made("{\"alg\":\"HS256\"}", claims, secret, 32), keys, &joe, 1),
		JWT_GOOD);
	jwt_keys_free(&keys);
}

Test(jwt, what_must_not_be_in_a_token_makes_it_none)
{
	struct jwt_keys *keys = keys_of(JWT_HS256, NULL, secret);
	const char *claims = "{\"iss\":\"joe\",\"exp\":9}";
	char *huge = malloc(3 * JWT_MAX);

	cr_assert_eq(check(made("{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}", claims,
		secret,
				32), keys, &joe, 1), JWT_MALFORMED);
	cr_assert_eq(check(made("{\"alg\":\"none\",\"alg\":\"HS256\"}", claims, secret, 32), keys,
			   &joe, 1), JWT_MALFORMED, "a name given twice");
	cr_assert_eq(check(hs("{\"iss\":\"joe\",\"iss\":\"ann\",\"exp\":9}"), keys, &joe, 1),
		     JWT_MALFORMED);
	cr_assert_eq(check(hs("[1]"), keys, &joe, 1), JWT_MALFORMED);
	/* a key that comes with the token is not looked at */
	cr_assert_eq(check(made("{\"alg\":\"HS256\",\"jwk\":{\"kty\":\"oct\",\"k\":\"AAAA\"}}",
		claims,
				"\0\0\0", 3), keys, &joe, 1), JWT_SIGNATURE);
	memset(huge, 'A', 3 * JWT_MAX);
	huge[3] = huge[6] = '.';
	huge[3 * JWT_MAX - 1] = '\0';
	cr_assert_eq(check(huge, keys, &joe, 1), JWT_MALFORMED);
	snprintf(huge, 3 * JWT_MAX, "{\"iss\":\"joe\",\"exp\":9,\"x\":%0*d}", 4000, 1);
	memset(strchr(huge, 'x') + 3, '[', 2000);
	cr_assert_eq(check(hs(huge), keys, &joe, 1), JWT_MALFORMED, "deep");
	static const char *const others[] = {
		"", ".", "..", "...", "a", "a.b", "a.b.c.d", "eyJ.eyJ.", ".eyJ9.AA",
		"eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UifQ.A", /* one digit is no byte */
		"eyJhbGciOiJIUzI1NiJ9=.eyJpc3MiOiJqb2UifQ.AA",
	};

	for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
		cr_assert_eq(check(others[i], keys, &joe, 1), JWT_MALFORMED, "%s", others[i]);
	free(huge);
	jwt_keys_free(&keys);
}

Test(jwt, one_signature_has_one_text)
{
	struct jwt_keys *keys = keys_of(JWT_HS256, RFC_HS256_KEY, NULL);
	char token[] = RFC_HS256;

	/* The last digit holds two bits that stand for nothing: only zeros there are good. */
	token[sizeof token - 2]++;
	cr_assert_eq(check(token, keys, &joe, 1), JWT_MALFORMED);
	jwt_keys_free(&keys);
}

Test(jwt, weak_keys_and_damaged_sets_are_refused_with_a_reason)
{
	static const char *const sets[] = {
		"", "{", "[]", "{\"keys\":{}}", "{\"keys\":[]}", "{\"keys\":[],\"keys\":[]}",
		"{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2hvcnQ\"}]}",
		"{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}",
		"{\"keys\":[{\"kty\":\"RSA\",\"n\":\"" RFC_RSA_N "\",\"e\":\"AQ\"}]}",
		"{\"keys\":[{\"kty\":\"RSA\",\"n\":\"" RFC_RSA_N "\"}]}",
		/* no point of the curve */
		"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMz"
		"V76e8Tus9uPHvRVEU\","
		"\"y\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\"}]}",
		"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"AA\",\"y\":\"AA\"}]}",
	};
	struct jwt_keys *keys = NULL;
	char why[JWT_WHY_MAX];

	for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
		why[0] = '\0';
		cr_assert_eq(jwt_keys_new(&keys, ALL, slice_str(sets[i]), slice_str(NULL), why),
			     -EINVAL, "%s", sets[i]);
		cr_assert(why[0] && !keys, "%s", sets[i]);
	}
	cr_assert_eq(jwt_keys_new(&keys, ALL, slice_str(NULL), slice_str("short"), why), -EINVAL);
	cr_assert_eq(jwt_keys_new(&keys, ALL, slice_str(NULL), slice_str(NULL), why), -EINVAL);
}

Test(jwt, claims_say_what_they_say)
{
	struct jwt *jwt;

	cr_assert_eq(jwt_open(&jwt,
		slice_str(hs("{\"iss\":\"joe\",\"exp\":9,\"team\":\"a\",\"groups\":"
						 "[\"x\",\"y\",3],\"n\":7}"))), 0);
	cr_assert(slice_eq_str(jwt_issuer(jwt), "joe"));
	cr_assert_eq(jwt_expires_s(jwt), 9);
	cr_assert(jwt_says(jwt, "team", "a") && !jwt_says(jwt, "team", "A"));
	cr_assert(!jwt_says(jwt, "team", "") && !jwt_says(jwt, "tea", "a"));
	cr_assert(jwt_says(jwt, "groups", "y") && !jwt_says(jwt, "groups", "z"));
	cr_assert(!jwt_says(jwt, "groups", "3") && !jwt_says(jwt, "n", "7"));
	jwt_free(&jwt);
	cr_assert(jwt_looks_like_one(slice_str(RFC_HS256)));
	cr_assert(!jwt_looks_like_one(slice_str("sk-a.b.c")));
	cr_assert(!jwt_looks_like_one(slice_str("eyJ.x")));
}

/* Whatever is done to a token: nothing crashes, and only the token itself is believed. */
Test(jwt, mutated_tokens_are_never_believed)
{
	struct jwt_keys *keys = keys_of(ALL, RFC_ES256_KEY, secret);
	char good[512], token[512];
	uint64_t seed = 11;

	snprintf(good, sizeof good, "%s", hs("{\"iss\":\"joe\",\"exp\":9,\"sub\":\"a\"}"));
	for (unsigned i = 0; i < 20000; i++) {
		size_t n = strlen(good);

		memcpy(token, good, n + 1);
		for (unsigned k = 0; k <= random_next(&seed) % 3; k++) {
			size_t at = random_next(&seed) % n;

			if (random_next(&seed) % 4 == 0) {
				memmove(token + at, token + at + 1, n - at);
				n--;
			} else {
				token[at] = (char)(33 + random_next(&seed) % 94);
			}
		}
		if (strcmp(token, good) != 0)
			cr_assert_neq(check(token, keys, &joe, 1), JWT_GOOD, "%s", token);
	}
	jwt_keys_free(&keys);
}
