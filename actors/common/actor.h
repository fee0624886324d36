/* actors/common/actor.h -- the life of a process that is not ingress or supervisor.
 *
 * pm_actor_main: take birth, log, own the signals (CZMQ's handlers off, signalfd, SIGPIPE ignored,
 * masks set before the first ZMQ context), give up files and other processes (rights.h), claim the
 * process segment, .open, give up system calls its role does not need, say ready, then loop
 * over {supervisor, signals, watched sockets, tick} with a heartbeat each turn; on `drain` or
 * SIGTERM call .drain and stop when pm_actor_stop is called; .close; exit code 0, 70 internal, 78
 * configuration. Ingress uses pm_actor_begin/pm_actor_end and runs its own loop.
 *
 * Threads    the loop's thread only, but for count_*; other threads are zactors of the process.
 */
#pragma once
#include <czmq.h>
#include "actors/common/birth.h"
#include "actors/common/log.h"
#include "actors/common/rights.h"

#define EXIT_CONFIG 78
#define EXIT_INTERNAL 70

struct pm_actor {
	struct birth birth;
	struct process_segment process;         /* ours, writable: counters, journal, panic text */
	int signal_fd;
	bool supervised;                        /* false once the supervisor's end closed */
	struct pm_loop *loop;                   /* private to actor.c; NULL in ingress */
	struct pm_filter filter;                /* owned; made before birth */
};

typedef void pm_watch_f(struct pm_actor *actor, void *arg);

struct pm_actor_spec {
	const char *name;
	unsigned tick_ms;                       /* 0: 1000 */
	int (*open)(struct pm_actor *actor,
		    void **ret_me); /* negative errno: birth_fail said why */
	void (*close)(void **me);
	void (*on_message)(void *me, const struct msg *msg,
			   int fd); /* from the supervisor; owns fd */
	void (*on_tick)(void *me, mono_ns now);
	void (*on_drain)(void *me, mono_ns deadline);                   /* NULL: stop at once */
};

int pm_actor_main(int argc, char **argv, const struct pm_actor_spec *spec);

int pm_actor_begin(struct pm_actor *actor, const char *name);
	/* Birth, log, signals, files given up, process segment; before any ZMQ socket.  The name is
	 * the role's.  0 or exit code. */
void pm_actor_narrow(struct pm_actor *actor);
	/* When all is open, before ready: gives up system calls.  What it cannot is in the log. */
void pm_actor_end(struct pm_actor *actor);
void pm_actor_heartbeat(struct pm_actor *actor, mono_ns now);

void pm_actor_watch_socket(struct pm_actor *actor, zsock_t *sock, pm_watch_f *f, void *arg);
void pm_actor_watch_fd(struct pm_actor *actor, int fd, pm_watch_f *f, void *arg);       /* POLLIN */
void pm_actor_unwatch_socket(struct pm_actor *actor, zsock_t *sock);
void pm_actor_unwatch_fd(struct pm_actor *actor, int fd);
void pm_actor_used(struct pm_actor *actor, zsock_t *sock);
	/* Must be said of a watched socket that was used in the callback of another: ZMQ may have
	 * taken the wake-up that was on its way.  (Not said, the next tick finds what came.) */
void pm_actor_stop(struct pm_actor *actor, int exit_code);

_Noreturn void pm_panic(struct process_segment *process, const char *file, int line,
			const char *text);
	/* Writes the panic text into the process segment, then aborts. */
#define PM_ASSERT(process, condition) \
	((condition) ? (void)0 : pm_panic(process, __FILE__, __LINE__, #condition))

/* Well-known sockets, each in the folder of the role that binds it, below the run directory as
 * birth names it. */
void pm_policy_endpoint(char *buf, size_t cap, const char *run_dir, uint32_t index,
			uint32_t incarnation);
	/* ipc://<run>/ingress/policy.<index>.<incarnation>.sock; bound once per incarnation */
void pm_endpoint(char *buf, size_t cap, const char *run_dir, const char *name);
	/* ipc://<run>/<name>/<name>.sock: kvevents (PULL), metrics (PULL), admin (ROUTER) */
void pm_tap_endpoint(char *buf, size_t cap, const char *run_dir);
	/* ipc://<run>/kvevents/tap.sock (ROUTER): for admin only */
