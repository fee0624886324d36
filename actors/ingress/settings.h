/* actors/ingress/settings.h -- the configuration of a new generation, loaded beside the loop.
 *
 * Meaning    Loading a snapshot parses YAML, which takes milliseconds: no request may wait for
 *            that.  One thread at a time loads the newest snapshot that came; the loop is woken
 *            when it is done.
 * Ownership  settings_take gives the manifest away; what nobody takes is freed by close.
 * Threads    the loop's, but for the loader's own.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>

#include "actors/common/decide/manifest.h"

struct settings {
	int event_fd;                   /* readable when a load has ended */
	bool loading;
	pthread_t thread;
	int fd;                         /* being loaded */
	int next_fd;                    /* came meanwhile; -1 */
	struct manifest *manifest;      /* the thread's result */
	uint32_t generation;
	int error;
};

int settings_open(struct settings *ret);
void settings_close(struct settings *s);
void settings_load(struct settings *s, int fd);
	/* Takes fd, a CONFIG segment. */
bool settings_take(struct settings *s, struct manifest **ret, uint32_t *ret_generation,
		   int *ret_error);
	/* When event_fd is readable: a load has ended, with *ret or with *ret_error. */
