/* tests/emulator/native.h -- a model's own tokens: what an engine with that folder would make.
 *
 * Meaning    --model-dir: the body of a request, as it came, becomes the ids that vLLM makes of it
 *            (actors/common/prompt).  So a router and this engine agree where both have the same
 *            model and the same request, and not where one has another.
 * Errors     NULL or negative with why: what the engine would answer 400 to, or what is not
 *            emulated (images).
 * Threads    one.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "proto/openai.h"
#include "proto/slice.h"

struct native;

int native_open(const char *dir, unsigned max_model_len, struct native **ret, char why[static 256]);
	/* 0, -EINVAL and a sentence. */
void native_close(struct native **ret);
uint32_t *native_tokens(struct native *native, enum openai_route route, struct slice body,
			unsigned *ret_tokens, const char **why);
	/* From malloc; why: good until the next call. */
int native_count(struct native *native, enum openai_route route, struct slice body,
		 unsigned *ret_tokens, const char **why);
	/* Tokens of all its prompts: 0, or -EINVAL and why. */
