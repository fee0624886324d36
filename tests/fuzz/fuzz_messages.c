/* tests/fuzz/fuzz_messages.c -- frames between our processes: whatever unpacks packs again, and the
 * second reading says the same as the first. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char first[MESSAGE_MAX], second[MESSAGE_MAX];
	struct msg m, again;
	ssize_t n, k;

	if (msg_unpack(data, size, &m) != 0)
		return 0;
	n = msg_pack(m.id, &m.u, first, sizeof first);
	if (n < 0)
		abort();                /* what was read fits: it came from a frame */
	if (msg_unpack(first, (size_t)n, &again) != 0 || again.id != m.id)
		abort();
	k = msg_pack(again.id, &again.u, second, sizeof second);
	if (k != n || memcmp(first, second, (size_t)n) != 0)
		abort();
	return 0;
}
