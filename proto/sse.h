/* proto/sse.h -- watch a server-sent event stream go by, without touching it.
 *
 * Meaning    the relay passes bytes on unchanged; this reads the same bytes and calls back once per
 *            event.  Comments, ids and retry lines are recognised and not reported.
 * Source     WHATWG HTML, "Server-sent events": lines end in LF, CR or CRLF (also split over two
 *            reads), one optional blank after the colon, several data lines are joined by LF, a
 *            byte order mark may begin the stream, an event without data is not an event.
 * Bounds     an event's data is kept in the caller's buffer; what does not fit is dropped and the
 *            event reported truncated.  Nothing else grows.
 * Ownership  the buffer is the caller's; data and name are good during the callback only.
 * Threads    one watcher, one thread; any number of watchers.  Nothing blocks or allocates.
 * Cost       request path: one pass and one copy of the data, about 0.1 us per common event.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

enum { SSE_NAME_MAX_BYTES = 47 };            /* of an event name; the rest is dropped */

struct sse_event {
	struct slice data;
	struct slice name;                   /* of its "event:" line; empty when there was none */
	bool         truncated;              /* data is the beginning only */
};

typedef void sse_event_f(void *arg, const struct sse_event *);

/* All fields but the counters are private. */
struct sse_watch {
	uint64_t     events;                 /* reported so far */
	uint64_t     truncated;              /* of these, longer than the buffer */
	sse_event_f *cb;
	void        *arg;
	char        *buf;                    /* borrowed */
	size_t       cap_bytes;
	size_t       len_bytes;
	uint8_t      state;
	uint8_t      bom;                    /* bytes of a byte order mark seen; 3: past it */
	uint8_t      n_prefix;
	uint8_t      n_name;
	bool         after_cr;
	bool         has_data;
	bool         in_event;
	bool         over;
	char         prefix[8];
	char         name[SSE_NAME_MAX_BYTES + 1];
};

void sse_watch_init(struct sse_watch *, char *buf, size_t cap_bytes, sse_event_f *cb, void *arg);
void sse_watch_feed(struct sse_watch *, const char *bytes, size_t len);
	/* Calls cb for every event that these bytes complete.  Any cutting of the stream gives the
	 * same events.  cb must not feed the same watcher. */
bool sse_watch_at_boundary(const struct sse_watch *);
	/* True between events.  False inside an event or a line: a stream that ends so was cut. */
bool sse_watch_may_insert(const struct sse_watch *);
	/* True where a comment line of our own (": k\n") may be put into the stream. */
