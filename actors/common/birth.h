/* actors/common/birth.h -- the child's end of its conversation with the supervisor.
 *
 * exec'd with the socket pair as descriptor PM_BIRTH_FD.  birth_take() reads birth, segments,
 * listeners and peers up to `go`, and keeps every descriptor in lists, so that open code attaches
 * what it needs. Later messages come through birth_receive().  EOF: the supervisor is dead; the
 * child serves on (ingress, kvevents ...) until a successor ends it.
 *
 * Threads    one.  Descriptors are CLOEXEC.
 */
#pragma once
#include "actors/common/token.h"
#include "proto/messages.h"
#include "shm/process.h"
#include "shm/segment.h"

#define PM_BIRTH_FD 3

struct birth_segment {
	enum segment_kind kind;
	enum process_role role;
	uint32_t index, incarnation, generation;
	bool writable;
	int fd;                                 /* -1 once taken */
};
struct birth_listener {
	uint32_t index;
	char address[128];
	bool tls;                               /* clients speak TLS there */
	int fd;
};
struct birth_peer {
	enum process_role role;
	uint32_t index, incarnation, generation, pid;
	int pidfd;                              /* -1: none */
};

struct birth {
	int fd;
	enum process_role role;
	uint32_t index, incarnation, generation;
	char run_dir[80];
	unsigned log_level;
	bool background;                        /* load where nobody else wants the CPU */
	bool rights;                            /* give up what the role does not need */
	uint64_t token; /* policy: token.h; admin, kvevents: who may look at events; others 0 */
	uint8_t key[TOKEN_KEY];                 /* ingress: token.h; others 0 */
	uint64_t note;                          /* goes with what is told to kvevents; 0: may not */
	struct birth_segment *segment;
	unsigned n_segments;
	struct birth_listener *listener;
	unsigned n_listeners;
	struct birth_peer *peer;
	unsigned n_peers;
};

int birth_take(struct birth *ret);
	/* Blocks for the first word without a limit (a process may be kept unborn), from then until
	 * `go` 10 s at most.  0, -ETIMEDOUT, -EPROTO abi or order, -errno. */
int birth_segment_fd(struct birth *b, enum segment_kind kind, enum process_role role,
		     uint32_t incarnation, uint32_t *ret_generation);
	/* Hands over the first untaken segment of that kind (role 0, incarnation 0: any); -ENOENT.
	 */
void birth_drop_segments(struct birth *b);
	/* Closes the segments that open code did not take: what its owner's death leaves would
	 * live as long as we do. */
int birth_receive(struct birth *b, struct msg *ret, void *buf, size_t cap, int *ret_fd);
	/* msg_receive() from the supervisor; -EPIPE: it is dead.  The caller closes b->fd, by
	 * whatever watches it, and sets it to -1. */
int birth_send(struct birth *b, enum msg_id id, const void *msg);
	/* Never blocks; -EAGAIN when the supervisor is not reading. */
int birth_fail(struct birth *b, const char *file, uint32_t line, uint32_t column, const char *text);
void birth_close(struct birth *b);

/* Frames on a SOCK_SEQPACKET pair, one message and at most one descriptor each; for both ends.
 * Nothing here blocks. */
int msg_send_fd(int sock, enum msg_id id, const void *msg, int fd);
	/* Packs and sends one frame, with fd by SCM_RIGHTS when >= 0.  0 or -errno. */
int msg_send_frame(int sock, const void *frame, size_t len, int fd);
	/* The same for a frame that is packed already. */
int msg_receive(int sock, struct msg *ret, void *buf, size_t cap, int *ret_fd);
	/* 1 got one (ret points into buf; *ret_fd -1 or owned by caller); 0 nothing now; -EPIPE the
	 * other end closed; -EBADMSG not a message of ours, -EMSGSIZE over cap (both dropped);
	 * -errno. */
ssize_t msg_recv_fd(int sock, void *buf, size_t cap, int *ret_fd);
	/* One frame as it came; bytes, 0 EOF, -EAGAIN, -EMSGSIZE truncated. */
int msg_receive_only(int sock, struct msg *ret, void *buf, size_t cap, bool *ret_carried);
	/* msg_receive() from one who has no descriptors to give: the kernel drops what comes along,
	 * it is never ours; *ret_carried tells that there was some. */
