/* actors/common/prompt/nfc.c -- compose what came apart; see nfc.h. */
#include "actors/common/prompt/nfc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "actors/common/prompt/nfc_private.h"
#include "actors/common/prompt/unicode.h"

#define COMBINING 0xcc                  /* no byte below leads a character that NFC looks at */
#define FEW 16u                         /* marks that insertion sorts sooner than counting */

enum {                                  /* Hangul syllables: first letters and how many */
	S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7,
	L_COUNT = 19, V_COUNT = 21, T_COUNT = 28, N_COUNT = V_COUNT * T_COUNT,
	S_COUNT = L_COUNT * N_COUNT,
};

/* A letter of a run, with its combining class above it. */
#define LETTER(v) ((v) & 0xffffffu)
#define CLASS(v)  ((v) >> 24)

static unsigned
bits_of(uint32_t c)
{
	return c <= UNICODE_MAX ? nfc_bits[(uint32_t)nfc_page[c >> 7] << 7 | (c & 0x7f)] : 0;
}

/* How many bytes at p are below COMBINING. */
static size_t
plain(const char *p, size_t len)
{
	size_t i = 0;

#ifdef __SSE2__
	const __m128i least = _mm_set1_epi8((char)COMBINING);

	for (; i + 16 <= len; i += 16) {
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + i));

		if (_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(b, least), b)))
			break;
	}
#endif
	while (i < len && (uint8_t)p[i] < COMBINING)
		i++;
	return i;
}

bool
nfc_is(struct slice text)
{
	size_t i = 0;
	unsigned last = 0;

	while (i < text.len) {
		size_t skip = plain(text.p + i, text.len - i);
		unsigned n, bits;

		if (skip > 0) {
			i += skip;
			last = 0;
			continue;
		}
		bits = bits_of(unicode_at(text.p + i, text.len - i, &n));
		if (bits & (NFC_NO | NFC_MAYBE))
			return false;
		if ((bits & NFC_CCC) && last > (bits & NFC_CCC))
			return false;
		last = bits & NFC_CCC;
		i += n;
	}
	return true;
}

static int
text_room(struct nfc *n, size_t more)
{
	if (more > n->cap - n->len) {
		size_t cap = n->len + more + n->cap / 2 + 64;
		char *p = realloc(n->text, cap);

		if (!p)
			return -ENOMEM;
		n->text = p;
		n->cap = cap;
	}
	return 0;
}

static int
copy(struct nfc *n, const char *p, size_t len)
{
	if (text_room(n, len) < 0)
		return -ENOMEM;
	if (len)
		memcpy(n->text + n->len, p, len);
	n->len += len;
	return 0;
}

/* Room is there.  What was a byte and no UTF-8 is that byte again. */
static void
put(struct nfc *n, uint32_t c)
{
	char *p = n->text + n->len;

	if (c < 0x80 || c > UNICODE_MAX) {
		p[0] = (char)(c <= UNICODE_MAX ? c : c - UNICODE_MAX - 1);
		n->len += 1;
	} else if (c < 0x800) {
		p[0] = (char)(0xc0 | c >> 6);
		p[1] = (char)(0x80 | (c & 0x3f));
		n->len += 2;
	} else if (c < 0x10000) {
		p[0] = (char)(0xe0 | c >> 12);
		p[1] = (char)(0x80 | (c >> 6 & 0x3f));
		p[2] = (char)(0x80 | (c & 0x3f));
		n->len += 3;
	} else {
		p[0] = (char)(0xf0 | c >> 18);
		p[1] = (char)(0x80 | (c >> 12 & 0x3f));
		p[2] = (char)(0x80 | (c >> 6 & 0x3f));
		p[3] = (char)(0x80 | (c & 0x3f));
		n->len += 4;
	}
}

/* The letters c comes apart into. */
static unsigned
letters_of(uint32_t c, unsigned bits, uint32_t ret[4])
{
	size_t low = 0, high = nfc_n_apart;
	unsigned n = 0;

	if (!(bits & NFC_APART)) {
		ret[0] = c;
		return 1;
	}
	if (c >= S_BASE && c < S_BASE + S_COUNT) {
		uint32_t s = c - S_BASE;

		ret[n++] = L_BASE + s / N_COUNT;
		ret[n++] = V_BASE + s % N_COUNT / T_COUNT;
		if (s % T_COUNT)
			ret[n++] = T_BASE + s % T_COUNT;
		return n;
	}
	while (low + 1 < high) {
		size_t mid = low + (high - low) / 2;

		if (nfc_apart[mid].c <= c)
			low = mid;
		else
			high = mid;
	}
	for (uint32_t k = nfc_apart[low].letters; k < nfc_apart[low + 1].letters && n < 4; k++)
		ret[n++] = nfc_letters[k];
	return n;
}

/* What a and b become together; 0: they stay apart. */
static uint32_t
both_of(uint32_t a, uint32_t b)
{
	size_t low = 0, high = nfc_n_pairs;

	if (a >= L_BASE && a < L_BASE + L_COUNT && b >= V_BASE && b < V_BASE + V_COUNT)
		return S_BASE + (a - L_BASE) * N_COUNT + (b - V_BASE) * T_COUNT;
	if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % T_COUNT == 0 && b > T_BASE &&
	    b < T_BASE + T_COUNT)
		return a + (b - T_BASE);
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct nfc_pair *p = &nfc_pairs[mid];

		if (p->a < a || (p->a == a && p->b < b))
			low = mid + 1;
		else
			high = mid;
	}
	return low < nfc_n_pairs && nfc_pairs[low].a == a && nfc_pairs[low].b == b
		       ? nfc_pairs[low].both
		       : 0;
}

/* Marks by their class, those of one class as they came. */
static void
sort_marks(uint32_t *v, size_t n, uint32_t *spare)
{
	if (n <= FEW) {
		for (size_t i = 1; i < n; i++) {
			uint32_t x = v[i];
			size_t k = i;

			for (; k > 0 && CLASS(v[k - 1]) > CLASS(x); k--)
				v[k] = v[k - 1];
			v[k] = x;
		}
		return;
	}
	size_t from[256] = {0}, sum = 0;

	for (size_t i = 0; i < n; i++)
		from[CLASS(v[i])]++;
	for (unsigned k = 0; k < 256; k++) {
		size_t here = from[k];

		from[k] = sum;
		sum += here;
	}
	for (size_t i = 0; i < n; i++)
		spare[from[CLASS(v[i])]++] = v[i];
	memcpy(v, spare, n * sizeof *v);
}

static void
sort_run(uint32_t *v, size_t n, uint32_t *spare)
{
	for (size_t i = 0; i < n;) {
		size_t k = i;

		while (k < n && CLASS(v[k]))
			k++;
		if (k > i + 1)
			sort_marks(v + i, k - i, spare);
		i = k + 1;
	}
}

static size_t
compose_run(uint32_t *v, size_t n)
{
	size_t w = 0, starter = 0;
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		uint32_t x = v[i];

		if (any && (w - 1 == starter || CLASS(v[w - 1]) < CLASS(x))) {
			uint32_t both = both_of(LETTER(v[starter]), LETTER(x));

			if (both) {
				v[starter] = both;
				continue;
			}
		}
		if (!CLASS(x)) {
			starter = w;
			any = true;
		}
		v[w++] = x;
	}
	return w;
}

static int
run_room(struct nfc *n, size_t need)
{
	if (2 * need > n->run_cap) {
		size_t cap = 3 * need + 64;
		uint32_t *p = realloc(n->run, cap * sizeof *p);

		if (!p)
			return -ENOMEM;
		n->run = p;
		n->run_cap = cap;
	}
	return 0;
}

/* From a place where text begins anew to the next such place: *ret_len bytes are done. */
static int
make_run(struct nfc *n, struct slice text, size_t *ret_len)
{
	size_t len = 0, count = 0;

	while (len < text.len) {
		unsigned size, bits;
		uint32_t c = unicode_at(text.p + len, text.len - len, &size);
		uint32_t letter[4];

		bits = bits_of(c);
		if (len > 0 && !(bits & (NFC_CCC | NFC_NO | NFC_MAYBE)))
			break;
		if (run_room(n, count + 4) < 0)
			return -ENOMEM;

		unsigned k = letters_of(c, bits, letter);

		for (unsigned i = 0; i < k; i++)
			n->run[count++] = letter[i] | (bits_of(letter[i]) & NFC_CCC) << 24;
		len += size;
	}
	sort_run(n->run, count, n->run + n->run_cap / 2);
	count = compose_run(n->run, count);
	if (text_room(n, 4 * count) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		put(n, LETTER(n->run[i]));
	*ret_len = len;
	return 0;
}

int
nfc_make(struct nfc *n, struct slice text)
{
	size_t i = 0;

	n->len = 0;
	while (i < text.len) {
		size_t hold = i, k = i;         /* hold: where the last starter began */

		for (;;) {
			unsigned size;

			if (k == text.len)
				return copy(n, text.p + i, k - i);
			if (bits_of(unicode_at(text.p + k, text.len - k, &size)) &
			    (NFC_CCC | NFC_NO | NFC_MAYBE))
				break;
			hold = k;
			k += size;
		}
		if (copy(n, text.p + i, hold - i) < 0 ||
		    make_run(n, slice_of(text.p + hold, text.len - hold), &k) < 0)
			return -ENOMEM;
		i = hold + k;
	}
	return 0;
}

void
nfc_free(struct nfc *n)
{
	free(n->text);
	free(n->run);
	*n = (struct nfc){0};
}
