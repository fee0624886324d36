/* tests/unit/test_request_cases.c -- requests as vLLM 0.32 prepares them: recorded, then compared.
 *
 * tests/conformance/requests/record.py wrote what vLLM's own request models, message parsing and
 * template call made of each body (Transformers 5.19); here the same bodies go through ours.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/request.h"
#include "tests/unit/model_world.h"

#define CASES     PM_SOURCE_DIR "/tests/data/requests/vllm-0.32.0.jsonl"
#define TEMPLATES PM_SOURCE_DIR "/tests/conformance/requests/templates"

/* Bodies the engine refuses for reasons that say nothing of a prompt, or that are not worth
 * looking for: it answers 400, whatever was guessed here. */
static const char *const lenient[] = {
	"name that is no string", "name null", "stream_options without stream",
	"input_text and output_text", "responses: assistant parts untyped",
	"responses: extra keys", "responses: tool role",
};

struct kept_model {
	char key[300];
	struct model *m;
};

static enum openai_route
route_of(const char *name)
{
	if (strcmp(name, "chat") == 0)
		return OPENAI_CHAT;
	if (strcmp(name, "responses") == 0)
		return OPENAI_RESPONSES;
	if (strcmp(name, "messages") == 0)
		return OPENAI_MESSAGES;
	if (strcmp(name, "count-tokens") == 0)
		return OPENAI_COUNT_TOKENS;
	cr_assert_str_eq(name, "tokenize");
	return OPENAI_TOKENIZE;
}

/* One model a template and options. */
static struct model *
model_of(const json_t *c)
{
	static struct kept_model kept[64];
	static unsigned n;
	const json_t *options = json_object_get(c, "options");
	const char *template = json_string_value(json_object_get(c, "template"));
	char *kwargs = json_dumps(json_object_get(options, "default_kwargs"), 0);
	char key[300], path[300];

	snprintf(key, sizeof key, "%s %d %d %s", template,
		 json_is_true(json_object_get(options, "trust")),
		 json_is_true(json_object_get(options, "exclude_tools")), kwargs ? kwargs : "");
	for (unsigned i = 0; i < n; i++)
		if (strcmp(kept[i].key, key) == 0) {
			free(kwargs);
			return kept[i].m;
		}
	cr_assert_lt(n, 64);
	snprintf(path, sizeof path, TEMPLATES "/%s.jinja", template);
	strcpy(kept[n].key, key);
	kept[n].m = world_model(path, (struct model_options){
		.default_kwargs = kwargs, .max_model_len = 4096,
		.trust_request_template = json_is_true(json_object_get(options, "trust")),
		.exclude_tools_when_none = json_is_true(
			json_object_get(options, "exclude_tools"))});
	free(kwargs);
	return kept[n++].m;
}

static bool
is_lenient(const char *name)
{
	for (size_t i = 0; i < sizeof lenient / sizeof lenient[0]; i++)
		if (strncmp(name, lenient[i], strlen(lenient[i])) == 0)
			return true;
	return false;
}

/* Does it come out as recorded?  Says how not. */
static bool
compare(const json_t *c, const struct prompt_made *made, bool *ret_unknown)
{
	const char *name = json_string_value(json_object_get(c, "name"));
	const json_t *text = json_object_get(c, "text");
	bool same;

	if (!text) {
		same = made->end == PROMPT_REFUSED || made->end == PROMPT_UNKNOWN ||
		       is_lenient(name);
		if (!same)
			fprintf(stderr, "%s: refused by the engine, here: %.*s\n", name,
				(int)made->text.len, made->text.p);
		return same;
	}
	if (made->end == PROMPT_UNKNOWN) {
		fprintf(stderr, "%s: not known here: %s\n", name, made->why);
		*ret_unknown = true;
		return true;
	}
	same = made->end == PROMPT_EXACT && made->text.len == json_string_length(text) &&
	       memcmp(made->text.p, json_string_value(text), made->text.len) == 0 &&
	       made->add_special == json_is_true(json_object_get(c, "add_special"));
	if (!same)
		fprintf(stderr, "%s: %s %s\n--- engine (%d)\n%s\n--- here (%d)\n%.*s\n", name,
			prompt_end_name(made->end), made->why,
			json_is_true(json_object_get(c, "add_special")), json_string_value(text),
			made->add_special, (int)made->text.len, made->text.p ? made->text.p : "");
	return same;
}

Test(request_cases, all_that_vllm_prepares_is_prepared_alike, .timeout = 60)
{
	unsigned cases = 0, wrong = 0, unknown = 0, refused = 0;
	FILE *f = fopen(CASES, "r");
	struct prompt_maker *p;
	size_t room = 0;
	char *line = NULL;

	cr_assert_not_null(f);
	cr_assert_eq(prompt_maker_new(&p), 0);
	while (getline(&line, &room, f) > 0) {
		struct prompt_made made;
		json_error_t error;
		json_t *c = json_loads(line, JSON_ALLOW_NUL, &error), *body;
		enum openai_route route;
		bool not_known = false;

		cr_assert_not_null(c, "%s: %s", error.text, line);
		body = json_object_get(c, "body");
		route = route_of(json_string_value(json_object_get(c, "route")));
		cr_assert_eq(prompt_make(p, model_of(c), NULL, route,
					 slice_of(json_string_value(body),
						  json_string_length(body)), 0, &made), 0);
		cases++;
		wrong += !compare(c, &made, &not_known);
		unknown += not_known;
		refused += !json_object_get(c, "text");
		json_decref(c);
	}
	free(line);
	fclose(f);
	prompt_maker_free(&p);
	fprintf(stderr, "%u requests, %u refused by the engine, %u not known here, %u wrong\n",
		cases, refused, unknown, wrong);
	cr_assert_geq(cases, 400);
	cr_assert_leq(unknown, 1);
	cr_assert_eq(wrong, 0);
}
