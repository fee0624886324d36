/* tests/unit/test_show_segments.c -- every segment and what fills it, as JSON. */
#include "tests/unit/view_world.h"

#include <sys/wait.h>
#include <unistd.h>

static json_t *
segment_of(const json_t *result, const char *kind, const char *role)
{
	json_t *s;
	size_t i;

	json_array_foreach(json_object_get(result, "segments"), i, s)
		if (strcmp(world_text(s, "kind"), kind) == 0 &&
		    strcmp(world_text(s, "role"), role) == 0)
			return s;
	cr_assert_fail("no segment %s of %s", kind, role);
	return NULL;
}

static json_t *
fill_of(const json_t *result, const char *kind, const char *role)
{
	return json_object_get(segment_of(result, kind, role), "fill");
}

static json_int_t
sum_of(const json_t *result, const char *key)
{
	return world_number(json_object_get(result, "sum"), key);
}

Test(segments, a_run_at_rest_holds_nothing)
{
	static const char *const zero[] = {
		"slots_used", "arena_used_bytes", "charged_cells", "stale_cells", "torn_cells",
		"pending_tokens", "context_tokens", "prefilling", "decoding", "poison_live",
	};
	struct view_world w;
	json_t *o;

	world_begin(&w);
	o = pm_show_segments(&w.view);
	for (size_t i = 0; i < sizeof zero / sizeof zero[0]; i++)
		cr_assert_eq(sum_of(o, zero[i]), 0, "%s", zero[i]);
	cr_assert_eq(sum_of(o, "segments"), 8);         /* seven made, and the arena told of */
	cr_assert_eq(sum_of(o, "slots_capacity"), 8);
	json_decref(o);
	world_end(&w);
}

Test(segments, the_sum_is_over_every_cell_of_every_live_column_whatever_its_row_generation)
{
	struct cell_values v = {.pending = 100, .prefilling = 1, .decoding = 2, .context = 50};
	struct cell_values idle = {.last_pick = 9, .last_first_ms = 4,
				   .turned = cell_turned(9000000, CELL_BROKE)};
	struct column other;
	struct view_world w;
	json_t *o, *fill;

	world_begin(&w);
	cr_assert_eq(column_create(&other, 1, 9, 16), 0);
	world_hand(&w.view, &other.seg, SEGMENT_COLUMN, ROLE_INGRESS, 1, 9);
	cell_write(&w.column.cell[0], 1, &v);
	cell_write(&w.column.cell[1], 7, &v);           /* row 1 is of generation 1 */
	cell_write(&w.column.cell[3], 1, &idle);        /* history, no charge */
	cell_write(&other.cell[15], 1, &v);             /* a row that is not there */
	o = pm_show_segments(&w.view);
	cr_assert_eq(sum_of(o, "charged_cells"), 3);
	cr_assert_eq(sum_of(o, "stale_cells"), 2);
	cr_assert_eq(sum_of(o, "pending_tokens"), 300);
	cr_assert_eq(sum_of(o, "context_tokens"), 150);
	cr_assert_eq(sum_of(o, "prefilling"), 3);
	cr_assert_eq(sum_of(o, "decoding"), 6);
	fill = fill_of(o, "column", "ingress");
	cr_assert_eq(world_number(fill, "charged_cells"), 2);
	cr_assert_eq(world_number(fill, "stale_cells"), 1);
	json_decref(o);
	pm_view_gone(&w.view, ROLE_INGRESS, 9);
	o = pm_show_segments(&w.view);
	cr_assert_eq(sum_of(o, "pending_tokens"), 200);
	json_decref(o);
	column_detach(&other);
	world_end(&w);
}

Test(segments, a_slot_of_any_state_but_free_is_used)
{
	struct view_world w;
	json_t *o, *states;

	world_begin(&w);
	for (uint8_t state = SLOT_FREE; state <= SLOT_END; state++)
		atomic_store(&w.slots.slot[1 + state].word, slot_word(3, 1, state, 0));
	o = pm_show_segments(&w.view);
	states = json_object_get(fill_of(o, "slots", "ingress"), "states");
	cr_assert_eq(sum_of(o, "slots_used"), SLOT_END);
	cr_assert_eq(world_number(states, "free"), 1);
	cr_assert_eq(world_number(states, "stream"), 1);
	cr_assert_eq(world_number(states, "unknown"), 0);
	json_decref(o);
	atomic_store(&w.slots.slot[1].word, slot_word(3, 1, 77, 0));
	o = pm_show_segments(&w.view);
	states = json_object_get(fill_of(o, "slots", "ingress"), "states");
	cr_assert_eq(world_number(states, "unknown"), 1);
	cr_assert_eq(sum_of(o, "slots_used"), SLOT_END + 1);
	json_decref(o);
	world_end(&w);
}

Test(segments, touched_bytes_are_those_of_pages_written_not_of_address_space)
{
	struct view_world w;
	json_t *o, *s;

	world_begin(&w);
	o = pm_show_segments(&w.view);
	s = segment_of(o, "process", "ingress");
	json_int_t before = world_number(s, "touched_bytes");

	cr_assert_lt(before, world_number(s, "size_bytes"));
	json_decref(o);
	memset(w.ingress.journal.ring + 8192, 1, 3 * (size_t)sysconf(_SC_PAGESIZE));
	o = pm_show_segments(&w.view);
	s = segment_of(o, "process", "ingress");
	cr_assert_geq(world_number(s, "touched_bytes"), before + 3 * sysconf(_SC_PAGESIZE));
	json_decref(o);
	world_end(&w);
}

Test(segments, a_writer_is_alive_by_pid_and_start_and_unknown_where_nobody_claimed)
{
	struct view_world w;
	struct segment *seg = &w.slots.seg;
	json_t *o;

	world_begin(&w);
	o = pm_show_segments(&w.view);
	cr_assert(json_is_null(json_object_get(segment_of(o, "slots", "ingress"),
					       "writer_alive")));
	cr_assert(json_is_null(json_object_get(segment_of(o, "slots", "ingress"), "writer_pid")));
	json_decref(o);
	segment_claim(seg);
	o = pm_show_segments(&w.view);
	cr_assert(json_is_true(json_object_get(segment_of(o, "slots", "ingress"),
					       "writer_alive")));
	cr_assert_eq(world_number(segment_of(o, "slots", "ingress"), "epoch"), 1);
	json_decref(o);
	seg->head->writer_start++;                      /* the pid has another process by now */
	o = pm_show_segments(&w.view);
	cr_assert(json_is_false(json_object_get(segment_of(o, "slots", "ingress"),
						"writer_alive")));
	json_decref(o);
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	cr_assert_gt(child, 0);
	cr_assert_eq(waitpid(child, NULL, 0), child);
	seg->head->writer_pid = (uint32_t)child;        /* nobody has it */
	o = pm_show_segments(&w.view);
	cr_assert(json_is_false(json_object_get(segment_of(o, "slots", "ingress"),
						"writer_alive")));
	json_decref(o);
	seg->head->writer_pid = UINT32_MAX;
	o = pm_show_segments(&w.view);
	cr_assert(json_is_null(json_object_get(segment_of(o, "slots", "ingress"),
					       "writer_alive")));
	json_decref(o);
	world_end(&w);
}

Test(segments, of_an_arena_what_its_ingress_says_is_told_and_the_rest_is_unknown)
{
	struct view_world w;
	json_t *o, *s;

	world_begin(&w);
	o = pm_show_segments(&w.view);
	s = segment_of(o, "arena", "ingress");
	cr_assert(json_is_null(json_object_get(s, "size_bytes")));
	cr_assert(json_is_null(json_object_get(s, "touched_bytes")));
	json_decref(o);
	count_set(&w.ingress, COUNTER_arena_size, 1 << 30);
	count_set(&w.ingress, COUNTER_arena_touched, 65536);
	count_set(&w.ingress, COUNTER_arena_used, 8192);
	o = pm_show_segments(&w.view);
	s = segment_of(o, "arena", "ingress");
	cr_assert_eq(world_number(s, "size_bytes"), 1 << 30);
	cr_assert_eq(world_number(s, "touched_bytes"), 65536);
	cr_assert_eq(world_number(json_object_get(s, "fill"), "used_bytes"), 8192);
	cr_assert_eq(sum_of(o, "arena_used_bytes"), 8192);
	json_decref(o);
	world_end(&w);
}

Test(segments, a_body_is_refused_until_its_time_is_over)
{
	struct view_world w;
	json_t *o;

	world_begin(&w);
	w.column.head->poison.entry[0].body_hash = 5;
	w.column.head->poison.entry[0].until_ns = clock_mono() + 3600000000000u;
	w.column.head->poison.entry[1].body_hash = 6;
	w.column.head->poison.entry[1].until_ns = 1;
	o = pm_show_segments(&w.view);
	cr_assert_eq(sum_of(o, "poison_live"), 1);
	json_decref(o);
	world_end(&w);
}

Test(segments, a_journal_says_how_far_it_goes_back_and_an_empty_one_does_not)
{
	struct view_world w;
	json_t *o, *journal;

	world_begin(&w);
	o = pm_show_segments(&w.view);
	journal = json_object_get(fill_of(o, "process", "ingress"), "journal");
	cr_assert(json_is_null(json_object_get(journal, "oldest_age_s")));
	cr_assert_eq(world_number(journal, "used_bytes"), 0);
	json_decref(o);
	for (unsigned i = 1; i < 1000; i++)             /* wraps */
		world_outcome(&w, WORLD_ID(i), true);
	o = pm_show_segments(&w.view);
	journal = json_object_get(fill_of(o, "process", "ingress"), "journal");
	cr_assert_gt(world_number(journal, "tail"), 0);
	cr_assert_eq(world_number(journal, "head") - world_number(journal, "tail"),
		     world_number(journal, "used_bytes"));
	cr_assert_leq(world_number(journal, "used_bytes"), world_number(journal, "size_bytes"));
	/* world_outcome's are of 1970. */
	cr_assert_gt(json_real_value(json_object_get(journal, "oldest_age_s")), 1e9);
	json_decref(o);
	world_end(&w);
}

Test(segments, the_dead_that_are_kept_are_named_so_and_not_summed)
{
	struct view_world w;
	json_int_t live;
	json_t *o;

	world_begin(&w);
	strcpy(w.policy.head->panic, "it was so");
	o = pm_show_segments(&w.view);
	live = sum_of(o, "segments");
	json_decref(o);
	pm_view_gone(&w.view, ROLE_POLICY, WORLD_POLICY);
	o = pm_show_segments(&w.view);
	cr_assert_eq(sum_of(o, "segments"), live - 1);
	cr_assert(json_is_true(json_object_get(segment_of(o, "process", "policy"),
					       "kept_of_the_dead")));
	cr_assert_str_eq(world_text(fill_of(o, "process", "policy"), "panic"), "it was so");
	json_decref(o);
	world_end(&w);
}

Test(segments, rows_and_the_roster_are_counted_by_state)
{
	struct view_world w;
	json_t *o, *fill;

	world_begin(&w);
	w.rows.row[1].intent = INTENT_NONE;
	w.roster.entry[4].state = ROSTER_ACTIVE;
	w.roster.entry[9].state = ROSTER_GONE;
	o = pm_show_segments(&w.view);
	fill = fill_of(o, "rows", "supervisor");
	cr_assert_eq(world_number(fill, "used"), 1);
	cr_assert_eq(world_number(fill, "ever_used"), 2);
	cr_assert_eq(world_number(fill, "capacity"), 16);
	cr_assert_eq(world_number(json_object_get(fill, "states"), "up"), 1);
	fill = fill_of(o, "roster", "supervisor");
	cr_assert_eq(world_number(fill, "used"), 2);
	cr_assert_eq(world_number(json_object_get(fill, "states"), "active"), 1);
	json_decref(o);
	world_end(&w);
}

Test(segments, the_index_tells_its_slots_by_state_and_role_and_its_pool)
{
	struct view_world w;
	json_t *o, *fill;

	world_begin(&w);
	cr_assert_neq(index_slot_take(w.writer, 0, 1, INDEX_EXACT, INDEX_GPU, 16), 0);
	o = pm_show_segments(&w.view);
	fill = fill_of(o, "index", "kvevents");
	cr_assert_eq(world_number(json_object_get(fill, "slots"), "live"), 1);
	cr_assert_eq(world_number(json_object_get(fill, "slots"), "capacity"), WORLD_IDS);
	cr_assert_eq(json_array_size(json_object_get(fill, "groups")), 12);
	cr_assert_eq(json_array_size(json_object_get(fill, "pool")), 1);
	cr_assert_eq(world_number(fill, "entries"), 0);
	json_decref(o);
	world_end(&w);
}

Test(segments, an_empty_view_has_none)
{
	struct pm_view view;
	json_t *o;

	pm_view_init(&view);
	o = pm_show_segments(&view);
	cr_assert_eq(sum_of(o, "segments"), 0);
	cr_assert_eq(json_array_size(json_object_get(o, "segments")), 0);
	json_decref(o);
	pm_view_close(&view);
}
