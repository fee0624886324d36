/* test_http1.c -- heads: what is accepted, what is refused with which status, and where it ends. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

#define CASES PM_SOURCE_DIR "/tests/data/cases/"

static char *
slurp(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");

	cr_assert(f != NULL, "%s is missing", path);
	char *buf = malloc(1 << 20);
	*ret_len = fread(buf, 1, 1 << 20, f);
	fclose(f);
	return buf;
}

static ssize_t
request(const char *text, struct http1_request *req, const char **why)
{
	*why = NULL;
	return http1_parse_request(text, strlen(text), NULL, req, why);
}

static void
assert_slice(struct slice s, const char *text)
{
	cr_assert(slice_eq_str(s, text), "expected \"%s\", got \"%.*s\"", text, (int)s.len, s.p);
}

static const char common[] = "POST /v1/chat/completions?x=1 HTTP/1.1\r\n"
			     "Host: router.test:8080\r\n"
			     "User-Agent:  OpenAI/Python 1.0 \t\r\n"
			     "Authorization: Bearer key\r\n"
			     "Content-Type: application/json; charset=utf-8\r\n"
			     "Content-Length: 17\r\n"
			     "X-Empty:\r\n"
			     "\r\n"
			     "{\"model\":\"m\"}....";

Test(http1, reads_a_common_request)
{
	struct http1_request req;
	const char *why;
	ssize_t n = request(common, &req, &why);

	cr_assert(n == (ssize_t)(strstr(common, "{") - common));
	cr_assert(req.method == HTTP1_POST);
	assert_slice(req.method_name, "POST");
	assert_slice(req.target, "/v1/chat/completions?x=1");
	assert_slice(req.path, "/v1/chat/completions");
	assert_slice(req.query, "x=1");
	assert_slice(req.host, "router.test:8080");
	cr_assert(req.head.minor == 1);
	cr_assert(req.head.keep_alive);
	cr_assert(!req.expect_continue);
	cr_assert(req.head.framing == HTTP1_BODY_LENGTH);
	cr_assert(req.head.content_length == 17);
	cr_assert(req.head.n_headers == 6);
	assert_slice(req.head.headers[1].name, "User-Agent");
	assert_slice(req.head.headers[1].value, "OpenAI/Python 1.0");
	assert_slice(req.head.headers[5].value, "");
	cr_assert(http1_media_type_is(&req.head, "application/json"));
	cr_assert(!http1_media_type_is(&req.head, "text/event-stream"));
}

Test(http1, a_head_that_comes_byte_by_byte_reads_the_same)
{
	struct http1_scan scan = {0};
	struct http1_request req;
	const char *why;
	size_t head = (size_t)(strstr(common, "{") - common);
	size_t seen = 0;

	for (size_t n = 0; n < head; n++) {
		/* A buffer of exactly that size: a sanitizer sees any look past it. */
		char *part = malloc(n + 1);

		memcpy(part, common, n);
		cr_assert(http1_parse_request(part, n, &scan, &req, &why) == 0, "at %zu", n);
		cr_assert(scan.seen_bytes >= seen, "no byte is looked at twice");
		seen = scan.seen_bytes;
		free(part);
	}
	cr_assert(http1_parse_request(common, sizeof(common) - 1, &scan, &req, &why) ==
		  (ssize_t)head);
	assert_slice(req.host, "router.test:8080");
	cr_assert(req.head.n_headers == 6);
}

Test(http1, slices_follow_a_moved_buffer)
{
	char *copy = strdup(common);
	struct http1_request req;
	const char *why;

	cr_assert(request(common, &req, &why) > 0);
	http1_rebase_request(&req, common, copy);
	cr_assert(req.path.p == copy + 5);
	cr_assert(req.head.headers[2].value.p == copy + (req.head.headers[2].value.p - copy));
	assert_slice(req.head.headers[2].value, "Bearer key");
	cr_assert(req.head.headers[2].value.p > copy && req.head.headers[2].value.p < copy + 400);
	free(copy);

	const char *bare = "GET http://h HTTP/1.1\r\nHost: x\r\n\r\n";

	cr_assert(request(bare, &req, &why) > 0);
	http1_rebase_request(&req, bare, bare);
	assert_slice(req.path, "/");
	assert_slice(req.host, "h");
}

#define GET(headers) "GET / HTTP/1.1\r\nHost: h\r\n" headers "\r\n"

Test(http1, refuses_what_could_be_read_in_two_ways)
{
	static const struct {
		const char *text;
		int         status;
	} cases[] = {
		/* line ends */
		{"GET / HTTP/1.1\nHost: h\n\n", 400},
		{"GET / HTTP/1.1\r\nHost: h\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
		{GET("X: a\rb\r\n"), 400},
		{GET("X: a\r\n folded\r\n"), 400},
		{GET("X: a\r\n\tfolded\r\n"), 400},
		{"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
		{"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		/* names and values */
		{GET("X : a\r\n"), 400},
		{GET("X\t: a\r\n"), 400},
		{GET("X Y: a\r\n"), 400},
		{GET(": a\r\n"), 400},
		{GET("X\r\n"), 400},
		{GET("X(: a\r\n"), 400},
		{GET("X\x80: a\r\n"), 400},
		{GET("X: a\x01\r\n"), 400},
		{GET("X: a\x7f\r\n"), 400},
		/* request line */
		{"GET /\r\n", 400},
		{"GET  / HTTP/1.1\r\n", 400},
		{"GET /  HTTP/1.1\r\n", 400},
		{"GET / HTTP/1.1 \r\n", 400},
		{"GET / http/1.1\r\n", 400},
		{"GET / HTTP/1.10\r\n", 400},
		{" GET / HTTP/1.1\r\n", 400},
		{"GET\t/ HTTP/1.1\r\n", 400},
		{"G(T / HTTP/1.1\r\n", 400},
		{"GET v1 HTTP/1.1\r\n", 400},
		{"GET /a#b HTTP/1.1\r\n", 400},
		{"GET /\xc3\xa9 HTTP/1.1\r\n", 400},
		{"GET * HTTP/1.1\r\n", 400},
		{"GET https://h#/ HTTP/1.1\r\n", 400},
		{"GET https://h:1@/ HTTP/1.1\r\n", 400},
		{"GET ftp://h/ HTTP/1.1\r\n", 400},
		{"GET http:///x HTTP/1.1\r\n", 400},
		{"GET http://u@h/x HTTP/1.1\r\n", 400},
		{"CONNECT h:80 HTTP/1.1\r\n", 405},
		{"GET / HTTP/1.2\r\n", 505},
		{"GET / HTTP/2.0\r\n", 505},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"\x16\x03\x01\x02", 400},   /* TLS on the plain port: said at once */
		/* Host */
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{GET("Host: h\r\n"), 400},
		{"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400},
		/* framing */
		{GET("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
		{GET("Content-Length: 1, 2\r\n"), 400},
		{GET("Content-Length: +1\r\n"), 400},
		{GET("Content-Length: -1\r\n"), 400},
		{GET("Content-Length: 0x10\r\n"), 400},
		{GET("Content-Length: 1 2\r\n"), 400},
		{GET("Content-Length: 1,\r\n"), 400},
		{GET("Content-Length:\r\n"), 400},
		{GET("Content-Length: 18446744073709551616\r\n"), 400},
		{GET("Content-Length: 9223372036854775808\r\n"), 400},
		{GET("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400},
		{GET("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
		{GET("Transfer-Encoding: gzip, chunked\r\n"), 501},
		{GET("Transfer-Encoding: chunked, chunked\r\n"), 501},
		{GET("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 501},
		{GET("Transfer-Encoding: xchunked\r\n"), 501},
		{GET("Transfer-Encoding: chunked;q=1\r\n"), 501},
		{GET("Transfer-Encoding:\r\n"), 501},
		{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{GET("Expect: a-miracle\r\n"), 417},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http1_request req;
		const char *why;
		ssize_t r = request(cases[i].text, &req, &why);

		cr_assert(r == -cases[i].status, "case %zu \"%s\": %zd (%s)", i, cases[i].text, r,
			  why ? why : "-");
		cr_assert(why != NULL);
	}
}

Test(http1, a_head_with_a_nul_anywhere_is_not_accepted)
{
	for (size_t at = 0; at < sizeof(common) - 1; at++) {
		char copy[sizeof(common)];
		struct http1_request req;
		const char *why;

		memcpy(copy, common, sizeof(copy));
		if (copy[at] == '{')
			break;
		copy[at] = '\0';
		cr_assert(http1_parse_request(copy, sizeof(copy) - 1, NULL, &req, &why) <= 0,
			  "a head with a NUL at %zu was accepted", at);
	}
}

Test(http1, accepts_what_is_odd_and_right)
{
	struct http1_request req;
	const char *why;

	cr_assert(request("\r\nGET / HTTP/1.1\r\nHost:\r\n\r\n", &req, &why) == 27);
	assert_slice(req.host, "");
	cr_assert(request(GET("Content-Length: 7\r\nContent-Length: 7\r\n"), &req, &why) > 0);
	cr_assert(req.head.content_length == 7);
	cr_assert(request(GET("Content-Length: 007 , 7\r\n"), &req, &why) > 0);
	cr_assert(req.head.content_length == 7);
	cr_assert(request(GET("transfer-encoding: Chunked\r\n"), &req, &why) > 0);
	cr_assert(req.head.framing == HTTP1_BODY_CHUNKED);
	cr_assert(request("BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n", &req, &why) > 0);
	cr_assert(req.method == HTTP1_OTHER);
	cr_assert(request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", &req, &why) > 0);
	assert_slice(req.path, "*");
	cr_assert(request("GET HTTP://real.test:1?q HTTP/1.1\r\nHost: other\r\n\r\n", &req, &why) >
		  0);
	assert_slice(req.host, "real.test:1");
	assert_slice(req.path, "/");
	assert_slice(req.query, "q");
	cr_assert(request("GET /? HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", &req, &why) > 0);
	cr_assert(req.query.p != NULL && req.query.len == 0);
	cr_assert(request(GET("X: \x80\xff obs-text\r\n"), &req, &why) > 0);
	cr_assert(request(GET("Expect: 100-Continue\r\n"), &req, &why) > 0);
	cr_assert(req.expect_continue);
	cr_assert(request("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &req, &why) > 0);
	cr_assert(!req.expect_continue, "an HTTP/1.0 client does not wait");
}

Test(http1, keep_alive_is_the_version_s_default_until_connection_says_otherwise)
{
	static const struct {
		const char *text;
		bool        keep_alive;
	} cases[] = {
		{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
		{"GET / HTTP/1.0\r\n\r\n", false},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
		{"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: h\r\nConnection: x , CLOSE\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: h\r\nConnection: x\r\nConnection: close\r\n\r\n", false},
		{"GET / HTTP/1.1\r\nHost: h\r\nConnection: not-close\r\n\r\n", true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http1_request req;
		const char *why;

		cr_assert(request(cases[i].text, &req, &why) > 0);
		cr_assert(req.head.keep_alive == cases[i].keep_alive, "case %zu", i);
	}
}

/* Request line and Host, then n header lines of `len` bytes each, CRLF included; no end. */
static size_t
long_head(char *buf, unsigned n, size_t len)
{
	size_t at = (size_t)sprintf(buf, "GET / HTTP/1.1\r\nHost: h\r\n");

	for (unsigned i = 0; i < n; i++) {
		memset(buf + at, 'v', len);
		memcpy(buf + at, "X: ", 3);
		memcpy(buf + at + len - 2, "\r\n", 2);
		at += len;
	}
	return at;
}

Test(http1, limits_are_414_and_431_without_waiting_for_the_end)
{
	char *buf = malloc(1 << 18);
	struct http1_request req;
	const char *why;
	size_t n;

	/* request line: 8 KiB with its CRLF is the longest */
	memset(buf, 'a', 1 << 18);
	memcpy(buf, "GET /", 5);
	cr_assert(http1_parse_request(buf, HTTP1_LINE_MAX_BYTES, NULL, &req, &why) == 0);
	cr_assert(http1_parse_request(buf, HTTP1_LINE_MAX_BYTES + 1, NULL, &req, &why) == -414);
	memcpy(buf + HTTP1_LINE_MAX_BYTES - 11, " HTTP/1.1\r\nHost: h\r\n\r\n", 22);
	cr_assert(http1_parse_request(buf, HTTP1_LINE_MAX_BYTES + 11, NULL, &req, &why) > 0);

	/* header count */
	n = long_head(buf, HTTP1_HEADERS_MAX - 1, 16);
	memcpy(buf + n, "\r\n", 2);
	cr_assert(http1_parse_request(buf, n + 2, NULL, &req, &why) == (ssize_t)n + 2);
	cr_assert(req.head.n_headers == HTTP1_HEADERS_MAX);
	n = long_head(buf, HTTP1_HEADERS_MAX, 16);
	memcpy(buf + n, "\r\n", 2);
	cr_assert(http1_parse_request(buf, n + 2, NULL, &req, &why) == -431);

	/* one header, its end not yet there */
	n = long_head(buf, 1, HTTP1_HEADER_MAX_BYTES);
	memcpy(buf + n, "\r\n", 2);
	cr_assert(http1_parse_request(buf, n + 2, NULL, &req, &why) > 0);
	n = long_head(buf, 1, HTTP1_HEADER_MAX_BYTES + 1);
	cr_assert(http1_parse_request(buf, n, NULL, &req, &why) == -431);
	buf[n - 1] = 'v';
	buf[n - 2] = 'v';
	cr_assert(http1_parse_request(buf, n, NULL, &req, &why) == -431);

	/* whole head */
	n = long_head(buf, 70, 1000);
	cr_assert(http1_parse_request(buf, n, NULL, &req, &why) == -431);
	free(buf);
}

/* Each is looked for among them: 64 KiB of both would be 41 ms of everybody's time. */
Test(http1, connection_lists_no_more_than_64_options)
{
	static char line[HTTP1_HEAD_MAX_BYTES];

	for (unsigned n = HTTP1_OPTIONS_MAX; n <= HTTP1_OPTIONS_MAX + 1; n++) {
		struct http1_response res;
		struct http1_request req;
		const char *why;
		int len = sprintf(line, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close");

		for (unsigned i = 2; i < n; i++)
			len += sprintf(line + len, ", o%u", i);
		len += sprintf(line + len, "\r\nConnection: x,, ,\r\n\r\n");
		cr_assert(http1_parse_request(line, (size_t)len, NULL, &req, &why) ==
			  (n > HTTP1_OPTIONS_MAX ? -431 : len));
		memcpy(line, "HTTP/1.1 200 O\r\n", 16);
		cr_assert(http1_parse_response(line, (size_t)len, false, NULL, &res, &why) ==
			  (n > HTTP1_OPTIONS_MAX ? -502 : len));
	}
}

Test(http1, big_tokens_pass_and_bigger_heads_do_not)
{
	struct http1_request req;
	const char *why;
	size_t len;
	char *buf = slurp(CASES "ht/ht15_headers_12k.http", &len);

	cr_assert(http1_parse_request(buf, len, NULL, &req, &why) == (ssize_t)len);
	free(buf);
	buf = slurp(CASES "ht/ht15_headers_70k.http", &len);
	cr_assert(http1_parse_request(buf, len, NULL, &req, &why) == -431);
	free(buf);
}

Test(http1, pipelined_requests_come_apart)
{
	struct http1_request req;
	const char *why;
	size_t len, at = 0;
	char *buf = slurp(CASES "ht/ht14_pipelined.http", &len);

	for (int i = 0; i < 2; i++) {
		ssize_t n = http1_parse_request(buf + at, len - at, NULL, &req, &why);

		cr_assert(n > 0);
		cr_assert(req.method == HTTP1_POST && req.head.content_length == 63);
		at += (size_t)n + 63;
	}
	cr_assert(http1_parse_request(buf + at, len - at, NULL, &req, &why) ==
		  (ssize_t)(len - at));
	cr_assert(req.method == HTTP1_GET && !req.head.keep_alive);
	free(buf);
}

Test(http1, old_versions_are_told_apart)
{
	struct http1_request req;
	const char *why;
	size_t len;
	char *buf = slurp(CASES "ht/ht14_http09.http", &len);

	cr_assert(http1_parse_request(buf, len, NULL, &req, &why) == -400);
	free(buf);
	buf = slurp(CASES "ht/ht14_version2.http", &len);
	cr_assert(http1_parse_request(buf, len, NULL, &req, &why) == -505);
	free(buf);
	buf = slurp(CASES "ht/ht14_http10.http", &len);
	cr_assert(http1_parse_request(buf, len, NULL, &req, &why) == (ssize_t)len - 63);
	cr_assert(req.head.minor == 0 && !req.head.keep_alive);
	free(buf);
	buf = slurp(CASES "ht/ht14_http10_keepalive.http", &len);
	cr_assert(http1_parse_request(buf, len, NULL, &req, &why) == (ssize_t)len);
	cr_assert(req.head.minor == 0 && req.head.keep_alive);
	free(buf);
}

/* --- responses --- */

static ssize_t
response(const char *text, bool to_head, struct http1_response *res)
{
	const char *why = NULL;
	ssize_t r = http1_parse_response(text, strlen(text), to_head, NULL, res, &why);

	cr_assert((r < 0) == (why != NULL));
	return r;
}

Test(http1, an_answer_s_body_follows_from_status_and_headers)
{
	static const struct {
		const char        *text;
		bool               to_head;
		enum http1_framing framing;
		bool               keep_alive;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false, HTTP1_BODY_LENGTH, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false,
		 HTTP1_BODY_CHUNKED, true},
		{"HTTP/1.1 200 OK\r\n\r\n", false, HTTP1_BODY_CLOSE, false},
		{"HTTP/1.0 200 OK\r\n\r\n", false, HTTP1_BODY_CLOSE, false},
		{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n", false,
		 HTTP1_BODY_LENGTH, true},
		{"HTTP/1.1 200\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false,
		 HTTP1_BODY_LENGTH, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true, HTTP1_BODY_NONE, true},
		{"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", false, HTTP1_BODY_NONE,
		 true},
		{"HTTP/1.1 204 No Content\r\n\r\n", false, HTTP1_BODY_NONE, true},
		{"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", false,
		 HTTP1_BODY_NONE, false},
		{"HTTP/1.1 100 Continue\r\n\r\n", false, HTTP1_BODY_NONE, true},
		{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", false, HTTP1_BODY_NONE, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http1_response res;

		cr_assert(response(cases[i].text, cases[i].to_head, &res) ==
				  (ssize_t)strlen(cases[i].text), "case %zu", i);
		cr_assert(res.head.framing == cases[i].framing, "case %zu", i);
		cr_assert(res.head.keep_alive == cases[i].keep_alive, "case %zu", i);
	}
}

Test(http1, a_bad_answer_is_502)
{
	static const char *const cases[] = {
		"ICY 200 OK\r\n\r\n",
		"\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/2 200\r\n\r\n",
		"HTTP/1.1  200 OK\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 099 X\r\n\r\n",
		"HTTP/1.1 600 X\r\n\r\n",
		"HTTP/1.1 200 O\x01K\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 2\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http1_response res;

		cr_assert(response(cases[i], false, &res) == -502, "case %zu", i);
	}
}

Test(http1, an_answer_behind_a_bodiless_one_is_found)
{
	struct http1_response res;
	const char *why;
	size_t len;
	char *buf = slurp(CASES "ht/ht13_upstream_204_chunked.http", &len);
	ssize_t n = http1_parse_response(buf, len, false, NULL, &res, &why);

	cr_assert(n > 0 && res.status == 204 && res.head.framing == HTTP1_BODY_NONE);
	cr_assert(http1_parse_response(buf + n, len - (size_t)n, false, NULL, &res, &why) ==
		  (ssize_t)len - n - 2);
	cr_assert(res.status == 200 && res.head.content_length == 2);
	free(buf);
}

Test(http1, keep_alive_timeout_is_read)
{
	struct http1_response res;

	cr_assert(response("HTTP/1.1 200 OK\r\nKeep-Alive: max=5, timeout=7\r\n"
			   "Content-Length: 0\r\n\r\n", false, &res) > 0);
	cr_assert(res.keep_alive_s == 7);
	cr_assert(response("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=x\r\n"
			   "Content-Length: 0\r\n\r\n", false, &res) > 0);
	cr_assert(res.keep_alive_s == 0);
	cr_assert(response("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\n"
			   "Content-Length: 0\r\n\r\n", false, &res) > 0);
	cr_assert(res.keep_alive_s == 1, "said, and as short as can be said");
	cr_assert(response("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=3\r\n"
			   "Keep-Alive: timeout=60\r\nContent-Length: 0\r\n\r\n",
			   false, &res) > 0);
	cr_assert(res.keep_alive_s == 3, "the least that was said");
}

Test(http1, an_encoded_answer_is_known_as_such)
{
	struct http1_response res;
	const char *why;
	size_t len;
	char *buf = slurp(CASES "ht/ht10_gzip_sse.http", &len);

	cr_assert(http1_parse_response(buf, len, false, NULL, &res, &why) > 0);
	cr_assert(http1_is_encoded(&res.head));
	cr_assert(http1_media_type_is(&res.head, "text/event-stream"));
	free(buf);
	cr_assert(response("HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n"
			   "Content-Length: 0\r\n\r\n", false, &res) > 0);
	cr_assert(!http1_is_encoded(&res.head));
	cr_assert(!http1_media_type_is(&res.head, "text/html"), "there is no Content-Type");
	cr_assert(response("HTTP/1.1 200 OK\r\nContent-Type: Text/HTML ;a\r\n"
			   "Content-Length: 0\r\n\r\n", false, &res) > 0);
	cr_assert(http1_media_type_is(&res.head, "text/html"));
}

Test(http1, hop_by_hop_headers_are_the_known_ones_and_those_connection_lists)
{
	struct http1_request req;
	const char *why;

	cr_assert(request(GET("Connection: close, X-Mine\r\nConnection: x-other\r\n"), &req, &why) >
		  0);
	static const char *const hop[] = {"connection", "KEEP-ALIVE", "te", "Trailer",
					  "Transfer-Encoding", "upgrade", "Proxy-Authorization",
					  "proxy-connection", "x-mine", "X-Other"};
	static const char *const end[] = {"content-length", "x-min", "x-mine2", "authorization",
					  "proxy", "host"};

	for (size_t i = 0; i < sizeof(hop) / sizeof(hop[0]); i++)
		cr_assert(http1_is_hop_by_hop(&req.head, (struct slice){hop[i], strlen(hop[i])}),
			  "%s", hop[i]);
	for (size_t i = 0; i < sizeof(end) / sizeof(end[0]); i++)
		cr_assert(!http1_is_hop_by_hop(&req.head, (struct slice){end[i], strlen(end[i])}),
			  "%s", end[i]);
}

/* --- writing --- */

Test(http1, what_is_written_reads_back)
{
	char buf[256];
	struct http1_writer w;
	struct http1_request req;
	struct http1_response res;
	const char *why;
	ssize_t n;

	http1_write_begin(&w, buf, sizeof(buf));
	http1_write_request(&w, SLICE_LIT("POST"), SLICE_LIT("/v1/completions"));
	http1_write_header_str(&w, "Host", "10.0.0.1:8000");
	http1_write_header_u64(&w, "Content-Length", 18446744073709ULL);
	n = http1_write_end(&w);
	cr_assert(http1_parse_request(buf, (size_t)n, NULL, &req, &why) == n);
	cr_assert(req.head.content_length == 18446744073709ULL);

	http1_write_begin(&w, buf, sizeof(buf));
	http1_write_status(&w, 503);
	http1_write_header(&w, SLICE_LIT("Retry-After"), SLICE_LIT("1"));
	http1_write_header_u64(&w, "Content-Length", 0);
	n = http1_write_end(&w);
	cr_assert(http1_parse_response(buf, (size_t)n, false, NULL, &res, &why) == n);
	cr_assert(res.status == 503);
	assert_slice(res.reason, "Service Unavailable");
}

Test(http1, a_value_with_a_line_end_is_not_written)
{
	char buf[256];
	struct http1_writer w;

	http1_write_begin(&w, buf, sizeof(buf));
	http1_write_status(&w, 200);
	http1_write_header_str(&w, "X-Model", "a\r\nSet-Cookie: b");
	cr_assert(http1_write_end(&w) == -EINVAL);
	http1_write_begin(&w, buf, sizeof(buf));
	http1_write_request(&w, SLICE_LIT("GET"), SLICE_LIT("/ HTTP/1.1"));
	cr_assert(http1_write_end(&w) == -EINVAL);
}

Test(http1, a_head_that_does_not_fit_is_not_cut)
{
	char buf[256];
	struct http1_writer w;
	ssize_t whole;

	for (size_t cap = 0; cap < 80; cap++) {
		http1_write_begin(&w, buf, cap);
		memset(buf, '#', sizeof(buf));
		http1_write_status(&w, 200);
		http1_write_header_str(&w, "X", "yyyyyyyyyyyyyyyyyyyyyyyy");
		whole = http1_write_end(&w);
		cr_assert(whole == (cap < 48 ? -ENOSPC : 48), "cap %zu: %zd", cap, whole);
		cr_assert(buf[cap] == '#');
	}
}

Test(http1, chunk_heads_are_shortest_hexadecimal)
{
	char out[20];

	cr_assert(http1_chunk_head(out, 1) == 3 && memcmp(out, "1\r\n", 3) == 0);
	cr_assert(http1_chunk_head(out, 0x1f4) == 5 && memcmp(out, "1f4\r\n", 5) == 0);
	cr_assert(http1_chunk_head(out, UINT64_MAX) == 18 &&
		  memcmp(out, "ffffffffffffffff\r\n", 18) == 0);
}
