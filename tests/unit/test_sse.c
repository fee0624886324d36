/* test_sse.c -- the same events, however the stream is written and cut. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/sse.h"

#define CASES PM_SOURCE_DIR "/tests/data/cases/ht/"

/* Events as one text: "name|data\n" each, '!' behind a truncated one. */
struct seen {
	size_t len;
	char   text[8192];
};

static void
note(void *arg, const struct sse_event *e)
{
	struct seen *s = arg;

	s->len += (size_t)snprintf(s->text + s->len, sizeof(s->text) - s->len, "%.*s|%.*s%s\n",
				   (int)e->name.len, e->name.p, (int)e->data.len, e->data.p,
				   e->truncated ? "!" : "");
	cr_assert(s->len < sizeof(s->text));
}

/* Feeds the stream in pieces of `step` bytes, each a buffer of its own; true when it ended between
 * events. */
static bool
watch(const char *stream, size_t len, size_t step, size_t cap, struct seen *ret)
{
	struct sse_watch w;
	char *buf = malloc(cap ? cap : 1);
	bool whole;

	ret->len = 0;
	ret->text[0] = '\0';
	sse_watch_init(&w, buf, cap, note, ret);
	for (size_t at = 0; at < len; at += step) {
		size_t n = len - at < step ? len - at : step;
		char *piece = malloc(n);

		memcpy(piece, stream + at, n);
		sse_watch_feed(&w, piece, n);
		free(piece);
	}
	whole = sse_watch_at_boundary(&w);
	free(buf);
	return whole;
}

static void
assert_events(const char *stream, const char *expected)
{
	struct seen seen;

	for (size_t step = 1; step <= strlen(stream) + 1; step++) {
		watch(stream, strlen(stream), step, 4096, &seen);
		cr_assert_str_eq(seen.text, expected, "in steps of %zu", step);
	}
}

static size_t
slurp(const char *file, char *buf, size_t cap)
{
	char path[512];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), CASES "%s", file);
	f = fopen(path, "rb");
	cr_assert(f != NULL, "%s is missing", path);
	n = fread(buf, 1, cap, f);
	fclose(f);
	return n;
}

Test(sse, line_ends_may_be_lf_cr_or_crlf_and_mixed)
{
	assert_events("data: a\n\ndata: b\n\n", "|a\n|b\n");
	assert_events("data: a\r\rdata: b\r\r", "|a\n|b\n");
	assert_events("data: a\r\n\r\ndata: b\r\n\r\n", "|a\n|b\n");
	assert_events("data: a\n\rdata: b\r\n\ndata: c\r\r\n", "|a\n|b\n|c\n");
}

Test(sse, one_blank_after_the_colon_goes)
{
	assert_events("data:a\n\ndata:  b\n\ndata:\tc\n\n", "|a\n| b\n|\tc\n");
}

Test(sse, data_lines_are_joined_and_may_be_empty)
{
	assert_events("data: a\ndata: b\n\n", "|a\nb\n");
	assert_events("data\n\n", "|\n");
	assert_events("data:\ndata:\n\n", "|\n\n");
}

Test(sse, an_event_without_data_is_none)
{
	assert_events("event: x\n\nid: 1\n\n\n\n: c\n\ndata: a\n\n", "|a\n");
}

Test(sse, names_belong_to_one_event_and_the_last_line_counts)
{
	assert_events("event: a\nevent: b\ndata: 1\n\ndata: 2\n\n", "b|1\n|2\n");
	assert_events("event:x\ndata: 1\n\nevent\ndata: 2\n\n", "x|1\n|2\n");
}

Test(sse, other_fields_and_comments_are_passed_over)
{
	assert_events(": c\nid: 7\nretry: 5\ndatas: x\ndat: y\nDATA: z\n data: w\ndata: a\n"
		      "averyveryverylongfieldname: q\n\n", "|a\n");
}

Test(sse, a_byte_order_mark_counts_only_in_front)
{
	assert_events("\xef\xbb\xbf" "data: a\n\n", "|a\n");
	assert_events("\xef\xbb" "data: a\n\ndata: b\n\n", "|b\n");
	assert_events("data: a\n\n\xef\xbb\xbf" "data: b\n\n", "|a\n");
}

Test(sse, a_long_event_is_cut_and_said_to_be)
{
	struct seen seen;
	const char *stream = "data: 123456789\ndata: x\n\ndata: 12345678\n\n";

	for (size_t step = 1; step < 50; step++) {
		watch(stream, strlen(stream), step, 8, &seen);
		cr_assert_str_eq(seen.text, "|12345678!\n|12345678\n");
	}
	watch(stream, strlen(stream), 9, 0, &seen);
	cr_assert_str_eq(seen.text, "|!\n|!\n");
}

Test(sse, a_long_name_is_cut)
{
	char stream[256], expected[128];
	struct seen seen;

	snprintf(stream, sizeof(stream), "event: %0100d\ndata: a\n\n", 0);
	snprintf(expected, sizeof(expected), "%0*d|a\n", SSE_NAME_MAX_BYTES, 0);
	for (size_t step = 1; step < 120; step++) {
		watch(stream, strlen(stream), step, 100, &seen);
		cr_assert_str_eq(seen.text, expected);
	}
}

Test(sse, the_boundary_is_where_an_event_has_ended)
{
	/* Under each byte: is the stream between events once that byte has come? */
	static const char stream[] = "data: a\n\n: c\n\r\nevent: x\ndata: b\n\n";
	static const char between[] = "00000000" "1" "0001" "11" "000000000" "00000000" "1";
	struct seen seen;

	cr_assert(sizeof(stream) == sizeof(between));
	for (size_t n = 1; n < sizeof(stream); n++) {
		bool whole = watch(stream, n, 5, 100, &seen);

		cr_assert(whole == (between[n - 1] == '1'), "after %zu bytes", n);
	}
}

Test(sse, nothing_is_put_between_a_cr_and_its_lf)
{
	struct sse_watch w;
	struct seen seen = {0};
	char buf[64];

	sse_watch_init(&w, buf, sizeof(buf), note, &seen);
	cr_assert(sse_watch_may_insert(&w));
	sse_watch_feed(&w, "data: a\r\n\r", 10);
	cr_assert(sse_watch_at_boundary(&w) && !sse_watch_may_insert(&w));
	sse_watch_feed(&w, "\n", 1);
	cr_assert(sse_watch_at_boundary(&w) && sse_watch_may_insert(&w));
	sse_watch_feed(&w, "d", 1);
	cr_assert(!sse_watch_at_boundary(&w) && !sse_watch_may_insert(&w));
}

Test(sse, reported_streams_give_their_events)
{
	static const struct {
		const char *file;
		unsigned    events;
	} cases[] = {
		{"ht02_crlf.sse", 4},         {"ht02_cr_only.sse", 4}, {"ht02_nospace.sse", 4},
		{"ht02_multiline_event_id.sse", 2}, {"ht03_comments.sse", 3},
		{"ht03_comment_between_lines.sse", 2}, {"ht17_include_usage.sse", 4},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char stream[4096];
		size_t len = slurp(cases[i].file, stream, sizeof(stream));
		struct seen whole, part;

		cr_assert(watch(stream, len, len, 4096, &whole), "%s", cases[i].file);
		unsigned n = 0;

		for (const char *p = whole.text; (p = strstr(p, "|")); p++)
			n++;
		cr_assert(n == cases[i].events, "%s: %u", cases[i].file, n);
		cr_assert(strstr(whole.text, "|[DONE]\n") != NULL, "%s", cases[i].file);
		for (size_t step = 1; step < len; step++) {
			watch(stream, len, step, 4096, &part);
			cr_assert_str_eq(part.text, whole.text, "%s", cases[i].file);
		}
	}
}

Test(sse, a_crlf_split_over_two_reads_is_one_line_end)
{
	char json[2048], *at;
	size_t len = slurp("ht02_crlf_split.json", json, sizeof(json) - 1);
	struct seen seen = {0};
	struct sse_watch w;
	char buf[1024];

	json[len] = '\0';
	at = strchr(json, '[');
	sse_watch_init(&w, buf, sizeof(buf), note, &seen);
	while ((at = strchr(at, '"'))) {     /* each string is one read, in hexadecimal */
		char bytes[512];
		size_t n = 0;

		for (at++; *at != '"'; at += 2) {
			unsigned byte;

			cr_assert(sscanf(at, "%2x", &byte) == 1 && n < sizeof(bytes));
			bytes[n++] = (char)byte;
		}
		at++;
		sse_watch_feed(&w, bytes, n);
	}
	cr_assert(w.events == 2, "%s", seen.text);
	cr_assert(strstr(seen.text, "\n|[DONE]\n") != NULL);
	cr_assert(sse_watch_at_boundary(&w));
}
