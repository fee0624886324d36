/* tests/race/ledger_world.c -- the supervisor of the small world, and who runs when; see
 * ledger_world.h. */
#include "tests/race/ledger_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORES_AVG  20u                 /* stores between two interruptions of an ingress */
#define LOADS_AVG   70u                 /* loads between two of a policy process */

struct world world;
static struct ingress *running;         /* whose code runs now; NULL: nobody's */
static struct policy *thinking;

static void act(void);

/* ---- queues ---- */

void
put(struct queue *q, const struct note *n)
{
	if (q->tail - q->head == QUEUE) {
		fprintf(stderr, "race_ledger: a queue is too short\n");
		abort();
	}
	q->note[q->tail++ % QUEUE] = *n;
}

bool
take(struct queue *q, struct note *ret)
{
	if (q->head == q->tail)
		return false;
	*ret = q->note[q->head++ % QUEUE];
	return true;
}

uint32_t
policy_by_inc(uint32_t inc)
{
	for (uint32_t p = 0; p < world.n_policies; p++)
		if (world.policy[p].inc == inc)
			return p;
	return NOBODY;
}

/* ---- turns ---- */

/* Runs it, unless it is interrupted; true: it was run.  It may be killed on the way. */
static bool
run(struct ingress *me, void (*turn)(struct ingress *, uint32_t), uint32_t arg)
{
	struct ingress *outer = running;
	struct policy *thinker = thinking;
	unsigned depth = world.depth;

	if (!me->alive || me->busy)
		return false;
	me->busy = true;
	running = me;
	thinking = NULL;
	if (_setjmp(me->dead) == 0)
		turn(me, arg);
	running = outer;
	thinking = thinker;
	world.depth = depth;
	me->busy = false;
	return true;
}

static bool
think(struct policy *p, void (*turn)(struct policy *, uint32_t), uint32_t arg)
{
	struct ingress *outer = running;
	struct policy *thinker = thinking;
	unsigned depth = world.depth;

	if (!p->alive || p->busy)
		return false;
	p->busy = true;
	running = NULL;
	thinking = p;
	if (_setjmp(p->dead) == 0)
		turn(p, arg);
	else
		policy_die(p);
	running = outer;
	thinking = thinker;
	world.depth = depth;
	p->busy = false;
	return true;
}

/* ---- points: somebody else runs now, or this is the last store of a life ---- */

static void
others(unsigned n)
{
	struct ingress *ingress = running;
	struct policy *policy = thinking;

	running = NULL;
	thinking = NULL;
	world.depth++;
	while (n-- > 0)
		act();
	world.depth--;
	running = ingress;
	thinking = policy;
}

void
points_store(void)
{
	if (--world.stores || world.settling)
		return;
	world.stores = 1 + draw(2 * STORES_AVG);
	if (running && !running->unkillable && draw(24) == 0) {
		struct ingress *me = running;

		world.count.crash_points++;
		ingress_die(me);
		_longjmp(me->dead, 1);
	}
	if (world.depth >= 2)
		return;
	world.count.nested_store++;
	others(1 + draw(3));
}

void
points_load(void)
{
	if (--world.loads || world.settling)
		return;
	world.loads = 1 + draw(2 * LOADS_AVG);
	if (thinking && draw(60) == 0) {
		world.count.crash_points++;
		_longjmp(thinking->dead, 1);
	}
	if (world.depth >= 2)
		return;
	world.count.nested_load++;
	others(1 + draw(5));
}

/* ---- the supervisor ---- */

static void
tell_ingresses(uint8_t id, uint32_t p)
{
	struct note n = {.id = id};

	if (p != NOBODY) {
		n.gen = world.policy[p].gen;
		n.ask = world.policy[p].inc;
	}
	if (id == MSG_gone)
		n.verdict = (uint8_t)(world.policy[p].drained ? GONE_ENDED :
				      draw(2) ? GONE_CRASHED : GONE_KILLED);
	for (uint32_t i = 0; i < world.n_ingress; i++)
		if (world.ingress[i].alive)
			put(&world.ingress[i].control, &n);
}

static void
tell_policies(uint8_t id, uint32_t in)
{
	struct note n = {.id = id, .ask = in};

	for (uint32_t p = 0; p < world.n_policies; p++)
		if (world.policy[p].alive)
			put(&world.policy[p].control, &n);
}

static uint32_t
policy_born(uint32_t gen)
{
	struct policy *p = &world.policy[world.n_policies];
	struct note n = {.id = MSG_segment};

	if (world.n_policies == POLICIES)
		return NOBODY;
	p->used = p->alive = true;
	p->gen = gen;
	p->inc = ++world.next_inc;
	p->view.policy_inc = p->inc;
	for (uint32_t i = 0; i < world.n_ingress; i++)
		if (!world.ingress[i].gone_said) {
			n.ask = i;
			put(&p->control, &n);
		}
	tell_ingresses(MSG_peer, world.n_policies);
	return world.n_policies++;
}

static void
want(uint32_t p)
{
	world.want = p;
	world.open_said = false;
	if (p == NOBODY)
		return;
	world.gen = world.policy[p].gen;
	world.policy[p].asked = true;
	tell_ingresses(MSG_activate, p);
}

static void
standby(uint32_t p)
{
	world.standby = p;
	tell_ingresses(MSG_standby, p);
}

static bool
unasked(uint32_t p)
{
	return p != NOBODY && world.policy[p].alive && !world.policy[p].asked;
}

static void
ingress_born(uint32_t index)
{
	struct ingress *me = &world.ingress[world.n_ingress];
	struct note n = {.id = MSG_peer};

	if (world.n_ingress == INGRESSES)
		return;
	ingress_make(me, index, ++world.next_inc);
	for (uint32_t p = 0; p < world.n_policies; p++)
		if (world.policy[p].alive) {
			n.gen = world.policy[p].gen;
			n.ask = world.policy[p].inc;
			put(&me->control, &n);
		}
	tell_policies(MSG_segment, world.n_ingress++);
	me->acked = 0;
	if (world.want != NOBODY) {     /* no old stream: it counts as acknowledged */
		n.id = MSG_activate;
		n.gen = world.policy[world.want].gen;
		n.ask = me->acked = world.policy[world.want].inc;
		put(&me->control, &n);
	}
	if (world.standby != NOBODY) {
		n.id = MSG_standby;
		n.gen = world.policy[world.standby].gen;
		n.ask = world.policy[world.standby].inc;
		put(&me->control, &n);
	}
}

static bool
supervise_open(void)
{
	struct note n = {.id = MSG_open};
	bool said = false;

	if (world.want == NOBODY || !world.policy[world.want].alive)
		return false;
	for (uint32_t i = 0; i < world.n_ingress; i++)
		if (!world.ingress[i].gone_said &&
		    world.ingress[i].acked != world.policy[world.want].inc)
			return false;
	if (!world.open_said) {
		world.open_said = said = true;
		put(&world.policy[world.want].control, &n);
	}
	n.id = MSG_drain;               /* who was asked is nobody's spare */
	for (uint32_t p = 0; p < world.n_policies; p++)
		if (world.policy[p].alive && p != world.want && p != world.standby &&
		    (p != world.spare || world.policy[p].asked) && !world.policy[p].drained) {
			world.policy[p].drained = said = true;
			put(&world.policy[p].control, &n);
		}
	return said;
}

static void
policy_bury(uint32_t p)
{
	struct policy *dead = &world.policy[p];

	dead->buried = true;
	tell_ingresses(MSG_gone, p);
	if (p == world.spare)
		world.spare = NOBODY;
	if (p == world.standby)
		standby(NOBODY);
	if (p == world.want) {
		bool ready = world.standby != NOBODY && world.policy[world.standby].alive;
		uint32_t next = ready ? world.standby : policy_born(dead->gen);

		world.standby = NOBODY;
		want(next);
	}
	if (world.standby == NOBODY && world.want != NOBODY && draw(2))
		standby(policy_born(world.gen));
}

static bool
supervise_bury(void)
{
	for (uint32_t p = 0; p < world.n_policies; p++)
		if (!world.policy[p].alive && !world.policy[p].buried && !world.policy[p].busy) {
			policy_bury(p);
			return true;
		}
	for (uint32_t i = 0; i < world.n_ingress; i++) {
		struct ingress *dead = &world.ingress[i];

		if (dead->alive || dead->gone_said || dead->busy)
			continue;
		tell_policies(MSG_gone, i);     /* before its column is zeroed */
		dead->gone_said = true;
		for (uint32_t r = 0; r < world.n_requests; r++)
			if (world.request[r].in == i && !world.request[r].over) {
				world.request[r].over = true;
				world.request[r].ends++;
			}
		if (!dead->draining)
			ingress_born(dead->index);
		return true;
	}
	return false;
}

static bool
supervise_clear(void)
{
	for (uint32_t i = 0; i < world.n_ingress; i++)
		if (world.ingress[i].gone_said && !world.ingress[i].cleared) {
			world.ingress[i].cleared = true;
			column_clear(&world.ingress[i].column);
			slots_clear(&world.ingress[i].slots);
			return true;
		}
	return false;
}

static void
reload(void)
{
	uint32_t old = world.standby, p;

	if (world.n_policies + 3 > POLICIES)
		return;
	p = policy_born(world.gen + 1);
	world.spare = unasked(old) ? old : NOBODY;      /* until probation ends */
	want(p);
	standby(draw(2) ? policy_born(world.gen) : NOBODY);
	world.count.swaps++;
}

static void
roll_back(void)
{
	uint32_t p = world.spare;

	/* Before every ingress has moved, one may have been on the spare by itself. */
	if (!world.open_said || !unasked(p) || world.policy[p].gen == world.gen ||
	    world.policy[p].drained)
		return;
	world.spare = NOBODY;
	want(p);
	standby(NOBODY);
	world.count.rollbacks++;
}

static void
replace(void)
{
	uint32_t i = draw(world.n_ingress);
	struct note n = {.id = MSG_drain};

	if (!world.ingress[i].alive || world.ingress[i].draining || world.n_ingress == INGRESSES)
		return;
	ingress_born(world.ingress[i].index);
	put(&world.ingress[i].control, &n);
	world.count.replaced++;
}

static void
row_change(void)
{
	uint32_t row = draw(ROWS);

	world.row_changed[row] = ++world.clock;
	if (draw(2)) {
		world.intent[row] = (uint8_t)(INTENT_SERVE + draw(3));
		return;
	}
	world.row_gen[row]++;           /* removed and added again */
	world.intent[row] = INTENT_SERVE;
	world.count.readded++;
}

/* ---- one action of somebody ---- */

static void
act(void)
{
	struct ingress *in = &world.ingress[draw(world.n_ingress)];
	struct policy *p = &world.policy[draw(world.n_policies)];
	uint32_t what = draw(100);

	uint32_t from = draw(world.n_policies), to = draw(world.n_ingress);

	/* Of the queues, one in which there is something. */
	for (uint32_t n = 0;
	     n < world.n_policies && empty(&world.policy[from].out[in - world.ingress]); n++)
		from = (from + 1) % world.n_policies;
	for (uint32_t n = 0; n < world.n_policies && !p->alive; n++)
		p = &world.policy[(uint32_t)(p - world.policy + 1) % world.n_policies];
	for (uint32_t n = 0; n < world.n_ingress && empty(&p->in[to]); n++)
		to = (to + 1) % world.n_ingress;
	world.now += 1000000;
	if (what < 14) {
		run(in, new_request, 0);
	} else if (what < 36) {
		if (draw(4))
			run(in, hear_supervisor, 0);
		run(in, hear_policy, from);
	} else if (what < 56) {
		run(in, one_request, draw(8) == 0);
	} else if (what < 80) {
		if (draw(4))
			think(p, policy_control, 0);
		think(p, policy_hear, to);
	} else if (what < 84) {
		think(p, policy_wait_over, draw(3) == 0);
	} else if (what < 88) {
		supervise_open();
	} else if (what < 91) {
		supervise_bury();
	} else if (what < 93) {
		supervise_clear();
		ingress_exit(in);
	} else if (what < 95) {
		run(in, ingress_tick, 0);
	} else if (what == 95) {
		row_change();
	} else if (what == 96) {
		reload();
	} else if (what == 97) {
		if (draw(2))
			roll_back();
		else
			replace();
	} else if (what == 98) {
		if (draw(2) && p->alive && !p->busy && world.n_policies + 2 < POLICIES) {
			world.count.killed_policy++;
			policy_die(p);
		}
	} else if (draw(2) && in->alive && !in->busy && world.n_ingress < INGRESSES) {
		world.count.killed_ingress++;
		ingress_die(in);
	}
}

void
world_step(void)
{
	act();
}

bool
world_settle(void)
{
	bool moved = false;

	world.now += 10000000;
	moved |= supervise_bury();
	moved |= supervise_clear();
	moved |= supervise_open();
	for (uint32_t p = 0; p < world.n_policies; p++) {
		struct policy *me = &world.policy[p];

		moved |= !empty(&me->control) || me->waiting.n > 0 || me->n_held > 0;
		think(me, policy_control, 0);
		think(me, policy_wait_over, 0);
		for (uint32_t i = 0; i < world.n_ingress; i++) {
			moved |= me->from[i] && !empty(&me->in[i]);
			think(me, policy_hear, i);
		}
	}
	for (uint32_t i = 0; i < world.n_ingress; i++) {
		struct ingress *me = &world.ingress[i];

		if (!me->alive)
			continue;
		moved |= !empty(&me->control);
		run(me, hear_supervisor, 0);
		for (uint32_t p = 0; p < world.n_policies; p++) {
			moved |= !empty(&world.policy[p].out[i]);
			run(me, hear_policy, p);
		}
		run(me, ingress_tick, 0);
	}
	return moved;
}

bool
world_open(void)
{
	static const struct manifest manifest;  /* no members: rows are asked for by number */
	static struct rows_header head;

	for (unsigned i = 0; i < POLICIES; i++) {
		struct rows rows = {.seg.fd = -1, .head = &head, .capacity = ROWS};
		struct index *index = NULL;

		if (view_open(&world.policy[i].view, &manifest, 0, &rows, &index) < 0)
			return false;
	}
	return true;
}

void
world_close(void)
{
	for (unsigned i = 0; i < POLICIES; i++) {
		view_close(&world.policy[i].view);
		waiting_free(&world.policy[i].waiting);
	}
}

void
world_begin(uint64_t seed)
{
	world.random = (seed + 1) * 0x9e3779b97f4a7c15ull;
	for (unsigned i = 0; i < 4; i++)
		draw(2);
	world.clock = 0;
	world.now = 1000000000000ull;
	world.n_requests = world.n_ingress = world.n_policies = world.depth = 0;
	world.next_inc = 0;
	world.gen = 1;
	world.want = world.standby = world.spare = NOBODY;
	world.open_said = world.settling = false;
	world.stores = 1 + draw(2 * STORES_AVG);
	world.loads = 1 + draw(2 * LOADS_AVG);
	for (unsigned r = 0; r < ROWS; r++) {
		world.row_gen[r] = 1;
		world.intent[r] = INTENT_SERVE;
		world.row_changed[r] = 0;
	}
	for (unsigned n = 1 + draw(2), i = 0; i < n; i++)
		ingress_born(i);
	want(policy_born(1));
	if (draw(4))
		standby(policy_born(1));
}

void
world_end(void)
{
	for (uint32_t i = 0; i < world.n_ingress; i++) {
		struct ingress *me = &world.ingress[i];

		ask_close(&me->ask);
		ledger_close(&me->ledger);
		arena_detach(&me->arena);
	}
	for (uint32_t k = 0; k < world.n_policies; k++) {
		struct policy *p = &world.policy[k];

		for (uint32_t i = 0; i < world.n_ingress; i++) {
			policy_forget(p, i);
			p->in[i].head = p->in[i].tail = p->out[i].head = p->out[i].tail = 0;
			p->resent[i] = false;
		}
		p->control.head = p->control.tail = 0;
		p->waiting.n = p->n_held = 0;
		p->alive = p->buried = p->opened = p->deciding = p->late = p->drained = false;
		p->asked = false;
		p->reading.slot = 0;
	}
	memset(world.request, 0, sizeof world.request);
}
