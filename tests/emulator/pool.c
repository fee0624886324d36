/* tests/emulator/pool.c -- see pool.h. */
#include "tests/emulator/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NIL POOL_NONE

struct block {
	struct blockhash hash, name, parent;
	bool hashed, has_parent;
	unsigned start, lora;
	char *salt;
	unsigned refs;
	unsigned prev, next;   /* free list, when refs == 0 */
	unsigned chain;        /* next block in the hash bucket */
};

struct pool {
	struct pool_config cfg;
	struct event_log *log; /* borrowed */
	struct block *block;
	uint32_t *token;       /* block_tokens for each block */
	unsigned *bucket;
	unsigned bucket_mask;
	unsigned free_head, free_tail, free_n;
	unsigned cached_n;
};

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("engine: out of memory\n", stderr);
		abort();
	}
	return p;
}

/* ---- events ---- */

/* Room for n more of size bytes in a growing array. */
static void *
grow(void *p, unsigned have, unsigned more, unsigned *max, size_t size)
{
	unsigned want = *max > 0 ? *max : 64;

	if (have + more <= *max)
		return p;
	while (want < have + more)
		want *= 2;
	*max = want;
	return must(realloc(p, want * size));
}

struct engine_event *
event_add(struct event_log *log, enum engine_event_kind kind)
{
	struct engine_event *ev;

	if (log->taken) {
		log->events = log->hashes = log->tokens = log->texts = 0;
		log->taken = false;
	}
	log->event = grow(log->event, log->events, 1, &log->events_max, sizeof *log->event);
	ev = &log->event[log->events++];
	*ev = (struct engine_event){.kind = kind, .salt_at = -1};
	ev->hash_at = log->hashes;
	ev->token_at = log->tokens;
	return ev;
}

void
event_hash(struct event_log *log, struct engine_event *ev, const struct blockhash *hash)
{
	log->hash = grow(log->hash, log->hashes, 1, &log->hashes_max, sizeof *log->hash);
	log->hash[log->hashes++] = *hash;
	ev->hashes++;
}

void
event_tokens(struct event_log *log, struct engine_event *ev, const uint32_t *token, unsigned n)
{
	log->token = grow(log->token, log->tokens, n, &log->tokens_max, sizeof *log->token);
	memcpy(log->token + log->tokens, token, n * sizeof *token);
	log->tokens += n;
	ev->tokens += n;
}

void
event_salt(struct event_log *log, struct engine_event *ev, const char *salt)
{
	unsigned n = (unsigned)strlen(salt) + 1;

	log->text = grow(log->text, log->texts, n, &log->texts_max, 1);
	memcpy(log->text + log->texts, salt, n);
	ev->salt_at = (int)log->texts;
	log->texts += n;
}

void
event_log_free(struct event_log *log)
{
	free(log->event);
	free(log->hash);
	free(log->token);
	free(log->text);
	*log = (struct event_log){0};
}

/* ---- hashes ---- */

static unsigned
bucket_of(const struct pool *p, const struct blockhash *hash)
{
	uint64_t v;

	memcpy(&v, hash->bytes, sizeof v);
	return (unsigned)(v ^ v >> 32) & p->bucket_mask;
}

unsigned
pool_find(const struct pool *p, const struct blockhash *hash)
{
	unsigned b = p->bucket[bucket_of(p, hash)];

	while (b != NIL && memcmp(&p->block[b].hash, hash, sizeof *hash) != 0)
		b = p->block[b].chain;
	return b;
}

static void
unhash(struct pool *p, unsigned b)
{
	unsigned *at = &p->bucket[bucket_of(p, &p->block[b].hash)];

	while (*at != b)
		at = &p->block[*at].chain;
	*at = p->block[b].chain;
	p->block[b].hashed = false;
	free(p->block[b].salt);
	p->block[b].salt = NULL;
	p->cached_n--;
}

void
pool_store(struct pool *p, unsigned b, const struct pool_entry *entry)
{
	struct block *blk = &p->block[b];
	unsigned *at = &p->bucket[bucket_of(p, &entry->hash)];

	while (*at != NIL) /* behind older copies: the first stored is the first found */
		at = &p->block[*at].chain;
	*at = b;
	blk->chain = NIL;
	blk->hash = entry->hash;
	blk->name = entry->name;
	blk->has_parent = entry->has_parent;
	blk->parent = entry->parent;
	blk->start = entry->start;
	blk->lora = entry->lora;
	blk->salt = entry->salt != NULL ? must(strdup(entry->salt)) : NULL;
	memcpy(p->token + (size_t)b * p->cfg.block_tokens, entry->token,
	       p->cfg.block_tokens * sizeof *p->token);
	blk->hashed = true;
	p->cached_n++;
}

/* ---- the free list ---- */

static void
free_remove(struct pool *p, unsigned b)
{
	struct block *blk = &p->block[b];

	if (blk->prev != NIL)
		p->block[blk->prev].next = blk->next;
	else
		p->free_head = blk->next;
	if (blk->next != NIL)
		p->block[blk->next].prev = blk->prev;
	else
		p->free_tail = blk->prev;
	p->free_n--;
}

static void
free_append(struct pool *p, unsigned b)
{
	struct block *blk = &p->block[b];

	blk->next = NIL;
	blk->prev = p->free_tail;
	if (p->free_tail != NIL)
		p->block[p->free_tail].next = b;
	else
		p->free_head = b;
	p->free_tail = b;
	p->free_n++;
}

unsigned
pool_refs(const struct pool *p, unsigned b)
{
	return p->block[b].refs;
}

void
pool_touch(struct pool *p, unsigned b)
{
	if (p->block[b].refs++ == 0)
		free_remove(p, b);
}

unsigned
pool_take(struct pool *p)
{
	unsigned b = p->free_head;

	free_remove(p, b);
	if (p->block[b].hashed) {
		struct engine_event *ev = event_add(p->log, ENGINE_REMOVED);

		ev->tier = p->cfg.tier;
		ev->group = p->cfg.group;
		event_hash(p->log, ev, &p->block[b].name);
		unhash(p, b);
	}
	p->block[b].refs = 1;
	return b;
}

void
pool_drop(struct pool *p, unsigned b)
{
	if (--p->block[b].refs == 0)
		free_append(p, b);
}

void
pool_renew(struct pool *p, unsigned b)
{
	free_remove(p, b);
	free_append(p, b);
}

void
pool_forget(struct pool *p)
{
	for (unsigned b = 0; b < p->cfg.blocks; b++)
		if (p->block[b].hashed)
			unhash(p, b);
}

unsigned
pool_free_blocks(const struct pool *p)
{
	return p->free_n;
}

unsigned
pool_cached(const struct pool *p)
{
	return p->cached_n;
}

bool
pool_next(const struct pool *p, unsigned *at, struct engine_block *ret)
{
	for (; *at < p->cfg.blocks; ++*at) {
		const struct block *blk = &p->block[*at];

		if (!blk->hashed || pool_find(p, &blk->hash) != *at)
			continue;
		*ret = (struct engine_block){
			.tier = p->cfg.tier,
			.group = p->cfg.group,
			.name = blk->name,
			.has_parent = blk->has_parent,
			.parent = blk->parent,
			.start = blk->start,
			.token = p->token + (size_t)*at * p->cfg.block_tokens,
			.tokens = p->cfg.block_tokens,
			.lora = blk->lora,
			.salt = blk->salt,
		};
		for (unsigned b = *at; b != NIL; b = p->block[b].chain)
			ret->copies += memcmp(&p->block[b].hash, &blk->hash, sizeof blk->hash) == 0;
		++*at;
		return true;
	}
	return false;
}

/* ---- life ---- */

struct pool *
pool_new(const struct pool_config *cfg, struct event_log *log)
{
	struct pool *p = must(calloc(1, sizeof *p));
	unsigned buckets = 64;

	p->cfg = *cfg;
	p->log = log;
	p->block = must(calloc(cfg->blocks, sizeof *p->block));
	p->token = must(calloc((size_t)cfg->blocks * cfg->block_tokens, sizeof *p->token));
	while (buckets < cfg->blocks * 2)
		buckets *= 2;
	p->bucket = must(malloc(buckets * sizeof *p->bucket));
	for (unsigned i = 0; i < buckets; i++)
		p->bucket[i] = NIL;
	p->bucket_mask = buckets - 1;
	p->free_head = p->free_tail = NIL;
	for (unsigned i = 0; i < cfg->blocks; i++)
		free_append(p, i);
	return p;
}

void
pool_free(struct pool **pp)
{
	struct pool *p = *pp;

	*pp = NULL;
	if (p == NULL)
		return;
	pool_forget(p);
	free(p->block);
	free(p->token);
	free(p->bucket);
	free(p);
}
