/* tests/emulator/engine.c -- see engine.h.  What is held and when:
 *
 *   waiting --admit--> running --last token--> finished (blocks to the LRU list)
 *      ^                  |
 *      +---- preempt -----+  (blocks to the LRU list, computed = 0, front of the list)
 *
 * Blocks, their free list and what they cache are pool.h's.
 */
#include "tests/emulator/tiers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list {
	struct engine_seq *head, *tail;
	unsigned n;
};

#define GPU 0
#define OFFLOAD 1
#define GROUP 2 /* and on */

struct engine {
	struct engine_config cfg;
	struct blockhash root;
	struct pool *pool[2 + ENGINE_GROUPS_MAX]; /* GPU; offload or NULL; groups or NULL */
	struct event_log log;
	struct list running, waiting;
	bool stepping;
	uint64_t order;
	uint64_t rng;
	/* the step under way */
	struct engine_seq **out;
	unsigned out_max;
	/* totals */
	uint64_t query_tokens, hit_tokens, preemptions, steps;
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

static double
rng_unit(struct engine *e)
{
	uint64_t z = e->rng += 0x9e3779b97f4a7c15u; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1p-53;
}

/* ---- lists of sequences ---- */

static void
list_insert(struct list *list, struct engine_seq *seq, struct engine_seq *before)
{
	seq->next = before;
	seq->prev = before != NULL ? before->prev : list->tail;
	if (seq->prev != NULL)
		seq->prev->next = seq;
	else
		list->head = seq;
	if (before != NULL)
		before->prev = seq;
	else
		list->tail = seq;
	list->n++;
}

static void
list_remove(struct list *list, struct engine_seq *seq)
{
	if (seq->prev != NULL)
		seq->prev->next = seq->next;
	else
		list->head = seq->next;
	if (seq->next != NULL)
		seq->next->prev = seq->prev;
	else
		list->tail = seq->prev;
	seq->prev = seq->next = NULL;
	list->n--;
}

/* Does a come before b in the waiting list? */
static bool
waits_before(const struct engine *e, const struct engine_seq *a, const struct engine_seq *b)
{
	if (e->cfg.by_priority && a->priority != b->priority)
		return a->priority < b->priority;
	return a->order < b->order;
}

static void
wait_insert(struct engine *e, struct engine_seq *seq)
{
	struct engine_seq *after = e->waiting.tail;

	while (after != NULL && waits_before(e, seq, after))
		after = after->prev;
	list_insert(&e->waiting, seq, after != NULL ? after->next : e->waiting.head);
	seq->waiting = true;
	seq->running = false;
}

/* ---- blocks ---- */

/* Give back all blocks, the last first, so that the head of a prompt lives longest. */
static void
seq_drop_blocks(struct engine *e, struct engine_seq *seq)
{
	while (seq->blocks > 0)
		pool_drop(e->pool[GPU], seq->block[--seq->blocks]);
	seq->hashed_blocks = 0;
}

static unsigned
ceil_div(unsigned a, unsigned b)
{
	return a / b + (a % b != 0);
}

/* Know the hashes of the first n full blocks. */
static void
seq_hash_to(const struct engine *e, struct engine_seq *seq, unsigned n)
{
	while (seq->hashes_known < n && seq->hashes_known < seq->hashes_max) {
		unsigned i = seq->hashes_known++;
		const uint32_t *token = seq->token + (size_t)i * e->cfg.block_tokens;

		blockhash_next(e->cfg.hash, i > 0 ? &seq->hash[i - 1] : &e->root, token,
			       e->cfg.block_tokens, seq->lora_name, i == 0 ? seq->salt : NULL,
			       &seq->hash[i]);
		if (seq->name != seq->hash)
			blockhash_next(e->cfg.hash, i > 0 ? &seq->name[i - 1] : &e->root, token,
				       e->cfg.block_tokens, NULL, NULL, &seq->name[i]);
	}
}

static unsigned
seq_len(const struct engine_seq *seq)
{
	return seq->prompt_tokens + seq->generated;
}

/* Tokens up to which blocks of this sequence get hashes. */
static unsigned
seq_hashable(const struct engine *e, const struct engine_seq *seq)
{
	return e->cfg.cache_output ? seq_len(seq) : seq->prompt_tokens;
}

/* Take blocks up to computed + n tokens.  False: not enough free ones, nothing taken. */
static bool
seq_alloc(struct engine *e, struct engine_seq *seq, unsigned n)
{
	unsigned need = ceil_div(seq->computed + n, e->cfg.block_tokens);

	if (need > seq->blocks && need - seq->blocks > pool_free_blocks(e->pool[GPU]))
		return false;
	while (seq->blocks < need)
		seq->block[seq->blocks++] = pool_take(e->pool[GPU]);
	return true;
}

/* Hash the blocks that computed + n tokens fill, and say so in one event. */
static void
seq_store(struct engine *e, struct engine_seq *seq, unsigned n)
{
	unsigned upto = seq->computed + n;
	struct engine_event *ev;
	unsigned full, first = seq->hashed_blocks;

	if (upto > seq_hashable(e, seq))
		upto = seq_hashable(e, seq);
	full = upto / e->cfg.block_tokens;
	if (full > first) {
		seq_hash_to(e, seq, full);
		ev = tier_stored(&e->log, &e->cfg, seq, first == 0);
		ev->has_parent = first > 0;
		if (first > 0)
			ev->parent = seq->name[first - 1];
		for (unsigned i = first; i < full; i++) {
			struct pool_entry entry = tier_entry(&e->cfg, seq, i);

			event_hash(&e->log, ev, &seq->name[i]);
			pool_store(e->pool[GPU], seq->block[i], &entry);
		}
		event_tokens(&e->log, ev, seq->token + (size_t)first * e->cfg.block_tokens,
			     (full - first) * e->cfg.block_tokens);
		seq->hashed_blocks = full;
		if (e->pool[OFFLOAD] != NULL)
			tier_copy(e->pool[OFFLOAD], &e->log, &e->cfg, seq, first, full);
	}
	for (unsigned g = 0; g < e->cfg.groups; g++)
		tier_group(e->pool[GROUP + g], &e->log, &e->cfg, &e->root, seq, g, upto);
}

/* Leading blocks found in the cache, never the whole prompt: the last token is always computed. */
static unsigned
seq_hits(struct engine *e, struct engine_seq *seq)
{
	unsigned max = (seq_len(seq) - 1) / e->cfg.block_tokens;
	unsigned n = 0;

	if (max > seq_hashable(e, seq) / e->cfg.block_tokens)
		max = seq_hashable(e, seq) / e->cfg.block_tokens;
	seq_hash_to(e, seq, max);
	while (n < max && pool_find(e->pool[GPU], &seq->hash[n]) != POOL_NONE)
		n++;
	return n;
}

/* Blocks from the hits on that the offload tier has. */
static unsigned
seq_loads(const struct engine *e, const struct engine_seq *seq, unsigned hits)
{
	unsigned max = (seq_len(seq) - 1) / e->cfg.block_tokens, n = hits;

	if (e->pool[OFFLOAD] == NULL)
		return 0;
	if (max > seq->hashes_known)
		max = seq->hashes_known;
	while (n < max && pool_find(e->pool[OFFLOAD], &seq->hash[n]) != POOL_NONE)
		n++;
	return n - hits;
}

/* ---- scheduling ---- */

static void
preempt(struct engine *e, struct engine_seq *seq, struct engine_step *step)
{
	list_remove(&e->running, seq);
	seq_drop_blocks(e, seq);
	seq->computed = 0;
	seq->scheduled = 0;
	seq->preemptions++;
	e->preemptions++;
	step->preempted++;
	wait_insert(e, seq); /* its order of arrival puts it in front of all who never ran */
}

static struct engine_seq *
victim(const struct engine *e)
{
	struct engine_seq *worst = e->running.tail;

	if (e->cfg.by_priority)
		for (struct engine_seq *s = e->running.tail; s != NULL; s = s->prev)
			if (s->scheduled == 0 && s->priority > worst->priority)
				worst = s;
	return worst;
}

/* The sums the step time is made of. */
struct load {
	unsigned prefill, decodes;
	double attention, context;
};

static void
load_add(struct load *load, const struct engine_seq *seq)
{
	unsigned n = seq->scheduled;

	if (n == 1 && seq->generated > 0 && seq->computed + 1 == seq_len(seq)) {
		load->decodes++;
		load->context += (double)seq_len(seq);
	} else {
		load->prefill += n;
		load->attention += (double)n * ((double)seq->computed + (double)n / 2);
	}
}

static void
schedule_running(struct engine *e, unsigned *budget, struct engine_step *step)
{
	struct engine_seq *next;

	for (struct engine_seq *seq = e->running.head; seq != NULL && *budget > 0; seq = next) {
		unsigned n = seq_len(seq) - seq->computed;
		bool lost = false;

		if (n > *budget)
			n = *budget;
		while (!seq_alloc(e, seq, n) && !lost) {
			struct engine_seq *last = victim(e);

			lost = last == seq;
			preempt(e, last, step);
		}
		if (lost)
			break;
		seq->scheduled = n;
		*budget -= n;
		seq_store(e, seq, n);
		next = seq->next;
	}
}

/* Admit the head of the waiting list.  False: it does not fit. */
static bool
admit(struct engine *e, double now_s, unsigned *budget)
{
	struct engine_seq *seq = e->waiting.head;
	struct pool *gpu = e->pool[GPU];
	unsigned hits = seq_hits(e, seq), loads = seq_loads(e, seq, hits);
	unsigned found = (hits + loads) * e->cfg.block_tokens;
	unsigned n = seq_len(seq) - found;
	unsigned revived = 0; /* hit blocks that are in the free list now */
	unsigned need;

	if (n > *budget)
		n = *budget;
	need = ceil_div(e->cfg.reserve_full_isl ? seq_len(seq) : found + n, e->cfg.block_tokens) -
	       hits;
	for (unsigned i = 0; i < hits; i++)
		revived += pool_refs(gpu, pool_find(gpu, &seq->hash[i])) == 0;
	if (need + revived > pool_free_blocks(gpu))
		return false;

	list_remove(&e->waiting, seq);
	list_insert(&e->running, seq, NULL);
	seq->waiting = false;
	seq->running = true;
	for (unsigned i = 0; i < hits; i++) {
		unsigned b = pool_find(gpu, &seq->hash[i]);

		pool_touch(gpu, b);
		seq->block[seq->blocks++] = b;
	}
	seq->hashed_blocks = hits;
	seq->computed = hits * e->cfg.block_tokens;
	if (loads > 0) {
		seq_alloc(e, seq, loads * e->cfg.block_tokens);
		seq_store(e, seq, loads * e->cfg.block_tokens);
		seq->computed = found;
	}
	if (!seq->admitted) {
		seq->admitted = true;
		seq->first_step_s = now_s;
		seq->hit_tokens = seq->computed;
		e->query_tokens += seq_len(seq);
		e->hit_tokens += seq->hit_tokens;
	}
	seq_alloc(e, seq, n);
	seq->scheduled = n;
	*budget -= n;
	seq_store(e, seq, n);
	return true;
}

bool
engine_step_begin(struct engine *e, double now_s, struct engine_step *ret_step)
{
	unsigned budget = e->cfg.max_batched_tokens;
	struct load load = {0};
	double work;

	*ret_step = (struct engine_step){0};
	if (e->stepping || !engine_busy(e))
		return false;
	schedule_running(e, &budget, ret_step);
	if (ret_step->preempted == 0)
		while (budget > 0 && e->waiting.n > 0 && e->running.n < e->cfg.max_seqs &&
		       admit(e, now_s, &budget))
			ret_step->admitted++;
	for (struct engine_seq *seq = e->running.head; seq != NULL; seq = seq->next)
		if (seq->scheduled > 0)
			load_add(&load, seq);

	work = e->cfg.a_s * (double)(load.prefill + load.decodes);
	ret_step->duration_s = e->cfg.t_o_s + (work > e->cfg.t_w_s ? work : e->cfg.t_w_s) +
			       e->cfg.q_s * load.attention + e->cfg.e_s * load.context +
			       e->cfg.d_s * (double)load.decodes;
	ret_step->duration_s *= e->cfg.slow_factor;
	if (e->cfg.jitter_0to1 > 0)
		ret_step->duration_s *= 1 + e->cfg.jitter_0to1 * (2 * rng_unit(e) - 1);
	ret_step->prefill_tokens = load.prefill;
	ret_step->decode_seqs = load.decodes;
	e->stepping = true;
	e->steps++;
	return true;
}

/* A generated token: its id is the caller's business except when it becomes part of a hash. */
static uint32_t
output_token(const struct engine_seq *seq)
{
	return (uint32_t)(seq->prompt_tokens * 2654435761u + seq->generated) & 0x7fffffffu;
}

unsigned
engine_step_end(struct engine *e, struct engine_seq *const **ret_seqs)
{
	struct engine_seq *next;
	unsigned n = 0;

	*ret_seqs = NULL;
	if (!e->stepping)
		return 0;
	e->stepping = false;
	if (e->running.n > e->out_max) {
		e->out_max = e->running.n * 2;
		e->out = must(realloc(e->out, e->out_max * sizeof *e->out));
	}
	for (struct engine_seq *seq = e->running.head; seq != NULL; seq = next) {
		next = seq->next;
		if (seq->scheduled == 0)
			continue;
		seq->computed += seq->scheduled;
		seq->scheduled = 0;
		if (seq->computed < seq_len(seq))
			continue;
		seq->token[seq_len(seq)] = output_token(seq);
		seq->generated++;
		if (seq->generated >= seq->max_output) {
			seq->finish = seq->natural_finish;
			list_remove(&e->running, seq);
			seq->running = false;
			seq_drop_blocks(e, seq);
		}
		e->out[n++] = seq;
	}
	*ret_seqs = e->out;
	return n;
}

/* ---- life ---- */

struct engine *
engine_new(const struct engine_config *cfg)
{
	struct engine *e = must(calloc(1, sizeof *e));

	e->cfg = *cfg;
	e->cfg.hash_seed = NULL;
	e->rng = cfg->jitter_seed;
	blockhash_root(cfg->hash, cfg->hash_seed, &e->root);
	e->pool[GPU] = pool_new(&(struct pool_config){.blocks = cfg->num_blocks,
						      .block_tokens = cfg->block_tokens}, &e->log);
	if (cfg->offload_blocks > 0)
		e->pool[OFFLOAD] = pool_new(&(struct pool_config){
			.blocks = cfg->offload_blocks,
			.block_tokens = cfg->block_tokens,
			.tier = ENGINE_CPU}, &e->log);
	for (unsigned g = 0; g < cfg->groups; g++)
		e->pool[GROUP + g] = pool_new(&(struct pool_config){
			.blocks = cfg->group[g].blocks,
			.block_tokens = cfg->group[g].block_tokens,
			.group = g + 1}, &e->log);
	return e;
}

static void
list_free(struct list *list)
{
	while (list->head != NULL) {
		struct engine_seq *seq = list->head;

		list_remove(list, seq);
		engine_release(&seq);
	}
}

void
engine_free(struct engine **ep)
{
	struct engine *e = *ep;

	*ep = NULL;
	if (e == NULL)
		return;
	list_free(&e->running);
	list_free(&e->waiting);
	for (unsigned i = 0; i < sizeof e->pool / sizeof e->pool[0]; i++)
		pool_free(&e->pool[i]);
	event_log_free(&e->log);
	free(e->out);
	free(e);
}

int
engine_submit(struct engine *e, const struct engine_request *req, struct engine_seq **ret_seq)
{
	uint64_t total = (uint64_t)req->prompt_tokens + req->max_output;
	unsigned blocks;
	struct engine_seq *seq;

	if (req->prompt_tokens == 0 || req->max_output == 0)
		return -EINVAL;
	if (total > (uint64_t)e->cfg.num_blocks * e->cfg.block_tokens)
		return -E2BIG;
	blocks = ceil_div((unsigned)total, e->cfg.block_tokens);
	seq = must(calloc(1, sizeof *seq));
	seq->priv = req->priv;
	seq->prompt_tokens = req->prompt_tokens;
	seq->max_output = req->max_output;
	seq->natural_finish = req->natural_finish;
	seq->priority = req->priority;
	seq->token = must(malloc(total * sizeof *seq->token));
	memcpy(seq->token, req->token, req->prompt_tokens * sizeof *seq->token);
	seq->salt = req->salt != NULL ? must(strdup(req->salt)) : NULL;
	seq->lora = req->lora;
	seq->lora_name = req->lora_name != NULL ? must(strdup(req->lora_name)) : NULL;
	seq->hashes_max = blocks;
	seq->hash = must(calloc(blocks, sizeof *seq->hash));
	seq->name = seq->hash;
	if (e->cfg.bare_names && (seq->salt != NULL || seq->lora_name != NULL))
		seq->name = must(calloc(blocks, sizeof *seq->name));
	seq->block = must(calloc(blocks, sizeof *seq->block));
	seq->order = e->order++;
	wait_insert(e, seq);
	*ret_seq = seq;
	return 0;
}

void
engine_abort(struct engine *e, struct engine_seq *seq)
{
	if (seq->running)
		list_remove(&e->running, seq);
	else if (seq->waiting)
		list_remove(&e->waiting, seq);
	seq->running = seq->waiting = false;
	seq->scheduled = 0;
	seq_drop_blocks(e, seq);
	if (seq->finish == ENGINE_RUNNING)
		seq->finish = ENGINE_FINISH_ABORT;
}

void
engine_release(struct engine_seq **seqp)
{
	struct engine_seq *seq = *seqp;

	*seqp = NULL;
	if (seq == NULL)
		return;
	free(seq->token);
	free(seq->salt);
	free(seq->lora_name);
	if (seq->name != seq->hash)
		free(seq->name);
	free(seq->hash);
	free(seq->block);
	free(seq);
}

struct engine_events
engine_take_events(struct engine *e)
{
	struct engine_events none = {0};

	if (e->log.taken)
		return none;
	e->log.taken = true;
	return (struct engine_events){.event = e->log.event, .events = e->log.events,
				      .hash = e->log.hash, .token = e->log.token,
				      .text = e->log.text};
}

bool
engine_clear_cache(struct engine *e, bool offload_too)
{
	if (pool_free_blocks(e->pool[GPU]) < e->cfg.num_blocks)
		return false;
	for (unsigned i = 0; i < sizeof e->pool / sizeof e->pool[0]; i++)
		if (e->pool[i] != NULL && (i != OFFLOAD || offload_too))
			pool_forget(e->pool[i]);
	event_add(&e->log, ENGINE_CLEARED);
	return true;
}

void
engine_set_timing(struct engine *e, const struct engine_config *cfg)
{
	e->cfg.t_o_s = cfg->t_o_s;
	e->cfg.t_w_s = cfg->t_w_s;
	e->cfg.a_s = cfg->a_s;
	e->cfg.q_s = cfg->q_s;
	e->cfg.e_s = cfg->e_s;
	e->cfg.d_s = cfg->d_s;
	e->cfg.slow_factor = cfg->slow_factor;
	e->cfg.jitter_0to1 = cfg->jitter_0to1;
}

/* ---- what an observer may ask ---- */

static uint64_t
list_pending(const struct list *list)
{
	uint64_t n = 0;

	for (const struct engine_seq *seq = list->head; seq != NULL; seq = seq->next)
		if (seq->computed < seq->prompt_tokens)
			n += seq->prompt_tokens - seq->computed;
	return n;
}

struct engine_stats
engine_stats(const struct engine *e)
{
	return (struct engine_stats){
		.running = e->running.n,
		.waiting = e->waiting.n,
		.free_blocks = pool_free_blocks(e->pool[GPU]),
		.num_blocks = e->cfg.num_blocks,
		.cached_blocks = pool_cached(e->pool[GPU]),
		.offloaded_blocks = e->pool[OFFLOAD] != NULL ? pool_cached(e->pool[OFFLOAD]) : 0,
		.pending_prefill_tokens = list_pending(&e->running) + list_pending(&e->waiting),
		.query_tokens = e->query_tokens,
		.hit_tokens = e->hit_tokens,
		.preemptions = e->preemptions,
		.steps = e->steps,
	};
}

bool
engine_next_cached(const struct engine *e, struct engine_at *at, struct engine_block *ret)
{
	for (; at->pool < sizeof e->pool / sizeof e->pool[0]; at->pool++, at->block = 0)
		if (e->pool[at->pool] != NULL && pool_next(e->pool[at->pool], &at->block, ret))
			return true;
	return false;
}

unsigned
engine_cached(const struct engine *e)
{
	struct engine_block block;
	unsigned at = 0, n = 0;

	while (pool_next(e->pool[GPU], &at, &block))
		n++;
	return n;
}

unsigned
engine_probe(const struct engine *e, const uint32_t *token, unsigned tokens, const char *lora_name,
	     const char *salt)
{
	unsigned max = tokens > 0 ? (tokens - 1) / e->cfg.block_tokens : 0;
	struct blockhash hash = e->root;
	unsigned n = 0;

	for (; n < max; n++) {
		blockhash_next(e->cfg.hash, &hash, token + (size_t)n * e->cfg.block_tokens,
			       e->cfg.block_tokens, lora_name, n == 0 ? salt : NULL, &hash);
		if (pool_find(e->pool[GPU], &hash) == POOL_NONE)
			break;
	}
	return n * e->cfg.block_tokens;
}

struct engine_seq *
engine_any(const struct engine *e)
{
	return e->running.head != NULL ? e->running.head : e->waiting.head;
}

bool
engine_busy(const struct engine *e)
{
	return e->running.n > 0 || e->waiting.n > 0;
}
