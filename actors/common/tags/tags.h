/* actors/common/tags/tags.h -- RequestTags whose patterns are in a request's texts.
 *
 * Question   Which tags do the texts of this body give (manifest_tag.h: patterns), and of which can
 *            it not be told?
 * Found      a tag is there when one of its patterns has as many different matches as it asks for,
 *            in all texts together, each text for itself (texts.h, plain.h, find.h).
 * Unknown    a tag that was not found, where something of the body is hidden from us, where a match
 *            took too many steps, or where memory ran out.
 * Ownership  the set has all it needs of the documents.  A room is one thread's, of one set.
 * Threads    a set is immutable; a room has one user at a time.
 * Cost       0.3 to 0.8 ms for 64 KB of prose with all six validators; own patterns what PCRE2's
 *            JIT takes, at most TAGS_STEPS a text.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/decide/manifest_tag.h"
#include "proto/slice.h"

#define TAGS_STEPS 1000000u     /* PCRE2's match limit: some ms */

struct tags;
struct tags_room;

struct tags_found {
	uint64_t tags, unknown;         /* bits by a tag's index; none is in both */
	unsigned hidden;                /* enum texts_hidden */
};

int tags_new(struct tags **ret, const struct manifest_tag *tag, uint32_t n, uint32_t *ret_which,
	     char *why, size_t why_cap);
	/* 0; -ENOMEM; -EINVAL: a pattern of tag *ret_which is none, and why. */
void tags_free(struct tags **ret);
uint64_t tags_by_text(const struct tags *t);
	/* Those that have patterns: what is unknown where nobody could read. */

int tags_room_new(struct tags_room **ret, const struct tags *t);        /* 0, -ENOMEM */
void tags_room_free(struct tags_room **ret);

void tags_of_body(struct tags_room *room, struct slice body, struct tags_found *ret);
	/* A JSON body; of what is none all are unknown. */
void tags_of_text(struct tags_room *room, struct slice text, struct tags_found *ret);
	/* One text, UTF-8, as it is. */

int tags_regex_check(struct slice regex, size_t *ret_offset, char *why, size_t why_cap);
	/* 0, or -EINVAL: PCRE2's words, and where. */
