/* tests/race/race_ledger.c -- random schedules over the real ledger: no policy process ever decides
 * without having seen a request that is in flight, and in the end nothing is left anywhere.
 *
 * A schedule is a seed: some 60 to 220 actions of ingresses, policy processes and the supervisor
 * (requests, answers, retries, clients gone, kills between any two stores, reloads, rollbacks,
 * ingresses replaced, rows removed and added again), then everything is heard to the end.
 * Rules      are written as sentences at each RULE.  Tolerated, and counted: a process that began
 *            after 100 ms without OPEN misses what another's answers do (missed_late), and a scan
 *            during which a charge moves from a row not yet read to one already read: by a retry
 *            (missed_move), or because the row it was announced on is gone (missed_elsewhere).
 * Usage: race_ledger [schedules] [first seed]
 */
#include "tests/race/ledger_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ACTIONS_MIN 60u
#define ACTIONS_MORE 161u
#define SETTLE_ROUNDS 400u
#ifdef __SANITIZE_ADDRESS__
#define SCHEDULES 30000u
#else
#define SCHEDULES 1000000u
#endif

static bool
other_is_late(const struct policy *p, uint32_t decider_inc)
{
	for (uint32_t i = 0; i < world.n_policies; i++)
		if (world.policy[i].inc == decider_inc)
			return p->inc != decider_inc && (p->late || world.policy[i].late);
	return false;
}

/* The answer on its way that will be applied to r if nothing happens to it first. */
static const struct note *
on_its_way(const struct request *r, uint32_t *ret_decider)
{
	const struct ingress *in = &world.ingress[r->in];
	const struct ask_entry *e = &in->ask.entry[r->slot];
	uint16_t ask = slot_ask(atomic_load(&in->slots.slot[r->slot].word));

	if ((e->state != ASK_ASKED && e->state != ASK_HELD) || e->policy >= ASK_POLICIES ||
	    in->ask.policy[e->policy].closed)
		return NULL;
	*ret_decider = in->ask.policy[e->policy].inc;
	for (uint32_t i = 0; i < world.n_policies; i++) {
		const struct queue *q = &world.policy[i].out[r->in];

		if (world.policy[i].inc != *ret_decider)
			continue;
		for (unsigned k = q->head; k != q->tail; k++) {
			const struct note *n = &q->note[k % QUEUE];

			if (n->id == MSG_answer && n->verdict == VERDICT_CHOOSE &&
			    n->slot == r->slot && n->gen == r->slot_gen && n->ask == ask)
				return n;
		}
	}
	return NULL;
}

void
judge(const struct policy *p, const struct view_load load[ROWS], const uint32_t row_gen[ROWS],
      uint64_t began)
{
	const struct ingress *to = &world.ingress[p->reading_of];
	uint64_t missed = 0;

	/* A decision that will be discarded may be as wrong as it likes. */
	if (!to->alive || to->ask.active == ASK_POLICIES ||
	    to->ask.policy[to->ask.active].inc != p->inc)
		return;
	for (uint32_t id = 0; id < world.n_requests; id++) {
		const struct request *r = &world.request[id];
		const struct ingress *in = &world.ingress[r->in];
		bool moved = r->moved > began;
		uint32_t decider = r->policy_inc, row, gen;
		const struct note *n = NULL;
		unsigned seen = 0;

		for (unsigned k = 0; k < ROWS; k++)
			seen += times(load[k].pending, id) + times(load[k].context, id);
		RULE(seen <= 2u + (moved || r->moving),
		     "no request is counted more than once too often", id);
		world.count.doubled += seen > 1;
		if (r->over || in->gone_said)
			continue;
		if (r->charged) {
			row = r->charge.slot->row;
			gen = r->charge.slot->row_gen;
		} else if (in->alive && r->decided && !r->sent && r->candidate == 0) {
			row = r->answer.to[0].row;      /* being charged right now */
			gen = r->answer.to[0].row_gen;
		} else if (in->alive && !r->decided && (n = on_its_way(r, &decider))) {
			row = n->to[0].row;
			gen = n->to[0].row_gen;
		} else {
			continue;
		}
		if (row_gen[row] != gen || world.row_gen[row] != gen ||
		    world.row_changed[row] > began)
			continue;               /* another row by now */
		if (times(load[row].pending, id) + times(load[row].context, id) > 0) {
			world.count.seen++;
		} else if (moved) {
			world.count.missed_move++;
		} else if (r->charged && r->candidate > 0 && r->applied > began) {
			world.count.missed_elsewhere++;
		} else {
			RULE(other_is_late(p, decider) && (!r->charged || r->applied > began),
			     "every request in flight is seen by every decision", id);
			missed++;
		}
	}
	world.count.missed_late += missed;
	if (missed > world.count.missed_most)
		world.count.missed_most = missed;
}

/* Nothing is on its way: every sum is exact, on the right row. */
static void
judge_quiet(const struct policy *p)
{
	struct view_load load, want[ROWS] = {{0}};

	for (uint32_t id = 0; id < world.n_requests; id++) {
		const struct request *r = &world.request[id];
		const struct slot *slot = r->charge.slot;

		if (r->over || slot->phase == PHASE_NONE ||
		    slot->row_gen != world.row_gen[slot->row])
			continue;
		RULE(r->charged, "only what was applied is charged", id);
		if (slot->phase == PHASE_PREFILL) {
			want[slot->row].pending += weight(id);
			want[slot->row].prefilling++;
		} else {
			want[slot->row].context += weight(id);
			want[slot->row].decoding++;
		}
	}
	view_settle((struct view *)(uintptr_t)&p->view);
	RULE(overlay_length(p->view.overlay) == 0, "the overlay is empty when all is heard",
	     NOBODY);
	for (unsigned row = 0; row < ROWS; row++) {
		view_load(&p->view, (uint16_t)row, world.row_gen[row], 0, true, &load);
		RULE(load.pending == want[row].pending && load.context == want[row].context &&
			     load.prefilling == want[row].prefilling &&
			     load.decoding == want[row].decoding,
		     "when all is heard every sum is exact", NOBODY);
	}
}

/* The self-check of the product finds nothing wrong, at any time. */
static void
judge_books(void)
{
	bool settling = world.settling;
	uint64_t loads = world.loads;

	world.settling = true;          /* nobody runs in between */
	for (uint32_t i = 0; i < world.n_ingress; i++)
		for (uint16_t row = 0; row < ROWS && world.ingress[i].alive; row++)
			RULE(ledger_check(&world.ingress[i].ledger, &world.ingress[i].slots, SLOTS,
					  row) == 0,
			     "the books are the sums over the slots", NOBODY);
	world.settling = settling;
	world.loads = loads;
}

static void
settle(void)
{
	unsigned rounds = 0;

	while (world_settle() && rounds++ < SETTLE_ROUNDS)
		;
	RULE(rounds < SETTLE_ROUNDS, "the processes come to rest", NOBODY);
}

static void
judge_end(void)
{
	for (uint32_t i = 0; i < world.n_ingress; i++) {
		const struct ingress *in = &world.ingress[i];
		uint64_t left = 0;

		for (unsigned row = 0; row < ROWS; row++) {
			struct cell_values v;

			cell_read(&in->column.cell[row],
				  (uint32_t)(atomic_load(&in->column.cell[row].word) >> 32), &v);
			left += v.pending + v.context + v.prefilling + v.decoding;
			left += in->alive && (in->ledger.row[row].oldest != NULL);
		}
		RULE(left == 0, "every cell is zero at the end", NOBODY);
		for (uint32_t s = 1; s <= SLOTS; s++)
			left += slot_state(atomic_load(&in->slots.slot[s].word)) != SLOT_FREE;
		RULE(left == 0, "every slot is free at the end", NOBODY);
		RULE(in->ledger.underflows == 0, "nothing is released twice", NOBODY);
		if (!in->alive)
			continue;
		for (uint32_t s = 1; s <= SLOTS; s++)
			left += in->ask.entry[s].readers || in->ask.entry[s].cancel_owed;
		RULE(left == 0, "no process owes an end at the end", NOBODY);
		RULE(in->arena.used == 0 && in->n_free == SLOTS,
		     "every byte of the arena is back at the end", NOBODY);
	}
	for (uint32_t k = 0; k < world.n_policies; k++) {
		const struct policy *p = &world.policy[k];

		if (!p->alive)
			continue;
		view_settle((struct view *)(uintptr_t)&p->view);
		for (uint16_t row = 0; row < ROWS; row++) {
			struct overlay_charge c =
				overlay_row(p->view.overlay, row, world.row_gen[row]);

			RULE(c.pending == 0 && c.prefilling == 0,
			     "every overlay is zero at the end", NOBODY);
		}
		RULE(overlay_length(p->view.overlay) == 0, "every overlay is empty at the end",
		     NOBODY);
	}
	for (uint32_t id = 0; id < world.n_requests; id++)
		RULE(world.request[id].ends == 1, "each request has exactly one end", id);
}

static bool
schedule(uint64_t seed)
{
	world_begin(seed);
	for (unsigned n = ACTIONS_MIN + draw(ACTIONS_MORE); n > 0 && !world.bad; n--) {
		world_step();
		if (n % 16 == 0)
			judge_books();
	}
	world.settling = true;
	settle();
	judge_books();
	if (!world.bad && world.want != NOBODY && world.policy[world.want].alive)
		judge_quiet(&world.policy[world.want]);
	for (uint32_t id = 0; id < world.n_requests && !world.bad; id++) {
		const struct request *r = &world.request[id];

		if (!r->over && world.ingress[r->in].alive)
			request_finish(id);
	}
	if (!world.bad)
		settle();
	if (!world.bad)
		judge_end();
	world_end();
	return !world.bad;
}

static bool
covered(void)
{
	const uint64_t *count[] = {
		&world.count.seen, &world.count.moves, &world.count.again, &world.count.withdrawn,
		&world.count.killed_ingress, &world.count.killed_policy, &world.count.crash_points,
		&world.count.crashes, &world.count.swaps, &world.count.rollbacks,
		&world.count.replaced, &world.count.readded, &world.count.late,
		&world.count.doubled, &world.count.missed_late, &world.count.missed_move,
	};

	for (unsigned i = 0; i < sizeof count / sizeof count[0]; i++)
		if (*count[i] == 0)
			return false;
	return true;
}

int
main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : SCHEDULES;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct timespec t0, t1;

	if (!world_open())
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (uint64_t seed = first; seed < first + n; seed++)
		if (!schedule(seed)) {
			printf("seed %lu request %u: broken: %s\n", (unsigned long)seed,
			       world.bad_request, world.bad);
			return 1;
		}
	clock_gettime(CLOCK_MONOTONIC, &t1);
	world_close();
#define COUNT(name) #name " %lu ", (unsigned long)world.count.name
	printf("schedules %lu in %.1f s: ", (unsigned long)n,
	       (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9);
	printf(COUNT(requests)), printf(COUNT(decisions)), printf(COUNT(seen));
	printf(COUNT(applied)), printf(COUNT(moves)), printf(COUNT(again));
	printf(COUNT(withdrawn)), printf(COUNT(crashes)), printf(COUNT(swaps));
	printf(COUNT(rollbacks)), printf(COUNT(replaced)), printf(COUNT(readded));
	printf(COUNT(killed_policy)), printf(COUNT(killed_ingress)), printf(COUNT(crash_points));
	printf(COUNT(nested_store)), printf(COUNT(nested_load)), printf(COUNT(late));
	printf(COUNT(doubled)), printf(COUNT(missed_late)), printf(COUNT(missed_most));
	printf(COUNT(missed_move)), printf(COUNT(missed_elsewhere)), printf("\n");
	if (n >= 20000 && !covered()) {
		printf("something that should happen never did\n");
		return 1;
	}
	return 0;
}
