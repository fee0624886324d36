/* actors/policy/held.h -- questions that wait for a worker: who is next, and until when.
 *
 * Meaning    A rule or a policy said Wait (rules.h).  The ingress was told `hold` and keeps the
 *            bytes; the question is evaluated again and again, until it finds a place or its time
 *            is over.  Another process takes it over by being asked: deadline and turn stand in
 *            the slot (shm/slot.h), written once.
 * Order      priority; then tenants by weight: a question's turn is where its tenant would be if
 *            each had its share of the tokens (virtual finish: start-time fair queueing), so a
 *            tenant that holds a thousand does not keep another's one behind them; then age.
 * Rounds     held_next() goes through them in that order, from where the last round ran out of
 *            time.  Where one found nobody, others of its kind (same model, tenant, tags, and the
 *            same rule that holds it) are not asked in that round; those whose time is over are.
 * Bound      HELD_MAX, which the caller sees to: more are answered as if they had waited.
 * Threads    one.   Cost: a round over n of them some 5 ns each, and its evaluations.
 */
#pragma once
#include "actors/policy/view.h"
#include "proto/messages.h"

#define HELD_MAX 4096u
#define HELD_KINDS 64u                  /* in one round; with more, each is asked */

struct held {
	struct view_ingress *from;              /* borrowed: held_forget before it goes */
	struct msg_ask ask;
	mono_ns asked_ns, until_ns;
	uint64_t turn;                          /* virtual finish, 1/1000 token at weight 1 */
	uint64_t kind;
	int32_t priority;
	uint32_t round;                         /* in which it was asked last */
};

struct held_list {
	struct held *list;                      /* owned; in order */
	uint32_t n, cap;
	uint64_t *finish;                       /* owned; by tenant + 1: of its newest */
	uint32_t n_finish;
	uint64_t now;                           /* virtual: the turn of the last one that went */
	uint32_t round, at;
	uint64_t tried[HELD_KINDS];             /* kinds that found nobody in this round */
	uint32_t n_tried;
};

uint64_t held_turn(struct held_list *h, uint32_t tenant, uint32_t weight, uint32_t tokens,
		   uint64_t given);
	/* Its turn.  tenant: an index, or MANIFEST_NONE; given: as the slot has it from another
	 * process, 0 none, and then it stays.  -ENOMEM cannot be: without memory for a tenant it
	 * is the newest. */
int held_add(struct held_list *h, const struct held *question);
	/* Anew, or back after held_next().  0, -ENOMEM. */
bool held_take(struct held_list *h, const struct view_ingress *from, uint32_t slot);
	/* Out, if there is one of that slot. */
void held_forget(struct held_list *h, const struct view_ingress *from); /* all of that ingress */
void held_begin(struct held_list *h);                   /* a round */
bool held_next(struct held_list *h, mono_ns now, struct held *ret, bool *ret_late);
	/* Takes the next to be asked out.  late: its time is over.  False: the round is at its
	 * end.  Then held_tried() and held_add(), or held_went(). */
void held_tried(struct held_list *h, const struct held *question);      /* it found nobody */
void held_went(struct held_list *h, const struct held *question);       /* it goes somewhere */
bool held_any(struct held_list *h, struct held *ret);   /* takes the first out; for an end */
void held_free(struct held_list *h);
