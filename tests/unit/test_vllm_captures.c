/* test_vllm_captures.c -- what a real vLLM sent is understood: its events, and the usage of its
 * answers and streams.  tests/data/vllm-VERSION, made by tests/conformance/vllm/capture.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kv_events.h"
#include "proto/openai.h"

#define DATA PM_SOURCE_DIR "/tests/data/vllm-0.32.0/"
#define SALT "tenant-"

struct file {
	char *p;
	size_t n;
};

static struct file
file_read(const char *part, const char *name)
{
	char path[512];
	struct file got = {NULL, 0};
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), DATA "%s/%s", part, name);
	f = fopen(path, "rb");
	cr_assert(f, "%s", path);
	for (size_t n = 1; n > 0; got.n += n) {
		if (cap - got.n < 4096)
			got.p = realloc(got.p, cap += 65536);
		n = fread(got.p + got.n, 1, cap - got.n - 1, f);
	}
	got.p[got.n] = '\0';
	fclose(f);
	return got;
}

/* All of its events, as they are printed. */
static char *
printed(struct file f)
{
	struct kv_batch batch = {0};
	const char *why = "";
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	cr_assert_eq(kv_batch_decode(f.p, f.n, &batch, &why), 0, "%s", why);
	cr_assert_eq(batch.n_failed, 0);
	cr_assert_gt(batch.n_events, 0);
	for (size_t i = 0; i < batch.n_events; i++)
		kv_event_print_json(to, &batch, &batch.events[i]);
	fclose(to);
	kv_batch_free(&batch);
	return text;
}

static void
says(const char *name, const char *const *words)
{
	struct file f = file_read("events", name);
	char *text = printed(f);

	for (; *words; words++)
		cr_assert(strstr(text, *words), "%s does not say %s: %s", name, *words, text);
	free(text);
	free(f.p);
}

Test(vllm_captures, its_events_are_read)
{
	says("stored.bin", (const char *const[]){"\"type\": \"BlockStored\"", "\"rank\": 0",
						 "\"parent\": null", "\"block_size\": 32",
						 "\"medium\": \"GPU\"", "\"group\": 0", NULL});
	says("child.bin", (const char *const[]){"\"type\": \"BlockStored\"", "\"parent\": \"0x",
						"\"extra_keys\": [null]", NULL});
	says("salted.bin", (const char *const[]){"\"type\": \"BlockStored\"",
						 "\"extra_keys\": [[\"" SALT, NULL});
	says("removed.bin", (const char *const[]){"\"type\": \"BlockRemoved\"",
						  "\"hashes\": [\"0x", "\"medium\": \"GPU\"",
						  NULL});
}

/* The last usage that a stream's events say, or the answer's own. */
static struct openai_usage
usage_of(const char *name)
{
	struct openai_usage sum = {OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
				   OPENAI_TOKENS_UNKNOWN},
			    said;
	struct file f = file_read("answers", name);
	bool stream = strstr(name, ".sse") != NULL;

	for (char *line = f.p; *line;) {
		size_t n = strcspn(line, "\n");
		const char *data = stream ? line + 6 : line;

		if ((!stream || strncmp(line, "data: ", 6) == 0) &&
		    openai_scan_usage((struct slice){data, n - (size_t)(data - line)}, &said))
			openai_usage_add(&sum, &said);
		line += n + (line[n] == '\n');
	}
	free(f.p);
	return sum;
}

Test(vllm_captures, the_usage_of_every_answer_and_stream_is_read)
{
	static const struct {
		const char *name;
		uint32_t prompt, completion;
	} answers[] = {
		{"chat.json", 13, 6},       {"chat.sse", 13, 6},
		{"chat_continuous_usage.sse", 13, 6},
		{"completions.json", 40, 6}, {"completions.sse", 40, 6},
		{"completions_two.json", 45, 4}, {"completions_two.sse", 45, 4},
		{"messages.json", 13, 6},   {"messages.sse", 13, 6},
		{"responses.json", 13, 6},  {"responses.sse", 13, 6},
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct openai_usage u = usage_of(answers[i].name);

		cr_expect_eq(u.prompt_tokens, answers[i].prompt, "%s: %u", answers[i].name,
			     u.prompt_tokens);
		cr_expect_eq(u.completion_tokens, answers[i].completion, "%s: %u",
			     answers[i].name, u.completion_tokens);
		cr_expect_neq(u.cached_tokens, OPENAI_TOKENS_UNKNOWN, "%s", answers[i].name);
	}
	cr_assert_eq(usage_of("chat_no_usage.sse").prompt_tokens, OPENAI_TOKENS_UNKNOWN);
}
