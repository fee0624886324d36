/* actors/common/prompt/scan.h -- where text is cut into pieces before tokens are made of it.
 *
 * Question   A model's pre-tokenizer is a regular expression: which are its matches in this text?
 * Rule       as Hugging Face's tokenizers with Oniguruma 6.9.10 (Unicode 16): matches from left to
 *            right, none overlapping, what lies between two matches is a piece too (behaviour
 *            Isolated).  The regular expression sees nothing outside the text it is given.
 * How        patterns that most models have are known by their exact text and have a scanner of
 *            their own; every other one is compiled by PCRE2 with JIT, over bytes that stand for
 *            classes of characters of our own Unicode tables, so that both agree to the last
 *            character.  What cannot be said so is refused, with the reason.
 * Bounds     texts of 4 GiB - 1 at most; every scanner's work is linear in the text.  PCRE2's may
 *            not be: a pattern that searches for longer than SCAN_NS_BYTE for each byte of the
 *            text and SCAN_NS_MORE fails with -ETIME.
 * Threads    a struct scan is read-only once open and shared; a struct scan_run is one thread's.
 * Cost       request path: tests/bench/run prompt says what it is today.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/slice.h"

#define SCAN_NS_BYTE 200u
#define SCAN_NS_MORE 20000000u

enum scan_kind {
	SCAN_PATTERN,                   /* none of those below: PCRE2 */
	SCAN_GPT2,                      /* GPT-2 and what descends from it; ByteLevel's own */
	SCAN_LLAMA3,                    /* Llama 3, cl100k: digits by three */
	SCAN_QWEN2,                     /* Qwen 1.5 to 3: digits one by one */
	SCAN_QWEN35,                    /* Qwen 3.5: marks are of the word */
	SCAN_O200K,                     /* gpt-oss, Llama 4: words by case, digits by three */
	SCAN_TEKKEN,                    /* Mistral: words by case, digits one by one */
	SCAN_DEEPSEEK,                  /* DeepSeek V3 on: three splits, one after another */
	SCAN_KIMI,                      /* Kimi K2: as o200k, Han by itself */
	SCAN_SEED,                      /* Seed-OSS: as Qwen 2, line ends by themselves */
	SCAN_KINDS,
};

struct scan_pcre2;
struct scan_pcre2_room;
struct scan_run;

struct scan {
	enum scan_kind kind;
	size_t (*pieces)(struct scan_run *, uint32_t *ret_len, size_t max); /* NULL: PCRE2 */
	struct scan_pcre2 *pcre2;       /* owned; SCAN_PATTERN only */
};

/* One text on its way through a scanner.  Zero before its first use. */
struct scan_run {
	const struct scan *scan;        /* borrowed, as the text is */
	const char *text;
	size_t len;
	size_t off;                     /* bytes already given as pieces or matches */
	/* PCRE2 only, counted in characters: */
	uint8_t *classes;               /* owned: a byte for each character of the text */
	size_t classes_cap, n_classes;
	size_t from;                    /* search on from here */
	size_t last;                    /* end of the last match .. */
	bool matched;                   /* .. which there is */
	size_t given;                   /* so many were given as pieces */
	size_t pending;                 /* of a match, behind the gap that was given before it */
	uint64_t spent_ns, may_ns;      /* of CPU time */
	struct scan_pcre2_room *room;   /* owned */
};

bool scan_known(const struct slice *pattern, size_t n, enum scan_kind *ret);
	/* The n patterns, applied one after another as Splits that isolate, have a scanner: which.
	 * Patterns as the JSON's string says, unescaped.  Equality of every byte decides. */
const char *scan_pattern(enum scan_kind kind, size_t i);
	/* The i-th of the patterns that this scanner stands for; NULL: there are no more. */
int scan_open(struct slice pattern, struct scan *ret, const char **why, size_t *ret_at);
	/* One pattern: its own scanner, else PCRE2.  0; -EINVAL with why (static) and the offset in
	 * the pattern where it is wrong or beyond us; -ENOMEM.  10 us to 1 ms for PCRE2. */
void scan_open_kind(enum scan_kind kind, struct scan *ret);
	/* One that scan_known told.  Not SCAN_PATTERN. */
int scan_open_pcre2(struct slice pattern, struct scan *ret, const char **why, size_t *ret_at);
	/* As scan_open, and by PCRE2 in any case: what the scanners are compared with. */
void scan_close(struct scan *s);
	/* No run may be on its way. */

int scan_begin(const struct scan *s, struct scan_run *run, struct slice text);
	/* The next text.  It must be valid UTF-8 (unicode_valid); nothing is read beyond it
	 * whatever it is.  0; -E2BIG; -ENOMEM. */
ssize_t scan_pieces(struct scan_run *run, uint32_t *ret_len, size_t max);
	/* The lengths in bytes of the next pieces, max at most, none of them 0.  0: the text is
	 * over.  -ETIME: the pattern searched for too long. */
int scan_match(struct scan_run *run, size_t *ret_begin, size_t *ret_end);
	/* For other behaviours than Isolated: the next match as offsets in the text (it may be
	 * empty).  1; 0: none is left; -ETIME.  Not with SCAN_DEEPSEEK, which is three patterns. Do
	 * not mix with scan_pieces in one run. */
void scan_run_free(struct scan_run *run);

size_t scan_cut(enum scan_kind kind, struct slice text, size_t off);
	/* Where the text may be cut so that the pieces of both parts, one after the other, are the
	 * pieces of the whole: the first such place > off that the kind is proven to have (behind a
	 * line feed), text.len if none.  NFC of the parts is NFC of the whole there too. */
