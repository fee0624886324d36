/* actors/common/tags/find.h -- personal data, numbers of accounts and secrets in one plain text.
 *
 * Question   Which e-mail addresses, telephone numbers, IBANs, cards, SSNs and secrets stand in it?
 *            What counts as one: README.md in this folder.
 * Way        One pass that stops at digits, '@', "://" and what secrets begin with; there a
 *            validator looks closer.  Words (telephone, order, ..) are looked for only on the way
 *            to a number that needs one.
 * Bounds     Each validator looks at most some hundred bytes around, so that the whole is linear.
 * Threads    pure but for struct find.   Cost: 1 ns a byte of prose, 30 ns a number.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

enum find_kind { FIND_EMAIL, FIND_PHONE, FIND_IBAN, FIND_CARD, FIND_SSN, FIND_SECRET, FIND_KINDS };

enum find_word { WORD_PHONE, WORD_OTHER, WORD_SSN, FIND_WORDS };

#define FIND_WORDS_MAX 128u

/* What is the same for all texts. */
struct find_tables {
	uint64_t pair[65536 / 64];      /* two bytes with which something may begin */
	/* words by their first character: subscripts + 1; 0: no more */
	uint8_t head[256], next[FIND_WORDS_MAX];
	uint32_t first[FIND_WORDS_MAX];
};

void find_tables_init(struct find_tables *ret);

struct find {
	/* the caller's */
	const struct find_tables *tables;
	const char *text, *end;         /* as plain.h makes it */
	unsigned want;                  /* 1 << enum find_kind; may lose bits in `hit` */
	void (*hit)(struct find *f, enum find_kind kind, struct slice value);
	void *owner;
	/* private: words up to `seen` */
	const char *seen, *line;        /* line: where the last one began */
	const char *word_end[FIND_WORDS];
};

void find_all(struct find *f);
	/* Calls hit for each that is wanted, in order; ends early when none is wanted any more. */
