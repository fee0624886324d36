/* tests/emulator/generation.c -- see generation.h. */
#include "tests/emulator/generation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define Y true
#define N false

/* Columns: tier_bytes, tier_block_size, events_early, replay_topic, rank_header, tokenize,
 * nested_errors, reset_says, event_sources. */
static const struct generation rows[] = {
	{ENGINE_VLLM,   900,  KV_G0,      KV_HASH_SIGNED, Y, Y, Y, N, N, Y, N, N, N},
	{ENGINE_VLLM,   901,  KV_G1,      KV_HASH_SIGNED, Y, Y, Y, N, N, Y, N, N, N},
	{ENGINE_VLLM,   1001, KV_G1,      KV_HASH_SIGNED, Y, Y, Y, N, N, Y, Y, N, N},
	{ENGINE_VLLM,   1002, KV_G2,      KV_HASH_INT,    Y, Y, Y, N, N, Y, Y, N, N},
	{ENGINE_VLLM,   1101, KV_G2,      KV_HASH_INT,    Y, Y, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   1300, KV_G2,      KV_HASH_INT,    N, Y, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   1400, KV_G3,      KV_HASH_INT,    N, Y, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   1700, KV_G4A,     KV_HASH_INT,    N, Y, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   2000, KV_G4B,     KV_HASH_INT,    N, N, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   2200, KV_G4C,     KV_HASH_INT,    N, N, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   2400, KV_G5,      KV_HASH_INT,    N, N, N, N, Y, Y, Y, N, N},
	{ENGINE_VLLM,   2500, KV_G5,      KV_HASH_INT,    N, N, N, Y, Y, Y, Y, Y, N},
	{ENGINE_VLLM,   2600, KV_G6,      KV_HASH_INT,    N, N, N, Y, Y, Y, Y, Y, N},
	{ENGINE_VLLM,   3100, KV_G6,      KV_HASH_INT,    N, N, N, Y, Y, Y, Y, Y, Y},
	{ENGINE_SGLANG, 400,  KV_SGLANG1, KV_HASH_HIGH,   N, N, N, N, N, Y, N, N, N},
	{ENGINE_SGLANG, 509,  KV_SGLANG2, KV_HASH_HIGH,   N, N, N, N, N, Y, N, N, N},
	{ENGINE_TRTLLM, 1100, KV_TRTLLM,  KV_HASH_INT,    N, N, N, Y, N, N, N, N, N},
};

#undef Y
#undef N

int
generation_find(const char *engine, const char *version, struct generation *ret,
		unsigned *ret_version, char why[static 256])
{
	static const char *const names[] = {"vllm", "sglang", "trtllm"};
	unsigned major, minor, patch = 0, wanted, kind = 0;
	const struct generation *found = NULL;
	int used = 0;

	while (kind < 3 && strcmp(engine, names[kind]) != 0)
		kind++;
	if (kind == 3) {
		snprintf(why, 256, "--engine: '%.80s' is not vllm, sglang or trtllm", engine);
		return -EINVAL;
	}
	if ((sscanf(version, "%2u.%2u.%2u%n", &major, &minor, &patch, &used) != 3 ||
	     version[used] != '\0') &&
	    (sscanf(version, "%2u.%2u%n", &major, &minor, &used) != 2 || version[used] != '\0')) {
		snprintf(why, 256, "--version: '%.80s' is not like 0.31.0", version);
		return -EINVAL;
	}
	wanted = 1000 * major + 100 * minor + patch;
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].engine == kind && rows[i].from <= wanted)
			found = &rows[i];
	if (found == NULL || (kind == ENGINE_VLLM && (major > 0 || minor > 31))) {
		snprintf(why, 256, "--version: no emulation of %s %.80s; there are vllm 0.9 to "
			 "0.31, sglang from 0.4, trtllm from 1.1", engine, version);
		return -EINVAL;
	}
	*ret = *found;
	*ret_version = wanted;
	return 0;
}
