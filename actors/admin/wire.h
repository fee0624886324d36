/* actors/admin/wire.h -- introspection payloads: JSON text or msgpack, both become one json_t.
 *
 * Meaning    A payload that begins with '{' or a blank is JSON; one whose first byte says map is
 *            msgpack. No byte can be both.  Anything else is refused.
 * Hostile    msgpack passes frame_sane before it is read and is walked by a cursor that allocates
 *            nothing for counts it merely claims; texts must be UTF-8; keys are texts, each once.
 *            64 KiB and FRAME_DEPTH_MAX levels at most.
 * Ownership  the caller's (json_decref; free).   Threads  any.   Never on the request path.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

#define WIRE_REQUEST_MAX 65536u         /* bytes */

enum wire_form { WIRE_JSON = 1, WIRE_MSGPACK };

enum wire_form wire_form_of(const void *payload, size_t len);   /* JSON when it is neither */
int wire_decode(const void *payload, size_t len, json_t **ret, const char **why);
	/* An object.  0; -EMSGSIZE, -EBADMSG with *why; -ENOMEM.  *why is static. */
int wire_encode(const json_t *value, enum wire_form form, void **ret, size_t *ret_len);
	/* malloc'd bytes.  0, -ENOMEM. */
