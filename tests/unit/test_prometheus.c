#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/prometheus.h"

#define DATA PM_SOURCE_DIR "/tests/data/"

/* What a test looks for, and what it found. */
struct look {
	const char *name;   /* exact; or NULL */
	const char *label;  /* with this value; or NULL */
	const char *value;
	unsigned hits;
	double sum, last;
	bool finite;
};

static void
look_at(void *arg, const struct prometheus_sample *s)
{
	struct look *look = arg;
	char text[256];

	if (look->name && !prometheus_name_is(s, look->name))
		return;
	if (look->label && (prometheus_label_get(s, look->label, text, sizeof(text)) < 0 ||
			    strcmp(text, look->value) != 0))
		return;
	look->hits++;
	look->sum += s->value;
	look->last = s->value;
	look->finite = s->finite;
}

static char *
file_read(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	char *p = malloc(1 << 20);

	cr_assert(f, "%s", path);
	*ret_len = fread(p, 1, 1 << 20, f);
	fclose(f);
	return p;
}

static struct look
look_in(const char *file, struct look look, struct prometheus_stats *ret_stats)
{
	char path[512];
	size_t len;
	char *page, *exact;

	snprintf(path, sizeof(path), DATA "%s", file);
	page = file_read(path, &len);
	exact = malloc(len);
	memcpy(exact, page, len);
	free(page);
	prometheus_parse(exact, len, look_at, &look, ret_stats);
	free(exact);
	return look;
}

static struct look
look_at_text(const char *text, struct look look, struct prometheus_stats *ret_stats)
{
	prometheus_parse(text, strlen(text), look_at, &look, ret_stats);
	return look;
}

static size_t
lines_of_samples(const char *file)
{
	char path[512];
	size_t len, n = 0;
	char *page, *line;

	snprintf(path, sizeof(path), DATA "%s", file);
	page = file_read(path, &len);
	page[len] = '\0';
	for (line = strtok(page, "\n"); line; line = strtok(NULL, "\n"))
		n += line[0] != '#';
	free(page);
	return n;
}

Test(prometheus, every_sample_of_every_engine_is_read)
{
	static const char *const files[] = {
		"metrics/sglang_2026-07.prom", "metrics/triton_trtllm.prom",
		"metrics/vllm_main_2026-08.prom", "metrics/vllm_rust_frontend_2026-08.openmetrics",
		"metrics/vllm_v0.9.0.prom",
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct prometheus_stats st;
		struct look all = look_in(files[i], (struct look){0}, &st);

		cr_assert_eq(st.failed, 0, "%s line %u", files[i], st.failed_line);
		cr_assert_not(st.truncated, "%s", files[i]);
		cr_assert_gt(st.samples, 10, "%s", files[i]);
		cr_assert_eq(st.samples, lines_of_samples(files[i]), "%s", files[i]);
		cr_assert_eq(all.hits, st.samples);
	}
}

Test(prometheus, names_match_exactly_and_not_by_prefix)
{
	struct prometheus_stats st;
	struct look waiting = look_in("metrics/vllm_main_2026-08.prom",
				      (struct look){.name = "vllm:num_requests_waiting"}, &st);
	struct look reasons =
		look_in("metrics/vllm_main_2026-08.prom",
			(struct look){.name = "vllm:num_requests_waiting_by_reason"}, &st);

	cr_assert_geq(waiting.hits, 1);
	cr_assert_eq(reasons.hits, 2 * waiting.hits);
	cr_assert_eq(reasons.sum, waiting.sum);
}

Test(prometheus, openmetrics_is_read_like_the_text_format)
{
	const char *file = "metrics/vllm_rust_frontend_2026-08.openmetrics";
	struct prometheus_stats st;
	struct look look = look_in(file, (struct look){.name = "vllm:num_requests_waiting"}, &st);

	cr_assert(st.eof);
	cr_assert_eq(look.hits, 1);
	cr_assert_eq(look.last, 3.0);
	look = look_in(file, (struct look){.name = "vllm:kv_cache_usage_perc"}, &st);
	cr_assert_float_eq(look.last, 0.41827411167512687, 1e-15);
	look = look_in(file, (struct look){.name = "vllm:prefix_cache_queries_total"}, &st);
	cr_assert_eq(look.hits, 1);
	look = look_in("metrics/vllm_main_2026-08.prom",
		       (struct look){.name = "vllm:prefix_cache_queries_total"}, &st);
	cr_assert_geq(look.hits, 1);
}

Test(prometheus, the_start_time_of_a_process_is_exact)
{
	struct prometheus_stats st;
	struct look look = look_in("metrics/vllm_v0.9.0.prom",
				   (struct look){.name = "process_start_time_seconds"}, &st);

	cr_assert_eq(look.hits, 1);
	cr_assert_eq(look.last, 1.79602796975e+09);
}

Test(prometheus, each_engine_keeps_its_own_series)
{
	struct prometheus_stats st;
	struct look look = {.name = "vllm:num_requests_waiting", .label = "engine", .value = "1"};

	look = look_in("cases/mx/mx02_engines.prom", look, &st);
	cr_assert(look.hits == 1 && look.last == 12.0);
	look = look_in("cases/mx/mx02_engines.prom",
		       (struct look){.name = "vllm:num_requests_running"}, &st);
	cr_assert(look.hits == 2 && look.sum == 41.0);
	cr_assert_eq(st.samples, 6);
	look = look_in(
		"cases/mx/mx03_pids.prom",
		(struct look){.name = "vllm:kv_cache_usage_perc", .label = "pid", .value = "273"},
		&st);
	cr_assert_float_eq(look.last, 0.6530455880475035, 1e-15);
}

Test(prometheus, one_odd_value_never_costs_its_neighbours)
{
	struct prometheus_stats st;
	const char *file = "cases/mx/mx04_values.prom";
	struct look look = look_in(file, (struct look){.name = "vllm:num_requests_waiting"}, &st);

	cr_assert_eq(st.failed, 3);
	cr_assert_eq(st.failed_line, 9);
	cr_assert_eq(st.samples, 8);
	cr_assert_eq(st.not_finite, 3);
	cr_assert(look.hits == 1 && !look.finite && isnan(look.last));
	look = look_in(file, (struct look){.name = "vllm:num_requests_running"}, &st);
	cr_assert_eq(look.last, 10.0);
	look = look_in(file, (struct look){.name = "vllm:kv_cache_usage_perc"}, &st);
	cr_assert_eq(look.last, 0.42);
	look = look_in(file, (struct look){.name = "some:ratio"}, &st);
	cr_assert(isinf(look.last) && look.last < 0);
	look = look_in(file, (struct look){.name = "vllm:prompt_tokens_total"}, &st);
	cr_assert_eq(look.last, 18446744073709551616.0);
	look = look_in(file, (struct look){.label = "le", .value = "1e-03"}, &st);
	cr_assert_eq(look.hits, 1);
}

Test(prometheus, repeated_help_and_type_lines_do_not_matter)
{
	struct prometheus_stats st;
	struct look look = look_in("cases/mx/mx08_dup_help.prom",
				   (struct look){.name = "vllm:num_requests_waiting"}, &st);

	cr_assert_eq(st.failed, 0);
	cr_assert(st.eof);
	cr_assert(look.hits == 2 && look.last == 2.0);
}

Test(prometheus, timestamps_and_exemplars_are_passed_over)
{
	struct prometheus_stats st;
	struct look look =
		look_at_text("a 1 1795000000000\n"
			     "a{x=\"y\"} 2 1795000000.25\n"
			     "a_bucket{le=\"1\"} 3 # {trace_id=\"4 # {\"} 0.5 1795000000.2\n"
			     "a_bucket{le=\"2\"} 4 1795000000 # {} 0.5\n"
			     "a{} 5\n"
			     "\ta\t6\n"
			     "a 7\r\n"
			     "a 8 nine\n"
			     "a 8 # trailing words\n",
			     (struct look){0}, &st);

	cr_assert_eq(st.samples, 7);
	cr_assert_eq(st.failed, 2);
	cr_assert_eq(st.failed_line, 8);
	cr_assert_eq(look.sum, 28.0);
}

Test(prometheus, label_values_come_unescaped)
{
	static const char page[] = "m{ a = \"x\\\\y\\\"z\\nw\" , b=\"}\",c=\"\\q\", } 1\n";
	struct prometheus_stats st;
	struct look look;

	look = look_at_text(page, (struct look){.label = "a", .value = "x\\y\"z\nw"}, &st);
	cr_assert_eq(look.hits, 1);
	look = look_at_text(page, (struct look){.label = "b", .value = "}"}, &st);
	cr_assert_eq(look.hits, 1);
	look = look_at_text(page, (struct look){.label = "c", .value = "\\q"}, &st);
	cr_assert_eq(look.hits, 1);
	look = look_at_text(page, (struct look){.label = "d", .value = ""}, &st);
	cr_assert_eq(look.hits, 0);
}

static void
short_label(void *arg, const struct prometheus_sample *s)
{
	char text[4];

	*(int *)arg = prometheus_label_get(s, "a", text, sizeof(text));
}

Test(prometheus, a_label_that_does_not_fit_is_refused_not_cut)
{
	struct prometheus_stats st;
	int r = 0;

	prometheus_parse("m{a=\"abcd\"} 1\n", 14, short_label, &r, &st);
	cr_assert_eq(r, -ENAMETOOLONG);
	prometheus_parse("m{a=\"abc\"} 1\n", 13, short_label, &r, &st);
	cr_assert_eq(r, 3);
	prometheus_parse("m{b=\"abc\"} 1\n", 13, short_label, &r, &st);
	cr_assert_eq(r, -ENOENT);
}

Test(prometheus, a_last_line_without_an_end_is_not_believed)
{
	struct prometheus_stats st;
	struct look look = look_at_text("a 1\na 12", (struct look){0}, &st);

	cr_assert(st.truncated && st.samples == 1 && st.failed == 0);
	cr_assert_eq(look.sum, 1.0);
	look_at_text("a 1\n# EOF", (struct look){0}, &st);
	cr_assert(!st.truncated && st.eof);
}

Test(prometheus, lines_that_are_no_samples_are_counted)
{
	static const char *const bad[] = {
		"1a 2\n",      "a{b} 1\n", "a{b=\"c} 1\n", "a{b=\"c\" d=\"e\"} 1\n",
		"a{b=\"c\"\n", "a.b 1\n",  "a\n",          "{\"a\"} 1\n",
		"a -\n",       "a 1e\n",   "a ++1\n",      "a nanx\n",
		"a {b=\"c\\",  "a 1 2 3\n"};
	struct prometheus_stats st;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		look_at_text(bad[i], (struct look){0}, &st);
		cr_assert_eq(st.samples, 0, "%s", bad[i]);
		cr_assert_eq(st.failed + st.truncated, 1, "%s", bad[i]);
	}
}
