/* actors/supervisor/outbox.c -- frames for a peer that may not be reading. */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actors/common/birth.h"

#define OUTBOX_MAX 4096u

struct outbox_entry {
	struct outbox_entry *next;
	int fd;                         /* -1: none */
	size_t len;
	char frame[];
};

static void
entry_free(struct outbox_entry *e)
{
	if (e->fd >= 0)
		close(e->fd);
	free(e);
}

int
outbox_flush(struct outbox *out, int sock)
{
	while (out->first) {
		struct outbox_entry *e = out->first;
		int r = msg_send_frame(sock, e->frame, e->len, e->fd);

		if (r < 0)
			return r == -ENOBUFS || r == -ETOOMANYREFS ? -EAGAIN : r;
		out->first = e->next;
		if (!out->first)
			out->last = &out->first;
		out->n--;
		entry_free(e);
	}
	return 0;
}

int
outbox_send(struct outbox *out, int sock, enum msg_id id, const void *msg, int fd)
{
	struct outbox_entry *e;
	char frame[65536];
	ssize_t n = msg_pack(id, msg, frame, sizeof frame);
	int r;

	if (n < 0)
		return (int)n;
	if (!out->first) {
		r = msg_send_frame(sock, frame, (size_t)n, fd);
		if (r != -EAGAIN && r != -ENOBUFS && r != -ETOOMANYREFS)
			return r;
	}
	if (out->n >= OUTBOX_MAX)
		return -ENOBUFS;
	e = malloc(sizeof *e + (size_t)n);
	if (!e)
		return -ENOMEM;
	*e = (struct outbox_entry){.fd = -1, .len = (size_t)n};
	memcpy(e->frame, frame, (size_t)n);
	if (fd >= 0 && (e->fd = fcntl(fd, F_DUPFD_CLOEXEC, 4)) < 0) {
		r = -errno;
		free(e);
		return r;
	}
	if (!out->first)
		out->last = &out->first;
	*out->last = e;
	out->last = &e->next;
	out->n++;
	return 0;
}

void
outbox_clear(struct outbox *out)
{
	while (out->first) {
		struct outbox_entry *e = out->first;

		out->first = e->next;
		entry_free(e);
	}
	out->last = NULL;
	out->n = 0;
}
