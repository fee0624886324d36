/* test_content_format.c -- whether a chat template walks a message's content as a list, for every
 * template that lies beside the tree, as vLLM decides. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/jinja.h"

/* The manifest is of an earlier release; 0.32 looks into macros as well, and says of these what it
 * said of none. */
static const char *const since_032[] = {"qwen3.5", "mistral-v15-think"};

static bool
expected(const char *name, const json_t *entry)
{
	for (size_t i = 0; i < sizeof since_032 / sizeof since_032[0]; i++)
		if (strcmp(name, since_032[i]) == 0)
			return true;
	return strcmp(json_string_value(json_object_get(entry, "vllm_content_format")), "openai")
	       == 0;
}

static bool
walks_list(const char *folder, const char *name)
{
	static char source[1 << 20];
	struct jinja_error err = {0};
	struct jinja *jinja = NULL;
	char path[600];
	bool is;

	snprintf(path, sizeof path, "%s/templates/%s.jinja", folder, name);
	FILE *f = fopen(path, "rb");

	cr_assert(f, "%s", path);
	size_t n = fread(source, 1, sizeof source, f);

	fclose(f);
	cr_assert_eq(jinja_compile((struct slice){source, n}, &jinja, &err), 0, "%s, line %u: %s",
		     name, err.line, err.text);
	is = jinja_loops_over_content(jinja);
	jinja_free(&jinja);
	return is;
}

Test(content_format, every_template_is_given_texts_or_lists_as_vllm_gives_it)
{
	const char *folder = getenv("PM_TOKENIZERS_UNPACKED"), *name;
	char path[600];
	json_t *manifest, *entry;
	json_error_t error;

	snprintf(path, sizeof path, "%s/templates/manifest.json", folder ? folder : "");
	manifest = json_load_file(path, 0, &error);
	if (!manifest)
		cr_skip_test("no templates in PM_TOKENIZERS_UNPACKED");
	cr_expect_geq(json_object_size(manifest), 21);
	json_object_foreach(manifest, name, entry)
		cr_expect_eq(walks_list(folder, name), expected(name, entry), "%s", name);
	json_decref(manifest);
}
