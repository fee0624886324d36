/* actors/common/prompt/added.c -- a trie, and a quick way to the bytes that can begin a token. */
#include "actors/common/prompt/added.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/unicode.h"

#define MANY 5u

void
added_open(struct added *a, const struct tokenizer_node *nodes, const struct tokenizer_edge *edges,
	   const struct tokenizer_added_token *tokens, uint32_t root)
{
	*a = (struct added){.nodes = nodes, .edges = edges, .tokens = tokens, .root = root};
	for (unsigned i = 0; i < 256; i++)
		a->first_node[i] = TOKENIZER_NONE;
	if (root == TOKENIZER_NONE)
		return;
	const struct tokenizer_edge *e = edges + nodes[root].edge;

	for (uint32_t i = 0; i < nodes[root].n_edges; i++) {
		a->first_node[e[i].byte & 0xff] = e[i].node;
		if (a->n_first < 4)
			a->first[a->n_first] = (uint8_t)e[i].byte;
		if (a->n_first < MANY)
			a->n_first++;
	}
}

/* The next place in [from, before) whose byte begins a token, or before. */
static size_t
next_first(const struct added *a, const char *p, size_t from, size_t before)
{
#ifdef __SSE2__
	if (a->n_first < MANY && a->n_first > 0) {
		__m128i b[4];

		for (unsigned i = 0; i < 4; i++)
			b[i] = _mm_set1_epi8((char)a->first[i < a->n_first ? i : 0]);
		for (; before - from >= 16; from += 16) {
			__m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + from));
			__m128i hit = _mm_or_si128(
				_mm_or_si128(_mm_cmpeq_epi8(v, b[0]), _mm_cmpeq_epi8(v, b[1])),
				_mm_or_si128(_mm_cmpeq_epi8(v, b[2]), _mm_cmpeq_epi8(v, b[3])));
			unsigned mask = (unsigned)_mm_movemask_epi8(hit);

			if (mask)
				return from + (unsigned)__builtin_ctz(mask);
		}
	}
#endif
	while (from < before && a->first_node[(uint8_t)p[from]] == TOKENIZER_NONE)
		from++;
	return from;
}

/* The longest token that begins at p[at]: its length, 0 for none. */
static size_t
longest(const struct added *a, struct slice text, size_t at, uint32_t *ret_added)
{
	uint32_t node = a->first_node[(uint8_t)text.p[at]];
	size_t len = 0;

	for (size_t i = at + 1; node != TOKENIZER_NONE; i++) {
		const struct tokenizer_node *n = &a->nodes[node];
		const struct tokenizer_edge *e = a->edges + n->edge;
		uint32_t low = 0, high = n->n_edges;

		if (n->added != TOKENIZER_NONE) {
			len = i - at;
			*ret_added = n->added;
		}
		node = TOKENIZER_NONE;
		if (i == text.len)
			break;
		while (low < high) {
			uint32_t mid = low + (high - low) / 2;

			if (e[mid].byte < (uint8_t)text.p[i])
				low = mid + 1;
			else
				high = mid;
		}
		if (low < n->n_edges && e[low].byte == (uint8_t)text.p[i])
			node = e[low].node;
	}
	return len;
}

static size_t
character_before(const char *p, size_t at)
{
	do
		at--;
	while (at > 0 && ((uint8_t)p[at] & 0xc0) == 0x80);
	return at;
}

static bool
is_word(struct slice text, size_t at)
{
	const struct unicode_property *w = unicode_property(SLICE_LIT("w"));
	unsigned len;
	uint32_t c = unicode_at(text.p + at, text.len - at, &len);

	/* Rust's \w has the two joiners besides. */
	return c == 0x200c || c == 0x200d || (w && unicode_in(w->range, w->n, c));
}

static bool
is_blank(struct slice text, size_t at, unsigned *ret_len)
{
	return unicode_class(unicode_at(text.p + at, text.len - at, ret_len)) & UNICODE_SPACE;
}

static bool
stands_alone(struct slice text, size_t start, size_t end)
{
	return !(start > 0 && is_word(text, character_before(text.p, start))) &&
	       !(end < text.len && is_word(text, end));
}

bool
added_next(const struct added *a, struct slice text, size_t floor, size_t from, size_t before,
	   struct added_match *ret)
{
	if (a->root == TOKENIZER_NONE)
		return false;
	if (before > text.len)
		before = text.len;
	while ((from = next_first(a, text.p, from, before)) < before) {
		uint32_t which = 0;
		size_t len = longest(a, text, from, &which);

		if (len == 0) {
			from++;
			continue;
		}
		const struct tokenizer_added_token *token = &a->tokens[which];
		size_t start = from, end = from + len;
		unsigned n;

		if ((token->flags & ADDED_SINGLE_WORD) && !stands_alone(text, start, end)) {
			from = end;
			continue;
		}
		if (token->flags & ADDED_LSTRIP)
			while (start > floor) {
				size_t c = character_before(text.p, start);

				if (c < floor || !is_blank(text, c, &n))
					break;
				start = c;
			}
		if (token->flags & ADDED_RSTRIP)
			while (end < text.len && is_blank(text, end, &n))
				end += n;
		*ret = (struct added_match){start, end, token};
		return true;
	}
	return false;
}
