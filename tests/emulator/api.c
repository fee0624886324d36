/* tests/emulator/api.c -- requests in; see call.h. */
#include "tests/emulator/call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/openai.h"
#include "tests/emulator/ids.h"
#include "tests/emulator/native.h"

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("emulator: out of memory\n", stderr);
		abort();
	}
	return p;
}

/* What is not plain becomes '_': an id is for matching, not for quoting. */
static void
copy_id(char out[static ID_MAX_BYTES + 1], const char *p, size_t len)
{
	size_t n = len < ID_MAX_BYTES ? len : ID_MAX_BYTES;

	for (size_t i = 0; i < n; i++)
		out[i] = (p[i] >= '0' && p[i] <= '9') || (p[i] >= 'A' && p[i] <= 'Z') ||
			 (p[i] >= 'a' && p[i] <= 'z') || strchr("-_.:/@", p[i]) != NULL
			 ? p[i] : '_';
	out[n] = '\0';
}

static uint64_t
hash_text(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *s != '\0'; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3u;
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9u;
	h ^= h >> 32;
	return h != 0 ? h : 1;
}

/* Was this id there already?  It is from now on. */
static bool
id_seen(struct id_set *set, uint64_t id)
{
	unsigned i;

	if (set->slot == NULL || set->n * 2 > set->mask) {
		struct id_set old = *set;

		set->mask = old.slot != NULL ? old.mask * 2 + 1 : 1023;
		set->slot = must(calloc(set->mask + 1, sizeof *set->slot));
		for (unsigned k = 0; old.slot != NULL && k <= old.mask; k++) {
			for (i = (unsigned)old.slot[k] & set->mask; set->slot[i] != 0;)
				i = (i + 1) & set->mask;
			set->slot[i] = old.slot[k];
		}
		free(old.slot);
	}
	for (i = (unsigned)id & set->mask; set->slot[i] != 0; i = (i + 1) & set->mask)
		if (set->slot[i] == id)
			return true;
	set->slot[i] = id;
	set->n++;
	return false;
}

void
api_error(const struct emulator *emu, struct http_conn *conn, unsigned status, const char *type,
	  const char *param, const char *message)
{
	json_t *error = json_pack("{s:s, s:s, s:s?, s:i}", "message", message, "type", type,
				  "param", param, "code", (int)status);
	char *body;

	if (emu->gen.nested_errors)
		error = json_pack("{s:o}", "error", error);
	else
		json_object_set_new(error, "object", json_string("error"));
	body = must(json_dumps(error, JSON_COMPACT));

	http_conn_answer(conn, status, "application/json", "", body, strlen(body));
	free(body);
	json_decref(error);
}

static void
bad_request(const struct emulator *emu, struct http_conn *conn, const char *message)
{
	api_error(emu, conn, 400, "BadRequestError", NULL, message);
}

/* ---- calls ---- */

struct call *
call_new(struct emulator *emu, struct http_conn *conn)
{
	struct call *call = must(calloc(1, sizeof *call));

	call->emu = emu;
	call->conn = conn;
	call->next = emu->calls;
	if (call->next != NULL)
		call->next->prev = call;
	emu->calls = call;
	http_conn_set_priv(conn, call);
	return call;
}

void
call_free(struct call *call)
{
	if (call->prev != NULL)
		call->prev->next = call->next;
	else
		call->emu->calls = call->next;
	if (call->next != NULL)
		call->next->prev = call->prev;
	free(call->open);
	free(call->answer);
	call->emu->tokenizing -= call->tokenizing;
	http_conn_set_priv(call->conn, NULL); /* it may outlive us until the end of the turn */
	free(call);
}

void
api_closed(struct emulator *emu, struct http_conn *conn)
{
	struct call *call = http_conn_priv(conn);

	if (call == NULL)
		return;
	if (call->tokenizing) {
		call_free(call);
		return;
	}
	call_log_end(call, 0, "abort");
	if (call->job != NULL) {
		worker_abort(call->rank->worker, call->job);
		exposition_abort(&call->rank->x);
	}
	emu->aborted++;
	call_free(call);
}

void
api_forget_all(struct emulator *emu)
{
	responses_forget(emu);
	while (emu->calls != NULL) {
		if (!emu->calls->tokenizing)
			call_log_end(emu->calls, 0, "restart");
		call_free(emu->calls);
	}
}

unsigned
api_open(const struct emulator *emu)
{
	unsigned n = 0;

	for (const struct call *call = emu->calls; call != NULL; call = call->next)
		n++;
	return n;
}

/* ---- requests ---- */

struct arrived {                                /* what a model's own tokens are made of */
	enum openai_route route;
	struct slice body;
};

bool
api_model_known(const struct emulator *emu, const char *model)
{
	const char *p = emu->opt.served_model_name;
	size_t len = strlen(model);

	if (strcmp(model, emu->opt.model) == 0)
		return true;
	while (*p != '\0') {
		size_t n = strcspn(p, ",");

		if (n == len && memcmp(p, model, n) == 0)
			return true;
		p += n + (p[n] == ',');
	}
	return emulator_lora(emu, model, len) > 0;
}

/* A whole number member, or none.  False: there, but not a whole number from min on. */
static bool
get_count(const json_t *req, const char *key, json_int_t min, json_int_t none, json_int_t *ret)
{
	const json_t *v = json_object_get(req, key);

	*ret = none;
	if (v == NULL || json_is_null(v))
		return true;
	if (!json_is_integer(v) || json_integer_value(v) < min)
		return false;
	*ret = json_integer_value(v);
	return true;
}

/* Token ids as given.  NULL: an element is not one. */
static uint32_t *
get_ids(const json_t *list, unsigned *ret_tokens)
{
	uint32_t *token = must(malloc((json_array_size(list) + 1) * sizeof *token));
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
	{
		json_int_t id = json_integer_value(v);

		if (!json_is_integer(v) || id < 0 || id > INT32_MAX) {
			free(token);
			return NULL;
		}
		token[i] = (uint32_t)id;
	}
	*ret_tokens = (unsigned)i;
	return token;
}

/* The prompt of a request in either form as tokens.  NULL, and why. */
static uint32_t *
get_prompt(const struct emulator *emu, const json_t *req, const struct arrived *arrived,
	   enum call_form form, unsigned *ret_tokens, const char **why)
{
	const json_t *prompt = json_object_get(req, "prompt");
	const json_t *gen = json_object_get(req, "add_generation_prompt");
	uint32_t *token;

	if (emu->native != NULL)
		return native_tokens(emu->native, arrived->route, arrived->body, ret_tokens, why);
	if (form != FORM_COMPLETION) {
		json_t *said = form == FORM_CHAT ? json_incref(json_object_get(req, "messages"))
						 : routes_messages(req, form);
		size_t len;
		char *text = words_chat(said, json_object_get(req, "tools"),
					    !json_is_false(gen), &len, why);

		json_decref(said);
		if (text == NULL)
			return NULL;
		token = words_encode(emu->words, text, len, ret_tokens);
		free(text);
		return token;
	}
	if (json_is_array(prompt) && json_array_size(prompt) == 1 &&
	    !json_is_integer(json_array_get(prompt, 0)))
		prompt = json_array_get(prompt, 0); /* a list of one prompt */
	if (json_is_string(prompt))
		return words_encode(emu->words, json_string_value(prompt),
					json_string_length(prompt), ret_tokens);
	if (json_is_array(prompt)) {
		token = get_ids(prompt, ret_tokens);
		if (token == NULL)
			*why = "prompt: only one text or one list of token ids (0 to 2^31-1)";
		return token;
	}
	*why = "prompt must be a string or a list of token ids";
	return NULL;
}

static void
tokenize(struct emulator *emu, struct http_conn *conn, const json_t *req,
	 const struct arrived *arrived)
{
	struct text text = {0};
	const char *why = NULL;
	struct call *call;
	unsigned n = 0;
	enum call_form form = json_object_get(req, "messages") != NULL ? FORM_CHAT
								       : FORM_COMPLETION;
	uint32_t *token = get_prompt(emu, req, arrived, form, &n, &why);
	char *p;

	if (token == NULL) {
		bad_request(emu, conn, why);
		return;
	}
	emu->tokenized++;
	text_printf(&text, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", n,
		    emu->opt.max_model_len);
	text.cap = text.len + (size_t)n * 11 + 64;
	text.p = must(realloc(text.p, text.cap));
	p = text.p + text.len;
	for (unsigned i = 0; i < n; i++) {
		char digits[10];
		unsigned k = 0;
		uint32_t v = token[i];

		do
			digits[k++] = (char)('0' + v % 10);
		while ((v /= 10) > 0);
		if (i > 0)
			*p++ = ',';
		while (k > 0)
			*p++ = digits[--k];
	}
	text.len = (size_t)(p - text.p);
	text_printf(&text, "],\"token_strs\":null}");
	free(token);
	call = call_new(emu, conn);
	call->tokenizing = true;
	call->answer = text.p;
	call->answer_len = text.len;
	call->due_s = emu->now_s;
	if (emu->opt.tokenize_delay)
		call->due_s += emu->cfg.o_fix_s + emu->cfg.o_tok_s * n;
	emu->tokenizing++;
	api_due(emu);
}

double
api_due(struct emulator *emu)
{
	double next = INFINITY;
	struct call *call, *after;

	if (emu->tokenizing == 0)
		return next;
	for (call = emu->calls; call != NULL; call = after) {
		after = call->next;
		if (!call->tokenizing)
			continue;
		if (call->due_s > emu->now_s) {
			next = call->due_s < next ? call->due_s : next;
			continue;
		}
		http_conn_answer(call->conn, 200, "application/json", "", call->answer,
				 call->answer_len);
		call_free(call);
	}
	return next;
}

/* How many tokens the model will write: max, or fewer if it may end by itself. */
static unsigned
output_length(struct emulator *emu, unsigned max, unsigned min, bool ignore_eos,
	      enum engine_finish *ret_finish)
{
	double u = emulator_unit(emu), n;

	*ret_finish = ENGINE_FINISH_LENGTH;
	if (ignore_eos)
		return max;
	n = emu->opt.mean_output > 1
		? 1 + floor(log(1 - u) / log(1 - 1 / emu->opt.mean_output)) : 1;
	if (n < min)
		n = min;
	if (n >= max)
		return max;
	*ret_finish = ENGINE_FINISH_STOP;
	return (unsigned)n;
}

/* The function the client insists on, if any. */
static void
get_tool(const json_t *req, char out[static 65])
{
	const json_t *choice = json_object_get(req, "tool_choice");
	const json_t *first = json_array_get(json_object_get(req, "tools"), 0);
	const char *name = NULL;

	if (json_is_object(choice))
		name = json_string_value(
			json_object_get(json_object_get(choice, "function"), "name"));
	else if (json_is_string(choice) && strcmp(json_string_value(choice), "required") == 0)
		name = json_string_value(
			json_object_get(json_object_get(first, "function"), "name"));
	if (name != NULL) {
		char safe[ID_MAX_BYTES + 1];

		copy_id(safe, name, strlen(name));
		snprintf(out, 65, "%.64s", safe);
	}
}

/* Does this request fail?  True: it is answered (or never will be). */
static bool
fault(struct call *call)
{
	struct emulator *emu = call->emu;

	if (emu->opt.fail_rate <= 0 || emulator_unit(emu) >= emu->opt.fail_rate)
		return false;
	call->fail_kind = emu->fail_kind;
	call->fail_at = emu->opt.fail_at;
	if (call->fail_kind <= FAIL_503) {
		static const unsigned status[] = {429, 500, 503};

		emu->faults++;
		call_log_end(call, status[call->fail_kind], "fault");
		api_error(emu, call->conn, status[call->fail_kind],
			  call->fail_kind == FAIL_429 ? "RateLimitError" : "InternalServerError",
			  NULL, "injected failure");
		call_free(call);
		return true;
	}
	if (call->fail_at == 0 && call->fail_kind != FAIL_EVENT) {
		struct text none = {0};

		answer_strike(call, &none);
		return true;
	}
	call->faulty = true;
	return false;
}

static void
identify(struct call *call, const struct http1_request *http, const json_t *req)
{
	struct emulator *emu = call->emu;
	const struct http1_header *h = http1_find(&http->head, "x-request-id", NULL);
	const json_t *user = json_object_get(req, "user");

	if (h != NULL && h->value.len > 0)
		copy_id(call->id, h->value.p, h->value.len);
	else
		snprintf(call->id, sizeof call->id, "%08x%08x",
			 (unsigned)(emulator_unit(emu) * 0x1p32),
			 (unsigned)(emulator_unit(emu) * 0x1p32));
	if (json_is_string(user))
		copy_id(call->user, json_string_value(user), json_string_length(user));
	if (call->user[0] != '\0' && id_seen(&emu->ids, hash_text(call->user)))
		emu->duplicate_ids++;
	call->text_seed = hash_text(call->user[0] != '\0' ? call->user : call->id);
}

/* The rank a request asks for, or the one with the least to do.  NULL: there is no such rank. */
static struct rank *
get_rank(struct emulator *emu, const struct http1_request *http)
{
	const struct http1_header *h = http1_find(&http->head, "x-data-parallel-rank", NULL);
	struct rank *best = NULL;
	unsigned best_load = 0, asked = 0;
	size_t digits = 0;

	while (h != NULL && digits < h->value.len && h->value.p[digits] >= '0' &&
	       h->value.p[digits] <= '9' && digits < 6)
		asked = asked * 10 + (unsigned)(h->value.p[digits++] - '0');
	if (emu->gen.rank_header && h != NULL && digits > 0 && digits == h->value.len)
		return asked - emu->rank[0].number < emu->ranks
			? &emu->rank[asked - emu->rank[0].number] : NULL;
	for (unsigned i = 0; i < emu->ranks; i++) {
		struct rank *rank = &emu->rank[i];
		struct worker_stats stats = worker_stats(rank->worker);
		unsigned load = 4 * (stats.engine.waiting + stats.arriving) + stats.engine.running;

		if (best == NULL || load < best_load ||
		    (load == best_load && rank->prompts < best->prompts)) {
			best = rank;
			best_load = load;
		}
	}
	return best;
}

/* All that can be wrong with the numbers of a request; then the job.  token: the prompt, if it is
 * known already; it is taken over. */
static void
generate(struct emulator *emu, struct http_conn *conn, const struct http1_request *http,
	 const json_t *req, const struct arrived *arrived, uint32_t *token, unsigned tokens,
	 enum call_form form)
{
	const char *previous = json_string_value(json_object_get(req, "previous_response_id"));
	const json_t *options = json_object_get(req, "stream_options");
	const char *salt = json_string_value(json_object_get(req, "cache_salt"));
	const char *model = json_string_value(json_object_get(req, "model"));
	const char *why = NULL;
	json_int_t max, min, n, priority;
	struct worker_request work = {0};
	struct rank *rank = get_rank(emu, http);
	struct call *call;

	if (rank == NULL) {
		bad_request(emu, conn, "data_parallel_rank is out of range");
		free(token);
		return;
	}
	if (!get_count(req, "max_completion_tokens", 1, 0, &max) ||
	    (max == 0 && !get_count(req, form == FORM_RESPONSES ? "max_output_tokens"
								: "max_tokens", 1, 0, &max)) ||
	    !get_count(req, "min_tokens", 0, 0, &min) || !get_count(req, "n", 1, 1, &n) ||
	    !get_count(req, "priority", INT32_MIN, 0, &priority) || priority > INT32_MAX) {
		bad_request(emu, conn, "max_tokens, min_tokens, n and priority must be whole "
			    "numbers in range");
		free(token);
		return;
	}
	if (n != 1) {
		bad_request(emu, conn, "n: only 1 is emulated");
		free(token);
		return;
	}
	if (token == NULL)
		token = get_prompt(emu, req, arrived, form, &tokens, &why);
	if (token == NULL || tokens == 0) {
		free(token);
		bad_request(emu, conn, why != NULL ? why : "the prompt is empty");
		return;
	}
	if (max == 0)
		max = form != FORM_COMPLETION ? (json_int_t)emu->opt.max_model_len - tokens : 16;
	if (max < 1 || (json_int_t)tokens + max > (json_int_t)emu->opt.max_model_len) {
		char message[200];

		snprintf(message, sizeof message,
			 "This model's maximum context length is %u tokens. "
			 "However, you requested %lld output tokens and your prompt contains %u "
			 "input tokens.",
			 emu->opt.max_model_len, (long long)max, tokens);
		free(token);
		bad_request(emu, conn, message);
		return;
	}

	call = call_new(emu, conn);
	call->rank = rank;
	rank->prompts++;
	call->form = form;
	call->chat = form == FORM_CHAT;
	if (previous)
		copy_id(call->previous, previous, strlen(previous));
	call->stream = json_is_true(json_object_get(req, "stream"));
	call->usage = json_is_true(json_object_get(options, "include_usage"));
	call->usage_each = json_is_true(json_object_get(options, "continuous_usage_stats"));
	call->created = (long)time(NULL);
	call->prompt_tokens = tokens;
	identify(call, http, req);
	if (call->chat)
		get_tool(req, call->tool);
	emu->started++;
	call_log_start(call);
	if (fault(call)) {
		free(token);
		return;
	}
	work.token = token;
	work.prompt_tokens = tokens;
	work.max_output = output_length(emu, (unsigned)max, (unsigned)(min < max ? min : max),
					json_is_true(json_object_get(req, "ignore_eos")),
					&work.natural_finish);
	work.priority = (int)priority;
	work.salt = salt != NULL && salt[0] != '\0' ? salt : NULL;
	if (model != NULL)
		work.lora = emulator_lora(emu, model, strlen(model));
	work.lora_name = work.lora > 0 ? emu->lora[work.lora - 1] : NULL;
	call->lora = work.lora_name;
	work.priv = call;
	if (worker_submit(rank->worker, emu->now_s, &work, &call->job) < 0) {
		call_log_end(call, 400, "too large");
		emu->failed++;
		call_free(call);
		bad_request(emu, conn, "the request cannot fit the KV pool");
		return;
	}
	/* An engine sends the head of a stream as soon as it has accepted the request. */
	if (call->stream && !emu->opt.debug_headers && !(call->faulty && call->fail_at == 0))
		answer_begin(call);
}

static void
count_tokens(struct emulator *emu, struct http_conn *conn, const json_t *req,
	     const struct arrived *arrived)
{
	const char *why = NULL;
	char body[64];
	unsigned n = 0;
	uint32_t *token = get_prompt(emu, req, arrived, FORM_MESSAGES, &n, &why);

	if (token == NULL) {
		bad_request(emu, conn, why);
		return;
	}
	free(token);
	snprintf(body, sizeof body, "{\"input_tokens\":%u}", n);
	http_conn_answer(conn, 200, "application/json", "", body, strlen(body));
}

static enum call_form
form_of(enum openai_route route)
{
	switch (route) {
	case OPENAI_CHAT:
		return FORM_CHAT;
	case OPENAI_MESSAGES:
		return FORM_MESSAGES;
	case OPENAI_RESPONSES:
		return FORM_RESPONSES;
	default:
		return FORM_COMPLETION;
	}
}

void
api_request(struct emulator *emu, struct http_conn *conn, const struct http1_request *http,
	    const char *body, size_t len_bytes)
{
	enum openai_route route = openai_route(http->method, http->path);
	struct arrived arrived = {route, slice_of(body, len_bytes)};
	json_error_t error;
	char *rest = NULL; /* the body without a long list of ids */
	size_t rest_len = 0;
	unsigned tokens = 0;
	uint32_t *token = !slice_eq_str(http->path, "/v1/completions") ? NULL
			  : ids_take(body, len_bytes, &tokens, &rest, &rest_len);
	json_t *req = token != NULL ? json_loadb(rest, rest_len, JSON_ALLOW_NUL, &error)
				    : json_loadb(body, len_bytes, JSON_ALLOW_NUL, &error);
	const json_t *model = json_object_get(req, "model");

	if (route == OPENAI_TOKENIZE && (!emu->gen.tokenize || !emu->opt.tokenize)) {
		api_error(emu, conn, 404, "Not Found", NULL, "Not Found");
	} else if (!json_is_object(req)) {
		char message[256];

		snprintf(message, sizeof message, "body is not a JSON object: %.150s (byte %d)",
			 req == NULL ? error.text : "another value",
			 req == NULL ? error.position : 0);
		emu->failed++;
		bad_request(emu, conn, message);
	} else if (json_is_string(model) && !api_model_known(emu, json_string_value(model))) {
		char message[256];

		snprintf(message, sizeof message, "The model `%.150s` does not exist.",
			 json_string_value(model));
		emu->failed++;
		api_error(emu, conn, 404, "NotFoundError", "model", message);
	} else if (route == OPENAI_TOKENIZE) {
		tokenize(emu, conn, req, &arrived);
	} else if (route == OPENAI_COUNT_TOKENS) {
		count_tokens(emu, conn, req, &arrived);
	} else if (route != OPENAI_RESPONSES || responses_known(emu, conn, req)) {
		generate(emu, conn, http, req, &arrived, token, tokens, form_of(route));
		token = NULL;
	}
	free(token);
	free(rest);
	json_decref(req);
}
