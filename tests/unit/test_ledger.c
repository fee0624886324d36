/* The ledger releases each charge exactly once, whatever the order of events. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/ledger.h"

#define ROWS 5u
#define REQUESTS 64u

struct world {
	struct column column;
	struct ledger ledger;
	struct slot slot[REQUESTS];
	struct charge charge[REQUESTS];
	uint32_t gen[ROWS];
};

static void
setup(struct world *w)
{
	memset(w, 0, sizeof *w);
	cr_assert_eq(column_create(&w->column, 0, 7, ROWS), 0);
	cr_assert_eq(ledger_open(&w->ledger, &w->column), 0);
	for (unsigned i = 0; i < REQUESTS; i++) {
		w->slot[i].row = ROW_NONE;
		w->charge[i].slot = &w->slot[i];
	}
	for (unsigned i = 0; i < ROWS; i++)
		w->gen[i] = 1;
}

static void
teardown(struct world *w)
{
	ledger_close(&w->ledger);
	column_detach(&w->column);
}

static struct cell_values
read_cell(struct world *w, uint16_t row)
{
	struct cell_values v;

	cr_assert(cell_read(&w->column.cell[row], w->gen[row], &v));
	return v;
}

/* What the cells must say, from the slots alone. */
static void
check(struct world *w)
{
	for (uint16_t row = 0; row < ROWS; row++) {
		struct cell_values v = read_cell(w, row), want = {0};

		for (unsigned i = 0; i < REQUESTS; i++) {
			const struct slot *s = &w->slot[i];

			if (s->row != row || s->row_gen != w->gen[row])
				continue;
			if (s->phase == PHASE_PREFILL) {
				want.pending += s->prefill;
				want.prefilling++;
			} else if (s->phase == PHASE_DECODE) {
				want.context += s->ctx;
				want.decoding++;
			}
		}
		cr_assert_eq(v.pending, want.pending, "row %u", row);
		cr_assert_eq(v.context, want.context);
		cr_assert_eq(v.prefilling, want.prefilling);
		cr_assert_eq(v.decoding, want.decoding);
	}
}

Test(ledger, charge_moves_from_prefill_to_decode_and_is_released)
{
	struct world w;
	struct cell_values v;

	setup(&w);
	ledger_charge(&w.ledger, &w.charge[0], 2, 1, 100, 400, 9, 5000000);
	v = read_cell(&w, 2);
	cr_assert_eq(v.pending, 100);
	cr_assert_eq(v.prefilling, 1);
	cr_assert_eq(v.last_pick, 9);
	cr_assert_eq(v.oldest_dispatch_ms, 5);
	ledger_first_byte(&w.ledger, &w.charge[0], 8000000);
	ledger_first_byte(&w.ledger, &w.charge[0], 9000000);
	v = read_cell(&w, 2);
	cr_assert_eq(v.pending, 0);
	cr_assert_eq(v.prefilling, 0);
	cr_assert_eq(v.context, 400);
	cr_assert_eq(v.decoding, 1);
	cr_assert_eq(v.last_first_ms, 8);
	ledger_release(&w.ledger, &w.charge[0]);
	ledger_release(&w.ledger, &w.charge[0]);
	v = read_cell(&w, 2);
	cr_assert_eq(v.context, 0);
	cr_assert_eq(v.decoding, 0);
	cr_assert_eq(w.ledger.underflows, 0);
	teardown(&w);
}

Test(ledger, oldest_dispatch_is_the_oldest_still_in_prefill)
{
	struct world w;

	setup(&w);
	for (unsigned i = 0; i < 3; i++)
		ledger_charge(&w.ledger, &w.charge[i], 0, 1, 10, 10, i, (i + 1) * 1000000ull);
	ledger_first_byte(&w.ledger, &w.charge[0], 9000000);
	cr_assert_eq(read_cell(&w, 0).oldest_dispatch_ms, 2);
	ledger_release(&w.ledger, &w.charge[1]);
	cr_assert_eq(read_cell(&w, 0).oldest_dispatch_ms, 3);
	ledger_release(&w.ledger, &w.charge[2]);
	cr_assert_eq(read_cell(&w, 0).oldest_dispatch_ms, 0);
	teardown(&w);
}

Test(ledger, it_says_how_and_when_a_worker_turned_us_away_for_a_minute)
{
	struct world w;

	setup(&w);
	ledger_charge(&w.ledger, &w.charge[0], 1, 1, 10, 10, 1, 1);
	ledger_turned(&w.ledger, 1, 1, CELL_UNAVAILABLE, 5000000000);
	ledger_turned(&w.ledger, 1, 2, CELL_BROKE, 6000000000); /* another generation: not it */
	uint32_t turned = read_cell(&w, 1).turned;

	cr_assert_eq(cell_turn_of(turned), CELL_UNAVAILABLE);
	cr_assert_leq(cell_turn_age_ms(turned, 5100), 100);
	cr_assert_geq(cell_turn_age_ms(turned, 5100), 100 - CELL_TURN_STEP_MS);
	cr_assert_eq(cell_turn_age_ms(turned, 4990), 0, "ahead of our clock");
	ledger_charge(&w.ledger, &w.charge[1], 1, 1, 10, 10, 1, 64000000000);
	cr_assert_eq(read_cell(&w, 1).turned, turned);
	ledger_charge(&w.ledger, &w.charge[2], 1, 1, 10, 10, 1, 66000000000);
	cr_assert_eq(read_cell(&w, 1).turned, 0);
	teardown(&w);
}

Test(ledger, random_schedules_leave_nothing_charged)
{
	for (unsigned seed = 1; seed <= 40; seed++) {
		struct world w;

		srand(seed);
		setup(&w);
		for (unsigned step = 0; step < 4000; step++) {
			unsigned i = (unsigned)rand() % REQUESTS;
			uint16_t row = (uint16_t)((unsigned)rand() % ROWS);

			switch (rand() % 6) {
			case 0:
			case 1: /* also a retry: charged already, moves */
				ledger_charge(&w.ledger, &w.charge[i], row, w.gen[row],
					      (uint32_t)rand() % 1000, (uint32_t)rand() % 1000,
					      step, step * 1000000ull);
				break;
			case 2:
				ledger_first_byte(&w.ledger, &w.charge[i], step * 1000000ull);
				break;
			case 3:
			case 4:
				ledger_release(&w.ledger, &w.charge[i]);
				break;
			case 5:
				if (rand() % 50 == 0)
					w.gen[row]++; /* the row was removed and added again */
			}
			if (step % 97 == 0)
				check(&w);
		}
		for (unsigned i = 0; i < REQUESTS; i++)
			ledger_release(&w.ledger, &w.charge[i]);
		check(&w);
		for (unsigned row = 0; row < ROWS; row++)
			cr_assert_null(w.ledger.row[row].oldest);
		cr_assert_eq(w.ledger.underflows, 0);
		teardown(&w);
	}
}

Test(ledger, sums_beyond_what_a_cell_holds_come_back_to_zero)
{
	static struct slot slot[70000];
	static struct charge charge[70000];
	struct world w;
	struct cell_values v;

	setup(&w);
	for (unsigned i = 0; i < 70000; i++) {
		slot[i].row = ROW_NONE;
		charge[i].slot = &slot[i];
		ledger_charge(&w.ledger, &charge[i], 1, 1, 100000, 200000, 1, 1);
	}
	v = read_cell(&w, 1);
	cr_assert_eq(v.pending, UINT32_MAX);
	cr_assert_eq(v.prefilling, UINT16_MAX);
	for (unsigned i = 0; i < 70000; i++)
		ledger_first_byte(&w.ledger, &charge[i], 1);
	v = read_cell(&w, 1);
	cr_assert_eq(v.pending, 0);
	cr_assert_eq(v.prefilling, 0);
	cr_assert_eq(v.context, UINT32_MAX);
	cr_assert_eq(v.decoding, UINT16_MAX);
	for (unsigned i = 0; i < 70000; i++)
		ledger_release(&w.ledger, &charge[i]);
	v = read_cell(&w, 1);
	cr_assert_eq(v.context, 0);
	cr_assert_eq(v.decoding, 0);
	cr_assert_eq(ledger_charges(&w.ledger), 0);
	cr_assert_eq(w.ledger.underflows, 0);
	teardown(&w);
}

Test(ledger, books_that_are_not_the_sum_over_the_slots_are_found)
{
	struct slots slots;
	struct charge charge = {0};
	struct world w;

	setup(&w);
	cr_assert_eq(slots_create(&slots, 0, 7, 8), 0);
	charge.slot = &slots.slot[3];
	charge.slot->row = ROW_NONE;
	ledger_charge(&w.ledger, &charge, 1, 1, 100, 400, 1, 1);
	cr_assert_eq(ledger_charges(&w.ledger), 1);
	cr_assert_eq(ledger_check(&w.ledger, &slots, 8, 1), 0);
	slots.slot[3].prefill++;                /* charged otherwise than noted */
	cr_assert_eq(ledger_check(&w.ledger, &slots, 8, 1), 1);
	slots.slot[3].prefill--;
	slots.slot[3].phase = PHASE_NONE;       /* forgotten */
	cr_assert_eq(ledger_check(&w.ledger, &slots, 8, 1), 2);
	slots.slot[3].phase = PHASE_PREFILL;
	cell_write(&w.column.cell[1], 1, &(struct cell_values){.pending = 99, .prefilling = 1});
	cr_assert_eq(ledger_check(&w.ledger, &slots, 8, 1), 1, "the cell itself is read");
	slots_detach(&slots);
	teardown(&w);
}
