/* actors/ingress/io_back.h -- what io.c and its two back ends share.  Nobody else includes this.
 *
 * Split      io.c owns operations, slots, timers and every call of a callback; a back end only asks
 *            the kernel and reports.  A turn: wait (arms, submits, sleeps), reap, the ready list,
 *            due timers.
 * Operation  life: started -> (armed in the kernel) -> told ... -> final -> freed.  Cancelled: dead
 *            at once, freed when the kernel has let go too (in_kernel false): until then a zombie,
 *            whose memory stays because a completion will name it.
 * Slot       one per fd number: which operation reads, which writes, and (io_uring) what a
 *            cancelled recv had received already.  Slots move when the table grows: fetch again
 *            after a callback.
 * Lazy       Nothing is submitted before wait.  So cancelling what was just started costs nothing,
 *            and no submission can name an fd number that has been closed and reused meanwhile.
 */
#pragma once
#include "actors/ingress/io.h"

#define IO_CONNECT_PAUSE_NS 5000000ull  /* a full AF_UNIX backlog: EAGAIN, and no event later */
#define IO_ACCEPT_PAUSE_NS 100000000ull /* EMFILE does not go away at once; do not spin on it */

struct io_node {                        /* circular list; next NULL: in none */
	struct io_node *prev, *next;
};

enum io_kind { IO_OP_ACCEPT, IO_OP_RECV, IO_OP_SEND, IO_OP_CONNECT, IO_OP_WATCH, IO_OP_TIMER };

struct io_op {
	struct io_node all;             /* io->all, from birth to free */
	struct io_node arm;             /* io->arm: wait has something to ask the kernel for */
	struct io_node ready;           /* io->ready: the next turn has something to tell */
	enum io_kind kind;
	int fd;                         /* -1: timer, or closed under a zombie */
	int result;                     /* what the ready list tells, if has_result */
	bool has_result;
	bool due;                       /* its time in the heap has come */
	bool dead;                      /* no callback may run any more */
	bool stopping;                  /* accept: cancelled, final call owed */
	bool in_kernel;                 /* io_uring: a completion without F_MORE is still owed */
	bool cancel_sent;
	uint64_t heap_ns;               /* key in the heap while heap_at != 0 */
	uint64_t until_ns;              /* connect: its deadline */
	size_t heap_at;                 /* 1-based place in io->heap; 0: not in it */
	union {
		io_accept_f *accept;
		io_recv_f *recv;
		io_done_f *done;
	} f;
	void *arg;
	struct msghdr msg;              /* send: what is left */
	union {                         /* not cleared at birth */
		struct iovec iov[IO_SEND_PIECES_MAX];
		struct sockaddr_storage addr;
	} u;
	socklen_t addr_len;
};

struct io_held {                        /* bytes received for a cancelled recv, in order */
	struct io_held *next;
	const uint8_t *data;
	size_t len;
	int buffer;                     /* of the ring, to be given back; -1: copied behind this */
};

struct io_slot {
	struct io_op *reader;           /* accept, recv, watch */
	struct io_op *writer;           /* send, connect */
	struct io_op *leaving;          /* io_uring: cancelled recv the kernel still holds */
	struct io_held *held_first, *held_last;
	int end;                        /* what ended the stream for a cancelled recv, if has_end */
	bool has_end;
	uint32_t armed;                 /* epoll: events asked for; 0: not registered */
	uint32_t generation;            /* epoll: tells a stale event from the number's next user */
};

struct io;

struct io_back {
	enum io_backend backend;
	int (*open)(struct io *io, unsigned option, const char **ret_why);
	void (*close)(struct io *io);   /* half-opened too; afterwards no op is in_kernel */
	int (*wait)(struct io *io, int64_t wait_ns);            /* < 0: for ever */
	void (*reap)(struct io *io);
	struct io_op *(*revive)(struct io *io, int fd); /* a zombie recv fit to go on, or NULL */
	void (*start)(struct io *io, struct io_op *op);         /* also: go on after a pause */
	void (*stop)(struct io *io, struct io_op *op);          /* dead, or accept stopping */
	void (*feed)(struct io *io, struct io_op *op);          /* a recv on the ready list */
	void (*forget)(struct io *io, int fd);                  /* before close(fd) */
};

extern const struct io_back io_back_uring, io_back_epoll;

#define IO_URING_PLAIN 1u               /* option: without DEFER_TASKRUN, as on kernel 6.0 */

struct io {
	const struct io_back *back;
	void *state;                    /* the back end's own */
	struct io_node all, arm, ready;
	struct io_slot *slots;
	size_t n_slots;
	struct io_op **heap;            /* 1-based; room for every live op, so a push never fails */
	size_t n_heap, cap_heap, n_ops;
	struct io_op *running;          /* whose callback runs */
	uint64_t now_ns;
	unsigned n_told;                /* callbacks of this turn */
};

int io_open_back(struct io **ret, const struct io_back *back, unsigned option,
		 const char **ret_why);

void io_node_init(struct io_node *head);
void io_node_push(struct io_node *head, struct io_node *node);  /* at the tail; not if in a list */
void io_node_unlink(struct io_node *node);                      /* nothing if in none */
bool io_node_empty(const struct io_node *head);
#define IO_OP_OF(node, member) \
	((struct io_op *)(void *)((char *)(node) - offsetof(struct io_op, member)))

struct io_slot *io_slot(struct io *io, int fd);         /* must exist: some op was started on fd */

void io_ready(struct io *io, struct io_op *op);         /* run_ready will look at it */
void io_ready_result(struct io *io, struct io_op *op, int result);
void io_at(struct io *io, struct io_op *op, uint64_t when_ns);  /* in the heap, moved if there */

void io_finish(struct io *io, struct io_op *op, int result);    /* the final callback, and free */
bool io_tell_recv(struct io *io, struct io_op *op, const void *buf, size_t len);
bool io_tell_watch(struct io *io, struct io_op *op, int bits);
bool io_tell_accept(struct io *io, struct io_op *op, int fd);
	/* A callback that is not final; false: op was cancelled in it, and may be freed already. */
void io_accept_failed(struct io *io, struct io_op *op, int err);
	/* Tells, and starts again after the pause; transient errors start again at once, untold. */
void io_connect_again(struct io *io, struct io_op *op); /* in a moment, or its deadline if sooner */
void io_accept_end(struct io *io, struct io_op *op);    /* sweeps, then the final -ECANCELED */
void io_release(struct io *io, struct io_op *op);       /* frees a dead op nobody holds any more */
void io_send_advance(struct io_op *op, size_t sent_bytes);      /* msg then starts behind them */

#if defined(__SANITIZE_ADDRESS__)
#define IO_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IO_POISON 1
#endif
#endif
#ifdef IO_POISON
#include <sanitizer/asan_interface.h>
#define io_poison(buf, len) ASAN_POISON_MEMORY_REGION(buf, len)
#define io_unpoison(buf, len) ASAN_UNPOISON_MEMORY_REGION(buf, len)
#else
#define io_poison(buf, len) ((void)(buf), (void)(len))
#define io_unpoison(buf, len) ((void)(buf), (void)(len))
#endif
