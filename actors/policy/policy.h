/* actors/policy/policy.h -- one policy process: what policy.c and its two rooms share.
 *
 * policy.c   its life: birth, what it hears of the supervisor, end
 * peers.c    the ingresses: their coming and going, and what they say
 * decisions.c when it decides what; what it says to whom; who waits and who is held
 * Threads    one.
 */
#pragma once
#include <czmq.h>

#include "actors/common/attach.h"
#include "actors/policy/aside.h"
#include "actors/policy/evaluate.h"
#include "actors/policy/held.h"
#include "actors/policy/native.h"
#include "actors/policy/tokensource.h"
#include "actors/policy/waiting.h"

struct peer {                           /* one ingress incarnation, from its first segment on */
	struct policy *policy;
	uint32_t index, incarnation;
	struct view_ingress *half;              /* owned until all three segments are there */
	struct view_ingress *view;              /* borrowed from the view; NULL before */
	zsock_t *sock;                          /* owned */
	bool greeted, resent;
};

struct policy {
	unsigned magic;
#define POLICY_MAGIC 0x7011c4a1
	struct pm_actor *actor;                 /* borrowed */
	struct manifest *manifest;              /* owned */
	struct secrets trust;                   /* owned */
	struct view view;                       /* owned */
	struct tokensource *tokens;             /* owned */
	struct native *native;                  /* owned; NULL: no set has a tokenizer */
	struct aside *aside;                    /* owned; NULL: bodies are read in the loop */
	struct evaluate *evaluate;              /* owned */
	struct peer **peer;                     /* owned */
	unsigned n_peers, cap_peers;
	struct waiting_list waiting;
	struct held_list held;
	int timer_fd;                           /* 100 ms from the first question */
	int greet_fd;                           /* runs while somebody is not greeted */
	int held_fd;                            /* runs while anything is held */
	bool timed;                             /* the timer runs or ran */
	bool opened;                            /* OPEN came */
	bool deciding;
	bool ending;                            /* nothing is waited for any more */
	char *frame;                            /* owned; MESSAGE_MAX, for what we say */
};

static inline struct process_segment *
process_of(struct policy *me)
{
	return &me->actor->process;
}

/* ---- decisions.c ---- */

int policy_say(struct policy *me, struct peer *p, enum msg_id id, const void *msg);
	/* 0; -EAGAIN and others: it did not leave. */
void policy_on_ask(struct policy *me, struct peer *p, const struct msg_ask *ask);
void policy_on_cancel(struct policy *me, struct peer *p, const struct msg_cancel *cancel);
void policy_decide_waiting(struct policy *me, const struct token_key *key, bool failed);
	/* Those that wait for what came under that key (NULL: all); failed: it does not come. */
void policy_open_if_complete(struct policy *me);
	/* OPEN, and every ingress that is alive has sent the last of what it re-asks: begin. */
void policy_aside_used(struct policy *me);
void policy_on_open_late(struct pm_actor *actor, void *arg);    /* timer_fd */
void policy_on_held(struct pm_actor *actor, void *arg);         /* held_fd */
void policy_answer_all(struct policy *me);
	/* The end: whatever waits or is held is answered now, or said to be forgotten. */

/* ---- peers.c ---- */

bool peers_segment_is(enum segment_kind kind);  /* it is one of an ingress's three */
int peers_segment(struct policy *me, enum segment_kind kind, uint32_t index,
		  uint32_t incarnation, int fd);
	/* One of these.  Takes fd. */
void peers_gone(struct policy *me, uint32_t incarnation);
void peers_remove_all(struct policy *me);
void peers_drain(struct policy *me);            /* reads what they have said by now */
struct peer *peers_of(struct policy *me, const struct view_ingress *view);      /* NULL */
void peers_on_greet_timer(struct pm_actor *actor, void *arg);   /* greet_fd */
