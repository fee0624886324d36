/* actors/pointsctl/feed.c -- places in journals; see feed.h. */
#include "actors/pointsctl/feed.h"

#include <errno.h>
#include <stdlib.h>

static struct feed_place *
place_of(struct feed *feed, const struct pm_view_process *p)
{
	struct feed_place *more;

	for (unsigned i = 0; i < feed->n; i++)
		if (feed->place[i].role == p->role && feed->place[i].incarnation == p->incarnation)
			return &feed->place[i];
	if (feed->n == feed->cap) {
		more = realloc(feed->place, (feed->cap + 64) * sizeof *more);
		if (!more)
			return NULL;
		feed->place = more;
		feed->cap += 64;
	}
	feed->place[feed->n] = (struct feed_place){.role = p->role, .incarnation = p->incarnation};
	return &feed->place[feed->n++];
}

int
feed_turn(struct feed *feed, const struct pm_view *view, enum process_role role, feed_f *f,
	  void *arg)
{
	_Alignas(8) char buf[JOURNAL_RECORD_MAX];
	const struct journal_record *head = (const struct journal_record *)(const void *)buf;

	for (unsigned i = 0; i < view->n_processes; i++) {
		const struct pm_view_process *p = &view->process[i];
		struct feed_place *at;
		uint64_t end;

		if (role != ROLE_NONE && p->role != role)
			continue;
		at = place_of(feed, p);
		if (!at)
			return -ENOMEM;
		end = journal_head(&p->process.journal); /* what comes meanwhile: next turn */
		while (at->position < end) {
			int r = journal_read(&p->process.journal, &at->position, buf, sizeof buf,
					     &feed->lost);

			if (r == 0)
				break;
			if (r == 1)
				f(arg, p, buf, head->len);
		}
	}
	return 0;
}

void
feed_close(struct feed *feed)
{
	free(feed->place);
	*feed = (struct feed){0};
}
