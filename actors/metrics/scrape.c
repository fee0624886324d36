/* actors/metrics/scrape.c -- metrics page to readings; rules in scrape.h. */
#include "actors/metrics/scrape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/prometheus.h"

#define LABEL_MAX 256u

static bool
label_u32(const struct prometheus_sample *sample, const char *name, uint32_t *ret)
{
	char text[LABEL_MAX], *end;

	if (prometheus_label_get(sample, name, text, sizeof text) <= 0 || text[0] < '0' ||
	    text[0] > '9')
		return false;
	unsigned long n = strtoul(text, &end, 10);

	if (*end != '\0' || n > UINT32_MAX)
		return false;
	*ret = (uint32_t)n;
	return true;
}

static struct scrape_series *
series_of(struct scrape *s, const struct prometheus_sample *sample)
{
	char text[LABEL_MAX];
	uint32_t engine = 0;
	uint64_t model = 0;
	int n = prometheus_label_get(sample, "model_name", text, sizeof text);

	if (n > 0)
		model = XXH3_64bits(text, (size_t)n);
	label_u32(sample, "engine", &engine);
	for (unsigned i = 0; i < s->n; i++)
		if (s->series[i].engine == engine && s->series[i].model == model)
			return &s->series[i];
	if (s->n == SCRAPE_SERIES) {
		s->truncated = true;
		return NULL;
	}
	s->series[s->n] = (struct scrape_series){.engine = engine, .model = model};
	return &s->series[s->n++];
}

static void
gauge(struct scrape *s, const struct prometheus_sample *sample, enum scrape_gauge which)
{
	struct scrape_series *series = series_of(s, sample);
	char pid[LABEL_MAX];
	uint8_t bit = (uint8_t)(1u << which);

	if (!series)
		return;
	if (!sample->finite || sample->value < 0) {
		series->bad |= bit;
		return;
	}
	if (!(series->seen & bit) || prometheus_label_get(sample, "pid", pid, sizeof pid) <= 0 ||
	    sample->value > series->value[which])
		series->value[which] = sample->value;
	series->seen |= bit;
}

static void
cache_config(struct scrape *s, const struct prometheus_sample *sample)
{
	struct scrape_series *series = series_of(s, sample);

	if (!series)
		return;
	label_u32(sample, "block_size", &series->block_tokens);
	label_u32(sample, "num_gpu_blocks",
		  &series->num_blocks); /* "None" before the engine is up */
}

static void
sleep_state(struct scrape *s, const struct prometheus_sample *sample)
{
	struct scrape_series *series;
	char state[LABEL_MAX];

	if (!sample->finite ||
	    prometheus_label_get(sample, "sleep_state", state, sizeof state) <= 0 ||
	    strcmp(state, "awake") != 0 || !(series = series_of(s, sample)))
		return;
	series->asleep = sample->value == 0;
}

static void
on_sample(void *arg, const struct prometheus_sample *sample)
{
	struct scrape *s = arg;

	if (prometheus_name_is(sample, "vllm:num_requests_waiting"))
		gauge(s, sample, SCRAPE_WAITING);
	else if (prometheus_name_is(sample, "vllm:num_requests_running"))
		gauge(s, sample, SCRAPE_RUNNING);
	else if (prometheus_name_is(sample, "vllm:kv_cache_usage_perc"))
		gauge(s, sample, SCRAPE_KV);
	else if (prometheus_name_is(sample, "vllm:gpu_cache_usage_perc"))
		gauge(s, sample, SCRAPE_KV_OLD);
	else if (prometheus_name_is(sample, "vllm:cache_config_info"))
		cache_config(s, sample);
	else if (prometheus_name_is(sample, "vllm:engine_sleep_state"))
		sleep_state(s, sample);
	else if (prometheus_name_is(sample, "process_start_time_seconds") && sample->finite &&
		 sample->value > 0 && sample->value < 1e10)
		s->start = (wall_ns)(sample->value * 1e9);
}

void
scrape_page(const char *page, size_t len, struct scrape *ret)
{
	struct prometheus_stats stats;

	memset(ret, 0, sizeof *ret);
	prometheus_parse(page, len, on_sample, ret, &stats);
	ret->samples = stats.samples;
	ret->failed = stats.failed;
	ret->truncated |= stats.truncated;
}

struct sum {
	double value;
	unsigned n;
	bool bad; /* one part is unknown, so the whole is */
};

static struct sum
sum_of(const struct scrape *s, uint16_t rank, uint32_t ranks, enum scrape_gauge which)
{
	struct sum sum = {0};

	for (unsigned i = 0; i < s->n; i++) {
		const struct scrape_series *series = &s->series[i];

		if (ranks > 1 && series->engine != rank)
			continue;
		if (series->bad >> which & 1)
			sum.bad = true;
		if (series->seen >> which & 1) {
			sum.value += series->value[which];
			sum.n++;
		}
	}
	return sum;
}

static uint32_t
whole(double value)
{
	return value >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)lrint(value);
}

static void
count_known(struct sum sum, uint32_t bit, uint32_t *ret_known, uint32_t *ret_value)
{
	if (sum.n == 0 || sum.bad)
		return;
	*ret_known |= bit;
	*ret_value = whole(sum.value);
}

void
scrape_reading(const struct scrape *s, uint16_t rank, uint32_t ranks, struct row_reading *ret,
	       bool *ret_asleep)
{
	struct sum kv = sum_of(s, rank, ranks, SCRAPE_KV);

	if (kv.n == 0 && !kv.bad)
		kv = sum_of(s, rank, ranks, SCRAPE_KV_OLD);
	ret->known = 0;
	*ret_asleep = false;
	count_known(sum_of(s, rank, ranks, SCRAPE_WAITING), KNOWN_WAITING, &ret->known,
		    &ret->waiting);
	count_known(sum_of(s, rank, ranks, SCRAPE_RUNNING), KNOWN_RUNNING, &ret->known,
		    &ret->running);
	if (kv.n > 0 && !kv.bad) {
		double mean = kv.value / kv.n;

		ret->known |= KNOWN_KV_USAGE;
		ret->kv_usage = (float)(mean > 1 ? 1 : mean);
	}
	uint64_t blocks = 0;

	for (unsigned i = 0; i < s->n; i++) {
		const struct scrape_series *series = &s->series[i];

		if (ranks > 1 && series->engine != rank)
			continue;
		if (series->block_tokens != 0) {
			ret->known |= KNOWN_BLOCK_TOKENS;
			ret->block_tokens = series->block_tokens;
		}
		blocks += series->num_blocks;
		*ret_asleep |= series->asleep;
	}
	if (blocks > 0) {
		ret->known |= KNOWN_NUM_BLOCKS;
		ret->num_blocks = blocks > UINT32_MAX ? UINT32_MAX : (uint32_t)blocks;
	}
	if (s->start != 0) {
		ret->known |= KNOWN_ENGINE_START;
		ret->start_lo = (uint32_t)s->start;
		ret->start_hi = (uint32_t)(s->start >> 32);
	}
}
