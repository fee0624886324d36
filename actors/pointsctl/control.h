/* actors/pointsctl/control.h -- <run>/control.sock: the supervisor's ear (messages.def 70-72).
 *
 * Ownership  the descriptor is the caller's (close).   Threads  one.
 * Waits      for the supervisor, with a bound each; never for ever.
 */
#pragma once
#include "actors/common/view.h"
#include "actors/pointsctl/pointsctl.h"

int control_connect(const char *run_dir, const char **why);
	/* A descriptor, or -errno with *why. */
int control_say(const struct options *o, enum msg_id id, const void *msg);
	/* Says that word, prints what is answered, and is the command's exit code. */
int control_attach(int sock, struct pm_view *view, const char **why);
	/* Asks for all segments and takes them up to `go`.  0; -ETIMEDOUT, -EPIPE, -EBADMSG. */
int control_turn(int sock, struct pm_view *view, int wait_ms);
	/* What came since, waiting at most wait_ms for the first.  0; -EPIPE: the supervisor
	 * ended. */
