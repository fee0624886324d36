/* actors/common/rights.c -- see rights.h. */
#include "actors/common/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "actors/common/sanitized.h"

#define REACH(role) (1u << (role))

static const struct pm_rights table[ROLE_COUNT] = {
	[ROLE_INGRESS] = {PM_RIGHT_CONNECT | PM_RIGHT_SOCKETS | PM_RIGHT_RING,
			  REACH(ROLE_KVEVENTS)},
	[ROLE_KVEVENTS] = {PM_RIGHT_CONNECT | PM_RIGHT_BIND | PM_RIGHT_SOCKETS, 0},
	[ROLE_METRICS] = {PM_RIGHT_CONNECT, REACH(ROLE_KVEVENTS)},
	[ROLE_POLICY] = {PM_RIGHT_CONNECT, REACH(ROLE_INGRESS)},
	[ROLE_ADMIN] = {PM_RIGHT_LISTEN | PM_RIGHT_SOCKETS, REACH(ROLE_KVEVENTS)},
};

const struct pm_rights *
pm_rights(enum process_role role)
{
	return &table[(unsigned)role < ROLE_COUNT ? role : ROLE_NONE];
}

/* ---- Landlock; by number: the build machine's headers may be older than the kernel ---- */

#define LANDLOCK_CREATE_RULESET 444
#define LANDLOCK_ADD_RULE 445
#define LANDLOCK_RESTRICT_SELF 446
#define CREATE_VERSION 1u
#define RULE_PATH_BENEATH 1

#define FS_EXECUTE      (1ull << 0)
#define FS_WRITE_FILE   (1ull << 1)
#define FS_REMOVE_DIR   (1ull << 4)
#define FS_REMOVE_FILE  (1ull << 5)
#define FS_MAKE_CHAR    (1ull << 6)
#define FS_MAKE_SOCK    (1ull << 9)
#define FS_MAKE_SYM     (1ull << 12)    /* 6 to 12: making of all kinds */
#define FS_REFER        (1ull << 13)    /* ABI 2 */
#define FS_TRUNCATE     (1ull << 14)    /* ABI 3 */
#define NET_BIND_TCP    (1ull << 0)     /* ABI 4 */
#define NET_CONNECT_TCP (1ull << 1)
#define SCOPE_ABSTRACT_UNIX (1ull << 0) /* ABI 6 */
#define SCOPE_SIGNAL    (1ull << 1)

struct ruleset_attr {
	uint64_t fs, net, scoped;
};

struct path_beneath_attr {
	uint64_t allowed;
	int32_t parent_fd;
} __attribute__((packed));

int
pm_landlock_abi(void)
{
	long abi = syscall(LANDLOCK_CREATE_RULESET, NULL, 0, CREATE_VERSION);

	return abi > 0 ? (int)abi : 0;
}

/* Everything that changes a file, and execution; reading stays what the user id may read. */
static struct ruleset_attr
handled(const struct pm_rights *rights, int abi)
{
	struct ruleset_attr attr = {
		.fs = FS_EXECUTE | FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE,
	};

	for (uint64_t bit = FS_MAKE_CHAR; bit <= FS_MAKE_SYM; bit <<= 1)
		attr.fs |= bit;
	if (abi >= 2)
		attr.fs |= FS_REFER;
	if (abi >= 3)
		attr.fs |= FS_TRUNCATE;
	if (abi >= 4) {
		attr.net = NET_BIND_TCP | NET_CONNECT_TCP;
		if (rights->keeps & (PM_RIGHT_LISTEN | PM_RIGHT_BIND))
			attr.net &= ~NET_BIND_TCP;
		if (rights->keeps & PM_RIGHT_CONNECT)
			attr.net &= ~NET_CONNECT_TCP;
	}
	if (abi >= 6)
		attr.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	return attr;
}

static int
allow_sockets(int ruleset, enum process_role role, const char *run_dir)
{
	struct path_beneath_attr beneath = {.allowed = FS_MAKE_SOCK | FS_REMOVE_FILE};
	char path[128];
	int r = 0;

	snprintf(path, sizeof path, "%s/%s", run_dir, process_role_name(role));
	beneath.parent_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (beneath.parent_fd < 0)
		return -errno;
	if (syscall(LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, &beneath, 0) < 0)
		r = -errno;
	close(beneath.parent_fd);
	return r;
}

static int
landlock(enum process_role role, const char *run_dir, int abi)
{
	struct ruleset_attr attr = handled(pm_rights(role), abi);
	size_t size = abi >= 6 ? sizeof attr : abi >= 4 ? 2 * sizeof attr.fs : sizeof attr.fs;
	long ruleset = syscall(LANDLOCK_CREATE_RULESET, &attr, size, 0);
	int r = 0;

	if (ruleset < 0)
		return -errno;
	if (pm_rights(role)->keeps & PM_RIGHT_SOCKETS)
		r = allow_sockets((int)ruleset, role, run_dir);
	if (r == 0 && syscall(LANDLOCK_RESTRICT_SELF, (int)ruleset, 0) < 0)
		r = -errno;
	close((int)ruleset);
	return r;
}

static void
drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	syscall(SYS_capset, &head, none);       /* to give up needs no right */
}

int
pm_rights_enter(enum process_role role, const char *run_dir)
{
	int abi = pm_landlock_abi(), r;

	drop_capabilities();
	r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
	if (r == 0 && abi > 0)
		r = landlock(role, run_dir, abi);
	if (r < 0 || abi == 0)
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return r < 0 ? r : abi;
}

/* ---- the filter ---- */

#define FCHMODAT2 452                   /* newer than this libseccomp knows */
#define SETXATTRAT 463
#define REMOVEXATTRAT 466
#define OPEN_TREE_ATTR 467
#define FILE_SETATTR 469

/* What no role needs once it serves.  The first lines are how a descriptor that may only be read
 * would become one that may be written: the mode of what it names can be changed by its owner. */
static const int never[] = {
	SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), FCHMODAT2,
	SCMP_SYS(chown), SCMP_SYS(lchown), SCMP_SYS(fchown), SCMP_SYS(fchownat),
	SCMP_SYS(setxattr), SCMP_SYS(lsetxattr), SCMP_SYS(fsetxattr), SETXATTRAT,
	SCMP_SYS(removexattr), SCMP_SYS(lremovexattr), SCMP_SYS(fremovexattr), REMOVEXATTRAT,
	FILE_SETATTR, SCMP_SYS(open_by_handle_at), SCMP_SYS(name_to_handle_at),
	/* other processes */
	SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(process_madvise),
	SCMP_SYS(process_mrelease), SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(kcmp), SCMP_SYS(tkill), SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo),
	SCMP_SYS(migrate_pages), SCMP_SYS(move_pages),
	/* files, names */
	SCMP_SYS(creat), SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(mknod),
	SCMP_SYS(mknodat), SCMP_SYS(link), SCMP_SYS(linkat), SCMP_SYS(symlink),
	SCMP_SYS(symlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
	SCMP_SYS(truncate), SCMP_SYS(ftruncate), SCMP_SYS(fallocate),   /* the log may be a file */
	SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(quotactl), SCMP_SYS(acct),
	SCMP_SYS(shmget), SCMP_SYS(msgget), SCMP_SYS(semget), SCMP_SYS(mq_open),
	/* mounts and namespaces */
	SCMP_SYS(mount), SCMP_SYS(umount), SCMP_SYS(umount2), SCMP_SYS(pivot_root),
	SCMP_SYS(chroot), SCMP_SYS(unshare), SCMP_SYS(setns), SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(fspick), SCMP_SYS(move_mount),
	SCMP_SYS(open_tree), OPEN_TREE_ATTR, SCMP_SYS(mount_setattr),
	/* who we are */
	SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid),
	SCMP_SYS(setresuid), SCMP_SYS(setresgid), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid),
	SCMP_SYS(setgroups), SCMP_SYS(capset),
	/* the kernel itself */
	SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(keyctl),
	SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(init_module),
	SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load), SCMP_SYS(reboot), SCMP_SYS(syslog), SCMP_SYS(iopl),
	SCMP_SYS(ioperm), SCMP_SYS(modify_ldt), SCMP_SYS(personality), SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime), SCMP_SYS(clock_adjtime), SCMP_SYS(adjtimex),
	SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(fanotify_init),
	SCMP_SYS(io_uring_setup),
};

static int
refuse(scmp_filter_ctx filter, int call)
{
	int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0);

	return r == -EDOM ? 0 : r;              /* this architecture has no such call */
}

/* Arguments are compared as 64 bits, of which the kernel takes the lower 32 of an int.  "Differs"
 * and "above" are true of whoever sets the others; "is" looks at the lower ones alone. */
static struct scmp_arg_cmp
differs(unsigned arg, scmp_datum_t value)
{
	return (struct scmp_arg_cmp){.arg = arg, .op = SCMP_CMP_NE, .datum_a = value};
}

static struct scmp_arg_cmp
above(unsigned arg, scmp_datum_t value)
{
	return (struct scmp_arg_cmp){.arg = arg, .op = SCMP_CMP_GT, .datum_a = value};
}

static struct scmp_arg_cmp
masked(unsigned arg, scmp_datum_t mask, scmp_datum_t value)
{
	return (struct scmp_arg_cmp){.arg = arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask,
				     .datum_b = value};
}

static struct scmp_arg_cmp
is(unsigned arg, scmp_datum_t value)
{
	return masked(arg, UINT32_MAX, value);
}

static int
refuse_if(scmp_filter_ctx filter, int call, struct scmp_arg_cmp when)
{
	int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 1, when);

	return r == -EDOM ? 0 : r;
}

/* Files may be opened for reading only. */
static int
refuse_writing(scmp_filter_ctx filter)
{
	static const int flags[] = {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC};
	int r = 0;

	for (unsigned i = 0; i < sizeof flags / sizeof flags[0] && r == 0; i++) {
		scmp_datum_t bit = (scmp_datum_t)flags[i];

		r = refuse_if(filter, SCMP_SYS(open), masked(1, bit, bit));
		if (r == 0)
			r = refuse_if(filter, SCMP_SYS(openat),
				      masked(2, bit, bit));
	}
	if (r == 0)     /* its flags are where a filter cannot look: libraries do without it */
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(openat2), 0);
	return r;
}

/* A signal to ourselves is abort(); no other process is ours to touch. */
static int
refuse_others(scmp_filter_ctx filter)
{
	static const int about[] = {SCMP_SYS(prlimit64), SCMP_SYS(sched_setparam),
				    SCMP_SYS(sched_setattr), SCMP_SYS(sched_setaffinity)};
	/* Whom a descriptor's readiness signals, and with what; and words typed into the operator's
	 * terminal. */
	static const scmp_datum_t owner[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG};
	static const scmp_datum_t to_others[] = {FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX};
	scmp_datum_t me = (scmp_datum_t)getpid();
	int r = refuse_if(filter, SCMP_SYS(kill), differs(0, me));

	if (r == 0)
		r = refuse_if(filter, SCMP_SYS(tgkill), differs(0, me));
	for (unsigned i = 0; i < sizeof about / sizeof about[0] && r == 0; i++)
		r = refuse_if(filter, about[i], differs(0, 0));
	/* libzmq sets each thread it starts, by number, to what that is, and dies when it may not:
	 * nothing is done, and it is told that it was. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(0), SCMP_SYS(sched_setscheduler), 1,
				     differs(0, 0));
	if (r == 0)
		r = refuse_if(filter, SCMP_SYS(setpriority), differs(1, 0));
	for (unsigned i = 0; i < sizeof owner / sizeof owner[0] && r == 0; i++)
		r = refuse_if(filter, SCMP_SYS(fcntl), is(1, owner[i]));
	for (unsigned i = 0; i < sizeof to_others / sizeof to_others[0] && r == 0; i++)
		r = refuse_if(filter, SCMP_SYS(ioctl), is(1, to_others[i]));
	return r;
}

/* Threads, but no processes. */
static int
refuse_processes(scmp_filter_ctx filter)
{
	static const int calls[] = {SCMP_SYS(fork), SCMP_SYS(vfork), SCMP_SYS(execve),
				    SCMP_SYS(execveat), SCMP_SYS(ptrace)};
	int r = 0;

	if (SANITIZED)
		return 0;
	for (unsigned i = 0; i < sizeof calls / sizeof calls[0] && r == 0; i++)
		r = refuse(filter, calls[i]);
	if (r == 0)
		r = refuse_if(filter, SCMP_SYS(clone),
			      masked(0, CLONE_THREAD, 0));
	if (r == 0)     /* its flags are in memory: the C library takes clone then */
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return r;
}

/* Unix, internet, and what getaddrinfo asks the kernel with. */
static int
refuse_families(scmp_filter_ctx filter)
{
	int r = refuse_if(filter, SCMP_SYS(socket), above(0, AF_NETLINK));

	for (unsigned family = 0; family < AF_NETLINK && r == 0; family++)
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
			r = refuse_if(filter, SCMP_SYS(socket), is(0, family));
	return r;
}

static int
rules(scmp_filter_ctx filter, const struct pm_rights *rights)
{
	int r = 0;

	for (unsigned i = 0; i < sizeof never / sizeof never[0] && r == 0; i++)
		r = refuse(filter, never[i]);
	if (r == 0)
		r = refuse_writing(filter);
	if (r == 0)
		r = refuse_others(filter);
	if (r == 0)
		r = refuse_processes(filter);
	if (r == 0)
		r = refuse_families(filter);
	if (r == 0 && !(rights->keeps & PM_RIGHT_BIND)) {
		/* What is bound was bound at birth.  Without a bind listen() takes any port, which
		 * Landlock lets pass. */
		r = refuse(filter, SCMP_SYS(bind));
		if (r == 0)
			r = refuse(filter, SCMP_SYS(listen));
	}
	if (r == 0 && !(rights->keeps & PM_RIGHT_SOCKETS)) {
		r = refuse(filter, SCMP_SYS(unlink));
		if (r == 0)
			r = refuse(filter, SCMP_SYS(unlinkat));
	}
	if (r == 0 && !(rights->keeps & PM_RIGHT_RING)) {
		r = refuse(filter, SCMP_SYS(io_uring_enter));
		if (r == 0)
			r = refuse(filter, SCMP_SYS(io_uring_register));
	}
	return r;
}

static int
code_of(scmp_filter_ctx filter, struct pm_filter *ret)
{
	int fd = memfd_create("filter", MFD_CLOEXEC), r = fd < 0 ? -errno : 0;
	off_t bytes = 0;

	if (r == 0)
		r = seccomp_export_bpf(filter, fd);
	if (r == 0)
		bytes = lseek(fd, 0, SEEK_END);
	if (r == 0 && (bytes <= 0 || !(ret->code = malloc((size_t)bytes))))
		r = -ENOMEM;
	if (r == 0 && pread(fd, ret->code, (size_t)bytes, 0) != bytes)
		r = -EIO;
	ret->n = (unsigned short)((size_t)bytes / sizeof *ret->code);
	if (fd >= 0)
		close(fd);
	if (r < 0)
		pm_filter_free(ret);
	return r;
}

int
pm_filter_make(struct pm_filter *ret, enum process_role role)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	*ret = (struct pm_filter){0};
	if (!filter)
		return -ENOMEM;
	seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);  /* a tree, not a list */
	r = rules(filter, pm_rights(role));
	if (r == 0)
		r = code_of(filter, ret);
	seccomp_release(filter);
	return r;
}

int
pm_filter_load(const struct pm_filter *filter)
{
	struct sock_fprog program = {.len = filter->n, .filter = filter->code};

	if (filter->n == 0)
		return -EINVAL;
	/* Every thread; and without the slow stores that some kernels tie to a filter.  A thread
	 * that cannot follow is told by its number. */
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		       SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		       &program) == 0 ? 0 : -EPERM;
}

void
pm_filter_free(struct pm_filter *filter)
{
	free(filter->code);
	*filter = (struct pm_filter){0};
}
