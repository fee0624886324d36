/* actors/policy/tokens.h -- which token ids a question's prompt has, and who said so.
 *
 * In order   ids that the client gave; ids made here by the model of the first set that has one and
 *            is not known to tokenize otherwise (shm/trust.h MISMATCH); a worker's /tokenize, by
 *            content cached (tokensource.h); none.  What the engine will refuse,
 *            and what was too much work here, is asked of nobody.
 * Loop       what takes long is not done in it: bodies of ASIDE_BYTES, and templates that work too
 *            long (native.h).
 * Waiting    false from tokens_find: a worker's answer or a thread (aside.h) brings the ids, under
 *            *ret_key; ask again then.
 * Note       why not all of the prompt is known, or why another source was not asked: for explain.
 * Ownership  ids are the finder's or the job's: good until the next call, or aside_done.
 * Threads    one.
 */
#pragma once
#include "actors/policy/aside.h"
#include "actors/policy/gather.h"
#include "actors/policy/tokensource.h"
#include "proto/messages.h"
#include "shm/process.h"

struct tokens_question {
	const struct manifest_model *model;
	enum openai_route route;
	const struct openai_view *view;
	struct slice body;
	struct aside_job *job;          /* NULL: the body is read in the loop */
	struct token_key job_key;
	bool failed;                    /* do not wait any more */
	mono_ns now;
};

struct tokens_found {
	struct gather_prompt prompt;
	enum token_source source;
	uint32_t whole;                 /* tokens of all prompts; 0: only estimated */
	uint32_t exact;                 /* of the first: surely the engine's, from the start */
	uint8_t trust;                  /* NATIVE: enum trust_state of that model */
	bool aside;                     /* it is work for a thread: ask again with a job */
	char note[JOURNAL_NOTE];
};

struct tokens;

int tokens_new(struct tokens **ret, struct view *view, struct tokensource *source,
	       struct process_segment *process);
	/* All borrowed; source may be NULL.  0, -ENOMEM. */
void tokens_free(struct tokens **ret);
void tokens_natively(struct tokens *t, struct native *native, struct aside *aside);
	/* Make them here, too; borrowed; aside may be NULL. */
struct aside *tokens_aside(struct tokens *t);                   /* NULL: none */

bool tokens_find(struct tokens *t, const struct tokens_question *q, struct tokens_found *ret,
		 struct token_key *ret_key);
	/* False: wait under *ret_key. */
