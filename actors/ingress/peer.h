/* actors/ingress/peer.h -- who a client is: its socket's other end, or whom a trusted peer names.
 *
 * Meaning    A connection has the address of its socket, or none (unix).  Where that peer is
 *            trusted (spec.client.trustedPeers), each request is from the rightmost address of
 *            X-Forwarded-For that is not itself trusted: what stands left of it may be anybody's
 *            invention.  Of other peers the header is ignored.
 * Bounds     PEER_HOPS elements are looked at.  One that is no address ends the walk: the client
 *            then is the nearest address that was named by somebody trusted.
 * Source     X-Forwarded-For as proxies write it: "client, proxy1, proxy2"; several fields are one
 *            list.  IPv4, IPv6, either with a port, IPv6 then in brackets.
 * Threads    pure functions of their arguments, but for peer_of_socket.
 * Cost       none where no peer is trusted; else a pass over the header's end.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "proto/http1.h"
#include "shm/slot.h"

#define PEER_HOPS 32u   /* addresses of X-Forwarded-For looked at */

struct peer {
	uint8_t addr[16];               /* IPv6, or v4-mapped; zero: unix */
	uint16_t port;                  /* 0: not known */
	uint8_t flags;                  /* enum slot_peer */
};

void peer_of_socket(int fd, struct peer *ret);          /* of an accepted one */
bool peer_trusted(const struct manifest_gateway *g, const struct peer *p);
bool peer_forwarded(const struct manifest_gateway *g, const struct http1_head *head,
		    struct peer *io);
	/* io: the connection's peer, then the request's.  True: another one than the connection's.
	 */
