/* tests/unit/test_why.c -- states of a worker and what is wrong, in one line each; the cases of the
 * reports with whole processes: tests/scenario/why.py. */
#include "tests/unit/view_world.h"

#include "actors/common/why.h"

static void
reading(struct view_world *w, enum row_health health, enum row_why health_why,
	enum row_why metrics_why, uint32_t known)
{
	mono_ns now = clock_mono();
	struct row_reading r = {
		.sampled_lo = (uint32_t)now, .sampled_hi = (uint32_t)(now >> 32), .known = known,
		.health = health, .health_why = (uint8_t)health_why,
		.metrics_why = (uint8_t)metrics_why, .status = 500,
	};

	row_reading_write(&w->rows.row[0], &r);
	atomic_store(&w->rows.row[0].health_since_ns, now);
	atomic_store(&w->rows.row[0].metrics_since_ns, now);
}

#define LOAD (KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE)

static unsigned
ask(struct view_world *w, const struct pm_why_traffic *traffic, struct pm_why why[PM_WHY_MAX])
{
	struct pm_view_worker worker;

	cr_assert(pm_view_worker(&w->view, 0, clock_mono(), &worker));
	return pm_why(&w->view, &worker, traffic, clock_mono(), why);
}

/* The fact about that; the trouble among them first. */
static const struct pm_why *
about(const struct pm_why *why, unsigned n, enum pm_why_about a)
{
	const struct pm_why *found = NULL;

	for (unsigned i = 0; i < n; i++)
		if (why[i].about == a && (!found || (why[i].trouble && !found->trouble)))
			found = &why[i];
	cr_assert_not_null(found, "%s", pm_why_about_name(a));
	return found;
}

static unsigned
troubles(const struct pm_why *why, unsigned n)
{
	unsigned bad = 0;

	for (unsigned i = 0; i < n; i++) {
		bad += why[i].trouble;
		cr_assert_neq(why[i].text[0], 0);
		cr_assert_lt(strlen(why[i].text), sizeof why[i].text - 1, "cut: %s", why[i].text);
		cr_assert_null(strchr(why[i].text, '\n'));
	}
	return bad;
}

Test(why, a_sound_worker_has_a_fact_of_each_and_no_trouble)
{
	struct pm_why_traffic traffic = {.answers = 50, .decided = 50, .compared = 50,
					 .cached_said = 50};
	struct pm_why why[PM_WHY_MAX];
	struct view_world w;
	unsigned n;

	world_begin(&w);
	reading(&w, HEALTH_UP, WHY_OK, WHY_OK, LOAD);
	atomic_store(&w.rows.row[0].cache_state, CACHE_EXACT);
	atomic_store(&w.rows.row[0].received, 7);
	atomic_store(&w.rows.row[0].applied, 9);
	n = ask(&w, &traffic, why);
	cr_assert_eq(n, WHY_ABOUTS);
	cr_assert_eq(troubles(why, n), 0);
	cr_assert_str_eq(about(why, n, WHY_STATE)->is, "up");
	cr_assert_str_eq(about(why, n, WHY_METRICS)->is, "known");
	cr_assert_str_eq(about(why, n, WHY_CACHE)->is, "exact");
	cr_assert_str_eq(about(why, n, WHY_TOKENS)->is, "exact");
	cr_assert_str_eq(about(why, n, WHY_PREDICTOR)->is, "calibrating");
	world_end(&w);
}

Test(why, every_reason_of_health_and_metrics_is_said_whole)
{
	struct pm_why why[PM_WHY_MAX];
	struct view_world w;

	world_begin(&w);
	for (enum row_why reason = WHY_REFUSED; reason < WHY_COUNT; reason++) {
		const struct pm_why *state, *metrics;
		unsigned n;

		reading(&w, HEALTH_DOWN, reason, reason, 0);
		n = ask(&w, NULL, why);
		state = about(why, n, WHY_STATE);
		metrics = about(why, n, WHY_METRICS);
		cr_assert_geq(troubles(why, n), 2, "%s", row_why_name(reason));
		cr_assert_str_eq(state->reason, row_why_name(reason));
		cr_assert_str_eq(metrics->reason, row_why_name(reason));
		cr_assert_not_null(strstr(state->text, row_why_text(reason)));
		cr_assert(state->since_ns > 0 && metrics->since_ns > 0);
	}
	world_end(&w);
}

Test(why, a_page_without_the_engines_series_makes_its_load_unknown_and_not_in_part)
{
	struct pm_why why[PM_WHY_MAX];
	const struct pm_why *f;
	struct view_world w;

	world_begin(&w);
	reading(&w, HEALTH_UP, WHY_OK, WHY_NO_SERIES, 0);
	f = about(why, ask(&w, NULL, why), WHY_METRICS);
	cr_assert_str_eq(f->is, "unknown");
	cr_assert_not_null(strstr(f->text, "unknown (not 0)"), "%s", f->text);
	reading(&w, HEALTH_UP, WHY_OK, WHY_SLOW, LOAD);
	f = about(why, ask(&w, NULL, why), WHY_METRICS);
	cr_assert_str_eq(f->is, "known");
	cr_assert_not_null(strstr(f->text, "still young enough"), "%s", f->text);
	world_end(&w);
}

Test(why, every_trouble_of_events_is_said_whole_and_counts_where_nothing_else_comes)
{
	struct pm_why why[PM_WHY_MAX];
	struct view_world w;
	struct row *row;

	world_begin(&w);
	row = &w.rows.row[0];
	reading(&w, HEALTH_UP, WHY_OK, WHY_OK, LOAD);
	row->block_tokens = 16;
	atomic_store(&row->received, UINT64_MAX / 2);
	for (enum event_trouble kind = 1; kind < TROUBLES; kind++) {
		const struct pm_why *f;
		unsigned n;

		atomic_store(&row->applied, 0);
		atomic_store(&row->troubles, 1u << kind);
		atomic_store(&row->trouble, row_trouble_pack(kind, UINT64_MAX));
		atomic_store(&row->trouble_count, UINT64_MAX / 2);
		atomic_store(&row->trouble_since_ns, clock_mono());
		n = ask(&w, NULL, why);
		f = about(why, n, WHY_EVENTS);
		cr_assert_eq(troubles(why, n), 1, "%s", event_trouble_name(kind));
		cr_assert_str_eq(f->reason, event_trouble_name(kind));
		cr_assert_not_null(strstr(f->text, event_trouble_text(kind)), "%s", f->text);
		cr_assert_gt(f->since_ns, 0);
	}
	atomic_store(&row->applied, 5);         /* partial blocks of an engine that is heard */
	atomic_store(&row->troubles, 1u << TROUBLE_SIZE | 1u << TROUBLE_PARENT);
	cr_assert_eq(troubles(why, ask(&w, NULL, why)), 0);
	world_end(&w);
}

Test(why, a_gap_is_trouble_and_says_how_it_came)
{
	static const enum cache_reason reasons[] = {
		REASON_FIRST_SEQ, REASON_SEQ_HOLE, REASON_SEQ_BACK, REASON_ENGINE_START,
		REASON_HALF_BATCH, REASON_WRITER_RESTART, REASON_PUBLISHER, REASON_HISTORY_LOST,
		REASON_REPLAY_SILENT, REASON_REPLAY_LOST,
	};
	struct pm_why why[PM_WHY_MAX];
	struct view_world w;

	world_begin(&w);
	reading(&w, HEALTH_UP, WHY_OK, WHY_OK, LOAD);
	for (unsigned i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
		const struct pm_why *f;

		atomic_store(&w.rows.row[0].cache_state,
			     CACHE_GAP | (uint32_t)reasons[i] << 8);
		f = about(why, ask(&w, NULL, why), WHY_CACHE);
		cr_assert(f->trouble);
		cr_assert_str_eq(f->is, "gap");
		cr_assert_str_eq(f->reason, cache_reason_name(reasons[i]));
		cr_assert_null(strstr(f->text, "not known for sure"), "%s: %s", f->reason,
			       f->text);
	}
	world_end(&w);
}

Test(why, prompts_counted_otherwise_than_by_the_engine_are_a_mismatch)
{
	struct pm_why_traffic traffic[2];
	struct pm_why why[PM_WHY_MAX];
	const struct pm_why *f;
	struct view_world w;

	world_begin(&w);
	reading(&w, HEALTH_UP, WHY_OK, WHY_OK, LOAD);
	world_decide(&w, WORLD_ID(1));
	world_outcome(&w, WORLD_ID(1), true);   /* prompt 100, ours 99 */
	pm_why_traffic(&w.view, traffic, 2);
	cr_assert_eq(traffic[0].compared, 1);
	cr_assert_eq(traffic[0].differ, 1);
	cr_assert_eq(traffic[0].decided, 1);
	cr_assert_eq(traffic[1].decided + traffic[1].answers, 0);
	f = about(why, ask(&w, &traffic[0], why), WHY_TOKENS);
	cr_assert(f->trouble);
	cr_assert_str_eq(f->is, "mismatch");
	cr_assert_not_null(strstr(f->text, "ours 99, the engine's 100"), "%s", f->text);
	world_end(&w);
}

Test(why, traffic_without_a_lookup_is_told_once_it_is_no_accident)
{
	struct pm_why_traffic traffic = {.decided = 19, .without_tokens = 19};
	struct pm_why why[PM_WHY_MAX];
	struct view_world w;

	world_begin(&w);
	reading(&w, HEALTH_UP, WHY_OK, WHY_OK, LOAD);
	cr_assert_not(about(why, ask(&w, &traffic, why), WHY_TOKENS)->trouble);
	traffic.decided = traffic.without_tokens = 20;
	cr_assert(about(why, ask(&w, &traffic, why), WHY_TOKENS)->trouble);
	traffic.decided = 40;
	traffic.compared = 20;
	cr_assert_not(about(why, ask(&w, &traffic, why), WHY_TOKENS)->trouble);
	world_end(&w);
}

Test(why, hits_that_never_come_and_hits_that_were_never_expected_are_told)
{
	struct pm_why_traffic traffic = {.expected = 19, .expected_tokens = 64};
	struct pm_why why[PM_WHY_MAX];
	const struct pm_why *f;
	struct view_world w;

	world_begin(&w);
	reading(&w, HEALTH_UP, WHY_OK, WHY_OK, LOAD);
	atomic_store(&w.rows.row[0].cache_state, CACHE_EXACT);
	cr_assert_not(about(why, ask(&w, &traffic, why), WHY_CACHE)->trouble);
	traffic.expected = 20;
	f = about(why, ask(&w, &traffic, why), WHY_CACHE);
	cr_assert(f->trouble);
	cr_assert_str_eq(f->reason, "hits-missing");
	cr_assert_not_null(strstr(f->text, "64 tokens expected"), "%s", f->text);
	traffic = (struct pm_why_traffic){.found = 20, .found_tokens = 48};
	f = about(why, ask(&w, &traffic, why), WHY_CACHE);
	cr_assert(f->trouble);
	cr_assert_str_eq(f->reason, "hits-unknown");
	cr_assert_not_null(strstr(f->text, "48 tokens"), "%s", f->text);
	traffic = (struct pm_why_traffic){.expected = 30, .found = 30, .both = 1};
	cr_assert_not(about(why, ask(&w, &traffic, why), WHY_CACHE)->trouble);
	world_end(&w);
}

Test(why, tokens_that_probes_disproved_are_trouble_with_the_first_difference)
{
	struct pm_why why[PM_WHY_MAX];
	const struct pm_why *f;
	struct view_world w;

	world_begin(&w);
	world_trust(&w, 0, TRUST_MISMATCH, TRUST_PROBES_DIFFER);
	f = about(why, ask(&w, NULL, why), WHY_TOKENS);
	cr_assert(f->trouble);
	cr_assert_str_eq(f->is, "mismatch");
	cr_assert_str_eq(f->reason, "probes-differ");
	cr_assert_eq(f->since_ns, 1000);
	cr_assert(strstr(f->text, "differs at token 12: ours 100, the engine's 200 (of 30 and 31, "
			 "engine 0.31.0)"), "%s", f->text);
	cr_assert(strstr(f->text, "4 of 5 answers count their prompt as we do"), "%s", f->text);
	world_trust(&w, 0, TRUST_MISMATCH, TRUST_USAGE_DIFFERS);
	f = about(why, ask(&w, NULL, why), WHY_TOKENS);
	cr_assert(f->trouble);
	cr_assert(strstr(f->text, "ours 70, the engine's 71"), "%s", f->text);
	world_end(&w);
}

Test(why, a_worker_that_alone_disagrees_is_told_from_a_model_that_is_wrong)
{
	struct pm_why why[PM_WHY_MAX];
	struct view_world w;
	bool said = false;
	unsigned n;

	world_begin(&w);
	world_trust(&w, 0, TRUST_MISMATCH, TRUST_PROBES_DIFFER);
	n = ask(&w, NULL, why);
	for (unsigned i = 0; i < n; i++)
		said |= strcmp(why[i].reason, "model") == 0 && why[i].trouble &&
			strstr(why[i].text, "spec.tokenizer") &&
			strstr(why[i].text, "pointsctl verify");
	cr_assert(said, "its prompts go by /tokenize, and what mends it");
	trust_model_write(&w.rows, 9, "demo", 2, 0, 1, 2000);
	n = ask(&w, NULL, why);
	said = false;
	for (unsigned i = 0; i < n; i++) {
		cr_assert_str_neq(why[i].reason, "model");
		said |= strcmp(why[i].reason, "alone") == 0 && why[i].trouble;
	}
	cr_assert(said);
	world_end(&w);
}

Test(why, a_tokenizer_that_cannot_be_used_is_trouble)
{
	struct row_trust t = {.why = TRUST_NO_MODEL, .since_lo = 1000};
	struct pm_why why[PM_WHY_MAX];
	const struct pm_why *f;
	struct view_world w;

	world_begin(&w);
	row_trust_write(&w.rows, 0, 1, &t);
	f = about(why, ask(&w, NULL, why), WHY_TOKENS);
	cr_assert(f->trouble);
	cr_assert_str_eq(f->is, "unverified");
	cr_assert_str_eq(f->reason, "no-model");
	cr_assert_eq(f->since_ns, 1000);
	cr_assert(strstr(f->text, "pointsctl check"), "%s", f->text);
	world_end(&w);
}

Test(why, tokens_that_are_proven_or_not_yet_are_no_trouble)
{
	struct pm_why why[PM_WHY_MAX];
	const struct pm_why *f;
	struct view_world w;

	world_begin(&w);
	world_trust(&w, 0, TRUST_EXACT, TRUST_PROBES_AGREE);
	f = about(why, ask(&w, NULL, why), WHY_TOKENS);
	cr_assert_not(f->trouble);
	cr_assert_str_eq(f->is, "exact");
	cr_assert(strstr(f->text, "50 of 57 probes, engine 0.31.0"), "%s", f->text);
	world_trust(&w, 0, TRUST_UNVERIFIED, TRUST_NO_ROUTE);
	f = about(why, ask(&w, NULL, why), WHY_TOKENS);
	cr_assert_not(f->trouble);
	cr_assert_str_eq(f->is, "unverified");
	cr_assert_str_eq(f->reason, "no-route");
	world_end(&w);
}
