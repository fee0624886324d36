/* actors/kvevents/apply_row.h -- what apply keeps of one row; for actors/kvevents/apply*.c only. */
#pragma once
#include "actors/kvevents/apply.h"
#include "actors/kvevents/orphans.h"
#include "actors/kvevents/tap.h"
#include "proto/kv_events.h"
#include "shm/reverse.h"

#define APPLY_TIERS 2u                  /* enum index_tier */
#define APPLY_ALL_TIERS ((1u << APPLY_TIERS) - 1)
#define APPLY_CHAINS 32u                /* prompts of a row that are looked for at once */
#define APPLY_CHAIN_NS 30000000000ull   /* and how long */

/* Test builds define it: the writer is stopped before each store into a row's lines. */
#ifndef APPLY_STORE_POINT
#define APPLY_STORE_POINT() ((void)0)
#endif

struct apply_tier {
	struct reverse *fresh;                  /* of the exact slot; NULL: no slot */
	struct reverse *demoted;                /* of the demoted one; NULL: none, or lost */
};

struct apply_row {
	uint16_t id;
	uint32_t row_gen;
	bool events;
	char model[ROW_URL_MAX];                /* root of its chains */
	struct row *shared;                     /* lines 5 - 7 are ours; slot ids live there only */
	struct apply_tier tier[APPLY_TIERS];
	struct orphans *orphans;
	uint32_t block_tokens;                  /* of its events; 0: none yet */
	uint32_t group;
	bool group_known, group_full;           /* full: it said so itself */
	bool started;                           /* last_seq holds: of the last batch applied */
	bool heard;                             /* live_seq holds: of the last one heard live */
	bool asleep;                            /* and was emptied for it */
	bool hole_counted;                      /* the hole of the next gap, when it was seen */
	uint64_t last_seq;
	uint64_t live_seq, live_payload;        /* XXH3 of the bytes; 0: a predecessor's */
	uint64_t *recent;                       /* XXH3 of the last batches; NULL: no replay yet */
	bool anew;                              /* a replay from 0 is being applied */
	uint32_t life;                          /* + 1 when it began anew */
	enum cache_reason replay_failed;        /* why the hole before the next batch stays */
	uint64_t publisher;                     /* XXH3 of its id; 0: never said */
	uint8_t holes;                          /* tiers in which it may hold what we do not know */
	enum cache_reason hole_reason;          /* why */
	size_t bytes;                           /* maps and orphans, as accounted last */
	wall_ns last_message;                   /* ours */
	wall_ns began;                          /* its events first showed the engine's life */
	bool began_told;                        /* ... by what only a new one says */
	mono_ns rotate_at;
	bool alarmed, silence_told, rank_told, size_told;
	bool own_heard;                         /* its own endpoint gave batches of its rank */
	uint16_t feeder;                        /* whose endpoint does instead; ROW_NONE: none */
	struct {
		uint32_t rank, row_gen;
		uint16_t id;                    /* ROW_NONE: not looked for yet */
	} sibling;                              /* the row of a rank that its endpoint speaks for */
	int64_t rate_left;                      /* blocks it may store before the next refill */
	uint64_t trouble_count[TROUBLES];
	mono_ns trouble_since[TROUBLES];        /* where the count is not 0 */
	uint64_t tap_trouble, tap_count;        /* trouble, trouble_count before this event */
	uint64_t sent;                          /* notes of what was sent there */
	mono_ns sent_since;                     /* where sent is not 0 */
	struct {
		uint64_t hash;                  /* of its last whole block */
		mono_ns sent;
	} chain[APPLY_CHAINS];                  /* prompts looked for in its events */
	unsigned n_chains;
	mono_ns chains_at;                      /* the next look */
	mono_ns told_ns;                        /* when the lines of this second began */
	uint32_t told, untold;                  /* lines of it written and not */
};

struct apply_work {                     /* a block whose orphaned children may follow */
	uint64_t hash, chain;
};

struct apply {
	struct index_writer *w;                 /* borrowed */
	struct rows *rows;                      /* borrowed */
	struct process_segment *process;        /* borrowed */
	struct tap *tap;                        /* borrowed; NULL: nobody can look on */
	uint64_t seed;
	struct apply_row **row;                 /* owned; by row id */
	struct kv_batch batch;
	uint64_t *chain;                        /* scratch: one event */
	size_t cap_chain;
	struct apply_work *work;                /* scratch: linking */
	size_t cap_work;
	uint64_t evictions_seen;
	mono_ns now;                            /* as told last */
	size_t limit;                           /* of private bytes */
	uint64_t rate;                          /* blocks a second and row; 0: any */
	uint64_t share;                         /* blocks a row may hold */
	size_t bytes;                           /* of all rows */
	size_t fixed;                           /* of the writer's, without lists */
	uint32_t n_rows;                        /* open */
	mono_ns refused_told;                   /* when the last line about refusals was written */
	uint64_t refused_untold;                /* blocks since */
};

/* ---- slots of a row (apply_slots.c) ---- */
uint16_t row_slot(const struct apply_row *r, enum index_role role, enum index_tier tier);
uint16_t row_slot_older(const struct apply_row *r);     /* the older speculative one */
uint16_t row_slot_exact(struct apply *a, struct apply_row *r, enum index_tier tier);
uint16_t row_slot_speculative(struct apply *a, struct apply_row *r);
	/* Taken if need be; 0: there is none, told and counted. */
void row_retire_tier(struct apply *a, struct apply_row *r, enum index_tier tier);
	/* Exact and demoted. */
void row_retire_demoted(struct apply *a, struct apply_row *r, enum index_tier tier);
void row_retire_speculative(struct apply *a, struct apply_row *r);
void row_retire_all(struct apply *a, struct apply_row *r);      /* and its orphans */
void row_demote(struct apply *a, struct apply_row *r);
	/* A gap: exact slots become demoted ones for a lease; orphans go. */
void row_age(struct apply *a, struct apply_row *r);
	/* A tier of which no removal was ever heard: what it stored long ago becomes probable, and
	 * a lease later nothing, unless it is stored again. */
void row_leases_resume(struct apply *a, struct apply_row *r);
	/* Ends of leases as a predecessor noted them in the slots. */
void row_rotate(struct apply *a, struct apply_row *r);
void row_expire(struct apply *a, struct apply_row *r);
mono_ns row_lease(const struct apply_row *r);
void slots_settle(struct apply *a);     /* rule 11, once at birth */

/* ---- prompts in its events (apply_chains.c) ---- */
void row_chain_sent(struct apply *a, struct apply_row *r, uint64_t last);
	/* A prompt whose last whole block is that; one in some is looked for. */
void row_chains_look(struct apply *a, struct apply_row *r);     /* each tick */

/* ---- private memory (apply_budget.c) ---- */
void budget_begin(struct apply *a);
size_t budget_default(const struct index_header *head);
size_t budget_used(const struct apply *a);
bool budget_allows(const struct apply *a, const struct apply_row *r, size_t more);
void budget_account(struct apply *a, struct apply_row *r);
	/* After maps or orphans of the row grew or went. */
void budget_refused(struct apply *a, struct apply_row *r, enum counter why, size_t blocks);
	/* Counts; a line a second at most. */
void budget_refill(struct apply *a, struct apply_row *r, mono_ns since);
	/* At each tick: what the row may store until the next. */
bool row_rate_allows(struct apply *a, struct apply_row *r, size_t blocks);
	/* And takes them; told and counted if not. */
bool row_share_allows(struct apply *a, struct apply_row *r);
	/* One block more; told and counted if not. */
bool row_put(struct apply *a, struct apply_row *r, uint16_t unless, uint16_t id, uint64_t hash,
	     const uint16_t *instead, unsigned n_instead);
	/* index_put_unless within the budget. */

/* ---- for whoever looks on (apply_tap.c) ---- */
void row_tap(struct apply *a, const struct apply_row *r, const struct kv_event *ev,
	     enum tap_outcome outcome, const char *reason);
	/* After the event; NULL: about the whole batch.  reason: NULL: the trouble it met since
	 * row_tap_look, if any. */

static inline void
row_tap_look(const struct apply *a, struct apply_row *r)
{
	if (!a->tap || a->tap->n == 0)
		return;
	r->tap_trouble = atomic_load_explicit(&r->shared->trouble, memory_order_relaxed);
	r->tap_count = atomic_load_explicit(&r->shared->trouble_count, memory_order_relaxed);
}

/* ---- ranks (apply_ranks.c) ---- */
struct apply_row *ranks_row(struct apply *a, struct apply_row *r);
	/* Whose the batch is that was just read from r's endpoint; NULL: nobody's, told. */
void ranks_feed_end(struct apply *a, uint16_t id);
	/* The endpoint of this row speaks for no other rank any more. */

/* ---- sequence (apply.c, apply_replay.c) ---- */
#define ROW_RECENT 2048u        /* batches: more than wait on a live wire during a replay */
void row_state_set(struct apply *a, struct apply_row *r, enum cache_state state,
		   enum cache_reason reason);
bool row_doubtful(const struct apply_row *r);
	/* It may hold what we do not know, in a tier that is in use. */
void row_gap(struct apply *a, struct apply_row *r, enum cache_reason reason);
void row_hole_count(struct apply *a, struct apply_row *r);
void row_remember(struct apply_row *r, uint64_t seq, uint64_t payload);
bool row_replayed(const struct apply_row *r, uint64_t seq, uint64_t payload);
	/* That very batch was applied: what the live wire says again. */

/* ---- lines of a row (apply.c) ---- */
void row_moved(struct apply *a, struct apply_row *r);
	/* Its events come from elsewhere from now on: they may have another history. */
enum cache_state row_state_of(const struct apply_row *r);
bool row_may_tell(struct apply *a, struct apply_row *r);
	/* Ask before each line that a message can cause: an engine gone mad sends thousands a
	 * second. */

/* ---- why not (apply_trouble.c) ---- */
void row_trouble(struct apply_row *r, enum event_trouble kind, uint64_t number, uint64_t n);
	/* n of the kind's unit came to nothing, or less. */
void row_alarm(struct apply *a, struct apply_row *r);
	/* After a message: many were received and nothing of them was applied.  Once. */
void row_silence(struct apply *a, struct apply_row *r);
	/* Each tick: prompts were sent there, and no event ever came.  Once. */

/* ---- events (apply_events.c) ---- */
bool row_apply_event(struct apply *a, struct apply_row *r, const struct kv_event *ev);
	/* True: something of it counted. */

static inline struct apply_row *
row_at(const struct apply *a, uint16_t row)     /* NULL: not open */
{
	return row < a->rows->capacity ? a->row[row] : NULL;
}

/* Every store into lines 5 - 7 that a successor draws conclusions from. */
static inline void
row_store(_Atomic uint64_t *at, uint64_t value)
{
	APPLY_STORE_POINT();
	atomic_store_explicit(at, value, memory_order_relaxed);
}

static inline void
row_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}
