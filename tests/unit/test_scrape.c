/* tests/unit/test_scrape.c -- pages of real engines to readings; misses to health. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/metrics/scrape.h"
#include "actors/metrics/targets.h"

#define DATA PM_SOURCE_DIR "/tests/data/"

static struct scrape scraped;

static const struct scrape *
page(const char *text)
{
	scrape_page(text, strlen(text), &scraped);
	return &scraped;
}

static const struct scrape *
file(const char *name)
{
	static char text[1 << 20];
	char path[256];
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, DATA "%s", name);
	f = fopen(path, "r");
	cr_assert_not_null(f, "%s", path);
	n = fread(text, 1, sizeof text, f);
	fclose(f);
	scrape_page(text, n, &scraped);
	return &scraped;
}

static struct row_reading
reading(const struct scrape *s, uint16_t rank, uint32_t ranks)
{
	struct row_reading r = {0};
	bool asleep;

	scrape_reading(s, rank, ranks, &r, &asleep);
	return r;
}

Test(scrape, one_row_for_all_ranks_shows_their_sum_and_mean)
{
	struct row_reading r = reading(file("cases/mx/mx02_engines.prom"), 0, 1);

	cr_assert_eq(r.waiting, 12);
	cr_assert_eq(r.running, 41);
	cr_assert_float_eq(r.kv_usage, .5, 1e-6);
}

Test(scrape, a_row_per_rank_shows_its_own_engine)
{
	const struct scrape *s = file("cases/mx/mx02_engines.prom");

	cr_assert_eq(reading(s, 0, 2).waiting, 0);
	cr_assert_eq(reading(s, 0, 2).running, 1);
	cr_assert_eq(reading(s, 1, 2).waiting, 12);
	cr_assert_float_eq(reading(s, 1, 2).kv_usage, .9, 1e-6);
	cr_assert_eq(reading(s, 2, 3).known & KNOWN_WAITING, 0,
		     "an absent rank is unknown, not idle");
}

Test(scrape, of_api_servers_that_differ_in_pid_the_largest_counts)
{
	struct row_reading r = reading(file("cases/mx/mx03_pids.prom"), 0, 1);

	cr_assert_float_eq(r.kv_usage, .653, 1e-3);
}

Test(scrape, what_is_no_number_is_unknown_and_costs_no_other)
{
	struct row_reading r = reading(file("cases/mx/mx04_values.prom"), 0, 1);

	cr_assert_not(r.known & KNOWN_WAITING);
	cr_assert(r.known & KNOWN_RUNNING);
	cr_assert_eq(r.running, 10);
	cr_assert_float_eq(r.kv_usage, .42, 1e-6);
	cr_assert_gt(scraped.failed, 0);
}

Test(scrape, one_rank_without_a_number_makes_the_sum_unknown)
{
	struct row_reading r = reading(page("vllm:num_requests_waiting{engine=\"0\"} 3\n"
					    "vllm:num_requests_waiting{engine=\"1\"} NaN\n"),
				       0, 1);

	cr_assert_not(r.known & KNOWN_WAITING);
}

Test(scrape, repeated_comments_and_series_are_fine_and_the_last_counts)
{
	cr_assert_eq(reading(file("cases/mx/mx08_dup_help.prom"), 0, 1).waiting, 2);
}

Test(scrape, names_match_exactly)
{
	struct row_reading r = reading(
		page("vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"deferred\"} 7\n"
		     "vllm:num_requests_running_total 9\n"),
		0, 1);

	cr_assert_eq(r.known, 0);
}

Test(scrape, the_new_name_of_kv_usage_goes_before_the_old)
{
	struct row_reading r = reading(page("vllm:gpu_cache_usage_perc{engine=\"0\"} 0.9\n"
					    "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"),
				       0, 1);

	cr_assert_float_eq(r.kv_usage, .25, 1e-6);
	r = reading(page("vllm:gpu_cache_usage_perc{engine=\"0\"} 0.9\n"), 0, 1);
	cr_assert_float_eq(r.kv_usage, .9, 1e-6);
}

Test(scrape, a_cache_that_is_not_sized_yet_is_unknown)
{
	struct row_reading r =
		reading(page("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\","
			     "engine=\"0\"} 1\n"),
			0, 1);

	cr_assert(r.known & KNOWN_BLOCK_TOKENS);
	cr_assert_eq(r.block_tokens, 16);
	cr_assert_not(r.known & KNOWN_NUM_BLOCKS);
}

Test(scrape, a_sleeping_engine_says_so)
{
	struct row_reading r = {0};
	bool asleep;

	scrape_reading(
		page("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\n"
		     "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} 1\n"),
		0, 1, &r, &asleep);
	cr_assert(asleep);
	scrape_reading(
		page("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 1\n"
		     "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} 0\n"),
		0, 1, &r, &asleep);
	cr_assert_not(asleep);
}

Test(scrape, pages_of_every_vllm_in_the_field_are_read)
{
	static const char *const pages[] = {
		"metrics/vllm_v0.9.0.prom",
		"metrics/vllm_main_2026-08.prom",
		"metrics/vllm_rust_frontend_2026-08.openmetrics",
	};
	const uint32_t all = KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE;

	for (unsigned i = 0; i < 3; i++) {
		struct row_reading r = reading(file(pages[i]), 0, 1);

		cr_assert_eq(r.known & all, all, "%s knows 0x%x", pages[i], r.known);
		cr_assert_eq(scraped.failed, 0, "%s", pages[i]);
		if (!strstr(pages[i], "rust")) /* that one has no cache_config_info */
			cr_assert(r.known & KNOWN_BLOCK_TOKENS, "%s", pages[i]);
	}
}

Test(scrape, a_page_with_too_many_series_says_that_it_is_read_in_part)
{
	static char text[64 * 1024];
	size_t n = 0;

	for (unsigned i = 0; i < SCRAPE_SERIES + 10; i++)
		n += (size_t)snprintf(text + n, sizeof text - n,
				      "vllm:num_requests_waiting{engine=\"%u\"} 1\n", i);
	cr_assert(page(text)->truncated);
	cr_assert_eq(reading(&scraped, 0, 1).waiting, SCRAPE_SERIES);
}

/* ---- health ---- */

static enum row_health
after(struct health *h, enum probe_result health, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		health_note(h, health, health == PROBE_OK ? PROBE_OK : PROBE_SLOW, false);
	return h->state;
}

Test(health, the_third_miss_in_a_row_is_down_and_one_answer_is_up)
{
	struct health h = {0};

	cr_assert_eq(after(&h, PROBE_OK, 1), HEALTH_UP);
	cr_assert_eq(after(&h, PROBE_UNREACHABLE, 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, PROBE_STATUS, 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, PROBE_UNREACHABLE, 1), HEALTH_DOWN);
	cr_assert_eq(after(&h, PROBE_OK, 1), HEALTH_UP);
	cr_assert_eq(after(&h, PROBE_UNREACHABLE, 2), HEALTH_SUSPECT);
}

Test(health, a_worker_that_is_only_slow_is_suspect_for_minutes)
{
	struct health h = {0};

	cr_assert_eq(after(&h, PROBE_SLOW, TARGET_SLOW_DOWN - 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, PROBE_SLOW, 1), HEALTH_DOWN);
	h = (struct health){0};
	health_note(&h, PROBE_SLOW, PROBE_OK, false);
	cr_assert_eq(h.state, HEALTH_UP, "it gave us its page");
}

Test(health, a_sleeping_engine_is_down_until_it_wakes)
{
	struct health h = {0};

	health_note(&h, PROBE_OK, PROBE_OK, true);
	cr_assert_eq(h.state, HEALTH_DOWN);
	health_note(&h, PROBE_OK, PROBE_OK, false);
	cr_assert_eq(h.state, HEALTH_UP);
}
