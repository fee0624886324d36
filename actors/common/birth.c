/* actors/common/birth.c -- the child's end of its conversation with the supervisor. */
#include "actors/common/birth.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BIRTH_WAIT_MS   10000
#define CONTROL_MAX 65536 /* bytes of a frame on the pair; all of ours are under 1 KiB */

int
msg_send_frame(int sock, const void *frame, size_t len, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)frame, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		mh.msg_control = control.bytes;
		mh.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	do
		n = sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int
msg_send_fd(int sock, enum msg_id id, const void *msg, int fd)
{
	char buf[CONTROL_MAX];
	ssize_t n = msg_pack(id, msg, buf, sizeof buf);

	return n < 0 ? (int)n : msg_send_frame(sock, buf, (size_t)n, fd);
}

ssize_t
msg_recv_fd(int sock, void *buf, size_t cap, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	struct iovec iov = {buf, cap};
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.bytes, .msg_controllen = sizeof control.bytes,
	};
	ssize_t n;

	*ret_fd = -1;
	do
		n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (*ret_fd < 0)
				*ret_fd = fd;
			else
				close(fd);      /* one descriptor a message */
		}
	}
	if (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		if (*ret_fd >= 0)
			close(*ret_fd);
		*ret_fd = -1;
		return -EMSGSIZE;
	}
	return n;
}

int
msg_receive(int sock, struct msg *ret, void *buf, size_t cap, int *ret_fd)
{
	ssize_t n = msg_recv_fd(sock, buf, cap, ret_fd);

	if (n == -EAGAIN)
		return 0;
	if (n == 0 || n == -ECONNRESET)
		return -EPIPE;
	if (n < 0)
		return (int)n;
	if (msg_unpack(buf, (size_t)n, ret) < 0) {
		if (*ret_fd >= 0)
			close(*ret_fd);
		*ret_fd = -1;
		return -EBADMSG;
	}
	return 1;
}

int
msg_receive_only(int sock, struct msg *ret, void *buf, size_t cap, bool *ret_carried)
{
	struct iovec iov = {buf, cap};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	do
		n = recvmsg(sock, &mh, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	*ret_carried = n >= 0 && mh.msg_flags & MSG_CTRUNC;
	if (n < 0)
		return errno == EAGAIN ? 0 : errno == ECONNRESET ? -EPIPE : -errno;
	if (n == 0)
		return -EPIPE;
	if (mh.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	return msg_unpack(buf, (size_t)n, ret) < 0 ? -EBADMSG : 1;
}

static void *
grow(void *list, unsigned n, size_t size)
{
	void *grown = realloc(list, (n + 1) * size);

	if (!grown)
		abort();                        /* at birth: die, be reborn */
	return grown;
}

static void
take_message(struct birth *b, const struct msg *m, int fd)
{
	if (m->id == MSG_segment && fd >= 0) {
		b->segment = grow(b->segment, b->n_segments, sizeof *b->segment);
		b->segment[b->n_segments++] = (struct birth_segment){
			.kind = (enum segment_kind)m->u.segment.kind,
			.role = (enum process_role)m->u.segment.role,
			.index = m->u.segment.index,
			.incarnation = m->u.segment.incarnation,
			.generation = m->u.segment.generation,
			.writable = m->u.segment.writable,
			.fd = fd,
		};
	} else if (m->id == MSG_listener && fd >= 0) {
		struct slice a = m->u.listener.address;

		b->listener = grow(b->listener, b->n_listeners, sizeof *b->listener);
		struct birth_listener *l = &b->listener[b->n_listeners++];
		*l = (struct birth_listener){.index = m->u.listener.index, .fd = fd,
					     .tls = m->u.listener.tls == 1};
		snprintf(l->address, sizeof l->address, "%.*s", (int)a.len, a.p ? a.p : "");
	} else if (m->id == MSG_peer) {
		b->peer = grow(b->peer, b->n_peers, sizeof *b->peer);
		b->peer[b->n_peers++] = (struct birth_peer){
			.role = (enum process_role)m->u.peer.role, .index = m->u.peer.index,
			.incarnation = m->u.peer.incarnation, .generation = m->u.peer.generation,
			.pid = m->u.peer.pid, .pidfd = fd,
		};
	} else if (fd >= 0) {
		close(fd);
	}
}

int
birth_take(struct birth *ret)
{
	struct birth b = {.fd = PM_BIRTH_FD};
	mono_ns deadline = 0;                   /* 0: nothing said yet, wait for ever */
	bool born = false;
	char buf[CONTROL_MAX];

	if (fcntl(b.fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	for (;;) {
		struct pollfd pfd = {.fd = b.fd, .events = POLLIN};
		mono_ns now = clock_mono();
		struct msg m;
		int fd;

		if (deadline && now >= deadline)
			return -ETIMEDOUT;
		if (poll(&pfd, 1, deadline ? (int)((deadline - now) / 1000000) + 1 : -1) < 0 &&
		    errno != EINTR)
			return -errno;
		if (!deadline)
			deadline = clock_mono() + BIRTH_WAIT_MS * 1000000ull;
		int r = msg_receive(b.fd, &m, buf, sizeof buf, &fd);
		if (r == 0)
			continue;
		if (r < 0)
			return r == -EBADMSG ? -EPROTO : r;
		if (m.id == MSG_birth) {
			if (m.u.birth.abi != MESSAGES_ABI ||
			    m.u.birth.run_dir.len >= sizeof b.run_dir)
				return -EPROTO;
			b.role = (enum process_role)m.u.birth.role;
			b.index = m.u.birth.index;
			b.incarnation = m.u.birth.incarnation;
			b.generation = m.u.birth.generation;
			b.log_level = m.u.birth.log_level;
			b.background = m.u.birth.background;
			b.rights = m.u.birth.rights;
			b.token = m.u.birth.token;
			b.note = m.u.birth.note;
			if (m.u.birth.key.len == sizeof b.key)
				memcpy(b.key, m.u.birth.key.p, sizeof b.key);
			memcpy(b.run_dir, m.u.birth.run_dir.p, m.u.birth.run_dir.len);
			born = true;
		} else if (m.id == MSG_go) {
			if (!born)
				return -EPROTO;
			*ret = b;
			return 0;
		} else {
			take_message(&b, &m, fd);
		}
	}
}

int
birth_segment_fd(struct birth *b, enum segment_kind kind, enum process_role role,
		 uint32_t incarnation, uint32_t *ret_generation)
{
	for (unsigned i = 0; i < b->n_segments; i++) {
		struct birth_segment *s = &b->segment[i];

		if (s->fd < 0 || s->kind != kind || (role != ROLE_NONE && s->role != role) ||
		    (incarnation != 0 && s->incarnation != incarnation))
			continue;
		int fd = s->fd;
		s->fd = -1;
		if (ret_generation)
			*ret_generation = s->generation;
		return fd;
	}
	return -ENOENT;
}

void
birth_drop_segments(struct birth *b)
{
	for (unsigned i = 0; i < b->n_segments; i++)
		if (b->segment[i].fd >= 0)
			close(b->segment[i].fd);
	free(b->segment);
	b->segment = NULL;
	b->n_segments = 0;
}

int
birth_receive(struct birth *b, struct msg *ret, void *buf, size_t cap, int *ret_fd)
{
	*ret_fd = -1;
	if (b->fd < 0)
		return -EPIPE;
	return msg_receive(b->fd, ret, buf, cap, ret_fd);
}

int
birth_send(struct birth *b, enum msg_id id, const void *msg)
{
	return b->fd < 0 ? -EPIPE : msg_send_fd(b->fd, id, msg, -1);
}

int
birth_fail(struct birth *b, const char *file, uint32_t line, uint32_t column, const char *text)
{
	struct msg_failed m = {
		.file = slice_str(file), .line = line, .column = column, .text = slice_str(text),
	};

	return birth_send(b, MSG_failed, &m);
}

void
birth_close(struct birth *b)
{
	birth_drop_segments(b);
	for (unsigned i = 0; i < b->n_listeners; i++)
		if (b->listener[i].fd >= 0)
			close(b->listener[i].fd);
	for (unsigned i = 0; i < b->n_peers; i++)
		if (b->peer[i].pidfd >= 0)
			close(b->peer[i].pidfd);
	free(b->listener);
	free(b->peer);
	if (b->fd >= 0)
		close(b->fd);
	*b = (struct birth){.fd = -1};
}
