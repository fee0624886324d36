/* tests/race/ledger_policy.c -- a policy process of the small world, as decisions.c and
 * evaluate.c treat questions; see ledger_world.h. */
#include "tests/race/ledger_world.h"

#include <stdlib.h>
#include <string.h>

/* ---- a policy process, as decisions.c and evaluate.c treat questions ---- */

static void
say(struct policy *p, uint32_t in, const struct note *n)
{
	put(&p->out[in], n);
}

static bool
current(const struct view_ingress *from, const struct note *ask, uint32_t *ret_request)
{
	const struct slot *s = &from->slots.slot[ask->slot];
	uint64_t word = atomic_load_explicit(&s->word, memory_order_acquire);

	if (slot_generation(word) != ask->gen || slot_ask(word) != ask->ask ||
	    (slot_state(word) != SLOT_ASKED && slot_state(word) != SLOT_HELD))
		return false;
	*ret_request = (uint32_t)s->body_hash;
	return true;
}

static void
decide(struct policy *p, uint32_t in, const struct note *ask, bool may_wait)
{
	struct view_ingress *from = p->from[in];
	struct view_load load[ROWS];
	uint32_t row_gen[ROWS], row = NOBODY, request;
	struct note a = {.id = MSG_answer, .slot = ask->slot, .gen = ask->gen, .ask = ask->ask};
	struct msg_ask key = {.slot = ask->slot, .slot_gen = ask->gen, .ask = ask->ask};
	struct waiting w = {.from = from, .ask = key};
	uint64_t began = ++world.clock;

	if (!current(from, ask, &request))
		return;
	if (may_wait && draw(12) == 0) {        /* its tokens are being fetched */
		w.for_tokens = true;
		if (waiting_add(&p->waiting, &w) < 0)
			abort();
		return;
	}
	p->reading = *ask;
	p->reading_of = in;
	a.request = request;
	view_settle(&p->view);          /* watermarks, then cells, then overlay */
	for (unsigned i = 0; i < ROWS; i++) {
		row_gen[i] = world.row_gen[i];
		view_load(&p->view, (uint16_t)i, row_gen[i], 0, true, &load[i]);
	}
	judge(p, load, row_gen, began);
	if (world.ingress[in].alive && world.ingress[in].ask.active < ASK_POLICIES &&
	    world.ingress[in].ask.policy[world.ingress[in].ask.active].inc == p->inc)
		world.count.decisions++;
	if (may_wait && draw(12) == 0) {
		a.verdict = VERDICT_HOLD;
		p->held[p->n_held++] = w;
	} else {
		unsigned at = draw(ROWS);

		for (unsigned i = 0; i < ROWS && a.n < 2; i++, at = (at + 1) % ROWS)
			if (world.intent[at] == INTENT_SERVE) {
				a.to[a.n].row = (uint16_t)at;
				a.to[a.n++].row_gen = row_gen[at];
			}
		a.verdict = a.n && draw(20) ? VERDICT_CHOOSE : VERDICT_REJECT;
		a.n = a.verdict == VERDICT_CHOOSE ? a.n : 0;
	}
	if (a.n)
		row = a.to[0].row;
	a.number = overlay_push(p->view.overlay, from->stream,
				a.n ? (uint16_t)row : OVERLAY_NO_ROW, a.n ? row_gen[row] : 0,
				a.n ? weight(request) : 0, (uint32_t)world.clock);
	if (a.number == 0)
		abort();
	say(p, in, &a);
	p->reading.slot = 0;
}

static uint32_t
ingress_of(const struct policy *p, const struct view_ingress *from)
{
	for (uint32_t i = 0; i < world.n_ingress; i++)
		if (p->from[i] == from)
			return i;
	return NOBODY;
}

static void
decide_waiting(struct policy *p, bool for_tokens)
{
	size_t most = p->waiting.n;
	struct waiting w;

	while (most-- > 0 && waiting_first(&p->waiting, for_tokens, NULL, &w)) {
		struct note n = {.id = MSG_ask, .slot = w.ask.slot, .gen = w.ask.slot_gen,
				 .ask = w.ask.ask};

		decide(p, ingress_of(p, w.from), &n, !world.settling && !for_tokens);
	}
}

static void
open_if_complete(struct policy *p)
{
	if (p->deciding || !p->opened)
		return;
	for (uint32_t i = 0; i < world.n_ingress; i++)
		if (p->from[i] && !p->resent[i])
			return;
	p->deciding = true;
	decide_waiting(p, false);
}

static void
take_held(struct policy *p, const struct view_ingress *from, uint32_t slot)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < p->n_held; i++)
		if (p->held[i].from != from || (slot != 0 && p->held[i].ask.slot != slot))
			p->held[kept++] = p->held[i];
	p->n_held = kept;
}

void
policy_hear(struct policy *p, uint32_t in)
{
	struct note n;

	if (!p->from[in] || !take(&p->in[in], &n))
		return;
	if (n.id == MSG_resent) {
		p->resent[in] = true;
		open_if_complete(p);
		return;
	}
	if (n.id != MSG_ask && n.id != MSG_cancel)
		return;                 /* probe */
	waiting_take(&p->waiting, p->from[in], n.slot);
	take_held(p, p->from[in], n.slot);
	if (n.id == MSG_cancel) {
		n.id = MSG_cancelled;
		say(p, in, &n);
	} else if (p->deciding) {
		decide(p, in, &n, !world.settling);
	} else {
		struct waiting w = {
			.from = p->from[in],
			.ask = {.slot = n.slot, .slot_gen = n.gen, .ask = n.ask},
		};

		if (waiting_add(&p->waiting, &w) < 0)
			abort();
	}
}

void
policy_forget(struct policy *p, uint32_t in)
{
	if (!p->from[in])
		return;
	waiting_forget(&p->waiting, p->from[in]);
	take_held(p, p->from[in], 0);
	view_remove(&p->view, p->from[in]);
	p->from[in] = NULL;
	p->in[in].head = p->in[in].tail;
}

static void
policy_segment(struct policy *p, uint32_t in)
{
	struct ingress *i = &world.ingress[in];
	struct view_ingress *v = calloc(1, sizeof *v), *half = v;
	struct note n = {.id = MSG_probed};

	if (!v)
		abort();
	v->index = i->index;
	v->incarnation = i->inc;
	v->column = i->column;
	v->slots = i->slots;
	if (view_add(&p->view, &half) < 0)
		abort();
	p->from[in] = v;
	say(p, in, &n);
}

void
policy_die(struct policy *p)
{
	struct note n = {.id = NOTE_PIDFD, .ask = p->inc};

	p->alive = false;
	p->reading.slot = 0;
	for (uint32_t i = 0; i < world.n_ingress; i++) {
		policy_forget(p, i);
		if (world.ingress[i].alive)
			put(&world.ingress[i].control, &n);
	}
	p->waiting.n = 0;
	p->n_held = 0;
	p->control.head = p->control.tail;
}

/* Everybody who asked it asks somebody else by now.  What is owed is said. */
static void
policy_drain(struct policy *p)
{
	struct waiting w;

	for (uint32_t i = 0; i < world.n_ingress; i++)
		while (p->from[i] && !empty(&p->in[i]))
			policy_hear(p, i);
	decide_waiting(p, true);
	while (waiting_first(&p->waiting, false, NULL, &w) ||
	       waiting_first(&p->waiting, true, NULL, &w)) {
		struct note n = {.id = MSG_cancelled, .slot = w.ask.slot, .gen = w.ask.slot_gen,
				 .ask = w.ask.ask};

		say(p, ingress_of(p, w.from), &n);
	}
	policy_die(p);
}

void
policy_control(struct policy *p, uint32_t unused)
{
	struct note n;

	(void)unused;
	while (p->alive && take(&p->control, &n))
		switch (n.id) {
		case MSG_segment:
			policy_segment(p, n.ask);
			break;
		case MSG_gone:
			policy_forget(p, n.ask);
			open_if_complete(p);
			break;
		case MSG_open:
			p->opened = true;
			open_if_complete(p);
			break;
		case MSG_drain:
			policy_drain(p);
			return;
		}
}

void
policy_wait_over(struct policy *p, uint32_t late)
{
	if (!p->deciding && p->waiting.n > 0 && late) {         /* 100 ms without OPEN */
		p->deciding = p->late = true;
		world.count.late++;
		decide_waiting(p, false);
	}
	decide_waiting(p, true);
	for (unsigned n = p->n_held; n > 0 && p->deciding; n--) {
		struct waiting w = p->held[0];
		struct note ask = {.id = MSG_ask, .slot = w.ask.slot, .gen = w.ask.slot_gen,
				   .ask = w.ask.ask};

		memmove(p->held, p->held + 1, --p->n_held * sizeof w);
		decide(p, ingress_of(p, w.from), &ask, false);
	}
}
