/* actors/common/prompt/nfc_private.h -- the tables of nfc.c.
 *
 * Layout     nfc_bits[nfc_page[c >> 7] << 7 | (c & 0x7f)]: combining class in the low byte, above
 *            it what NFC must look at.
 *            nfc_apart: by character, where its letters begin in nfc_letters; the next entry says
 *            where they end, the last is none.  Hangul syllables are not in it: arithmetic.
 *            nfc_pairs: by both letters, what they become.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/nfc.h"

enum {
	NFC_CCC   = 0x0ff,
	NFC_NO    = 0x100,              /* never in a composed text */
	NFC_MAYBE = 0x200,              /* may become one with what is before it */
	NFC_APART = 0x400,              /* comes apart */
};

struct nfc_apart {
	uint32_t c, letters;
};

struct nfc_pair {
	uint32_t a, b, both;
};

extern const uint8_t nfc_page[];
extern const uint16_t nfc_bits[];
extern const struct nfc_apart nfc_apart[];
extern const size_t nfc_n_apart;
extern const uint32_t nfc_letters[];
extern const struct nfc_pair nfc_pairs[];
extern const size_t nfc_n_pairs;
