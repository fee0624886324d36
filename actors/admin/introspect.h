/* actors/admin/introspect.h -- one request in, one answer out: the verbs of proto/README.md.
 *
 * Meaning    {"v": 1, "verb": "stat", ...} -> {"v": 1, "ok": true, "verb": "stat", "result": ...}
 *            or {"v": 1, "ok": false, "error": {"code", "text"}}; "tag" is handed back.  The answer
 *            has the request's form, JSON or msgpack.  A verb only reads.
 * Hostile    any bytes give an answer; nothing asserts, nothing is kept between requests.
 * Threads    the one that owns the view.  Cost: explain reads every journal, the rest is small.
 */
#pragma once
#include <stddef.h>

#include "actors/common/view.h"

#define INTROSPECT_VERSION 1

int introspect_answer(const struct pm_view *view, const void *request, size_t len, void **ret,
		      size_t *ret_len);
	/* Bytes are the caller's (free).  0, -ENOMEM. */
