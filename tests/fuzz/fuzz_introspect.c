/* tests/fuzz/fuzz_introspect.c -- any bytes at admin's introspection socket.
 *
 * There is always an answer, of the request's own form, that reads back.
 */
#include <stdlib.h>

#include "actors/admin/introspect.h"
#include "actors/admin/wire.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pm_view view;
	void *answer = NULL;
	size_t len = 0;
	json_t *o = NULL;
	const char *why;

	pm_view_init(&view);
	if (introspect_answer(&view, data, size, &answer, &len) < 0)
		abort();
	if (wire_form_of(answer, len) != wire_form_of(data, size))
		abort();
	if (wire_form_of(answer, len) == WIRE_MSGPACK && !frame_sane(answer, len))
		abort();
	if (wire_decode(answer, len, &o, &why) < 0 || !json_is_boolean(json_object_get(o, "ok")))
		abort();
	json_decref(o);
	free(answer);
	pm_view_close(&view);
	return 0;
}
