/* proto/http1_write.c -- heads we send: bounded, and no value with a line end gets in. */
#include "proto/http1.h"

#include <errno.h>
#include <string.h>

void
http1_write_begin(struct http1_writer *w, char *buf, size_t cap)
{
	*w = (struct http1_writer){.buf = buf, .cap = cap};
}

static void
put(struct http1_writer *w, const char *p, size_t len)
{
	if (w->error)
		return;
	if (len > w->cap - w->len) {
		w->error = -ENOSPC;
		return;
	}
	if (len > 0)
		memcpy(w->buf + w->len, p, len);
	w->len += len;
}

/* For parts that came from outside: a control character here would be a header of somebody
 * else's making.  `blank`: may it hold blanks? */
static void
put_text(struct http1_writer *w, struct slice s, bool blank)
{
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = (uint8_t)s.p[i];

		if (c < 0x20 ? c != '\t' || !blank : c == 0x7f || (c == ' ' && !blank)) {
			if (!w->error)
				w->error = -EINVAL;
			return;
		}
	}
	put(w, s.p, s.len);
}

static size_t
format_u64(char out[20], uint64_t v)
{
	char tmp[20];
	size_t n = 0;

	do {
		tmp[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	for (size_t i = 0; i < n; i++)
		out[i] = tmp[n - 1 - i];
	return n;
}

void
http1_write_status(struct http1_writer *w, unsigned status)
{
	const char *reason = http1_reason(status);
	char digits[20];

	put(w, "HTTP/1.1 ", 9);
	put(w, digits, format_u64(digits, status));
	put(w, " ", 1);
	put(w, reason, strlen(reason));
	put(w, "\r\n", 2);
}

void
http1_write_request(struct http1_writer *w, struct slice method, struct slice target)
{
	put_text(w, method, false);
	put(w, " ", 1);
	put_text(w, target, false);
	put(w, " HTTP/1.1\r\n", 11);
}

void
http1_write_header(struct http1_writer *w, struct slice name, struct slice value)
{
	put_text(w, name, false);
	put(w, ": ", 2);
	put_text(w, value, true);
	put(w, "\r\n", 2);
}

void
http1_write_header_str(struct http1_writer *w, const char *name, const char *value)
{
	http1_write_header(w, (struct slice){name, strlen(name)},
			   (struct slice){value, strlen(value)});
}

void
http1_write_header_u64(struct http1_writer *w, const char *name, uint64_t value)
{
	char digits[20];

	http1_write_header(w, (struct slice){name, strlen(name)},
			   (struct slice){digits, format_u64(digits, value)});
}

ssize_t
http1_write_end(struct http1_writer *w)
{
	put(w, "\r\n", 2);
	return w->error ? w->error : (ssize_t)w->len;
}

size_t
http1_chunk_head(char out[static 20], uint64_t len_bytes)
{
	static const char hex[] = "0123456789abcdef";
	size_t n = 0;
	int shift = 60;

	while (shift > 0 && (len_bytes >> shift & 15) == 0)
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		out[n++] = hex[len_bytes >> shift & 15];
	out[n++] = '\r';
	out[n++] = '\n';
	return n;
}

const char *
http1_reason(unsigned status)
{
	static const struct {
		unsigned    status;
		const char *reason;
	} known[] = {
		{100, "Continue"},
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{204, "No Content"},
		{206, "Partial Content"},
		{301, "Moved Permanently"},
		{302, "Found"},
		{304, "Not Modified"},
		{307, "Temporary Redirect"},
		{308, "Permanent Redirect"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{402, "Payment Required"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{406, "Not Acceptable"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{411, "Length Required"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{417, "Expectation Failed"},
		{421, "Misdirected Request"},
		{422, "Unprocessable Content"},
		{424, "Failed Dependency"},
		{425, "Too Early"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{499, "Client Closed Request"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].status == status)
			return known[i].reason;
	return "Unknown";
}
