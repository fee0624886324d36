/* actors/common/background.c -- see background.h. */
#include "actors/common/background.h"

#include <dirent.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

bool
pm_background_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NICE, &limit) == 0 && limit.rlim_cur >= 20;
}

bool
pm_background_allowed(void)
{
	unsigned long long effective = 0;
	char line[128];
	FILE *f;

	if (pm_background_limit())
		return true;
	f = fopen("/proc/self/status", "re");
	if (!f)
		return false;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	fclose(f);
	return effective >> CAP_SYS_NICE & 1;
}

/* f for each thread of that process (0: ours). */
static void
each_thread(pid_t pid, void (*f)(pid_t tid, const void *arg), const void *arg)
{
	struct dirent *entry;
	char path[32];
	DIR *tasks;

	snprintf(path, sizeof path, "/proc/%d/task", (int)(pid ? pid : getpid()));
	tasks = opendir(path);
	if (!tasks)
		return;
	while ((entry = readdir(tasks))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (entry->d_name[0] != '.')    /* 0: ourselves, the only one rights.h leaves us */
			f(tid == gettid() ? 0 : tid, arg);
	}
	closedir(tasks);
}

static void
set_policy(pid_t tid, const void *policy)
{
	sched_setscheduler(tid, *(const int *)policy, &(struct sched_param){0});
}

void
pm_background(pid_t pid, bool on)
{
	int policy = on ? SCHED_IDLE : SCHED_OTHER;

	if (!on || pm_background_allowed())
		each_thread(pid, set_policy, &policy);
}

static void
set_cpu(pid_t tid, const void *cpus)
{
	sched_setaffinity(tid, sizeof(cpu_set_t), cpus);
}

void
pm_together(pid_t pid)
{
	cpu_set_t ours, one;

	if (sched_getaffinity(0, sizeof ours, &ours) < 0 || CPU_COUNT(&ours) != 2)
		return;
	CPU_ZERO(&one);
	for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &ours))
			CPU_SET(cpu, &one);
	each_thread(pid, set_cpu, &one);
}
