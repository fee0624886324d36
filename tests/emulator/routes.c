/* tests/emulator/routes.c -- the routes beside chat and completions: Messages, Responses and what
 * it keeps of them, audio, embeddings.  See call.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/multipart.h"
#include "proto/openai.h"
#include "tests/emulator/call.h"
#include "tests/emulator/native.h"

#define RESPONSES_KEPT 4096u            /* the oldest is forgotten */

struct kept_response {
	struct kept_response *next;     /* older */
	char id[ID_MAX_BYTES + 8];
	size_t len;
	char body[];
};

/* ---- what is kept ---- */

void
responses_keep(struct emulator *emu, const char *id, const struct text *body)
{
	struct kept_response *k = malloc(sizeof *k + body->len), **last = &emu->responses;

	if (!k)
		abort();
	snprintf(k->id, sizeof k->id, "resp_%s", id);
	k->len = body->len;
	memcpy(k->body, body->p, body->len);
	k->next = emu->responses;
	emu->responses = k;
	for (unsigned n = 0; *last && n < RESPONSES_KEPT; n++)
		last = &(*last)->next;
	if (*last) {
		free(*last);
		*last = NULL;
	}
}

void
responses_forget(struct emulator *emu)
{
	while (emu->responses) {
		struct kept_response *k = emu->responses;

		emu->responses = k->next;
		free(k);
	}
}

static struct kept_response **
response_find(struct emulator *emu, struct slice id)
{
	struct kept_response **at = &emu->responses;

	while (*at && !slice_eq_str(id, (*at)->id))
		at = &(*at)->next;
	return *at ? at : NULL;
}

static void
response_unknown(const struct emulator *emu, struct http_conn *conn, struct slice id)
{
	char message[200];

	snprintf(message, sizeof message, "Response with id '%.*s' not found.",
		 (int)(id.len < 120 ? id.len : 120), id.p);
	api_error(emu, conn, 404, "invalid_request_error", "response_id", message);
}

bool
responses_known(struct emulator *emu, struct http_conn *conn, const json_t *req)
{
	const char *id = json_string_value(json_object_get(req, "previous_response_id"));

	if (!id || response_find(emu, slice_str(id)))
		return true;
	response_unknown(emu, conn, slice_str(id));
	return false;
}

static void
response_request(struct emulator *emu, struct http_conn *conn, const struct http1_request *http)
{
	struct slice id = openai_route_id(http->path);
	struct kept_response **at = response_find(emu, id);
	char body[200];
	int n;

	if (!at) {
		response_unknown(emu, conn, id);
		return;
	}
	if (http->method != HTTP1_DELETE) {
		http_conn_answer(conn, 200, "application/json", "", (*at)->body, (*at)->len);
		return;
	}
	n = snprintf(body, sizeof body,
		     "{\"id\":\"%s\",\"object\":\"response.deleted\",\"deleted\":true}", (*at)->id);
	struct kept_response *k = *at;

	*at = k->next;
	free(k);
	http_conn_answer(conn, 200, "application/json", "", body, (size_t)n);
}

/* ---- audio ---- */

static void
audio_request(struct emulator *emu, struct http_conn *conn, const struct http1_request *http,
	      const char *body, size_t len_bytes)
{
	const struct http1_header *h = http1_find(&http->head, "content-type", NULL);
	struct multipart_view form;
	struct slice boundary;
	const char *why = "the body is no form";
	char text[400];
	int n;

	if (!h || multipart_boundary(h->value, &boundary, &why) < 0 ||
	    multipart_parse(body, len_bytes, boundary, &form, &why) < 0) {
		api_error(emu, conn, 400, "BadRequestError", NULL, why);
		return;
	}
	if (form.has_model && !api_model_known(emu, form.model)) {
		api_error(emu, conn, 404, "NotFoundError", "model", "The model does not exist.");
		return;
	}
	/* It hears nothing, but says what it was given. */
	n = snprintf(text, sizeof text, "{\"text\":\"%u parts, %zu bytes for %s\",\"usage\":{"
		     "\"type\":\"duration\",\"seconds\":%zu}}", form.n_parts, len_bytes,
		     form.has_model ? form.model : "nobody", len_bytes / 32000 + 1);
	http_conn_answer(conn, 200, "application/json", "", text, (size_t)n);
}

/* ---- embeddings ---- */

/* Tokens of what is to be embedded: one text or list of ids, or several. */
static unsigned
input_tokens(const struct emulator *emu, const json_t *input)
{
	unsigned n = 0, sum = 0;
	size_t i;
	json_t *v;

	if (json_is_string(input)) {
		free(words_encode(emu->words, json_string_value(input),
				  json_string_length(input), &n));
		return n;
	}
	json_array_foreach(input, i, v)
		sum += json_is_integer(v) ? 1 : input_tokens(emu, v);
	return sum;
}

static void
embeddings_request(struct emulator *emu, struct http_conn *conn, const char *body,
		   size_t len_bytes)
{
	json_t *req = json_loadb(body, len_bytes, 0, NULL);
	const json_t *input = json_object_get(req, "input");
	const char *model = json_string_value(json_object_get(req, "model"));
	json_t *data = json_array(), *doc;
	bool many = json_is_array(input) && !json_is_integer(json_array_get(input, 0));
	size_t n = many ? json_array_size(input) : 1;
	unsigned tokens = 0;
	const char *why = NULL;
	char *said;

	if (!input || (model && !api_model_known(emu, model))) {
		api_error(emu, conn, input ? 404 : 400, input ? "NotFoundError" : "BadRequestError",
			  input ? "model" : "input", "no input, or no such model");
		json_decref(data);
		json_decref(req);
		return;
	}
	if (emu->native == NULL)
		tokens = input_tokens(emu, input);
	else if (native_count(emu->native, OPENAI_EMBEDDINGS, (struct slice){body, len_bytes},
			      &tokens, &why) < 0) {
		api_error(emu, conn, 400, "BadRequestError", "input", why);
		json_decref(data);
		json_decref(req);
		return;
	}
	for (size_t i = 0; i < n; i++)
		json_array_append_new(data, json_pack("{s:s, s:i, s:[f, f, f]}", "object",
						      "embedding", "index", (int)i, "embedding",
						      0.25, -0.5, 1.0));
	doc = json_pack("{s:s, s:o, s:s, s:{s:i, s:i}}", "object", "list", "data", data, "model",
			emu->opt.model, "usage", "prompt_tokens", (int)tokens, "total_tokens",
			(int)tokens);
	said = json_dumps(doc, JSON_COMPACT);
	http_conn_answer(conn, 200, "application/json", "", said, strlen(said));
	free(said);
	json_decref(doc);
	json_decref(req);
}

/* ---- prompts of other shapes ---- */

/* Text as it is, or the text parts of a list, whatever they are called. */
static json_t *
plain_content(const json_t *content)
{
	struct text all = {0};
	const json_t *part;
	json_t *text;
	size_t i;

	if (json_is_string(content))
		return json_copy((json_t *)(uintptr_t)content);
	text_lit(&all, "");
	json_array_foreach(content, i, part)
	{
		const char *s = json_string_value(json_object_get(part, "text"));

		if (s)
			text_add(&all, s, strlen(s));
	}
	text = json_stringn(all.p, all.len);
	free(all.p);
	return text;
}

static void
add_message(json_t *list, const char *role, const json_t *content)
{
	json_array_append_new(list, json_pack("{s:s, s:o}", "role", role, "content",
					      plain_content(content)));
}

json_t *
routes_messages(const json_t *req, enum call_form form)
{
	const json_t *system = json_object_get(req, form == FORM_MESSAGES ? "system"
									  : "instructions");
	const json_t *said = json_object_get(req, form == FORM_MESSAGES ? "messages" : "input");
	const json_t *one;
	json_t *list = json_array();
	size_t i;

	if (system && !json_is_null(system))
		add_message(list, "system", system);
	if (json_is_string(said))
		add_message(list, "user", said);
	json_array_foreach(said, i, one)
	{
		const char *role = json_string_value(json_object_get(one, "role"));

		add_message(list, role ? role : "user", json_object_get(one, "content"));
	}
	return list;
}

bool
routes_request(struct emulator *emu, struct http_conn *conn, const struct http1_request *http,
	       const char *body, size_t len_bytes)
{
	enum openai_route route = openai_route(http->method, http->path);

	/* vLLM's Rust front end has only these */
	if (strcmp(emu->opt.frontend, "rust") == 0 && route != OPENAI_CHAT &&
	    route != OPENAI_COMPLETIONS && route != OPENAI_TOKENIZE)
		return false;
	switch (route) {
	case OPENAI_RESPONSE:
	case OPENAI_RESPONSE_CANCEL:
		response_request(emu, conn, http);
		return true;
	case OPENAI_TRANSCRIPTIONS:
	case OPENAI_TRANSLATIONS:
		audio_request(emu, conn, http, body, len_bytes);
		return true;
	case OPENAI_EMBEDDINGS:
		embeddings_request(emu, conn, body, len_bytes);
		return true;
	case OPENAI_CHAT:
	case OPENAI_COMPLETIONS:
	case OPENAI_TOKENIZE:
	case OPENAI_MESSAGES:
	case OPENAI_COUNT_TOKENS:
	case OPENAI_RESPONSES:
		api_request(emu, conn, http, body, len_bytes);
		return true;
	case OPENAI_WRONG_METHOD:
		api_error(emu, conn, 405, "Method Not Allowed", NULL, "Method Not Allowed");
		return true;
	default:
		return false;
	}
}
