/* actors/ingress/relay_watch.h -- reads along while an answer streams by.
 *
 * Meaning    Learns the engine's own token counts, whether an event stream said its last word, and
 *            whether the engine failed in the middle.  Never delays, never rewrites.
 * Bounds     4 KiB of one event, the last 4 to 8 KiB of another answer.
 * Ownership  relay_watch_free.
 * Threads    the loop's.
 * Cost       for each event that is only data a few tens of nanoseconds beside the pass over it.
 */
#pragma once
#include "proto/openai.h"
#include "proto/sse.h"

#define RELAY_WATCH_BYTES 4096u /* of one event that are looked at; usage comes in a short one */

struct relay_watch {
	bool is_sse;
	bool done;                      /* "[DONE]" came */
	bool failed;                    /* an event with an error came */
	struct openai_usage usage;
	struct sse_watch sse;
	union {
		char event[RELAY_WATCH_BYTES];
		struct openai_tail tail;
	};
};

struct relay_watch *relay_watch_new(bool is_sse);       /* NULL: no memory */
void relay_watch_free(struct relay_watch *w);           /* NULL is fine */
void relay_watch_feed(struct relay_watch *w, const char *p, size_t n);
void relay_watch_end(struct relay_watch *w);            /* the answer is whole: read its end */
