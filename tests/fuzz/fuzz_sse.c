/* fuzz_sse.c -- an event stream from a stranger: any cutting gives the same events, and
 * with a small buffer the same number of them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/openai.h"
#include "proto/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
add(void *arg, const struct sse_event *e)
{
	uint64_t *sum = arg;
	struct openai_usage usage;
	struct slice id;

	for (size_t i = 0; i < e->data.len; i++)
		*sum = (*sum ^ (uint8_t)e->data.p[i]) * 1099511628211ULL;
	*sum = (*sum ^ 0x100 ^ e->name.len) * 1099511628211ULL;
	for (unsigned api = 0; api <= OPENAI_API_MESSAGES; api++)
		openai_event_kind((enum openai_api)api, e->name, e->data);
	openai_find_id(e->data, "response", &id);
	openai_scan_usage(e->data, &usage);
}

static uint64_t
watch(const uint8_t *data, size_t size, size_t step, size_t cap, uint64_t *ret_events)
{
	uint64_t sum = 14695981039346656037ULL;
	char *buf = malloc(cap);
	struct sse_watch w;

	sse_watch_init(&w, buf, cap, add, &sum);
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;
		char *piece = malloc(n);

		memcpy(piece, data + at, n);
		sse_watch_feed(&w, piece, n);
		free(piece);
	}
	sum ^= sse_watch_at_boundary(&w);
	free(buf);
	*ret_events = w.events;
	return sum;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t events, n;
	uint64_t whole = watch(data, size, size ? size : 1, size + 1, &events);

	for (size_t step = 1; step <= 5; step++) {
		if (watch(data, size, step, size + 1, &n) != whole || n != events) {
			fprintf(stderr, "fuzz_sse: a cut stream reads differently\n");
			abort();
		}
	}
	watch(data, size, 3, 1, &n);
	if (n != events) {
		fprintf(stderr, "fuzz_sse: a small buffer loses events\n");
		abort();
	}
	return 0;
}
