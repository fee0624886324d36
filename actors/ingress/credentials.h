/* actors/ingress/credentials.h -- what one generation has to show and to ask for, at both its ends.
 *
 * Meaning    Certificates for clients, who they are, trust and API keys for workers: one
 *            manifest's, made from the SECRETS segment that came with it.
 * Ownership  credentials_free; connections keep what they need of it (tls_keep).
 * Threads    made beside the loop, used by it.
 */
#pragma once
#include "actors/common/secrets.h"
#include "actors/common/tenants/tenants.h"
#include "actors/ingress/tls.h"

#define CREDENTIALS_NO_SET UINT32_MAX

struct credentials {
	struct tls *tls;                /* owned */
	struct tenants *tenants;        /* owned */
	struct secrets secrets;         /* owned */
	struct {
		char name[MANIFEST_NAME_MAX + 1];
		struct slice api_key;   /* into secrets; empty: none */
	} *set;                         /* owned; by the manifest's index */
	uint32_t n_sets;
};

int credentials_load(struct credentials **ret, const struct manifest *manifest, int fd,
		     uint32_t generation, char why[TLS_WHY_MAX]);
	/* Takes fd, a SECRETS segment of that generation or, where it names no files, -1.  0;
	 * -EINVAL, -EBADMSG, -ESTALE and why; -ENOMEM. */
void credentials_free(struct credentials **c);
uint32_t credentials_set(const struct credentials *c, const char *name);
	/* CREDENTIALS_NO_SET: none of that name. */
