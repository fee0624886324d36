/* actors/common/decide/slow.h -- how much of a queue a worker that is new in service may have.
 *
 * Question   An engine that has just come up (added, restarted, woken) is empty, so all that waits
 *            elsewhere looks better off there; but its kernels are not compiled, its cache is cold,
 *            and what was learned of it, or of its peers, does not hold yet.  How much of it at
 *            once?
 * Rule       share = its time in service / spec.slowStart, at least SLOW_LEAST, at most 1.  Beside
 *            a candidate with a greater share, what is in flight on it counts (greatest share /
 *            its share) times (choose.h): a queue as long as the others' only at the end, but work
 *            at once where it has none.  A fleet that is all new is all equal.
 * Result     bit for bit the same for the same numbers.   Threads  pure: any.
 */
#pragma once
#include <stdint.h>

#include "shm/segment.h"

#define SLOW_LEAST 0.1f

static inline float
slow_share(mono_ns up_since, mono_ns now, uint64_t slow_start_ns)
	/* up_since 0: not up yet.  slow_start_ns 0: none. */
{
	float share;

	if (slow_start_ns == 0)
		return 1;
	if (up_since == 0 || now <= up_since)
		return SLOW_LEAST;
	if (now - up_since >= slow_start_ns)
		return 1;
	share = (float)((double)(now - up_since) / (double)slow_start_ns);
	return share < SLOW_LEAST ? SLOW_LEAST : share;
}

static inline float
slow_handicap(float share, float greatest)      /* greatest: of all that may be chosen */
{
	return share >= greatest ? 0 : greatest / share - 1;
}
