/* actors/policy/gather.h -- what is known of every candidate for one prompt, at this moment.
 *
 * In order   gather_hash (one chain of block hashes per distinct {model, block size} among the
 *            candidates), gather_match (index, one lookup a chain), gather_candidates (watermarks,
 *            then cells, then overlay; readings; prediction).  The caller chooses among the result
 *            and tells overlay what it did, all within one turn of the loop: the critical section
 *            of the choice.
 * Block size a row's own: configured, else what its events said, else what its metrics said.  A row
 *            whose block size nobody knows has no prefix knowledge.
 * New        how far each is into its slow start, and what follows among these (slow.h).
 * Hits       one rule: predict_usable().  What is on another tier than the GPU counts in whole
 *            chunks, and in.cached less a part for fetching it.  Beyond the index, overlay says
 *            what was sent there
 *            lately.
 * Ownership  buffers are the gatherer's, reused: results are good until the next gather_hash.
 * Threads    one.  Cost: 4 us for the hashes of 16,000 tokens, the lookup (index.h), and about
 *            100 ns a candidate and live ingress.
 */
#pragma once
#include <stdint.h>

#include "actors/common/decide/choose.h"
#include "actors/common/decide/predict.h"
#include "actors/policy/view.h"
#include "proto/slice.h"

#define GATHER_CHAINS 4u                /* an answer carries as many roots */
#define GATHER_NO_CHAIN 255u

struct gather_prompt {
	const uint32_t *ids;            /* of the (first) prompt; NULL with n_ids 0: not known */
	size_t n_ids;
	uint32_t tokens;                /* of all prompts of the request, or an estimate */
	struct slice salt;              /* cache_salt; {NULL, 0} none */
	bool hashed;                    /* false: this request cannot hit whatever it holds */
};

struct gather_chain {
	const char *model;              /* as the worker calls it; the manifest's */
	uint32_t block_tokens;
	uint64_t root;
	uint64_t *hash;
	size_t n, cap;
};

struct gather_candidate {
	uint32_t member, row_gen;       /* member: subscript in the manifest */
	uint16_t row, rank;             /* rank: 65535 when no rank header is due */
	uint8_t chain;                  /* GATHER_NO_CHAIN: no prefix knowledge */
	uint8_t state;                  /* enum row_state */
	bool learned;                   /* coefficients are its own, not borrowed */
	uint32_t block_tokens;
	uint32_t exact, cached;         /* usable tokens: surely there; and surely or probably */
	uint32_t waiting, running;      /* as scraped; all ones unknown */
	float kv_usage;
	uint32_t age_ms;                /* of the reading; all ones never */
	float slow, handicap;           /* slow.h: its share of the way into service; from that */
	struct predict_input in;
	struct predict_output out;
};

struct gather;
int gather_new(struct gather **ret, struct view *view); /* view borrowed.  0, -ENOMEM */
void gather_free(struct gather **ret);
int gather_documents(struct gather *g, const struct manifest *manifest);
	/* Have room for these, besides those of the view, which may be replaced by them: between
	 * decisions.  0, -ENOMEM. */

int gather_hash(struct gather *g, const struct manifest_model *model,
		const struct manifest_route *route, const struct gather_prompt *prompt);
	/* 0, -ENOMEM (then there are no chains; the rest still works). */
unsigned gather_match(struct gather *g);
	/* How many rows hold a first block of theirs, surely or probably. */
void gather_candidates(struct gather *g, uint16_t failed_row, mono_ns now);
	/* failed_row: where the attempt before failed; ROW_NONE. */

uint32_t gather_n(const struct gather *g);
bool gather_blind(const struct gather *g);
	/* After choose(): of no candidate that was not removed is anything fresh known. */
const struct gather_candidate *gather_at(const struct gather *g, uint32_t i);
const uint32_t *gather_entries(const struct gather *g);
	/* The same order: of the policy's candidates, the one by which it is there. */
struct choose_candidate *gather_choose(struct gather *g);       /* the same order, for choose() */
uint32_t gather_last_pick(const struct gather *g); /* newest pick number of all candidates */
unsigned gather_n_chains(const struct gather *g);
const struct gather_chain *gather_chain(const struct gather *g, unsigned i);
