/* actors/common/prompt/scan_cases.c -- scanners that part words where case changes; see scan.h.
 *
 *	P?X*Y+(?i:'s|'t|'re|'ve|'m|'ll|'d)?     P  [^\r\n\p{L}\p{N}]
 *	P?X+Y*(?i:'s|'t|'re|'ve|'m|'ll|'d)?     X  upper and title case, letters of no case, marks
 *	\p{N}{1,3}                              Y  lower case, letters of no case, marks
 *	 ?[^\s\p{L}\p{N}]+[\r\n/]*
 *	\s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * Tekken's takes digits one by one and no 's; Kimi's begins with [\p{Han}]+, has no Han in X and Y
 * and no slash.
 */
#include "actors/common/prompt/scan_private.h"

#define BOTH (UNICODE_OTHER | UNICODE_MARK)

struct cases {
	bool contractions, han, slash;
	unsigned digits;
};

/* Class for X and Y: none for what is in neither. */
SCAN_INLINE unsigned
case_of(struct scan_text t, size_t i, unsigned *ret_n, bool han)
{
	unsigned c = scan_class(t, i, ret_n);

	return han && (c & UNICODE_HAN) ? 0 : c & (UNICODE_UPPER | UNICODE_LOWER | BOTH);
}

/* Behind X*Y+ at i; where there is none, behind X+ if `any_case`; else i. */
SCAN_INLINE size_t
word_end(struct scan_text t, size_t i, bool any_case, bool han)
{
	size_t k = i, both = i;         /* both: behind the last that is X and Y */
	unsigned n, c = 0;

	while (k < t.len) {
		if ((uint8_t)(t.p[k] - 'A') < 26) {
			k++;
			continue;
		}
		c = case_of(t, k, &n, han);
		if (!(c & (UNICODE_UPPER | BOTH)))
			break;
		k += n;
		if (c & BOTH)
			both = k;
	}
	if (k < t.len && (c & UNICODE_LOWER)) {
		for (;;) {
#ifdef __SSE2__
			const __m128i a = _mm_set1_epi8((char)(0x80 - 'a')),
				      z = _mm_set1_epi8((char)(0x80 + 26));

			while (k + 16 <= t.len) {
				__m128i b =
					_mm_loadu_si128((const __m128i *)(const void *)(t.p + k));
				__m128i in = _mm_cmplt_epi8(_mm_add_epi8(b, a), z);
				unsigned out = (unsigned)_mm_movemask_epi8(in) ^ 0xffffu;

				k += out ? (unsigned)__builtin_ctz(out) : 16;
				if (out)
					break;
			}
#endif
			while (k < t.len && (uint8_t)(t.p[k] - 'a') < 26)
				k++;
			if (k == t.len || (uint8_t)t.p[k] < 0x80 ||
			    !(case_of(t, k, &n, han) & (UNICODE_LOWER | BOTH)))
				return k;
			k += n;
		}
	}
	return both > i ? both : any_case ? k : i;
}

SCAN_INLINE size_t
suffix_end(struct scan_text t, size_t i, const struct cases how)
{
	return how.contractions && i < t.len && t.p[i] == '\'' ? i + scan_contraction(t, i, true)
							       : i;
}

SCAN_INLINE size_t
case_piece(struct scan_text t, size_t i, const struct cases how)
{
	const unsigned known = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE;
	unsigned n, m, c = scan_class(t, i, &n);
	size_t k, end;

	if (how.han && (c & UNICODE_HAN)) {
		for (k = i + n; k < t.len && (scan_class(t, k, &n) & UNICODE_HAN);)
			k += n;
		return k;
	}
	if (c & UNICODE_LETTER)
		return suffix_end(t, word_end(t, i, true, how.han), how);
	if (c & UNICODE_NUMBER)
		return scan_numbers(t, i, n, how.digits);
	k = i + n;
	if (t.p[i] != '\n' && t.p[i] != '\r') {
		/* A mark may be the P of a word; else it is one itself. */
		end = word_end(t, k, !(c & UNICODE_MARK), how.han);
		if (end > k || (c & UNICODE_MARK))
			return suffix_end(t, end, how);
		if (t.p[i] == ' ' && k < t.len && !(scan_class(t, k, &m) & known))
			c = 0;                  /* belongs to what follows */
	}
	if (c & UNICODE_SPACE)
		return scan_spaces(t, i, true);
	return scan_newlines(t, scan_others(t, k, known), how.slash);
}

SCAN_PIECES(scan_o200k,
	    case_piece(t, i, ((struct cases){.contractions = true, .slash = true, .digits = 3})))
SCAN_PIECES(scan_tekken, case_piece(t, i, ((struct cases){.slash = true, .digits = 1})))
SCAN_PIECES(scan_kimi,
	    case_piece(t, i, ((struct cases){.contractions = true, .han = true, .digits = 3})))
