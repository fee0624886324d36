/* proto/http1.h -- HTTP/1.1 on the wire: strict heads, body framing, and a bounded head writer.
 *
 * Meaning    http1_parse_request and http1_parse_response read one head at the start of a buffer;
 *            struct http1_body then says which of the bytes after it are body, and when it ends.
 * Source     RFC 9110, RFC 9112.  Stricter where leniency is how requests get smuggled: CRLF only,
 *            no obs-fold, no space before the colon, no Transfer-Encoding beside Content-Length,
 *            no coding but "chunked", nothing of HTTP/0.9 or HTTP/2.
 * Errors     negative numbers are minus the HTTP status to answer (a bad upstream answer is -502),
 *            and *why is then a static English sentence.  After any of them the connection must be
 *            closed: nobody knows where the next message begins.
 * Ownership  no allocation, no copies: slices point into the caller's buffer and live as long as
 *            its bytes stay where they are (http1_rebase after a move).
 * Threads    pure functions of their arguments: any thread, any process.  Nothing blocks.
 * Cost       one pass over a head (about 1 us for a common one); calling again as bytes arrive
 *            looks at each byte once, given the same struct http1_scan.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/slice.h"

enum http1_limit {
	HTTP1_HEAD_MAX_BYTES = 64 * 1024,    /* whole head; more is 431 */
	HTTP1_LINE_MAX_BYTES = 8 * 1024,     /* request or status line; more is 414 */
	HTTP1_HEADER_MAX_BYTES = 32 * 1024,  /* one header line; more is 431 */
	HTTP1_HEADERS_MAX = 200,             /* header lines; more is 431 */
	HTTP1_OPTIONS_MAX = 64,              /* that Connection lists; more is 431 */
	HTTP1_CHUNK_DIGITS_MAX = 16,         /* hexadecimal digits of a chunk size */
	HTTP1_CHUNK_EXT_MAX_BYTES = 1024,    /* chunk extensions, all chunks of a body together */
	HTTP1_TRAILER_MAX_BYTES = 8 * 1024,  /* trailer section, read and dropped */
};

enum http1_method {
	HTTP1_OTHER,                         /* another valid token; see .method_name */
	HTTP1_GET,
	HTTP1_HEAD,
	HTTP1_POST,
	HTTP1_PUT,
	HTTP1_DELETE,
	HTTP1_OPTIONS,
	HTTP1_PATCH,
};

enum http1_framing {
	HTTP1_BODY_NONE,                     /* the message ends with its head */
	HTTP1_BODY_LENGTH,                   /* content_length bytes follow (may be 0) */
	HTTP1_BODY_CHUNKED,
	HTTP1_BODY_CLOSE,                    /* a response that ends when the peer closes */
};

struct http1_header {
	struct slice name;                   /* as sent; compare with http1_name_eq */
	struct slice value;                  /* surrounding blanks removed; may be empty */
};

#define HTTP1_LENGTH_NONE UINT64_MAX         /* no Content-Length was given */

/* What requests and responses have in common. */
struct http1_head {
	uint8_t             minor;           /* HTTP/1.minor, 0 or 1 */
	bool                keep_alive;      /* the peer keeps the connection after it */
	enum http1_framing  framing;
	uint64_t            content_length;  /* bytes, or HTTP1_LENGTH_NONE */
	unsigned            n_headers;
	struct http1_header headers[HTTP1_HEADERS_MAX];
};

struct http1_request {
	enum http1_method method;
	struct slice      method_name;
	struct slice      target;            /* as sent */
	struct slice      path;              /* starts with '/', or is "*"; not decoded */
	struct slice      query;             /* after '?'; {NULL, 0} when there is none */
	struct slice      host;              /* absolute-form authority, else Host; absent on 1.0 */
	bool              expect_continue;   /* client waits for "100 Continue" before its body */
	struct http1_head head;
};

struct http1_response {
	unsigned          status;            /* 100..599 */
	struct slice      reason;
	unsigned          keep_alive_s;      /* least "Keep-Alive: timeout=N", 1 for 0; 0: none */
	struct http1_head head;
};

/* How far a growing buffer has been looked at; zero it before the first call for a message. */
struct http1_scan {
	size_t seen_bytes;                   /* no blank line ends before here */
	size_t line_start;                   /* where the line being scanned began */
	bool   line_ok;                      /* the first line was complete and right */
};

ssize_t http1_parse_request(const char *buf, size_t len, struct http1_scan *scan,
			    struct http1_request *ret, const char **why);
	/* > 0: bytes of the head, *ret filled.  0: not all there yet, call again with the same
	 * buffer start and more bytes (a wrong first line and every limit are reported without
	 * waiting for the end).  < 0: minus the status to answer, one of 400 405 414 417 431 501
	 * 505, and *why (*ret is then undefined).  scan may be NULL for a buffer seen once.  One
	 * empty line before the request is skipped and counted in the result.  len may run past
	 * the head (body, next request): those bytes are not read. */

ssize_t http1_parse_response(const char *buf, size_t len, bool to_head, struct http1_scan *scan,
			     struct http1_response *ret, const char **why);
	/* The same for an answer; every failure is -502.  to_head: the request was HEAD, so no body
	 * follows whatever the headers say (also 1xx, 204, 304).  A 1xx is a head of its own: parse
	 * again behind it with a zeroed scan.  101 is refused: nobody asked for an upgrade. */

void http1_rebase_request(struct http1_request *, const char *from, const char *to);
	/* The buffer at `from` was moved or copied to `to`: let all slices follow. */

/* --- body framing ------------------------------------------------------------------------- */

/* Chunked decoder; zero it to begin. */
struct http1_chunked {
	uint64_t left_bytes;                 /* of the chunk being read */
	uint32_t state;
	uint32_t digits;                     /* size digits read so far */
	uint32_t ext_bytes;                  /* extensions so far, whole body */
	uint32_t trailer_bytes;              /* trailer section so far */
};

enum http1_body_event {
	HTTP1_BODY_MORE = 0,                 /* all input used, body goes on */
	HTTP1_BODY_DATA = 1,                 /* *ret_data is body; call again with the rest */
	HTTP1_BODY_END = 2,                  /* complete; input after *ret_used is not body */
};

int http1_chunked_next(struct http1_chunked *, const char *in, size_t len, size_t *ret_used,
		       struct slice *ret_data, const char **why);
	/* Takes the next step over `in`: an enum http1_body_event, or -400 with *why.  *ret_used
	 * bytes were consumed in any case but an error; *ret_data (DATA only) lies inside them.  A
	 * body split at any byte gives the same bytes and the same end.  Loop:
	 *     while ((e = http1_chunked_next(&c, p, n, &used, &data, &why)) == HTTP1_BODY_DATA)
	 *             use(data), p += used, n -= used;
	 * After END keep p + used: it is the next message (or stray bytes). */

/* Any framing, driven the same way. */
struct http1_body {
	enum http1_framing   framing;
	bool                 ended;
	uint64_t             left_bytes;     /* HTTP1_BODY_LENGTH only */
	struct http1_chunked chunked;
};

void http1_body_begin(struct http1_body *, const struct http1_head *);
int  http1_body_next(struct http1_body *, const char *in, size_t len, size_t *ret_used,
		     struct slice *ret_data, const char **why);
	/* As http1_chunked_next.  A body of no bytes answers END at once, without input; the last
	 * DATA of a known length is followed by END on the next call.  Calls after END keep
	 * answering END. */
bool http1_body_eof(struct http1_body *);
	/* The peer has closed: true when the body is complete (ended, or framed by the close),
	 * false when it was cut short and must not be passed off as whole. */

/* --- looking at heads --------------------------------------------------------------------- */

bool http1_name_eq(struct slice name, const char *lower);
	/* ASCII case-insensitive; `lower` is lower case. */
const struct http1_header *http1_find(const struct http1_head *, const char *lower,
				      const struct http1_header *after);
	/* The first header of that name behind `after` (NULL: from the start), or NULL. */
bool http1_is_hop_by_hop(const struct http1_head *, struct slice name);
	/* Connection, Keep-Alive, TE, Trailer, Transfer-Encoding, Upgrade, Proxy-*, and whatever
	 * this head's Connection lists: never forwarded.  Content-Length is framing too, but is the
	 * writer's business. */
bool http1_media_type_is(const struct http1_head *, const char *lower);
	/* Content-Type without its parameters, case-insensitive, as "text/event-stream". */
bool http1_is_encoded(const struct http1_head *);
	/* Content-Encoding other than identity: pass the bytes on, do not look into them. */

/* --- writing heads ------------------------------------------------------------------------ */

/* Bounded writer; failure sticks and is reported by http1_write_end. */
struct http1_writer {
	char  *buf;
	size_t cap;
	size_t len;
	int    error;                        /* 0, -ENOSPC, -EINVAL: a CTL where none may be */
};

void http1_write_begin(struct http1_writer *, char *buf, size_t cap);
void http1_write_status(struct http1_writer *, unsigned status);
	/* "HTTP/1.1 200 OK\r\n" */
void http1_write_request(struct http1_writer *, struct slice method, struct slice target);
	/* "POST /v1/completions HTTP/1.1\r\n" */
void http1_write_header(struct http1_writer *, struct slice name, struct slice value);
void http1_write_header_str(struct http1_writer *, const char *name, const char *value);
void http1_write_header_u64(struct http1_writer *, const char *name, uint64_t value);
ssize_t http1_write_end(struct http1_writer *);
	/* Adds the blank line.  Bytes written in all, or the first error. */

size_t http1_chunk_head(char out[static 20], uint64_t len_bytes);
	/* "1f4\r\n"; the caller adds the bytes and "\r\n".  len_bytes > 0: a zero would end the
	 * body. */
const char *http1_reason(unsigned status);
	/* "Not Found"; "Unknown" for a status we have no phrase for.  Static. */
