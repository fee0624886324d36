/* actors/common/prompt/unicode.c -- beside the tables; see unicode.h. */
#include "actors/common/prompt/unicode.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

const struct unicode_property *
unicode_property(struct slice name)
{
	for (const struct unicode_property *p = unicode_properties; p->name; p++)
		if (slice_eq_str(name, p->name))
			return p;
	return NULL;
}

bool
unicode_in(const struct unicode_range *r, size_t n, uint32_t c)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (c > r[mid].last)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && c >= r[low].first;
}

size_t
unicode_ascii(const char *p, size_t len)
{
	size_t i = 0;

#ifdef __SSE2__
	for (; i + 16 <= len; i += 16)
		if (_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + i))))
			break;
#endif
	while (i < len && (uint8_t)p[i] < 0x80)
		i++;
	return i;
}

bool
unicode_valid(struct slice text, size_t *ret_off)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t i = 0;

	while ((i += unicode_ascii(text.p + i, text.len - i)) < text.len) {
		do {
			unsigned n;
			uint32_t c = unicode_at(text.p + i, text.len - i, &n);
			bool ok = n > 1 && c >= least[n] && c <= UNICODE_MAX &&
				  (c & ~0x7ffu) != 0xd800;

			for (unsigned k = 1; k < n; k++)
				ok = ok && ((uint8_t)text.p[i + k] & 0xc0) == 0x80;
			if (!ok) {
				*ret_off = i;
				return false;
			}
			i += n;
		} while (i < text.len && (uint8_t)text.p[i] >= 0x80);
	}
	return true;
}
