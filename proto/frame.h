/* proto/frame.h -- is this one sane msgpack value, and what is the next value in it?
 *
 * frame_sane() runs before anything that allocates: msgpack-c's unpacker allocates for the
 * element counts a frame merely claims (9 bytes can ask for 128 GiB).  The cursor below walks a
 * frame in place, allocating nothing, for readers whose frames come from outside our trust.
 *
 * Errors     a frame is sane or it is not; the cursor checks every bound again.
 * Ownership  slices borrow the frame's bytes.
 * Threads    pure functions.
 * Cost       frame_sane() reads each type and length byte once: about 4 ns a value.
 * Source     the msgpack specification.  Extension types: our own frames have none; strangers'
 *            may, and are stepped over.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_DEPTH_MAX 32u /* containers in containers; msgpack-c refuses 33 as out of memory */

bool frame_sane(const void *p, size_t n);
	/* Does p hold exactly one value, every count backed by bytes, at most FRAME_DEPTH_MAX
	 * containers deep, without extension types?  Allocates nothing. */
bool frame_sane_with_ext(const void *p, size_t n);
	/* The same, but extension types are values like others. */

enum frame_type {
	FRAME_NIL = 1,
	FRAME_BOOL,  /* u64: 0 or 1 */
	FRAME_UINT,  /* u64 */
	FRAME_INT,   /* i64, always negative */
	FRAME_FLOAT, /* f64 */
	FRAME_STR,   /* bytes, len */
	FRAME_BIN,   /* bytes, len */
	FRAME_ARRAY, /* len: elements that follow */
	FRAME_MAP,   /* len: pairs that follow, key then value */
	FRAME_EXT,   /* bytes, len: its type byte, then its data */
};

struct frame_value {
	enum frame_type type;
	union {
		uint64_t u64;
		int64_t i64;
		double f64;
		const uint8_t *bytes; /* borrowed */
	};
	uint32_t len;
};

struct frame_cursor {
	const uint8_t *p;
	const uint8_t *end;
};

bool frame_next(struct frame_cursor *, struct frame_value *ret_value);
	/* Read one value's head; an array's or map's elements come next.  False at the end and on a
	 * value cut short; the cursor then stays. */
bool frame_skip(struct frame_cursor *);
	/* Skip one whole value, however deep; no recursion.  False as frame_next(). */
