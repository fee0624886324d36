/* actors/kvevents/apply_row.h -- what apply keeps of one row; for actors/kvevents/apply*.c only. */
#pragma once
#include "actors/kvevents/apply.h"
#include "actors/kvevents/orphans.h"
#include "proto/kv_events.h"
#include "shm/reverse.h"

#define APPLY_TIERS 2u                  /* enum index_tier */

struct apply_tier {
	struct reverse *fresh;                  /* of the exact slot; NULL: no slot */
	struct reverse *demoted;                /* of the demoted one; NULL: none, or lost */
	mono_ns demoted_until;
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
	bool group_known;
	bool started;                           /* last_seq holds */
	uint64_t last_seq, last_payload;        /* XXH3 of the bytes; 0 unknown */
	wall_ns last_message;                   /* ours */
	wall_ns began;                          /* its events first showed the engine's life */
	mono_ns rotate_at;
	bool alarmed, rank_told, size_told;
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
	uint64_t seed;
	struct apply_row **row;                 /* owned; by row id */
	struct kv_batch batch;
	uint64_t *chain;                        /* scratch: one event */
	size_t cap_chain;
	struct apply_work *work;                /* scratch: linking */
	size_t cap_work;
	uint64_t evictions_seen;
};

/* ---- slots of a row (apply_slots.c) ---- */
uint16_t row_slot(const struct apply_row *r, enum index_role role, enum index_tier tier);
uint16_t row_slot_older(const struct apply_row *r);     /* the older speculative one */
uint16_t row_slot_exact(struct apply *a, struct apply_row *r, enum index_tier tier);
uint16_t row_slot_speculative(struct apply *a, struct apply_row *r);
	/* Taken if need be; 0: there is none. */
void row_retire_tier(struct apply *a, struct apply_row *r, enum index_tier tier);
	/* Exact and demoted. */
void row_retire_speculative(struct apply *a, struct apply_row *r);
void row_retire_all(struct apply *a, struct apply_row *r);      /* and its orphans */
void row_demote(struct apply *a, struct apply_row *r, mono_ns now);
	/* A gap: exact slots become demoted ones for a lease; orphans go. */
void row_rotate(struct apply *a, struct apply_row *r, mono_ns now);
void row_expire(struct apply *a, struct apply_row *r, mono_ns now);
mono_ns row_lease(const struct apply_row *r);
void slots_settle(struct apply *a);     /* rule 11, once at birth */

/* ---- lines of a row (apply.c) ---- */
bool row_may_tell(struct apply *a, struct apply_row *r);
	/* Ask before each line that a message can cause: an engine gone mad sends thousands a
	 * second. */

/* ---- events (apply_events.c) ---- */
bool row_apply_event(struct apply *a, struct apply_row *r, const struct kv_event *ev);
	/* True: something of it counted. */

static inline void
row_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}
