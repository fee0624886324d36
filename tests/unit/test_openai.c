/* test_openai.c -- which paths exist, what routing sees in a body, and what it reads in answers.
 * Cases named rqNN are public reports; their bodies lie in tests/data/cases/rq. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "proto/openai.h"

#define CASES PM_SOURCE_DIR "/tests/data/cases/rq/"

static struct openai_view view;
static const char *why;

/* A body in a buffer of exactly its size; the caller keeps it. */
static int
parse(const char *text, size_t len, char **ret_body)
{
	char *body = malloc(len ? len : 1);
	int r;

	memcpy(body, text, len);
	why = NULL;
	r = openai_view_parse(body, len, &view, &why);
	cr_assert(r == 0 || (r == -400 && why != NULL && view.error_off_bytes <= len));
	*ret_body = body;
	return r;
}

static int
parse_str(const char *text)
{
	char *body;
	int r = parse(text, strlen(text), &body);

	free(body);
	return r;
}

static char *
parse_file(const char *file, int expected)
{
	char path[512], text[4096], *body;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), CASES "%s", file);
	f = fopen(path, "rb");
	cr_assert(f != NULL, "%s is missing", path);
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	cr_assert(parse(text, n, &body) == expected, "%s: %s", file, why ? why : "accepted");
	return body;
}

static void
assert_field(const char *body, enum openai_field f, const char *text)
{
	struct slice s = openai_field(&view, body, f);

	if (!text)
		cr_assert(s.p == NULL);
	else
		cr_assert(slice_eq_str(s, text), "%.*s is not %s", (int)s.len, s.p, text);
}

/* --- routes --- */

static enum openai_route
route(enum http1_method m, const char *path)
{
	return openai_route(m, (struct slice){path, strlen(path)});
}

Test(openai, inference_paths_are_routes)
{
	cr_assert(route(HTTP1_POST, "/v1/chat/completions") == OPENAI_CHAT);
	cr_assert(route(HTTP1_POST, "/v1/completions") == OPENAI_COMPLETIONS);
	cr_assert(route(HTTP1_POST, "/v1/responses") == OPENAI_RESPONSES);
	cr_assert(route(HTTP1_POST, "/v1/messages") == OPENAI_MESSAGES);
	cr_assert(route(HTTP1_POST, "/v1/embeddings") == OPENAI_EMBEDDINGS);
	cr_assert(route(HTTP1_POST, "/rerank") == OPENAI_RERANK);
	cr_assert(route(HTTP1_POST, "/v2/rerank") == OPENAI_RERANK);
	cr_assert(route(HTTP1_POST, "/tokenize") == OPENAI_TOKENIZE);
	cr_assert(route(HTTP1_GET, "/v1/models") == OPENAI_MODELS);
	cr_assert(route(HTTP1_HEAD, "/v1/models") == OPENAI_MODELS);
	cr_assert(route(HTTP1_GET, "/v1/models/org/name") == OPENAI_MODEL);
	cr_assert_str_eq(openai_route_name(OPENAI_CHAT), "chat");
	cr_assert(route(HTTP1_GET, "/v1/responses/resp_0") == OPENAI_RESPONSE);
	cr_assert(route(HTTP1_DELETE, "/v1/responses/resp_0") == OPENAI_RESPONSE);
	cr_assert(route(HTTP1_POST, "/v1/responses/resp_0/cancel") == OPENAI_RESPONSE_CANCEL);
	cr_assert(route(HTTP1_POST, "/v1/audio/transcriptions") == OPENAI_TRANSCRIPTIONS);
	cr_assert(route(HTTP1_POST, "/v1/audio/translations") == OPENAI_TRANSLATIONS);
}

Test(openai, an_id_in_a_path_is_plain_letters_and_nothing_behind_it_but_cancel)
{
	static const char *const none[] = {
		"/v1/responses/", "/v1/responses/.", "/v1/responses/..", "/v1/responses/a/",
		"/v1/responses/../sleep", "/v1/responses/a%2fb", "/v1/responses/a;x",
		"/v1/responses/a/cancel/", "/v1/responses//cancel", "/v1/responses/a/cancelled",
		"/v1/responses/a/input_items", "/v1/responses/a b", "/v1/responses/a.b",
	};
	char longest[160] = "/v1/responses/";

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		cr_assert(route(HTTP1_GET, none[i]) == OPENAI_NONE, "%s", none[i]);
		cr_assert(route(HTTP1_POST, none[i]) == OPENAI_NONE, "%s", none[i]);
		cr_assert(openai_route_id(slice_str(none[i])).p == NULL, "%s", none[i]);
	}
	cr_assert(slice_eq_str(openai_route_id(SLICE_LIT("/v1/responses/aZ-_9")), "aZ-_9"));
	cr_assert(slice_eq_str(openai_route_id(SLICE_LIT("/v1/responses/a/cancel")), "a"));
	memset(longest + 14, 'a', OPENAI_ID_MAX_BYTES);
	cr_assert(route(HTTP1_GET, longest) == OPENAI_RESPONSE);
	longest[14 + OPENAI_ID_MAX_BYTES] = 'a';
	cr_assert(route(HTTP1_GET, longest) == OPENAI_NONE);
}

Test(openai, engines_admin_routes_and_respelled_paths_are_not)
{
	static const char *const none[] = {
		"/", "", "/v1", "/v1/", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
		"/reset_prefix_cache", "/sleep", "/wake_up", "/metrics", "/health", "/load",
		"/scale_elastic_ep", "/collective_rpc", "/abort_requests", "/server_info",
		"/v1/completions/", "//v1/completions", "/v1//completions", "/V1/completions",
		"/v1/completions/../../sleep", "/v1/%63ompletions", "/v1/completion",
		"/v1/completionss", "/v1/models/", "/v1/modelsx", "*",
	};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		cr_assert(route(HTTP1_POST, none[i]) == OPENAI_NONE, "%s", none[i]);
		cr_assert(route(HTTP1_GET, none[i]) == OPENAI_NONE, "%s", none[i]);
	}
	cr_assert(openai_route(HTTP1_POST, SLICE_LIT("/v1/completions\0")) == OPENAI_NONE);
}

Test(openai, the_wrong_method_is_told_what_is_allowed)
{
	cr_assert(route(HTTP1_GET, "/v1/completions") == OPENAI_WRONG_METHOD);
	cr_assert(route(HTTP1_OTHER, "/v1/completions") == OPENAI_WRONG_METHOD);
	cr_assert(route(HTTP1_POST, "/v1/models") == OPENAI_WRONG_METHOD);
	cr_assert_str_eq(openai_route_allow(SLICE_LIT("/v1/completions")), "POST");
	cr_assert_str_eq(openai_route_allow(SLICE_LIT("/v1/models")), "GET, HEAD");
	cr_assert(openai_route_allow(SLICE_LIT("/sleep")) == NULL);
	cr_assert(route(HTTP1_POST, "/v1/responses/a") == OPENAI_WRONG_METHOD);
	cr_assert(route(HTTP1_HEAD, "/v1/responses/a") == OPENAI_WRONG_METHOD);
	cr_assert(route(HTTP1_GET, "/v1/responses/a/cancel") == OPENAI_WRONG_METHOD);
	cr_assert_str_eq(openai_route_allow(SLICE_LIT("/v1/responses/a")), "GET, DELETE");
}

/* --- bodies --- */

Test(openai, a_chat_request_is_seen_whole)
{
	static const char text[] =
		"{\"model\":\"org/m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
		" \"stream\": true,\"stream_options\":{\"include_usage\":true},\"n\":2,"
		"\"max_tokens\":10,\"user\":\"u1\",\"priority\":-3,\"cache_salt\":\"s\\u0031\","
		"\"tools\":[{\"type\":\"function\"}]}";
	char *body;

	cr_assert(parse(text, sizeof(text) - 1, &body) == 0, "%s", why);
	cr_assert_str_eq(view.model, "org/m");
	cr_assert(view.n_model == 5);
	assert_field(body, OPENAI_FIELD_MODEL, "\"org/m\"");
	assert_field(body, OPENAI_FIELD_MESSAGES, "[{\"role\":\"user\",\"content\":\"hi\"}]");
	assert_field(body, OPENAI_FIELD_TOOLS, "[{\"type\":\"function\"}]");
	assert_field(body, OPENAI_FIELD_STREAM, "true");
	assert_field(body, OPENAI_FIELD_DOCUMENTS, NULL);
	cr_assert(view.stream && view.include_usage);
	cr_assert(view.n == 2 && view.max_tokens == 10 && view.priority == -3);
	cr_assert(json_string_eq(&view.user, "u1"));
	cr_assert(json_string_eq(&view.cache_salt, "s1"));
	cr_assert(view.prompt == OPENAI_PROMPT_NONE && view.n_prompts == 0);
	free(body);
}

Test(openai, prompts_are_told_apart)
{
	static const struct {
		const char        *value;
		enum openai_prompt form;
		size_t             n_prompts, n_tokens;
	} cases[] = {
		{"null", OPENAI_PROMPT_NONE, 0, 0},
		{"\"hi\"", OPENAI_PROMPT_TEXT, 1, 0},
		{"[\"a\",\"b\",\"c\"]", OPENAI_PROMPT_TEXTS, 3, 0},
		{"[1,2,3,4]", OPENAI_PROMPT_TOKENS, 1, 4},
		{"[[1,2,3],[4],[]]", OPENAI_PROMPT_TOKEN_LISTS, 3, 4},
		{"[]", OPENAI_PROMPT_OTHER, 1, 0},
		{"{}", OPENAI_PROMPT_OTHER, 1, 0},
		{"7", OPENAI_PROMPT_OTHER, 1, 0},
		{"[1,\"a\"]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[\"a\",1]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[1,2.5]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[1,-2]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[1,4294967296]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[[1],\"a\"]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[\"a\",[1]]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[[\"a\"]]", OPENAI_PROMPT_OTHER, 1, 0},
		{"[null]", OPENAI_PROMPT_OTHER, 1, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		static const char *const keys[] = {"prompt", "input", "token_ids"};

		for (size_t k = 0; k < 3; k++) {
			char text[128];

			snprintf(text, sizeof(text), "{\"model\":\"m\",\"%s\":%s,\"n\":3}", keys[k],
				 cases[i].value);
			cr_assert(parse_str(text) == 0, "%s: %s", text, why);
			cr_assert(view.prompt == cases[i].form, "%s: %u", text, view.prompt);
			cr_assert(view.n_prompts == cases[i].n_prompts, "%s", text);
			cr_assert(view.n_prompt_tokens == cases[i].n_tokens, "%s", text);
			cr_assert(view.n == 3);
		}
	}
	/* A broken array is broken JSON, not an odd prompt. */
	cr_assert(parse_str("{\"prompt\":[1,2,}") == -400);
	cr_assert(parse_str("{\"prompt\":[[1,2],[3,]]}") == -400);
}

Test(openai, token_ids_are_read_from_the_body)
{
	char *text = malloc(200000), *body;
	uint32_t *out = malloc(16000 * sizeof(*out));
	size_t len = (size_t)sprintf(text, "{\"model\":\"m\",\"prompt\":[");

	for (unsigned i = 0; i < 16000; i++)
		len += (size_t)sprintf(text + len, "%s%u", i ? ", " : "", i * 7919 % 151936);
	len += (size_t)sprintf(text + len, "],\"max_tokens\":1}");
	cr_assert(parse(text, len, &body) == 0);
	cr_assert(view.n_prompt_tokens == 16000);
	cr_assert(openai_prompt_tokens(&view, body, out, 16000) == 16000);
	for (unsigned i = 0; i < 16000; i++)
		cr_assert(out[i] == i * 7919 % 151936);
	out[10] = 99;
	cr_assert(openai_prompt_tokens(&view, body, out, 10) == 16000 && out[10] == 99);
	cr_assert(openai_prompt_list(&view, body, 0, out, 10) == -EINVAL);
	free(body);

	cr_assert(parse("{\"prompt\":[[1,2],[3]]}", 22, &body) == 0);
	cr_assert(openai_prompt_list(&view, body, 0, out, 10) == 2 && out[1] == 2);
	cr_assert(openai_prompt_list(&view, body, 1, out, 10) == 1 && out[0] == 3);
	cr_assert(openai_prompt_list(&view, body, 2, out, 10) == -ENOENT);
	cr_assert(openai_prompt_tokens(&view, body, out, 10) == -EINVAL);
	free(body);
	free(text);
	free(out);
}

Test(openai, rq03_rq06_a_new_model_name_is_an_edit_of_its_bytes_alone)
{
	static const char *const files[] = {"rq03_extra_fields.json", "rq05_bigint.json",
					    "rq06_tools_order.json"};

	for (size_t i = 0; i < 3; i++) {
		char *body = parse_file(files[i], 0);
		struct openai_span span = view.field[OPENAI_FIELD_MODEL];

		cr_assert(span.len_bytes == 5 && memcmp(body + span.off_bytes, "\"std\"", 5) == 0);
		free(body);
	}
}

Test(openai, rq03_extra_fields_are_no_error)
{
	char *body = parse_file("rq03_extra_fields.json", 0);

	cr_assert(view.max_tokens == 64 && view.priority == -3 && view.include_usage);
	cr_assert(!view.stream);
	assert_field(body, OPENAI_FIELD_CHAT_TEMPLATE_KWARGS, "{\"enable_thinking\":false}");
	free(body);
}

Test(openai, rq05_a_number_past_int64_is_unknown)
{
	free(parse_file("rq05_bigint.json", 0));
	cr_assert(view.max_tokens == OPENAI_UNKNOWN);
}

Test(openai, rq02_rq07_roles_and_half_emoji_are_the_engine_s_business)
{
	free(parse_file("rq02_roles.json", 0));
	free(parse_file("rq07_lone_high.json", 0));
	free(parse_file("rq07_lone_low.json", 0));
	free(parse_file("rq07_pair.json", 0));
	free(parse_file("rq07_raw_invalid_utf8.json", -400));
	cr_assert_str_eq(why, "string is not UTF-8");
	cr_assert(view.error_off_bytes > 0);
	free(parse_file("rq07_escaped_key.json", 0));
	cr_assert_str_eq(view.model, "demo-8b");
}

Test(openai, rq08_what_is_given_twice_is_refused)
{
	free(parse_file("rq08_dup_model.json", -400));
	cr_assert_str_eq(why, "model is given twice");
	free(parse_file("rq08_dup_escaped.json", -400));
	free(parse_file("rq08_dup_stream.json", -400));
	free(parse_file("rq08_nested_dup_ok.json", 0));
	free(parse_file("rq08_case_variant_ok.json", 0));
	cr_assert_str_eq(view.model, "allowed-model");
	cr_assert(parse_str("{\"messages\":[],\"messages\":[]}") == -400);
	cr_assert(parse_str("{\"prompt\":\"\",\"prompt\":\"\"}") == -400);
	cr_assert(parse_str("{\"user\":null,\"user\":\"a\"}") == -400);
	cr_assert(parse_str("{\"model\":null,\"model\":\"a\"}") == -400);
	cr_assert(view.error_off_bytes == 15);
	cr_assert(parse_str("{\"seed\":1,\"seed\":2}") == 0);
}

Test(openai, rq10_max_completion_tokens_goes_before_max_tokens)
{
	free(parse_file("rq10_both.json", 0));
	cr_assert(view.max_tokens == 64);
	free(parse_file("rq10_null.json", 0));
	cr_assert(view.max_tokens == OPENAI_UNKNOWN);
	cr_assert(parse_str("{\"max_tokens\":5}") == 0 && view.max_tokens == 5);
	cr_assert(parse_str("{\"max_output_tokens\":6}") == 0 && view.max_tokens == 6);
	cr_assert(parse_str("{\"max_tokens\":\"5\"}") == 0 && view.max_tokens == OPENAI_UNKNOWN);
}

Test(openai, rq12_null_is_absent)
{
	char *body = parse_file("rq12_nulls.json", 0);

	cr_assert(!view.stream && !view.include_usage && view.n == 1);
	cr_assert(view.user.raw.p == NULL);
	assert_field(body, OPENAI_FIELD_TOOLS, NULL);
	assert_field(body, OPENAI_FIELD_STREAM, NULL);
	free(body);
}

Test(openai, rq12_only_true_streams)
{
	static const char *const off[] = {"null", "false", "0", "1", "\"true\"", "[]", "{}"};

	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		char text[64];

		snprintf(text, sizeof(text), "{\"stream\":%s}", off[i]);
		cr_assert(parse_str(text) == 0 && !view.stream, "%s", text);
	}
	cr_assert(parse_str("{\"stream\":true}") == 0 && view.stream);
}

Test(openai, rq12_model_is_a_string_or_absent_and_the_body_an_object)
{
	FILE *f = fopen(CASES "rq12_model_types.jsonl", "r");
	char line[512];
	unsigned n = 0;

	cr_assert(f != NULL);
	for (; fgets(line, sizeof(line), f); n++) {
		json_t *row = json_loads(line, 0, NULL);
		const char *expect = json_string_value(json_object_get(row, "expect"));
		json_t *text = json_object_get(row, "body");
		char *body;
		int r = parse(json_string_value(text), json_string_length(text), &body);

		if (strcmp(expect, "400") == 0)
			cr_assert(r == -400, "%s", line);
		else if (strncmp(expect, "accept", 6) == 0)
			cr_assert(r == 0 && view.n_model == 7, "%s", line);
		else                         /* absent: a policy's default, or its 400 */
			cr_assert(r == 0 && view.n_model == 0, "%s", line);
		free(body);
		json_decref(row);
	}
	fclose(f);
	cr_assert(n == 10);
}

Test(openai, a_model_name_has_bounds)
{
	char text[400];

	snprintf(text, sizeof(text), "{\"model\":\"%0255d\"}", 0);
	cr_assert(parse_str(text) == 0 && view.n_model == 255);
	snprintf(text, sizeof(text), "{\"model\":\"%0256d\"}", 0);
	cr_assert(parse_str(text) == -400 && view.error_off_bytes == 9);
	cr_assert(parse_str("{\"model\":\"a\\u0000b\"}") == -400);
	cr_assert(parse_str("{\"model\":\"a\\nb\"}") == -400);
	cr_assert(parse_str("{\"model\":\"a\\u007fb\"}") == -400);
	cr_assert(parse_str("{\"model\":\"\\u00e9\\/\"}") == 0);
	cr_assert_str_eq(view.model, "\xc3\xa9/");
}

/* --- errors --- */

Test(openai, errors_are_json_whatever_they_quote)
{
	static const char nasty[] = "no \"quotes\" \\ \n \x01 \xff\xc3\xa9";
	struct openai_error e = {.status = 404, .param = "model", .code = "model_not_found",
				 .message = nasty};
	char out[512];
	ssize_t n = openai_write_error(out, sizeof(out), &e);
	json_error_t err;
	json_t *doc;
	const char *type, *param, *code, *message;

	cr_assert(n > 0);
	doc = json_loadb(out, (size_t)n, 0, &err);
	cr_assert(doc != NULL, "%s", err.text);
	cr_assert(json_unpack(doc, "{s:{s:s,s:s,s:s,s:s}}", "error", "message", &message, "type",
			      &type, "param", &param, "code", &code) == 0);
	cr_assert_str_eq(message, "no \"quotes\" \\ \n \x01 \xef\xbf\xbd\xc3\xa9");
	cr_assert_str_eq(type, "invalid_request_error");
	cr_assert_str_eq(param, "model");
	cr_assert_str_eq(code, "model_not_found");
	json_decref(doc);

	e = (struct openai_error){.status = 503, .message = "m"};
	n = openai_write_error(out, sizeof(out), &e);
	out[n] = '\0';
	cr_assert_str_eq(out, "{\"error\":{\"message\":\"m\",\"type\":\"server_error\","
			      "\"param\":null,\"code\":null}}");
}

Test(openai, an_error_s_type_follows_its_status)
{
	static const struct {
		unsigned    status;
		const char *type;
	} cases[] = {
		{400, "invalid_request_error"}, {401, "authentication_error"},
		{403, "permission_error"},      {404, "invalid_request_error"},
		{429, "rate_limit_error"},      {500, "server_error"},
		{504, "server_error"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct openai_error e = {.status = cases[i].status, .message = "m"};
		char out[256], want[64];
		ssize_t n = openai_write_error(out, sizeof(out) - 1, &e);

		cr_assert(n > 0);
		out[n] = '\0';
		snprintf(want, sizeof(want), "\"type\":\"%s\"", cases[i].type);
		cr_assert(strstr(out, want) != NULL, "%u: %s", cases[i].status, out);
	}
}

static void
expect_error(enum openai_api api, bool event, const char *want)
{
	struct openai_error e = {.api = api, .status = 503, .code = "c", .message = "a\"b"};
	char out[256];
	ssize_t n = event ? openai_write_error_event(out, sizeof(out) - 1, &e, 12)
			  : openai_write_error(out, sizeof(out) - 1, &e);

	cr_assert(n > 0);
	out[n] = '\0';
	cr_assert_str_eq(out, want);
	for (size_t cap = 0; cap < sizeof(out); cap++) {
		char *small = malloc(cap ? cap : 1);
		ssize_t r = event ? openai_write_error_event(small, cap, &e, 12)
				  : openai_write_error(small, cap, &e);

		cr_assert(r == -ENOSPC || (r > 0 && (size_t)r <= cap), "cap %zu: %zd", cap, r);
		free(small);
	}
}

Test(openai, an_error_is_in_the_words_of_its_api)
{
	expect_error(OPENAI_API_PLAIN, false,
		     "{\"error\":{\"message\":\"a\\\"b\",\"type\":\"server_error\",\"param\":null,"
		     "\"code\":\"c\"}}");
	expect_error(OPENAI_API_RESPONSES, false,
		     "{\"error\":{\"message\":\"a\\\"b\",\"type\":\"server_error\",\"param\":null,"
		     "\"code\":\"c\"}}");
	expect_error(OPENAI_API_MESSAGES, false,
		     "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
		     "\"message\":\"a\\\"b\"}}");
	expect_error(OPENAI_API_PLAIN, true,
		     "data: {\"error\":{\"message\":\"a\\\"b\",\"type\":\"server_error\","
		     "\"param\":null,\"code\":\"c\"}}\n\n");
	expect_error(OPENAI_API_RESPONSES, true,
		     "event: error\ndata: {\"type\":\"error\",\"message\":\"a\\\"b\","
		     "\"param\":null,\"code\":\"c\",\"sequence_number\":12}\n\n");
	expect_error(OPENAI_API_MESSAGES, true,
		     "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
		     "\"overloaded_error\",\"message\":\"a\\\"b\"}}\n\n");
}

Test(openai, anthropic_s_error_types_follow_the_status)
{
	static const struct {
		unsigned    status;
		const char *type;
	} cases[] = {
		{400, "invalid_request_error"}, {404, "not_found_error"},
		{413, "request_too_large"}, {429, "rate_limit_error"}, {500, "api_error"},
		{502, "api_error"}, {503, "overloaded_error"}, {504, "timeout_error"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct openai_error e = {.api = OPENAI_API_MESSAGES, .status = cases[i].status,
					 .message = "m"};
		char out[256], want[64];
		ssize_t n = openai_write_error(out, sizeof(out) - 1, &e);

		cr_assert(n > 0);
		out[n] = '\0';
		snprintf(want, sizeof(want), "{\"type\":\"%s\",", cases[i].type);
		cr_assert(strstr(out, want) != NULL, "%u: %s", cases[i].status, out);
	}
}

Test(openai, an_error_that_is_too_long_is_cut_and_stays_json)
{
	char message[400], out[300];

	for (size_t i = 0; i + 5 < sizeof(message); i += 5)
		memcpy(message + i, "\xe2\x82\xac\"x", 6);
	struct openai_error e = {.status = 400, .message = message};

	for (size_t cap = 0; cap < sizeof(out); cap++) {
		ssize_t n = openai_write_error(out, cap, &e);

		if (cap < 80) {
			cr_assert(n == -ENOSPC, "%zu", cap);
			continue;
		}
		cr_assert(n > 0 && (size_t)n <= cap, "%zu: %zd", cap, n);
		json_t *doc = json_loadb(out, (size_t)n, 0, NULL);

		cr_assert(doc != NULL, "cap %zu", cap);
		json_decref(doc);
	}
}

/* --- answers --- */

static enum openai_event
kind(const char *data)
{
	return openai_event_kind(OPENAI_API_PLAIN, (struct slice){NULL, 0}, slice_str(data));
}

Test(openai, events_are_data_done_or_error)
{
	cr_assert(kind("[DONE]") == OPENAI_EVENT_DONE);
	cr_assert(kind("[DONE] ") == OPENAI_EVENT_DATA);
	cr_assert(kind("") == OPENAI_EVENT_DATA);
	cr_assert(kind("{\"choices\":[{\"delta\":{\"content\":\"error\"}}]}") ==
		  OPENAI_EVENT_DATA);
	cr_assert(kind("{\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":1}\"}}]}") ==
		  OPENAI_EVENT_DATA);
	cr_assert(kind("{\"id\":\"1\",\"error\":null}") == OPENAI_EVENT_DATA);
	cr_assert(kind("{\"choices\":[{\"error\":{}}]}") == OPENAI_EVENT_DATA);
	cr_assert(kind("{\"error\":{\"message\":\"m\"}}") == OPENAI_EVENT_ERROR);
	cr_assert(kind(" {\"id\":1, \"error\" : \"Unauthorized\"}") == OPENAI_EVENT_ERROR);
	cr_assert(kind("{\"object\":\"error\",\"message\":\"m\"}") == OPENAI_EVENT_ERROR);
	cr_assert(kind("{\"type\":\"error\"}") == OPENAI_EVENT_ERROR);
	cr_assert(kind("{\"type\":\"x\",\"y\":\"error\"}") == OPENAI_EVENT_DATA);
	cr_assert(kind("[\"error\"]") == OPENAI_EVENT_DATA);
}

static bool
usage(const char *text, struct openai_usage *ret)
{
	return openai_scan_usage((struct slice){text, strlen(text)}, ret);
}

Test(openai, usage_is_what_the_engine_said)
{
	struct openai_usage u;

	cr_assert(usage("{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,"
			"\"total_tokens\":11,\"prompt_tokens_details\":{\"cached_tokens\":8}}}",
			&u));
	cr_assert(u.prompt_tokens == 9 && u.completion_tokens == 2 && u.cached_tokens == 8);
	cr_assert(usage("{\"usage\" : {\"prompt_tokens\": 9, \"prompt_tokens_details\": null}}",
			&u));
	cr_assert(u.prompt_tokens == 9 && u.completion_tokens == OPENAI_TOKENS_UNKNOWN &&
		  u.cached_tokens == OPENAI_TOKENS_UNKNOWN);
	cr_assert(usage("{\"type\":\"response.completed\",\"response\":{\"usage\":{"
			"\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":4},"
			"\"output_tokens\":3}}}", &u));
	cr_assert(u.prompt_tokens == 5 && u.cached_tokens == 4 && u.completion_tokens == 3);
	cr_assert(!usage("{\"choices\":[],\"usage\":null}", &u));
	cr_assert(!usage("{\"usage\":{\"prompt_tokens\":9", &u), "cut short");
	cr_assert(!usage("", &u));
	cr_assert(usage("{\"usage\":{\"prompt_tokens\":\"9\",\"cache_read_input_tokens\":6,"
			"\"prompt_tokens_details\":{\"audio_tokens\":1}}}", &u));
	cr_assert(u.prompt_tokens == OPENAI_TOKENS_UNKNOWN && u.cached_tokens == 6);
	cr_assert(usage("{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":6,"
			"\"cache_creation_input_tokens\":7,\"output_tokens\":1}}", &u));
	cr_assert(u.prompt_tokens == 18 && u.cached_tokens == 6 && u.completion_tokens == 1);
	cr_assert(usage("{\"usage\":{\"input_tokens\":4294967294,"
			"\"cache_read_input_tokens\":4294967294}}", &u));
	cr_assert(u.prompt_tokens == OPENAI_TOKENS_UNKNOWN - 1);
	cr_assert(usage("{\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":1e99}}", &u));
	cr_assert(u.prompt_tokens == OPENAI_TOKENS_UNKNOWN);
}

Test(openai, generated_text_cannot_forge_usage)
{
	struct openai_usage u;

	cr_assert(!usage("{\"choices\":[{\"text\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":1}\"}]}",
			 &u));
	cr_assert(!usage("{\"text\":\"usage\",\"x\":{\"prompt_tokens\":1}}", &u));
}

Test(openai, the_tail_of_a_long_answer_holds_its_usage)
{
	static const char end[] = "\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":8}}";
	size_t len = 30000;
	char *answer = malloc(len);
	struct openai_tail *t = malloc(sizeof(*t));
	struct openai_usage u;

	memset(answer, 'x', len);
	memcpy(answer + len - (sizeof(end) - 1), end, sizeof(end) - 1);
	for (size_t step = 1; step < 20000; step = step * 3 / 2 + 1) {
		memset(t, 0, sizeof(*t));
		for (size_t at = 0; at < len; at += step)
			openai_tail_feed(t, answer + at, len - at < step ? len - at : step);
		struct slice got = openai_tail_bytes(t);

		cr_assert(got.len >= OPENAI_TAIL_BYTES);
		cr_assert(memcmp(got.p, answer + len - got.len, got.len) == 0, "step %zu", step);
		cr_assert(openai_scan_usage(got, &u) && u.prompt_tokens == 7);
	}
	memset(t, 0, sizeof(*t));
	openai_tail_feed(t, "ab", 2);
	openai_tail_feed(t, "c", 1);
	cr_assert(slice_eq_str(openai_tail_bytes(t), "abc"));
	free(answer);
	free(t);
}
