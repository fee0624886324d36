/* actors/common/decide/facts.c -- the table of what expressions can read; see facts.h. */
#include "actors/common/decide/facts.h"

#include <math.h>

#include "shm/rows.h"

static const char *
kind_name(unsigned kind)
{
	static const char *const names[] = {
		[FACTS_WORKER] = "Worker", [FACTS_PROVIDER] = "Provider",
	};

	return kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

static const char *
state_name(unsigned state)
{
	return row_state_name((enum row_state)state);
}

#define REQUEST(member)   offsetof(struct facts_request, member), NULL, FACTS_ANY
#define CANDIDATE(member) offsetof(struct facts_candidate, member), NULL, FACTS_ANY
#define CHOICE(member, f) offsetof(struct facts_candidate, member), f, FACTS_ANY
#define POOL(member)      offsetof(struct facts_pool, member), NULL, FACTS_ANY
#define NAMED(kind, member, names) offsetof(struct facts_##kind, member), NULL, names

static const struct fact_row table[FACTS] = {
	[FACT_REQUEST_MODEL] = {"request.model", FACTS_STRING, FACTS_OF_REQUEST, "",
		"model name as the client wrote it", NAMED(request, model, FACTS_MODELS)},
	[FACT_REQUEST_TENANT] = {"request.tenant", FACTS_STRING, FACTS_OF_REQUEST, "",
		"name of its InferenceTenant; `''`: of none",
		NAMED(request, tenant, FACTS_TENANTS)},
	[FACT_REQUEST_PATH] = {"request.path", FACTS_STRING, FACTS_OF_REQUEST, "",
		"path without the query, such as `/v1/chat/completions`", REQUEST(path)},
	[FACT_REQUEST_TAGS] = {"request.tags", FACTS_TAGS, FACTS_OF_TAGS, "",
		"tags it has: `'NAME' in request.tags`, NAME a RequestTag's; unknown while its "
		"source fails", REQUEST(tags)},
	[FACT_REQUEST_PROMPT_TOKENS] = {"request.promptTokens", FACTS_INT, FACTS_OF_REQUEST,
		"tokens", "of all its prompts together; an estimate where nobody counted",
		REQUEST(prompt_tokens)},
	[FACT_REQUEST_MAX_TOKENS] = {"request.maxTokens", FACTS_INT, FACTS_OF_REQUEST, "tokens",
		"the most it wants back; unknown where it does not say", REQUEST(max_tokens)},
	[FACT_REQUEST_STREAM] = {"request.stream", FACTS_BOOL, FACTS_OF_REQUEST, "",
		"it asks for the answer piece by piece", REQUEST(stream)},
	[FACT_REQUEST_HEADERS] = {"request.headers", FACTS_HEADERS, FACTS_OF_REQUEST, "",
		"header fields as the client sent them: `request.headers['x-team']`, names in any "
		"case; unknown where one is there twice", REQUEST(head)},
	[FACT_REQUEST_MESSAGES] = {"request.messages", FACTS_INT, FACTS_OF_REQUEST, "messages",
		"how many, of `/v1/responses` input items; unknown where the API has none",
		REQUEST(messages)},
	[FACT_REQUEST_TOOLS] = {"request.tools", FACTS_INT, FACTS_OF_REQUEST, "tools",
		"how many it offers to the model", REQUEST(tools)},
	[FACT_REQUEST_PRIORITY] = {"request.priority", FACTS_INT, FACTS_OF_REQUEST, "",
		"its tenant's; more goes first",
		REQUEST(priority)},
	[FACT_CANDIDATE_KIND] = {"candidate.kind", FACTS_CHOICE, FACTS_STATIC, "",
		"one of ours, or somebody else's service", CHOICE(kind, kind_name)},
	[FACT_CANDIDATE_NAME] = {"candidate.name", FACTS_STRING, FACTS_STATIC, "",
		"the member's or the provider's name", CANDIDATE(name)},
	[FACT_CANDIDATE_POOL] = {"candidate.pool", FACTS_STRING, FACTS_STATIC, "",
		"InferencePool by which it is a candidate; `''`: it is a provider",
		NAMED(candidate, pool, FACTS_POOLS)},
	[FACT_CANDIDATE_PROVIDER] = {"candidate.provider", FACTS_STRING, FACTS_STATIC, "",
		"InferenceProvider; `''`: it is a worker",
		NAMED(candidate, provider, FACTS_PROVIDERS)},
	[FACT_CANDIDATE_MODEL] = {"candidate.model", FACTS_STRING, FACTS_STATIC, "",
		"model name as the worker or provider calls it", CANDIDATE(model)},
	[FACT_CANDIDATE_LABELS] = {"candidate.labels", FACTS_LABELS, FACTS_STATIC, "",
		"metadata.labels of its worker set or provider: `candidate.labels['zone']`",
		CANDIDATE(labels)},
	[FACT_CANDIDATE_STATE] = {"candidate.state", FACTS_CHOICE, FACTS_DYNAMIC, "",
		"what its health probes amount to", CHOICE(state, state_name)},
	[FACT_CANDIDATE_CACHE_STATE] = {"candidate.cacheState", FACTS_CHOICE, FACTS_DYNAMIC, "",
		"how well its prefix cache is known", CHOICE(cache_state, cache_state_name)},
	[FACT_CANDIDATE_CACHED_TOKENS] = {"candidate.cachedTokens", FACTS_INT, FACTS_DYNAMIC,
		"tokens", "of this prompt, in its cache", CANDIDATE(cached_tokens)},
	[FACT_CANDIDATE_CACHED_SHARE] = {"candidate.cachedShare", FACTS_DOUBLE, FACTS_DYNAMIC,
		"0..1", "of this prompt, in its cache", CANDIDATE(cached_share)},
	[FACT_CANDIDATE_WAITING] = {"candidate.waiting", FACTS_INT, FACTS_DYNAMIC, "requests",
		"that we sent and that have no first byte, less what it computes, and those of "
		"others that wait there", CANDIDATE(waiting)},
	[FACT_CANDIDATE_SCRAPED_WAITING] = {"candidate.scraped.waiting", FACTS_INT, FACTS_DYNAMIC,
		"requests", "what its metrics page says, alone", CANDIDATE(scraped_waiting)},
	[FACT_CANDIDATE_RUNNING] = {"candidate.running", FACTS_INT, FACTS_DYNAMIC, "requests",
		"that it computes or answers", CANDIDATE(running)},
	[FACT_CANDIDATE_PENDING_TOKENS] = {"candidate.pendingTokens", FACTS_INT, FACTS_DYNAMIC,
		"tokens", "of prompts that it must compute before this one",
		CANDIDATE(pending_tokens)},
	[FACT_CANDIDATE_KV_USAGE] = {"candidate.kvUsage", FACTS_DOUBLE, FACTS_DYNAMIC, "0..1",
		"of its KV cache, held by live requests; unknown of providers",
		CANDIDATE(kv_usage)},
	[FACT_CANDIDATE_PREDICTED_TTFT] = {"candidate.predictedTTFT", FACTS_DOUBLE, FACTS_DYNAMIC,
		"s", "until the first token, as predicted; may be compared with a duration",
		CANDIDATE(predicted_ttft_s)},
	[FACT_CANDIDATE_COST] = {"candidate.cost", FACTS_DOUBLE, FACTS_DYNAMIC, "money",
		"of this request, in the unit of the prices; unknown without a price",
		CANDIDATE(cost)},
	[FACT_POOL_READY] = {"pool[].ready", FACTS_INT, FACTS_POOL, "workers", "that are up",
		POOL(ready)},
	[FACT_POOL_WAITING] = {"pool[].waiting", FACTS_INT, FACTS_POOL, "requests",
		"that wait, all its workers together", POOL(waiting)},
	[FACT_POOL_KV_USAGE] = {"pool[].kvUsage", FACTS_DOUBLE, FACTS_POOL, "0..1",
		"mean over its workers that are up", POOL(kv_usage)},
};

const struct fact_row *
facts_table(void)
{
	return table;
}

uint64_t
facts_of(unsigned classes)
{
	uint64_t set = 0;

	for (unsigned i = 0; i < FACTS; i++)
		if (table[i].class & classes)
			set |= 1ull << i;
	return set;
}

void
facts_request_init(struct facts_request *r)
{
	*r = (struct facts_request){
		.tags_unknown = UINT64_MAX,
		.prompt_tokens = FACTS_INT_UNKNOWN,
		.max_tokens = FACTS_INT_UNKNOWN,
		.messages = FACTS_INT_UNKNOWN,
		.tools = FACTS_INT_UNKNOWN,
		.priority = FACTS_INT_UNKNOWN,
		.stream = -1,
	};
}

void
facts_candidate_init(struct facts_candidate *c)
{
	*c = (struct facts_candidate){
		.pool_index = UINT32_MAX,
		.kind = FACTS_CHOICE_UNKNOWN,
		.state = FACTS_CHOICE_UNKNOWN,
		.cache_state = FACTS_CHOICE_UNKNOWN,
		.cached_tokens = FACTS_INT_UNKNOWN,
		.cached_share = NAN,
		.waiting = FACTS_INT_UNKNOWN,
		.scraped_waiting = FACTS_INT_UNKNOWN,
		.running = FACTS_INT_UNKNOWN,
		.pending_tokens = FACTS_INT_UNKNOWN,
		.kv_usage = NAN,
		.predicted_ttft_s = NAN,
		.cost = NAN,
	};
}

void
facts_pool_init(struct facts_pool *p)
{
	*p = (struct facts_pool){
		.ready = FACTS_INT_UNKNOWN, .waiting = FACTS_INT_UNKNOWN, .kv_usage = NAN,
	};
}

int
facts_header(const struct http1_head *head, const char *lower, struct slice *ret_value)
{
	int found = 0;

	if (!head)
		return -1;
	for (unsigned i = 0; i < head->n_headers; i++)
		if (http1_name_eq(head->headers[i].name, lower)) {
			if (found)
				return -1;
			*ret_value = head->headers[i].value;
			found = 1;
		}
	return found;
}
