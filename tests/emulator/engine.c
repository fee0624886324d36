/* tests/emulator/engine.c -- see engine.h.  What is held and when:
 *
 *   waiting --admit--> running --last token--> finished (blocks to the LRU list)
 *      ^                  |
 *      +---- preempt -----+  (blocks to the LRU list, computed = 0, front of the list)
 *
 * The free list holds every block with no reference, hashed or not, head = next to be re-used.
 */
#include "tests/emulator/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NIL UINT32_MAX

struct block {
	struct blockhash hash;
	bool hashed;
	unsigned refs;
	unsigned prev, next;   /* free list, when refs == 0 */
	unsigned chain;        /* next block in the hash bucket */
};

struct list {
	struct engine_seq *head, *tail;
	unsigned n;
};

struct engine {
	struct engine_config cfg;
	struct blockhash root;
	struct block *block;
	unsigned *bucket;
	unsigned bucket_mask;
	unsigned free_head, free_tail, free_n;
	unsigned cached_n;
	struct list running, waiting;
	bool stepping;
	uint64_t order;
	uint64_t rng;
	/* the step under way */
	struct engine_seq **out;
	unsigned out_max;
	/* events not yet taken */
	struct engine_event *event;
	unsigned event_n, event_max;
	struct blockhash *ev_hash;
	unsigned ev_hash_n, ev_hash_max;
	uint32_t *ev_token;
	unsigned ev_token_n, ev_token_max;
	char *ev_text;
	unsigned ev_text_n, ev_text_max;
	bool events_taken;
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

/* ---- events ---- */

static struct engine_event *
event_add(struct engine *e, enum engine_event_kind kind)
{
	struct engine_event *ev;

	if (e->events_taken) {
		e->event_n = e->ev_hash_n = e->ev_token_n = e->ev_text_n = 0;
		e->events_taken = false;
	}
	e->event = grow(e->event, e->event_n, 1, &e->event_max, sizeof *e->event);
	ev = &e->event[e->event_n++];
	*ev = (struct engine_event){.kind = kind, .salt_at = -1};
	ev->hash_at = e->ev_hash_n;
	ev->token_at = e->ev_token_n;
	return ev;
}

static void
event_hash(struct engine *e, struct engine_event *ev, const struct blockhash *hash)
{
	e->ev_hash = grow(e->ev_hash, e->ev_hash_n, 1, &e->ev_hash_max, sizeof *e->ev_hash);
	e->ev_hash[e->ev_hash_n++] = *hash;
	ev->hashes++;
}

static void
event_tokens(struct engine *e, struct engine_event *ev, const uint32_t *token, unsigned n)
{
	e->ev_token = grow(e->ev_token, e->ev_token_n, n, &e->ev_token_max, sizeof *e->ev_token);
	memcpy(e->ev_token + e->ev_token_n, token, n * sizeof *token);
	e->ev_token_n += n;
	ev->tokens += n;
}

static void
event_salt(struct engine *e, struct engine_event *ev, const char *salt)
{
	unsigned n = (unsigned)strlen(salt) + 1;

	e->ev_text = grow(e->ev_text, e->ev_text_n, n, &e->ev_text_max, 1);
	memcpy(e->ev_text + e->ev_text_n, salt, n);
	ev->salt_at = (int)e->ev_text_n;
	e->ev_text_n += n;
}

/* ---- blocks ---- */

static unsigned
bucket_of(const struct engine *e, const struct blockhash *hash)
{
	uint64_t v;

	memcpy(&v, hash->bytes, sizeof v);
	return (unsigned)(v ^ v >> 32) & e->bucket_mask;
}

static unsigned
block_find(const struct engine *e, const struct blockhash *hash)
{
	unsigned b = e->bucket[bucket_of(e, hash)];

	while (b != NIL && memcmp(&e->block[b].hash, hash, sizeof *hash) != 0)
		b = e->block[b].chain;
	return b;
}

static void
block_unhash(struct engine *e, unsigned b)
{
	unsigned *p = &e->bucket[bucket_of(e, &e->block[b].hash)];

	while (*p != b)
		p = &e->block[*p].chain;
	*p = e->block[b].chain;
	e->block[b].hashed = false;
	e->cached_n--;
}

static void
block_set_hash(struct engine *e, unsigned b, const struct blockhash *hash)
{
	unsigned *p = &e->bucket[bucket_of(e, hash)];

	while (*p != NIL) /* behind older copies: the first stored is the first found */
		p = &e->block[*p].chain;
	*p = b;
	e->block[b].chain = NIL;
	e->block[b].hash = *hash;
	e->block[b].hashed = true;
	e->cached_n++;
}

static void
free_remove(struct engine *e, unsigned b)
{
	struct block *blk = &e->block[b];

	if (blk->prev != NIL)
		e->block[blk->prev].next = blk->next;
	else
		e->free_head = blk->next;
	if (blk->next != NIL)
		e->block[blk->next].prev = blk->prev;
	else
		e->free_tail = blk->prev;
	e->free_n--;
}

static void
free_append(struct engine *e, unsigned b)
{
	struct block *blk = &e->block[b];

	blk->next = NIL;
	blk->prev = e->free_tail;
	if (e->free_tail != NIL)
		e->block[e->free_tail].next = b;
	else
		e->free_head = b;
	e->free_tail = b;
	e->free_n++;
}

static void
block_touch(struct engine *e, unsigned b)
{
	if (e->block[b].refs++ == 0)
		free_remove(e, b);
}

/* Pop the head of the free list, evicting what it cached. */
static unsigned
block_take(struct engine *e)
{
	unsigned b = e->free_head;

	free_remove(e, b);
	if (e->block[b].hashed) {
		struct engine_event *ev = event_add(e, ENGINE_REMOVED);

		event_hash(e, ev, &e->block[b].hash);
		block_unhash(e, b);
	}
	e->block[b].refs = 1;
	return b;
}

/* Give back all blocks, the last first, so that the head of a prompt lives longest. */
static void
seq_drop_blocks(struct engine *e, struct engine_seq *seq)
{
	while (seq->blocks > 0) {
		unsigned b = seq->block[--seq->blocks];

		if (--e->block[b].refs == 0)
			free_append(e, b);
	}
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

		blockhash_next(e->cfg.hash, i > 0 ? &seq->hash[i - 1] : &e->root,
			       seq->token + (size_t)i * e->cfg.block_tokens, e->cfg.block_tokens,
			       i == 0 ? seq->salt : NULL, &seq->hash[i]);
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

	if (need > seq->blocks && need - seq->blocks > e->free_n)
		return false;
	while (seq->blocks < need)
		seq->block[seq->blocks++] = block_take(e);
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
	if (full <= first)
		return;
	seq_hash_to(e, seq, full);
	ev = event_add(e, ENGINE_STORED);
	ev->has_parent = first > 0;
	if (first > 0)
		ev->parent = seq->hash[first - 1];
	else if (seq->salt != NULL)
		event_salt(e, ev, seq->salt);
	for (unsigned i = first; i < full; i++) {
		event_hash(e, ev, &seq->hash[i]);
		block_set_hash(e, seq->block[i], &seq->hash[i]);
	}
	event_tokens(e, ev, seq->token + (size_t)first * e->cfg.block_tokens,
		     (full - first) * e->cfg.block_tokens);
	seq->hashed_blocks = full;
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
	while (n < max && block_find(e, &seq->hash[n]) != NIL)
		n++;
	return n;
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
	unsigned hits = seq_hits(e, seq);
	unsigned n = seq_len(seq) - hits * e->cfg.block_tokens;
	unsigned revived = 0; /* hit blocks that are in the free list now */
	unsigned need;

	if (n > *budget)
		n = *budget;
	need = ceil_div(e->cfg.reserve_full_isl ? seq_len(seq) : hits * e->cfg.block_tokens + n,
			e->cfg.block_tokens) - hits;
	for (unsigned i = 0; i < hits; i++)
		revived += e->block[block_find(e, &seq->hash[i])].refs == 0;
	if (need + revived > e->free_n)
		return false;

	list_remove(&e->waiting, seq);
	list_insert(&e->running, seq, NULL);
	seq->waiting = false;
	seq->running = true;
	for (unsigned i = 0; i < hits; i++) {
		unsigned b = block_find(e, &seq->hash[i]);

		block_touch(e, b);
		seq->block[seq->blocks++] = b;
	}
	seq->hashed_blocks = hits;
	seq->computed = hits * e->cfg.block_tokens;
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
	unsigned buckets = 64;

	e->cfg = *cfg;
	e->cfg.hash_seed = NULL;
	e->rng = cfg->jitter_seed;
	blockhash_root(cfg->hash, cfg->hash_seed, &e->root);
	e->block = must(calloc(cfg->num_blocks, sizeof *e->block));
	while (buckets < cfg->num_blocks * 2)
		buckets *= 2;
	e->bucket = must(malloc(buckets * sizeof *e->bucket));
	for (unsigned i = 0; i < buckets; i++)
		e->bucket[i] = NIL;
	e->bucket_mask = buckets - 1;
	e->free_head = e->free_tail = NIL;
	for (unsigned i = 0; i < cfg->num_blocks; i++)
		free_append(e, i);
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
	free(e->block);
	free(e->bucket);
	free(e->out);
	free(e->event);
	free(e->ev_hash);
	free(e->ev_token);
	free(e->ev_text);
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
	seq->hashes_max = blocks;
	seq->hash = must(calloc(blocks, sizeof *seq->hash));
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
	free(seq->hash);
	free(seq->block);
	free(seq);
}

struct engine_events
engine_take_events(struct engine *e)
{
	struct engine_events none = {0};

	if (e->events_taken)
		return none;
	e->events_taken = true;
	return (struct engine_events){.event = e->event, .events = e->event_n, .hash = e->ev_hash,
				      .token = e->ev_token, .text = e->ev_text};
}

bool
engine_clear_cache(struct engine *e)
{
	if (e->free_n < e->cfg.num_blocks)
		return false;
	for (unsigned b = 0; b < e->cfg.num_blocks; b++)
		if (e->block[b].hashed)
			block_unhash(e, b);
	event_add(e, ENGINE_CLEARED);
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
		.free_blocks = e->free_n,
		.num_blocks = e->cfg.num_blocks,
		.cached_blocks = e->cached_n,
		.pending_prefill_tokens = list_pending(&e->running) + list_pending(&e->waiting),
		.query_tokens = e->query_tokens,
		.hit_tokens = e->hit_tokens,
		.preemptions = e->preemptions,
		.steps = e->steps,
	};
}

unsigned
engine_cached(const struct engine *e, struct blockhash *ret_hash, unsigned max)
{
	unsigned n = 0;

	for (unsigned b = 0; b < e->cfg.num_blocks; b++)
		if (e->block[b].hashed && block_find(e, &e->block[b].hash) == b) {
			if (n < max)
				ret_hash[n] = e->block[b].hash;
			n++;
		}
	return n;
}

unsigned
engine_probe(const struct engine *e, const uint32_t *token, unsigned tokens, const char *salt)
{
	unsigned max = tokens > 0 ? (tokens - 1) / e->cfg.block_tokens : 0;
	struct blockhash hash = e->root;
	unsigned n = 0;

	for (; n < max; n++) {
		blockhash_next(e->cfg.hash, &hash, token + (size_t)n * e->cfg.block_tokens,
			       e->cfg.block_tokens, n == 0 ? salt : NULL, &hash);
		if (block_find(e, &hash) == NIL)
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
