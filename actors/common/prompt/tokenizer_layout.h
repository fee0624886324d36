/* actors/common/prompt/tokenizer_layout.h -- the compiled tokenizer, byte by byte.
 *
 * Layout     struct tokenizer_head, then its sections, each 64-byte aligned, at offsets from the
 *            beginning; host byte order, which the magic tells.  0 bytes between.
 *
 *            WORDS    tokens of 1..11 bytes that a whole piece can become
 *            LONGS    open addressing: the same for longer ones; their bytes in BYTES
 *            MERGES   (left, right) -> rank, id
 *            WORD_SLOTS, MERGE_SLOTS     open addressing over these two: a quarter of their size,
 *                     and what is not there is not looked for in them.  They lie in the order of
 *                     their ranks: what is common is together.
 *            PAIRS    65,536 merges of byte and byte, directly; byte-level only
 *            CHARACTERS  65,536: what a character's bytes become whatever stands beside them but
 *                     ASCII, or TOKENIZER_NONE; none below 0x80; byte-level only
 *            SYMBOLS  256: id of a byte (byte-level), or of <0xNN>
 *            NODES, EDGES, ADDED    trie over the added tokens' contents
 *            STEPS    normalizers, then pre-tokenizers, in order
 *            BEFORE, AFTER          ids around the text with add_special
 *            BYTES    contents, patterns, strings
 *
 * Bounds     opening checks the sections against the length, and every index of the small ones
 *            (nodes, edges, added, steps); those of LONGS and the slots are never used as an index
 *            without a check.  A probe looks at TOKENIZER_PROBES entries at most.
 * Version    a change of size, order or meaning of anything here, or of what an id depends on,
 *            bumps TOKENIZER_LAYOUT.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_MAGIC  0x6b6f7478656e696dull
#define TOKENIZER_LAYOUT 4u
#define TOKENIZER_PROBES 32u
#define TOKENIZER_RANKS_MAX (1u << 23)  /* rank * 128 + place fits 31 bits */
#define TOKENIZER_SLOT_TAG  0xff000000u /* of a slot: bits of the hash; the rest: place + 1 */
#define TOKENIZER_STEPS_MAX 16u

enum tokenizer_section {
	SECTION_WORDS, SECTION_LONGS, SECTION_MERGES, SECTION_WORD_SLOTS, SECTION_MERGE_SLOTS,
	SECTION_PAIRS, SECTION_CHARACTERS, SECTION_SYMBOLS,
	SECTION_NODES, SECTION_EDGES, SECTION_ADDED, SECTION_STEPS, SECTION_BEFORE, SECTION_AFTER,
	SECTION_BYTES, SECTIONS,
};

enum {                                  /* tokenizer_head.flags */
	TOKENIZER_BYTE_LEVEL   = 1,     /* symbols are bytes; else characters */
	TOKENIZER_FALLBACK     = 2,     /* characters without a token become SYMBOLS */
	TOKENIZER_FUSE_UNKNOWN = 4,
	TOKENIZER_PARTS        = 8,     /* no token crosses to a U+2581 (head.crossed) */

};

struct tokenizer_span {
	uint64_t off, len;              /* bytes */
};

struct tokenizer_head {
	uint64_t magic;
	uint32_t layout, flags;
	uint64_t len;                   /* of all */
	uint64_t checksum;              /* XXH3-64 of all behind this field */
	struct tokenizer_span section[SECTIONS];
	uint32_t vocabulary;            /* largest id, plus one */
	uint32_t unknown;               /* unk_token's id, or TOKENIZER_NONE */
	uint32_t words_mask, longs_mask, merges_mask;   /* slots less one, a power of two */
	uint32_t n_normalizers, n_pretokenizers;        /* in STEPS */
	uint32_t n_raw;                 /* the first of ADDED are found before normalizing, .. */
	uint32_t raw_root, made_root;   /* .. by the trie there; the others by this; or NONE */
	uint64_t crossed[4];            /* bit b: some token has byte b right before U+2581 */
};

struct tokenizer_word {
	uint64_t a;                     /* bytes 0..7, zeros behind them */
	uint32_t b;                     /* bytes 8..10, and the length on top */
	uint32_t id;
};

struct tokenizer_long {                 /* len 0: none */
	uint32_t hash, off, len, id;
};

struct tokenizer_merge {
	uint32_t left, right, rank, id;
};

struct tokenizer_pair {                 /* rank TOKENIZER_NONE: they do not merge */
	uint32_t rank, id;
};

struct tokenizer_node {
	uint32_t edge;                  /* the first; n_edges in order of their byte */
	uint32_t n_edges;
	uint32_t added;                 /* a token ends here, or TOKENIZER_NONE */
};

struct tokenizer_edge {
	uint32_t byte, node;
};

enum {                                  /* tokenizer_added_token.flags */
	ADDED_SINGLE_WORD = 1, ADDED_LSTRIP = 2, ADDED_RSTRIP = 4, ADDED_SPECIAL = 8,
};

struct tokenizer_added_token {
	uint32_t id, flags;
	uint32_t off, len;              /* content in BYTES */
};

enum tokenizer_step_kind {
	STEP_NFC, STEP_PREPEND, STEP_REPLACE,                           /* normalizers */
	STEP_SPLIT_REGEX, STEP_SPLIT_STRING, STEP_DIGITS, STEP_METASPACE, STEP_PREFIX_SPACE,
	STEP_KINDS,
};

enum tokenizer_behavior {
	BEHAVIOR_ISOLATED, BEHAVIOR_REMOVED, BEHAVIOR_PREVIOUS, BEHAVIOR_NEXT, BEHAVIOR_CONTIGUOUS,
	BEHAVIORS,
};

enum {                                  /* tokenizer_step.flags */
	STEP_INVERT = 1,
	STEP_FIRST  = 2,                /* METASPACE: prepend where the text begins, .. */
	STEP_ALWAYS = 4,                /* .. or always; neither: never */
	STEP_SPLIT  = 8,                /* METASPACE */
};

struct tokenizer_step {
	uint32_t kind, behavior, flags, reserved;
	uint32_t text, text_len;        /* pattern, string or replacement, in BYTES */
	uint32_t with, with_len;        /* REPLACE: by what */
};

_Static_assert(sizeof(struct tokenizer_word) == 16, "four to a line");
_Static_assert(sizeof(struct tokenizer_long) == 16, "four to a line");
_Static_assert(sizeof(struct tokenizer_merge) == 16, "four to a line");
_Static_assert(sizeof(struct tokenizer_pair) == 8, "eight to a line");
_Static_assert(sizeof(struct tokenizer_step) == 32, "no hole");
_Static_assert(sizeof(struct tokenizer_head) % 8 == 0, "no hole at the end");

/* Where the tables begin to look. */
static inline uint32_t
tokenizer_hash_merge(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 12);
}

static inline uint64_t
tokenizer_hash_word(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;

	return h ^ h >> 32;
}
