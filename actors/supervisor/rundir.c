/* actors/supervisor/rundir.c -- one supervisor per run directory.
 *
 * <run>/lock   held by an open-file-description write lock while the supervisor lives.
 * <run>/pids   boot id, then `pid start-ticks role index incarnation` per child: children survive
 *              the supervisor by design, and its successor ends exactly these before it binds.
 */
#include "actors/supervisor/supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* A predecessor's children that do not end by then are killed. */
#define ORPHAN_FRONT_MS 3000            /* ingress: answers short enough are finished */
#define ORPHAN_BACK_MS  1000

static void
path_of(const struct supervisor *s, char *buf, size_t cap, const char *name)
{
	snprintf(buf, cap, "%s/%s", s->options.run_dir, name);
}

static void
boot_id(char *buf, size_t cap)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, cap - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = 0;
	buf[strcspn(buf, "\n")] = 0;
}

static int
make_dir(const char *path)
{
	char buf[RUN_DIR_MAX + 1];

	snprintf(buf, sizeof buf, "%s", path);
	for (char *p = buf + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		if (mkdir(buf, 0755) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(buf, 0750) < 0 && errno != EEXIST ? -errno : 0;
}

/* A process the pids file names, if it is still that very process. */
static int
orphan_open(uint32_t pid, uint64_t ticks)
{
	int fd;

	if (pid <= 1 || process_start_ticks(pid) != ticks)
		return -1;
	fd = pidfd_open((pid_t)pid, 0);
	if (fd >= 0 && process_start_ticks(pid) != ticks) {     /* ended and reused in between */
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Asks them to end, then makes them. */
static void
end_all(struct pollfd *orphan, nfds_t n, unsigned grace_ms)
{
	mono_ns deadline = clock_mono() + grace_ms * 1000000ull;

	for (nfds_t i = 0; i < n; i++)
		pidfd_send_signal(orphan[i].fd, SIGTERM, NULL, 0);
	for (unsigned round = 0; round < 2; round++) {
		nfds_t left = n;

		while (left > 0) {
			mono_ns now = clock_mono();

			if (now >= deadline)
				break;
			if (poll(orphan, n, (int)((deadline - now) / 1000000) + 1) < 0 &&
			    errno != EINTR)
				break;
			left = 0;
			for (nfds_t i = 0; i < n; i++) {
				if (orphan[i].fd >= 0 && orphan[i].revents & POLLIN) {
					close(orphan[i].fd);
					orphan[i].fd = -1;      /* poll skips it */
				}
				left += orphan[i].fd >= 0;
			}
		}
		if (left == 0)
			return;
		for (nfds_t i = 0; i < n; i++)
			if (orphan[i].fd >= 0)
				pidfd_send_signal(orphan[i].fd, SIGKILL, NULL, 0);
		deadline = clock_mono() + 1000000000ull;
	}
	for (nfds_t i = 0; i < n; i++)
		if (orphan[i].fd >= 0)
			close(orphan[i].fd);
}

static void
end_orphans(const struct supervisor *s)
{
	struct pollfd front[CHILDREN_MAX], back[CHILDREN_MAX];
	char path[128], line[256], boot[64];
	nfds_t n_front = 0, n_back = 0;
	FILE *f;

	path_of(s, path, sizeof path, "pids");
	f = fopen(path, "re");
	if (!f)
		return;
	boot_id(boot, sizeof boot);
	if (!fgets(line, sizeof line, f) ||
	    (line[strcspn(line, "\n")] = 0, strcmp(line, boot) != 0)) {
		fclose(f);              /* another boot: nothing of it lives */
		return;
	}
	while (n_front + n_back < CHILDREN_MAX && fgets(line, sizeof line, f)) {
		uint32_t pid;
		uint64_t ticks;
		char role[16];
		int fd;

		if (sscanf(line, "%" SCNu32 " %" SCNu64 " %15s", &pid, &ticks, role) != 3)
			continue;
		fd = orphan_open(pid, ticks);
		if (fd < 0)
			continue;
		log_warn("orphan pid=%u role=%s: running -> ending; its supervisor is dead, ours "
			 "replaces it",
			 pid, role);
		if (process_role_parse(role) == ROLE_INGRESS)
			front[n_front++] = (struct pollfd){.fd = fd, .events = POLLIN};
		else
			back[n_back++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	fclose(f);
	end_all(front, n_front, ORPHAN_FRONT_MS);       /* while there is a policy process to ask */
	end_all(back, n_back, ORPHAN_BACK_MS);
}

static void
remove_sockets(const struct supervisor *s)
{
	DIR *dir = opendir(s->options.run_dir);
	struct dirent *e;

	if (!dir)
		return;
	while ((e = readdir(dir)) != NULL) {
		size_t n = strlen(e->d_name);

		if (n > 5 && strcmp(e->d_name + n - 5, ".sock") == 0)
			unlinkat(dirfd(dir), e->d_name, 0);
	}
	closedir(dir);
}

int
rundir_open(struct supervisor *s, const char **why)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[128];
	int r;

	if (strlen(s->options.run_dir) > RUN_DIR_MAX) {
		*why = "the run directory's name is longer than 60 bytes: socket names would not "
		       "fit";
		return -ENAMETOOLONG;
	}
	r = make_dir(s->options.run_dir);
	if (r < 0) {
		*why = "cannot make the run directory";
		return r;
	}
	path_of(s, path, sizeof path, "lock");
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock_fd < 0) {
		*why = "cannot open the lock in the run directory";
		return -errno;
	}
	if (fcntl(s->lock_fd, F_OFD_SETLK, &lock) < 0) {
		*why = "another pointsman runs in this directory";
		r = -errno;
		close(s->lock_fd);
		s->lock_fd = -1;
		return r;
	}
	end_orphans(s);
	remove_sockets(s);
	rundir_note_pids(s);
	return 0;
}

void
rundir_note_pids(const struct supervisor *s)
{
	char path[128], temp[128], boot[64];
	FILE *f;

	if (s->lock_fd < 0)
		return;
	path_of(s, path, sizeof path, "pids");
	path_of(s, temp, sizeof temp, "pids.new");
	f = fopen(temp, "we");
	if (!f) {
		log_error("pids file=%s error=\"%s\": a successor could not end our children", temp,
			  strerror(errno));
		return;
	}
	boot_id(boot, sizeof boot);
	fprintf(f, "%s\n", boot);
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		const struct child *c = s->child[i];

		if (c)
			fprintf(f, "%d %" PRIu64 " %s %u %u\n", (int)c->pid, c->start_ticks,
				process_role_name(c->role), c->index, c->incarnation);
	}
	if (fclose(f) != 0 || rename(temp, path) < 0)
		log_error("pids file=%s error=\"%s\": a successor could not end our children", path,
			  strerror(errno));
}

void
rundir_close(struct supervisor *s)
{
	char path[128];

	if (s->lock_fd < 0)
		return;
	remove_sockets(s);
	path_of(s, path, sizeof path, "pids");
	unlink(path);
	close(s->lock_fd); /* the lock goes with it; the file stays: removing it would race */
	s->lock_fd = -1;
}
