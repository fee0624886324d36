/* actors/ingress/ask.h -- questions to policy processes and their answers: order, swap, death.
 *
 * Meaning    The protocol of one ingress, without a socket, a clock or a timer of its own: what it
 *            hears comes in by calls, what it says goes out through ask_ops.  So every order of
 *            events can be tried in a test.
 * Key        An answer belongs to {slot, slot generation, ask}; `ask` is +1 at each asking, so
 *            what a dead process left behind never matches.
 * Order      Answers of one process carry 1, 2, 3 ..; each is applied or discarded strictly in
 *            order and the watermark (cell.h `applied`) follows it.  A hole: the process is
 *            believed in nothing more, and the supervisor is told.
 * Stream     Answers are applied only while the process's stream is open.  It is closed by ACTIVATE
 *            of another process and by death, never opened twice.  Matching by `ask` and
 *            closing the stream are two independent defences: keep both.
 * Poison     A question that was unanswered when its process died is a suspect: asked about again,
 *            but one of them at a time.  The supervisor says why the process died.  Two crashes
 *            (a signal of its own, a panic, hung) are taken for the request's doing; being killed
 *            from outside is not, unless it happens a third time: a request that eats all memory
 *            looks like that.  After the second death the question waits for the word.
 * Bytes      A region may be freed when no process reads it: each process that was asked has
 *            chosen, rejected, said `cancelled`, or is dead.  ops->released says when.
 * States     of a slot, here: WAITING (not sent), ASKED, HELD, CHOSEN (applied, nothing written
 *            upstream), SENT (never asked again by a swap), ENDING (over, bytes still read).
 * Errors     Messages from policy processes never assert: wrong ones are counted and dropped.
 * Threads    the ingress loop's.
 * Cost       a question: one message and a few words; a swap: one pass over the live slots.
 * Source     shared protocol rules: ask, swap, cancel, held; checked by the models they came from.
 */
#pragma once
#include "proto/messages.h"
#include "shm/cell.h"
#include "shm/process.h"
#include "shm/slot.h"

#define ASK_POLICIES    16u             /* processes known at once, with the dead */
#define ASK_ABSENT_NS   5000000000ull   /* no policy process for so long: 503 policy_absent */
#define ASK_CRASHES_MAX 2u              /* unanswered in so many crashes: policy_crash */
#define ASK_DEATHS_MAX  3u              /* or in so many deaths of whatever kind */
#define ASK_WAITING_TIMES 3u            /* questions_max: so many more wait for their turn */
#define ASK_DOUBT_NS    1000000000ull   /* so long a second death's cause is waited for */

enum ask_failure { ASK_FAIL_ABSENT = 1, ASK_FAIL_TIMEOUT, ASK_FAIL_CRASH };

struct ask_ops {
	int (*send)(void *arg, uint32_t policy_gen, uint32_t policy_inc, enum msg_id id,
	     const void *msg);
		/* To a policy process: 0, -EAGAIN later, another error: not there. */
	void (*tell)(void *arg, enum msg_id id, const void *msg);       /* the supervisor */
	void (*withdraw)(void *arg, uint32_t slot);
		/* CHOSEN is asked again: give back the charge, drop the connection attempt. */
	void (*apply)(void *arg, uint32_t slot, const struct msg_answer *answer);
		/* CHOOSE or REJECT.  The cells must be written when this returns.  May call
		 * ask_sent, ask_end and ask_put for the slot. */
	void (*fail)(void *arg, uint32_t slot, enum ask_failure why);   /* must call ask_end */
	/* ended and read by nobody: the slot is free */
	void (*released)(void *arg, uint32_t slot);
};

enum ask_state {
	ASK_NONE = 0, ASK_WAITING, ASK_SUSPECT, ASK_ASKED, ASK_HELD, ASK_CHOSEN, ASK_ENDING,
	ASK_SENT,                       /* in no list; so is NONE */
};

struct ask_entry {
	uint32_t prev, next;            /* slot ids in the list of its state; 0 none */
	uint8_t state;                  /* enum ask_state */
	uint8_t policy;                 /* asked now; ASK_POLICIES: none */
	uint16_t readers;               /* bit p: policy[p] was asked and owes an end */
	uint16_t cancel_owed;           /* bit p: a cancel could not be sent yet */
	uint16_t cancelled;             /* bit p: a cancel was sent */
	uint16_t asked_as[ASK_POLICIES];/* newest ask put to policy[p] */
	uint8_t crashes;                /* unanswered in so many; deaths are in the slot's word */
	uint32_t doubt[2];              /* processes it was unanswered by, dead of a cause unsaid */
	mono_ns since_ns;               /* in this state */
};

struct ask_policy {
	uint32_t gen, inc;              /* inc 0: unused */
	uint32_t next;                  /* number of its next answer */
	bool reachable, dead, closed, broken;
	bool opened;                    /* was active once */
};

struct ask_list {
	uint32_t head, tail, n;
};

struct ask {
	const struct ask_ops *ops;      /* borrowed */
	void *arg;
	struct slots *slots;            /* borrowed */
	struct column *column;          /* borrowed */
	struct process_segment *process;/* borrowed: counters */
	struct ask_entry *entry;        /* owned; by slot id */
	uint32_t high;                  /* highest slot id ever used */
	struct ask_list list[ASK_SENT];
	struct ask_policy policy[ASK_POLICIES];
	unsigned active;                /* subscript; ASK_POLICIES: none */
	uint32_t standby_gen, standby_inc;
	mono_ns absent_ns;              /* since when there is no active one */
	bool resent_owed;
	uint32_t questions_max;         /* outstanding at once; more wait here */
	uint64_t answer_ns;             /* longest wait for an answer */
};

int ask_open(struct ask *ret, struct slots *slots, struct column *column,
	     struct process_segment *process,
	     const struct ask_ops *ops, void *arg, mono_ns now);
	/* 0, -ENOMEM.  questions_max and answer_ns are set by the caller, also later. */
void ask_close(struct ask *ask);

/* --- requests --- */
void ask_put(struct ask *ask, uint32_t slot, mono_ns now);
	/* Ask (again) about a slot whose inputs are complete; its word must hold its generation. */
void ask_sent(struct ask *ask, uint32_t slot);
	/* The first byte is about to be written upstream: no swap touches it any more. */
void ask_end(struct ask *ask, uint32_t slot, mono_ns now);
	/* The request is over.  Cancels what is still owed; released() comes now or later. */
bool ask_full(const struct ask *ask);
	/* As many are asked as may be, and ASK_WAITING_TIMES as many wait: no more shall come. */
bool ask_list_valid(const struct ask *ask, uint32_t policy_gen);
	/* Is that generation still the one being asked?  A ranked list of another must not be
	 * used. */

/* --- what is heard --- */
void ask_heard(struct ask *ask, uint32_t policy_gen, uint32_t policy_inc,
	       const struct msg *msg, mono_ns now);
	/* A message from that process's socket. */
void ask_peer(struct ask *ask, uint32_t policy_gen, uint32_t policy_inc);      /* it exists */
void ask_activate(struct ask *ask, uint32_t policy_gen, uint32_t policy_inc, mono_ns now);
void ask_standby(struct ask *ask, uint32_t policy_gen, uint32_t policy_inc);
void ask_gone(struct ask *ask, uint32_t policy_inc, enum gone_cause cause, mono_ns now);
	/* It is dead: UNSAID by pidfd, else the supervisor told (then it is acknowledged again). */
void ask_tick(struct ask *ask, mono_ns now);
	/* Every 100 ms or so: time limits, and sends that had to wait. */
