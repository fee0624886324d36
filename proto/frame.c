#include "proto/frame.h"

#include <string.h>

/* The shape of one value's head: how many bytes follow, how many values follow. */
struct head {
	uint64_t kids; /* values inside */
	uint64_t skip; /* bytes of its own */
};

static uint64_t
big_endian(const uint8_t *p, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < width; i++)
		v = v << 8 | p[i];
	return v;
}

/* By type byte: the bytes that follow it, of a value whose size the type alone says and that holds
 * no others; LONG of the rest.  Most values are such: token ids, hashes, short strings. */
#define LONG 0xff
#define FOUR(x) x, x, x, x
#define SIXTEEN(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x)
static const uint8_t own_bytes[256] = {
	SIXTEEN(0), SIXTEEN(0), SIXTEEN(0), SIXTEEN(0), /* 00 - 7f: small integers */
	SIXTEEN(0), SIXTEEN(0), SIXTEEN(0), SIXTEEN(0),
	SIXTEEN(LONG), SIXTEEN(LONG),                   /* 80: maps, 90: arrays */
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,   /* a0: short strings */
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
	0, LONG, 0, 0, FOUR(LONG),                      /* c0: nil, never used, false, true, bin */
	LONG, LONG, 4, 8, 1, 2, 4, 8,                   /* c8: ext; ca: floats; cc: unsigned */
	1, 2, 4, 8, FOUR(LONG),                         /* d0: signed; d4: ext */
	FOUR(LONG), FOUR(LONG),                         /* d8: ext, strings, arrays, maps */
	SIXTEEN(0), SIXTEEN(0),                         /* e0: small negative integers */
};

static bool
is_ext(uint8_t b)
{
	return (b >= 0xc7 && b <= 0xc9) || (b >= 0xd4 && b <= 0xd8);
}

/* Read the type byte and length of the value at *pp; false: short, or the byte never used. */
static bool
head_read(const uint8_t **pp, const uint8_t *end, struct head *ret_head)
{
	const uint8_t *p = *pp;
	unsigned width = 0;
	struct head h = {0, 0};
	uint8_t b;

	if (p == end)
		return false;
	b = *p++;
	if (own_bytes[b] != LONG)
		h.skip = own_bytes[b];
	else if (b <= 0x8f)
		h.kids = 2 * (uint64_t)(b & 0x0f); /* fixmap */
	else if (b <= 0x9f)
		h.kids = b & 0x0f; /* fixarray */
	else
		switch (b) {
		case 0xc4: case 0xc7: case 0xd9:
			width = 1;
			break;
		case 0xc5: case 0xc8: case 0xda: case 0xdc: case 0xde:
			width = 2;
			break;
		case 0xc6: case 0xc9: case 0xdb: case 0xdd: case 0xdf:
			width = 4;
			break;
		case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
			h.skip = 1 + (1u << (b - 0xd4)); /* a type, and 1 to 16 bytes */
			break;
		default: /* the byte never used */
			return false;
		}
	if (width > 0) {
		uint64_t v;

		if ((size_t)(end - p) < width)
			return false;
		v = big_endian(p, width);
		p += width;
		if (b == 0xdc || b == 0xdd)
			h.kids = v;
		else if (b == 0xde || b == 0xdf)
			h.kids = 2 * v;
		else
			h.skip = v + is_ext(b);
	}
	if (h.skip > (uint64_t)(end - p))
		return false;
	*pp = p + h.skip;
	*ret_head = h;
	return true;
}

/* Passes over up to max values of own_bytes; how many there were. */
static uint64_t
pass_run(const uint8_t **pp, const uint8_t *end, uint64_t max)
{
	const uint8_t *p = *pp;
	uint64_t n = 0;

	for (; n < max && p < end; n++) {
		size_t own = own_bytes[*p];

		if (own == LONG || own >= (size_t)(end - p))
			break;
		p += 1 + own;
	}
	*pp = p;
	return n;
}

static bool
sane(const void *frame, size_t n, bool with_ext)
{
	const uint8_t *p = frame;
	const uint8_t *end = n ? p + n : p;
	uint64_t open[FRAME_DEPTH_MAX]; /* values still to come in each open container */
	uint64_t owed = 1;		/* and in all of them together */
	unsigned depth = 0;

	while (owed > 0) {
		struct head h;
		uint64_t run = depth > 0 ? open[depth - 1] : 0, passed;

		/* Runs of values that hold no others, which is what most of a frame is. */
		passed = pass_run(&p, end, run);
		owed -= passed;
		if (depth > 0)
			open[depth - 1] -= passed;
		if (passed < run || run == 0) {
			if (p == end || (is_ext(*p) && !with_ext) || !head_read(&p, end, &h))
				return false;
			owed += h.kids - 1;
			if (owed > (uint64_t)(end - p)) /* a value is at least one byte */
				return false;
			if (depth > 0)
				open[depth - 1]--;
			if (h.kids > 0) {
				if (depth == FRAME_DEPTH_MAX)
					return false;
				open[depth++] = h.kids;
			}
		}
		while (depth > 0 && open[depth - 1] == 0)
			depth--;
	}
	return p == end;
}

bool
frame_sane(const void *frame, size_t n)
{
	return sane(frame, n, false);
}

bool
frame_sane_with_ext(const void *frame, size_t n)
{
	return sane(frame, n, true);
}

bool
frame_skip(struct frame_cursor *cur)
{
	const uint8_t *p = cur->p;
	uint64_t owed = 1;

	while ((owed -= pass_run(&p, cur->end, owed)) > 0) {
		struct head h;

		if (!head_read(&p, cur->end, &h))
			return false;
		owed += h.kids - 1;
		if (owed > (uint64_t)(cur->end - p))
			return false;
	}
	cur->p = p;
	return true;
}

static void
value_signed(struct frame_value *v, int64_t i)
{
	if (i >= 0) {
		v->type = FRAME_UINT;
		v->u64 = (uint64_t)i;
	} else {
		v->type = FRAME_INT;
		v->i64 = i;
	}
}

static double
value_float(const uint8_t *p, unsigned width)
{
	uint64_t bits = big_endian(p, width);
	double d;
	float f;
	uint32_t half;

	if (width == 8) {
		memcpy(&d, &bits, sizeof(d));
		return d;
	}
	half = (uint32_t)bits;
	memcpy(&f, &half, sizeof(f));
	return (double)f;
}

bool
frame_next(struct frame_cursor *cur, struct frame_value *ret_value)
{
	const uint8_t *start = cur->p, *p = cur->p;
	struct frame_value v = {.type = FRAME_NIL};
	struct head h;
	uint8_t b;

	if (!head_read(&p, cur->end, &h))
		return false;
	b = *start++;
	if (b <= 0x7f) {
		v.type = FRAME_UINT;
		v.u64 = b;
	} else if (b >= 0xe0) {
		value_signed(&v, (int8_t)b);
	} else if (b >= 0xa0 && b <= 0xbf) {
		v.type = FRAME_STR;
		v.bytes = start;
		v.len = (uint32_t)h.skip;
	} else if (b <= 0x8f) {
		v.type = FRAME_MAP;
		v.len = (uint32_t)(h.kids / 2);
	} else if (b <= 0x9f) {
		v.type = FRAME_ARRAY;
		v.len = (uint32_t)h.kids;
	} else {
		switch (b) {
		case 0xc2: case 0xc3:
			v.type = FRAME_BOOL;
			v.u64 = b & 1;
			break;
		case 0xcc: case 0xcd: case 0xce: case 0xcf:
			v.type = FRAME_UINT;
			v.u64 = big_endian(start, 1u << (b - 0xcc));
			break;
		case 0xd0:
			value_signed(&v, (int8_t)start[0]);
			break;
		case 0xd1:
			value_signed(&v, (int16_t)big_endian(start, 2));
			break;
		case 0xd2:
			value_signed(&v, (int32_t)big_endian(start, 4));
			break;
		case 0xd3:
			value_signed(&v, (int64_t)big_endian(start, 8));
			break;
		case 0xca: case 0xcb:
			v.type = FRAME_FLOAT;
			v.f64 = value_float(start, b == 0xca ? 4 : 8);
			break;
		case 0xc4: case 0xc5: case 0xc6:
		case 0xd9: case 0xda: case 0xdb:
			v.type = b <= 0xc6 ? FRAME_BIN : FRAME_STR;
			v.bytes = p - h.skip;
			v.len = (uint32_t)h.skip;
			break;
		case 0xdc: case 0xdd:
			v.type = FRAME_ARRAY;
			v.len = (uint32_t)h.kids;
			break;
		case 0xde: case 0xdf:
			v.type = FRAME_MAP;
			v.len = (uint32_t)(h.kids / 2);
			break;
		case 0xc7: case 0xc8: case 0xc9:
		case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
			v.type = FRAME_EXT;
			v.bytes = p - h.skip;
			v.len = (uint32_t)h.skip;
			break;
		default: /* 0xc0: nil */
			break;
		}
	}
	cur->p = p;
	*ret_value = v;
	return true;
}
