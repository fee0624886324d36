/* actors/kvevents/peer_address.c -- see peer_address.h. */
#include "actors/kvevents/peer_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>

static void
map_v4(const struct in_addr *v4, struct in6_addr *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
	memcpy(ret->s6_addr + 12, v4, sizeof *v4);
}

bool
peer_address_parse(const char *text, struct in6_addr *ret)
{
	struct in_addr v4;

	if (inet_pton(AF_INET6, text, ret) == 1)
		return true;
	if (inet_pton(AF_INET, text, &v4) != 1)
		return false;
	map_v4(&v4, ret);
	return true;
}

bool
peer_address_is_loopback(const struct in6_addr *a)
{
	return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

bool
peer_address_is_of(const char *host, const struct in6_addr *peer)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	struct in6_addr a;
	bool is = false;

	if (peer_address_parse(host, &a))
		return memcmp(&a, peer, sizeof a) == 0;
	if (getaddrinfo(host, NULL, &hints, &found) != 0)
		return false;
	for (const struct addrinfo *at = found; at && !is; at = at->ai_next) {
		if (at->ai_family == AF_INET)
			map_v4(&((const struct sockaddr_in *)(const void *)at->ai_addr)->sin_addr,
			       &a);
		else if (at->ai_family == AF_INET6)
			a = ((const struct sockaddr_in6 *)(const void *)at->ai_addr)->sin6_addr;
		else
			continue;
		is = memcmp(&a, peer, sizeof a) == 0;
	}
	freeaddrinfo(found);
	return is;
}
