/* tests/emulator/kv_encode.h -- a step's cache events as the msgpack payload engines publish.
 *
 * Shapes     map    vLLM 0.24 and later: [ts, [{"type": "BlockStored", ...}, ...], rank]; fields in
 *                   the order and with the values of a v0.26 capture (one full-attention group 0)
 *            array  vLLM 0.10.2 to 0.13: [ts, [["BlockStored", hashes, parent, token_ids,
 *            block_size,
 *                   lora_id, medium], ...], rank]
 *            Hashes are integers (the last 8 bytes of the digest) or whole digests as bin.
 * Events     One BlockStored per run of blocks a request had stored in the step, one BlockRemoved
 *            per block, AllBlocksCleared; in the order they happened.
 * Errors     None but out of memory, which ends the program.
 * Threads    Any; no state.
 * Source     vLLM distributed/kv_events.py; samples in tests/data/kv-events.
 */
#pragma once
#include <stdbool.h>

#include <msgpack.h>

#include "tests/emulator/engine.h"

struct kv_encode_config {
	bool as_map;
	bool int_hashes;
	enum blockhash_algo algo;
	unsigned block_tokens;
	unsigned rank;
};

void kv_encode(const struct kv_encode_config *, double ts_s, const struct engine_events *,
	       msgpack_sbuffer *out);
	/* Appends one payload.  ts_s: seconds since 1970. */
