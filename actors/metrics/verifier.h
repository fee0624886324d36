/* actors/metrics/verifier.h -- asks each worker whether our tokens are its own, once in its life.
 *
 * Meaning    of each worker of a set whose prompts are made here (spec.tokenizer): when its engine
 *            is up and was not asked in this life, every probe (common/prompt/probes.h) goes to its
 *            /tokenize, one after another, and what comes back is compared with ours.  Outcomes of
 *            requests add what its answers count.  What follows is in shared memory (shm/trust.h),
 *            and stays there over our restart: who is proven is not asked again.
 * Bounds     VERIFIER_AT_ONCE workers at a time, one probe under way to each, no more than one in
 *            VERIFIER_PACE_NS.  Models are open while somebody is asked.
 * Usage      counts of prompts whose ids we made ourselves only; an answer of before we were born,
 *            or decided by documents older than this worker's model, counts for nothing, and
 *            none where sets of one model have different files: one of them made the ids.
 * Threads    the loop's.   Cost: a probe some 0.1 ms here.
 */
#pragma once
#include "actors/common/models.h"
#include "actors/metrics/prober.h"
#include "actors/metrics/proof.h"
#include "shm/process.h"
#include "shm/trust.h"

#define VERIFIER_AT_ONCE 4u
#define VERIFIER_PACE_NS 20000000ull

struct verifier;

int verifier_new(struct verifier **ret, struct rows *rows, struct process_segment *process);
	/* Both borrowed.  0, -ENOMEM. */
void verifier_free(struct verifier **ret);
void verifier_model(struct verifier *v, uint32_t generation, uint32_t set, int fd);
	/* Takes a MODEL segment, which may come before or behind its generation's documents. */
int verifier_set(struct verifier *v, const struct manifest *manifest, uint32_t generation,
		 const struct secrets *trust);
	/* Asks the workers of these documents from now on; what is under way and what is known of
	 * kept ones stays.  Both stay the caller's until the next verifier_set or verifier_free.
	 * 0; -ENOMEM: the old ones go on. */
mono_ns verifier_run(struct verifier *v, struct prober *prober, mono_ns now);
	/* Sends what is due; when to be called next. */
bool verifier_busy(const struct verifier *v);   /* a probe is under way */
void verifier_result(struct verifier *v, struct probe *probe);  /* frees it */
void verifier_outcome(struct verifier *v, const struct journal_record *head,
		      const struct journal_outcome *o, mono_ns now);
