/* proto/json.h -- read JSON where it lies: a strict pull cursor for request bodies and events.
 *
 * Meaning    a cursor walks one document front to back; every byte it passes has been checked.
 *            The reader asks for what it expects (enter, next member, get a string) and skips the
 *            rest.
 * Source     RFC 8259, whole: no comments, no trailing commas, no leading zeros, no raw control
 *            characters, UTF-8 checked (no overlong forms, no surrogates, <= U+10FFFF), nothing
 *            but white space behind the value.  A byte order mark in front is skipped. Lone
 *            surrogate *escapes* are accepted, as engines do, and unescape to U+FFFD. Nesting
 *            deeper than JSON_DEPTH_MAX is refused.
 * Errors     sticky: after the first, every call fails, and .why (static English) with .error_off
 *            (byte offset into the document) say what and where.  Never asserts, whatever the
 *            input.
 * Ownership  no allocation; strings and raw values are slices of the document.
 * Threads    pure but for the cursor: any thread.  Nothing blocks.
 * Cost       request path: strings 16 bytes at a time, arrays of integers 64; a prompt of 16,000
 *            token ids is walked in about 35 us and read in about 65 us.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/slice.h"

enum { JSON_DEPTH_MAX = 64 };

enum json_type {
	JSON_IS_INVALID,                        /* error, or end of document */
	JSON_IS_NULL,
	JSON_IS_FALSE,
	JSON_IS_TRUE,
	JSON_IS_NUMBER,
	JSON_IS_STRING,
	JSON_IS_ARRAY,
	JSON_IS_OBJECT,
};

/* A string as it stands in the document, quotes not included. */
struct json_string {
	struct slice raw;
	bool         escaped;                /* raw holds a backslash: json_unescape before use */
};

struct json_cursor {
	const char *start;
	const char *p;
	const char *end;
	const char *why;                     /* NULL while all is well */
	size_t      error_off;
	unsigned    depth;
	uint64_t    in_object;               /* bit d: container d is an object */
	uint64_t    has_member;              /* bit d: container d has given a member already */
	bool        need_value;              /* a member was announced and not yet read */
};

void json_begin(struct json_cursor *, const char *doc, size_t len);
int  json_end(struct json_cursor *);
	/* After the outermost value: 0 when only white space is left and nothing failed, else
	 * -EBADMSG. */

enum json_type json_peek(struct json_cursor *);
	/* Type of the value that comes next, by its first byte. */

bool json_enter_object(struct json_cursor *);
bool json_enter_array(struct json_cursor *);
	/* The next value is one: go inside.  False, with an error, when it is not (json_peek
	 * first). */
bool json_next_member(struct json_cursor *, struct json_string *ret_key);
	/* Inside an object: reads the next key, so that its value comes next.  False at the closing
	 * brace (the cursor has left the object) or on error: json_end tells which. */
bool json_next_element(struct json_cursor *);
	/* Inside an array: true when a value comes next; else as above.
	 * A member or element that was announced must be read or skipped before the next is asked
	 * for. */

/* Each takes the next value.  False with an error when it has another type. */
bool json_get_string(struct json_cursor *, struct json_string *ret);
bool json_get_number(struct json_cursor *, struct slice *ret);
	/* The number's text, unchanged. */
bool json_skip(struct json_cursor *);
	/* Any value, checked. */
bool json_get_raw(struct json_cursor *, struct slice *ret);
	/* Any value, checked, as its bytes. */
bool json_get_u32_array(struct json_cursor *, uint32_t *out, size_t max, size_t *ret_n);
	/* The next value is an array of integers 0..2^32-1, as token ids are: *ret_n is how many
	 * there are, of which the first `max` are in out (out may be NULL with max 0, to count and
	 * check).  False with an error when an element is anything else. */

int json_validate(const char *doc, size_t len, const char **why, size_t *ret_error_off);
	/* 0, or -EBADMSG with where and why. */

int json_to_i64(struct slice number, int64_t *ret);
	/* Integral numbers (also 1e3, 2.0): 0; -ERANGE outside int64; -EINVAL when it has a
	 * fraction. */
int json_to_double(struct slice number, double *ret);
	/* 0, or -ERANGE when too large.  Independent of the locale. */

bool json_string_eq(const struct json_string *, const char *text);
	/* Compares after unescaping, byte for byte. */
ssize_t json_unescape(const struct json_string *, char *out, size_t cap);
	/* UTF-8 bytes written (never more than raw.len; no NUL added, NULs may be inside), or
	 * -ENOSPC. */
ssize_t json_escape(struct slice text, char *out, size_t cap);
	/* For between quotes: bytes written, or -ENOSPC.  Bytes that are no UTF-8 become U+FFFD.
	 * At most 6 bytes for one. */
