/* tests/emulator/admin.c -- what a worker answers beside inference; see emulator.h. */
#include "tests/emulator/emulator.h"
#include "tests/emulator/spoil.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void
answer_json(struct http_conn *conn, unsigned status, json_t *value)
{
	char *body = json_dumps(value, JSON_COMPACT);

	json_decref(value);
	if (body == NULL)
		abort();
	http_conn_answer(conn, status, "application/json", "", body, strlen(body));
	free(body);
}

static void
get_health(struct emulator *emu, struct http_conn *conn)
{
	bool well = !emu->opt.unhealthy && !emu->draining;

	http_conn_answer(conn, well ? 200 : 503, "text/plain", "", "", 0);
}

static json_t *
model_card(const struct emulator *emu, const char *name, size_t len, const char *parent)
{
	json_int_t created = (json_int_t)emu->rank[0].x.start_time_s;

	return json_pack("{s:s%, s:s, s:I, s:s, s:s, s:s?, s:i}", "id", name, len, "object",
			 "model", "created", created, "owned_by", "vllm", "root", emu->opt.model,
			 "parent", parent, "max_model_len", (int)emu->opt.max_model_len);
}

static void
get_models(struct emulator *emu, struct http_conn *conn)
{
	json_t *list = json_array();
	const char *p = emu->opt.served_model_name;

	json_array_append_new(list, model_card(emu, emu->opt.model, strlen(emu->opt.model), NULL));
	while (*p != '\0') {
		size_t n = strcspn(p, ",");

		json_array_append_new(list, model_card(emu, p, n, NULL));
		p += n + (p[n] == ',');
	}
	for (unsigned i = 0; i < emu->loras; i++)
		json_array_append_new(list, model_card(emu, emu->lora[i], strlen(emu->lora[i]),
						       emu->opt.model));
	answer_json(conn, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static void
make_page(struct emulator *emu)
{
	struct exposition_rank *rank = calloc(emu->ranks, sizeof *rank);
	struct exposition_page page = {
		.engine = emu->gen.engine,
		.version = emu->metrics_version,
		.openmetrics = strcmp(emu->opt.frontend, "rust") == 0,
		.model = emu->opt.model,
		.cfg = &emu->cfg.engine,
		.rank = rank,
		.ranks = emu->ranks,
		.first = emu->rank[0].number,
		.sleep_level = emu->sleep_level,
		.lora = emu->lora,
		.loras = emu->loras,
	};

	if (rank == NULL)
		abort();
	for (unsigned i = 0; i < emu->ranks; i++) {
		rank[i].x = &emu->rank[i].x;
		rank[i].stats = worker_stats(emu->rank[i].worker);
	}
	free(emu->page);
	emu->page = exposition_render(&page, &emu->page_len);
	emu->page_s = emu->now_s;
	free(rank);
}

static void
get_metrics(struct emulator *emu, struct http_conn *conn)
{
	enum metrics_fault fault = options_metrics_fault(&emu->opt);
	const char *type = strcmp(emu->opt.frontend, "rust") == 0
		? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		: "text/plain; version=0.0.4; charset=utf-8";
	const char *more = fault == METRICS_GZIP ? "content-encoding: gzip\r\n" : "";
	char *spoilt;
	size_t len;

	if (emu->page == NULL || emu->now_s - emu->page_s >= emu->opt.metrics_lag)
		make_page(emu);
	switch (fault) {
	case METRICS_GOOD:
		http_conn_answer(conn, 200, type, "", emu->page, emu->page_len);
		return;
	case METRICS_STALL:
		return; /* for ever */
	case METRICS_500:
		http_conn_answer(conn, 500, "text/plain", "", "oops", 4);
		return;
	case METRICS_HTML:
		http_conn_answer(conn, 200, "text/html", "", "<html>hello</html>\n", 19);
		return;
	case METRICS_HALF:
		http_conn_begin(conn, 200, type, "");
		http_conn_chunk(conn, emu->page, emu->page_len / 2);
		http_conn_cut(conn);
		return;
	default:
		break;
	}
	spoilt = spoil_page(emu->page, emu->page_len, fault, &len);
	http_conn_answer(conn, 200, type, more, spoilt, len);
	free(spoilt);
}

static void
get_iterations(struct emulator *emu, struct http_conn *conn)
{
	(void)emu; /* TensorRT-LLM's queue of iteration statistics, which we keep empty */
	answer_json(conn, 200, json_array());
}

/* ---- routes of a developer's server ---- */

static void
post_reset(struct emulator *emu, struct http_conn *conn)
{
	bool done = emulator_clear(emu, false);

	if (emu->gen.reset_says)
		answer_json(conn, 200, json_pack("{s:b}", "success", done));
	else
		http_conn_answer(conn, 200, "text/plain", "", "", 0);
}

/* Weights change: what is cached is of no use any more. */
static void
post_weights(struct emulator *emu, struct http_conn *conn)
{
	answer_json(conn, 200, json_pack("{s:b}", "success", emulator_clear(emu, true)));
}

static void
post_sleep(struct emulator *emu, struct http_conn *conn, struct slice query)
{
	unsigned level = query_has(query, "level=0") ? 0 : query_has(query, "level=2") ? 2 : 1;

	emulator_halt(emu, level, emu->paused || level == 0);
	if (level > 0)
		emulator_clear(emu, false);
	http_conn_answer(conn, 200, "text/plain", "", "", 0);
}

static void
post_wake_up(struct emulator *emu, struct http_conn *conn)
{
	emulator_halt(emu, 0, false);
	http_conn_answer(conn, 200, "text/plain", "", "", 0);
}

static void
get_is_sleeping(struct emulator *emu, struct http_conn *conn)
{
	answer_json(conn, 200, json_pack("{s:b}", "is_sleeping", emu->sleep_level > 0));
}

static void
post_pause(struct emulator *emu, struct http_conn *conn)
{
	emulator_halt(emu, emu->sleep_level, true);
	answer_json(conn, 200, json_pack("{s:s}", "status", "paused"));
}

static void
post_resume(struct emulator *emu, struct http_conn *conn)
{
	emulator_halt(emu, emu->sleep_level, false);
	answer_json(conn, 200, json_pack("{s:s}", "status", "resumed"));
}

static void
get_is_paused(struct emulator *emu, struct http_conn *conn)
{
	answer_json(conn, 200, json_pack("{s:b}", "is_paused", emu->paused));
}

/* ---- where events come from ---- */

/* NULL: no such rank, or it publishes nothing. */
static json_t *
event_source(const struct emulator *emu, unsigned rank)
{
	const struct publisher *pub = emu->rank[rank].pub;

	return json_pack("{s:b, s:s, s:s, s:s?, s:i, s:i, s:i, s:s}", "enable_kv_cache_events", 1,
			 "publisher", "zmq", "endpoint", publisher_endpoint(pub),
			 "replay_endpoint", publisher_replay_endpoint(pub)[0] != '\0'
			 ? publisher_replay_endpoint(pub) : NULL, "buffer_steps",
			 (int)emu->opt.kv_buffer_steps, "hwm", 100000, "max_queue_size", 100000,
			 "topic", emu->opt.kv_topic);
}

static void
get_event_sources(struct emulator *emu, struct http_conn *conn)
{
	json_t *sources = json_object();

	for (unsigned i = 0; i < emu->ranks && emu->rank[0].pub != NULL; i++) {
		char key[16];

		snprintf(key, sizeof key, "%u", emu->rank[i].number);
		json_object_set_new(sources, key, event_source(emu, i));
	}
	answer_json(conn, 200, sources);
}

/* SGLang's. */
static void
get_server_info(struct emulator *emu, struct http_conn *conn)
{
	const struct publisher *pub = emu->rank[0].pub;
	const char *endpoint = pub != NULL ? publisher_endpoint(pub) : "";
	const char *colon = strrchr(endpoint, ':');
	json_t *events = json_null();

	if (pub != NULL && strncmp(endpoint, "tcp://", 6) == 0 && colon != NULL)
		events = json_pack("{s:s, s:s%, s:i, s:s, s:i, s:i}", "publisher", "zmq",
				   "endpoint_host", endpoint + 6, (size_t)(colon - endpoint) - 6,
				   "endpoint_port_base", atoi(colon + 1), "topic",
				   emu->opt.kv_topic, "block_size",
				   (int)emu->cfg.engine.block_tokens, "dp_size", (int)emu->ranks);
	answer_json(conn, 200, json_pack("{s:s, s:s, s:i, s:s, s:o}", "model_path", emu->opt.model,
					 "served_model_name", emu->opt.model, "page_size",
					 (int)emu->cfg.engine.block_tokens, "version",
					 emu->opt.version, "kv_events", events));
}

static void
post_flush_cache(struct emulator *emu, struct http_conn *conn)
{
	bool done = emulator_clear(emu, false);

	http_conn_answer(conn, done ? 200 : 400, "text/plain", "", done ? "Cache flushed.\n" : "",
			 done ? 15 : 0);
}

/* ---- live control ---- */

/* {"gap": N}, {"reset_counters": true} act once; all else sets options. */
static int
apply_config(struct emulator *emu, json_t *req, char why[static 256])
{
	json_int_t gap = json_integer_value(json_object_get(req, "gap"));
	bool reset = json_is_true(json_object_get(req, "reset_counters"));
	struct worker_config cfg;
	int r;

	json_object_del(req, "gap");
	json_object_del(req, "reset_counters");
	r = options_apply_json(&emu->opt, req, why);
	if (r < 0)
		return r;
	options_fail_kind(&emu->opt, &emu->fail_kind);
	if (options_worker(&emu->opt, &cfg, why) == 0) {
		for (unsigned i = 0; i < emu->ranks; i++)
			worker_set_timing(emu->rank[i].worker, &cfg);
		emu->cfg.o_fix_s = cfg.o_fix_s;
		emu->cfg.o_tok_s = cfg.o_tok_s;
	}
	http_server_close_each(emu->http, emu->opt.connection_close || emu->draining);
	for (unsigned i = 0; i < emu->ranks && emu->rank[i].pub != NULL; i++) {
		if (gap > 0)
			publisher_gap(emu->rank[i].pub, (uint64_t)gap);
		publisher_replay_faults(emu->rank[i].pub, emu->opt.replay_drop_every,
					emu->opt.replay_no_end);
	}
	if (reset) {
		emu->started = emu->ok = emu->aborted = emu->failed = emu->faults = 0;
		emu->tokenized = emu->events_dropped = emu->duplicate_ids = 0;
		free(emu->ids.slot);
		emu->ids = (struct id_set){0};
	}
	return 0;
}

static void
post_config(struct emulator *emu, struct http_conn *conn, const char *body, size_t len_bytes)
{
	json_t *req = json_loadb(body, len_bytes, 0, NULL);
	char why[256] = "the body is not a JSON object";

	if (!json_is_object(req) || apply_config(emu, req, why) < 0)
		api_error(emu, conn, 400, "BadRequestError", NULL, why);
	else
		answer_json(conn, 200, json_pack("{s:b}", "success", 1));
	json_decref(req);
}

/* seq=keep: its event numbers go on as if another had come as far; reconnect=1: subscribers lose
 * their connection. */
static void
post_restart(struct emulator *emu, struct http_conn *conn, struct slice query)
{
	bool keeps = query_has(query, "seq=keep");
	bool reconnects = query_has(query, "reconnect=1");

	answer_json(conn, 200, json_pack("{s:b}", "success", 1));
	emulator_restart(emu, keeps, reconnects);
}

/* It leaves: /health is 503, each answer closes, and once nothing runs nobody is let in. */
static void
post_drain(struct emulator *emu, struct http_conn *conn)
{
	emu->draining = true;
	http_server_close_each(emu->http, true);
	answer_json(conn, 200, json_pack("{s:b}", "success", 1));
}

static void
get_version(struct emulator *emu, struct http_conn *conn)
{
	answer_json(conn, 200, json_pack("{s:s}", "version", emu->metrics_version == 900
					 ? "0.9.0" : emu->opt.version));
}

#define VLLM 1u
#define SGLANG 2u
#define TRTLLM 4u
#define ALL 7u

struct route {
	const char *path;
	enum http1_method method;
	unsigned engines;
	void (*serve)(struct emulator *, struct http_conn *);
	void (*serve_query)(struct emulator *, struct http_conn *, struct slice query);
};

/* Is it there in this version and front end? */
static bool
route_there(const struct emulator *emu, const struct route *route)
{
	if (!(route->engines & 1u << emu->gen.engine))
		return false;
	return route->serve != get_event_sources || emu->gen.event_sources;
}

void
admin_request(struct emulator *emu, struct http_conn *conn, const struct http1_request *http,
	      const char *body, size_t len_bytes)
{
	static const struct route routes[] = {
		{"/health", HTTP1_GET, ALL, get_health, NULL},
		{"/ping", HTTP1_GET, VLLM, get_health, NULL},
		{"/health_generate", HTTP1_GET, SGLANG, get_health, NULL},
		{"/version", HTTP1_GET, VLLM | TRTLLM, get_version, NULL},
		{"/v1/models", HTTP1_GET, ALL, get_models, NULL},
		{"/metrics", HTTP1_GET, VLLM | SGLANG, get_metrics, NULL},
		{"/metrics", HTTP1_GET, TRTLLM, get_iterations, NULL},
		{"/prometheus/metrics", HTTP1_GET, TRTLLM, get_metrics, NULL},
		{"/kv_event_sources", HTTP1_GET, VLLM, get_event_sources, NULL},
		{"/reset_prefix_cache", HTTP1_POST, VLLM, post_reset, NULL},
		{"/sleep", HTTP1_POST, VLLM, NULL, post_sleep},
		{"/wake_up", HTTP1_POST, VLLM, post_wake_up, NULL},
		{"/is_sleeping", HTTP1_GET, VLLM, get_is_sleeping, NULL},
		{"/pause", HTTP1_POST, VLLM, post_pause, NULL},
		{"/resume", HTTP1_POST, VLLM, post_resume, NULL},
		{"/is_paused", HTTP1_GET, VLLM, get_is_paused, NULL},
		{"/update_weights", HTTP1_POST, VLLM, post_weights, NULL},
		{"/server_info", HTTP1_GET, SGLANG, get_server_info, NULL},
		{"/get_server_info", HTTP1_GET, SGLANG, get_server_info, NULL},
		{"/flush_cache", HTTP1_POST, SGLANG, post_flush_cache, NULL},
		{"/emu/state", HTTP1_GET, ALL, NULL, state_get},
		{"/emu/restart", HTTP1_POST, ALL, NULL, post_restart},
		{"/emu/drain", HTTP1_POST, ALL, post_drain, NULL},
	};
	enum http1_method method = http->method == HTTP1_HEAD ? HTTP1_GET : http->method;
	bool known = false;

	for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
		const struct route *route = &routes[i];

		if (!slice_eq_str(http->path, route->path) || !route_there(emu, route))
			continue;
		known = true;
		if (method != route->method)
			continue;
		if (route->serve != NULL)
			route->serve(emu, conn);
		else
			route->serve_query(emu, conn, http->query);
		return;
	}
	if (slice_eq_str(http->path, "/emu/config") && method == HTTP1_POST)
		post_config(emu, conn, body, len_bytes);
	else if (known)
		api_error(emu, conn, 405, "Method Not Allowed", NULL, "Method Not Allowed");
	else
		api_error(emu, conn, 404, "Not Found", NULL, "Not Found");
}
