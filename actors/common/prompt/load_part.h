/* actors/common/prompt/load_part.h -- objects of a tokenizer's JSON, by the keys one asks for.
 *
 * Meaning    part_read finds the values of known keys as raw JSON; the others say what one is.
 *            A key that is absent is {NULL, 0}; of one that is there twice the last counts.
 * Errors     build_fail, with `where`; whatever the input.  Threads: pure but for the build.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/prompt/build.h"
#include "proto/slice.h"

int part_read(struct build *b, const char *where, struct slice raw, const char *const *names,
	      struct slice *ret, unsigned n);
	/* 0; build.error: it is no object, or no JSON. */
bool part_is(struct slice raw, const char *text);       /* a string, that one */
bool part_true(struct slice raw);
bool part_null(struct slice raw);
bool part_zero(struct slice raw);                       /* absent, null, or a number that is 0 */
bool part_empty(struct slice raw);                      /* absent, null, or "" */
uint32_t part_text(struct build *b, const char *where, struct slice raw, uint32_t *ret_len);
	/* A string, unescaped, into the build's arena: its offset. */
void part_unknown(struct build *b, const char *where, struct slice type);
	/* Fails: that type is not reproduced. */
void part_added(struct build *b, const char *where, struct slice raw, uint32_t id);
	/* An added token with its flags, as build_added. */
