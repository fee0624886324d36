/* tests/unit/tls_world.h -- certificates made in memory: an authority and what it signed. */
#pragma once
#include <criterion/criterion.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/slice.h"

struct pair {
	X509 *x;
	EVP_PKEY *key;
	char chain[4096], pem[4096];    /* certificate; key */
};

static inline void
pair_text(struct pair *p)
{
	BIO *bio = BIO_new(BIO_s_mem());
	int n;

	PEM_write_bio_X509(bio, p->x);
	n = BIO_read(bio, p->chain, sizeof p->chain - 1);
	cr_assert_gt(n, 0);
	p->chain[n] = '\0';
	PEM_write_bio_PrivateKey(bio, p->key, NULL, NULL, 0, NULL, NULL);
	n = BIO_read(bio, p->pem, sizeof p->pem - 1);
	cr_assert_gt(n, 0);
	p->pem[n] = '\0';
	BIO_free(bio);
}

/* sans as "DNS:a,IP:127.0.0.1"; by NULL: an authority. */
static inline struct pair
pair_make(const char *name, const char *sans, const struct pair *by, int days)
{
	struct pair p = {.x = X509_new(), .key = EVP_EC_gen("P-256")};
	X509_NAME *subject = X509_get_subject_name(p.x);
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	X509_set_version(p.x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(p.x), rand() | 1);
	X509_gmtime_adj(X509_getm_notBefore(p.x), -86400L * 400);
	X509_gmtime_adj(X509_getm_notAfter(p.x), 86400L * days);
	X509_set_pubkey(p.x, p.key);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
				   0);
	X509_set_issuer_name(p.x, X509_get_subject_name(by ? by->x : p.x));
	X509V3_set_ctx(&ctx, by ? by->x : p.x, p.x, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints,
				  by ? "CA:FALSE" : "critical,CA:TRUE");
	X509_add_ext(p.x, ext, -1);
	X509_EXTENSION_free(ext);
	if (sans) {
		ext = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, sans);
		cr_assert(ext, "%s", sans);
		X509_add_ext(p.x, ext, -1);
		X509_EXTENSION_free(ext);
	}
	cr_assert_gt(X509_sign(p.x, by ? by->key : p.key, EVP_sha256()), 0);
	pair_text(&p);
	return p;
}

static inline void
pair_free(struct pair *p)
{
	X509_free(p->x);
	EVP_PKEY_free(p->key);
}

static inline struct slice
text(const char *s)
{
	return (struct slice){s, strlen(s)};
}
