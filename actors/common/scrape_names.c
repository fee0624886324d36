/* actors/common/scrape_names.c -- which series of which engine says what. */
#include <string.h>

#include "actors/common/scrape.h"

#define VLLM   MANIFEST_ENGINE_VLLM
#define SGLANG MANIFEST_ENGINE_SGLANG
#define TRTLLM MANIFEST_ENGINE_TRTLLM
#define TRITON MANIFEST_ENGINE_TRITON

struct name {
	const char *text;
	size_t len;
	enum manifest_engine engine;
	enum scrape_gauge gauge;
};

#define NAME(text, engine, gauge) {text, sizeof text - 1, engine, gauge}

/* SCRAPE_OF_ENGINE in a row of a family with a label: scrape_label_of says which gauge it is. */
static const struct name names[] = {
	NAME("vllm:num_requests_waiting", VLLM, SCRAPE_WAITING),
	NAME("vllm:num_requests_running", VLLM, SCRAPE_RUNNING),
	NAME("vllm:kv_cache_usage_perc", VLLM, SCRAPE_KV),       /* from 0.9.2 */
	NAME("vllm:gpu_cache_usage_perc", VLLM, SCRAPE_KV_ELSE), /* until 0.11 */
	NAME("vllm:cache_config_info", VLLM, SCRAPE_CONFIG),     /* not of the Rust front end */
	NAME("vllm:engine_sleep_state", VLLM, SCRAPE_SLEEP),     /* from 0.11.1, nor there */

	NAME("sglang:num_queue_reqs", SGLANG, SCRAPE_WAITING),
	NAME("sglang:num_running_reqs", SGLANG, SCRAPE_RUNNING),
	NAME("sglang:token_usage", SGLANG, SCRAPE_KV),
	NAME("sglang:page_size", SGLANG, SCRAPE_BLOCK),
	NAME("sglang:num_pages", SGLANG, SCRAPE_BLOCKS_ELSE),
	NAME("sglang:max_total_num_tokens", SGLANG, SCRAPE_TOKENS),
	NAME("sglang:context_len", SGLANG, SCRAPE_LENGTH),

	NAME("trtllm_num_requests_waiting", TRTLLM, SCRAPE_WAITING),
	NAME("trtllm:num_requests_waiting", TRTLLM, SCRAPE_WAITING), /* so through others' hands */
	NAME("trtllm_num_requests_running", TRTLLM, SCRAPE_RUNNING),
	NAME("trtllm:num_requests_running", TRTLLM, SCRAPE_RUNNING),
	NAME("trtllm_kv_cache_utilization", TRTLLM, SCRAPE_KV),
	NAME("trtllm:kv_cache_utilization", TRTLLM, SCRAPE_KV),
	NAME("trtllm_kv_cache_tokens_per_block", TRTLLM, SCRAPE_BLOCK),
	NAME("trtllm:kv_cache_tokens_per_block", TRTLLM, SCRAPE_BLOCK),
	NAME("trtllm_kv_cache_max_blocks", TRTLLM, SCRAPE_BLOCKS),
	NAME("trtllm:kv_cache_max_blocks", TRTLLM, SCRAPE_BLOCKS),

	NAME("nv_trt_llm_request_metrics", TRITON, SCRAPE_OF_ENGINE),
	NAME("nv_trt_llm_kv_cache_block_metrics", TRITON, SCRAPE_OF_ENGINE),
	NAME("nv_inference_pending_request_count", TRITON, SCRAPE_WAITING_ELSE),
};
#define NAMES (sizeof names / sizeof names[0])

static const struct {
	const char *prefix;
	size_t len;
	enum manifest_engine engine;
} families[] = {
#define FAMILY(prefix, engine) {prefix, sizeof prefix - 1, engine}
	FAMILY("vllm:", VLLM),
	FAMILY("sglang:", SGLANG),
	FAMILY("trtllm_", TRTLLM),
	FAMILY("trtllm:", TRTLLM),
	FAMILY("nv_inference_", TRITON),
	FAMILY("nv_trt_llm_", TRITON),
};
#define FAMILIES (sizeof families / sizeof families[0])

static const struct {
	const char *label, *value;
	enum scrape_gauge gauge;
} triton_gauges[] = {
	{"request_type", "waiting", SCRAPE_WAITING},
	{"request_type", "scheduled", SCRAPE_RUNNING},
	{"kv_cache_block_type", "fraction", SCRAPE_KV},
	{"kv_cache_block_type", "tokens_per", SCRAPE_BLOCK},
	{"kv_cache_block_type", "max", SCRAPE_BLOCKS},
};

static bool
ends_name(char c)
{
	return c == '{' || c == ' ' || c == '\t';
}

static size_t
name_len(const char *line, size_t len)
{
	size_t n = 0;

	while (n < len && !ends_name(line[n]))
		n++;
	return n;
}

/* Triton passes vLLM's own series on. */
static bool
speaks(enum manifest_engine engine, enum manifest_engine of)
{
	return engine == 0 || engine == of || (engine == TRITON && of == VLLM);
}

enum scrape_gauge
scrape_gauge_of(const char *line, size_t len, enum manifest_engine engine,
		enum manifest_engine *ret_engine)
{
	static const char start[] = "process_start_time_seconds";

	*ret_engine = 0;
	if (len < 8)
		return SCRAPE_NONE;
	if (line[0] == 'p')
		return len >= sizeof start && memcmp(line, start, sizeof start - 1) == 0 &&
				       name_len(line, len) == sizeof start - 1
			       ? SCRAPE_START
			       : SCRAPE_NONE;
	for (size_t f = 0; f < FAMILIES && *ret_engine == 0; f++)
		if (line[0] == families[f].prefix[0] && len > families[f].len &&
		    memcmp(line, families[f].prefix, families[f].len) == 0 &&
		    speaks(engine, families[f].engine))
			*ret_engine = families[f].engine;
	if (*ret_engine == 0)
		return SCRAPE_NONE;
	/* Most lines are of no use: their names end elsewhere. */
	for (size_t i = 0; i < NAMES; i++) {
		size_t n = names[i].len;

		if (names[i].engine == *ret_engine && len > n && ends_name(line[n]) &&
		    memcmp(names[i].text, line, n) == 0)
			return names[i].gauge;
	}
	return SCRAPE_NONE;
}

enum scrape_gauge
scrape_label_of(const struct prometheus_sample *sample, enum scrape_gauge gauge)
{
	char text[32];

	if (gauge != SCRAPE_OF_ENGINE)
		return gauge;
	for (size_t i = 0; i < sizeof triton_gauges / sizeof triton_gauges[0]; i++)
		if (prometheus_label_get(sample, triton_gauges[i].label, text, sizeof text) > 0 &&
		    strcmp(text, triton_gauges[i].value) == 0)
			return triton_gauges[i].gauge;
	return SCRAPE_NONE;
}

static uint16_t
bits_of(const struct name *name)
{
	uint16_t bits = 0;

	if (name->gauge < SCRAPE_GAUGES)
		return (uint16_t)(1u << name->gauge);
	if (name->engine == TRITON)
		for (size_t i = 0; i < sizeof triton_gauges / sizeof triton_gauges[0]; i++)
			bits |= (uint16_t)(1u << triton_gauges[i].gauge);
	return bits;
}

uint16_t
scrape_cut_of(const char *line, size_t len, enum manifest_engine engine)
{
	size_t n = name_len(line, len);
	uint16_t bits = 0;

	for (size_t i = 0; i < NAMES; i++) {
		size_t whole = names[i].len;

		if (speaks(engine, names[i].engine) && (n == len ? n <= whole : n == whole) &&
		    memcmp(names[i].text, line, n) == 0)
			bits |= bits_of(&names[i]);
	}
	return bits;
}
