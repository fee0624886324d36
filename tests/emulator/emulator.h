/* tests/emulator/emulator.h -- the parts of one pointsman-emulator process, shared by its files.
 *
 *   emulator.c  the loop: clock, timers, signals, restart
 *   api.c       the inference API: requests in, jobs to the worker
 *   answer.c    tokens out; answer_named.c: of Messages and Responses
 *   routes.c    the routes beside chat and completions
 *   admin.c     everything else a worker answers: health, models, metrics, /emu/config, restart
 *   state.c     /emu/state: the truth, for tests
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
#include "tests/emulator/words.h"
#include "tests/emulator/worker.h"

struct call;
struct kept_response;
struct native;

/* A set of request ids seen, for counting those that came twice.  Grows; ids are kept as hashes. */
struct id_set {
	uint64_t *slot;
	unsigned n, mask;
};

#define LORAS_MAX 64

struct emulator;

/* One data-parallel rank: an engine with what it says. */
struct rank {
	struct emulator *emu;
	unsigned number;
	struct worker *worker;
	struct publisher *pub;     /* NULL: publishes nothing */
	struct exposition x;
	struct kv_encode_config kv;
	char hash_seed[48];
	uint8_t publisher_id[16];
	uint64_t said_ns;          /* when it published last */
	uint64_t prompts;          /* taken, for turns among equals */
};

struct emulator {
	struct options opt;
	struct generation gen;
	unsigned metrics_version;  /* whose names the page has */
	struct worker_config cfg;
	struct kv_group_names group[1 + ENGINE_GROUPS_MAX];
	enum words words;
	struct native *native;          /* owned; NULL: words */
	enum fail_kind fail_kind;
	struct rank *rank;
	unsigned ranks;
	char *lora_text;           /* --lora, cut at its commas */
	const char *lora[LORAS_MAX];
	unsigned loras;
	struct http_server *http;
	struct call *calls;        /* open requests */
	struct kept_response *responses; /* of /v1/responses; newest first */
	unsigned tokenizing;       /* of these, /tokenize */
	FILE *log, *sink;          /* of requests; of all that came, whole */
	uint64_t epoch_ns;         /* virtual 0 on the monotonic clock */
	uint64_t now_ns;
	double now_s;              /* virtual */
	uint64_t rng;
	uint64_t listen_at_ns;     /* 0: listening already */
	bool restart_pending, restarted_by_clock;
	bool restart_keeps_seq, restart_reconnects;
	unsigned restarts;
	unsigned sleep_level;      /* 0: awake */
	bool paused, draining, drained;
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
void emulator_restart(struct emulator *, bool keeps_seq, bool reconnects);
	/* At the end of this turn: drop all connections and state, as a crash and a new start
	 * would.  The rest as publisher_restart. */
bool emulator_clear(struct emulator *, bool offload_too);
	/* Clear the cache of each rank; false: one has blocks in use and keeps them. */
void emulator_halt(struct emulator *, unsigned sleep_level, bool paused);
	/* No rank steps while it sleeps or is paused. */
unsigned emulator_lora(const struct emulator *, const char *name, size_t len_bytes);
	/* The number of an adapter from 1 on; 0: there is none of that name. */

void api_request(struct emulator *, struct http_conn *, const struct http1_request *,
		 const char *body, size_t len_bytes);
	/* POST to a route that has a prompt: chat, completions, Messages, Responses, /tokenize. */
bool routes_request(struct emulator *, struct http_conn *, const struct http1_request *,
		    const char *body, size_t len_bytes);
	/* Any route of the inference API.  False: it is none. */
void responses_forget(struct emulator *);
void api_token(void *rank, struct worker_job *, double now_s);
	/* For struct worker_sink; its arg is the rank. */
double api_due(struct emulator *);
	/* Answer each /tokenize that is due; when the next will be, or INFINITY. */
void api_closed(struct emulator *, struct http_conn *);
	/* The client left: its job is aborted. */
void api_forget_all(struct emulator *);
	/* The worker has lost all jobs (or will): end all calls without a word. */
unsigned api_open(const struct emulator *);
void api_error(const struct emulator *, struct http_conn *, unsigned status, const char *type,
	       const char *param, const char *message);
	/* In the shape of the version. */

void admin_request(struct emulator *, struct http_conn *, const struct http1_request *,
		   const char *body, size_t len_bytes);
	/* Any other request; also the 404 and the 405. */
void state_get(struct emulator *, struct http_conn *, struct slice query);
	/* GET /emu/state. */
bool query_has(struct slice query, const char *setting);
	/* Is one of what & separates this? */
