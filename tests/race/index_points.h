/* tests/race/index_points.h -- forced into shm/index*.c of race_index_points: a call before each
 * store a reader can see, and between the loads of a reader. */
#pragma once

void points_store(void);
void points_load(void);

#define INDEX_STORE_POINT() points_store()
#define INDEX_LOAD_POINT()  points_load()
#define LOAD_STORE_POINT()  points_store()
