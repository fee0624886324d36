/* actors/pointsctl/audit.h -- every lane of the index looked at, beside its writer.
 *
 * Meaning    A pass during which the writer changed nothing is exact.  While it works, a lane that
 *            is changed under the pass can look like a fault that it is not: a key seen where it
 *            was and where it went (duplicate), a set or a slot word read a moment apart from its
 *            key (garbage), a counter raised before its key is shown (overcounted); entries and
 *            holders are off by what moved.  So up to AUDIT_PASSES passes are made, the first exact
 *            one stands; without one the least of each count is told, and that it may be false.
 *            saturated is always true.  overcounted is no fault: a writer died, probes are longer.
 * Threads    any; one pass takes seconds per GiB, and a byte a bucket of memory.
 */
#pragma once
#include <stdbool.h>

#include "shm/index.h"

#define AUDIT_PASSES 5u

unsigned audit_passes(const struct index *index, struct index_audit *ret, bool *ret_exact);
	/* How many were made; 0: no memory. */
