/* proto/http1.c -- request and response heads. */
#include "proto/http1.h"

#include <string.h>

/* What a byte may be part of; one table, so that a head is classified in one load per byte. */
enum {
	C_TOKEN = 1,                         /* tchar */
	C_VALUE = 2,                         /* field value: VCHAR, obs-text, SP, HTAB */
	C_TARGET = 4,                        /* request target: visible ASCII without '#' */
	C_HOST = 8,                          /* uri-host [ ":" port ] */
};

#define C_ALNUM (C_TOKEN | C_VALUE | C_TARGET | C_HOST)

static const uint8_t class_of[256] = {
	['\t'] = C_VALUE,
	[' '] = C_VALUE,
	['!'] = C_ALNUM,
	['"'] = C_VALUE | C_TARGET,
	['#'] = C_TOKEN | C_VALUE,
	['$'] = C_ALNUM,
	['%'] = C_ALNUM,
	['&'] = C_ALNUM,
	['\''] = C_ALNUM,
	['('] = C_VALUE | C_TARGET | C_HOST,
	[')'] = C_VALUE | C_TARGET | C_HOST,
	['*'] = C_ALNUM,
	['+'] = C_ALNUM,
	[','] = C_VALUE | C_TARGET | C_HOST,
	['-'] = C_ALNUM,
	['.'] = C_ALNUM,
	['/'] = C_VALUE | C_TARGET,
	['0' ... '9'] = C_ALNUM,
	[':'] = C_VALUE | C_TARGET | C_HOST,
	[';'] = C_VALUE | C_TARGET | C_HOST,
	['<'] = C_VALUE | C_TARGET,
	['='] = C_VALUE | C_TARGET | C_HOST,
	['>'] = C_VALUE | C_TARGET,
	['?'] = C_VALUE | C_TARGET,
	['@'] = C_VALUE | C_TARGET,
	['A' ... 'Z'] = C_ALNUM,
	['['] = C_VALUE | C_TARGET | C_HOST,
	['\\'] = C_VALUE | C_TARGET,
	[']'] = C_VALUE | C_TARGET | C_HOST,
	['^'] = C_TOKEN | C_VALUE | C_TARGET,
	['_'] = C_ALNUM,
	['`'] = C_TOKEN | C_VALUE | C_TARGET,
	['a' ... 'z'] = C_ALNUM,
	['{'] = C_VALUE | C_TARGET,
	['|'] = C_TOKEN | C_VALUE | C_TARGET,
	['}'] = C_VALUE | C_TARGET,
	['~'] = C_ALNUM,
	[0x80 ... 0xff] = C_VALUE,
};

/* Length of the run of bytes of that class at p. */
static size_t
run_of(const char *p, size_t len, uint8_t class)
{
	size_t i = 0;

	while (i < len && (class_of[(uint8_t)p[i]] & class))
		i++;
	return i;
}

static bool
all_of(struct slice s, uint8_t class)
{
	return run_of(s.p, s.len, class) == s.len;
}

static ssize_t
fail(int status, const char *text, const char **why)
{
	*why = text;
	return -status;
}

/* "HTTP/1.0" or "HTTP/1.1"; 0 and the digit, or the status to answer. */
static int
version_of(struct slice s, uint8_t *ret_minor)
{
	if (s.len != 8 || memcmp(s.p, "HTTP/", 5) != 0 || s.p[6] != '.' ||
	    s.p[5] < '0' || s.p[5] > '9' || s.p[7] < '0' || s.p[7] > '9')
		return 400;
	if (s.p[5] != '1' || s.p[7] > '1')
		return 505;
	*ret_minor = (uint8_t)(s.p[7] - '0');
	return 0;
}

static enum http1_method
method_of(struct slice s)
{
	static const struct {
		const char        *name;
		enum http1_method  method;
	} known[] = {
		{"GET", HTTP1_GET},       {"HEAD", HTTP1_HEAD},       {"POST", HTTP1_POST},
		{"PUT", HTTP1_PUT},       {"DELETE", HTTP1_DELETE},   {"OPTIONS", HTTP1_OPTIONS},
		{"PATCH", HTTP1_PATCH},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (slice_eq_str(s, known[i].name))
			return known[i].method;
	return HTTP1_OTHER;
}

/* Splits the target into path, query and, in absolute form, authority. */
static ssize_t
split_target(struct http1_request *req, const char **why)
{
	struct slice t = req->target;
	const char *q;

	req->host = (struct slice){NULL, 0};
	req->query = (struct slice){NULL, 0};
	if (!all_of(t, C_TARGET))
		return fail(400, "request target holds a character that may not stand there", why);
	if (t.len == 1 && t.p[0] == '*') {
		if (req->method != HTTP1_OPTIONS)
			return fail(400, "request target * is for OPTIONS only", why);
		req->path = t;
		return 0;
	}
	if (t.p[0] != '/') {                 /* absolute form: scheme "://" authority path */
		size_t skip = 0;

		if (t.len > 7 && strncasecmp(t.p, "http://", 7) == 0)
			skip = 7;
		else if (t.len > 8 && strncasecmp(t.p, "https://", 8) == 0)
			skip = 8;
		if (skip == 0)
			return fail(400, "request target is neither a path nor an http URL", why);
		req->host.p = t.p + skip;
		req->host.len = run_of(t.p + skip, t.len - skip, C_HOST);
		t.p += skip + req->host.len;
		t.len -= skip + req->host.len;
		if (req->host.len == 0 || (t.len > 0 && t.p[0] != '/' && t.p[0] != '?'))
			return fail(400, "authority of the request target is malformed", why);
	}
	req->path = t;
	q = t.len > 0 ? memchr(t.p, '?', t.len) : NULL;
	if (q) {
		req->path.len = (size_t)(q - t.p);
		req->query = (struct slice){q + 1, (size_t)(t.p + t.len - q - 1)};
	}
	if (req->path.len == 0)
		req->path = SLICE_LIT("/");
	return 0;
}

/* METHOD SP target SP HTTP/1.x, the CRLF already removed. */
static ssize_t
parse_request_line(struct slice line, struct http1_request *req, const char **why)
{
	const char *end = line.p + line.len;
	const char *p = line.p;
	int status;

	req->method_name = (struct slice){p, run_of(p, line.len, C_TOKEN)};
	p += req->method_name.len;
	if (req->method_name.len == 0 || p == end || *p != ' ')
		return fail(400, "request line does not begin with a method and one blank", why);
	p++;
	const char *blank = memchr(p, ' ', (size_t)(end - p));
	if (!blank || blank == p)
		return fail(400, "request line has no HTTP version", why);
	req->target = (struct slice){p, (size_t)(blank - p)};
	status = version_of((struct slice){blank + 1, (size_t)(end - blank - 1)},
			    &req->head.minor);
	if (status == 505)
		return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", why);
	if (status != 0)
		return fail(400, "request line does not end with an HTTP version", why);
	req->method = method_of(req->method_name);
	if (slice_eq_str(req->method_name, "CONNECT"))
		return fail(405, "CONNECT is not served here", why);
	return split_target(req, why);
}

/* HTTP/1.x SP 3DIGIT [SP reason], the CRLF already removed. */
static ssize_t
parse_status_line(struct slice line, struct http1_response *res, const char **why)
{
	const char *p = line.p;

	if (line.len < 12 || version_of((struct slice){p, 8}, &res->head.minor) != 0 ||
	    p[8] != ' ' || (line.len > 12 && p[12] != ' '))
		return fail(502, "upstream answer has no HTTP/1 status line", why);
	for (int i = 9; i < 12; i++)
		if (p[i] < '0' || p[i] > '9')
			return fail(502, "upstream status is not three digits", why);
	res->status = (unsigned)((p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0'));
	if (res->status < 100 || res->status > 599)
		return fail(502, "upstream status is outside 100..599", why);
	if (res->status == 101)
		return fail(502, "upstream switched protocols unasked", why);
	res->reason = line.len > 13 ? (struct slice){p + 13, line.len - 13}
				    : (struct slice){p + line.len, 0};
	if (!all_of(res->reason, C_VALUE))
		return fail(502, "upstream reason phrase holds a control character", why);
	return 0;
}

/* Content-Length: digits, or a list of the very same digits; `had` is what a header before said. */
static bool
read_length(struct slice value, uint64_t had, uint64_t *ret)
{
	const char *p = value.p, *end = value.p + value.len;

	for (;;) {
		uint64_t v = 0;
		const char *from = p;

		for (; p < end && *p >= '0' && *p <= '9'; p++) {
			if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
			    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
				return false;
		}
		if (p == from || v > INT64_MAX || (had != HTTP1_LENGTH_NONE && v != had))
			return false;
		had = v;
		while (p < end && (*p == ' ' || *p == '\t'))
			p++;
		if (p == end)
			break;
		if (*p++ != ',')
			return false;
		while (p < end && (*p == ' ' || *p == '\t'))
			p++;
	}
	*ret = had;
	return true;
}

/* What the headers say that the parser itself must know. */
struct known {
	uint64_t     length;
	unsigned     n_coding;               /* Transfer-Encoding headers */
	bool         chunked;                /* the only one, and exactly that */
	unsigned     n_host;
	struct slice host;
	unsigned     n_options;              /* listed by Connection */
	bool         close, keep;
	bool         expect, expect_other;
	bool         length_wrong;
	unsigned     keep_alive_s;
};

/* Next comma-separated element of a list, blanks removed; false at the end. */
static bool
next_listed(struct slice *rest, struct slice *ret)
{
	while (rest->len > 0 && (*rest->p == ' ' || *rest->p == '\t' || *rest->p == ',')) {
		rest->p++;
		rest->len--;
	}
	if (rest->len == 0)
		return false;
	const char *comma = memchr(rest->p, ',', rest->len);
	*ret = (struct slice){rest->p, comma ? (size_t)(comma - rest->p) : rest->len};
	rest->p += ret->len;
	rest->len -= ret->len;
	while (ret->len > 0 && (ret->p[ret->len - 1] == ' ' || ret->p[ret->len - 1] == '\t'))
		ret->len--;
	return true;
}

static void
note_header(struct known *k, const struct http1_header *h)
{
	struct slice rest = h->value, item;

	switch (h->name.len) {
	case 4:
		if (http1_name_eq(h->name, "host")) {
			k->n_host++;
			k->host = h->value;
		}
		break;
	case 6:
		if (http1_name_eq(h->name, "expect")) {
			if (http1_name_eq(h->value, "100-continue"))
				k->expect = true;
			else
				k->expect_other = true;
		}
		break;
	case 10:
		if (http1_name_eq(h->name, "connection")) {
			while (next_listed(&rest, &item)) {
				k->n_options++;
				k->close |= http1_name_eq(item, "close");
				k->keep |= http1_name_eq(item, "keep-alive");
			}
		} else if (http1_name_eq(h->name, "keep-alive")) {
			while (next_listed(&rest, &item)) {
				unsigned s = 0;
				size_t i;

				if (item.len < 9 || item.len > 15 ||
				    strncasecmp(item.p, "timeout=", 8) != 0)
					continue;
				for (i = 8; i < item.len; i++) {
					if (item.p[i] < '0' || item.p[i] > '9')
						break;
					s = s * 10 + (unsigned)(item.p[i] - '0');
				}
				if (i < item.len)
					continue;
				if (s == 0)
					s = 1;       /* said, and as short as can be */
				if (k->keep_alive_s == 0 || s < k->keep_alive_s)
					k->keep_alive_s = s;
			}
		}
		break;
	case 14:
		if (http1_name_eq(h->name, "content-length") &&
		    !read_length(h->value, k->length, &k->length))
			k->length_wrong = true;
		break;
	case 17:
		if (http1_name_eq(h->name, "transfer-encoding"))
			k->chunked = k->n_coding++ == 0 && http1_name_eq(h->value, "chunked");
		break;
	}
}

/* The header lines p..end (each ends in CRLF, the blank line excluded).  The status codes are a
 * request's; a response turns them into 502. */
static ssize_t
parse_headers(const char *p, const char *end, struct http1_head *head, struct known *k,
	      const char **why)
{
	*k = (struct known){.length = HTTP1_LENGTH_NONE};
	head->n_headers = 0;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		if (!nl)                     /* not reached: the scan saw every line end */
			return fail(400, "header section is not made of lines", why);
		const char *stop = nl - 1;   /* at the CR */

		if (*p == ' ' || *p == '\t')
			return fail(400, "folded header line", why);
		struct slice name = {p, run_of(p, (size_t)(stop - p), C_TOKEN)};
		const char *q = p + name.len;

		if (q == stop)
			return fail(400, "header line without a colon", why);
		if (*q == ' ' || *q == '\t')
			return fail(400, "blank in or behind a header name", why);
		if (*q != ':')
			return fail(400, "header name holds a character no name may hold", why);
		if (name.len == 0)
			return fail(400, "header without a name", why);
		for (q++; q < stop && (*q == ' ' || *q == '\t'); q++)
			;
		while (stop > q && (stop[-1] == ' ' || stop[-1] == '\t'))
			stop--;
		struct slice value = {q, (size_t)(stop - q)};

		if (!all_of(value, C_VALUE))
			return fail(400, "control character in a header value", why);
		if (head->n_headers == HTTP1_HEADERS_MAX)
			return fail(431, "more than 200 header lines", why);
		struct http1_header *h = &head->headers[head->n_headers++];

		*h = (struct http1_header){name, value};
		note_header(k, h);
		if (k->n_options > HTTP1_OPTIONS_MAX)
			return fail(431, "Connection lists more than 64 options", why);
		p = nl + 1;
	}
	return 0;
}

/* Finds the end of the head, looking at each byte once over all calls.  1: *ret_end is behind the
 * blank line, *ret_first the first line without its CRLF; 0: more bytes needed; -status.
 * check_first is asked about the first line as soon as it is complete. */
static ssize_t
scan_head(const char *buf, size_t len, struct http1_scan *scan,
	  ssize_t (*check_first)(struct slice line, void *ret, const char **why), void *ret,
	  size_t *ret_end, const char **why)
{
	size_t lim = len < HTTP1_HEAD_MAX_BYTES ? len : HTTP1_HEAD_MAX_BYTES;
	const char *nl;
	ssize_t r;

	if (lim > 0 && scan->seen_bytes == 0 && buf[0] != '\r' &&
	    !(class_of[(uint8_t)buf[0]] & C_TOKEN))
		return fail(400, "this is not HTTP", why);
	while (scan->seen_bytes < lim &&
	       (nl = memchr(buf + scan->seen_bytes, '\n', lim - scan->seen_bytes))) {
		size_t at = (size_t)(nl - buf);
		size_t line_len = at + 1 - scan->line_start;

		if (line_len < 2 || nl[-1] != '\r')
			return fail(400, "line ends in a bare line feed", why);
		if (!scan->line_ok && line_len == 2) {
			if (scan->line_start > 0)
				return fail(400, "empty lines instead of a request", why);
		} else if (!scan->line_ok) {
			if (line_len > HTTP1_LINE_MAX_BYTES)
				return fail(414, "first line is longer than 8 KiB", why);
			r = check_first((struct slice){buf + scan->line_start, line_len - 2}, ret,
					why);
			if (r < 0)
				return r;
			scan->line_ok = true;
		} else if (line_len == 2) {
			scan->seen_bytes = at + 1;
			*ret_end = at + 1;
			return 1;
		} else if (line_len > HTTP1_HEADER_MAX_BYTES) {
			return fail(431, "a header line is longer than 32 KiB", why);
		}
		scan->seen_bytes = scan->line_start = at + 1;
	}
	scan->seen_bytes = lim;
	if (!scan->line_ok && lim - scan->line_start > HTTP1_LINE_MAX_BYTES)
		return fail(414, "first line is longer than 8 KiB", why);
	if (lim - scan->line_start > HTTP1_HEADER_MAX_BYTES)
		return fail(431, "a header line is longer than 32 KiB", why);
	if (len >= HTTP1_HEAD_MAX_BYTES)
		return fail(431, "head is longer than 64 KiB", why);
	return 0;
}

static ssize_t
check_request_line(struct slice line, void *ret, const char **why)
{
	return parse_request_line(line, ret, why);
}

static ssize_t
check_status_line(struct slice line, void *ret, const char **why)
{
	return parse_status_line(line, ret, why);
}

/* Start and length of the first line, and the header lines behind it, in a complete head. */
static void
cut_head(const char *buf, size_t end, struct slice *ret_first, const char **ret_headers)
{
	const char *p = buf;

	if (*p == '\r')
		p += 2;                      /* the one empty line in front */
	const char *nl = memchr(p, '\n', end);
	*ret_first = (struct slice){p, (size_t)(nl - 1 - p)};
	*ret_headers = nl + 1;
}

ssize_t
http1_parse_request(const char *buf, size_t len, struct http1_scan *scan,
		    struct http1_request *ret, const char **why)
{
	struct http1_scan once = {0};
	const char *headers;
	struct slice first;
	struct known k;
	size_t end = 0;
	ssize_t r;

	r = scan_head(buf, len, scan ? scan : &once, check_request_line, ret, &end, why);
	if (r <= 0)
		return r;
	/* Again, because the buffer may have moved since the line was first seen. */
	cut_head(buf, end, &first, &headers);
	r = parse_request_line(first, ret, why);
	if (r < 0)
		return r;
	r = parse_headers(headers, buf + end - 2, &ret->head, &k, why);
	if (r < 0)
		return r;

	if (k.n_host > 1)
		return fail(400, "more than one Host", why);
	if (k.n_host == 0 && ret->head.minor == 1)
		return fail(400, "HTTP/1.1 request without Host", why);
	if (k.n_host == 1 && !all_of(k.host, C_HOST))
		return fail(400, "Host is malformed", why);
	if (!ret->host.p && k.n_host == 1)
		ret->host = k.host;
	if (k.length_wrong)
		return fail(400, "Content-Length is not one number", why);
	if (k.n_coding > 0 && k.length != HTTP1_LENGTH_NONE)
		return fail(400, "both Transfer-Encoding and Content-Length", why);
	if (k.n_coding > 0 && ret->head.minor == 0)
		return fail(400, "Transfer-Encoding in HTTP/1.0", why);
	if (k.n_coding > 0 && !k.chunked)
		return fail(501, "no transfer coding but chunked is understood", why);
	if (k.expect_other)
		return fail(417, "no expectation but 100-continue is met", why);
	ret->expect_continue = k.expect && ret->head.minor == 1;
	ret->head.content_length = k.length;
	ret->head.framing = k.chunked                      ? HTTP1_BODY_CHUNKED
			    : k.length != HTTP1_LENGTH_NONE ? HTTP1_BODY_LENGTH
							    : HTTP1_BODY_NONE;
	ret->head.keep_alive = ret->head.minor == 1 ? !k.close : k.keep && !k.close;
	return (ssize_t)end;
}

ssize_t
http1_parse_response(const char *buf, size_t len, bool to_head, struct http1_scan *scan,
		     struct http1_response *ret, const char **why)
{
	struct http1_scan once = {0};
	const char *headers;
	struct slice first;
	struct known k;
	size_t end = 0;
	ssize_t r;

	if (len > 0 && buf[0] != 'H')        /* no empty line in front of an answer */
		return fail(502, "upstream answer has no HTTP/1 status line", why);
	r = scan_head(buf, len, scan ? scan : &once, check_status_line, ret, &end, why);
	if (r <= 0)
		return r < 0 ? -502 : 0;
	cut_head(buf, end, &first, &headers);
	if (parse_status_line(first, ret, why) < 0 ||
	    parse_headers(headers, buf + end - 2, &ret->head, &k, why) < 0)
		return -502;

	struct http1_head *h = &ret->head;

	ret->keep_alive_s = k.keep_alive_s;
	h->content_length = k.length;
	h->keep_alive = h->minor == 1 ? !k.close : k.keep && !k.close;
	if (k.length_wrong)
		return fail(502, "upstream Content-Length is not one number", why);
	if (ret->status < 200 || ret->status == 204 || ret->status == 304 || to_head) {
		h->framing = HTTP1_BODY_NONE;
		/* It announced what may not be: whether it also sends it, nobody can tell. */
		if (ret->status == 204 && (k.n_coding > 0 ||
					   (k.length != 0 && k.length != HTTP1_LENGTH_NONE)))
			h->keep_alive = false;
		return (ssize_t)end;
	}
	if (k.n_coding > 0 && k.length != HTTP1_LENGTH_NONE)
		return fail(502, "upstream sent both Transfer-Encoding and Content-Length", why);
	if (k.n_coding > 0 && (!k.chunked || h->minor == 0))
		return fail(502, "upstream transfer coding is not understood", why);
	if (k.chunked) {
		h->framing = HTTP1_BODY_CHUNKED;
	} else if (k.length != HTTP1_LENGTH_NONE) {
		h->framing = HTTP1_BODY_LENGTH;
	} else {
		h->framing = HTTP1_BODY_CLOSE;
		h->keep_alive = false;
	}
	return (ssize_t)end;
}

static void
rebase(struct slice *s, const char *from, const char *to)
{
	if (s->p)
		s->p = to + (s->p - from);
}

void
http1_rebase_request(struct http1_request *req, const char *from, const char *to)
{
	/* An absolute target without a path has its "/" elsewhere; that one stays. */
	bool own_path = req->path.p >= req->target.p &&
			req->path.p <= req->target.p + req->target.len;

	if (own_path)
		rebase(&req->path, from, to);
	rebase(&req->method_name, from, to);
	rebase(&req->target, from, to);
	rebase(&req->query, from, to);
	rebase(&req->host, from, to);
	for (unsigned i = 0; i < req->head.n_headers; i++) {
		rebase(&req->head.headers[i].name, from, to);
		rebase(&req->head.headers[i].value, from, to);
	}
}

/* --- looking at heads --- */

bool
http1_name_eq(struct slice name, const char *lower)
{
	size_t i;

	for (i = 0; i < name.len && lower[i]; i++) {
		char c = name.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c | 0x20);
		if (c != lower[i])
			return false;
	}
	return i == name.len && lower[i] == '\0';
}

const struct http1_header *
http1_find(const struct http1_head *head, const char *lower, const struct http1_header *after)
{
	const struct http1_header *h = after ? after + 1 : head->headers;

	for (; h < head->headers + head->n_headers; h++)
		if (http1_name_eq(h->name, lower))
			return h;
	return NULL;
}

bool
http1_is_hop_by_hop(const struct http1_head *head, struct slice name)
{
	static const char *const always[] = {
		"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
	};

	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		if (http1_name_eq(name, always[i]))
			return true;
	if (name.len > 6 && strncasecmp(name.p, "proxy-", 6) == 0)
		return true;
	for (const struct http1_header *h = NULL; (h = http1_find(head, "connection", h));) {
		struct slice rest = h->value, item;

		while (next_listed(&rest, &item))
			if (item.len == name.len && strncasecmp(item.p, name.p, name.len) == 0)
				return true;
	}
	return false;
}

bool
http1_media_type_is(const struct http1_head *head, const char *lower)
{
	const struct http1_header *h = http1_find(head, "content-type", NULL);

	if (!h)
		return false;
	struct slice v = h->value;
	const char *semi = memchr(v.p, ';', v.len);

	if (semi)
		v.len = (size_t)(semi - v.p);
	while (v.len > 0 && (v.p[v.len - 1] == ' ' || v.p[v.len - 1] == '\t'))
		v.len--;
	return http1_name_eq(v, lower);
}

bool
http1_is_encoded(const struct http1_head *head)
{
	for (const struct http1_header *h = NULL; (h = http1_find(head, "content-encoding", h));)
		if (h->value.len > 0 && !http1_name_eq(h->value, "identity"))
			return true;
	return false;
}
