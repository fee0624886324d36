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
learn_id(struct relay_kept *k, struct slice json, const char *in)
{
	struct slice id;

	if (k->id_len > 0 || !openai_find_id(json, in, &id))
		return;
	memcpy(k->id, id.p, id.len);
	k->id_len = id.len;
}

static void
add_usage(struct relay_watch *w, struct slice json)
{
	struct openai_usage said;

	if (openai_scan_usage(json, &said))
		openai_usage_add(&w->usage, &said);
}

/* Streams of named events: the name says it. */
static void
on_named_event(struct relay_watch *w, const struct sse_event *event)
{
	enum openai_event kind = openai_event_kind(w->api, event->name, event->data);

	w->done |= kind == OPENAI_EVENT_DONE || kind == OPENAI_EVENT_FAILED;
	w->failed |= kind == OPENAI_EVENT_ERROR || kind == OPENAI_EVENT_FAILED;
	if (w->kept)
		learn_id(w->kept, event->data, "response");
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
	if (w->api != OPENAI_API_PLAIN)
		on_named_event(w, event);
	found = mentions(event->data.p, event->data.len);
	if ((found & MENTION_ERROR) && w->api == OPENAI_API_PLAIN &&
	    openai_event_kind(w->api, event->name, event->data) == OPENAI_EVENT_ERROR)
		w->failed = true;
	if ((found & MENTION_USAGE) && !event->truncated)
		add_usage(w, event->data);
}

struct relay_watch *
relay_watch_new(bool is_sse, enum openai_api api)
{
	struct relay_watch *w = malloc(sizeof *w); /* not zeroed: 8 KiB of it is buffer */

	if (!w)
		return NULL;
	w->is_sse = is_sse;
	w->api = api;
	w->done = w->failed = false;
	w->usage = (struct openai_usage){OPENAI_TOKENS_UNKNOWN, OPENAI_TOKENS_UNKNOWN,
					 OPENAI_TOKENS_UNKNOWN};
	w->kept = NULL;
	if (api == OPENAI_API_RESPONSES && !(w->kept = malloc(sizeof *w->kept))) {
		free(w);
		return NULL;
	}
	if (w->kept) {
		w->kept->tail.len_bytes = w->kept->id_len = w->kept->head_len = 0;
		w->kept->told = false;
	}
	if (is_sse)
		sse_watch_init(&w->sse, w->event, sizeof w->event, on_event, w);
	else
		w->tail.len_bytes = 0;
	return w;
}

void
relay_watch_free(struct relay_watch *w)
{
	if (w)
		free(w->kept);
	free(w);
}

/* The first bytes of an answer in one piece, until they have said the id. */
static void
keep_head(struct relay_kept *k, const char *p, size_t n)
{
	size_t room = sizeof k->head - k->head_len;

	if (k->id_len > 0 || room == 0)
		return;
	n = n < room ? n : room;
	memcpy(k->head + k->head_len, p, n);
	k->head_len += n;
	learn_id(k, slice_of(k->head, k->head_len), NULL);
}

void
relay_watch_feed(struct relay_watch *w, const char *p, size_t n)
{
	if (w->kept && w->is_sse)
		openai_tail_feed(&w->kept->tail, p, n);
	else if (w->kept)
		keep_head(w->kept, p, n);
	if (w->is_sse)
		sse_watch_feed(&w->sse, p, n);
	else
		openai_tail_feed(&w->tail, p, n);
}

bool
relay_watch_id(struct relay_watch *w, struct slice *ret)
{
	struct relay_kept *k = w->kept;

	if (!k || k->told || k->id_len == 0)
		return false;
	k->told = true;
	*ret = slice_of(k->id, k->id_len);
	return true;
}

void
relay_watch_end(struct relay_watch *w)
{
	if (!w->is_sse)
		add_usage(w, openai_tail_bytes(&w->tail));
	else if (w->kept && w->usage.prompt_tokens == OPENAI_TOKENS_UNKNOWN)
		add_usage(w, openai_tail_bytes(&w->kept->tail));
}
