/* tests/emulator/generation.h -- what an engine of a version does on the wire: one table.
 *
 * Meaning    A row holds from its version on, until the next row of the same engine.  Flags of the
 *            same meaning override single columns.
 * Versions   X.Y.Z is the number 1000 X + 100 Y + Z.
 * Source     engine contracts (1.4 events, 1.6 hashes, 1.7 when, 1.10 replay, 4.3 errors, 4.4
 *            headers); samples in tests/data/kv-events.
 * Threads    Any; no state.
 */
#pragma once
#include <stdbool.h>

enum engine_kind_name { ENGINE_VLLM, ENGINE_SGLANG, ENGINE_TRTLLM };

/* Which fields events have, and whether they are arrays or maps. */
enum kv_shape {
	KV_G0,      /* [tag, hashes, parent, tokens, block_size, lora_id]; batch without a rank */
	KV_G1,      /* batch with a rank, as all from here on */
	KV_G2,      /* + medium */
	KV_G3,      /* + lora_name */
	KV_G4A,     /* + extra_keys */
	KV_G4B,     /* + group_idx */
	KV_G4C,     /* + kv_cache_spec_kind, kv_cache_spec_sliding_window */
	KV_G5,      /* maps; absent: what has its default */
	KV_G6,      /* + locality of tiers (and what we never have: ownership, session_id) */
	KV_SGLANG1, /* as G1, one event for each page */
	KV_SGLANG2, /* as G2, one event for each page */
	KV_TRTLLM,  /* maps up to lora_name; nothing of salt or group */
};

enum kv_hash_form {
	KV_HASH_SIGNED, /* last 8 bytes, as a signed integer */
	KV_HASH_INT,    /* last 8 bytes, unsigned */
	KV_HASH_BYTES,  /* the whole digest */
	KV_HASH_HIGH,   /* first 8 bytes, signed */
};

struct generation {
	enum engine_kind_name engine;
	unsigned from;              /* version */
	enum kv_shape shape;
	enum kv_hash_form hashes;
	bool tier_bytes;            /* offload events carry digests whatever the others do */
	bool tier_block_size;       /* offload placeholders have a block size; else 0 */
	bool events_early;          /* a step's events leave when it begins */
	bool replay_topic;          /* replies to a replay have a topic frame */
	bool rank_header;           /* X-data-parallel-rank is heard */
	bool tokenize;              /* POST /tokenize exists */
	bool nested_errors;         /* {"error": {...}}; else {"object": "error", ...} */
	bool reset_says;            /* /reset_prefix_cache answers with JSON */
	bool event_sources;         /* GET /kv_event_sources exists */
};

int generation_find(const char *engine, const char *version, struct generation *ret,
		    unsigned *ret_version, char why[static 256]);
	/* The row that holds for vllm | sglang | trtllm and X.Y[.Z].  -EINVAL, and why. */
