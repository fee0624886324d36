/* actors/common/decide/rules.h -- an InferencePolicy's rules, over the candidates of one request.
 *
 * Question   Who may have this request, who rather, and what if nobody may?
 * In order   choose_unfit() first: who is down, draining or not there takes no part in what
 *            follows but where said.  Then the rules as they are written, each over what those
 *            before it left; then choose_rank() among who is left (choose.h).
 * A rule     `when` false: nothing.  keep and remove take candidates away; keepFirst takes those
 *            away that do not pass the first of its expressions that anybody passes; prefer orders.
 * Unknown    in `when` the rule applies, `keep` does not keep, `remove` removes; in keepFirst it
 *            does not pass; in prefer it comes last.
 * Nobody     left by a rule:
 *              Skip     is it without the rule.  Counted are the fit: a worker that is down is no
 *                       reason to keep to it.
 *              Wait     holds the request; and refuses it when it has waited (input->waited).
 *              Reject   refuses it, in this policy's words and by this rule's name.  Counted are
 *                       the unfit, too: while one that is down would pass, the request is not
 *                       refused by this rule, but finds nobody at the end.
 *            left at the end: the policy's onEmpty, reject, wait or fall back.
 * Bound      what keep and remove of a Reject rule take away is taken away in each policy that is
 *            fallen back to as well: these rules are run over its candidates before its own.  So
 *            is it in every retry: only who was ranked is retried, and a rank is good under the
 *            generation alone that made it (ingress/ask.h ask_list_valid()).
 * Split      a weighted policy draws one of its candidates' entries by a key; which would be next
 *            only counts where nobody of it is left.  The same key draws the same entry, whoever
 *            else asks, and however the workers change.
 * Result     a pure function of the input, bit for bit.   Threads  any.  Nothing blocks or
 *            allocates.   Cost  rules times candidates, some 15 ns each.
 */
#pragma once
#include "actors/common/decide/choose.h"
#include "actors/common/decide/facts.h"
#include "actors/common/decide/manifest.h"

#define RULES_CHAIN 4u                  /* a policy and those it falls back to, at most */
#define RULES_NOTES 64u
#define RULES_NOBODY UINT8_MAX          /* no rule */

enum rules_verdict { RULES_CHOOSE, RULES_REJECT, RULES_WAIT, RULES_FALLBACK };

/* What came of a rule; journal_rule.outcome. */
enum rules_outcome {
	RULES_DID = 1,                  /* applied */
	RULES_DID_UNKNOWN,              /* applied, since nobody knows whether `when` is so */
	RULES_NOT,                      /* `when` is not so */
	RULES_SKIPPED,                  /* would have left nobody */
	RULES_LEFT_NONE,                /* left nobody: the request waits, or is refused */
	RULES_OUTCOMES
};
const char *rules_outcome_name(unsigned outcome);       /* static; "unknown" */

struct rules_note {
	uint8_t policy, rule, outcome;  /* policy: place in the chain */
	uint16_t removed;               /* candidates */
};

struct rules_keys {                     /* hashes of what may be kept together; 0: it has none */
	uint64_t session, user, tenant;
};

struct rules_input {
	const struct manifest *manifest;
	const uint32_t *chain;          /* policies: the one that took the request, ..., this one */
	uint32_t n_chain;               /* 1 to RULES_CHAIN */
	const struct facts_request *request;
	const struct facts_pool *pools; /* the manifest's; NULL: nobody looked, all unknown */
	const struct facts_candidate *facts; /* choose.n, in the order of choose.candidate */
	const uint32_t *entry;          /* likewise: of the policy's candidates */
	struct choose_input choose;     /* candidates, seed, pin.  objective, session, affinity and
					 * prefer are set here */
	double *prefer;                 /* rules_prefers() * choose.n, to be filled */
	struct rules_keys keys;
	bool waited;                    /* it shall not wait any more */
};

struct rules_result {
	enum rules_verdict verdict;
	uint8_t policy, rule; /* REJECT, WAIT: whose doing; rule RULES_NOBODY: nobody's, they are
			       * all down or there is none */
	bool would_wait;      /* it would wait, but for input->waited */
	bool lasting;         /* REJECT: it will be the same while the documents are */
	uint64_t up_to_ns;    /* WAIT */
	uint32_t fallback;    /* FALLBACK: policy */
	uint32_t n_notes, n_prefer;
	struct rules_note note[RULES_NOTES];
};

void rules_apply(struct rules_input *input, struct rules_result *ret);
	/* CHOOSE: input->choose is ready for choose_rank(), and will rank somebody. */
uint32_t rules_prefers(const struct manifest_policy *policy);
	/* How many of its rules have `prefer`. */
uint64_t rules_reads(const struct manifest_policy *policy);
	/* Facts that its rules and its objective look at, 1ull << enum fact. */
const char *rules_name(const struct rules_input *input, unsigned policy, unsigned rule);
	/* As the manifest has it; "" of RULES_NOBODY. */
