/* actors/ingress/relay_watch.c -- see relay_watch.h. */
#include "actors/ingress/relay_watch.h"

#include <stdlib.h>
#include <string.h>

enum mention { MENTION_USAGE = 1, MENTION_ERROR = 2 };

static unsigned
mention_at(const char *p, size_t n)
{
	if (n >= 7 && memcmp(p, "\"usage\"", 7) == 0)
		return MENTION_USAGE;
	if (n >= 7 && memcmp(p, "\"error\"", 7) == 0)
		return MENTION_ERROR;
	return 0;
}

/* Which of the words that matter stand in there, 16 bytes at a time: it is asked of every event,
 * and hardly any has one. */
static unsigned
mentions(const char *p, size_t n)
{
	typedef unsigned char lanes __attribute__((vector_size(16)));
	unsigned found = 0;
	size_t i = 0;

	for (; i + 18 <= n; i += 16) {
		lanes a, b, c, hit;
		uint64_t any[2];

		memcpy(&a, p + i, sizeof a);
		memcpy(&b, p + i + 1, sizeof b);
		memcpy(&c, p + i + 2, sizeof c);
		hit = (lanes)((a == '"') & (((b == 'u') & (c == 's')) | ((b == 'e') & (c == 'r'))));
		memcpy(any, &hit, sizeof any);
		if ((any[0] | any[1]) == 0)
			continue;
		for (size_t k = i; k < i + 16; k++)
			found |= mention_at(p + k, n - k);
	}
	for (; i < n; i++)
		found |= mention_at(p + i, n - i);
	return found;
}

static void
on_event(void *arg, const struct sse_event *event)
{
	struct relay_watch *w = arg;
	unsigned found;

	if (slice_eq_str(event->data, "[DONE]")) {
		w->done = true;
		return;
	}
	found = mentions(event->data.p, event->data.len);
	if ((found & MENTION_ERROR) && openai_event_kind(event->data) == OPENAI_EVENT_ERROR)
		w->failed = true;
	if ((found & MENTION_USAGE) && !event->truncated)
		openai_scan_usage(event->data, &w->usage);
}

struct relay_watch *
relay_watch_new(bool is_sse)
{
	struct relay_watch *w = malloc(sizeof *w); /* not zeroed: 8 KiB of it is buffer */

	if (!w)
		return NULL;
	w->is_sse = is_sse;
	w->done = w->failed = false;
	w->usage = (struct openai_usage){OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
					 OPENAI_TOKENS_UNKNOWN};
	if (is_sse)
		sse_watch_init(&w->sse, w->event, sizeof w->event, on_event, w);
	else
		w->tail.len_bytes = 0;
	return w;
}

void
relay_watch_free(struct relay_watch *w)
{
	free(w);
}

void
relay_watch_feed(struct relay_watch *w, const char *p, size_t n)
{
	if (w->is_sse)
		sse_watch_feed(&w->sse, p, n);
	else
		openai_tail_feed(&w->tail, p, n);
}

void
relay_watch_end(struct relay_watch *w)
{
	if (!w->is_sse)
		openai_scan_usage(openai_tail_bytes(&w->tail), &w->usage);
}
