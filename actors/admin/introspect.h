/* actors/admin/introspect.h -- one request in, one answer out: the verbs of proto/README.md.
 *
 * Meaning    What verbs.h says, with "tag" handed back.  The answer has the request's form, JSON or
 *            msgpack.  Verb `events` may be answered later, by whoever hears them.
 * Hostile    any bytes give an answer; nothing asserts, nothing is kept between requests.
 * Threads    the one that owns the view.   Cost: the verb's.
 */
#pragma once
#include <stddef.h>

#include "actors/admin/wire.h"
#include "actors/common/view.h"

struct events;

int introspect_answer(const struct pm_view *view, const void *request, size_t len, void **ret,
		      size_t *ret_len);
	/* Bytes are the caller's (free).  0, -ENOMEM.  No events. */
int introspect_ask(const struct pm_view *view, struct events *events, const void *request,
		   size_t len, void **ret, size_t *ret_len, json_t **ret_waits);
	/* As above; 1: it waits for events, *ret_waits is what was asked (the caller's). */
int introspect_encode(const json_t *request, json_t *said, enum wire_form form, void **ret,
		      size_t *ret_len);
	/* An answer's bytes, with the request's tag.  Takes said.  0, -ENOMEM. */
