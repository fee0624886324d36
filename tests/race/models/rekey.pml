/* rekey.pml -- a lane gets another key, a slot id another owner, while somebody reads; the writer is
 * killed between any two stores.
 *
 * Stands for  shm/index_reader.c: slots_copy, set_read, slots_verify (index_match); index_writer.c:
 *             key_insert, lane_unkey, path_count; index_sets.c: word_put, word_take; index_slots.c:
 *             index_slot_take, index_slot_retire, scrub_slice, epoch_bump; index_recover.c:
 *             recover_lane, recover_counters.
 * Scale       two buckets of one lane each; keys 0 and 1 both have the first as their home, so that
 *             one of them stands displaced, behind a pass-through counter, or evicts the other.
 *             Two slot ids; two rows.  Sets are bitmaps (pools: pool.pml).  Displacement is the
 *             bucket's number, so it is compared with the key as in w_key.
 * Time        the writer does OPS operations, each any of: put, take, retire, scrub and free, give a
 *             free id to either row; it is killed before any store, and a successor scans and goes
 *             on.  The reader matches twice, with the copy of the slot words it keeps; each match
 *             looks up both keys in turn.
 * Memory      the un-keying store of w may become visible after the set of the next key (the fences
 *             P4 and P1 forbid).
 * Rules       true_holder   a row found to hold a block did so at some moment of the match
 *             reachable     a reader that rests beside a resting writer finds every key
 *             counted       after a scan, and while no writer has died, a counter is what passed it
 * Switches    B_NOVERSION   un-keying leaves the version of the lane
 *             B_NORECHECK   w is not compared again after s
 *             B_KEYFIRST    w is stored before the set
 *             B_NOFENCE     neither P4 nor P1
 *             B_LATEOWNER   who owns an id is looked up when its bit is met
 *             B_NOVERIFY    the epoch is not compared at the end
 *             B_MUTERETIRE, B_MUTEOWN  no epoch + 1 then
 *             BITFIRST      an owner's first bit is set before epoch + 1: holds, since the retirement
 *                           of the owner before moved the epoch; index.h keeps the stricter order
 *             B_NOSCRUB     an id is free when it is retired
 *             B_COUNTLATE   counters follow the key
 *             B_NEWCOMER    un-keying counts down the newcomer's path
 *             B_NORECOUNT   the scan leaves the counters
 *
 *             NOKILL        the writer lives
 *
 * run small holds -DOPS=3 -DNOKILL                    # 293,763 states, 0.7 s
 * run small holds -DOPS=2                             # 169,825 states, 0.4 s
 * run small breaks true_holder -DB_NOVERSION -DNOKILL -DMATCHES=1 -DOPS=5
 * run small breaks true_holder -DB_NORECHECK -DNOKILL -DMATCHES=1
 * run small breaks true_holder -DB_KEYFIRST -DNOKILL -DMATCHES=1
 * run small breaks true_holder -DB_NOFENCE -DNOKILL -DMATCHES=1
 * run small breaks true_holder -DB_LATEOWNER -DNOKILL -DMATCHES=1
 * run small breaks true_holder -DB_NOVERIFY -DNOKILL -DMATCHES=1
 * run small breaks true_holder -DB_MUTERETIRE -DNOKILL
 * run all breaks reachable -DB_MUTEOWN -DNOKILL -DOPS=4
 * run small breaks true_holder -DB_NOSCRUB -DNOKILL -DMATCHES=1
 * run small breaks reachable -DB_COUNTLATE -DNOKILL
 * run small breaks counted -DB_NEWCOMER
 * run small breaks counted -DB_NORECOUNT
 * run all holds -DOPS=3                               # 1,661,536 states, 7 s
 * run all holds -DBITFIRST -DOPS=3
 * run all holds -DOPS=4
 * run all holds -DOPS=5 -DMATCHES=1
 */
#ifndef OPS
#define OPS 4
#endif
#ifndef MATCHES
#define MATCHES 2
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte true_holder, reachable, counted;

#define EMPTY 2				/* w without a tag */
#define FREE 0				/* a slot word: else LIVE + row, RETIRED + row */
#define LIVE 1
#define RETIRED 3
#define IS_LIVE(word) ((word) == LIVE || (word) == LIVE + 1)
#define ROW(word) ((word) - LIVE)
#define BITS(x) (1 << (x))

byte w_key[2] = EMPTY, w_version[2];	/* w: one store, one load */
byte w_count;				/* the low byte of bucket 0's w[0]: who passed it */
byte s[2];				/* bit id */
byte word[2];				/* slot words */
byte gen[2];				/* ... their generation, stored with them */
byte epoch;
/* a store of w that is not visible yet */
bool late; byte late_lane, late_version;
/* what the writer knows by itself; lost with it */
byte named[2] = 9;			/* K's row names: which id a row names, stored after the word */
bool died, resting, over;
/* ghosts: rows that hold a key now, and that did at some moment since the match began */
byte holds[2], held[2];
byte announced[2];			/* by id: rows that may be taken for its owner, bits */
byte putter[4];				/* by lane and id: the row that put this bit */

/* Which rows hold key k?  A retired slot counts until the epoch says so. */
inline ghost()
{
	g = 0;
	do
	:: g < 2 ->
		holds[g] = 0;
		h = 0;
		do
		:: h < 2 ->
			if
			:: w_key[h] == g ->
				if
				:: s[h] & 1 -> holds[g] = holds[g] | (announced[0] & BITS(putter[2 * h]))
				:: else
				fi;
				if
				:: s[h] & 2 -> holds[g] = holds[g] | (announced[1] & BITS(putter[2 * h + 1]))
				:: else
				fi
			:: else
			fi;
			h++
		:: else -> h = 0; break
		od;
		held[g] = held[g] | holds[g];
		g++
	:: else -> g = 0; break
	od
}

/* The writer's own view: it reads its own stores. */
#define KEY(l) (late && late_lane == (l) -> EMPTY : w_key[l])

#ifdef NOKILL
#define KILL
#else
#define KILL :: died = true; goto killed
#endif

/* One visible store of the writer, or its death. */
inline unkey_store(l)
{
	if
	:: atomic {
#ifdef B_NOFENCE
		!late;
		late = true; late_lane = l;
#ifdef B_NOVERSION
		late_version = w_version[l]
#else
		late_version = w_version[l] + 1
#endif
#else
		w_key[l] = EMPTY;
#ifndef B_NOVERSION
		w_version[l] = w_version[l] + 1;
#endif
		ghost()
#endif
	   }
	KILL
	fi
}

inline count_store(by)
{
	if :: w_count = w_count + (by) KILL fi
}

/* lane_unkey */
inline unkey(l)
{
	unkey_store(l);				/* P4 */
#ifdef B_NEWCOMER
	if :: at == 1 && w_count > 0 -> count_store(-1) :: else fi
#else
	if :: l == 1 -> count_store(-1) :: else fi
#endif
}

/* key_insert of key k with id's bit; `at`: an empty lane, else the home's is evicted. */
inline insert(k, id)
{
	if
	:: d_step { KEY(0) == EMPTY -> at = 0 }
	:: d_step { KEY(0) != EMPTY && KEY(1) == EMPTY -> at = 1 }
	:: d_step { KEY(0) != EMPTY && KEY(1) != EMPTY -> at = 0 }; unkey(0)
	fi;
#ifndef B_COUNTLATE
	if :: at == 1 -> count_store(1) :: else fi;
#endif
	/* P1 */
#ifdef B_KEYFIRST
	if :: w_key[at] = k KILL fi;
	if :: atomic { s[at] = BITS(id); putter[2 * at + id] = ROW(word[id]); ghost() } KILL fi;
#else
	if :: atomic { s[at] = BITS(id); putter[2 * at + id] = ROW(word[id]); ghost() } KILL fi;
	if
	:: atomic { !late -> w_key[at] = k; RULE(at == 0 || w_count > 0, reachable); ghost() }	/* P2 */
	KILL
	fi;
#endif
#ifdef B_COUNTLATE
	if :: at == 1 -> count_store(1) :: else fi;
#endif
	at = 0
}

inline add(l, id)			/* word_put */
{
	if :: atomic { s[l] = s[l] | BITS(id); putter[2 * l + id] = ROW(word[id]); ghost() } KILL fi
}

inline put(k, id)			/* index_put */
{
	if
	:: KEY(0) == k -> add(0, id)
	:: KEY(0) != k && KEY(1) == k -> add(1, id)
	:: else -> insert(k, id)
	fi
}

inline take_lane(l, id)			/* word_take, the key found in lane l */
{
	if
	:: s[l] == BITS(id) -> unkey(l)
	:: else -> if :: atomic { s[l] = s[l] & ~BITS(id); ghost() } KILL fi
	fi
}

inline take(k, id)
{
	if
	:: KEY(0) == k && (s[0] & BITS(id)) -> take_lane(0, id)
	:: KEY(0) != k && KEY(1) == k && (s[1] & BITS(id)) -> take_lane(1, id)
	:: else
	fi
}

inline bump(id)				/* P5 */
{
	if
	:: atomic { epoch++; announced[id] = (IS_LIVE(word[id]) -> BITS(ROW(word[id])) : 0); ghost() }
	KILL
	fi
}

inline retire(id)
{
#ifdef B_MUTERETIRE
	if :: atomic { word[id] = RETIRED; announced[id] = 0; ghost() } KILL fi;
#else
	if :: word[id] = RETIRED KILL fi;
	bump(id);
#endif
	named[id] = 9
}

inline scrub(id)			/* scrub_slice: the slot's own list names what it holds */
{
#ifndef B_NOSCRUB
	take(0, id);
	take(1, id);
#endif
	if :: word[id] = FREE KILL fi
}

inline own(id, row)			/* index_slot_take, then the row's name */
{
	if
	:: atomic { word[id] = LIVE + row; gen[id]++; announced[id] = announced[id] | BITS(row); ghost() }
	KILL
	fi;
#if !defined BITFIRST && !defined B_MUTEOWN
	bump(id);
#endif
	named[id] = row
}

#define PICK(x) if :: x = 0 :: x = 1 fi

active proctype writer()
{
	byte ops, k, id, row, at, g, h;

	atomic {
		word[0] = LIVE; word[1] = LIVE + 1; epoch = 1;
		named[0] = 0; named[1] = 1; announced[0] = 1; announced[1] = 2
	};
work:
	do
	:: atomic { ops < OPS -> ops++; PICK(id) };
		if
		:: atomic { IS_LIVE(word[id]) -> PICK(k) }; put(k, id)
		:: atomic { IS_LIVE(word[id]) -> PICK(k) }; take(k, id)
		:: IS_LIVE(word[id]) -> retire(id)
		:: word[id] == RETIRED -> scrub(id)
		:: atomic { word[id] == FREE -> PICK(row) }; own(id, row);
#ifdef BITFIRST
			PICK(k); put(k, id);
			bump(id)
#endif
		fi;
		d_step { k = 0; id = 0; row = 0; at = 0 }
	:: else -> break
	od;
	goto rest;
killed:
	/* index_recover, and kvevents' rule 11: a live slot that no row names is retired. */
	!late;
	d_step { k = 0; id = 0; row = 0; at = 0 };
#ifndef B_NORECOUNT
	atomic { w_count = (w_key[1] != EMPTY -> 1 : 0) };
#endif
	atomic {
		epoch++;
		announced[0] = (IS_LIVE(word[0]) -> BITS(ROW(word[0])) : 0);
		announced[1] = (IS_LIVE(word[1]) -> BITS(ROW(word[1])) : 0);
		died = false;
		ghost()
	};
	do
	:: atomic { id < 2 && IS_LIVE(word[id]) && named[id] == 9 -> word[id] = RETIRED };
		atomic { epoch++; announced[id] = 0; ghost() }; id++
	:: id < 2 && !(IS_LIVE(word[id]) && named[id] == 9) -> id++
	:: id == 2 -> id = 0; break
	od;
	goto work;
rest:
	atomic {
		!late;
		RULE(w_count == (w_key[1] != EMPTY -> 1 : 0), counted);
		RULE(w_key[1] == EMPTY || w_count > 0, reachable);
		over = true
	}
}

active proctype memory()
{
	byte g, h;

	do
	:: atomic { late -> w_key[late_lane] = EMPTY; w_version[late_lane] = late_version;
		late = false; late_lane = 0; late_version = 0; ghost() }
	:: atomic { over && !late -> break }
	od
}

inline met(id)
{
	if
	:: got & BITS(id) ->
		seen = seen | BITS(id);
#ifdef B_LATEOWNER
		copy[id] = word[id];
#endif
		if :: IS_LIVE(copy[id]) -> found[k] = found[k] | BITS(ROW(copy[id])) :: else fi
	:: else
	fi
}

inline probe(l)				/* set_read at one bucket */
{
	d_step { key = w_key[l]; version = w_version[l]; count = (l == 0 -> w_count : 0) };	/* A2 */
	if
	:: key == k ->
		got = s[l];					/* A3 */
#ifndef B_NORECHECK
		if							/* A4 */
		:: d_step { w_key[l] != k || w_version[l] != version -> got = 0 }
		:: else
		fi;
#endif
		atomic { met(0); met(1) };
		stop = true
	:: key != k && count == 0 -> stop = true
	:: else
	fi;
	d_step { key = 0; version = 0; got = 0; count = 0 }
}

active proctype reader()
{
	byte n, k, key, version, count, got, seen, x, at_epoch;
	byte copy[2], copy_gen[2], found[2];
	bool stop, calm;

	epoch > 0;
	do
	:: n < MATCHES ->
		n++;
		d_step { held[0] = holds[0]; held[1] = holds[1]; calm = over };
		/* slots_copy */
		x = epoch;						/* A5 */
		if
		:: x != at_epoch ->
			at_epoch = x;
			d_step { copy[0] = word[0]; copy_gen[0] = gen[0] };
			d_step { copy[1] = word[1]; copy_gen[1] = gen[1] }
		:: else
		fi;
		do
		:: k < 2 ->
			probe(0);
			if :: !stop -> probe(1) :: else fi;
			stop = false;
			k++
		:: else -> k = 0; break
		od;
		/* slots_verify: a row with an id that changed hands has depth 0 */
#ifndef B_NOVERIFY
		x = epoch;						/* A5 */
		if
		:: x != at_epoch ->
			do
			:: k < 2 ->
				if
				:: d_step { (seen & BITS(k)) && IS_LIVE(copy[k]) &&
				     (word[k] != copy[k] || gen[k] != copy_gen[k]) ->
					found[0] = found[0] & ~BITS(ROW(copy[k]));
					found[1] = found[1] & ~BITS(ROW(copy[k])) }
				:: else
				fi;
				k++
			:: else -> k = 0; break
			od
		:: else
		fi;
#endif
		atomic {
			RULE((found[0] & ~held[0]) == 0 && (found[1] & ~held[1]) == 0, true_holder);
			RULE(!calm || (found[0] == holds[0] && found[1] == holds[1]), reachable);
			found[0] = 0; found[1] = 0; seen = 0; x = 0; calm = false
		}
	:: else -> break
	od
}
