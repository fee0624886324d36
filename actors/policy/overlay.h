/* actors/policy/overlay.h -- decisions sent that shared memory does not show yet.
 *
 * Charges    one ordered stream per ingress incarnation.  Every answer is in it, also a reject.  It
 *            leaves when that ingress's watermark has reached its number: by then its cell shows
 *            the charge, or the answer was discarded.  Read the watermarks (overlay_settle), then
 *            the cells, then the overlay (overlay_row): a race counts a request twice for a moment
 *            and never misses one.
 * Prefixes   what a request sent to a row will leave in its cache, for at least half of
 *            OVERLAY_PREFIX_NS from the decision and never longer than all of it: by then kvevents
 *            has applied the `routed` note and the index says the same.  Asked only beyond the
 *            depth the index knows, so what both know costs nothing.  A bounded table (twice
 *            OVERLAY_PREFIXES); full, the older half is forgotten.  Too old or too few only
 *            under-counts.
 * Ownership  private memory of the policy process.  One thread.
 * Cost       push, settle, row: tens of nanoseconds.  Prefixes: one probe a block.
 * Errors     -ENOMEM only at overlay_new and overlay_stream_open and when a stream outgrows its
 *            ring; there a stream must not lose a charge, so the caller treats it as fatal.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/segment.h"

#define OVERLAY_PREFIX_NS 1000000000ull /* a prefix sent is remembered 1 s at most */
#define OVERLAY_PREFIXES  (1u << 17)    /* blocks remembered of each half lifetime; 4 MiB each */
#define OVERLAY_NO_ROW    0xffffu       /* an answer that charges nobody */

struct overlay;
struct overlay_stream;                  /* one ingress incarnation */

struct overlay_charge {                 /* of one row: answers sent and not yet applied */
	uint32_t pending;               /* prefill tokens */
	uint32_t prefilling;            /* requests */
	uint32_t last_pick;             /* newest pick number; 0 none.  Outlives the answers */
};

int overlay_new(struct overlay **ret, uint32_t rows);
void overlay_free(struct overlay **ret);

int overlay_stream_open(struct overlay *o, struct overlay_stream **ret);
void overlay_stream_close(struct overlay *o, struct overlay_stream **ret);
	/* Discards what is left in it: its ingress is gone, or the process ends. */
uint32_t overlay_push(struct overlay *o, struct overlay_stream *s, uint16_t row, uint32_t row_gen,
		      uint32_t tokens, uint32_t pick);
	/* The answer's number: 1, 2, 3 .. without holes.  0: no memory. */
void overlay_settle(struct overlay *o, struct overlay_stream *s, uint32_t applied);
	/* The watermark moved: applied is the highest number applied or discarded, 0 none. */
struct overlay_charge overlay_row(const struct overlay *o, uint16_t row, uint32_t row_gen);
	/* Zeroes for a row generation nothing was sent to. */
size_t overlay_length(const struct overlay *o);         /* answers in all streams */

void overlay_note(struct overlay *o, uint16_t row, const uint64_t *hash, size_t n, mono_ns now);
	/* These blocks will be on row. */
size_t overlay_depth(struct overlay *o, uint16_t row, const uint64_t *hash, size_t known, size_t n,
		     mono_ns now);
	/* Leading blocks of hash[0..n) that row holds or will hold; it holds `known`; >= known. */
