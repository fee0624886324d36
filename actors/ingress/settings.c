/* actors/ingress/settings.c -- see settings.h. */
#include "actors/ingress/settings.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "actors/common/config.h"

int
settings_open(struct settings *ret)
{
	*ret = (struct settings){.fd = -1, .next_fd = -1};
	ret->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return ret->event_fd < 0 ? -errno : 0;
}

static void *
load(void *arg)
{
	struct settings *s = arg;
	struct yaml_errors errs = {0};
	uint64_t one = 1;

	s->error = config_load(s->fd, &s->manifest, &s->generation, &errs);
	yaml_errors_free(&errs);
	if (write(s->event_fd, &one, sizeof one) < 0)
		s->error = -errno; /* cannot be: the counter is far from full */
	return NULL;
}

static void
start(struct settings *s, int fd)
{
	s->fd = fd;
	s->manifest = NULL;
	s->loading = true;
	if (pthread_create(&s->thread, NULL, load, s) == 0)
		return;
	/* No thread to be had: once, in the loop, is better than old settings for ever. */
	load(s);
	s->thread = pthread_self();
}

void
settings_load(struct settings *s, int fd)
{
	if (!s->loading) {
		start(s, fd);
		return;
	}
	if (s->next_fd >= 0)
		close(s->next_fd); /* superseded before anybody read it */
	s->next_fd = fd;
}

bool
settings_take(struct settings *s, struct manifest **ret, uint32_t *ret_generation, int *ret_error)
{
	uint64_t n;

	if (!s->loading || read(s->event_fd, &n, sizeof n) < 0)
		return false;
	if (!pthread_equal(s->thread, pthread_self()))
		pthread_join(s->thread, NULL);
	s->loading = false;
	*ret_error = s->error;
	*ret = s->error < 0 ? NULL : s->manifest;
	*ret_generation = s->generation;
	s->manifest = NULL;
	if (s->next_fd >= 0) {
		int fd = s->next_fd;

		s->next_fd = -1;
		start(s, fd);
	}
	return true;
}

void
settings_close(struct settings *s)
{
	if (s->loading && !pthread_equal(s->thread, pthread_self()))
		pthread_join(s->thread, NULL);
	manifest_free(&s->manifest);
	if (s->next_fd >= 0)
		close(s->next_fd);
	if (s->event_fd >= 0)
		close(s->event_fd);
	*s = (struct settings){.event_fd = -1, .fd = -1, .next_fd = -1};
}
