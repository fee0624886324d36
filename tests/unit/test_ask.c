/* The ask, swap, cancel and death rules, without a socket: a small world of policy processes
 * answers in any order, dies at any moment and is swapped at any moment. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/ask.h"

#define SLOTS 24u
#define POLICIES 512u
#define QUEUE 4096u

struct question {
	enum msg_id id;
	uint32_t slot, slot_gen, ask;
};

struct policy { /* a simulated process */
	uint32_t gen, inc, number;
	bool alive, hears;
	struct question queue[QUEUE];
	unsigned head, tail;
	unsigned resents;
};

struct world {
	struct slots slots;
	struct column column;
	struct process_segment process;
	struct ask ask;
	struct policy *policy;
	unsigned n;
	bool busy[SLOTS + 1], charged[SLOTS + 1], sent[SLOTS + 1], over[SLOTS + 1];
	unsigned applied[SLOTS + 1]; /* of the current generation */
	unsigned failed[4], released, holes, acks;
	uint32_t last_active;
	mono_ns now;
	bool forget_sends;
};

static struct policy *
of(struct world *w, uint32_t inc)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->policy[i].inc == inc)
			return &w->policy[i];
	return NULL;
}

static int
op_send(void *arg, uint32_t gen, uint32_t inc, enum msg_id id, const void *msg)
{
	struct world *w = arg;
	struct policy *p = of(w, inc);
	const struct msg_ask *m = msg;

	if (!p || !p->hears)
		return -EHOSTUNREACH;
	cr_assert_eq(p->gen, gen);
	if (w->forget_sends)
		return -EAGAIN;
	if (id == MSG_resent) {
		p->resents++;
		return 0;
	}
	if (id == MSG_probe)
		return 0;
	cr_assert_lt(p->tail - p->head, QUEUE);
	p->queue[p->tail++ % QUEUE] = (struct question){id, m->slot, m->slot_gen, m->ask};
	return 0;
}

static void
op_tell(void *arg, enum msg_id id, const void *msg)
{
	struct world *w = arg;
	const struct msg_active *m = msg;

	if (id == MSG_active) {
		w->acks++;
		w->last_active = m->policy_inc;
	}
	if (id == MSG_hole)
		w->holes++;
}

static void
op_withdraw(void *arg, uint32_t slot)
{
	struct world *w = arg;

	cr_assert(w->charged[slot], "only a charged request is withdrawn");
	cr_assert(!w->sent[slot], "what was sent upstream is never asked again by a swap");
	w->charged[slot] = false;
}

static uint32_t
generation(struct world *w, uint32_t slot)
{
	return slot_generation(atomic_load(&w->slots.slot[slot].word));
}

static void
op_apply(void *arg, uint32_t slot, const struct msg_answer *a)
{
	struct world *w = arg;

	cr_assert(w->busy[slot] && !w->over[slot]);
	cr_assert(!w->charged[slot], "one charge at a time");
	cr_assert_eq(a->slot_gen, generation(w, slot));
	w->applied[slot]++;
	if (a->verdict == VERDICT_REJECT) {
		w->over[slot] = true;
		ask_end(&w->ask, slot, w->now);
	} else {
		w->charged[slot] = true;
	}
}

static void
op_fail(void *arg, uint32_t slot, enum ask_failure why)
{
	struct world *w = arg;

	cr_assert(w->busy[slot] && !w->over[slot]);
	w->failed[why]++;
	w->over[slot] = true;
	ask_end(&w->ask, slot, w->now);
}

/* Nobody alive may hold the question when its bytes are freed: it was ended, or a cancel precedes.
 */
static void
op_released(void *arg, uint32_t slot)
{
	struct world *w = arg;

	cr_assert(w->busy[slot] && w->over[slot]);
	for (unsigned i = 0; i < w->n; i++) {
		struct policy *p = &w->policy[i];

		if (!p->alive)
			continue;
		for (unsigned q = p->head; q != p->tail; q++) {
			const struct question *x = &p->queue[q % QUEUE];

			cr_assert(x->id != MSG_ask || x->slot != slot ||
					  x->slot_gen != generation(w, slot),
				  "bytes freed under a reader");
		}
	}
	w->busy[slot] = w->over[slot] = w->charged[slot] = w->sent[slot] = false;
	w->released++;
}

static const struct ask_ops ops = {op_send, op_tell, op_withdraw, op_apply, op_fail, op_released};

static void
setup(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->now = 1000000000000ull;
	w->policy = calloc(POLICIES, sizeof *w->policy);
	cr_assert_eq(slots_create(&w->slots, 0, 7, SLOTS), 0);
	cr_assert_eq(column_create(&w->column, 0, 7, 4), 0);
	cr_assert_eq(process_create(&w->process, ROLE_INGRESS, 0, 7, 1, 1 << 16), 0);
	cr_assert_eq(ask_open(&w->ask, &w->slots, &w->column, &w->process, &ops, w, w->now), 0);
}

static void
teardown(struct world *w)
{
	ask_close(&w->ask);
	process_detach(&w->process);
	column_detach(&w->column);
	slots_detach(&w->slots);
	free(w->policy);
}

static struct policy *
spawn(struct world *w, uint32_t gen)
{
	struct policy *p = &w->policy[w->n++];
	struct msg m = {.id = MSG_hello};

	cr_assert_lt(w->n, POLICIES);
	*p = (struct policy){.gen = gen, .inc = 100 + w->n, .alive = true, .hears = true};
	m.u.hello =
		(struct msg_hello){.abi = MESSAGES_ABI, .policy_gen = gen, .policy_inc = p->inc};
	ask_heard(&w->ask, gen, p->inc, &m, w->now);
	m = (struct msg){.id = MSG_probed};
	ask_heard(&w->ask, gen, p->inc, &m, w->now);
	return p;
}

static uint32_t
begin(struct world *w)
{
	for (uint32_t s = 1; s <= SLOTS; s++)
		if (!w->busy[s]) {
			static uint64_t next_id = 1;

			w->busy[s] = true;
			w->applied[s] = 0;
			w->slots.slot[s].request_id = next_id++;
			w->slots.slot[s].hold_deadline_ns = 0;
			atomic_store(&w->slots.slot[s].word,
				     slot_word(generation(w, s) + 1, 0, SLOT_READ, 0));
			ask_put(&w->ask, s, w->now);
			return s;
		}
	return 0;
}

static void
say(struct world *w, struct policy *p, const struct question *q, enum answer_verdict verdict)
{
	struct msg m = {.id = MSG_answer};

	m.u.answer = (struct msg_answer){.number = ++p->number,
					 .slot = q->slot,
					 .slot_gen = q->slot_gen,
					 .ask = q->ask,
					 .policy_gen = p->gen,
					 .policy_inc = p->inc,
					 .verdict = (uint8_t)verdict,
					 .hold_until = w->now + 1000000000ull};
	ask_heard(&w->ask, p->gen, p->inc, &m, w->now);
	cr_assert_eq(column_applied(&w->column, p->inc), p->number,
		     "the watermark follows every answer");
}

static void
say_cancelled(struct world *w, struct policy *p, const struct question *q)
{
	struct msg m = {.id = MSG_cancelled};

	m.u.cancelled =
		(struct msg_cancelled){.slot = q->slot, .slot_gen = q->slot_gen, .ask = q->ask};
	ask_heard(&w->ask, p->gen, p->inc, &m, w->now);
}

/* Takes the next message from its queue; a question is answered. */
static bool
serve(struct world *w, struct policy *p, enum answer_verdict verdict)
{
	struct question q;

	if (p->head == p->tail)
		return false;
	q = p->queue[p->head++ % QUEUE];
	if (q.id == MSG_cancel)
		say_cancelled(w, p, &q);
	else
		say(w, p, &q, verdict);
	return true;
}

static void
finish(struct world *w, uint32_t s)
{
	w->over[s] = true;
	w->charged[s] = false;
	ask_end(&w->ask, s, w->now);
}

static void
die(struct world *w, struct policy *p)
{
	p->alive = p->hears = false;
	p->head = p->tail;
	ask_gone(&w->ask, p->inc, GONE_UNSAID, w->now);
}

Test(ask, answer_is_applied_and_the_end_frees_the_slot)
{
	struct world w;
	struct policy *p;
	uint32_t s;

	setup(&w);
	p = spawn(&w, 1);
	ask_activate(&w.ask, 1, p->inc, w.now);
	s = begin(&w);
	cr_assert_eq(slot_state(atomic_load(&w.slots.slot[s].word)), SLOT_ASKED);
	cr_assert(serve(&w, p, VERDICT_CHOOSE));
	cr_assert(w.charged[s]);
	ask_sent(&w.ask, s);
	w.sent[s] = true;
	finish(&w, s);
	cr_assert_eq(w.released, 1);
	teardown(&w);
}

Test(ask, question_waits_until_there_is_a_policy_process)
{
	struct world w;
	struct policy *p;

	setup(&w);
	begin(&w);
	p = spawn(&w, 1);
	cr_assert_eq(p->tail, 0);
	ask_activate(&w.ask, 1, p->inc, w.now);
	cr_assert_eq(p->tail, 1);
	cr_assert_eq(p->resents, 1);
	teardown(&w);
}

Test(ask, without_a_policy_process_for_5_s_requests_fail)
{
	struct world w;

	setup(&w);
	begin(&w);
	ask_tick(&w.ask, w.now + ASK_ABSENT_NS - 1);
	cr_assert_eq(w.failed[ASK_FAIL_ABSENT], 0);
	ask_tick(&w.ask, w.now + ASK_ABSENT_NS);
	cr_assert_eq(w.failed[ASK_FAIL_ABSENT], 1);
	cr_assert_eq(w.released, 1);
	teardown(&w);
}

Test(ask, unanswered_question_times_out_and_its_bytes_stay_until_cancelled)
{
	struct world w;
	struct policy *p;

	setup(&w);
	p = spawn(&w, 1);
	ask_activate(&w.ask, 1, p->inc, w.now);
	begin(&w);
	w.now += w.ask.answer_ns;
	ask_tick(&w.ask, w.now);
	cr_assert_eq(w.failed[ASK_FAIL_TIMEOUT], 1);
	cr_assert_eq(w.released, 0, "the process may still read");
	cr_assert_eq(p->tail - p->head, 2);
	struct question q = p->queue[1];
	cr_assert_eq(q.id, MSG_cancel);
	p->head = p->tail;
	say_cancelled(&w, p, &q);
	cr_assert_eq(w.released, 1);
	teardown(&w);
}

Test(ask, answer_to_an_older_ask_is_discarded_and_moves_the_watermark)
{
	struct world w;
	struct policy *p, *q;
	uint32_t s;

	setup(&w);
	p = spawn(&w, 1);
	q = spawn(&w, 2);
	ask_activate(&w.ask, 1, p->inc, w.now);
	s = begin(&w);
	ask_activate(&w.ask, 2, q->inc, w.now);
	cr_assert_eq(w.last_active, q->inc);
	cr_assert_eq(q->tail, 1, "asked again");
	cr_assert(serve(&w, p, VERDICT_CHOOSE));
	cr_assert_eq(w.applied[s], 0);
	cr_assert(serve(&w, q, VERDICT_CHOOSE));
	cr_assert_eq(w.applied[s], 1);
	finish(&w, s);
	cr_assert_eq(w.released, 1, "both have ended");
	teardown(&w);
}

Test(ask, swap_withdraws_what_was_chosen_and_spares_what_was_sent)
{
	struct world w;
	struct policy *p, *q;
	uint32_t chosen, sent, held;

	setup(&w);
	p = spawn(&w, 1);
	q = spawn(&w, 2);
	ask_activate(&w.ask, 1, p->inc, w.now);
	sent = begin(&w);
	serve(&w, p, VERDICT_CHOOSE);
	ask_sent(&w.ask, sent);
	w.sent[sent] = true;
	chosen = begin(&w);
	serve(&w, p, VERDICT_CHOOSE);
	held = begin(&w);
	serve(&w, p, VERDICT_HOLD);
	cr_assert_eq(slot_state(atomic_load(&w.slots.slot[held].word)), SLOT_HELD);
	ask_activate(&w.ask, 2, q->inc, w.now);
	cr_assert_eq(q->tail, 2);
	cr_assert_eq(q->queue[0].slot, chosen, "oldest first");
	cr_assert_eq(q->queue[1].slot, held);
	cr_assert_eq(q->resents, 1);
	cr_assert_eq(p->queue[(p->tail - 1) % QUEUE].id, MSG_cancel,
		     "the held question is cancelled");
	teardown(&w);
}

Test(ask, death_moves_to_the_standby_of_the_same_generation_by_itself)
{
	struct world w;
	struct policy *p, *q;
	uint32_t s;

	setup(&w);
	p = spawn(&w, 1);
	q = spawn(&w, 1);
	ask_activate(&w.ask, 1, p->inc, w.now);
	ask_standby(&w.ask, 1, q->inc);
	s = begin(&w);
	die(&w, p);
	cr_assert_eq(w.last_active, q->inc);
	cr_assert_eq(q->tail, 1);
	cr_assert_eq(q->resents, 1);
	serve(&w, q, VERDICT_CHOOSE);
	cr_assert_eq(w.applied[s], 1);
	unsigned acks = w.acks;
	ask_activate(&w.ask, 1, q->inc, w.now);
	cr_assert_eq(w.acks, acks + 1,
		     "told what we did already: acknowledged, nothing asked again");
	cr_assert_eq(q->tail, 1);
	teardown(&w);
}

Test(ask, death_never_moves_to_a_standby_of_another_generation)
{
	struct world w;
	struct policy *p, *q;

	setup(&w);
	p = spawn(&w, 2);
	q = spawn(&w, 1);
	ask_activate(&w.ask, 2, p->inc, w.now);
	ask_standby(&w.ask, 1, q->inc);
	begin(&w);
	die(&w, p);
	cr_assert_eq(q->tail, 0);
	cr_assert_eq(w.last_active, 0);
	teardown(&w);
}

Test(ask, process_once_opened_is_never_opened_again)
{
	struct world w;
	struct policy *p, *q;

	setup(&w);
	p = spawn(&w, 1);
	q = spawn(&w, 2);
	ask_activate(&w.ask, 1, p->inc, w.now);
	ask_activate(&w.ask, 2, q->inc, w.now);
	ask_activate(&w.ask, 1, p->inc, w.now);
	begin(&w);
	cr_assert_eq(p->tail, 0);
	teardown(&w);
}

Test(ask, hole_in_the_numbers_is_told_and_nothing_more_is_believed)
{
	struct world w;
	struct policy *p;
	uint32_t s;
	struct question q;

	setup(&w);
	p = spawn(&w, 1);
	ask_activate(&w.ask, 1, p->inc, w.now);
	s = begin(&w);
	p->number++;
	q = p->queue[p->head++];
	struct msg m = {.id = MSG_answer};
	m.u.answer = (struct msg_answer){.number = 2,
					 .slot = q.slot,
					 .slot_gen = q.slot_gen,
					 .ask = q.ask,
					 .policy_gen = 1,
					 .policy_inc = p->inc,
					 .verdict = VERDICT_CHOOSE};
	ask_heard(&w.ask, 1, p->inc, &m, w.now);
	cr_assert_eq(w.holes, 1);
	cr_assert_eq(w.applied[s], 0);
	cr_assert_eq(column_applied(&w.column, p->inc), 0);
	m.u.answer.number = 1;
	ask_heard(&w.ask, 1, p->inc, &m, w.now);
	cr_assert_eq(w.applied[s], 0);
	teardown(&w);
}

/* Its pidfd tells of the death, the supervisor of the cause. */
static void
die_of(struct world *w, struct policy *p, enum gone_cause cause)
{
	die(w, p);
	ask_gone(&w->ask, p->inc, cause, w->now);
}

Test(ask, question_unanswered_in_two_crashes_is_refused)
{
	struct world w;
	struct policy *p[3];

	setup(&w);
	for (unsigned i = 0; i < 3; i++)
		p[i] = spawn(&w, 1);
	ask_activate(&w.ask, 1, p[0]->inc, w.now);
	ask_standby(&w.ask, 1, p[1]->inc);
	begin(&w);
	begin(&w);
	die_of(&w, p[0], GONE_CRASHED);
	cr_assert_eq(p[1]->tail, 1, "suspects are asked one at a time");
	die_of(&w, p[1], GONE_CRASHED);
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 1);
	ask_activate(&w.ask, 1, p[2]->inc, w.now);
	cr_assert_eq(p[2]->tail, 1);
	cr_assert(serve(&w, p[2], VERDICT_CHOOSE));
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 1, "the other one was innocent");
	teardown(&w);
}

Test(ask, two_crashes_that_the_supervisor_told_first_are_refused_as_well)
{
	struct world w;
	struct policy *p[2];

	setup(&w);
	for (unsigned i = 0; i < 2; i++)
		p[i] = spawn(&w, 1);
	ask_activate(&w.ask, 1, p[0]->inc, w.now);
	ask_standby(&w.ask, 1, p[1]->inc);
	begin(&w);
	for (unsigned i = 0; i < 2; i++) {
		p[i]->alive = p[i]->hears = false;
		ask_gone(&w.ask, p[i]->inc, GONE_CRASHED, w.now);
	}
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 1);
	teardown(&w);
}

Test(ask, two_kills_from_outside_refuse_nobody_and_a_third_does)
{
	struct world w;
	struct policy *p[4];

	setup(&w);
	for (unsigned i = 0; i < 4; i++)
		p[i] = spawn(&w, 1);
	begin(&w);
	for (unsigned i = 0; i < 2; i++) {
		ask_activate(&w.ask, 1, p[i]->inc, w.now);
		cr_assert_eq(p[i]->tail, 1);
		die_of(&w, p[i], GONE_KILLED);
	}
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 0);
	ask_activate(&w.ask, 1, p[2]->inc, w.now);
	cr_assert_eq(p[2]->tail, 1, "asked about once more, alone");
	die_of(&w, p[2], GONE_KILLED);
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 1, "as one that eats all memory would");
	teardown(&w);
}

Test(ask, after_a_second_death_its_cause_is_waited_for_but_not_for_ever)
{
	struct world w;
	struct policy *p[3];

	setup(&w);
	for (unsigned i = 0; i < 3; i++)
		p[i] = spawn(&w, 1);
	begin(&w);
	for (unsigned i = 0; i < 2; i++) {
		ask_activate(&w.ask, 1, p[i]->inc, w.now);
		cr_assert_eq(p[i]->tail, 1, "the first death costs no time");
		die(&w, p[i]);
	}
	ask_activate(&w.ask, 1, p[2]->inc, w.now);
	cr_assert_eq(p[2]->tail, 0);
	w.now += ASK_DOUBT_NS;          /* the supervisor is dead, too */
	ask_tick(&w.ask, w.now);
	cr_assert_eq(p[2]->tail, 1);
	ask_gone(&w.ask, p[0]->inc, GONE_CRASHED, w.now);
	ask_gone(&w.ask, p[1]->inc, GONE_CRASHED, w.now);
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 1, "late words count as well");
	teardown(&w);
}

Test(ask, who_was_answered_since_is_not_refused_for_what_is_told_late)
{
	struct world w;
	struct policy *p[3];

	setup(&w);
	for (unsigned i = 0; i < 3; i++)
		p[i] = spawn(&w, 1);
	begin(&w);
	for (unsigned i = 0; i < 2; i++) {
		ask_activate(&w.ask, 1, p[i]->inc, w.now);
		die(&w, p[i]);
	}
	ask_activate(&w.ask, 1, p[2]->inc, w.now);
	w.now += ASK_DOUBT_NS;
	ask_tick(&w.ask, w.now);
	cr_assert(serve(&w, p[2], VERDICT_CHOOSE));
	ask_gone(&w.ask, p[0]->inc, GONE_CRASHED, w.now);
	ask_gone(&w.ask, p[1]->inc, GONE_CRASHED, w.now);
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 0);
	teardown(&w);
}

Test(ask, process_that_ended_as_asked_makes_nobody_suspect)
{
	struct world w;
	struct policy *p[3];
	uint32_t s;

	setup(&w);
	for (unsigned i = 0; i < 3; i++)
		p[i] = spawn(&w, 1);
	s = begin(&w);
	for (unsigned i = 0; i < 3; i++) {
		ask_activate(&w.ask, 1, p[i]->inc, w.now);
		cr_assert_eq(p[i]->tail, 1);
		die_of(&w, p[i], GONE_ENDED);
		cr_assert_eq(slot_deaths(atomic_load(&w.slots.slot[s].word)), 0);
	}
	cr_assert_eq(w.failed[ASK_FAIL_CRASH], 0);
	teardown(&w);
}

Test(ask, full_queue_is_tried_again_and_resent_stays_last)
{
	struct world w;
	struct policy *p;

	setup(&w);
	p = spawn(&w, 1);
	begin(&w);
	w.forget_sends = true;
	ask_activate(&w.ask, 1, p->inc, w.now);
	cr_assert_eq(p->tail, 0);
	cr_assert_eq(p->resents, 0);
	w.forget_sends = false;
	ask_tick(&w.ask, w.now);
	cr_assert_eq(p->tail, 1);
	cr_assert_eq(p->resents, 1);
	teardown(&w);
}

Test(ask, messages_about_slots_that_do_not_exist_change_nothing)
{
	struct world w;
	struct policy *p;
	struct question q = {MSG_ask, 4000000, 1, 1};

	setup(&w);
	p = spawn(&w, 1);
	ask_activate(&w.ask, 1, p->inc, w.now);
	say(&w, p, &q, VERDICT_CHOOSE);
	q.slot = 0;
	say(&w, p, &q, VERDICT_CHOOSE);
	say_cancelled(&w, p, &q);
	cr_assert_eq(w.released, 0);
	teardown(&w);
}

/* Fields a healthy process would never send: nothing but its own question may be touched. */
Test(ask, nonsense_in_answers_breaks_no_rule)
{
	for (unsigned seed = 1; seed <= 50; seed++) {
		struct world w;
		struct policy *p;

		srand(seed);
		setup(&w);
		p = spawn(&w, 1);
		ask_activate(&w.ask, 1, p->inc, w.now);
		for (unsigned step = 0; step < 2000; step++) {
			struct question q = {MSG_ask, (uint32_t)rand() % (SLOTS + 4),
					     (uint32_t)rand() % 4, (uint32_t)rand() % 3};
			uint32_t s = 1 + (uint32_t)rand() % SLOTS;

			begin(&w);
			/* It lies about its ends: op_released is not to believe its queue. */
			p->head = p->tail;
			if (rand() % 3 == 0)
				say_cancelled(&w, p, &q);
			else
				say(&w, p, &q, (enum answer_verdict)(rand() % 6));
			if (w.busy[s] && !w.over[s] && rand() % 2)
				finish(&w, s);
		}
		die(&w, p);
		for (uint32_t s = 1; s <= SLOTS; s++)
			if (w.busy[s] && !w.over[s])
				finish(&w, s);
		for (uint32_t s = 1; s <= SLOTS; s++)
			cr_assert(!w.busy[s]);
		teardown(&w);
	}
}

/* Every order: swaps, deaths, holds, clients that leave, full queues.  In the end every request has
 * had one end and every slot is free. */
Test(ask, random_schedules_lose_nothing_and_free_everything, .timeout = 120)
{
	for (unsigned seed = 1; seed <= 150; seed++) {
		struct world w;
		struct policy *active, *standby;
		uint32_t gen = 1;

		srand(seed);
		setup(&w);
		w.ask.questions_max = 1 + (uint32_t)rand() % 32;
		active = spawn(&w, gen);
		standby = spawn(&w, gen);
		ask_activate(&w.ask, gen, active->inc, w.now);
		ask_standby(&w.ask, gen, standby->inc);
		for (unsigned step = 0; step < 3000; step++) {
			uint32_t s = 1 + (uint32_t)rand() % SLOTS;
			struct policy *any =
				&w.policy[w.n - 1 - (unsigned)rand() % (w.n < 4 ? w.n : 4)];

			w.now += 1000000;
			w.forget_sends = rand() % 40 == 0;
			switch (rand() % 12) {
			case 0:
			case 1:
			case 2:
				begin(&w);
				break;
			case 3:
			case 4:
			case 5:
				if (any->alive)
					serve(&w, any,
					      rand() % 8 == 0 ? VERDICT_REJECT : VERDICT_CHOOSE);
				break;
			case 6: /* held, and decided later */
				if (any->alive && any->head != any->tail &&
				    any->queue[any->head % QUEUE].id == MSG_ask) {
					struct question q = any->queue[any->head % QUEUE];

					say(&w, any, &q, VERDICT_HOLD);
				}
				break;
			case 7:
				if (w.busy[s] && !w.over[s] && w.charged[s] && !w.sent[s]) {
					ask_sent(&w.ask, s);
					w.sent[s] = true;
				}
				break;
			case 8:
				if (w.busy[s] && !w.over[s] && w.sent[s])
					finish(&w, s);
				break;
			case 9: /* client gone, in any state */
				if (w.busy[s] && !w.over[s])
					finish(&w, s);
				break;
			case 10:
				if (rand() % 10 == 0 && w.n < POLICIES - 8) {
					struct policy *old = active, *old_standby = standby;

					gen++;
					active = spawn(&w, gen);
					standby = spawn(&w, gen);
					ask_activate(&w.ask, gen, active->inc, w.now);
					ask_standby(&w.ask, gen, standby->inc);
					/* g reads what is left, then exits. */
					while (old->alive && serve(&w, old, VERDICT_CHOOSE))
						;
					die(&w, old);
					die(&w, old_standby);
				}
				break;
			case 11:
				if (rand() % 10 == 0 && w.n < POLICIES - 8) {
					die_of(&w, active, (enum gone_cause)(rand() % 4));
					active = standby;
					standby = spawn(&w, gen);
					ask_standby(&w.ask, gen, standby->inc);
				}
				break;
			}
			if (step % 50 == 0)
				ask_tick(&w.ask, w.now);
		}
		w.forget_sends = false;
		for (unsigned round = 0; round < 200; round++) {
			w.now += ASK_DOUBT_NS / 100;    /* some causes are never told */
			ask_tick(&w.ask, w.now);
			for (unsigned i = 0; i < w.n; i++)
				while (w.policy[i].alive && serve(&w, &w.policy[i], VERDICT_CHOOSE))
					;
			for (uint32_t s = 1; s <= SLOTS; s++)
				if (w.busy[s] && !w.over[s] && w.charged[s])
					finish(&w, s);
		}
		for (uint32_t s = 1; s <= SLOTS; s++)
			cr_assert(!w.busy[s], "seed %u: slot %u is still %u", seed, s,
				  w.ask.entry[s].state);
		cr_assert_eq(w.failed[ASK_FAIL_TIMEOUT], 0);
		cr_assert_eq(w.failed[ASK_FAIL_ABSENT], 0);
		teardown(&w);
	}
}
