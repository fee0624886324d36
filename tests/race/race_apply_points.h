/* tests/race/race_apply_points.h -- forced into shm/index*.c and actors/kvevents/apply*.c of
 * race_apply_points: a call before each store that a reader or a successor can see. */
#pragma once

void points_store(void);

#define INDEX_STORE_POINT() points_store()
#define APPLY_STORE_POINT() points_store()
