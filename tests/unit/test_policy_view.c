/* tests/unit/test_policy_view.c -- what a policy process sees in flight (actors/policy/view.h). */
#include "tests/unit/policy_world.h"

static struct world w;

static void
set_up(void)
{
	begin(&w, "PredictedTTFT");
}

static void
tear_down(void)
{
	end(&w);
}

TestSuite(policy_view, .init = set_up, .fini = tear_down);

#define ROW 2u
#define COLUMNS 3u
#define NOW_MS 5000u

static struct view_load
load_of(uint16_t row, uint32_t row_gen)
{
	struct view_load load;

	view_load(&w.view, row, row_gen, NOW_MS, true, &load);
	return load;
}

/* One more ingress, with a column of its own; *ret is its writer's side. */
static void
add_ingress(struct column *ret, uint32_t incarnation)
{
	struct view_ingress *in = calloc(1, sizeof *in);

	cr_assert_not_null(in);
	in->incarnation = incarnation;
	in->slots.seg.fd = in->arena.seg.fd = -1;
	cr_assert_eq(column_create(ret, 1, incarnation, 16), 0);
	cr_assert_eq(column_attach(&in->column, dup(ret->seg.fd), false), 0);
	cr_assert_eq(view_add(&w.view, &in), 0);
}

Test(policy_view, a_cell_that_changed_is_seen_by_the_next_decision)
{
	struct cell_values v = {.pending = 100, .prefilling = 1, .oldest_dispatch_ms = NOW_MS - 7};

	cell_write(&w.column.cell[ROW], 1, &v);
	cr_assert_eq(load_of(ROW, 1).pending, 100);
	cr_assert_eq(load_of(ROW, 1).oldest_dispatch_ms, 7);
	v.pending = 0;
	v.prefilling = 0;
	cell_write(&w.column.cell[ROW], 1, &v);
	cr_assert_eq(load_of(ROW, 1).pending, 0);
	cr_assert_eq(load_of(ROW, 1).oldest_dispatch_ms, PREDICT_NEVER);
}

Test(policy_view, what_speaks_of_another_row_generation_is_zero)
{
	struct cell_values v = {.pending = 100, .prefilling = 1};

	cell_write(&w.column.cell[ROW], 1, &v);
	cr_assert_eq(load_of(ROW, 1).pending, 100);
	cr_assert_eq(load_of(ROW, 2).pending, 0);
	cr_assert_eq(load_of(ROW, 1).pending, 100);
}

Test(policy_view, an_ingress_that_came_or_went_counts_from_the_next_decision_on)
{
	struct cell_values v = {.pending = 100, .prefilling = 1};
	struct column second, third;

	cell_write(&w.column.cell[ROW], 1, &v);
	cr_assert_eq(load_of(ROW, 1).pending, 100);
	add_ingress(&second, 6);
	cell_write(&second.cell[ROW], 1, &(struct cell_values){.pending = 30, .prefilling = 1});
	cr_assert_eq(load_of(ROW, 1).pending, 130);
	/* Its successor's cells say the same words of other charges. */
	view_remove(&w.view, view_find(&w.view, 6));
	add_ingress(&third, 7);
	cell_write(&third.cell[ROW], 1, &(struct cell_values){.pending = 5, .prefilling = 1});
	cr_assert_eq(atomic_load(&third.cell[ROW].word), atomic_load(&second.cell[ROW].word));
	cr_assert_eq(load_of(ROW, 1).pending, 105);
	view_remove(&w.view, view_find(&w.view, 7));
	cr_assert_eq(load_of(ROW, 1).pending, 100);
	column_detach(&second);
	column_detach(&third);
}

/* What the header promises, cell by cell. */
static struct view_load
load_model(const struct cell_values v[COLUMNS])
{
	struct view_load sum = {
		.oldest_dispatch_ms = PREDICT_NEVER, .last_first_ms = PREDICT_NEVER,
	};

	for (unsigned i = 0; i < COLUMNS; i++) {
		uint32_t sent = v[i].oldest_dispatch_ms, came = v[i].last_first_ms;
		uint32_t waits = NOW_MS < sent ? 0 : NOW_MS - sent;
		uint32_t first = NOW_MS < came ? 0 : NOW_MS - came;

		sum.pending += v[i].pending;
		sum.prefilling += v[i].prefilling;
		sum.context += v[i].context;
		sum.decoding += v[i].decoding;
		if (v[i].turned > sum.turned)
			sum.turned = v[i].turned;
		if (v[i].prefilling > 0 && (sum.oldest_dispatch_ms == PREDICT_NEVER ||
					    waits > sum.oldest_dispatch_ms))
			sum.oldest_dispatch_ms = waits;
		if (v[i].last_first_ms != 0 && first < sum.last_first_ms)
			sum.last_first_ms = first;
		if (v[i].last_pick > sum.last_pick)     /* the test's picks do not wrap */
			sum.last_pick = v[i].last_pick;
	}
	return sum;
}

Test(policy_view, sums_are_those_of_the_cells_whatever_changed_since_the_last_time)
{
	struct cell_values v[COLUMNS] = {0};
	struct column column[COLUMNS];
	uint64_t random = 1;

	column[0] = w.column;
	add_ingress(&column[1], 6);
	add_ingress(&column[2], 7);
	for (unsigned turn = 0; turn < 20000; turn++) {
		for (unsigned n = turn % 4; n > 0; n--) {       /* also none: nothing changed */
			random = random * 6364136223846793005u + 1442695040888963407u;

			unsigned i = (unsigned)(random >> 33) % COLUMNS;

			v[i] = (struct cell_values){
				.pending = (uint32_t)(random >> 40), .context = random >> 50,
				.oldest_dispatch_ms = 4000 + (random >> 36) % 1100,
				.last_first_ms = (random >> 37) % 5 ? 4000 + (random >> 38) % 1100
								     : 0,
				.last_pick = (random >> 35) % 3 ? turn : 0,
				.prefilling = (random >> 44) % 3, .decoding = (random >> 46) % 9,
				.turned = (random >> 48) % 2 ? 4000 + random % 1000 : 0,
			};
			cell_write(&column[i].cell[ROW], 1, &v[i]);
		}

		struct view_load want = load_model(v), got = load_of(ROW, 1);

		cr_assert_arr_eq(&got, &want, sizeof got, "turn %u", turn);
	}
	view_remove(&w.view, view_find(&w.view, 6));
	view_remove(&w.view, view_find(&w.view, 7));
	column_detach(&column[1]);
	column_detach(&column[2]);
}

Test(policy_view, picks_and_stamps_that_wrapped_are_the_newer_ones)
{
	struct cell_values v = {
		.last_pick = UINT32_MAX - 1, .last_first_ms = UINT32_MAX - 9,
		.oldest_dispatch_ms = UINT32_MAX - 9, .prefilling = 1,
	};
	struct view_load load;
	struct column second;

	add_ingress(&second, 6);
	cell_write(&w.column.cell[ROW], 1, &v);
	v = (struct cell_values){
		.last_pick = 2, .last_first_ms = 10, .oldest_dispatch_ms = 10, .prefilling = 1,
	};
	cell_write(&second.cell[ROW], 1, &v);
	view_load(&w.view, ROW, 1, 20, true, &load);
	cr_assert_eq(load.last_pick, 2);
	cr_assert_eq(load.last_first_ms, 10);
	cr_assert_eq(load.oldest_dispatch_ms, 30);
	view_remove(&w.view, view_find(&w.view, 6));
	column_detach(&second);
}
