/* actors/ingress/io.h -- one completion-shaped interface to the kernel, two equal back ends.
 *
 * io_uring where the kernel (6.0 or later) and the container allow it, epoll where not (or by
 * configuration).  Callers cannot tell which.
 *
 * Callbacks  Run inside io_turn only, never inside the call that started or cancelled something.
 *            An operation that is not cancelled ends in exactly one final callback; a cancelled one
 *            gets none (accept: -ECANCELED).  A callback may start, cancel and close anything,
 *            itself included; it must not call io_turn or io_close.
 * Starting   Returns NULL with errno, and then there is no callback: ENOMEM; EBUSY when that
 *            direction of fd has an operation already (reading: accept, recv, watch; writing: send,
 *            connect); EINVAL, EBADF.  Every other failure comes through the callback.
 * Ownership  Received bytes live in buffers of the back end and are valid during the callback only
 *            (under AddressSanitizer they are poisoned after it).  Bytes to send stay the caller's
 *            and must stay in place until the callback, or until io_cancel or io_close_fd has
 *            returned.
 * Fds        A number given to or got from io is closed by io_close_fd, not close.
 * Threads    one; open after fork, in the thread that runs it.
 * Cost       one system call a turn with io_uring; one a send or receive with epoll.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct io;
struct io_op;           /* a pending operation; valid until its final callback has returned */

enum io_backend { IO_AUTO = 0, IO_URING, IO_EPOLL };

#define IO_SEND_PIECES_MAX 16   /* iovecs of one io_send */
#define IO_NEVER UINT64_MAX     /* a deadline that does not come */

int io_open(struct io **ret, enum io_backend backend, const char **ret_why);
	/* AUTO tries io_uring and takes epoll where that fails (EPERM: seccomp or sysctl; ENOSYS,
	 * ENOMEM, a kernel too old); *ret_why then says why not io_uring (static text), else NULL.
	 * With a back end named and not to be had: -errno, and *ret_why.  ret_why may be NULL.  0
	 * or -errno. */
void io_close(struct io **ret);
	/* No callbacks any more; pending operations are dropped and their memory let go.  Does not
	 * close the fds of recv, send, watch and accept; those of pending connects are closed. */
enum io_backend io_backend(const struct io *io);
const char *io_backend_name(enum io_backend backend); /* "auto" "io_uring" "epoll": as in config */

int io_turn(struct io *io, int timeout_ms);
	/* Submits, waits at most timeout_ms (0: not; < 0: for ever) for anything, runs the
	 * callbacks that are due.  Returns how many ran (0 also after a signal); -errno only when
	 * the loop itself is broken. */
uint64_t io_now(const struct io *io);   /* mono ns, as of the start of this turn's callbacks */

typedef void io_accept_f(void *arg, int fd, int err);
	/* fd >= 0: a connection (CLOEXEC, NONBLOCK; owned by callee).  err < 0 with fd -1: see
	 * io_accept. */
struct io_op *io_accept(struct io *io, int listen_fd, io_accept_f *f, void *arg);
	/* Until cancelled.  Makes listen_fd O_NONBLOCK (which all its holders share).  Errors
	 * (EMFILE ...) are told and accepting goes on after 100 ms; a connection aborted in the
	 * backlog is no error.  io_cancel: what the kernel has accepted, and what is in the backlog
	 * then (swept, mechanics T1), still comes; after it f(arg, -1, -ECANCELED), the final call.
	 *  io_close_fd of listen_fd: no callback; connections not yet told are closed. */

typedef void io_recv_f(void *arg, const void *buf, ssize_t n);
	/* n > 0 bytes in buf; 0 end of stream (also: the peer half-closed); < 0 -errno.  <= 0 is
	 * final. */
struct io_op *io_recv(struct io *io, int fd, io_recv_f *f, void *arg);
	/* Repeats until n <= 0 or io_cancel.  Cancel to stop reading (back-pressure); start again
	 * later: no byte, end or error is lost or reordered in between; what the kernel had handed
	 * over already waits for the next io_recv on fd (at most what was in flight at the cancel).
	 *  Pieces: up to 16 KiB with io_uring, 64 KiB with epoll. */

typedef void io_done_f(void *arg, int result);
struct io_op *io_send(struct io *io, int fd, const struct iovec *iov, unsigned n_iov, io_done_f *f,
		      void *arg);
	/* All of it or an error: result = 0 or -errno.  At most IO_SEND_PIECES_MAX pieces; iov
	 * itself
	 * is copied.  One send at a time per fd.  MSG_NOSIGNAL.  Told before an answer that came
	 * after the last byte was taken; a peer may answer sooner. */
struct io_op *io_connect(struct io *io, const struct sockaddr *addr, socklen_t len,
			 uint64_t deadline_ns, io_done_f *f, void *arg);
	/* Stream sockets, TCP or AF_UNIX.  result = fd (CLOEXEC, NONBLOCK, TCP_NODELAY; owned by
	 * callee) or -errno, -ETIMEDOUT at the deadline (mono; IO_NEVER: the kernel's own). */
struct io_op *io_watch(struct io *io, int fd, io_done_f *f, void *arg);
	/* f(arg, poll bits) each time fd is readable or hung up (level-triggered: as long as it
	 * stays so, once a turn), until cancelled or an error (< 0, final).  eventfd, signalfd,
	 * ZMQ_FD, pidfd. */
struct io_op *io_timer(struct io *io, uint64_t deadline_ns, io_done_f *f, void *arg);
	/* f(arg, 0) once at or after the deadline (mono; up to 1 ms late with epoll, also when it
	 * has passed already); then the op is gone.  Own heap, O(log n). */

void io_cancel(struct io *io, struct io_op *op);
	/* Stops it: no callback of op runs after this call returns, except accept's (see there).
	 * The op is gone.  Within op's own final callback: does nothing.  A cancelled send may have
	 * sent any part: close the fd; its bytes are the caller's again (io_uring waits here until
	 * the kernel has let go of them, which takes a system call and no sleep). */
void io_close_fd(struct io *io, int fd);
	/* Cancels whatever is in flight on fd (no callbacks), drops what was received and not told,
	 * closes. The number may be reused at once.  With io_uring the peer sees the end in the
	 * next turn. */
