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

struct page {
	FILE *f;
	const char *labels; /* engine="0",model_name="..." */
};

static void
head(struct page *page, const char *name, const char *type, const char *doc)
{
	fprintf(page->f, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, doc, name, type);
}

static void
gauge(struct page *page, const char *name, double value, const char *doc)
{
	head(page, name, "gauge", doc);
	fprintf(page->f, "vllm:%s{%s} %.17g\n", name, page->labels, value);
}

static void
counter(struct page *page, const char *name, uint64_t value, const char *doc)
{
	head(page, name, "counter", doc);
	fprintf(page->f, "vllm:%s{%s} %.1f\n", name, page->labels, (double)value);
}

static void
histogram(struct page *page, const char *name, const struct histogram *hist,
	  const struct bounds *bounds, const char *doc)
{
	const char *model = strchr(page->labels, ',') + 1;
	uint64_t n = 0;

	head(page, name, "histogram", doc);
	for (unsigned i = 0; i < bounds->n; i++) {
		n += hist->count[i];
		fprintf(page->f, "vllm:%s_bucket{engine=\"0\",le=\"%g\",%s} %.1f\n", name,
			bounds->le[i], model, (double)n);
	}
	fprintf(page->f, "vllm:%s_bucket{engine=\"0\",le=\"+Inf\",%s} %.1f\n", name, model,
		(double)hist->n);
	fprintf(page->f, "vllm:%s_count{%s} %.1f\n", name, page->labels, (double)hist->n);
	fprintf(page->f, "vllm:%s_sum{%s} %.17g\n", name, page->labels, hist->sum);
}

char *
exposition_render(const struct exposition *x, const struct worker_stats *stats,
		  const struct engine_config *cfg, const char *model, bool old_names,
		  size_t *ret_len_bytes)
{
	char *text = NULL;
	char labels[512];
	struct page page = {.f = open_memstream(&text, ret_len_bytes), .labels = labels};
	const struct engine_stats *e = &stats->engine;
	static const char *const reason[4] = {NULL, "length", "stop", "abort"};

	if (page.f == NULL) {
		fputs("exposition: out of memory\n", stderr);
		abort();
	}
	snprintf(labels, sizeof labels, "engine=\"0\",model_name=\"%.400s\"", model);
	fprintf(page.f,
		"# HELP process_start_time_seconds Start time of the process since unix epoch "
		"in seconds.\n# TYPE process_start_time_seconds gauge\n"
		"process_start_time_seconds %.17g\n",
		x->start_time_s);
	gauge(&page, "num_requests_running", e->running,
	      "Number of requests in model execution batches.");
	gauge(&page, "num_requests_waiting", e->waiting,
	      "Number of requests waiting to be processed.");
	gauge(&page, old_names ? "gpu_cache_usage_perc" : "kv_cache_usage_perc",
	      1 - (double)e->free_blocks / e->num_blocks,
	      "KV-cache usage. 1 means 100 percent usage.");
	counter(&page, old_names ? "gpu_prefix_cache_queries_total" : "prefix_cache_queries_total",
		e->query_tokens, "Prefix cache queries, in terms of number of queried tokens.");
	counter(&page, old_names ? "gpu_prefix_cache_hits_total" : "prefix_cache_hits_total",
		e->hit_tokens, "Prefix cache hits, in terms of number of cached tokens.");
	counter(&page, "num_preemptions_total", e->preemptions,
		"Cumulative number of preemption from the engine.");
	counter(&page, "prompt_tokens_total", x->prompt_tokens,
		"Number of prefill tokens processed.");
	if (!old_names) {
		head(&page, "prompt_tokens_by_source_total", "counter",
		     "Number of prompt tokens by source.");
		fprintf(page.f,
			"vllm:prompt_tokens_by_source_total{%s,source=\"local_compute\"} %.1f\n"
			"vllm:prompt_tokens_by_source_total{%s,source=\"local_cache_hit\"} %.1f\n",
			labels, (double)(x->prompt_tokens - x->cached_tokens), labels,
			(double)x->cached_tokens);
	}
	counter(&page, "generation_tokens_total", x->generation_tokens,
		"Number of generation tokens processed.");
	head(&page, "request_success_total", "counter",
	     "Count of successfully processed requests.");
	for (unsigned i = ENGINE_FINISH_LENGTH; i <= ENGINE_FINISH_ABORT; i++)
		fprintf(page.f,
			"vllm:request_success_total{engine=\"0\",finished_reason=\"%s\",%s} "
			"%.1f\n",
			reason[i], strchr(labels, ',') + 1, (double)x->finished[i]);
	histogram(&page, "time_to_first_token_seconds", &x->ttft, &ttft_bounds,
		  "Histogram of time to first token in seconds.");
	histogram(&page,
		  old_names ? "time_per_output_token_seconds" : "inter_token_latency_seconds",
		  &x->itl, &itl_bounds, "Histogram of inter-token latency in seconds.");
	histogram(&page, "e2e_request_latency_seconds", &x->e2e, &request_bounds,
		  "Histogram of e2e request latency in seconds.");
	histogram(&page, "request_queue_time_seconds", &x->queue, &request_bounds,
		  "Histogram of time spent in WAITING phase for request.");
	histogram(&page, "request_prefill_time_seconds", &x->prefill, &request_bounds,
		  "Histogram of time spent in PREFILL phase for request.");
	if (!old_names)
		histogram(&page, "request_prefill_kv_computed_tokens", &x->computed, &token_bounds,
			  "Histogram of new KV tokens computed during prefill.");
	histogram(&page, "iteration_tokens_total", &x->iteration, &iteration_bounds,
		  "Histogram of number of tokens per engine_step.");
	head(&page, "cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
	fprintf(page.f, "vllm:cache_config_info{block_size=\"%u\",enable_prefix_caching=\"True\","
		"engine=\"0\",num_gpu_blocks=\"%u\"} 1.0\n", cfg->block_tokens, cfg->num_blocks);
	fprintf(page.f,
		"# HELP pointsman_emulator_overruns_total Engine steps taken more than two "
		"steps late.\n# TYPE pointsman_emulator_overruns_total counter\n"
		"pointsman_emulator_overruns_total %.1f\n# HELP pointsman_emulator_steps_total "
		"Engine "
		"steps.\n# TYPE pointsman_emulator_steps_total counter\n"
		"pointsman_emulator_steps_total %.1f\n",
		(double)stats->overruns, (double)e->steps);
	fclose(page.f);
	return text;
}
