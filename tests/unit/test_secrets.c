/* tests/unit/test_secrets.c -- keys and certificates from files to those who get them. */
#include "actors/common/secrets.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/tls_world.h"

static char folder[64];

static const char *
file_write(const char *name, const char *what)
{
	static char path[8][128];
	static unsigned n;
	char *p = path[n++ % 8];
	FILE *f;

	snprintf(p, sizeof path[0], "%s/%s", folder, name);
	f = fopen(p, "w");
	cr_assert(f);
	fputs(what, f);
	fclose(f);
	chmod(p, 0600);
	return p;
}

static struct manifest *
world(const char *certificate, const char *key, const char *ca, const char *api_key)
{
	static struct manifest_set set;
	static struct manifest_certificate c;
	static struct manifest m;

	snprintf(c.certificate, sizeof c.certificate, "%s", certificate);
	snprintf(c.key, sizeof c.key, "%s", key);
	set = (struct manifest_set){.name = "s", .https = true};
	snprintf(set.tls_ca, sizeof set.tls_ca, "%s", ca);
	snprintf(set.api_key_file, sizeof set.api_key_file, "%s", api_key);
	m = (struct manifest){.sets = &set, .n_sets = 1};
	m.gateway.certificates = &c;
	m.gateway.n_certificates = 1;
	return &m;
}

static void
begin(void)
{
	strcpy(folder, "/tmp/pm-secrets-XXXXXX");
	cr_assert(mkdtemp(folder));
}

static void
end(void)
{
	static const char *const names[] = {"c", "k", "ca", "api", "other", "bad", "two",
					    "jwks", "jwt"};
	char path[128];

	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

static void
refused(const struct manifest *m, const char *file, const char *says)
{
	struct yaml_errors errs = {0};
	struct secret_files *files = NULL;

	cr_assert_eq(secrets_read(m, &files, &errs, NULL), -EINVAL, "%s", says);
	cr_assert_null(files);
	cr_assert_gt(errs.n, 0);
	cr_expect_str_eq(errs.list[0].file, file);
	cr_expect(strstr(errs.list[0].text, says), "%s: %s", says, errs.list[0].text);
	yaml_errors_free(&errs);
}

Test(secrets, each_process_finds_what_it_needs_and_nothing_else, .init = begin, .fini = end)
{
	struct pair ca = pair_make("ca", NULL, NULL, 30), front = pair_make("f", "DNS:f", &ca, 30);
	struct yaml_errors errs = {0}, warnings = {0};
	struct secret_files *files = NULL;
	static const enum segment_kind kinds[] = {SEGMENT_SECRETS, SEGMENT_TRUST, SEGMENT_PROBES};

	struct manifest *m = world(file_write("c", front.chain), file_write("k", front.pem),
				   file_write("ca", ca.chain), file_write("api", "sk-1\n"));
	cr_assert_eq(secrets_read(m, &files, &errs, &warnings), 0);
	cr_assert_eq(warnings.n, 0);
	for (unsigned i = 0; i < 3; i++) {
		bool ingress = kinds[i] == SEGMENT_SECRETS, metrics = kinds[i] == SEGMENT_PROBES;
		struct segment seg;
		struct secrets s;
		uint32_t generation = 0;

		cr_assert_eq(secrets_create(&seg, files, kinds[i], 7), 0);
		cr_assert_eq(secrets_attach(&s, segment_readonly_fd(&seg), kinds[i], &generation),
			     0);
		cr_expect_eq(generation, 7);
		cr_expect_eq(secrets_get(&s, SECRET_CHAIN, 0).len > 0, ingress);
		cr_expect_eq(secrets_get(&s, SECRET_KEY, 0).len > 0, ingress);
		cr_expect_eq(secrets_get(&s, SECRET_TICKET, 0).len == SECRETS_TICKET_KEY, ingress);
		cr_expect(slice_eq_str(secrets_get(&s, SECRET_CA, 0), ca.chain));
		cr_expect_eq(slice_eq_str(secrets_get(&s, SECRET_API_KEY, 0), "sk-1"),
			     ingress || metrics);
		cr_expect_eq(secrets_get(&s, SECRET_KEY, 1).len, 0);
		secrets_detach(&s);
		segment_detach(&seg);
	}
	secrets_files_free(&files);
	yaml_errors_free(&errs);
	pair_free(&ca);
	pair_free(&front);
}

Test(secrets, a_file_that_cannot_be_used_is_named, .init = begin, .fini = end)
{
	struct pair ca = pair_make("ca", NULL, NULL, 30), a = pair_make("a", "DNS:a", &ca, 30),
		    b = pair_make("b", "DNS:b", &ca, 30);

	const char *c = file_write("c", a.chain), *k = file_write("k", a.pem),
		   *other = file_write("other", b.pem), *auth = file_write("ca", ca.chain),
		   *bad = file_write("bad", "nothing\n"), *two = file_write("two", "a b\n");

	refused(world("/nonexistent/c", k, "", ""), "/nonexistent/c", "cannot be read");
	refused(world(folder, k, "", ""), folder, "is no regular file");
	refused(world(bad, k, "", ""), bad, "holds no certificate");
	refused(world(c, bad, "", ""), bad, "holds no private key");
	refused(world(c, other, "", ""), other, "does not belong to the certificate");
	refused(world(c, k, bad, ""), bad, "holds no certificate");
	refused(world(c, k, auth, two), two, "one API key");
	pair_free(&ca);
	pair_free(&a);
	pair_free(&b);
}

Test(secrets, an_expired_certificate_is_a_warning, .init = begin, .fini = end)
{
	struct pair ca = pair_make("ca", NULL, NULL, 30), old = pair_make("a", "DNS:a", &ca, -1);
	struct yaml_errors errs = {0}, warnings = {0};
	struct secret_files *files = NULL;

	struct manifest *m = world(file_write("c", old.chain), file_write("k", old.pem), "", "");
	cr_assert_eq(secrets_read(m, &files, &errs, &warnings), 0);
	cr_assert_eq(warnings.n, 1);
	cr_expect(strstr(warnings.list[0].text, "has expired"));
	secrets_files_free(&files);
	yaml_errors_free(&warnings);
	pair_free(&ca);
	pair_free(&old);
}

Test(secrets, damaged_records_are_not_followed, .init = begin, .fini = end)
{
	struct pair ca = pair_make("ca", NULL, NULL, 30), a = pair_make("a", "DNS:a", &ca, 30);
	struct yaml_errors errs = {0};
	struct secret_files *files = NULL;
	struct segment seg;
	struct secrets s;

	struct manifest *m = world(file_write("c", a.chain), file_write("k", a.pem), "", "");
	cr_assert_eq(secrets_read(m, &files, &errs, NULL), 0);
	cr_assert_eq(secrets_create(&seg, files, SEGMENT_SECRETS, 1), 0);
	cr_assert_eq(secrets_attach(&s, segment_readonly_fd(&seg), SEGMENT_SECRETS, NULL), 0);
	((uint32_t *)segment_body(&seg))[2] = UINT32_MAX;       /* the first record's length */
	cr_expect_eq(secrets_get(&s, SECRET_CHAIN, 0).len, 0);
	cr_expect_eq(secrets_get(&s, SECRET_KEY, 0).len, 0);
	secrets_detach(&s);
	segment_detach(&seg);
	secrets_files_free(&files);
	pair_free(&ca);
	pair_free(&a);
}

Test(secrets, issuers_of_tokens_are_checked_when_they_are_read_and_only_ingress_gets_them)
{
	static const char set[] =
		"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
		"\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
		"\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}";
	struct manifest_issuer issuer = {.issuer = "joe",
					 .algorithms = MANIFEST_JWT_ES256 | MANIFEST_JWT_HS256};
	struct manifest m = {.gateway.issuers = &issuer, .gateway.n_issuers = 1};
	struct secret_files *files = NULL;
	struct yaml_errors errs = {0};
	struct secrets got;
	struct segment seg;

	begin();
	strcpy(issuer.jwks, file_write("jwks", set));
	strcpy(issuer.secret_file, file_write("jwt", "a secret of thirty-two bytes, or\n"));
	cr_assert_eq(secrets_read(&m, &files, &errs, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		static const enum segment_kind kinds[] = {SEGMENT_SECRETS, SEGMENT_TRUST,
							  SEGMENT_PROBES};

		cr_assert_eq(secrets_create(&seg, files, kinds[i], 1), 0);
		cr_assert_eq(secrets_attach(&got, segment_readonly_fd(&seg), kinds[i], NULL), 0);
		cr_assert_eq(secrets_get(&got, SECRET_JWKS, 0).len, i == 0 ? strlen(set) : 0);
		cr_assert_eq(secrets_get(&got, SECRET_JWT, 0).len, i == 0 ? 32 : 0);
		secrets_detach(&got);
		segment_detach(&seg);
	}
	secrets_files_free(&files);

	strcpy(issuer.secret_file, file_write("jwt", "too short"));
	cr_assert_eq(secrets_read(&m, &files, &errs, NULL), -EINVAL);
	strcpy(issuer.secret_file, file_write("jwt", "a secret of thirty-two bytes, or"));
	strcpy(issuer.jwks, file_write("jwks", "{}"));
	cr_assert_eq(secrets_read(&m, &files, &errs, NULL), -EINVAL);
	strcpy(issuer.jwks, "/nonexistent/jwks");
	cr_assert_eq(secrets_read(&m, &files, &errs, NULL), -EINVAL);
	cr_assert_eq(errs.n, 3);
	for (size_t i = 0; i < errs.n; i++)
		cr_assert(strstr(errs.list[i].text, "jwt.issuers[0]") &&
			  !strstr(errs.list[i].text, "too short"), "%s", errs.list[i].text);
	yaml_errors_free(&errs);
	end();
}
