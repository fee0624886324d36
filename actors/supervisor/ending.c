/* actors/supervisor/ending.c -- the set goes: first the ingresses, then what they need.
 *
 * Requests under way are served to their end, up to the gateway's drain limit; policy, kvevents,
 * metrics and admin stay until the last ingress is gone.
 */
#include "actors/supervisor/supervisor.h"

#define MS 1000000ull
#define OTHERS_DRAIN_NS (5000 * MS)     /* kvevents, metrics, admin, policy owe nothing long */

void
supervisor_stop(struct supervisor *s, int exit_code)
{
	const struct config *shown = generation_shown(s);
	uint64_t limit = shown ? shown->manifest->gateway.timeouts.drain_ns : OTHERS_DRAIN_NS;
	mono_ns now = clock_mono();

	if (s->draining)
		return;
	log_info("supervisor: serving -> draining, %llu s at most",
		 (unsigned long long)(limit / 1000 / MS));
	s->draining = true;
	s->drain_stage = 1;
	s->drain_deadline_ns = now + limit;
	s->exit_code = exit_code;
	atomic_store_explicit(&s->roster.head->draining, 1, memory_order_release);
	supervisor_roster_touch(s);
	unborn_drop(s);
	listeners_close(s); /* closed for good when the last ingress has swept its own */
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->role == ROLE_INGRESS)
			child_drain(s, s->child[i], s->drain_deadline_ns);
}

void
supervisor_stop_hard(struct supervisor *s)
{
	if (s->hard)
		return;
	log_warn("supervisor: draining -> ending at once, open streams are cut");
	s->hard = true;
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i])
			child_kill(s->child[i], "was to end at once");
}

bool
supervisor_drained(struct supervisor *s, mono_ns now)
{
	bool ingress = false, any = false;

	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		any |= s->child[i] != NULL;
		ingress |= s->child[i] && s->child[i]->role == ROLE_INGRESS;
	}
	if (s->drain_stage == 1 && !ingress) {
		s->drain_stage = 2;
		for (unsigned i = 0; i < CHILDREN_MAX; i++)
			if (s->child[i])
				child_drain(s, s->child[i], now + OTHERS_DRAIN_NS);
	}
	return !any;
}
