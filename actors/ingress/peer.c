/* actors/ingress/peer.c -- see peer.h. */
#include "actors/ingress/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void
set_v4(struct peer *p, const struct in_addr *a)
{
	memset(p->addr, 0, 10);
	p->addr[10] = p->addr[11] = 0xff;
	memcpy(p->addr + 12, a, 4);
}

void
peer_of_socket(int fd, struct peer *ret)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof at;

	*ret = (struct peer){.port = 0};
	if (getpeername(fd, (struct sockaddr *)&at, &len) < 0)
		return;                 /* gone already: nobody's address */
	if (at.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&at;

		set_v4(ret, &v4->sin_addr);
		ret->port = ntohs(v4->sin_port);
	} else if (at.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&at;

		memcpy(ret->addr, &v6->sin6_addr, 16);
		ret->port = ntohs(v6->sin6_port);
	} else {
		ret->flags = PEER_UNIX;
	}
}

static bool
within(const struct manifest_network *n, const uint8_t addr[16])
{
	unsigned whole = n->bits / 8, rest = n->bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	return memcmp(n->addr, addr, whole) == 0 &&
	       (rest == 0 || ((n->addr[whole] ^ addr[whole]) & mask) == 0);
}

bool
peer_trusted(const struct manifest_gateway *g, const struct peer *p)
{
	if (p->flags & PEER_UNIX)
		return g->trusted_unix;
	for (uint32_t i = 0; i < g->n_trusted; i++)
		if (within(&g->trusted[i], p->addr))
			return true;
	return false;
}

static bool
port_read(const char *p, uint16_t *ret)
{
	unsigned long port = 0;

	if (*p == '\0' || strlen(p) > 5)
		return false;
	for (; *p; p++) {
		if (*p < '0' || *p > '9')
			return false;
		port = port * 10 + (unsigned long)(*p - '0');
	}
	if (port > 65535)
		return false;
	*ret = (uint16_t)port;
	return true;
}

/* One element of the list, without the blanks around it. */
static bool
address_read(struct slice text, struct peer *ret)
{
	char buf[INET6_ADDRSTRLEN + 10], *host = buf, *end;
	struct peer p = {.flags = PEER_TRUSTED};
	struct in6_addr v6;
	struct in_addr v4;

	if (text.len == 0 || text.len >= sizeof buf)
		return false;
	memcpy(buf, text.p, text.len);
	buf[text.len] = '\0';
	if (strlen(buf) != text.len)
		return false;
	if (buf[0] == '[') {
		host = buf + 1;
		end = strchr(host, ']');
		if (!end || (end[1] != '\0' && (end[1] != ':' || !port_read(end + 2, &p.port))))
			return false;
		*end = '\0';
	} else {
		end = strchr(buf, ':');
		if (end && !strchr(end + 1, ':')) {     /* one colon: IPv4 with a port */
			if (!port_read(end + 1, &p.port))
				return false;
			*end = '\0';
		}
		if (inet_pton(AF_INET, host, &v4) == 1) {
			set_v4(&p, &v4);
			*ret = p;
			return true;
		}
	}
	if (inet_pton(AF_INET6, host, &v6) != 1)
		return false;
	memcpy(p.addr, &v6, 16);
	*ret = p;
	return true;
}

static struct slice
trim(struct slice s)
{
	while (s.len > 0 && (*s.p == ' ' || *s.p == '\t'))
		s = (struct slice){s.p + 1, s.len - 1};
	while (s.len > 0 && (s.p[s.len - 1] == ' ' || s.p[s.len - 1] == '\t'))
		s.len--;
	return s;
}

bool
peer_forwarded(const struct manifest_gateway *g, const struct http1_head *head, struct peer *io)
{
	unsigned hops = 0;
	bool found = false;

	if ((g->n_trusted == 0 && !g->trusted_unix) || !peer_trusted(g, io))
		return false;
	for (unsigned i = head->n_headers; i-- > 0;) {
		struct slice left = head->headers[i].value;

		if (!http1_name_eq(head->headers[i].name, "x-forwarded-for"))
			continue;
		while (left.len > 0) {
			size_t at = left.len;
			struct slice one;
			struct peer p;

			while (at > 0 && left.p[at - 1] != ',')
				at--;
			one = trim((struct slice){left.p + at, left.len - at});
			left.len = at > 0 ? at - 1 : 0;
			if (one.len == 0)
				continue;       /* RFC 9110, 5.6.1.2: empty elements do not count */
			if (hops++ == PEER_HOPS || !address_read(one, &p))
				return found;
			*io = p;
			found = true;
			if (!peer_trusted(g, &p))
				return true;
		}
	}
	return found;
}
