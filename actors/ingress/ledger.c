/* actors/ingress/ledger.c -- see ledger.h. */
#include "actors/ingress/ledger.h"

#include <errno.h>
#include <stdlib.h>

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

static void
publish(struct ledger *l, uint16_t row)
{
	struct ledger_row *r = &l->row[row];

	r->v.oldest_dispatch_ms = r->oldest ? r->oldest->dispatch_ms : 0;
	cell_write(&l->column->cell[row], r->row_gen, &r->v);
}

static void
less32(struct ledger *l, uint32_t *from, uint32_t by)
{
	if (*from < by) {
		l->underflows++;
		by = *from;
	}
	*from -= by;
}

static void
less16(struct ledger *l, uint16_t *from)
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
		less32(l, &r->v.pending, was->prefill);
		less16(l, &r->v.prefilling);
		unlink_charge(r, c);
	} else {
		less32(l, &r->v.context, was->ctx);
		less16(l, &r->v.decoding);
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
	r->v.pending += prefill;
	r->v.prefilling++;
	r->v.last_pick = pick;
	fresh = (struct charge){.slot = slot, .dispatch_ms = ms_of(now)};
	if (!r->oldest) {
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
		less32(l, &r->v.pending, slot->prefill);
		less16(l, &r->v.prefilling);
		unlink_charge(r, c);
		r->v.context += slot->ctx;
		r->v.decoding++;
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
ledger_result(struct ledger *l, uint16_t row, uint32_t row_gen, bool ok)
{
	struct ledger_row *r;

	if (row >= l->column->rows)
		return;
	r = &l->row[row];
	if (r->row_gen != row_gen || (ok && r->v.failures == 0))
		return;
	if (ok)
		r->v.failures = 0;
	else if (r->v.failures < UINT16_MAX)
		r->v.failures++;
	publish(l, row);
}
