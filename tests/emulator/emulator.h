/* tests/emulator/emulator.h -- the parts of one pointsman-emulator process, shared by its files.
 *
 *   emulator.c  the loop: clock, timers, signals, restart
 *   api.c       the inference API: requests in, jobs to the worker
 *   answer.c    tokens out
 *   admin.c     everything else a worker answers: health, models, metrics, /emu/...
 *
 * One thread runs it all: a step of the engine costs microseconds, and so no two of its parts ever
 * have to be locked against each other.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/emulator/exposition.h"
#include "tests/emulator/http_server.h"
#include "tests/emulator/options.h"
#include "tests/emulator/publisher.h"
#include "tests/emulator/tokenizer.h"
#include "tests/emulator/worker.h"

struct call;

/* A set of request ids seen, for counting those that came twice.  Grows; ids are kept as hashes. */
struct id_set {
	uint64_t *slot;
	unsigned n, mask;
};

struct emulator {
	struct options opt;
	struct worker_config cfg;
	enum tokenizer tokenizer;
	enum fail_kind fail_kind;
	struct worker *worker;
	struct http_server *http;
	struct publisher *pub;
	struct exposition x;
	struct call *calls;        /* open requests */
	unsigned tokenizing;       /* of these, /tokenize */
	FILE *log;
	uint64_t epoch_ns;         /* virtual 0 on the monotonic clock */
	uint64_t now_ns;
	double now_s;              /* virtual */
	uint64_t rng;
	uint64_t listen_at_ns;     /* 0: listening already */
	bool restart_pending, restarted_by_clock;
	unsigned restarts;
	char hash_seed[32];
	/* the page of --metrics-lag */
	char *page;
	size_t page_len;
	double page_s;
	char *scratch;             /* api.c's, for one answer at a time */
	size_t scratch_cap;
	/* totals since birth or {"reset_counters": true} */
	uint64_t started, ok, aborted, failed, faults, tokenized, events_dropped;
	struct id_set ids;
	uint64_t duplicate_ids;
};

double emulator_unit(struct emulator *);
	/* The next number of the seeded stream, 0 to 1. */
void emulator_restart(struct emulator *);
	/* At the end of this turn: drop all connections and state, as a crash and a new start
	 * would. */

void api_request(struct emulator *, struct http_conn *, const struct http1_request *,
		 const char *body, size_t len_bytes);
	/* POST /v1/chat/completions, /v1/completions or /tokenize. */
void api_token(void *emulator, struct worker_job *, double now_s);
	/* For struct worker_sink. */
double api_due(struct emulator *);
	/* Answer each /tokenize that is due; when the next will be, or INFINITY. */
void api_closed(struct emulator *, struct http_conn *);
	/* The client left: its job is aborted. */
void api_forget_all(struct emulator *);
	/* The worker has lost all jobs (or will): end all calls without a word. */
unsigned api_open(const struct emulator *);
void api_error(struct http_conn *, unsigned status, const char *type, const char *param,
	       const char *message);

void admin_request(struct emulator *, struct http_conn *, const struct http1_request *,
		   const char *body, size_t len_bytes);
	/* Any other request; also the 404 and the 405. */
