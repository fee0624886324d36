/* proto/multipart.h -- find the fields that decide where a form goes, and touch nothing else.
 *
 * Meaning    audio comes as multipart/form-data; routing needs its `model`.  One pass notes where
 *            the value of that part lies; the bytes are forwarded as they came, so that a new name
 *            is an edit of this span alone.
 * Source     RFC 2046 5.1 (delimiters), RFC 7578 (form-data), and where parsers in the field differ
 *            the narrower reading: what two readers could read in two ways is refused, because
 *            a policy that checks one and an engine that runs the other is a hole.
 * Rules      The body begins with its first delimiter (no preamble) and ends with the last one and
 *            at most one CRLF (no epilogue).  A delimiter is followed by CRLF at once, the last by
 *            "--"; CRLF "--" boundary and anything else behind it is refused.  Lines end in CRLF;
 *            no folding, no control characters.  Each part has one Content-Disposition:
 *            form-data with one `name`, without backslash, percent sign or other encoding in it,
 *            and no name* (RFC 7578 4.2).  model, stream, user and prompt are given at most once;
 *            model is plain text: no file name, no transfer encoding, no part inside.
 * Bounds     MULTIPART_PARTS_MAX parts, MULTIPART_HEAD_MAX bytes of head each, model as in JSON.
 * Errors     -400 with *why, a static sentence, and where in the body.
 * Ownership  the view points into the body by offsets; only the model's name is copied.
 * Threads    pure functions: any.  Nothing blocks or allocates.
 * Cost       request path of policy: one pass that looks for CR, about 1 ms for 10 MB of sound.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/openai.h"
#include "proto/slice.h"

enum {
	MULTIPART_BOUNDARY_MAX = 70,            /* bytes; RFC 2046 */
	MULTIPART_PARTS_MAX = 128,
	MULTIPART_HEAD_MAX = 8192,
};

struct multipart_view {
	size_t             error_off_bytes;     /* on failure: where in the body */
	unsigned           n_parts;
	bool               has_model;
	uint32_t           model_off_bytes;     /* of its value */
	uint32_t           model_len_bytes;
	char               model[OPENAI_MODEL_MAX_BYTES + 1]; /* NUL-terminated */
	bool               stream;              /* "true", as engines read a form's boolean */
};

int multipart_boundary(struct slice content_type, struct slice *ret, const char **why);
	/* The boundary of a multipart/form-data Content-Type, a slice of it.  0; -415 another media
	 * type; -400 with *why. */
int multipart_parse(const char *body, size_t len, struct slice boundary,
		    struct multipart_view *ret, const char **why);
	/* 0, or -400 with *why.  Bodies up to 4 GiB. */
