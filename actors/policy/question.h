/* actors/policy/question.h -- one question under way: what evaluate.c and its rooms share.
 *
 * what.c     what is asked: the view of the body, the model, what is pinned
 * who.c      whose it is
 * rule.c     what rules make of it: from policy to policy, hold and refusal
 * answer.c   a choice as an answer: the ranked candidates, their edits, chains
 * evaluate.c the flow from one to the next, the record
 * A room either finds, or refuses (question_refuse() has filled the answer), or says that it waits
 * for something which a later call will find under a key; it has no other effect.
 * Threads    one.
 */
#pragma once
#include "actors/common/decide/choose.h"
#include "actors/policy/evaluate.h"
#include "actors/policy/record.h"
#include "actors/policy/ruling.h"
#include "actors/policy/tagging.h"
#include "actors/policy/who.h"
#include "proto/http1.h"
#include "proto/openai.h"

#define EDIT_TEXT_MAX (6 * MANIFEST_MODEL_MAX + 2)      /* a quoted name, every byte escaped */

enum step { STEP_FOUND, STEP_REFUSED, STEP_WAIT };

struct evaluate {
	struct view *view;              /* borrowed */
	struct tokens *tokens;          /* owned */
	struct process_segment *process;/* borrowed */
	struct tagging *tagging;        /* owned */
	struct gather *gather;          /* owned */
	struct ruling *ruling;          /* owned */
	struct record *record;          /* owned */
	struct who *who;                /* owned */
	uint64_t reads;                 /* facts that any rule or tag looks at */
	bool sessions;                  /* some policy keeps together what a header says */
	uint32_t policy_gen;
	uint32_t pick;                  /* newest pick number we gave */
	struct http1_request head;      /* of the question under way; question_head() */
	char text[512];                 /* of a reject */
	char edit[CHOOSE_RANKED][EDIT_TEXT_MAX];
};

/* One question under way; on the stack. */
struct question {
	struct view_ingress *from;
	const struct msg_ask *ask;
	const struct slot *slot;
	struct openai_view body;
	const struct http1_request *head;       /* NULL: not read yet */
	const char *text;                       /* where prompt and body lie; NULL: nowhere */
	const struct manifest_model *model;     /* NULL until known */
	bool form;                              /* multipart: names stand there without quotes */
	bool pinned;                            /* about what row `pin` keeps */
	uint16_t pin;
	struct aside_job *job;                  /* NULL: the body is read in our turn */
	bool waits;                             /* until it has been read elsewhere */
	struct tokens_found found;
	struct facts_request facts;             /* what rules know of it; all unknown at first */
	uint32_t tenant;                        /* MANIFEST_NONE: nobody's */
	bool again;                             /* it is held here, and was counted then */
	bool waited;                            /* it was held long enough */
	uint32_t chain[RULES_CHAIN], n_chain;   /* policies that it went through */
	struct rules_result ruled;              /* by the last of them; good where n_chain > 0 */
	uint64_t seed;
	uint64_t stage_ns[8];
	uint32_t order[CHOOSE_RANKED];
	unsigned n_ranked;
};

enum stage {
	STAGE_ASKED,
	STAGE_PARSED,
	STAGE_TOKENIZED,
	STAGE_HASHED,
	STAGE_MATCHED,
	STAGE_PREDICTED,
	STAGE_CHOSEN,
	STAGE_SENT
};

__attribute__((format(printf, 6, 7))) void
question_refuse(struct evaluate *e, struct msg_answer *answer, unsigned status, const char *code,
		const char *rule, const char *format, ...);
	/* rule: what refused it, for header, body and journal; static or the manifest's. */

const struct http1_request *question_head(struct evaluate *e, struct question *q);
	/* Read once a question.  NULL: out of reach, which is a fault of the ingress. */

enum step what_find(struct evaluate *e, struct question *q, bool failed, struct msg_answer *answer);
	/* body, form, pin, model and q->text.  WAIT: until aside has read the body; failed: it is
	 * read here instead. */
bool what_aside(struct evaluate *e, const struct question *q, struct token_key *ret_key);
	/* A thread begins with q->text, under *ret_key.  False: no memory. */
enum step who_find(struct evaluate *e, struct question *q, struct msg_answer *answer);
	/* q->tenant, once the model is known: may it ask, and for that?  Never waits. */
void answer_choice(struct evaluate *e, const struct question *q, struct msg_answer *answer);
	/* q->order as the answer's candidates; what they are told, and what kvevents will be. */
uint32_t answer_uncached(const struct gather_candidate *c);     /* tokens */

void rule_find(struct evaluate *e, struct question *q);
	/* What rules may ask of the request: q->facts, but for tags and tenant. */
void rule_choose(struct evaluate *e, struct question *q, mono_ns now, struct msg_answer *answer);
	/* Gathers, applies the policy's rules and those that it falls back to, and ranks.  By
	 * q->ruled.verdict: CHOOSE, q->order; REJECT, the answer is filled; WAIT, only up_to_ns. */
uint64_t rule_kind(const struct evaluate *e, const struct question *q);
	/* Of a question that waits: others of the same will find as little (held.h). */
