/* tests/load/workload.h -- what is asked: prompts with known shared parts, as request bodies.
 *
 * control    every prompt is new: prompt_tokens
 * shared     one of `prefixes` fixed prefixes of prefix_tokens, then suffix_tokens that are new
 * multiturn  conversations: first_tokens, then next_tokens a turn, each turn with the whole history
 *
 * Forms      text: /v1/chat/completions, the prefix as system message; a token is four bytes, a
 *            blank and three letters (the emulator's bytes4).  ids: /v1/completions with token ids.
 *            The chat template's own few tokens come on top of the sizes.
 * History    real: the model's answers as they came; stripped: the first half of each, as when
 *            thinking is removed.  (ids: as many made-up ids.)
 * Seeds      content_seed decides the prefixes, arrival_seed their order, unique_seed all that is
 *            new: two runs with the same content_seed and another unique_seed share prefixes only.
 * Ownership  An ask is the caller's until workload_done.
 * Errors     Out of memory ends the program.
 * Threads    One per workload.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum workload_kind { WORKLOAD_CONTROL, WORKLOAD_SHARED, WORKLOAD_MULTITURN };

struct workload_config {
	enum workload_kind kind;
	bool ids, stream, history_real, each_usage;
	unsigned prompt_tokens, output_tokens;
	unsigned prefixes, prefix_tokens, suffix_tokens;
	unsigned turns, first_tokens, next_tokens;
	double zipf;             /* exponent; 0: prefixes are equally likely */
	uint64_t content_seed, arrival_seed, unique_seed;
	const char *model;       /* borrowed */
	const char *id_prefix;   /* of request ids; borrowed */
};

struct conversation;

struct ask {
	char id[64];             /* in X-Request-Id and "user"; unique */
	uint64_t seq;
	unsigned conv, turn;     /* from 0 */
	int prefix_id;           /* -1: none */
	const char *path;
	char *body;
	size_t len_bytes;
	bool want_answer;        /* workload_done needs the text */
	struct conversation *c;
};

struct workload;

struct workload *workload_new(const struct workload_config *);
void workload_free(struct workload **);
struct ask *workload_next(struct workload *);
	/* The next turn of a conversation that waits, else something new. */
void workload_body_sent(struct ask *);
	/* The body is not needed any more. */
void workload_done(struct workload *, struct ask **, bool ok, const char *answer, size_t len_bytes);
	/* The ask was answered; answer: its text as it stood inside a JSON string.  A conversation
	 * whose ask failed ends. */
