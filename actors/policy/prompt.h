/* actors/policy/prompt.h -- from the view of a request body to what decides its tokens.
 *
 * Meaning    which prompts can hit a prefix cache at all, the ids a client gave, and for text the
 *            /tokenize request that makes a worker render and tokenize it exactly as it will when
 *            the real request comes (engine-contracts: the fields that decide prompt tokens).
 *            documents and reasoning_effort travel as chat_template_kwargs, where the engine too
 *            hands them to the template; a message's reasoning_content goes as reasoning.
 * Narrow     chat and completions only; the other text routes render in ways of their own.
 * Ownership  buffers are the struct's, reused: results are good until the next call.
 * Threads    one.   Cost: one pass over the ids; text: one pass over its messages,
 *            one copy of the spans.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/openai.h"

struct prompt;

int prompt_new(struct prompt **ret);                    /* 0, -ENOMEM */
void prompt_free(struct prompt **ret);

bool prompt_may_hit(const struct openai_view *view, const char *body);
	/* False: no cached block can serve it, or its blocks depend on bytes we do not hash. */
bool prompt_salt(struct prompt *p, const struct openai_view *view, const char *body,
		 struct slice *ret);
	/* cache_salt, unescaped; {NULL, 0} when absent.  False: the engine will refuse it.  */
bool prompt_ids(struct prompt *p, const struct openai_view *view, const char *body,
		const uint32_t **ret_ids, size_t *ret_n);
	/* The client gave ids: those of the first prompt. */
bool prompt_request(struct prompt *p, enum openai_route route, const struct openai_view *view,
		    const char *body, const char *model, struct slice *ret);
	/* The body of a POST /tokenize for its first prompt.  False: there is no text we know. */
uint32_t prompt_all_tokens(const struct openai_view *view, const char *body, size_t first);
	/* Tokens of all prompts when the first has `first`: exact for one, by length in bytes for
	 * more. */
