/* proto/sse.c -- the line machine of an event stream, fed in any pieces. */
#include "proto/sse.h"

#include <string.h>

enum {
	L_START,                             /* nothing of this line seen */
	L_FIELD,                             /* collecting the field name */
	L_BLANK,                             /* behind the colon of "data": one blank goes */
	L_DATA,                              /* value of "data" */
	L_BLANK_NAME,
	L_NAME,                              /* value of "event" */
	L_SKIP,                              /* comment or another field */
};

void
sse_watch_init(struct sse_watch *w, char *buf, size_t cap_bytes, sse_event_f *cb, void *arg)
{
	*w = (struct sse_watch){.cb = cb, .arg = arg, .buf = buf, .cap_bytes = cap_bytes};
}

static void
append(struct sse_watch *w, const char *p, size_t len)
{
	size_t room = w->cap_bytes - w->len_bytes;

	if (len > room) {
		len = room;
		w->over = true;
	}
	if (len > 0)
		memcpy(w->buf + w->len_bytes, p, len);
	w->len_bytes += len;
}

static void
append_name(struct sse_watch *w, const char *p, size_t len)
{
	size_t room = (size_t)(SSE_NAME_MAX_BYTES - w->n_name);

	if (len > room)
		len = room;
	memcpy(w->name + w->n_name, p, len);
	w->n_name = (uint8_t)(w->n_name + len);
}

/* The field name is complete (at a colon, or at the end of a line without one). */
static void
begin_field(struct sse_watch *w)
{
	w->state = L_SKIP;
	if (w->n_prefix == 4 && memcmp(w->prefix, "data", 4) == 0) {
		if (w->has_data)
			append(w, "\n", 1);
		w->has_data = true;
		w->state = L_BLANK;
	} else if (w->n_prefix == 5 && memcmp(w->prefix, "event", 5) == 0) {
		w->n_name = 0;
		w->state = L_BLANK_NAME;
	}
}

static void
end_event(struct sse_watch *w)
{
	struct sse_event event = {
		.data = {w->buf, w->len_bytes},
		.name = {w->name, w->n_name},
		.truncated = w->over,
	};
	bool report = w->has_data;

	w->len_bytes = 0;
	w->n_name = 0;
	w->has_data = w->over = w->in_event = false;
	if (!report)
		return;
	w->events++;
	w->truncated += event.truncated;
	w->cb(w->arg, &event);
}

static void
end_line(struct sse_watch *w)
{
	if (w->state == L_START)
		end_event(w);
	else if (w->state == L_FIELD)
		begin_field(w);              /* a bare "data" is data of no bytes */
	w->state = L_START;
	w->n_prefix = 0;
}

/* A piece of one line, without its end. */
static void
feed_line(struct sse_watch *w, const char *p, size_t len)
{
	while (len > 0) {
		switch (w->state) {
		case L_START:
			if (*p == ':') {
				w->state = L_SKIP;
				return;
			}
			w->in_event = true;
			w->state = L_FIELD;
			break;
		case L_FIELD:
			if (*p == ':') {
				begin_field(w);
			} else if (w->n_prefix == sizeof(w->prefix)) {
				w->state = L_SKIP;
				return;
			} else {
				w->prefix[w->n_prefix++] = *p;
			}
			p++;
			len--;
			break;
		case L_BLANK:
		case L_BLANK_NAME:
			w->state = w->state == L_BLANK ? L_DATA : L_NAME;
			if (*p == ' ') {
				p++;
				len--;
			}
			break;
		case L_DATA:
			append(w, p, len);
			return;
		case L_NAME:
			append_name(w, p, len);
			return;
		default:
			return;
		}
	}
}

/* Drops a byte order mark in front of the stream; what only began like one begins a line. */
static size_t
skip_bom(struct sse_watch *w, const char *bytes, size_t len)
{
	static const char bom[3] = "\xef\xbb\xbf";
	size_t i = 0;

	while (w->bom < 3 && i < len) {
		if (bytes[i] != bom[w->bom]) {
			feed_line(w, bom, w->bom);
			w->bom = 3;
			break;
		}
		w->bom++;
		i++;
	}
	return i;
}

void
sse_watch_feed(struct sse_watch *w, const char *bytes, size_t len)
{
	const char *p = bytes, *end = bytes + len, *lf = NULL;

	if (w->bom < 3)
		p += skip_bom(w, bytes, len);
	while (p < end) {
		if (w->after_cr) {
			w->after_cr = false;
			if (*p == '\n' && ++p == end)
				break;
		}
		/* The next LF is looked up once, not again for each CR before it. */
		if (!lf || lf < p) {
			lf = memchr(p, '\n', (size_t)(end - p));
			if (!lf)
				lf = end;
		}
		const char *stop = memchr(p, '\r', (size_t)(lf - p));

		if (!stop)
			stop = lf;
		feed_line(w, p, (size_t)(stop - p));
		if (stop == end)
			break;
		w->after_cr = *stop == '\r';
		p = stop + 1;
		end_line(w);
	}
}

bool
sse_watch_at_boundary(const struct sse_watch *w)
{
	return w->state == L_START && !w->in_event && (w->bom == 0 || w->bom == 3);
}

bool
sse_watch_may_insert(const struct sse_watch *w)
{
	/* Behind a lone CR their LF may still come, and would end our line as an empty one. */
	return sse_watch_at_boundary(w) && !w->after_cr;
}
