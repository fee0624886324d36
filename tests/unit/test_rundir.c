/* tests/unit/test_rundir.c -- one supervisor per run directory, and what it finds there. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/supervisor/supervisor.h"

static struct supervisor first, second;
static char dir[64];

static void
make(struct supervisor *s)
{
	if (!dir[0]) {
		strcpy(dir, "/tmp/pointsman-test-XXXXXX");
		cr_assert_not_null(mkdtemp(dir));
	}
	s->options.run_dir = dir;
	s->lock_fd = -1;
	log_open("test", 0, 0, 0, LEVEL_ERROR);
}

static const char *const folders[] = {"ingress", "kvevents", "admin"};

static void
clean(void)
{
	static const char *const names[] = {"lock", "pids", "pids.new", "control.sock", "keep.txt"};
	char path[128];

	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		unlink(path);
	}
	for (unsigned i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
		rmdir(path);
	}
	rmdir(dir);
}

static pid_t
sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		for (;;)
			pause();
	}
	return pid;
}

/* As if `pid` were a child of s, started at `ticks`. */
static void
note(struct supervisor *s, struct child *c, pid_t pid, uint64_t ticks, enum process_role role)
{
	*c = (struct child){.role = role, .incarnation = 3, .pid = pid, .start_ticks = ticks};
	s->child[0] = c;
	rundir_note_pids(s);
	s->child[0] = NULL;
}

Test(rundir, second_supervisor_is_refused_while_the_first_lives, .fini = clean)
{
	const char *why = "";

	make(&first);
	make(&second);
	cr_assert_eq(rundir_open(&first, &why), 0, "%s", why);
	cr_assert_lt(rundir_open(&second, &why), 0);
	cr_assert_str_eq(why, "another pointsman runs in this directory");
	rundir_close(&first);
	cr_assert_eq(rundir_open(&second, &why), 0);
	rundir_close(&second);
}

Test(rundir, processes_of_a_dead_predecessor_are_ended, .fini = clean)
{
	static const enum process_role roles[] = {ROLE_INGRESS, ROLE_POLICY};
	const char *why = "";
	struct child c;
	int status;

	make(&first);
	make(&second);
	for (unsigned i = 0; i < 2; i++) {
		pid_t pid = sleeper();

		cr_assert_eq(rundir_open(&first, &why), 0);
		note(&first, &c, pid, process_start_ticks((uint32_t)pid), roles[i]);
		close(first.lock_fd);           /* it dies: nothing is tidied up */
		cr_assert_eq(rundir_open(&second, &why), 0, "%s", why);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
		rundir_close(&second);
	}
}

Test(rundir, stranger_that_got_the_same_pid_is_left_alone, .fini = clean)
{
	const char *why = "";
	struct child c;
	pid_t pid = sleeper();

	make(&first);
	make(&second);
	cr_assert_eq(rundir_open(&first, &why), 0);
	note(&first, &c, pid, process_start_ticks((uint32_t)pid) - 1, ROLE_INGRESS);
	close(first.lock_fd);
	cr_assert_eq(rundir_open(&second, &why), 0);
	cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it was ended");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rundir_close(&second);
}

static struct stat
status(const char *name)
{
	struct stat st = {0};
	char path[128];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	cr_assert_eq(lstat(path, &st), 0, "%s: %s", path, strerror(errno));
	return st;
}

Test(rundir, each_role_that_binds_sockets_has_a_folder_of_its_own_and_operators_enter_one,
     .fini = clean)
{
	const char *why = "";
	char path[128];

	if (geteuid() != 0)
		cr_skip_test("only root can give folders away");
	make(&first);
	first.uids = true;
	first.options.first_uid = 60800;
	cr_assert_eq(rundir_open(&first, &why), 0, "%s", why);
	rundir_close(&first);                   /* again: from what a predecessor left */
	cr_assert_eq(rundir_open(&first, &why), 0, "%s", why);
	for (unsigned i = 0; i < 2; i++) {
		struct stat st = status(folders[i]);
		uid_t uid = 60800 + process_role_parse(folders[i]);

		cr_assert(st.st_uid == uid && st.st_gid == uid, "%s %u", folders[i], st.st_uid);
		cr_assert_eq(st.st_mode & 07777, 0750, "%s %o", folders[i], st.st_mode);
	}
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, i ? "policy" : "metrics");
		cr_assert_eq(access(path, F_OK), -1, "%s: it binds nothing", path);
	}
	cr_assert_eq(status("admin").st_uid, 60800 + ROLE_ADMIN);
	cr_assert_eq(status("admin").st_gid, status(".").st_gid);
	cr_assert_eq(status("admin").st_mode & 07777, 02750);
	cr_assert_eq(status(".").st_mode & 07777, 0701);        /* made 0700 by mkdtemp */
	cr_assert_eq(status("pids").st_mode & 0777, 0600);
	cr_assert(S_ISLNK(status("admin.sock").st_mode));
	rundir_close(&first);
}

/* Started as root without user ids where one with them ran: its processes have no capabilities, so
 * a folder of another id would be closed to them. */
Test(rundir, folders_of_other_ids_become_ours_without_them, .fini = clean)
{
	const char *why = NULL;
	char path[128];
	struct stat st;

	if (geteuid() != 0)
		cr_skip_test("needs root");
	make(&first);
	first.uids = true;
	first.options.first_uid = 60800;
	cr_assert_eq(rundir_open(&first, &why), 0, "%s", why);
	rundir_close(&first);
	make(&second);
	cr_assert_eq(rundir_open(&second, &why), 0, "%s", why);
	for (unsigned i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
		cr_assert_eq(stat(path, &st), 0);
		cr_assert_eq(st.st_uid, geteuid(), "%s", path);
		cr_assert_eq(st.st_gid, getegid(), "%s", path);
	}
	rundir_close(&second);
}

Test(rundir, a_link_in_the_place_of_a_folder_is_refused, .fini = clean)
{
	const char *why = "";
	char path[128];

	make(&first);
	snprintf(path, sizeof path, "%s/ingress", dir);
	cr_assert_eq(symlink("/tmp", path), 0);
	cr_assert_lt(rundir_open(&first, &why), 0);
	cr_assert_str_eq(why, "cannot make the roles' folders in the run directory");
	unlink(path);
}

Test(rundir, stale_sockets_go_and_other_files_stay, .fini = clean)
{
	const char *why = "";
	char sock[128], other[128];

	make(&first);
	snprintf(sock, sizeof sock, "%s/control.sock", dir);
	snprintf(other, sizeof other, "%s/keep.txt", dir);
	close(open(sock, O_CREAT | O_WRONLY, 0600));
	close(open(other, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(rundir_open(&first, &why), 0);
	cr_assert_lt(access(sock, F_OK), 0);
	cr_assert_eq(access(other, F_OK), 0);
	rundir_close(&first);
}

Test(rundir, name_too_long_for_socket_paths_is_refused_before_anything_is_made)
{
	const char *why = "";

	first.options.run_dir =
		"/tmp/pointsman-test-0123456789012345678901234567890123456789012345678901234";
	cr_assert_eq(rundir_open(&first, &why), -ENAMETOOLONG);
	cr_assert_lt(access(first.options.run_dir, F_OK), 0);
}
