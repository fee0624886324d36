/* tests/unit/test_log.c -- actors/common/log.h: lines, and a reader that does not read. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/common/log.h"

#define LINES 4096u

static void
goes_on_without_a_reader(int reader, int writer)
{
	static char text[1 << 22];
	int err = dup(STDERR_FILENO);
	unsigned written = 0, lost = 0;
	size_t n = 0;
	ssize_t r;

	cr_assert(err >= 0);
	dup2(writer, STDERR_FILENO);
	close(writer);
	log_open("test", 1, 2, 3, LEVEL_INFO);
	for (unsigned i = 0; i < LINES; i++)
		log_info("%0200u", i);          /* more than it takes: would wait for ever */
	fcntl(reader, F_SETFL, O_NONBLOCK);
	while ((r = read(reader, text, sizeof text)) > 0)
		for (ssize_t i = 0; i < r; i++)
			written += text[i] == '\n';
	log_warn("read again");
	while (n + 1 < sizeof text && (r = read(reader, text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = '\0';
	dup2(err, STDERR_FILENO);
	close(err);
	close(reader);
	log_open("test", 1, 2, 3, LEVEL_INFO);
	cr_assert(written > 0 && written < LINES, "%u", written);
	cr_assert_not_null(strstr(text, " warn test[1.2] gen=3 log lines="), "%s", text);
	cr_assert_eq(sscanf(strstr(text, "lines="), "lines=%u", &lost), 1);
	cr_assert_eq(written + lost, LINES);
	cr_assert_not_null(strstr(text, " warn test[1.2] gen=3 read again\n"), "%s", text);
}

Test(log, a_pipe_that_nobody_reads_does_not_make_us_wait, .timeout = 20)
{
	int end[2];

	cr_assert_eq(pipe(end), 0);
	goes_on_without_a_reader(end[0], end[1]);
}

Test(log, a_socket_that_nobody_reads_does_not_make_us_wait, .timeout = 20)
{
	int end[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, end), 0);
	goes_on_without_a_reader(end[0], end[1]);
}

Test(log, the_pipe_stays_as_its_owner_has_it)
{
	int end[2], err = dup(STDERR_FILENO);

	cr_assert_eq(pipe(end), 0);
	dup2(end[1], STDERR_FILENO);
	log_open("test", 0, 0, 0, LEVEL_INFO);
	int flags = fcntl(STDERR_FILENO, F_GETFL);
	dup2(err, STDERR_FILENO);
	log_open("test", 0, 0, 0, LEVEL_INFO);
	cr_assert_eq(flags & O_NONBLOCK, 0);
}
