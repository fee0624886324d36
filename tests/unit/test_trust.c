/* tests/unit/test_trust.c -- what is proven of our token ids, as it stands in shared memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shm/trust.h"

static struct rows rows;

static void
begin(void)
{
	cr_assert_eq(rows_create(&rows, 8), 0);
}

static void
end(void)
{
	rows_detach(&rows);
}

TestSuite(trust, .init = begin, .fini = end);

static uint64_t
key_of(unsigned n)
{
	char name[16];

	snprintf(name, sizeof name, "m%u", n);
	return trust_key(name, "tokenizer", 9);
}

Test(trust, a_key_is_of_the_name_and_of_every_byte_that_decides_ids)
{
	uint64_t key = trust_key("m", "abc", 3);

	cr_assert_neq(key, 0);
	cr_assert_eq(key, trust_key("m", "abc", 3));
	cr_assert_neq(key, trust_key("n", "abc", 3));
	cr_assert_neq(key, trust_key("m", "abd", 3));
	cr_assert_neq(key, trust_key("m", "ab", 2));
}

Test(trust, a_model_nobody_has_written_is_unverified)
{
	cr_assert_eq(trust_model(&rows, key_of(1)), TRUST_UNVERIFIED);
	cr_assert_eq(trust_model(&rows, 0), TRUST_UNVERIFIED);
	cr_assert_null(trust_find(&rows, key_of(1)));
}

Test(trust, a_model_is_what_more_of_its_proven_workers_say)
{
	uint64_t key = key_of(1);

	trust_model_write(&rows, key, "m1", 0, 3, 0, 5);
	cr_assert_eq(trust_model(&rows, key), TRUST_UNVERIFIED);
	trust_model_write(&rows, key, "m1", 1, 2, 0, 6);
	cr_assert_eq(trust_model(&rows, key), TRUST_EXACT);
	trust_model_write(&rows, key, "m1", 1, 1, 1, 7);
	cr_assert_eq(trust_model(&rows, key), TRUST_EXACT, "one each: ours are right somewhere");
	trust_model_write(&rows, key, "m1", 1, 0, 2, 8);
	cr_assert_eq(trust_model(&rows, key), TRUST_MISMATCH);
	trust_model_write(&rows, key, "m1", 0, 2, 1, 9);
	cr_assert_eq(trust_model(&rows, key), TRUST_MISMATCH);
	cr_assert_eq(trust_find(&rows, key)->since_ns, 8, "since it changed, not since written");
}

Test(trust, models_have_their_names_and_do_not_mix)
{
	char name[ROW_URL_MAX];

	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof name, "m%u", i);
		trust_model_write(&rows, key_of(i), name, i % 2, 1, 0, i + 1);
	}
	for (unsigned i = 0; i < 10; i++) {
		char want[16];

		cr_assert(trust_model_name(trust_find(&rows, key_of(i)), name));
		snprintf(want, sizeof want, "m%u", i);
		cr_assert_str_eq(name, want);
		cr_assert_eq(trust_model(&rows, key_of(i)), i % 2 ? TRUST_EXACT
								  : TRUST_UNVERIFIED);
	}
}

Test(trust, in_a_full_table_the_unused_model_that_changed_first_makes_room)
{
	for (unsigned i = 0; i < TRUST_MODELS; i++)
		trust_model_write(&rows, key_of(i), "m", 1, 0, 0, i + 1);
	trust_model_write(&rows, key_of(7), "m", 0, 0, 0, 500);
	trust_model_write(&rows, key_of(9), "m", 0, 0, 0, 500);
	cr_assert_eq(trust_model(&rows, key_of(7)), TRUST_EXACT, "for those of older documents");
	trust_model_write(&rows, key_of(1000), "new", 0, 0, 1, 1000);
	cr_assert_null(trust_find(&rows, key_of(7)), "no worker has it, and it is the older");
	cr_assert_not_null(trust_find(&rows, key_of(9)));
	cr_assert_eq(trust_model(&rows, key_of(1000)), TRUST_MISMATCH);
	trust_model_write(&rows, key_of(9), "m", 1, 0, 0, 1001);
	trust_model_write(&rows, key_of(1001), "newer", 1, 0, 0, 1002);
	cr_assert_null(trust_find(&rows, key_of(1001)), "all are in use: unverified, not wrong");
}

Test(trust, what_is_known_of_a_row_is_of_that_row_generation_only)
{
	struct row_trust t = {.state = TRUST_MISMATCH, .why = TRUST_PROBES_DIFFER, .key_lo = 5,
			      .key_hi = 6, .at = 3, .ours = 10, .theirs = 11}, got;

	memcpy(t.version, "0.31.0", 7);
	rows.row[2].row_gen = 4;
	cr_assert_not(row_trust_read(&rows, 2, &got));
	cr_assert_eq(got.state, TRUST_UNVERIFIED);
	row_trust_write(&rows, 2, 4, &t);
	cr_assert(row_trust_read(&rows, 2, &got));
	cr_assert_eq(got.state, TRUST_MISMATCH);
	cr_assert_eq(row_trust_key(&got), 5ull | 6ull << 32);
	cr_assert_str_eq(got.version, "0.31.0");
	rows.row[2].row_gen = 5;
	cr_assert_not(row_trust_read(&rows, 2, &got), "another worker has the row now");
	cr_assert_eq(got.state, TRUST_UNVERIFIED);
}

Test(trust, what_one_process_writes_another_reads)
{
	struct rows other;

	trust_model_write(&rows, key_of(3), "m3", 0, 0, 1, 4);
	cr_assert_eq(rows_attach(&other, segment_readonly_fd(&rows.seg), false), 0);
	cr_assert_eq(trust_model(&other, key_of(3)), TRUST_MISMATCH);
	rows_detach(&other);
}

Test(trust, every_state_and_reason_has_words)
{
	for (unsigned i = 0; i <= TRUST_MISMATCH; i++)
		cr_assert_str_neq(trust_state_name(i), "?");
	for (unsigned i = 0; i < TRUST_WHYS; i++) {
		cr_assert_not_null(trust_why_name(i));
		cr_assert_not_null(trust_why_text(i));
		cr_assert_gt(strlen(trust_why_text(i)), 10);
	}
	cr_assert_str_eq(trust_state_name(99), "?");
	cr_assert_str_eq(trust_why_name(TRUST_WHYS), "?");
}
