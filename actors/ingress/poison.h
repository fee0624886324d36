/* actors/ingress/poison.h -- bodies that made policy processes crash are refused by every ingress.
 *
 * Meaning    Each ingress writes those it met into the ring of its own column and reads the rings
 *            of all others.  An entry outlives its writer: readers keep a copy at `gone`, and the
 *            supervisor puts it into the columns of those born later.
 * Ownership  the own column is borrowed; those of others are mapped read-only, until `gone`.
 * Threads    the loop's.  Cost: one load an ingress for each request, while nothing is poisoned.
 */
#pragma once
#include "shm/cell.h"

#define POISON_NS 60000000000ull        /* so long a body is refused */

struct poisons {
	struct column *own;             /* borrowed */
	struct poisons_other {
		uint32_t incarnation;
		struct column column;   /* owned, read-only */
	} *other;                       /* owned */
	unsigned n, cap;
	struct poison_ring kept;        /* of the dead */
};

void poisons_open(struct poisons *ret, struct column *own);
void poisons_close(struct poisons *p);
int poisons_ingress(struct poisons *p, uint32_t incarnation, int fd);
	/* Another ingress's column.  Takes fd.  0, -ENOMEM, as column_attach. */
void poisons_gone(struct poisons *p, uint32_t incarnation, mono_ns now);
void poisons_add(struct poisons *p, uint64_t body_hash, mono_ns now);
bool poisons_has(const struct poisons *p, uint64_t body_hash, mono_ns now);
