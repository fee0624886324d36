/* actors/common/scrape.c -- metrics page to readings; rules in scrape.h. */
#include "actors/common/scrape.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LABEL_MAX 256u
#define COUNT_MOST 1e9   /* more requests, blocks or tokens than this are no number to go by */
#define SHARE_MOST 1.05  /* a share that is rounded up, and no percentage */

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

static bool
label_is(const struct prometheus_label *l, const char *name)
{
	return l->name_len == strlen(name) && memcmp(l->name, name, l->name_len) == 0;
}

/* What a sample's labels say of whose it is. */
struct whose {
	uint64_t key;                           /* of its series */
	uint64_t labels;                        /* of all */
	uint32_t rank;
	bool part;                              /* of one priority: the total is elsewhere */
};

static struct whose
whose(const struct prometheus_sample *sample)
{
	static const char *const keys[] = {"engine",     "dp_rank",     "model_name", "model",
					   "version",    "engine_type"};
	struct whose w = {0};
	struct prometheus_label l;
	size_t pos = 0;

	while (prometheus_label_next(sample, &pos, &l)) {
		uint64_t hash = XXH3_64bits_withSeed(l.value, l.value_len,
						     XXH3_64bits(l.name, l.name_len));

		w.labels += hash;               /* in any order */
		for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
			if (label_is(&l, keys[i]))
				w.key += hash;
		if (label_is(&l, "priority") && l.value_len > 0)
			w.part = true;
	}
	if (!label_u32(sample, "engine", &w.rank))
		label_u32(sample, "dp_rank", &w.rank);
	return w;
}

static struct scrape_series *
series_of(struct scrape *s, const struct whose *w)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->series[i].key == w->key)
			return &s->series[i];
	if (s->n == SCRAPE_SERIES)
		return NULL;
	s->series[s->n] = (struct scrape_series){.key = w->key, .rank = w->rank};
	return &s->series[s->n++];
}

/* The gauge has more series than we can keep: its sums would lack a part. */
static void
overflow(struct scrape *s, enum scrape_gauge gauge)
{
	s->truncated = true;
	s->overflow |= (uint16_t)(1u << gauge);
}

static bool
sensible(enum scrape_gauge gauge, const struct prometheus_sample *sample)
{
	double most = gauge == SCRAPE_KV || gauge == SCRAPE_KV_ELSE ? SHARE_MOST : COUNT_MOST;

	return sample->finite && sample->value >= 0 && sample->value <= most;
}

static void
gauge_note(struct scrape *s, const struct prometheus_sample *sample, enum scrape_gauge gauge)
{
	struct whose w = whose(sample);
	struct scrape_series *series;
	struct scrape_sample *to = NULL;

	if (w.part || (s->overflow >> gauge & 1))
		return;
	series = series_of(s, &w);
	if (!series) {
		overflow(s, gauge);
		return;
	}
	uint8_t id = (uint8_t)(series - s->series);

	for (unsigned i = 0; i < s->n_samples; i++) {
		struct scrape_sample *have = &s->sample[i];

		if (have->gauge != gauge || have->series != id)
			continue;
		if (have->labels == w.labels)
			to = have;
		else
			s->several = true;
	}
	if (to) {
		s->duplicates++;
	} else if (s->n_samples < SCRAPE_SAMPLES) {
		to = &s->sample[s->n_samples++];
	} else {
		overflow(s, gauge);
		return;
	}
	*to = (struct scrape_sample){
		.labels = w.labels, .value = sample->value, .line = sample->line, .series = id,
		.gauge = (uint8_t)gauge, .bad = !sensible(gauge, sample),
	};
}

/* num_gpu_blocks is "None" before the engine is up, and of one group only where there are several:
 * kv_cache_size_tokens, where it is said, is of all. */
static void
config_note(struct scrape *s, const struct prometheus_sample *sample)
{
	struct whose w = whose(sample);
	uint32_t rank = w.rank, tokens;

	/* Its labels are values, but for the rank: it belongs to the rank's first series. */
	struct scrape_series *series = NULL;

	for (unsigned i = 0; i < s->n && !series; i++)
		if (s->series[i].rank == rank)
			series = &s->series[i];
	if (!series)
		series = series_of(s, &w);
	if (!series)
		return;
	series->config_line = sample->line;
	label_u32(sample, "block_size", &series->block_tokens);
	label_u32(sample, "num_gpu_blocks", &series->num_blocks);
	if (series->block_tokens > 0 && label_u32(sample, "kv_cache_size_tokens", &tokens))
		series->num_blocks = tokens / series->block_tokens;
}

enum { NOT_AWAKE = 1, AWAKE = 2, SLEEPS = 4 };

static void
sleep_note(struct scrape *s, const struct prometheus_sample *sample)
{
	struct whose w = whose(sample);
	struct scrape_series *series;
	char state[LABEL_MAX];

	if (!sample->finite ||
	    prometheus_label_get(sample, "sleep_state", state, sizeof state) <= 0)
		return;
	bool awake = strcmp(state, "awake") == 0;

	if (!awake && sample->value == 0)
		return;
	if (!(series = series_of(s, &w)))
		return;
	series->sleep |= !awake ? SLEEPS : sample->value == 0 ? NOT_AWAKE : AWAKE;
	series->sleep_line = sample->line;
}

/* Of several API servers, those that never heard of it say 0 of every state. */
static bool
is_asleep(const struct scrape_series *series)
{
	return (series->sleep & SLEEPS) || series->sleep == NOT_AWAKE;
}

static void
on_sample(void *arg, const struct prometheus_sample *sample)
{
	struct scrape *s = arg;
	enum scrape_gauge gauge = scrape_label_of(sample, s->last);

	switch (gauge) {
	case SCRAPE_CONFIG:
		config_note(s, sample);
		break;
	case SCRAPE_SLEEP:
		sleep_note(s, sample);
		break;
	case SCRAPE_START:
		if (sample->finite && sample->value > 0 && sample->value < 1e10) {
			s->start = (wall_ns)(sample->value * 1e9);
			s->start_line = sample->line;
		}
		break;
	case SCRAPE_OF_ENGINE:
	case SCRAPE_NONE:
		break;
	default:
		gauge_note(s, sample, gauge);
	}
}

static bool
on_line(void *arg, const char *line, size_t len)
{
	struct scrape *s = arg;
	enum manifest_engine engine;

	bool open = s->engine == 0 || (s->any_engine && s->engine == MANIFEST_ENGINE_VLLM);

	s->last = scrape_gauge_of(line, len, open ? 0 : s->engine, &engine);
	if (engine == 0)
		return s->last != SCRAPE_NONE;
	/* Triton's page may begin with what it passes on of vLLM. */
	if (s->engine == 0 || (open && engine == MANIFEST_ENGINE_TRITON))
		s->engine = engine;
	else if (open && engine != s->engine)
		s->last = SCRAPE_NONE;
	s->of_engine = true;
	return s->last != SCRAPE_NONE;
}

void
scrape_begin(struct scrape *s, enum manifest_engine engine)
{
	s->engine = engine;
	s->any_engine = engine == 0;
	s->n = s->n_samples = 0;
	s->overflow = s->cut = 0;
	s->start = 0;
	s->start_line = 0;
	s->last = SCRAPE_NONE;
	s->samples = s->failed = s->duplicates = 0;
	s->of_engine = s->several = s->truncated = false;
	prometheus_begin(&s->reader, on_sample, s);
	s->reader.want = on_line;
}

void
scrape_feed(struct scrape *s, const char *bytes, size_t len)
{
	prometheus_feed(&s->reader, bytes, len);
}

void
scrape_end(struct scrape *s, bool openmetrics)
{
	struct prometheus_reader *r = &s->reader;

	prometheus_end(r);
	s->samples = r->stats.samples;
	s->failed = r->stats.failed;
	if (r->held > 0 && r->stats.truncated)
		s->cut = scrape_cut_of(r->hold, r->held, s->engine);
	else if (openmetrics && !r->stats.eof && s->last < SCRAPE_GAUGES)
		s->cut = (uint16_t)(1u << s->last);
	s->truncated |= r->stats.truncated || (openmetrics && !r->stats.eof);
}

void
scrape_page(const char *page, size_t len, enum manifest_engine engine, struct scrape *ret)
{
	scrape_begin(ret, engine);
	scrape_feed(ret, page, len);
	scrape_end(ret, false);
}

/* ---- readings ---- */

struct sum {
	double value, largest;
	unsigned n;
	bool bad; /* one part is unknown, so the whole is */
};

bool
scrape_is_of(const struct scrape_series *series, uint16_t rank, uint32_t ranks)
{
	return ranks <= 1 || series->rank == rank;
}

/* One series' gauge is the largest of its samples. */
static struct sum
sum_of(const struct scrape *s, uint16_t rank, uint32_t ranks, enum scrape_gauge gauge)
{
	double largest[SCRAPE_SERIES];
	uint8_t seen[SCRAPE_SERIES] = {0};      /* 1: a number, 2: none */
	struct sum sum = {.bad = ((s->cut | s->overflow) >> gauge & 1) != 0};

	for (unsigned i = 0; i < s->n_samples; i++) {
		const struct scrape_sample *one = &s->sample[i];
		unsigned id = one->series;

		if (one->gauge != gauge || !scrape_is_of(&s->series[id], rank, ranks))
			continue;
		if (one->bad) {
			seen[id] |= 2;
			continue;
		}
		if (!(seen[id] & 1) || one->value > largest[id])
			largest[id] = one->value;
		seen[id] |= 1;
	}
	for (unsigned i = 0; i < s->n; i++) {
		if (seen[i] == 2)
			sum.bad = true;
		if (!(seen[i] & 1))
			continue;
		sum.value += largest[i];
		if (sum.n++ == 0 || largest[i] > sum.largest)
			sum.largest = largest[i];
	}
	return sum;
}

static struct sum
sum_or(const struct scrape *s, uint16_t rank, uint32_t ranks, enum scrape_gauge gauge,
       enum scrape_gauge otherwise)
{
	struct sum sum = sum_of(s, rank, ranks, gauge);

	return sum.n == 0 && !sum.bad ? sum_of(s, rank, ranks, otherwise) : sum;
}

static bool
known(const struct sum *sum)
{
	return sum->n > 0 && !sum->bad;
}

static void
count_known(struct sum sum, uint32_t bit, uint32_t *ret_known, uint32_t *ret_value)
{
	if (!known(&sum))
		return;
	*ret_known |= bit;
	*ret_value = sum.value >= COUNT_MOST ? (uint32_t)COUNT_MOST : (uint32_t)lrint(sum.value);
}

static void
blocks_known(const struct scrape *s, uint16_t rank, uint32_t ranks, struct row_reading *ret)
{
	struct sum size = sum_of(s, rank, ranks, SCRAPE_BLOCK);
	struct sum blocks = sum_of(s, rank, ranks, SCRAPE_BLOCKS);
	struct sum tokens = sum_of(s, rank, ranks, SCRAPE_TOKENS);

	for (unsigned i = 0; i < s->n; i++) {
		const struct scrape_series *series = &s->series[i];

		if (!scrape_is_of(series, rank, ranks))
			continue;
		if (series->block_tokens != 0)
			size = (struct sum){.n = 1, .largest = series->block_tokens};
		if (series->num_blocks != 0) {
			blocks.value += series->num_blocks;
			blocks.n++;
		}
	}
	if (known(&size) && size.largest >= 1) {
		ret->known |= KNOWN_BLOCK_TOKENS;
		ret->block_tokens = (uint32_t)lrint(size.largest);
	}
	if (!known(&blocks) && known(&tokens) && (ret->known & KNOWN_BLOCK_TOKENS))
		blocks = (struct sum){.n = 1, .value = floor(tokens.value / ret->block_tokens)};
	if (!known(&blocks))
		blocks = sum_of(s, rank, ranks, SCRAPE_BLOCKS_ELSE);
	if (blocks.value > 0)
		count_known(blocks, KNOWN_NUM_BLOCKS, &ret->known, &ret->num_blocks);
}

void
scrape_reading(const struct scrape *s, uint16_t rank, uint32_t ranks, struct row_reading *ret,
	       bool *ret_asleep)
{
	struct sum kv = sum_or(s, rank, ranks, SCRAPE_KV, SCRAPE_KV_ELSE);
	struct sum length = sum_of(s, rank, ranks, SCRAPE_LENGTH);

	ret->known = 0;
	*ret_asleep = false;
	count_known(sum_or(s, rank, ranks, SCRAPE_WAITING, SCRAPE_WAITING_ELSE), KNOWN_WAITING,
		    &ret->known, &ret->waiting);
	count_known(sum_of(s, rank, ranks, SCRAPE_RUNNING), KNOWN_RUNNING, &ret->known,
		    &ret->running);
	if (known(&kv)) {
		double mean = kv.value / kv.n;

		ret->known |= KNOWN_KV_USAGE;
		ret->kv_usage = (float)(mean > 1 ? 1 : mean);
	}
	blocks_known(s, rank, ranks, ret);
	if (known(&length) && length.largest >= 1) {
		ret->known |= KNOWN_MAX_MODEL_LEN;
		ret->max_model_len = (uint32_t)lrint(length.largest);
	}
	for (unsigned i = 0; i < s->n; i++)
		if (scrape_is_of(&s->series[i], rank, ranks))
			*ret_asleep |= is_asleep(&s->series[i]);
	if (s->start != 0) {
		ret->known |= KNOWN_ENGINE_START;
		ret->start_lo = (uint32_t)s->start;
		ret->start_hi = (uint32_t)(s->start >> 32);
	}
}

enum row_why
scrape_why(const struct scrape *s)
{
	return s->samples == 0 ? WHY_NO_SAMPLES
	       : !s->of_engine ? WHY_NO_SERIES
	       : s->truncated  ? WHY_IN_PART
			       : WHY_OK;
}

bool
scrape_asleep(const struct scrape *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (is_asleep(&s->series[i]))
			return true;
	return false;
}

uint32_t
scrape_models(const char *json, size_t len, const char *model)
{
	json_t *o = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL), *one;
	json_int_t max = 0;
	size_t i;

	json_array_foreach(json_object_get(o, "data"), i, one) {
		const char *id = json_string_value(json_object_get(one, "id"));

		if (id && strcmp(id, model) == 0)
			max = json_integer_value(json_object_get(one, "max_model_len"));
	}
	json_decref(o);
	return max > 0 && max < UINT32_MAX ? (uint32_t)max : 0;
}
