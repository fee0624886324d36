/* actors/common/prompt/pieces.h -- the pre-tokenizers: a text becomes pieces, and those ids.
 *
 * Meaning    stages one after another, each parting what the one before left whole, or changing
 *            it (Metaspace, a blank put in front).  What leaves the last goes to the merges.
 * Threads    a struct pieces is shared, a struct pieces_run is one thread's.
 * Cost       Splits that isolate are handed on in batches; a tokenizer with one of them and nothing
 *            else, as most have, copies nothing.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/bpe.h"
#include "actors/common/prompt/normalize.h"
#include "actors/common/prompt/scan.h"
#include "actors/common/prompt/tokenizer_layout.h"
#include "proto/slice.h"

#define PIECES_BATCH 256u

struct pieces_stage {
	const struct tokenizer_step *step;      /* the first, where several became one scanner */
	struct scan scan;                       /* SPLIT_REGEX */
	bool batches;                           /* by scan_pieces: the behaviour is Isolated */
};

struct pieces {
	struct pieces_stage stage[TOKENIZER_STEPS_MAX];
	unsigned n;
	const char *bytes;              /* what the steps' texts lie in */
	struct bpe_tables tables;
	bool cuts;                      /* one stage, a scanner that scan_cut knows */
};

struct pieces_run {                     /* zero before its first use */
	struct {
		struct scan_run scan;
		struct normal_text text;
		uint32_t len[PIECES_BATCH];
	} stage[TOKENIZER_STEPS_MAX];
	struct bpe_work bpe;
	const struct tokenizer_step *stuck;     /* whose pattern searched for too long, last */
};

int pieces_open(struct pieces *p, const struct tokenizer_step *steps, unsigned n, const char **why);
	/* p->bytes and p->tables are set.  0; -ENOTSUP a pattern that cannot be run, with why;
	 * -ENOMEM. */
void pieces_close(struct pieces *p);
void pieces_run_free(struct pieces_run *r);
void pieces_give_back(struct pieces_run *r, size_t most);
	/* Buffers of more than `most` bytes, but for those of bpe. */

int pieces_encode(const struct pieces *p, struct pieces_run *r, struct slice text, bool first,
		  size_t max_n, struct ids *out);
	/* After bpe_begin.  first: nothing stands before it in the whole text.  Stops when out->n
	 * reaches max_n.  0, -ENOMEM, -E2BIG, -EOVERFLOW, -ECANCELED, -ETIME: r->stuck. */
