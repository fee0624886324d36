/* actors/ingress/deadline.h -- one time limit that moves often and fires rarely.
 *
 * Meaning    A timer that is pushed back at every byte would cost the heap two operations a byte.
 *            Here moving later costs nothing: the armed timer fires early, sees the later due
 *            time and arms itself again.
 * Ownership  embedded in its owner; deadline_stop before the owner's memory goes.
 * Threads    the loop's.
 */
#pragma once
#include "actors/ingress/io.h"

struct deadline {
	struct io *io;                  /* borrowed */
	struct io_op *op;
	uint64_t armed_ns, due_ns;      /* mono; due 0: none */
	void (*f)(void *arg);
	void *arg;
};

void deadline_init(struct deadline *d, struct io *io, void (*f)(void *arg), void *arg);
void deadline_set(struct deadline *d, uint64_t due_ns);         /* 0: no limit */
void deadline_stop(struct deadline *d);
