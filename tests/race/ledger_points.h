/* tests/race/ledger_points.h -- forced into the sources of race_ledger: a call before each store
 * of a cell or watermark, and before each load of one. */
#pragma once

void points_store(void);
void points_load(void);

#define LATCH_STORE_POINT()  points_store()
#define LATCH_LOAD_POINT()   points_load()
#define COLUMN_STORE_POINT() points_store()
#define COLUMN_LOAD_POINT()  points_load()
