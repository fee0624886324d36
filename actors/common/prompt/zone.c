/* actors/common/prompt/zone.c -- see zone.h. */
#include "actors/common/prompt/zone.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ZONE_AHEAD_S (15 * 366ll * 86400)       /* this far ahead transitions must be known */

/* One data block of a TZif file. */
struct block {
	uint32_t isut, isstd, leap, times, types, chars;
	size_t time_bytes;              /* 4 or 8 */
	const uint8_t *time, *index, *type, *end;
};

static uint64_t
big_endian(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *p++;
	return v;
}

static bool
block_read(const uint8_t *p, const uint8_t *end, size_t time_bytes, struct block *ret)
{
	struct block b = {.time_bytes = time_bytes};
	uint64_t need;

	if (end - p < 44 || memcmp(p, "TZif", 4) != 0)
		return false;
	b.isut = (uint32_t)big_endian(p + 20, 4);
	b.isstd = (uint32_t)big_endian(p + 24, 4);
	b.leap = (uint32_t)big_endian(p + 28, 4);
	b.times = (uint32_t)big_endian(p + 32, 4);
	b.types = (uint32_t)big_endian(p + 36, 4);
	b.chars = (uint32_t)big_endian(p + 40, 4);
	need = (uint64_t)b.times * (time_bytes + 1) + (uint64_t)b.types * 6 + b.chars +
	       (uint64_t)b.leap * (time_bytes + 4) + b.isstd + b.isut;
	if (need > (uint64_t)(end - p - 44) || b.types == 0 || b.types > 256)
		return false;
	b.time = p + 44;
	b.index = b.time + b.times * time_bytes;
	b.type = b.index + b.times;
	b.end = p + 44 + need;
	*ret = b;
	return true;
}

static bool
push(struct bump *bump, struct value_items *list, const struct block *b, int64_t from, uint8_t type)
{
	const uint8_t *t = b->type + type * 6u;
	struct value *entry = bump_take(bump, 2 * sizeof entry[0]);

	if (!entry)
		return false;
	entry[0] = value_int(from);
	entry[1] = value_int((int32_t)(uint32_t)big_endian(t, 4));
	return value_push(bump, list, value_list(entry, 2));
}

int
zone_read(struct slice file, int64_t from, struct bump *bump, struct value *ret, char *why,
	  size_t why_len)
{
	const uint8_t *p = (const uint8_t *)file.p, *end = p + file.len;
	struct value_items list = {0};
	int64_t last = INT64_MIN;
	uint8_t type = 0;
	struct block b;
	bool rules;

	snprintf(why, why_len, "no time zone file");
	if (!block_read(p, end, 4, &b))
		return -EINVAL;
	if (p[4] >= '2' && !block_read(b.end, end, 8, &b))
		return -EINVAL;
	rules = b.time_bytes == 8 && memchr(b.end, ',', (size_t)(end - b.end));
	for (uint32_t i = 0; i < b.times; i++) {
		uint64_t raw = big_endian(b.time + i * b.time_bytes, b.time_bytes);
		int64_t at = b.time_bytes == 8 ? (int64_t)raw : (int32_t)(uint32_t)raw;

		if (b.index[i] >= b.types || at < last)
			return -EINVAL;
		if (at > from && !push(bump, &list, &b, list.n ? last : 0, type))
			return -ENOMEM;
		type = b.index[i];
		last = at;
	}
	if (rules && last < from + ZONE_AHEAD_S) {
		snprintf(why, why_len, "the file has rules, no transitions, for the time to come");
		return -ENOTSUP;
	}
	if (!push(bump, &list, &b, list.n ? last : 0, type))
		return -ENOMEM;
	*ret = value_list_of(&list);
	why[0] = '\0';
	return 0;
}

int
zone_open(struct value list, struct bump *bump, struct zone *ret)
{
	struct zone_span *span;

	if (list.kind != VALUE_LIST || list.n == 0)
		return -EBADMSG;
	span = bump_take(bump, list.n * sizeof span[0]);
	if (!span)
		return -ENOMEM;
	for (uint32_t i = 0; i < list.n; i++) {
		struct value e = list.items[i];

		if (e.kind != VALUE_LIST || e.n != 2 || e.items[0].kind != VALUE_INT ||
		    e.items[1].kind != VALUE_INT || e.items[1].i < -90000 || e.items[1].i > 90000)
			return -EBADMSG;
		span[i].from_s = e.items[0].i;
		span[i].offset_s = (int32_t)e.items[1].i;
	}
	*ret = (struct zone){.span = span, .n = list.n};
	return 0;
}

void
zone_set(const struct zone *zone, struct jinja_options *options)
{
	uint32_t i = zone->n - 1;

	while (i > 0 && options->now_s < zone->span[i].from_s)
		i--;
	options->utc_offset_s = zone->span[i].offset_s;
}
