/* actors/metrics/prober.h -- /metrics and /health of a worker, both at once, beside the loop.
 *
 * A probe is sent whole, comes back whole (common/fetch.h); the caller decides when, and has at
 * most one under way per worker, so that a slow worker delays nobody.
 * Bounds     PROBER_CALL_MS a call, PROBER_CONNECT_MS of it to connect; a page of
 *            PROBER_PAGE_BYTES.
 * Threads    the caller's one, and the fetcher's.
 */
#pragma once
#include <czmq.h>
#include <stdint.h>

#include "actors/common/fetch.h"

#define PROBER_CALL_MS    900u
#define PROBER_CONNECT_MS 500L
#define PROBER_PAGE_BYTES (4u << 20)

enum probe_result {
	PROBE_OK,
	PROBE_SLOW,                             /* connected, but no answer in time: perhaps busy */
	PROBE_UNREACHABLE,                      /* refused, cut, no such host, no memory */
	PROBE_STATUS,                           /* an answer, not 200 */
	PROBE_LARGE,                            /* page over PROBER_PAGE_BYTES */
};
enum probe_kind { PROBE_METRICS, PROBE_HEALTH, PROBE_KINDS };

struct probe_call {
	struct fetch fetch;                     /* the caller's: url; the METRICS answer is kept */
	enum probe_result result;
};

struct probe {
	uint64_t serial;                        /* the caller's */
	struct probe_call call[PROBE_KINDS];
	unsigned under_way;                     /* private */
};

struct prober;
int prober_new(struct prober **ret);                    /* 0, -ENOMEM */
void prober_free(struct prober **ret);                  /* cuts what is under way */
zsock_t *prober_socket(struct prober *p);               /* readable: prober_collect has something */
void prober_send(struct prober *p, struct probe *probe);/* takes it */
struct probe *prober_collect(struct prober *p);         /* the caller's again; NULL: none */
struct probe *probe_new(uint64_t serial);               /* NULL: no memory; fill in the urls */
void probe_free(struct probe **ret);
const char *probe_result_name(enum probe_result result);
