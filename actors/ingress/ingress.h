/* actors/ingress/ingress.h -- what the organs of one ingress process share.
 *
 * A request walks forward: client (connection, head, body) -> request (slot, bytes, decision)
 * -> ask (question, answer) -> relay (worker's connection, the answer's way back) -> client.
 * ledger, notes and journal hear of it on the way.  Everything runs in the one loop of
 * ingress.c.
 *
 * Freeing    Callbacks of io never run inside the call that started them, but our own calls
 *            nest: an object that ends is marked, its operations are cancelled, and it is freed
 *            between turns (`graveyard`), so that no caller up the stack touches freed memory.
 */
#pragma once
#include "actors/common/actor.h"
#include "actors/common/decide/manifest.h"
#include "actors/ingress/ask.h"
#include "actors/ingress/deadline.h"
#include "actors/ingress/fair.h"
#include "actors/ingress/io.h"
#include "actors/ingress/ledger.h"
#include "actors/ingress/models.h"
#include "actors/ingress/notes.h"
#include "actors/ingress/poison.h"
#include "actors/ingress/router.h"
#include "actors/ingress/settings.h"
#include "actors/ingress/upstream.h"
#include "shm/arena.h"
#include "shm/limit.h"
#include "shm/pins.h"
#include "shm/roster.h"

#define INGRESS_RETRY_SHARE     100     /* thousandths of a retry earned by each request: 10 % */
#define INGRESS_RETRY_BURST     100000  /* thousandths saved at most, and at the start */

struct client;
struct request;

struct ingress_live {                   /* by slot id: what the slot's segment does not say */
	struct request *request;        /* NULL: over, but its bytes may still be read */
	uint64_t region;                /* arena offset; 0: none */
	size_t region_cap;
	struct fair_bucket *bucket;     /* reference held; slot and region are counted there */
};

struct ingress_listener {
	struct ingress *in;
	uint32_t index;                 /* of the ingress it belongs to */
	uint16_t number;
	bool tls;                       /* clients speak TLS there */
	int fd;                         /* owned by the birth record */
	bool wanted;                    /* accept here, also after a cancel under way */
	struct io_op *accept;
};

struct ingress_peer {                   /* a policy process that we watch die */
	uint32_t gen, inc;
	int pidfd;                      /* owned; -1: unused */
	struct io_op *watch;
};

struct ingress {
	struct pm_actor actor;
	struct io *io;
	struct manifest *manifest;      /* in force */
	uint32_t manifest_gen;
	struct settings settings;       /* the next one, while it is loaded */
	struct manifest *next_manifest; /* sent, its generation not active yet */
	struct credentials *credentials, *next_credentials;     /* of these two */
	mono_ns tls_told;               /* when the log last spoke of a failed handshake */
	uint64_t tls_untold;            /* and how many it left out since */
	uint32_t next_gen;

	struct rows rows;
	struct pins pins;               /* written by every ingress */
	struct limits limits;           /* likewise */
	struct limit_use *use;          /* our column of it, by tenant's row */
	struct column column;
	struct slots slots;
	struct arena arena;

	void *zmq;
	struct router router;
	struct ask ask;
	struct ledger ledger;
	struct notes notes;
	struct poisons poisons;
	struct upstreams upstreams;

	struct ingress_live *live;
	uint32_t *free_slot;            /* stack of slot ids */
	uint32_t n_free;
	uint64_t next_request;
	uint32_t ticks;
	uint16_t next_check;            /* row whose books are compared next */
	int32_t retry_milli;            /* thousandths of a retry in hand */

	struct client *clients;
	uint32_t n_clients, clients_max;
	struct fair fair;
	struct client *room_hand;       /* whom to look at next for an idle one; NULL: the first */
	mono_ns room_told;              /* when the log last said that there is none */
	struct client *starved_first, *starved_last;    /* bodies that wait for room, in order */
	bool arena_freed;               /* since the first of them was tried */
	struct client *to_flush;        /* have bytes that leave at the end of this turn */
	struct client *dead_clients;
	struct request *dead_requests;

	struct ingress_listener *listener;
	unsigned n_listeners;
	struct ingress_peer peer[ASK_POLICIES];
	struct io_op *watch_control, *watch_signal, *watch_zmq, *watch_settings;
	struct models models;           /* the list clients are told */
	wall_ns born;
	bool control_woken;
	bool draining, cutting, stopping;
	mono_ns drain_deadline, drain_began, next_tick;
	mono_ns ready_ns;
	bool accepts;                   /* on its own sockets: has had somebody to ask */
	struct {                        /* words to the supervisor that it had no room for */
		enum msg_id id;
		uint32_t gen, inc;
	} owed[64];
	unsigned n_owed;
};

static inline const struct manifest_gateway *
ingress_settings(const struct ingress *in)
{
	return &in->manifest->gateway;
}

static inline mono_ns
ingress_now(const struct ingress *in)
{
	return io_now(in->io);
}

static inline void
ingress_count(struct ingress *in, enum counter c, uint64_t n)
{
	count_add(&in->actor.process, c, n);
}

void ingress_tell(struct ingress *in, enum msg_id id, const void *msg);
	/* To the supervisor: reachable, active, hole; kept while it has no room. */
