/* tests/emulator/admin.c -- what a worker answers beside inference; see emulator.h. */
#include "tests/emulator/emulator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HASHES_SHOWN 100000u

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
	http_conn_answer(conn, emu->opt.unhealthy ? 503 : 200, "text/plain", "", "", 0);
}

static json_t *
model_card(const struct emulator *emu, const char *name, size_t len)
{
	return json_pack("{s:s%, s:s, s:I, s:s, s:s, s:n, s:i}", "id", name, len, "object", "model",
			 "created", (json_int_t)emu->x.start_time_s, "owned_by", "vllm", "root",
			 emu->opt.model, "parent", "max_model_len", (int)emu->opt.max_model_len);
}

static void
get_models(struct emulator *emu, struct http_conn *conn)
{
	json_t *list = json_array();
	const char *p = emu->opt.served_model_name;

	json_array_append_new(list, model_card(emu, emu->opt.model, strlen(emu->opt.model)));
	while (*p != '\0') {
		size_t n = strcspn(p, ",");

		json_array_append_new(list, model_card(emu, p, n));
		p += n + (p[n] == ',');
	}
	answer_json(conn, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static void
get_metrics(struct emulator *emu, struct http_conn *conn)
{
	if (emu->page == NULL || emu->now_s - emu->page_s >= emu->opt.metrics_lag) {
		struct worker_stats stats = worker_stats(emu->worker);

		free(emu->page);
		emu->page = exposition_render(&emu->x, &stats, &emu->cfg.engine, emu->opt.model,
					      strcmp(emu->opt.metrics_generation, "old") == 0,
					      &emu->page_len);
		emu->page_s = emu->now_s;
	}
	http_conn_answer(conn, 200, "text/plain; version=0.0.4; charset=utf-8", "", emu->page,
			 emu->page_len);
}

static void
post_reset(struct emulator *emu, struct http_conn *conn)
{
	bool done = worker_clear_cache(emu->worker, emu->now_s);

	answer_json(conn, 200, json_pack("{s:b}", "success", done));
}

/* The truth about this worker, for tests that judge somebody else's idea of it. */
static void
get_state(struct emulator *emu, struct http_conn *conn, bool with_hashes)
{
	struct worker_stats stats = worker_stats(emu->worker);
	const struct engine *engine = worker_engine(emu->worker);
	unsigned distinct = engine_cached(engine, NULL, 0);
	json_t *state = json_pack(
		"{s:f, s:f, s:i, s:i, s:i, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, "
		"s:I}",
		"now", emu->now_s, "time_scale", emu->opt.time_scale, "running",
		(int)stats.engine.running, "waiting", (int)stats.engine.waiting, "arriving",
		(int)stats.arriving, "pending_prefill_tokens",
		(json_int_t)(stats.engine.pending_prefill_tokens + stats.arriving_tokens),
		"query_tokens", (json_int_t)stats.engine.query_tokens, "hit_tokens",
		(json_int_t)stats.engine.hit_tokens, "blocks", (int)stats.engine.num_blocks,
		"free_blocks", (int)stats.engine.free_blocks, "cached_blocks",
		(int)stats.engine.cached_blocks, "cached_hashes", (int)distinct, "preemptions",
		(json_int_t)stats.engine.preemptions, "steps", (json_int_t)stats.engine.steps,
		"overruns", (json_int_t)stats.overruns, "next_seq",
		(json_int_t)(emu->pub != NULL ? publisher_next_seq(emu->pub) : 0), "events_dropped",
		(json_int_t)emu->events_dropped);
	json_t *requests = json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:I}",
		"started", (json_int_t)emu->started, "ok", (json_int_t)emu->ok,
		"aborted", (json_int_t)emu->aborted, "failed", (json_int_t)emu->failed,
		"faults", (json_int_t)emu->faults, "tokenized", (json_int_t)emu->tokenized,
		"open", (int)api_open(emu), "distinct_users", (int)emu->ids.n,
		"duplicate_users", (json_int_t)emu->duplicate_ids);

	json_object_set_new(state, "requests", requests);
	json_object_set_new(state, "restarts", json_integer(emu->restarts));
	json_object_set_new(state, "connections", json_integer(http_server_conns(emu->http)));
	if (with_hashes) {
		unsigned n = distinct < HASHES_SHOWN ? distinct : HASHES_SHOWN;
		struct blockhash *hash = calloc(n + 1, sizeof *hash);
		json_t *list = json_array();

		n = hash != NULL ? engine_cached(engine, hash, n) : 0;
		for (unsigned i = 0; i < n && i < HASHES_SHOWN; i++) {
			char text[20];

			snprintf(text, sizeof text, "0x%016" PRIx64,
				 blockhash_low64(emu->cfg.engine.hash, &hash[i]));
			json_array_append_new(list, json_string(text));
		}
		free(hash);
		json_object_set_new(state, "hashes", list);
	}
	answer_json(conn, 200, state);
}

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
		worker_set_timing(emu->worker, &cfg);
		emu->cfg.o_fix_s = cfg.o_fix_s;
		emu->cfg.o_tok_s = cfg.o_tok_s;
	}
	if (gap > 0 && emu->pub != NULL)
		publisher_gap(emu->pub, (uint64_t)gap);
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
		api_error(conn, 400, "BadRequestError", NULL, why);
	else
		answer_json(conn, 200, json_pack("{s:b}", "success", 1));
	json_decref(req);
}

static void
post_restart(struct emulator *emu, struct http_conn *conn)
{
	answer_json(conn, 200, json_pack("{s:b}", "success", 1));
	emulator_restart(emu);
}

struct route {
	const char *path;
	enum http1_method method;
	void (*serve)(struct emulator *, struct http_conn *);
};

void
admin_request(struct emulator *emu, struct http_conn *conn, const struct http1_request *http,
	      const char *body, size_t len_bytes)
{
	static const struct route routes[] = {
		{"/health", HTTP1_GET, get_health},
		{"/ping", HTTP1_GET, get_health},
		{"/v1/models", HTTP1_GET, get_models},
		{"/metrics", HTTP1_GET, get_metrics},
		{"/reset_prefix_cache", HTTP1_POST, post_reset},
		{"/emu/restart", HTTP1_POST, post_restart},
	};
	enum http1_method method = http->method == HTTP1_HEAD ? HTTP1_GET : http->method;
	bool known = false;

	for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
		if (slice_eq_str(http->path, routes[i].path)) {
			if (method == routes[i].method) {
				routes[i].serve(emu, conn);
				return;
			}
			known = true;
		}
	if (slice_eq_str(http->path, "/version") && method == HTTP1_GET)
		answer_json(conn, 200, json_pack("{s:s}", "version",
						 strcmp(emu->opt.metrics_generation, "old") == 0
						 ? "0.9.0" : "0.31.0"));
	else if (slice_eq_str(http->path, "/emu/state") && method == HTTP1_GET)
		get_state(emu, conn, slice_eq_str(http->query, "hashes=1"));
	else if (slice_eq_str(http->path, "/emu/config") && method == HTTP1_POST)
		post_config(emu, conn, body, len_bytes);
	else if (known)
		api_error(conn, 405, "Method Not Allowed", NULL, "Method Not Allowed");
	else
		api_error(conn, 404, "Not Found", NULL, "Not Found");
}
