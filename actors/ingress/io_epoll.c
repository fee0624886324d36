/* actors/ingress/io_epoll.c -- the back end for where io_uring is forbidden.
 *
 * Sends and connects are tried at once and wait for EPOLLOUT only if they must; receives wait for
 * EPOLLIN, level-triggered, one recv an event.  Registrations change lazily: wait adds what a new
 * operation needs; what nobody needs any more goes when it fires with no taker.  So a stop and
 * start of reading between two events costs no system call.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "actors/ingress/io_back.h"

#define EVENTS_A_TURN 256
#define ACCEPTS_AN_EVENT 64             /* then others get their turn */
#define RECV_BYTES ((size_t)65536)

#define BITS_READ (EPOLLIN | EPOLLRDHUP)
#define BITS_END (EPOLLHUP | EPOLLERR)  /* come asked or not */
#define BITS_WATCH (POLLIN | POLLRDHUP | POLLHUP | POLLERR)

_Static_assert(EPOLLIN == POLLIN && EPOLLRDHUP == POLLRDHUP && EPOLLHUP == POLLHUP &&
	       EPOLLERR == POLLERR, "io_watch tells poll bits");

struct io_epoll {
	int fd;
	struct epoll_event event[EVENTS_A_TURN];
	int n_events;
	uint8_t *buf;                   /* RECV_BYTES */
};

static void epoll_close_back(struct io *io);

static int
epoll_open_back(struct io *io, unsigned option, const char **ret_why)
{
	struct io_epoll *me = calloc(1, sizeof *me);

	(void)option;
	if (!me)
		return -ENOMEM;
	io->state = me;
	me->fd = epoll_create1(EPOLL_CLOEXEC);
	if (me->fd < 0) {
		int err = errno;

		*ret_why = "epoll_create1 failed";
		return -err;
	}
	me->buf = malloc(RECV_BYTES);
	if (!me->buf)
		return -ENOMEM;
	io_poison(me->buf, RECV_BYTES);
	return 0;
}

static void
epoll_close_back(struct io *io)
{
	struct io_epoll *me = io->state;

	if (!me)
		return;
	if (me->fd >= 0)
		close(me->fd);
	free(me->buf);
	free(me);
	io->state = NULL;
}

/* ---- registration ---- */

static uint32_t
wanted(const struct io_slot *slot)
{
	uint32_t bits = 0;

	if (slot->reader && slot->reader->kind == IO_OP_ACCEPT)
		return slot->reader->stopping || slot->reader->heap_at ? 0 :
			(uint32_t)EPOLLIN | (uint32_t)EPOLLEXCLUSIVE;
	if (slot->reader)
		bits |= BITS_READ;
	if (slot->writer)
		bits |= EPOLLOUT;
	return bits;
}

static int
register_exactly(struct io *io, int fd, uint32_t bits)
{
	struct io_epoll *me = io->state;
	struct io_slot *slot = io_slot(io, fd);
	struct epoll_event event = {
		.events = bits,
		.data.u64 = (uint64_t)slot->generation << 32 | (uint32_t)fd,
	};
	int op = !bits ? EPOLL_CTL_DEL : slot->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	int r;

	if (bits == slot->armed)
		return 0;
	r = epoll_ctl(me->fd, op, fd, &event);
	if (r < 0 && bits) {
		slot->armed = 0;
		return -errno;
	}
	slot->armed = bits;
	return 0;
}

static int
epoll_wait_back(struct io *io, int64_t wait_ns)
{
	struct io_epoll *me = io->state;
	int wait_ms = -1;

	while (!io_node_empty(&io->arm)) {
		struct io_op *op = IO_OP_OF(io->arm.next, arm);
		struct io_slot *slot = io_slot(io, op->fd);
		uint32_t bits = wanted(slot);
		int r = 0;

		io_node_unlink(&op->arm);
		if ((slot->armed & bits) != bits || (bits & EPOLLEXCLUSIVE))
			r = register_exactly(io, op->fd, bits);
		if (r < 0) {
			io_ready_result(io, op, r);
			wait_ns = 0;
		}
	}
	if (wait_ns >= 0) {
		/* Rounded up: a timer must not spin through its last millisecond. */
		int64_t ms = (wait_ns + 999999) / 1000000;

		wait_ms = ms > 3600000 ? 3600000 : (int)ms;
	}
	me->n_events = epoll_wait(me->fd, me->event, EVENTS_A_TURN, wait_ms);
	if (me->n_events < 0) {
		int err = errno;

		me->n_events = 0;
		return err == EINTR ? 0 : -err;
	}
	return 0;
}

/* ---- work ---- */

static void
try_send(struct io *io, struct io_op *op)
{
	ssize_t n = sendmsg(op->fd, &op->msg, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n >= 0) {
		io_send_advance(op, (size_t)n);
		if (!op->msg.msg_iovlen) {
			io_ready_result(io, op, 0);
			return;
		}
	} else if (errno != EAGAIN && errno != EINTR) {
		io_ready_result(io, op, -errno);
		return;
	}
	io_node_push(&io->arm, &op->arm);
}

static void
try_connect(struct io *io, struct io_op *op)
{
	if (!connect(op->fd, (const struct sockaddr *)&op->u.addr, op->addr_len)) {
		io_ready_result(io, op, op->fd);
	} else if (errno == EINPROGRESS || errno == EINTR) {
		io_node_push(&io->arm, &op->arm);
	} else if (errno == EAGAIN && op->u.addr.ss_family == AF_UNIX) {
		io_connect_again(io, op);
	} else {
		io_ready_result(io, op, -errno);
	}
}

static void
epoll_start(struct io *io, struct io_op *op)
{
	switch (op->kind) {
	case IO_OP_SEND:
		try_send(io, op);
		break;
	case IO_OP_CONNECT:
		try_connect(io, op);
		break;
	case IO_OP_ACCEPT:
	case IO_OP_RECV:
	case IO_OP_WATCH:
		io_node_push(&io->arm, &op->arm);
		break;
	case IO_OP_TIMER:
		break;
	}
}

static void
epoll_stop(struct io *io, struct io_op *op)
{
	io_node_unlink(&op->arm);
	if (op->kind == IO_OP_ACCEPT) {
		/* At once: while it is registered, this process takes wake-ups meant for another.
		 * */
		(void)register_exactly(io, op->fd, 0);
		if (!op->dead)
			io_ready(io, op);
	}
}

static void
epoll_feed(struct io *io, struct io_op *op)
{
	/* Nothing is ever received for a cancelled recv here. */
	epoll_start(io, op);
}

static struct io_op *
epoll_revive(struct io *io, int fd)
{
	(void)io;
	(void)fd;
	return NULL;
}

static void
epoll_forget(struct io *io, int fd)
{
	/* close alone would not end it if a child or another process shares the open file. */
	(void)register_exactly(io, fd, 0);
}

static void
on_readable(struct io *io, struct io_op *op, uint32_t bits)
{
	struct io_epoll *me = io->state;
	ssize_t n;
	int i, fd;

	switch (op->kind) {
	case IO_OP_RECV:
		io_unpoison(me->buf, RECV_BYTES);
		n = recv(op->fd, me->buf, RECV_BYTES, MSG_DONTWAIT);
		if (n > 0)
			io_tell_recv(io, op, me->buf, (size_t)n);
		else if (n == 0)
			io_finish(io, op, 0);
		else if (errno != EAGAIN && errno != EINTR)
			io_finish(io, op, -errno);
		io_poison(me->buf, RECV_BYTES);
		break;
	case IO_OP_WATCH:
		io_tell_watch(io, op, (int)(bits & BITS_WATCH));
		break;
	case IO_OP_ACCEPT:
		for (i = 0; i < ACCEPTS_AN_EVENT && !op->stopping; i++) {
			fd = accept4(op->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
			if (fd < 0) {
				if (errno != EAGAIN)
					io_accept_failed(io, op, -errno);
				break;
			}
			if (!io_tell_accept(io, op, fd))
				break;
		}
		break;
	case IO_OP_SEND:
	case IO_OP_CONNECT:
	case IO_OP_TIMER:
		break;
	}
}

static void
on_writable(struct io *io, struct io_op *op)
{
	int err = 0;
	socklen_t len = sizeof err;

	if (op->has_result)
		return;                 /* the ready list has it already */
	if (op->kind == IO_OP_SEND) {
		try_send(io, op);
		if (op->has_result)
			io_finish(io, op, op->result);
	} else {
		if (getsockopt(op->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
			err = errno;
		io_finish(io, op, err ? -err : op->fd);
	}
}

static void
on_event(struct io *io, int fd, uint32_t generation, uint32_t bits)
{
	struct io_slot *slot = io_slot(io, fd);
	uint32_t missing;

	if (slot->generation != generation)
		return;                 /* closed, and perhaps reused, by an earlier callback */
	missing = slot->armed & ~wanted(slot) & bits;
	if ((bits & (EPOLLOUT | BITS_END)) && slot->writer)
		on_writable(io, slot->writer);
	slot = io_slot(io, fd);
	if (slot->generation != generation)
		return;
	if ((bits & (BITS_READ | BITS_END)) && (wanted(slot) & EPOLLIN))
		on_readable(io, slot->reader, bits);
	slot = io_slot(io, fd);
	if (slot->generation != generation)
		return;
	/* Fired with no taker: else it would fire for ever. */
	if (missing || (!wanted(slot) && (bits & BITS_END)))
		(void)register_exactly(io, fd, wanted(slot));
}

static void
epoll_reap(struct io *io)
{
	struct io_epoll *me = io->state;
	int i;

	for (i = 0; i < me->n_events; i++) {
		const struct epoll_event *event = &me->event[i];

		on_event(io, (int)(uint32_t)event->data.u64, (uint32_t)(event->data.u64 >> 32),
			 event->events);
	}
	me->n_events = 0;
}

const struct io_back io_back_epoll = {
	.backend = IO_EPOLL,
	.open = epoll_open_back,
	.close = epoll_close_back,
	.wait = epoll_wait_back,
	.reap = epoll_reap,
	.revive = epoll_revive,
	.start = epoll_start,
	.stop = epoll_stop,
	.feed = epoll_feed,
	.forget = epoll_forget,
};
