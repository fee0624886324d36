/* fuzz_frame.c -- a frame that is called sane is one whole value to msgpack-c too, and the cursor
 * walks exactly its bytes. */
#include <msgpack.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_cursor cur = {data, size ? data + size : data}, skip = cur;
	struct frame_value v;
	msgpack_unpacked un;
	size_t off = 0;
	uint64_t owed = 1;

	if (frame_sane(data, size) && !frame_sane_with_ext(data, size))
		abort();
	if (!frame_sane_with_ext(data, size)) {
		while (frame_next(&cur, &v)) /* must end, and stay within */
			;
		if (cur.p > cur.end)
			abort();
		return 0;
	}
	msgpack_unpacked_init(&un);
	if (msgpack_unpack_next(&un, (const char *)data, size, &off) != MSGPACK_UNPACK_SUCCESS ||
	    off != size)
		abort();
	msgpack_unpacked_destroy(&un);
	for (; owed > 0; owed--) {
		if (!frame_next(&cur, &v))
			abort();
		owed += v.type == FRAME_ARRAY ? v.len : v.type == FRAME_MAP ? 2ull * v.len : 0;
	}
	if (cur.p != cur.end || !frame_skip(&skip) || skip.p != skip.end)
		abort();
	return 0;
}
