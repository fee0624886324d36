/* actors/policy/decisions.c -- which question is decided when; who waits, and who is held. */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "actors/policy/policy.h"
#include "actors/policy/tagging.h"

#define OPEN_LATE_NS 100000000          /* without OPEN: so long after our first question */
#define HELD_LOOK_NS 5000000            /* while any question is held: is there a worker now */
#define HELD_TURN_NS 1000000u           /* and no longer than so at a time */

/* ---- saying ---- */

int
policy_say(struct policy *me, struct peer *p, enum msg_id id, const void *msg)
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

static void
say_cancelled(struct policy *me, struct peer *p, const struct msg_ask *ask)
{
	struct msg_cancelled cancelled = {
		.slot = ask->slot, .slot_gen = ask->slot_gen, .ask = ask->ask,
	};

	policy_say(me, p, MSG_cancelled, &cancelled);
}

void
policy_aside_used(struct policy *me)
{
	for (unsigned i = 0; me->aside && i < ASIDE_THREADS; i++)
		pm_actor_used(me->actor, aside_socket(me->aside, i));
}

static void
set_held_timer(struct policy *me, long every_ns)
{
	struct itimerspec t = {.it_value = {.tv_nsec = every_ns},
			       .it_interval = {.tv_nsec = every_ns}};

	timerfd_settime(me->held_fd, 0, &t, NULL);
}

static void
keep(struct policy *me, const struct held *h)
{
	if (me->held.n == 0)
		set_held_timer(me, HELD_LOOK_NS);
	PM_ASSERT(process_of(me), held_add(&me->held, h) == 0);
}

static uint32_t
weight_of(const struct policy *me, uint32_t tenant)
{
	return tenant == MANIFEST_NONE ? 1 : me->manifest->tenants[tenant].weight;
}

/* From now on it is held: its turn among the others, and `hold` to its ingress. */
static void
hold(struct policy *me, struct peer *p, struct msg_answer *answer, struct held *h,
     const struct evaluate_later *later)
{
	h->kind = later->kind;
	h->until_ns = answer->hold_until;
	h->priority = answer->priority;
	h->turn = held_turn(&me->held, later->tenant, weight_of(me, later->tenant), answer->prompt,
			    answer->hold_key);
	answer->hold_key = h->turn;
	keep(me, h);
	say_answer(me, p, answer);
}

/* Answers, or puts it among those that wait for token ids or for a worker.  How it was held: NULL,
 * it was not. */
static void
decide(struct policy *me, struct peer *p, const struct msg_ask *ask, mono_ns asked_ns,
       bool tokens_failed, const struct held *held)
{
	struct msg_answer answer;
	struct evaluate_later later;
	struct evaluate_asked how = {
		.asked_ns = asked_ns,
		.tokens_failed = tokens_failed,
		.last = me->ending,
		.held_until_ns = held ? held->until_ns : 0,
		.full = !held && me->held.n >= HELD_MAX,
	};
	struct held h = {.from = p->view, .ask = *ask, .asked_ns = asked_ns};
	struct waiting w = {.from = p->view, .ask = *ask, .asked_ns = asked_ns, .for_tokens = true};

	switch (evaluate_question(me->evaluate, p->view, ask, &how, &answer, &later)) {
	case EVALUATE_ANSWER:
		if (held)
			held_went(&me->held, held);
		say_answer(me, p, &answer);
		break;
	case EVALUATE_HELD:
		if (held) {
			held_tried(&me->held, held);
			keep(me, held);
		} else {
			hold(me, p, &answer, &h, &later);
		}
		break;
	case EVALUATE_WAIT:
		w.key = later.key;
		w.tokens_failed = tokens_failed;
		if (held)
			w.held = *held;
		pm_actor_used(me->actor, tokensource_socket(me->tokens));
		policy_aside_used(me);
		if (tagging_socket(evaluate_tagging(me->evaluate)))
			pm_actor_used(me->actor, tagging_socket(evaluate_tagging(me->evaluate)));
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
		struct peer *p = peers_of(me, w.from);

		if (p && w.cancel)
			say_cancelled(me, p, &w.ask);
		else if (p)
			decide(me, p, &w.ask, w.asked_ns, tokens_failed || w.tokens_failed,
			       w.held.from ? &w.held : NULL);
	}
}

/* Is there a place for those who are held?  In turn, for as long as others can wait for us. */
void
policy_on_held(struct pm_actor *actor, void *arg)
{
	struct policy *me = arg;
	mono_ns now = clock_mono(), until = now + HELD_TURN_NS;
	struct held h;
	uint64_t times;
	bool late;

	(void)actor;
	if (read(me->held_fd, &times, sizeof times) != (ssize_t)sizeof times)
		return;
	held_begin(&me->held);
	while (now < until && held_next(&me->held, now, &h, &late)) {
		struct peer *p = peers_of(me, h.from);

		if (p)
			decide(me, p, &h.ask, h.asked_ns, false, &h);
		now = clock_mono();
	}
	if (me->held.n == 0)
		set_held_timer(me, 0);
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

void
policy_open_if_complete(struct policy *me)
{
	if (me->deciding || !me->opened)
		return;
	for (unsigned i = 0; i < me->n_peers; i++)
		if (me->peer[i]->view && !me->peer[i]->resent)
			return;
	begin_deciding(me, "open");
}

void
policy_on_open_late(struct pm_actor *actor, void *arg)
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

/* ---- what ingresses ask ---- */

void
policy_on_ask(struct policy *me, struct peer *p, const struct msg_ask *ask)
{
	mono_ns now = clock_mono();

	count_add(process_of(me), COUNTER_questions, 1);
	if (me->waiting.n > 0)
		waiting_take(&me->waiting, p->view, ask->slot);
	if (me->held.n > 0)
		held_take(&me->held, p->view, ask->slot);
	if (me->deciding) {
		decide(me, p, ask, now, false, NULL);
		return;
	}
	struct waiting w = {.from = p->view, .ask = *ask, .asked_ns = now};

	PM_ASSERT(process_of(me), waiting_add(&me->waiting, &w) == 0);
	start_timer(me);
}

void
policy_on_cancel(struct policy *me, struct peer *p, const struct msg_cancel *cancel)
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
	held_take(&me->held, p->view, cancel->slot);
	if (me->aside && aside_drop(me->aside, p->view, cancel->slot, &w.key))
		PM_ASSERT(process_of(me), waiting_add(&me->waiting, &w) == 0);
	else
		say_cancelled(me, p, &w.ask);
}

void
policy_decide_waiting(struct policy *me, const struct token_key *key, bool failed)
{
	decide_waiting(me, true, key, failed);
}

void
policy_answer_all(struct policy *me)
{
	struct waiting w;
	struct held h;

	me->ending = true;
	decide_waiting(me, true, NULL, true);
	while (held_any(&me->held, &h)) {
		struct peer *p = peers_of(me, h.from);

		h.until_ns = 1;                 /* long over: nobody holds it after us */
		if (p)
			decide(me, p, &h.ask, h.asked_ns, true, &h);
	}
	while (waiting_first(&me->waiting, false, NULL, &w)) {
		struct peer *p = peers_of(me, w.from);

		if (p)                  /* we never had leave to decide */
			say_cancelled(me, p, &w.ask);
	}
}
