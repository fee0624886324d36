/* tests/unit/test_view.c -- what is attached, summed and kept. */
#include "tests/unit/view_world.h"

#include <errno.h>
#include <unistd.h>

Test(view, a_workers_load_is_summed_over_live_ingresses)
{
	struct cell_values v = {.pending = 100, .prefilling = 1, .decoding = 2, .context = 50};
	struct column other;
	struct view_world w;
	struct pm_view_worker worker;

	world_begin(&w);
	cr_assert_eq(column_create(&other, 1, 9, 16), 0);
	world_hand(&w.view, &other.seg, SEGMENT_COLUMN, ROLE_INGRESS, 1, 9);
	cell_write(&w.column.cell[0], 1, &v);
	cell_write(&other.cell[0], 1, &v);
	cr_assert(pm_view_worker(&w.view, 0, clock_mono(), &worker));
	cr_assert_eq(worker.load.pending, 200);
	cr_assert_eq(worker.load.decoding, 4);
	cr_assert_str_eq(worker.name, "w0");
	cr_assert_eq(worker.state, ROW_UP);
	pm_view_gone(&w.view, ROLE_INGRESS, 9);
	cr_assert(pm_view_worker(&w.view, 0, clock_mono(), &worker));
	cr_assert_eq(worker.load.pending, 100);
	cell_write(&w.column.cell[0], 2, &v);           /* of another row generation */
	cr_assert(pm_view_worker(&w.view, 0, clock_mono(), &worker));
	cr_assert_eq(worker.load.pending, 0);
	column_detach(&other);
	world_end(&w);
}

Test(view, a_reading_ages_and_a_row_without_intent_is_not_there)
{
	struct pm_view_worker worker;
	struct view_world w;

	world_begin(&w);
	cr_assert(pm_view_worker(&w.view, 0, clock_mono(), &worker) && worker.fresh);
	cr_assert(pm_view_worker(&w.view, 0, clock_mono() + ROW_READING_GOOD_NS + 1000000000u,
				 &worker));
	cr_assert_not(worker.fresh);
	w.rows.row[1].intent = INTENT_REMOVE;
	cr_assert_not(pm_view_worker(&w.view, 1, clock_mono(), &worker));
	cr_assert_not(pm_view_worker(&w.view, 2, clock_mono(), &worker));
	cr_assert_not(pm_view_worker(&w.view, 15, clock_mono(), &worker));
	world_end(&w);
}

Test(view, counters_outlive_their_process_and_gauges_do_not)
{
	struct process_segment next;
	struct view_world w;

	world_begin(&w);
	count_add(&w.ingress, COUNTER_requests, 10);
	count_set(&w.ingress, COUNTER_slots_used, 4);
	pm_view_gone(&w.view, ROLE_INGRESS, WORLD_INGRESS);
	pm_view_gone(&w.view, ROLE_INGRESS, WORLD_INGRESS);     /* told twice */
	cr_assert_eq(pm_view_count(&w.view, ROLE_INGRESS, 0, COUNTER_requests), 10);
	cr_assert_eq(pm_view_count(&w.view, ROLE_INGRESS, 0, COUNTER_slots_used), 0);
	cr_assert_eq(process_create(&next, ROLE_INGRESS, 0, 8, 0, 32768), 0);
	world_hand(&w.view, &next.seg, SEGMENT_PROCESS, ROLE_INGRESS, 0, 8);
	count_add(&next, COUNTER_requests, 5);
	cr_assert_eq(pm_view_count(&w.view, ROLE_INGRESS, 0, COUNTER_requests), 15);
	cr_assert_eq(pm_view_count(&w.view, ROLE_INGRESS, 1, COUNTER_requests), 0);
	process_detach(&next);
	world_end(&w);
}

Test(view, the_dead_are_kept_up_to_a_bound_the_oldest_leaving_first)
{
	struct view_world w;
	unsigned kept = 0;
	bool first = false, last = false;

	world_begin(&w);
	for (uint32_t i = 100; i < 100 + PM_VIEW_GONE_KEPT + 5; i++) {
		struct process_segment p;

		cr_assert_eq(process_create(&p, ROLE_POLICY, 0, i, 1, 32768), 0);
		world_hand(&w.view, &p.seg, SEGMENT_PROCESS, ROLE_POLICY, 0, i);
		count_add(&p, COUNTER_decisions, 1);
		pm_view_gone(&w.view, ROLE_POLICY, i);
		process_detach(&p);
	}
	for (unsigned i = 0; i < w.view.n_processes; i++) {
		kept += w.view.process[i].gone != 0;
		first |= w.view.process[i].incarnation == 100;
		last |= w.view.process[i].incarnation == 100 + PM_VIEW_GONE_KEPT + 4;
	}
	cr_assert_eq(kept, PM_VIEW_GONE_KEPT);
	cr_assert(!first && last);
	cr_assert_eq(pm_view_count(&w.view, ROLE_POLICY, 0, COUNTER_decisions),
		     PM_VIEW_GONE_KEPT + 5);
	world_end(&w);
}

Test(view, a_dead_helper_leaves_at_once_and_its_count_stays)
{
	struct process_segment p;
	struct view_world w;
	unsigned before;

	world_begin(&w);
	before = w.view.n_processes;
	cr_assert_eq(process_create(&p, ROLE_METRICS, 0, 50, 0, 32768), 0);
	world_hand(&w.view, &p.seg, SEGMENT_PROCESS, ROLE_METRICS, 0, 50);
	world_hand(&w.view, &p.seg, SEGMENT_PROCESS, ROLE_METRICS, 0, 50);      /* told twice */
	cr_assert_eq(w.view.n_processes, before + 1);
	count_add(&p, COUNTER_scrapes, 3);
	pm_view_gone(&w.view, ROLE_METRICS, 50);
	cr_assert_eq(w.view.n_processes, before);
	cr_assert_eq(pm_view_count(&w.view, ROLE_METRICS, 0, COUNTER_scrapes), 3);
	process_detach(&p);
	world_end(&w);
}

Test(view, a_segment_of_another_kind_or_layout_is_refused_and_the_old_one_stays)
{
	struct msg_segment m = {.kind = SEGMENT_ROWS, .role = ROLE_SUPERVISOR};
	struct view_world w;
	struct rows other;

	world_begin(&w);
	cr_assert_eq(pm_view_segment(&w.view, &m, segment_readonly_fd(&w.roster.seg)), -EBADMSG);
	cr_assert_eq(rows_create(&other, 16), 0);
	other.seg.head->layout = ROWS_LAYOUT + 1;
	cr_assert_eq(pm_view_segment(&w.view, &m, segment_readonly_fd(&other.seg)), -ESTALE);
	cr_assert_eq(pm_view_rows(&w.view), 2);
	m.kind = 200;
	cr_assert_eq(pm_view_segment(&w.view, &m, segment_readonly_fd(&other.seg)), 0);
	rows_detach(&other);
	world_end(&w);
}

Test(view, an_empty_view_shows_nothing_and_does_not_fall)
{
	struct pm_view view;
	struct roster_entry e;
	json_t *o, *why;

	pm_view_init(&view);
	cr_assert_eq(pm_view_rows(&view), 0);
	cr_assert_not(pm_view_roster(&view, 0, &e));
	cr_assert_null(pm_view_index(&view));
	cr_assert_not(pm_show_ready(&view, &why));
	json_decref(why);
	o = pm_show_stat(&view);
	cr_assert_eq(world_number(o, "workers_count"), 0);
	json_decref(o);
	o = pm_show_workers(&view);
	json_decref(o);
	o = pm_show_requests(&view, 5);
	json_decref(o);
	o = pm_show_explain(&view, WORLD_ID(1));
	cr_assert_str_eq(world_text(o, "state"), "unknown");
	json_decref(o);
	pm_view_gone(&view, ROLE_POLICY, 1);
	pm_view_close(&view);
}
