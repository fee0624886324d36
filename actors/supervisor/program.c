/* actors/supervisor/program.c -- one of our programs, started as whoever it is to be.
 *
 * User ids   where we are root, each role has its own: first + its number, the same for its group.
 *            Besides that it is in the groups of those roles whose sockets it connects to
 *            (rights.h), in no others, and has no capabilities.  The program file is opened by us:
 *            its folder need not be open to that id (a checkout below /root).
 * Inherits   standard error, /dev/null, its end of the pair, the limits; works in the run
 *            directory, so that the names of sockets are short and no folder above matters.
 * Models     run as we do: the folders they are made of need be open to nobody else.
 * Fork       and not vfork: a child that shares our memory under another user id could be reached
 *            through it.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "actors/common/background.h"
#include "actors/common/birth.h"
#include "actors/common/rights.h"

#define ENVIRONMENT_MAX 64u             /* variables that a child is given */

extern char **environ;

struct start {
	const struct supervisor *s;
	enum process_role role;
	const char *path;
	int exe, theirs, run, said;             /* said: the child's complaint, closed by exec */
	bool background;
};

struct complaint {
	int error;
	char what[28];
};

void
program_path(const struct supervisor *s, enum process_role role, char *buf, size_t cap)
{
	snprintf(buf, cap, "%s/pointsman-%s", s->bin_dir, process_role_name(role));
}

uid_t
program_uid(const struct supervisor *s, enum process_role role)
{
	return s->uids && role != ROLE_MODELS ?
	       (uid_t)(s->options.first_uid + (uint32_t)role) : geteuid();
}

/* ---- in the child ---- */

static _Noreturn void
complain(const struct start *start, const char *what)
{
	struct complaint c = {.error = errno};

	snprintf(c.what, sizeof c.what, "%s", what);
	if (write(start->said, &c, sizeof c) != (ssize_t)sizeof c)
		_exit(126);
	_exit(127);
}

/* Not to wait for a reader is a flag of the open file, and only we may open our pipe anew. */
static void
own_stderr(void)
{
	struct stat st;
	int fd;

	if (fstat(STDERR_FILENO, &st) < 0 || !S_ISFIFO(st.st_mode))
		return;
	fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		dup2(fd, STDERR_FILENO);
}

static const char *
become(uint32_t first, enum process_role role)
{
	gid_t gid = first + (uint32_t)role, group[ROLE_COUNT];
	size_t n = 0;

	for (unsigned i = 0; i < ROLE_COUNT; i++)
		if (pm_rights(role)->reaches >> i & 1)
			group[n++] = first + i;
	if (setgroups(n, group) < 0)
		return "setgroups";
	if (setresgid(gid, gid, gid) < 0)
		return "setresgid";
	if (setresuid(gid, gid, gid) < 0)
		return "setresuid";
	return NULL;
}

static void
plain_signals(void)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		sigaction(i, &plain, NULL);     /* KILL, STOP, and the library's own: refused */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What a child may know of our environment.  All else may be somebody's key. */
static bool
is_childs(const char *variable)
{
	static const char *const names[] = {
		"PATH=", "LANG=", "LC_", "TZ=", "LD_", "MALLOC_", "GLIBC_TUNABLES=",
		"ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS=",
		"LLVM_PROFILE_FILE=", "GCOV_", "RES_OPTIONS=", "LOCALDOMAIN=", "HOSTALIASES=",
		"SSL_CERT_FILE=", "SSL_CERT_DIR=", "OPENSSL_CONF=",
	};

	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strncmp(variable, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static _Noreturn void
child_side(const struct start *start)
{
	char title[32], *argv[] = {title, NULL}, *env[ENVIRONMENT_MAX + 1];
	unsigned n_env = 0;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const char *what;

	snprintf(title, sizeof title, "pointsman-%s", process_role_name(start->role));
	plain_signals();
	if (start->background)
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		complain(start, "/dev/null");
	own_stderr();
	if (fcntl(start->theirs, F_SETFD, 0) < 0 || dup2(start->theirs, PM_BIRTH_FD) < 0)
		complain(start, "dup2");
	close_range(PM_BIRTH_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC); /* as they are anyway */
	if (fchdir(start->run) < 0)
		complain(start, "fchdir to the run directory");
	if (start->s->uids || start->s->options.rights) {
		for (int i = 0; prctl(PR_CAPBSET_DROP, i, 0, 0, 0) == 0; i++)
			continue;       /* as far as we may: what is left cannot be used either */
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	}
	if (start->s->uids && start->role != ROLE_MODELS &&
	    (what = become(start->s->options.first_uid, start->role)) != NULL)
		complain(start, what);
	for (char **e = environ; *e && n_env < ENVIRONMENT_MAX; e++)
		if (is_childs(*e))
			env[n_env++] = *e;
	env[n_env] = NULL;
	execve(start->path, argv, env);
	if (errno == EACCES)
		syscall(SYS_execveat, start->exe, "", argv, env, AT_EMPTY_PATH);
	complain(start, "exec");
}

/* ---- in the parent ---- */

static int
launch(struct start *start, pid_t *ret_pid)
{
	struct complaint c;
	int end[2], r = 0;
	ssize_t n;

	if (pipe2(end, O_CLOEXEC) < 0)
		return -errno;
	start->said = fcntl(end[1], F_DUPFD_CLOEXEC, PM_BIRTH_FD + 1);
	close(end[1]);
	*ret_pid = start->said < 0 ? -1 : fork();
	if (*ret_pid == 0)
		child_side(start);
	if (*ret_pid < 0)
		r = -errno;
	if (start->said >= 0)
		close(start->said);
	do
		n = r < 0 ? 0 : read(end[0], &c, sizeof c);     /* until exec closes it */
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof c) {
		log_error("program=%s uid=%u: %.27s failed: %s", start->path,
			  program_uid(start->s, start->role), c.what, strerror(c.error));
		waitpid(*ret_pid, NULL, 0);
		r = -c.error;
	}
	close(end[0]);
	return r;
}

int
program_start(struct supervisor *s, enum process_role role, bool background, pid_t *ret_pid,
	      int *ret_pidfd, int *ret_sock)
{
	bool bare = s->uids || s->options.rights;       /* it will have no capabilities */
	char path[320];
	struct start start = {.s = s, .role = role, .path = path, .run = s->run_fd, .exe = -1};
	int pair[2], r;

	program_path(s, role, path, sizeof path);
	start.background = background &&
			   (bare ? pm_background_limit() : pm_background_allowed());
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	start.theirs = pair[1];
	start.exe = open(path, O_PATH | O_CLOEXEC);
	r = start.exe < 0 ? -errno : launch(&start, ret_pid);
	if (start.exe >= 0)
		close(start.exe);
	else
		log_error("program=%s: %s", path, strerror(-r));
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	*ret_pidfd = pidfd_open(*ret_pid, 0);
	*ret_sock = pair[0];
	return 0;
}

/* ---- may we? ---- */

static const char *
capability_missing(void)
{
	static const struct {
		unsigned bit;
		const char *name;
	} want[] = {
		{CAP_SETUID, "CAP_SETUID"}, {CAP_SETGID, "CAP_SETGID"}, {CAP_CHOWN, "CAP_CHOWN"},
		{CAP_KILL, "CAP_KILL"}, {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
	};
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct have[2] = {{0}};

	syscall(SYS_capget, &head, have);
	for (unsigned i = 0; i < sizeof want / sizeof want[0]; i++)
		if (!(have[0].effective >> want[i].bit & 1))
			return want[i].name;
	return NULL;
}

/* A user namespace may not have these numbers: tried. */
static bool
numbers_there(uint32_t first)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(become(first, ROLE_INGRESS) == NULL && setresuid(first, first, first) < 0
			      ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

void
programs_uids(struct supervisor *s)
{
	const char *missing = NULL;

	if (!s->options.uids || !s->options.rights)
		log_warn("protect: %s off, as asked for: a process that is taken over has what the "
			 "others have", s->options.uids ? "rights are"
			 : s->options.rights ? "user ids are" : "user ids and rights are");
	if (s->options.rights && pm_landlock_abi() == 0) {
		log_warn("rights: this kernel has no Landlock, or it is forbidden; system calls "
			 "are given up all the same, and no process of ours can be dumped");
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	}
	s->uids = false;
	if (!s->options.uids)
		return;
	if (geteuid() != 0) {
		log_info("uids: one for all, %u, because we were not started as root", geteuid());
		return;
	}
	missing = capability_missing();
	if (missing || !numbers_there(s->options.first_uid)) {
		log_warn("uids: one for all, 0, because %s%s; only the rights each process gives "
			 "up stand between them", missing ? missing : "there are no user ids from ",
			 missing ? " is missing" : "--uids on in this user namespace");
		return;
	}
	s->uids = true;
	log_info("uids: one for each role, %u to %u", s->options.first_uid + ROLE_INGRESS,
		 s->options.first_uid + ROLE_ADMIN);
}
