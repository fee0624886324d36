/* tests/unit/test_tls.c -- which certificate a client gets, and what is refused when it is made. */
#include "actors/ingress/tls.h"

#include <errno.h>

#include "tests/unit/tls_world.h"

#define CERTIFICATES 4

static struct tls *
world(void)
{
	static const char *const sans[CERTIFICATES] = {
		"DNS:first.test", "DNS:*.wild.test,DNS:both.test",
		"DNS:exact.wild.test,DNS:both.test", "IP:127.0.0.1,DNS:Upper.Test"};
	struct tls_certificate c[CERTIFICATES];
	struct pair p[CERTIFICATES];
	struct tls_source from = {.certificate = c, .n_certificates = CERTIFICATES};
	struct tls *t = NULL;
	char why[TLS_WHY_MAX] = "";

	for (unsigned i = 0; i < CERTIFICATES; i++) {
		p[i] = pair_make("x", sans[i], NULL, 30);
		c[i] = (struct tls_certificate){"f", text(p[i].chain), text(p[i].pem)};
	}
	cr_assert_eq(tls_new(&t, &from, why), 0, "%s", why);
	for (unsigned i = 0; i < CERTIFICATES; i++)
		pair_free(&p[i]);
	return t;
}

Test(tls, name_chooses_exactly_then_by_wildcard_else_the_first)
{
	struct tls *t = world();

	cr_expect_eq(tls_choose(t, "first.test"), 0);
	cr_expect_eq(tls_choose(t, "a.wild.test"), 1);
	cr_expect_eq(tls_choose(t, "exact.wild.test"), 2, "exact goes before an earlier wildcard");
	cr_expect_eq(tls_choose(t, "both.test"), 1, "the first that has it");
	cr_expect_eq(tls_choose(t, "unknown.test"), 0);
	cr_expect_eq(tls_choose(t, NULL), 0);
	cr_expect_eq(tls_choose(t, ""), 0);
	tls_drop(&t);
}

Test(tls, wildcard_stands_for_one_whole_label)
{
	struct tls *t = world();

	cr_expect_eq(tls_choose(t, "a.b.wild.test"), 0);
	cr_expect_eq(tls_choose(t, "wild.test"), 0);
	cr_expect_eq(tls_choose(t, ".wild.test"), 0);
	tls_drop(&t);
}

Test(tls, names_are_compared_without_case_and_without_a_final_dot)
{
	struct tls *t = world();

	cr_expect_eq(tls_choose(t, "uPPER.tEST"), 3);
	cr_expect_eq(tls_choose(t, "A.WILD.test."), 1);
	tls_drop(&t);
}

Test(tls, certificate_and_key_that_do_not_belong_together_are_refused)
{
	struct pair a = pair_make("a", "DNS:a", NULL, 30), b = pair_make("b", "DNS:b", NULL, 30);
	struct tls_certificate c = {"/etc/a.pem", text(a.chain), text(b.pem)};
	struct tls_source from = {.certificate = &c, .n_certificates = 1};
	char why[TLS_WHY_MAX] = "";
	struct tls *t = NULL;

	cr_assert_eq(tls_new(&t, &from, why), -EINVAL);
	cr_assert_null(t);
	cr_expect(strstr(why, "/etc/a.pem"), "%s", why);
	c.key = text("no key at all");
	cr_assert_eq(tls_new(&t, &from, why), -EINVAL);
	c.chain = text("");
	cr_assert_eq(tls_new(&t, &from, why), -EINVAL);
	pair_free(&a);
	pair_free(&b);
}

Test(tls, without_certificates_there_is_no_server_and_without_trust_no_client)
{
	struct tls_source from = {0};
	char why[TLS_WHY_MAX] = "";
	struct tls *t = NULL;

	cr_assert_eq(tls_new(&t, &from, why), 0);
	cr_expect_null(tls_for_client(t));
	cr_expect_null(tls_for_worker(t, 0, "w"));
	tls_drop(&t);
}
