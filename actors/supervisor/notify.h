/* actors/supervisor/notify.h -- tells the service manager how far we are (sd_notify's datagrams).
 *
 * Meaning    READY=1 once every process serves, RELOADING=1 while a switch is under way,
 *            STOPPING=1 from the drain on.  Without NOTIFY_SOCKET nothing is said.
 * Source     systemd's sd_notify(3): newline-separated assignments to an AF_UNIX datagram socket.
 * Cost       nothing while nothing changes; never blocks.
 */
#pragma once
#include <stdbool.h>

struct notify {
	char path[108];                 /* "": nobody listens; '@' first: abstract */
	int said;                       /* last state told */
};

enum notify_state { NOTIFY_NOTHING = 0, NOTIFY_READY, NOTIFY_RELOADING, NOTIFY_STOPPING };

void notify_open(struct notify *ret);
	/* Takes NOTIFY_SOCKET out of the environment: children are not to speak for us. */
void notify_state(struct notify *notify, enum notify_state state, unsigned generation);
	/* Says it when it is new. */
