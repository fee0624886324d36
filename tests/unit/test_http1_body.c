/* test_http1_body.c -- where a body ends, however its bytes arrive. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

#define CASES PM_SOURCE_DIR "/tests/data/cases/"

/* What a body came to: its bytes, how it ended, how much input that took. */
struct outcome {
	int    event;
	size_t used;
	size_t len;
	char   bytes[4096];
};

/* Feeds in[0..len) in pieces that end at each cut; a piece is a buffer of its own, so that a
 * sanitizer sees any look past it. */
static void
drive(struct http1_body *b, const char *in, size_t len, const size_t *cuts, size_t n_cuts,
      struct outcome *ret)
{
	size_t from = 0;

	ret->event = HTTP1_BODY_MORE;
	ret->used = ret->len = 0;
	for (size_t i = 0; i <= n_cuts && ret->event == HTTP1_BODY_MORE; i++) {
		size_t to = i < n_cuts ? cuts[i] : len;
		size_t left = to - from, at = 0, used;
		char *piece = malloc(left + 1);
		struct slice data;
		const char *why;

		memcpy(piece, in + from, left);
		while ((ret->event = http1_body_next(b, piece + at, left, &used, &data, &why)) ==
		       HTTP1_BODY_DATA) {
			cr_assert(data.len > 0 && data.p >= piece + at &&
				  data.p + data.len <= piece + at + used);
			memcpy(ret->bytes + ret->len, data.p, data.len);
			ret->len += data.len;
			ret->used += used;
			at += used;
			left -= used;
		}
		if (ret->event >= 0) {
			ret->used += used;
			cr_assert(ret->event == HTTP1_BODY_END || used == left);
		}
		free(piece);
		from = to;
	}
}

static const char chunks[] = "5\r\nhello\r\n"
			     "00006;name=\"a b\";x\r\n world\r\n"
			     "1F\r\n0123456789012345678901234567890\r\n"
			     "0;last\r\nX-Sum: 1\r\nY: \r\n\r\n"
			     "GET / HTTP/1.1\r\n";
static const char payload[] = "hello world0123456789012345678901234567890";

static void
begin_chunked(struct http1_body *b)
{
	struct http1_head head = {.framing = HTTP1_BODY_CHUNKED};

	http1_body_begin(b, &head);
}

Test(http1_body, chunks_cut_at_any_two_bytes_give_the_same_body)
{
	size_t len = sizeof(chunks) - 1;
	size_t end = (size_t)(strstr(chunks, "GET") - chunks);
	struct outcome *got = malloc(sizeof(*got));

	for (size_t a = 0; a <= len; a++) {
		for (size_t b = a; b <= len; b++) {
			size_t cuts[2] = {a, b};
			struct http1_body body;

			begin_chunked(&body);
			drive(&body, chunks, len, cuts, 2, got);
			cr_assert(got->event == HTTP1_BODY_END, "cut at %zu, %zu", a, b);
			cr_assert(got->used == end, "cut at %zu, %zu", a, b);
			cr_assert(got->len == sizeof(payload) - 1 &&
				  memcmp(got->bytes, payload, got->len) == 0);
			cr_assert(http1_body_eof(&body));
		}
	}
	free(got);
}

Test(http1_body, chunks_fed_byte_by_byte_give_the_same_body)
{
	size_t cuts[sizeof(chunks)];
	struct http1_body body;
	struct outcome *got = malloc(sizeof(*got));

	for (size_t i = 0; i < sizeof(chunks) - 1; i++)
		cuts[i] = i;
	begin_chunked(&body);
	drive(&body, chunks, sizeof(chunks) - 1, cuts, sizeof(chunks) - 1, got);
	cr_assert(got->event == HTTP1_BODY_END);
	cr_assert(got->len == sizeof(payload) - 1 && memcmp(got->bytes, payload, got->len) == 0);
	free(got);
}

Test(http1_body, a_chunked_body_that_stops_early_is_never_whole)
{
	size_t end = (size_t)(strstr(chunks, "GET") - chunks);
	struct outcome *got = malloc(sizeof(*got));

	for (size_t len = 0; len < end; len++) {
		struct http1_body body;

		begin_chunked(&body);
		drive(&body, chunks, len, NULL, 0, got);
		cr_assert(got->event == HTTP1_BODY_MORE, "at %zu", len);
		cr_assert(!http1_body_eof(&body), "at %zu", len);
	}
	free(got);
}

Test(http1_body, malformed_chunks_are_refused)
{
	static const char *const cases[] = {
		"\r\n",                      /* no size */
		" 5\r\nhello\r\n",
		"5 \r\nhello\r\n",
		"+5\r\nhello\r\n",
		"0x5\r\nhello\r\n",
		"g\r\n",
		"5\nhello\r\n",              /* bare LF */
		"5\rhello\r\n",
		"5;a\nhello\r\n",
		"5;a\001\r\n",
		"5\r\nhelloX\r\n",           /* longer than said */
		"5\r\nhello\n",
		"5\r\nhello\rX",
		"00000000000000005\r\n",     /* 17 digits */
		"8000000000000000\r\n",      /* past int64 */
		"0\r\nX: 1\n\r\n",
		"0\r\n\rX",
		"0\r\nX: y\rZ",
		"0\r\nX: \001\r\n\r\n",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http1_body body;
		struct outcome *got = malloc(sizeof(*got));

		begin_chunked(&body);
		drive(&body, cases[i], strlen(cases[i]), NULL, 0, got);
		cr_assert(got->event == -400, "case %zu", i);
		free(got);
	}
}

/* Feeds `text` n times over; the last answer. */
static int
repeat(struct http1_chunked *c, const char *text, unsigned n)
{
	int event = HTTP1_BODY_MORE;

	for (unsigned i = 0; i < n && event >= 0; i++) {
		const char *p = text, *why;
		size_t left = strlen(text), used;
		struct slice data;

		while ((event = http1_chunked_next(c, p, left, &used, &data, &why)) ==
		       HTTP1_BODY_DATA) {
			p += used;
			left -= used;
		}
	}
	return event;
}

Test(http1_body, extensions_and_trailers_are_bounded_over_the_whole_body)
{
	struct http1_chunked c = {0};

	cr_assert(repeat(&c, "1;0123456\r\nx\r\n", 128) == HTTP1_BODY_MORE);
	cr_assert(repeat(&c, "1;0123456\r\nx\r\n", 1) == -400);

	c = (struct http1_chunked){0};
	cr_assert(repeat(&c, "1;\r\nx\r\n", 1024) == HTTP1_BODY_MORE);
	cr_assert(repeat(&c, "1;\r\nx\r\n", 1) == -400);

	c = (struct http1_chunked){0};
	cr_assert(repeat(&c, "0\r\n", 1) == HTTP1_BODY_MORE);
	cr_assert(repeat(&c, "X: 45678\r\n", 1024) == HTTP1_BODY_MORE);
	cr_assert(repeat(&c, "X: 45678\r\n", 1) == -400);
}

Test(http1_body, a_known_length_ends_after_it_and_leaves_the_rest)
{
	struct http1_head head = {.framing = HTTP1_BODY_LENGTH, .content_length = 5};
	struct http1_body body;
	struct outcome got;
	size_t cut = 2;

	http1_body_begin(&body, &head);
	drive(&body, "helloGET", 8, &cut, 1, &got);
	cr_assert(got.event == HTTP1_BODY_END && got.used == 5);
	cr_assert(got.len == 5 && memcmp(got.bytes, "hello", 5) == 0);

	head.content_length = 0;
	http1_body_begin(&body, &head);
	drive(&body, "GET", 3, NULL, 0, &got);
	cr_assert(got.event == HTTP1_BODY_END && got.used == 0);

	head.framing = HTTP1_BODY_NONE;
	http1_body_begin(&body, &head);
	drive(&body, "GET", 3, NULL, 0, &got);
	cr_assert(got.event == HTTP1_BODY_END && got.used == 0);
}

Test(http1_body, a_body_framed_by_the_close_is_whole_at_the_close)
{
	struct http1_head head = {.framing = HTTP1_BODY_CLOSE};
	struct http1_body body;
	struct outcome got;

	http1_body_begin(&body, &head);
	drive(&body, "abc", 3, NULL, 0, &got);
	cr_assert(got.event == HTTP1_BODY_MORE && got.len == 3);
	cr_assert(http1_body_eof(&body));
}

Test(http1_body, reported_cuts_are_cuts_and_trailers_are_not)
{
	static const struct {
		const char *file;
		bool        whole;
	} cases[] = {
		{"ht/ht04_cut_in_chunk.http", false},
		{"ht/ht04_cut_at_chunk_boundary.http", false},
		{"ht/ht04_cut_in_trailer.http", false},
		{"ht/ht04_trailers_ok.http", true},
		{"ht/ht04_short_content_length.http", false},
		{"ht/ht10_gzip_sse.http", true},
		{"ht/ht10_gzip_error.http", true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct outcome *got = malloc(sizeof(*got));
		struct http1_response res;
		struct http1_body body;
		char path[512], buf[8192];
		const char *why;

		snprintf(path, sizeof(path), CASES "%s", cases[i].file);
		FILE *f = fopen(path, "rb");

		cr_assert(f != NULL, "%s is missing", path);
		size_t len = fread(buf, 1, sizeof(buf), f);

		fclose(f);
		ssize_t n = http1_parse_response(buf, len, false, NULL, &res, &why);

		cr_assert(n > 0, "%s", cases[i].file);
		http1_body_begin(&body, &res.head);
		drive(&body, buf + n, len - (size_t)n, NULL, 0, got);
		cr_assert(got->event >= 0, "%s", cases[i].file);
		cr_assert((got->event == HTTP1_BODY_END) == cases[i].whole, "%s", cases[i].file);
		cr_assert(http1_body_eof(&body) == cases[i].whole, "%s", cases[i].file);
		free(got);
	}
}
