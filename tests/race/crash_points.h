/* tests/race/crash_points.h -- forced into the sources of race_latch, race_journal, race_pins
 * and race_limit: a call before each store of the writer. */
#pragma once

void points_store(void);

#define LATCH_STORE_POINT()   points_store()
#define LATCH_LOAD_POINT()    ((void)0)
#define JOURNAL_STORE_POINT() points_store()
#define PINS_STORE_POINT()    points_store()
#define LIMIT_STORE_POINT()   points_store()
