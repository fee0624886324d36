/* actors/policy/evaluate.h -- one question to one answer.
 *
 * Question   {ingress incarnation, slot, slot generation, ask}: the rest lies in the slot and
 *            arena.
 * Steps      is it still current - view of the body - model to policy - token ids - hashes - match
 *            - candidates - choice - answer, decision record, overlay.  Number and overlay entry
 *            are given within the call, so the caller must send the answer before it evaluates
 *            another.
 * Rules      rule.c; what policies mean is in common/decide/rules.h.  A policy may fall back to
 *            another, with other candidates: then match to candidates are done for these.
 * Tokens     tokens.h says from whom; EVALUATE_WAIT that they, or the view of a large body, come
 *            under a key: ask again then, or when they failed.  Several prompts in one request:
 *            all are charged, the first decides the prefix.
 * No prefix  is looked for when a hit is impossible or unknowable: prompt_logprobs; what lies
 *            behind an image, or behind anything else that only the engine knows.
 * Errors     answered, in OpenAI's terms: 400 not JSON and where, or more than EVALUATE_PROMPTS
 *            prompts; 404 no such model; 503 no worker of it is up; 403 or 503 by the name of a
 *            rule.  What the engine can judge (missing messages, bad parameters) is left to it.
 * Ownership  the answer's slices are the evaluator's, good until the next call.
 * Threads    one.   Cost: 100-200 us for 16,000 token ids, mostly reading them.
 */
#pragma once
#include "actors/policy/gather.h"
#include "actors/policy/tokens.h"
#include "actors/policy/view.h"
#include "proto/messages.h"
#include "shm/process.h"

#define EVALUATE_PROMPTS 128u           /* prompts in one request, at most */

enum evaluate_result { EVALUATE_ANSWER, EVALUATE_STALE, EVALUATE_WAIT, EVALUATE_HELD };

struct evaluate_asked {
	mono_ns asked_ns;
	bool tokens_failed;             /* do not wait for ids again */
	mono_ns held_until_ns;          /* it is held here until then; 0: it is not */
	bool full;                      /* no more may be held: as if its time were over */
	bool last;                      /* do not wait for anything: unknown is what is not here */
};

struct evaluate_later {
	struct token_key key;           /* WAIT: what it waits for */
	uint64_t kind;                  /* HELD: of which kind it is (held.h) */
	uint32_t tenant;                /* HELD: whose; MANIFEST_NONE: nobody's */
};

struct evaluate;
struct tagging;

int evaluate_new(struct evaluate **ret, struct view *view, struct tokensource *tokens,
		 struct process_segment *process, uint32_t policy_gen);
	/* All borrowed; tokens may be NULL: text is then decided without its prefix.  0, -ENOMEM,
	 * -EINVAL: a tag's pattern is none. */
void evaluate_free(struct evaluate **ret);
void evaluate_natively(struct evaluate *e, struct native *native, struct aside *aside);
	/* Make token ids here, large bodies beside the loop; borrowed.  aside NULL: all in it. */
struct tagging *evaluate_tagging(struct evaluate *e);   /* its own; never NULL */
int evaluate_documents(struct evaluate *e, const struct manifest *manifest);
	/* Decide by these from now on, with other members; between decisions.  0; -ENOMEM: by those
	 * before. */

enum evaluate_result evaluate_question(struct evaluate *e, struct view_ingress *from,
				       const struct msg_ask *ask, const struct evaluate_asked *how,
				       struct msg_answer *ret, struct evaluate_later *ret_later);
	/* STALE: slot or ask is no longer current; nothing is owed but to a cancel.
	 * HELD: no worker now, perhaps soon: ask again until the answer's hold_until.  An answer
	 * with a number is to be sent, with the turn in hold_key; held before, it has none. */
int evaluate_self_test(struct evaluate *e, const char **why);
	/* One lookup, one decision per model, without any effect.  0, -EBADMSG with why. */
