/* tests/emulator/tiers.c -- see tiers.h. */
#include "tests/emulator/tiers.h"

#include <stdio.h>
#include <stdlib.h>

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("engine: out of memory\n", stderr);
		abort();
	}
	return p;
}

struct pool_entry
tier_entry(const struct engine_config *cfg, const struct engine_seq *seq, unsigned i)
{
	return (struct pool_entry){
		.hash = seq->hash[i],
		.name = seq->name[i],
		.has_parent = i > 0,
		.parent = i > 0 ? seq->name[i - 1] : (struct blockhash){{0}},
		.start = i * cfg->block_tokens,
		.token = seq->token + (size_t)i * cfg->block_tokens,
		.lora = seq->lora,
		.salt = seq->salt,
	};
}

struct engine_event *
tier_stored(struct event_log *log, const struct engine_config *cfg, const struct engine_seq *seq,
	    bool first)
{
	struct engine_event *ev = event_add(log, ENGINE_STORED);

	ev->block_tokens = cfg->block_tokens;
	ev->lora = seq->lora;
	ev->first = first;
	if (first && seq->salt != NULL)
		event_salt(log, ev, seq->salt);
	return ev;
}

void
tier_copy(struct pool *tier, struct event_log *log, const struct engine_config *cfg,
	  const struct engine_seq *seq, unsigned first, unsigned full)
{
	unsigned *fresh, n = 0;
	struct engine_event *ev;

	if (full - first > cfg->offload_blocks)
		full = first + cfg->offload_blocks;
	fresh = must(malloc((full - first) * sizeof *fresh));
	for (unsigned i = first; i < full; i++) {
		unsigned b = pool_find(tier, &seq->hash[i]);

		if (b == POOL_NONE) {
			struct pool_entry entry = tier_entry(cfg, seq, i);

			b = pool_take(tier);
			pool_store(tier, b, &entry);
			pool_drop(tier, b);
			fresh[n++] = i;
		} else {
			pool_renew(tier, b);
		}
	}
	for (unsigned i = 0, run; i < n; i += run) { /* one event for each run */
		run = 1;
		while (i + run < n && fresh[i + run] == fresh[i] + run)
			run++;
		ev = tier_stored(log, cfg, seq, fresh[i] == 0);
		ev->tier = ENGINE_CPU;
		ev->has_parent = fresh[i] > 0;
		if (fresh[i] > 0)
			ev->parent = seq->name[fresh[i] - 1];
		for (unsigned k = 0; k < run; k++)
			event_hash(log, ev, &seq->name[fresh[i] + k]);
		event_tokens(log, ev, seq->token + (size_t)fresh[i] * cfg->block_tokens,
			     run * cfg->block_tokens);
	}
	free(fresh);
}

void
tier_group(struct pool *pool, struct event_log *log, const struct engine_config *cfg,
	   const struct blockhash *root, struct engine_seq *seq, unsigned g, unsigned upto)
{
	const struct engine_group *group = &cfg->group[g];
	unsigned first = seq->group[g].blocks, full = upto / group->block_tokens;
	unsigned keep = group->kind == ENGINE_MAMBA ? full - 1 : first;
	struct blockhash before = seq->group[g].last, *name;
	struct engine_event *ev;

	if (full <= first)
		return;
	if (full - keep > group->blocks)
		keep = full - group->blocks;
	name = must(malloc((full - first) * sizeof *name));
	for (unsigned i = first; i < full; i++) {
		struct pool_entry entry = {
			.has_parent = i > 0,
			.parent = seq->group[g].last,
			.start = i * group->block_tokens,
			.token = seq->token + (size_t)i * group->block_tokens,
			.lora = seq->lora,
			.salt = seq->salt,
		};

		blockhash_next(cfg->hash, i > 0 ? &seq->group[g].last : root, entry.token,
			       group->block_tokens, seq->lora_name, i == 0 ? seq->salt : NULL,
			       &seq->group[g].last);
		name[i - first] = entry.hash = entry.name = seq->group[g].last;
		if (i < keep)
			continue;
		if (i == keep && pool_find(pool, &entry.hash) != POOL_NONE) {
			keep++; /* a hit, which is not told again */
		} else {
			unsigned b = pool_take(pool);

			pool_store(pool, b, &entry);
			pool_drop(pool, b);
		}
	}
	seq->group[g].blocks = full;
	if (keep < full) {
		unsigned from = group->kind == ENGINE_MAMBA ? first : keep;

		ev = tier_stored(log, cfg, seq, from == 0);
		ev->group = g + 1;
		ev->block_tokens = group->block_tokens;
		ev->has_parent = from > 0;
		if (from > 0)
			ev->parent = from == first ? before : name[from - first - 1];
		for (unsigned i = keep; i < full; i++)
			event_hash(log, ev, &name[i - first]);
		event_tokens(log, ev, seq->token + (size_t)from * group->block_tokens,
			     (full - from) * group->block_tokens);
	}
	free(name);
}
