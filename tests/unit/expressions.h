/* tests/unit/expressions.h -- one small world for tests of expressions. */
#pragma once
#include "actors/common/decide/expression.h"

static const char *const world_pools[] = {"qwen-small", "qwen-large"};
static const char *const world_tags[] = {"pii", "simple", "slow"};
static const char *const world_providers[] = {"bedrock-us"};
static const char *const world_tenants[] = {"acme", "initech"};
static const char *const world_models[] = {"standard-model", "m"};

static const struct expression_names world_names = {
	.pools = world_pools, .n_pools = 2, .tags = world_tags, .n_tags = 3,
	.providers = world_providers, .n_providers = 1, .tenants = world_tenants, .n_tenants = 2,
	.models = world_models, .n_models = 2,
};

static const struct facts_label world_labels[] = {
	{SLICE_LIT("zone"), SLICE_LIT("eu-1")}, {SLICE_LIT("empty"), SLICE_LIT("")},
};

struct world {
	struct http1_head head;
	struct facts_request request;
	struct facts_candidate candidate;
	struct facts_pool pools[2];
	struct facts facts;
};

/* 'pii' is there, 'simple' is not, 'slow' nobody knows; a worker of qwen-small whose KV usage,
 * running requests and cost are unknown. */
static inline void
world_make(struct world *w)
{
	struct facts_request *r = &w->request;
	struct facts_candidate *c = &w->candidate;

	*w = (struct world){
		.head = {
			.n_headers = 4,
			.headers = {
				{SLICE_LIT("X-Team"), SLICE_LIT("blue")},
				{SLICE_LIT("Twice"), SLICE_LIT("a")},
				{SLICE_LIT("twice"), SLICE_LIT("a")},
				{SLICE_LIT("X-Empty"), SLICE_LIT("")},
			},
		},
	};
	facts_request_init(r);
	r->model = SLICE_LIT("m");
	r->tenant = SLICE_LIT("acme");
	r->path = SLICE_LIT("/v1/chat/completions");
	r->tags = 5;
	r->tags_unknown = 4;
	r->prompt_tokens = 1000;
	r->messages = 3;
	r->tools = 0;
	r->priority = -1;
	r->stream = 1;
	r->head = &w->head;
	facts_candidate_init(c);
	c->name = SLICE_LIT("w1");
	c->pool = SLICE_LIT("qwen-small");
	c->provider = SLICE_LIT("");
	c->model = SLICE_LIT("qwen3");
	c->pool_index = 0;
	c->kind = FACTS_WORKER;
	c->state = 5;
	c->cache_state = 1;
	c->cached_tokens = 700;
	c->cached_share = 0.7;
	c->waiting = 3;
	c->scraped_waiting = 1;
	c->pending_tokens = 5000;
	c->predicted_ttft_s = 1.5;
	c->labels = world_labels;
	c->n_labels = 2;
	facts_pool_init(&w->pools[0]);
	facts_pool_init(&w->pools[1]);
	w->pools[0].ready = 3;
	w->pools[0].kv_usage = 0.25;
	w->facts = (struct facts){
		.request = r, .candidate = c, .pools = w->pools, .n_pools = 2,
	};
}
