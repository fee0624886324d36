/* actors/kvevents/tap.h -- what becomes of a worker's events, told while somebody looks on.
 *
 * Meaning    `pointsctl events`: admin asks for a row (MSG_tap, renewed before TAP_LEASE_NS are
 *            over) and is told of each event of it in order (MSG_tapped), with what came of it.
 * Bounds     TAP_ROWS rows, TAP_QUEUE messages on their way.  What finds no room is dropped: the
 *            numbers of the messages have a hole then.  Whoever looks on never slows what is looked
 *            at.
 * Trust      the socket is in kvevents' own folder, and only who knows the word from its birth
 *            (admin) is heard.
 * Cost       nobody looks: one comparison an event.  Somebody: a microsecond an event of that row.
 * Threads    the loop's.
 */
#pragma once
#include <czmq.h>

#include "proto/kv_events.h"
#include "proto/messages.h"
#include "shm/process.h"

#define TAP_ROWS 512u                   /* as many as admin asks about at most */
#define TAP_QUEUE 4096
#define TAP_LEASE_NS 5000000000ull
#define TAP_IDENTITY_MAX 255u           /* bytes; what ZMQ allows */

struct tap_row {
	uint16_t row;
	uint32_t row_gen;
	mono_ns until;
	uint64_t number;                        /* of the newest message about it */
	size_t n_identity;
	uint8_t identity[TAP_IDENTITY_MAX];     /* who asked */
};

struct tap {
	zsock_t *sock;                          /* owned; ROUTER */
	uint64_t word;
	struct process_segment *process;        /* borrowed */
	unsigned n;                             /* rows somebody looks at */
	struct tap_row row[TAP_ROWS];
};

int tap_open(struct tap **ret, const char *endpoint, uint64_t word,
	     struct process_segment *process);
	/* 0, -ENOMEM, -errno. */
void tap_close(struct tap **tap);
zsock_t *tap_socket(struct tap *tap);   /* borrowed; to be watched */
void tap_receive(struct tap *tap, mono_ns now);
	/* Requests that are there. */
void tap_tick(struct tap *tap, mono_ns now);
	/* Who has gone is told no more. */

void tap_tell(struct tap *tap, const struct msg_tapped *told);
	/* told.number is filled in; for nobody unless somebody looks at that row. */

/* Does somebody look at this row? */
static inline bool
tap_on(const struct tap *tap, uint16_t row)
{
	for (unsigned i = 0; tap && i < tap->n; i++)
		if (tap->row[i].row == row)
			return true;
	return false;
}
