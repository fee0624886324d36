/* fuzz_http1.c -- heads and bodies from strangers: nothing is read outside the buffer, growing
 * input reads as whole input does, what is forwarded reads back as the same message, and where a
 * second parser (libhttp-parser) accepts the same message too, it frames it the same way: requests
 * are smuggled between two readers that disagree on where one ends. */
#include <http_parser.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool truth, const char *what)
{
	if (!truth) {
		fprintf(stderr, "fuzz_http1: %s\n", what);
		abort();
	}
}

static void
within(struct slice s, const char *buf, size_t len)
{
	if (s.p && s.len > 0)
		require(s.p >= buf && s.p + s.len <= buf + len, "slice outside the head");
}

/* Body bytes and end, with the input cut every `step` bytes. */
struct outcome {
	int      event;
	size_t   used;
	uint64_t sum;
};

static struct outcome
drive(const struct http1_head *head, const char *in, size_t len, size_t step)
{
	struct outcome got = {.event = HTTP1_BODY_MORE, .sum = 14695981039346656037ULL};
	struct http1_body b;

	http1_body_begin(&b, head);
	for (size_t at = 0; got.event == HTTP1_BODY_MORE;) {
		size_t left = len - at < step ? len - at : step, used;
		const char *why = NULL;
		struct slice data;

		while ((got.event = http1_body_next(&b, in + at, left, &used, &data, &why)) ==
		       HTTP1_BODY_DATA) {
			require(data.len > 0, "empty data");
			within(data, in + at, used);
			for (size_t i = 0; i < data.len; i++)
				got.sum = (got.sum ^ (uint8_t)data.p[i]) * 1099511628211ULL;
			at += used;
			left -= used;
		}
		if (got.event < 0) {
			require(why != NULL, "refused without saying why");
			break;
		}
		at += used;
		got.used = at;
		if (at == len)
			break;
	}
	return got;
}

static void
same_body(const struct http1_head *head, const char *in, size_t len)
{
	struct outcome whole = drive(head, in, len, len ? len : 1);

	for (size_t step = 1; step <= 7; step += 2) {
		struct outcome part = drive(head, in, len, step);

		require(part.event == whole.event && part.sum == whole.sum,
			"a cut body reads differently");
		require(part.event < 0 || part.used == whole.used, "a cut body ends elsewhere");
	}
}

/* What the second parser made of the message. */
struct second {
	bool     head;                       /* it accepted the head ... */
	bool     complete;                   /* ... and saw the end of the body */
	bool     chunked, keep_alive;
	uint64_t length, sum;
};

static int
second_on_head(http_parser *p)
{
	struct second *s = p->data;

	s->head = true;
	s->chunked = p->flags & F_CHUNKED;
	s->keep_alive = http_should_keep_alive(p);
	s->length = p->flags & F_CONTENTLENGTH ? p->content_length : HTTP1_LENGTH_NONE;
	return 0;
}

static int
second_on_body(http_parser *p, const char *at, size_t len)
{
	struct second *s = p->data;

	for (size_t i = 0; i < len; i++)
		s->sum = (s->sum ^ (uint8_t)at[i]) * 1099511628211ULL;
	return 0;
}

static int
second_on_end(http_parser *p)
{
	struct second *s = p->data;

	s->complete = true;
	http_parser_pause(p, 1);
	return 0;
}

/* Where libhttp-parser 2.9.4 misreads what RFC 9110, 5.6 allows, and its word counts for nothing:
 * a tab after `chunked` (to it, another coding) and any header whose name only begins with
 * Transfer-Encoding (it forgets `chunked`); for keep-alive, Proxy-Connection (to it, Connection),
 * lists with empty elements or blanks before a comma, and `close` beside `keep-alive` in
 * HTTP/1.0: it is asked where Connection is said once, with one word. */
static bool
second_misreads_framing(const struct http1_request *req)
{
	const char *coding = "transfer-encoding";

	for (unsigned i = 0; i < req->head.n_headers; i++) {
		struct slice name = req->head.headers[i].name;

		if (name.len < strlen(coding) || strncasecmp(name.p, coding, strlen(coding)) != 0)
			continue;
		const char *rest = name.p + name.len;

		if (name.len > strlen(coding) ||
		    memchr(rest, '\t', (size_t)(strchr(rest, '\r') - rest)))
			return true;
	}
	return false;
}

static bool
second_misreads_keep_alive(const struct http1_request *req)
{
	unsigned said = 0;

	for (unsigned i = 0; i < req->head.n_headers; i++) {
		const struct http1_header *h = &req->head.headers[i];

		if (http1_name_eq(h->name, "proxy-connection"))
			return true;
		if (http1_name_eq(h->name, "connection") &&
		    (said++ > 0 || h->value.len == 0 || memchr(h->value.p, ',', h->value.len)))
			return true;
	}
	return false;
}

static void
second_opinion(const struct http1_request *req, const char *buf, size_t head_len, size_t len)
{
	http_parser_settings on = {
		.on_headers_complete = second_on_head,
		.on_body = second_on_body,
		.on_message_complete = second_on_end,
	};
	struct second s = {.sum = 14695981039346656037ULL};
	http_parser p;

	http_parser_init(&p, HTTP_REQUEST);
	p.data = &s;
	http_parser_execute(&p, &on, buf, len);
	if (!s.head || p.upgrade || second_misreads_framing(req))
		return;                      /* stricter there, or a protocol we do not speak */
	struct outcome ours = drive(&req->head, buf + head_len, len - head_len,
				    len > head_len ? len - head_len : 1);

	require(s.chunked == (req->head.framing == HTTP1_BODY_CHUNKED), "chunked or not?");
	require(s.chunked || s.length == req->head.content_length, "two lengths");
	require(s.keep_alive == req->head.keep_alive || second_misreads_keep_alive(req),
		"keep-alive or not?");
	if (s.complete && ours.event == HTTP1_BODY_END)
		require(s.sum == ours.sum, "two bodies");
	require(!(s.complete && ours.event == HTTP1_BODY_MORE), "it ends there, not here");
}

/* Forwarding is re-serialising: the copy must be read as the same message. */
static void
write_back(const struct http1_request *req)
{
	static char out[2 * HTTP1_HEAD_MAX_BYTES];
	static struct http1_request again;
	struct http1_writer w;
	const char *why;
	ssize_t n;

	http1_write_begin(&w, out, sizeof(out));
	http1_write_request(&w, req->method_name, req->target);
	for (unsigned i = 0; i < req->head.n_headers; i++)
		http1_write_header(&w, req->head.headers[i].name, req->head.headers[i].value);
	n = http1_write_end(&w);
	require(n > 0, "a head that was read cannot be written");
	if (n > HTTP1_HEAD_MAX_BYTES || req->head.minor == 0)
		return;                      /* grew past the limit by ": ", or changed version */
	ssize_t r = http1_parse_request(out, (size_t)n, NULL, &again, &why);

	if (r == -414 || r == -431)
		return;
	require(r == n, "a head that was written cannot be read");
	require(again.head.framing == req->head.framing &&
			again.head.content_length == req->head.content_length &&
			again.head.n_headers == req->head.n_headers &&
			slice_eq(again.path, req->path) && slice_eq(again.host, req->host),
		"a head that was written reads differently");
}

/* The head is copied elsewhere, and what was read of it follows. */
static void
moved(const struct http1_request *req, const char *buf, size_t n)
{
	static struct http1_request there;
	char *copy = malloc(n);

	memcpy(copy, buf, n);
	there = *req;
	http1_rebase_request(&there, buf, copy);
	within(there.method_name, copy, n);
	within(there.target, copy, n);
	within(there.query, copy, n);
	within(there.host, copy, n);
	require(slice_eq(there.path, req->path), "another path after a move");
	for (unsigned i = 0; i < there.head.n_headers; i++) {
		within(there.head.headers[i].name, copy, n);
		within(there.head.headers[i].value, copy, n);
		require(slice_eq(there.head.headers[i].value, req->head.headers[i].value),
			"another value after a move");
	}
	free(copy);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http1_request req, part_req;
	static struct http1_response res;
	const char *why = NULL;
	ssize_t whole, part = 0;

	if (size == 0)
		return 0;
	/* First byte: what it is read as.  The rest in a buffer of its exact size. */
	size_t len = size - 1;
	char *buf = malloc(len ? len : 1);

	memcpy(buf, data + 1, len);
	switch (data[0] % 4) {
	case 0:
		whole = http1_parse_request(buf, len, NULL, &req, &why);
		require(whole >= 0 || why, "refused without saying why");
		require(whole <= (ssize_t)len, "head longer than its buffer");
		if (len <= 2048) {
			struct http1_scan scan = {0};

			for (size_t n = 0; n <= len && part == 0; n++)
				part = http1_parse_request(buf, n, &scan, &part_req, &why);
			require(whole == part, "a growing head reads differently");
		}
		if (whole > 0) {
			size_t n = (size_t)whole;

			within(req.method_name, buf, n);
			within(req.target, buf, n);
			within(req.query, buf, n);
			within(req.host, buf, n);
			for (unsigned i = 0; i < req.head.n_headers; i++) {
				within(req.head.headers[i].name, buf, n);
				within(req.head.headers[i].value, buf, n);
				http1_is_hop_by_hop(&req.head, req.head.headers[i].name);
			}
			http1_media_type_is(&req.head, "application/json");
			http1_is_encoded(&req.head);
			moved(&req, buf, n);
			write_back(&req);
			second_opinion(&req, buf, n, len);
			same_body(&req.head, buf + n, len - n);
		}
		break;
	case 1:
	case 2:
		whole = http1_parse_response(buf, len, data[0] % 4 == 2, NULL, &res, &why);
		require(whole >= 0 || (whole == -502 && why), "refused without saying why");
		if (whole > 0) {
			within(res.reason, buf, (size_t)whole);
			http1_media_type_is(&res.head, "text/event-stream");
			http1_is_encoded(&res.head);
			same_body(&res.head, buf + whole, len - (size_t)whole);
		}
		break;
	case 3: {
		struct http1_head head = {.framing = HTTP1_BODY_CHUNKED};

		same_body(&head, buf, len);
		break;
	}
	}
	free(buf);
	return 0;
}
