/* actors/common/decide/choose.h -- rank the candidates of one decision.
 *
 * Question   Where first, and where next if that fails?
 * Order      grade (up, suspect, unproven, failed just now), then the split's draw, then what rules
 *            prefer, then the session's own place, then the objective's score, then the least
 *            recently picked, then the lowest row.  Under PredictedTTFT scores within
 *            CHOOSE_EPSILON_S of the best are a tie: else one worker of an idle fleet gets all.
 *            Cost and Waiting, which are often equal, take the shorter prediction among equals.
 * Slow start a worker that is new among others has a handicap: what is in flight there counts
 *            1 + handicap times, by whatever objective that looks at load (Random, RoundRobin,
 *            Cost, SessionHash and expressions do not).  So it gets work at once while it is idle,
 *            but a queue only in the measure of its time in service (slow.h).
 * Rules      come between choose_unfit() and choose_rank(): rules.h.
 * Inputs     all that counts; no clocks, no globals.  Random draws from `seed` alone.
 * Unknown    a score that is NaN comes behind every number.
 * Result     bit for bit the same for the same input (compiled with -ffp-contract=off).
 * Threads    pure: any.  Nothing blocks or allocates.  O(candidates x CHOOSE_RANKED).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "shm/rows.h"

#define CHOOSE_RANKED 4u                /* places an answer carries */
#define CHOOSE_EPSILON_S 0.001          /* predictions that differ by less are equal */

enum choose_objective {                 /* the order of manifest_policy.h's enum */
	CHOOSE_PREDICTED_TTFT,
	CHOOSE_RANDOM,
	CHOOSE_ROUND_ROBIN,
	CHOOSE_LEAST_PREFILL,           /* tokens ahead and own, whatever the worker's speed */
	CHOOSE_LEAST_REQUESTS,
	CHOOSE_COST,                    /* of this request */
	CHOOSE_WAITING,                 /* requests in the queue there */
	CHOOSE_LMETRIC,                 /* tokens ahead and own, times requests with ours */
	CHOOSE_POWER_OF_TWO,            /* two drawn; the one with fewer requests */
	CHOOSE_SESSION_HASH,            /* the session's own place, else drawn */
	CHOOSE_EXPRESSION,              /* `value`, the operator's own */
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
	REMOVAL_DISABLED,               /* by the operator (pointsctl provider disable) */
	REMOVALS,
	REMOVAL_RULES = 16,             /* and above: removal_rule() */
};
const char *choose_removal_name(unsigned removal);      /* static; "rule"; "unknown" */

#define REMOVAL_RULES_EACH 64u          /* rules of a policy, at most */

/* By that rule of that policy: 0 the one that took the request, 1 what it fell back to, ... */
static inline uint16_t
removal_rule(unsigned policy, unsigned rule)
{
	return (uint16_t)(REMOVAL_RULES + policy * REMOVAL_RULES_EACH + rule);
}
static inline bool removal_by_rule(unsigned removal) { return removal >= REMOVAL_RULES; }
const char *choose_objective_name(unsigned objective);  /* static, as in a manifest; "unknown" */

struct choose_candidate {
	uint64_t id;                    /* lasts across rows and restarts: what sessions hash to */
	uint16_t row;
	uint16_t removed_by;            /* out: enum removal, or removal_rule() */
	uint16_t tier;                  /* of a split: 0 was drawn, 1 would be next, ... */
	uint8_t state;                  /* enum row_state */
	bool failed;                    /* the attempt before failed there */
	uint32_t last_pick;             /* pick number of its newest choice, wrapping; 0 never */
	double ttft_s, load_s;          /* predicted; the part that is due to what is in flight */
	uint64_t prefill, ahead;        /* tokens: ahead and own uncached; ahead alone */
	uint32_t requests;              /* in flight there */
	float handicap;                 /* 0: none */
	double value;                   /* EXPRESSION, COST, WAITING: the score; NaN unknown */
	double score;                   /* out: by the objective */
	bool running;                   /* scratch of whoever goes through the list */
};

struct choose_input {
	struct choose_candidate *candidate;     /* removed_by is written */
	uint32_t n;
	enum choose_objective objective;
	uint64_t seed;
	uint64_t session;               /* hash of the session's key; 0: it has none */
	bool affinity;                  /* a session stays, whatever the objective says */
	const double *prefer;           /* n_prefer lists of n, first things first: less wins */
	uint32_t n_prefer;
	bool pinned;                    /* row `pin` or nobody */
	uint16_t pin;
};

uint32_t choose_unfit(const struct choose_input *input);
	/* Writes removed_by: what no rule can bring back (absent, draining, down, not the pin).
	 * How many stay. */
unsigned choose_rank(const struct choose_input *input, uint32_t ret_order[CHOOSE_RANKED]);
	/* Of those not removed, subscripts of the ranked, best first; returns how many, 0 when none
	 * is left.  Removes the unproven and the one that failed where there are others. */
unsigned choose(const struct choose_input *input, uint32_t ret_order[CHOOSE_RANKED]);
	/* Both, without rules. */
uint64_t choose_mixed(uint64_t x);
	/* Any number, also a small one, well mixed: for draws. */
