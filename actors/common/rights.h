/* actors/common/rights.h -- what a process of each role may do, and nothing else.
 *
 * Meaning    Whoever takes over a process by what it parses has what that process has: these are
 *            the walls.  They stand in two rows, each whole without the other.
 *            User ids: where pointsman is started as root, each role runs under an id of its own;
 *            shared memory belongs to the supervisor (mode 0400), so that a read-only descriptor
 *            cannot be reopened for writing, and no process can touch another one.
 *            Narrowing: each process gives up for good, before it says ready, every system call
 *            its role never needs (libseccomp: EPERM) and every way to write a file, to execute a
 *            program or to reach another process (Landlock, where the kernel has it).  Between
 *            processes of one user id this is all there is.
 * Table      one, in rights.c: a role's row says what it keeps.
 * Without    Landlock (Linux before 5.13, or forbidden): files cannot be opened for writing and
 *            nothing bound all the same (seccomp), and each process, the supervisor too, makes
 *            itself undumpable, which keeps its memory and descriptors from others of its user id.
 * Sanitizers a build with AddressSanitizer keeps fork, exec and ptrace: its reports need them.
 * Errors     a wall that cannot be put up is told in the log; the process goes on.
 * Threads    pm_rights_enter before there is a second one; pm_filter_load covers all there are.
 * Cost       at birth, below; later nothing worth measuring: the kernel keeps a bitmap of the
 *            system calls that a filter always allows.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "shm/segment.h"

enum pm_right {
	PM_RIGHT_CONNECT = 1,           /* TCP to workers */
	PM_RIGHT_LISTEN = 2,            /* TCP, until it is ready */
	PM_RIGHT_SOCKETS = 4,           /* unix sockets in its own folder, until it is ready */
	PM_RIGHT_RING = 8,              /* the io_uring it made before it was ready */
	PM_RIGHT_BIND = 16,             /* TCP, at any time: where workers' events come to us */
};

struct pm_rights {
	unsigned keeps;                 /* enum pm_right, or-ed */
	unsigned reaches;               /* bit per role whose sockets it connects to */
};

const struct pm_rights *pm_rights(enum process_role role);
	/* The table's row; all zero for roles that are no child's. */

int pm_rights_enter(enum process_role role, const char *run_dir);
	/* First half: no capabilities, no new privileges; Landlock.
	 * Sockets in <run_dir>/<role> can still be bound (PM_RIGHT_SOCKETS).  The Landlock ABI, 0
	 * without. */
struct sock_filter;

struct pm_filter {
	struct sock_filter *code;       /* owned */
	unsigned short n;
};

int pm_filter_make(struct pm_filter *ret, enum process_role role);
	/* Half a millisecond: before birth, for which nobody waits.  Holds only for the process
	 * that made it.  0, -ENOMEM, -errno. */
int pm_filter_load(const struct pm_filter *filter);
	/* Second half: every thread, for good.  0.1 ms.  0; -EINVAL: none was made; -EPERM. */
void pm_filter_free(struct pm_filter *filter);

int pm_landlock_abi(void);
	/* 0: this kernel has none, or we may not use it. */
