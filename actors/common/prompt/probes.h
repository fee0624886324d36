/* actors/common/prompt/probes.h -- what a worker is asked to see whether our tokens are its own.
 *
 * Meaning    some fifty strings and conversations, each with something in it that tokenizers,
 *            templates or the preparation of requests are known to differ by.  The same body goes
 *            to the worker's POST /tokenize and through prompt_make here; the ids are compared.
 * Bodies     vLLM's TokenizeCompletionRequest and TokenizeChatRequest, by fields that a request to
 *            /v1/completions and /v1/chat/completions has too: what is proven is the way that
 *            requests go.
 * Threads    pure.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "actors/common/prompt/request.h"

#define PROBES_BODY_MAX 4096u           /* bytes, any probe with a model's name of 128 */
#define PROBES_IDS_MAX  4096u           /* tokens, any probe by any tokenizer that is sane */

struct probes_one {
	const char *name;
	enum openai_route route;        /* OPENAI_CHAT or OPENAI_COMPLETIONS: ours is made by it */
	const char *members;            /* ",..." behind the model */
};

unsigned probes_count(void);
const struct probes_one *probes_at(unsigned i);         /* static; i < probes_count() */
ssize_t probes_body(unsigned i, const char *model, char *buf, size_t cap);
	/* {"model": ..., ...}; its bytes.  -ENOSPC: cap is too small. */

enum probes_verdict {
	PROBES_AGREE,                   /* the same ids, or both refuse */
	PROBES_DIFFER,                  /* other ids, or the worker has ids of what we refuse */
	PROBES_REFUSED,                 /* the worker refuses what we can make: nothing compared */
	PROBES_UNKNOWN,                 /* we cannot make it: nothing compared */
};

struct probes_compared {
	enum probes_verdict verdict;
	uint32_t at;                    /* DIFFER: place of the first id that differs */
	uint32_t ours, theirs;          /* the ids there; all ones: ended before */
	uint32_t n_ours, n_theirs;      /* tokens; 0 also: refused */
};

struct probes_theirs {                  /* a worker's answer */
	bool refused;                   /* 4xx for this very request */
	const uint32_t *ids;
	size_t n;
};

void probes_compare(const struct prompt_made *ours, const struct probes_theirs *theirs,
		    struct probes_compared *ret);
bool probes_refusal(unsigned status);
	/* Does this HTTP status say that the request was understood and cannot be served?  Else it
	 * tells of the route, the key or the worker, and nothing of the prompt. */
