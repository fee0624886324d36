/* tests/scenario/intruder.c -- a policy process that has been taken over, and tries everything.
 *
 * It is born as a policy process is, by the same code, and says ready.  Then each line of the list
 * is tried once and told in the log as `intruder SCOPE what: refused (why)` or `SUCCEEDED`.
 * Scope: `always` is refused whatever is switched off; `other` is about what another process relies
 * on (user ids or rights refuse it); `self` is about itself (rights alone); `own` is what it may.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "actors/common/actor.h"

struct intruder {
	struct pm_actor *actor;         /* borrowed */
	struct birth_segment *segment;  /* what it was given, owned */
	unsigned n_segments;
	bool done;
};

static struct intruder me;

/* 0: it worked. */
static void
tell(const char *scope, const char *what, int error)
{
	if (error == 0)
		log_warn("intruder %s %s: SUCCEEDED", scope, what);
	else
		log_warn("intruder %s %s: refused (%s)", scope, what, strerror(error));
}

static int
closed(int fd)
{
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int
result(long r)
{
	return r < 0 ? errno : 0;
}

/* ---- shared memory ---- */

static int
map(int fd, int prot)
{
	void *p = mmap(NULL, 4096, prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return errno;
	munmap(p, 4096);
	return 0;
}

static int
map_then_protect(int fd)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	int r;

	if (p == MAP_FAILED)
		return errno;
	r = result(mprotect(p, 4096, PROT_READ | PROT_WRITE));
	munmap(p, 4096);
	return r;
}

static int
reopen(int fd)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return closed(open(path, O_RDWR | O_CLOEXEC));
}

static int
change_mode_and_reopen(int fd)
{
	int r = result(fchmod(fd, 0600));

	if (r == 0)
		r = reopen(fd);
	fchmod(fd, 0400);
	return r;
}

/* An access list is another way to change a mode. */
static int
change_list_and_reopen(int fd)
{
	static const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entry[3];
	} list = {2, {{1, 6, ~0u}, {4, 0, ~0u}, {0x20, 0, ~0u}}};
	int r = result(fsetxattr(fd, "system.posix_acl_access", &list, sizeof list, 0));

	if (r == 0)
		r = reopen(fd);
	fchmod(fd, 0400);
	return r;
}

static void
try_segment(const struct birth_segment *s)
{
	char what[64], buf[1] = "";
	unsigned n;

	n = (unsigned)snprintf(what, sizeof what, "%s of %s.%u ", segment_kind_name(s->kind),
			       process_role_name(s->role), s->incarnation);
#define TRY(scope, text, r)                                                                    \
	do {                                                                                   \
		int error = (r);                                                               \
		snprintf(what + n, sizeof what - n, "%s", text);                               \
		tell(scope, what, error);                                                      \
	} while (0)
	if (s->writable) {
		TRY("own", "mapped for writing", map(s->fd, PROT_READ | PROT_WRITE));
		return;
	}
	TRY("always", "mapped for writing", map(s->fd, PROT_READ | PROT_WRITE));
	TRY("always", "mapped, then protected", map_then_protect(s->fd));
	TRY("always", "written to", result(pwrite(s->fd, buf, 1, 0)));
	TRY("always", "resized", result(ftruncate(s->fd, 0)));
	TRY("other", "reopened", reopen(s->fd) && change_mode_and_reopen(s->fd) ? EACCES : 0);
	TRY("other", "reopened by an access list", change_list_and_reopen(s->fd));
#undef TRY
}

/* ---- other processes ---- */

/* A sibling by its name; 0: none. */
static pid_t
sibling(const char *name)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while (proc && !found && (e = readdir(proc)) != NULL) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		char path[300], comm[32] = "", state;
		int parent = 0;
		FILE *f;

		snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
		if (pid <= 1 || pid == getpid() || !(f = fopen(path, "re")))
			continue;
		if (fscanf(f, "%*d (%31[^)]) %c %d", comm, &state, &parent) == 3 &&
		    parent == getppid() && strcmp(comm, name) == 0)
			found = pid;
		fclose(f);
	}
	if (proc)
		closedir(proc);
	return found;
}

static int
open_of(pid_t pid, const char *file, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	return closed(open(path, flags | O_CLOEXEC));
}

/* Any descriptor of it, opened anew. */
static int
steal_descriptor(pid_t pid)
{
	int r = EACCES;

	for (int fd = 0; fd < 64 && r != 0; fd++) {
		char file[32];

		snprintf(file, sizeof file, "fd/%d", fd);
		r = open_of(pid, file, O_RDWR);
	}
	return r;
}

static int
write_memory(pid_t pid)
{
	char byte[1] = "";
	struct iovec ours = {byte, 1}, theirs = {NULL, 1};

	/* EFAULT: leave was given, only nothing is there. */
	return process_vm_writev(pid, &ours, 1, &theirs, 1, 0) < 0 && errno != EFAULT ? errno : 0;
}

static int
trace(pid_t pid)
{
	int r = result(ptrace(PTRACE_ATTACH, pid, 0, 0));

	if (r == 0 && waitpid(pid, NULL, __WALL) == pid)
		ptrace(PTRACE_DETACH, pid, 0, 0);
	return r;
}

static int
take_descriptor(pid_t pid)
{
	int pidfd = pidfd_open(pid, 0), r;

	if (pidfd < 0)
		return errno;
	r = closed((int)syscall(SYS_pidfd_getfd, pidfd, 0, 0));
	close(pidfd);
	return r;
}

static int
signal_by_pidfd(pid_t pid)
{
	int pidfd = pidfd_open(pid, 0), r;

	if (pidfd < 0)
		return errno;
	r = result(pidfd_send_signal(pidfd, 0, NULL, 0));
	close(pidfd);
	return r;
}

static int
starve(pid_t pid)
{
	int r = result(sched_setscheduler(pid, SCHED_IDLE, &(struct sched_param){0}));

	if (r == 0 && sched_getscheduler(pid) != SCHED_IDLE)
		return EPERM;           /* said to be done, and was not */
	if (r == 0)
		sched_setscheduler(pid, SCHED_OTHER, &(struct sched_param){0});
	return r;
}

static int
limit_files(pid_t pid)
{
	struct rlimit limit;

	return prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0 ||
	       prlimit(pid, RLIMIT_NOFILE, &limit, NULL) < 0 ? errno : 0;
}

static int
end_process(pid_t pid)
{
	return pid > 1 ? result(kill(pid, SIGKILL)) : ESRCH;    /* 0 would be our whole group */
}

static void
try_process(const char *scope, const char *name, pid_t pid)
{
	const struct {
		const char *what;
		int (*f)(pid_t pid);
	} way[] = {
		{"descriptor reopened", steal_descriptor}, {"memory written", write_memory},
		{"traced", trace}, {"descriptor taken", take_descriptor},
		{"signalled by pidfd", signal_by_pidfd}, {"starved", starve},
		{"limited", limit_files},
	};
	char what[64];
	int r;

	if (pid == 0) {
		log_error("intruder: no process named %s", name);
		return;
	}
	for (unsigned i = 0; i < sizeof way / sizeof way[0]; i++) {
		r = way[i].f(pid);
		snprintf(what, sizeof what, "%s %s", name, way[i].what);
		tell(scope, what, r);
	}
	r = open_of(pid, "mem", O_RDWR);
	snprintf(what, sizeof what, "%s memory opened", name);
	tell(scope, what, r);
	r = open_of(pid, "mem", O_RDONLY);
	snprintf(what, sizeof what, "%s memory opened for reading", name);
	tell(scope, what, r);
	r = result(kill(pid, 0));
	snprintf(what, sizeof what, "%s signalled", name);
	tell(scope, what, r);
}

/* ---- the run directory, where we work ---- */

static int
move_away(const char *path)
{
	char there[120];
	int r;

	snprintf(there, sizeof there, "%s.moved", path);
	r = result(rename(path, there));
	if (r == 0)
		rename(there, path);
	return r;
}

static int
move_socket(const char *pattern)
{
	glob_t found;
	int r = EACCES;

	if (glob(pattern, 0, NULL, &found) == 0) {
		r = move_away(found.gl_pathv[0]);
		globfree(&found);
	}
	return r;
}

static int
unix_socket(int type, const char *path, bool bound)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	r = bound ? bind(fd, (const struct sockaddr *)&sa, sizeof sa)
		  : connect(fd, (const struct sockaddr *)&sa, sizeof sa);
	if (r == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

static int
bind_at(const char *path)
{
	int fd = unix_socket(SOCK_STREAM, path, true);

	if (fd < 0)
		return -fd;
	close(fd);
	unlink(path);
	return 0;
}

/* To be believed an operator: an answer comes. */
static int
command_supervisor(void)
{
	int fd = unix_socket(SOCK_SEQPACKET, "control.sock", false), r;
	struct msg_reload dry = {.dry_run = 1};
	char buf[256];

	if (fd < 0)
		return -fd;
	r = -msg_send_fd(fd, MSG_reload, &dry, -1);
	if (r == 0)
		r = recv(fd, buf, sizeof buf, 0) > 0 ? 0 : ECONNRESET;
	close(fd);
	return r;
}

static int
open_file(const char *path, int flags)
{
	struct stat st;
	bool there = stat(path, &st) == 0;
	int r = closed(open(path, flags | O_CLOEXEC, 0600));

	if (r == 0 && !there)
		unlink(path);
	return r;
}

static void
try_run_dir(void)
{
	tell("other", "ingress socket moved away", move_socket("ingress/policy.*.sock"));
	tell("other", "kvevents socket moved away", move_socket("kvevents/kvevents.sock"));
	tell("other", "socket bound among ingress's", bind_at("ingress/policy.9.9.sock"));
	tell("other", "socket bound in the run directory", bind_at("policy.sock"));
	tell("other", "ingress's folder moved away", move_away("ingress"));
	tell("other", "pids written", open_file("pids", O_WRONLY));
	tell("other", "pids moved away", move_away("pids"));
	tell("other", "lock opened", open_file("lock", O_RDWR));
	tell("other", "file made in the run directory", open_file("new", O_WRONLY | O_CREAT));
	tell("other", "supervisor commanded", command_supervisor());
}

/* ---- words to others ---- */

/* Under the name of another policy process, or none of ours: what is heard is counted by the
 * hearer, and that is looked at from outside. */
static void
say_as(int type, const char *name, const char *endpoint, enum msg_id id, const void *msg)
{
	zsock_t *sock = zsock_new(type);
	char frame[256];
	ssize_t n = msg_pack(id, msg, frame, sizeof frame);

	if (sock && n > 0) {
		if (name)
			zsock_set_identity(sock, name);
		zsock_set_linger(sock, 1000);
		zsock_set_sndtimeo(sock, 1000);
		if (zsock_connect(sock, "%s", endpoint) == 0)
			zmq_send(zsock_resolve(sock), frame, (size_t)n, 0);
	}
	zsock_destroy(&sock);
}

static void
say_forged(void)
{
	const struct birth *b = &me.actor->birth;
	struct msg_hello hello = {.abi = MESSAGES_ABI, .policy_gen = 1, .policy_inc = 1};
	struct msg_routed routed = {.seq = 1, .ingress_inc = 1, .row_gen = 1, .block_tokens = 16};
	struct msg_engine_start start = {.row = 0, .row_gen = 1, .start = 1};
	struct msg_segment segment = {.kind = SEGMENT_ROWS, .writable = 1};
	struct msg_active active = {.policy_gen = b->generation, .policy_inc = b->incarnation};
	struct msg_drain drain = {.deadline = 0};
	char endpoint[160], name[POLICY_NAME_MAX];
	glob_t found;

	if (glob("ingress/policy.*.sock", 0, NULL, &found) == 0) {
		snprintf(endpoint, sizeof endpoint, "ipc://%s", found.gl_pathv[0]);
		policy_name(name, 1, 1, b->token);      /* our token, another's name */
		say_as(ZMQ_DEALER, name, endpoint, MSG_hello, &hello);
		say_as(ZMQ_DEALER, "pol.1.1", endpoint, MSG_hello, &hello);
		globfree(&found);
	}
	say_as(ZMQ_PUSH, NULL, "ipc://kvevents/kvevents.sock", MSG_routed, &routed);
	say_as(ZMQ_PUSH, NULL, "ipc://kvevents/kvevents.sock", MSG_engine_start, &start);
	for (unsigned i = 0; i < 3; i++)
		msg_send_fd(b->fd, MSG_segment, &segment, b->fd);
	msg_send_fd(b->fd, MSG_active, &active, -1);
	msg_send_fd(b->fd, MSG_reload, &(struct msg_reload){0}, -1);
	msg_send_fd(b->fd, MSG_drain, &drain, -1);
	log_warn("intruder: said what it has no right to say");
}

/* ---- itself ---- */

static int
make_process(void)
{
	pid_t pid = fork();

	if (pid < 0)
		return errno;
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	return 0;
}

/* In place: succeeds only by not coming back, so a file that cannot be executed stands for one that
 * can: what refuses execution refuses it with another error. */
static int
execute(void)
{
	char *argv[] = {NULL}, path[] = "/proc/self/exe/x";

	execve(path, argv, argv);
	return errno == ENOTDIR ? 0 : errno;
}

static int
listen_tcp(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return errno;
	r = result(bind(fd, (const struct sockaddr *)&sa, sizeof sa));
	close(fd);
	return r;
}

static int
listen_unbound(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return errno;
	r = result(listen(fd, 1));
	close(fd);
	return r;
}

/* Succeeds only by destroying it, so a size that cannot be stands for one that can. */
static int
cut_log(void)
{
	return ftruncate(STDERR_FILENO, -1) < 0 && errno != EINVAL ? errno : 0;
}

static int
shared_memory_of_no_file(void)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600);

	if (id < 0)
		return errno;
	shmctl(id, IPC_RMID, NULL);
	return 0;
}

/* Whoever is named is sent any signal once the socket is readable. */
static int
name_owner(pid_t pid)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return errno;
	r = result(fcntl(fd, F_SETOWN, pid));
	if (r == 0)
		r = result(fcntl(fd, F_SETSIG, SIGKILL));
	close(fd);
	return r;
}

static int
make_ring(void)
{
	uint64_t params[15] = {0};      /* struct io_uring_params */

	return closed((int)syscall(SYS_io_uring_setup, 4, params));
}

static int
load_program(void)
{
	return syscall(SYS_keyctl, 0, -3, 0, 0, 0) < 0 ? errno : 0;     /* any key of the session */
}

static void
try_self(void)
{
	tell("self", "process made", make_process());
	tell("self", "program executed", execute());
	tell("self", "TCP port bound", listen_tcp());
	tell("self", "TCP port taken without a bind", listen_unbound());
	tell("self", "log cut", cut_log());
	tell("self", "memory that outlives us made", shared_memory_of_no_file());
	tell("self", "supervisor named for any signal", name_owner(getppid()));
	tell("self", "io_uring made", make_ring());
	tell("self", "file written", open_file("/tmp/pointsman-intruder", O_WRONLY | O_CREAT));
	tell("self", "key ring asked", load_program());
	tell("self", "packet socket made", closed(socket(AF_VSOCK, SOCK_STREAM, 0)));
}

static void
try_all(void)
{
	tell("own", "PROCESS segment of its own mapped for writing",
	     map(me.actor->process.seg.fd, PROT_READ | PROT_WRITE));
	for (unsigned i = 0; i < me.n_segments; i++)
		try_segment(&me.segment[i]);
	try_process("other", "ingress", sibling("pointsman-ingre"));
	try_process("self", "policy", sibling("pointsman-polic"));
	try_process("other", "supervisor", getppid());
	try_run_dir();
	try_self();
	say_forged();
	tell("other", "metrics killed", end_process(sibling("pointsman-metri")));
	log_warn("intruder: tried everything");
}

static int
intruder_open(struct pm_actor *actor, void **ret)
{
	struct birth *b = &actor->birth;

	me.actor = actor;
	*ret = &me;
	me.segment = calloc(b->n_segments + 1, sizeof *me.segment);
	if (!me.segment)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n_segments; i++) {
		if (b->segment[i].fd < 0)
			continue;
		me.segment[me.n_segments++] = b->segment[i];
		b->segment[i].fd = -1;
	}
	return 0;
}

static void
intruder_close(void **ret)
{
	for (unsigned i = 0; i < me.n_segments; i++)
		close(me.segment[i].fd);
	free(me.segment);
	*ret = NULL;
}

static void
intruder_on_tick(void *priv, mono_ns now)
{
	(void)priv;
	(void)now;
	if (!me.done)
		try_all();
	me.done = true;
}

static const struct pm_actor_spec spec = {
	.name = "policy",
	.tick_ms = 50,
	.open = intruder_open,
	.close = intruder_close,
	.on_tick = intruder_on_tick,
};

int
main(int argc, char **argv)
{
	return pm_actor_main(argc, argv, &spec);
}
