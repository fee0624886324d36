/* proto/kv_events_private.h -- msgpack values as slices; for proto/kv_events*.c only. */
#pragma once
#include "proto/frame.h"
#include "proto/kv_events.h"

static inline struct frame_cursor
cursor_of(struct kv_slice s)
{
	return (struct frame_cursor){s.p, s.p ? s.p + s.n : NULL}; /* NULL + 0 is undefined */
}

/* The value at cur as a slice, skipped. */
static inline bool
span_next(struct frame_cursor *cur, struct kv_slice *ret_span)
{
	const uint8_t *start = cur->p;

	if (!frame_skip(cur))
		return false;
	*ret_span = (struct kv_slice){start, (size_t)(cur->p - start)};
	return true;
}
