/* actors/ingress/listen.c -- see listen.h. */
#include "actors/ingress/listen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/log.h"
#include "actors/ingress/client.h"

static void listen_end(struct ingress_listener *l);

static void
on_accept(void *arg, int fd, int err)
{
	struct ingress_listener *l = arg;

	if (fd >= 0)
		client_accept(l->in, fd, l->number);
	else if (err == -ECANCELED)
		listen_end(l);
	else
		log_warn("accept failed: %s; tried again in 100 ms", strerror(-err));
}

static void
listen_start(struct ingress_listener *l)
{
	l->wanted = true;
	if (!l->accept)
		l->accept = io_accept(l->in->io, l->fd, on_accept, l);
}

static void
listen_stop(struct ingress_listener *l)
{
	l->wanted = false;
	if (l->accept)
		io_cancel(l->in->io, l->accept); /* the final call comes later */
}

/* Whoever comes from now on is to be refused by the kernel, not to wait in a queue nobody empties.
 */
static void
listen_close(struct ingress_listener *l)
{
	if (l->fd < 0)
		return;
	io_close_fd(l->in->io, l->fd);
	l->in->actor.birth.listener[l->number].fd = l->fd = -1;
}

static void
listen_end(struct ingress_listener *l)
{
	l->accept = NULL;
	if (l->wanted)
		listen_start(l);
	else if (l->in->draining)
		listen_close(l);        /* what was in the queue has been swept */
}

void
listen_own(struct ingress *in)
{
	if (in->accepts || in->draining)
		return;
	in->accepts = true;
	for (unsigned i = 0; i < in->n_listeners; i++)
		if (in->listener[i].index == in->actor.birth.index)
			listen_start(&in->listener[i]);
}

void
listen_adopt(struct ingress *in, uint32_t index, bool on)
{
	if (in->draining || index == in->actor.birth.index)
		return;
	log_info("neighbour's sockets ingress=%u %s", index, on ? "adopted" : "given back");
	for (unsigned i = 0; i < in->n_listeners; i++)
		if (in->listener[i].index == index) {
			if (on)
				listen_start(&in->listener[i]);
			else
				listen_stop(&in->listener[i]);
		}
}

void
listen_drain(struct ingress *in)
{
	for (unsigned i = 0; i < in->n_listeners; i++) {
		listen_stop(&in->listener[i]);
		if (!in->listener[i].accept)
			listen_close(&in->listener[i]);
	}
}

int
listen_open(struct ingress *in)
{
	struct birth *b = &in->actor.birth;

	in->listener = calloc(b->n_listeners + 1, sizeof *in->listener);
	if (!in->listener)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n_listeners; i++) {
		in->listener[in->n_listeners++] = (struct ingress_listener){
			.in = in,
			.index = b->listener[i].index,
			.number = (uint16_t)i,
			.tls = b->listener[i].tls,
			.fd = b->listener[i].fd,
		};
	}
	return 0;
}
