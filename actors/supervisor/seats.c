/* actors/supervisor/seats.c -- places that are always to be filled: every role but policy.
 *
 * Refill     whoever leaves a seat is replaced, with a back-off from the second death on.
 * Adoption   a dead ingress's sockets still take their share of new connections: a neighbour
 *            accepts there until the successor is READY.
 * Replace    SIGUSR2: each ingress gets a successor of the program file as it is now, on the same
 *            listening sockets; the predecessor serves until the successor has a policy process
 *            to ask, and is then drained.  A successor that dies before that leaves the seat to
 *            its predecessor.
 */
#include "actors/supervisor/supervisor.h"

#include <stdio.h>
#include <stdlib.h>

#define MS 1000000ull
#define BACKOFF_FIRST_NS (100 * MS)
#define BACKOFF_MAX_NS  (5000 * MS)
#define BACKOFF_RESET_NS (60000 * MS)

struct seat *
seat_of(struct supervisor *s, enum process_role role, uint32_t index)
{
	for (unsigned i = 0; i < s->n_seats; i++)
		if (s->seat[i].role == role && s->seat[i].index == index)
			return &s->seat[i];
	return NULL;
}

void
seats_make(struct supervisor *s, const struct manifest *manifest)
{
	static const enum process_role single[] = {ROLE_KVEVENTS, ROLE_METRICS, ROLE_ADMIN};
	uint32_t n = manifest->gateway.ingresses;

	s->seat = calloc(n + 3, sizeof *s->seat);
	if (!s->seat)
		log_fatal("out of memory");
	for (uint32_t i = 0; i < n; i++)
		s->seat[s->n_seats++] = (struct seat){.role = ROLE_INGRESS, .index = i};
	for (unsigned i = 0; i < 3; i++)
		s->seat[s->n_seats++] = (struct seat){.role = single[i]};
}

/* 0, or -errno with the seat as it was. */
static int
seat_spawn(struct supervisor *s, struct seat *seat)
{
	uint32_t before = seat->incarnation, incarnation = reload_incarnation(&s->reload);
	int r;

	seat->incarnation = incarnation;
	r = child_spawn(s, seat->role, seat->index, incarnation, generation_shown(s)->generation);
	if (r < 0)
		seat->incarnation = before;
	return r;
}

static void
seat_fill(struct supervisor *s, struct seat *seat)
{
	if (seat->last_exit[0] != 0) {
		seat->restarts++;
		count_add(&s->process, COUNTER_children_restarted, 1);
	}
	if (seat_spawn(s, seat) == 0)
		return;
	seat->backoff_ns = BACKOFF_MAX_NS;
	seat->restart_ns = clock_mono() + seat->backoff_ns;
	snprintf(seat->last_exit, sizeof seat->last_exit, "could not be started");
}

void
seat_left(struct supervisor *s, const struct child *c, const char *why)
{
	struct seat *seat = seat_of(s, c->role, c->index);
	mono_ns now = clock_mono();

	if (seat && seat->predecessor == c->incarnation)
		seat->predecessor = 0;          /* its successor comes anyway */
	if (!seat || seat->incarnation != c->incarnation)
		return;
	if (seat->predecessor) {
		seat->incarnation = seat->predecessor;
		seat->predecessor = 0;
		log_error("replace role=%s index=%u: refused, because the successor died before "
			  "it was ready, %s; incarnation %u serves on",
			  process_role_name(c->role), c->index, why, seat->incarnation);
		return;
	}
	if (now - c->born_ns > BACKOFF_RESET_NS)
		seat->backoff_ns = 0;
	seat->incarnation = 0;
	seat->restart_ns = now + seat->backoff_ns;
	seat->backoff_ns = seat->backoff_ns ? 2 * seat->backoff_ns : BACKOFF_FIRST_NS;
	if (seat->backoff_ns > BACKOFF_MAX_NS)
		seat->backoff_ns = BACKOFF_MAX_NS;
	snprintf(seat->last_exit, sizeof seat->last_exit, "%.127s", why);
	if (!s->draining)
		log_info("seat role=%s index=%u: restart in %llu ms", process_role_name(c->role),
			 c->index, (unsigned long long)((seat->restart_ns - now) / MS));
}

void
seat_ready(struct supervisor *s, struct child *c)
{
	struct seat *seat = seat_of(s, c->role, c->index);
	struct msg_unadopt m = {.index = c->index};
	struct child *neighbour;

	if (!seat || seat->incarnation != c->incarnation)
		return;
	neighbour = child_find(s, seat->adopter);
	seat->adopter = 0;
	if (neighbour)
		child_send(s, neighbour, MSG_unadopt, &m, -1);
}

/* Not before it has a policy process to ask: were we to die in between, nobody would give it one,
 * and the one that can answer would be gone. */
void
seat_active(struct supervisor *s, const struct child *c)
{
	struct seat *seat = seat_of(s, c->role, c->index);
	struct child *predecessor;

	if (!seat || seat->incarnation != c->incarnation || !seat->predecessor)
		return;
	predecessor = child_find(s, seat->predecessor);
	seat->predecessor = 0;
	if (predecessor) {
		uint64_t limit = generation_shown(s)->manifest->gateway.timeouts.drain_ns;

		log_info("replace role=%s index=%u: incarnation %u -> %u, the old one ends its "
			 "requests within %llu s", process_role_name(c->role), c->index,
			 predecessor->incarnation, c->incarnation,
			 (unsigned long long)(limit / (1000 * MS)));
		count_add(&s->process, COUNTER_replacements, 1);
		child_drain(s, predecessor, clock_mono() + limit);
	}
}

void
seats_replace(struct supervisor *s)
{
	for (unsigned i = 0; i < s->n_seats; i++) {
		struct seat *seat = &s->seat[i];
		struct child *sitting = child_find(s, seat->incarnation);
		int r;

		if (seat->role != ROLE_INGRESS)
			continue;
		if (!sitting || sitting->state != ROSTER_READY || sitting->killed ||
		    child_find(s, seat->predecessor)) {
			log_warn("replace role=ingress index=%u: left out, because its process is "
				 "only just starting", seat->index);
			continue;
		}
		r = seat_spawn(s, seat);        /* logs what is wrong */
		if (r == 0)
			seat->predecessor = sitting->incarnation;
		else
			log_error("replace role=ingress index=%u: refused; incarnation %u serves "
				  "on", seat->index, sitting->incarnation);
	}
}

static void
adopt(struct supervisor *s)
{
	for (unsigned i = 0; i < s->n_seats; i++) {
		struct seat *seat = &s->seat[i];
		struct child *sitting = child_find(s, seat->incarnation);
		struct msg_adopt m = {.index = seat->index};

		/* At the first start they all come by themselves: last_exit is empty. */
		if (seat->role != ROLE_INGRESS || !seat->last_exit[0] ||
		    (sitting && sitting->state == ROSTER_READY) || child_find(s, seat->adopter) ||
		    child_find(s, seat->predecessor))
			continue;
		seat->adopter = 0;
		for (unsigned k = 0; k < CHILDREN_MAX && !seat->adopter; k++) {
			struct child *c = s->child[k];

			if (!c || c->role != ROLE_INGRESS || c->state != ROSTER_READY ||
			    c->killed || c->index == seat->index)
				continue;
			seat->adopter = c->incarnation;
			child_send(s, c, MSG_adopt, &m, -1);
			log_info("listener index=%u: waits -> accepted by ingress %u", seat->index,
				 c->index);
		}
	}
}

void
seats_tick(struct supervisor *s, mono_ns now)
{
	for (unsigned i = 0; i < s->n_seats; i++)
		if (!s->seat[i].incarnation && now >= s->seat[i].restart_ns)
			seat_fill(s, &s->seat[i]);
	adopt(s);
}

mono_ns
seats_next(const struct supervisor *s)
{
	mono_ns next = 0;

	for (unsigned i = 0; !s->draining && i < s->n_seats; i++)
		if (!s->seat[i].incarnation && (!next || s->seat[i].restart_ns < next))
			next = s->seat[i].restart_ns ? s->seat[i].restart_ns : 1;
	return next;
}
