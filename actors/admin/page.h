/* actors/admin/page.h -- the Prometheus page (text format 0.0.4).
 *
 * Meaning    Every row of counters.def as pointsman_<name>[_total]{process,index}, summed over all
 *            processes that sat there; and what the worker table, the roster and the index say.  A
 *            value that is unknown is left out, never 0.
 * Threads    the one that owns the view.   Cost  some 100 us and 6 KB a worker, and
 *            the journals once: 0.3 ms for 6,400 requests.
 */
#pragma once
#include <stdio.h>

#include "actors/common/view.h"

void page_print(FILE *to, const struct pm_view *view);
