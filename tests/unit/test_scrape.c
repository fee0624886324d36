/* tests/unit/test_scrape.c -- pages of real engines to readings; misses to health. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/scrape.h"
#include "actors/metrics/targets.h"

#define DATA PM_SOURCE_DIR "/tests/data/"

static struct scrape scraped;

static const struct scrape *
page(const char *text)
{
	scrape_page(text, strlen(text), MANIFEST_ENGINE_VLLM, &scraped);
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
	scrape_page(text, n, 0, &scraped);
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
	cr_assert_not(reading(&scraped, 0, 1).known & KNOWN_WAITING, "the sum lacks a part");
	cr_assert_eq(reading(&scraped, 5, SCRAPE_SERIES).known, 0);
}

/* ---- of every engine ---- */

/* Read piece by piece, as it comes from a socket: nothing is different. */
static const struct scrape *
pieces(const char *text, size_t piece, bool openmetrics)
{
	size_t len = strlen(text);

	scrape_begin(&scraped, 0);
	for (size_t at = 0; at < len; at += piece)
		scrape_feed(&scraped, text + at, len - at < piece ? len - at : piece);
	scrape_end(&scraped, openmetrics);
	return &scraped;
}

Test(scrape, the_same_is_read_however_the_page_is_cut_into_pieces)
{
	static const char text[] = "# HELP vllm:num_requests_waiting x\n"
				   "vllm:num_requests_waiting{engine=\"0\"} 12\n\r\n"
				   "vllm:num_requests_running{engine=\"0\"} 3\r\n"
				   "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n";

	for (size_t piece = 1; piece < sizeof text; piece++) {
		struct row_reading r = reading(pieces(text, piece, false), 0, 1);

		cr_assert_eq(r.known, KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE);
		cr_assert_eq(r.waiting, 12);
		cr_assert_eq(r.running, 3);
		cr_assert_not(scraped.truncated);
	}
}

Test(scrape, a_byte_order_mark_costs_no_line)
{
	cr_assert_eq(reading(page("\xef\xbb\xbfvllm:num_requests_waiting 7\r\n"), 0, 1).waiting, 7);
	cr_assert_eq(reading(page("\xef\xbb\xbf\r\nvllm:num_requests_waiting 7\n"), 0, 1).known,
		     KNOWN_WAITING);
}

Test(scrape, a_line_longer_than_there_is_room_for_costs_no_other)
{
	static char text[3 * PROMETHEUS_LINE_MAX];
	int n = snprintf(text, sizeof text, "vllm:num_requests_waiting{engine=\"0\",x=\"");

	memset(text + n, 'a', 2 * PROMETHEUS_LINE_MAX);
	strcpy(text + n + 2 * PROMETHEUS_LINE_MAX, "\"} 7\nvllm:num_requests_running 3\n");
	cr_assert_eq(reading(pieces(text, 1000, false), 0, 1).known, KNOWN_RUNNING);
	cr_assert_eq(scraped.failed, 1);
}

Test(scrape, a_cut_page_makes_unknown_what_may_lack_a_part_and_nothing_else)
{
	static const char two[] = "vllm:num_requests_running{engine=\"0\"} 3\n"
				  "vllm:num_requests_waiting{engine=\"0\"} 4\n"
				  "vllm:num_requests_wait";
	struct row_reading r = reading(page(two), 0, 1);

	cr_assert(scraped.truncated);
	cr_assert_eq(r.known, KNOWN_RUNNING, "the second engine's waiting was cut");
	r = reading(page("vllm:num_requests_waiting{engine=\"0\"} 4\n"
			 "vllm:num_requests_waiting_by_reason{engine=\"0\",rea"), 0, 1);
	cr_assert_eq(r.known, KNOWN_WAITING, "the next family had begun");
	r = reading(pieces("vllm:num_requests_running 3\nvllm:num_requests_waiting 4\n", 9, true),
		    0, 1);
	cr_assert_eq(r.known, KNOWN_RUNNING, "OpenMetrics without its end");
	r = reading(pieces("vllm:num_requests_running 3\nvllm:num_requests_waiting 4\n# EOF\n", 9,
			   true), 0, 1);
	cr_assert_eq(r.known, KNOWN_RUNNING | KNOWN_WAITING);
	cr_assert_not(scraped.truncated);
}

Test(scrape, series_said_twice_count_once_and_the_last_of_them)
{
	struct row_reading r = reading(
		page("vllm:num_requests_waiting{engine=\"0\",pid=\"1\"} 9\n"
		     "vllm:num_requests_waiting{engine=\"0\",pid=\"2\"} 3\n"
		     "vllm:num_requests_waiting{pid=\"1\",engine=\"0\"} 2\n"), 0, 1);

	cr_assert_eq(r.waiting, 3);
	cr_assert_eq(scraped.duplicates, 1);
	cr_assert(scraped.several);
	page("vllm:num_requests_waiting{engine=\"0\"} 9\n"
	     "vllm:num_requests_waiting{engine=\"1\"} 9\n");
	cr_assert_not(scraped.several);
}

Test(scrape, one_api_server_without_a_number_does_not_hide_the_others)
{
	struct row_reading r = reading(
		page("vllm:kv_cache_usage_perc{engine=\"0\",pid=\"1\"} NaN\n"
		     "vllm:kv_cache_usage_perc{engine=\"0\",pid=\"2\"} 0.5\n"), 0, 1);

	cr_assert_float_eq(r.kv_usage, .5, 1e-6);
}

Test(scrape, numbers_beyond_all_reason_are_unknown)
{
	static const char *const bad[] = {"-1",   "1e300", "+Inf",
					  "-inf", "nan",   "18446744073709551616"};

	for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char text[128];

		snprintf(text, sizeof text, "vllm:num_requests_waiting %s\n"
			 "vllm:kv_cache_usage_perc 42\n", bad[i]);
		cr_assert_eq(reading(page(text), 0, 1).known, 0, "%s", bad[i]);
	}
}

Test(scrape, an_api_server_that_never_heard_of_sleep_does_not_say_that_the_engine_sleeps)
{
	page("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\",pid=\"1\"} 0\n"
	     "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\",pid=\"2\"} 1\n"
	     "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\",pid=\"1\"} 0\n");
	cr_assert_not(scrape_asleep(&scraped));
	page("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\n");
	cr_assert(scrape_asleep(&scraped));
}

Test(scrape, sglang_s_ranks_and_schedulers_and_priorities_are_told_apart)
{
	static const char text[] =
		"sglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"0\",priority=\"\"} 5\n"
		     "sglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"1\",priority=\"\"} 5\n"
		     "sglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"0\",priority=\"1\"} 9\n"
		     "sglang:num_queue_reqs{dp_rank=\"1\",tp_rank=\"2\",priority=\"\"} 7\n"
		     "sglang:page_size{dp_rank=\"0\"} 64\nsglang:page_size{dp_rank=\"1\"} 64\n"
		     "sglang:max_total_num_tokens{dp_rank=\"0\"} 6400\n"
		     "sglang:max_total_num_tokens{dp_rank=\"1\"} 640\n";
	const struct scrape *s = page(text);

	cr_assert_not(s->of_engine, "no name of vLLM's");
	cr_assert_eq(reading(s, 0, 1).known, 0);
	s = pieces(text, 100, false);
	cr_assert_eq(reading(s, 0, 1).waiting, 12);
	cr_assert_eq(reading(s, 0, 2).waiting, 5);
	cr_assert_eq(reading(s, 1, 2).waiting, 7);
	cr_assert_eq(reading(s, 1, 2).num_blocks, 10);
	cr_assert_eq(reading(s, 0, 1).num_blocks, 110);
	cr_assert_eq(reading(s, 0, 1).block_tokens, 64);
}

/* ---- health ---- */

static enum row_health
after(struct health *h, enum row_why why, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		health_note(h, &(struct health_said){.why = why, .page = why == WHY_OK});
	cr_assert_eq(h->why, why);
	return h->state;
}

Test(health, the_third_miss_in_a_row_is_down_and_one_answer_is_up)
{
	struct health h = {0};

	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
	cr_assert_eq(after(&h, WHY_REFUSED, 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, WHY_STATUS, 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, WHY_CUT, 1), HEALTH_DOWN);
	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
	cr_assert_eq(after(&h, WHY_UNREACHABLE, 2), HEALTH_SUSPECT);
}

Test(health, a_worker_that_is_only_slow_is_suspect_for_minutes)
{
	struct health h = {0};

	cr_assert_eq(after(&h, WHY_SLOW, HEALTH_SLOW_DOWN - 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, WHY_SLOW, 1), HEALTH_DOWN);
	h = (struct health){0};
	health_note(&h, &(struct health_said){.why = WHY_SLOW, .page = true});
	cr_assert_eq(h.state, HEALTH_UP, "it gave us its page");
}

Test(health, an_engine_that_sleeps_or_is_paused_is_down_until_it_says_otherwise)
{
	struct health h = {0};

	health_note(&h, &(struct health_said){.why = WHY_OK, .page = true, .asleep = true});
	cr_assert_eq(h.state, HEALTH_DOWN);
	cr_assert_eq(h.why, WHY_ASLEEP);
	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
	health_note(&h, &(struct health_said){.why = WHY_OK, .page = true, .paused = true});
	cr_assert_eq(h.state, HEALTH_DOWN);
	cr_assert_eq(h.why, WHY_PAUSED);
	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
}

Test(health, one_503_and_one_closed_connection_end_new_requests_and_one_200_brings_them_back)
{
	const struct health_said ok = {.why = WHY_OK}, closes = {.why = WHY_OK, .closes = true};
	struct health h = {0};

	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
	cr_assert_eq(after(&h, WHY_UNAVAILABLE, 1), HEALTH_SUSPECT);
	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
	health_note(&h, &closes);
	cr_assert_eq(h.state, HEALTH_SUSPECT);
	cr_assert_eq(h.why, WHY_CLOSING);
	health_note(&h, &ok);
	cr_assert_eq(h.state, HEALTH_UP);
}

Test(health, a_server_that_always_closes_connections_is_up)
{
	const struct health_said closes = {.why = WHY_OK, .closes = true};
	struct health h = {0};

	health_note(&h, &closes);
	cr_assert_eq(h.state, HEALTH_UP);
	h = (struct health){0};
	cr_assert_eq(after(&h, WHY_OK, 1), HEALTH_UP);
	for (unsigned i = 0; i < HEALTH_CLOSING_MOST; i++)
		health_note(&h, &closes);
	cr_assert_eq(h.state, HEALTH_SUSPECT);
	health_note(&h, &closes);
	cr_assert_eq(h.state, HEALTH_UP);
}

Test(health, every_reason_has_a_name_and_a_sentence_of_its_own)
{
	for (unsigned i = 0; i < WHY_COUNT; i++) {
		cr_assert(row_why_name(i) && row_why_text(i), "%u", i);
		for (unsigned j = 0; j < i; j++)
			cr_assert_str_neq(row_why_name(i), row_why_name(j));
	}
	cr_assert_str_eq(row_why_name(WHY_COUNT), "unknown");
}

/* --- /v1/models --- */

static uint32_t
length(const char *json)
{
	return scrape_models(json, strlen(json), "m");
}

Test(scrape, models_page_tells_the_length_of_the_model_and_of_no_other)
{
	cr_assert_eq(length("{\"object\":\"list\",\"data\":[{\"id\":\"n\",\"max_model_len\":1},"
			    "{\"id\":\"m\",\"root\":\"/models/m\",\"max_model_len\":32768}]}"),
		     32768);
	cr_assert_eq(length("{\"data\":[{\"id\":\"n\",\"max_model_len\":1}]}"), 0);
	cr_assert_eq(length("{\"data\":[{\"id\":\"m\",\"max_model_len\":null}]}"), 0);
	cr_assert_eq(length("{\"data\":[{\"id\":\"m\",\"max_model_len\":-1}]}"), 0);
	cr_assert_eq(length("{\"data\":[{\"id\":\"m\",\"max_model_len\":4294967295}]}"), 0);
	cr_assert_eq(length("{\"data\":[{\"id\":\"m\",\"max_model_len\":\"8\"}]}"), 0);
	cr_assert_eq(length("{\"data\":{\"id\":\"m\"}}"), 0);
	cr_assert_eq(length("[[]]"), 0);
	cr_assert_eq(length("{\"data\":[7]}"), 0);
	cr_assert_eq(length("not json"), 0);
	cr_assert_eq(length(""), 0);
}
