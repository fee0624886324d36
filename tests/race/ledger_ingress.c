/* tests/race/ledger_ingress.c -- an ingress of the small world, as request.c, relay.c and
 * ingress.c treat requests; see ledger_world.h. */
#include "tests/race/ledger_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS   3600000000000ull    /* nothing times out here: see test_ask */
#define FIRST_SLOT  1u

/* ---- requests, as request.c and relay.c treat them ---- */

static void
slot_free(struct ingress *me, uint32_t slot)
{
	struct slot *s = &me->slots.slot[slot];
	uint64_t word = atomic_load_explicit(&s->word, memory_order_relaxed);

	arena_free(&me->arena, me->region[slot], me->region_cap[slot]);
	me->region[slot] = 0;
	atomic_store_explicit(&s->word, slot_word(slot_generation(word), 0, SLOT_FREE, 0),
			      memory_order_release);
	me->free_slot[me->n_free++] = slot;
}

void
request_finish(uint32_t id)
{
	struct request *r = &world.request[id];
	struct ingress *me = &world.ingress[r->in];

	RULE(!r->over, "a request ends once", id);
	r->over = true;
	r->ends++;
	r->charged = false;
	ledger_release(&me->ledger, &r->charge);
	me->live[r->slot] = NOBODY;
	if (me->ask.entry[r->slot].state == ASK_NONE)
		slot_free(me, r->slot);
	else
		ask_end(&me->ask, r->slot, world.now);
}

static bool
seek(struct request *r, unsigned from)
{
	for (unsigned i = from; i < r->answer.n; i++) {
		uint16_t row = r->answer.to[i].row;

		if (world.row_gen[row] != r->answer.to[i].row_gen ||
		    (world.intent[row] != INTENT_SERVE && world.intent[row] != INTENT_DRAIN))
			continue;
		r->candidate = i;
		return true;
	}
	return false;
}

static void
go(uint32_t id)
{
	struct request *r = &world.request[id];
	struct ingress *me = &world.ingress[r->in];
	struct slot *slot = r->charge.slot;
	uint16_t row = r->answer.to[r->candidate].row;
	uint32_t row_gen = r->answer.to[r->candidate].row_gen;

	r->attempts++;
	if (slot->phase == PHASE_NONE || slot->row != row || slot->row_gen != row_gen) {
		r->moving = slot->phase != PHASE_NONE;
		ledger_charge(&me->ledger, &r->charge, row, row_gen, weight(id), weight(id),
			      r->answer.number, world.now);
		if (r->moving) {
			r->moved = ++world.clock;
			world.count.moves++;
		}
		r->moving = false;
	}
	r->charged = true;
}

static void
ask_again(uint32_t id)
{
	struct request *r = &world.request[id];
	struct ingress *me = &world.ingress[r->in];

	r->charged = r->decided = r->sent = r->first = false;
	ledger_release(&me->ledger, &r->charge);
	world.count.again++;
	ask_put(&me->ask, r->slot, world.now);
}

static void
retry(uint32_t id)
{
	struct request *r = &world.request[id];
	struct ingress *me = &world.ingress[r->in];

	if (r->attempts >= 2) {
		request_finish(id);
	} else if (!ask_list_valid(&me->ask, r->policy_gen)) {
		ask_again(id);
	} else if (seek(r, r->candidate + 1)) {
		r->first = false;
		go(id);
	} else if (draw(2)) {           /* a stale connection: the same worker again */
		r->first = false;
		go(id);
	} else {
		request_finish(id);
	}
}

/* The next thing that happens to it upstream. */
static void
progress(struct ingress *me, uint32_t id)
{
	struct request *r = &world.request[id];

	if (me->ask.entry[r->slot].state == ASK_NONE && !r->sent) {
		ask_put(&me->ask, r->slot, world.now);          /* the body is complete */
	} else if (!r->decided) {
		return;
	} else if (!r->sent) {
		if (draw(5) == 0) {
			retry(id);              /* not reached */
			return;
		}
		ask_sent(&me->ask, r->slot);
		r->sent = true;
	} else if (!r->first) {
		if (draw(4) == 0) {
			retry(id);              /* 503, or a stale connection */
			return;
		}
		r->first = true;
		ledger_first_byte(&me->ledger, &r->charge, world.now);
	} else {
		request_finish(id);
	}
}

static void
open_request(struct ingress *me, uint32_t id)
{
	struct request *r = &world.request[id];
	uint32_t slot = me->free_slot[--me->n_free];
	struct slot *s = &me->slots.slot[slot];
	uint32_t generation =
		slot_generation(atomic_load_explicit(&s->word, memory_order_relaxed)) + 1;

	me->region[slot] = arena_alloc(&me->arena, 5000, &me->region_cap[slot]);
	if (me->region[slot] == 0)
		abort();
	memset((char *)s + sizeof s->word, 0, sizeof *s - sizeof s->word);
	s->request_id = (uint64_t)me->inc << 40 | id;
	s->body_hash = id;
	s->row = ROW_NONE;
	atomic_store_explicit(&s->word, slot_word(generation, 0, SLOT_READ, 0),
			      memory_order_release);
	*r = (struct request){.used = true, .in = (uint32_t)(me - world.ingress), .slot = slot,
			      .slot_gen = generation, .charge.slot = s};
	me->live[slot] = id;
	world.count.requests++;
	if (draw(8))
		ask_put(&me->ask, slot, world.now);
}

/* ---- what ask wants done ---- */

static bool
holds(const struct waiting *list, size_t n, const struct view_ingress *from, uint32_t slot,
      uint32_t generation)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].from == from && list[i].ask.slot == slot &&
		    list[i].ask.slot_gen == generation)
			return true;
	return false;
}

static int
op_send(void *arg, uint32_t gen, uint32_t inc, enum msg_id id, const void *msg)
{
	struct ingress *me = arg;
	uint32_t p = policy_by_inc(inc), in = (uint32_t)(me - world.ingress);
	const struct msg_ask *m = msg;
	struct note n = {.id = (uint8_t)id};

	(void)gen;
	if (p == NOBODY || !world.policy[p].alive || !world.policy[p].from[in])
		return -EHOSTUNREACH;
	if (!world.settling && draw(40) == 0)
		return -EAGAIN;
	if (id == MSG_ask || id == MSG_cancel) {
		n.slot = m->slot;
		n.gen = m->slot_gen;
		n.ask = m->ask;
	}
	put(&world.policy[p].in[in], &n);
	return 0;
}

static void
op_tell(void *arg, enum msg_id id, const void *msg)
{
	struct ingress *me = arg;
	const struct msg_active *m = msg;

	RULE(id != MSG_hole, "numbers have no holes", NOBODY);
	if (id != MSG_active)
		return;
	me->acked = m->policy_inc;
	uint32_t p = policy_by_inc(m->policy_inc);

	if (p != NOBODY)
		world.policy[p].asked = true;   /* perhaps it moved there by itself */
}

static void
op_withdraw(void *arg, uint32_t slot)
{
	struct ingress *me = arg;
	uint32_t id = me->live[slot];
	struct request *r = &world.request[id];

	RULE(r->decided && !r->sent, "only what was chosen and not sent is withdrawn", id);
	me->unkillable = true;          /* ask holds memory */
	r->charged = r->decided = false;
	ledger_release(&me->ledger, &r->charge);
	if (r->attempts > 0)
		r->attempts--;
	world.count.withdrawn++;
	me->unkillable = false;
}

static void
op_apply(void *arg, uint32_t slot, const struct msg_answer *a)
{
	struct ingress *me = arg;
	uint32_t id = me->live[slot];
	struct request *r = &world.request[id == NOBODY ? 0 : id];

	RULE(id != NOBODY && a->record == id, "an answer is applied to the request it is about",
	     id);
	RULE(me->ask.active < ASK_POLICIES && me->ask.policy[me->ask.active].inc == a->policy_inc &&
		     !me->ask.policy[me->ask.active].closed,
	     "no answer of a closed stream is applied", id);
	RULE(!r->charged, "one charge at a time", id);
	world.count.applied++;
	if (a->verdict == VERDICT_REJECT) {
		request_finish(id);
		return;
	}
	r->decided = true;
	r->policy_gen = a->policy_gen;
	r->policy_inc = a->policy_inc;
	r->answer.n = (uint8_t)a->n_candidates;
	r->answer.number = a->number;
	for (unsigned i = 0; i < a->n_candidates; i++) {
		r->answer.to[i].row = a->candidates[i].row;
		r->answer.to[i].row_gen = a->candidates[i].row_gen;
	}
	if (seek(r, 0))
		go(id);
	else
		request_finish(id);
	r->applied = ++world.clock;
}

static void
op_fail(void *arg, uint32_t slot, enum ask_failure why)
{
	struct ingress *me = arg;

	RULE(why == ASK_FAIL_CRASH, "nothing waits too long here", me->live[slot]);
	world.count.crashes++;
	request_finish(me->live[slot]);
}

static void
op_released(void *arg, uint32_t slot)
{
	struct ingress *me = arg;
	uint32_t in = (uint32_t)(me - world.ingress);
	uint32_t generation = slot_generation(
		atomic_load_explicit(&me->slots.slot[slot].word, memory_order_relaxed));

	RULE(me->live[slot] == NOBODY, "bytes are freed after the end", me->live[slot]);
	for (uint32_t i = 0; i < world.n_policies; i++) {
		const struct policy *p = &world.policy[i];
		bool reads = p->reading.slot == slot && p->reading.gen == generation &&
			     p->reading_of == in;

		if (!p->alive || !p->from[in])
			continue;
		for (unsigned q = p->in[in].head; q != p->in[in].tail; q++) {
			const struct note *n = &p->in[in].note[q % QUEUE];

			reads |= n->id == MSG_ask && n->slot == slot && n->gen == generation;
		}
		reads |= holds(p->waiting.list, p->waiting.n, p->from[in], slot, generation);
		reads |= holds(p->held, p->n_held, p->from[in], slot, generation);
		RULE(!reads, "no bytes are freed under a process that was asked", NOBODY);
	}
	slot_free(me, slot);
}

static const struct ask_ops ops = {op_send, op_tell, op_withdraw, op_apply, op_fail, op_released};

/* ---- an ingress's turns ---- */

void
hear_supervisor(struct ingress *me, uint32_t unused)
{
	struct note n;

	(void)unused;
	while (take(&me->control, &n))
		switch (n.id) {
		case MSG_peer:
			ask_peer(&me->ask, n.gen, n.ask);
			break;
		case MSG_activate:
			ask_activate(&me->ask, n.gen, n.ask, world.now);
			break;
		case MSG_standby:
			ask_standby(&me->ask, n.gen, n.ask);
			break;
		case MSG_drain:
			me->draining = true;
			break;
		case MSG_gone:
			ask_gone(&me->ask, n.ask, (enum gone_cause)n.verdict, world.now);
			break;
		case NOTE_PIDFD:
			ask_gone(&me->ask, n.ask, GONE_UNSAID, world.now);
			break;
		}
}

void
hear_policy(struct ingress *me, uint32_t p)
{
	struct msg *m = &me->heard;     /* large; only what is read is set */
	struct policy *from = &world.policy[p];
	struct note n;

	if (!take(&from->out[me - world.ingress], &n))
		return;
	m->id = (enum msg_id)n.id;
	if (n.id == MSG_answer) {
		m->u.answer = (struct msg_answer){
			.number = n.number, .slot = n.slot, .slot_gen = n.gen, .ask = n.ask,
			.policy_gen = from->gen, .policy_inc = from->inc, .verdict = n.verdict,
			.hold_until = world.now + ANSWER_NS, .record = n.request,
			.n_candidates = n.n,
		};
		for (unsigned i = 0; i < n.n; i++) {
			m->u.answer.candidates[i].row = n.to[i].row;
			m->u.answer.candidates[i].row_gen = n.to[i].row_gen;
		}
	} else if (n.id == MSG_cancelled) {
		m->u.cancelled = (struct msg_cancelled){
			.slot = n.slot, .slot_gen = n.gen, .ask = n.ask};
	} else {
		m->u.probed = (struct msg_probed){.policy_gen = from->gen,
						   .policy_inc = from->inc};
	}
	ask_heard(&me->ask, from->gen, from->inc, m, world.now);
}

void
one_request(struct ingress *me, uint32_t gone)
{
	uint32_t slot = draw(SLOTS), id = NOBODY;

	for (unsigned n = 0; n < SLOTS && id == NOBODY; n++, slot = (slot + 1) % SLOTS)
		id = me->live[FIRST_SLOT + slot];
	if (id == NOBODY)
		return;
	if (gone)
		request_finish(id);
	else
		progress(me, id);
}

void
new_request(struct ingress *me, uint32_t unused)
{
	(void)unused;
	if (me->draining || me->n_free == 0 || world.n_requests == REQUESTS)
		return;
	open_request(me, world.n_requests++);
}

void
ingress_tick(struct ingress *me, uint32_t unused)
{
	(void)unused;
	ask_tick(&me->ask, world.now);
}

void
ingress_die(struct ingress *me)
{
	me->alive = false;
	me->control.head = me->control.tail;
	for (uint32_t id = 0; id < world.n_requests; id++)
		if (world.request[id].moving && &world.ingress[world.request[id].in] == me) {
			world.request[id].moving = false;       /* half a move is one */
			world.request[id].moved = ++world.clock;
		}
}

void
ingress_exit(struct ingress *me)
{
	if (!me->draining || me->n_free != SLOTS || !me->alive || me->busy)
		return;
	for (unsigned row = 0; row < ROWS; row++) {
		const struct cell_values *v = &me->ledger.row[row].v;

		RULE(!v->pending && !v->context && !v->prefilling && !v->decoding,
		     "nothing is charged at the end of a drain", NOBODY);
	}
	ingress_die(me);
}

/* ---- birth ---- */

void
ingress_make(struct ingress *me, uint32_t index, uint32_t inc)
{
	memset(me->column_bytes, 0, sizeof me->column_bytes);
	memset(me->slot_bytes, 0, sizeof me->slot_bytes);
	me->used = me->alive = true;
	me->busy = me->draining = me->gone_said = me->cleared = me->unkillable = false;
	me->index = index;
	me->inc = inc;
	me->control.head = me->control.tail = 0;
	me->slots = (struct slots){.seg.fd = -1, .slot = (void *)me->slot_bytes,
				   .capacity = SLOTS};
	me->column = (struct column){.seg.fd = -1, .head = (void *)me->column_bytes, .rows = ROWS};
	me->column.cell = (void *)(me->column_bytes + sizeof(struct column_header));
	me->arena = (struct arena){.seg.fd = -1, .size = 1 << 20, .fresh = 4096};
	me->process = (struct process_segment){.counter = me->counters};
	if (ask_open(&me->ask, &me->slots, &me->column, &me->process, &ops, me, world.now) < 0 ||
	    ledger_open(&me->ledger, &me->column) < 0)
		abort();
	me->ask.answer_ns = ANSWER_NS;
	me->ask.questions_max = 1 + draw(8);
	me->n_free = 0;
	for (uint32_t s = SLOTS; s >= FIRST_SLOT; s--) {
		me->live[s] = NOBODY;
		me->region[s] = 0;
		me->free_slot[me->n_free++] = s;
	}
}
