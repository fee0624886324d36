/* tests/emulator/ids.h -- a prompt of token ids, read where it lies in a request body.
 *
 * Why        A JSON tree of a long list of ids is tens of thousands of small objects; this reads
 *            them straight, and leaves a small body for the parser.
 * Errors     NULL: the body has no such prompt (or is wrong): parse it as it is.
 * Ownership  Results are from malloc and the caller's.
 * Threads    Any; no state.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint32_t *ids_take(const char *body, size_t len_bytes, unsigned *ret_tokens, char **ret_rest,
		   size_t *ret_rest_len_bytes);
	/* The ids (0 to 2^31-1, at least one) of a top-level "prompt": [...]; rest is the body with
	 * null in its place. */
