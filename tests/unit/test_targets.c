/* tests/unit/test_targets.c -- what comes of probes: rows, reasons, and who is told. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/metrics/targets.h"

#define S_NS 1000000000ull
#define CONFIG(set)                                                                                \
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"           \
	"spec: {listen: ['127.0.0.1:1'], models: [{name: m, policy: p}]}\n---\n"                   \
	"apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n"       \
	"spec: {model: m, members: [{name: w, url: 'http://127.0.0.1:9'}], " set "}\n---\n"        \
	"apiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: q}\n"            \
	"spec: {workerSets: [s]}\n---\n"                                                           \
	"apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"          \
	"spec: {candidates: [{pool: q}]}\n"

struct world {
	struct manifest *m;
	struct rows rows;
	struct process_segment process;
	struct targets *targets;
	mono_ns now;
	unsigned starts, sleeps;
};

static void
on_start(void *arg, uint16_t row, uint32_t row_gen, wall_ns start)
{
	struct world *w = arg;

	(void)row;
	(void)start;
	cr_assert_eq(row_gen, 1);
	w->starts++;
}

static void
on_asleep(void *arg, uint16_t row, uint32_t row_gen)
{
	struct world *w = arg;

	(void)row;
	cr_assert_eq(row_gen, 1);
	w->sleeps++;
}

static void
begin(struct world *w, const char *config)
{
	struct yaml_errors errs = {0};

	memset(w, 0, sizeof *w);
	w->now = clock_mono();
	cr_assert_eq(manifest_load_text("t", config, strlen(config), &w->m, &errs), 0, "%s",
		     errs.n ? errs.list[0].text : "");
	cr_assert_eq(rows_create(&w->rows, 16), 0);
	cr_assert_eq(process_create(&w->process, ROLE_METRICS, 0, 1, 0, 32768), 0);
	for (uint32_t i = 0; i < w->m->n_members; i++) {
		struct row *row = &w->rows.row[i];

		row->uid = w->m->members[i].uid;
		row->rank = w->m->members[i].rank;
		row->ranks = w->m->sets[0].ranks;
		row->row_gen = 1;
		row->intent = INTENT_SERVE;
		w->rows.head->count = i + 1;
	}
	cr_assert_eq(targets_new(&w->targets, &w->rows, &w->process,
				 &(struct targets_calls){on_start, on_asleep, w}), 0);
	cr_assert_eq(targets_set(w->targets, w->m, NULL), 0);
}

static void
end(struct world *w)
{
	targets_free(&w->targets);
	process_detach(&w->process);
	rows_detach(&w->rows);
	manifest_free(&w->m);
}

/* The first target was asked, and this came of it. */
static struct row_reading
result(struct world *w, enum probe_kind kind, enum probe_result result, unsigned status,
       const char *answer, unsigned row)
{
	struct probe *p = probe_new(1, kind, w->m->sets[0].engine);
	struct row_reading r;

	p->result = result;
	p->sent_ns = w->now;
	p->fetch.status = status;
	p->fetch.ended_ns = w->now += S_NS / 1000;
	p->fetch.result = result == PROBE_UNREACHABLE ? FETCH_BROKEN : FETCH_OK;
	p->fetch.cause = FETCH_REFUSED;
	if (kind == PROBE_METRICS && result == PROBE_OK) {
		scrape_feed(p->scrape, answer, strlen(answer));
		scrape_end(p->scrape, false);
	} else if (answer) {
		p->fetch.answer = strdup(answer);
		p->fetch.len = strlen(answer);
	}
	targets_result(w->targets, p);
	row_reading_read(&w->rows.row[row], &r);
	return r;
}

#define PAGE(w, text)  result(w, PROBE_METRICS, PROBE_OK, 200, text, 0)
#define HEALTH_OK(w)   result(w, PROBE_HEALTH, PROBE_OK, 200, NULL, 0)
#define BUSY	       "vllm:num_requests_waiting 3\nvllm:num_requests_running 4\n"

Test(targets, each_way_of_having_no_page_is_told_apart)
{
	struct world w;

	begin(&w, CONFIG("engine: vllm"));
	cr_assert_eq(PAGE(&w, "").metrics_why, WHY_NO_SAMPLES);
	cr_assert_eq(PAGE(&w, "# HELP vllm:num_requests_waiting x\n").metrics_why, WHY_NO_SAMPLES);
	cr_assert_eq(PAGE(&w, "sglang:num_running_reqs 1\n").metrics_why, WHY_NO_SERIES);
	cr_assert_eq(PAGE(&w, "sglang:num_running_reqs 1\n").known, 0);
	cr_assert_eq(PAGE(&w, BUSY "vllm:kv_cache_us").metrics_why, WHY_IN_PART);
	cr_assert_eq(PAGE(&w, BUSY).metrics_why, WHY_OK);
	cr_assert_eq(result(&w, PROBE_METRICS, PROBE_STATUS, 404, NULL, 0).metrics_why,
		     WHY_NO_PAGE);
	cr_assert_eq(result(&w, PROBE_METRICS, PROBE_STATUS, 500, NULL, 0).metrics_why,
		     WHY_STATUS);
	cr_assert_eq(result(&w, PROBE_METRICS, PROBE_LARGE, 200, NULL, 0).metrics_why,
		     WHY_TOO_LARGE);
	cr_assert_eq(result(&w, PROBE_METRICS, PROBE_SLOW, 0, NULL, 0).metrics_why, WHY_SLOW);
	cr_assert_eq(result(&w, PROBE_METRICS, PROBE_UNREACHABLE, 0, NULL, 0).metrics_why,
		     WHY_REFUSED);
	end(&w);
}

/* MX-07 */
Test(targets, a_slow_health_beside_a_page_that_came_is_no_reason_to_doubt)
{
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm"));
	result(&w, PROBE_METRICS, PROBE_STATUS, 404, NULL, 0);
	r = result(&w, PROBE_HEALTH, PROBE_SLOW, 0, NULL, 0);
	cr_assert_eq(r.health, HEALTH_SUSPECT, "no page ever came");
	cr_assert_eq(r.health_why, WHY_SLOW);
	PAGE(&w, BUSY);
	w.now += S_NS / 2;
	cr_assert_eq(result(&w, PROBE_HEALTH, PROBE_SLOW, 0, NULL, 0).health, HEALTH_UP);
	w.now += 2 * S_NS;
	cr_assert_eq(result(&w, PROBE_HEALTH, PROBE_SLOW, 0, NULL, 0).health, HEALTH_SUSPECT);
	end(&w);
}

/* MX-04, MX-08 */
Test(targets, what_is_said_twice_or_cannot_be_read_is_counted)
{
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm"));
	r = PAGE(&w, BUSY "vllm:num_requests_waiting 5\nvllm:kv_cache_usage_perc 0x10\nx 1.2.3\n");
	cr_assert_eq(r.waiting, 5);
	cr_assert_not(r.known & KNOWN_KV_USAGE);
	cr_assert_eq(count_get(&w.process, COUNTER_scrape_duplicates), 1);
	cr_assert_eq(count_get(&w.process, COUNTER_scrape_lines_bad), 1, "others are not ours");
	end(&w);
}

Test(targets, since_when_is_kept_while_the_reason_stays)
{
	struct world w;
	mono_ns since;

	begin(&w, CONFIG("engine: vllm"));
	HEALTH_OK(&w);
	since = w.rows.row[0].health_since_ns;
	cr_assert_neq(since, 0);
	HEALTH_OK(&w);
	PAGE(&w, BUSY);
	cr_assert_eq(w.rows.row[0].health_since_ns, since);
	cr_assert_eq(result(&w, PROBE_HEALTH, PROBE_STATUS, 503, NULL, 0).health, HEALTH_SUSPECT);
	cr_assert_neq(w.rows.row[0].health_since_ns, since);
	cr_assert_eq(result(&w, PROBE_HEALTH, PROBE_STATUS, 503, NULL, 0).status, 503);
	end(&w);
}

/* MX-06, MX-07 */
Test(targets, a_missed_page_changes_nothing_until_the_reading_is_too_old_and_never_the_health)
{
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm"));
	HEALTH_OK(&w);
	r = PAGE(&w, BUSY);
	cr_assert(row_reading_fresh(&r, w.now));
	w.now += 4 * S_NS;
	r = result(&w, PROBE_METRICS, PROBE_SLOW, 0, NULL, 0);
	cr_assert_eq(r.waiting, 3);
	cr_assert(r.known & KNOWN_WAITING);
	cr_assert(row_reading_fresh(&r, w.now), "4 s");
	w.now += 2 * S_NS;
	r = result(&w, PROBE_METRICS, PROBE_SLOW, 0, NULL, 0);
	cr_assert_not(r.known & (KNOWN_WAITING | KNOWN_RUNNING));
	cr_assert_not(row_reading_fresh(&r, w.now), "6 s");
	cr_assert_eq(r.health, HEALTH_UP);
	r = PAGE(&w, BUSY);
	cr_assert(r.known & KNOWN_WAITING);
	end(&w);
}

Test(targets, with_long_intervals_a_reading_is_good_for_three_of_them)
{
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm, scrapeInterval: 10s"));
	r = PAGE(&w, BUSY);
	cr_assert(row_reading_fresh(&r, w.now + 29 * S_NS));
	cr_assert_not(row_reading_fresh(&r, w.now + 31 * S_NS));
	end(&w);
}

Test(targets, a_rank_that_the_page_does_not_name_is_unknown_and_says_so)
{
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm, dataParallelRanks: 2"));
	r = PAGE(&w, "vllm:num_requests_waiting{engine=\"0\"} 3\n");
	cr_assert_eq(r.metrics_why, WHY_OK);
	row_reading_read(&w.rows.row[1], &r);
	cr_assert_eq(r.metrics_why, WHY_NO_SERIES);
	HEALTH_OK(&w);
	row_reading_read(&w.rows.row[1], &r);
	cr_assert_eq(r.metrics_why, WHY_NO_SERIES, "also when its health is written");
	end(&w);
}

Test(targets, falling_asleep_is_told_once_and_waking_is_seen_with_the_next_answers)
{
	const char *sleeps = BUSY "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n";
	const char *awake = BUSY "vllm:engine_sleep_state{sleep_state=\"awake\"} 1\n";
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm"));
	PAGE(&w, awake);
	cr_assert_eq(HEALTH_OK(&w).health, HEALTH_UP);
	PAGE(&w, sleeps);
	PAGE(&w, sleeps);
	cr_assert_eq(w.sleeps, 1);
	r = HEALTH_OK(&w);
	cr_assert_eq(r.health, HEALTH_DOWN);
	cr_assert_eq(r.health_why, WHY_ASLEEP);
	PAGE(&w, awake);
	cr_assert_eq(HEALTH_OK(&w).health, HEALTH_UP);
	end(&w);
}

Test(targets, routes_of_the_dev_mode_tell_of_sleep_and_pause_where_they_are)
{
	struct world w;

	begin(&w, CONFIG("engine: vllm"));
	result(&w, PROBE_SLEEPING, PROBE_OK, 200, "{\"is_sleeping\": true}", 0);
	cr_assert_eq(w.sleeps, 1);
	cr_assert_eq(HEALTH_OK(&w).health_why, WHY_ASLEEP);
	result(&w, PROBE_SLEEPING, PROBE_SLOW, 0, NULL, 0);
	cr_assert_eq(HEALTH_OK(&w).health_why, WHY_ASLEEP, "silence says nothing");
	result(&w, PROBE_SLEEPING, PROBE_OK, 200, "{\"is_sleeping\": false}", 0);
	cr_assert_eq(HEALTH_OK(&w).health, HEALTH_UP);
	result(&w, PROBE_PAUSED, PROBE_OK, 200, "{\"is_paused\": true}", 0);
	cr_assert_eq(HEALTH_OK(&w).health_why, WHY_PAUSED);
	result(&w, PROBE_PAUSED, PROBE_STATUS, 404, NULL, 0);
	cr_assert_eq(HEALTH_OK(&w).health, HEALTH_UP);
	result(&w, PROBE_PAUSED, PROBE_OK, 200, "{\"is_paused\": 1}", 0);
	result(&w, PROBE_PAUSED, PROBE_OK, 200, "[true", 0);
	cr_assert_eq(HEALTH_OK(&w).health, HEALTH_UP);
	end(&w);
}

Test(targets, a_start_time_that_moves_is_told_and_one_that_comes_is_not)
{
	struct world w;

	begin(&w, CONFIG("engine: vllm"));
	PAGE(&w, BUSY);
	PAGE(&w, BUSY "process_start_time_seconds 1e9\n");
	PAGE(&w, BUSY "process_start_time_seconds 1e9\n");
	cr_assert_eq(w.starts, 0);
	PAGE(&w, BUSY "process_start_time_seconds 1.5e9\n");
	cr_assert_eq(w.starts, 1);
	end(&w);
}

Test(targets, the_length_of_sglang_s_page_stands_where_models_does_not_say_it)
{
	const char *page = "sglang:num_queue_reqs{model_name=\"m\"} 1\n"
			   "sglang:context_len{model_name=\"m\"} 40960\n";
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: sglang"));
	r = PAGE(&w, page);
	cr_assert_eq(r.max_model_len, 40960);
	r = result(&w, PROBE_METRICS, PROBE_STATUS, 404, NULL, 0);
	cr_assert(r.known & KNOWN_MAX_MODEL_LEN, "it does not age");
	end(&w);
}

#define START(s)   BUSY "process_start_time_seconds " s "\n"
#define REFUSED(w) result(w, PROBE_HEALTH, PROBE_UNREACHABLE, 0, NULL, 0)

Test(targets, one_that_was_away_is_known_again_when_a_page_asked_for_since_says_its_start)
{
	struct world w;
	struct row_reading r;
	mono_ns asked;

	begin(&w, CONFIG("engine: vllm"));
	PAGE(&w, START("1e9"));
	r = HEALTH_OK(&w);
	cr_assert(row_reading_same_life(&r));
	r = result(&w, PROBE_HEALTH, PROBE_SLOW, 0, NULL, 0);
	cr_assert(row_reading_same_life(&r), "slow is busy");
	asked = w.now;
	r = REFUSED(&w);
	cr_assert_not(row_reading_same_life(&r));
	cr_assert_eq(r.health, HEALTH_SUSPECT);
	w.now = asked;
	r = PAGE(&w, START("1e9"));
	cr_assert_not(row_reading_same_life(&r), "asked for before it was away");
	w.now += S_NS;
	r = HEALTH_OK(&w);
	cr_assert_eq(r.health, HEALTH_UP);
	cr_assert_not(row_reading_same_life(&r), "up, and nobody knows who");
	r = result(&w, PROBE_METRICS, PROBE_STATUS, 500, NULL, 0);
	cr_assert_not(row_reading_same_life(&r));
	r = PAGE(&w, START("1e9"));
	cr_assert(row_reading_same_life(&r), "it only could not be reached");
	cr_assert_eq(w.starts, 0);
	r = HEALTH_OK(&w);
	cr_assert(row_reading_same_life(&r));

	REFUSED(&w);
	HEALTH_OK(&w);
	r = PAGE(&w, START("1.5e9"));
	cr_assert(row_reading_same_life(&r));
	cr_assert_eq(row_reading_start(&r), 1500000000ull * S_NS);
	cr_assert_eq(w.starts, 1, "another one, and kvevents is told");

	r = result(&w, PROBE_METRICS, PROBE_UNREACHABLE, 0, NULL, 0);
	cr_assert_not(row_reading_same_life(&r), "its page was refused");
	r = PAGE(&w, BUSY);
	cr_assert(row_reading_same_life(&r), "it says its start no more: its events tell");
	cr_assert_not(r.known & KNOWN_ENGINE_START);
	end(&w);
}

Test(targets, one_that_never_says_its_start_is_no_less_known_for_having_been_away)
{
	struct world w;
	struct row_reading r;

	begin(&w, CONFIG("engine: vllm"));
	PAGE(&w, BUSY);
	r = REFUSED(&w);
	cr_assert(row_reading_same_life(&r));
	r = HEALTH_OK(&w);
	cr_assert(row_reading_same_life(&r));
	end(&w);
}

#define CLOUD(models)                                                                              \
	"apiVersion: pointsman.io/v1alpha1\nkind: InferenceProvider\nmetadata: {name: cloud}\n"    \
	"spec: {type: openai, models: [" models "]}\n---\n"

/* The rows of a provider, as the supervisor has them. */
static void
provider_rows(struct world *w)
{
	for (uint32_t i = 0; i < w->m->n_members; i++) {
		struct row_text text = {.set = "cloud", .url = "unix:p.sock"};

		if (w->m->members[i].set != MANIFEST_NONE)
			continue;
		w->rows.row[i].intent = INTENT_NONE;
		rows_text_write(&w->rows, (uint16_t)i, &text);
		w->rows.row[i].kind = ROW_PROVIDER;
		w->rows.row[i].intent = INTENT_SERVE;
	}
	cr_assert_eq(targets_set(w->targets, w->m, NULL), 0);
}

Test(targets, a_provider_is_one_target_whose_health_is_that_of_all_its_models)
{
	struct world w;
	struct row_reading r;

	begin(&w, CLOUD("{name: a}, {name: b}") CONFIG("engine: vllm"));
	provider_rows(&w);
	for (unsigned i = 0; i < 4; i++) {
		struct probe *p = probe_new(3, PROBE_HEALTH, MANIFEST_ENGINE_VLLM);

		/* 200, then three times 503; the third target: begin() knew no socket yet */
		p->result = i == 0 ? PROBE_OK : PROBE_STATUS;
		p->fetch.status = i == 0 ? 200 : 503;
		p->fetch.ended_ns = w.now += S_NS;
		targets_result(w.targets, p);
		for (unsigned row = 1; row < 3; row++) {
			row_reading_read(&w.rows.row[row], &r);
			cr_assert_eq(r.health, i == 0 ? HEALTH_UP :
				     i < 3 ? HEALTH_SUSPECT : HEALTH_DOWN);
			cr_assert_eq(r.health_why, i == 0 ? WHY_OK : WHY_UNAVAILABLE);
			cr_assert_eq(r.known, 0, "it has no page");
			cr_assert_eq(r.metrics_why, WHY_NOT_ASKED);
		}
	}
	row_reading_read(&w.rows.row[0], &r);
	cr_assert_eq(r.health, HEALTH_UNKNOWN, "the worker's is its own");
	end(&w);
}
