/* proto/kv_events_extra.c -- what a block's hash covers beyond its tokens; see kv_events.h. */
#include <string.h>

#include "proto/kv_events_private.h"

/* A multimodal item: (identifier, offset). */
static bool
is_pair(struct frame_cursor cur)
{
	struct frame_value v;

	return frame_next(&cur, &v) && v.type == FRAME_ARRAY && v.len == 2 &&
	       frame_next(&cur, &v) && v.type == FRAME_STR && frame_next(&cur, &v) &&
	       (v.type == FRAME_UINT || v.type == FRAME_INT);
}

static void
mm_append(struct kv_extra *x, struct kv_slice span)
{
	if (x->mm.p)
		x->mm.n = (size_t)(span.p + span.n - x->mm.p);
	else
		x->mm = span;
}

/* What the i-th of n elements is, after what came before.  False: nothing that we know. */
static bool
extra_take(const struct kv_event *ev, struct kv_extra *x, uint32_t i, struct kv_slice span,
	   bool may_be_salt)
{
	struct frame_cursor in = cursor_of(span);
	struct kv_slice text;
	struct frame_value v;

	if (x->embeds.p)
		return false; /* nothing follows it */
	if (is_pair(in)) {
		mm_append(x, span);
		return !x->salt.p;
	}
	if (!frame_next(&in, &v) || (v.type != FRAME_STR && v.type != FRAME_BIN))
		return false;
	text = (struct kv_slice){v.bytes, v.len};
	if (v.type == FRAME_BIN) {
		x->embeds = text;
		return true;
	}
	if (x->salt.p)
		return false;
	if (i == 0 && (ev->lora_name.p ? text.n == ev->lora_name.n &&
						 memcmp(text.p, ev->lora_name.p, text.n) == 0
				       : ev->has_lora_id))
		x->lora = text;
	else if (may_be_salt)
		x->salt = text;
	else
		mm_append(x, span);
	return true;
}

/* Which of the next n elements is the last text; n: none. */
static uint32_t
last_text(struct frame_cursor cur, uint32_t n)
{
	uint32_t last = n;

	for (uint32_t i = 0; i < n; i++) {
		struct frame_cursor at = cur;
		struct frame_value v;

		if (frame_next(&at, &v) && v.type == FRAME_STR)
			last = i;
		if (!frame_skip(&cur))
			break;
	}
	return last;
}

void
kv_extra_split(const struct kv_event *ev, size_t block, struct kv_extra *ret_extra)
{
	struct kv_extra x = {.unknown = ev->keys_unread};
	bool first = block == 0 && !ev->has_parent;
	struct frame_cursor cur;
	struct frame_value v;
	uint32_t n = 1, salt;

	if (block < ev->n_hashes && ev->extra_keys)
		x.entry = ev->extra_keys[block];
	*ret_extra = x;
	if (!x.entry.p)
		return;
	cur = cursor_of(x.entry);
	if (frame_next(&cur, &v) && v.type == FRAME_ARRAY)
		n = v.len;
	else
		cur = cursor_of(x.entry); /* one key, bare */
	salt = first ? last_text(cur, n) : n;
	for (uint32_t i = 0; i < n && !x.unknown; i++) {
		struct kv_slice span;

		x.unknown = !span_next(&cur, &span) ||
			    !extra_take(ev, &x, i, span, i == salt);
	}
	*ret_extra = x;
}
