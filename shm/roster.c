/* shm/roster.c -- which processes live; layout in roster.h. */
#include "shm/roster.h"

#include <errno.h>

#define ROSTER_SIZE                                                                                \
	(SEGMENT_BODY + sizeof(struct roster_header) +                                             \
	 ROSTER_MAX * sizeof(struct roster_entry) +                                                \
	 ROSTER_SOURCES * sizeof(struct roster_source))

static void
roster_view(struct roster *roster)
{
	char *body = segment_body(&roster->seg);

	roster->head = (struct roster_header *)(void *)body;
	roster->entry = (struct roster_entry *)(void *)(body + sizeof(struct roster_header));
	roster->source = (struct roster_source *)(void *)(roster->entry + ROSTER_MAX);
}

int
roster_create(struct roster *ret)
{
	struct roster roster = {0};
	int r;

	r = segment_create(&roster.seg, SEGMENT_ROSTER, ROSTER_LAYOUT, ROSTER_SIZE, NULL);
	if (r < 0)
		return r;
	roster_view(&roster);
	roster.seg.head->owner_role = ROLE_SUPERVISOR;
	roster.head->born = clock_wall();
	segment_publish(&roster.seg);
	*ret = roster;
	return 0;
}

int
roster_attach(struct roster *ret, int fd)
{
	struct roster roster = {0};
	int r;

	r = segment_attach(&roster.seg, fd, SEGMENT_ROSTER, ROSTER_LAYOUT, false);
	if (r < 0)
		return r;
	if (roster.seg.size < ROSTER_SIZE) {
		segment_detach(&roster.seg);
		return -EBADMSG;
	}
	roster_view(&roster);
	*ret = roster;
	return 0;
}

void
roster_detach(struct roster *roster)
{
	segment_detach(&roster->seg);
	*roster = (struct roster){.seg.fd = -1};
}

const char *
roster_state_name(unsigned state)
{
	static const char *const names[] = {
		"empty", "starting", "ready", "active", "standby", "draining", "gone",
	};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *
roster_came_name(unsigned came)
{
	static const char *const names[] = {"-", "start", "reload", "rollback", "probation"};

	return came < sizeof names / sizeof *names ? names[came] : "unknown";
}

const char *
source_state_name(unsigned state)
{
	static const char *const names[] = {"empty", "pending", "ok", "failing"};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}
