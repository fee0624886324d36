/* tests/unit/test_prompt.c -- from a request body to what decides its tokens. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "actors/policy/prompt.h"

static struct openai_view
view_of(const char *body)
{
	struct openai_view v;
	const char *why = "";

	cr_assert_eq(openai_view_parse(body, strlen(body), &v, &why), 0, "%s: %s", why, body);
	return v;
}

/* The /tokenize request of a body, checked to be JSON and equal to what is expected. */
static void
asks(enum openai_route route, const char *body, const char *expected)
{
	struct openai_view v = view_of(body);
	struct prompt *p;
	struct slice got;
	json_error_t err;

	prompt_new(&p);
	cr_assert(prompt_request(p, route, &v, body, "worker-model", &got), "%s", body);
	json_t *a = json_loadb(got.p, got.len, JSON_REJECT_DUPLICATES, &err);
	json_t *b = json_loads(expected, 0, NULL);

	cr_assert_not_null(a, "%s: %.*s", err.text, (int)got.len, got.p);
	cr_assert_not_null(b);
	cr_assert(json_equal(a, b), "%.*s", (int)got.len, got.p);
	json_decref(a);
	json_decref(b);
	prompt_free(&p);
}

static void
asks_nothing(enum openai_route route, const char *body)
{
	struct openai_view v = view_of(body);
	struct prompt *p;
	struct slice got;

	prompt_new(&p);
	cr_assert_not(prompt_request(p, route, &v, body, "m", &got), "%s", body);
	prompt_free(&p);
}

Test(prompt, a_chat_is_asked_for_with_every_field_that_decides_its_tokens)
{
	asks(OPENAI_CHAT,
	     "{\"model\":\"x\",\"temperature\":1,\"messages\":[{\"role\":\"user\",\"content\":"
	     "\"h\\u00e9\"}]}",
	     "{\"model\":\"worker-model\",\"messages\":[{\"role\":\"user\",\"content\":"
	     "\"h\\u00e9\"}]}");
	asks(OPENAI_CHAT,
	     "{\"messages\":[],\"tools\":[{\"a\":1}],\"chat_template\":\"t\",\"add_generation_"
	     "prompt\":false,"
	     "\"continue_final_message\":true,\"add_special_tokens\":true,\"stream\":true,\"n\":3}",
	     "{\"model\":\"worker-model\",\"messages\":[],\"tools\":[{\"a\":1}],\"chat_template\":"
	     "\"t\","
	     "\"add_generation_prompt\":false,\"continue_final_message\":true,\"add_special_"
	     "tokens\":true}");
}

Test(prompt, documents_and_reasoning_effort_join_the_template_arguments)
{
	asks(OPENAI_CHAT, "{\"messages\":[],\"reasoning_effort\":\"low\"}",
	     "{\"model\":\"worker-model\",\"messages\":[],\"chat_template_kwargs\":{\"reasoning_"
	     "effort\":\"low\"}}");
	asks(OPENAI_CHAT,
	     "{\"messages\":[],\"documents\":[{}],\"chat_template_kwargs\":{ "
	     "\"enable_thinking\":false } }",
	     "{\"model\":\"worker-model\",\"messages\":[],"
	     "\"chat_template_kwargs\":{\"documents\":[{}],\"enable_thinking\":false}}");
	asks(OPENAI_CHAT,
	     "{\"messages\":[],\"documents\":[{}],\"reasoning_effort\":\"low\",\"chat_template_"
	     "kwargs\":{  }}",
	     "{\"model\":\"worker-model\",\"messages\":[],"
	     "\"chat_template_kwargs\":{\"documents\":[{}],\"reasoning_effort\":\"low\"}}");
	asks(OPENAI_CHAT, "{\"messages\":[],\"chat_template_kwargs\":{}}",
	     "{\"model\":\"worker-model\",\"messages\":[],\"chat_template_kwargs\":{}}");
	asks_nothing(OPENAI_CHAT, "{\"messages\":[],\"chat_template_kwargs\":[1]}");
}

Test(prompt, a_message_s_reasoning_content_goes_as_reasoning_unless_that_is_said)
{
	asks(OPENAI_CHAT,
	     "{\"messages\":[{\"role\":\"user\",\"content\":\"\\\"reasoning_content\\\":\"},"
	     "{\"reasoning_content\":\"a\", \"content\":{\"reasoning_content\":1}},"
	     "{\"reasoning_content\":\"b\",\"reasoning\":\"c\"},"
	     "{\"reasoning\" : null,\"reasoning_content\" : \"d\"},"
	     "{\"reasoning\\u005fcontent\":\"e\",\"reasoning\":null}, 7]}",
	     "{\"model\":\"worker-model\",\"messages\":["
	     "{\"role\":\"user\",\"content\":\"\\\"reasoning_content\\\":\"},"
	     "{\"reasoning\":\"a\",\"content\":{\"reasoning_content\":1}},"
	     "{\"reasoning_content\":\"b\",\"reasoning\":\"c\"},"
	     "{\"reasoning\":\"d\",\"reasoning_content\":null},"
	     "{\"reasoning\":\"e\",\"reasoning_content\":null},7]}");
}

Test(prompt, a_completion_is_asked_for_by_its_first_prompt)
{
	asks(OPENAI_COMPLETIONS, "{\"prompt\":\"a \\\"b\\\"\"}",
	     "{\"model\":\"worker-model\",\"prompt\":\"a \\\"b\\\"\"}");
	asks(OPENAI_COMPLETIONS, "{\"prompt\":[\"one\",\"two\"],\"add_special_tokens\":false}",
	     "{\"model\":\"worker-model\",\"prompt\":\"one\",\"add_special_tokens\":false}");
}

Test(prompt, what_is_no_text_or_renders_in_its_own_way_is_not_asked_for)
{
	asks_nothing(OPENAI_COMPLETIONS, "{\"prompt\":[1,2]}");
	asks_nothing(OPENAI_COMPLETIONS, "{\"prompt\":{}}");
	asks_nothing(OPENAI_COMPLETIONS, "{}");
	asks_nothing(OPENAI_CHAT, "{}");
	asks_nothing(OPENAI_CHAT, "{\"messages\":\"x\"}");
	asks_nothing(OPENAI_EMBEDDINGS, "{\"input\":\"x\"}");
	asks_nothing(OPENAI_RERANK, "{\"query\":\"x\"}");
}

Test(prompt, ids_are_those_of_the_first_prompt)
{
	struct prompt *p;
	const uint32_t *ids;
	size_t n;

	prompt_new(&p);
	const char *one = "{\"prompt\":[5, 6,4294967295]}", *two = "{\"prompt\":[[7,8],[9]]}";
	struct openai_view v = view_of(one);
	cr_assert(prompt_ids(p, &v, one, &ids, &n));
	cr_assert_eq(n, 3);
	cr_assert_eq(ids[2], 4294967295u);
	v = view_of(two);
	cr_assert(prompt_ids(p, &v, two, &ids, &n));
	cr_assert_eq(n, 2);
	cr_assert_eq(ids[1], 8);
	v = view_of("{\"prompt\":\"x\"}");
	cr_assert_not(prompt_ids(p, &v, "{\"prompt\":\"x\"}", &ids, &n));
	prompt_free(&p);
}

static bool
may_hit(const char *body)
{
	struct openai_view v = view_of(body);

	return prompt_may_hit(&v, body);
}

Test(prompt, requests_that_cannot_hit_or_hold_media_are_known)
{
	cr_assert(may_hit("{\"messages\":[{\"content\":\"x\"}]}"));
	cr_assert(may_hit("{\"messages\":[{\"content\":\"say \\\"image_url\\\" "
			  "twice\"}],\"prompt_logprobs\":null}"));
	cr_assert_not(may_hit("{\"messages\":[{\"content\":[{\"type\":\"image_url\",\"image_url\":{"
			      "\"url\":\"d\"}}]}]}"));
	cr_assert_not(may_hit(
		"{\"messages\":[{\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}]}"));
	cr_assert_not(may_hit("{\"prompt\":[1],\"prompt_logprobs\":1}"));
	cr_assert_not(may_hit("{\"token_ids\":[1],\"features\":{\"mm_hashes\":{}}}"));
	cr_assert(may_hit("{\"token_ids\":[1],\"features\":null}"));
	cr_assert_not(may_hit("{\"prompt\":[1],\"truncate_prompt_tokens\":-1}"));
}

/* The salt of a body that the engine takes; NULL: none is given. */
static void
salts(struct prompt *p, const char *body, const char *expected)
{
	struct openai_view v = view_of(body);
	struct slice salt;

	cr_assert(prompt_salt(p, &v, body, &salt), "%s", body);
	cr_assert(expected ? slice_eq_str(salt, expected) : salt.p == NULL, "%s", body);
}

Test(prompt, a_salt_is_unescaped_and_one_that_the_engine_refuses_is_none)
{
	static const char *const refused[] = {
		"{\"cache_salt\":\"\"}", "{\"cache_salt\":5}", "{\"cache_salt\":[\"a\"]}",
		"{\"cache_salt\":false}", "{\"cache_salt\":\"a@b\"}", "{\"cache_salt\":\"a\\/b\"}",
		"{\"cache_salt\":\"\\\\\"}", "{\"cache_salt\":\"a\\u0000\"}",
	};
	char body[3000];
	struct prompt *p;

	prompt_new(&p);
	salts(p, "{\"cache_salt\":\"a\\u0041\"}", "aA");
	salts(p, "{\"cache_salt\":null}", NULL);
	salts(p, "{}", NULL);
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		struct openai_view v = view_of(refused[i]);
		struct slice salt;

		cr_assert_not(prompt_salt(p, &v, refused[i], &salt), "%s", refused[i]);
	}
	for (int n = 127; n < 3000 - 20; n = n < 129 ? n + 1 : n * 4) {
		snprintf(body, sizeof body, "{\"cache_salt\":\"%0*d\"}", n, 0);
		struct openai_view v = view_of(body);
		struct slice salt;

		cr_assert_eq(prompt_salt(p, &v, body, &salt), n <= 128, "%d", n);
	}
	prompt_free(&p);
}

Test(prompt, a_salt_is_counted_in_characters)
{
	char body[1200] = "{\"cache_salt\":\"";
	struct openai_view v;
	struct prompt *p;
	struct slice salt;

	prompt_new(&p);
	for (int i = 0; i < 128; i++)
		strcat(body, "\xf0\x9f\x9a\x82");
	strcat(body, "\"}");
	v = view_of(body);
	cr_assert(prompt_salt(p, &v, body, &salt));
	cr_assert_eq(salt.len, 512);
	prompt_free(&p);
}

Test(prompt, several_texts_are_estimated_by_their_length)
{
	const char *body = "{\"prompt\":[\"aaaa\",\"bbbb\",\"cccc\"]}";
	struct openai_view v = view_of(body);
	uint32_t all = prompt_all_tokens(&v, body, 10);

	cr_assert(all >= 30 && all <= 40, "%u", all);
	v = view_of("{\"prompt\":\"aaaa\"}");
	cr_assert_eq(prompt_all_tokens(&v, "{\"prompt\":\"aaaa\"}", 10), 10);
}
