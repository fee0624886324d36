/* proto/multipart.c -- a strict reader of forms; rules in multipart.h. */
#include "proto/multipart.h"

#include <string.h>

/* ---- bytes and words ---- */

static char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool
eq_nocase(struct slice s, const char *text)
{
	size_t n = strlen(text);

	if (s.len != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (lower(s.p[i]) != text[i])
			return false;
	return true;
}

/* RFC 9110 token */
static bool
is_token_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* RFC 2046 bcharsnospace */
static bool
is_boundary_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != '\0' && strchr("'()+_,-./:=?", c) != NULL);
}

static void
skip_blanks(struct slice *s)
{
	while (s->len > 0 && (*s->p == ' ' || *s->p == '\t')) {
		s->p++;
		s->len--;
	}
}

static struct slice
take_token(struct slice *s)
{
	struct slice t = {s->p, 0};

	while (t.len < s->len && is_token_char(s->p[t.len]))
		t.len++;
	s->p += t.len;
	s->len -= t.len;
	return t;
}

static bool
take_char(struct slice *s, char c)
{
	if (s->len == 0 || *s->p != c)
		return false;
	s->p++;
	s->len--;
	return true;
}

/* A token, or what stands between quotes, as it stands there.  False: neither. */
static bool
take_value(struct slice *s, struct slice *ret)
{
	if (!take_char(s, '"')) {
		*ret = take_token(s);
		return ret->len > 0;
	}
	*ret = (struct slice){s->p, 0};
	while (ret->len < s->len && s->p[ret->len] != '"')
		ret->len += s->p[ret->len] == '\\' && ret->len + 1 < s->len ? 2 : 1;
	s->p += ret->len;
	s->len -= ret->len;
	return take_char(s, '"');
}

/* The next "; name=value" of a header's value.  1, 0 at its end, -1 not well formed. */
static int
take_param(struct slice *s, struct slice *ret_name, struct slice *ret_value)
{
	skip_blanks(s);
	if (s->len == 0)
		return 0;
	if (!take_char(s, ';'))
		return -1;
	skip_blanks(s);
	*ret_name = take_token(s);
	if (ret_name->len == 0 || !take_char(s, '=') || !take_value(s, ret_value))
		return -1;
	return 1;
}

/* ---- the boundary ---- */

int
multipart_boundary(struct slice content_type, struct slice *ret, const char **why)
{
	struct slice s = content_type, name, value, type;
	bool found = false;
	int more;

	skip_blanks(&s);
	type = take_token(&s);
	if (!eq_nocase(type, "multipart") || !take_char(&s, '/') ||
	    !eq_nocase(take_token(&s), "form-data"))
		return -415;
	while ((more = take_param(&s, &name, &value)) > 0) {
		if (!eq_nocase(name, "boundary"))
			continue;
		if (found) {
			*why = "Content-Type has two boundaries";
			return -400;
		}
		found = true;
		*ret = value;
	}
	if (more < 0 || !found) {
		*why = more < 0 ? "Content-Type is malformed" : "Content-Type has no boundary";
		return -400;
	}
	*why = "the boundary is not 1 to 70 plain characters";
	if (ret->len == 0 || ret->len > MULTIPART_BOUNDARY_MAX || ret->p[ret->len - 1] == ' ')
		return -400;
	for (size_t i = 0; i < ret->len; i++)
		if (!is_boundary_char(ret->p[i]) && ret->p[i] != ' ')
			return -400;
	return 0;
}

/* ---- parts ---- */

enum field { FIELD_OTHER, FIELD_MODEL, FIELD_STREAM, FIELD_USER, FIELD_PROMPT };

struct reader {
	const char *body;
	size_t len, at;
	struct slice boundary;
	const char *why;
	size_t error_off;
	unsigned seen;                          /* bit of each enum field */
};

struct part {
	bool disposed;                          /* had its Content-Disposition */
	bool is_file, encoded, nested;
	enum field field;
};

static bool
refuse(struct reader *r, size_t off, const char *why)
{
	r->why = why;
	r->error_off = off;
	return false;
}

static bool
stands_at(const struct reader *r, size_t at, const char *text, size_t n)
{
	return at <= r->len && r->len - at >= n && memcmp(r->body + at, text, n) == 0;
}

static bool
dash_boundary_at(const struct reader *r, size_t at)
{
	return stands_at(r, at, "--", 2) &&
	       stands_at(r, at + 2, r->boundary.p, r->boundary.len);
}

static enum field
field_of(struct slice name)
{
	static const char *const once[] = {
		[FIELD_MODEL] = "model", [FIELD_STREAM] = "stream", [FIELD_USER] = "user",
		[FIELD_PROMPT] = "prompt",
	};

	for (unsigned i = FIELD_MODEL; i <= FIELD_PROMPT; i++)
		if (slice_eq_str(name, once[i]))
			return (enum field)i;
	return FIELD_OTHER;
}

static bool
disposition(struct reader *r, struct slice value, struct part *part)
{
	size_t off = (size_t)(value.p - r->body);
	struct slice name, text;
	bool named = false;
	int more;

	if (part->disposed)
		return refuse(r, off, "a part has two Content-Dispositions");
	part->disposed = true;
	if (!eq_nocase(take_token(&value), "form-data"))
		return refuse(r, off, "a part's Content-Disposition is not form-data");
	while ((more = take_param(&value, &name, &text)) > 0) {
		if (eq_nocase(name, "name*"))
			return refuse(r, off, "a part's name is given as name*");
		if (eq_nocase(name, "filename") || eq_nocase(name, "filename*"))
			part->is_file = true;
		if (!eq_nocase(name, "name"))
			continue;
		if (named)
			return refuse(r, off, "a part has two names");
		if (text.len == 0 || memchr(text.p, '\\', text.len) ||
		    memchr(text.p, '%', text.len))
			return refuse(r, off, "a part's name is empty or encoded");
		named = true;
		part->field = field_of(text);
	}
	if (more < 0)
		return refuse(r, off, "a part's Content-Disposition is malformed");
	return named || refuse(r, off, "a part has no name");
}

static bool
plain_encoding(struct slice value)
{
	return eq_nocase(value, "7bit") || eq_nocase(value, "8bit") || eq_nocase(value, "binary");
}

/* One line of a part's head, without its CRLF. */
static bool
head_line(struct reader *r, struct slice line, struct part *part)
{
	size_t off = (size_t)(line.p - r->body);
	struct slice name = take_token(&line);

	if (name.len == 0 || !take_char(&line, ':'))
		return refuse(r, off, "a part's head has a line that is no header");
	skip_blanks(&line);
	for (size_t i = 0; i < line.len; i++)
		if (((unsigned char)line.p[i] < 0x20 && line.p[i] != '\t') || line.p[i] == 0x7f)
			return refuse(r, off, "a part's head holds a control character");
	while (line.len > 0 && (line.p[line.len - 1] == ' ' || line.p[line.len - 1] == '\t'))
		line.len--;
	if (eq_nocase(name, "content-disposition"))
		return disposition(r, line, part);
	if (eq_nocase(name, "content-transfer-encoding") && !plain_encoding(line))
		part->encoded = true;
	if (eq_nocase(name, "content-type") && line.len >= 10 &&
	    eq_nocase(slice_of(line.p, 10), "multipart/"))
		part->nested = true;
	return true;
}

static bool
part_head(struct reader *r, struct part *part)
{
	size_t from = r->at;

	for (;;) {
		size_t left = r->len - r->at;
		size_t most = MULTIPART_HEAD_MAX - (r->at - from);
		const char *line = r->body + r->at;
		const char *end = memchr(line, '\r', left < most ? left : most);

		if (!end)
			return refuse(r, from, left < most ? "a part's head has no end"
							    : "a part's head is too long");
		if ((size_t)(end - line) + 1 >= left || end[1] != '\n')
			return refuse(r, (size_t)(end - r->body), "a CR without its LF");
		r->at += (size_t)(end - line) + 2;
		if (end == line)
			break;
		if (!head_line(r, slice_of(line, (size_t)(end - line)), part))
			return false;
		if (r->at - from >= MULTIPART_HEAD_MAX)
			return refuse(r, from, "a part's head is too long");
	}
	return part->disposed || refuse(r, from, "a part has no Content-Disposition");
}

/* Where the CRLF of the next delimiter stands; false: there is none. */
static bool
find_delimiter(const struct reader *r, size_t *ret)
{
	size_t at = r->at;

	while (at < r->len) {
		const char *cr = memchr(r->body + at, '\r', r->len - at);

		if (!cr)
			return false;
		at = (size_t)(cr - r->body);
		if (stands_at(r, at, "\r\n--", 4) &&
		    stands_at(r, at + 4, r->boundary.p, r->boundary.len)) {
			*ret = at;
			return true;
		}
		at++;
	}
	return false;
}

static bool
model_value(struct reader *r, struct slice value, struct multipart_view *v)
{
	size_t off = (size_t)(value.p - r->body);

	if (value.len > OPENAI_MODEL_MAX_BYTES)
		return refuse(r, off, "model is longer than 255 bytes");
	for (size_t i = 0; i < value.len; i++)
		if ((unsigned char)value.p[i] < 0x20 || value.p[i] == 0x7f)
			return refuse(r, off + i, "model holds a control character");
	memcpy(v->model, value.p, value.len);
	v->model[value.len] = '\0';
	v->has_model = true;
	v->model_off_bytes = (uint32_t)off;
	v->model_len_bytes = (uint32_t)value.len;
	return true;
}

/* The value of a part whose head was read; r->at is at its first byte. */
static bool
part_value(struct reader *r, const struct part *part, struct multipart_view *v)
{
	struct slice value = {r->body + r->at, 0};
	size_t from = r->at, end;

	/* An empty value may be written so, or these bytes be its value: readers differ. */
	if (dash_boundary_at(r, from))
		return refuse(r, from, "a part begins with the boundary");
	if (!find_delimiter(r, &end))
		return refuse(r, from, "a part has no end");
	value.len = end - from;
	r->at = end + 2;
	if (part->field == FIELD_OTHER)
		return true;
	if (r->seen & 1u << part->field)
		return refuse(r, from, part->field == FIELD_MODEL    ? "model is given twice"
				       : part->field == FIELD_STREAM ? "stream is given twice"
				       : part->field == FIELD_USER   ? "user is given twice"
								     : "prompt is given twice");
	r->seen |= 1u << part->field;
	if (part->is_file || part->encoded || part->nested)
		return refuse(r, from, "a field that must be plain text is a file or encoded");
	if (part->field == FIELD_STREAM)
		v->stream = eq_nocase(value, "true") || eq_nocase(value, "1");
	return part->field != FIELD_MODEL || model_value(r, value, v);
}

/* All parts; r->at is at a delimiter's "--". */
static bool
parts(struct reader *r, struct multipart_view *v)
{
	for (;;) {
		size_t behind = r->at + 2 + r->boundary.len;
		struct part part = {0};

		if (stands_at(r, behind, "--", 2)) {
			r->at = behind + 2;
			break;
		}
		if (!stands_at(r, behind, "\r\n", 2))
			return refuse(r, r->at, "the boundary is followed by something else");
		if (v->n_parts++ == MULTIPART_PARTS_MAX)
			return refuse(r, r->at, "more than 128 parts");
		r->at = behind + 2;
		if (!part_head(r, &part) || !part_value(r, &part, v))
			return false;
	}
	if (r->at == r->len || (stands_at(r, r->at, "\r\n", 2) && r->at + 2 == r->len))
		return true;
	return refuse(r, r->at, "bytes behind the last boundary");
}

int
multipart_parse(const char *body, size_t len, struct slice boundary, struct multipart_view *v,
		const char **why)
{
	struct reader r = {.body = body, .len = len, .boundary = boundary};

	memset(v, 0, sizeof *v);
	if (len > UINT32_MAX)
		refuse(&r, 0, "body is longer than 4 GiB");
	else if (!dash_boundary_at(&r, 0))
		refuse(&r, 0, "body does not begin with its boundary");
	else if (parts(&r, v) && v->n_parts == 0)
		refuse(&r, 0, "the form has no parts");
	if (!r.why)
		return 0;
	*why = r.why;
	v->error_off_bytes = r.error_off;
	v->has_model = false;
	return -400;
}
