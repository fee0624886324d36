/* actors/common/fields.c -- see fields.h. */
#include "actors/common/fields.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

json_t *
pm_json_hex(uint64_t n)
{
	char text[24];

	snprintf(text, sizeof text, "%016llx", (unsigned long long)n);
	return json_string(text);
}

json_t *
pm_json_wall(wall_ns when, unsigned digits)
{
	time_t seconds = (time_t)(when / 1000000000u);
	unsigned long long us = when % 1000000000u / 1000u;
	char text[64];
	struct tm tm;
	size_t n;

	if (when == 0)
		return json_null();
	gmtime_r(&seconds, &tm);
	n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	if (digits == 3)
		snprintf(text + n, sizeof text - n, ".%03lluZ", us / 1000u);
	else
		snprintf(text + n, sizeof text - n, ".%06lluZ", us);
	return json_string(text);
}

json_t *
pm_json_known32(uint32_t n)
{
	return n == UINT32_MAX ? json_null() : json_integer(n);
}

json_t *
pm_json_nonzero(uint64_t n)
{
	return n ? json_integer((json_int_t)n) : json_null();
}

json_t *
pm_json_integer_if(bool known, uint64_t n)
{
	return known ? json_integer((json_int_t)n) : json_null();
}

json_t *
pm_json_seconds(mono_ns from, mono_ns to)
{
	return from == 0 ? json_null() : json_real((double)(to > from ? to - from : 0) / 1e9);
}

json_t *
pm_json_text(const char *p, size_t cap)
{
	json_t *s = json_stringn(p, strnlen(p, cap));

	return s ? s : json_string("?");
}

json_t *
pm_json_text_or_null(const char *p, size_t cap)
{
	return *p ? pm_json_text(p, cap) : json_null();
}

json_t *
pm_json_member(const struct rows *rows, uint16_t row, uint32_t row_gen)
{
	if (!rows || !rows->head || row >= rows->capacity || rows->text[row].member[0] == '\0' ||
	    atomic_load_explicit(&rows->row[row].row_gen, memory_order_acquire) != row_gen)
		return json_null();
	return pm_json_text(rows->text[row].member, sizeof rows->text[row].member);
}

json_t *
pm_json_member_then(const struct rows *rows, uint16_t row, uint32_t row_gen)
{
	char name[ROW_NAME_MAX];

	if (!rows || !rows->head || row >= rows->capacity ||
	    !rows_member_read(rows, row, row_gen, name) || name[0] == '\0')
		return json_null();
	return pm_json_text(name, sizeof name);
}

bool
pm_hex_read(const char *text, size_t len, uint64_t *ret)
{
	uint64_t n = 0;

	if (!text || len != 16)
		return false;
	for (unsigned i = 0; i < 16; i++) {
		unsigned char c = (unsigned char)text[i];

		if (!isxdigit(c))
			return false;
		n = n << 4 | (uint64_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
	}
	*ret = n;
	return true;
}

const char *
pm_text_at(const json_t *object, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s && *s ? s : otherwise;
}

long long
pm_integer_at(const json_t *object, const char *key)
{
	return (long long)json_integer_value(json_object_get(object, key));
}
