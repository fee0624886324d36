/* actors/supervisor/notify.c -- see notify.h. */
#include "actors/supervisor/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/segment.h"

void
notify_open(struct notify *ret)
{
	const char *path = getenv("NOTIFY_SOCKET");

	*ret = (struct notify){.said = NOTIFY_NOTHING};
	if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof ret->path)
		snprintf(ret->path, sizeof ret->path, "%s", path);
	unsetenv("NOTIFY_SOCKET");
}

void
notify_state(struct notify *notify, enum notify_state state, unsigned generation)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t len = strlen(notify->path);
	char text[160];
	int fd, n;

	if ((int)state == notify->said || len == 0)
		return;
	notify->said = (int)state;
	switch (state) {
	case NOTIFY_READY:
		n = snprintf(text, sizeof text, "READY=1\nSTATUS=generation %u serves", generation);
		break;
	case NOTIFY_RELOADING:
		n = snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu",
			     (unsigned long long)(clock_mono() / 1000));
		break;
	case NOTIFY_STOPPING:
		n = snprintf(text, sizeof text, "STOPPING=1");
		break;
	default:
		return;
	}
	memcpy(to.sun_path, notify->path, len);
	if (to.sun_path[0] == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	/* A manager that does not read is its own trouble. */
	(void)!sendto(fd, text, (size_t)n, MSG_NOSIGNAL, (struct sockaddr *)(void *)&to,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
}
