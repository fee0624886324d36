/* actors/kvevents/door.h -- who may connect to the endpoints that we bind: the member's host.
 *
 * libzmq asks before it lets a publisher in (ZAP, inproc), with the domain of the socket, which is
 * the host of the member's URL, and the peer's address.  A name is looked up each time: a worker's
 * pod moves.  What is trusted is the address, no more: whoever can send from it is that worker.
 *
 * Threads    one of its own, because looking up a name blocks; nothing is shared with it but the
 *            counter.  One a process, before the first endpoint is bound; nobody else's sockets
 *            have a domain, so nobody else is asked.
 */
#pragma once
#include <czmq.h>

#include "shm/process.h"

zactor_t *door_open(struct process_segment *process);
	/* Borrowed; NULL: no memory, or there is one already.  Ends with zactor_destroy. */
