/* ingress.pml -- an ingress dies and is replaced while a swap goes on.
 *
 * Stands for  actors/supervisor/children.c: bury (`gone` to the policies, then ingress_clean), reap;
 *             seats.c: seat_fill, adopt, and unadopt when the successor is ready; reload.c
 *             acknowledged (one born after the switch began has no old stream);
 *             actors/ingress/ingress.c: adopt, open_listeners; ask.c ask_activate, heard_answer;
 *             actors/policy/peers.c: peers_segment, peer_remove; overlay.c overlay_stream_close.
 * Scale       ingress 0 lives; ingress 1 dies at any moment, ingress 2 is its successor (another
 *             incarnation, with a column of its own, on the same listener), or none comes up.  Policy process 0 is
 *             asked, then 1, of the next generation.  CONNS connections wait at each listener, each
 *             with one request; one request at a time in each ingress.  One answer's apply (cell,
 *             watermark) and one decision are one step: their order is overlay.pml's.
 * Rules       no_charge_missed  a decision sees every request that was applied by a live ingress, in
 *                               its cell or in the overlay
 *             one_stream        OPEN: no live ingress still applies answers of the process before
 *             new_rules         after the reload was answered nothing is sent under the old rules
 *             all_served        in the end every connection was served, or broke with its ingress
 *             books_empty       in the end no column charges anything, no live process's overlay
 *                               holds anything
 *             one_acceptor      in the end one live ingress accepts at each listener
 * Switches    B_ONECOLUMN  the successor takes over the column, which is zeroed after its birth
 *             B_NOGONE     the policies are not told `gone`
 *             B_NOADOPT    nobody accepts for the dead
 *             B_NOUNADOPT  the neighbour goes on accepting
 *             B_UNTOLD     the successor is told of no process
 *             B_BORNOLD    the successor is told of the process that was asked when its predecessor
 *                          died
 *             B_NOREASK    ACTIVATE leaves what was chosen under the old rules
 *             B_NOACK      OPEN does not wait for the ingresses
 *             B_NOZERO     the column is not zeroed
 *
 * run small holds                                     # 318,380 states, 5 s
 * run small breaks no_charge_missed -DB_ONECOLUMN
 * run small breaks books_empty -DB_NOGONE
 * run small breaks one_acceptor -DB_NOADOPT
 * run small breaks all_served -DB_UNTOLD
 * run small breaks one_acceptor -DB_NOUNADOPT
 * run small breaks one_stream -DB_BORNOLD
 * run small breaks new_rules -DB_NOREASK
 * run small breaks one_stream -DB_NOACK
 * run small breaks books_empty -DB_NOZERO
 * run all holds -DCONNS=2
 */
#ifndef CONNS
#define CONNS 1
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte no_charge_missed, one_stream, new_rules, all_served, books_empty, one_acceptor;

#define NI 3
#define NP 2
#define NONE 9
#define BIT(p) (1 << (p))
#define IX(i, p) ((i) * NP + (p))
#ifdef B_ONECOLUMN
#define COLUMN(i) ((i) == 2 -> 1 : (i))
#else
#define COLUMN(i) (i)
#endif
mtype = { UNBORN, BORN, READY, DEAD };		/* an ingress */
mtype = { FREE, WAITING, ASKED, CHOSEN, SENT };	/* its request */
mtype = { ACTIVATE, GONE, ADOPT, UNADOPT, OPEN };

mtype life[NI] = UNBORN;
byte backlog[2] = CONNS;			/* connections that nobody has accepted yet */
byte accepts[NI];				/* bit l: takes connections of listener l */
mtype req[NI] = FREE;
byte ask[NI], asks[NI];				/* number of the question; process asked now */
byte closed[NI];
byte acked[NI];					/* bit p: has said `active` p */
bit cell[NI];
byte chosen_by[NI];
chan questions[6] = [2] of { byte };		/* ask numbers */
chan answers[6] = [3] of { byte };
chan to_in[NI] = [4] of { mtype, byte };	/* from the supervisor */
chan to_pol[NP] = [3] of { mtype, byte };
byte knows[NP];					/* bit i: has its segments, a stream is open */
byte overlay[6];				/* answers sent and not applied, by stream */
bool opened[NP];
byte wanted;					/* process the supervisor wants asked */
bool answered;					/* the reload was */
byte served, broken;
byte adopter = NONE, told = NONE;		/* told: process that ingress 2 was told to ask */
bool zeroed, told_gone, barren;		/* barren: no successor comes up, ever */

inline put_question(i)
{
	if
	:: asks[i] != NONE ->
		ask[i]++;
		req[i] = ASKED;
		questions[IX(i, asks[i])]!ask[i]
	:: else -> req[i] = WAITING
	fi
}

inline activate(i, p)				/* ask_activate; CHOSEN gives its charge back */
{
	closed[i] = closed[i] | (asks[i] != NONE && asks[i] != p -> BIT(asks[i]) : 0);
	asks[i] = p;
	acked[i] = acked[i] | BIT(p);
	if
	:: req[i] == ASKED || req[i] == WAITING -> put_question(i)
#ifndef B_NOREASK
	:: req[i] == CHOSEN -> cell[COLUMN(i)] = 0; put_question(i)
#endif
	:: else
	fi
}

inline hear(i, p)				/* heard_answer: applied or discarded, in order */
{
	answers[IX(i, p)]?a;
	if
	:: req[i] == ASKED && a == ask[i] && asks[i] == p && !(closed[i] & BIT(p)) ->
		req[i] = CHOSEN; cell[COLUMN(i)] = 1; chosen_by[i] = p
	:: else
	fi;
	if :: overlay[IX(i, p)] > 0 -> overlay[IX(i, p)]-- :: else fi;	/* the watermark */
	a = 0
}

#define LIVE(i) (life[i] == READY)

proctype ingress(byte i)
{
	byte a, p;
	mtype what;

end:	do
	:: atomic { life[i] == BORN -> life[i] = READY; accepts[i] = accepts[i] | BIT(i > 0) }
	:: atomic { LIVE(i) && nempty(to_in[i]) ->
		to_in[i]?what,p;
		if
		:: what == ACTIVATE -> activate(i, p)
		:: what == ADOPT -> accepts[i] = accepts[i] | BIT(p)
		:: what == UNADOPT -> accepts[i] = accepts[i] & ~BIT(p)
		fi;
		what = 0; p = 0 }
	:: atomic { LIVE(i) && req[i] == FREE && (accepts[i] & 1) && backlog[0] > 0 ->
		backlog[0]--; put_question(i) }
	:: atomic { LIVE(i) && req[i] == FREE && (accepts[i] & 2) && backlog[1] > 0 ->
		backlog[1]--; put_question(i) }
	:: atomic { LIVE(i) && nempty(answers[IX(i, 0)]) -> hear(i, 0) }
	:: atomic { LIVE(i) && nempty(answers[IX(i, 1)]) -> hear(i, 1) }
	:: atomic { LIVE(i) && req[i] == CHOSEN ->
		req[i] = SENT;
		RULE(!answered || chosen_by[i] == 1, new_rules) }
	:: atomic { LIVE(i) && req[i] == SENT -> cell[COLUMN(i)] = 0; req[i] = FREE; served++ }
	:: life[i] == DEAD -> break
	od
}

/* What a decision of p for j sees. */
#define MISSED(i, p) (LIVE(i) && (req[i] == CHOSEN || req[i] == SENT) && (knows[p] & BIT(i)) && \
	!cell[COLUMN(i)] && overlay[IX(i, p)] == 0)

inline decide(j, p)
{
	questions[IX(j, p)]?a;
	RULE(!MISSED(0, p) && !MISSED(1, p) && !MISSED(2, p), no_charge_missed);
	overlay[IX(j, p)]++;
	if :: life[j] != DEAD -> answers[IX(j, p)]!a :: else fi;
	a = 0
}

proctype policy(byte p)
{
	byte a, i;
	mtype what;

end:	do
	:: atomic { nempty(to_pol[p]) ->
		to_pol[p]?what,i;
		if
		:: what == GONE -> knows[p] = knows[p] & ~BIT(i); overlay[IX(i, p)] = 0
		:: what == BORN -> knows[p] = knows[p] | BIT(i)
		:: what == OPEN -> opened[p] = true
		fi;
		what = 0; i = 0 }
	:: atomic { opened[p] && (knows[p] & 1) && nempty(questions[IX(0, p)]) -> decide(0, p) }
	:: atomic { opened[p] && (knows[p] & 2) && nempty(questions[IX(1, p)]) -> decide(1, p) }
	:: atomic { opened[p] && (knows[p] & 4) && nempty(questions[IX(2, p)]) -> decide(2, p) }
	od
}

proctype supervisor()
{
	byte k;

end:	do
	/* RELOAD_WANTED .. SWITCHING */
	:: atomic { wanted == 0 ->
		wanted = 1;
		if :: LIVE(0) -> to_in[0]!ACTIVATE,1 :: else fi;
		if :: LIVE(1) -> to_in[1]!ACTIVATE,1 :: else fi;
		if :: told != NONE -> to_in[2]!ACTIVATE,1 :: else fi }
	:: atomic { wanted == 1 && !answered &&
#ifdef B_NOACK
		true ->
#else
		(acked[0] & 2) && (acked[1] & 2 || (life[1] == DEAD && told_gone)) &&
		(told != 0 || (acked[2] & 2)) ->
#endif
		k = 0;
		do
		:: k < NI -> RULE(!(LIVE(k) && asks[k] == 0 && !(closed[k] & 1)), one_stream); k++
		:: else -> k = 0; break
		od;
		to_pol[1]!OPEN,0; answered = true }
	/* bury */
	:: atomic { life[1] == DEAD && !told_gone ->
		told_gone = true;
		if :: barren = true :: skip fi;
#ifndef B_NOGONE
		to_pol[0]!GONE,1; to_pol[1]!GONE,1;
#endif
#ifndef B_NOADOPT
		adopter = 0; to_in[0]!ADOPT,1
#endif
	   }
#ifndef B_NOZERO
	:: atomic { life[1] == DEAD && told_gone && !zeroed -> zeroed = true; cell[1] = 0 }	/* ingress_clean */
#endif
	/* seat_fill: its segments to the policies, then its birth */
	:: atomic { life[1] == DEAD && told_gone && life[2] == UNBORN && !barren ->
		life[2] = BORN; to_pol[0]!BORN,2; to_pol[1]!BORN,2 }
	/* its `ready`, and that the wanted process was reached */
	:: atomic { LIVE(2) && told == NONE ->
		told = wanted;
#ifdef B_BORNOLD
		to_in[2]!ACTIVATE,0;
#else
#ifndef B_UNTOLD
		to_in[2]!ACTIVATE,told;
#endif
#endif
#ifndef B_NOUNADOPT
		if :: adopter != NONE -> to_in[adopter]!UNADOPT,1; adopter = NONE :: else fi
#endif
	   }
	od
}

active proctype killer()
{
	byte p, n;

	if
	:: atomic { LIVE(1) ->
		life[1] = DEAD;
		/* Its connections break; what was on its way to it is lost. */
		if :: req[1] != FREE -> broken++ :: else fi;
		accepts[1] = 0; req[1] = FREE;
		do
		:: p < NP ->
			do :: nempty(answers[IX(1, p)]) -> answers[IX(1, p)]?_ :: empty(answers[IX(1, p)]) -> break od;
			do :: nempty(questions[IX(1, p)]) -> questions[IX(1, p)]?_ :: empty(questions[IX(1, p)]) -> break od;
			p++
		:: else -> break
		od;
		do :: nempty(to_in[1]) -> to_in[1]?_,_ :: empty(to_in[1]) -> break od }
	:: skip
	fi
}

active proctype quiet()
{
	byte l;

	timeout ->
	atomic {
		RULE(backlog[0] + backlog[1] == 0 && served + broken == 2 * CONNS, all_served);
		RULE(req[0] == FREE && req[2] == FREE && req[1] == FREE, all_served);
		RULE(!cell[0] && !cell[1] && !cell[2], books_empty);
		do
		:: l < 6 -> RULE(overlay[l] == 0, books_empty); l++
		:: else -> break
		od;
		RULE(accepts[0] == (barren -> 3 : 1), one_acceptor);
		RULE(barren || (life[1] == DEAD -> accepts[2] : accepts[1]) == 2, one_acceptor);
		RULE(answered, all_served)
	}
}

init
{
	byte k;

	atomic {
		do :: k < NI -> asks[k] = (k < 2 -> 0 : NONE); k++ :: else -> k = 0; break od;
		life[0] = READY; life[1] = READY; accepts[0] = 1; accepts[1] = 2;
		acked[0] = 1; acked[1] = 1; knows[0] = 3; knows[1] = 3; opened[0] = true;
		do :: k < NI -> run ingress(k); k++ :: else -> k = 0; break od;
		run policy(0); run policy(1); run supervisor()
	}
}
