/* actors/policy/tagging.h -- which RequestTags a question's request has.
 *
 * Sources    of each tag, any of: patterns in its texts (common/tags/tags.h); a header field that a
 *            trusted peer sent (slot.h PEER_BELIEVED), nobody else's; an expression of the request;
 *            an external classifier (classify.h).
 * Unknown    where a source that could have given a tag could not be asked: texts that are hidden
 *            (pictures, sound, token ids, forms), a fact that nobody knows, a classifier that is
 *            slow, dead or cannot be understood, a body too large to be read in time.  Rules take
 *            an unknown tag for there where they remove.
 * Waiting    false from tagging_find: a classifier is being asked, under *ret_key.  Ask again then.
 * Again      what texts have is kept for the newest TAGGING_KEPT requests, so that a question that
 *            waits, is held or is retried is not read again.
 * Threads    one; bodies of ASIDE_BYTES and more are read by aside's.
 */
#pragma once
#include "actors/common/decide/facts.h"
#include "actors/common/tags/tags.h"
#include "actors/policy/classify.h"
#include "actors/policy/view.h"
#include "shm/process.h"

#define TAGGING_KEPT 1024u

struct tagging_question {
	const struct facts_request *request;    /* all but its tags */
	const struct http1_head *head;          /* NULL: out of reach */
	uint64_t request_id;
	bool believed;                          /* its header fields are a trusted peer's */
	bool form;                              /* multipart: not read */
	struct slice body;                      /* {NULL, 0}: it has none */
	const struct tags_found *read;          /* beside the loop; NULL: not there */
	bool too_large;                         /* to be read here, and not read beside */
	bool last;                              /* do not wait any more */
	mono_ns now;
};

struct tagging;

int tagging_new(struct tagging **ret, struct view *view, struct process_segment *process);
	/* By the view's documents; borrowed, both.  0; -ENOMEM; -EINVAL: a pattern is none. */
void tagging_free(struct tagging **ret);
const struct tags *tagging_tags(const struct tagging *t);       /* for aside.h */
bool tagging_reads_head(const struct tagging *t);
bool tagging_reads_texts(const struct tagging *t);
zsock_t *tagging_socket(struct tagging *t);
	/* Readable when tagging_collect has something; NULL: no tag has a classifier. */
bool tagging_collect(struct tagging *t, mono_ns now, struct token_key *ret_key);

bool tagging_find(struct tagging *t, const struct tagging_question *q, uint64_t *ret_tags,
		  uint64_t *ret_unknown, struct token_key *ret_key);
	/* False: wait under *ret_key.  In ret_unknown is none of ret_tags. */
