/* actors/common/decide/expression.h -- a checked subset of CEL: compiled at load, bounded, cheap.
 *
 * Question   Is this so, or how much is it, for one request and one candidate (facts.h)?
 * Language   README.md beside this: grammar, types, and where CEL ends.  On what both have, the
 *            result is CEL's.
 * Unknown    a fact that is not known, and what CEL calls an error (overflow, division by zero, no
 *            such key, a match that costs too much) make what they are in unknown, but for &&, ||
 *            and ?: where the other side decides.  What follows is the caller's: unknown removes in
 *            `remove`, does not keep in `keep`, applies the rule in `when`.
 * Bounds     text EXPRESSION_TEXT_MAX, nesting EXPRESSION_DEPTH_MAX, EXPRESSION_STEPS_MAX
 *            steps, none of them a loop backwards; a regex EXPRESSION_MATCH_MAX backtracks.
 * Ownership  the compiled expression owns all it needs; texts and names may go after compiling.
 * Threads    immutable once compiled: any thread, any number at once.  Evaluating neither blocks
 *            nor allocates (but for a regex on a machine without PCRE2's JIT).
 * Cost       evaluating some 40 ns for a usual rule (tests/bench/run policy).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/decide/facts.h"
#include "proto/slice.h"

#define EXPRESSION_TEXT_MAX 4096u       /* bytes */
#define EXPRESSION_DEPTH_MAX 64u        /* of parentheses, operators in operators, and so on */
#define EXPRESSION_STEPS_MAX 1024u
#define EXPRESSION_MATCH_MAX 20000u     /* of one matches() */

enum expression_place {
	EXPRESSION_WHEN,                /* bool; request and pools */
	EXPRESSION_CANDIDATE,           /* bool; candidates too: keep, remove, keepFirst */
	EXPRESSION_PREFER,              /* bool or number; candidates too */
	EXPRESSION_OBJECTIVE,           /* number; candidates too */
	EXPRESSION_TAG,                 /* bool; the request without its tags */
};

/* What the documents name; for each a list, or NULL where names are not to be checked.  Pools and
 * tags are referred to by their subscript, so these must be there if they are written. */
struct expression_names {
	const char *const *pools;
	size_t n_pools;                 /* subscripts: struct facts' pools */
	const char *const *tags;
	size_t n_tags;                  /* FACTS_TAGS_MAX at most; subscripts: bits */
	const char *const *providers;
	size_t n_providers;
	const char *const *tenants;
	size_t n_tenants;
	const char *const *models;
	size_t n_models;
};

struct expression_error {
	uint32_t offset;                /* bytes into the text */
	char found[96];                 /* quoted and cut */
	char expected[160];             /* "a bool", "')'", "a name of the request" */
	char nearest[96];               /* a name that may have been meant; "": none is near */
};

enum expression_truth { EXPRESSION_NO, EXPRESSION_YES, EXPRESSION_UNKNOWN };

struct expression;

int expression_compile(struct slice text, enum expression_place place,
		       const struct expression_names *names, struct expression **ret,
		       struct expression_error *ret_error);
	/* 0; -EINVAL with *ret_error; -ENOMEM. */
void expression_free(struct expression **);
	/* NULL inside is fine; nulls it. */
void expression_error_say(const struct expression_error *, char *buf, size_t cap);
	/* A sentence's end: "has 'x', expected a bool; did you mean 'y'?".  cap: 400 suffices. */

enum expression_truth expression_test(const struct expression *, const struct facts *);
	/* Of places that say bool. */
double expression_number(const struct expression *, const struct facts *);
	/* As a double: durations in seconds, true 1, false 0.  NaN: unknown, or not a number. */

uint64_t expression_reads(const struct expression *);
	/* Facts it may look at, 1ull << enum fact. */
uint64_t expression_tags(const struct expression *);
	/* Tags it may look at, 1ull << subscript; all ones for size(request.tags). */
struct slice expression_text(const struct expression *);
	/* As it was written; good as long as the expression is. */
bool expression_is_number(const struct expression *);
	/* It says a number, not a bool. */
enum expression_truth expression_constant(const struct expression *);
	/* NO or YES: it says so whatever the facts are, known or not.  UNKNOWN: it depends. */
