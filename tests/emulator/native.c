/* tests/emulator/native.c -- see native.h. */
#include "tests/emulator/native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/request.h"

struct native {
	void *blob;                     /* the model's, owned */
	struct model *model;
	struct prompt_maker *maker;
	size_t max_ids;
};

int
native_open(const char *dir, unsigned max_model_len, struct native **ret, char why[static 256])
{
	struct model_options options = {.max_model_len = max_model_len};
	struct native *native = calloc(1, sizeof *native);
	char said[MODEL_WHY_BYTES] = "out of memory";
	size_t len;

	if (native == NULL ||
	    model_build(dir, &options, &native->blob, &len, said, sizeof said) < 0 ||
	    model_open(native->blob, len, &native->model, said, sizeof said) < 0 ||
	    prompt_maker_new(&native->maker) < 0) {
		snprintf(why, 256, "--model-dir: %.200s", said);
		native_close(&native);
		return -EINVAL;
	}
	native->max_ids = (size_t)max_model_len + 1;
	*ret = native;
	return 0;
}

void
native_close(struct native **ret)
{
	struct native *native = *ret;

	if (native == NULL)
		return;
	if (native->maker != NULL)
		prompt_maker_free(&native->maker);
	if (native->model != NULL)
		model_close(&native->model);
	free(native->blob);
	free(native);
	*ret = NULL;
}

uint32_t *
native_tokens(struct native *native, enum openai_route route, struct slice body,
	      unsigned *ret_tokens, const char **why)
{
	struct prompt_made made;
	uint32_t *token;

	if (prompt_make(native->maker, native->model, NULL, route, body, native->max_ids, &made) <
		    0 ||
	    (made.end != PROMPT_EXACT && made.end != PROMPT_TOO_LONG)) {
		*why = made.why;
		return NULL;
	}
	if (made.n_prompts != 1) {
		*why = "only one prompt in a request is emulated";
		return NULL;
	}
	token = malloc((made.prompts[0].n + 1) * sizeof *token);
	if (token == NULL) {
		*why = "out of memory";
		return NULL;
	}
	memcpy(token, made.prompts[0].ids, made.prompts[0].n * sizeof *token);
	*ret_tokens = (unsigned)made.prompts[0].n;
	return token;
}

int
native_count(struct native *native, enum openai_route route, struct slice body,
	     unsigned *ret_tokens, const char **why)
{
	struct prompt_made made;

	if (prompt_make(native->maker, native->model, NULL, route, body, native->max_ids, &made) <
		    0 ||
	    (made.end != PROMPT_EXACT && made.end != PROMPT_TOO_LONG)) {
		*why = made.why;
		return -EINVAL;
	}
	*ret_tokens = 0;
	for (size_t i = 0; i < made.n_prompts; i++)
		*ret_tokens += (unsigned)made.prompts[i].n;
	return 0;
}
