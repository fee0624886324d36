/* actors/supervisor/unborn.c -- starting our programs; one policy program kept started and unborn.
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

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "actors/common/background.h"
#include "actors/common/birth.h"

extern char **environ;

static void
program_path(const struct supervisor *s, enum process_role role, char *buf, size_t cap)
{
	snprintf(buf, cap, "%s/pointsman-%s", s->bin_dir, process_role_name(role));
}

static int
program_exec(const char *path, char *title, int theirs, bool background, pid_t *ret_pid)
{
	char *argv[] = {title, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, theirs, PM_BIRTH_FD);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						(background ? POSIX_SPAWN_SETSCHEDULER : 0)));
	posix_spawnattr_setschedpolicy(&attr, SCHED_IDLE);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	r = -posix_spawn(ret_pid, path, &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return r;
}

int
program_start(struct supervisor *s, enum process_role role, bool background, pid_t *ret_pid,
	      int *ret_pidfd, int *ret_sock)
{
	char path[320], title[96];
	int pair[2], r;

	program_path(s, role, path, sizeof path);
	snprintf(title, sizeof title, "pointsman-%s", process_role_name(role));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	r = program_exec(path, title, pair[1], background && pm_background_allowed(), ret_pid);
	close(pair[1]);
	if (r < 0) {
		log_error("spawn program=%s error=\"%s\"", path, strerror(-r));
		close(pair[0]);
		return r;
	}
	*ret_pidfd = pidfd_open(*ret_pid, 0);
	*ret_sock = pair[0];
	return 0;
}

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
