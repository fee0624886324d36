/* actors/ingress/wire.c -- see wire.h. */
#include "actors/ingress/wire.h"

#include <errno.h>
#include <sys/socket.h>

#include "actors/ingress/wire_tls.h"

void
wire_open(struct wire *ret, struct io *io, int fd, const struct wire_ops *ops, void *arg)
{
	*ret = (struct wire){.io = io, .fd = fd, .ops = ops, .arg = arg};
}

void
wire_on_recv(void *arg, const void *buf, ssize_t n)
{
	struct wire *w = arg;

	if (n <= 0)
		w->recv = NULL;
	if (w->tls)
		wire_tls_received(w, buf, n);
	else
		w->ops->received(w->arg, buf, n);
}

static void
on_sent(void *arg, int result)
{
	struct wire *w = arg;

	w->send = NULL;
	w->ops->sent(w->arg, result);
}

int
wire_receive(struct wire *w)
{
	if (w->tls)
		return wire_tls_receive(w);
	if (!w->recv)
		w->recv = io_recv(w->io, w->fd, wire_on_recv, w);
	return w->recv ? 0 : -ENOMEM;
}

void
wire_pause(struct wire *w)
{
	if (w->tls) {
		wire_tls_pause(w);
		return;
	}
	if (w->recv)
		io_cancel(w->io, w->recv);
	w->recv = NULL;
}

bool
wire_receives(const struct wire *w)
{
	return w->tls ? wire_tls_receives(w) : w->recv != NULL;
}

int
wire_send(struct wire *w, const struct iovec *iov, unsigned n)
{
	if (w->tls)
		return wire_tls_send(w, iov, n);
	w->send = io_send(w->io, w->fd, iov, n, on_sent, w);
	return w->send ? 0 : -ENOMEM;
}

bool
wire_sends(const struct wire *w)
{
	return w->tls ? wire_tls_sends(w) : w->send != NULL;
}

void
wire_shut(struct wire *w, bool whole)
{
	if (w->tls)
		wire_tls_shut(w, whole);
	else
		shutdown(w->fd, SHUT_WR);
}

void
wire_bye(struct wire *w)
{
	if (w->tls)
		wire_tls_bye(w);
}

void
wire_close(struct wire *w)
{
	if (w->fd < 0)
		return;
	if (w->send)
		io_cancel(w->io, w->send);
	if (w->recv)
		io_cancel(w->io, w->recv);
	w->send = w->recv = NULL;
	if (w->tls)
		wire_tls_close(w);
	io_close_fd(w->io, w->fd);
	w->fd = -1;
}
