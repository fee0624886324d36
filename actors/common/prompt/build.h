/* actors/common/prompt/build.h -- a tokenizer half made: what the loaders found in the files.
 *
 * Meaning    a loader fills one; build_finish makes the compiled bytes of it (compile.c).
 * Texts      tokens by their spelling in the file ("Ġthe"), and by the bytes they stand for; both
 *            in one arena that moves as it grows, so by offset.
 * Errors     the first stays: build_fail; later calls do nothing.
 * Threads    one.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/ids.h"
#include "actors/common/prompt/scan.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "actors/common/prompt/tokenizer_layout.h"
#include "proto/json.h"
#include "proto/slice.h"

struct build_bytes {                    /* an arena */
	char *p;
	size_t len, cap;
};

struct build_token {
	uint32_t off, len;              /* spelling, in build.spelling */
	uint32_t id;
};

struct build_merge {
	uint32_t left, right, id, rank;
};

struct build_added {
	uint32_t id, flags;             /* ADDED_* */
	uint32_t off, len;              /* content, in build.spelling */
	bool normalized;
};

struct build {
	char *why;
	size_t why_len;
	int error;                      /* 0, or the first failure */

	struct build_bytes spelling;
	struct build_token *tokens;     /* in the file's order */
	size_t n_tokens, cap_tokens;
	uint32_t *find;                 /* open addressing over tokens by spelling: place + 1 */
	size_t find_mask;

	struct build_merge *merges;
	size_t n_merges, cap_merges;
	bool ranks;                     /* tiktoken: no list, any two tokens whose texts make a
	                                   third merge; the rank is its id */

	bool byte_level, byte_fallback, fuse_unknown, ignore_merges;
	bool raw_bytes;                 /* spellings are bytes already (ranks, tekken) */
	uint32_t unknown;

	struct build_added *added;
	size_t n_added, cap_added;
	uint32_t *added_find;           /* as find, over added by content */
	size_t added_mask;
	uint32_t added_next;            /* behind the greatest id of them; 0: none */
	struct tokenizer_step step[TOKENIZER_STEPS_MAX]; /* text offsets in build.spelling */
	unsigned n_normalizers, n_steps;
	struct ids before, after;
};

int build_fail(struct build *b, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
	/* Keeps the first; returns build.error. */
void build_free(struct build *b);

uint32_t build_text(struct build *b, const char *p, size_t len);
	/* Into the arena; its offset. */
uint32_t build_json_text(struct build *b, const struct json_string *s, uint32_t *ret_len);
	/* The same, unescaped. */
struct slice build_slice(const struct build *b, uint32_t off, uint32_t len);

void build_expect(struct build *b, size_t tokens);
	/* About so many will come. */
void build_token(struct build *b, uint32_t off, uint32_t len, uint32_t id);
	/* A token of the vocabulary.  A spelling that was there gets the new id. */
uint32_t build_find(const struct build *b, struct slice spelling);
	/* Its id, or TOKENIZER_NONE. */
void build_merge(struct build *b, uint32_t left, uint32_t right, uint32_t id, uint32_t rank);
void build_added(struct build *b, uint32_t off, uint32_t len, uint32_t flags, bool normalized,
		 uint32_t id);
	/* As Hugging Face's add_tokens: the vocabulary's id, else `id`, else (TOKENIZER_NONE) the
	 * next.  One that is there already gets the new flags. */
uint32_t build_added_find(const struct build *b, struct slice content);
	/* Its id, be it added or of the vocabulary, or TOKENIZER_NONE. */
void build_step(struct build *b, bool normalizer, struct tokenizer_step step);
void build_split(struct build *b, uint32_t pattern, uint32_t len);
	/* A pre-tokenizer's step: a Split by that regular expression (of the arena), isolated. */
void build_split_known(struct build *b, enum scan_kind kind);
	/* By the pattern of a scanner. */
void build_surround(struct build *b, bool before, uint32_t id);
	/* One more of the post-processor's tokens. */

int build_finish(struct build *b, void **ret_bytes, size_t *ret_len);

/* The forms; each fills b and returns build.error. */
int build_load_json(struct build *b, struct slice file);
int build_load_tekken(struct build *b, struct slice file);
int build_load_ranks(struct build *b, struct slice file, struct slice pattern);
int build_load_config(struct build *b, enum tokenizer_form form, struct slice config);
	/* What Transformers' class makes different. */
size_t build_byte_of(uint32_t character);
	/* The byte that a character of GPT-2's alphabet stands for; 256: none. */
