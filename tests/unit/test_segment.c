/* shm/segment: who may attach, who may write. */
#include <criterion/criterion.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/rows.h"

static struct segment
made(void)
{
	struct segment seg;

	cr_assert_eq(segment_create(&seg, SEGMENT_ROSTER, 7, 8192, NULL), 0);
	return seg;
}

Test(segment, nobody_attaches_before_it_is_published)
{
	struct segment seg = made(), other;

	cr_assert_eq(segment_attach(&other, dup(seg.fd), SEGMENT_ROSTER, 7, true), -EBADMSG);
	segment_publish(&seg);
	cr_assert_eq(segment_attach(&other, dup(seg.fd), SEGMENT_ROSTER, 7, true), 0);
	segment_detach(&other);
	segment_detach(&seg);
}

Test(segment, another_layout_kind_or_size_is_refused)
{
	struct segment seg = made(), other;

	segment_publish(&seg);
	cr_assert_eq(segment_attach(&other, dup(seg.fd), SEGMENT_ROSTER, 8, true), -ESTALE);
	cr_assert_eq(segment_attach(&other, dup(seg.fd), SEGMENT_ROWS, 7, true), -EBADMSG);
	seg.head->size++;
	cr_assert_eq(segment_attach(&other, dup(seg.fd), SEGMENT_ROSTER, 7, true), -EBADMSG);
	segment_detach(&seg);
}

Test(segment, it_cannot_be_resized)
{
	struct segment seg = made();

	cr_assert_lt(ftruncate(seg.fd, 4096), 0);
	cr_assert_lt(ftruncate(seg.fd, 1 << 20), 0);
	segment_detach(&seg);
}

Test(segment, a_read_only_descriptor_maps_read_only)
{
	struct segment seg = made();
	int fd = segment_readonly_fd(&seg);

	cr_assert_geq(fd, 0);
	cr_assert_eq(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	segment_detach(&seg);
}

Test(segment, claiming_notes_pid_start_and_epoch)
{
	struct segment seg = made();

	segment_claim(&seg);
	segment_claim(&seg);
	cr_assert_eq(seg.head->writer_pid, (uint32_t)getpid());
	cr_assert_eq(seg.head->writer_start, process_start_ticks((uint32_t)getpid()));
	cr_assert_neq(seg.head->writer_start, 0);
	cr_assert_eq(seg.head->epoch, 2);
	segment_detach(&seg);
}

Test(rows, a_row_is_found_by_uid_once_its_intent_stands)
{
	struct rows rows, view;

	cr_assert_eq(rows_create(&rows, 8), 0);
	cr_assert_eq(rows_attach(&view, segment_readonly_fd(&rows.seg), false), 0);
	rows.row[0].uid = 42;
	rows.head->count = 1;
	cr_assert_eq(rows_find(&view, 42), ROW_NONE);
	rows.row[0].intent = INTENT_SERVE;
	cr_assert_eq(rows_find(&view, 42), 0);
	rows_detach(&view);
	rows_detach(&rows);
}

Test(rows, a_text_is_told_only_whole_and_of_the_generation_asked_for)
{
	struct row_text one = {.set = "s", .member = "m", .url = "http://h:1", .model = "a"}, got;
	struct rows rows, view;

	memset(one.pad, 'x', sizeof one.pad);
	cr_assert_eq(rows_create(&rows, 8), 0);
	cr_assert_eq(rows_attach(&view, segment_readonly_fd(&rows.seg), false), 0);
	rows_text_write(&rows, 3, &one);
	rows.row[3].row_gen = 1;
	cr_assert_not(rows_text_read(&view, 3, 1, &got));       /* intent NONE: being made */
	rows.row[3].intent = INTENT_SERVE;
	cr_assert(rows_text_read(&view, 3, 1, &got));
	cr_assert_str_eq(got.model, "a");
	cr_assert_str_eq(got.url, "http://h:1");
	cr_assert_not(rows_text_read(&view, 3, 2, &got));

	rows.row[3].intent = INTENT_NONE;                       /* re-added, stopped half-way */
	memset(&one, 'y', sizeof one);
	rows_text_write(&rows, 3, &one);
	cr_assert_not(rows_text_read(&view, 3, 1, &got));
	cr_assert_str_eq(got.model, "a");
	rows.row[3].row_gen = 2;
	cr_assert_not(rows_text_read(&view, 3, 2, &got));
	rows.row[3].intent = INTENT_SERVE;
	cr_assert_not(rows_text_read(&view, 3, 1, &got));
	cr_assert(rows_text_read(&view, 3, 2, &got));
	cr_assert_eq(strlen(got.model), sizeof got.model - 1);  /* ended, whatever it holds */
	rows_detach(&view);
	rows_detach(&rows);
}

Test(rows, a_reading_comes_back_whole_and_state_follows_intent_and_health)
{
	static struct row row;
	struct row_reading in = {.sampled_hi = 1,
				 .sampled_lo = 2,
				 .waiting = 3,
				 .health = HEALTH_UP},
			   out;

	row.intent = INTENT_SERVE;
	row_reading_read(&row, &out);
	cr_assert_eq(row_state(&row, &out), ROW_UNPROVEN);
	for (unsigned i = 0; i < 5; i++) {
		in.waiting = i;
		row_reading_write(&row, &in);
		cr_assert(row_reading_read(&row, &out));
		cr_assert_eq(out.waiting, i);
		cr_assert_eq(row_reading_sampled(&out), (1ull << 32) + 2);
	}
	cr_assert_eq(row_state(&row, &out), ROW_UP);
	row.intent = INTENT_DRAIN;
	cr_assert_eq(row_state(&row, &out), ROW_DRAINING);
}

Test(rows, the_health_of_a_rows_last_owner_is_not_its_next_ones)
{
	static struct row row;
	struct row_reading r = {.health = HEALTH_UP};

	row.intent = INTENT_SERVE;
	row.health_since_ns = 5;
	row.since_ns = 9;                       /* re-added since */
	cr_assert_eq(row_state(&row, &r), ROW_UNPROVEN);
	row.health_since_ns = 9;
	cr_assert_eq(row_state(&row, &r), ROW_UP);
}
