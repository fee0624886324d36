/* tests/emulator/kv_encode.h -- a step's cache events as the msgpack payload engines publish.
 *
 * Shapes     enum kv_shape of generation.h: arrays with more and more fields, or maps in the order
 *            and with the values of a v0.26 capture.  Hashes are integers or whole digests as bin.
 * Events     One BlockStored per run of blocks a request had stored in the step (SGLang: per page),
 *            one BlockRemoved per block (offload tier and SGLang: per run of blocks),
 *            AllBlocksCleared; in the order they happened.  An offload tier's blocks come without
 *            tokens, as placeholders, unless they are self-describing.
 * Errors     None but out of memory, which ends the program.
 * Threads    Any; no state.
 * Source     vLLM distributed/kv_events.py; samples in tests/data/kv-events.
 */
#pragma once
#include <stdbool.h>

#include <msgpack.h>

#include "tests/emulator/engine.h"
#include "tests/emulator/generation.h"

struct kv_group_names {
	const char *kind;          /* kv_cache_spec_kind */
	unsigned window_tokens;    /* of a sliding window; 0: none */
};

struct kv_encode_config {
	enum kv_shape shape;
	enum kv_hash_form hashes;
	enum blockhash_algo algo;
	bool tier_bytes, tier_block_size; /* of struct generation */
	bool self_describing;
	unsigned block_tokens;     /* of the first group */
	unsigned rank;
	const char *const *lora;   /* names of adapters 1 and on; NULL: there are none */
	struct kv_group_names group[1 + ENGINE_GROUPS_MAX];
	const uint8_t *publisher_id; /* 16 bytes, as a fourth element; NULL: none */
};

void kv_encode(const struct kv_encode_config *, double ts_s, const struct engine_events *,
	       msgpack_sbuffer *out);
	/* Appends one payload.  ts_s: seconds since 1970. */
void kv_encode_hash(const struct kv_encode_config *, const struct blockhash *, char out[static 68]);
	/* The name of a block as text: 0x and 16 digits of the integer's bits (of bytes, the last
	 * 8), as whoever reads the event may keep it. */
