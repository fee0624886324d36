/* actors/common/decide/choose.c -- the choice among candidates; order and ties are in choose.h. */
#include "actors/common/decide/choose.h"

#include <math.h>

const char *
choose_removal_name(unsigned removal)
{
	static const char *const names[REMOVALS] = {
		[REMOVAL_NONE] = "-", [REMOVAL_ABSENT] = "absent", [REMOVAL_DRAINING] = "draining",
		[REMOVAL_DOWN] = "down", [REMOVAL_UNPROVEN] = "unproven",
		[REMOVAL_FAILED] = "failed-attempt", [REMOVAL_PINNED] = "pinned-elsewhere",
		[REMOVAL_DISABLED] = "disabled",
	};

	if (removal_by_rule(removal))
		return "rule";
	return removal < REMOVALS ? names[removal] : "unknown";
}

const char *
choose_objective_name(unsigned objective)
{
	static const char *const names[CHOOSE_OBJECTIVES] = {
		[CHOOSE_PREDICTED_TTFT] = "PredictedTTFT", [CHOOSE_RANDOM] = "Random",
		[CHOOSE_ROUND_ROBIN] = "RoundRobin", [CHOOSE_LEAST_PREFILL] = "LeastPrefill",
		[CHOOSE_LEAST_REQUESTS] = "LeastRequests", [CHOOSE_COST] = "Cost",
		[CHOOSE_WAITING] = "Waiting", [CHOOSE_LMETRIC] = "LMetric",
		[CHOOSE_POWER_OF_TWO] = "PowerOfTwo", [CHOOSE_SESSION_HASH] = "SessionHash",
		[CHOOSE_EXPRESSION] = "expression",
	};

	return objective < CHOOSE_OBJECTIVES ? names[objective] : "unknown";
}

/* splitmix64 */
uint64_t
choose_mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* 0 is best.  A worker that just failed us is better than nobody. */
static unsigned
grade(const struct choose_candidate *c)
{
	if (c->failed)
		return 3;
	switch (c->state) {
	case ROW_UP:
		return 0;
	case ROW_SUSPECT:
		return 1;
	default:
		return 2;
	}
}

/* The least wins; 53 bits, so that it is exact as a double. */
static double
drawn(uint64_t key, uint64_t id)
{
	return (double)(choose_mixed(key ^ choose_mixed(id)) >> 11);
}

/* Where a session is at home: the same for as long as that candidate is there. */
static double
home(const struct choose_input *input, const struct choose_candidate *c)
{
	return drawn(input->session ? input->session : input->seed, c->id);
}

static double
score(const struct choose_input *input, const struct choose_candidate *c)
{
	double more = (double)c->handicap;

	switch (input->objective) {
	case CHOOSE_RANDOM:
	case CHOOSE_POWER_OF_TWO:       /* choose_rank() has drawn the two */
		return drawn(input->seed, c->row);
	case CHOOSE_LEAST_PREFILL:
		return (double)c->prefill + more * (double)c->ahead;
	case CHOOSE_LEAST_REQUESTS:
		return (1 + more) * (double)c->requests;
	case CHOOSE_LMETRIC:            /* + 1: else any number of requests beside no prefill */
		return ((double)c->prefill + more * (double)c->ahead + 1) *
		       ((1 + more) * (double)c->requests + 1);
	case CHOOSE_ROUND_ROBIN:
		return 0;
	case CHOOSE_SESSION_HASH:
		return home(input, c);
	case CHOOSE_COST:
	case CHOOSE_EXPRESSION:
		return c->value;
	case CHOOSE_WAITING:
		return (1 + more) * c->value;
	default:
		return c->ttft_s + more * c->load_s;
	}
}

static enum removal
removal_of(const struct choose_candidate *c)
{
	switch (c->state) {
	case ROW_ABSENT:
		return REMOVAL_ABSENT;
	case ROW_DRAINING:
		return REMOVAL_DRAINING;
	case ROW_DOWN:
		return REMOVAL_DOWN;
	case ROW_DISABLED:
		return REMOVAL_DISABLED;
	default:
		return REMOVAL_NONE;
	}
}

static bool
picked_before(const struct choose_candidate *a, const struct choose_candidate *b)
{
	if (a->last_pick == b->last_pick)
		return a->row < b->row;
	if (a->last_pick == 0 || b->last_pick == 0)
		return a->last_pick == 0;
	return (int32_t)(a->last_pick - b->last_pick) < 0;
}

uint32_t
choose_unfit(const struct choose_input *input)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < input->n; i++) {
		struct choose_candidate *c = &input->candidate[i];

		c->removed_by = (uint16_t)removal_of(c);
		if (input->pinned && c->row != input->pin)
			c->removed_by = REMOVAL_PINNED;
		left += c->removed_by == REMOVAL_NONE;
	}
	return left;
}

/* Whoever is only worse than others, where there are others. */
static void
remove_worse(const struct choose_input *input)
{
	bool proven = false, other = false;

	for (uint32_t i = 0; i < input->n; i++) {
		const struct choose_candidate *c = &input->candidate[i];

		if (c->removed_by != REMOVAL_NONE || c->failed)
			continue;
		other = true;
		proven |= c->state != ROW_UNPROVEN;
	}
	for (uint32_t i = 0; i < input->n; i++) {
		struct choose_candidate *c = &input->candidate[i];

		if (c->removed_by != REMOVAL_NONE)
			continue;
		if (c->failed && other)
			c->removed_by = REMOVAL_FAILED;
		else if (c->state == ROW_UNPROVEN && proven)
			c->removed_by = REMOVAL_UNPROVEN;
	}
}

/* ---- the order: each key leaves those that are best by it ---- */

enum key {
	KEY_CLASS,                      /* grade, then the split's draw */
	KEY_HOME,
	KEY_SCORE,
	KEY_TTFT,
	KEY_PREFER,                     /* and above */
};

static double
key_of(const struct choose_input *input, uint32_t i, unsigned key)
{
	const struct choose_candidate *c = &input->candidate[i];

	switch (key) {
	case KEY_CLASS:
		return (double)grade(c) * 65536.0 + (double)c->tier;
	case KEY_HOME:
		return home(input, c);
	case KEY_SCORE:
		return c->score;
	case KEY_TTFT:
		return c->ttft_s;
	default:
		return input->prefer[(size_t)(key - KEY_PREFER) * input->n + i];
	}
}

/* Of those in the running, the best and who is within `epsilon` of it stay; nobody is better than
 * unknown only where all are. */
static void
narrow(const struct choose_input *input, unsigned key, double epsilon)
{
	double best = INFINITY;

	for (uint32_t i = 0; i < input->n; i++)
		if (input->candidate[i].running) {
			double v = key_of(input, i, key);

			best = v < best ? v : best;
		}
	if (best == INFINITY)
		return;
	for (uint32_t i = 0; i < input->n; i++)
		if (input->candidate[i].running && !(key_of(input, i, key) <= best + epsilon))
			input->candidate[i].running = false;
}

/* Of those in the running, the two drawn first; of them the less busy. */
static void
narrow_to_two(const struct choose_input *input)
{
	double first = INFINITY, second = INFINITY, least = INFINITY;

	for (uint32_t i = 0; i < input->n; i++) {
		const struct choose_candidate *c = &input->candidate[i];

		if (!c->running)
			continue;
		if (c->score < first) {
			second = first;
			first = c->score;
		} else if (c->score < second) {
			second = c->score;
		}
	}
	for (uint32_t i = 0; i < input->n; i++) {
		struct choose_candidate *c = &input->candidate[i];
		double busy = (1 + (double)c->handicap) * (double)c->requests;

		c->running = c->running && c->score <= second;
		if (c->running && busy < least)
			least = busy;
	}
	for (uint32_t i = 0; i < input->n; i++) {
		struct choose_candidate *c = &input->candidate[i];

		if ((1 + (double)c->handicap) * (double)c->requests > least)
			c->running = false;
	}
}

static uint32_t
least_recent(const struct choose_input *input)
{
	uint32_t pick = input->n;

	for (uint32_t i = 0; i < input->n; i++)
		if (input->candidate[i].running &&
		    (pick == input->n ||
		     picked_before(&input->candidate[i], &input->candidate[pick])))
			pick = i;
	return pick;
}

unsigned
choose_rank(const struct choose_input *input, uint32_t ret_order[CHOOSE_RANKED])
{
	enum choose_objective by = input->objective;
	unsigned ranked = 0;

	remove_worse(input);
	for (uint32_t i = 0; i < input->n; i++)
		input->candidate[i].score = score(input, &input->candidate[i]);
	while (ranked < CHOOSE_RANKED) {
		uint32_t left = 0;

		for (uint32_t i = 0; i < input->n; i++) {
			struct choose_candidate *c = &input->candidate[i];

			c->running = c->removed_by == REMOVAL_NONE;
			for (unsigned r = 0; r < ranked; r++)
				c->running = c->running && ret_order[r] != i;
			left += c->running;
		}
		if (left == 0)
			break;
		narrow(input, KEY_CLASS, 0);
		for (uint32_t k = 0; k < input->n_prefer; k++)
			narrow(input, KEY_PREFER + k, 0);
		if (input->affinity && input->session != 0)
			narrow(input, KEY_HOME, 0);
		if (by == CHOOSE_POWER_OF_TWO && ranked == 0)
			narrow_to_two(input);
		else
			narrow(input, KEY_SCORE,
			       by == CHOOSE_PREDICTED_TTFT ? CHOOSE_EPSILON_S : 0);
		if (by == CHOOSE_COST || by == CHOOSE_WAITING)
			narrow(input, KEY_TTFT, CHOOSE_EPSILON_S);
		ret_order[ranked++] = least_recent(input);
	}
	return ranked;
}

unsigned
choose(const struct choose_input *input, uint32_t ret_order[CHOOSE_RANKED])
{
	choose_unfit(input);
	return choose_rank(input, ret_order);
}
