/* tests/race/ledger_world.h -- a small world around the ledger: ingresses, policy processes and a
 * supervisor in one program, with queues for the sockets between them.
 *
 * Real       actors/ingress/ask.c and ledger.c, shm/cell.c, slot.c and arena.c, actors/policy/
 *            overlay.c, view.c (watermarks, then cells, then overlay) and waiting.c.  What
 *            request.c, relay.c and policy.c do around them is done here, in the same order.
 * Between    any two stores of a cell or watermark a policy process may run (and the ingress may be
 *            killed there); between any two loads an ingress or the supervisor may.  A process that
 *            is interrupted is `busy`: nobody else runs it.
 * Identity   a request has two bits of every sum: it is charged 4^k tokens, so the sums say how
 *            often each was counted, and no double count hides a missing one.
 */
#pragma once
#include <setjmp.h>

#include "actors/ingress/ask.h"
#include "actors/ingress/ledger.h"
#include "actors/policy/view.h"
#include "actors/policy/waiting.h"

#define ROWS      3u
#define SLOTS     6u            /* of an ingress */
#define REQUESTS  16u           /* of a schedule: two bits each in 32 */
#define INGRESSES 6u            /* incarnations of a schedule */
#define POLICIES  10u           /* incarnations of a schedule */
#define QUEUE     128u
#define NOBODY    UINT32_MAX

struct note {                           /* a message on any queue */
	uint8_t id;                     /* enum msg_id; NOTE_PIDFD */
	uint8_t verdict, n;
	uint32_t slot, gen, ask;        /* of a question; else policy_gen, policy_inc */
	uint32_t number, request;       /* request: whom the answer is about */
	struct {
		uint16_t row;
		uint32_t row_gen;
	} to[2];
};
#define NOTE_PIDFD 255u

struct queue {
	struct note note[QUEUE];
	unsigned head, tail;
};

struct request {
	bool used, over;
	unsigned ends;
	uint32_t in, slot, slot_gen;
	struct charge charge;
	bool charged;                   /* the charge is whole: cells show it */
	bool moving;                    /* to another row, charged on both */
	uint64_t moved, applied;        /* when its last move, its last application ended */
	bool decided, sent, first;
	struct note answer;             /* the applied one */
	unsigned candidate, attempts;
	uint32_t policy_gen, policy_inc;
};

struct ingress {
	bool used, alive, busy, draining;
	uint32_t index, inc;
	struct slots slots;
	struct column column;
	struct arena arena;
	struct process_segment process;
	struct ask ask;
	struct ledger ledger;
	uint32_t live[SLOTS + 1];       /* request; NOBODY */
	uint64_t region[SLOTS + 1];
	size_t region_cap[SLOTS + 1];
	uint32_t free_slot[SLOTS];
	unsigned n_free;
	struct queue control;           /* from the supervisor */
	uint32_t acked;                 /* what the supervisor heard last */
	bool gone_said, cleared;        /* by the supervisor, after its death */
	bool unkillable;                /* inside code that holds memory */
	struct msg heard;               /* being handled */
	jmp_buf dead;
	_Alignas(64) char column_bytes[sizeof(struct column_header) + ROWS * sizeof(struct cell)];
	_Alignas(64) char slot_bytes[(SLOTS + 1) * sizeof(struct slot)];
	_Atomic uint64_t counters[PROCESS_COUNTERS];
};

struct policy {
	bool used, alive, busy, buried, drained;
	bool asked;                     /* it was wanted once */
	uint32_t gen, inc;
	struct view view;
	struct view_ingress *from[INGRESSES];
	struct queue in[INGRESSES], out[INGRESSES], control;
	bool resent[INGRESSES];
	struct waiting_list waiting;    /* for leave to decide, or for tokens */
	struct waiting held[REQUESTS * 4];
	unsigned n_held;
	bool opened, deciding, late;
	struct note reading;            /* slot 0: none */
	uint32_t reading_of;
	jmp_buf dead;
};

struct world {
	uint64_t random, clock;
	mono_ns now;
	uint32_t row_gen[ROWS];
	uint8_t intent[ROWS];
	uint64_t row_changed[ROWS];
	struct request request[REQUESTS];
	unsigned n_requests;
	struct ingress ingress[INGRESSES];
	struct policy policy[POLICIES];
	unsigned n_ingress, n_policies, depth;
	uint32_t next_inc;
	/* supervisor */
	uint32_t gen, want, standby, spare; /* subscripts of policy; NOBODY */
	bool open_said;
	bool settling;                  /* nothing new, no failures: to the end */
	uint64_t stores, loads;         /* before somebody else runs */
	/* what happened, over all schedules */
	struct {
		uint64_t decisions, seen, requests, applied, discarded, withdrawn, moves, again,
			killed_ingress, killed_policy, swaps, rollbacks, replaced, readded, late,
			nested_store, nested_load, crash_points, crashes, doubled;
		uint64_t missed_late, missed_move, missed_elsewhere, missed_most;
	} count;
	const char *bad;                /* the first rule that was broken */
	uint32_t bad_request;
};

extern struct world world;

static inline uint32_t
draw(uint32_t below)
{
	world.random ^= world.random << 13;
	world.random ^= world.random >> 7;
	world.random ^= world.random << 17;
	return (uint32_t)(world.random >> 32) % below;
}

#define RULE(condition, text, request_)                                                            \
	do {                                                                                       \
		if (!(condition) && !world.bad) {                                                  \
			world.bad = (text);                                                        \
			world.bad_request = (uint32_t)(request_);                                  \
		}                                                                                  \
	} while (0)

/* ledger_world.c */
void put(struct queue *q, const struct note *n);
bool take(struct queue *q, struct note *ret);
uint32_t policy_by_inc(uint32_t inc);           /* NOBODY */

static inline bool
empty(const struct queue *q)
{
	return q->head == q->tail;
}


/* ledger_ingress.c: turns, run when it is not interrupted */
void ingress_make(struct ingress *me, uint32_t index, uint32_t inc);
void ingress_die(struct ingress *me);
void ingress_exit(struct ingress *me);          /* when it has drained */
void hear_supervisor(struct ingress *me, uint32_t unused);
void hear_policy(struct ingress *me, uint32_t p);
void one_request(struct ingress *me, uint32_t gone);
void new_request(struct ingress *me, uint32_t unused);
void ingress_tick(struct ingress *me, uint32_t unused);

/* ledger_policy.c */
void policy_control(struct policy *p, uint32_t unused);
void policy_hear(struct policy *p, uint32_t in);
void policy_wait_over(struct policy *p, uint32_t late);
void policy_forget(struct policy *p, uint32_t in);
void policy_die(struct policy *p);

bool world_open(void);                  /* once */
void world_close(void);
void world_begin(uint64_t seed);
void world_step(void);                  /* one action of somebody */
bool world_settle(void);                /* true: something moved */
void world_end(void);
void request_finish(uint32_t id);

/* race_ledger.c: what a policy process must see, judged at the end of its scan. */
void judge(const struct policy *p, const struct view_load load[ROWS], const uint32_t row_gen[ROWS],
	   uint64_t began);

static inline uint32_t
weight(uint32_t request)
{
	return 1u << 2 * request;
}

static inline unsigned
times(uint32_t sum, uint32_t request)
{
	return sum >> 2 * request & 3;
}
