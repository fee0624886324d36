/* actors/ingress/room.c -- see room.h. */
#include "actors/ingress/room.h"

#include "actors/common/log.h"

#define ROOM_LOOKS 64u                /* connections looked at for one that is idle */
#define CROWDED_PERCENT 80u           /* not ready from here ... */
#define CALM_PERCENT 70u              /* ... until below this: it shall not flap */
#define ROOM_IDLE_NS 1000000000ull    /* a newer one may be about to send */

/* It gives way: its client will connect again when it has something to ask. */
static bool
is_idle(const struct client *c)
{
	return c->state == CLIENT_HEAD && c->in_buf.len == 0 && c->fill.len == 0 &&
	       !wire_sends(&c->wire) && ingress_now(c->in) - c->idle_since >= ROOM_IDLE_NS;
}

static bool
anybody_goes(struct ingress *in)
{
	for (unsigned i = 0; i < ROOM_LOOKS && in->clients; i++) {
		struct client *c = in->room_hand ? in->room_hand : in->clients;

		in->room_hand = c->next;
		if (!is_idle(c))
			continue;
		client_destroy(c);
		return true;
	}
	return false;
}

static void
own_link(struct client *c)
{
	struct fair_bucket *b = c->bucket;

	c->own_next = NULL;
	c->own_prev = b->last;
	if (b->last)
		b->last->own_next = c;
	else
		b->first = c;
	b->last = c;
}

static void
own_unlink(struct client *c)
{
	struct fair_bucket *b = c->bucket;

	if (c->own_prev)
		c->own_prev->own_next = c->own_next;
	else
		b->first = c->own_next;
	if (c->own_next)
		c->own_next->own_prev = c->own_prev;
	else
		b->last = c->own_prev;
}

/* The caller holds the bucket. */
static bool
own_goes(struct fair_bucket *b)
{
	uint32_t looks = b->connections < ROOM_LOOKS ? b->connections : ROOM_LOOKS;

	while (looks-- > 0) {
		struct client *c = b->first;

		if (is_idle(c)) {
			client_destroy(c);
			return true;
		}
		own_unlink(c);          /* the next look begins with another */
		own_link(c);
	}
	return false;
}

/* Without descriptors we could neither ask a worker nor hear of a new configuration. */
static bool
descriptor(struct ingress *in)
{
	mono_ns now = ingress_now(in);

	if (in->n_clients < in->clients_max)
		return true;
	ingress_count(in, COUNTER_connections_refused, 1);
	if (now - in->room_told >= ROOM_IDLE_NS) {
		in->room_told = now;
		log_warn("connections=%u: no descriptors for more; idle ones give way, then new "
			 "ones",
			 in->n_clients);
	}
	return anybody_goes(in);
}

static bool
share(struct ingress *in, struct fair_bucket *b, const struct peer *peer)
{
	const struct manifest_gateway *set = ingress_settings(in);
	uint32_t free = in->clients_max > in->n_clients ? in->clients_max - in->n_clients : 0;

	if (!set->fairness || fair_allows(b->connections, 1, free) || peer_trusted(set, peer))
		return true;
	ingress_count(in, COUNTER_share_connections, 1);
	return own_goes(b);
}

struct fair_bucket *
room_for(struct ingress *in, const struct peer *peer)
{
	struct fair_bucket *b = fair_hold(&in->fair, peer);

	if (b && share(in, b, peer) && descriptor(in))
		return b;
	fair_drop(&in->fair, b);
	return NULL;
}

void
room_enter(struct client *c)
{
	c->counted = !peer_trusted(ingress_settings(c->in), &c->peer);
	if (!c->counted)
		return;
	c->bucket->connections++;
	own_link(c);
}

void
room_leave(struct client *c)
{
	struct ingress *in = c->in;

	if (in->room_hand == c)
		in->room_hand = c->next;
	if (c->counted) {
		own_unlink(c);
		c->bucket->connections--;
	}
	fair_drop(&in->fair, c->bucket);
	c->bucket = NULL;
}

struct fair_bucket *
room_bucket(struct client *c, const struct http1_head *head, struct peer *io)
{
	if (peer_forwarded(ingress_settings(c->in), head, io))
		return fair_hold(&c->in->fair, io);
	c->bucket->holds++;
	return c->bucket;
}

bool
room_slot(struct ingress *in, const struct fair_bucket *b)
{
	if (!ingress_settings(in)->fairness || fair_allows(b->slots, 1, in->n_free))
		return true;
	ingress_count(in, COUNTER_share_slots, 1);
	return false;
}

bool
room_bytes(struct ingress *in, const struct ingress_live *live, size_t want)
{
	const struct fair_bucket *b = live->bucket;
	uint64_t free = in->arena.size - in->arena.used + live->region_cap;

	if (!ingress_settings(in)->fairness || b->slots <= 1 ||
	    fair_allows(b->arena_bytes - live->region_cap, want, free))
		return true;
	ingress_count(in, COUNTER_share_arena, 1);
	return false;
}

static void
crowd(struct ingress *in, enum counter gauge, uint64_t used, uint64_t of)
{
	uint64_t percent = count_get(&in->actor.process, gauge) ? CALM_PERCENT : CROWDED_PERCENT;

	count_set(&in->actor.process, gauge, used >= (of * percent + 99) / 100);
}

void
room_tick(struct ingress *in)
{
	const struct ask_list *list = in->ask.list;
	uint32_t questions = list[ASK_WAITING].n + list[ASK_SUSPECT].n + list[ASK_ASKED].n;

	count_set(&in->actor.process, COUNTER_questions_open, questions);
	count_set(&in->actor.process, COUNTER_connections_max, in->clients_max);
	count_set(&in->actor.process, COUNTER_arena_used, in->arena.used);
	crowd(in, COUNTER_crowded_slots, in->slots.capacity - in->n_free, in->slots.capacity);
	crowd(in, COUNTER_crowded_arena, in->arena.used, in->arena.size);
	crowd(in, COUNTER_crowded_connections, in->n_clients, in->clients_max);
	crowd(in, COUNTER_crowded_questions, questions, in->ask.questions_max);
}
