/* actors/supervisor/unborn.c -- one policy program kept started and unborn.
 *
 * Two thirds of what a new policy process costs is the dynamic linker and the set-up of libraries.
 * A program that has done that waits for its first message, so that a reload or the successor of a
 * dead process begins where the configuration is read: sooner, and without taking a core from
 * requests in the middle of a switch.
 *
 * It knows nothing yet: generation, segments and incarnation come with its birth.  It ends by
 * itself when our end of the pair closes.  A program file that was replaced meanwhile is started
 * anew.
 */
#include "actors/supervisor/supervisor.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

static bool
unborn_current(const struct supervisor *s)
{
	char path[320];
	struct stat st;

	program_path(s, ROLE_POLICY, path, sizeof path);
	return stat(path, &st) == 0 && st.st_dev == s->unborn.dev && st.st_ino == s->unborn.ino &&
	       st.st_mtim.tv_sec == s->unborn.mtime.tv_sec &&
	       st.st_mtim.tv_nsec == s->unborn.mtime.tv_nsec;
}

void
unborn_drop(struct supervisor *s)
{
	if (!s->unborn.pid)
		return;
	close(s->unborn.sock); /* it ends by that; children_reap sees it, or nobody needs to */
	if (s->unborn.pidfd >= 0)
		close(s->unborn.pidfd);
	s->unborn.pid = 0;
}

void
unborn_keep(struct supervisor *s)
{
	char path[320];
	struct stat st;

	if (s->unborn.pid || s->reload.serving == 0)
		return;
	program_path(s, ROLE_POLICY, path, sizeof path);
	if (stat(path, &st) < 0 || program_start(s, ROLE_POLICY, true, &s->unborn.pid,
						 &s->unborn.pidfd, &s->unborn.sock) < 0) {
		s->unborn.pid = 0;
		return; /* the next reload will say what is wrong with the program */
	}
	s->unborn.dev = st.st_dev;
	s->unborn.ino = st.st_ino;
	s->unborn.mtime = st.st_mtim;
}

bool
unborn_take(struct supervisor *s, pid_t *ret_pid, int *ret_pidfd, int *ret_sock)
{
	struct pollfd dead = {.fd = s->unborn.pidfd, .events = POLLIN};

	if (!s->unborn.pid)
		return false;
	if (s->unborn.pidfd < 0 || poll(&dead, 1, 0) != 0 || !unborn_current(s)) {
		unborn_drop(s);
		return false;
	}
	*ret_pid = s->unborn.pid;
	*ret_pidfd = s->unborn.pidfd;
	*ret_sock = s->unborn.sock;
	s->unborn.pid = 0;
	return true;
}

void
unborn_reaped(struct supervisor *s, pid_t pid)
{
	if (pid != s->unborn.pid)
		return;
	log_warn("an unborn policy process pid=%d ended; another is kept instead", (int)pid);
	unborn_drop(s);
}
