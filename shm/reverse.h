/* shm/reverse.h -- engine hash -> our chained hash, one table per exact slot, private to kvevents.
 *
 * Engines store duplicates and remove one of them, so an entry carries a count (12 bits, saturating
 * upwards at 4,095: then it only goes with its slot).  Open addressing, grown by copy inside a batch at
 * load 0.60; dropped whole with its slot, so damage never leaves the row.  Not shared; one thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reverse;

int reverse_new(struct reverse **ret, size_t expected);                 /* 0 or -ENOMEM */
void reverse_free(struct reverse **ret);
int reverse_add(struct reverse *r, uint64_t engine_hash, uint64_t chain, unsigned *ret_count);
	/* Count + 1.  0; -ENOMEM; -EEXIST: known with another chain (the newer stands, *ret_count = 1). */
uint64_t reverse_find(const struct reverse *r, uint64_t engine_hash);   /* chain, 0: unknown */
uint64_t reverse_drop(struct reverse *r, uint64_t engine_hash, unsigned *ret_count);
	/* Count - 1; the chain it named (0: unknown); *ret_count what is left. */
size_t reverse_size(const struct reverse *r);
typedef void reverse_f(void *arg, uint64_t engine_hash_low, uint64_t chain);
void reverse_walk(const struct reverse *r, reverse_f *f, void *arg);
