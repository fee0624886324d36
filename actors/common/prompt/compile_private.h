/* actors/common/prompt/compile_private.h -- what the two halves of the compiler share. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/bpe.h"
#include "actors/common/prompt/build.h"

struct token_bytes {
	uint32_t off, len;              /* in finish.bytes; len 0: it stands for none */
};

struct section {
	char *p;
	size_t len, cap;
};

struct finish {
	struct build *b;
	struct section bytes;           /* of the tokens; then contents, patterns */
	struct token_bytes *token;      /* as build.tokens */
	bool *whole;                    /* a piece of its text becomes it at once */
	struct tokenizer_head head;
	struct section section[SECTIONS];
	struct bpe_tables tables;       /* over the sections, as far as they are */
	struct bpe_work work;
	uint32_t byte_symbol[256];
	bool all_bytes;                 /* each has a symbol */
	bool closed;                    /* no pair has a symbol that is not its own text */
};

void *compile_room(struct finish *f, struct section *s, size_t len);
	/* Behind its end; the section may move.  NULL: no memory, and build_fail was called. */
uint32_t compile_bytes(struct finish *f, struct slice s);
	/* Into BYTES: its offset. */
void compile_added(struct finish *f);
	/* NODES, EDGES, ADDED and the roots (compile_added.c). */
