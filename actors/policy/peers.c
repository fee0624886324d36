/* actors/policy/peers.c -- ingresses: coming, going, and what they say. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/policy/policy.h"

#define BATCH 64u                       /* messages of one ingress before the next one's ... */
#define TURN_NS 10000000u               /* ... or so long: the supervisor is heard in between */
#define DRAIN_ROUNDS 64u                /* batches read from each ingress at the end */
#define FRAME_MAX 65536u                /* messages of an ingress are tens of bytes */
#define LINGER_MS 1000                  /* answers still leave after our end */
#define GREET_NS 2000000                /* hello is tried so often until the connection stands */

/* ---- hearing an ingress ---- */

static void
on_frame(struct policy *me, struct peer *p, const void *frame, size_t len)
{
	struct msg m;

	if (msg_unpack(frame, len, &m) < 0) {
		count_add(process_of(me), COUNTER_messages_unknown, 1);
		return;
	}
	switch (m.id) {
	case MSG_ask:
		policy_on_ask(me, p, &m.u.ask);
		break;
	case MSG_cancel:
		policy_on_cancel(me, p, &m.u.cancel);
		break;
	case MSG_probe: {
		struct msg_probed probed = {
			.policy_gen = me->actor->birth.generation,
			.policy_inc = me->actor->birth.incarnation,
		};

		policy_say(me, p, MSG_probed, &probed);
		break;
	}
	case MSG_resent:
		p->resent = true;
		policy_open_if_complete(me);
		break;
	default:
		count_add(process_of(me), COUNTER_messages_unknown, 1);
	}
}

static void
on_ingress(struct pm_actor *actor, void *arg)
{
	struct peer *p = arg;
	struct policy *me = p->policy;
	mono_ns until = clock_mono() + TURN_NS;
	char frame[FRAME_MAX];

	(void)actor;
	for (unsigned i = 0; i < BATCH && (i == 0 || clock_mono() < until); i++) {
		int n = zmq_recv(zsock_resolve(p->sock), frame, sizeof frame, ZMQ_DONTWAIT);

		if (n < 0)
			break;
		if ((size_t)n > sizeof frame) {
			count_add(process_of(me), COUNTER_messages_unknown, 1);
			continue;
		}
		on_frame(me, p, frame, (size_t)n);
	}
}

/* ---- ingresses coming and going ---- */

static void
greet(struct policy *me, struct peer *p)
{
	struct msg_hello hello = {
		.abi = MESSAGES_ABI,
		.policy_gen = me->actor->birth.generation,
		.policy_inc = me->actor->birth.incarnation,
		.config_hash = me->manifest->hash,
	};

	/* IMMEDIATE: this fails until the connection stands, so that hello is the first on it */
	p->greeted = policy_say(me, p, MSG_hello, &hello) == 0;
	if (p->greeted)
		log_debug("greeted ingress=%u.%u", p->index, p->incarnation);
}

static void
set_greet_timer(struct policy *me, long every_ns)
{
	struct itimerspec t = {.it_value = {.tv_nsec = every_ns},
			       .it_interval = {.tv_nsec = every_ns}};

	timerfd_settime(me->greet_fd, 0, &t, NULL);
}

void
peers_on_greet_timer(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	bool left = false;
	uint64_t times;

	(void)actor;
	if (read(me->greet_fd, &times, sizeof times) != (ssize_t)sizeof times)
		return;
	for (unsigned i = 0; i < me->n_peers; i++) {
		struct peer *p = me->peer[i];

		if (p->sock && !p->greeted)
			greet(me, p);
		left |= p->sock && !p->greeted;
	}
	if (!left)
		set_greet_timer(me, 0);
}

static struct peer *
peer_find(struct policy *me, uint32_t incarnation)
{
	for (unsigned i = 0; i < me->n_peers; i++)
		if (me->peer[i]->incarnation == incarnation)
			return me->peer[i];
	return NULL;
}

static void
half_free(struct view_ingress **half)
{
	if (!*half)
		return;
	if ((*half)->column.head)
		column_detach(&(*half)->column);
	if ((*half)->slots.slot)
		slots_detach(&(*half)->slots);
	if ((*half)->arena.seg.head)
		arena_detach(&(*half)->arena);
	free(*half);
	*half = NULL;
}

static void
peer_remove(struct policy *me, struct peer *p)
{
	for (unsigned i = 0; i < me->n_peers; i++)
		if (me->peer[i] == p) {
			me->peer[i] = me->peer[--me->n_peers];
			break;
		}
	if (p->view) {
		waiting_forget(&me->waiting, p->view);
		held_forget(&me->held, p->view);
		view_take(&me->view, p->view);
		if (me->aside)
			aside_leave(me->aside, p->view);
		else
			view_ingress_free(p->view);
	}
	half_free(&p->half);
	if (p->sock) {
		pm_actor_unwatch_socket(me->actor, p->sock);
		zsock_destroy(&p->sock);
	}
	free(p);
}

static struct peer *
peer_add(struct policy *me, uint32_t index, uint32_t incarnation)
{
	struct peer *p = calloc(1, sizeof *p);

	if (!p || !(p->half = calloc(1, sizeof *p->half)))
		goto none;
	if (me->n_peers == me->cap_peers) {
		unsigned cap = me->cap_peers ? me->cap_peers * 2 : 8;
		struct peer **grown = realloc(me->peer, cap * sizeof *grown);

		if (!grown)
			goto none;
		me->peer = grown;
		me->cap_peers = cap;
	}
	p->policy = me;
	p->index = p->half->index = index;
	p->incarnation = p->half->incarnation = incarnation;
	me->peer[me->n_peers++] = p;
	return p;
none:
	if (p)
		free(p->half);
	free(p);
	return NULL;
}

static int
peer_connect(struct policy *me, struct peer *p)
{
	char endpoint[256], identity[POLICY_NAME_MAX];

	policy_name(identity, me->actor->birth.generation, me->actor->birth.incarnation,
		    me->actor->birth.token);
	pm_policy_endpoint(endpoint, sizeof endpoint, me->actor->birth.run_dir, p->index,
			   p->incarnation);
	p->sock = zsock_new(ZMQ_DEALER);
	if (!p->sock)
		return -ENOMEM;
	zsock_set_identity(p->sock, identity);
	zsock_set_immediate(p->sock, 1);
	zsock_set_linger(p->sock, LINGER_MS);
	zsock_set_sndhwm(p->sock, 0); /* bounded by the questions an ingress may have open */
	zsock_set_rcvhwm(p->sock, 0);
	zsock_set_reconnect_ivl(p->sock, 10);   /* we may come before it has bound */
	zsock_set_reconnect_ivl_max(p->sock, 200);
	if (zsock_connect(p->sock, "%s", endpoint) < 0)
		return -errno;
	pm_actor_watch_socket(me->actor, p->sock, on_ingress, p);
	set_greet_timer(me, GREET_NS);
	return 0;
}

bool
peers_segment_is(enum segment_kind kind)
{
	return kind == SEGMENT_COLUMN || kind == SEGMENT_SLOTS || kind == SEGMENT_ARENA;
}

int
peers_segment(struct policy *me, enum segment_kind kind, uint32_t index, uint32_t incarnation,
	     int fd)
{
	struct peer *p = peer_find(me, incarnation);
	int r;

	if (!p)
		p = peer_add(me, index, incarnation);
	if (!p || p->view) {
		close(fd);
		return p ? 0 : -ENOMEM;
	}
	struct view_ingress *half = p->half;

	if ((kind == SEGMENT_COLUMN && half->column.head) ||
	    (kind == SEGMENT_SLOTS && half->slots.slot) ||
	    (kind == SEGMENT_ARENA && half->arena.seg.head)) {
		close(fd);
		return 0;
	}
	if (kind == SEGMENT_COLUMN)
		r = column_attach(&half->column, fd, false);
	else if (kind == SEGMENT_SLOTS)
		r = slots_attach(&half->slots, fd, false);
	else
		r = arena_attach(&half->arena, fd, false);
	if (r < 0) {
		log_error("ingress=%u.%u segment=%s: %s; its questions go unanswered", index,
			  incarnation, segment_kind_name(kind), strerror(-r));
		peer_remove(me, p);
		return r;
	}
	if (!half->column.head || !half->slots.slot || !half->arena.seg.head)
		return 0;
	r = view_add(&me->view, &p->half);
	if (r < 0) {
		peer_remove(me, p);
		return r;
	}
	p->view = half;
	return peer_connect(me, p);
}

struct peer *
peers_of(struct policy *me, const struct view_ingress *view)
{
	for (unsigned i = 0; i < me->n_peers; i++)
		if (me->peer[i]->view == view)
			return me->peer[i];
	return NULL;
}

void
peers_gone(struct policy *me, uint32_t incarnation)
{
	struct peer *p = peer_find(me, incarnation);

	if (p)
		peer_remove(me, p);
}

void
peers_remove_all(struct policy *me)
{
	while (me->n_peers > 0)
		peer_remove(me, me->peer[me->n_peers - 1]);
	free(me->peer);
	me->peer = NULL;
}

void
peers_drain(struct policy *me)
{
	for (unsigned i = 0; i < me->n_peers; i++)
		for (unsigned rounds = 0; rounds < DRAIN_ROUNDS && me->peer[i]->sock &&
				(zsock_events(me->peer[i]->sock) & ZMQ_POLLIN); rounds++)
			on_ingress(me->actor, me->peer[i]);
}
