/* actors/ingress/room.h -- who may come in: descriptors, slots and arena, shared out by address.
 *
 * Meaning    An address may hold no more of each than what is still free of it (fair.h).  Beyond,
 *            connections: its own idle ones give way, else the new one is closed; requests: 429.
 *            Without descriptors for anybody's connection, idle ones of all give way.
 * Exempt     A trusted peer's connections carry many clients: they are not counted.  Its requests
 *            are those of the addresses it names.  The only request of an address may have the
 *            body the gateway allows, whatever its share.
 * Bounds     64 connections are looked at for one that is idle, and of each new one.
 * Threads    the loop's.
 */
#pragma once
#include "actors/ingress/client.h"

#define ROOM_SHARE_TEXT \
	"This client address has its share of what is served at once; try again."

struct fair_bucket *room_for(struct ingress *in, const struct peer *peer);
	/* Of a connection that was accepted: a reference, or NULL: close it.  May close others. */
void room_enter(struct client *c);      /* takes the reference */
void room_leave(struct client *c);      /* gives it back */

struct fair_bucket *room_bucket(struct client *c, const struct http1_head *head, struct peer *io);
	/* Of a request: a reference.  io: the connection's peer, then whom it is from.  NULL: no
	 * bucket left. */
void room_tick(struct ingress *in);
	/* Says in the gauges what is short: orchestrators see it (/readyz) before clients do. */
bool room_slot(struct ingress *in, const struct fair_bucket *bucket);   /* one slot more */
bool room_bytes(struct ingress *in, const struct ingress_live *live, size_t want);
	/* A region of `want` bytes instead of its own. */
