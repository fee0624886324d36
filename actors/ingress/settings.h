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
#include "actors/ingress/credentials.h"

struct settings {
	int event_fd;                   /* readable when a load has ended */
	bool loading;
	pthread_t thread;
	struct settings_files {
		int config, secrets;    /* segments; -1: none */
		bool found;             /* only other members: the credentials stay */
	} now, next;                    /* being loaded; came meanwhile */
	struct settings_files coming;   /* secrets come before the documents they belong to */
	struct manifest *manifest;      /* the thread's results */
	struct credentials *credentials;
	uint32_t generation;
	uint32_t newest;                /* generation that came last */
	int error;
	char why[TLS_WHY_MAX];
};

int settings_open(struct settings *ret, uint32_t generation);
	/* generation: loaded at birth. */
void settings_close(struct settings *s);
void settings_secrets(struct settings *s, int fd);
	/* Takes fd, a SECRETS segment: of the CONFIG that comes next. */
void settings_load(struct settings *s, int fd, uint32_t generation);
	/* Takes fd, a CONFIG segment.  The generation that came last, once more: other members were
	 * found for it. */
bool settings_take(struct settings *s, struct manifest **ret, struct credentials **ret_credentials,
		   uint32_t *ret_generation, int *ret_error);
	/* When event_fd is readable: a load has ended, with *ret and *ret_credentials or with
	 * *ret_error and s->why.  *ret_credentials NULL: those of that generation stay. */
int settings_read(int config, int secrets, struct manifest **ret,
		  struct credentials **ret_credentials, uint32_t *ret_generation,
		  char why[TLS_WHY_MAX]);
	/* The load itself, at birth.  Takes both.  ret_credentials NULL: only the documents. */
