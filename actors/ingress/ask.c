/* actors/ingress/ask.c -- the ask, swap, cancel and death rules; see ask.h. */
#include "actors/ingress/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/log.h"

/* --- slots and lists --------------------------------------------------------------------- */

static uint64_t
word_of(const struct ask *ask, uint32_t slot)
{
	return atomic_load_explicit(&ask->slots->slot[slot].word, memory_order_relaxed);
}

/* W1: everything a reader may look at was written before. */
static void
word_set(struct ask *ask, uint32_t slot, uint16_t number, enum slot_state state, uint8_t deaths)
{
	uint64_t word =
		slot_word(slot_generation(word_of(ask, slot)), number, (uint8_t)state, deaths);

	atomic_store_explicit(&ask->slots->slot[slot].word, word, memory_order_release);
}

static void
word_state(struct ask *ask, uint32_t slot, enum slot_state state)
{
	uint64_t word = word_of(ask, slot);

	word_set(ask, slot, slot_ask(word), state, slot_deaths(word));
}

static void
unlink_entry(struct ask *ask, uint32_t slot)
{
	struct ask_entry *e = &ask->entry[slot];
	struct ask_list *l;

	if (e->state == ASK_NONE || e->state >= ASK_SENT)
		return;
	l = &ask->list[e->state];
	if (e->prev)
		ask->entry[e->prev].next = e->next;
	else
		l->head = e->next;
	if (e->next)
		ask->entry[e->next].prev = e->prev;
	else
		l->tail = e->prev;
	l->n--;
	e->prev = e->next = 0;
}

static void
move(struct ask *ask, uint32_t slot, enum ask_state state, mono_ns now)
{
	struct ask_entry *e = &ask->entry[slot];
	struct ask_list *l;

	unlink_entry(ask, slot);
	e->state = (uint8_t)state;
	e->since_ns = now;
	if (state == ASK_NONE || state >= ASK_SENT)
		return;
	l = &ask->list[state];
	e->prev = l->tail;
	if (l->tail)
		ask->entry[l->tail].next = slot;
	else
		l->head = slot;
	l->tail = slot;
	l->n++;
}

static void
release(struct ask *ask, uint32_t slot)
{
	struct ask_entry *e = &ask->entry[slot];

	move(ask, slot, ASK_NONE, 0);
	e->policy = ASK_POLICIES;
	e->crashes = 0;
	e->doubt[0] = e->doubt[1] = 0;
	ask->ops->released(ask->arg, slot);
}

int
ask_open(struct ask *ret, struct slots *slots, struct column *column,
	 struct process_segment *process, const struct ask_ops *ops, void *arg, mono_ns now)
{
	*ret = (struct ask){
		.ops = ops,
		.arg = arg,
		.slots = slots,
		.column = column,
		.process = process,
		.active = ASK_POLICIES,
		.absent_ns = now,
		.questions_max = 1024,
		.answer_ns = 10000000000ull,
	};
	ret->entry = calloc((size_t)slots->capacity + 1, sizeof *ret->entry);
	return ret->entry ? 0 : -ENOMEM;
}

void
ask_close(struct ask *ask)
{
	free(ask->entry);
	*ask = (struct ask){0};
}

/* --- asking ------------------------------------------------------------------------------ */

static int
send_to(struct ask *ask, unsigned p, enum msg_id id, const void *msg)
{
	const struct ask_policy *policy = &ask->policy[p];

	if (policy->dead)
		return -EHOSTUNREACH;
	return ask->ops->send(ask->arg, policy->gen, policy->inc, id, msg);
}

/* Puts one waiting question.  False: not now. */
static bool
send_question(struct ask *ask, uint32_t slot, mono_ns now)
{
	struct ask_entry *e = &ask->entry[slot];
	uint64_t word = word_of(ask, slot);
	uint16_t number = (uint16_t)(slot_ask(word) + 1);
	struct msg_ask m = {.slot = slot, .slot_gen = slot_generation(word), .ask = number};

	word_set(ask, slot, number, SLOT_ASKED, slot_deaths(word));
	if (send_to(ask, ask->active, MSG_ask, &m) < 0) {
		word_set(ask, slot, number, SLOT_READ, slot_deaths(word));
		return false; /* its pidfd, or room in the queue, will wake us */
	}
	uint16_t bit = (uint16_t)(1u << ask->active);
	e->readers |= bit;
	e->cancelled &= (uint16_t)~bit;
	e->cancel_owed &= (uint16_t)~bit;
	e->asked_as[ask->active] = number;
	e->policy = (uint8_t)ask->active;
	move(ask, slot, ASK_ASKED, now);
	count_add(ask->process, COUNTER_asks, 1);
	if (number > 1)
		count_add(ask->process, COUNTER_asks_again, 1);
	return true;
}

static bool
suspect_out(const struct ask *ask)
{
	for (uint32_t s = ask->list[ASK_ASKED].head; s; s = ask->entry[s].next)
		if (slot_deaths(word_of(ask, s)) > 0)
			return true;
	return false;
}

/* The next body that may have killed a process; 0: none, or why it did is about to be said. */
static uint32_t
next_suspect(const struct ask *ask, mono_ns now)
{
	for (uint32_t s = ask->list[ASK_SUSPECT].head; s; s = ask->entry[s].next) {
		const struct ask_entry *e = &ask->entry[s];
		bool doubted = (e->doubt[0] | e->doubt[1]) != 0;

		if (slot_deaths(word_of(ask, s)) < ASK_CRASHES_MAX || !doubted ||
		    now - e->since_ns >= ASK_DOUBT_NS)
			return s;
	}
	return 0;
}

/* Sends what waits.  all: without the limit, for questions that were outstanding before a switch.
 */
static void
pump(struct ask *ask, bool all, mono_ns now)
{
	if (ask->active == ASK_POLICIES)
		return;
	while (ask->list[ASK_WAITING].n > 0 && (all || ask->list[ASK_ASKED].n < ask->questions_max))
		if (!send_question(ask, ask->list[ASK_WAITING].head, now))
			return;
	/* A body that may have killed a process is asked about alone among its kind. */
	if (ask->list[ASK_SUSPECT].n > 0 && !suspect_out(ask)) {
		uint32_t s = next_suspect(ask, now);

		if (s)
			send_question(ask, s, now);
	}
	if (ask->resent_owed) {
		const struct ask_policy *p = &ask->policy[ask->active];
		struct msg_resent m = {.policy_gen = p->gen, .policy_inc = p->inc};

		if (send_to(ask, ask->active, MSG_resent, &m) == 0)
			ask->resent_owed = false;
	}
}

static void
wait_again(struct ask *ask, uint32_t slot, mono_ns now)
{
	uint64_t word = word_of(ask, slot);

	word_state(ask, slot, SLOT_READ);
	ask->entry[slot].policy = ASK_POLICIES;
	move(ask, slot, slot_deaths(word) > 0 ? ASK_SUSPECT : ASK_WAITING, now);
}

void
ask_put(struct ask *ask, uint32_t slot, mono_ns now)
{
	if (slot > ask->high)
		ask->high = slot;
	wait_again(ask, slot, now);
	pump(ask, false, now);
}

bool
ask_full(const struct ask *ask)
{
	return ask->list[ASK_WAITING].n / ASK_WAITING_TIMES >= ask->questions_max;
}

void
ask_sent(struct ask *ask, uint32_t slot)
{
	move(ask, slot, ASK_SENT, 0);
	word_state(ask, slot, SLOT_SENT);
}

/* Says cancel to each process of `mask` that still owes this slot an end. */
static void
cancel(struct ask *ask, uint32_t slot, uint16_t mask)
{
	struct ask_entry *e = &ask->entry[slot];
	uint16_t todo = (uint16_t)(e->readers & mask & ~e->cancelled);

	for (unsigned p = 0; todo; p++, todo >>= 1) {
		struct msg_cancel m = {.slot = slot,
				       .slot_gen = slot_generation(word_of(ask, slot)),
				       .ask = e->asked_as[p]};
		uint16_t bit = (uint16_t)(1u << p);

		if (!(todo & 1) || ask->policy[p].dead)
			continue;
		if (send_to(ask, p, MSG_cancel, &m) == 0) {
			e->cancelled |= bit;
			e->cancel_owed &= (uint16_t)~bit;
		} else {
			e->cancel_owed |= bit;
		}
	}
}

void
ask_end(struct ask *ask, uint32_t slot, mono_ns now)
{
	struct ask_entry *e = &ask->entry[slot];

	word_state(ask, slot, SLOT_END);
	cancel(ask, slot, UINT16_MAX);
	move(ask, slot, ASK_ENDING, now);
	if (e->readers == 0)
		release(ask, slot);
	pump(ask, false, now);
}

bool
ask_list_valid(const struct ask *ask, uint32_t policy_gen)
{
	return ask->active != ASK_POLICIES && ask->policy[ask->active].gen == policy_gen;
}

/* --- policy processes -------------------------------------------------------------------- */

static unsigned
find(const struct ask *ask, uint32_t inc)
{
	for (unsigned p = 0; p < ASK_POLICIES; p++)
		if (inc != 0 && ask->policy[p].inc == inc)
			return p;
	return ASK_POLICIES;
}

static unsigned
find_or_add(struct ask *ask, uint32_t gen, uint32_t inc)
{
	unsigned p = find(ask, inc), oldest = ASK_POLICIES;

	if (p < ASK_POLICIES || inc == 0)
		return p;
	for (p = 0; p < ASK_POLICIES; p++) {
		if (ask->policy[p].inc == 0)
			break;
		if (ask->policy[p].dead &&
		    (oldest == ASK_POLICIES || ask->policy[p].inc < ask->policy[oldest].inc))
			oldest = p;
	}
	if (p == ASK_POLICIES)
		p = oldest; /* its readers were cleared when it died */
	if (p == ASK_POLICIES) {
		log_warn("policy process not known: table full gen=%u inc=%u", gen, inc);
		return p;
	}
	ask->policy[p] = (struct ask_policy){.gen = gen, .inc = inc, .next = 1};
	return p;
}

void
ask_peer(struct ask *ask, uint32_t gen, uint32_t inc)
{
	find_or_add(ask, gen, inc);
}

static void
tell_active(struct ask *ask)
{
	struct msg_active m = {0};

	if (ask->active != ASK_POLICIES) {
		m.policy_gen = ask->policy[ask->active].gen;
		m.policy_inc = ask->policy[ask->active].inc;
	}
	ask->ops->tell(ask->arg, MSG_active, &m);
}

/* From now on its answers are discarded; a live process is told to forget its questions. */
static void
close_stream(struct ask *ask, unsigned p)
{
	uint16_t bit = (uint16_t)(1u << p);

	if (ask->policy[p].closed)
		return;
	ask->policy[p].closed = true;
	if (ask->policy[p].dead)
		return;
	for (uint32_t s = 1; s <= ask->high; s++)
		if (ask->entry[s].readers & bit)
			cancel(ask, s, bit);
}

struct aged {
	uint64_t request_id;
	uint32_t slot;
};

static int
older(const void *a, const void *b)
{
	const struct aged *x = a, *y = b;

	return x->request_id < y->request_id ? -1 : x->request_id > y->request_id;
}

/* Everything that has sent nothing upstream is asked again, oldest first, then RESENT. */
static void
ask_all_again(struct ask *ask, mono_ns now)
{
	static const enum ask_state from[] = {ASK_ASKED, ASK_HELD, ASK_CHOSEN, ASK_WAITING};
	size_t n = 0, cap = 0;
	struct aged *all;

	for (unsigned i = 0; i < 4; i++)
		cap += ask->list[from[i]].n;
	all = calloc(cap + 1, sizeof *all);
	for (unsigned i = 0; all && i < 4; i++)
		for (uint32_t s = ask->list[from[i]].head; s; s = ask->entry[s].next)
			all[n++] = (struct aged){ask->slots->slot[s].request_id, s};
	if (all)
		qsort(all, n, sizeof *all, older);
	for (size_t i = 0; i < n; i++) {
		if (ask->entry[all[i].slot].state == ASK_CHOSEN)
			ask->ops->withdraw(ask->arg, all[i].slot);
		wait_again(ask, all[i].slot, now);
	}
	/* Without memory for the order: in the order of the lists. */
	for (unsigned i = 0; !all && i < 3; i++)
		while (ask->list[from[i]].n > 0) {
			uint32_t s = ask->list[from[i]].head;

			if (from[i] == ASK_CHOSEN)
				ask->ops->withdraw(ask->arg, s);
			wait_again(ask, s, now);
		}
	free(all);
	ask->resent_owed = ask->active != ASK_POLICIES;
	pump(ask, true, now);
}

static void
set_active(struct ask *ask, unsigned p, mono_ns now)
{
	if (p == ASK_POLICIES && ask->active != ASK_POLICIES)
		ask->absent_ns = now;
	ask->active = p;
	ask->resent_owed = false;
	if (p != ASK_POLICIES)
		ask->policy[p].opened = true;
}

void
ask_activate(struct ask *ask, uint32_t gen, uint32_t inc, mono_ns now)
{
	unsigned p = find_or_add(ask, gen, inc);

	if (p == ASK_POLICIES)
		return; /* not acknowledged: the supervisor will see us hang */
	if (p == ask->active) {
		tell_active(ask); /* we moved there by ourselves */
		return;
	}
	for (unsigned q = 0; q < ASK_POLICIES; q++)
		if (q != p && ask->policy[q].opened)
			close_stream(ask, q);
	if (ask->policy[p].dead || ask->policy[p].closed) {
		/* Died in between, or was opened before, which never happens again: wait for
		 * another. */
		struct msg_active m = {.policy_gen = gen, .policy_inc = inc};

		set_active(ask, ASK_POLICIES, now);
		ask->ops->tell(ask->arg, MSG_active, &m);
		ask_all_again(ask, now);
		return;
	}
	set_active(ask, p, now);
	tell_active(ask);
	ask_all_again(ask, now);
}

void
ask_standby(struct ask *ask, uint32_t gen, uint32_t inc)
{
	ask->standby_gen = gen;
	ask->standby_inc = inc;
}

static void
fail_if_guilty(struct ask *ask, uint32_t slot)
{
	if (ask->entry[slot].crashes >= ASK_CRASHES_MAX ||
	    slot_deaths(word_of(ask, slot)) >= ASK_DEATHS_MAX)
		ask->ops->fail(ask->arg, slot, ASK_FAIL_CRASH);
}

/* What was unanswered when p died is suspected. */
static void
count_deaths(struct ask *ask, unsigned p, enum gone_cause cause)
{
	uint32_t next;

	if (cause == GONE_ENDED)
		return;
	for (uint32_t s = ask->list[ASK_ASKED].head; s; s = next) {
		struct ask_entry *e = &ask->entry[s];
		uint64_t word = word_of(ask, s);

		next = e->next;
		if (e->policy != p)
			continue;
		word_set(ask, s, slot_ask(word), SLOT_ASKED, (uint8_t)(slot_deaths(word) + 1));
		if (cause == GONE_CRASHED)
			e->crashes++;
		else if (cause == GONE_UNSAID)
			e->doubt[e->doubt[0] != 0] = ask->policy[p].inc;
		fail_if_guilty(ask, s);
	}
}

/* The cause of a death that was seen before it was told. */
static void
settle_doubt(struct ask *ask, uint32_t inc, enum gone_cause cause)
{
	for (uint32_t s = 1; s <= ask->high; s++) {
		struct ask_entry *e = &ask->entry[s];
		uint64_t word = word_of(ask, s);

		if (e->doubt[0] != inc && e->doubt[1] != inc)
			continue;
		e->doubt[e->doubt[0] != inc] = 0;
		if (cause == GONE_CRASHED)
			e->crashes++;
		else if (cause == GONE_ENDED && slot_deaths(word) > 0)
			word_set(ask, s, slot_ask(word), (enum slot_state)slot_state(word),
				 (uint8_t)(slot_deaths(word) - 1));
		/* Whoever has been answered since has shown that it does no harm. */
		if (e->state == ASK_WAITING || e->state == ASK_SUSPECT || e->state == ASK_ASKED)
			fail_if_guilty(ask, s);
	}
}

void
ask_gone(struct ask *ask, uint32_t inc, enum gone_cause cause, mono_ns now)
{
	unsigned p = find(ask, inc);
	bool said = false;

	if (p < ASK_POLICIES && !ask->policy[p].dead) {
		uint16_t bit = (uint16_t)(1u << p);
		bool was_active = ask->active == p;

		ask->policy[p].dead = true;
		ask->policy[p].closed = true;
		if (was_active) {
			unsigned q = find(ask, ask->standby_inc);
			const struct ask_policy *s = &ask->policy[q % ASK_POLICIES];

			/* By ourselves only to an unasked standby of the generation in force. */
			if (q == ASK_POLICIES || s->dead || s->closed || s->opened ||
			    !s->reachable || s->gen != ask->policy[p].gen)
				q = ASK_POLICIES;
			set_active(ask, q, now);
		}
		for (uint32_t s = 1; s <= ask->high; s++) {
			struct ask_entry *e = &ask->entry[s];

			if (!(e->readers & bit))
				continue;
			e->readers &= (uint16_t)~bit;
			e->cancel_owed &= (uint16_t)~bit;
			e->cancelled &= (uint16_t)~bit;
			if (e->readers == 0 && e->state == ASK_ENDING)
				release(ask, s);
		}
		if (was_active) {
			/* The acknowledgement before the questions: OPEN must not wait for them. */
			tell_active(ask);
			said = true;
			count_deaths(ask, p, cause);
			ask_all_again(ask, now);
		}
	}
	if (cause == GONE_UNSAID)
		return;
	if (!said)
		tell_active(ask);
	settle_doubt(ask, inc, cause);
	pump(ask, false, now);
}

/* --- answers ----------------------------------------------------------------------------- */

/* A process has ended its reading of {slot, generation, ask}; only its newest question counts. */
static void
end_reading(struct ask *ask, unsigned p, uint32_t slot, uint32_t generation, uint32_t number)
{
	struct ask_entry *e = &ask->entry[slot];
	uint16_t bit = (uint16_t)(1u << p);

	if (!(e->readers & bit) || slot_generation(word_of(ask, slot)) != generation ||
	    e->asked_as[p] != number)
		return;
	e->readers &= (uint16_t)~bit;
	e->cancel_owed &= (uint16_t)~bit;
}

static void
hold(struct ask *ask, uint32_t slot, const struct msg_answer *a, mono_ns now)
{
	struct slot *s = &ask->slots->slot[slot];

	if (s->hold_deadline_ns == 0)
		s->hold_deadline_ns = a->hold_until;
	s->hold_key = a->hold_key;
	word_state(ask, slot, SLOT_HELD);
	move(ask, slot, ASK_HELD, now);
}

static void
heard_answer(struct ask *ask, unsigned p, const struct msg_answer *a, mono_ns now)
{
	struct ask_policy *policy = &ask->policy[p];
	bool known = a->slot >= 1 && a->slot <= ask->high;
	struct ask_entry *e = &ask->entry[known ? a->slot : 0];
	uint64_t word = word_of(ask, known ? a->slot : 0);

	if (policy->broken)
		return;
	if (a->number != policy->next) {
		struct msg_hole m = {.policy_gen = policy->gen, .policy_inc = policy->inc};

		policy->broken = true;
		count_add(ask->process, COUNTER_answer_holes, 1);
		log_error("policy answers with a hole gen=%u inc=%u want=%u got=%u: it will be "
			  "replaced",
			  policy->gen, policy->inc, policy->next, a->number);
		ask->ops->tell(ask->arg, MSG_hole, &m);
		return;
	}
	policy->next++;
	bool current = known && !policy->closed && p == ask->active && e->policy == p &&
		       (e->state == ASK_ASKED || e->state == ASK_HELD) &&
		       slot_generation(word) == a->slot_gen && slot_ask(word) == a->ask &&
		       e->asked_as[p] == a->ask;
	bool end = a->verdict != VERDICT_HOLD;

	if (known && end)
		end_reading(ask, p, a->slot, a->slot_gen, a->ask);
	if (!current) {
		count_add(ask->process, COUNTER_answers_discarded, 1);
		if (known && e->state == ASK_ENDING && e->readers == 0)
			release(ask, a->slot);
	} else {
		count_add(ask->process, COUNTER_answers_applied, 1);
		if (!end) {
			hold(ask, a->slot, a, now);
		} else {
			word_state(ask, a->slot, SLOT_CHOSEN);
			e->policy = ASK_POLICIES;
			move(ask, a->slot, ASK_CHOSEN, now);
			ask->ops->apply(ask->arg, a->slot, a);
		}
	}
	column_apply(ask->column, policy->inc, a->number); /* C1: after the cells */
	pump(ask, false, now);
}

static void
heard_cancelled(struct ask *ask, unsigned p, const struct msg_cancelled *m)
{
	if (m->slot < 1 || m->slot > ask->high)
		return;
	end_reading(ask, p, m->slot, m->slot_gen, m->ask);
	if (ask->entry[m->slot].state == ASK_ENDING && ask->entry[m->slot].readers == 0)
		release(ask, m->slot);
}

static void
heard_hello(struct ask *ask, unsigned p, const struct msg_hello *m)
{
	struct msg_probe probe = {.policy_gen = m->policy_gen, .policy_inc = m->policy_inc};

	if (m->abi != MESSAGES_ABI) {
		log_error("policy speaks another protocol inc=%u abi=%u: not used", m->policy_inc,
			  m->abi);
		return;
	}
	send_to(ask, p, MSG_probe, &probe);
}

static void
heard_probed(struct ask *ask, unsigned p, mono_ns now)
{
	struct msg_reachable m = {.policy_gen = ask->policy[p].gen,
				  .policy_inc = ask->policy[p].inc};

	ask->policy[p].reachable = true;
	ask->ops->tell(ask->arg, MSG_reachable, &m);
	pump(ask, false, now); /* activated before it was connected: now it can be asked */
}

void
ask_heard(struct ask *ask, uint32_t gen, uint32_t inc, const struct msg *msg, mono_ns now)
{
	unsigned p = find_or_add(ask, gen, inc);

	if (p == ASK_POLICIES)
		return;
	switch (msg->id) {
	case MSG_hello:
		heard_hello(ask, p, &msg->u.hello);
		break;
	case MSG_probed:
		heard_probed(ask, p, now);
		break;
	case MSG_answer:
		heard_answer(ask, p, &msg->u.answer, now);
		break;
	case MSG_cancelled:
		heard_cancelled(ask, p, &msg->u.cancelled);
		break;
	default:
		count_add(ask->process, COUNTER_messages_unknown, 1);
	}
}

/* --- time -------------------------------------------------------------------------------- */

static void
fail_older(struct ask *ask, enum ask_state state, mono_ns limit, enum ask_failure why)
{
	struct ask_list *l = &ask->list[state];

	/* Lists are in the order of since_ns.  The bound: fail() must end each one. */
	for (uint32_t n = l->n; n > 0 && l->head && ask->entry[l->head].since_ns <= limit; n--)
		ask->ops->fail(ask->arg, l->head, why);
}

void
ask_tick(struct ask *ask, mono_ns now)
{
	uint32_t next;

	if (ask->active == ASK_POLICIES && now - ask->absent_ns >= ASK_ABSENT_NS) {
		fail_older(ask, ASK_WAITING, now, ASK_FAIL_ABSENT);
		fail_older(ask, ASK_SUSPECT, now, ASK_FAIL_ABSENT);
	}
	if (now > ask->answer_ns) {
		mono_ns limit = now - ask->answer_ns;

		fail_older(ask, ASK_ASKED, limit, ASK_FAIL_TIMEOUT);
		if (ask->active != ASK_POLICIES) {
			fail_older(ask, ASK_WAITING, limit, ASK_FAIL_TIMEOUT);
			fail_older(ask, ASK_SUSPECT, limit, ASK_FAIL_TIMEOUT);
		}
		/* Held ones end by policy at their deadline; this is for a policy that forgot. */
		for (uint32_t s = ask->list[ASK_HELD].head; s; s = next) {
			next = ask->entry[s].next;
			if (ask->slots->slot[s].hold_deadline_ns <= limit)
				ask->ops->fail(ask->arg, s, ASK_FAIL_TIMEOUT);
		}
	}
	for (uint32_t s = ask->list[ASK_ENDING].head; s; s = ask->entry[s].next)
		if (ask->entry[s].cancel_owed)
			cancel(ask, s, ask->entry[s].cancel_owed);
	pump(ask, false, now);
}
