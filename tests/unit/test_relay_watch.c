/* What is learned of an answer that streams by, however it is cut. */
#include <criterion/criterion.h>
#include <stdio.h>
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
fed(const char *text, size_t piece)
{
	struct relay_watch *w = relay_watch_new(true);
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i += piece)
		relay_watch_feed(w, text + i, n - i < piece ? n - i : piece);
	relay_watch_end(w);
	return w;
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
	struct relay_watch *w = relay_watch_new(false);
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
