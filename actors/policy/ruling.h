/* actors/policy/ruling.h -- a policy's rules over what was gathered for one question.
 *
 * Meaning    makes the facts that rules read (facts.h) of the question, of gather's candidates and,
 *            where a rule looks at them, of the pools; and has rules.h run over them.
 * waiting    of a worker: ours without a first byte, less one that its engine is taken to be
 *            computing, and strangers' in its queue.  Unknown while its page is too old; of a
 *            provider ours alone.
 * cost       member_cost(): of a worker 0, of a provider its price of the whole prompt and of
 *            max_tokens, or of what an answer usually has; unknown without a price.
 * Ownership  buffers are the ruling's; facts are good until the next call.
 * Threads    one.   Cost: 30 ns a candidate besides its rules; 100 ns a worker of any pool where
 *            a rule looks at pools.
 */
#pragma once
#include "actors/common/decide/rules.h"
#include "actors/policy/gather.h"

struct ruling;
int ruling_new(struct ruling **ret, struct view *view); /* view borrowed.  0, -ENOMEM */
void ruling_free(struct ruling **ret);
int ruling_documents(struct ruling *r, const struct manifest *manifest);
	/* Have room for these besides those of the view.  0, -ENOMEM. */

struct ruling_question {
	const struct facts_request *request;
	const uint32_t *chain;          /* as in rules.h */
	uint32_t n_chain;
	struct rules_keys keys;
	uint64_t seed;
	bool pinned, waited;
	uint16_t pin;
	mono_ns now;
};

void ruling_apply(struct ruling *r, struct gather *g, const struct ruling_question *q,
		  struct rules_result *ret);
	/* After gather_candidates(). */
unsigned ruling_rank(struct ruling *r, uint32_t ret_order[CHOOSE_RANKED]);
	/* After a CHOOSE: as choose_rank(). */
const struct rules_input *ruling_input(const struct ruling *r);
	/* What the rules were run over, for the record. */
