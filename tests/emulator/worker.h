/* tests/emulator/worker.h -- an engine and the time around it, in virtual seconds.
 *
 * Meaning    A request is received, reaches the engine after o_fix + o_tok x prompt tokens (HTTP
 *            and tokenising), is served by steps that follow each other without a gap, and each of
 *            its tokens becomes visible visible_s after the step that made it.
 * Use        The caller owns the clock: worker_advance(now) does all that is due, in time order,
 *            and worker_next_s says when to call again.  A server maps virtual to wall time; a test
 *            or a simulator jumps from one due time to the next.
 * Lateness   A step ends when it was due, however late the caller is: lateness never adds up.  A
 *            step taken more than two of its own durations late counts as an overrun.
 * Ownership  A job belongs to the worker; it is gone after its last on_token or after worker_abort.
 * Errors     Negative errno where stated; out of memory ends the program.
 * Threads    One.  No I/O, no clock.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "tests/emulator/engine.h"

struct worker_config {
	struct engine_config engine;
	double o_fix_s, o_tok_s, visible_s;
	bool events_early;        /* a step's events leave when it begins (vLLM up to 0.11.0) */
	double warmup_s;          /* after birth or restart, the first steps take up to */
	double warmup_factor;     /* so many times as long, less and less; 0: none */
};

struct worker_job {
	void *priv;
	unsigned prompt_tokens, max_output;
	unsigned hit_tokens;      /* valid from the first token on */
	unsigned visible;         /* tokens the client may have seen, this one included */
	enum engine_finish finish;/* not ENGINE_RUNNING: this token is the last */
	double received_s, queued_s;
	double scheduled_s;       /* start of its first step; negative before */
	double made_s;            /* when the first token was made; negative before */
	double first_s, last_s;   /* visible times; first_s is negative before */
	/* private from here */
	unsigned refs;
	unsigned made;
	bool dead, arrived;
	uint32_t *token;
	unsigned lora;
	char *lora_name, *salt;
	int priority;
	enum engine_finish natural_finish, made_finish;
	struct engine_seq *seq;
};

struct worker_sink {
	void *arg;
	void (*on_token)(void *arg, struct worker_job *, double now_s);
	void (*on_events)(void *arg, double now_s, const struct engine_events *);
		/* After a step that changed the cache. */
	void (*on_step)(void *arg, double now_s, const struct engine_step *);
		/* After each step. */
};

struct worker_request {
	uint32_t *token;          /* from malloc; the worker's from here on */
	unsigned prompt_tokens, max_output;
	enum engine_finish natural_finish;
	int priority;
	unsigned lora;            /* as struct engine_request; the name is copied */
	const char *lora_name;
	const char *salt;         /* copied */
	void *priv;
};

struct worker_stats {
	struct engine_stats engine;
	unsigned arriving;        /* received, not yet in the engine */
	uint64_t arriving_tokens;
	uint64_t overruns;
};

struct worker;

struct worker *worker_new(const struct worker_config *, const struct worker_sink *);
void worker_free(struct worker **);
int worker_submit(struct worker *, double now_s, const struct worker_request *,
		  struct worker_job **ret_job);
	/* -EINVAL nothing to read or to write; -E2BIG it could never fit the block pool.  The
	 * tokens are the worker's in any case. */
void worker_abort(struct worker *, struct worker_job *);
	/* The client left.  No callback follows for this job. */
double worker_next_s(const struct worker *);
	/* When something is next due; INFINITY: never. */
bool worker_advance(struct worker *, double now_s, unsigned max_steps);
	/* Do all that is due, at most max_steps engine steps of it.  True: more is due already. */
void worker_restart(struct worker *, double now_s, const char *hash_seed);
	/* As after a crash: jobs, cache and totals are gone, without an event or a callback. */
bool worker_clear_cache(struct worker *, double now_s, bool offload_too, bool at_once);
	/* As engine_clear_cache; the event follows at once, or with the next step. */
void worker_pause(struct worker *, double now_s, bool paused);
	/* No step begins while paused; requests wait. */
void worker_set_timing(struct worker *, const struct worker_config *);
	/* Timing constants only, from the next step or request on. */
struct worker_stats worker_stats(const struct worker *);
const struct engine *worker_engine(const struct worker *);
