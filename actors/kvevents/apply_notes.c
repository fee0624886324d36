/* actors/kvevents/apply_notes.c -- what was sent to a worker, or proven by it: probable blocks. */
#include <string.h>

#include "actors/kvevents/apply_row.h"

static uint64_t
hash_at(struct slice hashes, size_t i)
{
	uint64_t h;

	memcpy(&h, hashes.p + i * sizeof h, sizeof h); /* little-endian, anywhere in the frame */
	return h;
}

void
apply_note(struct apply *a, const struct msg_routed *note)
{
	struct apply_row *r = row_at(a, note->row);
	struct index_header *head = index_writer_head(a->w);
	size_t n = note->hashes.len / sizeof(uint64_t);
	uint16_t exact, id, older;

	if (r && r->row_gen == note->row_gen && n > 0) {
		if (r->sent++ == 0)
			r->sent_since = a->now;
		id = row_slot_speculative(a, r);
		if (id == 0) {
			budget_refused(a, r, COUNTER_index_ids_short, n);
			n = 0;
		}
		exact = row_slot(r, INDEX_EXACT, INDEX_GPU);
		older = row_slot_older(r);
		for (size_t i = 0; i < n; i++) {
			struct index_span span = index_ahead(i, n);
			uint64_t h = hash_at(note->hashes, i);

			for (size_t k = span.from; k < span.to; k++)
				index_prefetch(a->w, hash_at(note->hashes, k));
			if (h != 0) /* what the exact slot holds, events keep true */
				row_put(a, r, exact, id, h, &older, older != 0);
		}
	}
	atomic_store_explicit(&head->routed_seen[note->ingress % 8],
			      (uint64_t)(note->ingress_inc & 0xffffffu) << 40 |
				      (note->seq & 0xffffffffffull),
			      memory_order_release);
}

void
apply_sent(struct apply *a, const struct msg_routed *note)
{
	struct apply_row *r = row_at(a, note->row);
	size_t n = note->hashes.len / sizeof(uint64_t);

	if (r && r->row_gen == note->row_gen && n > 0)
		row_chain_sent(a, r, hash_at(note->hashes, n - 1));
}
