/* tests/unit/test_request.c -- from a body to ids: what is exact, what is not, and what comes of
 * the cases tk and rq of public bug reports.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/bpe.h"
#include "actors/common/prompt/ids.h"
#include "actors/common/prompt/request_private.h"
#include "actors/common/prompt/segments.h"
#include "actors/common/prompt/tokenizer.h"
#include "tests/unit/model_world.h"

#define CASES     PM_SOURCE_DIR "/tests/data/cases/"
#define TEMPLATES PM_SOURCE_DIR "/tests/conformance/requests/templates/"

static struct prompt_maker *maker;
static struct prompt_made made;

static void
begin(void)
{
	cr_assert_eq(prompt_maker_new(&maker), 0);
	prompt_maker_clock(maker, 1796081400);
}

static void
finish(void)
{
	prompt_maker_free(&maker);
}

static struct model *
chatml(uint32_t max_model_len)
{
	return world_model(TEMPLATES "chatml.jinja",
			   (struct model_options){.max_model_len = max_model_len});
}

/* The demo's tokenizer with a token put in front by its post-processor, as Llama's has. */
static struct model *
with_bos(uint32_t max_model_len)
{
	struct model_options options = {.max_model_len = max_model_len};
	char dir[64] = "/tmp/pm-model-XXXXXX", path[100];
	json_t *tokenizer = json_load_file(DEMO "/tokenizer.json", 0, NULL), *post;
	struct model *m;

	cr_assert(tokenizer && mkdtemp(dir));
	post = json_loads("{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
			  "{\"id\": \"<|endoftext|>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": "
			  "\"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", "
			  "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
			  "\"special_tokens\": {\"<|endoftext|>\": {\"id\": \"<|endoftext|>\", "
			  "\"ids\": [6144], \"tokens\": [\"<|endoftext|>\"]}}}", 0, NULL);
	cr_assert_eq(json_object_set_new(tokenizer, "post_processor", post), 0);
	snprintf(path, sizeof path, "%s/tokenizer.json", dir);
	cr_assert_eq(json_dump_file(tokenizer, path, JSON_COMPACT), 0);
	world_write(dir, "chat_template.jinja",
		    "<|endoftext|>{% for m in messages %}{{ m.content }}{% endfor %}", 63);
	m = world_open(dir, &options);
	world_remove(dir);
	json_decref(tokenizer);
	return m;
}

static void
make(const struct model *m, enum openai_route route, const char *body)
{
	cr_assert_eq(prompt_make(maker, m, NULL, route, slice_str(body), 0, &made), 0);
}

static void
make_file(const struct model *m, enum openai_route route, const char *file)
{
	char path[300];
	size_t len;
	char *body;

	snprintf(path, sizeof path, CASES "%s", file);
	body = world_read(path, &len);
	cr_assert_eq(prompt_make(maker, m, NULL, route, slice_of(body, len), 0, &made), 0);
	free(body);             /* ids stay, texts need not */
}

/* The prompt's ids are those of that text. */
static void
ids_are(const struct model *m, size_t which, const char *text)
{
	struct tokenizer_scratch *scratch;
	struct ids ids = {0};

	cr_assert_eq(tokenizer_scratch_new(&scratch), 0);
	cr_assert_eq(tokenizer_encode(model_tokenizer(m), scratch, slice_str(text), false, SIZE_MAX,
				      &ids), 0);
	cr_assert_gt(made.n_prompts, which, "%s", made.why);
	cr_assert_eq(made.prompts[which].n, ids.n, "%s: %zu, not %zu", text, made.prompts[which].n,
		     ids.n);
	cr_assert_eq(memcmp(made.prompts[which].ids, ids.id, ids.n * sizeof ids.id[0]), 0);
	ids_free(&ids);
	tokenizer_scratch_free(&scratch);
}

static void
ends(enum prompt_end end, const char *part)
{
	cr_assert_eq(made.end, end, "%s: %s", prompt_end_name(made.end), made.why);
	cr_assert(strstr(made.why, part), "%s", made.why);
	if (end == PROMPT_REFUSED || end == PROMPT_UNKNOWN || end == PROMPT_TOO_MUCH)
		cr_assert_eq(made.n_prompts, 0);
}

TestSuite(request, .init = begin, .fini = finish);

/* --- forms of prompt ----------------------------------------------------------------------- */

Test(request, a_chat_is_its_templates_text_and_that_texts_ids)
{
	struct model *m = chatml(0);

	make(m, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":"
	     "\"h\\u00e9 <|im_end|>\"}]}");
	ends(PROMPT_EXACT, "");
	ids_are(m, 0, "<|im_start|>user\nh\xc3\xa9 <|im_end|><|im_end|>\n<|im_start|>assistant\n");
	cr_assert_not(made.add_special);
	model_close(&m);
}

Test(request, a_completion_has_four_forms)
{
	struct model *m = chatml(0);
	uint32_t want[] = {1, 2, 3};

	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"Once upon\"}");
	ends(PROMPT_EXACT, "");
	ids_are(m, 0, "Once upon");
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":[\"one\",\"tw\\u006f\"]}");
	cr_assert_eq(made.n_prompts, 2);
	ids_are(m, 0, "one");
	ids_are(m, 1, "two");
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":[1, 2,3]}");
	cr_assert_eq(made.n_prompts, 1);
	cr_assert_eq(made.prompts[0].n, 3);
	cr_assert_eq(memcmp(made.prompts[0].ids, want, sizeof want), 0);
	cr_assert_null(made.text.p);
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":[[7],[1,2,3]]}");
	cr_assert_eq(made.n_prompts, 2);
	cr_assert_eq(made.prompts[0].ids[0], 7);
	cr_assert_eq(memcmp(made.prompts[1].ids, want, sizeof want), 0);
	model_close(&m);
}

Test(request, a_completion_that_is_no_prompt_is_refused_with_the_reason)
{
	static const struct {
		const char *body, *part;
	} wrong[] = {
		{"{}", "no prompt"}, {"{\"prompt\":null}", "no prompt"},
		{"{\"prompt\":[]}", "no prompt"}, {"{\"prompt\":\"\"}", "empty"},
		{"{\"prompt\":[[]]}", "empty"}, {"{\"prompt\":5}", "neither"},
		{"{\"prompt\":[1,\"a\"]}", "neither"}, {"{\"prompt\":[\"a\",1]}", "neither"},
		{"{\"prompt\":[-1]}", "neither"}, {"{\"prompt\":[1.5]}", "neither"},
		{"{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix"},
		{"{\"prompt\":\"a\",\"cache_salt\":\"\"}", "cache_salt"}, {"[]", "no JSON object"},
		{"{\"prompt\":\"a\",\"max_tokens\":5000}", "5000 tokens of answer"},
		{"{\"prompt\":\"a\",\"truncate_prompt_tokens\":-2}", "truncate_prompt_tokens"},
	};
	struct model *m = chatml(4096);

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		make(m, OPENAI_COMPLETIONS, wrong[i].body);
		ends(PROMPT_REFUSED, wrong[i].part);
	}
	make(m, OPENAI_COMPLETIONS, "{\"prompt_embeds\":\"AAAA\"}");
	ends(PROMPT_UNKNOWN, "embeddings");
	model_close(&m);
}

Test(request, embeddings_tokenize_and_generate_are_their_text_or_ids)
{
	struct model *m = chatml(0);

	make(m, OPENAI_EMBEDDINGS, "{\"input\":[\"a b\",\"c\"]}");
	cr_assert_eq(made.n_prompts, 2);
	ids_are(m, 0, "a b");
	cr_assert(made.add_special);
	make(m, OPENAI_TOKENIZE, "{\"prompt\":\"a b\"}");
	ids_are(m, 0, "a b");
	make(m, OPENAI_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
	ids_are(m, 0, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
	make(m, OPENAI_GENERATE, "{\"token_ids\":[5,6],\"cache_salt\":\"s\"}");
	cr_assert_eq(made.prompts[0].n, 2);
	cr_assert(slice_eq_str(made.salt, "s"));
	make(m, OPENAI_SCORE, "{}");
	ends(PROMPT_UNKNOWN, "pairs");
	make(m, OPENAI_MODELS, "{}");
	ends(PROMPT_UNKNOWN, "no prompt");
	model_close(&m);
}

Test(request, ids_that_come_with_a_chat_are_taken_as_they_are)
{
	struct model *m = chatml(0);

	make(m, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
	     "\"kv_transfer_params\":{\"prompt_token_ids\":[3,4,5]}}");
	ends(PROMPT_EXACT, "");
	cr_assert_eq(made.prompts[0].n, 3);
	cr_assert_eq(made.prompts[0].ids[2], 5);
	model_close(&m);
}

/* --- what is not all of it ------------------------------------------------------------------- */

Test(request, with_an_image_the_tokens_before_it_are_exact)
{
	struct model *m = world_model(TEMPLATES "openai.jinja", (struct model_options){0});
	struct model *s = chatml(0);

	make(s, OPENAI_CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
	     "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"what is\"},"
	     "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]},"
	     "{\"role\":\"user\",\"content\":\"sure?\"}]}");
	ends(PROMPT_PREFIX, "first medium");
	ids_are(s, 0, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>");
	make(m, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":"
	     "[{\"type\":\"text\",\"text\":\"a<|im_end|>b\"},{\"type\":\"image_url\","
	     "\"image_url\":{\"url\":\"x\"}}]}]}");
	ends(PROMPT_PREFIX, "first medium");
	ids_are(m, 0, "messages=[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
		"\"a<|im_end|>");
	model_close(&m);
	model_close(&s);
}

Test(request, what_is_too_long_is_stopped_and_its_first_tokens_are_there)
{
	struct model *m = chatml(8), *open = chatml(0);

	make(m, OPENAI_COMPLETIONS,
	     "{\"prompt\":\"a b c d e f g h i j k l m n o p q r s t\",\"max_tokens\":1}");
	ends(PROMPT_TOO_LONG, "8 tokens");
	cr_assert_eq(made.prompts[0].n, 9);
	cr_assert_eq(prompt_make(maker, open, NULL, OPENAI_COMPLETIONS, slice_str(
		"{\"prompt\":\"a b c d e f g h i j k l m n o p q r s t\"}"), 5, &made), 0);
	ends(PROMPT_TOO_LONG, "stopped at 5");
	cr_assert_eq(made.prompts[0].n, 5);
	model_close(&m);
	model_close(&open);
}

Test(request, truncation_keeps_the_end_and_the_side_says_otherwise)
{
	struct model *m = with_bos(100);
	struct ids all = {0};

	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"a b c d e f g h\"}");
	cr_assert_eq(ids_add(&all, made.prompts[0].ids, made.prompts[0].n), 0);
	cr_assert_eq(all.id[0], 6144);
	/* The tokenizer's own truncation keeps its special token in front. */
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"a b c d e f g h\","
	     "\"truncate_prompt_tokens\":3}");
	ends(PROMPT_EXACT, "");
	cr_assert_eq(made.prompts[0].n, 3);
	cr_assert_eq(made.prompts[0].ids[0], 6144);
	cr_assert_eq(memcmp(made.prompts[0].ids + 1, all.id + all.n - 2, 8), 0);
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"a b c d e f g h\",\"truncate_prompt_tokens\":3,"
	     "\"truncation_side\":\"left\"}");
	cr_assert_eq(memcmp(made.prompts[0].ids, all.id + all.n - 3, 12), 0);
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"a b c d e f g h\",\"truncate_prompt_tokens\":3,"
	     "\"truncation_side\":\"right\"}");
	cr_assert_eq(memcmp(made.prompts[0].ids, all.id, 12), 0);
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":[1,2,3,4],\"truncate_prompt_tokens\":3}");
	cr_assert_eq(made.prompts[0].ids[0], 2);
	make(m, OPENAI_EMBEDDINGS, "{\"input\":[1,2,3,4],\"truncate_prompt_tokens\":3}");
	cr_assert_eq(made.prompts[0].ids[0], 1);
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"a\",\"truncate_prompt_tokens\":101}");
	ends(PROMPT_REFUSED, "takes 100");
	ids_free(&all);
	model_close(&m);
}

Test(request, an_engine_with_an_encoder_of_its_own_is_not_predicted_for_chats)
{
	char dir[64];
	struct model *m;

	world_folder(dir);
	world_write(dir, "chat_template.jinja", "x", 1);
	world_write(dir, "config.json", "{\"model_type\":\"gpt_oss\"}", 24);
	m = world_open(dir, NULL);
	make(m, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
	ends(PROMPT_UNKNOWN, "harmony");
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"a b\"}");
	ends(PROMPT_EXACT, "");
	model_close(&m);
	world_remove(dir);
}

Test(request, the_segment_cache_changes_nothing_but_the_time)
{
	struct model *m = chatml(0);
	struct segments *cache;
	char body[20000];
	size_t n;

	cr_assert_eq(segments_new(16u << 20, &cache), 0);
	for (unsigned turns = 1; turns < 12; turns++) {
		n = (size_t)snprintf(body, sizeof body, "{\"messages\":[");
		for (unsigned i = 0; i < turns; i++)
			n += (size_t)snprintf(body + n, sizeof body - n,
				"%s{\"role\":\"%s\",\"content\":\"Turn %u of a conversation that "
				"goes on, <|im_end|> and on, with more than sixty-four bytes in "
				"each of its messages.\"}", i ? "," : "",
				i % 2 ? "assistant" : "user", i);
		snprintf(body + n, sizeof body - n, "]}");
		make(m, OPENAI_CHAT, body);
		struct ids plain = {0};

		cr_assert_eq(ids_add(&plain, made.prompts[0].ids, made.prompts[0].n), 0);
		for (unsigned again = 0; again < 2; again++) {
			cr_assert_eq(prompt_make(maker, m, cache, OPENAI_CHAT, slice_str(body), 0,
						 &made), 0);
			cr_assert_eq(made.prompts[0].n, plain.n);
			cr_assert_eq(memcmp(made.prompts[0].ids, plain.id, plain.n * 4), 0);
		}
		ids_free(&plain);
	}
	segments_free(&cache);
	model_close(&m);
}

/* --- cases of public reports ----------------------------------------------------------------- */

Test(request, tk02_a_chat_has_the_token_in_front_once_a_completion_as_often_as_it_says)
{
	struct model *m = with_bos(0);

	make(m, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
	cr_assert_eq(made.prompts[0].ids[0], 6144);
	cr_assert_neq(made.prompts[0].ids[1], 6144);
	make(m, OPENAI_COMPLETIONS, "{\"prompt\":\"<|endoftext|>hi\"}");
	cr_assert_eq(made.prompts[0].ids[0], 6144);
	cr_assert_eq(made.prompts[0].ids[1], 6144);
	model_close(&m);
}

Test(request, tk04_reasoning_reaches_the_template_by_either_name_or_not_at_all)
{
	struct model *m = world_model(TEMPLATES "string.jinja", (struct model_options){0});
	static const char want[] = "\"reasoning\": \"think think\", \"reasoning_content\": "
				   "\"think think\"";

	make_file(m, OPENAI_CHAT, "tk/tk04_next_turn_with_reasoning.json");
	ends(PROMPT_EXACT, "");
	cr_assert(memmem(made.text.p, made.text.len, want, sizeof want - 1));
	make_file(m, OPENAI_CHAT, "tk/tk04_next_turn_without_reasoning.json");
	cr_assert_not(memmem(made.text.p, made.text.len, "reasoning", 9));
	model_close(&m);
}

Test(request, tk05_responses_and_messages_become_the_chat_they_mean)
{
	struct model *m = chatml(0);

	make_file(m, OPENAI_RESPONSES, "tk/tk05_responses_api.json");
	ids_are(m, 0, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
	make_file(m, OPENAI_MESSAGES, "tk/tk05_messages_api.json");
	ids_are(m, 0, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
		"<|im_start|>assistant\n");
	model_close(&m);
}

Test(request, rq02_roles_of_any_name_pass_and_developers_are_systems_here)
{
	struct model *m = world_model(TEMPLATES "string.jinja", (struct model_options){0});
	static const char want[] = "messages=[{\"role\": \"system\", \"content\": \"Be brief.\"}, "
		"{\"role\": \"user\", \"content\": \"hi\", \"name\": \"al\"}, {\"role\": "
		"\"function\", \"content\": \"1\", \"name\": \"f\"}, {\"role\": "
		"\"latest_reminder\", \"content\": \"x\"}";

	make_file(m, OPENAI_CHAT, "rq/rq02_roles.json");
	ends(PROMPT_EXACT, "");
	cr_assert(memcmp(made.text.p, want, sizeof want - 1) == 0, "%.*s", (int)made.text.len,
		  made.text.p);
	model_close(&m);
}

Test(request, rq03_fields_nobody_knows_change_nothing_and_the_salt_is_kept)
{
	struct model *m = chatml(0);

	make_file(m, OPENAI_CHAT, "rq/rq03_extra_fields.json");
	ends(PROMPT_EXACT, "");
	ids_are(m, 0, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
	cr_assert(slice_eq_str(made.salt, "s1"));
	model_close(&m);
}

Test(request, rq06_tools_keep_the_order_of_the_schemas_members)
{
	struct model *m = world_model(TEMPLATES "string.jinja", (struct model_options){0});
	static const char want[] = "tools=[{\"type\": \"function\", \"function\": {\"name\": "
		"\"f\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", "
		"\"required\": [\"path\"], \"properties\": {\"zeta\": {\"type\": \"string\"}, "
		"\"alpha\": {\"type\": \"string\"}, \"mid\": {\"type\": \"string\"}}}}}]";

	make_file(m, OPENAI_CHAT, "rq/rq06_tools_order.json");
	ends(PROMPT_EXACT, "");
	cr_assert(memmem(made.text.p, made.text.len, want, sizeof want - 1), "%.*s",
		  (int)made.text.len, made.text.p);
	model_close(&m);
}

Test(request, rq07_pairs_are_characters_and_halves_and_bad_bytes_are_no_prompt)
{
	static const char *const bad[] = {"rq/rq07_lone_high.json", "rq/rq07_lone_low.json",
					  "rq/rq07_raw_invalid_utf8.json"};
	struct model *m = chatml(0);

	make_file(m, OPENAI_CHAT, "rq/rq07_pair.json");
	ends(PROMPT_EXACT, "");
	for (size_t i = 0; i < 3; i++) {
		make_file(m, OPENAI_CHAT, bad[i]);
		ends(PROMPT_REFUSED, "");
	}
	make_file(m, OPENAI_CHAT, "rq/rq07_escaped_key.json");
	ends(PROMPT_EXACT, "");
	model_close(&m);
}

Test(request, rq08_of_keys_given_twice_the_last_counts_as_in_python)
{
	struct model *m = chatml(0);

	make_file(m, OPENAI_CHAT, "rq/rq08_nested_dup_ok.json");
	ids_are(m, 0, "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
	make_file(m, OPENAI_CHAT, "rq/rq08_case_variant_ok.json");
	ends(PROMPT_EXACT, "");
	model_close(&m);
}

Test(request, rq05_rq10_rq12_odd_numbers_nulls_and_bodies_that_are_none)
{
	static const char *const fine[] = {"rq/rq10_both.json", "rq/rq10_null.json",
					   "rq/rq12_nulls.json", "rq/rq05_bigint.json"};
	static const char *const none[] = {"{\"messages\":[]}", "[]", "null", "",
					   "{\"messages\":[]} trailing", "{\"messages\":null}"};
	struct model *m = chatml(0);

	for (size_t i = 0; i < 4; i++) {
		make_file(m, OPENAI_CHAT, fine[i]);
		ends(i == 3 ? PROMPT_REFUSED : PROMPT_EXACT, "");
	}
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		make(m, OPENAI_CHAT, none[i]);
		ends(PROMPT_REFUSED, "");
	}
	make(m, OPENAI_CHAT, "\xef\xbb\xbf{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
	ends(PROMPT_EXACT, "");
	model_close(&m);
}

/* --- bounds -------------------------------------------------------------------------------- */

static char *
long_prompt(size_t len, const char *word)
{
	char *body = malloc(len + 64);
	size_t n = (size_t)sprintf(body, "{\"model\":\"m\",\"prompt\":\""), w = strlen(word);

	for (; n < len; n += w)
		memcpy(body + n, word, w);
	strcpy(body + n, "\"}");
	return body;
}

Test(request, a_word_of_megabytes_is_too_much_work_and_what_it_took_is_given_back)
{
	struct model *m = chatml(0);
	char *body = long_prompt(BPE_PIECE_MAX + 100, "a");

	make(m, OPENAI_COMPLETIONS, body);
	ends(PROMPT_TOO_MUCH, "for too long");
	free(body);
	body = long_prompt(PROMPT_KEEP_BYTES, "a b");
	make(m, OPENAI_COMPLETIONS, body);
	ends(PROMPT_EXACT, "");
	cr_assert_gt(maker->ids.cap * sizeof maker->ids.id[0], PROMPT_KEEP_BYTES);
	prompt_maker_give_back(maker);
	cr_assert_leq(maker->ids.cap * sizeof maker->ids.id[0], PROMPT_KEEP_BYTES);
	make(m, OPENAI_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"a b\"}");
	ends(PROMPT_EXACT, "");
	free(body);
	model_close(&m);
}

Test(request, who_is_stopped_ends_without_ids_and_works_on_with_the_next)
{
	struct model *m = chatml(0);
	char *body = long_prompt(1u << 20, "word ");
	atomic_bool stop = true;

	prompt_maker_stop(maker, &stop);
	make(m, OPENAI_COMPLETIONS, body);
	ends(PROMPT_TOO_MUCH, "stopped");
	stop = false;
	make(m, OPENAI_COMPLETIONS, body);
	ends(PROMPT_EXACT, "");
	free(body);
	model_close(&m);
}
