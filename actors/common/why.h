/* actors/common/why.h -- what state a worker is in and why, in words for who is woken at night.
 *
 * Question   Requests to this worker miss its cache, or none go there: what is wrong, since when,
 *            and what helps?
 * Meaning    Facts about one worker, one a subject and one more for each trouble: the word for its
 *            state, the word for the reason (both closed sets, fit for labels), since when, whether
 *            it is trouble, and one line of text.  What is as it should be has no trouble.
 * Provider   of one there are two: the state of its socket, and what its predictor has learned.
 * Sources    its row (rows.h: enum row_why, cache_reason, event_trouble and the counters), the
 *            documents in force, and, of answers and decisions, what the journals still hold.
 * Threads    the one that owns the view.   Cost: the journals once, 0.3 ms for 6,400
 *            requests; the rest a microsecond a worker.
 */
#pragma once
#include <jansson.h>

#include "actors/common/view.h"

/* What the journals tell of one row's answers, and of the decisions that chose it. */
struct pm_why_traffic {
	uint64_t answers;                       /* that said how long their prompt was */
	uint64_t decided;                       /* requests sent there */
	uint64_t without_tokens;                /* of them, those whose prompt was not tokenized */
	uint64_t compared, differ;              /* prompts counted by both; otherwise than by us */
	uint64_t cached_said;                   /* answers that said cached_tokens */
	uint64_t expected, found;               /* of them: we expected a hit; the cache had some */
	uint64_t both;                          /* expected and found */
	uint32_t expected_tokens, found_tokens; /* of the newest of each */
	wall_ns expected_last, found_last;
	uint32_t ours, theirs;                  /* prompt tokens, of the newest that differed */
	wall_ns differ_since, differ_last;
};

enum pm_why_about {
	WHY_STATE, WHY_METRICS, WHY_CACHE, WHY_EVENTS, WHY_TOKENS, WHY_PREDICTOR, WHY_ABOUTS
};

struct pm_why {
	enum pm_why_about about;
	const char *is, *reason;                /* static; reason "-": none */
	mono_ns since_ns;                       /* 0: not known */
	bool trouble;
	char text[400];
};
#define PM_WHY_MAX 40u                  /* facts of one worker */

const char *pm_why_about_name(enum pm_why_about about);
void pm_why_traffic(const struct pm_view *view, struct pm_why_traffic *ret, unsigned rows);
	/* ret: one per row id, filled.  Reads every journal. */
unsigned pm_why(const struct pm_view *view, const struct pm_view_worker *w,
		const struct pm_why_traffic *traffic, mono_ns now, struct pm_why *ret);
	/* Up to PM_WHY_MAX; how many.  traffic NULL: of tokens only what is proven. */
json_t *pm_why_workers(const struct pm_view *view);
	/* pm_show_workers, each worker with "why". */
json_t *pm_why_json(const struct pm_why *why, unsigned n, mono_ns now);
	/* [{"about", "is", "reason", "since", "since_s", "trouble", "text"}] */
