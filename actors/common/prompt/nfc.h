/* actors/common/prompt/nfc.h -- Unicode's composed form, as old as Hugging Face's.
 *
 * Rule       NFC as the crate unicode-normalization-alignments 0.1.12 makes it: data of Unicode 9,
 *            so marks that are younger are starters, and younger compositions stay apart.
 * Input      valid UTF-8; nothing is read beyond the text whatever it is.
 * Threads    pure, but for the buffers of struct nfc, which are one thread's.
 * Cost       nfc_is is on the request path: 16 bytes at a time while they are below 0xCC, else two
 *            loads a character.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

struct nfc {                            /* zero before its first use */
	char *text;                     /* owned: what nfc_make made */
	size_t len, cap;
	uint32_t *run;                  /* owned: a starter and what hangs on it, twice */
	size_t run_cap;
};

bool nfc_is(struct slice text);
	/* Certainly composed already.  False says only that nfc_make must look. */
int nfc_make(struct nfc *n, struct slice text);
	/* n->text, n->len: the composed form, at most three times as long, good until the next
	 * call.  0; -ENOMEM.  Linear in the text, whatever stands in it. */
void nfc_free(struct nfc *n);
