/* fuzz_kv_events.c -- no payload makes the decoder step outside, and what it gives is consistent:
 * events add up, pointers and counts agree, memory stays in proportion to the bytes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/kv_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t
event_check(const struct kv_event *ev)
{
	uint64_t sum = ev->parent + ev->group;
	struct kv_extra x;

	if ((ev->n_hashes > 0) != (ev->hashes != NULL))
		abort();
	for (size_t i = 0; i < ev->n_hashes; i++)
		sum += ev->hashes[i];
	if (ev->tokens_usable &&
	    (!ev->token_ids || ev->n_tokens != ev->n_hashes * ev->block_tokens))
		abort();
	for (size_t i = 0; ev->token_ids && i < ev->n_tokens; i++)
		sum += ev->token_ids[i];
	for (size_t i = 0; i <= ev->n_hashes; i++) {
		kv_extra_split(ev, i, &x);
		for (size_t k = 0; k < x.mm.n; k++)
			sum += x.mm.p[k];
		for (size_t k = 0; k < x.salt.n; k++)
			sum += x.salt.p[k];
	}
	return sum;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *nowhere;
	struct kv_batch batch = {0};
	uint64_t sum = 0;
	const char *why;

	if (!nowhere)
		nowhere = fopen("/dev/null", "w");
	for (int round = 0; round < 2; round++) { /* twice: a batch is reused */
		if (kv_batch_decode(data, size, &batch, &why) < 0) {
			if (!why || batch.n_events)
				abort();
			continue;
		}
		if (batch.n_failed && !batch.failed_why)
			abort();
		for (size_t i = 0; i < batch.n_events; i++) {
			sum += event_check(&batch.events[i]);
			kv_event_print_json(nowhere, &batch, &batch.events[i]);
		}
	}
	if (batch.cap_events > 2 * size + 64 || batch.cap_hashes > 2 * size + 64 ||
	    batch.cap_tokens > 2 * size + 64 || batch.cap_extras > 2 * size + 64)
		abort();
	kv_batch_free(&batch);
	if (sum == 1)
		fputc(0, nowhere); /* so that the sum is not optimised away */
	return 0;
}
