/* actors/ingress/path_name.h -- a name that stands in a path, as SDKs write it.
 *
 * Meaning    What is behind /v1/models/: bytes as they are, or percent-encoded (RFC 3986, 2.1).  A
 *            name may have slashes: OpenAI's SDK for Python leaves them, that for Node writes %2F.
 * Threads    pure.
 */
#pragma once
#include "proto/slice.h"

bool path_name(struct slice text, char *buf, size_t cap, size_t *ret_len);
	/* Decodes into buf.  False: a '%' without two hexadecimal digits, a NUL, or longer than
	 * cap. */
