/* What is learned of an answer that streams by, however it is cut. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/relay_watch.h"

#define PLAIN                                                                                      \
	"data: {\"id\":\"cmpl-1\",\"choices\":[{\"index\":0,\"text\":\" said \\\"usage\\\" and "   \
	"\\\"error\\\"\",\"finish_reason\":null}]}\n\n"
#define USAGE                                                                                      \
	"data: {\"id\":\"cmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":40,"                 \
	"\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\n"
#define ERROR "data: {\"error\":{\"message\":\"out of blocks\",\"code\":500}}\n\n"
#define DONE "data: [DONE]\n\n"

static struct relay_watch *
fed_as(enum openai_api api, const char *text, size_t piece)
{
	struct relay_watch *w = relay_watch_new(true, api);
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i += piece)
		relay_watch_feed(w, text + i, n - i < piece ? n - i : piece);
	relay_watch_end(w);
	return w;
}

static struct relay_watch *
fed(const char *text, size_t piece)
{
	return fed_as(OPENAI_API_PLAIN, text, piece);
}

Test(relay_watch, usage_and_the_last_word_are_seen_under_every_cutting)
{
	for (size_t piece = 1; piece < 600; piece++) {
		struct relay_watch *w = fed(PLAIN PLAIN USAGE DONE, piece);

		cr_assert_eq(w->usage.prompt_tokens, 40);
		cr_assert_eq(w->usage.completion_tokens, 7);
		cr_assert_eq(w->usage.cached_tokens, 32);
		cr_assert(w->done && !w->failed);
		relay_watch_free(w);
	}
}

Test(relay_watch, usage_is_found_at_every_place_in_an_event)
{
	for (unsigned pad = 0; pad < 70; pad++) {
		char text[400];
		struct relay_watch *w;

		snprintf(text, sizeof text,
			 "data: {\"x\":\"%.*s\",\"usage\":{\"prompt_tokens\":9}}\n\n", (int)pad,
			 "....................................................................."
			 "..");
		w = fed(text, sizeof text);
		cr_assert_eq(w->usage.prompt_tokens, 9, "pad %u", pad);
		relay_watch_free(w);
	}
}

Test(relay_watch, generated_text_forges_neither_usage_nor_error)
{
	struct relay_watch *w = fed(PLAIN, 1000);

	cr_assert_eq(w->usage.prompt_tokens, OPENAI_TOKENS_UNKNOWN);
	cr_assert(!w->failed && !w->done);
	relay_watch_free(w);
}

Test(relay_watch, engine_that_fails_in_the_middle_is_noticed)
{
	struct relay_watch *w = fed(PLAIN ERROR DONE, 1000);

	cr_assert(w->failed && w->done);
	relay_watch_free(w);
}

Test(relay_watch, usage_of_an_answer_in_one_piece_is_read_from_its_end)
{
	struct relay_watch *w = relay_watch_new(false, OPENAI_API_PLAIN);
	char text[20000];
	const char *end = "\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";

	memset(text, 'a', sizeof text);
	relay_watch_feed(w, "{\"choices\":[{\"text\":\"", 21);
	for (unsigned i = 0; i < 10; i++)
		relay_watch_feed(w, text, sizeof text / (i + 1));
	relay_watch_feed(w, end, strlen(end));
	relay_watch_end(w);
	cr_assert_eq(w->usage.prompt_tokens, 3);
	cr_assert_eq(w->usage.completion_tokens, 4);
	cr_assert_eq(w->usage.cached_tokens, OPENAI_TOKENS_UNKNOWN);
	relay_watch_free(w);
}

#define START \
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"," \
	"\"content\":[],\"usage\":{\"input_tokens\":8,\"cache_read_input_tokens\":32," \
	"\"output_tokens\":0}}}\n\n"
#define DELTA \
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0," \
	"\"delta\":{\"type\":\"text_delta\",\"text\":\"message_stop \\\"error\\\"\"}}\n\n"
#define LAST_DELTA \
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":" \
	"\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n"
#define STOP "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
#define SORRY \
	"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"," \
	"\"message\":\"no blocks\"}}\n\n"

Test(relay_watch, a_stream_of_messages_ends_with_message_stop_and_counts_in_two_events)
{
	for (size_t piece = 1; piece < 900; piece += piece < 40 ? 1 : 37) {
		struct relay_watch *w =
			fed_as(OPENAI_API_MESSAGES, START DELTA LAST_DELTA STOP, piece);

		cr_assert_eq(w->usage.prompt_tokens, 40, "%u", w->usage.prompt_tokens);
		cr_assert_eq(w->usage.cached_tokens, 32);
		cr_assert_eq(w->usage.completion_tokens, 7);
		cr_assert(w->done && !w->failed);
		relay_watch_free(w);
		w = fed_as(OPENAI_API_MESSAGES, START DELTA LAST_DELTA, piece);
		cr_assert(!w->done && !w->failed);
		relay_watch_free(w);
		w = fed_as(OPENAI_API_MESSAGES, START DELTA SORRY, piece);
		cr_assert(!w->done && w->failed);
		relay_watch_free(w);
	}
}

/* A response whose last event repeats so many bytes of answer. */
static char *
responses(const char *last, size_t answer, bool id_first)
{
	char *text = malloc(answer + 2000), *at = text;

	at += sprintf(at, "event: response.created\ndata: {\"type\":\"response.created\","
		      "\"sequence_number\":0,\"response\":{%s\"status\":\"in_progress\","
		      "\"error\":null%s}}\n\n", id_first ? "\"id\":\"resp_ab-1\"," : "",
		      id_first ? "" : ",\"id\":\"resp_ab-1\"");
	at += sprintf(at, "event: response.output_text.delta\ndata: {\"type\":"
		      "\"response.output_text.delta\",\"delta\":\"response.completed\"}\n\n");
	at += sprintf(at, "event: %s\ndata: {\"type\":\"%s\",\"response\":{\"id\":"
		      "\"resp_ab-1\",\"output\":\"", last, last);
	memset(at, 'x', answer);
	at += answer;
	sprintf(at, "\",\"usage\":{\"input_tokens\":40,\"input_tokens_details\":"
		"{\"cached_tokens\":16},\"output_tokens\":3},\"user\":null}}\n\n");
	return text;
}

Test(relay_watch, a_response_s_id_end_and_usage_are_seen_however_long_the_answer)
{
	static const size_t pieces[] = {1, 2, 3, 7, 64, 1000, 100000};

	for (size_t answer = 0; answer < 20000; answer = answer * 3 + 900)
		for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
			char *text = responses("response.completed", answer, answer % 2);
			struct relay_watch *w = fed_as(OPENAI_API_RESPONSES, text, pieces[i]);
			struct slice id;

			cr_assert(w->done && !w->failed);
			cr_assert_eq(w->usage.prompt_tokens, 40);
			cr_assert_eq(w->usage.cached_tokens, 16);
			cr_assert_eq(w->usage.completion_tokens, 3);
			cr_assert(relay_watch_id(w, &id) && slice_eq_str(id, "resp_ab-1"));
			cr_assert(!relay_watch_id(w, &id), "told once");
			relay_watch_free(w);
			free(text);
		}
}

Test(relay_watch, a_response_that_failed_or_is_incomplete_has_said_its_last_word)
{
	char *text = responses("response.failed", 10, true);
	struct relay_watch *w = fed_as(OPENAI_API_RESPONSES, text, 50);

	cr_assert(w->done && w->failed);
	relay_watch_free(w);
	free(text);
	text = responses("response.incomplete", 10, true);
	w = fed_as(OPENAI_API_RESPONSES, text, 50);
	cr_assert(w->done && !w->failed);
	relay_watch_free(w);
	free(text);
}

Test(relay_watch, the_id_of_a_response_in_one_piece_is_known_with_its_last_byte)
{
	static const char text[] = "{ \"created\": 1.5e3, \"id\" : \"resp_0f\" , \"output\":"
				   "[{\"id\":\"msg_1\"}]}";
	size_t known = (size_t)(strstr(text, " , \"output") - text);
	struct relay_watch *w = relay_watch_new(false, OPENAI_API_RESPONSES);
	struct slice id;

	for (size_t i = 0; i < sizeof text - 1; i++) {
		relay_watch_feed(w, text + i, 1);
		cr_assert_eq(relay_watch_id(w, &id), i == known - 1, "byte %zu", i);
	}
	cr_assert(slice_eq_str(id, "resp_0f"));
	relay_watch_free(w);
}

Test(relay_watch, what_is_no_plain_id_is_no_id)
{
	static const char *const texts[] = {
		"{\"id\":\"../sleep\"}", "{\"id\":\"a\\u0062\"}", "{\"id\":7}", "{\"id\":\"\"}",
		"{\"x\":{\"id\":\"a\"}}", "[{\"id\":\"a\"}]", "{\"id\":\"a/b\"}",
	};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct relay_watch *w = relay_watch_new(false, OPENAI_API_RESPONSES);
		struct slice id;

		relay_watch_feed(w, texts[i], strlen(texts[i]));
		cr_assert(!relay_watch_id(w, &id), "%s", texts[i]);
		relay_watch_free(w);
	}
}
