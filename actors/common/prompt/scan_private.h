/* actors/common/prompt/scan_private.h -- what the scanners share: runs of one class of characters.
 *
 * Reading    bytes at [i, len) of text only; 16 at a time where so many are left.
 */
#pragma once
#include "actors/common/prompt/scan.h"
#include "actors/common/prompt/unicode.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

size_t scan_gpt2(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_llama3(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_qwen2(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_qwen35(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_seed(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_o200k(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_tekken(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_kimi(struct scan_run *run, uint32_t *ret_len, size_t max);
size_t scan_deepseek(struct scan_run *run, uint32_t *ret_len, size_t max);
	/* As scan_pieces. */

int scan_pcre2_begin(struct scan_run *run);
ssize_t scan_pcre2_pieces(struct scan_run *run, uint32_t *ret_len, size_t max);
int scan_pcre2_match(struct scan_run *run, size_t *ret_begin, size_t *ret_end);
void scan_pcre2_run_free(struct scan_run *run);
void scan_pcre2_close(struct scan_pcre2 **pcre2);

#define SCAN_INLINE static inline __attribute__((always_inline))

struct scan_text {
	const char *p;
	size_t len;
};

/* Class and length of the character at i < len. */
SCAN_INLINE unsigned
scan_class(struct scan_text t, size_t i, unsigned *ret_n)
{
	uint8_t b = (uint8_t)t.p[i];

	if (b < 0x80) {
		*ret_n = 1;
		return unicode_bits[b];
	}
	return unicode_class(unicode_at(t.p + i, t.len - i, ret_n));
}

/* Behind the ASCII letters that begin at i. */
SCAN_INLINE size_t
scan_ascii_letters(struct scan_text t, size_t i)
{
#ifdef __SSE2__
	const __m128i lower = _mm_set1_epi8(0x20), a = _mm_set1_epi8((char)(0x80 - 'a')),
		      z = _mm_set1_epi8((char)(0x80 + 26));

	while (i + 16 <= t.len) {
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(t.p + i));
		__m128i in = _mm_cmplt_epi8(_mm_add_epi8(_mm_or_si128(b, lower), a), z);
		unsigned out = (unsigned)_mm_movemask_epi8(in) ^ 0xffffu;

		if (out)
			return i + (unsigned)__builtin_ctz(out);
		i += 16;
	}
#endif
	while (i < t.len && (uint8_t)((t.p[i] | 0x20) - 'a') < 26)
		i++;
	return i;
}

/* Behind the characters of any of these classes, letters among them, that begin at i. */
SCAN_INLINE size_t
scan_letters(struct scan_text t, size_t i, unsigned any)
{
	for (;;) {
		unsigned n;

		i = scan_ascii_letters(t, i);
		if (i >= t.len || (uint8_t)t.p[i] < 0x80)
			return i;
		do {
			if (!(scan_class(t, i, &n) & any))
				return i;
			i += n;
		} while (i < t.len && (uint8_t)t.p[i] >= 0x80);
	}
}

/* Behind the characters of none of these classes. */
SCAN_INLINE size_t
scan_others(struct scan_text t, size_t i, unsigned none)
{
	unsigned n;

	while (i < t.len && !(scan_class(t, i, &n) & none))
		i += n;
	return i;
}

/* Behind [\r\n]*, or [\r\n/]*. */
SCAN_INLINE size_t
scan_newlines(struct scan_text t, size_t i, bool slash)
{
	while (i < t.len && (t.p[i] == '\n' || t.p[i] == '\r' || (slash && t.p[i] == '/')))
		i++;
	return i;
}

/* Behind \p{N}{1,most}; the first, of n bytes, is one. */
SCAN_INLINE size_t
scan_numbers(struct scan_text t, size_t i, unsigned n, unsigned most)
{
	for (unsigned k = 1; k < most; k++) {
		i += n;
		if (i >= t.len || !(scan_class(t, i, &n) & UNICODE_NUMBER))
			return i;
	}
	return i + n;
}

/* \s*[\r\n]+ (if newlines) | \s+(?!\S) | \s+ where white space begins at i. */
SCAN_INLINE size_t
scan_spaces(struct scan_text t, size_t i, bool newlines)
{
	size_t last = i, newline = 0, k = i;
	unsigned n;

	while (k < t.len && (scan_class(t, k, &n) & UNICODE_SPACE)) {
		last = k;
		k += n;
		if (t.p[last] == '\n' || t.p[last] == '\r')
			newline = k;
	}
	if (newlines && newline)
		return newline;
	return k == t.len || last == i ? k : last;
}

/* Length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at i, 0: it is not there.  Case is only ignored where
 * `fold`. */
SCAN_INLINE size_t
scan_contraction(struct scan_text t, size_t i, bool fold)
{
	size_t left = t.len - i;
	uint8_t a, b, bit = fold ? 0x20 : 0;

	if (left < 2 || t.p[i] != '\'')
		return 0;
	a = (uint8_t)t.p[i + 1] | bit;
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return 2;
	if (left < 3)
		return 0;
	b = (uint8_t)t.p[i + 2];
	if (fold && (uint8_t)t.p[i + 1] == 0xc5 && b == 0xbf)   /* long s */
		return 3;
	b |= bit;
	return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* A scanner is its piece(), again and again. */
#define SCAN_PIECES(name, piece)                                                                   \
	size_t name(struct scan_run *run, uint32_t *ret_len, size_t max)                           \
	{                                                                                          \
		struct scan_text t = {run->text, run->len};                                        \
		size_t i = run->off, n = 0;                                                        \
                                                                                                   \
		while (n < max && i < t.len) {                                                     \
			size_t end = piece;                                                        \
                                                                                                   \
			ret_len[n++] = (uint32_t)(end - i);                                        \
			i = end;                                                                   \
		}                                                                                  \
		run->off = i;                                                                      \
		return n;                                                                          \
	}
