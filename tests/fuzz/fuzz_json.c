/* fuzz_json.c -- a request body from a stranger, judged beside jansson: what one accepts the other
 * does, strings and integers mean the same, and the view's spans are values of their own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_oracle.h"
#include "proto/openai.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool truth, const char *what)
{
	if (!truth) {
		fprintf(stderr, "fuzz_json: %s\n", what);
		abort();
	}
}

/* Everything that is a string, through unescape and back. */
static void
strings(const char *doc, size_t len)
{
	struct json_cursor c;
	struct json_string s;

	json_begin(&c, doc, len);
	if (json_peek(&c) != JSON_IS_STRING || !json_get_string(&c, &s))
		return;
	size_t cap = s.raw.len;
	char *out = malloc(cap ? cap : 1), *again = malloc(6 * cap + 1);
	ssize_t n = json_unescape(&s, out, cap);

	require(n >= 0 && (size_t)n <= cap, "unescaped longer than raw");
	require(json_escape((struct slice){out, (size_t)n}, again, 6 * cap + 1) >= 0,
		"a read string cannot be written");
	free(out);
	free(again);
}

static void
view(const char *doc, size_t len, bool valid)
{
	static struct openai_view v;
	const char *why = NULL;
	size_t off;
	int r = openai_view_parse(doc, len, &v, &why);

	require(r == 0 || (r == -400 && why && v.error_off_bytes <= len), "refused without why");
	require(r < 0 || valid, "a view of what is not JSON");
	if (r < 0)
		return;
	for (unsigned f = 0; f < OPENAI_N_FIELDS; f++) {
		struct slice s = openai_field(&v, doc, f);

		require(!s.p || json_validate(s.p, s.len, &why, &off) == 0,
			"a span is no value of its own");
	}
	if (v.prompt == OPENAI_PROMPT_TOKENS) {
		uint32_t *out = malloc(v.n_prompt_tokens * sizeof(*out) + 1);

		require(openai_prompt_tokens(&v, doc, out, v.n_prompt_tokens) ==
				(ssize_t)v.n_prompt_tokens, "tokens counted and read differ");
		free(out);
	} else if (v.prompt == OPENAI_PROMPT_TOKEN_LISTS) {
		size_t total = 0;

		for (size_t i = 0; i < v.n_prompts; i++)
			total += (size_t)openai_prompt_list(&v, doc, i, NULL, 0);
		require(total == v.n_prompt_tokens, "tokens of lists counted and read differ");
		require(openai_prompt_list(&v, doc, v.n_prompts, NULL, 0) < 0, "one list too many");
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *doc = malloc(size ? size : 1);
	struct openai_usage usage;
	const char *why = NULL;
	struct slice id;
	size_t off = 0;

	memcpy(doc, data, size);
	bool valid = json_validate(doc, size, &why, &off) == 0;

	require(valid || (why && off <= size), "refused without saying why and where");
	enum json_verdict verdict = json_oracle(doc, size);

	require(verdict == JSON_ORACLE_SILENT || valid == (verdict == JSON_ORACLE_ACCEPTS),
		"jansson judges otherwise");
	strings(doc, size);
	view(doc, size, valid);
	openai_scan_usage((struct slice){doc, size}, &usage);
	openai_event_kind(OPENAI_API_RESPONSES, (struct slice){NULL, 0},
			  (struct slice){doc, size});
	openai_find_id((struct slice){doc, size}, NULL, &id);

	/* Integer arrays: what is counted is what is read, also where the fast way ends. */
	struct json_cursor c;
	size_t n = 0;

	json_begin(&c, doc, size);
	if (json_get_u32_array(&c, NULL, 0, &n) && json_end(&c) == 0) {
		require(valid, "integers in what is not JSON");
		uint32_t *out = malloc(n * sizeof(*out) + 1);
		size_t again;

		json_begin(&c, doc, size);
		require(json_get_u32_array(&c, out, n, &again) && again == n, "two counts");
		json_oracle_u32(doc, size, out, n);
		free(out);
	}
	free(doc);
	return 0;
}
