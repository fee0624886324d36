/* actors/ingress/settings.c -- see settings.h. */
#include "actors/ingress/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/common/config.h"

static const struct settings_files no_files = {.config = -1, .secrets = -1};

static void
files_close(struct settings_files *f)
{
	if (f->config >= 0)
		close(f->config);
	if (f->secrets >= 0)
		close(f->secrets);
	*f = no_files;
}

int
settings_open(struct settings *ret, uint32_t generation)
{
	*ret = (struct settings){.now = no_files, .next = no_files, .coming = no_files,
				 .newest = generation};
	ret->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return ret->event_fd < 0 ? -errno : 0;
}

int
settings_read(int config, int secrets, struct manifest **ret, struct credentials **ret_credentials,
	      uint32_t *ret_generation, char why[TLS_WHY_MAX])
{
	struct yaml_errors errs = {0};
	int r = config_load(config, ret, ret_generation, &errs);

	yaml_errors_free(&errs);
	if (r < 0) {
		snprintf(why, TLS_WHY_MAX, "%s", strerror(-r));
		if (secrets >= 0)
			close(secrets);
		return r;
	}
	if (!ret_credentials) {
		if (secrets >= 0)
			close(secrets);
		return 0;
	}
	r = credentials_load(ret_credentials, *ret, secrets, *ret_generation, why);
	if (r < 0)
		manifest_free(ret);
	return r;
}

static void *
load(void *arg)
{
	struct settings *s = arg;
	uint64_t one = 1;

	s->error = settings_read(s->now.config, s->now.secrets, &s->manifest,
				 s->now.found ? NULL : &s->credentials, &s->generation, s->why);
	s->now = no_files;              /* taken */
	if (write(s->event_fd, &one, sizeof one) < 0)
		s->error = -errno; /* cannot be: the counter is far from full */
	return NULL;
}

static void
start(struct settings *s, struct settings_files files)
{
	s->now = files;
	s->manifest = NULL;
	s->credentials = NULL;
	s->loading = true;
	if (pthread_create(&s->thread, NULL, load, s) == 0)
		return;
	/* No thread to be had: once, in the loop, is better than old settings for ever. */
	load(s);
	s->thread = pthread_self();
}

void
settings_secrets(struct settings *s, int fd)
{
	files_close(&s->coming);
	s->coming.secrets = fd;
}

void
settings_load(struct settings *s, int fd, uint32_t generation)
{
	struct settings_files files = s->coming;

	s->coming = no_files;
	files.config = fd;
	files.found = generation == s->newest && files.secrets < 0;
	s->newest = generation;
	if (files.found && s->loading && s->next.config >= 0) {
		close(s->next.config);  /* that generation still waits: its secrets stay with it */
		s->next.config = fd;
		return;
	}
	if (!s->loading) {
		start(s, files);
		return;
	}
	files_close(&s->next);          /* superseded before anybody read it */
	s->next = files;
}

bool
settings_take(struct settings *s, struct manifest **ret, struct credentials **ret_credentials,
	      uint32_t *ret_generation, int *ret_error)
{
	uint64_t n;

	if (!s->loading || read(s->event_fd, &n, sizeof n) < 0)
		return false;
	if (!pthread_equal(s->thread, pthread_self()))
		pthread_join(s->thread, NULL);
	s->loading = false;
	*ret_error = s->error;
	*ret = s->error < 0 ? NULL : s->manifest;
	*ret_credentials = s->error < 0 ? NULL : s->credentials;
	*ret_generation = s->generation;
	s->manifest = NULL;
	s->credentials = NULL;
	if (s->next.config >= 0) {
		struct settings_files files = s->next;

		s->next = no_files;
		start(s, files);
	}
	return true;
}

void
settings_close(struct settings *s)
{
	if (s->loading && !pthread_equal(s->thread, pthread_self()))
		pthread_join(s->thread, NULL);
	manifest_free(&s->manifest);
	credentials_free(&s->credentials);
	files_close(&s->next);
	files_close(&s->coming);
	if (s->event_fd >= 0)
		close(s->event_fd);
	*s = (struct settings){.event_fd = -1, .now = no_files, .next = no_files,
			       .coming = no_files};
}
