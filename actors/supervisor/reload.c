/* actors/supervisor/reload.c -- see reload.h: events in, actions out. */
#include "actors/supervisor/reload.h"

#include <string.h>

#define MS 1000000ull
#define ACK_NUDGE_NS    (200 * MS)      /* expected to move by itself: say it after all */
#define ACK_DEADLINE_NS (2000 * MS)     /* no acknowledgement: hung */
#define REACH_DEADLINE_NS (10000 * MS)  /* loaded, but some ingress never reached it */
#define DRAIN_DEADLINE_NS (10000 * MS)  /* a drained policy process owes only short answers */
#define BACKOFF_FIRST_NS (100 * MS)
#define BACKOFF_MAX_NS  (5000 * MS)
#define BACKOFF_NONE_NS (200 * MS)      /* nobody to ask: never wait longer */
#define BACKOFF_RESET_NS (10000 * MS)   /* lived that long: no crash loop, reborn at once */

static const char *const state_names[] = {"idle", "loading", "switching", "probation"};

const char *
reload_state_name(enum reload_state state)
{
	return (unsigned)state < sizeof state_names / sizeof state_names[0] ? state_names[state]
									     : "unknown";
}

void
reload_init(struct reload *m)
{
	memset(m, 0, sizeof *m);
}

uint32_t
reload_incarnation(struct reload *m)
{
	return ++m->last_incarnation;
}

static struct reload_policy *
policy_find(struct reload *m, uint32_t incarnation)
{
	if (incarnation == 0)
		return NULL;
	for (unsigned i = 0; i < RELOAD_POLICIES; i++)
		if (m->policy[i].incarnation == incarnation)
			return &m->policy[i];
	return NULL;
}

static struct reload_ingress *
ingress_find(struct reload *m, uint32_t incarnation)
{
	if (incarnation == 0)
		return NULL;
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++)
		if (m->ingress[i].incarnation == incarnation)
			return &m->ingress[i];
	return NULL;
}

static void
act(struct reload_actions *ret, struct reload_action action)
{
	if (ret->n < RELOAD_ACTIONS)    /* the tables bound it well below */
		ret->list[ret->n++] = action;
}

static bool
alive(const struct reload_policy *p)
{
	return p->incarnation != 0 && !p->killed;
}

/* May still become the asked process or its standby. */
static bool
fresh(const struct reload_policy *p)
{
	return alive(p) && !p->draining && !p->asked && !p->opened;
}

static uint64_t
ingress_mask(const struct reload *m)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < RELOAD_INGRESSES; i++)
		if (m->ingress[i].incarnation && !m->ingress[i].killed)
			mask |= 1ull << i;
	return mask;
}

static bool
reached_by_all(const struct reload *m, const struct reload_policy *p)
{
	uint64_t mask = ingress_mask(m);

	return mask != 0 && (p->reach & mask) == mask;
}

/* Processes of a generation that serve or will: the asked one and what may stand by. */
static unsigned
count_useful(const struct reload *m, uint32_t generation)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		const struct reload_policy *p = &m->policy[i];

		if (alive(p) && p->generation == generation &&
		    (p->incarnation == m->want || fresh(p)))
			n++;
	}
	return n;
}

static bool
spawn(struct reload *m, mono_ns now, uint32_t generation, struct reload_actions *ret)
{
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		struct reload_policy *p = &m->policy[i];

		if (p->incarnation)
			continue;
		*p = (struct reload_policy){.incarnation = reload_incarnation(m),
					    .generation = generation, .born_ns = now};
		act(ret, (struct reload_action){.type = RELOAD_DO_SPAWN, .generation = generation,
						.policy = p->incarnation});
		return true;
	}
	return false;
}

static void
kill_policy(struct reload_policy *p, const char *why, struct reload_actions *ret)
{
	p->killed = true;               /* its death is reported like any other */
	act(ret, (struct reload_action){.type = RELOAD_DO_KILL_POLICY, .policy = p->incarnation,
					.generation = p->generation, .why = why});
}

static void
drain_policy(struct reload_policy *p, mono_ns now, struct reload_actions *ret)
{
	if (!p->ready) { /* still loading: it does not listen yet, and owes nothing */
		kill_policy(p, "is no longer needed", ret);
		p->draining = true;
		return;
	}
	p->draining = true;
	p->drained_ns = now;
	act(ret, (struct reload_action){.type = RELOAD_DO_DRAIN, .policy = p->incarnation,
					.generation = p->generation});
}

/* Nobody is asked until a new choice is made. */
static void
want_none(struct reload *m)
{
	m->want = 0;
	m->settled = false;
}

static void
want_set(struct reload *m, mono_ns now, const struct reload_policy *p)
{
	m->want = p->incarnation;
	m->want_ns = now;
	m->settled = false;
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++) {
		struct reload_ingress *in = &m->ingress[i];

		if (!in->incarnation || (in->standby != m->want && in->asking != m->want))
			continue;
		in->told = m->want;     /* rule 3: it moves, or has moved, by itself */
		in->told_ns = now;
		in->by_itself = true;
		in->standby = 0;
	}
}

static void
begin_load(struct reload *m, struct reload_actions *ret)
{
	m->state = RELOAD_LOADING;
	m->pending = false;
	m->next = 0;
	act(ret, (struct reload_action){.type = RELOAD_DO_LOAD});
}

static void
refuse(struct reload *m, mono_ns now, const char *why, struct reload_actions *ret)
{
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		struct reload_policy *p = &m->policy[i];

		if (alive(p) && p->generation == m->next && !p->draining)
			drain_policy(p, now, ret);
	}
	act(ret,
	    (struct reload_action){.type = RELOAD_DO_REFUSE, .generation = m->next, .why = why});
	m->state = RELOAD_IDLE;
	m->next = 0;
}

static void
roll_back(struct reload *m, mono_ns now)
{
	m->rolling_back = true;
	m->state = RELOAD_SWITCHING;
	m->generation = m->old;
	m->settings = m->old_settings;
	m->deaths = 0;
	m->respawn_ns = now; /* a fresh process of the old generation may be needed at once */
	want_none(m);
}

static void
on_policy_gone(struct reload *m, mono_ns now, struct reload_policy *p)
{
	bool was_asked = p->incarnation == m->want, wanted = !p->draining;
	uint32_t generation = p->generation;
	mono_ns lived = now - p->born_ns;

	*p = (struct reload_policy){0};
	if (wanted && generation == m->generation) {
		if (lived > BACKOFF_RESET_NS)
			m->backoff_ns = 0;
		m->respawn_ns = now + m->backoff_ns;
		m->backoff_ns = m->backoff_ns ? 2 * m->backoff_ns : BACKOFF_FIRST_NS;
		if (m->backoff_ns > BACKOFF_MAX_NS)
			m->backoff_ns = BACKOFF_MAX_NS;
	}
	if (was_asked)
		want_none(m);
	if (was_asked && m->old != 0 && !m->rolling_back &&
	    (m->state == RELOAD_PROBATION || m->state == RELOAD_SWITCHING)) {
		m->deaths++;
		if (m->deaths >= 2)
			roll_back(m, now);      /* rule 7 */
	}
	if (count_useful(m, m->generation) == 0 && m->respawn_ns > now + BACKOFF_NONE_NS)
		m->respawn_ns = now + BACKOFF_NONE_NS;
}

static void
on_active(struct reload *m, mono_ns now, struct reload_ingress *in, uint32_t policy,
	  struct reload_actions *ret)
{
	struct reload_policy *p = policy_find(m, policy), *want = policy_find(m, m->want);
	uint32_t before = in->asking;

	in->asking = policy;
	if (policy == in->told)
		in->perhaps = 0;        /* in order: whatever it did before is known by now */
	if (p)
		p->asked = true;
	if (in->standby == policy)
		in->standby = 0;
	if (!want || policy == m->want || policy == 0 || before != m->want || !alive(want))
		return;
	/* It left a process that is alive: for good, since what was closed stays closed. */
	kill_policy(want, "lost its connection to an ingress", ret);
	in->told = policy;
	in->told_ns = now;
}

/* Deadlines of processes that owe us something. */
static void
watch(struct reload *m, mono_ns now, struct reload_actions *ret)
{
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		struct reload_policy *p = &m->policy[i];
		mono_ns limit = p->generation == m->next ? m->next_settings.load_deadline_ns
							 : m->settings.load_deadline_ns;

		if (!alive(p))
			continue;
		if (!p->ready && now > p->born_ns + limit)
			kill_policy(p, "was not ready by the load deadline", ret);
		else if (p->draining && now > p->drained_ns + DRAIN_DEADLINE_NS)
			kill_policy(p, "did not exit after drain", ret);
	}
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++) {
		struct reload_ingress *in = &m->ingress[i];

		if (!in->incarnation || in->killed || !in->told || in->asking == in->told ||
		    in->told != m->want)
			continue;
		if (now > in->told_ns + ACK_DEADLINE_NS) {
			in->killed = true;
			act(ret, (struct reload_action){.type = RELOAD_DO_KILL_INGRESS,
				.ingress = in->incarnation,
				.why = "did not acknowledge a switch within 2 s"});
		} else if (in->by_itself && now > in->told_ns + ACK_NUDGE_NS) {
			in->by_itself = false;
			in->told = 0;           /* tell() says it */
		}
	}
}

static void
load(struct reload *m, mono_ns now, struct reload_actions *ret)
{
	bool some = false;

	if (m->state != RELOAD_LOADING || m->next == 0)
		return;
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		struct reload_policy *p = &m->policy[i];

		if (!fresh(p) || p->generation != m->next)
			continue;
		some = true;
		if (!p->ready || !reached_by_all(m, p))
			continue;
		m->state = RELOAD_SWITCHING;
		m->old = m->generation;
		m->old_settings = m->settings;
		m->generation = m->next;
		m->settings = m->next_settings;
		m->next = 0;
		m->deaths = 0;
		m->backoff_ns = 0;
		m->respawn_ns = now;
		want_set(m, now, p);
		return;
	}
	if (!some && m->loads < 1 + m->next_settings.standby) {
		m->loads++;             /* it died without saying why: perhaps not its fault */
		spawn(m, now, m->next, ret);
	} else if (!some)
		refuse(m, now, "its policy processes died while loading", ret);
	else if (now > m->loading_ns + m->next_settings.load_deadline_ns + REACH_DEADLINE_NS)
		refuse(m, now, "not every ingress could reach its policy process", ret);
}

/* Choose whom to ask when nobody is. */
static void
choose(struct reload *m, mono_ns now)
{
	struct reload_policy *best = NULL;
	unsigned best_rank = 0;

	if (m->want || m->generation == 0)
		return;
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		struct reload_policy *p = &m->policy[i];
		unsigned rank = 1, told = 0;

		/* Rule 2.  Asked but not opened: an ingress moved there by itself. */
		if (!alive(p) || !p->ready || p->draining || p->opened ||
		    p->generation != m->generation || (p->asked && m->rolling_back))
			continue;
		bool perhaps = false;
		for (unsigned k = 0; k < RELOAD_INGRESSES; k++) {
			const struct reload_ingress *in = &m->ingress[k];

			if (in->incarnation && in->standby == p->incarnation)
				told = 1;
			perhaps |= in->incarnation && in->perhaps == p->incarnation;
		}
		if (perhaps)
			continue; /* asked and closed before it heard ACTIVATE? its word will tell
				   */
		rank += (p->asked ? 8u : 0u) + 4u * told + (reached_by_all(m, p) ? 2u : 0u);
		if (!best || rank > best_rank ||
		    (rank == best_rank && p->incarnation < best->incarnation)) {
			best = p;
			best_rank = rank;
		}
	}
	if (best)
		want_set(m, now, best);
}

static void
tell(struct reload *m, mono_ns now, struct reload_actions *ret)
{
	struct reload_policy *want = policy_find(m, m->want);

	if (!want || !alive(want))
		return;
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++) {
		struct reload_ingress *in = &m->ingress[i];

		if (!in->incarnation || in->killed || in->told == m->want ||
		    !(want->reach & 1ull << i))
			continue;
		in->told = m->want;
		in->told_ns = now;
		in->by_itself = false;
		if (in->standby)
			in->perhaps = in->standby;
		in->standby = 0;
		act(ret, (struct reload_action){.type = RELOAD_DO_ACTIVATE,
						.ingress = in->incarnation,
						.generation = want->generation,
						.policy = m->want});
	}
}

/* Rule 1. */
static bool
acknowledged(const struct reload *m)
{
	bool some = false;

	for (unsigned i = 0; i < RELOAD_INGRESSES; i++) {
		const struct reload_ingress *in = &m->ingress[i];

		if (!in->incarnation)
			continue;
		if (in->asking == m->want)
			some = true;
		else if (in->asking != 0 || in->ready_ns <= m->want_ns)
			return false;   /* a killed one too: until it is dead it may still apply */
	}
	return some;
}

static void
settle(struct reload *m, mono_ns now, struct reload_actions *ret)
{
	struct reload_policy *want = policy_find(m, m->want);

	if (!want || !alive(want) || m->settled || !acknowledged(m))
		return;
	m->settled = true;
	want->asked = true;
	if (!want->opened) {
		want->opened = true;
		act(ret, (struct reload_action){.type = RELOAD_DO_OPEN, .policy = m->want,
						.generation = want->generation});
	}
	if (m->state != RELOAD_SWITCHING)
		return;
	m->serving = m->generation;
	if (m->rolling_back) {
		m->rolling_back = false;
		m->state = RELOAD_IDLE;
		m->old = 0;
		act(ret, (struct reload_action){.type = RELOAD_DO_ROLLED_BACK,
						.generation = m->serving});
		return;
	}
	/* `old` goes with it: a reload that waits ends probation before this is performed. */
	act(ret, (struct reload_action){.type = RELOAD_DO_SERVING, .generation = m->serving,
					.old = m->old});
	m->probation_until_ns = now + m->settings.probation_ns;
	m->state = m->old ? RELOAD_PROBATION : RELOAD_IDLE;
}

static void
end_probation(struct reload *m, struct reload_actions *ret)
{
	m->state = RELOAD_IDLE;
	m->old = 0;
	act(ret, (struct reload_action){.type = RELOAD_DO_SETTLED, .generation = m->serving});
}

/* Is a switch still costing requests something?  What can wait does not compete with it for the
 * CPU. */
static bool
switching_over(struct reload *m)
{
	const struct reload_policy *want = policy_find(m, m->want);

	if (!want || !alive(want))
		return true; /* nobody is asked: nothing is more urgent than a successor */
	if (m->state == RELOAD_LOADING || m->state == RELOAD_SWITCHING || m->pending)
		return false;
	for (unsigned i = 0; i < RELOAD_POLICIES; i++)
		if (alive(&m->policy[i]) && m->policy[i].draining && m->policy[i].asked)
			return false;
	return true;
}

/* Whoever has no part any more goes. */
static void
retire(struct reload *m, mono_ns now, struct reload_actions *ret)
{
	const struct reload_policy *want = policy_find(m, m->want);

	if (!m->settled || !want || !alive(want))
		return;                 /* rule 4; and whom ingresses moved to may be needed */
	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		struct reload_policy *p = &m->policy[i];

		if (!alive(p) || p->draining || p->incarnation == m->want)
			continue;
		if (p->asked ||
		    (p->generation != m->generation && p->generation != m->next &&
		     p->generation != m->old && switching_over(m)))
			drain_policy(p, now, ret);
	}
}

bool
reload_all_ask(const struct reload *m)
{
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++)
		if (m->ingress[i].incarnation && m->ingress[i].asking == 0)
			return false;
	return true;
}

uint32_t
reload_standby(const struct reload *m)
{
	const struct reload_policy *best = NULL;

	for (unsigned i = 0; i < RELOAD_POLICIES; i++) {
		const struct reload_policy *p = &m->policy[i];

		if (fresh(p) && p->ready && p->generation == m->generation &&
		    p->incarnation != m->want && (!best || p->incarnation < best->incarnation))
			best = p;
	}
	return best ? best->incarnation : 0;
}

static void
tell_standby(struct reload *m, struct reload_actions *ret)
{
	struct reload_policy *s = policy_find(m, reload_standby(m));

	if (!m->want)
		return;
	for (unsigned i = 0; i < RELOAD_INGRESSES; i++) {
		struct reload_ingress *in = &m->ingress[i];
		uint32_t to = s && (s->reach & 1ull << i) ? s->incarnation : 0;

		if (!in->incarnation || in->killed || in->told != m->want || in->standby == to)
			continue;
		in->standby = to;
		act(ret, (struct reload_action){.type = RELOAD_DO_STANDBY,
						.ingress = in->incarnation,
						.policy = to,
						.generation = to ? s->generation : 0});
	}
}

static void
respawn(struct reload *m, mono_ns now, struct reload_actions *ret)
{
	const struct reload_policy *want = policy_find(m, m->want);

	/* While a killed one is not dead yet, ingresses may be moving to its standby. */
	if (m->generation == 0 || now < m->respawn_ns || (want && !alive(want)))
		return;
	while (count_useful(m, m->generation) < 1 + m->settings.standby) {
		/* Of a first start or after a death all at once; of a reload the standby comes
		 * last. */
		if (m->serving != 0 && !switching_over(m))
			break;
		if (!spawn(m, now, m->generation, ret))
			break;
	}
}

static void
apply(struct reload *m, mono_ns now, const struct reload_event *event, struct reload_actions *ret)
{
	struct reload_policy *p = policy_find(m, event->policy);
	struct reload_ingress *in = ingress_find(m, event->ingress);

	switch (event->type) {
	case RELOAD_WANTED:
		m->pending = true;
		break;
	case RELOAD_LOADED:
		if (m->state != RELOAD_LOADING)
			break;
		m->next_settings = event->settings;
		if (m->generation == 0) {       /* first start: nothing to switch from */
			m->generation = event->generation;
			m->settings = event->settings;
			m->state = RELOAD_SWITCHING;
			m->respawn_ns = now;
			break;
		}
		m->next = event->generation;
		m->loading_ns = now;
		m->loads = 1;
		spawn(m, now, m->next, ret);
		break;
	case RELOAD_NOT_LOADED:
		if (m->state == RELOAD_LOADING)
			m->state = RELOAD_IDLE;
		break;
	case RELOAD_INGRESS_READY:
		for (unsigned i = 0; i < RELOAD_INGRESSES && !in; i++)
			if (!m->ingress[i].incarnation) {
				in = &m->ingress[i];
				*in = (struct reload_ingress){.incarnation = event->ingress,
							      .ready_ns = now};
			}
		break;
	case RELOAD_INGRESS_GONE:
		if (!in)
			break;
		for (unsigned i = 0; i < RELOAD_POLICIES; i++)
			m->policy[i].reach &= ~(1ull << (in - m->ingress));
		*in = (struct reload_ingress){0};
		break;
	case RELOAD_POLICY_READY:
		if (p)
			p->ready = true;
		break;
	case RELOAD_POLICY_FAILED:
		if (p && m->next && p->generation == m->next)
			refuse(m, now, "its policy process refused it", ret);
		else if (p && m->serving == 0)
			act(ret, (struct reload_action){.type = RELOAD_DO_REFUSE,
							.generation = p->generation,
							.why = "its policy process refused it"});
		break;
	case RELOAD_POLICY_GONE:
		if (p)
			on_policy_gone(m, now, p);
		break;
	case RELOAD_REACHABLE:
		if (p && in)
			p->reach |= 1ull << (in - m->ingress);
		break;
	case RELOAD_ACTIVE:
		if (in)
			on_active(m, now, in, event->policy, ret);
		break;
	case RELOAD_HOLE:
		if (p && alive(p))
			kill_policy(p, "left a hole in its answers to an ingress", ret);
		break;
	case RELOAD_STOP:
		m->pending = false;
		if (m->state == RELOAD_LOADING && m->next != 0)
			refuse(m, now, "policies were frozen before it was in force", ret);
		break;
	case RELOAD_TICK:
		break;
	}
}

void
reload_step(struct reload *m, mono_ns now, const struct reload_event *event,
	    struct reload_actions *ret)
{
	ret->n = 0;
	apply(m, now, event, ret);
	watch(m, now, ret);
	load(m, now, ret);
	choose(m, now);
	tell(m, now, ret);
	settle(m, now, ret);
	if (m->state == RELOAD_PROBATION && (m->pending || now >= m->probation_until_ns) &&
	    m->settled)
		end_probation(m, ret);
	retire(m, now, ret);
	tell_standby(m, ret);
	respawn(m, now, ret);
	if (m->state == RELOAD_IDLE && m->pending)
		begin_load(m, ret);
}

bool
reload_busy(const struct reload *m)
{
	if (m->state != RELOAD_IDLE || !m->settled || m->pending)
		return true;
	for (unsigned i = 0; i < RELOAD_POLICIES; i++)
		if (m->policy[i].draining || m->policy[i].killed)
			return true;
	return count_useful(m, m->generation) < 1 + m->settings.standby;
}
