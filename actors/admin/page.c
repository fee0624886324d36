/* actors/admin/page.c -- shared memory as Prometheus text; see page.h. */
#include "actors/admin/page_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/fields.h"
#include "actors/common/show.h"
#include "actors/common/show_index.h"
#include "actors/common/why.h"

void
page_head(FILE *to, const char *name, const char *type, const char *help)
{
	fprintf(to, "# HELP pointsman_%s ", name);
	for (const char *p = help; *p; p++)
		fputs(*p == '\\' ? "\\\\" : *p == '\n' ? "\\n" : (char[]){*p, 0}, to);
	fprintf(to, "\n# TYPE pointsman_%s %s\n", name, type);
}

void
page_label(FILE *to, const char *value)
{
	fputc('"', to);
	for (const char *p = value; *p; p++)
		if (*p == '"' || *p == '\\')
			fprintf(to, "\\%c", *p);
		else if (*p == '\n')
			fputs("\\n", to);
		else
			fputc(*p, to);
	fputc('"', to);
}

/* ---- processes ---- */

/* Is (role, index) of process i new among those before it, dead ones included? */
static bool
first_of(const struct pm_view *view, unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (view->process[k].role == view->process[i].role &&
		    view->process[k].index == view->process[i].index)
			return false;
	return true;
}

static bool
in_view(const struct pm_view *view, const struct pm_view_total *total)
{
	for (unsigned i = 0; i < view->n_processes; i++)
		if (view->process[i].role == total->role && view->process[i].index == total->index)
			return true;
	return false;
}

static void
count_line(FILE *to, const struct pm_view *view, enum counter c, enum process_role role,
	   uint32_t index)
{
	const struct counter_info *info = &counter_info[c];
	bool gauge = strcmp(info->type, "gauge") == 0;

	if (strcmp(info->owner, "any") != 0 && strcmp(info->owner, process_role_name(role)) != 0)
		return;
	fprintf(to, "pointsman_%s%s{process=\"%s\",index=\"%u\"} %" PRIu64 "\n", info->name,
		gauge ? "" : "_total", process_role_name(role), index,
		pm_view_count(view, role, index, c));
}

static void
counters(FILE *to, const struct pm_view *view)
{
	for (unsigned c = 1; c < COUNTER_END; c++) {
		const struct counter_info *info = &counter_info[c];
		bool gauge = strcmp(info->type, "gauge") == 0;
		char name[80];

		snprintf(name, sizeof name, "%s%s", info->name, gauge ? "" : "_total");
		page_head(to, name, info->type, info->doc);
		for (unsigned i = 0; i < view->n_processes; i++)
			if (first_of(view, i))
				count_line(to, view, (enum counter)c, view->process[i].role,
					   view->process[i].index);
		for (unsigned i = 0; i < view->n_totals; i++)
			if (!in_view(view, &view->total[i]))
				count_line(to, view, (enum counter)c, view->total[i].role,
					   view->total[i].index);
	}
}

/* Counters of a build newer than ours (an ingress replaced in place), by what their segment says:
 * one family, so that no name in a segment can make the page unreadable. */
static void
counters_unknown(FILE *to, const struct pm_view *view)
{
	page_head(to, "other", "untyped",
		  "counters this build does not know, as their process says");
	for (unsigned i = 0; i < view->n_processes; i++) {
		const struct pm_view_process *p = &view->process[i];
		struct counter_text text;

		for (uint32_t c = COUNTER_END; c < PROCESS_COUNTERS && !p->gone; c++)
			if (process_counter_text(&p->process, c, &text))
				fprintf(to, "pointsman_other{name=\"%s\",number=\"%u\","
					"process=\"%s\",index=\"%u\",incarnation=\"%u\"} %"
					PRIu64 "\n", text.name, c, process_role_name(p->role),
					p->index, p->incarnation,
					count_get(&p->process, (enum counter)c));
	}
}

static void
roster(FILE *to, const struct pm_view *view)
{
	const struct roster_header *h = view->roster.head;
	mono_ns now = clock_mono();
	struct roster_entry e;
	json_t *why = NULL;

	page_head(to, "ready", "gauge", "1: fit to take requests, as /readyz says");
	fprintf(to, "pointsman_ready %d\n", pm_show_ready(view, &why));
	json_decref(why);
	if (!h)
		return;
	page_head(to, "generation", "gauge", "configuration in force; 0: none yet");
	fprintf(to, "pointsman_generation %u\n",
		atomic_load_explicit(&h->generation, memory_order_acquire));
	page_head(to, "config_info", "gauge",
		  "always 1; the hash of the documents in force as a label");
	fprintf(to, "pointsman_config_info{hash=\"%016" PRIx64 "\"} 1\n", h->config_hash);
	page_head(to, "frozen", "gauge",
		  "1: the operator has frozen the policies, reloads are refused");
	fprintf(to, "pointsman_frozen %d\n",
		atomic_load_explicit(&h->frozen, memory_order_relaxed) != 0);
	page_head(to, "last_reload_ok", "gauge", "0: the newest reload was refused");
	fprintf(to, "pointsman_last_reload_ok %u\n", atomic_load_explicit(&h->last_reload_ok,
									  memory_order_relaxed));
	page_head(to, "draining", "gauge", "1: ending");
	fprintf(to, "pointsman_draining %u\n",
		atomic_load_explicit(&h->draining, memory_order_relaxed));
	page_head(to, "process_info", "gauge",
		  "always 1; one series a process, its state as a label");
	for (unsigned i = 0; i < ROSTER_MAX; i++)
		if (pm_view_roster(view, i, &e))
			fprintf(to,
				"pointsman_process_info{process=\"%s\",index=\"%u\","
				"incarnation=\"%u\","
				"generation=\"%u\",state=\"%s\"} 1\n",
				process_role_name((enum process_role)e.role), e.index,
				e.incarnation, e.generation,
				roster_state_name(
					atomic_load_explicit(&e.state, memory_order_relaxed)));
	page_head(to, "process_restarts_total", "counter", "rebirths of the process at this place");
	for (unsigned i = 0; i < ROSTER_MAX; i++)
		if (pm_view_roster(view, i, &e) && e.role != ROLE_POLICY &&     /* one a place */
		    atomic_load_explicit(&e.state, memory_order_relaxed) != ROSTER_DRAINING)
			fprintf(to,
				"pointsman_process_restarts_total{process=\"%s\",index=\"%u\"} "
				"%u\n",
				process_role_name((enum process_role)e.role), e.index, e.restarts);
	page_head(to, "process_heartbeat_age_seconds", "gauge",
		  "since the process's loop last turned");
	for (unsigned i = 0; i < ROSTER_MAX; i++) {
		mono_ns beat =
			pm_view_roster(view, i, &e) ?
				pm_view_heartbeat(view, (enum process_role)e.role, e.incarnation) :
				0;

		if (beat)
			fprintf(to,
				"pointsman_process_heartbeat_age_seconds{process=\"%s\","
				"index=\"%u\",incarnation=\"%u\"} %.3f\n",
				process_role_name((enum process_role)e.role), e.index,
				e.incarnation, now > beat ? (double)(now - beat) / 1e9 : 0);
	}
}

static void
index_pool(FILE *to, const struct index_header *h)
{
	page_head(to, "index_pool_chunks", "gauge",
		  "chunks for sets too large for a word, by class");
	for (unsigned c = 0; c < INDEX_CLASSES; c++)
		if (h->pool[c].chunks)
			fprintf(to, "pointsman_index_pool_chunks{class=\"%u\"} %" PRIu64 "\n", c,
				h->pool[c].chunks);
	page_head(to, "index_pool_used", "gauge", "chunks of them in use");
	for (unsigned c = 0; c < INDEX_CLASSES; c++)
		if (h->pool[c].chunks)
			fprintf(to, "pointsman_index_pool_used{class=\"%u\"} %" PRIu64 "\n", c,
				(uint64_t)atomic_load_explicit(&h->pool_used[c],
							       memory_order_relaxed));
}

/* One family over the groups of slots. */
static void
index_groups(FILE *to, const json_t *groups, const char *name, const char *key, const char *help)
{
	json_t *g;
	size_t i;

	page_head(to, name, "gauge", help);
	json_array_foreach(groups, i, g)
		fprintf(to,
			"pointsman_%s{state=\"%s\",tier=\"%s\",role=\"%s\"} %lld\n", name,
			pm_text_at(g, "state", ""), pm_text_at(g, "tier", ""),
			pm_text_at(g, "role", ""), pm_integer_at(g, key));
}

static void
index_slots_told(FILE *to, const struct pm_view *view)
{
	json_t *refused = NULL, *x = pm_show_index(view, &refused);
	const json_t *groups = json_object_get(x, "groups");

	if (x) {
		index_groups(to, groups, "index_slots", "slots", "slots in use");
		index_groups(to, groups, "index_slot_blocks", "held",
			     "blocks held by them; by retired ones: not scrubbed yet");
		page_head(to, "index_slots_free", "gauge", "slots nobody has");
		fprintf(to, "pointsman_index_slots_free %lld\n",
			pm_integer_at(json_object_get(x, "slots"), "free"));
	}
	json_decref(x);
	json_decref(refused);
}

static void
prefix_index(FILE *to, const struct pm_view *view)
{
	const struct index_header *h = pm_view_index(view);

	if (!h)
		return;
#define WORD(field, name, type, help)                                                              \
	do {                                                                                       \
		page_head(to, name, type, help);                                                   \
		fprintf(to, "pointsman_%s %" PRIu64 "\n", name,                                    \
			(uint64_t)atomic_load_explicit(&h->field, memory_order_relaxed));          \
	} while (0)
	WORD(entries, "index_entries", "gauge", "blocks with at least one holder");
	WORD(holders, "index_holders", "gauge", "pairs of block and holder");
	WORD(scrubbed, "index_scrubbed_total", "counter", "blocks taken from retired slots");
	WORD(evicted, "index_evicted_total", "counter", "holders lost with evicted blocks");
	WORD(dropped, "index_dropped_total", "counter", "malformed entries a newborn writer found");
	WORD(recoveries, "index_recoveries_total", "counter", "scans by a newborn writer");
	WORD(private_bytes, "index_private_bytes", "gauge", "kvevents' lists of what slots hold");
#undef WORD
	page_head(to, "index_refused_total", "counter", "holders not noted, by cause");
	for (enum index_cause c = 0; c < INDEX_CAUSES; c++)
		fprintf(to, "pointsman_index_refused_total{cause=\"%s\"} %" PRIu64 "\n",
			index_cause_name(c),
			(uint64_t)atomic_load_explicit(&h->refused[c], memory_order_relaxed));
	index_pool(to, h);
	index_slots_told(to, view);
	page_head(to, "index_lanes", "gauge", "room for blocks");
	fprintf(to, "pointsman_index_lanes %" PRIu64 "\n", h->nbuckets * 4);
}

/* ---- workers ---- */

/* The row keeps series apart: a member with a new URL is another row while the old one drains. */
static void
labels(FILE *to, const struct pm_view_worker *w)
{
	fputs("{worker=", to);
	page_label(to, w->name);
	fprintf(to, ",rank=\"%u\",row=\"%u\",set=", w->rank, w->row);
	page_label(to, w->set);
	if (w->provider)
		fputs(",kind=\"provider\"", to);
	if (w->pool) {
		fputs(",pool=", to);
		page_label(to, w->pool);
	}
	fputs(",model=", to);
	page_label(to, w->model);
}

/* false: unknown. */
typedef bool worker_value_f(const struct pm_view_worker *w, double *ret);

/* SERIES(name, type, help, known, value): pointsman_worker_<name>, left out unless known. */
#define WORKER_SERIES(SERIES) \
	SERIES(pending_tokens, "gauge", "uncached prompt tokens sent there, no first byte yet", \
	       true, w->load.pending) \
	SERIES(prefilling, "gauge", "our requests there without a first byte", \
	       true, w->load.prefilling) \
	SERIES(context_tokens, "gauge", "prompt tokens of our requests that decode there", \
	       true, w->load.context) \
	SERIES(decoding, "gauge", "our requests that decode there", true, w->load.decoding) \
	SERIES(waiting, "gauge", "requests waiting, as the engine says", \
	       w->fresh && (w->reading.known & KNOWN_WAITING), w->reading.waiting) \
	SERIES(running, "gauge", "requests running, as the engine says", \
	       w->fresh && (w->reading.known & KNOWN_RUNNING), w->reading.running) \
	SERIES(kv_usage, "gauge", "share of KV blocks held by live requests, 0..1", \
	       w->fresh && (w->reading.known & KNOWN_KV_USAGE), w->reading.kv_usage) \
	SERIES(kv_blocks, "gauge", "KV blocks the engine has", \
	       w->reading.known & KNOWN_NUM_BLOCKS, w->reading.num_blocks) \
	SERIES(block_tokens, "gauge", "tokens of a KV block", \
	       w->block_tokens != 0, w->block_tokens) \
	SERIES(reading_age_seconds, "gauge", "since the engine last answered a scrape", \
	       w->reading_age_ms != UINT32_MAX, w->reading_age_ms / 1000.0) \
	SERIES(scrape_misses, "gauge", "scrapes missed in a row", true, w->reading.misses) \
	SERIES(event_batches_total, "counter", "batches of KV events received", \
	       true, w->received) \
	SERIES(events_decoded_total, "counter", "KV events in them that decoded", \
	       true, w->decoded) \
	SERIES(events_applied_total, "counter", "KV events applied to the index", \
	       true, w->applied) \
	SERIES(events_orphaned_total, "counter", "KV events whose parent was unknown", \
	       true, w->orphaned) \
	SERIES(events_failed_total, "counter", "KV events, or whole batches, that did not decode", \
	       true, w->failed) \
	SERIES(events_skipped_total, "counter", "KV events not ours to apply", true, w->skipped) \
	SERIES(event_gaps_total, "counter", "holes in its event sequence", true, w->gaps) \
	SERIES(restarts_total, "counter", "restarts of the engine seen", true, w->restarts) \
	SERIES(tokens_probes_agreed, "gauge", "probes of the newest run that had our ids", \
	       w->has_trust && w->trust.probes != 0, w->trust.agreed) \
	SERIES(tokens_probes_differed, "gauge", "probes of that run that had other ids", \
	       w->has_trust && w->trust.probes != 0, w->trust.differed) \
	SERIES(tokens_usage_same_total, "counter", "answers that counted their prompt as we do", \
	       w->has_trust, w->trust.usage_same) \
	SERIES(tokens_usage_differ_total, "counter", "answers that counted it otherwise", \
	       w->has_trust, w->trust.usage_differ) \
	SERIES(tokens_cached_same_total, "counter", "answers with as many cached_tokens as " \
	       "predicted", w->has_trust, w->trust.cached_same) \
	SERIES(tokens_cached_more_total, "counter", "answers with more", \
	       w->has_trust, w->trust.cached_more) \
	SERIES(tokens_cached_less_total, "counter", "answers with less", \
	       w->has_trust, w->trust.cached_less) \
	SERIES(chains_routed_total, "counter", "prompts sent there and looked for in its events", \
	       true, w->chains_routed) \
	SERIES(chains_stored_total, "counter", "of them, those found there", \
	       true, w->chains_stored) \
	SERIES(predictor_samples, "gauge", "outcomes its predictor has learned from", \
	       true, w->predictor.samples) \
	SERIES(predictor_error_p50_seconds, "gauge", "median absolute error of predicted TTFT", \
	       w->predictor.samples != 0, w->predictor.err_p50) \
	SERIES(predictor_error_p90_seconds, "gauge", "90th percentile of that error", \
	       w->predictor.samples != 0, w->predictor.err_p90)

#define VALUE(name, type, help, known, expression) \
	static bool \
	value_##name(const struct pm_view_worker *w, double *ret) \
	{ \
		*ret = (double)(expression); \
		return known; \
	}
WORKER_SERIES(VALUE)
#undef VALUE

static const struct {
	const char *name, *type, *help;
	worker_value_f *value;
} series[] = {
#define ROW(name, type, help, known, expression) {#name, type, help, value_##name},
	WORKER_SERIES(ROW)
#undef ROW
};

/* One series a state, 1 for the one it is in. */
static void
state_lines(FILE *to, const struct pm_view_worker *w, const char *name,
	    const char *(*name_of)(unsigned), unsigned first, unsigned last, unsigned is)
{
	for (unsigned i = first; i <= last; i++) {
		fprintf(to, "pointsman_worker_%s", name);
		labels(to, w);
		fprintf(to, ",state=\"%s\"} %d\n", name_of(i), i == is);
	}
}

static const char *
state_name(unsigned state)
{
	return row_state_name((enum row_state)state);
}

static void
worker_states(FILE *to, const struct pm_view *view, mono_ns now)
{
	static const char *const names[] = {"state", "cache_state", "predictor_state",
					    "tokens_state"};
	static const char *const helps[] = {
		"1 for the state it is in", "1 for what our picture of its cache is",
		"1 for the state of its predictor",
		"1 for what is proven of our tokens, where they are made here",
	};
	struct pm_view_worker w;

	for (unsigned k = 0; k < 4; k++) {
		char name[40];

		snprintf(name, sizeof name, "worker_%s", names[k]);
		page_head(to, name, "gauge", helps[k]);
		for (unsigned i = 0; i < pm_view_rows(view); i++) {
			if (!pm_view_worker(view, (uint16_t)i, now, &w))
				continue;
			if (k == 0)
				state_lines(to, &w, names[k], state_name, ROW_DRAINING,
					    ROW_DISABLED, w.state);
			else if (k == 1 && !w.provider)
				state_lines(to, &w, names[k], cache_state_name, CACHE_NONE,
					    CACHE_APPROXIMATE, w.cache_state);
			else if (k == 2)
				state_lines(to, &w, names[k], predictor_state_name,
					    PREDICTOR_CALIBRATING, PREDICTOR_FROZEN,
					    w.predictor.state);
			else if (w.has_trust)
				state_lines(to, &w, names[k], trust_state_name, TRUST_UNVERIFIED,
					    TRUST_MISMATCH, w.trust.state);
		}
	}
}

/* What why.h says, without its texts: the reason and since when of each state; what is wrong. */
static void
worker_reasons(FILE *to, const struct pm_view *view, mono_ns now)
{
	static const char *const helps[] = {
		"1 for the reason of each state, as pointsctl workers --why explains it",
		"for how long that has been so", "1 for what is wrong with the worker",
	};
	static const char *const names[] = {"worker_reason", "worker_since_seconds",
					    "worker_trouble"};
	unsigned rows = pm_view_rows(view);
	struct pm_why_traffic *traffic = calloc(rows + 1, sizeof *traffic);
	struct pm_view_worker w;
	struct pm_why why[PM_WHY_MAX];

	if (traffic)                            /* without: nothing of tokens */
		pm_why_traffic(view, traffic, rows);
	for (unsigned k = 0; k < 3; k++) {
		page_head(to, names[k], "gauge", helps[k]);
		for (unsigned i = 0; i < rows; i++) {
			const struct pm_why_traffic *t = traffic ? &traffic[i] : NULL;
			unsigned n = pm_view_worker(view, (uint16_t)i, now, &w) ?
					     pm_why(view, &w, t, now, why) : 0;

			for (unsigned f = 0; f < n; f++) {
				if ((k == 1 && !why[f].since_ns) || (k == 2 && !why[f].trouble))
					continue;
				fprintf(to, "pointsman_%s", names[k]);
				labels(to, &w);
				fprintf(to, ",about=\"%s\",reason=\"%s\"} ",
					pm_why_about_name(why[f].about), why[f].reason);
				if (k != 1)
					fputs("1\n", to);
				else
					fprintf(to, "%.3f\n", now > why[f].since_ns ?
						(double)(now - why[f].since_ns) / 1e9 : 0);
			}
		}
	}
	free(traffic);
}

static void
workers(FILE *to, const struct pm_view *view)
{
	mono_ns now = clock_mono();
	struct pm_view_worker w;

	worker_states(to, view, now);
	worker_reasons(to, view, now);
	for (size_t k = 0; k < sizeof series / sizeof series[0]; k++) {
		char name[80];

		snprintf(name, sizeof name, "worker_%s", series[k].name);
		page_head(to, name, series[k].type, series[k].help);
		for (unsigned i = 0; i < pm_view_rows(view); i++) {
			double value;

			if (!pm_view_worker(view, (uint16_t)i, now, &w) ||
			    !series[k].value(&w, &value))
				continue;
			fprintf(to, "pointsman_%s", name);
			labels(to, &w);
			fprintf(to,
				value == floor(value) && fabs(value) < 1e15 ? "} %.0f\n" :
									      "} %.6g\n",
				value);
		}
	}
}

static void
models(FILE *to, const struct pm_view *view)
{
	page_head(to, "model_tokens_state", "gauge",
		  "1 for what is proven of our tokens of that model");
	for (unsigned i = 0; view->rows.head && i < TRUST_MODELS; i++) {
		const struct model_trust *m = &view->rows.models[i];
		char name[ROW_URL_MAX];

		if (!trust_model_name(m, name) || !trust_has_workers(m))
			continue;
		for (unsigned s = TRUST_UNVERIFIED; s <= TRUST_MISMATCH; s++) {
			fputs("pointsman_model_tokens_state{model=", to);
			page_label(to, name);
			fprintf(to, ",key=\"%016" PRIx64 "\",state=\"%s\"} %d\n",
				pm_load64(&m->key), trust_state_name(s),
				s == atomic_load_explicit(&m->state, memory_order_relaxed));
		}
	}
}

void
page_print(FILE *to, const struct pm_view *view)
{
	page_head(to, "up", "gauge", "1: this page was made");
	fputs("pointsman_up 1\n", to);
	roster(to, view);
	counters(to, view);
	counters_unknown(to, view);
	prefix_index(to, view);
	workers(to, view);
	models(to, view);
	page_tenants(to, view);
}
