/* actors/kvevents/apply_tap.c -- what apply did with an event, for whoever looks on (tap.h). */
#include <stdio.h>
#include <string.h>

#include "actors/kvevents/apply_row.h"

/* The trouble that this event met. */
static const char *
met(const struct apply_row *r)
{
	uint64_t word = atomic_load_explicit(&r->shared->trouble, memory_order_relaxed);
	uint64_t count = atomic_load_explicit(&r->shared->trouble_count, memory_order_relaxed);

	return word == r->tap_trouble && count == r->tap_count ?
		       "" : event_trouble_name(row_trouble_kind(word));
}

void
row_tap(struct apply *a, const struct apply_row *r, const struct kv_event *ev,
	enum tap_outcome outcome, const char *reason)
{
	char number[32];

	if (!tap_on(a->tap, r->id))
		return;                         /* the usual case, at each event */

	struct msg_tapped m = {
		.row = r->id, .outcome = (uint8_t)outcome, .seq = r->last_seq,
		.when = clock_wall(), .group = UINT32_MAX,
		.lora = slice_str(""), .medium = slice_str(""),
		.reason = slice_str(reason ? reason :
				    ev && outcome != TAP_APPLIED ? met(r) : ""),
	};

	if (ev) {
		m.type = (uint8_t)ev->type;
		m.blocks = (uint32_t)ev->n_hashes;
		m.block_tokens = ev->block_tokens;
		m.tokens = (uint32_t)ev->n_tokens;
		m.group = ev->has_group ? ev->group : UINT32_MAX;
		m.parent = ev->has_parent ? ev->parent : 0;
		m.first = ev->n_hashes > 0 ? ev->hashes[0] : 0;
		if (ev->medium_text.p)
			m.medium = (struct slice){(const char *)ev->medium_text.p,
						  ev->medium_text.n};
		if (ev->lora_name.p) {
			m.lora = (struct slice){(const char *)ev->lora_name.p, ev->lora_name.n};
		} else if (ev->has_lora_id) {
			snprintf(number, sizeof number, "id %lld", (long long)ev->lora_id);
			m.lora = slice_str(number);
		}
	}
	tap_tell(a->tap, &m);
}
