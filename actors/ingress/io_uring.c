/* actors/ingress/io_uring.c -- the back end that submits a turn's work in one system call.
 *
 * Kernel     6.0 or later: multishot recv, provided-buffer rings and synchronous cancel all came by
 *            then; an older one is refused at open, so that there is no second set of paths to
 *            prove. DEFER_TASKRUN (6.1) where it is to be had.
 * Receive    multishot into RECV_BUFFERS ring buffers, each given back right after its callback.  A
 *            ring run dry (-ENOBUFS) or a full completion queue ends the multishot: it is armed
 *            again next turn.
 * Cancel     of recv: a zombie until its last completion; what came with it is held in the fd's
 *            slot for the next io_recv, which either revives the zombie (cancel not sent yet) or
 *            waits for its end: one reader at a time keeps the order of bytes.  Of send:
 *            synchronous, since the kernel reads the caller's memory.  Of the rest: a zombie until
 *            its last completion.
 * Held       bytes stay in their ring buffer while at most half of the ring does so, else are
 *            copied: a crowd of clients that read slowly must not leave the others without buffers.
 * Overflow   of the completion queue is kept by the kernel (FEAT_NODROP) and flushed by the next
 *            wait.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actors/ingress/io_back.h"

#define SQ_ENTRIES 512u
#define CQ_ENTRIES 4096u
#define RECV_BUFFERS 256                /* power of two */
#define RECV_BYTES ((size_t)16384)
#define BUFFER_GROUP 0
#define CLOSE_ROUNDS 1000               /* x 10 ms: never seen above 2 */

struct uring {
	struct io_uring ring;
	bool ring_open;
	struct io_uring_buf_ring *buf_ring;     /* mmap, RECV_BUFFERS entries */
	uint8_t *bufs;                          /* mmap, RECV_BUFFERS * RECV_BYTES */
	struct io_held in_place[RECV_BUFFERS];  /* node of a buffer held where it is */
	unsigned n_in_place;
};

/* ---- buffers ---- */

static uint8_t *
buffer_at(const struct uring *me, int buffer)
{
	return me->bufs + (size_t)buffer * RECV_BYTES;
}

static void
buffer_give_back(struct uring *me, int buffer)
{
	if (buffer < 0)
		return;
	io_poison(buffer_at(me, buffer), RECV_BYTES);
	io_uring_buf_ring_add(me->buf_ring, buffer_at(me, buffer), RECV_BYTES,
			      (unsigned short)buffer, io_uring_buf_ring_mask(RECV_BUFFERS), 0);
	io_uring_buf_ring_advance(me->buf_ring, 1);
}

static void
hold(struct io *io, int fd, int buffer, size_t len)
{
	struct uring *me = io->state;
	struct io_slot *slot = io_slot(io, fd);
	struct io_held *held = NULL;

	io_unpoison(buffer_at(me, buffer), len);
	if (me->n_in_place >= RECV_BUFFERS / 2)
		held = malloc(sizeof *held + len);
	if (held) {
		memcpy(held + 1, buffer_at(me, buffer), len);
		held->data = (const uint8_t *)(held + 1);
		held->buffer = -1;
		buffer_give_back(me, buffer);
	} else {
		/* Also when out of memory: the stream must not lose a byte. */
		held = &me->in_place[buffer];
		held->data = buffer_at(me, buffer);
		held->buffer = buffer;
		me->n_in_place++;
	}
	held->len = len;
	held->next = NULL;
	if (slot->held_last)
		slot->held_last->next = held;
	else
		slot->held_first = held;
	slot->held_last = held;
}

static struct io_held *
held_take(struct io_slot *slot)
{
	struct io_held *held = slot->held_first;

	slot->held_first = held->next;
	if (!slot->held_first)
		slot->held_last = NULL;
	return held;
}

static void
held_free(struct uring *me, struct io_held *held)
{
	if (held->buffer < 0) {
		free(held);
		return;
	}
	me->n_in_place--;
	buffer_give_back(me, held->buffer);
}

/* ---- opening ---- */

static int
open_ring(struct uring *me, unsigned option)
{
	const unsigned base = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL |
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED;
	struct io_uring_params p;
	int r = -EINVAL;

	if (!(option & IO_URING_PLAIN)) {
		p = (struct io_uring_params){.cq_entries = CQ_ENTRIES};
		p.flags = base | IORING_SETUP_DEFER_TASKRUN;
		r = io_uring_queue_init_params(SQ_ENTRIES, &me->ring, &p);
	}
	if (r == -EINVAL) {
		p = (struct io_uring_params){.cq_entries = CQ_ENTRIES};
		p.flags = base | IORING_SETUP_COOP_TASKRUN;
		r = io_uring_queue_init_params(SQ_ENTRIES, &me->ring, &p);
	}
	if (r < 0)
		return r;
	me->ring_open = true;
	if (!(p.features & IORING_FEAT_NODROP) || !(p.features & IORING_FEAT_EXT_ARG))
		return -EINVAL;
	(void)io_uring_register_ring_fd(&me->ring);     /* saves a look-up a call; not needed */
	return 0;
}

static int
open_buffers(struct uring *me)
{
	struct io_uring_buf_reg reg = {0};
	void *p;
	int i;

	p = mmap(NULL, RECV_BUFFERS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	me->buf_ring = p;
	p = mmap(NULL, RECV_BUFFERS * RECV_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	me->bufs = p;
	io_uring_buf_ring_init(me->buf_ring);
	reg.ring_addr = (uint64_t)(uintptr_t)me->buf_ring;
	reg.ring_entries = RECV_BUFFERS;
	reg.bgid = BUFFER_GROUP;
	i = io_uring_register_buf_ring(&me->ring, &reg, 0);
	if (i < 0)
		return i;
	for (i = 0; i < RECV_BUFFERS; i++)
		buffer_give_back(me, i);
	return 0;
}

/* What this ring may do, for good: a ring is a way around every filter of system calls. */
static int
open_narrowly(struct uring *me)
{
	static const uint8_t ops[] = {IORING_OP_NOP, IORING_OP_ACCEPT, IORING_OP_RECV,
				      IORING_OP_SEND, IORING_OP_SENDMSG, IORING_OP_CONNECT,
				      IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL};
	static const uint8_t calls[] = {IORING_REGISTER_SYNC_CANCEL, IORING_UNREGISTER_RING_FDS};
	struct io_uring_restriction allow[sizeof ops + sizeof calls + 1] = {
		{.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_BUFFER_SELECT},
	};
	unsigned n = 1;

	for (unsigned i = 0; i < sizeof ops; i++, n++) {
		allow[n].opcode = IORING_RESTRICTION_SQE_OP;
		allow[n].sqe_op = ops[i];
	}
	for (unsigned i = 0; i < sizeof calls; i++, n++) {
		allow[n].opcode = IORING_RESTRICTION_REGISTER_OP;
		allow[n].register_op = calls[i];
	}
	/* By hand: Debian's liburing declares both and exports neither. */
	if (syscall(SYS_io_uring_register, me->ring.ring_fd, IORING_REGISTER_RESTRICTIONS, allow,
		    n) < 0 ||
	    syscall(SYS_io_uring_register, me->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
		    0) < 0)
		return -errno;
	return 0;
}

/* One request there and back, and one synchronous cancel of nothing: a filter may allow the set-up
 * and forbid the rest, and a kernel may be too old for what we need of it. */
static int
try_ring(struct uring *me)
{
	struct io_uring_sync_cancel_reg reg = {.addr = 1, .timeout = {-1, -1}};
	struct io_uring_sqe *sqe = io_uring_get_sqe(&me->ring);
	struct io_uring_cqe *cqe;
	int r;

	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, 0);
	r = io_uring_submit_and_wait(&me->ring, 1);
	if (r < 0)
		return r;
	r = io_uring_peek_cqe(&me->ring, &cqe);
	if (r < 0)
		return r;
	io_uring_cqe_seen(&me->ring, cqe);
	r = io_uring_register_sync_cancel(&me->ring, &reg);
	return r == -ENOENT ? 0 : r < 0 ? r : -EINVAL;
}

static int
uring_open(struct io *io, unsigned option, const char **ret_why)
{
	struct uring *me = calloc(1, sizeof *me);
	int r;

	if (!me)
		return -ENOMEM;
	io->state = me;
	r = open_ring(me, option);
	if (!r)
		r = open_buffers(me);
	if (!r)
		r = open_narrowly(me);
	if (!r)
		r = try_ring(me);
	switch (r) {
	case 0:
		break;
	case -EPERM:
	case -EACCES:
		*ret_why = "io_uring is forbidden (EPERM: seccomp, or kernel.io_uring_disabled)";
		break;
	case -ENOSYS:
		*ret_why = "io_uring is not in this kernel, or filtered out (ENOSYS)";
		break;
	case -ENOMEM:
		*ret_why = "io_uring found no memory (ENOMEM: raise the memlock limit)";
		break;
	case -EINVAL:
		*ret_why = "io_uring of this kernel is too old (needs Linux 6.0)";
		break;
	default:
		*ret_why = "io_uring could not be set up";
		break;
	}
	return r;
}

/* ---- submitting ---- */

static struct io_uring_sqe *
get_sqe(struct uring *me)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&me->ring);

	if (!sqe && io_uring_submit(&me->ring) > 0)
		sqe = io_uring_get_sqe(&me->ring);
	return sqe;
}

static void
prepare(struct io_op *op, struct io_uring_sqe *sqe)
{
	switch (op->kind) {
	case IO_OP_ACCEPT:
		io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL,
					       SOCK_CLOEXEC | SOCK_NONBLOCK);
		break;
	case IO_OP_RECV:
		io_uring_prep_recv_multishot(sqe, op->fd, NULL, 0, 0);
		sqe->flags |= IOSQE_BUFFER_SELECT;
		sqe->buf_group = BUFFER_GROUP;
		break;
	case IO_OP_SEND:
		/* WAITALL: the kernel goes on by itself after a short write. */
		if (op->msg.msg_iovlen == 1)
			io_uring_prep_send(sqe, op->fd, op->msg.msg_iov->iov_base,
					   op->msg.msg_iov->iov_len, MSG_NOSIGNAL | MSG_WAITALL);
		else
			io_uring_prep_sendmsg(sqe, op->fd, &op->msg, MSG_NOSIGNAL | MSG_WAITALL);
		break;
	case IO_OP_CONNECT:
		io_uring_prep_connect(sqe, op->fd, (const struct sockaddr *)&op->u.addr,
				      op->addr_len);
		break;
	case IO_OP_WATCH:
		/* One shot and armed again: level-triggered, whatever the file's wake-ups do. */
		io_uring_prep_poll_add(sqe, op->fd, POLLIN | POLLRDHUP);
		break;
	case IO_OP_TIMER:
		break;
	}
}

/* In order: the cancel of an old operation goes before a new one that may have got its memory. */
static void
arm_all(struct io *io)
{
	struct uring *me = io->state;

	while (!io_node_empty(&io->arm)) {
		struct io_op *op = IO_OP_OF(io->arm.next, arm);
		struct io_uring_sqe *sqe = get_sqe(me);

		if (!sqe)
			return;
		io_node_unlink(&op->arm);
		if (op->in_kernel) {
			io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)op, 0);
			io_uring_sqe_set_data64(sqe, 0);
			op->cancel_sent = true;
		} else {
			prepare(op, sqe);
			io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)op);
			op->in_kernel = true;
			op->cancel_sent = false;
		}
	}
}

static int
uring_wait(struct io *io, int64_t wait_ns)
{
	struct uring *me = io->state;
	struct io_uring_cqe *cqe;
	int r;

	arm_all(io);
	if (!io_node_empty(&io->arm))
		wait_ns = 0;
	if (wait_ns == 0) {
		r = io_uring_submit_and_get_events(&me->ring);
	} else if (wait_ns < 0) {
		r = io_uring_submit_and_wait(&me->ring, 1);
	} else {
		struct __kernel_timespec ts = {
			.tv_sec = wait_ns / 1000000000,
			.tv_nsec = wait_ns % 1000000000,
		};

		r = io_uring_submit_and_wait_timeout(&me->ring, &cqe, 1, &ts, NULL);
	}
	/* AGAIN, BUSY: the kernel is short of memory or of room for completions; reaping makes
	 * some. */
	if (r >= 0 || r == -ETIME || r == -EINTR || r == -EAGAIN || r == -EBUSY)
		return 0;
	return r;
}

static void
arm(struct io *io, struct io_op *op)
{
	io_node_push(&io->arm, &op->arm);
}

/* ---- starting and stopping ---- */

static void
recv_go(struct io *io, struct io_op *op)
{
	const struct io_slot *slot = io_slot(io, op->fd);

	if (slot->leaving)
		return;                 /* its last completion calls again */
	if (slot->held_first || slot->has_end)
		io_ready(io, op);
	else if (!op->in_kernel)
		arm(io, op);
}

static void
uring_start(struct io *io, struct io_op *op)
{
	if (op->kind == IO_OP_RECV)
		recv_go(io, op);
	else if (op->kind != IO_OP_TIMER)
		arm(io, op);
}

static struct io_op *
uring_revive(struct io *io, int fd)
{
	struct io_slot *slot;
	struct io_op *op;

	if (fd < 0 || (size_t)fd >= io->n_slots)
		return NULL;
	slot = io_slot(io, fd);
	op = slot->leaving;
	if (slot->reader || !op || op->cancel_sent)
		return NULL;
	slot->leaving = NULL;
	io_node_unlink(&op->arm);
	return op;
}

/* Whether op is still in our half of the submission queue, which it is only after a submit the
 * kernel had no memory for.  Then it becomes a NOP: it must not reach the kernel later, with memory
 * and an fd number that are somebody else's by then. */
static bool
take_back(struct uring *me, struct io_op *op)
{
	unsigned at = me->ring.sq.sqe_tail, n = io_uring_sq_ready(&me->ring);

	while (n--) {
		struct io_uring_sqe *sqe = &me->ring.sq.sqes[--at & me->ring.sq.ring_mask];

		if (sqe->user_data == (uint64_t)(uintptr_t)op) {
			io_uring_prep_nop(sqe);
			io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)op);
			op->fd = -1;
			return true;
		}
	}
	return false;
}

static void
send_cancel(struct uring *me, const struct io_op *op)
{
	int r;

	do {
		/* No timeout: a send is never run by a worker thread of the kernel, so it is either
		 * waiting for room, and gone at once, or done. */
		struct io_uring_sync_cancel_reg reg = {
			.addr = (uint64_t)(uintptr_t)op,
			.timeout = {-1, -1},
		};

		r = io_uring_register_sync_cancel(&me->ring, &reg);
	} while (r == -EINTR);
}

static void
uring_stop(struct io *io, struct io_op *op)
{
	io_node_unlink(&op->arm);
	if (!op->in_kernel) {
		if (op->kind == IO_OP_ACCEPT && !op->dead)
			io_ready(io, op);
		return;
	}
	if (op->dead && take_back(io->state, op))
		return;
	if (op->kind == IO_OP_SEND) {
		send_cancel(io->state, op);
		return;
	}
	if (op->kind == IO_OP_RECV)
		io_slot(io, op->fd)->leaving = op;
	if (!op->cancel_sent)
		arm(io, op);
}

static void
uring_feed(struct io *io, struct io_op *op)
{
	struct uring *me = io->state;
	struct io_slot *slot = io_slot(io, op->fd);
	int fd = op->fd;

	while (slot->held_first) {
		struct io_held *held = held_take(slot);
		bool alive = io_tell_recv(io, op, held->data, held->len);

		held_free(me, held);
		if (!alive)
			return;
		slot = io_slot(io, fd);
	}
	if (slot->has_end) {
		slot->has_end = false;
		io_finish(io, op, slot->end);
	} else if (!op->in_kernel) {
		arm(io, op);
	}
}

static void
uring_forget(struct io *io, int fd)
{
	struct uring *me = io->state;
	struct io_slot *slot = io_slot(io, fd);

	if (slot->leaving)
		slot->leaving->fd = -1;
	slot->leaving = NULL;
	while (slot->held_first)
		held_free(me, held_take(slot));
	slot->has_end = false;
}

/* ---- completions ---- */

static bool
recv_result_is_pause(int res)
{
	return res == -ENOBUFS || res == -EINTR || res == -EAGAIN;
}

/* A recv somebody cancelled: keep what it brings. */
static void
on_recv_leaving(struct io *io, struct io_op *op, int res, int buffer)
{
	struct io_slot *slot;

	if (op->fd < 0) {
		buffer_give_back(io->state, buffer);
	} else if (res > 0 && buffer >= 0) {
		hold(io, op->fd, buffer, (size_t)res);
	} else {
		buffer_give_back(io->state, buffer);
		if (res != -ECANCELED && !recv_result_is_pause(res)) {
			slot = io_slot(io, op->fd);
			slot->has_end = true;
			slot->end = res;
		}
	}
	if (op->in_kernel)
		return;
	io_node_unlink(&op->arm);
	if (op->fd >= 0) {
		slot = io_slot(io, op->fd);
		slot->leaving = NULL;
		if (slot->reader && slot->reader->kind == IO_OP_RECV)
			recv_go(io, slot->reader);
	}
	io_release(io, op);
}

static void
on_recv(struct io *io, struct io_op *op, int res, int buffer)
{
	struct uring *me = io->state;
	struct io_slot *slot;
	int fd = op->fd;

	if (op->dead) {
		on_recv_leaving(io, op, res, buffer);
		return;
	}
	slot = io_slot(io, fd);
	if (res > 0 && buffer >= 0) {
		bool alive = true;

		if (slot->held_first) {
			hold(io, fd, buffer, (size_t)res);
		} else {
			io_unpoison(buffer_at(me, buffer), (size_t)res);
			alive = io_tell_recv(io, op, buffer_at(me, buffer), (size_t)res);
			buffer_give_back(me, buffer);
		}
		if (alive && !op->in_kernel)
			recv_go(io, op);
		return;
	}
	buffer_give_back(me, buffer);
	if (recv_result_is_pause(res)) {
		if (!op->in_kernel)
			recv_go(io, op);
	} else if (slot->held_first) {
		slot->has_end = true;
		slot->end = res;
	} else {
		io_finish(io, op, res);
	}
}

static void
on_accept(struct io *io, struct io_op *op, int res)
{
	if (op->dead) {
		if (res >= 0 && op->fd >= 0)
			close(res);
		io_release(io, op);
		return;
	}
	if (res >= 0) {
		if (!io_tell_accept(io, op, res))
			return;
	} else if (!op->stopping) {
		/* Told here, started again by the pause: the multishot is over. */
		io_accept_failed(io, op, res);
		return;
	}
	if (op->in_kernel)
		return;
	if (op->stopping)
		io_ready(io, op);
	else
		arm(io, op);
}

static void
on_send(struct io *io, struct io_op *op, int res)
{
	if (op->dead) {
		io_release(io, op);
		return;
	}
	if (res >= 0)
		io_send_advance(op, (size_t)res);
	if (res == -EINTR || res == -EAGAIN || (res > 0 && op->msg.msg_iovlen))
		arm(io, op);
	else if (res < 0)
		io_finish(io, op, res);
	else
		io_finish(io, op, op->msg.msg_iovlen ? -EPIPE : 0);
}

static void
on_connect(struct io *io, struct io_op *op, int res)
{
	if (op->dead)
		io_release(io, op);
	else if (res == -EAGAIN && op->u.addr.ss_family == AF_UNIX)
		io_connect_again(io, op);
	else
		io_finish(io, op, res < 0 ? res : op->fd);
}

static void
on_watch(struct io *io, struct io_op *op, int res)
{
	if (op->dead)
		io_release(io, op);
	else if (res < 0)
		io_finish(io, op, res);
	else if (io_tell_watch(io, op, res))
		arm(io, op);
}

static void
on_completion(struct io *io, struct io_op *op, int res, unsigned flags)
{
	int buffer = flags & IORING_CQE_F_BUFFER ? (int)(flags >> IORING_CQE_BUFFER_SHIFT) : -1;

	if (!(flags & IORING_CQE_F_MORE)) {
		op->in_kernel = false;
		op->cancel_sent = false;
		io_node_unlink(&op->arm);       /* a cancel not sent yet */
	}
	switch (op->kind) {
	case IO_OP_ACCEPT:
		on_accept(io, op, res);
		break;
	case IO_OP_RECV:
		on_recv(io, op, res, buffer);
		break;
	case IO_OP_SEND:
		on_send(io, op, res);
		break;
	case IO_OP_CONNECT:
		on_connect(io, op, res);
		break;
	case IO_OP_WATCH:
		on_watch(io, op, res);
		break;
	case IO_OP_TIMER:
		break;
	}
}

static void
uring_reap(struct io *io)
{
	struct uring *me = io->state;
	unsigned left = io_uring_cq_ready(&me->ring);
	struct io_uring_cqe *cqe;

	for (; left && !io_uring_peek_cqe(&me->ring, &cqe); left--) {
		struct io_op *op = io_uring_cqe_get_data(cqe);
		int res = cqe->res;
		unsigned flags = cqe->flags;

		io_uring_cqe_seen(&me->ring, cqe);
		if (op)
			on_completion(io, op, res, flags);
	}
}

/* ---- closing ---- */

static bool
anything_in_kernel(const struct io *io)
{
	const struct io_node *node;

	for (node = io->all.next; node != &io->all; node = node->next) {
		const struct io_op *op = (const struct io_op *)(const void *)
			((const char *)node - offsetof(struct io_op, all));

		if (op->in_kernel)
			return true;
	}
	return false;
}

static void
drop_completions(struct uring *me)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&me->ring, &cqe)) {
		struct io_op *op = io_uring_cqe_get_data(cqe);

		if (op && op->kind == IO_OP_ACCEPT && op->fd >= 0 && cqe->res >= 0)
			close(cqe->res);
		if (op && !(cqe->flags & IORING_CQE_F_MORE))
			op->in_kernel = false;
		io_uring_cqe_seen(&me->ring, cqe);
	}
}

static void
uring_close(struct io *io)
{
	struct uring *me = io->state;
	struct io_uring_sync_cancel_reg reg = {
		.flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL,
		.timeout = {-1, -1},
	};
	struct __kernel_timespec ts = {.tv_nsec = 10000000};
	size_t i;
	int rounds;

	if (!me)
		return;
	if (me->ring_open) {
		/* The ring's own end is asynchronous and may outlive the memory it writes to. */
		(void)io_uring_submit(&me->ring);
		(void)io_uring_register_sync_cancel(&me->ring, &reg);
		for (rounds = 0; rounds < CLOSE_ROUNDS && anything_in_kernel(io); rounds++) {
			struct io_uring_cqe *cqe;

			(void)io_uring_submit_and_wait_timeout(&me->ring, &cqe, 1, &ts, NULL);
			drop_completions(me);
		}
		drop_completions(me);
		io_uring_queue_exit(&me->ring);
	}
	for (i = 0; i < io->n_slots; i++) {
		while (io->slots[i].held_first) {
			struct io_held *held = held_take(&io->slots[i]);

			if (held->buffer < 0)
				free(held);
		}
	}
	if (me->buf_ring)
		munmap(me->buf_ring, RECV_BUFFERS * sizeof(struct io_uring_buf));
	if (me->bufs) {
		io_unpoison(me->bufs, RECV_BUFFERS * RECV_BYTES);
		munmap(me->bufs, RECV_BUFFERS * RECV_BYTES);
	}
	free(me);
	io->state = NULL;
}

const struct io_back io_back_uring = {
	.backend = IO_URING,
	.open = uring_open,
	.close = uring_close,
	.wait = uring_wait,
	.reap = uring_reap,
	.revive = uring_revive,
	.start = uring_start,
	.stop = uring_stop,
	.feed = uring_feed,
	.forget = uring_forget,
};
