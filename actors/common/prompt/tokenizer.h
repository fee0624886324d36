/* actors/common/prompt/tokenizer.h -- a text's token ids, as the engine's tokenizer makes them.
 *
 * Question   Which ids does Hugging Face's tokenizers (0.22) give for this text?  The same ones.
 * Way        text -> parted at added tokens -> normalized -> parted again -> pre-tokenizer's pieces
 *            -> byte pair merges of each -> the post-processor's tokens around it.
 * Bytes      what tokenizer_compile.h made: position-independent, any process can map them.  They
 *            are checked on opening, so that hostile ones are refused or give wrong ids, and
 *            nothing is read out of bounds.
 * Text       UTF-8.  What is none is refused (-EILSEQ): the engine cannot be given it either.
 * Cuts       places where a text can be parted without changing its ids: tokenizer_cut walks them;
 *            what lies between can be kept and found again (segments.h).
 * Ownership  a tokenizer borrows its bytes for its life.
 * Threads    a tokenizer is read-only and shared by threads; a scratch belongs to one.
 * Cost       open: microseconds, and the checksum at 10 GB/s.  Encoding: 10 to 20 ns a byte of
 *            mixed text, never worse than n log n (tests/bench/run prompt).  Nothing blocks.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/ids.h"
#include "proto/slice.h"

struct tokenizer;
struct tokenizer_scratch;               /* a thread's buffers and word cache: about 8 MB */

#define TOKENIZER_NONE UINT32_MAX       /* no such token */

int tokenizer_open(const void *bytes, size_t len, struct tokenizer **ret, const char **why);
	/* bytes: 64-byte aligned.  0; -EBADMSG damaged; -ESTALE made by another version: compile
	 * again; -ENOTSUP a pattern that cannot be run here; -ENOMEM. */
void tokenizer_close(struct tokenizer **ret);

int tokenizer_scratch_new(struct tokenizer_scratch **ret);      /* 0, -ENOMEM */
void tokenizer_scratch_free(struct tokenizer_scratch **ret);
	/* One scratch may serve several tokenizers; its word cache starts anew at each change. */

void tokenizer_scratch_stop(struct tokenizer_scratch *scratch, const atomic_bool *stop);
	/* From now on encoding ends soon, with -ECANCELED, when *stop is true, which another thread
	 * may set; borrowed.  NULL: nothing stops it. */
void tokenizer_scratch_give_back(struct tokenizer_scratch *scratch, size_t most);
	/* Buffers of more than `most` bytes. */

struct tokenizer_counts {
	uint64_t pieces;        /* that were made ids by this scratch since it is there */
	uint64_t cached;        /* of them found in its word cache */
};
struct tokenizer_counts tokenizer_scratch_counts(const struct tokenizer_scratch *scratch);

size_t tokenizer_vocabulary(const struct tokenizer *t);
	/* The largest id it can give, plus one. */
uint64_t tokenizer_identity(const struct tokenizer *t);
	/* Differs between tokenizers that may give different ids: the compiled bytes' checksum. */

int tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *scratch,
		     struct slice text, bool add_special, size_t max_ids, struct ids *out);
	/* Appends the text's ids to out, with add_special those of the post-processor (BOS and the
	 * like) around them.  Stops when max_ids were appended: then the text has as many or more,
	 * and those are its first.  0; -EILSEQ not UTF-8; the rest as below. */
void tokenizer_trouble(const struct tokenizer *t, const struct tokenizer_scratch *scratch, int r,
		       char *why, size_t why_len);
	/* Why the last encoding with this scratch ended with r: a clause on the text. */

/* A stretch of text between hard boundaries. */
struct tokenizer_cut {
	uint32_t     token;     /* an added token stands here, or TOKENIZER_NONE: text does */
	struct slice text;      /* of the token: with the blanks it swallows */
	bool         first;     /* the text begins where the whole does: its ids can depend on it */
};

bool tokenizer_cut(const struct tokenizer *t, struct slice text, size_t *off,
		   struct tokenizer_cut *ret);
	/* The stretch that begins at *off, which moves behind it; off begins at 0.  False: the
	 * text is at its end.  ids(text) without special tokens is the concatenation of the ids of
	 * the stretches.  A long text is also parted where every pre-tokenizer in use must, by what
	 * precedes alone: a text that goes on has the same cuts up to the last.
	 * Text must be UTF-8 (unicode_valid). */
int tokenizer_encode_cut(const struct tokenizer *t, struct tokenizer_scratch *scratch,
			 const struct tokenizer_cut *cut, size_t max_ids, struct ids *out);
	/* Appends the ids of one stretch, at most max_ids.  0; -ENOMEM; -E2BIG: text of 4 GiB, or a
	 * piece of BPE_PIECE_MAX; -EOVERFLOW: normalizers make too much of it (normalize.h);
	 * -ETIME: a pattern searched for too long; -ECANCELED. */
size_t tokenizer_specials(const struct tokenizer *t, const uint32_t **ret_before,
			  const uint32_t **ret_after, size_t *ret_n_after);
	/* What add_special puts around the text: how many before, and the lists. */
