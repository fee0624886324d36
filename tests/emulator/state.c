/* tests/emulator/state.c -- the truth about a worker, for tests that judge somebody else's idea of
 * it; see emulator.h. */
#include "tests/emulator/emulator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_SHOWN 100000u

bool
query_has(struct slice query, const char *setting)
{
	size_t len = strlen(setting);

	while (query.len > 0) {
		const char *and = memchr(query.p, '&', query.len);
		size_t n = and != NULL ? (size_t)(and - query.p) : query.len;

		if (n == len && memcmp(query.p, setting, n) == 0)
			return true;
		n += n < query.len;
		query.p += n;
		query.len -= n;
	}
	return false;
}

static json_t *
hash_text(const struct rank *rank, const struct blockhash *hash)
{
	char text[68];

	kv_encode_hash(&rank->kv, hash, text);
	return json_string(text);
}

/* One cached block. */
static json_t *
block_json(const struct rank *rank, const struct engine_block *block, bool with_tokens)
{
	const char *lora = block->lora > 0 ? rank->emu->lora[block->lora - 1] : NULL;
	json_t *json = json_pack("{s:i, s:s, s:i, s:o, s:o, s:i, s:i, s:s?, s:s?, s:i}", "rank",
				 (int)rank->number, "tier",
				 block->tier == ENGINE_GPU ? "GPU" : "CPU", "group",
				 (int)block->group, "hash", hash_text(rank, &block->name), "parent",
				 block->has_parent ? hash_text(rank, &block->parent) : json_null(),
				 "start", (int)block->start, "tokens", (int)block->tokens, "lora",
				 lora, "salt", block->salt, "copies", (int)block->copies);

	if (with_tokens) {
		json_t *ids = json_array();

		for (unsigned i = 0; i < block->tokens; i++)
			json_array_append_new(ids, json_integer(block->token[i]));
		json_object_set_new(json, "token_ids", ids);
	}
	return json;
}

/* hashes: names of the first group's blocks on rank 0's GPU; cached: all there is. */
static void
add_blocks(const struct emulator *emu, json_t *state, bool with_tokens)
{
	json_t *hashes = json_array(), *cached = json_array();
	unsigned n = 0;

	for (unsigned i = 0; i < emu->ranks; i++) {
		const struct rank *rank = &emu->rank[i];
		struct engine_at at = {0};
		struct engine_block block;

		while (n < BLOCKS_SHOWN &&
		       engine_next_cached(worker_engine(rank->worker), &at, &block)) {
			json_array_append_new(cached, block_json(rank, &block, with_tokens));
			if (i == 0 && block.tier == ENGINE_GPU && block.group == 0)
				json_array_append_new(hashes, hash_text(rank, &block.name));
			n++;
		}
	}
	json_object_set_new(state, "hashes", hashes);
	json_object_set_new(state, "cached", cached);
	json_object_set_new(state, "cached_all_shown", json_boolean(n < BLOCKS_SHOWN));
}

static void
add_number(json_t *object, const char *key, uint64_t n)
{
	json_object_set_new(object, key, json_integer((json_int_t)n));
}

static json_t *
rank_json(const struct rank *rank)
{
	struct worker_stats stats = worker_stats(rank->worker);
	const struct engine_stats *e = &stats.engine;
	json_t *json = json_object();

	add_number(json, "rank", rank->number);
	add_number(json, "running", e->running);
	add_number(json, "waiting", e->waiting);
	add_number(json, "arriving", stats.arriving);
	add_number(json, "pending_prefill_tokens", e->pending_prefill_tokens +
						   stats.arriving_tokens);
	add_number(json, "query_tokens", e->query_tokens);
	add_number(json, "hit_tokens", e->hit_tokens);
	add_number(json, "blocks", e->num_blocks);
	add_number(json, "free_blocks", e->free_blocks);
	add_number(json, "cached_blocks", e->cached_blocks);
	add_number(json, "cached_hashes", engine_cached(worker_engine(rank->worker)));
	add_number(json, "offloaded_blocks", e->offloaded_blocks);
	add_number(json, "preemptions", e->preemptions);
	add_number(json, "steps", e->steps);
	add_number(json, "overruns", stats.overruns);
	add_number(json, "next_seq", rank->pub != NULL ? publisher_next_seq(rank->pub) : 0);
	return json;
}

/* The sum over ranks of all they count. */
static json_t *
sum_of(const json_t *ranks)
{
	json_t *sum = json_object(), *one;
	size_t i;

	json_array_foreach(ranks, i, one)
	{
		const char *key;
		json_t *value;

		json_object_foreach(one, key, value)
			add_number(sum, key, (uint64_t)(json_integer_value(value) +
				   json_integer_value(json_object_get(sum, key))));
	}
	json_object_del(sum, "rank");
	return sum;
}

void
state_get(struct emulator *emu, struct http_conn *conn, struct slice query)
{
	json_t *ranks = json_array(), *state, *requests;
	char *body;

	for (unsigned i = 0; i < emu->ranks; i++)
		json_array_append_new(ranks, rank_json(&emu->rank[i]));
	state = sum_of(ranks);
	json_object_set_new(state, "now", json_real(emu->now_s));
	json_object_set_new(state, "time_scale", json_real(emu->opt.time_scale));
	json_object_set_new(state, "engine", json_string(emu->opt.engine));
	json_object_set_new(state, "version", json_string(emu->opt.version));
	json_object_set_new(state, "paused", json_boolean(emu->paused));
	json_object_set_new(state, "draining", json_boolean(emu->draining));
	add_number(state, "sleep_level", emu->sleep_level);
	add_number(state, "events_dropped", emu->events_dropped);
	add_number(state, "block_tokens", emu->cfg.engine.block_tokens);
	json_object_set_new(state, "ranks", ranks);
	requests = json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:I}",
		"started", (json_int_t)emu->started, "ok", (json_int_t)emu->ok,
		"aborted", (json_int_t)emu->aborted, "failed", (json_int_t)emu->failed,
		"faults", (json_int_t)emu->faults, "tokenized", (json_int_t)emu->tokenized,
		"open", (int)api_open(emu), "distinct_users", (int)emu->ids.n,
		"duplicate_users", (json_int_t)emu->duplicate_ids);
	json_object_set_new(state, "requests", requests);
	add_number(state, "restarts", emu->restarts);
	add_number(state, "connections", http_server_conns(emu->http));
	if (query_has(query, "hashes=1"))
		add_blocks(emu, state, query_has(query, "tokens=1"));
	body = json_dumps(state, JSON_COMPACT);
	json_decref(state);
	if (body == NULL)
		abort();
	http_conn_answer(conn, 200, "application/json", "", body, strlen(body));
	free(body);
}
