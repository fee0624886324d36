/* two_swaps_world.c -- what surrounds reload.c in two_swaps.pml, which says what it stands for.
 *
 * Included by the verifier that Spin makes of the model; all state is in `m` and `w`, which it
 * keeps and compares.  Words on the way lie in small queues; every choice is an
 * event number that may happen or not.
 */
#include <string.h>

#ifndef HUPS
#define HUPS 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef IKILLS
#define IKILLS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef INS
#define INS 2
#endif
#ifndef PROCS
#define PROCS 10		/* 1 .. 9 */
#endif
#define RELOAD_POLICIES 8u
#define RELOAD_INGRESSES 3u
#include "actors/supervisor/reload.c"

#define QUEUE 12
#define NOW 1000000000000ull
#define OLD (NOW - 60000 * MS)
enum { OPEN_ALONE = 1, ONCE_OPENED, DRAIN_UNASKED, TWO_DEATHS, ALL_WELL, TOO_SMALL };
enum { SAY_ACTIVATE = 1, SAY_STANDBY, SAY_GONE };

struct in {
	unsigned char inc, alive, ready, told_gone;
	unsigned char act, standby;
	unsigned short reached, seen, closed, opened;   /* bits by process */
	unsigned char n_in, n_out;
	struct { unsigned char what, policy; } inbox[QUEUE];
	unsigned char outbox[QUEUE];
};
struct proc { unsigned char gen, alive, ready, opened, drained, told_gone, born; };
struct world {
	unsigned char hups, kills, ikills, fails, early;
	unsigned char answered, gen, last_opened, over, ask_deaths[8];
	unsigned char n_procs;
	unsigned char inc_of[PROCS];
	struct in in[INS];
	struct proc proc[PROCS];
};
static struct reload m;
static struct world w;
static int bad;                         /* the first rule violated; the search ends there */

static void
violated(int rule)
{
	if (!bad)
		bad = rule;
}

static void step(struct reload_event e, int later);

/* Incarnations of processes and ingresses come from one counter; processes are numbered from 1. */
static int
number(uint32_t inc)
{
	for (int p = 1; p <= w.n_procs; p++)
		if (w.inc_of[p] == inc)
			return p;
	return 0;
}

static uint32_t
inc_of(int p)
{
	return p ? w.inc_of[p] : 0;
}

static void
tell_in(struct in *in, int what, int policy)
{
	if (!in->alive)
		return;
	if (in->n_in == QUEUE) {
		violated(TOO_SMALL);
		return;
	}
	in->inbox[in->n_in].what = what;
	in->inbox[in->n_in++].policy = policy;
}

static struct in *
in_of(uint32_t inc)
{
	return w.in[0].inc == inc ? &w.in[0] : &w.in[INS - 1];
}

static void
reach(struct in *in, int p)
{
	in->reached |= 1 << p;
	step((struct reload_event){.type = RELOAD_REACHABLE, .ingress = in->inc,
				   .policy = inc_of(p)}, 0);
}

static void
perform(const struct reload_action *a, struct reload_event *ret, int *n)
{
	int p = number(a->policy);
	struct proc *proc = &w.proc[p];

	switch (a->type) {
	case RELOAD_DO_LOAD:
		ret[(*n)++] = (struct reload_event){.type = RELOAD_LOADED, .generation = ++w.gen,
			.settings = {.standby = 1, .load_deadline_ns = 30000 * MS,
				     .probation_ns = 10000 * MS}};
		break;
	case RELOAD_DO_SPAWN:
		if (w.n_procs + 1 >= PROCS) {
			violated(TOO_SMALL);
			break;
		}
		w.inc_of[++w.n_procs] = a->policy;
		w.proc[w.n_procs] = (struct proc){.gen = a->generation, .alive = 1, .born = 1};
		break;
	case RELOAD_DO_ACTIVATE:
		if (proc->opened && (p != w.last_opened ||
				     (proc->alive && in_of(a->ingress)->closed >> p & 1)))
			violated(ONCE_OPENED);
		tell_in(in_of(a->ingress), SAY_ACTIVATE, p);
		break;
	case RELOAD_DO_STANDBY:
		tell_in(in_of(a->ingress), SAY_STANDBY, p);
		break;
	case RELOAD_DO_OPEN:
		for (int i = 0; i < INS && proc->alive; i++)
			if (w.in[i].alive && w.in[i].act && w.in[i].act != p)
				violated(OPEN_ALONE);
		proc->opened = 1;
		w.last_opened = p;
		break;
	case RELOAD_DO_DRAIN:
		for (int i = 0; i < INS && proc->alive; i++)
			if (w.in[i].alive && w.in[i].act == p)
				violated(DRAIN_UNASKED);
		proc->drained = 1;
		break;
	case RELOAD_DO_KILL_POLICY:
		proc->alive = 0;
		break;
	case RELOAD_DO_KILL_INGRESS:
		in_of(a->ingress)->alive = 0;
		break;
	case RELOAD_DO_SERVING:
		w.answered = w.gen;
		break;
	case RELOAD_DO_REFUSE:
		w.answered = w.gen;
		break;
	case RELOAD_DO_ROLLED_BACK:
		if (w.ask_deaths[w.gen] < 2)
			violated(TWO_DEATHS);
		w.answered = w.gen;
		break;
	case RELOAD_DO_SETTLED:
		break;
	}
}

/* generation_event: LOAD's answer comes after the other actions of its step. */
static void
step(struct reload_event e, int later)
{
	static struct reload_actions acts;
	struct reload_event queue[8] = {e};
	int n = 1;

	for (int i = 0; i < n; i++) {
		reload_step(&m, NOW + later * MS, &queue[i], &acts);
		for (unsigned k = 0; k < acts.n; k++)
			perform(&acts.list[k], queue, &n);
	}
}

static void
word(struct in *in, int p)
{
	if (in->n_out == QUEUE)
		violated(TOO_SMALL);
	else
		in->outbox[in->n_out++] = p;
}

/* ---- actors/ingress/ask.c ---- */

static void
in_activate(struct in *in, int p)
{
	if (p != in->act) {
		in->closed |= in->opened & ~(1 << p);
		if ((in->seen | in->closed) >> p & 1) {
			in->act = 0;
		} else {
			in->act = p;
			in->opened |= 1 << p;
		}
	}
	word(in, p);
}

static void
in_gone(struct in *in, int p, int told)
{
	int said = 0, q = in->standby;

	if (!(in->seen >> p & 1)) {
		in->seen |= 1 << p;
		in->closed |= 1 << p;
		if (in->act == p) {
			if (!q || (in->seen | in->closed | in->opened) >> q & 1 ||
			    !(in->reached >> q & 1) || w.proc[q].gen != w.proc[p].gen)
				q = 0;
			in->act = q;
			if (q)
				in->opened |= 1 << q;
			word(in, q);
			said = 1;
		}
	}
	if (told && !said)
		word(in, in->act);
}

static void
in_hear(struct in *in)
{
	int what = in->inbox[0].what, p = in->inbox[0].policy;

	in->n_in--;
	memmove(in->inbox, in->inbox + 1, sizeof in->inbox - sizeof in->inbox[0]);
	in->inbox[QUEUE - 1].what = in->inbox[QUEUE - 1].policy = 0;
	if (what == SAY_ACTIVATE)
		in_activate(in, p);
	else if (what == SAY_STANDBY)
		in->standby = p;
	else
		in_gone(in, p, 1);
}

/* ---- children.c ---- */

static void
bury(int p)
{
	struct reload_event e = {.type = RELOAD_POLICY_GONE, .policy = inc_of(p)};

	w.proc[p].told_gone = 1;
	if (m.want == inc_of(p))
		w.ask_deaths[w.proc[p].gen]++;
#ifdef GONELAST
	step(e, 0);
#endif
	for (int i = 0; i < INS; i++)
		tell_in(&w.in[i], SAY_GONE, p);
#ifndef GONELAST
	step(e, 0);
#endif
}

static void
reap(void)
{
	for (int p = 1; p <= w.n_procs; p++)
		if (!w.proc[p].alive && !w.proc[p].told_gone)
			bury(p);
}

static void
sup_hear(struct in *in)
{
	int p = in->outbox[0];

	in->n_out--;
	memmove(in->outbox, in->outbox + 1, QUEUE - 1);
	in->outbox[QUEUE - 1] = 0;
#ifndef NOREAP
	reap();
#endif
	step((struct reload_event){.type = RELOAD_ACTIVE, .ingress = in->inc,
				   .policy = inc_of(p)}, 0);
}

/* ---- time: ages, in few classes ---- */

static uint64_t
aged(uint64_t t, uint64_t by)
{
	if (t == 0)
		return 0;
	t = t > by ? t - by : 1;
	if (t < NOW - 11000 * MS)
		return OLD;
	if (t < NOW && t > NOW - 200 * MS)
		return NOW - 1;
	return t;
}

/* Which of the two came first is all that is asked of these; the next choice comes after both. */
static void
order(void)
{
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++)
		if (m.ingress[i].incarnation)
			m.ingress[i].ready_ns = m.ingress[i].ready_ns <= m.want_ns ? 1 : 3;
	m.want_ns = 2;
}

static void
age(uint64_t by)
{
	m.loading_ns = m.state == RELOAD_LOADING ? aged(m.loading_ns, by) : 0;
	m.probation_until_ns = m.state == RELOAD_PROBATION ? aged(m.probation_until_ns, by) : 0;
	m.respawn_ns = aged(m.respawn_ns, by);
	if (m.respawn_ns <= NOW)
		m.respawn_ns = 0;
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		m.policy[i].born_ns = aged(m.policy[i].born_ns, by);
		m.policy[i].drained_ns = aged(m.policy[i].drained_ns, by);
	}
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++)
		m.ingress[i].told_ns = aged(m.ingress[i].told_ns, by);
}

/* What can make no difference any more is made equal, so that states meet. */
static void
forget(void)
{
	age(0);
	order();
	for (int p = 1; p <= w.n_procs; p++) {
		unsigned short bit = 1 << p;

		if (!w.proc[p].told_gone)
			continue;
		for (int i = 0; i < INS; i++)
			if (w.in[i].seen & bit) {
				w.in[i].reached &= ~bit;
				w.in[i].opened &= ~bit;
				w.in[i].closed |= bit;
			}
	}
}

static void
tick(uint64_t ms)
{
	age(ms * MS);
	step((struct reload_event){.type = RELOAD_TICK}, 0);
}

static void
in_ready(struct in *in)
{
	order();                        /* whatever was before was before */
	in->ready = 1;
	step((struct reload_event){.type = RELOAD_INGRESS_READY, .ingress = in->inc}, 0);
#ifdef FASTREACH
	for (int p = 1; p <= w.n_procs; p++)
		if (w.proc[p].alive && w.proc[p].ready)
			reach(in, p);
#endif
}

static void
born(struct in *in)
{
	*in = (struct in){.inc = (unsigned char)reload_incarnation(&m), .alive = 1};
}

/* ---- what may happen next ---- */

enum { EV_HEAR = 0, EV_WORD = 2, EV_READY_IN = 4, EV_REAP_IN = 6, EV_KILL_IN = 8, EV_HUP = 10,
	EV_STOP = 11, EV_EARLY = 12, EV_READY = 16, EV_PIDFD = EV_READY + PROCS,
	EV_REAP = EV_PIDFD + 2 * PROCS, EV_KILL = EV_REAP + PROCS, EV_FAIL = EV_KILL + PROCS,
	EV_REACH = EV_FAIL + PROCS, EVENTS = EV_REACH + 2 * PROCS };

static int
may_happen(int e)
{
	struct in *in = &w.in[e & (INS - 1)];
	struct proc *p;

	if (INS == 1 && (e < EV_HUP ? e & 1 : e >= EV_REACH ? e >= EV_REACH + PROCS :
	    e >= EV_PIDFD + PROCS && e < EV_REAP))
		return 0;

	if (e < EV_WORD)
		return in->alive && in->ready && in->n_in > 0;
	if (e < EV_READY_IN)
		return in->alive && in->n_out > 0;
	if (e < EV_REAP_IN)
		return in->alive && !in->ready;
	if (e < EV_KILL_IN)
		return !in->alive;
	if (e < EV_HUP)
		return in->alive && in->ready && w.ikills > 0;
	if (e == EV_HUP)
		return w.hups > 0 && m.serving != 0;
	if (e == EV_STOP)
		return w.hups + w.kills + w.ikills + w.fails + w.early > 0;
	if (e == EV_EARLY)
		return w.early > 0;
	if (e < EV_READY)
		return 0;
	if (e < EV_PIDFD) {
		p = &w.proc[e - EV_READY];
		return p->alive && p->born && !p->ready;
	}
	if (e < EV_REAP) {
		in = &w.in[(e - EV_PIDFD) / PROCS];
		p = &w.proc[(e - EV_PIDFD) % PROCS];
		return in->alive && in->ready && p->ready && !p->alive &&
		       !(in->seen >> (e - EV_PIDFD) % PROCS & 1);
	}
	if (e < EV_KILL) {
		p = &w.proc[e - EV_REAP];
		return p->born && !p->alive && !p->told_gone;
	}
	if (e < EV_FAIL) {
		p = &w.proc[e - EV_KILL];
		return p->alive && w.kills > 0 && m.serving != 0;
	}
	if (e < EV_REACH) {
		p = &w.proc[e - EV_FAIL];
		return p->alive && !p->ready && w.fails > 0 && m.serving != 0 && p->gen == m.next;
	}
#ifdef FASTREACH
	return 0;
#else
	in = &w.in[(e - EV_REACH) / PROCS];
	p = &w.proc[(e - EV_REACH) % PROCS];
	return in->alive && in->ready && p->alive && p->ready &&
	       !(in->reached >> (e - EV_REACH) % PROCS & 1);
#endif
}

static void
happens(int e)
{
	struct in *in = &w.in[e & (INS - 1)];
	int p;

	if (e < EV_WORD) {
		in_hear(in);
	} else if (e < EV_READY_IN) {
		sup_hear(in);
	} else if (e < EV_REAP_IN) {
		in_ready(in);
	} else if (e < EV_KILL_IN) {
		step((struct reload_event){.type = RELOAD_INGRESS_GONE, .ingress = in->inc}, 0);
		born(in);
	} else if (e < EV_HUP) {
		w.ikills--;
		in->alive = 0;
	} else if (e == EV_HUP) {
		w.hups--;
		step((struct reload_event){.type = RELOAD_WANTED}, 0);
	} else if (e == EV_STOP) {
		w.hups = w.kills = w.ikills = w.fails = w.early = 0;
	} else if (e == EV_EARLY) {
		w.early--;
		tick(w.early & 1 ? 2500 : 11000);
	} else if (e < EV_PIDFD) {
		p = e - EV_READY;
		w.proc[p].ready = 1;
		step((struct reload_event){.type = RELOAD_POLICY_READY, .policy = inc_of(p)}, 0);
#ifdef FASTREACH
		for (int i = 0; i < INS; i++)
			if (w.in[i].alive && w.in[i].ready && w.proc[p].alive)
				reach(&w.in[i], p);
#endif
	} else if (e < EV_REAP) {
		in_gone(&w.in[(e - EV_PIDFD) / PROCS], (e - EV_PIDFD) % PROCS, 0);
	} else if (e < EV_KILL) {
		bury(e - EV_REAP);
	} else if (e < EV_FAIL) {
		w.kills--;
		w.proc[e - EV_KILL].alive = 0;
	} else if (e < EV_REACH) {
		p = e - EV_FAIL;
		w.fails--;
		step((struct reload_event){.type = RELOAD_POLICY_FAILED, .policy = inc_of(p)}, 0);
		w.proc[p].alive = 0;
	} else {
		reach(&w.in[(e - EV_REACH) / PROCS], (e - EV_REACH) % PROCS);
	}
	for (p = 1; p <= w.n_procs; p++)        /* exits when told to, owing nothing */
		if (w.proc[p].drained)
			w.proc[p].alive = 0;
	forget();
}

static int
well(void)
{
	int want = number(m.want), standby = number(reload_standby(&m));

	if (m.state != RELOAD_IDLE || m.pending || !m.settled || !want || !w.proc[want].alive ||
	    !w.proc[want].opened || w.proc[want].gen != m.serving || w.answered != w.gen ||
	    !standby || !w.proc[standby].alive)
		return 0;
	for (int i = 0; i < INS; i++)
		if (w.in[i].act != want || w.in[i].standby != standby)
			return 0;
	return 1;
}

/* Nothing else can happen: time passes.  0: and nothing comes of it. */
static int
rest(void)
{
	struct reload before = m;
	struct world seen = w;

	for (int k = 0; k < 3; k++) {
		tick(k == 0 ? 250 : k == 1 ? 2500 : 11000);
		forget();
		for (int e = 0; e < EVENTS; e++)
			if (may_happen(e))
				return 1;
		if (m.state != before.state || m.want != before.want ||
		    m.generation != before.generation)
			return 1;
	}
	return memcmp(&seen, &w, sizeof w) != 0;
}

static void
start(void)
{
	reload_init(&m);
	w.hups = HUPS; w.kills = KILLS; w.ikills = IKILLS; w.fails = FAILS; w.early = EARLY;
	born(&w.in[0]);
	if (INS > 1)
		born(&w.in[INS - 1]);
	step((struct reload_event){.type = RELOAD_WANTED}, 0);
	age(0);
}
