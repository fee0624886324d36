/* actors/policy/classify.h -- an external classifier is asked what a request's texts are.
 *
 * Question   POST {"model": .., "input": [text, ..]} to the URL of a RequestTag, or to /classify of
 *            a worker of its pool (vLLM's; a URL's has no model), by common/fetch.h: the evaluator
 *            never waits.
 * Answer     any JSON with objects that have a "label" (vLLM: data[]).  One whose label is the
 *            tag's gives the tag, when its "score", or else the greatest of its "probs", or else 1,
 *            is the threshold or more.  Not 200, no JSON, or no label in it: not known.
 * Cache      by content: the key is of the question and of what is looked for in the answer.  One
 *            call at a time for equal content.  A failure is remembered for CLASSIFY_REST_NS, so
 *            that the question that waited for it goes on; so long nothing is asked of one that
 *            cannot be connected to, either.
 * Bounds     the tag's deadline a call; CLASSIFY_CALLS and CLASSIFY_BYTES under way; an answer of
 *            CLASSIFY_ANSWER_BYTES; CLASSIFY_TEXT_BYTES of texts.  Over a bound: not known.
 * Ownership  has its own copy of the texts.
 * Threads    the caller's one thread, and the fetcher's.
 */
#pragma once
#include <czmq.h>

#include "actors/common/decide/manifest.h"
#include "actors/common/fetch.h"
#include "actors/policy/tokencache.h"

#define CLASSIFY_REST_NS      1000000000ull
#define CLASSIFY_CALLS        256u
#define CLASSIFY_BYTES        (16u << 20)
#define CLASSIFY_TEXT_BYTES   (256u << 10)
#define CLASSIFY_BODY_BYTES   (1u << 20)     /* larger ones are not looked through for it */
#define CLASSIFY_ANSWER_BYTES (4u << 20)
#define CLASSIFY_CACHE_BYTES  (4u << 20)

enum classify_says { CLASSIFY_NO, CLASSIFY_YES, CLASSIFY_UNKNOWN, CLASSIFY_WAIT };

struct classify;

int classify_new(struct classify **ret);                /* 0, -ENOMEM */
void classify_free(struct classify **ret);              /* cuts calls under way */
zsock_t *classify_socket(struct classify *c);
	/* Readable when classify_collect has something; borrowed. */

struct slice classify_texts(struct classify *c, struct slice body);
	/* The texts of a body as one JSON array; good until the next call.  {NULL, 0}: too long, or
	 * no JSON. */
enum classify_says classify_find(struct classify *c, const struct manifest_classifier *about,
				 const char *model, struct slice texts, mono_ns now,
				 struct token_key *ret_key);
	/* What is known already; WAIT: nobody asked yet, or it is being asked, under *ret_key. */
bool classify_pending(const struct classify *c, struct token_key key);
int classify_ask(struct classify *c, const struct manifest_classifier *about,
		 const struct fetch_peer *peer, const char *path, const char *model,
		 struct slice texts, struct token_key key, mono_ns now);
	/* 0 under way; -EBUSY over a bound; -EHOSTDOWN resting; -ENOMEM. */
bool classify_collect(struct classify *c, mono_ns now, struct token_key *ret_key,
		      const char **ret_why);
	/* One call is over; *ret_why NULL: it can be found, else why not (static). */

bool classify_read(struct slice answer, const char *label, double threshold, bool *ret_has);
	/* False: it says nothing that can be understood. */
