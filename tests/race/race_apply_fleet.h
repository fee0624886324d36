/* tests/race/race_apply_fleet.h -- engines whose cache is known, and the apply that hears them.
 *
 * A fleet of model engines stores, removes and clears blocks in two tiers, restarts, loses batches
 * and says some that nobody can read; prompts are routed to it.  Beside what each engine holds
 * ("truth") the model keeps what apply must have understood of it ("known": counts from the last
 * point on at which something was missed, never below zero), so that at rest the index can be
 * compared with it exactly, and at any other moment judged by what it may say.
 *
 * Sides      The model of a row has two sides; the next one is made whole, then shown by one store
 *            of `at`.  Whoever dies leaves the last whole one.
 * Before and after   While a batch is applied the side shown allows what was there before, what is
 *            there after, and all between; `pending` says which batch it is.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/kvevents/apply.h"
#include "shm/index.h"
#include "tests/random.h"

#define FLEET_ROWS      6u
#define FLEET_PROMPTS   12u
#define FLEET_DEPTH     12u             /* blocks of a prompt; pairs share the first half */
#define FLEET_NODES     (FLEET_PROMPTS * FLEET_DEPTH)
#define FLEET_BLOCK     4u              /* tokens */
#define FLEET_TIERS     2u
#define FLEET_EVENTS    4u

enum fleet_op { FLEET_STORE, FLEET_REMOVE, FLEET_CLEAR, FLEET_BROKEN };
enum fleet_tier { FLEET_GPU, FLEET_OFFLOAD };

struct fleet_event {
	uint8_t op, tier, prompt, from, n;
	uint8_t bare;                           /* a store without tokens */
};

struct fleet_batch {
	uint64_t seq;
	uint32_t life;                          /* of the engine; differs from before: restarted */
	uint8_t n, told;                        /* told: its start time was seen before */
	uint8_t duplicate, lost;
	struct fleet_event event[FLEET_EVENTS];
};

enum { FLEET_MAY_GPU = 1, FLEET_MAY_OFFLOAD = 2, FLEET_MAY_ANY = 4 };

struct fleet_side {                     /* of one row */
	uint64_t seq;                           /* the engine's next */
	uint32_t life;
	bool hole;                              /* a batch was lost since the last one heard */
	bool in_step;                           /* all was heard since its life began */
	uint16_t truth[FLEET_TIERS][FLEET_NODES], known[FLEET_TIERS][FLEET_NODES];
	uint8_t demoted[FLEET_TIERS][FLEET_NODES], routed[FLEET_NODES]; /* may be there */
	uint8_t may[FLEET_NODES];               /* what a reader may be told */
};

struct fleet_row {
	_Atomic uint64_t at;                    /* publications; the low bit is the side */
	struct fleet_side side[2];
	_Atomic uint64_t pending;               /* the `at` while `batch` is being applied */
	struct fleet_batch batch;
};

struct fleet_shared {                   /* survives everybody */
	struct fleet_row row[FLEET_ROWS];
	mono_ns now;                            /* the fleet's clock */
	uint64_t start;                         /* newest start time of any engine */
	uint8_t half[FLEET_ROWS];               /* the last writer died within a batch of it */
	_Atomic uint64_t batches;               /* by the writer at work */
	_Atomic uint64_t exact_checks, rest_checks, depth_seen;
	_Atomic uint64_t wrong;                 /* anything that is not as it must be */
	char why[200];                          /* the first such thing */
};

struct fleet {                          /* process-local */
	struct fleet_shared *shared;            /* borrowed */
	struct rows *rows;                      /* borrowed */
	struct process_segment *process;        /* borrowed */
	uint64_t seed, random;
	uint64_t hash[FLEET_NODES];             /* our chained hashes */
	struct index *reader;                   /* owned once born */
	struct index_writer *writer;
	struct apply *apply;
};

unsigned fleet_node(unsigned prompt, unsigned block);
bool fleet_serves(unsigned row, unsigned prompt);
	/* Only such prompts ever reach that row. */

int fleet_segments(struct rows *rows, struct segment *index, struct process_segment *process,
		   uint32_t max_slots);
void fleet_begin(struct fleet *f, struct fleet_shared *shared, struct rows *rows,
		 struct process_segment *process, uint64_t hash_seed, bool fresh);
	/* fresh: the shared model begins. */
int fleet_born(struct fleet *f, const struct segment *index);
	/* A writer: opens the segments, settles what its predecessor left, and the model too. */
void fleet_dies(struct fleet *f);

void fleet_draw(struct fleet *f, unsigned row, struct fleet_batch *ret);
	/* What that engine does next. */
void fleet_deliver(struct fleet *f, unsigned row, const struct fleet_batch *b);
	/* The engine does it, and apply hears of it unless it is lost. */
void fleet_note(struct fleet *f, unsigned row, unsigned prompt, unsigned blocks);
void fleet_tick(struct fleet *f, mono_ns by);
void fleet_step(struct fleet *f);               /* any of these */
void fleet_reaped(struct fleet_shared *shared, const struct rows *rows);
	/* Its writer is dead: what its engines did meanwhile they did. */

bool fleet_check_rest(struct fleet *f);
	/* Nobody writes: depths are the model's, and a row said to be exact is known whole. */
bool fleet_judge(const struct fleet *f, struct index *index, unsigned prompt, uint64_t *skipped);
	/* One lookup at any time. */
void fleet_wrong(struct fleet_shared *shared, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
