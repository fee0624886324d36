/* actors/common/decide/choose.c -- the choice among candidates; order and ties are in choose.h. */
#include "actors/common/decide/choose.h"

const char *
choose_removal_name(unsigned removal)
{
	static const char *const names[REMOVALS] = {
		[REMOVAL_NONE] = "-", [REMOVAL_ABSENT] = "absent", [REMOVAL_DRAINING] = "draining",
		[REMOVAL_DOWN] = "down", [REMOVAL_UNPROVEN] = "unproven",
		[REMOVAL_FAILED] = "failed-attempt", [REMOVAL_PINNED] = "pinned-elsewhere",
	};

	return removal < REMOVALS ? names[removal] : "unknown";
}

const char *
choose_objective_name(unsigned objective)
{
	static const char *const names[CHOOSE_OBJECTIVES] = {
		[CHOOSE_PREDICTED_TTFT] = "PredictedTTFT", [CHOOSE_RANDOM] = "Random",
		[CHOOSE_ROUND_ROBIN] = "RoundRobin", [CHOOSE_LEAST_PREFILL] = "LeastPrefill",
		[CHOOSE_LEAST_REQUESTS] = "LeastRequests",
	};

	return objective < CHOOSE_OBJECTIVES ? names[objective] : "unknown";
}

/* splitmix64: any seed, also a small one, gives well mixed draws. */
static uint64_t
mixed(uint64_t x)
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

static double
score(const struct choose_input *input, const struct choose_candidate *c)
{
	double more = (double)c->handicap;

	switch (input->objective) {
	case CHOOSE_RANDOM:
		return (double)(mixed(input->seed ^ mixed(c->row)) >> 11);
	case CHOOSE_LEAST_PREFILL:
		return (double)c->prefill + more * (double)c->ahead;
	case CHOOSE_LEAST_REQUESTS:
		return (1 + more) * (double)c->requests;
	case CHOOSE_ROUND_ROBIN:
		return 0;
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

static void
remove_unfit(const struct choose_input *input)
{
	bool proven = false, other = false;

	for (uint32_t i = 0; i < input->n; i++) {
		struct choose_candidate *c = &input->candidate[i];

		c->removed_by = (uint8_t)removal_of(c);
		if (input->pinned && c->row != input->pin)
			c->removed_by = REMOVAL_PINNED;
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

unsigned
choose(const struct choose_input *input, uint32_t ret_order[CHOOSE_RANKED])
{
	double epsilon = input->objective == CHOOSE_PREDICTED_TTFT ? CHOOSE_EPSILON_S : 0;
	unsigned ranked = 0;

	remove_unfit(input);
	while (ranked < CHOOSE_RANKED) {
		unsigned best_grade = 0;
		double best = 0;
		bool any = false;
		uint32_t pick = 0;

		for (int pass = 0; pass < 2; pass++) {
			bool found = false;

			for (uint32_t i = 0; i < input->n; i++) {
				const struct choose_candidate *c = &input->candidate[i];
				bool taken = c->removed_by != REMOVAL_NONE;

				for (unsigned r = 0; r < ranked && !taken; r++)
					taken = ret_order[r] == i;
				if (taken)
					continue;
				double s = score(input, c);
				unsigned g = grade(c);

				if (pass == 0) {
					if (!any || g < best_grade ||
					    (g == best_grade && s < best)) {
						best_grade = g;
						best = s;
						any = true;
					}
				} else if (g == best_grade && s <= best + epsilon &&
					   (!found || picked_before(c, &input->candidate[pick]))) {
					pick = i;
					found = true;
				}
			}
			if (!any)
				return ranked;
		}
		ret_order[ranked++] = pick;
	}
	return ranked;
}
