/* actors/common/prompt/bpe_heap.c -- merging many symbols at once: n log n, whatever they are. */
#include <stdlib.h>

#include "actors/common/prompt/bpe.h"
#include "actors/common/prompt/tokenizer.h"

#define TURNS 4096u                     /* then look whether it is stopped */

static bool
many_room(struct bpe_work *w, size_t n)
{
	size_t heap = 3 * n + 16;        /* a pair for each symbol, and two more for each merge */

	if (n > w->cap) {
		free(w->next);
		free(w->prev);
		w->next = malloc(n * sizeof(*w->next));
		w->prev = malloc(n * sizeof(*w->prev));
		w->cap = w->next && w->prev ? n : 0;
	}
	if (heap > w->heap_cap) {
		free(w->heap);
		w->heap = malloc(heap * sizeof(*w->heap));
		w->heap_cap = w->heap ? heap : 0;
	}
	return n <= w->cap && heap <= w->heap_cap;
}

/* Four children each: half the levels, and a level is one line. */
static void
heap_down(uint64_t *heap, size_t n, size_t i)
{
	uint64_t v = heap[i];

	for (;;) {
		size_t c = 4 * i + 1;

		if (c >= n)
			break;
		size_t end = c + 4 < n ? c + 4 : n, least = c;

		for (size_t k = c + 1; k < end; k++)
			if (heap[k] < heap[least])
				least = k;
		if (heap[least] >= v)
			break;
		heap[i] = heap[least];
		i = least;
	}
	heap[i] = v;
}

static void
heap_add(uint64_t *heap, size_t *n, uint64_t v)
{
	size_t i = (*n)++;

	while (i > 0) {
		size_t up = (i - 1) / 4;

		if (heap[up] <= v)
			break;
		heap[i] = heap[up];
		i = up;
	}
	heap[i] = v;
}

/* Each pair is in the heap as rank << 32 | place; one that is no more is recognised when it comes
 * up: the pair at its place has another rank. */
size_t
bpe_merge_heap(const struct bpe_tables *t, struct bpe_work *w, uint32_t *symbol, size_t n,
	       size_t stop)
{
	size_t n_heap = 0, alive = n;

	if (n >= UINT32_MAX || !many_room(w, n))
		return SIZE_MAX;
	uint64_t *heap = w->heap;
	uint32_t *next = w->next, *prev = w->prev;

	for (size_t i = 0; i < n; i++) {
		next[i] = (uint32_t)i + 1;
		prev[i] = (uint32_t)i - 1;
		if (i + 1 < n) {
			const struct tokenizer_merge *m = bpe_pair(t, symbol[i], symbol[i + 1]);

			if (m)
				heap[n_heap++] = (uint64_t)m->rank << 32 | i;
		}
	}
	for (size_t i = n_heap / 4 + 1; i-- > 0; )
		if (i < n_heap)
			heap_down(heap, n_heap, i);
	for (size_t turns = 1; n_heap > 0 && alive > stop; turns++) {
		uint64_t top = heap[0];
		size_t i = (uint32_t)top;

		if (turns % TURNS == 0 && bpe_stopped(w))
			return SIZE_MAX;
		heap[0] = heap[--n_heap];
		if (n_heap)
			heap_down(heap, n_heap, 0);
		if (symbol[i] == TOKENIZER_NONE || next[i] >= n)
			continue;
		size_t j = next[i], k = next[j];
		const struct tokenizer_merge *m = bpe_pair(t, symbol[i], symbol[j]);

		if (!m || m->rank != top >> 32)
			continue;
		symbol[i] = m->id;
		symbol[j] = TOKENIZER_NONE;
		next[i] = (uint32_t)k;
		alive--;
		if (k < n) {
			prev[k] = (uint32_t)i;
			m = bpe_pair(t, symbol[i], symbol[k]);
			if (m)
				heap_add(heap, &n_heap, (uint64_t)m->rank << 32 | i);
		}
		if (i > 0) {
			m = bpe_pair(t, symbol[prev[i]], symbol[i]);
			if (m)
				heap_add(heap, &n_heap, (uint64_t)m->rank << 32 | prev[i]);
		}
	}
	size_t at = 0;

	for (size_t i = 0; i < n; i = next[i])
		symbol[at++] = symbol[i];
	return at;
}
