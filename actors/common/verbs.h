/* actors/common/verbs.h -- verbs of introspection (grammar: proto/README.md) and their answers.
 *
 * Meaning    {"v": 1, "verb": "stat", ...} -> {"v": 1, "ok": true, "verb": "stat", "result": ...}
 *            or {"v": 1, "ok": false, "error": {"code", "text"}}.  A verb only reads.  admin
 *            answers over its socket, pointsctl asks itself where admin does not answer: the same
 *            code, so the same words.
 * Hostile    every argument is checked by kind and range before the verb sees it; keys nobody knows
 *            are refused; an answer's size is bounded by its verb (show.h, show_index.h).
 * Ownership  an answer is the caller's (json_decref); NULL: no memory.
 * Threads    the one that owns the view.  Cost: explain reads every journal, the rest is small.
 */
#pragma once
#include <jansson.h>

#include "actors/common/view.h"

#define PM_VERB_VERSION 1
#define PM_VERB_TAG_MAX 256u            /* bytes */
#define PM_VERB_EVENTS "events"
#define PM_VERB_EVENTS_DEFAULT 256u
#define PM_VERB_EVENTS_MAX 1000u
#define PM_VERB_EVENTS_WAIT_MS 5000u    /* at most */

json_t *pm_verb_answer(const struct pm_view *view, const json_t *request);
	/* request: an object.  "tag" is checked here; whoever has the socket hands it back. */
const char *pm_verb_checked(const json_t *request, json_t **ret_refused);
	/* Name of the verb, when pm_verb_answer would get as far as asking it; NULL with a refusal.
	 * `events` is answered by admin alone, which hears them: here it is refused as absent. */
json_t *pm_verb_success(const char *verb, json_t *result);
	/* Takes result. */
json_t *pm_verb_refusal(const char *code, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
