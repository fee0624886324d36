/* tests/emulator/exposition.c -- see exposition.h. */
#include "tests/emulator/exposition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bounds {
	unsigned n;
	double le[HISTOGRAM_MAX_BUCKETS];
};

static const struct bounds ttft_bounds = {
	22, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
	     160, 640, 2560}};
static const struct bounds itl_bounds = {
	19, {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}};
static const struct bounds request_bounds = {
	21, {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
	     7680}};
static const struct bounds token_bounds = {
	15, {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000}};
static const struct bounds iteration_bounds = {
	15, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}};

static void
observe(struct histogram *hist, const struct bounds *bounds, double value)
{
	unsigned i = 0;

	while (i < bounds->n && value > bounds->le[i])
		i++;
	hist->count[i]++;
	hist->n++;
	hist->sum += value;
}

void
exposition_token(struct exposition *x, const struct worker_job *job, double now_s, double last_s)
{
	x->generation_tokens++;
	if (job->visible == 1) {
		x->prompt_tokens += job->prompt_tokens;
		x->cached_tokens += job->hit_tokens;
		observe(&x->ttft, &ttft_bounds, now_s - job->received_s);
		observe(&x->queue, &request_bounds, job->scheduled_s - job->queued_s);
		observe(&x->prefill, &request_bounds, job->made_s - job->scheduled_s);
		observe(&x->computed, &token_bounds,
			(double)(job->prompt_tokens - job->hit_tokens));
	} else {
		observe(&x->itl, &itl_bounds, now_s - last_s);
	}
	if (job->finish != ENGINE_RUNNING) {
		x->finished[job->finish]++;
		observe(&x->e2e, &request_bounds, now_s - job->received_s);
	}
}

void
exposition_step(struct exposition *x, const struct engine_step *step)
{
	observe(&x->iteration, &iteration_bounds,
		(double)(step->prefill_tokens + step->decode_seqs));
}

void
exposition_abort(struct exposition *x)
{
	x->finished[ENGINE_FINISH_ABORT]++;
}

/* ---- the page ---- */

#define NEWEST 9999u

struct page {
	FILE *f;
	const struct exposition_page *p;
};

/* A family is there from one version to before another. */
static bool
there(const struct page *page, unsigned from, unsigned until)
{
	return page->p->engine != ENGINE_VLLM ||
	       (page->p->version >= from && page->p->version < until);
}

static const char *
prefix(const struct page *page)
{
	static const char *const prefixes[] = {
		[ENGINE_VLLM] = "vllm:", [ENGINE_SGLANG] = "sglang:", [ENGINE_TRTLLM] = "trtllm_"};

	return prefixes[page->p->engine];
}

/* A number as Python's client writes it (1.8432e+06, 3.0), or as Rust's (1843200, 3). */
static void
put_number(const struct page *page, double v)
{
	char text[40];
	char *dot;
	int digits = 15;

	do
		snprintf(text, sizeof text, "%.*g", digits, v);
	while (strtod(text, NULL) != v && ++digits <= 17);
	if (v == (double)(long long)v && v > -1e15 && v < 1e15)
		snprintf(text, sizeof text, page->p->openmetrics ? "%.0f" : "%.1f", v);
	dot = strchr(text, '.');
	if (!page->p->openmetrics && dot != NULL && strchr(text, 'e') == NULL && v > 0 &&
	    dot - text > 6) {
		long whole = dot - text, len = (long)strlen(text);

		memmove(text + 2, text + 1, (size_t)whole - 1);
		text[1] = '.';
		while (text[len - 1] == '0' || text[len - 1] == '.')
			len--;
		fprintf(page->f, "%.*se+%02ld", (int)len, text, whole - 1);
		return;
	}
	fputs(text, page->f);
}

/* Labels of a rank's series; key NULL: no further one. */
static void
put_labels(const struct page *page, unsigned i, const char *key, const char *value)
{
	const char *model = page->p->model;
	unsigned rank = page->p->first + i;
	char more[128] = "";

	if (key != NULL)
		snprintf(more, sizeof more, "%s=\"%s\",", key, value);
	switch (page->p->engine) {
	case ENGINE_VLLM:
		if (page->p->openmetrics && key != NULL && strcmp(key, "le") != 0)
			fprintf(page->f, "{model_name=\"%s\",engine=\"%u\",%s=\"%s\"} ", model,
				rank, key, value);
		else if (page->p->openmetrics)
			fprintf(page->f, "{%smodel_name=\"%s\",engine=\"%u\"} ", more, model, rank);
		else if (key == NULL || strcmp(key, "model_name") < 0)
			fprintf(page->f, "{engine=\"%u\",%smodel_name=\"%s\"} ", rank, more, model);
		else
			fprintf(page->f, "{engine=\"%u\",model_name=\"%s\",%s=\"%s\"} ", rank,
				model, key, value);
		break;
	case ENGINE_SGLANG:
		fputc('{', page->f);
		if (key != NULL && strcmp(key, "dp_rank") < 0)
			fputs(more, page->f);
		if (page->p->ranks > 1)
			fprintf(page->f, "dp_rank=\"%u\",", rank);
		fputs("engine_type=\"unified\",", page->f);
		if (key != NULL && strcmp(key, "dp_rank") > 0)
			fputs(more, page->f);
		fprintf(page->f, "model_name=\"%s\",moe_ep_rank=\"0\",pp_rank=\"0\","
			"tp_rank=\"0\"} ", model);
		break;
	case ENGINE_TRTLLM:
		fprintf(page->f, "{engine_type=\"unified\",%smodel_name=\"%s\"} ", more, model);
		break;
	}
}

/* name without _total; suffix: "" or "_total". */
static void
head(const struct page *page, const char *name, const char *suffix, const char *type,
     const char *doc)
{
	if (page->p->openmetrics)
		suffix = "";
	fprintf(page->f, "# HELP %s%s%s %s\n# TYPE %s%s%s %s\n", prefix(page), name, suffix, doc,
		prefix(page), name, suffix, type);
}

static void
put(const struct page *page, const char *name, const char *suffix, unsigned rank, const char *key,
    const char *value, double v)
{
	fprintf(page->f, "%s%s%s", prefix(page), name, suffix);
	put_labels(page, rank, key, value);
	put_number(page, v);
	fputc('\n', page->f);
}

typedef double value_f(const struct page *, const struct exposition_rank *);

static void
gauge(const struct page *page, const char *name, value_f *value, const char *doc)
{
	head(page, name, "", "gauge", doc);
	for (unsigned r = 0; r < page->p->ranks; r++)
		put(page, name, "", r, NULL, NULL, value(page, &page->p->rank[r]));
}

/* What Python's client says beside each counter and histogram: since when. */
static void
created(const struct page *page, const char *name, const char *doc)
{
	if (page->p->openmetrics || page->p->engine != ENGINE_VLLM)
		return;
	fprintf(page->f, "# HELP vllm:%s_created %s\n# TYPE vllm:%s_created gauge\n", name, doc,
		name);
	for (unsigned r = 0; r < page->p->ranks; r++)
		put(page, name, "_created", r, NULL, NULL, page->p->rank[r].x->start_time_s);
}

static void
counter(const struct page *page, const char *name, value_f *value, const char *doc)
{
	head(page, name, "_total", "counter", doc);
	for (unsigned r = 0; r < page->p->ranks; r++)
		put(page, name, "_total", r, NULL, NULL, value(page, &page->p->rank[r]));
	created(page, name, doc);
}

static void
histogram(const struct page *page, const char *name, size_t offset, const struct bounds *bounds,
	  const char *doc)
{
	head(page, name, "", "histogram", doc);
	for (unsigned r = 0; r < page->p->ranks; r++) {
		const struct histogram *hist = (const struct histogram *)
			((const char *)page->p->rank[r].x + offset);
		uint64_t n = 0;

		for (unsigned i = 0; i < bounds->n; i++) {
			char le[32];

			n += hist->count[i];
			snprintf(le, sizeof le, bounds->le[i] == (double)(long)bounds->le[i]
				 ? "%.1f" : "%g", bounds->le[i]);
			put(page, name, "_bucket", r, "le", le, (double)n);
		}
		put(page, name, "_bucket", r, "le", "+Inf", (double)hist->n);
		put(page, name, "_count", r, NULL, NULL, (double)hist->n);
		put(page, name, "_sum", r, NULL, NULL, hist->sum);
	}
	created(page, name, doc);
}

#define HISTOGRAM(page, name, field, bounds, doc) \
	histogram(page, name, offsetof(struct exposition, field), bounds, doc)

/* ---- values ---- */

#define VALUE(name, expression) \
	static double name(const struct page *page, const struct exposition_rank *rank) \
	{ \
		const struct engine_stats *e = &rank->stats.engine; \
		const struct exposition *x = rank->x; \
		(void)page, (void)e, (void)x; \
		return (double)(expression); \
	}

VALUE(running, e->running)
VALUE(waiting, e->waiting)
VALUE(usage, 1 - (double)e->free_blocks / e->num_blocks)
VALUE(queries, e->query_tokens)
VALUE(hits, e->hit_tokens)
VALUE(preemptions, e->preemptions)
VALUE(prompt_tokens, x->prompt_tokens)
VALUE(cached_tokens, x->cached_tokens)
VALUE(generation_tokens, x->generation_tokens)
VALUE(hit_rate, e->query_tokens > 0 ? (double)e->hit_tokens / (double)e->query_tokens : 0)
VALUE(max_tokens, (double)e->num_blocks * page->p->cfg->block_tokens)
VALUE(used_tokens, (double)(e->num_blocks - e->free_blocks) * page->p->cfg->block_tokens)
VALUE(block_tokens, page->p->cfg->block_tokens)
VALUE(num_blocks, e->num_blocks)
VALUE(free_blocks, e->free_blocks)
VALUE(used_blocks, e->num_blocks - e->free_blocks)
VALUE(finished, x->finished[1] + x->finished[2] + x->finished[3])
VALUE(overruns, rank->stats.overruns)
VALUE(steps, e->steps)

/* ---- vLLM ---- */

static void
finished_by_reason(const struct page *page)
{
	static const char *const reason[4] = {NULL, "length", "stop", "abort"};

	head(page, "request_success", "_total", "counter",
	     "Count of successfully processed requests.");
	for (unsigned r = 0; r < page->p->ranks; r++)
		for (unsigned i = ENGINE_FINISH_LENGTH; i <= ENGINE_FINISH_ABORT; i++)
			put(page, "request_success", "_total", r, "finished_reason", reason[i],
			    (double)page->p->rank[r].x->finished[i]);
}

static void
vllm_gauges(const struct page *page)
{
	static const char *const state[] = {"awake", "weights_offloaded", "discard_all"};

	gauge(page, "num_requests_running", running,
	      "Number of requests in model execution batches.");
	gauge(page, "num_requests_waiting", waiting,
	      "Number of requests waiting to be processed.");
	if (there(page, 2000, NEWEST)) {
		head(page, "num_requests_waiting_by_reason", "", "gauge",
		     "Number of waiting requests by reason.");
		for (unsigned r = 0; r < page->p->ranks; r++) {
			put(page, "num_requests_waiting_by_reason", "", r, "reason", "capacity",
			    page->p->rank[r].stats.engine.waiting);
			put(page, "num_requests_waiting_by_reason", "", r, "reason", "deferred", 0);
		}
	}
	if (there(page, 1101, NEWEST) && !page->p->openmetrics) {
		head(page, "engine_sleep_state", "", "gauge", "Engine sleep state.");
		for (unsigned r = 0; r < page->p->ranks; r++)
			for (unsigned i = 0; i < 3; i++)
				put(page, "engine_sleep_state", "", r, "sleep_state", state[i],
				    page->p->sleep_level == i);
	}
	if (there(page, 900, 1100))
		gauge(page, "gpu_cache_usage_perc", usage,
		      "GPU KV-cache usage. 1 means 100 percent usage.");
	if (there(page, 902, NEWEST))
		gauge(page, "kv_cache_usage_perc", usage,
		      "KV-cache usage. 1 means 100 percent usage.");
}

static void
vllm_counters(const struct page *page)
{
	if (there(page, 900, 1100)) {
		counter(page, "gpu_prefix_cache_queries", queries,
			"GPU prefix cache queries, in terms of number of queried tokens.");
		counter(page, "gpu_prefix_cache_hits", hits,
			"GPU prefix cache hits, in terms of number of cached tokens.");
	}
	if (there(page, 902, NEWEST)) {
		counter(page, "prefix_cache_queries", queries,
			"Prefix cache queries, in terms of number of queried tokens.");
		counter(page, "prefix_cache_hits", hits,
			"Prefix cache hits, in terms of number of cached tokens.");
	}
	counter(page, "num_preemptions", preemptions,
		"Cumulative number of preemption from the engine.");
	counter(page, "prompt_tokens", prompt_tokens, "Number of prefill tokens processed.");
	if (there(page, 1700, NEWEST)) {
		head(page, "prompt_tokens_by_source", "_total", "counter",
		     "Number of prompt tokens by source.");
		for (unsigned r = 0; r < page->p->ranks; r++) {
			const struct exposition *x = page->p->rank[r].x;

			put(page, "prompt_tokens_by_source", "_total", r, "source", "local_compute",
			    (double)(x->prompt_tokens - x->cached_tokens));
			put(page, "prompt_tokens_by_source", "_total", r, "source",
			    "local_cache_hit", (double)x->cached_tokens);
			put(page, "prompt_tokens_by_source", "_total", r, "source",
			    "external_kv_transfer", 0);
		}
		counter(page, "prompt_tokens_cached", cached_tokens,
			"Number of prompt tokens with prefix cache hits.");
	}
	counter(page, "generation_tokens", generation_tokens,
		"Number of generation tokens processed.");
	finished_by_reason(page);
}

static void
vllm_histograms(const struct page *page)
{
	HISTOGRAM(page, "time_to_first_token_seconds", ttft, &ttft_bounds,
		  "Histogram of time to first token in seconds.");
	if (there(page, 900, 1200))
		HISTOGRAM(page, "time_per_output_token_seconds", itl, &itl_bounds,
			  "Histogram of time per output token in seconds.");
	if (there(page, 1002, NEWEST))
		HISTOGRAM(page, "inter_token_latency_seconds", itl, &itl_bounds,
			  "Histogram of inter-token latency in seconds.");
	HISTOGRAM(page, "e2e_request_latency_seconds", e2e, &request_bounds,
		  "Histogram of e2e request latency in seconds.");
	HISTOGRAM(page, "request_queue_time_seconds", queue, &request_bounds,
		  "Histogram of time spent in WAITING phase for request.");
	HISTOGRAM(page, "request_prefill_time_seconds", prefill, &request_bounds,
		  "Histogram of time spent in PREFILL phase for request.");
	if (there(page, 1400, NEWEST))
		HISTOGRAM(page, "request_prefill_kv_computed_tokens", computed, &token_bounds,
			  "Histogram of new KV tokens computed during prefill.");
	if (!page->p->openmetrics)
		HISTOGRAM(page, "iteration_tokens_total", iteration, &iteration_bounds,
			  "Histogram of number of tokens per engine_step.");
}

static void
vllm_info(const struct page *page)
{
	const struct exposition_page *p = page->p;

	if (p->loras > 0) {
		head(page, "lora_requests_info", "", "gauge", "Running stats on lora requests.");
		fprintf(page->f, "vllm:lora_requests_info{%srunning_lora_adapters=\"",
			p->openmetrics ? "" : "max_lora=\"4\",");
		for (unsigned i = 0; i < p->loras; i++)
			fprintf(page->f, "%s%s", i > 0 ? "," : "", p->lora[i]);
		fprintf(page->f, "\",waiting_lora_adapters=\"\"} ");
		put_number(page, p->rank[0].x->start_time_s);
		fputc('\n', page->f);
	}
	if (p->openmetrics)
		return;
	head(page, "cache_config_info", "", "gauge", "Information of the LLMEngine CacheConfig");
	for (unsigned r = 0; r < p->ranks; r++)
		fprintf(page->f, "vllm:cache_config_info{block_size=\"%u\",enable_prefix_caching="
			"\"True\",engine=\"%u\",num_gpu_blocks=\"%u\"} 1.0\n", p->cfg->block_tokens,
			p->first + r, p->cfg->num_blocks);
}

/* ---- the others ---- */

static void
sglang_page(const struct page *page)
{
	gauge(page, "num_running_reqs", running, "The number of running requests.");
	gauge(page, "num_queue_reqs", waiting, "The number of requests in the waiting queue.");
	gauge(page, "token_usage", usage, "The token usage.");
	gauge(page, "cache_hit_rate", hit_rate, "The prefix cache hit rate.");
	gauge(page, "num_used_tokens", used_tokens, "The number of used tokens.");
	gauge(page, "max_total_num_tokens", max_tokens,
	      "Maximum total number of tokens in the KV cache pool.");
	gauge(page, "page_size", block_tokens, "KV cache page size in tokens.");
	gauge(page, "num_pages", num_blocks, "Number of KV cache pages.");
	counter(page, "prompt_tokens", prompt_tokens, "Number of prefill tokens processed.");
	counter(page, "generation_tokens", generation_tokens,
		"Number of generation tokens processed.");
	head(page, "cached_tokens", "_total", "counter", "Number of cached prompt tokens.");
	for (unsigned r = 0; r < page->p->ranks; r++)
		put(page, "cached_tokens", "_total", r, "cache_source", "device",
		    (double)page->p->rank[r].x->cached_tokens);
	counter(page, "num_requests", finished, "Number of requests processed.");
	HISTOGRAM(page, "time_to_first_token_seconds", ttft, &ttft_bounds,
		  "Histogram of time to first token in seconds.");
	HISTOGRAM(page, "inter_token_latency_seconds", itl, &itl_bounds,
		  "Histogram of inter-token latency in seconds.");
	HISTOGRAM(page, "e2e_request_latency_seconds", e2e, &request_bounds,
		  "Histogram of End-to-end request latency in seconds");
}

static void
trtllm_page(const struct page *page)
{
	gauge(page, "num_requests_running", running, "Number of active requests.");
	gauge(page, "num_requests_waiting", waiting, "Number of queued requests.");
	gauge(page, "kv_cache_utilization", usage, "KV cache utilization.");
	gauge(page, "kv_cache_hit_rate", hit_rate, "KV cache hit rate.");
	gauge(page, "kv_cache_max_blocks", num_blocks, "KV cache blocks.");
	gauge(page, "kv_cache_free_blocks", free_blocks, "Free KV cache blocks.");
	gauge(page, "kv_cache_used_blocks", used_blocks, "Used KV cache blocks.");
	gauge(page, "kv_cache_tokens_per_block", block_tokens, "Tokens per KV cache block.");
	finished_by_reason(page);
	counter(page, "prompt_tokens", prompt_tokens, "Number of prefill tokens processed.");
	counter(page, "prompt_cached_tokens", cached_tokens, "Number of cached prompt tokens.");
	HISTOGRAM(page, "time_to_first_token_seconds", ttft, &ttft_bounds,
		  "Histogram of time to first token in seconds.");
	HISTOGRAM(page, "e2e_request_latency_seconds", e2e, &request_bounds,
		  "Histogram of end to end request latency in seconds.");
}

/* What no engine says: how well the emulation keeps its time. */
static void
own_page(const struct page *page)
{
	double late = 0, all = 0;

	if (page->p->openmetrics)
		return;
	for (unsigned r = 0; r < page->p->ranks; r++) {
		late += overruns(page, &page->p->rank[r]);
		all += steps(page, &page->p->rank[r]);
	}
	fprintf(page->f,
		"# HELP pointsman_emulator_overruns_total Engine steps taken more than two "
		"steps late.\n# TYPE pointsman_emulator_overruns_total counter\n"
		"pointsman_emulator_overruns_total %.1f\n"
		"# HELP pointsman_emulator_steps_total Engine steps.\n"
		"# TYPE pointsman_emulator_steps_total counter\n"
		"pointsman_emulator_steps_total %.1f\n", late, all);
}

char *
exposition_render(const struct exposition_page *p, size_t *ret_len_bytes)
{
	char *text = NULL;
	struct page page = {.f = open_memstream(&text, ret_len_bytes), .p = p};

	if (page.f == NULL) {
		fputs("exposition: out of memory\n", stderr);
		abort();
	}
	if (p->engine == ENGINE_VLLM) {
		if (!p->openmetrics) {
			fprintf(page.f, "# HELP process_start_time_seconds Start time of the "
				"process since unix epoch in seconds.\n"
				"# TYPE process_start_time_seconds gauge\n"
				"process_start_time_seconds ");
			put_number(&page, p->rank[0].x->start_time_s);
			fputc('\n', page.f);
		}
		vllm_gauges(&page);
		vllm_counters(&page);
		vllm_histograms(&page);
		vllm_info(&page);
	} else if (p->engine == ENGINE_SGLANG) {
		sglang_page(&page);
	} else {
		trtllm_page(&page);
	}
	own_page(&page);
	if (p->openmetrics)
		fputs("# EOF\n", page.f);
	fclose(page.f);
	return text;
}
