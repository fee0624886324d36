/* actors/common/decide/rules.c -- rules over candidates; what they mean is in rules.h. */
#include "actors/common/decide/rules.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/decide/expression.h"

#define DRAWS 16u                       /* entries of a split that are drawn, at most */

_Static_assert(REMOVAL_RULES_EACH >= MANIFEST_RULES_MAX, "each rule has a number");
_Static_assert(RULES_CHAIN == MANIFEST_FALLBACKS_MAX + 1, "a policy, and those behind it");
_Static_assert((int)CHOOSE_PREDICTED_TTFT == (int)MANIFEST_MINIMIZE_PREDICTED_TTFT &&
		       (int)CHOOSE_RANDOM == (int)MANIFEST_MINIMIZE_RANDOM &&
		       (int)CHOOSE_ROUND_ROBIN == (int)MANIFEST_MINIMIZE_ROUND_ROBIN &&
		       (int)CHOOSE_LEAST_PREFILL == (int)MANIFEST_MINIMIZE_LEAST_PREFILL &&
		       (int)CHOOSE_LEAST_REQUESTS == (int)MANIFEST_MINIMIZE_LEAST_REQUESTS &&
		       (int)CHOOSE_COST == (int)MANIFEST_MINIMIZE_COST &&
		       (int)CHOOSE_WAITING == (int)MANIFEST_MINIMIZE_WAITING &&
		       (int)CHOOSE_LMETRIC == (int)MANIFEST_MINIMIZE_LMETRIC &&
		       (int)CHOOSE_POWER_OF_TWO == (int)MANIFEST_MINIMIZE_POWER_OF_TWO &&
		       (int)CHOOSE_SESSION_HASH == (int)MANIFEST_MINIMIZE_SESSION_HASH &&
		       (int)CHOOSE_EXPRESSION == (int)MANIFEST_MINIMIZE_EXPRESSION,
	       "one order of objectives");

const char *
rules_outcome_name(unsigned outcome)
{
	static const char *const names[RULES_OUTCOMES] = {
		[0] = "unknown",
		[RULES_DID] = "applied",
		[RULES_DID_UNKNOWN] = "applied (when: unknown)",
		[RULES_NOT] = "does not apply",
		[RULES_SKIPPED] = "skipped",
		[RULES_LEFT_NONE] = "left nobody",
	};

	return names[outcome < RULES_OUTCOMES ? outcome : 0];
}

/* One policy's rules under way. */
struct run {
	struct rules_input *in;
	struct rules_result *out;
	const struct manifest_policy *policy;
	uint8_t place;                  /* of the policy, in the chain */
	uint32_t fit;                   /* candidates that are left and fit */
	uint8_t last_policy, last_rule; /* the one that took the last of them away */
	bool moment;                    /* somebody was taken away for what may be otherwise soon */
	struct facts facts;
};

static enum expression_truth
test(struct run *run, const struct manifest_expression *e, uint32_t i)
{
	run->facts.candidate = &run->in->facts[i];
	return expression_test(e->program, &run->facts);
}

static bool
is_fit(const struct choose_candidate *c)
{
	return c->removed_by == REMOVAL_NONE;
}

/* Not fit, but it may be another time. */
static bool
may_be(const struct choose_candidate *c)
{
	return !removal_by_rule(c->removed_by) && c->removed_by != REMOVAL_PINNED;
}

static void
note(struct run *run, unsigned rule, enum rules_outcome outcome, uint32_t removed)
{
	if (run->out->n_notes < RULES_NOTES)
		run->out->note[run->out->n_notes++] = (struct rules_note){
			.policy = run->place,
			.rule = (uint8_t)rule,
			.outcome = (uint8_t)outcome,
			.removed = (uint16_t)removed,
		};
}

/* ---- keep, remove ---- */

static bool
taken_away(struct run *run, const struct manifest_rule *rule, uint32_t i)
{
	if (rule->keep.text && test(run, &rule->keep, i) != EXPRESSION_YES)
		return true;
	return rule->remove.text && test(run, &rule->remove, i) != EXPRESSION_NO;
}

/* Whatever else happens, it would be taken away the next time as well. */
static bool
is_lasting(const struct manifest_rule *rule)
{
	uint64_t reads = 0;

	if (rule->when.text)
		reads |= expression_reads(rule->when.program);
	if (rule->keep.text)
		reads |= expression_reads(rule->keep.program);
	if (rule->remove.text)
		reads |= expression_reads(rule->remove.program);
	return (reads & facts_of(FACTS_POOL | FACTS_DYNAMIC)) == 0;
}

static void
reject(struct run *run, unsigned rule, bool lasting)
{
	run->out->verdict = RULES_REJECT;
	run->out->policy = run->place;
	run->out->rule = (uint8_t)rule;
	run->out->lasting = lasting;
}

struct taken {
	uint32_t fit;                   /* candidates that were fit */
	bool any;                       /* or not */
	bool left;                      /* somebody is, fit or not */
};

/* Marks whom the rule takes away; who is not fit is asked about where `all`. */
static struct taken
mark(struct run *run, const struct manifest_rule *rule, uint16_t by, bool all)
{
	const struct choose_input *choose = &run->in->choose;
	struct taken t = {0};

	for (uint32_t i = 0; i < choose->n; i++) {
		struct choose_candidate *c = &choose->candidate[i];
		bool fit = is_fit(c);

		if (!fit && !(all && may_be(c)))
			continue;
		if (!taken_away(run, rule, i)) {
			t.left = true;
			continue;
		}
		t.any = true;
		t.fit += fit;
		c->removed_by = by;
	}
	return t;
}

static void
unmark(struct run *run, uint16_t by)
{
	const struct choose_input *choose = &run->in->choose;

	for (uint32_t i = 0; i < choose->n; i++)
		if (choose->candidate[i].removed_by == by)
			choose->candidate[i].removed_by = REMOVAL_NONE;
}

/* keep and remove: how many fit ones went; -1: the verdict is there. */
static int
narrow(struct run *run, unsigned number, const struct manifest_rule *rule,
       enum rules_outcome *outcome)
{
	uint16_t by = removal_rule(run->place, number);
	bool strict = rule->on_empty == MANIFEST_RULE_REJECT;
	struct taken t = mark(run, rule, by, strict);

	if (!strict && t.any && !t.left) {
		unmark(run, by);        /* they were all fit */
		if (rule->on_empty == MANIFEST_RULE_SKIP) {
			*outcome = RULES_SKIPPED;
			return 0;
		}
		*outcome = RULES_LEFT_NONE;
		reject(run, number, false);
		run->out->would_wait = run->in->waited;
		if (!run->in->waited) {
			run->out->verdict = RULES_WAIT;
			run->out->up_to_ns = rule->up_to_ns;
		}
		return -1;
	}
	run->fit -= t.fit;
	if (t.fit > 0 && run->fit == 0) {
		run->last_policy = run->place;
		run->last_rule = (uint8_t)number;
	}
	if (t.any)
		run->moment |= !is_lasting(rule);
	if (strict && t.any && !t.left) {
		*outcome = RULES_LEFT_NONE;
		reject(run, number, !run->moment);
		return -1;
	}
	return (int)t.fit;
}

/* ---- keepFirst, prefer ---- */

/* How many went. */
static uint32_t
keep_first(struct run *run, unsigned number, const struct manifest_rule *rule)
{
	const struct choose_input *choose = &run->in->choose;
	uint32_t passed = 0, went;

	for (uint32_t k = 0; k < rule->n_keep_first && passed == 0; k++)
		for (uint32_t i = 0; i < choose->n; i++) {
			struct choose_candidate *c = &choose->candidate[i];

			c->running = is_fit(c) &&
				test(run, &rule->keep_first[k], i) == EXPRESSION_YES;
			passed += c->running;
		}
	if (passed == 0)
		return 0;
	for (uint32_t i = 0; i < choose->n; i++) {
		struct choose_candidate *c = &choose->candidate[i];

		if (is_fit(c) && !c->running)
			c->removed_by = removal_rule(run->place, number);
	}
	went = run->fit - passed;
	run->fit = passed;
	run->moment |= went > 0;
	return went;
}

static void
prefer(struct run *run, const struct manifest_rule *rule)
{
	const struct choose_input *choose = &run->in->choose;
	double *to = &run->in->prefer[(size_t)run->out->n_prefer++ * choose->n];
	bool number = expression_is_number(rule->prefer.program);

	for (uint32_t i = 0; i < choose->n; i++) {
		run->facts.candidate = &run->in->facts[i];
		if (is_fit(&choose->candidate[i]))
			to[i] = expression_number(rule->prefer.program, &run->facts) *
				(number ? 1 : -1);
		else
			to[i] = 0;
	}
}

/* ---- rules ---- */

/* False: the verdict is there. */
static bool
one(struct run *run, unsigned number, const struct manifest_rule *rule, bool bound)
{
	enum rules_outcome outcome = RULES_DID;
	uint32_t removed = 0;

	if (rule->when.text) {
		run->facts.candidate = NULL;
		switch (expression_test(rule->when.program, &run->facts)) {
		case EXPRESSION_NO:
			note(run, number, RULES_NOT, 0);
			return true;
		case EXPRESSION_UNKNOWN:
			outcome = RULES_DID_UNKNOWN;
			break;
		case EXPRESSION_YES:
			break;
		}
	}
	if (rule->keep.text || rule->remove.text) {
		int went = narrow(run, number, rule, &outcome);

		if (went < 0) {
			note(run, number, outcome, 0);
			return false;
		}
		removed = (uint32_t)went;
	}
	if (!bound && rule->n_keep_first > 0)
		removed += keep_first(run, number, rule);
	if (!bound && rule->prefer.text)
		prefer(run, rule);
	note(run, number, outcome, removed);
	return true;
}

/* bound: only what binds those that are fallen back to. */
static bool
rules(struct run *run, bool bound)
{
	for (unsigned k = 0; k < run->policy->n_rules; k++) {
		const struct manifest_rule *rule = &run->policy->rules[k];

		if (bound && (rule->on_empty != MANIFEST_RULE_REJECT ||
			      (!rule->keep.text && !rule->remove.text)))
			continue;
		if (!one(run, k, rule, bound))
			return false;
	}
	return true;
}

/* ---- split, objective, the end ---- */

static uint64_t
split_key(const struct rules_input *in, const struct manifest_policy *policy)
{
	uint64_t key = policy->split == MANIFEST_SPLIT_SESSION ? in->keys.session :
		policy->split == MANIFEST_SPLIT_USER           ? in->keys.user :
		policy->split == MANIFEST_SPLIT_TENANT         ? in->keys.tenant : 0;

	return (key != 0 ? key : in->choose.seed) ^
	       XXH3_64bits(policy->name, strlen(policy->name));
}

static bool
somebody_of(const struct rules_input *in, uint32_t entry)
{
	for (uint32_t i = 0; i < in->choose.n; i++)
		if (in->entry[i] == entry && is_fit(&in->choose.candidate[i]))
			return true;
	return false;
}

/* Entries are drawn one after another, whoever is fit, until one is found that has somebody; who is
 * of none of these comes after them. */
static void
split(const struct rules_input *in, const struct manifest_policy *policy)
{
	uint64_t key = split_key(in, policy), total = 0;
	uint64_t drawn[MANIFEST_CANDIDATES_MAX / 64] = {0};

	for (uint32_t k = 0; k < policy->n_candidates; k++)
		total += policy->candidates[k].weight;
	for (uint32_t i = 0; i < in->choose.n; i++)
		in->choose.candidate[i].tier = DRAWS;
	for (uint16_t draw = 0; draw < DRAWS && total > 0; draw++) {
		uint64_t word = choose_mixed(key + draw);
		uint64_t point = (uint64_t)((unsigned __int128)word * total >> 64);
		uint32_t k = 0;

		for (;; k++) {          /* point < total: it is found */
			uint32_t weight = policy->candidates[k].weight;

			if (drawn[k / 64] >> (k % 64) & 1)
				continue;
			if (point < weight)
				break;
			point -= weight;
		}
		drawn[k / 64] |= 1ull << (k % 64);
		total -= policy->candidates[k].weight;
		for (uint32_t i = 0; i < in->choose.n; i++)
			if (in->entry[i] == k)
				in->choose.candidate[i].tier = draw;
		if (somebody_of(in, k))
			return;
	}
}

static void
objective(struct run *run)
{
	struct choose_input *choose = &run->in->choose;

	choose->objective = (enum choose_objective)run->policy->minimize;
	choose->affinity = run->policy->affinity != MANIFEST_AFFINITY_NONE;
	choose->session = run->in->keys.session;
	choose->prefer = run->in->prefer;
	choose->n_prefer = run->out->n_prefer;
	for (uint32_t i = 0; i < choose->n; i++) {
		const struct facts_candidate *f = &run->in->facts[i];
		struct choose_candidate *c = &choose->candidate[i];

		c->tier = 0;
		if (!is_fit(c))
			continue;
		if (choose->objective == CHOOSE_COST)
			c->value = f->cost;
		else if (choose->objective == CHOOSE_WAITING)
			c->value = f->waiting == FACTS_INT_UNKNOWN ? NAN : (double)f->waiting;
		else if (choose->objective == CHOOSE_EXPRESSION) {
			run->facts.candidate = f;
			c->value = expression_number(run->policy->objective.program, &run->facts);
		}
	}
	if (run->policy->weighted)
		split(run->in, run->policy);
}

/* Nobody is left, and no rule had the say on that. */
static void
empty(struct run *run)
{
	const struct manifest_policy *policy = run->policy;
	enum manifest_on_empty then = policy->on_empty;

	reject(run, run->last_rule, false);
	run->out->policy = run->last_policy;
	if (then == MANIFEST_ON_EMPTY_WAIT && !run->in->waited) {
		run->out->verdict = RULES_WAIT;
		run->out->up_to_ns = policy->up_to_ns;
		return;
	}
	if (then == MANIFEST_ON_EMPTY_WAIT) {
		run->out->would_wait = true;
		then = policy->then;
	}
	if (then == MANIFEST_ON_EMPTY_FALLBACK && run->in->n_chain < RULES_CHAIN) {
		run->out->verdict = RULES_FALLBACK;
		run->out->fallback = policy->fallback;
	}
}

void
rules_apply(struct rules_input *in, struct rules_result *ret)
{
	struct run run = {
		.in = in,
		.out = ret,
		.last_rule = RULES_NOBODY,
		.facts = {
			.request = in->request,
			.pools = in->pools,
			.n_pools = in->pools ? in->manifest->n_pools : 0,
		},
	};

	ret->verdict = RULES_CHOOSE;
	ret->policy = 0;
	ret->rule = RULES_NOBODY;
	ret->would_wait = ret->lasting = false;
	ret->up_to_ns = 0;
	ret->fallback = MANIFEST_NONE;
	ret->n_notes = ret->n_prefer = 0;
	run.fit = choose_unfit(&in->choose);
	for (uint32_t p = 0; p < in->n_chain; p++) {
		run.policy = &in->manifest->policies[in->chain[p]];
		run.place = (uint8_t)p;
		if (!rules(&run, p + 1 < in->n_chain))
			return;
	}
	if (run.fit == 0)
		empty(&run);
	else
		objective(&run);
}

/* ---- what is looked at ---- */

uint32_t
rules_prefers(const struct manifest_policy *policy)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < policy->n_rules; k++)
		n += policy->rules[k].prefer.text != NULL;
	return n;
}

static uint64_t
reads_of(const struct manifest_expression *e)
{
	return e->text ? expression_reads(e->program) : 0;
}

uint64_t
rules_reads(const struct manifest_policy *policy)
{
	uint64_t reads = reads_of(&policy->objective);

	for (uint32_t k = 0; k < policy->n_rules; k++) {
		const struct manifest_rule *rule = &policy->rules[k];

		reads |= reads_of(&rule->when) | reads_of(&rule->keep) |
			 reads_of(&rule->remove) | reads_of(&rule->prefer);
		for (uint32_t j = 0; j < rule->n_keep_first; j++)
			reads |= reads_of(&rule->keep_first[j]);
	}
	return reads;
}

const char *
rules_name(const struct rules_input *input, unsigned policy, unsigned rule)
{
	const struct manifest_policy *p;

	if (policy >= input->n_chain)
		return "";
	p = &input->manifest->policies[input->chain[policy]];
	return rule < p->n_rules ? p->rules[rule].name : "";
}
