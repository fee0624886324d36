/* proto/openai.h -- what routing must know of an OpenAI-style request, and of its answer.
 *
 * Meaning    openai_route: which paths exist here at all.  openai_view_parse: one pass over a
 *            body that checks it as JSON and notes where the parts lie; nothing is rebuilt, no
 *            number decoded and encoded again: an edit is a span of the original.
 *            openai_scan_usage: the engine's own count of what it had cached.
 * Source     OpenAI API reference (chat, completions, embeddings, responses), vLLM's extra fields
 *            and routes; the rules on duplicates, nulls and odd numbers answer real reports
 *            (tests name them).
 * Rules      a body is one JSON object.  model, stream, user, messages, prompt and
 *            previous_response_id twice at the top level are refused (a policy that checks one and
 *            an engine that runs the other is a hole); keys compare after unescaping, case and
 *            all; twice elsewhere is the engine's business.  null is absent.  stream is on for
 *            `true` only.  Numbers outside int64 are unknown, not wrong.
 * Errors     < 0 is minus the HTTP status (always -400 here) with *why, a static sentence.
 * Ownership  a view points into the body and lives as long as its bytes do; only the model name
 *            is copied.
 * Threads    pure functions: any thread.  Nothing blocks or allocates.
 * Cost       request path of policy: one pass over the body.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/http1.h"
#include "proto/json.h"
#include "proto/slice.h"

/* --- routes ------------------------------------------------------------------------------- */

enum openai_route {
	OPENAI_NONE,                         /* not ours: 404; engines' admin routes land here */
	OPENAI_CHAT,                         /* POST /v1/chat/completions */
	OPENAI_COMPLETIONS,                  /* POST /v1/completions */
	OPENAI_RESPONSES,                    /* POST /v1/responses */
	OPENAI_MESSAGES,                     /* POST /v1/messages */
	OPENAI_COUNT_TOKENS,                 /* POST /v1/messages/count_tokens */
	OPENAI_GENERATE,                     /* POST /inference/v1/generate: token ids in and out */
	OPENAI_EMBEDDINGS,                   /* POST /v1/embeddings */
	OPENAI_POOLING,                      /* POST /pooling */
	OPENAI_CLASSIFY,                     /* POST /classify */
	OPENAI_SCORE,                        /* POST /score, /v1/score */
	OPENAI_RERANK,                       /* POST /rerank, /v1/rerank, /v2/rerank */
	OPENAI_TOKENIZE,                     /* POST /tokenize */
	OPENAI_DETOKENIZE,                   /* POST /detokenize */
	OPENAI_RESPONSE,                     /* GET, DELETE /v1/responses/ID: what a worker keeps */
	OPENAI_RESPONSE_CANCEL,              /* POST /v1/responses/ID/cancel */
	OPENAI_TRANSCRIPTIONS,               /* POST /v1/audio/transcriptions: a form, no JSON */
	OPENAI_TRANSLATIONS,                 /* POST /v1/audio/translations: the same */
	OPENAI_MODELS,                       /* GET, HEAD /v1/models: answered by the router */
	OPENAI_MODEL,                        /* GET, HEAD /v1/models/NAME */
	OPENAI_WRONG_METHOD,                 /* the path exists, the method does not: 405 */
};

enum openai_route openai_route(enum http1_method, struct slice path);
	/* Exact paths without the query.  No decoding, no normalising: what is spelled otherwise is
	 * NONE. */
const char *openai_route_name(enum openai_route);
	/* "chat", "completions", ... for labels; a closed set.  Static. */
const char *openai_route_allow(struct slice path);
	/* For a 405's Allow header: "POST", "GET, HEAD", "GET, DELETE", or NULL when the path is
	 * not ours. */

enum { OPENAI_ID_MAX_BYTES = 128 };

bool openai_is_id(struct slice);
	/* 1 to OPENAI_ID_MAX_BYTES of [A-Za-z0-9_-]: nothing in it can be taken for another
	 * path. */
struct slice openai_route_id(struct slice path);
	/* The ID of RESPONSE and RESPONSE_CANCEL; {NULL, 0} for other paths. */

/* Whose words errors and event streams are in. */
enum openai_api {
	OPENAI_API_PLAIN,                    /* OpenAI's; streams end with [DONE] */
	OPENAI_API_RESPONSES,                /* OpenAI's; streams of named events */
	OPENAI_API_MESSAGES,                 /* Anthropic's; streams of named events */
};

enum openai_api openai_path_api(struct slice path);
	/* By the path alone: an error has its shape where no route was found, too. */
enum openai_api openai_route_api(enum openai_route);

/* --- request body ------------------------------------------------------------------------- */

enum { OPENAI_MODEL_MAX_BYTES = 255 };

enum openai_prompt {
	OPENAI_PROMPT_NONE,                  /* absent or null (a chat, or an engine error) */
	OPENAI_PROMPT_TEXT,                  /* "..." */
	OPENAI_PROMPT_TEXTS,                 /* ["...", ...] */
	OPENAI_PROMPT_TOKENS,                /* [1, 2, ...] */
	OPENAI_PROMPT_TOKEN_LISTS,           /* [[1, 2], [3], ...] */
	OPENAI_PROMPT_OTHER,                 /* valid JSON, none of these: the engine will judge */
};

/* Top-level members whose place is noted.  The columns: enum suffix, key. */
#define OPENAI_FIELDS(F) \
	F(MODEL, "model") \
	F(MESSAGES, "messages") \
	F(PROMPT, "prompt") \
	F(INPUT, "input") \
	F(TOKEN_IDS, "token_ids") \
	F(TOOLS, "tools") \
	F(TOOL_CHOICE, "tool_choice") \
	F(STREAM, "stream") \
	F(STREAM_OPTIONS, "stream_options") \
	F(MAX_TOKENS, "max_tokens") \
	F(MAX_COMPLETION_TOKENS, "max_completion_tokens") \
	F(MAX_OUTPUT_TOKENS, "max_output_tokens") \
	F(N, "n") \
	F(USER, "user") \
	F(PRIORITY, "priority") \
	F(CACHE_SALT, "cache_salt") \
	F(PROMPT_LOGPROBS, "prompt_logprobs") \
	F(CHAT_TEMPLATE, "chat_template") \
	F(CHAT_TEMPLATE_KWARGS, "chat_template_kwargs") \
	F(DOCUMENTS, "documents") \
	F(REASONING_EFFORT, "reasoning_effort") \
	F(ADD_GENERATION_PROMPT, "add_generation_prompt") \
	F(CONTINUE_FINAL_MESSAGE, "continue_final_message") \
	F(ADD_SPECIAL_TOKENS, "add_special_tokens") \
	F(TRUNCATE_PROMPT_TOKENS, "truncate_prompt_tokens") \
	F(METADATA, "metadata") \
	F(PREVIOUS_RESPONSE_ID, "previous_response_id") \
	F(FEATURES, "features")

enum openai_field {
#define OPENAI_FIELD_ENUM(suffix, key) OPENAI_FIELD_##suffix,
	OPENAI_FIELDS(OPENAI_FIELD_ENUM)
#undef OPENAI_FIELD_ENUM
	OPENAI_N_FIELDS,
};

/* Where a value lies in the body: quotes, brackets and all.  len 0: absent (or null). */
struct openai_span {
	uint32_t       off_bytes;
	uint32_t       len_bytes;
	enum json_type type;
};

#define OPENAI_UNKNOWN INT64_MIN             /* absent, null, or no int64 */

struct openai_view {
	size_t             error_off_bytes;  /* on failure: where in the body; nothing else holds */
	struct openai_span field[OPENAI_N_FIELDS];
	size_t             n_model;          /* bytes of model; 0: absent, null or "" */
	char               model[OPENAI_MODEL_MAX_BYTES + 1]; /* unescaped, NUL-terminated */
	bool               stream;
	bool               include_usage;    /* stream_options.include_usage */
	int64_t            max_tokens;       /* max_completion_tokens, else max_tokens, else
	                                        max_output_tokens; OPENAI_UNKNOWN */
	int64_t            n;                /* choices asked for; 1 when absent or unknown */
	int64_t            priority;         /* OPENAI_UNKNOWN */
	struct json_string user;             /* absent: raw.p NULL */
	struct json_string cache_salt;       /* absent: raw.p NULL */
	struct json_string previous;         /* previous_response_id; absent: raw.p NULL */
	enum openai_prompt prompt;           /* form of prompt, else input, else token_ids */
	struct openai_span prompt_span;      /* of that value */
	size_t             n_prompts;        /* 1, or the elements of an array of prompts */
	size_t             n_prompt_tokens;  /* TOKENS and TOKEN_LISTS: in all; else 0 */
};

int openai_view_parse(const char *body, size_t len, struct openai_view *ret, const char **why);
	/* 0, or -400 with *why and ret->error_off_bytes.  Bodies up to 4 GiB. */
ssize_t openai_prompt_tokens(const struct openai_view *, const char *body, uint32_t *out,
			     size_t max);
	/* The ids of a TOKENS prompt: how many there are, of which the first max are in out.
	 * -EINVAL for any other form.  body: the bytes the view was made from. */
ssize_t openai_prompt_list(const struct openai_view *, const char *body, size_t which,
			   uint32_t *out, size_t max);
	/* The same for the prompt number `which` of a TOKEN_LISTS; -ENOENT past the last. */
struct slice openai_field(const struct openai_view *, const char *body, enum openai_field);
	/* Its bytes in the body; {NULL, 0} when absent or null. */

bool openai_salt_fits(struct slice salt);
	/* Does vLLM (0.32) take this cache_salt?  1 to 128 characters, without @ / \ and NUL. */

/* --- errors ------------------------------------------------------------------------------- */

struct openai_error {
	enum openai_api api;                 /* whose shape */
	unsigned    status;                  /* chooses type when type is NULL */
	const char *type;                    /* "invalid_request_error"; NULL: by status */
	const char *param;                   /* NULL: null; Anthropic's errors have none */
	const char *code;                    /* "model_not_found"; NULL: null; as param */
	const char *message;                 /* any bytes; cut between characters to fit */
};

ssize_t openai_write_error(char *out, size_t cap, const struct openai_error *);
	/* {"error":{"message":...,"type":...,"param":...,"code":...}}, in Anthropic's words
	 * {"type":"error","error":{"type":...,"message":...}}: bytes written, no NUL.  -ENOSPC when
	 * cap cannot hold it even with an empty message (512 always can, for our own codes). */
ssize_t openai_write_error_event(char *out, size_t cap, const struct openai_error *,
				 uint64_t events);
	/* The same as an event of that API's streams, with its blank line.  events: how many came
	 * before (Responses number them). */

/* --- answers ------------------------------------------------------------------------------ */

#define OPENAI_TOKENS_UNKNOWN UINT32_MAX

struct openai_usage {                        /* OPENAI_TOKENS_UNKNOWN: engine did not say */
	uint32_t prompt_tokens;
	uint32_t completion_tokens;
	uint32_t cached_tokens;              /* prompt_tokens_details.cached_tokens */
};

enum openai_event {
	OPENAI_EVENT_DATA,
	OPENAI_EVENT_DONE,                   /* the last word: "[DONE]", message_stop,
	                                        response.completed or .incomplete */
	OPENAI_EVENT_ERROR,                  /* the engine failed after its 200 */
	OPENAI_EVENT_FAILED,                 /* response.failed: both */
};

enum openai_event openai_event_kind(enum openai_api, struct slice name, struct slice data);
	/* An event of that API's streams.  Tens of nanoseconds for one that is only data. */
bool openai_find_id(struct slice json, const char *in, struct slice *ret);
	/* The top-level member "id" that is a string, or that of the top-level object `in`; json
	 * may be the beginning of a document only.  False: not there (yet), or no
	 * openai_is_id. */
void openai_usage_add(struct openai_usage *sum, const struct openai_usage *said);
	/* What was said last holds; what was not said stays. */
bool openai_scan_usage(struct slice json, struct openai_usage *ret);
	/* An event's data, or the end (or whole) of a JSON answer: the last member "usage" that is
	 * an object.
	 * Text an engine generated cannot forge one: there quotes are escaped.
	 * Understands prompt_tokens and completion_tokens as well as input_tokens and
	 * output_tokens (Responses, Messages).  Anthropic counts what came from or went to a cache
	 * apart: prompt_tokens is the sum.  False: none. */

bool openai_answer_ids(struct slice json, uint32_t *ids, size_t max, size_t *ret_n,
		       const char **why);
	/* An answer of /tokenize: *ret_n is how many `tokens` it has, of which the first `max` are
	 * in ids (which may be NULL with max 0).  False: it has none, and why (static). */

enum { OPENAI_TAIL_BYTES = 4096 };           /* usage ends an answer, and is short */

/* The end of an answer that streams by and is not kept.  Zero to begin. */
struct openai_tail {
	size_t len_bytes;
	char   buf[2 * OPENAI_TAIL_BYTES];
};

void openai_tail_feed(struct openai_tail *, const char *bytes, size_t len);
struct slice openai_tail_bytes(const struct openai_tail *);
	/* At least the last OPENAI_TAIL_BYTES fed (all, when there were fewer): for
	 * openai_scan_usage. */
