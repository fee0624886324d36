/* actors/common/show.c -- the JSON of stat, workers and requests; see show.h. */
#include "actors/common/show.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/fields.h"
#include "proto/openai.h"

const char *
pm_show_reload_name(unsigned state)
{
	static const char *const names[] = {"idle", "loading", "switching", "probation"};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

int
pm_show_id(const char *text, size_t len, uint64_t *ret_id)
{
	if (len < 16 || (len > 16 && text[16] != '-') || len > 24)
		return -EINVAL;
	return pm_hex_read(text, 16, ret_id) ? 0 : -EINVAL;
}

/* ---- stat ---- */

static json_t *
process_of(const struct pm_view *view, const struct roster_entry *e, mono_ns now)
{
	unsigned state = atomic_load_explicit(&e->state, memory_order_relaxed);
	json_t *o = json_object();

	json_object_set_new(o, "role", json_string(process_role_name((enum process_role)e->role)));
	json_object_set_new(o, "index", json_integer(e->index));
	json_object_set_new(o, "incarnation", json_integer(e->incarnation));
	json_object_set_new(o, "generation", json_integer(e->generation));
	json_object_set_new(o, "pid", json_integer(e->pid));
	json_object_set_new(o, "state", json_string(roster_state_name(state)));
	json_object_set_new(o, "since_s", pm_json_seconds(e->since_ns, now));
	json_object_set_new(o, "heartbeat_age_s", pm_json_seconds(pm_view_heartbeat(view,
			    (enum process_role)e->role, e->incarnation), now));
	json_object_set_new(o, "restarts", json_integer(e->restarts));
	json_object_set_new(o, "last_exit", pm_json_text(e->last_exit, sizeof e->last_exit));
	return o;
}

static uint64_t
count_all(const struct pm_view *view, enum process_role role, enum counter c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < view->n_processes; i++)
		if (view->process[i].role == role && !view->process[i].gone)
			sum += count_get(&view->process[i].process, c);
	for (unsigned i = 0; i < view->n_totals; i++)
		if (view->total[i].role == role && strcmp(counter_info[c].type, "gauge") != 0)
			sum += view->total[i].count[c];
	return sum;
}

static json_t *
requests_counted(const struct pm_view *view)
{
	static const struct {
		const char *name;
		enum counter c;
	} shown[] = {
		{"total", COUNTER_requests},
		{"ok", COUNTER_requests_ok},
		{"client_error", COUNTER_requests_client_error},
		{"failed", COUNTER_requests_failed},
		{"cancelled", COUNTER_requests_cancelled},
		{"live", COUNTER_slots_used},
		{"retries", COUNTER_retries},
		{"asks", COUNTER_asks},
		{"asks_again", COUNTER_asks_again},
	};
	json_t *o = json_object();

	for (unsigned i = 0; i < sizeof shown / sizeof shown[0]; i++)
		json_object_set_new(
			o, shown[i].name,
			json_integer((json_int_t)count_all(view, ROLE_INGRESS, shown[i].c)));
	return o;
}

static json_t *
index_of(const struct pm_view *view, mono_ns now)
{
	const struct index_header *h = pm_view_index(view);
	json_t *o;

	if (!h)
		return json_null();
	o = json_object();
#define WORD(name) json_object_set_new(o, #name, json_integer((json_int_t)atomic_load_explicit( \
				       &h->name, memory_order_relaxed)))
	WORD(entries);
	WORD(holders);
	WORD(evictions);
	WORD(evicted);
	WORD(dropped);
	WORD(recoveries);
	WORD(private_bytes);
#undef WORD
	json_object_set_new(o, "refused", json_integer((json_int_t)index_refused(h)));
	for (enum index_cause c = 0; c < INDEX_CAUSES; c++) {
		char name[32];

		snprintf(name, sizeof name, "refused_%s", index_cause_name(c));
		json_object_set_new(o, name, json_integer((json_int_t)atomic_load_explicit(
						     &h->refused[c], memory_order_relaxed)));
	}
	json_object_set_new(o, "lanes", json_integer((json_int_t)(h->nbuckets * 4)));
	json_object_set_new(o, "writer_heartbeat_age_s", pm_json_seconds(atomic_load_explicit(
			    &view->index.head->heartbeat_ns, memory_order_relaxed), now));
	return o;
}

json_t *
pm_show_orders(const struct pm_view *view)
{
	const struct roster_header *head = view->roster.head;
	uint64_t frozen = head ? atomic_load_explicit(&head->frozen, memory_order_acquire) : 0;
	char last[ROW_NAME_MAX] = "";
	json_t *list = json_array();

	if (frozen) {
		json_t *since = pm_json_wall(frozen, 3), *why = pm_json_text(head->frozen_why,
								       sizeof head->frozen_why);

		json_array_append_new(list, json_sprintf("policies are frozen since %s (%s): "
			"reloads are refused", json_string_value(since),
			json_is_string(why) ? json_string_value(why) : "-"));
		json_decref(since);
		json_decref(why);
	}
	for (unsigned i = 0; i < pm_view_rows(view); i++) {
		struct pm_view_worker w;

		if (!pm_view_worker(view, (uint16_t)i, clock_mono(), &w) ||
		    w.state != ROW_DISABLED || strcmp(w.set, last) == 0)
			continue;               /* a provider's rows are neighbours */
		snprintf(last, sizeof last, "%s", w.set);
		json_array_append_new(list, json_sprintf("provider %s is disabled", w.set));
	}
	return list;
}

static json_t *
generations_of(const struct roster_header *head)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < ROSTER_PASTS; i++) {
		const struct roster_past p = head->past[i];
		json_t *o;

		if (!p.generation)
			break;
		o = json_object();
		json_object_set_new(o, "generation", json_integer(p.generation));
		json_object_set_new(o, "revision", json_integer(p.revision));
		json_object_set_new(o, "config_hash", pm_json_hex(p.config_hash));
		json_object_set_new(o, "since", pm_json_wall(p.since, 3));
		json_object_set_new(o, "by", json_string(roster_came_name(p.came)));
		json_object_set_new(o, "of", pm_json_integer_if(p.of != 0, p.of));
		json_object_set_new(o, "failed", json_boolean(p.failed));
		json_array_append_new(list, o);
	}
	return list;
}

json_t *
pm_show_stat(const struct pm_view *view)
{
	json_t *o = json_object(), *list = json_array();
	const struct roster_header *head = view->roster.head;
	unsigned workers[2] = {0}, up[2] = {0}, n = pm_view_rows(view);     /* providers: 1 */
	mono_ns now = clock_mono();

	for (unsigned i = 0; i < n; i++) {
		struct pm_view_worker w;

		if (!pm_view_worker(view, (uint16_t)i, now, &w))
			continue;
		workers[w.provider]++;
		up[w.provider] += w.state == ROW_UP;
	}
	for (unsigned i = 0; i < ROSTER_MAX; i++) {
		struct roster_entry e;

		if (pm_view_roster(view, i, &e))
			json_array_append_new(list, process_of(view, &e, now));
	}
	if (head) {
		json_object_set_new(o, "generation",
				    json_integer(atomic_load_explicit(&head->generation,
								      memory_order_acquire)));
		json_object_set_new(o, "config_hash", pm_json_hex(head->config_hash));
		json_object_set_new(o, "revision", json_integer(head->revision));
		json_object_set_new(o, "reload",
				    json_string(pm_show_reload_name(atomic_load_explicit(
					    &head->reload, memory_order_relaxed))));
		json_object_set_new(
			o, "draining",
			json_boolean(atomic_load_explicit(&head->draining, memory_order_relaxed)));
		json_object_set_new(o, "last_reload_ok", json_boolean(atomic_load_explicit(
				    &head->last_reload_ok, memory_order_relaxed)));
		json_object_set_new(o, "last_error",
				    pm_json_text(head->last_error, sizeof head->last_error));
		json_object_set_new(o, "born", pm_json_wall(head->born, 3));
		json_object_set_new(o, "committed", pm_json_wall(head->committed, 3));
		json_object_set_new(o, "generations", generations_of(head));
	}
	json_object_set_new(o, "orders", pm_show_orders(view));
	json_object_set_new(o, "workers_count", json_integer(workers[0]));
	json_object_set_new(o, "workers_up", json_integer(up[0]));
	json_object_set_new(o, "providers_count", json_integer(workers[1]));
	json_object_set_new(o, "providers_up", json_integer(up[1]));
	json_object_set_new(o, "requests", requests_counted(view));
	json_object_set_new(o, "index", index_of(view, now));
	json_object_set_new(o, "processes", list);
	return o;
}

/* What the ingress itself says is short (room.c): a balancer had better send elsewhere. */
static void
crowded(const struct pm_view *view, const struct roster_entry *e, json_t *why)
{
	static const struct {
		enum counter gauge;
		const char *what;
	} all[] = {
		{COUNTER_crowded_slots, "request slots"},
		{COUNTER_crowded_arena, "memory for request bodies"},
		{COUNTER_crowded_connections, "client connections"},
		{COUNTER_crowded_questions, "questions to the policy process"},
	};
	const struct pm_view_process *p = pm_view_process(view, ROLE_INGRESS, e->incarnation);

	for (unsigned i = 0; p && i < sizeof all / sizeof all[0]; i++)
		if (count_get(&p->process, all[i].gauge))
			json_array_append_new(why, json_sprintf("ingress %u: %s nearly all in use",
								e->index, all[i].what));
}

bool
pm_show_ready(const struct pm_view *view, json_t **ret_why)
{
	const struct roster_header *head = view->roster.head;
	bool ingress = false, policy = false;
	json_t *why = json_array();

	for (unsigned i = 0; i < ROSTER_MAX; i++) {
		struct roster_entry e;

		if (!pm_view_roster(view, i, &e))
			continue;
		unsigned state = atomic_load_explicit(&e.state, memory_order_relaxed);

		ingress |= e.role == ROLE_INGRESS && state == ROSTER_READY;
		if (e.role == ROLE_INGRESS && state == ROSTER_READY)
			crowded(view, &e, why);
		/* In a switch none is active for some milliseconds, and nobody need notice. */
		policy |= e.role == ROLE_POLICY &&
			  (state == ROSTER_ACTIVE || state == ROSTER_STANDBY ||
			   state == ROSTER_READY);
	}
	if (!head || atomic_load_explicit(&head->generation, memory_order_acquire) == 0)
		json_array_append_new(why, json_string("no configuration is in force yet"));
	if (head && atomic_load_explicit(&head->draining, memory_order_relaxed))
		json_array_append_new(why, json_string("draining"));
	if (!ingress)
		json_array_append_new(why, json_string("no ingress process is ready"));
	if (!policy)
		json_array_append_new(why, json_string("no policy process can be asked"));
	*ret_why = why;
	return json_array_size(why) == 0;
}

/* ---- workers ---- */

static const char *
health_name(unsigned health)
{
	static const char *const names[] = {"unknown", "up", "suspect", "down"};

	return health < sizeof names / sizeof *names ? names[health] : "unknown";
}

static json_t *
reading_of(const struct pm_view_worker *w, mono_ns now)
{
	const struct row_reading *r = &w->reading;
	uint32_t known =
		w->fresh ? r->known :
			   r->known & ~(uint32_t)(KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE);
	json_t *o = json_object();

	json_object_set_new(o, "age_ms",
			    pm_json_integer_if(w->reading_age_ms != UINT32_MAX, w->reading_age_ms));
	json_object_set_new(o, "health", json_string(health_name(r->health)));
	json_object_set_new(o, "health_why", json_string(row_why_name(r->health_why)));
	json_object_set_new(o, "health_since_s", pm_json_seconds(w->health_since_ns, now));
	json_object_set_new(o, "metrics_why", json_string(row_why_name(r->metrics_why)));
	json_object_set_new(o, "metrics_since_s", pm_json_seconds(w->metrics_since_ns, now));
	json_object_set_new(o, "stale", json_boolean(!w->fresh));
	json_object_set_new(o, "http_status", pm_json_integer_if(r->status != 0, r->status));
	json_object_set_new(o, "misses", json_integer(r->misses));
	json_object_set_new(o, "waiting", pm_json_integer_if(known & KNOWN_WAITING, r->waiting));
	json_object_set_new(o, "running", pm_json_integer_if(known & KNOWN_RUNNING, r->running));
	json_object_set_new(o, "kv_usage", known & KNOWN_KV_USAGE ? json_real((double)r->kv_usage) :
								    json_null());
	json_object_set_new(o, "num_blocks",
			    pm_json_integer_if(known & KNOWN_NUM_BLOCKS, r->num_blocks));
	json_object_set_new(o, "max_model_len",
			    pm_json_integer_if(known & KNOWN_MAX_MODEL_LEN, r->max_model_len));
	json_object_set_new(o, "engine_start", pm_json_wall(known & KNOWN_ENGINE_START ?
							    row_reading_start(r) : 0, 3));
	return o;
}

static json_t *
cache_of(const struct pm_view_worker *w, mono_ns now)
{
	json_t *o = json_object();

	json_object_set_new(o, "state", json_string(cache_state_name(w->cache_state)));
	json_object_set_new(o, "reason", json_string(cache_reason_name(w->cache_reason)));
	json_object_set_new(o, "since_s", pm_json_seconds(w->cache_since_ns, now));
	json_object_set_new(o, "block_tokens",
			    pm_json_integer_if(w->block_tokens != 0, w->block_tokens));
	json_object_set_new(o, "sequence", pm_json_integer_if(w->seen_seq != 0, w->seen_seq - 1));
	json_object_set_new(o, "sequence_applied",
			    pm_json_integer_if(w->applied_seq != 0, w->applied_seq - 1));
	json_object_set_new(o, "batches", json_integer((json_int_t)w->received));
	json_object_set_new(o, "decoded", json_integer((json_int_t)w->decoded));
	json_object_set_new(o, "applied", json_integer((json_int_t)w->applied));
	json_object_set_new(o, "orphaned", json_integer((json_int_t)w->orphaned));
	json_object_set_new(o, "failed", json_integer((json_int_t)w->failed));
	json_object_set_new(o, "skipped", json_integer((json_int_t)w->skipped));
	json_object_set_new(o, "gaps", json_integer((json_int_t)w->gaps));
	json_object_set_new(o, "restarts", json_integer((json_int_t)w->restarts));
	return o;
}

static json_t *
predictor_of(const struct row_predictor *p)
{
	static const char *const names[COEF_COUNT] = {
		[COEF_BASE] = "base_s", [COEF_PREFILL] = "prefill_s_per_token",
		[COEF_ATTENTION] = "attention_s_per_token2", [COEF_DECODE] = "decode_s_per_request",
		[COEF_CONTEXT] = "context_s_per_token", [COEF_STEP] = "step_s",
	};
	json_t *o = json_object(), *coefs = json_object();

	json_object_set_new(o, "state", json_string(predictor_state_name(p->state)));
	json_object_set_new(o, "version", json_integer(p->version));
	json_object_set_new(o, "samples", json_integer(p->samples));
	json_object_set_new(o, "error_p50_s",
			    p->samples ? json_real((double)p->err_p50) : json_null());
	json_object_set_new(o, "error_p90_s",
			    p->samples ? json_real((double)p->err_p90) : json_null());
	for (unsigned i = 0; i < COEF_COUNT && p->version; i++)
		json_object_set_new(coefs, names[i], json_real((double)p->coef[i]));
	json_object_set_new(o, "coefficients", coefs);
	return o;
}

static json_t *
worker_of(const struct pm_view_worker *w, mono_ns now)
{
	json_t *o = json_object();

	json_object_set_new(o, "row", json_integer(w->row));
	json_object_set_new(o, "row_gen", json_integer(w->row_gen));
	json_object_set_new(o, "worker", pm_json_text(w->name, sizeof w->name));
	json_object_set_new(o, "rank", json_integer(w->rank));
	json_object_set_new(o, "kind", json_string(w->provider ? "Provider" : "Worker"));
	json_object_set_new(o, "set", pm_json_text(w->set, sizeof w->set));
	json_object_set_new(o, "pool", w->pool ? json_string(w->pool) : json_null());
	json_object_set_new(o, "url", pm_json_text(w->url, sizeof w->url));
	json_object_set_new(o, "model", pm_json_text(w->model, sizeof w->model));
	json_object_set_new(o, "source", pm_json_text(w->source, sizeof w->source));
	json_object_set_new(o, "state", json_string(row_state_name(w->state)));
	json_object_set_new(o, "pending_tokens", json_integer(w->load.pending));
	json_object_set_new(o, "prefilling", json_integer(w->load.prefilling));
	json_object_set_new(o, "context_tokens", json_integer(w->load.context));
	json_object_set_new(o, "decoding", json_integer(w->load.decoding));
	json_object_set_new(o, "reading", reading_of(w, now));
	json_object_set_new(o, "cache", cache_of(w, now));
	json_object_set_new(o, "predictor", predictor_of(&w->predictor));
	json_object_set_new(o, "tokens", pm_show_worker_tokens(w, now));
	return o;
}

/* What the sources of members said last. */
static json_t *
discovery_of(const struct pm_view *view, mono_ns now)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < ROSTER_SOURCES; i++) {
		struct roster_source s;
		json_t *o;

		if (!pm_view_source(view, i, &s))
			continue;
		o = json_object();
		json_object_set_new(o, "set", pm_json_text(s.set, sizeof s.set));
		json_object_set_new(o, "source", pm_json_text(s.source, sizeof s.source));
		json_object_set_new(o, "state", json_string(source_state_name(
				    atomic_load_explicit(&s.state, memory_order_relaxed))));
		json_object_set_new(o, "since_s", pm_json_seconds(s.since_ns, now));
		json_object_set_new(o, "answered_s", pm_json_seconds(s.answered_ns, now));
		json_object_set_new(o, "members", json_integer(s.taken));
		json_object_set_new(o, "not_taken", json_integer(s.not_taken));
		json_object_set_new(o, "changes", json_integer(s.changes));
		json_object_set_new(o, "text", pm_json_text(s.text, sizeof s.text));
		json_array_append_new(list, o);
	}
	return list;
}

json_t *
pm_show_workers(const struct pm_view *view)
{
	json_t *o = json_object(), *list = json_array();
	unsigned n = pm_view_rows(view);
	mono_ns now = clock_mono();

	for (unsigned i = 0; i < n; i++) {
		struct pm_view_worker w;

		if (pm_view_worker(view, (uint16_t)i, now, &w))
			json_array_append_new(list, worker_of(&w, now));
	}
	json_object_set_new(o, "workers", list);
	json_object_set_new(o, "models", pm_show_models(view));
	json_object_set_new(o, "discovery", discovery_of(view, now));
	return o;
}

/* ---- requests ---- */

struct live {
	const struct pm_view_ingress *in;
	uint32_t slot;
	mono_ns arrival_ns;
};

static int
by_arrival(const void *a, const void *b)
{
	const struct live *x = a, *y = b;

	return x->arrival_ns < y->arrival_ns ? -1 : x->arrival_ns > y->arrival_ns;
}

json_t *
pm_show_peer(const uint8_t addr[16], unsigned port, unsigned flags)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	char host[INET6_ADDRSTRLEN], text[80];
	bool v4 = memcmp(addr, mapped, sizeof mapped) == 0;

	if (flags & PEER_UNIX)
		return json_string("unix");
	if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? addr + 12 : addr, host, sizeof host))
		return json_null();
	snprintf(text, sizeof text, v4 ? "%s:%u" : "[%s]:%u", host, port);
	return json_string(port == 0 ? host : text);
}

static const char *
phase_name(unsigned phase)
{
	static const char *const names[] = {"none", "prefill", "decode"};

	return phase < sizeof names / sizeof *names ? names[phase] : "unknown";
}

/* NULL: it ended while we looked. */
static json_t *
request_of(const struct pm_view *view, const struct live *l, mono_ns now)
{
	const struct slot *at = &l->in->slots.slot[l->slot];
	uint64_t word = atomic_load_explicit(&at->word, memory_order_acquire);
	struct pm_view_worker w;
	struct slot s;
	json_t *o;

	memcpy(&s, at, sizeof s);
	atomic_thread_fence(memory_order_acquire);
	if (slot_state(word) == SLOT_FREE || slot_generation(word) !=
	    slot_generation(atomic_load_explicit(&at->word, memory_order_relaxed)))
		return NULL;
	o = json_object();
	bool routed = slot_state(word) >= SLOT_CHOSEN && s.row != ROW_NONE &&
		      pm_view_worker(view, s.row, now, &w) && w.row_gen == s.row_gen;

	json_object_set_new(o, "id", pm_json_hex(s.request_id));
	json_object_set_new(o, "ingress", json_integer(l->in->index));
	json_object_set_new(o, "state", json_string(slot_state_name(slot_state(word))));
	json_object_set_new(o, "ask", json_integer(slot_ask(word)));
	json_object_set_new(o, "age_s", pm_json_seconds(s.arrival_ns, now));
	json_object_set_new(o, "route", json_string(openai_route_name((enum openai_route)s.route)));
	json_object_set_new(o, "peer", pm_show_peer(s.peer_addr, s.peer_port, s.peer_flags));
	json_object_set_new(o, "peer_forwarded", json_boolean(s.peer_flags & PEER_TRUSTED));
	json_object_set_new(o, "body_bytes", json_integer(s.body_len));
	json_object_set_new(o, "worker",
			    routed ? pm_json_text(w.name, sizeof w.name) : json_null());
	json_object_set_new(o, "row", pm_json_integer_if(routed, s.row));
	json_object_set_new(o, "attempt", json_integer(s.attempt));
	json_object_set_new(o, "phase", json_string(phase_name(s.phase)));
	json_object_set_new(o, "prompt_tokens",
			    pm_json_integer_if(routed && s.prompt != 0, s.prompt));
	json_object_set_new(o, "prefill_tokens", pm_json_integer_if(routed, s.prefill));
	json_object_set_new(o, "generation", pm_json_integer_if(routed, s.policy_gen));
	return o;
}

json_t *
pm_show_requests(const struct pm_view *view, unsigned limit)
{
	json_t *o = json_object(), *list = json_array(), *states = json_object();
	unsigned count[SLOT_END + 1] = {0}, n = 0, cap = 0;
	struct live *live = NULL;
	mono_ns now = clock_mono();

	for (unsigned i = 0; i < view->n_ingress; i++) {
		const struct pm_view_ingress *in = &view->ingress[i];

		for (uint32_t k = 1; in->slots.slot && k <= in->slots.capacity; k++) {
			const struct slot *s = &in->slots.slot[k];
			unsigned state =
				slot_state(atomic_load_explicit(&s->word, memory_order_acquire));

			if (state == SLOT_FREE || state > SLOT_END)
				continue;
			count[state]++;
			if (n == cap) {
				struct live *more =
					realloc(live, (cap ? cap * 2 : 256) * sizeof *live);

				if (!more)
					continue;
				live = more;
				cap = cap ? cap * 2 : 256;
			}
			live[n++] = (struct live){in, k, s->arrival_ns};
		}
	}
	if (n > 0)
		qsort(live, n, sizeof *live, by_arrival);
	for (unsigned i = 0; i < n && json_array_size(list) < limit; i++) {
		json_t *one = request_of(view, &live[i], now);

		if (one)
			json_array_append_new(list, one);
	}
	free(live);
	for (unsigned i = SLOT_READ; i <= SLOT_END; i++)
		json_object_set_new(states, slot_state_name(i), json_integer(count[i]));
	json_object_set_new(o, "live", json_integer(n));
	json_object_set_new(o, "states", states);
	json_object_set_new(o, "requests", list);
	return o;
}
