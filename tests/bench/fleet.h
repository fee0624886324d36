/* tests/bench/fleet.h -- a fleet in shared memory, as a policy process finds it.
 *
 * Rows that are up and were read just now, an empty prefix index, columns of in-flight cells; and
 * its view of them. */
#pragma once
#include "actors/policy/gather.h"

#define FLEET_COLUMNS 8u
#define FLEET_POLICY  9u                /* incarnation of the policy process */
#define FLEET_ROW_GEN 1u
#define FLEET_BLOCK   16u               /* tokens */

struct fleet {
	struct manifest *manifest;      /* owned */
	struct column column[FLEET_COLUMNS];
	unsigned n_columns;
	struct view view;
	struct gather *gather;
};

void fleet_make(struct fleet *ret, struct manifest *manifest, unsigned columns);
	/* Takes the manifest: every member has a row, in its order.  Ends the program where it
	 * cannot. */
void fleet_free(struct fleet *fleet);
