/* policy.c -- decides where each request goes; a new set of rules is a new process.
 *
 * Owns    its own process segment (heartbeat, panic text, counters, decision records), which no
 *         decision reads; all else it maps read-only.
 * Hears   ask cancel probe  ingress     questions; their end; is anybody there
 *         resent            ingress     my part of the switch is done
 *         segment gone      supervisor  an ingress incarnation came, or members; is dead
 *         open drain        supervisor  every ingress asks you now; end
 * Says    hello probed      ingress     first on each connection; I am
 *         answer cancelled  ingress     a decision with all its effects; nobody reads those bytes
 *         ready failed bye  supervisor
 * Dies    ingress sees it by pidfd and asks the standby or successor: an unanswered question has
 *         had no effect.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/common/attach.h"
#include "actors/policy/aside.h"
#include "actors/policy/evaluate.h"
#include "actors/policy/native.h"
#include "actors/policy/tokensource.h"
#include "actors/policy/view.h"
#include "actors/policy/waiting.h"

#define TICK_MS 50u                     /* scrapes are seen within this: view.h VIEW_SIGHT_NS */
#define OPEN_LATE_NS 100000000          /* without OPEN: so long after our first question */
#define BATCH 64u                       /* messages of one ingress before the next one's ... */
#define TURN_NS 10000000u               /* ... or so long: the supervisor is heard in between */
#define DRAIN_ROUNDS 64u                /* batches read from each ingress at the end */
#define FRAME_MAX 65536u                /* messages of an ingress are tens of bytes */
#define LINGER_MS 1000                  /* answers still leave after our end */
#define GREET_NS 2000000                /* hello is tried so often until the connection stands */

struct peer {                           /* one ingress incarnation, from its first segment on */
	struct policy *policy;
	uint32_t index, incarnation;
	struct view_ingress *half;              /* owned until all three segments are there */
	struct view_ingress *view;              /* borrowed from the view; NULL before */
	zsock_t *sock;                          /* owned */
	bool greeted, resent;
};

struct policy {
	unsigned magic;
#define POLICY_MAGIC 0x7011c4a1
	struct pm_actor *actor;                 /* borrowed */
	struct manifest *manifest;              /* owned */
	struct secrets trust;                   /* owned */
	struct view view;                       /* owned */
	struct tokensource *tokens;             /* owned */
	struct native *native;                  /* owned; NULL: no set has a tokenizer */
	struct aside *aside;                    /* owned; likewise */
	struct evaluate *evaluate;              /* owned */
	struct peer **peer;                     /* owned */
	unsigned n_peers, cap_peers;
	struct waiting_list waiting;
	int timer_fd;                           /* 100 ms from the first question */
	int greet_fd;                           /* runs while somebody is not greeted */
	bool timed;                             /* the timer runs or ran */
	bool opened;                            /* OPEN came */
	bool deciding;
	char *frame;                            /* owned; MESSAGE_MAX, for what we say */
};

static struct process_segment *
process_of(struct policy *me)
{
	return &me->actor->process;
}

/* ---- saying ---- */

static int
say(struct policy *me, struct peer *p, enum msg_id id, const void *msg)
{
	ssize_t n = msg_pack(id, msg, me->frame, MESSAGE_MAX);

	if (n < 0) {
		log_error("say failed message=%s: %s", msg_name(id), strerror((int)-n));
		return (int)n;
	}
	pm_actor_used(me->actor, p->sock);
	if (zmq_send(zsock_resolve(p->sock), me->frame, (size_t)n, ZMQ_DONTWAIT) < 0)
		return -errno;
	return 0;
}

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
	p->greeted = say(me, p, MSG_hello, &hello) == 0;
	if (p->greeted)
		log_debug("greeted ingress=%u.%u", p->index, p->incarnation);
}

static void
say_answer(struct policy *me, struct peer *p, struct msg_answer *answer)
{
	ssize_t n;

	PM_ASSERT(process_of(me), answer->number != 0);
	n = msg_pack(MSG_answer, answer, me->frame, MESSAGE_MAX);
	if (n == -EMSGSIZE) {
		/* an absurdly long prompt: the hashes are a note to kvevents, not worth the
		 * request */
		answer->n_roots = 0;
		n = msg_pack(MSG_answer, answer, me->frame, MESSAGE_MAX);
	}
	PM_ASSERT(process_of(me), n > 0);
	pm_actor_used(me->actor, p->sock);
	/* A number that was given must leave or the stream has a hole.  When it cannot, the ingress
	 * is dead: `gone` will close the stream. */
	if (zmq_send(zsock_resolve(p->sock), me->frame, (size_t)n, ZMQ_DONTWAIT) < 0)
		log_warn("answer lost ingress=%u.%u: %s; waiting for its end", p->index,
			 p->incarnation, strerror(errno));
}

/* ---- deciding ---- */

static struct peer *
peer_of(struct policy *me, const struct view_ingress *view)
{
	for (unsigned i = 0; i < me->n_peers; i++)
		if (me->peer[i]->view == view)
			return me->peer[i];
	return NULL;
}

static void
say_cancelled(struct policy *me, struct peer *p, const struct msg_ask *ask)
{
	struct msg_cancelled cancelled = {
		.slot = ask->slot, .slot_gen = ask->slot_gen, .ask = ask->ask,
	};

	say(me, p, MSG_cancelled, &cancelled);
}

static void
aside_used(struct policy *me)
{
	for (unsigned i = 0; me->aside && i < ASIDE_THREADS; i++)
		pm_actor_used(me->actor, aside_socket(me->aside, i));
}

/* Answers, or puts it among those that wait for token ids. */
static void
decide(struct policy *me, struct peer *p, const struct msg_ask *ask, mono_ns asked_ns,
       bool tokens_failed)
{
	struct msg_answer answer;
	struct waiting w = {.from = p->view, .ask = *ask, .asked_ns = asked_ns, .for_tokens = true};

	switch (evaluate_question(me->evaluate, p->view, ask, asked_ns, tokens_failed, &answer,
				  &w.key)) {
	case EVALUATE_ANSWER:
		say_answer(me, p, &answer);
		break;
	case EVALUATE_WAIT:
		pm_actor_used(me->actor, tokensource_socket(me->tokens));
		aside_used(me);
		PM_ASSERT(process_of(me), waiting_add(&me->waiting, &w) == 0);
		break;
	case EVALUATE_STALE:
		break;
	}
	/* One prompt may take a tenth of a second: many of them are work, no hang. */
	pm_actor_heartbeat(me->actor, clock_mono());
}

static void
decide_waiting(struct policy *me, bool for_tokens, const struct token_key *key, bool tokens_failed)
{
	struct waiting w;
	size_t most = me->waiting.n;    /* who is put back to wait is behind those */

	while (most-- > 0 && waiting_first(&me->waiting, for_tokens, key, &w)) {
		struct peer *p = peer_of(me, w.from);

		if (p && w.cancel)
			say_cancelled(me, p, &w.ask);
		else if (p)
			decide(me, p, &w.ask, w.asked_ns, tokens_failed);
	}
}

static void
begin_deciding(struct policy *me, const char *why)
{
	me->deciding = true;
	if (me->timer_fd >= 0) {
		pm_actor_unwatch_fd(me->actor, me->timer_fd);
		close(me->timer_fd);
		me->timer_fd = -1;
	}
	log_info("waiting -> deciding (%s) questions=%zu", why, me->waiting.n);
	decide_waiting(me, false, NULL, false);
}

/* OPEN, and every ingress that is alive has sent the last of what it re-asks. */
static void
open_if_complete(struct policy *me)
{
	if (me->deciding || !me->opened)
		return;
	for (unsigned i = 0; i < me->n_peers; i++)
		if (me->peer[i]->view && !me->peer[i]->resent)
			return;
	begin_deciding(me, "open");
}

static void
on_timer(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	uint64_t times;

	(void)actor;
	if (read(me->timer_fd, &times, sizeof times) != (ssize_t)sizeof times || me->deciding)
		return;
	count_add(process_of(me), COUNTER_swap_open_late, 1);
	begin_deciding(me, "100 ms without open or resent");
}

static void
start_timer(struct policy *me)
{
	struct itimerspec in = {.it_value = {.tv_nsec = OPEN_LATE_NS}};

	if (me->timed)
		return;
	me->timed = true;
	timerfd_settime(me->timer_fd, 0, &in, NULL);
}

/* ---- hearing an ingress ---- */

static void
on_ask(struct policy *me, struct peer *p, const struct msg_ask *ask)
{
	mono_ns now = clock_mono();

	count_add(process_of(me), COUNTER_questions, 1);
	if (me->waiting.n > 0)
		waiting_take(&me->waiting, p->view, ask->slot);
	if (me->deciding) {
		decide(me, p, ask, now, false);
		return;
	}
	struct waiting w = {.from = p->view, .ask = *ask, .asked_ns = now};

	PM_ASSERT(process_of(me), waiting_add(&me->waiting, &w) == 0);
	start_timer(me);
}

static void
on_cancel(struct policy *me, struct peer *p, const struct msg_cancel *cancel)
{
	struct waiting w = {
		.from = p->view,
		.ask = {.slot = cancel->slot, .slot_gen = cancel->slot_gen, .ask = cancel->ask},
		.for_tokens = true,
		.cancel = true,
	};

	/* Between messages this thread reads no body, and what asks a worker for token ids has its
	 * own copy; but the threads beside it read where the bytes lie. */
	waiting_take(&me->waiting, p->view, cancel->slot);
	if (me->aside && aside_drop(me->aside, p->view, cancel->slot, &w.key))
		PM_ASSERT(process_of(me), waiting_add(&me->waiting, &w) == 0);
	else
		say_cancelled(me, p, &w.ask);
}

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
		on_ask(me, p, &m.u.ask);
		break;
	case MSG_cancel:
		on_cancel(me, p, &m.u.cancel);
		break;
	case MSG_probe: {
		struct msg_probed probed = {
			.policy_gen = me->actor->birth.generation,
			.policy_inc = me->actor->birth.incarnation,
		};

		say(me, p, MSG_probed, &probed);
		break;
	}
	case MSG_resent:
		p->resent = true;
		open_if_complete(me);
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
set_greet_timer(struct policy *me, long every_ns)
{
	struct itimerspec t = {.it_value = {.tv_nsec = every_ns},
			       .it_interval = {.tv_nsec = every_ns}};

	timerfd_settime(me->greet_fd, 0, &t, NULL);
}

static void
on_greet_timer(struct pm_actor *actor, void *arg)
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

/* One of an ingress's three segments.  Takes fd. */
static int
peer_segment(struct policy *me, enum segment_kind kind, uint32_t index, uint32_t incarnation,
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

static bool
of_ingress(enum segment_kind kind)
{
	return kind == SEGMENT_COLUMN || kind == SEGMENT_SLOTS || kind == SEGMENT_ARENA;
}

/* ---- hearing the supervisor, and the world's other events ---- */

/* Other members were found for the documents it was born with.  Takes fd. */
static void
on_documents(struct policy *me, int fd)
{
	struct yaml_errors errs = {0};
	struct manifest *is = NULL, *was = me->manifest;
	uint32_t generation = 0;
	int r = config_load(fd, &is, &generation, &errs);

	yaml_errors_free(&errs);
	if (r == 0 && generation != me->actor->birth.generation)
		r = -EPROTO;
	if (r == 0)
		r = evaluate_documents(me->evaluate, is);
	if (r < 0) {
		log_error("found members not taken over: %s; those before stay", strerror(-r));
		manifest_free(&is);
		return;
	}
	me->manifest = is;
	log_info("members=%u revision=%u config=%016llx", is->n_members, is->revision,
		 (unsigned long long)is->hash);
	manifest_free(&was);
}

static void
policy_on_message(void *priv, const struct msg *m, int fd)
{
	struct policy *me = priv;

	switch (m->id) {
	case MSG_segment:
		if (fd >= 0 && of_ingress((enum segment_kind)m->u.segment.kind)) {
			peer_segment(me, (enum segment_kind)m->u.segment.kind, m->u.segment.index,
				     m->u.segment.incarnation, fd);
			fd = -1;
		} else if (fd >= 0 && m->u.segment.kind == SEGMENT_CONFIG) {
			on_documents(me, fd);
			fd = -1;
		}
		break;
	case MSG_gone:
		if (m->u.gone.role == ROLE_INGRESS) {
			struct peer *p = peer_find(me, m->u.gone.incarnation);

			if (p)
				peer_remove(me, p);
			open_if_complete(me);
		}
		break;
	case MSG_open:
		if (m->u.open.policy_gen == me->actor->birth.generation) {
			me->opened = true;
			open_if_complete(me);
		}
		break;
	case MSG_rows_changed:
		view_refresh(&me->view);
		break;
	default:
		break;
	}
	if (fd >= 0)
		close(fd);
}

static void
on_tokens(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	struct token_key key;
	const char *why;

	(void)actor;
	while (tokensource_collect(me->tokens, clock_mono(), &key, &why) > 0) {
		if (why) {
			count_add(process_of(me), COUNTER_tokenize_failures, 1);
			log_debug("tokenize failed: %s; decided without a prefix", why);
		}
		decide_waiting(me, true, &key, why != NULL);
	}
}

static void
on_aside(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	struct token_key key;
	bool dropped;

	(void)actor;
	while (aside_collect(me->aside, &key, &dropped))
		decide_waiting(me, true, &key, false);
	aside_used(me);
}

static void
policy_on_tick(void *priv, mono_ns now)
{
	struct policy *me = priv;
	struct token_key key;

	view_tick(&me->view, now);
	while (me->aside && aside_late(me->aside, now, &key))
		decide_waiting(me, true, &key, true);
}

/* Everybody who asked us asks somebody else by now, or is ending too.  What is owed is said. */
static void
policy_on_drain(void *priv, mono_ns deadline)
{
	struct policy *me = priv;
	struct waiting w;

	(void)deadline;
	for (unsigned i = 0; i < me->n_peers; i++)
		for (unsigned rounds = 0; rounds < DRAIN_ROUNDS && me->peer[i]->sock &&
				(zsock_events(me->peer[i]->sock) & ZMQ_POLLIN); rounds++)
			on_ingress(me->actor, me->peer[i]);
	if (me->aside)
		aside_end(me->aside);   /* nobody reads a body that is answered for */
	decide_waiting(me, true, NULL, true);
	while (waiting_first(&me->waiting, false, NULL, &w)) {
		struct peer *p = peer_of(me, w.from);

		if (p)                  /* we never had leave to decide */
			say_cancelled(me, p, &w.ask);
	}
	pm_actor_stop(me->actor, 0);
}

/* ---- birth and end ---- */

static int
open_view(struct policy *me)
{
	struct birth *b = &me->actor->birth;
	struct rows rows = {0};
	struct index *index = NULL;
	int fd, r;

	r = pm_attach_rows(me->actor, &rows, false);
	if (r < 0)
		return r;
	fd = birth_segment_fd(b, SEGMENT_INDEX, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : index_attach(&index, fd);
	if (r == 0)
		r = view_open(&me->view, me->manifest, b->incarnation, &rows, &index);
	if (r < 0) {
		rows_detach(&rows);
		if (index)
			index_detach(&index);
		return pm_open_failed(me->actor, "prefix index", r);
	}
	fd = birth_segment_fd(b, SEGMENT_PINS, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : pins_attach(&me->view.pins, fd, false);
	if (r < 0)
		return pm_open_failed(me->actor, "table of responses", r);
	for (unsigned i = 0; i < b->n_segments; i++) {
		struct birth_segment *s = &b->segment[i];

		if (s->fd < 0 || !of_ingress(s->kind))
			continue;
		fd = s->fd;
		s->fd = -1;
		r = peer_segment(me, s->kind, s->index, s->incarnation, fd);
		if (r < 0)
			return pm_open_failed(me->actor, "segments of an ingress", r);
	}
	return 0;
}

/* Models of the sets that have a tokenizer, and what makes ids by them. */
static int
open_models(struct policy *me)
{
	const struct manifest *m = me->manifest;
	struct birth *b = &me->actor->birth;
	bool some = false;
	int r;

	for (uint32_t i = 0; i < m->n_sets; i++)
		some |= m->sets[i].tokenizer.path[0] != 0;
	if (!some)
		return 0;
	r = native_new(&me->native, m->n_sets);
	for (unsigned i = 0; i < b->n_segments && r == 0; i++) {
		struct birth_segment *s = &b->segment[i];

		if (s->fd < 0 || s->kind != SEGMENT_MODEL || s->index >= m->n_sets)
			continue;
		r = native_take(me->native, s->index, s->fd);
		s->fd = -1;
	}
	for (uint32_t i = 0; i < m->n_sets && r == 0; i++)
		if (native_why(me->native, i))
			log_warn("tokens set=%s: not made here: %s", m->sets[i].name,
				 native_why(me->native, i));
	if (r == 0)
		r = aside_new(&me->aside, me->native, view_ingress_free);
	return r < 0 ? pm_open_failed(me->actor, "models", r) : 0;
}

static void
policy_close(void **priv)
{
	struct policy *me = *priv;

	if (!me)
		return;
	*priv = NULL;
	while (me->n_peers > 0)
		peer_remove(me, me->peer[me->n_peers - 1]);
	free(me->peer);
	waiting_free(&me->waiting);
	if (me->tokens) {
		pm_actor_unwatch_socket(me->actor, tokensource_socket(me->tokens));
		tokensource_free(&me->tokens);
	}
	evaluate_free(&me->evaluate);
	for (unsigned i = 0; me->aside && i < ASIDE_THREADS; i++)
		pm_actor_unwatch_socket(me->actor, aside_socket(me->aside, i));
	aside_free(&me->aside);
	native_free(&me->native);
	if (me->view.manifest)
		view_close(&me->view);
	manifest_free(&me->manifest);
	secrets_detach(&me->trust);
	if (me->timer_fd >= 0)
		close(me->timer_fd);
	if (me->greet_fd >= 0)
		close(me->greet_fd);
	free(me->frame);
	free(me);
}

static int
policy_open(struct pm_actor *actor, void **ret)
{
	struct policy *me = calloc(1, sizeof *me);
	const char *why = "";
	int r;

	if (!me)
		return -ENOMEM;
	me->magic = POLICY_MAGIC;
	me->actor = actor;
	me->trust.seg.fd = -1;
	*ret = me;
	me->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	me->greet_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	me->frame = malloc(MESSAGE_MAX);
	if (me->timer_fd < 0 || me->greet_fd < 0 || !me->frame)
		return pm_open_failed(me->actor, "memory and a timer", -ENOMEM);
	r = pm_attach_config(actor, &me->manifest);
	if (r == 0)
		r = pm_attach_trust(actor, SEGMENT_TRUST, &me->trust);
	if (r < 0)
		return r;
	r = open_view(me);
	if (r < 0)
		return r;
	me->view.trust = &me->trust;
	r = tokensource_new(&me->tokens);
	if (r < 0)
		return pm_open_failed(me->actor, "token source", r);
	r = open_models(me);
	if (r < 0)
		return r;
	r = evaluate_new(&me->evaluate, &me->view, me->tokens, &actor->process,
			 actor->birth.generation);
	if (r < 0)
		return pm_open_failed(me->actor, "evaluator", r);
	r = evaluate_self_test(me->evaluate, &why);
	if (r < 0)
		return pm_open_failed(me->actor, why, r);
	evaluate_natively(me->evaluate, me->native, me->aside);
	for (unsigned i = 0; me->aside && i < ASIDE_THREADS; i++)
		pm_actor_watch_socket(actor, aside_socket(me->aside, i), on_aside, me);
	pm_actor_watch_socket(actor, tokensource_socket(me->tokens), on_tokens, me);
	pm_actor_watch_fd(actor, me->timer_fd, on_timer, me);
	pm_actor_watch_fd(actor, me->greet_fd, on_greet_timer, me);
	log_info("loaded config=%016llx models=%u members=%u ingresses=%u",
		 (unsigned long long)me->manifest->hash, me->manifest->n_models,
		 me->manifest->n_members, me->n_peers);
	return 0;
}

static const struct pm_actor_spec spec = {
	.name = "policy",
	.tick_ms = TICK_MS,
	.open = policy_open,
	.close = policy_close,
	.on_message = policy_on_message,
	.on_tick = policy_on_tick,
	.on_drain = policy_on_drain,
};

int
main(int argc, char **argv)
{
	return pm_actor_main(argc, argv, &spec);
}
