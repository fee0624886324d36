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
pm_background_allowed(void)
{
	struct rlimit limit;
	unsigned long long effective = 0;
	char line[128];
	FILE *f;

	if (getrlimit(RLIMIT_NICE, &limit) == 0 && limit.rlim_cur >= 20)
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

void
pm_background(pid_t pid, bool on)
{
	const struct sched_param none = {0};
	struct dirent *entry;
	char path[32];
	DIR *tasks;

	if (on && !pm_background_allowed())
		return;
	snprintf(path, sizeof path, "/proc/%d/task", (int)(pid ? pid : getpid()));
	tasks = opendir(path);
	if (!tasks)
		return;
	while ((entry = readdir(tasks)))
		if (entry->d_name[0] != '.')
			sched_setscheduler((pid_t)strtol(entry->d_name, NULL, 10),
					   on ? SCHED_IDLE : SCHED_OTHER, &none);
	closedir(tasks);
}
