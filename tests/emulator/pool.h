/* tests/emulator/pool.h -- blocks of one tier or cache group of an engine, and what they cache.
 *
 * Meaning    A block has references, or is in the free list (head: next to be re-used) and keeps
 *            its contents until it is popped.  One hash may be held by several blocks: the first
 *            stored is the first found.  What comes and goes is written into an event log.
 * Names      hash: the identity a request looks for.  name: what events call the block; they differ
 *            only where an engine's events leave adapter and salt out (SGLang).
 * Ownership  The pool owns its blocks' tokens and salts; the log is borrowed.
 * Errors     Out of memory ends the program.
 * Threads    One.
 */
#pragma once
#include "tests/emulator/engine.h"

#define POOL_NONE UINT32_MAX

/* Events not yet taken; the arrays grow. */
struct event_log {
	struct engine_event *event;
	unsigned events, events_max;
	struct blockhash *hash;
	unsigned hashes, hashes_max;
	uint32_t *token;
	unsigned tokens, tokens_max;
	char *text;
	unsigned texts, texts_max;
	bool taken;
};

struct engine_event *event_add(struct event_log *, enum engine_event_kind);
	/* Good until the next one. */
void event_hash(struct event_log *, struct engine_event *, const struct blockhash *);
void event_tokens(struct event_log *, struct engine_event *, const uint32_t *, unsigned n);
void event_salt(struct event_log *, struct engine_event *, const char *);
void event_log_free(struct event_log *);

struct pool_config {
	unsigned blocks, block_tokens;
	enum engine_tier tier;
	unsigned group;
};

/* What a block caches. */
struct pool_entry {
	struct blockhash hash, name;
	bool has_parent;
	struct blockhash parent;  /* its name */
	unsigned start;           /* tokens before it */
	const uint32_t *token;    /* block_tokens of them; copied */
	unsigned lora;
	const char *salt;         /* of its chain, NULL: none; copied */
};

struct pool;

struct pool *pool_new(const struct pool_config *, struct event_log *);
void pool_free(struct pool **);
unsigned pool_find(const struct pool *, const struct blockhash *hash);
	/* A block that caches it, or POOL_NONE. */
unsigned pool_refs(const struct pool *, unsigned block);
void pool_touch(struct pool *, unsigned block);
	/* One more reference. */
unsigned pool_take(struct pool *);
	/* The head of the free list (which is not empty) with one reference; what it cached is
	 * evicted, with an event of its own. */
void pool_drop(struct pool *, unsigned block);
	/* One reference less; the last puts it at the end of the free list. */
void pool_renew(struct pool *, unsigned block);
	/* A block without references was of use: to the end of the free list. */
void pool_store(struct pool *, unsigned block, const struct pool_entry *);
	/* It caches this from now on.  No event: the caller makes one for the whole run. */
void pool_forget(struct pool *);
	/* All blocks cache nothing.  No event. */
unsigned pool_free_blocks(const struct pool *);
unsigned pool_cached(const struct pool *);
	/* Blocks that cache something, duplicates counted. */
bool pool_next(const struct pool *, unsigned *at, struct engine_block *ret);
	/* Each distinct hash once: *at begins at 0.  False: no more. */
