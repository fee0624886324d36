/* actors/common/prompt/scan_words.c -- scanners that take words as runs of letters; see scan.h.
 *
 *	(?i:'s|'t|'re|'ve|'m|'ll|'d)
 *	[^\r\n\p{L}\p{N}]?\p{L}+                Qwen 3.5: [\p{L}\p{M}]+
 *	\p{N}                                   Llama 3: \p{N}{1,3}
 *	 ?[^\s\p{L}\p{N}]+[\r\n]*               Qwen 3.5: without \p{M} too
 *	\s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * Seed's leaves line ends behind the fourth to the fifth.  GPT-2's has a space before words,
 * numbers and the rest alike, and no line ends.
 */
#include "actors/common/prompt/scan_private.h"

SCAN_INLINE size_t
word_piece(struct scan_text t, size_t i, unsigned letter, unsigned digits, bool tail)
{
	unsigned n, m, c = scan_class(t, i, &n), next;
	size_t k;

	if (c & letter)
		return scan_letters(t, i + n, letter);
	if (c & UNICODE_NUMBER)
		return scan_numbers(t, i, n, digits);
	if (t.p[i] == '\'' && (k = scan_contraction(t, i, true)) > 0)
		return i + k;
	k = i + n;
	if (k < t.len && t.p[i] != '\n' && t.p[i] != '\r') {
		next = scan_class(t, k, &m);
		if (next & letter)
			return scan_letters(t, k + m, letter);
		if (t.p[i] == ' ' && !(next & (letter | UNICODE_NUMBER | UNICODE_SPACE)))
			c = 0;                  /* belongs to what follows */
	}
	if (c & UNICODE_SPACE)
		return scan_spaces(t, i, true);
	k = scan_others(t, k, letter | UNICODE_NUMBER | UNICODE_SPACE);
	return tail ? scan_newlines(t, k, false) : k;
}

SCAN_INLINE size_t
gpt2_piece(struct scan_text t, size_t i)
{
	const unsigned known = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE;
	unsigned n, m, c = scan_class(t, i, &n);
	size_t k = i + n;

	if (t.p[i] == '\'' && (m = (unsigned)scan_contraction(t, i, false)) > 0)
		return i + m;
	if (t.p[i] == ' ' && k < t.len) {
		unsigned next = scan_class(t, k, &m);

		if (!(next & UNICODE_SPACE)) {
			c = next;
			k += m;
		}
	}
	if (c & UNICODE_LETTER)
		return scan_letters(t, k, UNICODE_LETTER);
	if (c & UNICODE_NUMBER) {
		while (k < t.len && (scan_class(t, k, &n) & UNICODE_NUMBER))
			k += n;
		return k;
	}
	if (c & UNICODE_SPACE)
		return scan_spaces(t, i, false);
	return scan_others(t, k, known);
}

SCAN_PIECES(scan_gpt2, gpt2_piece(t, i))
SCAN_PIECES(scan_llama3, word_piece(t, i, UNICODE_LETTER, 3, true))
SCAN_PIECES(scan_qwen2, word_piece(t, i, UNICODE_LETTER, 1, true))
SCAN_PIECES(scan_seed, word_piece(t, i, UNICODE_LETTER, 1, false))
SCAN_PIECES(scan_qwen35, word_piece(t, i, UNICODE_LETTER | UNICODE_MARK, 1, true))
