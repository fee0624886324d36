/* shm/latch.h -- a group of 32-bit words that one process writes and many read, never torn.
 *
 *      u64 word = tag 32 | n 32        copy 0: words[0..k-1]        copy 1: words[k..2k-1]
 *
 * Copy `n & 1` stands.  The writer fills the other copy, then publishes n + 1.  A writer killed
 * at any store leaves the last whole copy.  An index *bit* instead of a counter was torn in 4 %
 * of reads.  The tag travels with the publication (a cell's row generation).
 *
 * Writers    one.   Readers  any number, never wait: at most 4 tries, then the fields are taken as
 *            last read (single words, so each is plausible) and `torn` is told.
 * Order      L0 release fence before the first store into a copy (arm64 accepts torn pairs
 *            without), L1 release-store of the word; A1 acquire-load of the word, A2 acquire fence
 *            before the second load of it.
 * Crash      the writer stops before a store: of a word into the copy: the standing copy is whole,
 *            readers have the old group; of the word (L1): the same, the new group is lost; after
 *            it: readers have the new one.  The next writer goes on from n, whoever it is: nobody
 *            repairs (race_latch stops two writers in turn before each of their stores).
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LATCH_TRIES 4

#ifndef LATCH_STORE_POINT
#define LATCH_STORE_POINT() ((void)0)   /* before each store: tests stop the writer there */
#define LATCH_LOAD_POINT()  ((void)0)   /* before each load: tests interrupt the reader there */
#endif

static inline void
latch_write(_Atomic uint64_t *word, uint32_t tag, _Atomic uint32_t *copies, unsigned words,
	    const uint32_t *src)
{
	uint32_t n = (uint32_t)atomic_load_explicit(word, memory_order_relaxed) + 1;
	_Atomic uint32_t *to = copies + (n & 1) * words;

	atomic_thread_fence(memory_order_release);                              /* L0 */
	for (unsigned i = 0; i < words; i++) {
		LATCH_STORE_POINT();
		atomic_store_explicit(&to[i], src[i], memory_order_relaxed);
	}
	LATCH_STORE_POINT();
	atomic_store_explicit(word, (uint64_t)tag << 32 | n, memory_order_release); /* L1 */
}

/* Returns false when torn.  ret_tag may be NULL. */
static inline bool
latch_read(const _Atomic uint64_t *word, uint32_t *ret_tag, const _Atomic uint32_t *copies,
	   unsigned words, uint32_t *ret)
{
	for (unsigned t = 0;; t++) {
		uint64_t w = atomic_load_explicit(word, memory_order_acquire);      /* A1 */
		const _Atomic uint32_t *from = copies + ((uint32_t)w & 1) * words;

#pragma GCC unroll 16
		for (unsigned i = 0; i < words; i++) {
			LATCH_LOAD_POINT();
			ret[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
		}
		if (ret_tag)
			*ret_tag = (uint32_t)(w >> 32);
		atomic_thread_fence(memory_order_acquire);                          /* A2 */
		LATCH_LOAD_POINT();
		if (atomic_load_explicit(word, memory_order_relaxed) == w)
			return true;
		if (t + 1 == LATCH_TRIES)
			return false;
	}
}
