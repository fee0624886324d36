/* tests/emulator/answer_named.c -- tokens out as Messages and Responses say them: named events.
 *
 * Source     Anthropic's Messages and OpenAI's Responses reference, and what vLLM sends of them
 *            (no [DONE]; the last word is message_stop or response.completed).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/call.h"

static unsigned
fresh_tokens(const struct call *call)
{
	return call->prompt_tokens - call->hit_tokens;
}

/* ---- Messages ---- */

static const char *
stop_reason(const struct call *call)
{
	return call->job->finish == ENGINE_FINISH_STOP ? "end_turn" : "max_tokens";
}

static void
message_whole(struct text *text, const struct call *call)
{
	text_printf(text, "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\","
		    "\"model\":\"%s\",\"content\":[{\"type\":\"text\",\"text\":\"", call->id,
		    call->emu->opt.model);
	answer_words(text, call, 1, call->job->visible);
	text_printf(text, "\"}],\"stop_reason\":\"%s\",\"stop_sequence\":null,\"usage\":{"
		    "\"input_tokens\":%u,\"cache_read_input_tokens\":%u,\"output_tokens\":%u}}",
		    stop_reason(call), fresh_tokens(call), call->hit_tokens, call->job->visible);
}

static void
message_start(struct text *text, const struct call *call)
{
	text_printf(text, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{"
		    "\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\","
		    "\"model\":\"%s\",\"content\":[],\"stop_reason\":null,"
		    "\"stop_sequence\":null,\"usage\":{\"input_tokens\":%u,"
		    "\"cache_read_input_tokens\":%u,\"output_tokens\":0}}}\n\n"
		    "event: content_block_start\ndata: {\"type\":\"content_block_start\","
		    "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
		    call->id, call->emu->opt.model, fresh_tokens(call), call->hit_tokens);
}

static void
message_delta(struct text *text, const struct call *call, unsigned from, unsigned to)
{
	text_lit(text, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
		       "\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"");
	answer_words(text, call, from, to);
	text_lit(text, "\"}}\n\n");
}

static void
message_end(struct text *text, const struct call *call)
{
	text_printf(text, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\","
		    "\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\","
		    "\"delta\":{\"stop_reason\":\"%s\",\"stop_sequence\":null},\"usage\":{"
		    "\"output_tokens\":%u}}\n\n"
		    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		    stop_reason(call), call->job->visible);
}

/* ---- Responses ---- */

static void
response_object(struct text *text, const struct call *call, bool done)
{
	text_printf(text, "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%ld,"
		    "\"status\":\"%s\",\"model\":\"%s\",\"error\":null,"
		    "\"incomplete_details\":null,\"previous_response_id\":", call->id,
		    call->created, done ? "completed" : "in_progress", call->emu->opt.model);
	if (call->previous[0] != '\0')
		text_printf(text, "\"%s\"", call->previous);
	else
		text_lit(text, "null");
	if (!done) {
		text_lit(text, ",\"output\":[],\"usage\":null}");
		return;
	}
	text_printf(text, ",\"output\":[{\"type\":\"message\",\"id\":\"msg_%s\","
		    "\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{"
		    "\"type\":\"output_text\",\"annotations\":[],\"text\":\"", call->id);
	answer_words(text, call, 1, call->job->visible);
	text_printf(text, "\"}]}],\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{"
		    "\"cached_tokens\":%u},\"output_tokens\":%u,\"output_tokens_details\":{"
		    "\"reasoning_tokens\":0},\"total_tokens\":%u}}", call->prompt_tokens,
		    call->hit_tokens, call->job->visible,
		    call->prompt_tokens + call->job->visible);
}

static void
response_event(struct text *text, struct call *call, const char *name)
{
	text_printf(text, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", name, name,
		    call->sequence++);
}

static void
response_start(struct text *text, struct call *call)
{
	response_event(text, call, "response.created");
	text_lit(text, ",\"response\":");
	response_object(text, call, false);
	text_lit(text, "}\n\n");
	response_event(text, call, "response.output_item.added");
	text_printf(text, ",\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"msg_%s\","
		    "\"role\":\"assistant\",\"status\":\"in_progress\",\"content\":[]}}\n\n",
		    call->id);
	response_event(text, call, "response.content_part.added");
	text_printf(text, ",\"output_index\":0,\"content_index\":0,\"item_id\":\"msg_%s\","
		    "\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"\"}}\n\n",
		    call->id);
}

static void
response_delta(struct text *text, struct call *call, unsigned from, unsigned to)
{
	response_event(text, call, "response.output_text.delta");
	text_printf(text, ",\"output_index\":0,\"content_index\":0,\"item_id\":\"msg_%s\","
		    "\"delta\":\"", call->id);
	answer_words(text, call, from, to);
	text_lit(text, "\"}\n\n");
}

static void
response_end(struct text *text, struct call *call)
{
	response_event(text, call, "response.completed");
	text_lit(text, ",\"response\":");
	response_object(text, call, true);
	text_lit(text, "}\n\n");
}

/* ---- both ---- */

void
answer_named_whole(struct text *text, struct call *call)
{
	text->len = 0;
	if (call->form == FORM_MESSAGES) {
		message_whole(text, call);
		return;
	}
	response_object(text, call, true);
	responses_keep(call->emu, call->id, text);
}

void
answer_named_words(struct text *text, struct call *call, unsigned from, unsigned to)
{
	text->len = 0;
	if (from == 1 && call->form == FORM_MESSAGES)
		message_start(text, call);
	else if (from == 1)
		response_start(text, call);
	if (call->form == FORM_MESSAGES)
		message_delta(text, call, from, to);
	else
		response_delta(text, call, from, to);
	http_conn_chunk(call->conn, text->p, text->len);
}

void
answer_named_end(struct text *text, struct call *call)
{
	text->len = 0;
	if (call->form == FORM_RESPONSES) {
		response_object(text, call, true);
		responses_keep(call->emu, call->id, text);
		text->len = 0;
		response_end(text, call);
	} else {
		message_end(text, call);
	}
	http_conn_chunk(call->conn, text->p, text->len);
}
