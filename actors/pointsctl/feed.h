/* actors/pointsctl/feed.h -- all journals of a run, each record once, as they are written.
 *
 * Meaning    feed_turn hands over what has come since the last turn, journal by journal.  Dead
 *            processes' journals are read to their end (view.h keeps them).  Being overtaken is
 *            told, in bytes.
 * Ownership  the feed borrows the view.   Threads  one.   Nothing waits.
 */
#pragma once
#include "actors/common/view.h"

struct feed_place {                     /* how far a journal has been read */
	enum process_role role;
	uint32_t incarnation;
	uint64_t position;
};
struct feed {
	struct feed_place *place;
	unsigned n, cap;
	uint64_t lost;                          /* bytes overwritten before we read them */
};

typedef void feed_f(void *arg, const struct pm_view_process *from, const void *record, size_t len);
int feed_turn(struct feed *feed, const struct pm_view *view, enum process_role role, feed_f *f,
	      void *arg);
	/* Of one role; ROLE_NONE: of all.  0, -ENOMEM. */
void feed_close(struct feed *feed);
