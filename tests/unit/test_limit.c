/* Tenants' buckets: never more than the rate, exact to a nanosecond a time; given back. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/limit.h"
#include "tests/random.h"

#define SECOND 1000000000ull
#define MINUTE (60 * SECOND)

Test(limit, what_the_supervisor_names_every_process_finds)
{
	struct limits made, reader;
	uint32_t a, b;

	cr_assert_eq(limits_create(&made), 0);
	cr_assert_eq(limits_attach(&reader, segment_readonly_fd(&made.seg), false), 0);
	cr_assert_eq(limits_find(&reader, limit_uid("a", 1)), LIMIT_NO_ROW);
	a = limits_name(&made, "a", 1, 1);
	b = limits_name(&made, "b", 1, 1);
	cr_assert(a != b && a < LIMIT_TENANTS && b < LIMIT_TENANTS);
	cr_assert_eq(limits_name(&made, "a", 2, 1), a, "a row stays with its name");
	cr_assert_eq(limits_find(&reader, limit_uid("a", 1)), a);
	cr_assert_eq(limits_find(&reader, limit_uid("b", 1)), b);
	cr_assert_str_eq(reader.tenant[b].name, "b");
	limits_detach(&reader);
	limits_detach(&made);
}

Test(limit, a_row_goes_to_another_only_when_nobody_names_or_uses_it)
{
	struct limit_use *use;
	struct limits l;
	uint32_t old[2], row;
	uint64_t wait;
	char name[16];

	cr_assert_eq(limits_create(&l), 0);
	cr_assert_eq(limits_column_take(&l, 7), 0);
	use = limits_use(&l, 7);
	for (uint32_t i = 0; i < LIMIT_TENANTS; i++) {
		snprintf(name, sizeof name, "t%u", i);
		row = limits_name(&l, name, i < 2 ? 1 : 2, 1);
		cr_assert_neq(row, LIMIT_NO_ROW);
		cr_assert_eq(limits_find(&l, limit_uid(name, strlen(name))), row);
		if (i < 2)
			old[i] = row;
	}
	cr_assert_eq(limits_name(&l, "new", 2, 1), LIMIT_NO_ROW, "all are named");
	cr_assert(limit_enter(&l, use, old[0], 1));
	limit_count(&use[old[1]].requests, 5);
	cr_assert(limit_take(&l.tenant[old[1]].full[LIMIT_REQUESTS], 60, 1, MINUTE, &wait));
	cr_assert_eq(limits_name(&l, "new", 3, 2), old[1], "the other still serves somebody");
	cr_assert_eq(limits_find(&l, limit_uid("new", 3)), old[1]);
	cr_assert_eq(atomic_load(&use[old[1]].requests), 0);
	cr_assert_eq(atomic_load(&l.tenant[old[1]].full[LIMIT_REQUESTS]), 0);
	cr_assert_eq(limits_find(&l, limit_uid("t1", 2)), LIMIT_NO_ROW);
	for (uint32_t i = 2; i < LIMIT_TENANTS; i++) {
		snprintf(name, sizeof name, "t%u", i);
		cr_assert_neq(limits_find(&l, limit_uid(name, strlen(name))), LIMIT_NO_ROW);
	}
	limits_detach(&l);
}

Test(limit, a_bucket_gives_a_minutes_worth_and_then_the_rate)
{
	_Atomic uint64_t full = 0;
	mono_ns now = 1000 * MINUTE;
	uint64_t wait;

	for (unsigned i = 0; i < 60; i++)
		cr_assert(limit_take(&full, 60, 1, now, &wait), "%u", i);
	cr_assert(!limit_take(&full, 60, 1, now, &wait));
	cr_assert_eq(wait, SECOND);
	cr_assert(!limit_has(&full, 60, 1, now + SECOND - 1, &wait));
	cr_assert_eq(wait, 1);
	cr_assert(limit_has(&full, 60, 1, now + SECOND, &wait));
	cr_assert(limit_take(&full, 60, 1, now + SECOND, &wait));
	cr_assert(!limit_take(&full, 60, 1, now + SECOND, &wait));
	cr_assert(limit_take(&full, 60, 60, now + SECOND + MINUTE, &wait));
	cr_assert(!limit_take(&full, 60, 61, now + 10 * MINUTE, &wait));
	cr_assert_eq(wait, LIMIT_NEVER, "more than a bucket holds");
}

Test(limit, what_is_left_is_told_as_it_is)
{
	_Atomic uint64_t full = 0;
	mono_ns now = 5 * MINUTE;
	struct limit_left left = limit_look(&full, 1000, now);
	uint64_t wait;

	cr_assert(left.limit == 1000 && left.remaining == 1000 && left.full_ns == 0);
	cr_assert(limit_take(&full, 1000, 250, now, &wait));
	left = limit_look(&full, 1000, now);
	cr_assert(left.remaining == 750 && left.full_ns == 15 * SECOND);
	left = limit_look(&full, 1000, now + 15 * SECOND);
	cr_assert(left.remaining == 1000 && left.full_ns == 0);
	limit_settle(&full, 0, limit_ns(1000, 5000), now);
	cr_assert_eq(limit_look(&full, 1000, now).remaining, 0, "in debt");
	cr_assert(!limit_has(&full, 1000, 1, now, &wait));
	cr_assert_eq(wait, 15 * SECOND + 4 * MINUTE + limit_ns(1000, 1));
}

Test(limit, what_was_not_used_comes_back_and_no_more)
{
	_Atomic uint64_t full = 0;
	mono_ns now = 5 * MINUTE;
	uint64_t wait;

	cr_assert(limit_take(&full, 100, 100, now, &wait));
	limit_settle(&full, limit_ns(100, 100), limit_ns(100, 30), now);
	cr_assert_eq(limit_look(&full, 100, now).remaining, 70);
	limit_settle(&full, limit_ns(100, 30), 0, now);
	cr_assert_eq(limit_look(&full, 100, now).remaining, 100);
	limit_settle(&full, limit_ns(100, 100), 0, now);
	cr_assert_eq(limit_look(&full, 100, now).remaining, 100, "never above the bucket");
	cr_assert(!limit_has(&full, 100, 101, now, &wait));
	limit_settle(&full, 0, LIMIT_NEVER - 1, now);
	limit_settle(&full, 0, LIMIT_NEVER - 1, now);
	cr_assert(!limit_has(&full, 100, 1, now, &wait), "and saturates instead of wrapping");
}

/* The same bucket in whole numbers: its level in 1/60e9 units. */
struct exact {
	__int128 level, most;
	uint64_t per_minute;
	mono_ns at;
};

static void
exact_flow(struct exact *e, mono_ns now)
{
	e->level += (__int128)(now - e->at) * e->per_minute;
	if (e->level > e->most)
		e->level = e->most;
	e->at = now;
}

Test(limit, takes_what_the_exact_bucket_would_give_but_for_a_nanosecond_each)
{
	uint64_t seed = 7;

	for (unsigned round = 0; round < 2000; round++) {
		uint64_t rate = 1 + random_next(&seed) % (round % 2 ? 100 : LIMIT_RATE_MAX);
		struct exact e = {.most = (__int128)rate * MINUTE, .per_minute = rate};
		_Atomic uint64_t full = 0;
		mono_ns now = 0;
		unsigned ops = 0;

		e.level = e.most;
		for (unsigned i = 0; i < 200; i++) {
			uint64_t n = 1 + random_next(&seed) % (i % 3 ? rate : rate / 8 + 1), wait;
			__int128 cost = (__int128)n * MINUTE;

			now += random_next(&seed) % (random_next(&seed) % 4 ? SECOND : MINUTE);
			exact_flow(&e, now);
			if (random_next(&seed) % 8 == 0) {      /* gives back, or charges */
				uint64_t back = random_next(&seed) % (rate + 1);
				bool more = random_next(&seed) % 2;

				limit_settle(&full, more ? 0 : limit_ns(rate, back),
					     more ? limit_ns(rate, back) : 0, now);
				e.level += (more ? -1 : 1) * (__int128)back * MINUTE;
				if (e.level > e.most)
					e.level = e.most;
				ops++;
			}
			/* rounding: at most 1 ns, so `rate` of the exact level, per operation */
			__int128 slack = (__int128)rate * (ops + 1);

			if (limit_take(&full, rate, n, now, &wait)) {
				cr_assert(e.level + slack >= cost, "gave what was not there");
				e.level -= cost;
				ops++;
			} else {
				cr_assert(e.level < cost + slack, "refused what was there");
			}
		}
	}
}

Test(limit, concurrency_is_that_of_all_ingresses_and_ends_with_one)
{
	struct limits l;
	struct limit_use *a, *b, sum;

	cr_assert_eq(limits_create(&l), 0);
	cr_assert_eq(limits_column_take(&l, 11), 0);
	cr_assert_eq(limits_column_take(&l, 12), 0);
	a = limits_use(&l, 11);
	b = limits_use(&l, 12);
	cr_assert(a && b && a != b && !limits_use(&l, 13));
	cr_assert(limit_enter(&l, a, 3, 2) && limit_enter(&l, b, 3, 2));
	cr_assert(!limit_enter(&l, a, 3, 2) && !limit_enter(&l, b, 3, 2));
	cr_assert(limit_enter(&l, b, 4, 2), "another tenant's");
	limit_leave(a, 3);
	cr_assert(limit_enter(&l, b, 3, 2));
	limit_count(&b[3].requests, 9);
	limits_column_leave(&l, 12);
	cr_assert(limit_enter(&l, a, 3, 2) && limit_enter(&l, a, 3, 2));
	limits_sum(&l, 3, &sum);
	cr_assert(sum.concurrent == 2 && sum.requests == 9, "counters stay");
	cr_assert_eq(limits_column_take(&l, 14), 0);
	cr_assert_eq(limits_use(&l, 14), b, "and go on under the next owner");
	limits_detach(&l);
}

Test(limit, columns_end_and_say_so)
{
	struct limits l;

	cr_assert_eq(limits_create(&l), 0);
	for (uint32_t i = 1; i <= LIMIT_COLUMNS; i++)
		cr_assert_eq(limits_column_take(&l, i), 0);
	cr_assert_eq(limits_column_take(&l, 1000), -ENOSPC);
	limits_detach(&l);
}

Test(limit, money_is_that_of_its_day)
{
	struct limit_tenant t = {0};

	limit_spend(&t, 100, 7);
	limit_spend(&t, 100, 8);
	cr_assert(limit_spent(&t, 100) == 15 && limit_spent(&t, 101) == 0);
	limit_spend(&t, 101, 2);
	limit_spend(&t, 100, 50);
	cr_assert_eq(limit_spent(&t, 101), 2, "an older day's cost came late");
	limit_spend(&t, 101, UINT64_MAX);
	cr_assert_eq(limit_spent(&t, 101), (1ull << 48) - 1, "saturates");
	cr_assert_eq(limit_day(86400 * SECOND * 3 + 1), 3);
	cr_assert_eq(limit_day_left_ns(86400 * SECOND * 3 + 1), 86400 * SECOND - 1);
}

Test(limit, a_dead_ingress_slots_give_back_what_they_noted_or_took)
{
	struct limits l;
	struct slots s;
	uint64_t wait;
	_Atomic uint64_t *full;
	mono_ns now = 9 * MINUTE;

	cr_assert_eq(limits_create(&l), 0);
	cr_assert_eq(slots_create(&s, 0, 1, 4), 0);
	full = &l.tenant[5].full[LIMIT_PROMPT];
	cr_assert(limit_take(full, 100, 90, now, &wait));
	s.slot[1].reserve[1].limit = limit_id(5, LIMIT_PROMPT);
	s.slot[1].reserve[1].amount = limit_ns(100, 40);
	s.slot[1].reserve[1].state = RESERVE_TAKEN;
	s.slot[4].reserve[0].limit = limit_id(5, LIMIT_PROMPT);
	s.slot[4].reserve[0].amount = limit_ns(100, 50);
	s.slot[4].reserve[0].state = RESERVE_NOTED;
	s.slot[2].reserve[0].limit = UINT32_MAX; /* whatever it wrote before it died */
	s.slot[2].reserve[0].amount = UINT64_MAX;
	s.slot[2].reserve[0].state = RESERVE_TAKEN;
	limits_refund(&l, &s);
	cr_assert_eq(limit_look(full, 100, now).remaining, 100);
	cr_assert_eq(s.slot[1].reserve[1].state, RESERVE_NONE);
	slots_detach(&s);
	limits_detach(&l);
}

Test(limit, times_to_the_first_token_are_counted_once_each)
{
	struct limit_use use = {0};

	limit_ttft(&use, 0);
	limit_ttft(&use, 50000);
	limit_ttft(&use, 50001);
	limit_ttft(&use, 61000000);
	cr_assert(use.ttft[0] == 2 && use.ttft[1] == 1 && use.ttft[LIMIT_TTFT_BUCKETS - 1] == 1);
	cr_assert_eq(use.ttft_us, 61100001);
}

Test(limit, another_layout_or_geometry_is_refused)
{
	struct limits l, other;

	cr_assert_eq(limits_create(&l), 0);
	l.seg.head->geometry[0] = 1u << 19;
	cr_assert_eq(limits_attach(&other, segment_readonly_fd(&l.seg), false), -EBADMSG);
	l.seg.head->geometry[0] = LIMIT_TENANTS;
	l.seg.head->layout = LIMITS_LAYOUT + 1;
	cr_assert_eq(limits_attach(&other, segment_readonly_fd(&l.seg), false), -ESTALE);
	limits_detach(&l);
}
