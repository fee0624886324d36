/* Whose request is it?  What it shows says so, and only where it may. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/tenants/tenants.h"
#include "tests/unit/jwt_made.h"

#define CASES PM_SOURCE_DIR "/tests/data/cases/mt/"

/* SHA-256 of "key-of-team-a" and "key-of-team-b" */
static const char documents[] =
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	"spec:\n  listen: [\"127.0.0.1:1\"]\n  models: [{name: m, policy: p}]\n"
	"  client: {trustedPeers: [10.0.0.0/8]}\n"
	"  authentication: %s\n%s"
	"  jwt: {issuers: [{issuer: joe, algorithms: [HS256], audience: us, leeway: 5s,\n"
	"    secretFrom: {env: NOT_READ_HERE}}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: w}\n"
	"spec: {engine: vllm, model: m, members: [{name: w1, url: \"http://127.0.0.1:2\"}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: l}\n"
	"spec: {workerSets: [w]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
	"spec: {candidates: [{pool: l}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceTenant\nmetadata: {name: team-a}\n"
	"spec:\n  keys: [\"sha256:%s\"]\n  header: {name: X-Tenant-Id, value: team-a}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceTenant\nmetadata: {name: team-b}\n"
	"spec:\n  keys: [\"sha256:%s\"]\n  header: {name: X-Tenant-Id, value: team-b}\n"
	"  jwt: {claim: team, value: b}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceTenant\nmetadata: {name: others}\n"
	"spec: {jwt: {claim: team, value: others, issuer: joe}}\n";

enum { TEAM_A, TEAM_B, OTHERS };

static const char secret[] = "a secret of thirty-two bytes, or";

static struct slice
text_of(void *arg, uint32_t issuer, bool want_secret)
{
	(void)arg;
	cr_assert_eq(issuer, 0);
	return want_secret ? slice_str(secret) : (struct slice){NULL, 0};
}

static void
hex_of(const char *key, char ret[65])
{
	uint8_t hash[MANIFEST_KEY_BYTES];

	tenants_hash(slice_str(key), hash);
	for (unsigned i = 0; i < sizeof hash; i++)
		sprintf(ret + 2 * i, "%02x", hash[i]);
}

static struct tenants *
tenants_of(const char *authentication, const char *more)
{
	char text[sizeof documents + 512], a[65], b[65], why[TENANTS_WHY_MAX];
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	struct tenants *t = NULL;

	hex_of("key-of-team-a", a);
	hex_of("key-of-team-b", b);
	snprintf(text, sizeof text, documents, authentication, more, a, b);
	if (manifest_load_text("t", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert(m);
	cr_assert_eq(tenants_new(&t, m, text_of, NULL, why), 0, "%s", why);
	manifest_free(&m);              /* nothing of it is borrowed */
	cr_assert(tenants_any(t));
	return t;
}

static struct tenants_who
ask(struct tenants *t, const char *fields, bool trusted, uint64_t now_s)
{
	static char text[6 * JWT_MAX];
	struct http1_request rq;
	struct tenants_who who;
	const char *why;
	int n = snprintf(text, sizeof text, "GET /v1/models HTTP/1.1\r\nHost: h\r\n%s\r\n", fields);

	cr_assert(http1_parse_request(text, (size_t)n, NULL, &rq, &why) > 0, "%s", why);
	tenants_find(t, &rq.head, trusted, now_s, &who);
	cr_assert((who.result == TENANTS_FOUND) == (who.tenant != MANIFEST_NONE));
	return who;
}

static bool
is(struct tenants_who who, uint32_t tenant)
{
	return who.result == TENANTS_FOUND && who.tenant == tenant;
}

static const char *
token_field(const char *claims)
{
	static char field[5 * JWT_MAX];

	snprintf(field, sizeof field, "Authorization: Bearer %s\r\n",
		 made("{\"alg\":\"HS256\"}", claims, secret, strlen(secret)));
	return field;
}

Test(tenants, a_key_is_its_tenants_wherever_clients_put_it)
{
	struct tenants *t = tenants_of("required", "");

	cr_assert(is(ask(t, "Authorization: Bearer key-of-team-a\r\n", false, 1), TEAM_A));
	cr_assert(is(ask(t, "authorization: bearer   key-of-team-b\r\n", false, 1), TEAM_B));
	cr_assert(is(ask(t, "x-api-key: key-of-team-a\r\n", false, 1), TEAM_A));
	cr_assert(is(ask(t, "Api-Key: key-of-team-b\r\n", false, 1), TEAM_B));
	/* the first of them is what is looked at */
	cr_assert(is(ask(t, "x-api-key: key-of-team-a\r\nauthorization: Bearer key-of-team-b\r\n",
			 false, 1), TEAM_B));
	tenants_free(&t);
}

Test(tenants, what_is_nobodys_is_refused_as_configured)
{
	static const char *const wrong[] = {
		"Authorization: Bearer key-of-team-c\r\n", "Authorization: Bearer \r\n",
		"Authorization: Basic key-of-team-a\r\n", "Authorization: key-of-team-a\r\n",
		"x-api-key: Bearer key-of-team-a\r\n", "api-key:\r\n",
		"Authorization: Bearer key-of-team-a key-of-team-a\r\n",
	};
	struct tenants *required = tenants_of("required", ""),
		*optional = tenants_of("optional", "");
	struct tenants *open = tenants_of("off", "");
	struct tenants *named = tenants_of("optional", "  defaultTenant: others\n");
	struct tenants *lax = tenants_of("off", "  defaultTenant: others\n");

	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct tenants_who who = ask(required, wrong[i], false, 1);

		cr_assert_eq(who.result, TENANTS_WRONG, "%s", wrong[i]);
		cr_assert(who.why[0] && !strstr(who.why, "team"));
		cr_assert_eq(ask(optional, wrong[i], false, 1).result, TENANTS_WRONG);
		cr_assert_eq(ask(named, wrong[i], false, 1).result, TENANTS_WRONG);
		cr_assert_eq(ask(open, wrong[i], false, 1).result, TENANTS_NOBODY);
		cr_assert(is(ask(lax, wrong[i], false, 1), OTHERS));
	}
	cr_assert_eq(ask(required, "", false, 1).result, TENANTS_MISSING);
	cr_assert_eq(ask(optional, "", false, 1).result, TENANTS_NOBODY);
	cr_assert_eq(ask(open, "", false, 1).result, TENANTS_NOBODY);
	cr_assert(is(ask(named, "", false, 1), OTHERS));
	tenants_free(&required);
	tenants_free(&optional);
	tenants_free(&open);
	tenants_free(&named);
	tenants_free(&lax);
}

Test(tenants, a_header_is_believed_from_trusted_peers_only_and_only_one)
{
	struct tenants *t = tenants_of("required", "");

	cr_assert(is(ask(t, "X-Tenant-Id: team-b\r\n", true, 1), TEAM_B));
	cr_assert_eq(ask(t, "X-Tenant-Id: team-b\r\n", false, 1).result, TENANTS_MISSING);
	cr_assert(is(ask(t, "X-Tenant-Id: team-b\r\nx-api-key: key-of-team-a\r\n", true, 1),
		     TEAM_B));
	cr_assert(is(ask(t, "X-Tenant-Id: team-b\r\nx-api-key: key-of-team-a\r\n", false, 1),
		     TEAM_A));
	cr_assert_eq(ask(t, "X-Tenant-Id: team-c\r\n", true, 1).result, TENANTS_WRONG);
	cr_assert_eq(ask(t, "X-Tenant-Id: TEAM-B\r\n", true, 1).result, TENANTS_WRONG);
	cr_assert_eq(ask(t, "X-Tenant-Id: team-b\r\nX-TENANT-ID: team-a\r\n", true, 1).result,
		     TENANTS_TWICE);
	cr_assert_eq(ask(t, "X-Tenant-Id: team-b, team-a\r\n", true, 1).result, TENANTS_TWICE);
	cr_assert_eq(ask(t, "x-api-key: key-of-team-a\r\nx-api-key: key-of-team-b\r\n", false, 1)
			     .result, TENANTS_TWICE);
	cr_assert(tenants_is_identity(t, SLICE_LIT("x-tenant-ID")));
	cr_assert(!tenants_is_identity(t, SLICE_LIT("x-tenant")));
	tenants_free(&t);
}

static void
case_of(const char *name, bool trusted, struct tenants *t, struct tenants_who *ret)
{
	char path[256], text[4096];
	struct http1_request rq;
	const char *why;
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, CASES "%s", name);
	f = fopen(path, "r");
	cr_assert(f, "%s", path);
	n = fread(text, 1, sizeof text, f);
	fclose(f);
	cr_assert(http1_parse_request(text, n, NULL, &rq, &why) > 0, "%s: %s", name, why);
	tenants_find(t, &rq.head, trusted, 1, ret);
}

Test(tenants, who_forges_a_header_becomes_nobody_else)
{
	struct tenants *t = tenants_of("required", "");
	struct tenants_who who;

	case_of("mt07_spoof.http", false, t, &who);
	cr_assert(is(who, TEAM_A), "the key's, not the header's");
	case_of("mt07_double.http", false, t, &who);
	cr_assert_eq(who.result, TENANTS_MISSING);
	case_of("mt07_double.http", true, t, &who);
	cr_assert_eq(who.result, TENANTS_TWICE);
	tenants_free(&t);
}

Test(tenants, a_token_is_the_tenants_that_its_claim_names_until_it_expires)
{
	struct tenants *t = tenants_of("required", "");
	char field[2 * JWT_MAX];

	snprintf(field, sizeof field, "%s",
		 token_field("{\"iss\":\"joe\",\"aud\":\"us\",\"exp\":100,\"team\":[\"x\",\"b\"]"
		"}"));
	for (unsigned i = 0; i < 3; i++) {      /* made, then kept */
		struct tenants_who who = ask(t, field, false, 99);

		cr_assert(is(who, TEAM_B) && who.by == TENANTS_BY_TOKEN);
	}
	cr_assert(is(ask(t, field, false, 104), TEAM_B), "within the leeway");
	cr_assert_eq(ask(t, field, false, 105).result, TENANTS_WRONG, "kept no longer than that");
	cr_assert(is(ask(t, token_field("{\"iss\":\"joe\",\"aud\":\"us\",\"exp\":100,\"team\":"
					"\"others\"}"), false, 1), OTHERS));
	cr_assert_eq(ask(t,
		token_field("{\"iss\":\"joe\",\"aud\":\"us\",\"exp\":100,\"team\":\"c\"}"),
			 false, 1).result, TENANTS_WRONG, "a good token, nobody's");
	cr_assert_eq(ask(t,
		token_field("{\"iss\":\"ann\",\"aud\":\"us\",\"exp\":100,\"team\":\"b\"}"),
			 false, 1).result, TENANTS_WRONG);
	cr_assert_eq(ask(t,
		token_field("{\"iss\":\"joe\",\"aud\":\"em\",\"exp\":100,\"team\":\"b\"}"),
			 false, 1).result, TENANTS_WRONG);
	tenants_free(&t);
}

Test(tenants, however_many_tokens_come_each_is_its_own)
{
	struct tenants *t = tenants_of("required", "");
	char claims[128];

	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 3 * TENANTS_KEPT; i++) {
			snprintf(claims, sizeof claims,
				"{\"iss\":\"joe\",\"aud\":\"us\",\"exp\":100,"
				 "\"team\":\"%s\",\"jti\":\"%u\"}", i % 2 ? "b" : "others", i);
			cr_assert(is(ask(t, token_field(claims), false, 1),
				i % 2 ? TEAM_B : OTHERS));
		}
	tenants_free(&t);
}
