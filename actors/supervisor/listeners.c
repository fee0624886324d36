/* actors/supervisor/listeners.c -- sockets that outlive every ingress.
 *
 * Each ingress index has its own SO_REUSEPORT socket per address.  They stay open here, so that a
 * connection made while an ingress is dead waits in the backlog for its successor or a neighbour.
 * A unix socket cannot be shared out so: all indexes hold the same one, whoever is free accepts,
 * and a connection waits only while there is no ingress at all.
 */
#include "actors/supervisor/supervisor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096                    /* the kernel cuts it to net.core.somaxconn */

static int
listen_on(const struct sockaddr *sa, socklen_t len, bool share, int *ret_fd)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (share)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	if (bind(fd, sa, len) < 0 || listen(fd, BACKLOG) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static void
address_print(const struct sockaddr *sa, char *buf, size_t cap)
{
	char host[INET6_ADDRSTRLEN] = "";

	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
		snprintf(buf, cap, "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		const struct sockaddr_in *in = (const void *)sa;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		snprintf(buf, cap, "%s:%u", host, ntohs(in->sin_port));
	}
}

static int
open_address(struct supervisor *s, const struct manifest_listen *addr, uint32_t ingresses)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found;
	struct sockaddr_storage bound;
	socklen_t len;
	char port[8];
	int fd = -1, r;

	snprintf(port, sizeof port, "%u", addr->port);
	r = getaddrinfo(addr->host, port, &hints, &found);
	if (r != 0)
		return r == EAI_SYSTEM ? -errno : -EADDRNOTAVAIL;
	/* Without SO_REUSEPORT first: a stranger there would take part of our clients. */
	r = listen_on(found->ai_addr, found->ai_addrlen, false, &fd);
	if (r == 0)
		close(fd);
	memcpy(&bound, found->ai_addr, found->ai_addrlen);
	len = found->ai_addrlen;
	freeaddrinfo(found);
	for (uint32_t i = 0; r == 0 && i < ingresses; i++) {
		struct listener *l = &s->listener[s->n_listeners];

		r = listen_on((const struct sockaddr *)&bound, len, true, &fd);
		if (r < 0)
			break;
		len = sizeof bound;     /* port 0: the others share what the first was given */
		getsockname(fd, (struct sockaddr *)&bound, &len);
		*l = (struct listener){.index = i, .fd = fd};
		address_print((const struct sockaddr *)&bound, l->address, sizeof l->address);
		s->n_listeners++;
	}
	return r;
}

/* Nobody listens on the file that a killed predecessor left.  0: the path is free now. */
static int
replace_stale(const struct sockaddr_un *at)
{
	struct stat st;
	int fd, r;

	if (lstat(at->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;         /* somebody's file: not ours to remove */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? -errno : -EADDRINUSE;
	close(fd);
	if (r == -EAGAIN)
		return -EADDRINUSE;     /* its queue is full: somebody is there */
	if (r != -ECONNREFUSED)
		return r;
	log_info("listen address=unix:%s: nobody listens there, replaced", at->sun_path);
	return unlink(at->sun_path) < 0 ? -errno : 0;
}

/* By name or number.  false: there is none. */
static bool
group_find(const char *text, gid_t *ret)
{
	char buf[4096], *end;
	struct group g, *found = NULL;
	unsigned long id = strtoul(text, &end, 10);

	if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && id < UINT32_MAX) {
		*ret = (gid_t)id;
		return true;
	}
	if (getgrnam_r(text, &g, buf, sizeof buf, &found) != 0 || !found)
		return false;
	*ret = g.gr_gid;
	return true;
}

static int
open_socket(struct supervisor *s, const char *path, const struct manifest_gateway *g,
	    const char **why)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	mode_t mode = (mode_t)strtoul(g->socket_mode, NULL, 8);
	gid_t group = (gid_t)-1;
	struct stat st;
	mode_t mask;
	int fd, r;

	memcpy(at.sun_path, path, strlen(path) + 1);
	if (g->socket_group[0] && !group_find(g->socket_group, &group)) {
		*why = "there is no group of the name that spec.unixSockets.group says";
		return -EINVAL;
	}
	r = replace_stale(&at);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Nobody can connect before listen(): the file then is as it shall be. */
	mask = umask(0177);
	r = bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ? -errno : 0;
	umask(mask);
	if (r == 0 && (lstat(path, &st) < 0 ||
		       (group != (gid_t)-1 && lchown(path, (uid_t)-1, group) < 0) ||
		       chmod(path, mode) < 0 || listen(fd, BACKLOG) < 0)) {
		r = -errno;
		unlink(path);
	}
	for (uint32_t i = 0; r == 0 && i < g->ingresses; i++) {
		struct listener *l = &s->listener[s->n_listeners];
		int own = i + 1 < g->ingresses ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : fd;

		if (own < 0) {
			r = -errno;
			break;
		}
		if (own == fd)
			fd = -1;
		*l = (struct listener){.index = i, .fd = own, .dev = st.st_dev, .ino = st.st_ino};
		snprintf(l->address, sizeof l->address, "unix:%s", path);
		s->n_listeners++;
	}
	if (fd >= 0)
		close(fd);
	return r;
}

int
listeners_open(struct supervisor *s, const struct manifest *manifest, const char **why)
{
	const struct manifest_gateway *g = &manifest->gateway;

	s->listener = calloc((size_t)(g->n_listen + g->n_listen_tls) * g->ingresses,
			     sizeof *s->listener);
	if (!s->listener) {
		*why = "out of memory";
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < g->n_listen + g->n_listen_tls; i++) {
		bool tls = i >= g->n_listen;
		const struct manifest_listen *at =
			tls ? &g->listen_tls[i - g->n_listen] : &g->listen[i];
		unsigned first = s->n_listeners;
		int r;

		*why = "cannot listen";
		r = at->path[0] ? open_socket(s, at->path, g, why)
				: open_address(s, at, g->ingresses);
		if (r < 0) {
			if (at->path[0])
				log_error("listen address=unix:%s error=\"%s\"", at->path,
					  strerror(-r));
			else
				log_error("listen address=%s:%u error=\"%s\"", at->host,
					  at->port, strerror(-r));
			listeners_close(s);
			return r;
		}
		for (unsigned k = first; k < s->n_listeners; k++)
			s->listener[k].tls = tls;
		log_info("listen address=%s%s ingresses=%u: closed -> open",
			 s->listener[first].address, tls ? " tls" : "", g->ingresses);
	}
	return 0;
}

void
listeners_close(struct supervisor *s)
{
	for (unsigned i = 0; i < s->n_listeners; i++) {
		const char *path = s->listener[i].address + strlen("unix:");
		struct stat st;

		/* The file of a successor that has taken our place is not ours to remove. */
		if (s->listener[i].ino != 0 && lstat(path, &st) == 0 &&
		    st.st_dev == s->listener[i].dev && st.st_ino == s->listener[i].ino)
			unlink(path);
		close(s->listener[i].fd);
	}
	free(s->listener);
	s->listener = NULL;
	s->n_listeners = 0;
}
