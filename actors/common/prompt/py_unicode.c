/* actors/common/prompt/py_unicode.c -- see py_unicode.h. */
#include "actors/common/prompt/py_unicode.h"

unsigned
py_bits(uint32_t cp)
{
	uint32_t low = 0, high = py_class_rows;

	while (high - low > 1) {
		uint32_t mid = (low + high) / 2;

		if (py_class_table[mid].first <= cp)
			low = mid;
		else
			high = mid;
	}
	return py_class_table[low].bits;
}

static uint32_t
shift(const struct py_shift *table, uint32_t rows, uint32_t cp)
{
	uint32_t low = 0, high = rows;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (cp > table[mid].last)
			low = mid + 1;
		else if (cp < table[mid].first)
			high = mid;
		else
			return (cp - table[mid].first) % table[mid].step
				       ? cp
				       : (uint32_t)((int64_t)cp + table[mid].delta);
	}
	return cp;
}

unsigned
py_map(enum py_case to, uint32_t cp, uint32_t ret[3])
{
	static const struct {
		const struct py_shift *table;
		const uint32_t *rows;
		const struct py_special *special;
		const uint32_t *specials;
	} map[] = {
		{py_upper_table, &py_upper_rows, py_upper_special, &py_upper_specials},
		{py_lower_table, &py_lower_rows, py_lower_special, &py_lower_specials},
		{py_title_table, &py_title_rows, py_title_special, &py_title_specials},
		{py_fold_table, &py_fold_rows, py_fold_special, &py_fold_specials},
	};

	if (cp < 0x80) {
		bool up = to == PY_TO_UPPER || to == PY_TO_TITLE;

		ret[0] = up && cp >= 'a' && cp <= 'z'    ? cp - 32
			 : !up && cp >= 'A' && cp <= 'Z' ? cp + 32
							 : cp;
		return 1;
	}
	for (uint32_t i = 0; i < *map[to].specials; i++) {
		const struct py_special *s = &map[to].special[i];
		unsigned n = 0;

		if (s->from != cp)
			continue;
		while (n < 3 && s->to[n]) {
			ret[n] = s->to[n];
			n++;
		}
		return n;
	}
	ret[0] = shift(map[to].table, *map[to].rows, cp);
	return 1;
}

unsigned
py_encode(uint32_t cp, char out[4])
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

/* Marks that templates look for begin with characters that texts seldom have ("<"): memchr leaps
 * from one to the next.  Where they are not seldom memmem goes on. */
const char *
py_find(struct slice in, struct slice what)
{
	const char *p = in.p, *end = in.p + in.len;

	if (what.len == 0 || what.len > in.len)
		return what.len ? NULL : in.p;
	for (unsigned misses = 0; misses < 16; misses++) {
		p = memchr(p, what.p[0], (size_t)(end - p) - (what.len - 1));
		if (!p)
			return NULL;
		if (memcmp(p, what.p, what.len) == 0)
			return p;
		p++;
		if ((size_t)(end - p) < what.len)
			return NULL;
	}
	return memmem(p, (size_t)(end - p), what.p, what.len);
}

size_t
py_length(struct slice s)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++)
		n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
	return n;
}

size_t
py_offset(struct slice s, size_t index)
{
	size_t i = 0;

	for (; i < s.len; i++) {
		if (((unsigned char)s.p[i] & 0xc0) == 0x80)
			continue;
		if (index == 0)
			return i;
		index--;
	}
	return s.len;
}

struct slice
py_strip(struct slice s, bool left, bool right)
{
	const char *p = s.p, *end = s.p + s.len;
	unsigned n;

	while (left && p < end && py_is_space(py_decode(p, end, &n)))
		p += n;
	while (right && end > p) {
		unsigned back = py_back(p, end);

		if (!py_is_space(py_decode(end - back, end, &n)))
			break;
		end -= back;
	}
	return slice_of(p, (size_t)(end - p));
}

/* Is the character of n bytes at p one of the set? */
static bool
in_set(const char *p, unsigned n, struct slice set)
{
	return set.len && memmem(set.p, set.len, p, n) != NULL;
}

struct slice
py_strip_set(struct slice s, struct slice set, bool left, bool right)
{
	const char *p = s.p, *end = s.p + s.len;
	unsigned n;

	while (left && p < end) {
		(void)py_decode(p, end, &n);
		if (!in_set(p, n, set))
			break;
		p += n;
	}
	while (right && end > p) {
		n = py_back(p, end);
		if (!in_set(end - n, n, set))
			break;
		end -= n;
	}
	return slice_of(p, (size_t)(end - p));
}
