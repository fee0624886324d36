/* actors/metrics/prober.h -- one question to a worker, beside the loop: its metrics page, /health,
 * /v1/models, whether it sleeps or is paused, its version, and a prompt's tokens.
 *
 * A probe is sent whole, comes back whole (common/fetch.h); the caller decides when, and has at
 * most one of a kind under way per worker, so that a slow page delays no other kind and no other
 * worker.  A page is read as it comes and kept nowhere.
 * Bounds     PROBER_CALL_MS a call, PROBER_PAGE_MS a page (it is served by the process that
 *            prefills), PROBER_TOKENIZE_MS a prompt's tokens, PROBER_CONNECT_MS of it to
 *            connect; a page of PROBER_PAGE_BYTES, decoded.
 * Threads    the caller's one, and the fetcher's.
 */
#pragma once
#include <czmq.h>
#include <stdint.h>

#include "actors/common/fetch.h"
#include "actors/common/scrape.h"

#define PROBER_CALL_MS      900u
#define PROBER_PAGE_MS      10000u
#define PROBER_TOKENIZE_MS  5000u               /* it waits its turn beside requests */
#define PROBER_CONNECT_MS   500L
#define PROBER_PAGE_BYTES   (16u << 20)
#define PROBER_ANSWER_BYTES (4u << 20)

enum probe_result {
	PROBE_OK,
	PROBE_SLOW,                             /* connected, but no answer in time: perhaps busy */
	PROBE_UNREACHABLE,                      /* refused, cut, no such host, no memory */
	PROBE_STATUS,                           /* an answer, not 200 */
	PROBE_LARGE,                            /* above the bound */
};
enum probe_kind {
	PROBE_METRICS, PROBE_HEALTH, PROBE_MODELS, PROBE_SLEEPING, PROBE_PAUSED,
	PROBE_KINDS,                            /* those above are asked by targets.h */
	PROBE_VERSION = PROBE_KINDS, PROBE_TOKENIZE     /* by verifier.h */
};

struct probe {
	uint64_t serial;                        /* the caller's, as are the next two */
	enum probe_kind kind;
	mono_ns sent_ns;
	struct fetch fetch;                     /* fetch_to; HEALTH's answer is not kept */
	char *body;                             /* owned; TOKENIZE: what is posted */
	size_t body_len;
	enum probe_result result;
	struct scrape *scrape;                  /* owned; METRICS: the page, when result is OK */
};

struct prober;
int prober_new(struct prober **ret);                    /* 0, -ENOMEM */
void prober_free(struct prober **ret);                  /* cuts what is under way */
zsock_t *prober_socket(struct prober *p);               /* readable: prober_collect has something */
void prober_send(struct prober *p, struct probe *probe);/* takes it */
struct probe *prober_collect(struct prober *p);         /* the caller's again; NULL: none */
struct probe *probe_new(uint64_t serial, enum probe_kind kind, enum manifest_engine engine);
	/* NULL: no memory.  engine: whose names the page is read by. */
void probe_free(struct probe **ret);
