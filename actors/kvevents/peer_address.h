/* actors/kvevents/peer_address.h -- IP addresses of workers, compared; IPv4 as v4-mapped IPv6. */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>

bool peer_address_parse(const char *text, struct in6_addr *ret);
	/* A number, not a name; false otherwise. */
bool peer_address_is_loopback(const struct in6_addr *a);
bool peer_address_is_of(const char *host, const struct in6_addr *peer);
	/* Is the peer this host, a number or a name?  A name is looked up: may block for seconds,
	 * so not in the loop's thread. */
