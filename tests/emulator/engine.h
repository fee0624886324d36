/* tests/emulator/engine.h -- one step of a vLLM engine: state in, duration and events out.
 *
 * Meaning    Scheduler, KV block pool and step-time model of an engine with chunked prefill and
 *            prefix caching.  Pure: no I/O, no clock, no randomness but its own seeded jitter, so a
 *            server in real time and a simulator in virtual time run the same code.
 * Use        engine_submit when a request reaches the scheduler; then, for ever: engine_step_begin
 *            says what the step does and how long it takes, the caller lets that time pass, and
 *            engine_step_end says which sequences got a token.  Submits and aborts may come
 *            between.
 * Step time  t_o + max(t_w, a (P + D)) + q A + e C + d D, times slow_factor and jitter, where P =
 *            prefill tokens, D = decoding sequences, A = sum over prefill chunks of
 *            n (start + n / 2), C = sum of the context lengths of the decoding sequences.
 * Blocks     A block is hashed, and may be hit, from the moment it is scheduled.  One hash may be
 *            held by several blocks.  Freed blocks keep their contents at the tail of an LRU list
 *            (the last block of a request first) until they are popped from its head for re-use.
 * Offload    Each block stored is copied to a second tier of its own LRU order, in the same step;
 *            what is found there and not on the GPU is loaded at no cost, and counts as a hit.
 * Groups     Further cache groups (a hybrid model's) say what they store and evict, as a shadow of
 *            the first; hits are decided by the first alone.
 * Units      Durations in virtual seconds (_s), lengths in tokens, blocks of block_tokens tokens.
 * Errors     Negative errno where stated; out of memory ends the program.
 * Ownership  A sequence belongs to the engine until engine_release; the caller holds no copy
 *            beyond.
 * Threads    One; two engines share nothing.
 * Cost       A step is O(sequences); a lookup is one hash probe per block.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "tests/emulator/blockhash.h"

#define ENGINE_GROUPS_MAX 2

enum engine_tier { ENGINE_GPU, ENGINE_CPU };
enum engine_kind { ENGINE_FULL_ATTENTION, ENGINE_SLIDING_WINDOW, ENGINE_MAMBA };

/* A cache group beside the first.  A Mamba group caches the last block of each run only. */
struct engine_group {
	enum engine_kind kind;
	unsigned block_tokens, blocks;
};

struct engine_config {
	unsigned block_tokens;
	unsigned num_blocks;         /* all usable: no null block is set aside */
	unsigned max_batched_tokens; /* per step */
	unsigned max_seqs;           /* running at once */
	bool reserve_full_isl;       /* admit only if the whole prompt fits in free blocks */
	bool cache_output;           /* blocks with generated tokens are hashed too */
	bool by_priority;            /* waiting ordered by priority (low first), then arrival */
	unsigned offload_blocks;     /* of the second tier; 0: none */
	struct engine_group group[ENGINE_GROUPS_MAX]; /* numbers 1 and 2 */
	unsigned groups;
	enum blockhash_algo hash;
	bool bare_names;             /* events name blocks by their tokens alone (SGLang) */
	const char *hash_seed;       /* borrowed for engine_new and engine_reset only */
	/* step-time model */
	double t_o_s, t_w_s;         /* launch; weight read */
	double a_s, q_s, e_s, d_s;   /* per token, token x context, context token, decode */
	double slow_factor;          /* 1: as modelled */
	double jitter_0to1;          /* each step times 1 +- this, uniform */
	uint64_t jitter_seed;
};

enum engine_finish {
	ENGINE_RUNNING,
	ENGINE_FINISH_LENGTH, /* max_output reached and that was the limit asked for */
	ENGINE_FINISH_STOP,   /* the model ended by itself */
	ENGINE_FINISH_ABORT,
};

/* One request.  All fields are the engine's to write; the caller reads. */
struct engine_seq {
	void *priv;            /* the caller's */
	unsigned prompt_tokens;
	unsigned max_output;
	unsigned generated;
	unsigned computed;     /* tokens whose KV exists */
	unsigned hit_tokens;   /* found cached when first admitted */
	unsigned preemptions;
	int priority;
	bool admitted;         /* has been scheduled at least once */
	double first_step_s;   /* when that step began, as told to engine_step_begin */
	enum engine_finish finish;
	enum engine_finish natural_finish; /* what reaching max_output means */
	/* private from here */
	uint32_t *token;
	unsigned lora;
	char *lora_name, *salt;
	struct blockhash *hash;    /* of full blocks, hashes_known of them */
	struct blockhash *name;    /* what events call them; often the same array */
	unsigned hashes_known, hashes_max;
	struct {
		struct blockhash last; /* of the blocks so far */
		unsigned blocks;
	} group[ENGINE_GROUPS_MAX];
	unsigned *block;
	unsigned blocks, hashed_blocks;
	unsigned scheduled;        /* tokens in the step under way */
	bool running, waiting;
	uint64_t order;            /* of arrival */
	struct engine_seq *prev, *next;
};

struct engine_request {
	const uint32_t *token;     /* copied */
	unsigned prompt_tokens;    /* >= 1 */
	unsigned max_output;       /* >= 1 */
	enum engine_finish natural_finish;
	int priority;
	unsigned lora;             /* the adapter's number from 1 on; 0: none */
	const char *lora_name;     /* NULL: none; copied */
	const char *salt;          /* NULL, or cache_salt; copied */
	void *priv;
};

struct engine_step {
	double duration_s;
	unsigned prefill_tokens;   /* P */
	unsigned decode_seqs;      /* D */
	unsigned admitted, preempted;
};

enum engine_event_kind { ENGINE_STORED, ENGINE_REMOVED, ENGINE_CLEARED };

/* What a step did to the cache, in order.  Stored: hashes consecutive in one chain; fewer than the
 * tokens have blocks where a group keeps only the last. */
struct engine_event {
	enum engine_event_kind kind;
	enum engine_tier tier;
	unsigned group;            /* 0: the first */
	unsigned block_tokens;
	unsigned lora;
	bool first;                /* stored: begins a chain; salt_at is of its first hash */
	unsigned hash_at, hashes;  /* into engine_events.hash */
	bool has_parent;
	struct blockhash parent;
	unsigned token_at, tokens; /* into engine_events.token */
	int salt_at;               /* into engine_events.text; -1: none */
};

/* What is cached, for who wants to compare. */
struct engine_block {
	enum engine_tier tier;
	unsigned group;
	struct blockhash name;     /* as events say it */
	bool has_parent;
	struct blockhash parent;
	unsigned start;            /* tokens of its chain before it */
	const uint32_t *token;     /* good until the next engine call that changes the cache */
	unsigned tokens;
	unsigned lora;
	const char *salt;          /* of its chain; NULL: none */
	unsigned copies;
};

struct engine_events {
	const struct engine_event *event;
	unsigned events;
	const struct blockhash *hash;
	const uint32_t *token;
	const char *text;
};

struct engine_stats {
	unsigned running, waiting;
	unsigned free_blocks, num_blocks;
	unsigned cached_blocks;           /* blocks that hold a hash, duplicates counted */
	unsigned offloaded_blocks;
	uint64_t pending_prefill_tokens;  /* prompt tokens of running and waiting not yet computed,
	                                   * hits of the waiting not foreseen */
	uint64_t query_tokens, hit_tokens;/* since birth or reset; re-admissions not counted */
	uint64_t preemptions, steps;
};

struct engine;

struct engine *engine_new(const struct engine_config *);
	/* A new engine with an empty cache. */
void engine_free(struct engine **);
	/* Frees all sequences still held, too. */
int engine_submit(struct engine *, const struct engine_request *, struct engine_seq **ret_seq);
	/* Put a request at the end of the waiting list.  -EINVAL empty prompt or output; -E2BIG it
	 * could never fit the block pool. */
bool engine_step_begin(struct engine *, double now_s, struct engine_step *ret_step);
	/* Schedule a step.  False: nothing to do.  Must be followed by engine_step_end.  now_s is
	 * only noted as first_step_s of the sequences it admits. */
unsigned engine_step_end(struct engine *, struct engine_seq *const **ret_seqs);
	/* The step is over: the sequences that got one token each (valid until the next begin),
	 * with seq->finish set on those that ended.  Ended ones no longer hold blocks; release
	 * them. */
struct engine_events engine_take_events(struct engine *);
	/* Events since the last call, valid until the next engine call that changes the cache. */
void engine_abort(struct engine *, struct engine_seq *);
	/* Drop a live sequence; its full blocks stay cached.  In a step under way its share of the
	 * time is still spent.  The caller releases it. */
void engine_release(struct engine_seq **);
	/* Free a sequence that finished or was aborted. */
bool engine_clear_cache(struct engine *, bool offload_too);
	/* Forget all hashes and record one ENGINE_CLEARED.  False, and nothing done, while any
	 * block is in use. */
void engine_set_timing(struct engine *, const struct engine_config *);
	/* Take the step-time model (and nothing else) from a configuration; from the next step
	 * on. */
struct engine_stats engine_stats(const struct engine *);
struct engine_at {
	unsigned pool, block;
};

bool engine_next_cached(const struct engine *, struct engine_at *, struct engine_block *ret);
	/* Each distinct hash held, of every tier and group; begin at {0}.  False: no more. */
unsigned engine_cached(const struct engine *);
	/* How many distinct hashes the first group holds on the GPU. */
unsigned engine_probe(const struct engine *, const uint32_t *token, unsigned tokens,
		      const char *lora_name, const char *salt);
	/* How many leading tokens of this prompt a request would find cached now. */
struct engine_seq *engine_any(const struct engine *);
	/* Some live sequence, or NULL: for an owner that wants to abort them all. */
bool engine_busy(const struct engine *);
	/* Is anything running or waiting? */
