/* actors/ingress/relay_watch.h -- reads along while an answer streams by.
 *
 * Meaning    Learns the engine's own token counts, whether an event stream said its last word,
 *            whether the engine failed in the middle, and the id under which a worker keeps a
 *            response.  Never delays, never rewrites.
 * Bounds     4 KiB of one event, the last 4 to 8 KiB of another answer; of Responses also the
 *            first 4 KiB (engines say the id first) and, as the last event repeats the whole
 *            answer before it says the usage, the end of a stream.
 * Ownership  relay_watch_free.
 * Threads    the loop's.
 * Cost       for each event that is only data a few tens of nanoseconds beside the pass over it.
 */
#pragma once
#include "proto/openai.h"
#include "proto/sse.h"

#define RELAY_WATCH_BYTES 4096u /* of one event that are looked at; usage comes in a short one */

struct relay_kept {                     /* of Responses only */
	struct openai_tail tail;        /* of an event stream */
	char id[OPENAI_ID_MAX_BYTES];
	size_t id_len;                  /* 0: not known yet */
	bool told;
	size_t head_len;
	char head[RELAY_WATCH_BYTES];   /* of an answer in one piece */
};

struct relay_watch {
	bool is_sse;
	enum openai_api api;
	bool done;                      /* the last word came */
	bool failed;                    /* an event with an error came */
	struct openai_usage usage;
	struct sse_watch sse;
	struct relay_kept *kept;        /* owned; NULL: not of Responses */
	union {
		char event[RELAY_WATCH_BYTES];
		struct openai_tail tail;
	};
};

struct relay_watch *relay_watch_new(bool is_sse, enum openai_api api);  /* NULL: no memory */
void relay_watch_free(struct relay_watch *w);           /* NULL is fine */
void relay_watch_feed(struct relay_watch *w, const char *p, size_t n);
bool relay_watch_id(struct relay_watch *w, struct slice *ret);
	/* True once, when the id is known: before the bytes that say it are sent on. */
void relay_watch_end(struct relay_watch *w);            /* the answer is whole: read its end */
