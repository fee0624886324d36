/* actors/policy/tokensource.h -- token ids of text prompts, asked of a worker that knows them.
 *
 * Source     POST /tokenize of vLLM (chat form {model, messages, tools ..} or prompt form {model,
 *            prompt}), by common/fetch.h: the evaluator never waits.
 * Cache      by content: the key is the XXH3-128 of the request text, which names the model and
 *            holds every byte that decides the tokens.  One call at a time for equal content.
 * Bounds     TOKENSOURCE_CALL_NS a call, from the request on; TOKENSOURCE_CALLS and
 *            TOKENSOURCE_BYTES under way; TOKENSOURCE_CACHE_BYTES kept; an answer of
 *            TOKENSOURCE_ANSWER_BYTES.  A worker that failed to answer at all is not asked again
 *            for TOKENSOURCE_REST_NS.  Over a bound: decide without the prefix.
 * Ownership  has its own copy of the request text, so that the slot's region can go at any time.
 * Threads    the caller's one thread, and the fetcher's.
 */
#pragma once
#include <czmq.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/fetch.h"
#include "actors/policy/tokencache.h"
#include "shm/segment.h"

#define TOKENSOURCE_CALL_NS      2000000000ull
#define TOKENSOURCE_REST_NS      1000000000ull
#define TOKENSOURCE_CALLS        1024u
#define TOKENSOURCE_BYTES        (64u << 20)
#define TOKENSOURCE_CACHE_BYTES  (128u << 20)
#define TOKENSOURCE_ANSWER_BYTES (64u << 20)

struct tokensource;

int tokensource_new(struct tokensource **ret);          /* 0, -ENOMEM */
void tokensource_free(struct tokensource **ret);        /* cuts calls under way */
zsock_t *tokensource_socket(struct tokensource *t);
	/* Readable when tokensource_collect has something; borrowed. */

struct token_key tokensource_key(const char *text, size_t len);
bool tokensource_find(struct tokensource *t, struct token_key key, const uint32_t **ret_ids,
		      size_t *ret_n);
	/* Good until the next tokensource_collect. */
int tokensource_request(struct tokensource *t, struct token_key key,
			const struct fetch_peer *peer, const char *text, size_t len, mono_ns now);
	/* 0 under way, or joined a call under way; -EBUSY over a bound; -EHOSTDOWN resting;
	 * -ENOMEM. */
int tokensource_collect(struct tokensource *t, mono_ns now, struct token_key *ret_key,
			const char **ret_why);
	/* 1: that call is over; *ret_why NULL: its ids can be found, else why not (static).
	 * 0: nothing. */
