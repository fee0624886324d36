/* shm/reverse.h -- engine hash -> our chained hash, one table per exact slot, private to kvevents.
 *
 *      entry 16    key 52 | count 12      chain u64
 *
 * key = low 52 bits of XXH3_64(engine hash), never 0; home = key * capacity >> 52, linear probing,
 * backward shift on deletion.  The home comes from the stored key alone, so a table grows by copy
 * without knowing the hashes again and no displacement is kept.  An unknown hash is taken for a
 * known one in size / 2^52 of the questions.
 *
 * Engines store duplicates and remove one of them, so an entry carries a count (12 bits; copies
 * beyond 4,095 are not counted, so it may end early and is never believed too long).  Grown by copy
 * inside a batch at load 0.60; dropped whole with its slot, so damage never leaves the row.  Not
 * shared; one thread.  Cache groups: the caller folds the group into engine_hash.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reverse;

int reverse_new(struct reverse **ret, size_t expected, size_t most);    /* 0 or -ENOMEM */
	/* expected: blocks the engine says it has; a hint, clamped (strangers' numbers allocate
	 * nothing).  most: entries it may ever have (an engine that only stores has no end). */
void reverse_free(struct reverse **ret);
int reverse_add(struct reverse *r, uint64_t engine_hash, uint64_t chain, unsigned *ret_count);
	/* Count + 1.  0; -ENOMEM, also when it is full; -EEXIST: known with another chain (the
	 * newer stands, *ret_count = 1). chain is not 0.  ret_count may be NULL.  ~30 ns; growth
	 * copies. */
uint64_t reverse_find(const struct reverse *r, uint64_t engine_hash);   /* chain, 0: unknown */
uint64_t reverse_drop(struct reverse *r, uint64_t engine_hash, unsigned *ret_count);
	/* Count - 1; the chain it named (0: unknown); *ret_count what is left (may be NULL). */
void reverse_prefetch(const struct reverse *r, uint64_t engine_hash);
size_t reverse_size(const struct reverse *r);                           /* entries, not counts */
size_t reverse_bytes(const struct reverse *r);                          /* memory it has */
size_t reverse_growth(const struct reverse *r);
	/* Bytes it would allot to take one more unknown hash (its old ones are freed then); 0:
	 * none. */
typedef void reverse_f(void *arg, uint64_t key, uint64_t chain);
void reverse_walk(const struct reverse *r, reverse_f *f, void *arg);
	/* Every entry once; key is the stored 52 bits, unique in this table.  f must not change
	 * r. */
