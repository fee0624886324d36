/* proto/http1_body.c -- which bytes after a head are its body. */
#include "proto/http1.h"

#include <string.h>

#include "proto/hex.h"

enum {
	S_SIZE,                              /* first digit of a chunk size */
	S_DIGITS,
	S_EXT,                               /* chunk extensions, up to CR */
	S_SIZE_LF,
	S_DATA,
	S_DATA_CR,
	S_DATA_LF,
	S_TRAILER,                           /* start of a trailer line, or of the last CRLF */
	S_TRAILER_LINE,
	S_TRAILER_LF,
	S_LAST_LF,
	S_END,
};

static const char ext_too_long[] = "chunk extensions are longer than 1 KiB";

static int
refuse(const char *text, const char **why)
{
	*why = text;
	return -400;
}

/* May stand in a chunk extension or a trailer line: anything but controls, HTAB excepted. */
static bool
is_text(char c)
{
	return (uint8_t)c >= 0x20 ? c != 0x7f : c == '\t';
}

int
http1_chunked_next(struct http1_chunked *c, const char *in, size_t len, size_t *ret_used,
		   struct slice *ret_data, const char **why)
{
	size_t i = 0;

	while (i < len && c->state != S_END) {
		char ch = in[i];
		int digit;

		switch (c->state) {
		case S_SIZE:
		case S_DIGITS:
			digit = hex_digit(ch);
			if (digit >= 0) {
				if (c->digits++ >= HTTP1_CHUNK_DIGITS_MAX)
					return refuse("chunk size has too many digits", why);
				c->left_bytes = c->left_bytes << 4 | (unsigned)digit;
				c->state = S_DIGITS;
			} else if (c->state == S_SIZE) {
				return refuse("chunk does not begin with its size", why);
			} else if (ch == '\r') {
				c->state = S_SIZE_LF;
			} else if (ch == ';') {
				if (c->ext_bytes++ >= HTTP1_CHUNK_EXT_MAX_BYTES)
					return refuse(ext_too_long, why);
				c->state = S_EXT;
			} else {
				return refuse("chunk size is not hexadecimal", why);
			}
			i++;
			break;
		case S_EXT:
			if (ch == '\r')
				c->state = S_SIZE_LF;
			else if (!is_text(ch))
				return refuse("control character in a chunk extension", why);
			else if (c->ext_bytes++ >= HTTP1_CHUNK_EXT_MAX_BYTES)
				return refuse(ext_too_long, why);
			i++;
			break;
		case S_SIZE_LF:
			if (ch != '\n')
				return refuse("chunk size ends in a bare carriage return", why);
			if (c->left_bytes > INT64_MAX)
				return refuse("chunk size is absurd", why);
			c->digits = 0;
			c->state = c->left_bytes > 0 ? S_DATA : S_TRAILER;
			i++;
			break;
		case S_DATA: {
			size_t take = len - i;

			if (take > c->left_bytes)
				take = (size_t)c->left_bytes;
			*ret_data = (struct slice){in + i, take};
			*ret_used = i + take;
			c->left_bytes -= take;
			if (c->left_bytes == 0)
				c->state = S_DATA_CR;
			return HTTP1_BODY_DATA;
		}
		case S_DATA_CR:
			if (ch != '\r')
				return refuse("chunk is longer than its size", why);
			c->state = S_DATA_LF;
			i++;
			break;
		case S_DATA_LF:
			if (ch != '\n')
				return refuse("chunk ends in a bare carriage return", why);
			c->state = S_SIZE;
			i++;
			break;
		case S_TRAILER:
		case S_TRAILER_LINE:
			if (ch == '\r')
				c->state = c->state == S_TRAILER ? S_LAST_LF : S_TRAILER_LF;
			else if (!is_text(ch))
				return refuse("control character in a trailer", why);
			else if (c->trailer_bytes++ >= HTTP1_TRAILER_MAX_BYTES)
				return refuse("trailers are longer than 8 KiB", why);
			else
				c->state = S_TRAILER_LINE;
			i++;
			break;
		case S_TRAILER_LF:
			if (ch != '\n')
				return refuse("trailer ends in a bare carriage return", why);
			c->state = S_TRAILER;
			i++;
			break;
		case S_LAST_LF:
			if (ch != '\n')
				return refuse("chunked body ends in a bare carriage return", why);
			c->state = S_END;
			i++;
			break;
		default:
			return refuse("chunked decoder was not zeroed", why);
		}
	}
	*ret_used = i;
	return c->state == S_END ? HTTP1_BODY_END : HTTP1_BODY_MORE;
}

void
http1_body_begin(struct http1_body *b, const struct http1_head *head)
{
	*b = (struct http1_body){.framing = head->framing};
	if (head->framing == HTTP1_BODY_LENGTH)
		b->left_bytes = head->content_length;
	b->ended = head->framing == HTTP1_BODY_NONE ||
		   (head->framing == HTTP1_BODY_LENGTH && b->left_bytes == 0);
}

int
http1_body_next(struct http1_body *b, const char *in, size_t len, size_t *ret_used,
		struct slice *ret_data, const char **why)
{
	int event;

	*ret_used = 0;
	if (b->ended)
		return HTTP1_BODY_END;
	if (b->framing == HTTP1_BODY_CHUNKED) {
		event = http1_chunked_next(&b->chunked, in, len, ret_used, ret_data, why);
		b->ended = event == HTTP1_BODY_END;
		return event;
	}
	if (len == 0)
		return HTTP1_BODY_MORE;
	if (b->framing == HTTP1_BODY_LENGTH) {
		if (len > b->left_bytes)
			len = (size_t)b->left_bytes;
		b->left_bytes -= len;
		b->ended = b->left_bytes == 0;
	}
	*ret_data = (struct slice){in, len};
	*ret_used = len;
	return HTTP1_BODY_DATA;
}

bool
http1_body_eof(struct http1_body *b)
{
	if (b->framing == HTTP1_BODY_CLOSE)
		b->ended = true;
	return b->ended;
}
