/* actors/common/prompt/normalize.h -- a text's normalizers, one after another.
 *
 * Meaning    NFC, Prepend and Replace of strings, as the steps of a compiled tokenizer say.  An
 *            empty text stays empty.
 * Ownership  the result is the text itself or lies in the buffers, good until their next use.
 * Threads    buffers are one thread's.  Cost: nothing is copied where nothing changes.
 */
#pragma once
#include <stddef.h>

#include "actors/common/prompt/nfc.h"
#include "actors/common/prompt/tokenizer_layout.h"
#include "proto/slice.h"

/* Normalized, a text may be so many times as long, and so many bytes more.  What anybody means by
 * a normalizer triples it at most; a few that replace a character by two each would fill memory. */
#define NORMAL_TIMES 16u
#define NORMAL_MORE  4096u
#define NORMAL_MOST  ((size_t)1 << 30)

struct normal_text {                    /* bytes that grow */
	char *p;
	size_t len, cap, most;
};

struct normal_buffers {                 /* zero before its first use */
	struct nfc nfc;
	struct normal_text text[2];     /* in turn */
};

int normalize(const struct tokenizer_step *steps, unsigned n, const char *bytes,
	      struct normal_buffers *buffers, struct slice text, struct slice *ret);
	/* 0, -ENOMEM, -EOVERFLOW: past what is said above. */
void normal_free(struct normal_buffers *buffers);
void normal_give_back(struct normal_buffers *buffers, size_t most);
	/* Buffers of more than `most` bytes. */
void normal_text_give_back(struct normal_text *text, size_t most);

/* Each to its own, empty at first; 0, -ENOMEM, -EOVERFLOW. */
void normal_begin(struct normal_text *to, size_t len);
	/* Anew, and empty: for a text of so many bytes. */
int normal_add(struct normal_text *to, const char *p, size_t n);
int normal_replace(struct normal_text *to, struct slice text, struct slice what, struct slice with);
	/* The text with every `what` (not empty) replaced. */
