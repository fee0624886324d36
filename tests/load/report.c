/* tests/load/report.c -- see report.h. */
#include "tests/load/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define WORKERS_MAX 4096

struct report {
	struct record *rec;
	size_t n, max;
	uint64_t errors;
	char *worker[WORKERS_MAX]; /* 0: unknown */
	unsigned workers;
};

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("report: out of memory\n", stderr);
		abort();
	}
	return p;
}

struct report *
report_new(void)
{
	struct report *report = must(calloc(1, sizeof *report));

	report->worker[report->workers++] = must(strdup(""));
	return report;
}

void
report_free(struct report **reportp)
{
	struct report *report = *reportp;

	*reportp = NULL;
	if (report == NULL)
		return;
	for (unsigned i = 0; i < report->workers; i++)
		free(report->worker[i]);
	free(report->rec);
	free(report);
}

uint16_t
report_worker(struct report *report, const char *name, size_t len_bytes)
{
	for (unsigned i = 0; i < report->workers; i++)
		if (strlen(report->worker[i]) == len_bytes &&
		    memcmp(report->worker[i], name, len_bytes) == 0)
			return (uint16_t)i;
	if (report->workers == WORKERS_MAX)
		return 0;
	report->worker[report->workers] = must(strndup(name, len_bytes));
	return (uint16_t)report->workers++;
}

void
report_add(struct report *report, const struct record *rec)
{
	if (report->n == report->max) {
		report->max = report->max > 0 ? report->max * 2 : 1024;
		report->rec = must(realloc(report->rec, report->max * sizeof *report->rec));
	}
	report->rec[report->n++] = *rec;
	report->errors += !rec->ok && !rec->incomplete;
}

uint64_t
report_errors(const struct report *report)
{
	return report->errors;
}

/* A worker's name came from a header: nothing in it may end our string. */
static void
print_name(FILE *out, const char *name)
{
	for (; *name != '\0'; name++)
		if ((unsigned char)*name >= ' ' && *name != '"' && *name != '\\')
			fputc(*name, out);
}

void
report_line(const struct report *report, const char *workload, const struct record *rec, FILE *out)
{
	fprintf(out, "{\"id\":\"%s\",\"workload\":\"%s\",\"conv\":%u,\"turn\":%u,\"prefix_id\":%d,"
		"\"t_sched\":%.6f,\"t_send\":%.6f,\"t_conn\":%.6f,\"t_first_byte\":%.6f,"
		"\"t_first_token\":%.6f,\"t_last\":%.6f,\"t_end\":%.6f,\"prompt_tokens\":%u,"
		"\"completion_tokens\":%u,\"cached_tokens\":%u,\"status\":%u,\"worker\":\"",
		rec->id, workload, rec->conv, rec->turn, rec->prefix_id, rec->sched_s, rec->send_s,
		rec->conn_s, rec->first_byte_s, rec->first_token_s, rec->last_token_s, rec->end_s,
		rec->prompt_tokens, rec->output_tokens, rec->cached_tokens, rec->status);
	print_name(out, report->worker[rec->worker]);
	fprintf(out, "\",\"ok\":%s,\"incomplete\":%s,\"error\":", rec->ok ? "true" : "false",
		rec->incomplete ? "true" : "false");
	if (rec->error != NULL)
		fprintf(out, "\"%s\"}\n", rec->error);
	else
		fputs("null}\n", out);
}

/* ---- the summary ---- */

struct series {
	double *v;
	size_t n;
};

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Nearest rank, v sorted. */
static double
quantile(const struct series *series, double q)
{
	size_t i;

	if (series->n == 0)
		return 0;
	i = (size_t)ceil(q * (double)series->n);
	return series->v[i > 0 ? i - 1 : 0];
}

static double
mean(const struct series *series)
{
	double sum = 0;

	for (size_t i = 0; i < series->n; i++)
		sum += series->v[i];
	return series->n > 0 ? sum / (double)series->n : 0;
}

static void
put_series(FILE *text, json_t *json, const char *label, const char *key, struct series *series)
{
	qsort(series->v, series->n, sizeof *series->v, by_value);
	if (text != NULL)
		fprintf(text, "%-6s p50 %.4f  p90 %.4f  p95 %.4f  p99 %.4f  mean %.4f s\n", label,
			quantile(series, .5), quantile(series, .9), quantile(series, .95),
			quantile(series, .99), mean(series));
	json_object_set_new(json, key,
			    json_pack("{s:f, s:f, s:f, s:f, s:f}", "p50", quantile(series, .5),
				      "p90", quantile(series, .9), "p95", quantile(series, .95),
				      "p99", quantile(series, .99), "mean", mean(series)));
}

struct totals {
	uint64_t n, ok, err, incomplete, good, in_window;
	uint64_t prompt, cached, output;
	double last_end_s;
	struct series ttft, e2e, itl, lag, first_byte;
	uint64_t *per_worker;
};

static void
add(struct totals *t, const struct report_config *cfg, const struct record *rec)
{
	double ttft = rec->first_token_s - rec->sched_s;

	t->n++;
	t->incomplete += rec->incomplete;
	t->per_worker[rec->worker]++;
	if (rec->send_s >= 0)
		t->lag.v[t->lag.n++] = rec->send_s - rec->sched_s;
	if (!rec->ok) {
		t->err += !rec->incomplete;
		return;
	}
	t->ok++;
	t->good += ttft <= cfg->slo_ttft_s;
	t->in_window += rec->end_s <= cfg->window_end_s;
	t->prompt += rec->prompt_tokens;
	t->cached += rec->cached_tokens;
	t->output += rec->output_tokens;
	if (rec->end_s > t->last_end_s)
		t->last_end_s = rec->end_s;
	t->ttft.v[t->ttft.n++] = ttft;
	t->first_byte.v[t->first_byte.n++] = rec->first_byte_s - rec->sched_s;
	t->e2e.v[t->e2e.n++] = rec->end_s - rec->sched_s;
	if (rec->output_tokens > 1)
		t->itl.v[t->itl.n++] = (rec->last_token_s - rec->first_token_s) /
				       (rec->output_tokens - 1);
}

static void
put_errors(const struct report *report, FILE *text, json_t *json)
{
	json_t *errors = json_object();
	const char *key;
	json_t *count;

	for (size_t i = 0; i < report->n; i++) {
		const struct record *rec = &report->rec[i];
		char name[96];

		if (rec->ok)
			continue;
		snprintf(name, sizeof name, "%s (status %u)",
			 rec->error != NULL ? rec->error : "unknown", rec->status);
		json_object_set_new(errors, name, json_integer(1 +
				    json_integer_value(json_object_get(errors, name))));
	}
	json_object_foreach(errors, key, count) if (text != NULL)
		fprintf(text, "error  %lld x %s\n", (long long)json_integer_value(count), key);
	json_object_set_new(json, "errors", errors);
}

static void
put_workers(const struct report *report, const struct totals *t, FILE *text, json_t *json)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < report->workers; i++) {
		double share = t->n > 0 ? (double)t->per_worker[i] / (double)t->n : 0;
		const char *name = report->worker[i][0] != '\0' ? report->worker[i] : "unknown";

		if (t->per_worker[i] == 0)
			continue;
		if (text != NULL)
			fprintf(text, "worker %-24s %llu requests, share %.3f\n", name,
				(unsigned long long)t->per_worker[i], share);
		json_array_append_new(list,
				      json_pack("{s:s, s:I, s:f}", "name", name, "n",
						(json_int_t)t->per_worker[i], "share", share));
	}
	json_object_set_new(json, "workers", list);
}

int
report_summary(const struct report *report, const struct report_config *cfg, FILE *text, FILE *out)
{
	size_t max = report->n + 1;
	double *space = calloc(5 * max, sizeof *space);
	struct totals t = {.per_worker = calloc(report->workers, sizeof(uint64_t))};
	json_t *json = json_object();
	double window_s, per_min, good_per_min, hit;

	if (space == NULL || t.per_worker == NULL || json == NULL)
		return -ENOMEM;
	t.ttft.v = space;
	t.e2e.v = space + max;
	t.itl.v = space + 2 * max;
	t.lag.v = space + 3 * max;
	t.first_byte.v = space + 4 * max;
	for (size_t i = 0; i < report->n; i++)
		if (report->rec[i].sched_s >= cfg->warmup_s)
			add(&t, cfg, &report->rec[i]);
	window_s = (isfinite(cfg->window_end_s) ? cfg->window_end_s : t.last_end_s) - cfg->warmup_s;
	per_min = window_s > 0 ? (double)t.in_window / window_s * 60 : 0;
	good_per_min = window_s > 0 ? (double)t.good / window_s * 60 : 0;
	hit = t.prompt > 0 ? (double)t.cached / (double)t.prompt : 0;
	if (text != NULL)
		fprintf(text,
			"%s: %llu measured, %llu ok, %llu errors, %llu incomplete in %.2f s\n",
			cfg->workload, (unsigned long long)t.n, (unsigned long long)t.ok,
			(unsigned long long)t.err, (unsigned long long)t.incomplete, window_s);
	json_object_update_new(
		json, json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, "
				"s:I, s:I}",
				"workload", cfg->workload, "started_s", cfg->started_s, "n",
				(json_int_t)t.n, "ok", (json_int_t)t.ok, "err", (json_int_t)t.err,
				"incomplete", (json_int_t)t.incomplete, "window_s", window_s,
				"req_per_min", per_min, "goodput_per_min", good_per_min,
				"attainment", t.n > 0 ? (double)t.good / (double)t.n : 0.0,
				"slo_ttft_s", cfg->slo_ttft_s, "hit_share", hit, "prompt_tokens",
				(json_int_t)t.prompt, "cached_tokens", (json_int_t)t.cached,
				"completion_tokens", (json_int_t)t.output));
	put_series(text, json, "TTFT", "ttft_s", &t.ttft);
	put_series(text, json, "E2E", "e2e_s", &t.e2e);
	put_series(text, json, "ITL", "itl_s", &t.itl);
	put_series(NULL, json, "TTFB", "first_byte_s", &t.first_byte);
	put_series(NULL, json, "lag", "send_lag_s", &t.lag);
	if (text != NULL) {
		fprintf(text, "hit    %.3f of %llu prompt tokens were cached\n", hit,
			(unsigned long long)t.prompt);
		fprintf(text, "rate   %.1f requests/min, %.1f/min within TTFT %.3g s "
			"(attainment %.3f)\n", per_min, good_per_min, cfg->slo_ttft_s,
			t.n > 0 ? (double)t.good / (double)t.n : 0.0);
		if (quantile(&t.lag, .99) > 0.005)
			fprintf(text,
				"note   requests were sent late: p99 %.1f ms after they were due\n",
				quantile(&t.lag, .99) * 1e3);
	}
	put_workers(report, &t, text, json);
	put_errors(report, text, json);
	if (out != NULL) {
		json_dumpf(json, out, JSON_INDENT(2));
		fputc('\n', out);
	}
	json_decref(json);
	free(space);
	free(t.per_worker);
	return 0;
}
