/* refunds.pml -- limits: what a request reserves is taken once and given back once.
 *
 * Stands for  shm/limit.c (limit_reserve, limit_return, limits_refund) as actors/ingress/tenant.c
 *             calls it: a reservation is performed by the ingress that owns the slot, of tokens when
 *             it applies the answer; shm/slot.h has the place (slot.reserve: limit, state none /
 *             noted / taken, amount).
 *
 *   apply     for each limit: reserve.state = NOTED (with limit and amount), then CAS of the word of
 *             that limit from v to v + amount where the burst allows it, then TAKEN.  Refused by one
 *             limit: what was taken of the others is given back, the request is answered 429 and the
 *             answer counts as discarded.
 *   end       for each limit that is TAKEN: CAS from v to v - (amount - used), then state = NONE;
 *             used is 0 for a request that never left.
 *   death     after the exit of an ingress the supervisor looks at each of its slots once: NOTED or
 *             TAKEN: CAS back the whole amount, then NONE.  Of a dead ingress's NOTED nobody knows
 *             whether the CAS was done, of a TAKEN whether it was undone: at most one request per
 *             slot is given back that had not been taken.  Never is one kept that is over.
 *   word      GCRA: one 64-bit time; here the amount it stands above now.  Time lowers it too; a
 *             refund never takes it below now.
 *
 * Scale       NI ingresses of one slot, NREQ requests each; two limits: requests (amount 1, used 1 by
 *             a request that left) and tokens (amount 2, used 1); one of the ingresses may be killed
 *             before any store.
 * Rules       never_kept    at the end a word is at most what was used
 *             bounded_gift  ... and below that by at most one request's amount for each dead slot
 *             under_burst   no more is ever taken than the burst, and one such gift, allow
 *             once_each     a slot's reservation is given back once
 * Switches    B_TAKEFIRST   CAS before the note
 *             B_NONEFIRST   at the end the note is dropped before the CAS
 *             B_FORGET      a request refused by the second limit keeps the first
 *             B_NOCAS       the word is read and written in two steps
 *             B_EARLY       the supervisor does not wait for the exit
 *             B_REPEAT      the supervisor looks at a slot twice and leaves the note
 *             B_TWICE       a refund leaves the note, so the end of the request gives back again
 *             B_NOLIMIT     the burst is looked at outside of the CAS
 *
 * run small holds                                     # 18,740 states
 * run small holds -DNREQ=2 -DNOKILL                   # 18,101 states
 * run small breaks never_kept -DB_TAKEFIRST
 * run small breaks never_kept -DB_NONEFIRST
 * run small breaks never_kept -DB_FORGET -DNREQ=2 -DNOKILL
 * run small breaks bounded_gift -DB_NOCAS -DNOKILL
 * run small breaks bounded_gift -DB_EARLY
 * run small breaks bounded_gift -DB_REPEAT
 * run small breaks once_each -DB_TWICE -DNOKILL
 * run small breaks under_burst -DB_NOLIMIT -DNOKILL
 * run all holds -DNREQ=2
 * run all holds -DNI=3
 */
#ifndef NI
#define NI 2
#endif
#ifndef NREQ
#define NREQ 1
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte never_kept, bounded_gift, under_burst, once_each;

#define NL 2
#define AMOUNT(l) (1 + (l))
#define BURST(l) ((l) == 1 -> 3 : NI * NREQ)	/* tokens for one at a time: the next is refused */
#define GIFT(l) (kills * AMOUNT(l))
#define AT(i, l) ((i) * NL + (l))

mtype = { NONE, NOTED, TAKEN };
short word[NL];				/* of the limits */
mtype state[NI * NL] = NONE;		/* slot.reserve[].state, by slot and limit */
bool in_use[NI];			/* the slot is not FREE */
bool doomed, dead[NI];			/* to be killed, killed */
bool ended[NI];				/* its process runs no more: the supervisor may know */
byte used[NL];				/* ghost: by requests that were served to the end */
byte given[NI * NL];			/* ghost: refunds since the reservation was noted */
byte kills;

#ifdef B_NOCAS
#define STEP
#else
#define STEP d_step
#endif

inline take_word(l)
{
#ifdef B_NOCAS
	v = word[l];
	ok = v + AMOUNT(l) <= BURST(l);
	if :: ok -> word[l] = v + AMOUNT(l) :: else fi;
	v = 0;
#else
#ifdef B_NOLIMIT
	ok = word[l] + AMOUNT(l) <= BURST(l);
	if :: ok -> word[l] = word[l] + AMOUNT(l) :: else fi;
#else
	d_step {				/* CAS: a lost race is only a second try */
		ok = word[l] + AMOUNT(l) <= BURST(l);
		if :: ok -> word[l] = word[l] + AMOUNT(l) :: else fi
	};
#endif
#endif
	RULE(word[l] <= BURST(l), under_burst)
}

/* CAS back; a GCRA word never falls below now. */
inline give_word(l, part)
{
#ifdef B_NOCAS
	v = word[l];
	word[l] = v - (part);
	v = 0
#else
	word[l] = word[l] - (part)
#endif
}

inline reserve(l)
{
#ifdef B_TAKEFIRST
	take_word(l);
	if :: ok -> d_step { state[AT(i, l)] = TAKEN; given[AT(i, l)] = 0 } :: else fi
#else
	d_step { state[AT(i, l)] = NOTED; given[AT(i, l)] = 0 };
	take_word(l);
	if :: ok -> state[AT(i, l)] = TAKEN :: else -> state[AT(i, l)] = NONE fi
#endif
}

inline give_back(l, spent)
{
	if
	:: state[AT(i, l)] == TAKEN ->
#ifdef B_NONEFIRST
		state[AT(i, l)] = NONE;
#endif
		STEP { give_word(l, AMOUNT(l) - spent); given[AT(i, l)]++; used[l] = used[l] + spent };
		RULE(given[AT(i, l)] == 1, once_each);
#ifndef B_TWICE
		state[AT(i, l)] = NONE
#endif
	:: else
	fi
}

proctype ingress(byte i)
{
	byte n;
	short v;
	bool ok, left;

	{
		do
		:: n < NREQ ->
			n++;
			in_use[i] = true;
			reserve(0);
			if
			:: ok ->
				reserve(1);
				if
				:: !ok ->			/* 429 */
#ifndef B_FORGET
					give_back(0, 0)
#else
					state[AT(i, 0)] = NONE
#endif
				:: else ->
					/* relayed to the end, or ended before a byte had left */
					if :: left = true :: left = false fi;
					give_back(1, left);
					give_back(0, left)
				fi
			:: else
			fi;
			give_back(0, 0);		/* every path ends here: nothing is left to give */
			d_step { in_use[i] = false; ok = false; left = false }
		:: else -> break
		od
	} unless { dead[i] };
	ended[i] = true
}

inline settle(k, l)			/* of a dead ingress's slot */
{
	if
	:: state[AT(k, l)] != NONE ->
		STEP { give_word(l, AMOUNT(l)); given[AT(k, l)]++ };
#ifndef B_REPEAT
		state[AT(k, l)] = NONE
#endif
	:: else
	fi
}

active proctype supervisor()
{
	byte k;
	short v;

#ifdef B_EARLY
end:	doomed;
#else
end:	ended[0] && dead[0];
#endif
	settle(0, 0);
	settle(0, 1);
#ifdef B_REPEAT
	settle(0, 0);
#endif
	in_use[0] = false
}

active proctype killer()
{
#ifdef NOKILL
	skip
#else
	if
	:: doomed = true;
		if :: d_step { !ended[0] -> dead[0] = true; kills++ } :: else fi
	:: skip
	fi
#endif
}

#define GIFTED(l) (word[l] >= used[l] - GIFT(l))

init
{
	byte k;

	atomic { do :: k < NI -> run ingress(k); k++ :: else -> k = 0; break od };
	atomic {
		timeout;
		RULE(word[0] <= used[0] && word[1] <= used[1], never_kept);
		RULE(GIFTED(0) && GIFTED(1), bounded_gift)
	}
}
