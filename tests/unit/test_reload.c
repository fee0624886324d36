/* tests/unit/test_reload.c -- the switch of generations under random orders of events.
 *
 * A small world runs around the machine: ingresses that read their messages late, move to a standby
 * by themselves and die; policy processes that load, die and are told to go.  After each action the
 * world's own truth, not the machine's idea of it, is held against the rules of reload.h.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/supervisor/reload.h"

#define MS 1000000ull
#define PROCS 400
#define INS 64
#define QUEUE 64

struct proc {                   /* a policy process, by incarnation */
	uint32_t gen;
	bool alive, ready, opened, drained, gone_told, ready_told;
};

struct note { enum reload_action_type type; uint32_t policy; };         /* to an ingress */

struct in {
	uint32_t inc;
	bool alive, ready, gone_told;
	uint32_t asking, standby;
	bool reached[PROCS], knows_dead[PROCS], closed[PROCS];
	struct note inbox[QUEUE];
	unsigned n_in;
	struct reload_event outbox[QUEUE];
	unsigned n_out;
};

struct world {
	struct reload m;
	mono_ns now;
	uint64_t seed;
	struct proc proc[PROCS];
	struct in in[INS];
	unsigned n_in;
	unsigned ins_wanted;
	uint32_t generation, serving, last_opened;
	unsigned standby;
	bool load_next, fail_next, load_owed;
	bool may_roll_back;     /* a generation was switched to and has not settled */
	unsigned loads, served, refused, rolled_back, opens, kills_in, killed_policies;
};

static uint32_t
rnd(struct world *w, uint32_t n)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return (uint32_t)(w->seed >> 11) % n;
}

static struct in *
in_of(struct world *w, uint32_t inc)
{
	for (unsigned i = 0; i < w->n_in; i++)
		if (w->in[i].inc == inc)
			return &w->in[i];
	cr_assert_fail("an action names ingress %u, which never was", inc);
	return NULL;
}

static void say(struct world *w, struct reload_event e);

/* Rule 1, by the truth: nobody may still ask, or apply answers of, another process. */
static void
check_all_ask(struct world *w, uint32_t policy)
{
	if (!w->proc[policy].alive)
		return;         /* died meanwhile; its word is moot */
	for (unsigned i = 0; i < w->n_in; i++) {
		struct in *in = &w->in[i];

		if (in->alive && in->ready)
			cr_assert(in->asking == policy || in->asking == 0,
				  "opened %u while ingress %u asks %u", policy, in->inc,
				  in->asking);
	}
}

static void
perform(struct world *w, const struct reload_action *a)
{
	struct proc *p = &w->proc[a->policy];
	struct in *in;

	cr_assert_lt(a->policy, PROCS);
	switch (a->type) {
	case RELOAD_DO_LOAD:
		w->load_next = true;
		w->load_owed = false;
		w->loads++;
		break;
	case RELOAD_DO_SPAWN:
		*p = (struct proc){.gen = a->generation, .alive = true};
		break;
	case RELOAD_DO_ACTIVATE:
		cr_assert(!p->opened || a->policy == w->last_opened,
			  "activated %u, which was opened before %u", a->policy, w->last_opened);
		cr_assert(!p->drained);
		/* fall through */
	case RELOAD_DO_STANDBY:
		in = in_of(w, a->ingress);
		if (a->type == RELOAD_DO_STANDBY && a->policy)
			cr_assert(!p->opened, "an opened process as standby");
		cr_assert_lt(in->n_in, QUEUE);
		in->inbox[in->n_in++] = (struct note){a->type, a->policy};
		break;
	case RELOAD_DO_OPEN:
		cr_assert(!p->opened, "opened twice");
		check_all_ask(w, a->policy);
		p->opened = true;
		w->last_opened = a->policy;
		w->opens++;
		break;
	case RELOAD_DO_DRAIN:
		cr_assert(!p->drained, "drained twice");
		cr_assert_neq(a->policy, w->m.want, "the asked process was drained");
		p->drained = true;
		break;
	case RELOAD_DO_KILL_POLICY:
		p->alive = false;
		break;
	case RELOAD_DO_KILL_INGRESS:
		in_of(w, a->ingress)->alive = false;
		w->kills_in++;
		break;
	case RELOAD_DO_SERVING:
		cr_assert_gt(a->generation, w->serving);
		cr_assert_eq(a->old, w->serving, "%u in force instead of %u, not of %u",
			     a->generation, w->serving, a->old);
		check_all_ask(w, w->m.want);
		w->may_roll_back = w->serving != 0;
		w->serving = a->generation;
		w->served++;
		break;
	case RELOAD_DO_REFUSE:
		w->refused++;
		break;
	case RELOAD_DO_ROLLED_BACK:
		w->serving = a->generation;
		w->may_roll_back = false;
		w->rolled_back++;
		break;
	case RELOAD_DO_SETTLED:
		w->may_roll_back = false;
		break;
	}
}

static void
say(struct world *w, struct reload_event e)
{
	struct reload_actions actions;
	uint32_t before = w->m.serving;
	enum reload_state state = w->m.state;

	reload_step(&w->m, w->now, &e, &actions);
	cr_assert_lt(actions.n, RELOAD_ACTIONS);
	for (unsigned i = 0; i < actions.n; i++) {
		if (actions.list[i].type == RELOAD_DO_ROLLED_BACK)
			cr_assert(state == RELOAD_SWITCHING && actions.list[i].generation <= before,
				  "rolled back out of probation");
		perform(w, &actions.list[i]);
	}
	if (!w->m.rolling_back)
		return;
	cr_assert(w->may_roll_back || state == RELOAD_SWITCHING, "rollback outside of probation");
}

static void
load_answer(struct world *w)
{
	w->load_next = false;
	if (w->fail_next) {
		w->fail_next = false;
		say(w, (struct reload_event){.type = RELOAD_NOT_LOADED});
		return;
	}
	say(w, (struct reload_event){.type = RELOAD_LOADED, .generation = ++w->generation,
		.settings = {.standby = w->standby, .load_deadline_ns = 30000 * MS,
			     .probation_ns = 10000 * MS}});
}

static void
in_says(struct in *in, enum reload_event_type type, uint32_t policy)
{
	if (in->n_out < QUEUE)
		in->outbox[in->n_out++] = (struct reload_event){.type = type, .ingress = in->inc,
								.policy = policy};
}

static void
in_death(struct world *w, struct in *in, uint32_t policy)
{
	if (in->knows_dead[policy])
		return;
	in->knows_dead[policy] = true;
	if (in->asking != policy)
		return;
	in->asking = in->standby && !in->knows_dead[in->standby] && in->reached[in->standby] &&
		     w->proc[in->standby].gen == w->proc[policy].gen ? in->standby : 0;
	in->standby = 0;
	in_says(in, RELOAD_ACTIVE, in->asking);
}

/* One message of the supervisor, or one pidfd. */
static void
in_hear(struct world *w, struct in *in)
{
	struct note n;

	if (in->n_in == 0) {
		for (uint32_t p = 1; p < PROCS; p++)
			if (w->proc[p].gen && !w->proc[p].alive && !in->knows_dead[p]) {
				in_death(w, in, p);
				return;
			}
		return;
	}
	n = in->inbox[0];
	memmove(in->inbox, in->inbox + 1, --in->n_in * sizeof n);
	if (n.type == RELOAD_DO_STANDBY) {
		in->standby = n.policy;
	} else {
		/* Rule 2: what it discarded of a closed stream cannot be had again. */
		cr_assert(!in->closed[n.policy],
			  "ingress %u activated with %u, whose stream it closed", in->inc,
			  n.policy);
		if (in->asking != n.policy)
			in->closed[in->asking] = in->asking != 0;
		in->asking = in->knows_dead[n.policy] ? 0 : n.policy;
		in_says(in, RELOAD_ACTIVE, n.policy);
	}
}

static void
in_speak(struct world *w, struct in *in)
{
	struct reload_event e;

	if (in->n_out == 0)
		return;
	e = in->outbox[0];
	memmove(in->outbox, in->outbox + 1, --in->n_out * sizeof e);
	say(w, e);
}

static void
in_probe(struct world *w, struct in *in)
{
	for (uint32_t p = 1; p < PROCS; p++)
		if (w->proc[p].alive && w->proc[p].ready && !in->reached[p]) {
			in->reached[p] = true;
			in_says(in, RELOAD_REACHABLE, p);
			return;
		}
}

static void
in_birth(struct world *w)
{
	unsigned alive = 0;

	for (unsigned i = 0; i < w->n_in; i++)
		alive += w->in[i].alive;
	if (alive >= w->ins_wanted || w->n_in == INS)
		return;
	w->in[w->n_in++] = (struct in){.inc = reload_incarnation(&w->m), .alive = true};
}

/* What the supervisor finds out about one process: ready or dead. */
static void
policy_tell(struct world *w, uint32_t p)
{
	struct proc *proc = &w->proc[p];

	if (!proc->gen || proc->gone_told)
		return;
	if (!proc->alive) {
		proc->gone_told = true;
		say(w, (struct reload_event){.type = RELOAD_POLICY_GONE, .policy = p});
	} else if (proc->ready && !proc->ready_told) {
		proc->ready_told = true;
		say(w, (struct reload_event){.type = RELOAD_POLICY_READY, .policy = p});
	}
}

static void
step(struct world *w, bool calm)
{
	struct in *in = w->n_in ? &w->in[rnd(w, w->n_in)] : NULL;
	uint32_t p = 1 + rnd(w, w->m.last_incarnation ? w->m.last_incarnation : 1);
	struct proc *proc;

	cr_assert_lt(w->m.last_incarnation, PROCS - 4);
	proc = &w->proc[p];
	if (w->load_next) {
		load_answer(w);
		return;
	}
	switch (rnd(w, calm ? 8 : 11)) {
	case 0:
		w->now += (1 + rnd(w, calm ? 50 : 400)) * MS;
		say(w, (struct reload_event){.type = RELOAD_TICK});
		break;
	case 1:
		if (in && in->alive)
			in_hear(w, in);
		break;
	case 2:
		if (in && in->alive)
			in_speak(w, in);
		break;
	case 3:
		if (in && in->alive && in->ready)
			in_probe(w, in);
		break;
	case 4:
		if (in && in->alive && !in->ready) {
			in->ready = true;
			say(w, (struct reload_event){.type = RELOAD_INGRESS_READY,
						     .ingress = in->inc});
		} else if (in && !in->alive && !in->gone_told) {
			in->gone_told = true;
			say(w,
			    (struct reload_event){.type = RELOAD_INGRESS_GONE, .ingress = in->inc});
		}
		break;
	case 5:
		if (proc->alive)
			proc->ready = true;
		policy_tell(w, p);
		break;
	case 6:
		if (proc->drained)
			proc->alive = false;
		policy_tell(w, p);
		break;
	case 7:
		in_birth(w);
		break;
	case 8:                                 /* violence */
		if (rnd(w, 12) == 0 && proc->alive) {
			proc->alive = false;
			w->killed_policies++;
		}
		break;
	case 9:
		if (in && rnd(w, 40) == 0)
			in->alive = false;
		break;
	case 10:
		if (rnd(w, 15) == 0) {
			w->fail_next = rnd(w, 4) == 0;
			w->load_owed = true;
			say(w, (struct reload_event){.type = RELOAD_WANTED});
		}
		break;
	}
}

static void
start(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	w->seed = seed * 0x9e3779b97f4a7c15ull + 1;
	w->now = 1000 * MS;
	w->ins_wanted = 1 + rnd(w, 3);
	w->standby = rnd(w, 4) ? 1 : 0;
	reload_init(&w->m);
	say(w, (struct reload_event){.type = RELOAD_WANTED});
}

/* Everything delivered, nobody dies: where does it end? */
static void
settle(struct world *w)
{
	unsigned alive = 0;

	for (unsigned i = 0; i < 20000; i++)
		step(w, true);
	cr_assert_eq(w->m.state, RELOAD_IDLE, "state %s", reload_state_name(w->m.state));
	cr_assert(!w->load_owed && !w->m.pending, "a reload was forgotten");
	cr_assert(w->m.settled);
	cr_assert_neq(w->m.want, 0);
	cr_assert(w->proc[w->m.want].alive && w->proc[w->m.want].opened);
	cr_assert_eq(w->proc[w->m.want].gen, w->serving);
	cr_assert_eq(w->m.serving, w->serving);
	for (unsigned i = 0; i < w->n_in; i++)
		if (w->in[i].alive)
			cr_assert_eq(w->in[i].asking, w->m.want, "ingress %u asks %u, not %u",
				     w->in[i].inc, w->in[i].asking, w->m.want);
	for (uint32_t p = 1; p < PROCS; p++)
		alive += w->proc[p].alive;
	cr_assert_eq(alive, 1 + w->standby, "%u policy processes, not %u", alive, 1 + w->standby);
}

Test(reload, every_order_of_events_keeps_the_rules_and_ends_settled)
{
	static struct world w;
	unsigned served = 0, rolled_back = 0, refused = 0, kills_in = 0, opens = 0, killed = 0;

	for (uint64_t seed = 1; seed <= 1500; seed++) {
		start(&w, seed);
		for (unsigned i = 0;
		     i < 1500 && w.m.last_incarnation < PROCS / 2 && w.n_in < INS / 2; i++)
			step(&w, false);
		settle(&w);
		served += w.served;
		rolled_back += w.rolled_back;
		refused += w.refused;
		kills_in += w.kills_in;
		opens += w.opens;
		killed += w.killed_policies;
	}
	/* The world did what it was made for. */
	cr_log_info("served %u rolled back %u refused %u hung ingresses %u opened %u killed %u",
		    served, rolled_back, refused, kills_in, opens, killed);
	cr_assert_gt(served, 3000);
	cr_assert_gt(rolled_back, 20);
	cr_assert_gt(refused, 20);
	cr_assert_gt(killed, 3000);
}

/* ---- single sentences, one ingress, messages at once ---- */

static void
calm_until(struct world *w, enum reload_state state)
{
	for (unsigned i = 0; i < 20000 && !(w->m.state == state && w->m.settled && !w->load_next);
	     i++)
		step(w, true);
	cr_assert_eq(w->m.state, state);
}

static void
up(struct world *w, unsigned standby)
{
	start(w, 7);
	w->ins_wanted = 1;
	w->standby = standby;
	calm_until(w, RELOAD_IDLE);
	for (unsigned i = 0; i < 3000; i++)
		step(w, true);
}

static void
die(struct world *w, uint32_t policy)
{
	w->proc[policy].alive = false;
	policy_tell(w, policy);
}

Test(reload, first_generation_serves_after_the_ingress_acknowledged)
{
	static struct world w;

	up(&w, 1);
	cr_assert_eq(w.serving, 1);
	cr_assert_eq(w.opens, 1);
	cr_assert_neq(reload_standby(&w.m), 0);
}

Test(reload, killed_active_process_is_replaced_by_the_standby)
{
	static struct world w;
	uint32_t standby;

	up(&w, 1);
	standby = reload_standby(&w.m);
	die(&w, w.m.want);
	cr_assert_eq(w.m.want, standby);
	cr_assert(!w.proc[standby].opened, "OPEN before the ingress acknowledged");
	calm_until(&w, RELOAD_IDLE);
	cr_assert(w.proc[standby].opened);
	cr_assert_eq(w.serving, 1);
	settle(&w);
}

Test(reload, acknowledgement_before_the_death_is_known_moves_the_same_way)
{
	static struct world w;
	uint32_t active, standby;

	up(&w, 1);
	active = w.m.want;
	standby = reload_standby(&w.m);
	w.proc[active].alive = false;
	for (unsigned i = 0; i < w.n_in; i++)
		if (w.in[i].alive) {
			in_death(&w, &w.in[i], active);
			in_speak(&w, &w.in[i]);
		}
	cr_assert(!w.proc[standby].opened);
	policy_tell(&w, active);
	cr_assert_eq(w.m.want, standby);
	cr_assert(w.proc[standby].opened);
	settle(&w);
}

Test(reload, second_death_in_probation_rolls_back_to_the_unasked_standby)
{
	static struct world w;
	uint32_t old_standby;

	up(&w, 1);
	old_standby = reload_standby(&w.m);
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	calm_until(&w, RELOAD_PROBATION);
	cr_assert_eq(w.serving, 2);
	die(&w, w.m.want);
	for (unsigned i = 0; i < 20000 && !w.m.settled; i++)
		step(&w, true);
	cr_assert_eq(w.m.generation, 2, "one death moves to the standby");
	cr_assert_eq(w.m.state, RELOAD_PROBATION);
	die(&w, w.m.want);
	cr_assert(w.m.rolling_back);
	cr_assert_eq(w.m.want, old_standby);
	settle(&w);
	cr_assert_eq(w.serving, 1);
	cr_assert_eq(w.rolled_back, 1);
}

Test(reload, death_after_probation_never_rolls_back)
{
	static struct world w;

	up(&w, 1);
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	calm_until(&w, RELOAD_PROBATION);
	calm_until(&w, RELOAD_IDLE);
	for (unsigned i = 0; i < 4; i++) {
		die(&w, w.m.want);
		settle(&w);
	}
	cr_assert_eq(w.rolled_back, 0);
	cr_assert_eq(w.serving, 2);
}

Test(reload, reload_wanted_twice_while_loading_runs_once_more)
{
	static struct world w;

	up(&w, 1);
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	settle(&w);
	cr_assert_eq(w.loads, 3, "%u loads: the first start and two rounds", w.loads);
	cr_assert_eq(w.serving, 3);
}

Test(reload, generation_that_refuses_leaves_the_old_one)
{
	static struct world w;
	uint32_t active;

	up(&w, 1);
	active = w.m.want;
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	load_answer(&w);
	say(&w,
	    (struct reload_event){.type = RELOAD_POLICY_FAILED, .policy = w.m.last_incarnation});
	cr_assert_eq(w.refused, 1);
	settle(&w);
	cr_assert_eq(w.serving, 1);
	cr_assert_eq(w.m.want, active);
}

Test(reload, a_stop_ends_what_loads_and_what_waits)
{
	static struct world w;
	uint32_t active;

	up(&w, 1);
	active = w.m.want;
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	load_answer(&w);
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	say(&w, (struct reload_event){.type = RELOAD_STOP});
	cr_assert_eq(w.refused, 1);
	settle(&w);
	cr_assert_eq(w.loads, 2, "the second wish was not served");
	cr_assert_eq(w.serving, 1);
	cr_assert_eq(w.m.want, active);
}

Test(reload, a_stop_does_not_end_a_switch_that_has_begun)
{
	static struct world w;

	up(&w, 1);
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	for (unsigned i = 0; i < 20000 && w.m.state != RELOAD_SWITCHING; i++)
		step(&w, true);
	cr_assert_eq(w.m.state, RELOAD_SWITCHING);
	say(&w, (struct reload_event){.type = RELOAD_STOP});
	cr_assert_eq(w.refused, 0);
	settle(&w);
	cr_assert_eq(w.serving, 2);
}

Test(reload, ingress_that_never_acknowledges_is_killed_before_the_others_wait_long)
{
	static struct world w;
	mono_ns began;

	up(&w, 1);
	w.ins_wanted = 2;
	for (unsigned i = 0; i < 3000; i++)
		step(&w, true);
	cr_assert_eq(w.n_in, 2);
	say(&w, (struct reload_event){.type = RELOAD_WANTED});
	for (unsigned i = 0; i < 20000 && w.m.state != RELOAD_SWITCHING; i++)
		step(&w, true);
	cr_assert_eq(w.m.state, RELOAD_SWITCHING);
	began = w.now;
	/* Only the second one hears. */
	while (w.kills_in == 0 && w.now < began + 5000 * MS) {
		in_hear(&w, &w.in[1]);
		in_speak(&w, &w.in[1]);
		w.now += 50 * MS;
		say(&w, (struct reload_event){.type = RELOAD_TICK});
	}
	cr_assert_eq(w.kills_in, 1);
	cr_assert_leq(w.now - began, 2200 * MS);
	cr_assert_eq(w.served, 1, "in force although a hung ingress may still apply");
	say(&w, (struct reload_event){.type = RELOAD_INGRESS_GONE, .ingress = w.in[0].inc});
	w.in[0].gone_told = true;
	cr_assert_eq(w.served, 2);
	settle(&w);
}

Test(reload, hole_kills_that_process)
{
	static struct world w;
	uint32_t active;

	up(&w, 1);
	active = w.m.want;
	say(&w, (struct reload_event){.type = RELOAD_HOLE, .policy = active});
	cr_assert(!w.proc[active].alive);
	settle(&w);
	cr_assert_neq(w.m.want, active);
}

Test(reload, whoever_came_after_the_switch_asks_nobody_until_it_says_so)
{
	static struct world w;
	struct in *in[2];
	uint32_t policy;

	start(&w, 1);
	w.ins_wanted = 2;
	load_answer(&w);
	policy = w.m.policy[0].incarnation;
	for (unsigned i = 0; i < 2; i++) {
		in_birth(&w);
		in[i] = &w.in[i];
	}
	w.proc[policy].ready = true;
	policy_tell(&w, policy);
	for (unsigned i = 0; i < 2; i++) {
		in[i]->ready = true;
		say(&w, (struct reload_event){.type = RELOAD_INGRESS_READY, .ingress = in[i]->inc});
		cr_assert(!reload_all_ask(&w.m), "ready, and nobody to ask");
		say(&w, (struct reload_event){.type = RELOAD_REACHABLE, .ingress = in[i]->inc,
					      .policy = policy});
		say(&w, (struct reload_event){.type = RELOAD_ACTIVE, .ingress = in[i]->inc,
					      .policy = policy});
		cr_assert(reload_all_ask(&w.m));
		cr_assert_gt(w.m.serving, 0);
	}
}
