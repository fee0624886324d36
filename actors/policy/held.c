/* actors/policy/held.c -- who waits for a worker, in order; see held.h. */
#include "actors/policy/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"

#define TURNS_A_TOKEN 1000u             /* so that a weight of 1000 still counts */

static bool
grow_finish(struct held_list *h, uint32_t n)
{
	uint64_t *grown = realloc(h->finish, n * sizeof *grown);

	if (!grown)
		return false;
	memset(grown + h->n_finish, 0, (n - h->n_finish) * sizeof *grown);
	h->finish = grown;
	h->n_finish = n;
	return true;
}

uint64_t
held_turn(struct held_list *h, uint32_t tenant, uint32_t weight, uint32_t tokens, uint64_t given)
{
	uint64_t length = ((uint64_t)tokens + 1) * TURNS_A_TOKEN / (weight > 0 ? weight : 1);
	uint32_t at = tenant == MANIFEST_NONE ? 0 : tenant + 1;
	uint64_t turn = h->now + length;

	if (at >= h->n_finish && !grow_finish(h, at + 1))
		return given ? given : turn;
	if (given != 0) {
		/* From before a swap: who comes now is behind them, as before it. */
		turn = given;
		if (turn - length > h->now && turn > length)
			h->now = turn - length;
	} else if (h->finish[at] > h->now) {
		turn = h->finish[at] + length;
	}
	if (turn > h->finish[at])
		h->finish[at] = turn;
	return turn;
}

static bool
before(const struct held *a, const struct held *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->turn != b->turn)
		return a->turn < b->turn;
	return a->asked_ns < b->asked_ns;
}

int
held_add(struct held_list *h, const struct held *question)
{
	uint32_t low = 0, high = h->n;

	if (h->n == h->cap) {
		uint32_t cap = h->cap ? h->cap * 2 : 64;
		struct held *grown = realloc(h->list, cap * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		h->list = grown;
		h->cap = cap;
	}
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (before(question, &h->list[middle]))
			high = middle;
		else
			low = middle + 1;
	}
	memmove(&h->list[low + 1], &h->list[low], (h->n - low) * sizeof *h->list);
	h->list[low] = *question;
	h->n++;
	if (low < h->at || (low == h->at && h->round > 0 && question->round == h->round))
		h->at++;                /* who was asked in this round is behind us */
	return 0;
}

static void
remove_at(struct held_list *h, uint32_t i)
{
	h->n--;
	memmove(&h->list[i], &h->list[i + 1], (h->n - i) * sizeof *h->list);
	if (i < h->at)
		h->at--;
}

bool
held_take(struct held_list *h, const struct view_ingress *from, uint32_t slot)
{
	for (uint32_t i = 0; i < h->n; i++)
		if (h->list[i].from == from && h->list[i].ask.slot == slot) {
			remove_at(h, i);
			return true;
		}
	return false;
}

void
held_forget(struct held_list *h, const struct view_ingress *from)
{
	for (uint32_t i = h->n; i-- > 0;)
		if (h->list[i].from == from)
			remove_at(h, i);
}

void
held_begin(struct held_list *h)
{
	h->round++;
	h->n_tried = 0;
	if (h->at >= h->n)
		h->at = 0;
}

static bool
was_tried(const struct held_list *h, uint64_t kind)
{
	for (uint32_t i = 0; i < h->n_tried; i++)
		if (h->tried[i] == kind)
			return true;
	return false;
}

/* Two passes over the list make a round whole wherever it begins; who was asked in it is not asked
 * again. */
bool
held_next(struct held_list *h, mono_ns now, struct held *ret, bool *ret_late)
{
	for (uint32_t seen = 0; seen < h->n; seen++) {
		if (h->at >= h->n)
			h->at = 0;
		struct held *q = &h->list[h->at];
		bool late = q->until_ns <= now;

		if (q->round == h->round || (!late && was_tried(h, q->kind))) {
			h->at++;
			continue;
		}
		*ret = *q;
		ret->round = h->round;
		*ret_late = late;
		remove_at(h, h->at);
		return true;
	}
	h->at = 0;                      /* whole: the next begins with the first */
	return false;
}

void
held_tried(struct held_list *h, const struct held *question)
{
	if (!was_tried(h, question->kind) && h->n_tried < HELD_KINDS)
		h->tried[h->n_tried++] = question->kind;
}

void
held_went(struct held_list *h, const struct held *question)
{
	if (question->turn > h->now)
		h->now = question->turn;
}

bool
held_any(struct held_list *h, struct held *ret)
{
	if (h->n == 0)
		return false;
	*ret = h->list[0];
	remove_at(h, 0);
	return true;
}

void
held_free(struct held_list *h)
{
	free(h->list);
	free(h->finish);
	*h = (struct held_list){0};
}
