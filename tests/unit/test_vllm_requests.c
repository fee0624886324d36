/* test_vllm_requests.c -- what a real vLLM made of requests, over our demo model: ids called
 * exact here are its own.  tests/data/vllm-VERSION/requests.jsonl, made by
 * tests/conformance/vllm/capture.py. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/model.h"
#include "actors/common/prompt/request.h"

#define CAPTURE  PM_SOURCE_DIR "/tests/data/vllm-0.32.0/requests.jsonl"
#define LINE_MAX 65536
#define CONTEXT  4096 /* tokens, as the engine was told */

static struct {
	void *bytes;
	struct model *model;
	struct prompt_maker *maker;
	FILE *lines;
} world;

static void
begin(void)
{
	struct model_options options = {.max_model_len = CONTEXT};
	char why[MODEL_WHY_BYTES] = "";
	size_t len;

	cr_assert_eq(model_build(PM_SOURCE_DIR "/etc/models/demo", &options, &world.bytes, &len,
				 why, sizeof(why)),
		     0, "%s", why);
	cr_assert_eq(model_open(world.bytes, len, &world.model, why, sizeof(why)), 0, "%s", why);
	cr_assert_eq(prompt_maker_new(&world.maker), 0);
	world.lines = fopen(CAPTURE, "r");
	cr_assert(world.lines, "%s", CAPTURE);
}

static void
end(void)
{
	fclose(world.lines);
	prompt_maker_free(&world.maker);
	model_close(&world.model);
	free(world.bytes);
}

static bool
same_ids(const struct prompt_one *one, const json_t *want)
{
	if (one->n != json_array_size(want))
		return false;
	for (size_t i = 0; i < one->n; i++)
		if (one->ids[i] != json_integer_value(json_array_get(want, i)))
			return false;
	return true;
}

enum verdict { SAME, WRONG, NOT_KNOWN, REFUSED_TOO, REFUSED_THERE };

/* {"path", "body", "prompts": [[ids]...]} or {"path", "body", "refused"}.  The body is the very
 * bytes that were sent, as text. */
static enum verdict
compared(const json_t *line, struct prompt_made *made)
{
	const char *path = json_string_value(json_object_get(line, "path")),
		   *body = json_string_value(json_object_get(line, "body"));
	const json_t *prompts = json_object_get(line, "prompts");
	enum openai_route route =
		openai_route(HTTP1_POST, (struct slice){path, strlen(path)});

	cr_assert_eq(prompt_make(world.maker, world.model, NULL, route,
				 (struct slice){body, strlen(body)}, 0, made),
		     0);
	if (!prompts)
		return made->end == PROMPT_EXACT ? REFUSED_THERE : REFUSED_TOO;
	if (made->end != PROMPT_EXACT)
		return NOT_KNOWN;
	if (made->n_prompts != json_array_size(prompts))
		return WRONG;
	for (size_t i = 0; i < made->n_prompts; i++)
		if (!same_ids(&made->prompts[i], json_array_get(prompts, i)))
			return WRONG;
	return SAME;
}

/* What the engine refuses caches nothing, so that ids for it do no harm; they are counted, as are
 * those it takes and we leave to it (prompts of true, false and 1.0). */
Test(vllm_requests, ids_that_are_called_exact_are_those_that_the_engine_made, .init = begin,
     .fini = end, .timeout = 120)
{
	static char text[LINE_MAX];
	unsigned n = 0, count[REFUSED_THERE + 1] = {0};

	while (fgets(text, sizeof(text), world.lines)) {
		struct prompt_made made;
		json_error_t error;
		json_t *line = json_loads(text, JSON_ALLOW_NUL, &error);
		enum verdict v;

		cr_assert(line, "line %u: %s", n + 1, error.text);
		n++;
		v = compared(line, &made);
		count[v]++;
		if (v != SAME && v != REFUSED_TOO)
			fprintf(stderr, "line %u: %s %s (%.*s): %.300s\n", n,
				prompt_end_name(made.end), made.why, (int)made.text.len,
				made.text.p ? made.text.p : "", text);
		json_decref(line);
	}
	cr_expect_eq(count[WRONG], 0, "%u of %u are wrong", count[WRONG], n);
	cr_expect_leq(count[NOT_KNOWN], 2, "%u of %u are not known", count[NOT_KNOWN], n);
	cr_expect_geq(count[SAME], 348, "%u are the same", count[SAME]);
	cr_expect_geq(count[REFUSED_TOO], 215, "%u are refused here too", count[REFUSED_TOO]);
	cr_expect_leq(count[REFUSED_THERE], 4, "%u are refused only there", count[REFUSED_THERE]);
}
