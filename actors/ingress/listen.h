/* actors/ingress/listen.h -- on which sockets this process accepts, and when.
 *
 * Meaning    The supervisor's sockets, this index's and its neighbours'.  Accepting begins when
 *            there is somebody to ask, on a neighbour's only while that is dead, and ends with a
 *            drain, which sweeps what is in the queue.
 * Ownership  descriptors are the birth record's.
 * Threads    the loop's.
 */
#pragma once
#include "actors/ingress/ingress.h"

int listen_open(struct ingress *in);            /* 0, -ENOMEM; accepts nobody yet */
void listen_own(struct ingress *in);
	/* Clients of this index may come: there is a policy process to ask, or there has been none
	 * for so long that they must be told.  A successor that shares its sockets with a
	 * predecessor takes nobody whom it cannot answer yet. */
void listen_adopt(struct ingress *in, uint32_t index, bool on);
void listen_drain(struct ingress *in);
	/* No more.  Whoever comes from then on is refused by the kernel. */
