/* actors/common/show.h -- what introspection answers, as JSON, for admin and pointsctl alike.
 *
 * Meaning    Every number carries its unit in its name.  Unknown is null, never 0.  Names are those
 *            of shm/: process_role_name, roster_state_name, row_state_name, cache_state_name ...
 * Ownership  the result is the caller's (json_decref); NULL: no memory.
 * Threads    any that owns the view.  Never on the request path; explain reads every journal, some
 *            milliseconds each.
 */
#pragma once
#include <jansson.h>

#include "actors/common/view.h"

#define PM_SHOW_REQUESTS_DEFAULT 100u
#define PM_SHOW_REQUESTS_MAX    10000u
#define PM_SHOW_TENANTS_MAX     1000u   /* of the documents' order */

const char *pm_show_reload_name(unsigned state);        /* enum reload_state */

json_t *pm_show_stat(const struct pm_view *view);
	/* {"generation", "config_hash", "revision", "reload", "draining", "last_reload_ok",
	 * "last_error", "born", "committed", "generations": [{"generation", "revision",
	 * "config_hash", "since", "by", "of", "failed"}, ..], "orders": [..], "workers_count",
	 * "workers_up", "providers_count", "providers_up" (each of a provider's models is one),
	 * "requests": {..}, "index": {..}, "processes": [..]} */
json_t *pm_show_segments(const struct pm_view *view);
	/* {"sum": {..}, "segments": [..]}: the sums are over those of live processes. */
json_t *pm_show_workers(const struct pm_view *view);
	/* {"workers": [..], "models": [..], "discovery": [..]}: the rows; models whose tokens are
	 * made here, too; where members are found, and what was said there last. */
json_t *pm_show_worker_tokens(const struct pm_view_worker *w, mono_ns now);
	/* What is proven of its tokens; null: they are not made here. */
json_t *pm_show_models(const struct pm_view *view);
json_t *pm_show_tenants(const struct pm_view *view);
	/* {"tenants": [..]}: the first PM_SHOW_TENANTS_MAX of the documents in force. */
json_t *pm_show_blocked(const struct pm_view *view);
	/* [names]: whom the operator blocked, in the documents or not. */
static inline bool
pm_tenant_blocked(const struct limit_tenant *t)
{
	return atomic_load_explicit(&t->blocked, memory_order_relaxed) != 0;
}
json_t *pm_show_requests(const struct pm_view *view, unsigned limit);
	/* {"live", "states": {..}, "requests": [..]}: the longest waiting first, at most limit. */
json_t *pm_show_explain(const struct pm_view *view, uint64_t id);
	/* {"id", "state": live | done | overwritten | unknown, "why", "decisions": [..], "outcome",
	 * "compare"}.  overwritten: it was here, and the ring has passed it; unknown: never
	 * seen. */
json_t *pm_show_outcome(const void *record, size_t len, const struct rows *rows);
	/* One OUTCOME record; NULL: it is none, or no memory. */
int pm_show_id(const char *text, size_t len, uint64_t *ret_id);
	/* 16 hex digits as in x-pointsman-request-id, with or without "-attempt".  0, -EINVAL. */

json_t *pm_show_peer(const uint8_t addr[16], unsigned port, unsigned flags);
	/* "1.2.3.4:5", "[::1]:5", without a port that is 0, or "unix"; as in struct slot. */

/* Is it fit to take requests?  The reasons why not, in words, in ret_why (an array, empty when
 * fit). */
json_t *pm_show_orders(const struct pm_view *view);
	/* What the operator ordered until it is taken back, a text each: frozen, disabled. */
bool pm_show_ready(const struct pm_view *view, json_t **ret_why);
