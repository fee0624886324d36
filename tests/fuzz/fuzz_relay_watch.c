/* fuzz_relay_watch.c -- what a worker streams, read along by the relay: any cutting teaches the
 * same, nothing is learned that was not said, and an id is told once. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/relay_watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct learned {
	bool                done, failed;
	struct openai_usage usage;
	size_t              id_len;
	char                id[OPENAI_ID_MAX_BYTES];
};

static void
require(bool truth, const char *what)
{
	if (!truth) {
		fprintf(stderr, "fuzz_relay_watch: %s\n", what);
		abort();
	}
}

static struct learned
watch(bool is_sse, enum openai_api api, const uint8_t *data, size_t size, size_t step)
{
	struct relay_watch *w = relay_watch_new(is_sse, api);
	struct learned got;
	unsigned told = 0;
	struct slice id;

	memset(&got, 0, sizeof got);
	if (!w)
		abort();
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;
		char *piece = malloc(n);        /* of its exact size: nothing is read behind it */

		memcpy(piece, data + at, n);
		relay_watch_feed(w, piece, n);
		free(piece);
		if (relay_watch_id(w, &id)) {
			told++;
			require(id.len > 0 && id.len <= OPENAI_ID_MAX_BYTES, "an id of no size");
			got.id_len = id.len;
			memcpy(got.id, id.p, id.len);
		}
	}
	relay_watch_end(w);
	require(told <= 1, "an id told twice");
	got.done = w->done;
	got.failed = w->failed;
	got.usage = w->usage;
	relay_watch_free(w);
	return got;
}

static bool
same(const struct learned *a, const struct learned *b)
{
	return a->done == b->done && a->failed == b->failed && a->id_len == b->id_len &&
	       memcmp(a->id, b->id, a->id_len) == 0 &&
	       a->usage.prompt_tokens == b->usage.prompt_tokens &&
	       a->usage.completion_tokens == b->usage.completion_tokens &&
	       a->usage.cached_tokens == b->usage.cached_tokens;
}

static bool
said(const uint8_t *data, size_t size, const char *word)
{
	return memmem(data, size, word, strlen(word)) != NULL;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool is_sse;
	enum openai_api api;

	if (size == 0)
		return 0;
	is_sse = data[0] & 1;
	api = (enum openai_api)((data[0] >> 1) % (OPENAI_API_MESSAGES + 1));
	data++;
	size--;
	struct learned whole = watch(is_sse, api, data, size, size ? size : 1);

	/* Where an end is kept, how much of it depends on the cutting. */
	bool all_kept = size <= OPENAI_TAIL_BYTES || (is_sse && api != OPENAI_API_RESPONSES);

	for (size_t step = 1; step <= 7 && all_kept; step += 2) {
		struct learned part = watch(is_sse, api, data, size, step);

		require(same(&part, &whole), "a cut answer teaches otherwise");
	}
	if (whole.usage.prompt_tokens != OPENAI_TOKENS_UNKNOWN ||
	    whole.usage.completion_tokens != OPENAI_TOKENS_UNKNOWN)
		require(said(data, size, "usage"), "usage that nobody said");
	require(!whole.failed || said(data, size, "error") || api != OPENAI_API_PLAIN,
		"a failure that nobody said");
	require(!whole.done || api != OPENAI_API_PLAIN || said(data, size, "[DONE]"),
		"a last word that nobody said");
	return 0;
}
