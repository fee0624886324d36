/* actors/common/background.h -- work beside requests that must not be felt by them.
 *
 * Loading a policy process beside the one that serves, and giving memory back at an end, take
 * milliseconds of CPU; with few cores every request meanwhile waited for them.  SCHED_IDLE runs
 * only where nobody else wants the CPU and gives it back at once.
 *
 * Rights     coming back needs CAP_SYS_NICE or RLIMIT_NICE of at least 20 (systemd: LimitNICE=+0):
 *            without them nothing is done.
 * Threads    any.   Cost: a system call a thread.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

bool pm_background_allowed(void);
bool pm_background_limit(void);
	/* By the limit alone: also for a process we start that will have no capabilities. */
void pm_background(pid_t pid, bool on);
	/* All threads of that process (0: ours) go there, or run as others do again; once we have
	 * given up our rights (rights.h), only the thread that calls. */
void pm_together(pid_t pid);
	/* With two CPUs, all threads of that process onto the first of them, else nothing:
	 * processes that wake each other several times a request answer sooner from one CPU than
	 * across two (a halted virtual CPU takes longer to wake than all the work it is woken
	 * for). */
