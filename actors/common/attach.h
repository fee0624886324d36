/* actors/common/attach.h -- what an actor takes from its birth, follows, and says when it cannot.
 *
 * Meaning    The worker table and the configuration come to nearly every process, in the same way:
 *            the segment that birth brought, checked; later a newer configuration in its place.
 * Errors     each says why it failed, in the log and, at birth, to the supervisor; the caller only
 *            passes the errno on.
 * Ownership  rows and manifests are the caller's (rows_detach, manifest_free).
 * Threads    the loop's.   Cost  at birth and at a reload only; a configuration takes milliseconds.
 */
#pragma once
#include "actors/common/actor.h"
#include "actors/common/config.h"
#include "actors/common/secrets.h"
#include "shm/rows.h"

int pm_open_failed(struct pm_actor *actor, const char *what, int r);
	/* Returns r. */
int pm_attach_rows(struct pm_actor *actor, struct rows *ret, bool writable);
int pm_attach_config(struct pm_actor *actor, struct manifest **ret);
	/* A complaint about the documents goes to the supervisor with its place. */
int pm_attach_trust(struct pm_actor *actor, enum segment_kind kind, struct secrets *ret);
	/* TRUST or PROBES.  0 also where none came. */
int pm_follow_config(int fd, struct manifest **manifest);
	/* Takes fd.  0: *manifest is the newer one, the older is freed, and log lines bear its
	 * generation.  On failure all stays as it was. */
