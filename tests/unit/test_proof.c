/* tests/unit/test_proof.c -- what a worker's answers prove of our tokens. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/metrics/proof.h"

#define KEY 77u
#define SECOND 1000000000ull

static struct row_trust t;
static struct proof_run run;
static const struct probes_compared same = {.verdict = PROBES_AGREE};
static const struct probes_compared other = {.verdict = PROBES_DIFFER, .at = 5, .ours = 10,
					     .theirs = 11, .n_ours = 8, .n_theirs = 9};
static const struct probes_compared refused = {.verdict = PROBES_REFUSED};

static void
begin(void)
{
	const struct proof_life life = {.start = 1000, .up = 50};

	memset(&t, 0, sizeof t);
	memset(&run, 0, sizeof run);
	cr_assert(proof_begin(&t, KEY, &life, 100));
}

TestSuite(proof, .init = begin);

static void
answers(const struct probes_compared *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		proof_answer(&t, &run, i, c, 200 + i);
}

static void
be_exact(void)
{
	answers(&same, 50);
	cr_assert_eq(proof_end(&t, &run, TRUST_NOT_ASKED, 300), PROOF_NEVER);
	cr_assert_eq(t.state, TRUST_EXACT);
}

Test(proof, nothing_is_proven_before_a_whole_run)
{
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(t.why, TRUST_NOT_ASKED);
	answers(&same, 49);
	cr_assert_eq(t.state, TRUST_UNVERIFIED, "and not by its first part");
}

Test(proof, a_clean_run_proves_and_is_not_repeated)
{
	be_exact();
	cr_assert_eq(t.why, TRUST_PROBES_AGREE);
	cr_assert_eq(t.agreed, 50);
	cr_assert_eq(t.probes, 50);
	cr_assert_eq(row_trust_since(&t), 300);
}

Test(proof, one_probe_with_other_ids_disproves_at_once_and_is_kept)
{
	answers(&same, 3);
	proof_answer(&t, &run, 7, &other, 250);
	cr_assert_eq(t.state, TRUST_MISMATCH);
	cr_assert_eq(t.why, TRUST_PROBES_DIFFER);
	proof_answer(&t, &run, 8, &(struct probes_compared){.verdict = PROBES_DIFFER, .at = 1},
		     260);
	cr_assert_eq(t.probe, 7, "the first that differed");
	cr_assert_eq(t.at, 5);
	cr_assert_eq(t.ours, 10);
	cr_assert_eq(t.theirs, 11);
	answers(&same, 40);
	cr_assert_eq(proof_end(&t, &run, TRUST_NOT_ASKED, 300), 300 + PROOF_DISPROVEN_NS);
	cr_assert_eq(t.state, TRUST_MISMATCH);
	cr_assert_eq(t.differed, 2);
}

Test(proof, what_was_disproven_is_proven_by_a_clean_run_only)
{
	proof_answer(&t, &run, 0, &other, 200);
	answers(&same, 10);
	proof_end(&t, &run, TRUST_UNREACHABLE, 300);
	cr_assert_eq(t.state, TRUST_MISMATCH, "a run that broke off proves nothing");
	for (unsigned i = 0; i < 100; i++)
		cr_assert_not(proof_usage(&t, 9, 9, 400));
	cr_assert_eq(t.state, TRUST_MISMATCH, "nor do equal counts");
	be_exact();
}

Test(proof, a_run_that_breaks_off_leaves_what_was_proven)
{
	be_exact();
	answers(&same, 10);
	proof_end(&t, &run, TRUST_UNREACHABLE, 400);
	cr_assert_eq(t.state, TRUST_EXACT);
	cr_assert_eq(t.why, TRUST_PROBES_AGREE);
}

Test(proof, a_run_that_breaks_off_comes_again_later_and_later)
{
	mono_ns before = 0;

	for (unsigned i = 0; i < 10; i++) {
		mono_ns next = proof_end(&t, &run, TRUST_NO_ROUTE, 1000);

		cr_assert_geq(next - 1000, before);
		cr_assert_leq(next - 1000, PROOF_AGAIN_MOST_NS);
		before = next - 1000;
	}
	cr_assert_eq(before, PROOF_AGAIN_MOST_NS);
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(t.why, TRUST_NO_ROUTE);
}

Test(proof, refusals_alone_prove_nothing)
{
	answers(&refused, 30);
	answers(&same, 20);
	proof_end(&t, &run, TRUST_NOT_ASKED, 300);
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(t.why, TRUST_FEW);
	answers(&refused, 20);
	answers(&same, 30);
	proof_end(&t, &run, TRUST_NOT_ASKED, 400);
	cr_assert_eq(t.state, TRUST_EXACT);
}

Test(proof, an_answer_that_counts_otherwise_disproves_even_what_probes_proved)
{
	be_exact();
	cr_assert_not(proof_usage(&t, 100, 100, 400));
	cr_assert(proof_usage(&t, 100, 101, 500));
	cr_assert_eq(t.state, TRUST_MISMATCH);
	cr_assert_eq(t.why, TRUST_USAGE_DIFFERS);
	cr_assert_eq(t.usage_ours, 100);
	cr_assert_eq(t.usage_theirs, 101);
	cr_assert_eq(t.usage_same, 1);
	cr_assert_not(proof_usage(&t, 7, 8, 600), "it is said once");
	cr_assert_eq(row_trust_since(&t), 500);
}

Test(proof, other_hits_in_its_cache_are_facts_and_no_proof)
{
	be_exact();
	proof_cached(&t, 64, 64);
	proof_cached(&t, 64, 0);
	proof_cached(&t, 0, 64);
	cr_assert_eq(t.cached_same, 1);
	cr_assert_eq(t.cached_less, 1);
	cr_assert_eq(t.cached_more, 1);
	cr_assert_eq(t.state, TRUST_EXACT);
}

Test(proof, another_engine_or_other_files_begin_anew)
{
	const struct proof_life same_one = {.start = 1000, .up = 50}, flapped = {.start = 1000,
				.up = 70}, restarted = {.start = 2000, .up = 90};

	be_exact();
	cr_assert_not(proof_begin(&t, KEY, &same_one, 400));
	cr_assert_not(proof_begin(&t, KEY, &flapped, 400), "down and up again: the same process");
	cr_assert_eq(t.state, TRUST_EXACT);
	cr_assert(proof_begin(&t, KEY, &restarted, 500));
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(t.agreed, 0);
	be_exact();
	cr_assert(proof_begin(&t, KEY + 1, &restarted, 600));
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(row_trust_key(&t), KEY + 1);
}

Test(proof, a_start_that_is_not_said_or_said_late_is_no_new_life)
{
	const struct proof_life silent = {.up = 50}, late = {.start = 3000, .up = 50},
		again = {.up = 99};

	cr_assert(proof_begin(&t, KEY + 1, &silent, 100));
	be_exact();
	cr_assert_not(proof_begin(&t, KEY + 1, &silent, 300));
	cr_assert_not(proof_begin(&t, KEY + 1, &late, 400));
	cr_assert_eq(t.start_lo, 3000);
	memset(&t, 0, sizeof t);
	proof_begin(&t, KEY + 1, &silent, 100);
	be_exact();
	cr_assert(proof_begin(&t, KEY + 1, &again, 400), "it came up anew");
}
