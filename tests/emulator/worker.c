/* tests/emulator/worker.c -- see worker.h.  Three things can be due:
 *
 *   arrivals  a heap by time       received -> the engine's waiting list
 *   end_s     of the step under way
 *   visible   a queue, times rise  token made -> on_token
 */
#include "tests/emulator/worker.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arrival {
	double due_s;
	uint64_t order;
	struct worker_job *job;
};

struct shown {
	double due_s;
	struct worker_job *job;
	bool last;
};

struct worker {
	struct worker_config cfg;
	struct worker_sink sink;
	struct engine *engine;
	struct arrival *heap;
	unsigned heap_n, heap_max;
	uint64_t order;
	uint64_t arriving_tokens;
	struct shown *ring;
	unsigned ring_head, ring_n, ring_max; /* ring_max a power of two */
	bool stepping, paused;
	double born_s;
	struct engine_step step;
	double start_s;  /* of the step under way, or the earliest the next may start */
	double end_s;
	uint64_t overruns;
};

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("worker: out of memory\n", stderr);
		abort();
	}
	return p;
}

/* ---- arrivals ---- */

static bool
sooner(const struct arrival *a, const struct arrival *b)
{
	return a->due_s < b->due_s || (a->due_s == b->due_s && a->order < b->order);
}

static void
heap_push(struct worker *w, struct arrival arrival)
{
	unsigned i = w->heap_n++;

	if (w->heap_n > w->heap_max) {
		w->heap_max = w->heap_max > 0 ? w->heap_max * 2 : 64;
		w->heap = must(realloc(w->heap, w->heap_max * sizeof *w->heap));
	}
	for (; i > 0 && sooner(&arrival, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = arrival;
}

static struct arrival
heap_pop(struct worker *w)
{
	struct arrival top = w->heap[0], last = w->heap[--w->heap_n];
	unsigned i = 0;

	for (;;) {
		unsigned kid = 2 * i + 1;

		if (kid >= w->heap_n)
			break;
		if (kid + 1 < w->heap_n && sooner(&w->heap[kid + 1], &w->heap[kid]))
			kid++;
		if (!sooner(&w->heap[kid], &last))
			break;
		w->heap[i] = w->heap[kid];
		i = kid;
	}
	if (w->heap_n > 0)
		w->heap[i] = last;
	return top;
}

/* ---- jobs ---- */

static void
job_unref(struct worker_job *job, unsigned refs)
{
	job->refs -= refs;
	if (job->refs > 0)
		return;
	free(job->token);
	free(job->lora_name);
	free(job->salt);
	free(job);
}

static void
ring_push(struct worker *w, struct shown shown)
{
	if (w->ring_n == w->ring_max) {
		unsigned max = w->ring_max > 0 ? w->ring_max * 2 : 64;
		struct shown *ring = must(malloc(max * sizeof *ring));

		for (unsigned i = 0; i < w->ring_n; i++)
			ring[i] = w->ring[(w->ring_head + i) & (w->ring_max - 1)];
		free(w->ring);
		w->ring = ring;
		w->ring_head = 0;
		w->ring_max = max;
	}
	w->ring[(w->ring_head + w->ring_n++) & (w->ring_max - 1)] = shown;
	shown.job->refs++;
}

static void
ring_show(struct worker *w)
{
	struct shown shown = w->ring[w->ring_head];
	struct worker_job *job = shown.job;
	unsigned refs = 1; /* the ring's */

	w->ring_head = (w->ring_head + 1) & (w->ring_max - 1);
	w->ring_n--;
	if (!job->dead) {
		job->visible++;
		job->last_s = shown.due_s;
		if (job->first_s < 0)
			job->first_s = shown.due_s;
		if (shown.last) {
			job->finish = job->made_finish;
			job->dead = true; /* a later abort by the callback's owner is too late */
		}
		w->sink.on_token(w->sink.arg, job, shown.due_s);
		if (shown.last)
			refs++; /* the caller's: it was told that this is the last */
	}
	job_unref(job, refs);
}

int
worker_submit(struct worker *w, double now_s, const struct worker_request *req,
	      struct worker_job **ret_job)
{
	uint64_t total = (uint64_t)req->prompt_tokens + req->max_output;
	struct worker_job *job;
	int r = 0;

	if (req->prompt_tokens == 0 || req->max_output == 0)
		r = -EINVAL;
	else if (total > (uint64_t)w->cfg.engine.num_blocks * w->cfg.engine.block_tokens)
		r = -E2BIG;
	if (r < 0) {
		free(req->token);
		return r;
	}
	job = must(calloc(1, sizeof *job));
	job->priv = req->priv;
	job->prompt_tokens = req->prompt_tokens;
	job->max_output = req->max_output;
	job->natural_finish = req->natural_finish;
	job->priority = req->priority;
	job->lora = req->lora;
	job->lora_name = req->lora_name != NULL ? must(strdup(req->lora_name)) : NULL;
	job->salt = req->salt != NULL ? must(strdup(req->salt)) : NULL;
	job->token = req->token;
	job->received_s = now_s;
	job->queued_s = now_s + w->cfg.o_fix_s + w->cfg.o_tok_s * req->prompt_tokens;
	job->scheduled_s = job->made_s = job->first_s = -1;
	job->refs = 2; /* the caller's, the heap's */
	heap_push(w, (struct arrival){job->queued_s, w->order++, job});
	w->arriving_tokens += job->prompt_tokens;
	*ret_job = job;
	return 0;
}

void
worker_abort(struct worker *w, struct worker_job *job)
{
	job->dead = true;
	if (job->seq != NULL) {
		engine_abort(w->engine, job->seq);
		engine_release(&job->seq);
	}
	job_unref(job, 1);
}

/* The request reaches the engine. */
static void
arrive(struct worker *w)
{
	struct arrival arrival = heap_pop(w);
	struct worker_job *job = arrival.job;

	w->arriving_tokens -= job->prompt_tokens;
	job->arrived = true;
	if (!job->dead) {
		struct engine_request req = {
			.token = job->token,
			.prompt_tokens = job->prompt_tokens,
			.max_output = job->max_output,
			.natural_finish = job->natural_finish,
			.priority = job->priority,
			.lora = job->lora,
			.lora_name = job->lora_name,
			.salt = job->salt,
			.priv = job,
		};

		engine_submit(w->engine, &req, &job->seq); /* sizes were checked at submit */
		free(job->token);
		job->token = NULL;
		if (!w->stepping && w->start_s < arrival.due_s)
			w->start_s = arrival.due_s;
	}
	job_unref(job, 1);
}

/* ---- steps ---- */

static void
flush_events(struct worker *w, double now_s)
{
	struct engine_events events = engine_take_events(w->engine);

	if (events.events > 0 && w->sink.on_events != NULL)
		w->sink.on_events(w->sink.arg, now_s, &events);
}

/* Times as long a step takes that begins now. */
static double
warmup(const struct worker *w)
{
	double age = w->start_s - w->born_s;

	if (w->cfg.warmup_factor <= 1 || age >= w->cfg.warmup_s)
		return 1;
	return w->cfg.warmup_factor - (w->cfg.warmup_factor - 1) * age / w->cfg.warmup_s;
}

static void
step_begin(struct worker *w)
{
	w->stepping = engine_step_begin(w->engine, w->start_s, &w->step);
	w->step.duration_s *= warmup(w);
	w->end_s = w->start_s + w->step.duration_s;
	if (w->cfg.events_early)
		flush_events(w, w->start_s);
}

static void
step_end(struct worker *w, double now_s)
{
	struct engine_seq *const *seqs;
	unsigned n = engine_step_end(w->engine, &seqs);

	if (w->step.duration_s > 0 && now_s - w->end_s > 2 * w->step.duration_s)
		w->overruns++;
	w->stepping = false;
	for (unsigned i = 0; i < n; i++) {
		struct worker_job *job = seqs[i]->priv;
		bool last = seqs[i]->finish != ENGINE_RUNNING;

		if (job->made++ == 0) {
			job->hit_tokens = seqs[i]->hit_tokens;
			job->scheduled_s = seqs[i]->first_step_s;
			job->made_s = w->end_s;
		}
		if (last) {
			job->made_finish = seqs[i]->finish;
			engine_release(&job->seq);
		}
		ring_push(w, (struct shown){w->end_s + w->cfg.visible_s, job, last});
	}
	flush_events(w, w->end_s);
	if (w->sink.on_step != NULL)
		w->sink.on_step(w->sink.arg, w->end_s, &w->step);
	w->start_s = w->end_s;
}

double
worker_next_s(const struct worker *w)
{
	double next = INFINITY;

	if (w->stepping)
		next = w->end_s;
	else if (engine_busy(w->engine) && !w->paused)
		next = w->start_s;
	if (w->heap_n > 0 && w->heap[0].due_s < next)
		next = w->heap[0].due_s;
	if (w->ring_n > 0 && w->ring[w->ring_head].due_s < next)
		next = w->ring[w->ring_head].due_s;
	return next;
}

bool
worker_advance(struct worker *w, double now_s, unsigned max_steps)
{
	for (unsigned steps = 0; steps < max_steps;) {
		double arrive_s = w->heap_n > 0 ? w->heap[0].due_s : INFINITY;
		double show_s = w->ring_n > 0 ? w->ring[w->ring_head].due_s : INFINITY;
		double end_s = w->stepping ? w->end_s : INFINITY;

		if (!w->stepping && engine_busy(w->engine) && !w->paused) {
			if (arrive_s <= w->start_s)
				arrive(w); /* whoever is there when the step starts is in it */
			else
				step_begin(w);
			continue;
		}
		if (isinf(show_s) && isinf(arrive_s) && isinf(end_s))
			return false;
		if (show_s <= arrive_s && show_s <= end_s && show_s <= now_s) {
			ring_show(w);
		} else if (arrive_s <= end_s && arrive_s <= now_s) {
			arrive(w);
		} else if (end_s <= now_s) {
			step_end(w, now_s);
			steps++;
		} else {
			return false;
		}
	}
	return worker_next_s(w) <= now_s;
}

/* ---- life ---- */

struct worker *
worker_new(const struct worker_config *cfg, const struct worker_sink *sink)
{
	struct worker *w = must(calloc(1, sizeof *w));

	w->cfg = *cfg;
	w->cfg.engine.hash_seed = NULL;
	w->sink = *sink;
	w->engine = engine_new(&cfg->engine);
	return w;
}

static void
forget_jobs(struct worker *w)
{
	while (w->heap_n > 0) {
		struct worker_job *job = heap_pop(w).job;

		job_unref(job, job->dead ? 1 : 2);
	}
	w->arriving_tokens = 0;
	/* Jobs in the engine: reached through their sequences, before the ring's own references go.
	 */
	for (struct engine_seq *seq; (seq = engine_any(w->engine)) != NULL;) {
		struct worker_job *job = seq->priv;

		worker_abort(w, job);
	}
	while (w->ring_n > 0) {
		struct shown shown = w->ring[w->ring_head];

		w->ring_head = (w->ring_head + 1) & (w->ring_max - 1);
		w->ring_n--;
		/* one that made its last token is in no other list */
		job_unref(shown.job, shown.last && !shown.job->dead ? 2 : 1);
	}
	w->stepping = false;
}

void
worker_free(struct worker **wp)
{
	struct worker *w = *wp;

	*wp = NULL;
	if (w == NULL)
		return;
	forget_jobs(w);
	engine_free(&w->engine);
	free(w->heap);
	free(w->ring);
	free(w);
}

void
worker_restart(struct worker *w, double now_s, const char *hash_seed)
{
	forget_jobs(w);
	engine_free(&w->engine);
	w->cfg.engine.hash_seed = hash_seed;
	w->engine = engine_new(&w->cfg.engine);
	w->cfg.engine.hash_seed = NULL;
	w->start_s = w->born_s = now_s;
	w->paused = false;
	w->overruns = 0;
}

bool
worker_clear_cache(struct worker *w, double now_s, bool offload_too, bool at_once)
{
	if (!engine_clear_cache(w->engine, offload_too))
		return false;
	if (at_once)
		flush_events(w, now_s);
	return true;
}

void
worker_pause(struct worker *w, double now_s, bool paused)
{
	if (w->paused && !paused && w->start_s < now_s)
		w->start_s = now_s;
	w->paused = paused;
}

void
worker_set_timing(struct worker *w, const struct worker_config *cfg)
{
	struct engine_config engine = w->cfg.engine;

	engine_set_timing(w->engine, &cfg->engine);
	engine.t_o_s = cfg->engine.t_o_s;
	engine.t_w_s = cfg->engine.t_w_s;
	engine.a_s = cfg->engine.a_s;
	engine.q_s = cfg->engine.q_s;
	engine.e_s = cfg->engine.e_s;
	engine.d_s = cfg->engine.d_s;
	engine.slow_factor = cfg->engine.slow_factor;
	engine.jitter_0to1 = cfg->engine.jitter_0to1;
	w->cfg.engine = engine;
	w->cfg.o_fix_s = cfg->o_fix_s;
	w->cfg.o_tok_s = cfg->o_tok_s;
	/* visible_s stays: tokens on their way must not overtake each other */
}

struct worker_stats
worker_stats(const struct worker *w)
{
	return (struct worker_stats){
		.engine = engine_stats(w->engine),
		.arriving = w->heap_n,
		.arriving_tokens = w->arriving_tokens,
		.overruns = w->overruns,
	};
}

const struct engine *
worker_engine(const struct worker *w)
{
	return w->engine;
}
