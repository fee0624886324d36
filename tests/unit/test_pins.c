/* Which worker keeps a response: found until it is dropped, gives way, or its worker is gone. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/pins.h"

static bool
find(const struct pins *p, const char *id, uint16_t *row, uint32_t *gen)
{
	return pins_find(p, id, strlen(id), row, gen);
}

static enum pins_result
put(struct pins *p, const char *id, uint16_t row, uint32_t gen, mono_ns now)
{
	return pins_put(p, id, strlen(id), row, gen, now);
}

Test(pins, what_one_process_puts_another_finds)
{
	struct pins made, writer, reader;
	uint16_t row;
	uint32_t gen;

	cr_assert_eq(pins_create(&made, 1000), 0);
	cr_assert_eq(pins_attach(&writer, dup(made.seg.fd), true), 0);
	cr_assert_eq(pins_attach(&reader, segment_readonly_fd(&made.seg), false), 0);
	cr_assert(!find(&reader, "resp_1", &row, &gen));
	cr_assert_eq(put(&writer, "resp_1", 65535, UINT32_MAX, 1), PINS_PUT);
	cr_assert(find(&reader, "resp_1", &row, &gen));
	cr_assert(row == 65535 && gen == UINT32_MAX);
	cr_assert(!find(&reader, "resp_2", &row, &gen));
	cr_assert(!find(&reader, "resp_", &row, &gen));
	pins_drop(&writer, "resp_1", 6);
	cr_assert(!find(&reader, "resp_1", &row, &gen));
	cr_assert_eq(pins_used(&reader), 0);
	pins_detach(&reader);
	pins_detach(&writer);
	pins_detach(&made);
}

Test(pins, an_id_put_again_moves_and_takes_no_second_place)
{
	struct pins p;
	uint16_t row;
	uint32_t gen;

	cr_assert_eq(pins_create(&p, 4), 0);
	for (unsigned i = 0; i < 200000; i++) {
		cr_assert_eq(put(&p, "resp_a", (uint16_t)(i / 2), i / 2 + 7, i), PINS_PUT);
		cr_assert(find(&p, "resp_a", &row, &gen));
		cr_assert(row == (uint16_t)(i / 2) && gen == i / 2 + 7, "after %u", i);
	}
	cr_assert_eq(pins_used(&p), 1);
	pins_detach(&p);
}

Test(pins, a_full_bucket_gives_up_its_oldest_and_says_so)
{
	struct pins p;
	uint16_t row;
	uint32_t gen;
	char id[16];

	cr_assert_eq(pins_create(&p, PINS_WAYS), 0);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(id, sizeof id, "r%u", i);
		cr_assert_eq(put(&p, id, (uint16_t)i, i, 1 + i),
			     i < PINS_WAYS ? PINS_PUT : PINS_EVICTED);
		for (unsigned k = i < 6 ? 0 : i - 6; k <= i; k++) {
			snprintf(id, sizeof id, "r%u", k);
			cr_assert_eq(find(&p, id, &row, &gen), k + PINS_WAYS > i, "%u at %u", k, i);
		}
	}
	/* One that is used again is young again. */
	cr_assert_eq(put(&p, "r4996", 4996, 4996, 9000), PINS_PUT);
	cr_assert_eq(put(&p, "new", 1, 1, 9001), PINS_EVICTED);
	cr_assert(find(&p, "r4996", &row, &gen) && !find(&p, "r4997", &row, &gen));
	pins_detach(&p);
}

Test(pins, ids_spread_over_the_table)
{
	struct pins p;
	unsigned found = 0, evicted = 0;
	uint16_t row;
	uint32_t gen;
	char id[32];

	cr_assert_eq(pins_create(&p, 65536), 0);
	for (unsigned i = 0; i < 32768; i++) {
		snprintf(id, sizeof id, "resp_%08x", i * 2654435761u);
		evicted += put(&p, id, (uint16_t)i, i, i + 1) == PINS_EVICTED;
	}
	for (unsigned i = 0; i < 32768; i++) {
		snprintf(id, sizeof id, "resp_%08x", i * 2654435761u);
		if (find(&p, id, &row, &gen)) {
			cr_assert(row == (uint16_t)i && gen == i);
			found++;
		}
	}
	cr_assert_eq(found + evicted, 32768);
	cr_assert_lt(evicted, 32768 / 20, "%u", evicted);
	cr_assert_eq(pins_used(&p), found);
	pins_detach(&p);
}

Test(pins, a_segment_that_does_not_hold_what_it_claims_is_refused)
{
	struct pins made, p;

	cr_assert_eq(pins_create(&made, 0), -EINVAL);
	cr_assert_eq(pins_create(&made, PINS_MAX + 1), -EINVAL);
	cr_assert_eq(pins_create(&made, 1000), 0);
	made.seg.head->geometry[0] = 1000;      /* 128 KB; there are 32 */
	cr_assert_eq(pins_attach(&p, dup(made.seg.fd), false), -EBADMSG);
	made.seg.head->geometry[0] = 0;
	cr_assert_eq(pins_attach(&p, dup(made.seg.fd), false), -EBADMSG);
	made.seg.head->geometry[0] = UINT64_MAX / 64;
	cr_assert_eq(pins_attach(&p, dup(made.seg.fd), false), -EBADMSG);
	made.seg.head->geometry[0] = 250;
	made.seg.head->layout = PINS_LAYOUT + 1;
	cr_assert_eq(pins_attach(&p, dup(made.seg.fd), false), -ESTALE);
	made.seg.head->layout = PINS_LAYOUT;
	cr_assert_eq(pins_attach(&p, dup(made.seg.fd), false), 0);
	pins_detach(&p);
	pins_detach(&made);
}
