/* actors/supervisor/listeners.c -- sockets that outlive every ingress.
 *
 * Each ingress index has its own SO_REUSEPORT socket per address.  They stay open here, so that a
 * connection made while an ingress is dead waits in the backlog for its successor or a neighbour.
 */
#include "actors/supervisor/supervisor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
open_address(struct supervisor *s, const struct manifest_addr *addr, uint32_t ingresses)
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

int
listeners_open(struct supervisor *s, const struct manifest *manifest, const char **why)
{
	const struct manifest_gateway *g = &manifest->gateway;

	s->listener = calloc((size_t)g->n_listen * g->ingresses, sizeof *s->listener);
	if (!s->listener) {
		*why = "out of memory";
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < g->n_listen; i++) {
		int r = open_address(s, &g->listen[i], g->ingresses);

		if (r < 0) {
			log_error("listen address=%s:%u error=\"%s\"", g->listen[i].host,
				  g->listen[i].port, strerror(-r));
			*why = "cannot listen";
			listeners_close(s);
			return r;
		}
		log_info("listen address=%s ingresses=%u: closed -> open",
			 s->listener[s->n_listeners - 1].address, g->ingresses);
	}
	return 0;
}

void
listeners_close(struct supervisor *s)
{
	for (unsigned i = 0; i < s->n_listeners; i++)
		close(s->listener[i].fd);
	free(s->listener);
	s->listener = NULL;
	s->n_listeners = 0;
}
