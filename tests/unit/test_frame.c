#include <criterion/criterion.h>
#include <msgpack.h>
#include <string.h>

#include "proto/frame.h"

#define SANE(...) frame_sane((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void
pack_deep(msgpack_sbuffer *buf, unsigned depth)
{
	msgpack_packer pk;

	msgpack_sbuffer_init(buf);
	msgpack_packer_init(&pk, buf, msgpack_sbuffer_write);
	for (unsigned i = 0; i < depth; i++)
		msgpack_pack_array(&pk, 1);
	msgpack_pack_nil(&pk);
}

static void
pack_everything(msgpack_sbuffer *buf)
{
	static char text[70000];
	msgpack_packer pk;

	memset(text, 'x', sizeof(text));
	msgpack_sbuffer_init(buf);
	msgpack_packer_init(&pk, buf, msgpack_sbuffer_write);
	msgpack_pack_array(&pk, 20);
	msgpack_pack_nil(&pk);
	msgpack_pack_true(&pk);
	msgpack_pack_false(&pk);
	msgpack_pack_uint64(&pk, 127);
	msgpack_pack_uint64(&pk, 200);
	msgpack_pack_uint64(&pk, 60000);
	msgpack_pack_uint64(&pk, 4000000000u);
	msgpack_pack_uint64(&pk, UINT64_MAX);
	msgpack_pack_int64(&pk, -1);
	msgpack_pack_int64(&pk, -100);
	msgpack_pack_int64(&pk, -30000);
	msgpack_pack_int64(&pk, -2000000000);
	msgpack_pack_int64(&pk, INT64_MIN);
	msgpack_pack_float(&pk, 1.5f);
	msgpack_pack_double(&pk, -2.25);
	for (size_t n = 5; n <= 70000; n = n == 5 ? 40 : n == 40 ? 300 : 70000) {
		msgpack_pack_str(&pk, n);
		msgpack_pack_str_body(&pk, text, n);
		if (n == 70000)
			break;
	}
	msgpack_pack_bin(&pk, 3);
	msgpack_pack_bin_body(&pk, "\0\1\2", 3);
}

Test(frame, a_single_value_is_sane)
{
	cr_assert(SANE(0xc0));
	cr_assert(SANE(0x00));
	cr_assert(SANE(0x93, 0x01, 0xa1, 'x', 0x80));
	cr_assert(SANE(0x81, 0xa1, 'k', 0x90));
}

Test(frame, nothing_and_two_values_are_not_sane)
{
	cr_assert_not(frame_sane("", 0));
	cr_assert_not(SANE(0x01, 0x01));
}

Test(frame, counts_without_bytes_behind_them_are_refused)
{
	cr_assert_not(SANE(0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd, 0xdd));
	cr_assert_not(SANE(0xdd, 0x10, 0x00, 0x00, 0x00));
	cr_assert_not(SANE(0xdf, 0xff, 0xff, 0xff, 0xff));
	cr_assert_not(SANE(0xc6, 0xff, 0xff, 0xff, 0xff, 0x00));
}

Test(frame, extension_types_are_refused_where_they_are_not_asked_for)
{
	static const uint8_t ext[][8] = {
		{0xd4, 1, 0}, {0xd5, 1, 0, 0}, {0xd6, 1, 0, 0, 0, 0}, {0xc7, 1, 5, 0},
		{0xc8, 0, 1, 5, 0}, {0xc9, 0, 0, 0, 1, 5, 0}, {0xc7, 0, 5},
	};
	static const size_t len[] = {3, 4, 6, 4, 5, 7, 3};

	for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		struct frame_cursor cur = {ext[i], ext[i] + len[i]}, skip = cur;
		struct frame_value v;

		cr_assert_not(frame_sane(ext[i], len[i]), "%zu", i);
		cr_assert(frame_sane_with_ext(ext[i], len[i]), "%zu", i);
		cr_assert_not(frame_sane_with_ext(ext[i], len[i] - 1), "%zu", i);
		cr_assert(frame_next(&cur, &v) && v.type == FRAME_EXT && cur.p == cur.end);
		cr_assert(v.bytes + v.len == cur.end && v.len >= 1);
		cr_assert(frame_skip(&skip) && skip.p == skip.end);
	}
	cr_assert_not(SANE(0xc1));
	cr_assert_not(frame_sane_with_ext("\xc1", 1));
	cr_assert_not(frame_sane_with_ext("\xc9\xff\xff\xff\xff\x01", 6));
}

Test(frame, thirty_two_levels_are_sane_and_thirty_three_are_not)
{
	msgpack_sbuffer buf;

	pack_deep(&buf, 32);
	cr_assert(frame_sane(buf.data, buf.size));
	msgpack_sbuffer_destroy(&buf);
	pack_deep(&buf, 33);
	cr_assert_not(frame_sane(buf.data, buf.size));
	msgpack_sbuffer_destroy(&buf);
}

Test(frame, closed_containers_do_not_count_as_depth)
{
	uint8_t wide[1 + 15 * 2] = {0x9f};

	for (int i = 0; i < 15; i++) {
		wide[1 + 2 * i] = 0x91;
		wide[2 + 2 * i] = 0xc0;
	}
	cr_assert(frame_sane(wide, sizeof(wide)));
}

Test(frame, every_truncation_is_refused)
{
	msgpack_sbuffer buf;

	pack_everything(&buf);
	cr_assert(frame_sane(buf.data, buf.size));
	for (size_t n = 0; n < buf.size; n++)
		cr_assert_not(frame_sane(buf.data, n), "%zu of %zu bytes", n, buf.size);
	msgpack_sbuffer_destroy(&buf);
}

Test(frame, the_cursor_reads_what_msgpack_wrote)
{
	static const uint64_t uints[] = {127, 200, 60000, 4000000000u, UINT64_MAX};
	static const int64_t ints[] = {-1, -100, -30000, -2000000000, INT64_MIN};
	static const uint32_t lens[] = {5, 40, 300, 70000};
	struct frame_cursor cur;
	struct frame_value v;
	msgpack_sbuffer buf;

	pack_everything(&buf);
	cur = (struct frame_cursor){(const uint8_t *)buf.data,
				    (const uint8_t *)buf.data + buf.size};
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_ARRAY && v.len == 20);
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_NIL);
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_BOOL && v.u64 == 1);
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_BOOL && v.u64 == 0);
	for (size_t i = 0; i < 5; i++)
		cr_assert(frame_next(&cur, &v) && v.type == FRAME_UINT && v.u64 == uints[i]);
	for (size_t i = 0; i < 5; i++)
		cr_assert(frame_next(&cur, &v) && v.type == FRAME_INT && v.i64 == ints[i]);
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_FLOAT && v.f64 == 1.5);
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_FLOAT && v.f64 == -2.25);
	for (size_t i = 0; i < 4; i++)
		cr_assert(frame_next(&cur, &v) && v.type == FRAME_STR && v.len == lens[i] &&
			  v.bytes[0] == 'x' && v.bytes[v.len - 1] == 'x');
	cr_assert(frame_next(&cur, &v) && v.type == FRAME_BIN && v.len == 3 && v.bytes[2] == 2);
	cr_assert_not(frame_next(&cur, &v));
	msgpack_sbuffer_destroy(&buf);
}

Test(frame, a_positive_signed_encoding_reads_as_unsigned)
{
	const uint8_t bytes[] = {0xd1, 0x01, 0x00};
	struct frame_cursor cur = {bytes, bytes + sizeof(bytes)};
	struct frame_value v;

	cr_assert(frame_next(&cur, &v) && v.type == FRAME_UINT && v.u64 == 256);
}

Test(frame, skip_passes_a_whole_nested_value)
{
	const uint8_t bytes[] = {0x82, 0xa1, 'a',  0x92, 0x01, 0x81,
				 0x02, 0xc0, 0xa1, 'b',  0x03, 0x2a};
	struct frame_cursor cur = {bytes, bytes + sizeof(bytes)};
	struct frame_value v;

	cr_assert(frame_skip(&cur));
	cr_assert(frame_next(&cur, &v) && v.u64 == 42);
	cr_assert_not(frame_skip(&cur));
}

Test(frame, a_cursor_stays_where_a_value_is_cut)
{
	const uint8_t bytes[] = {0xcf, 0x00, 0x01};
	struct frame_cursor cur = {bytes, bytes + sizeof(bytes)};
	struct frame_value v;

	cr_assert_not(frame_next(&cur, &v));
	cr_assert_not(frame_skip(&cur));
	cr_assert_eq(cur.p, bytes);
}
