/* actors/common/decide/choose.h -- rank the candidates of one decision.
 *
 * Question   Where first, and where next if that fails?
 * Order      grade (up, suspect, unproven, failed just now), then the objective's score, then the
 *            least recently picked, then the lowest row.  Under PredictedTTFT scores within
 *            CHOOSE_EPSILON_S of the best are a tie: else one worker of an idle fleet gets all.
 * Slow start a worker that is new among others has a handicap: what is in flight there counts
 *            1 + handicap times, by whatever objective that looks at load (Random and RoundRobin do
 *            not).  So it gets work at once while it is idle, but a queue only in the measure of
 *            its time in service (slow.h).
 * Inputs     all that counts; no clocks, no globals.  Random draws from `seed` alone.
 * Result     bit for bit the same for the same input (compiled with -ffp-contract=off).
 * Threads    pure: any.  Nothing blocks or allocates.  O(candidates x CHOOSE_RANKED).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "shm/rows.h"

#define CHOOSE_RANKED 4u                /* places an answer carries */
#define CHOOSE_EPSILON_S 0.001          /* predictions that differ by less are equal */

enum choose_objective {                 /* the order of manifest.h's enum manifest_minimize */
	CHOOSE_PREDICTED_TTFT,
	CHOOSE_RANDOM,
	CHOOSE_ROUND_ROBIN,
	CHOOSE_LEAST_PREFILL,           /* tokens ahead and own, whatever the worker's speed */
	CHOOSE_LEAST_REQUESTS,
	CHOOSE_OBJECTIVES
};

/* Why a candidate is no candidate; journal_candidate.removed_by. */
enum removal {
	REMOVAL_NONE = 0,               /* it stays */
	REMOVAL_ABSENT,                 /* no such row in the worker table (yet, or any more) */
	REMOVAL_DRAINING,               /* takes no new requests */
	REMOVAL_DOWN,                   /* failed its health probes */
	REMOVAL_UNPROVEN,               /* never answered a probe, and somebody else has */
	REMOVAL_FAILED,                 /* the attempt before this question failed there */
	REMOVAL_PINNED,                 /* the request is about what another worker keeps */
	REMOVALS
};
const char *choose_removal_name(unsigned removal);      /* static; "unknown" */
const char *choose_objective_name(unsigned objective);  /* static, as in a manifest; "unknown" */

struct choose_candidate {
	uint16_t row;
	uint8_t state;                  /* enum row_state */
	uint8_t removed_by;             /* out: enum removal */
	bool failed;                    /* the attempt before failed there */
	uint32_t last_pick;             /* pick number of its newest choice, wrapping; 0 never */
	double ttft_s, load_s;          /* predicted; the part that is due to what is in flight */
	uint64_t prefill, ahead;        /* tokens: ahead and own uncached; ahead alone */
	uint32_t requests;              /* in flight there */
	float handicap;                 /* 0: none */
};

struct choose_input {
	struct choose_candidate *candidate;     /* removed_by is written */
	uint32_t n;
	enum choose_objective objective;
	uint64_t seed;
	bool pinned;                    /* row `pin` or nobody */
	uint16_t pin;
};

unsigned choose(const struct choose_input *input, uint32_t ret_order[CHOOSE_RANKED]);
	/* Subscripts of the ranked candidates, best first; returns how many, 0 when none is
	 * left. */
