/* proto/messages.c -- one packer and unpacker over the table of messages.def. */
#include "proto/messages.h"

#include <errno.h>
#include <string.h>

#include "proto/frame.h"

enum field_type { T_u8, T_u16, T_u32, T_u64, T_i32, T_str, T_bin, T_LIST };

struct shape;
struct field {
	const char *name;
	enum field_type type;
	uint32_t offset;
	uint32_t count_offset, max, stride;     /* LIST */
	const struct shape *record;             /* LIST */
};
struct shape {
	const char *name;
	const struct field *field;              /* NULL name ends */
	size_t size;
};

/* struct_<owner>: records and messages under one name, so that FIELD need not know which. */
#define RECORD(name, doc)               typedef struct rec_##name struct_##name;
#define MSG(id, name, from, to, doc)    typedef struct msg_##name struct_##name;
#include "proto/messages.def"

/* Field tables. */
#define RECORD(name, doc)       static const struct field fields_##name[] = {
#define RECORD_END(name)        {0}}; \
	static const struct shape shape_##name = {#name, fields_##name, sizeof(struct rec_##name)};
#define MSG(id, name, from, to, doc) static const struct field fields_##name[] = {
#define MSG_END(name)           {0}};
#define OFF_(owner, member)     offsetof(struct_##owner, member)
#define FIELD(owner, ftype, fname, unit, doc) \
	{.name = #fname, .type = T_##ftype, .offset = (uint32_t)OFF_(owner, fname)},
#define LIST(owner, rec, fname, most, doc) \
	{.name = #fname, .type = T_LIST, .offset = (uint32_t)OFF_(owner, fname), \
	 .count_offset = (uint32_t)OFF_(owner, n_##fname), .max = (most), \
	 .stride = (uint32_t)sizeof(struct rec_##rec), .record = &shape_##rec},
#include "proto/messages.def"

static const struct shape shapes[MSG_ID_MAX] = {
#define MSG(id, name, from, to, doc)    [id] = {#name, fields_##name, sizeof(struct msg_##name)},
#include "proto/messages.def"
};

const char *
msg_name(enum msg_id id)
{
	return (unsigned)id < MSG_ID_MAX && shapes[id].name ? shapes[id].name : "unknown";
}

static unsigned
shape_fields(const struct shape *shape)
{
	unsigned n = 0;

	while (shape->field[n].name)
		n++;
	return n;
}

/* ---- writing: plain msgpack, minimal width ---- */

struct out {
	uint8_t *p, *end;
	bool full;
};

static void
put(struct out *o, const void *bytes, size_t n)
{
	if (o->full || (size_t)(o->end - o->p) < n) {
		o->full = true;
		return;
	}
	if (n)
		memcpy(o->p, bytes, n);
	o->p += n;
}

static void
put_be(struct out *o, uint8_t tag, uint64_t v, unsigned width)
{
	uint8_t b[9] = {tag};

	for (unsigned i = 0; i < width; i++)
		b[1 + i] = (uint8_t)(v >> (8 * (width - 1 - i)));
	put(o, b, 1 + width);
}

static void
put_uint(struct out *o, uint64_t v)
{
	if (v < 0x80)
		put_be(o, (uint8_t)v, 0, 0);
	else if (v <= 0xff)
		put_be(o, 0xcc, v, 1);
	else if (v <= 0xffff)
		put_be(o, 0xcd, v, 2);
	else if (v <= 0xffffffff)
		put_be(o, 0xce, v, 4);
	else
		put_be(o, 0xcf, v, 8);
}

static void
put_array(struct out *o, uint32_t n)
{
	if (n < 16)
		put_be(o, (uint8_t)(0x90 | n), 0, 0);
	else
		put_be(o, 0xdc, n, 2);
}

static void
put_bytes(struct out *o, struct slice s, bool text)
{
	uint64_t n = s.len;

	if (text && n < 32)
		put_be(o, (uint8_t)(0xa0 | n), 0, 0);
	else if (n <= 0xff)
		put_be(o, text ? 0xd9 : 0xc4, n, 1);
	else if (n <= 0xffff)
		put_be(o, text ? 0xda : 0xc5, n, 2);
	else
		put_be(o, text ? 0xdb : 0xc6, n, 4);
	put(o, s.p, s.len);
}

static int
pack_fields(struct out *o, const struct shape *shape, const char *base)
{
	for (const struct field *f = shape->field; f->name; f++) {
		const void *at = base + f->offset;
		int r;

		switch (f->type) {
		case T_u8:
			put_uint(o, *(const uint8_t *)at);
			break;
		case T_u16:
			put_uint(o, *(const uint16_t *)at);
			break;
		case T_u32:
			put_uint(o, *(const uint32_t *)at);
			break;
		case T_u64:
			put_uint(o, *(const uint64_t *)at);
			break;
		case T_i32: {
			int32_t v = *(const int32_t *)at;

			if (v >= 0)
				put_uint(o, (uint64_t)v);
			else
				put_be(o, 0xd2, (uint32_t)v, 4);
			break;
		}
		case T_str:
		case T_bin:
			put_bytes(o, *(const struct slice *)at, f->type == T_str);
			break;
		case T_LIST: {
			uint32_t n = *(const uint32_t *)(const void *)(base + f->count_offset);

			if (n > f->max)
				return -EINVAL;
			put_array(o, n);
			for (uint32_t i = 0; i < n; i++) {
				put_array(o, shape_fields(f->record));
				r = pack_fields(o, f->record,
						(const char *)at + (size_t)i * f->stride);
				if (r < 0)
					return r;
			}
			break;
		}
		}
	}
	return 0;
}

ssize_t
msg_pack(enum msg_id id, const void *msg, void *buf, size_t cap)
{
	struct out o = {.p = buf, .end = (uint8_t *)buf + (cap < MESSAGE_MAX ? cap : MESSAGE_MAX)};
	int r;

	if ((unsigned)id >= MSG_ID_MAX || !shapes[id].name)
		return -EINVAL;
	put_array(&o, 1 + shape_fields(&shapes[id]));
	put_uint(&o, (uint64_t)id);
	r = pack_fields(&o, &shapes[id], msg);
	if (r < 0)
		return r;
	return o.full ? -EMSGSIZE : o.p - (uint8_t *)buf;
}

/* ---- reading: frame_sane() has walked the bytes, so every count is backed by them ---- */

static bool
take_uint(struct frame_cursor *in, uint64_t max, uint64_t *ret)
{
	struct frame_value v;

	if (!frame_next(in, &v) || v.type != FRAME_UINT || v.u64 > max)
		return false;
	*ret = v.u64;
	return true;
}

static bool
take_i32(struct frame_cursor *in, int32_t *ret)
{
	struct frame_value v;

	if (!frame_next(in, &v))
		return false;
	if (v.type == FRAME_UINT && v.u64 <= INT32_MAX)
		*ret = (int32_t)v.u64;
	else if (v.type == FRAME_INT && v.i64 >= INT32_MIN)
		*ret = (int32_t)v.i64;
	else
		return false;
	return true;
}

static bool
take_array(struct frame_cursor *in, uint64_t *ret)
{
	struct frame_value v;

	if (!frame_next(in, &v) || v.type != FRAME_ARRAY)
		return false;
	*ret = v.len;
	return true;
}

static bool
take_bytes(struct frame_cursor *in, enum frame_type type, struct slice *ret)
{
	struct frame_value v;

	if (!frame_next(in, &v) || v.type != type)
		return false;
	*ret = slice_of((const char *)v.bytes, v.len);
	return true;
}

static bool
unpack_fields(struct frame_cursor *in, const struct shape *shape, uint64_t present, char *base)
{
	const struct field *f = shape->field;

	for (; f->name; f++, present--) {
		void *at = base + f->offset;
		uint64_t v = 0;
		bool ok = false;

		if (present == 0)
			return false;
		switch (f->type) {
		case T_u8:
			ok = take_uint(in, UINT8_MAX, &v);
			*(uint8_t *)at = (uint8_t)v;
			break;
		case T_u16:
			ok = take_uint(in, UINT16_MAX, &v);
			*(uint16_t *)at = (uint16_t)v;
			break;
		case T_u32:
			ok = take_uint(in, UINT32_MAX, &v);
			*(uint32_t *)at = (uint32_t)v;
			break;
		case T_u64:
			ok = take_uint(in, UINT64_MAX, &v);
			*(uint64_t *)at = v;
			break;
		case T_i32:
			ok = take_i32(in, at);
			break;
		case T_str:
		case T_bin:
			ok = take_bytes(in, f->type == T_str ? FRAME_STR : FRAME_BIN, at);
			break;
		case T_LIST:
			ok = take_array(in, &v) && v <= f->max;
			for (uint64_t i = 0; ok && i < v; i++) {
				uint64_t kids = 0;

				ok = take_array(in, &kids) &&
				     unpack_fields(in, f->record, kids, (char *)at + i * f->stride);
			}
			*(uint32_t *)(void *)(base + f->count_offset) = ok ? (uint32_t)v : 0;
			break;
		}
		if (!ok)
			return false;
	}
	for (; present > 0; present--)          /* fields of a newer sender */
		if (!frame_skip(in))
			return false;
	return true;
}

int
msg_unpack(const void *frame, size_t len, struct msg *ret)
{
	struct frame_cursor in = {frame, (const uint8_t *)frame + len};
	uint64_t n, id;

	if (len > MESSAGE_MAX || !frame_sane(frame, len))
		return -EBADMSG;
	if (!take_array(&in, &n) || n == 0 || !take_uint(&in, UINT32_MAX, &id))
		return -EBADMSG;
	ret->id = (enum msg_id)id;
	if (id >= MSG_ID_MAX || !shapes[id].name)
		return -ENOMSG;
	memset(&ret->u, 0, shapes[id].size);
	return unpack_fields(&in, &shapes[id], n - 1, (char *)&ret->u) ? 0 : -EBADMSG;
}
