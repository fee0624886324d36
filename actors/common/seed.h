/* actors/common/seed.h -- the secret that the chains of the prefix index are hashed with.
 *
 * Meaning    Who knows it can make prompts whose hashes meet those of others (blockhash.h): a
 *            random one for each deployment, that only pointsman and its tools see.  Replicas that
 *            are to speak of the same hashes share one: they are given it.
 * Kept       <run>/hash-seed: 16 hexadecimal digits and a line end, mode 0600, the supervisor's
 *            own.  It survives restarts, so that what tools wrote down stays true.
 * Trust      a file that is there and is not as it should be (short, not hexadecimal, somebody
 *            else's, open to others) is an error, never a reason to make another one: replicas and
 *            recorded hashes would disagree without a word.
 * Errors     -errno, -EPERM (whose, mode), -EINVAL (content), with a static sentence in *why.  The
 *            seed itself is in no message.
 * Threads    any.   Never on the request path.
 */
#pragma once
#include <stdint.h>

#define PM_SEED_FILE "hash-seed"

int pm_seed_keep(int run_fd, uint64_t *ret, const char **why);
	/* The one kept in that folder; made, if there is none: whole or not at all.  1 made, 0
	 * read. */
int pm_seed_given(const char *given, uint64_t *ret, const char **why);
	/* 16 hexadecimal digits, or the name of a file that has nothing else (links are followed; a
	 * line end may be missing).  0. */
