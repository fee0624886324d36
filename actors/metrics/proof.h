/* actors/metrics/proof.h -- what a worker's answers prove of our tokens.
 *
 * Question   Are the ids that we make of this model's prompts this engine's: proven, disproven, or
 *            neither?
 * Rules      another engine (it began anew) or other files of ours: nothing is proven any more.
 *            A probe with other ids: MISMATCH at once.  A whole run without one, in which most
 *            probes had ids on both sides: EXACT, whatever was before.  A run that could not end:
 *            what was proven stays.  An answer that counts its prompt otherwise: MISMATCH, until a
 *            clean run.
 * Threads    pure; over struct row_trust, which the caller keeps and publishes.
 */
#pragma once
#include "actors/common/prompt/probes.h"
#include "shm/trust.h"

#define PROOF_AGAIN_NS       5000000000ull      /* after a run that did not end */
#define PROOF_AGAIN_MOST_NS  60000000000ull     /* each failure doubles it up to here */
#define PROOF_DISPROVEN_NS   60000000000ull     /* a worker that disagreed is asked again */
#define PROOF_NEVER          UINT64_MAX

struct proof_life {                     /* of an engine */
	wall_ns start;                          /* as it says; 0: it does not */
	mono_ns up;                             /* since when we see it up; 0: it is not */
};

struct proof_run {                      /* probes of one run; zero to begin */
	unsigned next;                          /* to be sent */
	unsigned agreed, differed, other;       /* other: refused there, or unknown here */
	unsigned failures;                      /* runs in a row that could not end; kept */
};

bool proof_begin(struct row_trust *t, uint64_t key, const struct proof_life *life, mono_ns now);
	/* True: it was of another engine or other files, and is begun anew.  A start time that came
	 * late is taken in. */
void proof_is(struct row_trust *t, enum trust_state state, enum trust_why why, mono_ns now);
void proof_answer(struct row_trust *t, struct proof_run *run, unsigned probe,
		  const struct probes_compared *c, mono_ns now);
mono_ns proof_end(struct row_trust *t, struct proof_run *run, enum trust_why failed, mono_ns now);
	/* The run is over: whole (failed TRUST_NOT_ASKED), or because of that.  When the next one
	 * is due; PROOF_NEVER: in the next life. */
bool proof_usage(struct row_trust *t, uint32_t ours, uint32_t theirs, mono_ns now);
	/* An answer's prompt_tokens.  True: it disproved what was not disproven. */
void proof_cached(struct row_trust *t, uint32_t expected, uint32_t said);
