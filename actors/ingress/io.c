/* actors/ingress/io.c -- operations, slots, timers and the turn; the kernel is the back ends'.
 *
 * Every callback is made here, so the rules of io.h (exactly one final, none after a cancel, never
 * from inside the starting call) are kept in one place for both back ends.
 */
#include "actors/ingress/io.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors/ingress/io_back.h"

static uint64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* ---- lists ---- */

void
io_node_init(struct io_node *head)
{
	head->prev = head->next = head;
}

void
io_node_push(struct io_node *head, struct io_node *node)
{
	if (node->next)
		return;
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

void
io_node_unlink(struct io_node *node)
{
	if (!node->next)
		return;
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->prev = node->next = NULL;
}

bool
io_node_empty(const struct io_node *head)
{
	return head->next == head;
}

/* All of from to the empty list to. */
static void
node_splice(struct io_node *to, struct io_node *from)
{
	io_node_init(to);
	if (io_node_empty(from))
		return;
	*to = *from;
	to->next->prev = to->prev->next = to;
	io_node_init(from);
}

/* ---- the heap of times ---- */

static void
heap_put(struct io *io, size_t at, struct io_op *op)
{
	io->heap[at] = op;
	op->heap_at = at;
}

static void
heap_sift(struct io *io, size_t at)
{
	struct io_op *op = io->heap[at];

	for (; at > 1 && io->heap[at / 2]->heap_ns > op->heap_ns; at /= 2)
		heap_put(io, at, io->heap[at / 2]);
	for (;;) {
		size_t child = at * 2;

		if (child < io->n_heap && io->heap[child + 1]->heap_ns < io->heap[child]->heap_ns)
			child++;
		if (child > io->n_heap || io->heap[child]->heap_ns >= op->heap_ns)
			break;
		heap_put(io, at, io->heap[child]);
		at = child;
	}
	heap_put(io, at, op);
}

static void
heap_remove(struct io *io, struct io_op *op)
{
	size_t at = op->heap_at;
	struct io_op *last;

	if (!at)
		return;
	op->heap_at = 0;
	last = io->heap[io->n_heap--];
	if (last != op) {
		heap_put(io, at, last);
		heap_sift(io, at);
	}
}

void
io_at(struct io *io, struct io_op *op, uint64_t when_ns)
{
	op->heap_ns = when_ns;
	if (!op->heap_at)
		heap_put(io, ++io->n_heap, op);
	heap_sift(io, op->heap_at);
}

/* ---- operations and slots ---- */

static int
heap_reserve(struct io *io, size_t n)
{
	struct io_op **grown;
	size_t cap = io->cap_heap ? io->cap_heap * 2 : 64;

	if (n < io->cap_heap)
		return 0;
	grown = realloc(io->heap, cap * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	io->heap = grown;
	io->cap_heap = cap;
	return 0;
}

static int
slot_reserve(struct io *io, int fd)
{
	struct io_slot *grown;
	size_t need = (size_t)fd + 1, n = io->n_slots ? io->n_slots : 64;

	if (need <= io->n_slots)
		return 0;
	while (n < need)
		n *= 2;
	grown = realloc(io->slots, n * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	memset(grown + io->n_slots, 0, (n - io->n_slots) * sizeof *grown);
	io->slots = grown;
	io->n_slots = n;
	return 0;
}

struct io_slot *
io_slot(struct io *io, int fd)
{
	return &io->slots[fd];
}

static struct io_op **
slot_place(struct io *io, enum io_kind kind, int fd)
{
	struct io_slot *slot = io_slot(io, fd);

	return kind == IO_OP_SEND || kind == IO_OP_CONNECT ? &slot->writer : &slot->reader;
}

/* fd -1: a timer.  NULL with errno. */
static struct io_op *
op_new(struct io *io, enum io_kind kind, int fd, void *arg)
{
	struct io_op *op;

	if (kind != IO_OP_TIMER) {
		if (fd < 0) {
			errno = EBADF;
			return NULL;
		}
		if (slot_reserve(io, fd))
			goto nomem;
		if (*slot_place(io, kind, fd)) {
			errno = EBUSY;
			return NULL;
		}
	}
	/* 1 + n_ops + 1: the heap is 1-based. */
	if (heap_reserve(io, io->n_ops + 2))
		goto nomem;
	op = malloc(sizeof *op);
	if (!op)
		goto nomem;
	memset(op, 0, offsetof(struct io_op, u));
	op->kind = kind;
	op->fd = fd;
	op->arg = arg;
	io->n_ops++;
	io_node_push(&io->all, &op->all);
	if (kind != IO_OP_TIMER)
		*slot_place(io, kind, fd) = op;
	return op;
nomem:
	errno = ENOMEM;
	return NULL;
}

static void
op_free(struct io *io, struct io_op *op)
{
	heap_remove(io, op);
	io_node_unlink(&op->all);
	io_node_unlink(&op->arm);
	io_node_unlink(&op->ready);
	io->n_ops--;
	free(op);
}

/* From here on nothing finds it but its completion: no slot, no list, no time names it. */
static void
op_bury(struct io *io, struct io_op *op)
{
	heap_remove(io, op);
	io_node_unlink(&op->ready);
	if (op->fd >= 0) {
		struct io_op **place = slot_place(io, op->kind, op->fd);

		if (*place == op)
			*place = NULL;
	}
	op->dead = true;
}

void
io_release(struct io *io, struct io_op *op)
{
	if (op->dead && !op->in_kernel && op != io->running)
		op_free(io, op);
}

static void
op_kill(struct io *io, struct io_op *op)
{
	int fd = op->fd;

	op_bury(io, op);
	io->back->stop(io, op);
	if (op->kind == IO_OP_CONNECT) {
		op->fd = -1;
		io_close_fd(io, fd);
	}
	io_release(io, op);
}

void
io_ready(struct io *io, struct io_op *op)
{
	io_node_push(&io->ready, &op->ready);
}

void
io_ready_result(struct io *io, struct io_op *op, int result)
{
	op->has_result = true;
	op->result = result;
	io_ready(io, op);
}

/* ---- telling ---- */

static bool
tell_end(struct io *io, struct io_op *op)
{
	bool alive;

	io->running = NULL;
	alive = !op->dead;
	io_release(io, op);
	return alive;
}

static void
tell_begin(struct io *io, struct io_op *op)
{
	io->running = op;
	io->n_told++;
}

void
io_finish(struct io *io, struct io_op *op, int result)
{
	int fd = op->fd;

	op_bury(io, op);
	if (op->kind == IO_OP_CONNECT && result < 0) {
		/* The deadline leaves the kernel at it. */
		io->back->stop(io, op);
		op->fd = -1;
		io_close_fd(io, fd);
	}
	tell_begin(io, op);
	if (op->kind == IO_OP_ACCEPT)
		op->f.accept(op->arg, -1, result);
	else if (op->kind == IO_OP_RECV)
		op->f.recv(op->arg, NULL, result);
	else
		op->f.done(op->arg, result);
	tell_end(io, op);
}

bool
io_tell_recv(struct io *io, struct io_op *op, const void *buf, size_t len)
{
	tell_begin(io, op);
	op->f.recv(op->arg, buf, (ssize_t)len);
	return tell_end(io, op);
}

bool
io_tell_watch(struct io *io, struct io_op *op, int bits)
{
	tell_begin(io, op);
	op->f.done(op->arg, bits);
	return tell_end(io, op);
}

bool
io_tell_accept(struct io *io, struct io_op *op, int fd)
{
	tell_begin(io, op);
	op->f.accept(op->arg, fd, 0);
	return tell_end(io, op);
}

/* accept(2): pending errors of the new socket; the next one may be well. */
static bool
accept_error_is_transient(int err)
{
	switch (err) {
	case -EAGAIN:
	case -EINTR:
	case -ECONNABORTED:
	case -EPROTO:
	case -ENETDOWN:
	case -ENOPROTOOPT:
	case -EHOSTDOWN:
	case -ENONET:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		return true;
	default:
		return false;
	}
}

void
io_accept_failed(struct io *io, struct io_op *op, int err)
{
	if (accept_error_is_transient(err)) {
		io->back->start(io, op);
		return;
	}
	io_at(io, op, io->now_ns + IO_ACCEPT_PAUSE_NS);
	tell_begin(io, op);
	op->f.accept(op->arg, -1, err);
	tell_end(io, op);
}

void
io_connect_again(struct io *io, struct io_op *op)
{
	uint64_t again_ns = clock_ns() + IO_CONNECT_PAUSE_NS;

	io_at(io, op, again_ns < op->until_ns ? again_ns : op->until_ns);
}

void
io_accept_end(struct io *io, struct io_op *op)
{
	for (;;) {
		int fd = accept4(op->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			if (!io_tell_accept(io, op, fd))
				return;
		} else if (errno == EAGAIN || !accept_error_is_transient(-errno)) {
			break;
		}
	}
	io_finish(io, op, -ECANCELED);
}

static void
run_ready(struct io *io, struct io_op *op)
{
	bool due = op->due;

	op->due = false;
	switch (op->kind) {
	case IO_OP_ACCEPT:
		if (op->stopping)
			io_accept_end(io, op);
		else if (op->has_result) {
			op->has_result = false;
			io_accept_failed(io, op, op->result);
		} else
			io->back->start(io, op);
		break;
	case IO_OP_RECV:
		if (op->has_result)
			io_finish(io, op, op->result);
		else
			io->back->feed(io, op);
		break;
	case IO_OP_CONNECT:
		if (op->has_result)
			io_finish(io, op, op->result);
		else if (due && io->now_ns >= op->until_ns)
			io_finish(io, op, -ETIMEDOUT);
		else {
			io_at(io, op, op->until_ns);
			io->back->start(io, op);
		}
		break;
	case IO_OP_SEND:
	case IO_OP_WATCH:
	case IO_OP_TIMER:
		io_finish(io, op, op->has_result ? op->result : 0);
		break;
	}
}

static void
run_all(struct io *io, struct io_node *due)
{
	while (!io_node_empty(due)) {
		struct io_op *op = IO_OP_OF(due->next, ready);

		io_node_unlink(&op->ready);
		run_ready(io, op);
	}
}

/* ---- the loop ---- */

static int64_t
turn_wait_ns(const struct io *io, int timeout_ms)
{
	int64_t wait_ns = timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000000;
	uint64_t now_ns, first_ns;

	if (!io_node_empty(&io->ready))
		return 0;
	if (!io->n_heap || !wait_ns || io->heap[1]->heap_ns == IO_NEVER)
		return wait_ns;
	now_ns = clock_ns();
	first_ns = io->heap[1]->heap_ns;
	if (first_ns <= now_ns)
		return 0;
	if (first_ns - now_ns > INT64_MAX)
		return wait_ns;
	if (wait_ns < 0 || (int64_t)(first_ns - now_ns) < wait_ns)
		return (int64_t)(first_ns - now_ns);
	return wait_ns;
}

int
io_turn(struct io *io, int timeout_ms)
{
	struct io_node due;
	int r;

	r = io->back->wait(io, turn_wait_ns(io, timeout_ms));
	if (r < 0)
		return r;
	io->now_ns = clock_ns();
	io->n_told = 0;
	/* Taken off first: what callbacks make ready waits for the next turn, so a turn ends.  Told
	 * before what the kernel brings: a send that was done at once comes before the answer to
	 * it. */
	node_splice(&due, &io->ready);
	run_all(io, &due);
	io->back->reap(io);
	while (io->n_heap && io->heap[1]->heap_ns <= io->now_ns) {
		struct io_op *op = io->heap[1];

		heap_remove(io, op);
		op->due = true;
		io_node_unlink(&op->ready);
		io_node_push(&due, &op->ready);
	}
	run_all(io, &due);
	return (int)io->n_told;
}

uint64_t
io_now(const struct io *io)
{
	return io->now_ns;
}

/* ---- starting ---- */

struct io_op *
io_accept(struct io *io, int listen_fd, io_accept_f *f, void *arg)
{
	struct io_op *op;
	int flags = fcntl(listen_fd, F_GETFL);

	if (flags < 0)
		return NULL;
	/* The sweep of io_accept_end, and epoll, would block else. */
	if (!(flags & O_NONBLOCK) && fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return NULL;
	op = op_new(io, IO_OP_ACCEPT, listen_fd, arg);
	if (!op)
		return NULL;
	op->f.accept = f;
	io->back->start(io, op);
	return op;
}

struct io_op *
io_recv(struct io *io, int fd, io_recv_f *f, void *arg)
{
	struct io_op *op = io->back->revive(io, fd);

	if (op) {
		op->dead = false;
		io_slot(io, fd)->reader = op;
		op->arg = arg;
	} else {
		op = op_new(io, IO_OP_RECV, fd, arg);
	}
	if (!op)
		return NULL;
	op->f.recv = f;
	io->back->start(io, op);
	return op;
}

struct io_op *
io_send(struct io *io, int fd, const struct iovec *iov, unsigned n_iov, io_done_f *f, void *arg)
{
	struct io_op *op;

	if (n_iov > IO_SEND_PIECES_MAX) {
		errno = EINVAL;
		return NULL;
	}
	op = op_new(io, IO_OP_SEND, fd, arg);
	if (!op)
		return NULL;
	op->f.done = f;
	if (n_iov)
		memcpy(op->u.iov, iov, n_iov * sizeof *iov);
	op->msg.msg_iov = op->u.iov;
	op->msg.msg_iovlen = n_iov;
	io_send_advance(op, 0);
	if (!op->msg.msg_iovlen)
		io_ready_result(io, op, 0);
	else
		io->back->start(io, op);
	return op;
}

void
io_send_advance(struct io_op *op, size_t sent_bytes)
{
	while (op->msg.msg_iovlen && sent_bytes >= op->msg.msg_iov->iov_len) {
		sent_bytes -= op->msg.msg_iov->iov_len;
		op->msg.msg_iov++;
		op->msg.msg_iovlen--;
	}
	if (op->msg.msg_iovlen && sent_bytes) {
		op->msg.msg_iov->iov_base = (char *)op->msg.msg_iov->iov_base + sent_bytes;
		op->msg.msg_iov->iov_len -= sent_bytes;
	}
}

struct io_op *
io_connect(struct io *io, const struct sockaddr *addr, socklen_t len, uint64_t deadline_ns,
	   io_done_f *f, void *arg)
{
	struct io_op *op;
	int fd, one = 1;

	if (len > sizeof op->u.addr || len < sizeof addr->sa_family) {
		errno = EINVAL;
		return NULL;
	}
	fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		int err = errno;

		/* EMFILE and the like are for the callback: an op without fd carries it there. */
		op = op_new(io, IO_OP_TIMER, -1, arg);
		if (!op)
			return NULL;
		op->f.done = f;
		io_ready_result(io, op, -err);
		return op;
	}
	op = op_new(io, IO_OP_CONNECT, fd, arg);
	if (!op) {
		int err = errno;

		close(fd);
		errno = err;
		return NULL;
	}
	if (addr->sa_family != AF_UNIX)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	op->f.done = f;
	memcpy(&op->u.addr, addr, len);
	op->addr_len = len;
	op->until_ns = deadline_ns;
	io_at(io, op, deadline_ns);
	io->back->start(io, op);
	return op;
}

struct io_op *
io_watch(struct io *io, int fd, io_done_f *f, void *arg)
{
	struct io_op *op = op_new(io, IO_OP_WATCH, fd, arg);

	if (!op)
		return NULL;
	op->f.done = f;
	io->back->start(io, op);
	return op;
}

struct io_op *
io_timer(struct io *io, uint64_t deadline_ns, io_done_f *f, void *arg)
{
	struct io_op *op = op_new(io, IO_OP_TIMER, -1, arg);

	if (!op)
		return NULL;
	op->f.done = f;
	io_at(io, op, deadline_ns);
	return op;
}

/* ---- stopping ---- */

void
io_cancel(struct io *io, struct io_op *op)
{
	if (op->dead || op->stopping)
		return;
	if (op->kind == IO_OP_ACCEPT) {
		op->stopping = true;
		heap_remove(io, op);
		io->back->stop(io, op);
	} else {
		op_kill(io, op);
	}
}

void
io_close_fd(struct io *io, int fd)
{
	if (fd < 0)
		return;
	if ((size_t)fd < io->n_slots) {
		struct io_slot *slot = io_slot(io, fd);

		if (slot->reader)
			op_kill(io, slot->reader);
		/* A pending connect's fd is nobody's but its own. */
		if (slot->writer && slot->writer->kind == IO_OP_SEND)
			op_kill(io, slot->writer);
		io->back->forget(io, fd);
		slot->generation++;
	}
	close(fd);
}

/* ---- opening and closing ---- */

int
io_open_back(struct io **ret, const struct io_back *back, unsigned option, const char **ret_why)
{
	struct io *io = calloc(1, sizeof *io);
	int r;

	if (!io)
		return -ENOMEM;
	io->back = back;
	io_node_init(&io->all);
	io_node_init(&io->arm);
	io_node_init(&io->ready);
	io->now_ns = clock_ns();
	r = back->open(io, option, ret_why);
	if (r < 0)
		io_close(&io);
	else
		*ret = io;
	return r;
}

int
io_open(struct io **ret, enum io_backend backend, const char **ret_why)
{
	const char *ignored;
	int r;

	if (!ret_why)
		ret_why = &ignored;
	*ret_why = NULL;
	if (backend != IO_EPOLL) {
		r = io_open_back(ret, &io_back_uring, 0, ret_why);
		if (!r || backend == IO_URING)
			return r;
	}
	return io_open_back(ret, &io_back_epoll, 0, ret_why);
}

void
io_close(struct io **ret)
{
	struct io *io = *ret;

	if (!io)
		return;
	*ret = NULL;
	io->back->close(io);
	while (!io_node_empty(&io->all)) {
		struct io_op *op = IO_OP_OF(io->all.next, all);

		if (op->kind == IO_OP_CONNECT && op->fd >= 0 && !op->dead)
			close(op->fd);
		op_free(io, op);
	}
	free(io->heap);
	free(io->slots);
	free(io);
}

enum io_backend
io_backend(const struct io *io)
{
	return io->back->backend;
}

const char *
io_backend_name(enum io_backend backend)
{
	switch (backend) {
	case IO_AUTO:
		return "auto";
	case IO_URING:
		return "io_uring";
	case IO_EPOLL:
		return "epoll";
	}
	return "?";
}
