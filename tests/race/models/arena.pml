/* arena.pml -- the bytes of a question stay until no process reads them.
 *
 * Stands for  actors/ingress/ask.c: send_question, cancel, ask_end, close_stream, end_reading,
 *             ask_gone, ask_all_again; request.c slot_free; actors/policy: policy_on_ask, decide,
 *             policy_on_cancel, policy_on_drain; evaluate.c current_slot, evaluate_question;
 *             tokensource.c (a thread of the policy process, which has its own copy of the text).
 * Scale       one slot and one region, used for NREQ requests one after the other; NP policy
 *             processes asked in turn (ACTIVATE, or the death of the one before).
 * Time        the client goes, the switch comes, a process is killed at any moment; a read of the
 *             body takes time: it begins and it ends.  A question may have to wait for token ids,
 *             and is then read once more; or for leave to decide.  A cancel may not get through at
 *             first (EAGAIN) and is sent later (ask_tick).
 * Rules       bytes_stay    while a process reads the region, it holds what the question meant
 *             ends_owed     at the end every region was freed, every request had its end
 *             one_question  a process never owes two ends for one slot
 * Switches    B_FREEATEND    freed at the end of the request, whoever was asked
 *             B_NOCANCEL     the end of a request sends no cancel
 *             CLOSESILENT    closing the stream of a live process sends no cancel: holds, since the
 *                            end of the request sends it; only the process works for nothing
 *             B_KEY          `cancelled` is matched by slot alone, not by {slot, generation, ask}
 *             B_HELPER       who fetches token ids reads the region itself, no copy
 *             B_KEEPQUEUED   a cancel leaves the question in the queue of the process
 *             B_DEADKEPT     the death of a process leaves its reader bit
 *
 * run small holds                                     # 334,688 states, 3 s
 * run small breaks bytes_stay -DB_FREEATEND
 * run small breaks ends_owed -DB_NOCANCEL
 * run small breaks bytes_stay -DB_KEY
 * run small breaks bytes_stay -DB_HELPER
 * run small breaks bytes_stay -DB_KEEPQUEUED
 * run small breaks ends_owed -DB_DEADKEPT
 * run all holds -DCLOSESILENT                         # 313,170 states, 2 s
 * run all holds -DNREQ=3                              # 730,177 states, 4 s
 * run all holds -DNP=3                                # not completed in 300 s
 */
#ifndef NREQ
#define NREQ 2
#endif
#ifndef NP
#define NP 2
#endif
#define NONE 9
#define BIT(p) (1 << (p))
#define RULE(cond, name) assert((cond) || name)
hidden byte bytes_stay, ends_owed, one_question;

mtype = { ASK, CANCEL, CHOOSE, CANCELLED };
chan qa[NP] = [3] of { mtype, byte, byte };	/* what, slot generation, ask */
chan an[NP] = [4] of { mtype, byte, byte };

/* the slot */
byte region;				/* what lies there: a slot generation; 0 freed */
byte gen, ask;				/* the slot's word ... */
bool asked;				/* ... and whether it says ASKED */
/* ask.c's entry */
byte readers;				/* bit p: asked, owes an end */
byte asked_as[NP];
byte owed;				/* bit p: a cancel could not be sent yet */
byte told;				/* bit p: cancel was sent */
byte now_asks;
byte seen;				/* bit p: death seen */
byte closed;
bool live;				/* the request is not over */
bool chosen;
/* processes */
bool alive[NP] = true;
byte wait_gen[NP], wait_ask[NP];	/* waiting.c: one a slot; 0 none */
byte reading[NP];			/* generation whose bytes are being read; 0 none */
byte helper[NP];			/* B_HELPER: the same for the thread */
bool done;

inline cancel_to(p)			/* ask.c cancel(): to one process */
{
	if
	:: (readers & BIT(p)) && !(told & BIT(p)) && !(seen & BIT(p)) ->
		if
		:: told = told | BIT(p); owed = owed & ~BIT(p);
			if :: alive[p] -> qa[p]!CANCEL,gen,asked_as[p] :: else fi
		:: owed = owed | BIT(p)			/* no room now */
		fi
	:: else
	fi
}

inline question()			/* send_question */
{
	ask++;
	asked = true;
	chosen = false;
	RULE(!(readers & BIT(now_asks)), one_question);
	readers = readers | BIT(now_asks);
	told = told & ~BIT(now_asks);
	owed = owed & ~BIT(now_asks);
	asked_as[now_asks] = ask;
	if :: alive[now_asks] -> qa[now_asks]!ASK,gen,ask :: else fi
}

inline over()				/* ask_end */
{
	live = false;
	asked = false;
#ifndef B_NOCANCEL
	x = 0;
	do :: x < NP -> cancel_to(x); x++ :: else -> x = 0; break od
#endif
}

inline move_on(p)			/* to the process after p: ACTIVATE, or a death's standby */
{
	now_asks = (p + 1 < NP && !(seen & BIT(p + 1)) -> p + 1 : NONE);
	if
	:: live && now_asks != NONE -> question()		/* ask_all_again */
	:: live && now_asks == NONE -> asked = false
	:: chosen -> skip				/* already SENT: stays */
	:: !live
	fi
}

inline hear(p)				/* heard_answer, heard_cancelled */
{
	an[p]?v,g,a;
	if
#ifdef B_KEY
	:: v == CANCELLED -> readers = readers & ~BIT(p)
#else
	:: v == CANCELLED && g == gen && a == asked_as[p] -> readers = readers & ~BIT(p)
#endif
	:: v == CHOOSE && g == gen && a == asked_as[p] ->
		readers = readers & ~BIT(p);
		if
		:: live && asked && a == ask && now_asks == p && !(closed & BIT(p)) ->
			asked = false;
			chosen = true
		:: else
		fi
	:: else
	fi;
	if :: !(readers & BIT(p)) -> owed = owed & ~BIT(p) :: else fi;
	v = 0; g = 0; a = 0
}

inline pidfd(p)				/* ask_gone */
{
	seen = seen | BIT(p);
	closed = closed | BIT(p);
#ifndef B_DEADKEPT
	readers = readers & ~BIT(p);
#endif
	owed = owed & ~BIT(p);
	if :: now_asks == p -> move_on(p) :: else fi
}

inline activate()			/* the next one: close_stream, then ask_all_again */
{
	p = now_asks;
	closed = closed | BIT(p);
#ifndef CLOSESILENT
	cancel_to(p);
#endif
	move_on(p);
	p = 0
}

active proctype ingress()
{
	byte g, a, x, p;
	mtype v;

	do
	:: atomic { gen < NREQ && !live && readers == 0 && region == 0 && now_asks != NONE ->
		gen++; region = gen; ask = 0; live = true; question() }
	:: atomic { live -> over() }			/* client gone, relayed to the end, time-out */
	:: atomic { live && chosen && now_asks != NONE && ask <= NP -> question() }	/* a retry */
	:: atomic { owed && !live ->			/* ask_tick */
		x = 0;
		do
		:: x < NP -> if :: owed & BIT(x) -> cancel_to(x) :: else fi; x++
		:: else -> x = 0; break
		od }
	:: atomic { now_asks < NP - 1 && !(seen & BIT(now_asks)) -> activate() }
	:: atomic { nempty(an[0]) -> hear(0) }
	:: atomic { nempty(an[1]) -> hear(1) }
	:: atomic { !alive[0] && !(seen & 1) -> pidfd(0) }
	:: atomic { !alive[1] && !(seen & 2) -> pidfd(1) }
#if NP > 2
	:: atomic { nempty(an[2]) -> hear(2) }
	:: atomic { !alive[2] && !(seen & 4) -> pidfd(2) }
#endif
#ifdef B_FREEATEND
	:: atomic { !live && region != 0 -> region = 0; readers = 0; owed = 0 }
#else
	:: atomic { !live && readers == 0 && region != 0 -> region = 0 }	/* slot_free */
#endif
	:: atomic { !live && region == 0 && (gen == NREQ || now_asks == NONE) -> done = true; break }
	od
}

proctype policy(byte p)
{
	byte g, a;
	mtype v;

	do
	:: atomic { alive[p] && !reading[p] && nempty(qa[p]) ->
		qa[p]?v,g,a;
		if
		:: v == ASK -> wait_gen[p] = g; wait_ask[p] = a		/* waiting_take, waiting_add */
		:: v == CANCEL ->
#ifndef B_KEEPQUEUED
			wait_gen[p] = 0; wait_ask[p] = 0;
#endif
			an[p]!CANCELLED,g,a
		fi;
		v = 0; g = 0; a = 0 }
	:: atomic { alive[p] && !reading[p] && wait_gen[p] ->		/* evaluate_question */
		if
#ifndef B_KEEPQUEUED
		:: !(gen == wait_gen[p] && ask == wait_ask[p] && asked) ->	/* EVALUATE_STALE */
			wait_gen[p] = 0; wait_ask[p] = 0
#endif
		:: else -> reading[p] = wait_gen[p]
		fi }
	:: atomic { alive[p] && reading[p] ->
		RULE(region == reading[p], bytes_stay);
		if
		:: helper[p] == 0 ->
			an[p]!CHOOSE,wait_gen[p],wait_ask[p];
			wait_gen[p] = 0; wait_ask[p] = 0
		:: helper[p] == 0					/* EVALUATE_WAIT: once more later */
#ifdef B_HELPER
		/* 2 s are over: decided without a prefix, the thread goes on */
		:: helper[p] == 0 ->
			helper[p] = reading[p];
			an[p]!CHOOSE,wait_gen[p],wait_ask[p];
			wait_gen[p] = 0; wait_ask[p] = 0
		:: else
#endif
		fi;
		reading[p] = 0 }
#ifdef B_HELPER
	:: atomic { alive[p] && helper[p] -> RULE(region == helper[p], bytes_stay); helper[p] = 0 }
#endif
	:: atomic { !alive[p] || (done && empty(qa[p])) -> break }
	od
}

inline kill(p)
{
	alive[p] = false;
	reading[p] = 0; wait_gen[p] = 0; wait_ask[p] = 0; helper[p] = 0;
	do :: nempty(qa[p]) -> qa[p]?_,_,_ :: empty(qa[p]) -> break od
}

active proctype killer()
{
	do
	:: atomic { alive[0] -> kill(0) }
	:: atomic { alive[1] -> kill(1) }
#if NP > 2
	:: atomic { alive[2] -> kill(2) }
#endif
	:: break
	od
}

active proctype quiet()
{
	timeout -> RULE(done && region == 0 && !live, ends_owed)
}

init
{
	byte k = 0;

	atomic {
		do :: k < NP -> run policy(k); k++ :: else -> break od
	}
}
