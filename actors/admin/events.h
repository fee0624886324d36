/* actors/admin/events.h -- verb `events`: what becomes of a worker's KV events, as it happens.
 *
 * Meaning    One question, one answer: the events of a worker, all its ranks, behind a number the
 *            client has; when there are none yet, the answer waits for them, wait_ms at most.  So
 *            whoever asks again and again sees all, gives credit by asking, and has nothing to give
 *            back: a worker nobody asked about for EVENTS_IDLE_NS is watched no more.
 * Source     kvevents' tap (actors/kvevents/tap.h), for the rows of that worker only.
 * Bounds     EVENTS_WATCHES workers with EVENTS_KEPT events each, EVENTS_WAITING questions that
 *            wait; a slow client loses the oldest events, and is told how many.
 * Ownership  of a question that waits, its way back and its JSON.
 * Threads    the loop's.
 */
#pragma once
#include <czmq.h>

#include "actors/admin/introspect.h"
#include "actors/common/view.h"

#define EVENTS_WATCHES 8u
#define EVENTS_ROWS 64u                 /* of one worker: ranks */
#define EVENTS_KEPT 4096u               /* power of two */
#define EVENTS_WAITING 64u
#define EVENTS_IDLE_NS 10000000000ull

struct events;
typedef void events_said_f(void *arg, zmsg_t **way_back, const json_t *request,
			   enum wire_form form, json_t *result);
	/* An answer that was waited for; takes way_back and result. */

int events_open(struct events **ret, const struct pm_view *view, const char *tap_endpoint,
		uint64_t word, events_said_f *f, void *arg);
	/* 0, -ENOMEM, -errno.  Connects in the background: kvevents need not be there. */
void events_close(struct events **ret);
zsock_t *events_socket(struct events *ev);      /* borrowed; to be watched */

json_t *events_ask(struct events *ev, const json_t *request, mono_ns now, json_t **ret_refused);
	/* The result; NULL with a refusal; NULL without: it waits, and events_keep must follow. */
void events_keep(struct events *ev, zmsg_t **way_back, json_t *request, enum wire_form form);
	/* Takes both. */
void events_receive(struct events *ev, mono_ns now);    /* what kvevents said */
void events_tick(struct events *ev, mono_ns now);
