/* tests/unit/test_rights.c -- actors/common/rights.h: what a narrowed process can no longer do, and
 * what it must still be able to do.  tests/scenario/rights.py tries the same from within a set.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "actors/common/background.h"
#include "actors/common/rights.h"

static char folder[] = "/tmp/pointsman-test-XXXXXX";
static const char *const roles[] = {"ingress", "metrics", "policy"};

static void
make_folders(void)
{
	char path[64];

	cr_assert_not_null(mkdtemp(folder));
	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, roles[i]);
		cr_assert_eq(mkdir(path, 0700), 0);
	}
}

static void
remove_folders(void)
{
	char path[64];

	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, roles[i]);
		rmdir(path);
	}
	rmdir(folder);
}

/* Runs f in a process that has narrowed itself, wholly or by the first half; its failures are the
 * test's. */
static void
half_narrowed(enum process_role role, const char *run_dir, void (*f)(void), bool whole)
{
	struct pm_filter filter;
	int status;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		if (pm_filter_make(&filter, role) < 0 || pm_rights_enter(role, run_dir) < 0 ||
		    (whole && pm_filter_load(&filter) < 0))
			_exit(99);
		pm_filter_free(&filter);
		f();
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

static void
narrowed(enum process_role role, const char *run_dir, void (*f)(void))
{
	half_narrowed(role, run_dir, f, true);
}

#define CHECK(condition)                                                                       \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition,     \
				strerror(errno));                                              \
			_exit(1);                                                              \
		}                                                                              \
	} while (0)
#define REFUSED(call) CHECK((call) < 0 && (errno == EPERM || errno == EACCES))

static void
opens_for_reading_only(void)
{
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	close(fd);
	REFUSED(open("/dev/null", O_WRONLY));
	REFUSED(open("/dev/null", O_RDWR));
	REFUSED(open("/tmp/pointsman-test-rights", O_RDONLY | O_CREAT, 0600));
	REFUSED(open("/dev/null", O_RDONLY | O_TRUNC));
	REFUSED(syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY, 0));
	CHECK(syscall(SYS_openat2, AT_FDCWD, "/dev/null", NULL, 0) < 0 && errno == ENOSYS);
	/* The kernel looks at 32 bits of these; a filter sees 64. */
	REFUSED(syscall(SYS_openat, AT_FDCWD, "/dev/null", 1l << 32 | O_WRONLY, 0));
	REFUSED(syscall(SYS_ioctl, 0, TIOCSTI, ""));
	REFUSED(syscall(SYS_ioctl, 0, 1l << 32 | TIOCSTI, ""));
	REFUSED(syscall(SYS_socket, 1l << 32 | AF_VSOCK, SOCK_STREAM, 0));
	REFUSED(unlink("/tmp/pointsman-test-rights"));
	REFUSED(mkdir("/tmp/pointsman-test-rights", 0700));
	REFUSED(rename("/tmp/a", "/tmp/b"));
	/* The log, which all inherit, may be a file. */
	REFUSED(ftruncate(STDERR_FILENO, -1));
	REFUSED(fallocate(STDERR_FILENO, FALLOC_FL_KEEP_SIZE, 0, -1));
	/* What outlives its maker. */
	REFUSED(syscall(SYS_shmget, IPC_PRIVATE, 4096, 0600));
	REFUSED(syscall(SYS_msgget, IPC_PRIVATE, 0600));
	REFUSED(syscall(SYS_semget, IPC_PRIVATE, 1, 0600));
	REFUSED(syscall(SYS_mq_open, "pointsman-test", O_RDONLY, 0, NULL));
	/* A socket that listens without a bind gets a port that nobody was asked for. */
	REFUSED(listen(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 1));
}

Test(rights, a_policy_process_opens_no_file_for_writing_and_makes_none)
{
	narrowed(ROLE_POLICY, "/tmp", opens_for_reading_only);
}

static void
keeps_modes(void)
{
	int fd = memfd_create("x", MFD_CLOEXEC);

	CHECK(fd >= 0);
	REFUSED(fchmod(fd, 0600));
	REFUSED(chmod("/tmp", 0777));
	REFUSED(syscall(452, fd, "", 0600, AT_EMPTY_PATH));     /* fchmodat2 */
	REFUSED(syscall(SYS_fchmodat, AT_FDCWD, "/tmp", 0777));
	REFUSED(fchown(fd, 0, 0));
	REFUSED(syscall(SYS_fsetxattr, fd, "system.posix_acl_access", "", 0, 0));
	REFUSED(syscall(463, fd, "", 0, "system.posix_acl_access", NULL, 0));   /* setxattrat */
}

Test(rights, no_role_changes_the_mode_of_what_it_may_read, .init = make_folders,
     .fini = remove_folders)
{
	narrowed(ROLE_INGRESS, folder, keeps_modes);
	narrowed(ROLE_POLICY, folder, keeps_modes);
}

static void
leaves_others_alone(void)
{
	REFUSED(kill(getppid(), 0));
	REFUSED(kill(0, 0));
	REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0));
	CHECK(kill(getpid(), 0) == 0);
	REFUSED(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0));
	REFUSED(syscall(SYS_pidfd_getfd, 0, 0, 0));
	REFUSED(setpriority(PRIO_PROCESS, (id_t)getppid(), 19));
	/* Any signal can be had sent by what becomes readable. */
	REFUSED(fcntl(STDERR_FILENO, F_SETOWN, getppid()));
	REFUSED(fcntl(STDERR_FILENO, F_SETOWN_EX, &(struct f_owner_ex){F_OWNER_PID, getppid()}));
	REFUSED(fcntl(STDERR_FILENO, F_SETSIG, SIGKILL));
	REFUSED(ioctl(STDERR_FILENO, FIOSETOWN, &(int){getppid()}));
	REFUSED(ioctl(STDERR_FILENO, SIOCSPGRP, &(int){getppid()}));
	sched_setscheduler(getppid(), SCHED_IDLE, &(struct sched_param){0});
	CHECK(sched_getscheduler(getppid()) == SCHED_OTHER);
}

Test(rights, another_process_is_neither_signalled_nor_written_nor_starved)
{
	narrowed(ROLE_POLICY, "/tmp", leaves_others_alone);
}

static void *
thread(void *arg)
{
	*(int *)arg = open("/dev/null", O_WRONLY) < 0 && errno == EPERM;
	return NULL;
}

static void
starts_threads(void)
{
	struct addrinfo *list = NULL;
	pthread_t id;
	int refused = 0;

	CHECK(pthread_create(&id, NULL, thread, &refused) == 0);
	CHECK(pthread_join(id, NULL) == 0 && refused);
	CHECK(getaddrinfo("localhost", "80", NULL, &list) == 0);
	freeaddrinfo(list);
	void *zmq = zmq_ctx_new(), *a = zmq_socket(zmq, ZMQ_PAIR), *b = zmq_socket(zmq, ZMQ_PAIR);
	char text[4] = "";

	CHECK(zmq_bind(a, "inproc://x") == 0 && zmq_connect(b, "inproc://x") == 0);
	CHECK(zmq_send(a, "abc", 3, 0) == 3 && zmq_recv(b, text, 3, 0) == 3);
	zmq_close(a);
	zmq_close(b);
	zmq_ctx_term(zmq);
	pm_background(0, true);
	pm_background(0, false);
	CHECK(sched_getscheduler(0) == SCHED_OTHER);
}

Test(rights, threads_sockets_and_names_work_on_and_new_threads_are_bound_too)
{
	narrowed(ROLE_POLICY, "/tmp", starts_threads);
}

static void *
patient_thread(void *arg)
{
	int *state = arg;
	char c;

	if (read(state[0], &c, 1) != 1)
		return NULL;
	state[2] = open("/dev/null", O_WRONLY) < 0 && errno == EPERM;
	return NULL;
}

Test(rights, a_thread_that_was_there_before_is_bound_as_well)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct pm_filter filter;
		int state[3] = {-1, -1, 0};
		pthread_t id;

		CHECK(pipe(state) == 0);
		CHECK(pm_filter_make(&filter, ROLE_POLICY) == 0);
		CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(pthread_create(&id, NULL, patient_thread, state) == 0);
		CHECK(pm_filter_load(&filter) == 0);
		CHECK(write(state[1], "x", 1) == 1 && pthread_join(id, NULL) == 0);
		CHECK(state[2]);
		pm_filter_free(&filter);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
}

static int
bind_in(const char *role)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s/%s/x.sock", folder, role);
	r = bind(fd, (const struct sockaddr *)&sa, sizeof sa);
	if (r == 0)
		unlink(sa.sun_path);
	close(fd);
	return r;
}

static void
binds_at_home(void)
{
	CHECK(bind_in("ingress") == 0);
	REFUSED(bind_in("metrics"));
}

static void
binds_nowhere(void)
{
	REFUSED(bind_in("ingress"));
	REFUSED(bind_in("policy"));
}

Test(rights, a_role_binds_sockets_in_its_own_folder_and_policy_in_none, .init = make_folders,
     .fini = remove_folders)
{
	if (pm_landlock_abi() == 0)
		cr_skip_test("this kernel has no Landlock");
	half_narrowed(ROLE_INGRESS, folder, binds_at_home, false);
	half_narrowed(ROLE_POLICY, folder, binds_nowhere, false);
	narrowed(ROLE_INGRESS, folder, binds_nowhere);  /* it is ready */
}

static void
has_no_capabilities(void)
{
	unsigned long long effective = 1;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	CHECK(f != NULL);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	fclose(f);
	CHECK(effective == 0);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	errno = 0;
	CHECK(socket(AF_VSOCK, SOCK_STREAM, 0) < 0 && errno == EPERM);
	CHECK(socket(AF_PACKET, SOCK_RAW, 0) < 0 && errno == EPERM);
}

Test(rights, no_capability_is_left_and_no_unusual_socket_made)
{
	narrowed(ROLE_POLICY, "/tmp", has_no_capabilities);
}

Test(rights, every_child_has_a_row_and_policy_the_shortest)
{
	cr_assert_eq(pm_rights(ROLE_POLICY)->keeps, PM_RIGHT_CONNECT);
	cr_assert_eq(pm_rights(ROLE_POLICY)->reaches, 1u << ROLE_INGRESS);
	cr_assert_eq(pm_rights(ROLE_SUPERVISOR)->keeps, 0);
	cr_assert_eq(pm_rights((enum process_role)200)->keeps, 0);
	for (unsigned role = ROLE_INGRESS; role <= ROLE_ADMIN; role++)
		cr_assert_neq(pm_rights(role)->keeps, 0, "%s", process_role_name(role));
}
