/* overlay.pml -- a decision never misses a request that was decided before: the fine order inside one
 * decision and inside one apply.
 *
 * Stands for  actors/policy/gather.c gather_candidates: view_settle (watermarks: shm/cell.c
 *             column_applied, actors/policy/overlay.c overlay_settle), then per row view_load (each
 *             ingress's cell, then overlay_row); actors/policy/evaluate.c conclude (overlay_push
 *             gives the number) and decisions.c say_answer: one thread, so all of it is one critical
 *             section.  actors/ingress/ask.c heard_answer: in order, ops->apply writes the cell
 *             (ledger.c ledger_charge), then column_apply stores the watermark; a discarded answer
 *             stores the watermark only.
 * Scale       NI ingresses with NR requests each, all asked at the start; NE evaluators.  The code
 *             has one; two show what the critical section is for.
 * Time        a request ends at any moment after its apply, or before it (then its answer is
 *             discarded); the policy process or an ingress may be killed at any moment.
 * Rules       no_charge_missed  at each choice a request that was chosen before, and that will be or
 *                               was applied and has not ended, shows in its cell or in the overlay
 *             no_hole           numbers arrive without holes
 *             settled_at_rest   when all is applied the overlay is empty and a cell shows what lives
 * Switches    B_CELLFIRST  cells are read before the watermarks
 *             B_WMFIRST    ingress stores the watermark before the cell
 *             B_SENDOUT    NE=2: the number is given inside, the message sent outside the section
 *             B_SNAPOUT    NE=2: watermarks and cells are read before the section is entered, and
 *                          the overlay is settled inside by the newest watermark known
 *             RETRY        an applied request moves to another row: charged there, then released
 *                          here (ledger_charge).  A scan that reads the new row before the move and
 *                          the old row after it misses the request once: known and tolerated.
 *             INORDER      with RETRY: the scan reads the old row first: nothing is missed
 *             B_RELEASEFIRST  with both: released here, then charged there
 *
 * run small holds                                     # 27,505 states, 0.1 s
 * run all holds -DNI=2 -DNR=2                         # 798,001 states, 5 s
 * run small holds -DNE=2 -DNR=2                       # 29,203 states, 0.6 s
 * run small breaks no_charge_missed -DB_CELLFIRST
 * run small breaks no_charge_missed -DB_WMFIRST
 * run small breaks no_hole -DNE=2 -DNR=2 -DB_SENDOUT
 * run small breaks no_charge_missed -DNE=2 -DB_SNAPOUT
 * run small breaks no_charge_missed -DRETRY
 * run small holds -DRETRY -DINORDER                   # 171,201 states, 0.4 s
 * run small breaks no_charge_missed -DRETRY -DINORDER -DB_RELEASEFIRST
 * run all holds -DNI=2 -DNR=3
 * run all holds -DNI=3 -DNR=2
 * run all holds -DNE=2 -DNI=2 -DNR=2
 */
#ifndef NE
#define NE 1
#endif
#ifndef NI
#define NI 1
#endif
#ifndef NR
#define NR 3
#endif
#define ALL (NI * NR)
#define OF(r) ((r) / NR)
#define RULE(cond, name) assert((cond) || name)
hidden byte no_charge_missed, no_hole, settled_at_rest;

chan answers[NI] = [NR] of { byte, byte };	/* number, request: one ordered stream each */
byte applied[NI];			/* the watermark in the column */
bit cell[ALL];				/* charge of a request on its first row (a cell is their sum) */
bit moved[ALL];				/* ... and on the row it was moved to */
bool went[ALL];				/* moved once */
bool over[ALL];				/* the request has ended */
byte numbers[NI];			/* given */
byte nr[ALL];				/* number of a request's answer; 0 not chosen */
bit overlay[ALL];
byte next;				/* next question */
bit section;
bool dead[NI];				/* ingress killed: its column is no longer looked at */
bool stopped;				/* policy process killed */
byte known[NI];				/* B_SNAPOUT: newest watermark read by anybody */

proctype ingress(byte i)
{
	byte n, r;

	do
	:: atomic { !dead[i] && answers[i]?[n, r] -> answers[i]?n,r };
		RULE(n == applied[i] + 1, no_hole);
#ifdef B_WMFIRST
		applied[i] = n;
		atomic { if :: !over[r] -> cell[r] = 1 :: else fi }
#else
		/* not current any more: discarded, and the watermark moves all the same */
		atomic { if :: !over[r] -> cell[r] = 1 :: else fi };
		applied[i] = n
#endif
	:: atomic { !dead[i] && n > 0 && !over[r] && r < ALL -> over[r] = true; cell[r] = 0; moved[r] = 0 }
	/* the client of a later one goes before its answer is applied */
	:: atomic { !dead[i] && applied[i] < NR && !over[i * NR + NR - 1] && !cell[i * NR + NR - 1] ->
		over[i * NR + NR - 1] = true }
#ifdef RETRY
	:: atomic { !dead[i] && cell[r] && !went[r] && !over[r] -> went[r] = true };
#ifdef B_RELEASEFIRST
		cell[r] = 0;
		moved[r] = 1
#else
		moved[r] = 1;
		cell[r] = 0
#endif
#endif
	:: atomic { (applied[i] == NR || dead[i]) -> break }
	:: atomic { stopped && empty(answers[i]) -> break }
	od
}

inline watermarks()			/* view_settle, first half */
{
	j = 0;
	do
	:: j < NI ->
		atomic { w[j] = applied[j]; if :: w[j] > known[j] -> known[j] = w[j] :: else fi };
		j++
	:: else -> j = 0; break
	od
}

inline cells()				/* view_load: row by row */
{
	j = 0;
#ifdef RETRY
#ifdef INORDER
	do :: j < ALL -> c[j] = cell[j]; j++ :: else -> j = 0; break od;
	do :: j < ALL -> c[j] = c[j] || moved[j]; j++ :: else -> j = 0; break od
#else
	do :: j < ALL -> c[j] = moved[j]; j++ :: else -> j = 0; break od;
	do :: j < ALL -> c[j] = c[j] || cell[j]; j++ :: else -> j = 0; break od
#endif
#else
	do :: j < ALL -> c[j] = cell[j]; j++ :: else -> j = 0; break od
#endif
}

inline settle()				/* overlay_settle: private memory */
{
	d_step {
		j = 0;
		do
		:: j < ALL ->
#ifdef B_SNAPOUT
			if :: overlay[j] && nr[j] <= known[OF(j)] -> overlay[j] = 0 :: else fi;
#else
			if :: overlay[j] && nr[j] <= w[OF(j)] -> overlay[j] = 0 :: else fi;
#endif
			j++
		:: else -> j = 0; break
		od
	}
}

#define SEEN(r) (c[r] || o[r])

inline judge()
{
	d_step {
		j = 0;
		do
		:: j < ALL ->
			RULE(!nr[j] || over[j] || dead[OF(j)] || SEEN(j), no_charge_missed);
			j++
		:: else -> j = 0; break
		od
	}
}

inline sum_overlay()
{
	d_step {
		j = 0;
		do :: j < ALL -> o[j] = overlay[j]; j++ :: else -> j = 0; break od
	}
}

proctype evaluator()
{
	byte j, r;
	byte w[NI];
	bit c[ALL], o[ALL];

	do
	:: atomic { next < ALL && !stopped -> r = (next % NI) * NR + next / NI; next++ };
#ifdef B_SNAPOUT
		watermarks();
		cells();
		atomic { !section -> section = 1 };
#else
		atomic { !section -> section = 1 };
#ifdef B_CELLFIRST
		cells();
		watermarks();
#else
		watermarks();
		cells();
#endif
#endif
		atomic {
			settle();
			sum_overlay();
			judge();
			numbers[OF(r)]++;
			nr[r] = numbers[OF(r)];
			overlay[r] = 1
		};
#ifdef B_SENDOUT
		section = 0;
		answers[OF(r)]!nr[r],r;
#else
		answers[OF(r)]!nr[r],r;
		section = 0;
#endif
		d_step {
			j = 0;
			do :: j < ALL -> c[j] = 0; o[j] = 0; j++ :: else -> j = 0; break od;
			r = 0
		}
	:: atomic { next == ALL -> break }
	:: atomic { stopped -> break }
	od
}

active proctype killer()
{
	if
	:: d_step { dead[NI - 1] = true; cell[ALL - 1] = 0 }
	:: !section -> stopped = true
	:: skip
	fi
}

init
{
	byte k = 0, j;
	byte w[NI];

	atomic {
		do :: k < NI -> run ingress(k); k++ :: else -> k = 0; break od;
		do :: k < NE -> run evaluator(); k++ :: else -> k = 0; break od
	}
	atomic {
		timeout;
		/* all is quiet */
		do :: k < NI -> w[k] = applied[k]; known[k] = w[k]; k++ :: else -> break od;
		settle();
		k = 0;
		do
		:: k < ALL ->
			RULE(dead[OF(k)] || stopped || !overlay[k], settled_at_rest);
			RULE(dead[OF(k)] || !over[k] || !(cell[k] || moved[k]), settled_at_rest);
			k++
		:: else -> break
		od
	}
}
