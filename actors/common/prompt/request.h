/* actors/common/prompt/request.h -- from a request's body to its token ids, as vLLM makes them.
 *
 * Question   Which tokens will the engine see for this request, and how sure is that?
 * Routes     chat completions; completions, in the four forms of prompt; responses; Anthropic
 *            messages and count_tokens; embeddings (text and ids); tokenize (both forms); generate
 *            (ids).  Others: PROMPT_UNKNOWN.
 * Never      fails a request: what the engine would refuse, what cannot be known here, and what is
 *            too long are answers, each with a reason; the engine has the last word.
 * Bounds     at most max_ids tokens a prompt are made and PROMPT_IDS_MAX in all; the body's
 *            nesting, the template's steps, depth and output, and all memory are bounded
 *            (PROMPT_ARENA_BYTES; rendered text PROMPT_TEXT_BYTES).
 * Ownership  a maker is one thread's: arena, buffers, the tokenizer's scratch.  What it made is
 *            good until its next prompt_make; text that was given as it is lies in the body.
 * Threads    one thread a maker; models and segment caches are shared.
 * Cost       one pass over the body, no second scan; 400 KB of conversation with one new turn
 *            and a warm segment cache: under a millisecond.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/model.h"
#include "proto/openai.h"
#include "proto/slice.h"

struct prompt_maker;
struct segments;

#define PROMPT_IDS_MAX     (16u << 20)          /* tokens of one request, all prompts */
#define PROMPT_ARENA_BYTES (512u << 20)
#define PROMPT_TEXT_BYTES  (256u << 20)
#define PROMPT_KEEP_BYTES  (16u << 20)          /* a buffer, by prompt_maker_give_back */
#define PROMPT_LISTS_MAX   4096u                /* prompts of one request; more: the first */

enum prompt_end {
	PROMPT_EXACT,           /* the ids are the engine's */
	PROMPT_PREFIX,          /* the first ids are; then comes what only the engine knows */
	PROMPT_TOO_LONG,        /* stopped at max_ids: the ids are the prompt's first */
	PROMPT_REFUSED,         /* the engine will refuse the request: no ids */
	PROMPT_UNKNOWN,         /* nothing here can tell: no ids */
	PROMPT_TOO_MUCH,        /* more work or memory than one prompt may take, or stopped: no ids,
				   and nobody should be asked to do that work twice */
};

struct prompt_one {
	const uint32_t *ids;
	size_t n;               /* all of them exact */
};

struct prompt_made {
	enum prompt_end end;    /* of the first prompt that is not exact, else EXACT */
	const char *why;        /* "" when exact; else why it ended so */
	const struct prompt_one *prompts;
	size_t n_prompts;       /* 0: REFUSED, UNKNOWN, TOO_MUCH */
	struct slice salt;      /* cache_salt, unescaped; {NULL, 0}: none */
	struct slice text;      /* what was tokenized, of the first prompt; p NULL: ids given */
	bool add_special;       /* special tokens were added in front of (behind) that text */
	uint64_t parse_ns, render_ns, tokenize_ns;
};

int prompt_maker_new(struct prompt_maker **ret);        /* 0, -ENOMEM */
void prompt_maker_free(struct prompt_maker **ret);
void prompt_maker_clock(struct prompt_maker *p, int64_t unix_seconds);
	/* What strftime_now takes for now, in the model's time zone; INT64_MIN, and before the
	 * first call: the clock of the machine. */

void prompt_maker_stop(struct prompt_maker *p, const atomic_bool *stop);
	/* From now on what is made ends soon, as TOO_MUCH, when *stop is true, which another thread
	 * may set; borrowed.  NULL, and before the first call: nothing stops it.  One pass over the
	 * body goes on to its end. */
void prompt_maker_bounds(struct prompt_maker *p, uint64_t steps, size_t bytes);
	/* From now on a template takes at most so many steps, and it and its text so much memory
	 * each; more is TOO_MUCH. */
void prompt_maker_give_back(struct prompt_maker *p);
	/* What it made is gone, and of its memory what is beyond PROMPT_KEEP_BYTES a buffer. */

const char *prompt_end_name(enum prompt_end end);
	/* "exact", "prefix", "too-long", "refused", "unknown", "too-much".  Static. */

int prompt_make(struct prompt_maker *p, const struct model *m, struct segments *cache,
		enum openai_route route, struct slice body, size_t max_ids,
		struct prompt_made *ret);
	/* cache NULL: none.  max_ids 0: the model's max_model_len + 1, else PROMPT_IDS_MAX.
	 * 0 with *ret; -ENOMEM: the machine has no memory (ret then TOO_MUCH, saying so). */
int prompt_text(struct prompt_maker *p, const struct model *m, enum openai_route route,
		struct slice body, struct prompt_made *ret);
	/* The same up to the text: prompts stay without ids. */
int prompt_context(struct prompt_maker *p, const struct model *m, struct slice context,
		   struct prompt_made *ret);
	/* The text for a template's variables as they are, a JSON object: nothing is added, checked
	 * or filtered, but a true continue_final_message is followed (and is no variable). */
