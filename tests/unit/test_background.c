/* tests/unit/test_background.c -- work that must not be felt. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "actors/common/background.h"

static int
policy_of(pid_t tid)
{
	return sched_getscheduler(tid);
}

static void *
report_thread(void *arg)
{
	int *pipes = arg;
	pid_t tid = gettid();
	char c;

	cr_assert_eq(write(pipes[1], &tid, sizeof tid), sizeof tid);
	cr_assert_eq(read(pipes[2], &c, 1), 0);         /* until the test is done */
	return NULL;
}

Test(background, every_thread_goes_there_and_comes_back_or_none_goes_without_the_right)
{
	int up[2], down[2], pipes[4];
	pthread_t thread;
	pid_t tid;

	cr_assert_eq(pipe(up), 0);
	cr_assert_eq(pipe(down), 0);
	pipes[1] = up[1];
	pipes[2] = down[0];
	cr_assert_eq(pthread_create(&thread, NULL, report_thread, pipes), 0);
	cr_assert_eq(read(up[0], &tid, sizeof tid), sizeof tid);
	int there = pm_background_allowed() ? SCHED_IDLE : SCHED_OTHER;

	pm_background(0, true);
	cr_assert_eq(policy_of(0), there);
	cr_assert_eq(policy_of(tid), there);
	pm_background(0, false);
	cr_assert_eq(policy_of(0), SCHED_OTHER);
	cr_assert_eq(policy_of(tid), SCHED_OTHER);
	close(down[1]);
	pthread_join(thread, NULL);
}

Test(background, two_cpus_become_one_for_who_talks_much_and_other_counts_stay)
{
	cpu_set_t before, after;

	cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
	pm_together(0);
	cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
	cr_assert_eq(CPU_COUNT(&after), CPU_COUNT(&before) == 2 ? 1 : CPU_COUNT(&before));
	CPU_AND(&before, &before, &after);
	cr_assert(CPU_EQUAL(&before, &after), "a CPU of ours");
}
