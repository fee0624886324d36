/* tests/fuzz/fuzz_request.c -- any bytes as the body of any route, over the demo's model.
 *
 * The first byte chooses route and template.  Whatever is made: an end of the closed set, a reason
 * where it is not exact, ids within the vocabulary, and the same again when it is made again with
 * the segment cache.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/request.h"
#include "actors/common/prompt/segments.h"
#include "actors/common/prompt/tokenizer.h"

#define TEMPLATES PM_SOURCE_DIR "/tests/conformance/requests/templates/"
#define MODELS    3u
#define IDS_MAX   4096u

static const enum openai_route routes[] = {
	OPENAI_CHAT, OPENAI_COMPLETIONS, OPENAI_RESPONSES, OPENAI_MESSAGES, OPENAI_COUNT_TOKENS,
	OPENAI_GENERATE, OPENAI_EMBEDDINGS, OPENAI_TOKENIZE,
};

static struct model *model[MODELS];
static struct prompt_maker *maker;
static struct segments *cache;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const templates[MODELS] = {
		TEMPLATES "string.jinja", TEMPLATES "openai.jinja", TEMPLATES "chatml.jinja",
	};

	(void)argc;
	(void)argv;
	for (unsigned i = 0; i < MODELS; i++) {
		struct model_options options = {.template_file = templates[i],
			.trust_request_template = i == 2, .max_model_len = IDS_MAX};
		char why[MODEL_WHY_BYTES];
		void *bytes;
		size_t len;

		if (model_build(PM_SOURCE_DIR "/etc/models/demo", &options, &bytes, &len, why,
				sizeof why) < 0 ||
		    model_open(bytes, len, &model[i], why, sizeof why) < 0)
			abort();
	}
	if (prompt_maker_new(&maker) < 0 || segments_new(4u << 20, &cache) < 0)
		abort();
	prompt_maker_clock(maker, 1796081400);
	return 0;
}

static void
check(const struct model *m, const struct prompt_made *made)
{
	size_t vocabulary = tokenizer_vocabulary(model_tokenizer(m));

	if (made->end > PROMPT_TOO_MUCH || (made->end != PROMPT_EXACT && !made->why[0]) ||
	    (made->end == PROMPT_EXACT && (made->why[0] || !made->n_prompts)))
		abort();
	for (size_t i = 0; i < made->n_prompts; i++) {
		if (made->prompts[i].n > IDS_MAX + 1)
			abort();
		for (size_t k = 0; made->text.p && k < made->prompts[i].n; k++)
			if (made->prompts[i].ids[k] >= vocabulary)
				abort();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct prompt_made first, second;
	struct slice body;
	enum openai_route route;
	const struct model *m;
	uint32_t *ids;
	size_t n;

	if (size < 1)
		return 0;
	route = routes[data[0] % (sizeof routes / sizeof routes[0])];
	m = model[data[0] / 8 % MODELS];
	body = slice_of((const char *)data + 1, size - 1);
	if (prompt_make(maker, m, NULL, route, body, 0, &first) < 0)
		return 0;
	check(m, &first);
	n = first.n_prompts ? first.prompts[0].n : 0;
	ids = malloc(n * sizeof ids[0] + 1);
	if (n)
		memcpy(ids, first.prompts[0].ids, n * sizeof ids[0]);
	if (prompt_make(maker, m, cache, route, body, 0, &second) == 0) {
		check(m, &second);
		if (second.end != first.end || second.n_prompts != first.n_prompts ||
		    (n && (second.prompts[0].n != n ||
			   memcmp(second.prompts[0].ids, ids, n * sizeof ids[0]) != 0)))
			abort();
	}
	free(ids);
	return 0;
}
