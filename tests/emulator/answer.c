/* tests/emulator/answer.c -- tokens out; see call.h. */
#include "tests/emulator/call.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("emulator: out of memory\n", stderr);
		abort();
	}
	return p;
}

void
text_printf(struct text *text, const char *format, ...)
{
	va_list ap;
	int n;

	for (;;) {
		va_start(ap, format);
		n = vsnprintf(text->p + text->len, text->cap - text->len, format, ap);
		va_end(ap);
		if ((size_t)n < text->cap - text->len)
			break;
		text->cap = (text->cap + (size_t)n + 1) * 2;
		text->p = must(realloc(text->p, text->cap));
	}
	text->len += (size_t)n;
}

void
text_add(struct text *text, const char *p, size_t len)
{
	if (text->len + len >= text->cap) {
		text->cap = (text->len + len + 64) * 2;
		text->p = must(realloc(text->p, text->cap));
	}
	memcpy(text->p + text->len, p, len);
	text->len += len;
}

/* ---- the request log ---- */

void
call_log_start(const struct call *call)
{
	if (call->emu->log != NULL)
		fprintf(call->emu->log,
			"{\"ev\":\"start\",\"t\":%.6f,\"x_request_id\":\"%s\",\"user\":\"%s\","
			"\"rank\":%u,\"prompt_tokens\":%u}\n", call->emu->now_s, call->id,
			call->user, call->rank->number, call->prompt_tokens);
}

void
call_log_end(struct call *call, unsigned status, const char *outcome)
{
	if (call->emu->log != NULL && !call->logged)
		fprintf(call->emu->log,
			"{\"ev\":\"end\",\"t\":%.6f,\"x_request_id\":\"%s\",\"user\":\"%s\","
			"\"status\":%u,\"outcome\":\"%s\",\"cached_tokens\":%u,"
			"\"prompt_tokens\":%u,\"output_tokens\":%u}\n",
			call->emu->now_s, call->id, call->user, status, outcome, call->hit_tokens,
			call->prompt_tokens, call->job != NULL ? call->job->visible : 0);
	call->logged = true;
}

/* ---- answers ---- */

static void
response_headers(const struct call *call, char out[static 512])
{
	int n = snprintf(out, 512, "x-request-id: %s\r\nx-emu-worker: %s:%u\r\n", call->id,
			 call->emu->opt.host, http_server_port(call->emu->http));

	if (call->emu->opt.debug_headers && call->job != NULL && call->job->made_s >= 0)
		snprintf(out + n, 512 - (size_t)n,
			 "x-emu-cached-tokens: %u\r\nx-emu-queue-ms: %.3f\r\n",
			 call->job->hit_tokens,
			 (call->job->scheduled_s - call->job->received_s) * 1e3);
}

void
answer_begin(struct call *call)
{
	char headers[512];

	if (call->begun)
		return;
	call->begun = true;
	response_headers(call, headers);
	http_conn_begin(call->conn, 200, "text/event-stream; charset=utf-8", headers);
}

static const char *
call_model(const struct call *call)
{
	return call->lora != NULL ? call->lora : call->emu->opt.model;
}

static void
add_usage(struct text *text, const struct call *call)
{
	text_printf(text, ",\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,"
		    "\"completion_tokens\":%u", call->prompt_tokens,
		    call->prompt_tokens + call->job->visible, call->job->visible);
	if (call->emu->opt.prompt_tokens_details)
		text_printf(text, ",\"prompt_tokens_details\":{\"cached_tokens\":%u}",
			    call->hit_tokens);
	text_lit(text, "}");
}

static void
event_open(struct text *text, struct call *call)
{
	text->len = 0;
	if (call->open == NULL) {
		text_printf(text, "data: {\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%ld,"
			    "\"model\":\"%s\",\"choices\":[",
			    call->chat ? "chatcmpl" : "cmpl", call->id,
			    call->chat ? "chat.completion.chunk" : "text_completion",
			    call->created, call_model(call));
		call->open = must(malloc(text->len));
		call->open_len = text->len;
		memcpy(call->open, text->p, text->len);
	} else {
		text_add(text, call->open, call->open_len);
	}
}

static void
event_close(struct text *text, const struct call *call, bool usage)
{
	if (usage)
		add_usage(text, call);
	text_lit(text, "}\n\n");
	http_conn_chunk(call->conn, text->p, text->len);
}

/* The text of tokens from..to (from 1), as it stands inside a JSON string. */
static void
add_words(struct text *text, const struct call *call, unsigned from, unsigned to, bool last)
{
	char word[5];

	if (call->tool[0] != '\0' && from == 1)
		text_lit(text, "{\\\"text\\\":\\\"");
	for (unsigned i = from; i <= to; i++) {
		words_write(call->text_seed, i, word);
		text_add(text, word, 4);
	}
	if (call->tool[0] != '\0' && last)
		text_lit(text, "\\\"}");
}

static void
send_role(struct text *text, struct call *call)
{
	event_open(text, call);
	text_lit(text, "{\"index\":0,\"delta\":{\"role\":\"assistant\","
		    "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
	event_close(text, call, call->usage_each);
	if (call->tool[0] == '\0')
		return;
	event_open(text, call);
	text_printf(text, "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,"
		    "\"id\":\"call_%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\","
		    "\"arguments\":\"\"}}]},\"logprobs\":null,\"finish_reason\":null}]", call->id,
		    call->tool);
	event_close(text, call, call->usage_each);
}

static void
send_words(struct text *text, struct call *call, unsigned from, unsigned to, bool last)
{
	event_open(text, call);
	if (!call->chat)
		text_lit(text, "{\"index\":0,\"text\":\"");
	else if (call->tool[0] != '\0')
		text_lit(text, "{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,"
			    "\"function\":{\"arguments\":\"");
	else
		text_lit(text, "{\"index\":0,\"delta\":{\"content\":\"");
	add_words(text, call, from, to, last);
	if (!call->chat)
		text_lit(text, "\",\"logprobs\":null,\"finish_reason\":null,"
			    "\"stop_reason\":null}]");
	else if (call->tool[0] != '\0')
		text_lit(text, "\"}}]},\"logprobs\":null,\"finish_reason\":null}]");
	else
		text_lit(text, "\"},\"logprobs\":null,\"finish_reason\":null}]");
	event_close(text, call, call->usage_each);
}

void
answer_words(struct text *text, const struct call *call, unsigned from, unsigned to)
{
	add_words(text, call, from, to, false);
}

static bool
named(const struct call *call)
{
	return call->form == FORM_MESSAGES || call->form == FORM_RESPONSES;
}

static const char *
finish_name(const struct call *call)
{
	if (call->tool[0] != '\0')
		return "tool_calls";
	return call->job->finish == ENGINE_FINISH_STOP ? "stop" : "length";
}

static void
send_finish(struct text *text, struct call *call)
{
	event_open(text, call);
	if (call->chat)
		text_printf(text, "{\"index\":0,\"delta\":{},\"logprobs\":null,"
			    "\"finish_reason\":\"%s\",\"stop_reason\":null}]", finish_name(call));
	else
		text_printf(text, "{\"index\":0,\"text\":\"\",\"logprobs\":null,"
			    "\"finish_reason\":\"%s\",\"stop_reason\":null}]", finish_name(call));
	event_close(text, call, call->usage_each);
	if (call->usage) {
		event_open(text, call);
		text_printf(text, "]");
		event_close(text, call, true);
	}
	http_conn_chunk(call->conn, "data: [DONE]\n\n", 14);
}

static void
whole_answer(struct text *text, struct call *call)
{
	if (named(call)) {
		answer_named_whole(text, call);
		return;
	}
	text->len = 0;
	text_printf(text, "{\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%ld,\"model\":\"%s\","
		    "\"choices\":[{\"index\":0,", call->chat ? "chatcmpl" : "cmpl", call->id,
		    call->chat ? "chat.completion" : "text_completion", call->created,
		    call_model(call));
	if (!call->chat)
		text_printf(text, "\"text\":\"");
	else if (call->tool[0] != '\0')
		text_printf(
			text,
			"\"message\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":["
			"{\"id\":\"call_%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\","
			"\"arguments\":\"",
			call->id, call->tool);
	else
		text_printf(text, "\"message\":{\"role\":\"assistant\",\"content\":\"");
	add_words(text, call, 1, call->job->visible, true);
	if (!call->chat)
		text_printf(text, "\",");
	else if (call->tool[0] != '\0')
		text_printf(text, "\"}}]},");
	else
		text_printf(text, "\"},");
	text_printf(text, "\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":null}]",
		    finish_name(call));
	add_usage(text, call);
	text_printf(text, "}");
}

void
answer_strike(struct call *call, const struct text *text)
{
	struct emulator *emu = call->emu;
	struct http_conn *conn = call->conn;
	bool done = call->job != NULL && call->job->finish != ENGINE_RUNNING;

	emu->faults++;
	call_log_end(call, call->begun ? 200 : 0, emu->opt.fail_kind);
	if (call->job != NULL && !done)
		worker_abort(call->rank->worker, call->job);
	call->job = NULL;
	if (call->fail_kind == FAIL_STALL)
		return;
	if (call->fail_kind == FAIL_RESET) {
		http_conn_reset(conn);
	} else if (call->fail_kind == FAIL_EVENT && call->begun) {
		static const char event[] = "data: {\"error\":{\"message\":\"injected\",\"type\":"
			"\"InternalServerError\",\"param\":null,\"code\":500}}\n\ndata: [DONE]\n\n";

		static const char sorry[] = "event: error\ndata: {\"type\":\"error\",\"error\":{"
			"\"type\":\"api_error\",\"message\":\"injected\"}}\n\n";

		if (named(call))
			http_conn_chunk(conn, sorry, sizeof sorry - 1);
		else
			http_conn_chunk(conn, event, sizeof event - 1);
		http_conn_end(conn);
	} else { /* cut in the middle of the answer */
		if (!call->begun && !call->stream) {
			http_conn_begin(conn, 200, "application/json", "");
			http_conn_chunk(conn, text->p, text->len / 2);
		} else {
			answer_begin(call);
		}
		http_conn_cut(conn);
	}
	call_free(call);
}

void
api_token(void *arg, struct worker_job *job, double now_s)
{
	struct rank *rank = arg;
	struct emulator *emu = rank->emu;
	struct call *call = job->priv;
	bool last = job->finish != ENGINE_RUNNING;
	struct text text = {emu->scratch, 0, emu->scratch_cap};

	exposition_token(&rank->x, job, now_s, call->last_s);
	call->last_s = now_s;
	call->hit_tokens = job->hit_tokens;
	call->unsent++;
	if (call->stream) {
		if (job->visible == 1) {
			answer_begin(call);
			if (call->chat)
				send_role(&text, call);
		}
		if (last || job->visible == 1 || call->unsent >= emu->opt.stream_interval) {
			unsigned from = job->visible - call->unsent + 1;

			if (named(call))
				answer_named_words(&text, call, from, job->visible);
			else
				send_words(&text, call, from, job->visible, last);
			call->unsent = 0;
		}
	}
	if (call->faulty && job->visible >= call->fail_at && (call->stream || last)) {
		if (!call->stream)
			whole_answer(&text, call);
		answer_strike(call, &text);
	} else if (last) {
		if (call->stream) {
			if (named(call))
				answer_named_end(&text, call);
			else
				send_finish(&text, call);
			http_conn_end(call->conn);
		} else {
			char headers[512];

			whole_answer(&text, call);
			response_headers(call, headers);
			http_conn_answer(call->conn, 200, "application/json", headers, text.p,
					 text.len);
		}
		call_log_end(call, 200, "ok");
		emu->ok++;
		call_free(call);
	}
	emu->scratch = text.p;
	emu->scratch_cap = text.cap;
}
