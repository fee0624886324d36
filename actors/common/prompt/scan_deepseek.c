/* actors/common/prompt/scan_deepseek.c -- three splits, one inside the other; see scan.h.
 *
 *	\p{N}{1,3}
 *	[U+4E00-9FA5 U+3040-30FF]+              of what is left: `wide` below
 *	and of each stretch by itself, wide ones too:
 *	[ASCII punctuation][A-Za-z]+
 *	[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
 *	 ?[\p{P}\p{S}]+[\r\n]*
 *	\s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * What matches none of them (controls, unassigned) is a piece up to what does.
 */
#include "actors/common/prompt/scan_private.h"

#define WORD  (UNICODE_LETTER | UNICODE_MARK)
#define STOP  0x100u            /* of the other kind, a number, or the end: the stretch ends here */
#define KNOWN (WORD | UNICODE_PUNCT | UNICODE_SPACE | STOP)

SCAN_INLINE bool
is_wide(uint32_t c)
{
	return (c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff);
}

/* Class and length of the character at i, as a stretch that is wide, or is not, sees it. */
SCAN_INLINE unsigned
class_in(struct scan_text t, size_t i, unsigned *ret_n, bool wide)
{
	uint32_t c;
	unsigned bits;

	*ret_n = 0;
	if (i >= t.len)
		return STOP;
	c = unicode_at(t.p + i, t.len - i, ret_n);
	if (is_wide(c) != wide)
		return STOP;
	bits = unicode_class(c);
	return bits & UNICODE_NUMBER ? STOP : bits & ~(unsigned)UNICODE_HAN;
}

SCAN_INLINE size_t
run_of(struct scan_text t, size_t i, unsigned any, bool wide)
{
	unsigned n;

	while (class_in(t, i, &n, wide) & any)
		i += n;
	return i;
}

SCAN_INLINE size_t
word_of(struct scan_text t, size_t i, bool wide)
{
	size_t k;

	if (wide)
		return run_of(t, i, WORD, true);
	do {
		k = scan_ascii_letters(t, i);
		i = k < t.len && (uint8_t)t.p[k] >= 0x80 ? run_of(t, k, WORD, false) : k;
	} while (i > k);
	return i;
}

static size_t
blanks(struct scan_text t, size_t i)
{
	size_t end = run_of(t, i, UNICODE_SPACE, false);
	unsigned n;

	if (class_in(t, end, &n, false) & STOP)
		t.len = end;
	return scan_spaces(t, i, true);
}

/* Controls and the like: up to what matches, for which the last of them may be the prefix. */
static size_t
strangers(struct scan_text t, size_t i, bool wide)
{
	size_t last = i, k = i;
	unsigned n, c;

	while (!((c = class_in(t, k, &n, wide)) & KNOWN)) {
		last = k;
		k += n;
	}
	return c & WORD ? last : k;
}

SCAN_INLINE size_t
stretch_piece(struct scan_text t, size_t i, bool wide)
{
	unsigned n, m, c = class_in(t, i, &n, wide), next;
	size_t k = i + n;

	if (c & WORD)
		return word_of(t, k, wide);
	next = class_in(t, k, &m, wide);
	if (c & UNICODE_PUNCT) {
		size_t end = (uint8_t)t.p[i] < 0x80 ? scan_ascii_letters(t, k) : k;

		if (end > k)
			return end;
	} else {
		if ((next & WORD) && t.p[i] != '\n' && t.p[i] != '\r')
			return word_of(t, k + m, wide);
		if (t.p[i] != ' ' || !(next & UNICODE_PUNCT))
			return c & UNICODE_SPACE ? blanks(t, i) : strangers(t, i, wide);
	}
	k = run_of(t, k, UNICODE_PUNCT, wide);
	return wide ? k : scan_newlines(t, k, false);
}

SCAN_INLINE size_t
deepseek_piece(struct scan_text t, size_t i)
{
	unsigned n;
	uint32_t c;

	if ((uint8_t)t.p[i] < 0x80 && !(unicode_bits[(uint8_t)t.p[i]] & UNICODE_NUMBER))
		return stretch_piece(t, i, false);
	c = unicode_at(t.p + i, t.len - i, &n);
	if (unicode_class(c) & UNICODE_NUMBER)
		return scan_numbers(t, i, n, 3);
	return is_wide(c) ? stretch_piece(t, i, true) : stretch_piece(t, i, false);
}

SCAN_PIECES(scan_deepseek, deepseek_piece(t, i))
