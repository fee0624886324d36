/* latch.pml -- one writer, any number of readers, a group of words never torn.
 *
 * Stands for  shm/latch.h: latch_write, latch_read; the supervisor's last write into the cells of
 *             a dead ingress (actors/supervisor/children.c ingress_clean), which goes on from the
 *             counter it finds.
 * Memory      stores may be seen late where the language allows it: the store of the word may
 *             become visible after the first stores of the next write (L0 forbids), or before the
 *             stores it publishes (L1 forbids); the reader's loads may be taken early (A1, A2).
 * Time        NW writes, so that a reader sees two of them between its two looks; the writer is
 *             killed before any store, then its successor writes once.
 * Rules       whole_pair      an accepted pair is of one write
 *             newest_pair     ... of the very write that the word names
 *             tag_of_pair     ... and so is the tag that came with the word
 *             read_at_rest    while nobody writes, the first try is accepted
 * Switches    B_BIT  an index bit instead of a counter;  B_NOCHECK  no second look at the word
 *             B_NOL0, B_NOL1, B_NOA1, B_NOA2  without that fence or order
 *             B_ONECOPY  the writer fills the copy that stands
 *
 * run small holds                                     # 38,837 states, 0.1 s
 * run small breaks whole_pair -DB_BIT
 * run small breaks whole_pair -DB_NOCHECK
 * run small breaks whole_pair -DB_ONECOPY
 * run small breaks whole_pair -DB_NOL0
 * run small breaks newest_pair -DB_NOL1
 * run small breaks newest_pair -DB_NOA1
 * run small breaks whole_pair -DB_NOA2
 * run all holds -DNW=9                                # 172,637 states, 0.1 s
 */
#ifndef NW
#define NW 5
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte whole_pair, newest_pair, tag_of_pair, read_at_rest;

byte n;				/* the word: its counter ... */
byte tag;			/* ... and its tag; stored and loaded as one */
byte a[2], b[2];		/* two copies of two words */
bool late;			/* a store of the word that nobody sees yet */
byte late_n, late_tag;
bool rest;			/* nobody writes any more */

#define TAG(k) ((k) / 2)	/* a row generation: two writes each */
#ifdef B_BIT
#define NEXT(k) ((k) & 1)
#else
#define NEXT(k) (k)
#endif
#ifdef B_ONECOPY
#define COPY(k) (((k) + 1) & 1)
#else
#define COPY(k) ((k) & 1)
#endif

inline publish(k)			/* L1: what was stored before is visible before */
{
	atomic { !late -> late_n = NEXT(k); late_tag = TAG(k); late = true }
}

inline fill(k)
{
	a[COPY(k)] = k;
	b[COPY(k)] = k
}

inline fence_l0()
{
#ifndef B_NOL0
	!late			/* every later store is seen after the word */
#else
	skip
#endif
}

active proctype writer()
{
	byte k = 0;

	do
	:: k < NW ->
		k++;
		fence_l0();
#ifdef B_NOL1
		if :: publish(k) :: break fi;
		!late;
#endif
		if :: a[COPY(k)] = k :: break fi;	/* or killed here */
		if :: b[COPY(k)] = k :: break fi;
#ifndef B_NOL1
		if :: publish(k) :: break fi
#endif
	:: k < NW -> break
	:: else -> break
	od;
	/* The successor: the exit of a process makes all its stores visible. */
	!late;
#ifndef B_BIT
	k = n + 1;
	fence_l0();
	fill(k);
	publish(k);
	!late;
#endif
	rest = true
}

active proctype memory()
{
	do
	:: atomic { late -> n = late_n; tag = late_tag; late = false; late_n = 0; late_tag = 0 }
	:: atomic { rest && !late -> break }
	od
}

inline look()
{
	d_step { c = n; t = tag }
}

active proctype reader()
{
	byte c, t, x, y, again, tries = 0;
	bool quiet;

	do
	:: tries < 2 ->
		tries++;
		quiet = rest;
#ifdef B_NOA1
		if :: c = 0 :: c = 1 fi;	/* the copies are loaded before the word */
		x = a[c]; y = b[c];
		again = c;
		look();
		if :: (c & 1) != again -> goto next :: else fi;
#else
		look();				/* A1 */
#ifdef B_NOA2
		again = n;
#endif
		x = a[c & 1];
		y = b[c & 1];
#endif
#ifdef B_NOCHECK
		again = c;
#else
#ifndef B_NOA2
		again = n;			/* after A2 */
#endif
#endif
		if
		:: again == c ->
			RULE(x == y, whole_pair);
#ifndef B_BIT
			RULE(x == c, newest_pair);
			RULE(t == TAG(x), tag_of_pair);
#endif
		:: else -> RULE(!quiet, read_at_rest)
		fi;
next:		skip;
		d_step { c = 0; t = 0; x = 0; y = 0; again = 0; quiet = false }
	:: else -> break
	od
}
