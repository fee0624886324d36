/* test_tokenizer_golden.c -- the ids that Hugging Face's tokenizers gives, for every text and every
 * tokenizer that is here; the same model as tiktoken's ranks and as tekken.json. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"

#define NAMES_MAX 32

struct model {
	struct tokenizer *tokenizer;
	struct tokenizer_scratch *scratch;
	void *bytes;
};

static const char *
folder(void)
{
	const char *at = getenv("PM_TOKENIZERS_UNPACKED");
	char path[512];
	DIR *dir;

	if (!at)
		return NULL;
	snprintf(path, sizeof(path), "%s/golden-tokens", at);
	dir = opendir(path);
	if (!dir)
		return NULL;
	closedir(dir);
	return at;
}

static void
compiled(struct model *m, const struct tokenizer_source *source)
{
	char why[TOKENIZER_WHY_BYTES] = "";
	const char *trouble = "";
	size_t len;

	cr_assert_eq(tokenizer_compile(source, &m->bytes, &len, why, sizeof(why)), 0, "%s", why);
	cr_assert_eq(tokenizer_open(m->bytes, len, &m->tokenizer, &trouble), 0, "%s", trouble);
	cr_assert_eq(tokenizer_scratch_new(&m->scratch), 0);
}

static void
gone(struct model *m)
{
	tokenizer_scratch_free(&m->scratch);
	tokenizer_close(&m->tokenizer);
	free(m->bytes);
}

static json_t *
golden(const char *name)
{
	char path[512];
	json_error_t error;
	json_t *list;

	snprintf(path, sizeof(path), "%s/golden-tokens/%s.json", folder(), name);
	list = json_load_file(path, JSON_ALLOW_NUL, &error);
	cr_assert(list, "%s: %s", path, error.text);
	cr_assert_gt(json_array_size(list), 300);
	return list;
}

static bool
same(const struct ids *ids, const json_t *want)
{
	if (ids->n != json_array_size(want))
		return false;
	for (size_t i = 0; i < ids->n; i++)
		if (ids->id[i] != json_integer_value(json_array_get(want, i)))
			return false;
	return true;
}

/* The text whole, and as the concatenation of its cuts. */
static void
equal(const struct model *m, const char *name, const json_t *one, bool special)
{
	const json_t *text = json_object_get(one, "text");
	const json_t *want = special ? json_object_get(one, "ids_with_special") : NULL;
	struct slice s = {json_string_value(text), json_string_length(text)};
	struct ids ids = {0};

	cr_assert_eq(tokenizer_encode(m->tokenizer, m->scratch, s, special, SIZE_MAX, &ids), 0);
	cr_assert(same(&ids, want ? want : json_object_get(one, "ids")), "%s: \"%s\"%s", name, s.p,
		  special ? " with special tokens" : "");
	if (!special) {
		struct ids parts = {0};
		struct tokenizer_cut cut;
		size_t off = 0;

		while (tokenizer_cut(m->tokenizer, s, &off, &cut))
			cr_assert_eq(tokenizer_encode_cut(m->tokenizer, m->scratch, &cut, SIZE_MAX,
							  &parts), 0);
		cr_assert(parts.n == ids.n &&
			  memcmp(parts.id, ids.id, ids.n * sizeof(*ids.id)) == 0, "%s: cuts", name);
		ids_free(&parts);
	}
	ids_free(&ids);
}

ParameterizedTestParameters(tokenizer_golden, every_text_of_every_tokenizer_has_their_ids)
{
	static char names[NAMES_MAX][96];
	size_t n = 0;
	char path[512];

	snprintf(path, sizeof(path), "%s/golden-tokens", folder() ? folder() : "");
	DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && n < NAMES_MAX && (e = readdir(dir))) {
		const char *dot = strrchr(e->d_name, '.');

		if (dot && strcmp(dot, ".json") == 0 && e->d_name[0] != '_')
			snprintf(names[n++], sizeof(names[0]), "%.*s", (int)(dot - e->d_name),
				 e->d_name);
	}
	if (dir)
		closedir(dir);
	else
		fprintf(stderr, "skipped: no tokenizers\n");
	return cr_make_param_array(char[96], names, n);
}

ParameterizedTest(char (*name)[96], tokenizer_golden, every_text_of_every_tokenizer_has_their_ids,
		  .timeout = 250)
{
	char path[512], why[TOKENIZER_WHY_BYTES] = "";
	struct tokenizer_files files;
	struct model m;
	json_t *list = golden(*name), *one;
	size_t i;

	snprintf(path, sizeof(path), "%s/tokenizers/%s", folder(), *name);
	cr_assert_eq(tokenizer_files_open(path, true, &files, why, sizeof(why)), 0, "%s", why);
	compiled(&m, &files.source);
	json_array_foreach(list, i, one) {
		equal(&m, *name, one, false);
		equal(&m, *name, one, true);
	}
	gone(&m);
	tokenizer_files_close(&files);
	json_decref(list);
}
