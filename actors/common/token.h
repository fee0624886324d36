/* actors/common/token.h -- by what an ingress knows that a policy process is who it says.
 *
 * Meaning    Any process that may connect to an ingress's socket could call itself by the name of
 *            the policy process that is asked, and would then be asked.  So a name carries a token
 *            that only the named one has from its birth:
 *
 *                    pol.<generation>.<incarnation>.<16 hex digits>
 *
 *            The supervisor makes it from a key of this run and the two numbers; each ingress has
 *            the key and makes it again.  Nothing is said beforehand, so a policy process may
 *            come before the ingress has heard of it.
 * Source     SipHash-2-4 (Aumasson, Bernstein 2012): a keyed function of short input; one who
 *            sees tokens of others learns neither the key nor a further token.
 * Threads    pure functions.   Cost: 30 ns; at each message only a comparison of text.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_KEY 16u
#define POLICY_NAME_MAX 48u             /* bytes, with the NUL */

uint64_t token_of(const uint8_t key[TOKEN_KEY], uint32_t generation, uint32_t incarnation);
uint64_t token_siphash(const uint8_t key[TOKEN_KEY], const void *text, size_t len);

int policy_name(char buf[POLICY_NAME_MAX], uint32_t generation, uint32_t incarnation,
		uint64_t token);
	/* Its length. */
bool policy_name_read(const void *name, size_t len, uint32_t *ret_generation,
		      uint32_t *ret_incarnation, uint64_t *ret_token);
	/* True: one that policy_name makes, letter by letter. */
