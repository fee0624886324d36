/* tests/unit/test_show.c -- stat, workers, requests, explain as JSON. */
#include "tests/unit/view_world.h"

#include <errno.h>

static void
enter(struct view_world *w, unsigned i, enum process_role role, enum roster_state state)
{
	struct roster_entry *e = &w->roster.entry[i];

	e->role = (uint16_t)role;
	e->pid = 4000 + i;
	e->incarnation = i;
	e->restarts = i;
	strcpy(e->last_exit, "signal 9 (Killed)");
	atomic_store(&e->state, state);
}

Test(show, stat_names_every_process_by_role_and_state)
{
	struct view_world w;
	json_t *o, *list, *p;

	world_begin(&w);
	w.roster.head->generation = 4;
	w.roster.head->reload = RELOAD_PROBATION;
	enter(&w, 1, ROLE_POLICY, ROSTER_ACTIVE);
	enter(&w, 5, ROLE_INGRESS, ROSTER_READY);
	count_add(&w.ingress, COUNTER_requests, 3);
	o = pm_show_stat(&w.view);
	list = json_object_get(o, "processes");
	cr_assert_eq(world_number(o, "generation"), 4);
	cr_assert_str_eq(world_text(o, "reload"), "probation");
	cr_assert_eq(world_number(o, "workers_count"), 2);
	cr_assert_eq(world_number(o, "workers_up"), 1);
	cr_assert_eq(world_number(json_object_get(o, "requests"), "total"), 3);
	cr_assert_eq(json_array_size(list), 2);
	p = json_array_get(list, 0);
	cr_assert_str_eq(world_text(p, "role"), "policy");
	cr_assert_str_eq(world_text(p, "state"), "active");
	cr_assert_eq(world_number(p, "pid"), 4001);
	cr_assert_eq(world_number(p, "restarts"), 1);
	cr_assert_str_eq(world_text(p, "last_exit"), "signal 9 (Killed)");
	cr_assert(json_is_null(json_object_get(p, "heartbeat_age_s"))); /* no such segment */
	json_decref(o);
	world_end(&w);
}

Test(show, ready_says_each_thing_that_is_missing)
{
	struct view_world w;
	json_t *why;

	world_begin(&w);
	cr_assert_not(pm_show_ready(&w.view, &why));
	cr_assert_eq(json_array_size(why), 3);
	json_decref(why);
	w.roster.head->generation = 1;
	enter(&w, 1, ROLE_POLICY, ROSTER_DRAINING);
	enter(&w, 2, ROLE_INGRESS, ROSTER_STARTING);
	cr_assert_not(pm_show_ready(&w.view, &why));
	cr_assert_eq(json_array_size(why), 2);
	json_decref(why);
	enter(&w, 1, ROLE_POLICY, ROSTER_READY);        /* in the middle of a switch */
	enter(&w, 2, ROLE_INGRESS, ROSTER_READY);
	cr_assert(pm_show_ready(&w.view, &why));
	json_decref(why);
	enter(&w, 1, ROLE_POLICY, ROSTER_ACTIVE);
	cr_assert(pm_show_ready(&w.view, &why));
	json_decref(why);
	w.roster.head->draining = 1;
	cr_assert_not(pm_show_ready(&w.view, &why));
	cr_assert_str_eq(json_string_value(json_array_get(why, 0)), "draining");
	json_decref(why);
	world_end(&w);
}

Test(show, ready_ends_where_an_ingress_says_what_is_short)
{
	static const enum counter gauges[] = {COUNTER_crowded_slots, COUNTER_crowded_arena,
					      COUNTER_crowded_connections,
					      COUNTER_crowded_questions};
	static const char *const said[] = {
		"ingress 0: request slots nearly all in use",
		"ingress 0: memory for request bodies nearly all in use",
		"ingress 0: client connections nearly all in use",
		"ingress 0: questions to the policy process nearly all in use",
	};
	struct view_world w;
	json_t *why;

	world_begin(&w);
	w.roster.head->generation = 1;
	enter(&w, 1, ROLE_POLICY, ROSTER_ACTIVE);
	enter(&w, 2, ROLE_INGRESS, ROSTER_READY);
	w.roster.entry[2].incarnation = WORLD_INGRESS;
	for (unsigned i = 0; i < 4; i++) {
		count_set(&w.ingress, gauges[i], 1);
		cr_assert_not(pm_show_ready(&w.view, &why));
		cr_assert_eq(json_array_size(why), 1);
		cr_assert_str_eq(json_string_value(json_array_get(why, 0)), said[i]);
		json_decref(why);
		count_set(&w.ingress, gauges[i], 0);
		cr_assert(pm_show_ready(&w.view, &why));
		json_decref(why);
	}
	count_set(&w.ingress, COUNTER_crowded_slots, 1);
	w.roster.entry[2].state = ROSTER_DRAINING;      /* replaced: what it lacks is no matter */
	enter(&w, 4, ROLE_INGRESS, ROSTER_READY);
	cr_assert(pm_show_ready(&w.view, &why));
	json_decref(why);
	world_end(&w);
}

Test(show, what_a_worker_did_not_say_is_null_not_zero)
{
	struct view_world w;
	json_t *o, *reading;

	world_begin(&w);
	o = pm_show_workers(&w.view);
	reading = json_object_get(json_array_get(json_object_get(o, "workers"), 0), "reading");
	cr_assert_eq(world_number(reading, "waiting"), 7);
	cr_assert(json_is_null(json_object_get(reading, "running")));
	cr_assert(json_is_null(json_object_get(reading, "engine_start")));
	cr_assert_float_eq(json_real_value(json_object_get(reading, "kv_usage")), 0.25, 1e-6);
	json_decref(o);
	world_end(&w);
}

Test(show, a_worker_says_why_its_state_is_so_and_since_when)
{
	struct view_world w;
	struct row_reading r;
	json_t *o, *reading;

	world_begin(&w);
	row_reading_read(&w.rows.row[0], &r);
	r.health_why = WHY_STATUS;
	r.metrics_why = WHY_NO_PAGE;
	r.status = 500;
	row_reading_write(&w.rows.row[0], &r);
	atomic_store(&w.rows.row[0].health_since_ns, clock_mono() - 3000000000u);
	o = pm_show_workers(&w.view);
	reading = json_object_get(json_array_get(json_object_get(o, "workers"), 0), "reading");
	cr_assert_str_eq(json_string_value(json_object_get(reading, "health_why")), "status");
	cr_assert_str_eq(json_string_value(json_object_get(reading, "metrics_why")), "no-page");
	cr_assert_eq(world_number(reading, "http_status"), 500);
	cr_assert_geq(json_number_value(json_object_get(reading, "health_since_s")), 3);
	cr_assert(json_is_null(json_object_get(reading, "metrics_since_s")));
	cr_assert(json_is_false(json_object_get(reading, "stale")));
	json_decref(o);
	world_end(&w);
}

static void
occupy(struct view_world *w, uint32_t slot, uint64_t id, enum slot_state state, mono_ns arrival)
{
	struct slot *s = &w->slots.slot[slot];

	s->request_id = id;
	s->arrival_ns = arrival;
	s->row = 0;
	s->row_gen = 1;
	s->prompt = 500;
	memcpy(s->peer_addr, (uint8_t[16]){[10] = 0xff, 0xff, 127, 0, 0, 1}, 16);
	s->peer_port = 4444;
	atomic_store(&s->word, slot_word(1, 1, state, 0));
}

Test(show, requests_come_longest_waiting_first_and_are_cut_at_the_limit)
{
	mono_ns now = clock_mono();
	struct view_world w;
	json_t *o, *list, *r;

	world_begin(&w);
	occupy(&w, 1, WORLD_ID(1), SLOT_STREAM, now - 1000);
	occupy(&w, 2, WORLD_ID(2), SLOT_ASKED, now - 3000);
	occupy(&w, 3, WORLD_ID(3), SLOT_FREE, now - 9000);
	occupy(&w, 8, WORLD_ID(4), SLOT_SENT, now - 2000);
	o = pm_show_requests(&w.view, 2);
	list = json_object_get(o, "requests");
	cr_assert_eq(world_number(o, "live"), 3);
	cr_assert_eq(world_number(json_object_get(o, "states"), "asked"), 1);
	cr_assert_eq(json_array_size(list), 2);
	r = json_array_get(list, 0);
	cr_assert_str_eq(world_text(r, "id"), "0000030000000002");
	cr_assert(json_is_null(json_object_get(r, "worker")));          /* nothing is chosen yet */
	r = json_array_get(list, 1);
	cr_assert_str_eq(world_text(r, "id"), "0000030000000004");
	cr_assert_str_eq(world_text(r, "worker"), "w0");
	cr_assert_str_eq(world_text(r, "peer"), "127.0.0.1:4444");
	json_decref(o);
	world_end(&w);
}

static void
expect(struct view_world *w, uint64_t id, const char *state, size_t decisions, bool outcome)
{
	json_t *o = pm_show_explain(&w->view, id);

	cr_assert_str_eq(world_text(o, "state"), state);
	cr_assert_eq(json_array_size(json_object_get(o, "decisions")), decisions);
	cr_assert_eq(json_is_object(json_object_get(o, "outcome")), outcome);
	json_decref(o);
}

Test(show, explain_joins_decision_and_outcome_and_compares_them)
{
	struct view_world w;
	json_t *o, *compare;

	world_begin(&w);
	world_decide(&w, WORLD_ID(1));
	world_decide(&w, WORLD_ID(2));
	world_decide(&w, WORLD_ID(2));          /* asked again */
	world_outcome(&w, WORLD_ID(2), true);
	o = pm_show_explain(&w.view, WORLD_ID(2));
	compare = json_object_get(o, "compare");
	cr_assert_str_eq(world_text(o, "state"), "done");
	cr_assert_eq(json_array_size(json_object_get(o, "decisions")), 2);
	cr_assert_str_eq(world_text(json_object_get(o, "outcome"), "worker"), "w0");
	cr_assert_eq(world_number(compare, "ttft_error_us"), -2000);
	cr_assert_eq(world_number(compare, "prompt_tokens_error"), -1);
	cr_assert(json_is_null(json_object_get(compare, "cached_tokens_error"))); /* unknown */
	json_decref(o);
	world_end(&w);
}

Test(show, explain_does_not_call_overwritten_what_is_not_in_view)
{
	struct view_world w;
	json_t *o;

	world_begin(&w);
	world_outcome(&w, WORLD_ID(1), true);
	o = pm_show_explain(&w.view, WORLD_ID(1));
	cr_assert(strstr(world_text(o, "why"), "overwritten"), "%s", world_text(o, "why"));
	json_decref(o);
	for (unsigned i = 0; i < w.view.n_processes; i++)
		if (w.view.process[i].role == ROLE_POLICY)
			w.view.process[i].incarnation += 100;
	o = pm_show_explain(&w.view, WORLD_ID(1));
	cr_assert(strstr(world_text(o, "why"), "too new"), "%s", world_text(o, "why"));
	json_decref(o);
	world_end(&w);
}

Test(show, explain_tells_live_unknown_and_overwritten_apart)
{
	struct view_world w;

	world_begin(&w);
	occupy(&w, 2, WORLD_ID(1), SLOT_STREAM, clock_mono());
	world_decide(&w, WORLD_ID(1));
	expect(&w, WORLD_ID(1), "live", 1, false);
	expect(&w, WORLD_ID(2), "unknown", 0, false);           /* not given out yet */
	expect(&w, (uint64_t)77 << 40 | 1, "unknown", 0, false);/* no such ingress */
	world_outcome(&w, WORLD_ID(2), false);
	expect(&w, WORLD_ID(2), "done", 0, true);               /* refused before it was asked */
	for (unsigned n = 3; n < 400; n++)                      /* 32 KiB rings wrap */
		world_outcome(&w, WORLD_ID(n), true);
	expect(&w, WORLD_ID(2), "overwritten", 0, false);
	expect(&w, WORLD_ID(399), "done", 0, true);
	expect(&w, WORLD_ID(400), "unknown", 0, false);
	pm_view_gone(&w.view, ROLE_POLICY, WORLD_POLICY);
	pm_view_gone(&w.view, ROLE_INGRESS, WORLD_INGRESS);
	expect(&w, WORLD_ID(1), "done", 1, false);              /* read from the dead */
	expect(&w, WORLD_ID(399), "done", 0, true);
	world_end(&w);
}

Test(show, an_id_is_16_hex_digits_perhaps_with_an_attempt)
{
	uint64_t id = 5;

	cr_assert_eq(pm_show_id("000003000000000a", 16, &id), 0);
	cr_assert_eq(id, WORLD_ID(10));
	cr_assert_eq(pm_show_id("000003000000000A-2", 18, &id), 0);
	cr_assert_eq(id, WORLD_ID(10));
	cr_assert_eq(pm_show_id("000003000000000", 15, &id), -EINVAL);
	cr_assert_eq(pm_show_id("000003000000000g", 16, &id), -EINVAL);
	cr_assert_eq(pm_show_id("000003000000000a2", 17, &id), -EINVAL);
	cr_assert_eq(pm_show_id("", 0, &id), -EINVAL);
	cr_assert_eq(id, WORLD_ID(10));
}

Test(show, a_worker_says_what_is_proven_of_its_tokens_and_a_model_of_all_its_workers)
{
	struct view_world w;
	json_t *o, *t, *m;

	world_begin(&w);
	world_trust(&w, 0, TRUST_MISMATCH, TRUST_PROBES_DIFFER);
	o = pm_show_workers(&w.view);
	t = json_object_get(json_array_get(json_object_get(o, "workers"), 0), "tokens");
	cr_assert_str_eq(world_text(t, "state"), "mismatch");
	cr_assert_str_eq(world_text(t, "reason"), "probes-differ");
	cr_assert_str_eq(world_text(t, "engine_version"), "0.31.0");
	cr_assert_eq(world_number(t, "usage_differ"), 1);
	cr_assert_eq(world_number(json_object_get(t, "difference"), "theirs"), 200);
	cr_assert(json_is_null(json_object_get(json_array_get(json_object_get(o, "workers"), 1),
					       "tokens")));
	m = json_array_get(json_object_get(o, "models"), 0);
	cr_assert_str_eq(world_text(m, "model"), "demo");
	cr_assert_str_eq(world_text(m, "tokens"), "mismatch");
	cr_assert_eq(world_number(m, "mismatch"), 1);
	json_decref(o);
	world_end(&w);
}
