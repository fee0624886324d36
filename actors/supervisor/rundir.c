/* actors/supervisor/rundir.c -- one supervisor per run directory.
 *
 * <run>/lock   held by an open-file-description write lock while the supervisor lives.
 * <run>/pids   boot id, then `pid start-ticks role index incarnation` per child: children survive
 *              the supervisor by design, and its successor ends exactly these before it binds.
 * <run>/hash-seed  of the index; stays (common/seed.h).
 * <run>/orders     what the operator ordered in an emergency; stays (orders.c).
 * <run>/<role>/        for each role that binds sockets, the role's own: only it can make a name
 *              there, only its group (rights.h: who is to reach it) can enter.
 * <run>/models/        what was made of models' folders (models.c); stays.
 * <run>/admin.sock     leads to admin/admin.sock; that folder is entered by the run directory's
 *              group, as is the run directory: operators.
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
#include "actors/common/decide/member.h"
#include "actors/common/rights.h"

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

/* Takes fd. */
static void
remove_sockets_in(int fd)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		size_t n = strlen(e->d_name);

		if (n > 5 && strcmp(e->d_name + n - 5, ".sock") == 0 &&
		    strcmp(e->d_name, MEMBER_PROVIDER_SOCKET) != 0)     /* nobody here binds it */
			unlinkat(dirfd(dir), e->d_name, 0);
	}
	closedir(dir);
}

static int
folder_open(const struct supervisor *s, enum process_role role)
{
	return openat(s->run_fd, process_role_name(role),
		      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void
remove_sockets(const struct supervisor *s)
{
	remove_sockets_in(openat(s->run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	for (unsigned role = 0; role < ROLE_COUNT; role++)
		if (pm_rights(role)->keeps & PM_RIGHT_SOCKETS)
			remove_sockets_in(folder_open(s, role));
}

/* A role's folder, its own whoever it belonged to before. */
static int
folder_make(const struct supervisor *s, enum process_role role, gid_t operators)
{
	uid_t uid = program_uid(s, role);
	gid_t gid = role == ROLE_ADMIN ? operators : s->uids ? (gid_t)uid : getegid();
	mode_t mode = role == ROLE_ADMIN ? 02750 : 0750; /* its sockets: the folder's group */
	struct stat st;
	int fd, r = 0;
	bool give;

	if (mkdirat(s->run_fd, process_role_name(role), 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = folder_open(s, role);
	if (fd < 0)
		return -errno;
	/* Ours first: what is another's we may not be able to change the mode of. */
	give = s->uids || (fstat(fd, &st) == 0 && st.st_uid != uid);
	if ((give && fchown(fd, geteuid(), gid) < 0) || fchmod(fd, mode) < 0 ||
	    (give && fchown(fd, uid, gid) < 0))
		r = -errno;
	close(fd);
	return r;
}

static int
folders_make(const struct supervisor *s, const char **why)
{
	struct stat st;
	int r = 0;

	*why = "cannot make the roles' folders in the run directory";
	if (fstat(s->run_fd, &st) < 0)
		return -errno;
	/* They pass through it to their own. */
	if (s->uids && !(st.st_mode & S_IXOTH) && fchmod(s->run_fd, (st.st_mode & 07777) | 1) < 0)
		return -errno;
	for (unsigned role = 0; role < ROLE_COUNT && r == 0; role++)
		if (pm_rights(role)->keeps & PM_RIGHT_SOCKETS)
			r = folder_make(s, role, st.st_gid);
	if (r == 0 && mkdirat(s->run_fd, MODELS_DIR, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0 && symlinkat("admin/admin.sock", s->run_fd, "admin.sock") < 0)
		r = -errno;
	return r;
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
	s->run_fd = open(s->options.run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->run_fd < 0) {
		*why = "cannot open the run directory";
		return -errno;
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
		close(s->run_fd);
		s->lock_fd = s->run_fd = -1;
		return r;
	}
	end_orphans(s);
	remove_sockets(s);
	rundir_note_pids(s);
	return folders_make(s, why);
}

void
rundir_note_pids(const struct supervisor *s)
{
	char path[128], temp[128], boot[64];
	FILE *f;
	int fd;

	if (s->lock_fd < 0)
		return;
	path_of(s, path, sizeof path, "pids");
	path_of(s, temp, sizeof temp, "pids.new");
	fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	f = fd < 0 ? NULL : fdopen(fd, "w");
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
	close(s->run_fd);
	s->lock_fd = s->run_fd = -1;
}
