/* actors/policy/record.h -- a decision into the journal, with the inputs it was made from.
 *
 * Up to RECORD_CANDIDATES in full: the ranked ones first, in order, then the others in the policy's
 * order; behind them what came of each rule.  Stages are mono ns: asked, parsed, tokenized, hashed,
 * matched, predicted, chosen, sent; 0: not reached.
 * Ownership  one buffer, reused.   Threads  the journal's one writer.   Cost  1 us for 64
 *            candidates.
 */
#pragma once
#include <stdint.h>

#include "actors/common/decide/rules.h"
#include "actors/policy/gather.h"
#include "proto/messages.h"
#include "shm/journal.h"

#define RECORD_CANDIDATES 64u

struct record_input {
	uint64_t request_id, config_hash, seed;
	uint32_t policy_gen, policy_inc, ask;
	const struct msg_answer *answer; /* verdict, status, rule, tenant, priority, source */
	uint32_t prompt_tokens;                 /* 0 unknown */
	uint32_t max_tokens;                    /* all ones unknown */
	uint32_t exact_tokens;                  /* of the first prompt */
	uint8_t trust;                          /* enum trust_state; source NATIVE */
	const char *note;                       /* why no more is known; "" */
	uint8_t minimize;                       /* enum choose_objective */
	const char *model, *policy;
	struct gather *gather;                  /* NULL: there was no model, so no candidates */
	const struct rules_input *rules;        /* NULL with gather */
	const struct rules_result *ruled;
	const uint32_t *order;
	unsigned n_ranked;
	const uint64_t *stage_ns;               /* 8 */
};

struct record;
int record_new(struct record **ret);            /* 0, -ENOMEM */
void record_free(struct record **ret);
uint64_t record_decision(struct record *r, struct journal *journal,
			 const struct record_input *input);
	/* Position of the record + 1. */
