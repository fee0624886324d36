/* journal.pml -- a ring of records that one process writes and others tail.
 *
 * Stands for  shm/journal.c: journal_append with make_room and write_record, journal_read.
 * Scale       the ring has N places of 64 bytes; a record is its header's place and 0 or 1 more,
 *             a PAD fills what is left of the ring when a record would straddle its end.
 *             Positions never wrap; place = position % N.  A place of payload may carry any bytes,
 *             also such as look like the header of a record of this lap or of the next.
 * Memory      the store of `tail` may become visible after the bytes written next (the release
 *             fence after W1 forbids); commit and head may be seen before what they publish (W2, W3
 *             forbid); the reader's second look at tail may be taken before its copy (the acquire
 *             fence forbids).
 * Time        NREC records are written, the writer dies before any store; a reader attaches at
 *             any moment and reads up to GET records.
 * Rules       real_record   what is accepted is, whole, the record that was written there
 *             always_framed a reader that follows lengths never lands beside a record (EBADMSG)
 *             in_order      records come in order; lost ones are told
 *             readable_rest after the writer's end a reader gets all there is from tail to head
 * Switches    B_TAILAFTER  tail stored after overwriting;  B_NOFENCE  no fence after that store
 *             B_NORETAIL   tail not looked at after the copy;  B_EARLYTAIL  looked at before it
 *             B_HEADFIRST  head stored before the record
 *             B_NOHEAD     the reader goes by commit words alone
 *             B_STRADDLE   make_room counts the record's first place only
 *
 * run small holds -DN=3 -DNREC=3 -DGET=2              # 730,498 states, 2 s
 * run small breaks real_record -DB_TAILAFTER
 * run small breaks real_record -DB_NOFENCE
 * run small breaks real_record -DB_NORETAIL
 * run small breaks real_record -DB_EARLYTAIL
 * run small breaks always_framed -DB_HEADFIRST
 * run small breaks real_record -DB_NOHEAD
 * run small breaks real_record -DB_STRADDLE
 * run all holds -DN=3 -DNREC=4 -DGET=2                # 7,817,929 states, 13 s
 * run all holds -DN=4 -DNREC=4 -DGET=2
 */
#ifndef N
#define N 4
#endif
#ifndef NREC
#define NREC 5
#endif
#ifndef GET
#define GET 3
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte real_record, always_framed, in_order, readable_rest;

#define AT(p) ((p) % N)
#define LAST (3 * NREC)			/* positions stay below: records of 2, and PADs */
#define PAD 100				/* kind; else a record of number 1.. */

byte commit[N], span[N], kind[N];	/* a header's place, or payload that looks like one */
byte tail, head;
bool late; byte late_tail;		/* W1 stored and not visible */
byte is[LAST];				/* ghost: what begins at a position: its number, PAD, 0 */
byte body[NREC + 1];			/* ghost: first word of its payload place */
byte flesh[NREC + 1];			/* ghost: second word */
bool ended;

inline set_tail(t)
{
#ifdef B_NOFENCE
	atomic { !late -> late = true; late_tail = t }
#else
	tail = t			/* W1, fence: visible before what follows */
#endif
}

/* make_room: to the first record boundary that leaves room at `pos` for `l` places. */
inline make_room(pos, l)
{
	d_step {
		t = (late -> late_tail : tail);
		do
#ifdef B_STRADDLE
		:: pos + 1 - t > N -> t = t + lens[AT(t)]
#else
		:: pos + l - t > N -> t = t + lens[AT(t)]
#endif
		:: else -> break
		od
	};
#ifndef B_TAILAFTER
	set_tail(t)
#endif
}

/* Of a record of k (or PAD), l places from pos.  `goto out`: killed here. */
inline write_record(pos, l, k)
{
	make_room(pos, l);
#ifdef B_HEADFIRST
	head = pos + l;
#endif
	if :: commit[AT(pos)] = 0 :: goto out fi;
	if
	:: d_step { kind[AT(pos)] = k; span[AT(pos)] = l; is[pos] = k; lens[AT(pos)] = l }
	:: goto out
	fi;
	if
	:: k != PAD && l == 2 ->
		if
		:: e = 0
		:: e = pos + 2			/* as the commit word of this place would be now */
		:: e = pos + 2 + N		/* ... or will be, a lap on */
		fi;
		d_step { body[k] = e; flesh[k] = k };
		if :: commit[AT(pos + 1)] = e :: goto out fi;
		d_step { span[AT(pos + 1)] = 1; kind[AT(pos + 1)] = k; e = 0 }
	:: else
	fi;
	if :: commit[AT(pos)] = pos + 1 :: goto out fi;		/* W2 */
#ifdef B_TAILAFTER
	set_tail(t);
#endif
#ifndef B_HEADFIRST
	if :: head = pos + l :: goto out fi			/* W3 */
#endif
}

active proctype writer()
{
	byte k = 1, l, at, e, t, room;
	byte lens[N];			/* record_at(tail)->len: its own, read back */

	do
	:: k <= NREC ->
		if :: l = 1 :: l = 2 fi;
		at = head;
		room = N - AT(at);
		if
		:: room < l -> write_record(at, room, PAD); at = at + room
		:: else
		fi;
		write_record(at, l, k);
		k++;
		d_step { at = 0; l = 0; t = 0; room = 0 }
	:: else -> break
	od;
out:	ended = true
}

active proctype memory()
{
	do
	:: atomic { late -> tail = late_tail; late = false; late_tail = 0 }
	:: atomic { ended && !late -> break }
	od
}

active proctype reader()
{
	byte p, t, c, l, k, x, y, got, before;
	bool quiet, lost;

	p = tail;				/* journal_tail at attach */
	do
	:: got < GET ->
		quiet = ended && !late;
		t = tail;
		if :: p < t -> p = t; lost = true :: else fi;
#ifndef B_NOHEAD
		if
		:: p >= head ->
			if :: quiet -> break :: else fi;	/* 0: none yet; try again, or give up */
			if :: goto next :: break fi
		:: else
		fi;
#endif
		c = commit[AT(p)];			/* A2 */
		d_step { l = span[AT(p)]; k = kind[AT(p)] };
#ifdef B_EARLYTAIL
		t = tail;
#endif
		if
		:: l == 2 && AT(p) + 1 < N && k != PAD ->
			x = commit[AT(p + 1)];
			y = kind[AT(p + 1)]
		:: else
		fi;
#ifdef B_NORETAIL
		t = 0;
#else
#ifndef B_EARLYTAIL
		t = tail;				/* A1, behind the acquire fence */
#endif
#endif
		if
		:: t > p -> goto next			/* overtaken while copying */
		:: else
		fi;
		if
		:: c != p + 1 || l == 0 || AT(p) + l > N ->
#ifdef B_NOHEAD
			break
#else
			RULE(false, always_framed);
			break
#endif
		:: else
		fi;
		d_step {
			RULE(is[p] == k && l == (k == PAD -> l : 1 + (flesh[k] != 0)), real_record);
			RULE(k == PAD || l == 1 || (x == body[k] && y == flesh[k]), real_record);
			RULE(k == PAD || k > before, in_order);
			RULE(k == PAD || lost || before == 0 || k == before + 1, in_order);
			if :: k != PAD -> before = k; got++; lost = false :: else fi;
			p = p + l
		};
next:		skip;
		d_step { t = 0; c = 0; l = 0; k = 0; x = 0; y = 0 }
	:: else -> break
	od;
#ifndef B_NOHEAD
	RULE(!quiet || got == GET || p == head, readable_rest)
#endif
}
