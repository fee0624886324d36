/* tests/emulator/call.h -- one open request, shared by the two halves of the inference API.
 *
 *   api.c           requests: what was asked, and the job made of it
 *   answer.c        answers: the tokens of a job as a stream or a whole body, and faults in them
 *   answer_named.c  the same in the words of Messages and Responses
 *   routes.c        what is asked there, and what needs no tokens
 *
 * Ownership  A call lives from its request to its answer, to the client's leaving, or to a restart;
 *            call_free takes it out of the emulator's list.
 * Threads    One.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/emulator/emulator.h"

#define ID_MAX_BYTES 96

enum call_form { FORM_COMPLETION, FORM_CHAT, FORM_MESSAGES, FORM_RESPONSES };

struct call {
	struct call *prev, *next;
	struct emulator *emu;
	struct http_conn *conn;
	struct rank *rank;           /* whose the job is; NULL: /tokenize */
	const char *lora;            /* the adapter's name, or NULL */
	struct worker_job *job;      /* NULL: stalled */
	enum call_form form;
	bool chat;                   /* FORM_CHAT */
	bool stream, usage, usage_each, begun;
	bool faulty;                 /* strikes after fail_at tokens */
	bool logged;                 /* its end is in the request log */
	enum fail_kind fail_kind;
	unsigned fail_at;
	char id[ID_MAX_BYTES + 1];   /* X-Request-Id, or our own; safe in JSON and headers */
	char user[ID_MAX_BYTES + 1]; /* safe in JSON */
	char tool[65];               /* name of the function the client insists on; "": none */
	long created;
	char *open;                  /* how each event of the stream begins */
	size_t open_len;
	uint64_t text_seed;
	unsigned prompt_tokens, hit_tokens;
	char previous[ID_MAX_BYTES + 1]; /* previous_response_id */
	unsigned sequence;           /* number of the next event of a Responses stream */
	unsigned unsent;             /* tokens visible but not yet in a chunk */
	double last_s;
	/* a /tokenize whose answer is made and not yet due */
	bool tokenizing;
	char *answer;
	size_t answer_len;
	double due_s;
};

/* A text that grows. */
struct text {
	char *p;
	size_t len, cap;
};

void text_add(struct text *, const char *, size_t len_bytes);
void text_printf(struct text *, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define text_lit(text, literal) text_add(text, literal, sizeof(literal) - 1)

struct call *call_new(struct emulator *, struct http_conn *);
void call_free(struct call *);
void call_log_start(const struct call *);
void call_log_end(struct call *, unsigned status, const char *outcome);
	/* In the request log; the end only once. */
void answer_begin(struct call *);
	/* The head of a stream, unless it was sent. */
void answer_strike(struct call *, const struct text *whole);
	/* The fault of this call happens now.  whole: the answer of a call that does not stream, as
	 * far as it is to be cut.  The call is over, but for a stall. */
void answer_words(struct text *, const struct call *, unsigned from, unsigned to);
	/* The text of tokens from..to (from 1), as it stands inside a JSON string. */
void answer_named_words(struct text *, struct call *, unsigned from, unsigned to);
void answer_named_end(struct text *, struct call *);
void answer_named_whole(struct text *, struct call *);
	/* Messages and Responses: a piece of a stream, its end, and a whole answer. */

bool api_model_known(const struct emulator *, const char *model);
json_t *routes_messages(const json_t *req, enum call_form);
	/* What Messages and Responses say as the messages of a chat. */
bool responses_known(struct emulator *, struct http_conn *, const json_t *req);
	/* False: previous_response_id is nobody's, and that was answered. */
void responses_keep(struct emulator *, const char *id, const struct text *body);
