/* shm/journal: what a tailing reader sees. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "shm/process.h"

static struct process_segment
made(void)
{
	struct process_segment p;

	cr_assert_eq(process_create(&p, ROLE_INGRESS, 0, 1, 0, 32768), 0);
	return p;
}

static void
append(struct process_segment *p, uint64_t id, size_t extra)
{
	static char payload[4096];
	struct journal_record head = {.kind = JOURNAL_OUTCOME, .request_id = id};

	memset(payload, (int)id, sizeof payload);
	cr_assert_neq(journal_append(&p->journal, &head, payload, extra, NULL, 0), 0);
}

Test(journal, records_come_back_in_order_and_whole)
{
	struct process_segment p = made();
	union { struct journal_record head; char bytes[JOURNAL_RECORD_MAX]; } rec;
	uint64_t position = 0, lost = 0;

	for (uint64_t id = 1; id < 200; id++) {
		append(&p, id, id * 7 % 900);
		cr_assert_eq(journal_read(&p.journal, &position, &rec, sizeof rec, &lost), 1);
		cr_assert_eq(rec.head.request_id, id);
		for (size_t i = 0; i < id * 7 % 900; i++)
			cr_assert_eq((unsigned char)rec.bytes[sizeof rec.head + i],
				     (unsigned char)id);
		cr_assert_eq(journal_read(&p.journal, &position, &rec, sizeof rec, &lost), 0);
	}
	cr_assert_eq(lost, 0);
	process_detach(&p);
}

Test(journal, a_reader_that_is_overtaken_is_told_what_it_lost_and_goes_on)
{
	struct process_segment p = made();
	union { struct journal_record head; char bytes[JOURNAL_RECORD_MAX]; } rec;
	uint64_t position = 0, lost = 0, last = 0;
	unsigned got = 0;

	for (uint64_t id = 1; id <= 1000; id++)
		append(&p, id, 100);
	while (journal_read(&p.journal, &position, &rec, sizeof rec, &lost) == 1) {
		cr_assert(last == 0 || rec.head.request_id == last + 1);
		last = rec.head.request_id;
		got++;
	}
	cr_assert_eq(last, 1000);
	cr_assert_gt(lost, 0);
	cr_assert_gt(got, 100);
	cr_assert_lt(got, 200);
	process_detach(&p);
}

Test(journal, a_position_that_is_no_record_is_refused)
{
	struct process_segment p = made();
	char rec[JOURNAL_RECORD_MAX];
	uint64_t position = 64, lost = 0;

	append(&p, 1, 500);
	cr_assert_eq(journal_read(&p.journal, &position, rec, sizeof rec, &lost), -EBADMSG);
	cr_assert_eq(position, journal_head(&p.journal));
	process_detach(&p);
}

Test(journal, too_long_a_record_is_refused_and_nothing_is_written)
{
	struct process_segment p = made();
	struct journal_record head = {.kind = JOURNAL_OUTCOME};
	static char big[JOURNAL_RECORD_MAX];

	cr_assert_eq(journal_append(&p.journal, &head, big, sizeof big, NULL, 0), 0);
	cr_assert_eq(journal_head(&p.journal), 0);
	process_detach(&p);
}
