/* actors/common/secrets.h -- one generation's keys and certificates, from files to processes.
 *
 * Meaning    The supervisor reads the files that a configuration names, checks them, and hands what
 *            they hold to those who need it: SECRETS (all of it) to ingress, TRUST (who may sign
 *            workers' certificates) to policy, PROBES (that, and API keys) to metrics.  Nobody
 *            else gets any, tools neither, and no text of it is in a CONFIG segment, a message or
 *            the log.  So only the supervisor's user needs to be able to read the files.
 *
 *      segment header | records { u32 kind, u32 index, u32 bytes, u32 0, bytes, padding to 8 } ...
 *      geometry[0] bytes of records    [1] 0    [2] generation
 *
 * Writers    the supervisor, before the segment is published; never changed afterwards.
 * Readers    attach; every record is checked against the length before it is believed.
 * Memory     kept out of core dumps (MADV_DONTDUMP), wiped where it was copied; and because
 *            libraries leave copies of their own, whoever gets keys makes itself undumpable (not
 *            with AddressSanitizer, which looks for leaks by ptrace).
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "proto/slice.h"
#include "shm/segment.h"

#define SECRETS_LAYOUT     1u
#define SECRETS_FILE_MAX   (1u << 20)   /* bytes of one file */
#define SECRETS_MAX        (16u << 20)  /* bytes in all */
#define SECRETS_TICKET_KEY 80u          /* bytes: seals TLS sessions that clients keep */
#define SECRETS_API_KEY    4096u        /* bytes of an API key */

enum secret {
	SECRET_CHAIN = 1,               /* PEM; index: of the gateway's certificates */
	SECRET_KEY,                     /* PEM; the same index */
	SECRET_TICKET,                  /* SECRETS_TICKET_KEY bytes, fresh in each generation */
	SECRET_CA,                      /* PEM; index: of the manifest's sets */
	SECRET_API_KEY,                 /* text; the same index */
	SECRET_JWKS,                    /* JSON; index: of the gateway's issuers */
	SECRET_JWT,                     /* bytes; the same index */
};

/* ---- readers ---- */

struct secrets {
	struct segment seg;
};

void secrets_guard(void);
	/* No core dump and no process of our user id sees our memory any more; both sides call. */

int secrets_attach(struct secrets *ret, int fd, enum segment_kind kind, uint32_t *ret_generation);
	/* Takes fd.  0; as segment_attach. */
struct slice secrets_get(const struct secrets *s, enum secret what, uint32_t index);
	/* Borrowed from s; empty: there is none, or nothing is attached. */
void secrets_detach(struct secrets *s);

/* ---- the supervisor (secrets_read.c, with OpenSSL) ---- */

struct secret_files;                    /* what was read, in private memory */

int secrets_read(const struct manifest *manifest, struct secret_files **ret,
		 struct yaml_errors *errs, struct yaml_errors *warnings);
	/* Reads and checks all files.  0; *ret NULL: the configuration names none; -EINVAL with
	 * complaints in errs, which name the file and the field; -ENOMEM.  warnings: what works but
	 * should not be so; may be NULL. */
int secrets_create(struct segment *ret, const struct secret_files *files, enum segment_kind kind,
		   uint32_t generation);
	/* Published.  0, -ENOMEM, -errno. */
void secrets_files_free(struct secret_files **files);   /* wipes them */
