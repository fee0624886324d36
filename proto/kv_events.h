/* proto/kv_events.h -- what an engine says about its KV cache, decoded liberally, event by event.
 *
 * Question   Which blocks did this engine store, remove or clear, in order?
 * Accepts    every encoding in the field: vLLM 0.9 to main (tagged arrays; tagged maps since 0.24;
 *            outer array or map; array and map events mixed), SGLang (arrays; bigram tokens) and
 *            TensorRT-LLM (maps; tokens that are strings).  Hashes may be u64, negative or bytes:
 *            all become the u64 of their last 8 bytes, big-endian.  Unknown tags, keys,
 *            extension types and trailing elements are skipped; one bad event never drops its
 *            neighbours, nor a bad hash those removed beside it.
 * Shape      three frames a message: topic, sequence number (>= 8 bytes, big-endian), payload.
 * Ownership  a kv_batch owns its arrays and is reused from payload to payload (no allocation
 *            once warm).  Slices borrow the payload: valid while it is.
 * Memory     grows with bytes seen, never with counts claimed.
 * Errors     0 or negative errno with a sentence in *why; per-event failures are counted in the
 *            batch with the first one's reason.
 * Threads    a batch belongs to one thread; nothing is shared.
 * Cost       about 15 ns a token; not on the request path.
 * Sources    vllm/distributed/kv_events.py, sglang kv_events.py, tensorrt_llm kv_cache_events.py.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define KV_PAYLOAD_MAX_BYTES (64u << 20)

enum kv_event_type {
	KV_STORED = 1,
	KV_REMOVED,
	KV_CLEARED,
};

/* Where a block lies; compared without case.  Absent or nil is GPU. */
enum kv_medium {
	KV_MEDIUM_GPU,
	KV_MEDIUM_CPU,	   /* CPU, CPU_PINNED */
	KV_MEDIUM_STORAGE, /* STORAGE, SHARED_STORAGE, DISK, EXTERNAL */
	KV_MEDIUM_OTHER,   /* see medium_text */
};

/* Which kind of KV cache group.  Only UNSAID, FULL and MLA tell how long a prefix is held. */
enum kv_spec {
	KV_SPEC_UNSAID,
	KV_SPEC_FULL,
	KV_SPEC_MLA,
	KV_SPEC_SLIDING, /* sliding_window, sliding_window_mla, chunked_local_attention */
	KV_SPEC_MAMBA,
	KV_SPEC_OTHER,
};

struct kv_slice {
	const uint8_t *p; /* NULL: absent or nil */
	size_t n;	  /* bytes */
};

struct kv_event {
	enum kv_event_type type;
	enum kv_medium medium;
	enum kv_spec spec;
	bool has_parent;
	bool has_lora_id;
	bool has_group;
	bool tokens_usable; /* all plain ids, and n_tokens == n_hashes * block_tokens > 0 */
	bool adapter_unread; /* one is said in a form that is no name and no number */
	bool keys_unread;    /* extra keys are said, but not one for each hash */
	uint64_t parent;    /* engine hash of the block before hashes[0]; sequence start: none */
	uint64_t *hashes;   /* engine hashes of consecutive full blocks */
	size_t n_hashes;    /* may be 0 */
	uint32_t *token_ids; /* n_tokens of them; NULL if any is not a plain id */
	size_t n_tokens;     /* elements as sent */
	uint32_t block_tokens; /* 0: not said (offload placeholders) */
	uint32_t group;
	int64_t lora_id;		/* process-local; prefer lora_name */
	struct kv_slice lora_name;	/* UTF-8, not checked */
	struct kv_slice medium_text;	/* as sent */
	struct kv_slice token_span;	/* token_ids as sent, msgpack */
	struct kv_slice extra_span;	/* extra_keys (TensorRT-LLM: mm_keys) as sent, msgpack */
	struct kv_slice *extra_keys; /* one msgpack value per hash, n 0: nil; NULL: none at all */
};

struct kv_batch {
	double ts_s;	  /* wall clock of the engine, seconds; NaN: unreadable */
	bool has_rank;	  /* nil or absent: the rank of the connection */
	uint32_t rank;	  /* data-parallel */
	struct kv_slice publisher_id; /* of the proposed snapshot protocol */
	struct kv_event *events;
	size_t n_events;
	size_t n_skipped;	/* unknown tags */
	size_t n_failed;	/* known tags that could not be read whole, events without a tag */
	size_t n_lost;		/* of the failed, those that may have said that blocks are gone */
	const char *failed_why; /* of the first failed one; NULL */
	/* private: growing arrays the events point into */
	size_t cap_events;
	uint64_t *hashes;
	size_t n_hashes, cap_hashes;
	uint32_t *tokens;
	size_t n_tokens, cap_tokens;
	struct kv_slice *extras;
	size_t n_extras, cap_extras;
};

int kv_batch_decode(const void *payload, size_t n, struct kv_batch *ret_batch, const char **why);
	/* Decode one payload into a batch begun as {0}.  0: events[] holds all that could be read,
	 * in
	 * order.  -EBADMSG: no sane value or no batch; -EMSGSIZE; -ENOMEM.  On failure the batch is
	 * empty and still owned. */
void kv_batch_free(struct kv_batch *);

/* What makes a block differ beyond its tokens, taken apart. */
struct kv_extra {
	struct kv_slice entry;	/* all of it as sent, one msgpack value */
	struct kv_slice lora;	/* text */
	struct kv_slice mm;	/* multimodal items as sent: consecutive msgpack values */
	struct kv_slice salt;	/* text; only a sequence's first block has one */
	struct kv_slice embeds; /* bytes: hash of prompt embeddings */
	bool unknown; /* something else is in it: only all of the entry tells the block apart */
};

void kv_extra_split(const struct kv_event *, size_t block, struct kv_extra *ret_extra);
	/* Take hashes[block]'s extra key apart; all absent where there is none.  Order inside: LoRA
	 * name, multimodal items (identifier and offset; vLLM 0.17 and 0.18: identifiers alone),
	 * salt, embeddings.  Of bare texts in a sequence's first block the last is the salt. */

int kv_seq_decode(const void *frame, size_t n, uint64_t *ret_seq);
	/* Frame 2 of a message.  -EBADMSG below 8 bytes; more than 8 are ignored. */

enum kv_replay {
	KV_REPLAY_BAD,	/* not a replay reply */
	KV_REPLAY_DATA, /* one batch */
	KV_REPLAY_END,	/* no more */
};

enum kv_replay kv_replay_parse(const struct kv_slice *frames, size_t n, uint64_t *ret_seq,
			       struct kv_slice *ret_payload);
	/* A reply as a DEALER sees it, old form (empty, seq, payload) or new (empty, topic, seq,
	 * payload); the end is an all-ones seq with an empty payload. */

void kv_event_print_json(FILE *, const struct kv_batch *, const struct kv_event *);
	/* One line: {"type","rank","hashes","parent","token_ids","block_size","lora","medium",
	 * "group","extra_keys"}; hashes as "0x%016x", bytes as hex text, what is absent as null. */
const char *kv_event_type_name(enum kv_event_type);
	/* The engines' tags: BlockStored, BlockRemoved, AllBlocksCleared. */
