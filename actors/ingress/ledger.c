/* actors/ingress/ledger.c -- see ledger.h. */
#include "actors/ingress/ledger.h"

#include <errno.h>
#include <stdlib.h>

#define TURN_KEPT_MS 60000u     /* older decides nothing, and would look new when it wraps */

int
ledger_open(struct ledger *ret, struct column *column)
{
	*ret = (struct ledger){.column = column};
	ret->row = calloc(column->rows, sizeof *ret->row);
	return ret->row ? 0 : -ENOMEM;
}

void
ledger_close(struct ledger *l)
{
	free(l->row);
	*l = (struct ledger){0};
}

static uint32_t
ms_of(mono_ns t)
{
	return (uint32_t)(t / 1000000);
}

static uint32_t
fit32(uint64_t n)
{
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static uint16_t
fit16(uint32_t n)
{
	return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX;
}

static void
sums_show(struct ledger_row *r)
{
	r->v.pending = fit32(r->pending);
	r->v.context = fit32(r->context);
	r->v.prefilling = fit16(r->prefilling);
	r->v.decoding = fit16(r->decoding);
}

static void
publish(struct ledger *l, uint16_t row)
{
	struct ledger_row *r = &l->row[row];

	sums_show(r);
	r->v.oldest_dispatch_ms = r->oldest ? r->oldest->dispatch_ms : 0;
	cell_write(&l->column->cell[row], r->row_gen, &r->v);
}

static void
less_tokens(struct ledger *l, uint64_t *from, uint32_t by)
{
	if (*from < by) {
		l->underflows++;
		by = (uint32_t)*from;
	}
	*from -= by;
}

static void
less_one(struct ledger *l, uint32_t *from)
{
	if (*from == 0)
		l->underflows++;
	else
		(*from)--;
}

static void
link_charge(struct ledger_row *r, struct charge *c)
{
	c->prev = r->newest;
	c->next = NULL;
	if (r->newest)
		r->newest->next = c;
	else
		r->oldest = c;
	r->newest = c;
}

static void
unlink_charge(struct ledger_row *r, struct charge *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		r->oldest = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		r->newest = c->prev;
	c->prev = c->next = NULL;
}

/* The row is another one now: what was in flight on the old belongs to nobody. */
static void
turn_over(struct ledger_row *r, uint32_t row_gen)
{
	struct charge *next;

	for (struct charge *c = r->oldest; c; c = next) {
		next = c->next;
		c->prev = c->next = NULL;
	}
	*r = (struct ledger_row){.row_gen = row_gen};
}

/* Takes {row, row_gen, phase, prefill, ctx} out of the books. */
static void
subtract(struct ledger *l, struct charge *c, const struct slot *was)
{
	struct ledger_row *r;

	if (was->phase == PHASE_NONE || was->row >= l->column->rows)
		return;
	r = &l->row[was->row];
	if (r->row_gen != was->row_gen)
		return;
	if (was->phase == PHASE_PREFILL) {
		less_tokens(l, &r->pending, was->prefill);
		less_one(l, &r->prefilling);
		unlink_charge(r, c);
	} else {
		less_tokens(l, &r->context, was->ctx);
		less_one(l, &r->decoding);
	}
}

void
ledger_charge(struct ledger *l, struct charge *c, uint16_t row, uint32_t row_gen, uint32_t prefill,
	      uint32_t ctx, uint32_t pick, mono_ns now)
{
	struct slot *slot = c->slot;
	struct slot was = {.row = slot->row,
			   .row_gen = slot->row_gen,
			   .phase = slot->phase,
			   .prefill = slot->prefill,
			   .ctx = slot->ctx};
	struct ledger_row *r;
	struct charge fresh;

	if (row >= l->column->rows)
		return;
	r = &l->row[row];
	if (r->row_gen != row_gen)
		turn_over(r, row_gen);
	/* The new row first; the links move only afterwards, they are private. */
	r->pending += prefill;
	r->prefilling++;
	r->v.last_pick = pick;
	if (r->v.turned != 0 && cell_turn_age_ms(r->v.turned, ms_of(now)) > TURN_KEPT_MS)
		r->v.turned = 0;
	fresh = (struct charge){.slot = slot, .dispatch_ms = ms_of(now)};
	if (!r->oldest) {
		sums_show(r);
		r->v.oldest_dispatch_ms = fresh.dispatch_ms;
		cell_write(&l->column->cell[row], row_gen, &r->v);
	} else {
		publish(l, row);
	}
	subtract(l, c, &was);
	c->dispatch_ms = fresh.dispatch_ms;
	slot->row = row;
	slot->row_gen = row_gen;
	slot->prefill = prefill;
	slot->ctx = ctx;
	slot->phase = PHASE_PREFILL;
	link_charge(r, c);
	if (was.phase != PHASE_NONE && was.row < l->column->rows)
		publish(l, was.row);
}

void
ledger_first_byte(struct ledger *l, struct charge *c, mono_ns now)
{
	struct slot *slot = c->slot;
	struct ledger_row *r;

	if (slot->phase != PHASE_PREFILL)
		return;
	r = &l->row[slot->row];
	if (r->row_gen == slot->row_gen) {
		less_tokens(l, &r->pending, slot->prefill);
		less_one(l, &r->prefilling);
		unlink_charge(r, c);
		r->context += slot->ctx;
		r->decoding++;
		r->v.last_first_ms = ms_of(now);
		publish(l, slot->row);
	}
	slot->phase = PHASE_DECODE;
}

void
ledger_release(struct ledger *l, struct charge *c)
{
	struct slot *slot = c->slot;

	if (slot->phase == PHASE_NONE)
		return;
	subtract(l, c, slot);
	slot->phase = PHASE_NONE;
	if (slot->row < l->column->rows && l->row[slot->row].row_gen == slot->row_gen)
		publish(l, slot->row);
}

void
ledger_turned(struct ledger *l, uint16_t row, uint32_t row_gen, enum cell_turn how, mono_ns now)
{
	if (row >= l->column->rows || l->row[row].row_gen != row_gen)
		return;
	l->row[row].v.turned = cell_turned(now, how);
	publish(l, row);
}

unsigned
ledger_check(const struct ledger *l, const struct slots *slots, uint32_t high, uint16_t row)
{
	const struct ledger_row *r = &l->row[row];
	struct ledger_row want = {.row_gen = r->row_gen};
	struct cell_values v;

	for (uint32_t i = 1; i <= high; i++) {
		const struct slot *s = &slots->slot[i];

		if (s->phase == PHASE_NONE || s->row != row || s->row_gen != r->row_gen)
			continue;
		want.pending += s->phase == PHASE_PREFILL ? s->prefill : 0;
		want.prefilling += s->phase == PHASE_PREFILL;
		want.context += s->phase == PHASE_DECODE ? s->ctx : 0;
		want.decoding += s->phase == PHASE_DECODE;
	}
	sums_show(&want);
	cell_read(&l->column->cell[row], r->row_gen, &v);
	unsigned wrong = want.pending != r->pending || want.v.pending != v.pending;

	wrong += want.context != r->context || want.v.context != v.context;
	wrong += want.prefilling != r->prefilling || want.v.prefilling != v.prefilling;
	wrong += want.decoding != r->decoding || want.v.decoding != v.decoding;
	return wrong;
}

uint32_t
ledger_charges(const struct ledger *l)
{
	uint32_t n = 0;

	for (uint32_t row = 0; row < l->column->rows; row++)
		n += l->row[row].prefilling + l->row[row].decoding;
	return n;
}
