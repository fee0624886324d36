/* tests/unit/test_overlay.c -- answers sent and not applied, against a plain model. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "actors/policy/overlay.h"

#define ROWS 8u
#define STREAMS 3u
#define LENGTH 20000u

static uint64_t state;

static uint32_t
draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % below;
}

/* Random schedules: at every moment the overlay shows exactly what was sent and not yet applied or
 * discarded, for every row, and nothing at the end. */
Test(overlay, shows_every_answer_until_its_watermark_and_nothing_afterwards)
{
	static struct { uint16_t row; uint32_t tokens; } sent[STREAMS][LENGTH];

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct overlay *o;
		struct overlay_stream *s[STREAMS];
		uint32_t next[STREAMS], first[STREAMS];

		state = seed;
		cr_assert_eq(overlay_new(&o, ROWS), 0);
		for (unsigned i = 0; i < STREAMS; i++) {
			cr_assert_eq(overlay_stream_open(o, &s[i]), 0);
			next[i] = first[i] = 1;
		}
		for (unsigned step = 0; step < 3000; step++) {
			unsigned i = draw(STREAMS);

			if (draw(100) < 55 && next[i] < LENGTH) {
				uint16_t row =
					draw(10) == 0 ? OVERLAY_NO_ROW : (uint16_t)draw(ROWS);
				uint32_t tokens = draw(20000);

				sent[i][next[i]].row = row;
				sent[i][next[i]].tokens = tokens;
				cr_assert_eq(overlay_push(o, s[i], row, 1, tokens, step + 1),
					     next[i], "numbers have no holes");
				next[i]++;
			} else if (draw(100) < 2) {     /* its ingress dies; another comes */
				overlay_stream_close(o, &s[i]);
				cr_assert_null(s[i]);
				cr_assert_eq(overlay_stream_open(o, &s[i]), 0);
				next[i] = first[i] = 1;
			} else if (next[i] > first[i]) {
				uint32_t applied = first[i] + draw(next[i] - first[i]);

				overlay_settle(o, s[i], applied);
				first[i] = applied + 1;
			} else {
				overlay_settle(o, s[i], first[i] - 1);          /* nothing new */
			}
			size_t left = 0;
			for (unsigned k = 0; k < STREAMS; k++)
				left += next[k] - first[k];
			cr_assert_eq(overlay_length(o), left);
			for (uint16_t row = 0; row < ROWS; row++) {
				uint32_t pending = 0, prefilling = 0;

				for (unsigned k = 0; k < STREAMS; k++)
					for (uint32_t n = first[k]; n < next[k]; n++)
						if (sent[k][n].row == row) {
							pending += sent[k][n].tokens;
							prefilling++;
						}
				struct overlay_charge c = overlay_row(o, row, 1);

				cr_assert_eq(c.pending, pending);
				cr_assert_eq(c.prefilling, prefilling);
			}
		}
		for (unsigned i = 0; i < STREAMS; i++)
			overlay_settle(o, s[i], next[i] - 1);
		cr_assert_eq(overlay_length(o), 0);
		for (uint16_t row = 0; row < ROWS; row++) {
			cr_assert_eq(overlay_row(o, row, 1).pending, 0);
			cr_assert_eq(overlay_row(o, row, 1).prefilling, 0);
		}
		overlay_free(&o);
		cr_assert_null(o);
	}
}

Test(overlay, charges_of_a_former_row_generation_are_nobodys)
{
	struct overlay *o;
	struct overlay_stream *s;

	overlay_new(&o, ROWS);
	overlay_stream_open(o, &s);
	overlay_push(o, s, 2, 1, 1000, 5);
	cr_assert_eq(overlay_row(o, 2, 1).pending, 1000);
	cr_assert_eq(overlay_row(o, 2, 2).pending, 0);
	overlay_push(o, s, 2, 2, 300, 6);               /* re-added */
	cr_assert_eq(overlay_row(o, 2, 1).pending, 0);
	cr_assert_eq(overlay_row(o, 2, 2).pending, 300);
	overlay_settle(o, s, 1); /* of the former: takes nothing from the new */
	cr_assert_eq(overlay_row(o, 2, 2).pending, 300);
	overlay_settle(o, s, 2);
	cr_assert_eq(overlay_row(o, 2, 2).pending, 0);
	cr_assert_eq(overlay_row(o, 2, 2).last_pick, 6, "who was picked last is not forgotten");
	overlay_free(&o);
}

Test(overlay, a_prefix_sent_to_a_row_counts_there_for_a_while_and_nowhere_else)
{
	const mono_ns t = 5000000000ull, half = OVERLAY_PREFIX_NS / 2;
	uint64_t h[10];
	struct overlay *o;

	for (unsigned i = 0; i < 10; i++)
		h[i] = 0x123456789abcdefull * (i + 1);
	overlay_new(&o, ROWS);
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t), 0);
	overlay_note(o, 3, h, 6, t);
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t), 6);
	cr_assert_eq(overlay_depth(o, 3, h, 2, 10, t), 6, "behind what the index knows");
	cr_assert_eq(overlay_depth(o, 3, h, 8, 10, t), 8, "never less than the index knows");
	cr_assert_eq(overlay_depth(o, 3, h, 0, 4, t), 4, "never more than asked");
	cr_assert_eq(overlay_depth(o, 4, h, 0, 10, t), 0);
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t + half - 1), 6);
	overlay_note(o, 3, h, 3, t + half);             /* noted again: lives on */
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t + half), 6, "the older half still counts");
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t + 2 * half), 3);
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t + 3 * half), 0);
	overlay_note(o, 3, h, 6, t + 4 * half);
	cr_assert_eq(overlay_depth(o, 3, h, 0, 10, t + 60 * half), 0,
		     "after a silence nothing is left");
	overlay_free(&o);
}

/* Under notes far beyond the tables' size: what they say was noted on that row; the newest are
 * there. */
Test(overlay, a_full_prefix_table_forgets_the_oldest_and_invents_nothing)
{
	const uint32_t total = OVERLAY_PREFIXES * 5;
	struct overlay *o;
	const mono_ns t = 1000000000ull;
	uint64_t hash;

	overlay_new(&o, ROWS);
	for (uint32_t i = 0; i < total; i++) {
		hash = (i + 1) * 0x9e3779b97f4a7c15ull;
		overlay_note(o, (uint16_t)(i % ROWS), &hash, 1, t);
	}
	for (uint32_t i = 0; i < total; i += 7) {
		hash = (i + 1) * 0x9e3779b97f4a7c15ull;
		size_t here = overlay_depth(o, (uint16_t)(i % ROWS), &hash, 0, 1, t);

		cr_assert_eq(overlay_depth(o, (uint16_t)((i + 1) % ROWS), &hash, 0, 1, t), 0);
		if (i >= total - OVERLAY_PREFIXES)
			cr_assert_eq(here, 1, "entry %u of %u", i, total);
		if (i < total - 2 * OVERLAY_PREFIXES)
			cr_assert_eq(here, 0, "entry %u of %u", i, total);
	}
	for (uint32_t i = 0; i < total; i += 7) {
		hash = (i + 1) * 0x9e3779b97f4a7c15ull;
		cr_assert_eq(overlay_depth(o, (uint16_t)(i % ROWS), &hash, 0, 1,
					   t + 2 * OVERLAY_PREFIX_NS),
			     0);
	}
	overlay_free(&o);
}
