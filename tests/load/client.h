/* tests/load/client.h -- many HTTP/1.1 requests at once from one thread.
 *
 * Meaning    client_send opens (or re-uses) a connection to a target, sends one request and reads
 *            the answer, streamed or whole; done is called once for each, whatever happens.
 * Connections  per request: closed as soon as "[DONE]" or the whole answer is there, as OpenAI
 *              clients
 *            that stop reading do.  keep-alive: kept after a complete answer for at most
 *            idle_max_ns and used again, the one longest idle first.
 * Times      Monotonic nanoseconds, 0: it never came.
 * Errors     In the result: a static sentence.  A request is never sent twice.
 * Threads    One.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <netinet/in.h>

struct client_target {
	struct sockaddr_in addr;
	char host[64];           /* as in the Host header */
};

struct client_request {
	const struct client_target *target;
	unsigned target_index;
	const char *path, *id;   /* good until done */
	const char *headers;     /* more header lines, each with CRLF, or ""; good until done */
	const char *body;        /* good until done or on_sent */
	size_t len_bytes;
	bool keep_answer;        /* collect the text of the answer */
	void *priv;
};

struct client_result {
	uint64_t start_ns, conn_ns, first_byte_ns, first_token_ns, last_token_ns, end_ns;
	unsigned status;
	const char *error;       /* NULL: a complete answer with status 200 */
	uint32_t prompt_tokens, output_tokens, cached_tokens;
	char worker[96];
	const char *answer;      /* as inside a JSON string; good during the call */
	size_t answer_len_bytes;
};

struct client_config {
	bool keep_alive;
	unsigned targets;
	uint64_t idle_max_ns, timeout_ns;
	void *arg;
	void (*done)(void *arg, void *priv, const struct client_result *);
	void (*on_sent)(void *arg, void *priv); /* all bytes are with the kernel; may be NULL */
};

struct client;

int client_new(int epoll_fd, const struct client_config *, struct client **ret_client);
void client_free(struct client **);
	/* Open requests end without a word. */
int client_parse_target(const char *url, struct client_target *ret, const char **why);
	/* http://ADDRESS:PORT, an IPv4 address or localhost. */
void client_send(struct client *, const struct client_request *);
	/* May call done before it returns. */
void client_event(struct client *, void *tag, uint32_t events);
	/* An epoll event whose data.ptr is not the owner's own. */
void client_sweep(struct client *, uint64_t now_ns);
	/* After each batch of events: frees what was closed; ends what is out of time. */
void client_stop(struct client *, const char *why);
	/* End all open requests with this error. */
unsigned client_open(const struct client *);
