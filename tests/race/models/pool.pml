/* pool.pml -- a set moves from a word to a chunk and back; the chunk goes to another lane while
 * somebody copies it; the writer is killed between any two stores.
 *
 * Stands for  shm/index_reader.c set_read (s, the words of the chunk, fence, s again);
 *             shm/index_sets.c: list_grow, chunk_take, chunk_fill, chunk_release, small_put,
 *             small_take, bitmap_put, bitmap_take, pool_shrink; shm/index_recover.c.  Chunks of ids
 *             and bitmaps (classes 0 and 1) go by the same stores: fill, show, change a word in
 *             place, show another form, wait, fill again.
 * Scale       two lanes that keep their keys (re-keying: rekey.pml); ids 0..3; a list word holds one
 *             id, a chunk has two words of two ids; CHUNKS chunks; QUEUE freed ones wait before one
 *             is used again.  A version has as many values as there are uses in a run.
 * Time        the writer does OPS operations, each any of: an id put into or taken from either set;
 *             it is killed before any store, and a successor scans and goes on.  The reader reads
 *             lane 0 READS times.
 * Memory      the store that shows the smaller form may become visible after the next words of the
 *             chunk it left (the fence in chunk_take forbids).
 * Rules       true_holder  an id found in a set was in it at some moment of the read
 *             one_owner    no chunk is shown by two lanes
 * Switches    B_NOVERSION  the set word does not carry the version of its chunk
 *             B_PRIVATE    versions are counted in the writer's memory and die with it
 *             B_NORECHECK  s is not read again
 *             B_SHOWFIRST  a chunk is shown before it is filled
 *             B_NOFENCE    no fence in chunk_take
 *             B_NOZERO     a chunk keeps the words it had where nothing new goes
 *             B_SCANALL    the successor takes every chunk for free
 *
 * run small holds -DNOKILL                            # 308,749 states, 1 s
 * run small holds -DOPS=4                             # 286,725 states, 1 s
 * run small holds -DOPS=4 -DCHUNKS=2 -DNOKILL         # 111,956 states, 0.4 s
 * run small breaks true_holder -DB_NOVERSION -DNOKILL -DOPS=7
 * run small breaks true_holder -DB_PRIVATE -DOPS=6
 * run small breaks true_holder -DB_NORECHECK -DNOKILL
 * run small breaks true_holder -DB_SHOWFIRST -DNOKILL
 * run small breaks true_holder -DB_NOFENCE -DNOKILL
 * run small breaks true_holder -DB_NOZERO -DNOKILL
 * run small breaks one_owner -DB_SCANALL
 * run all holds -DOPS=6
 * run all holds -DOPS=6 -DCHUNKS=2 -DQUEUE=1
 * run all holds -DOPS=8 -DREADS=1
 */
#ifndef OPS
#define OPS 5
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef QUEUE
#define QUEUE 0
#endif
#ifndef READS
#define READS 2
#endif
#define RULE(cond, name) assert((cond) || name)
hidden byte true_holder, one_owner;

#define BITS(x) (1 << (x))
#define POOL 16				/* set word: list: bits of ids (at most one); else a chunk */
#define IS_POOL(word) ((word) >= POOL)
#define CHUNK(word) ((word) - POOL)

byte s[2], s_version[2];		/* set words: one store, one load */
byte words[2 * CHUNKS];			/* two of two ids each */
byte version[CHUNKS];			/* shared: a successor goes on from it */
bool late; byte late_lane, late_s;	/* a store of s that is not visible yet (a list) */
chan freed = [2 * CHUNKS] of { byte };	/* free list behind the quarantine; the writer's */
byte holds[2], held;			/* ghosts: what is in each set; what was in set 0 since .. */
bool over;

#ifdef NOKILL
#define KILL
#else
#define KILL :: goto killed
#endif

#define OWN(l) (late && late_lane == (l) -> late_s : s[l])

/* The set of lane l is to be m from the next store on. */
#define NOW(l, m) holds[l] = m; held = held | holds[0]

inline show_list(l, m)
{
#ifdef B_NOFENCE
	if :: atomic { !late; late = true; late_lane = l; late_s = m; NOW(l, m) } KILL fi
#else
	if :: atomic { s[l] = m; s_version[l] = 0; NOW(l, m) } KILL fi
#endif
}

inline release(c)			/* chunk_release */
{
	freed!c
}

inline grow(l, ids)			/* list_grow */
{
	if
	:: len(freed) > QUEUE ->
		freed?c;
		if :: version[c] = version[c] + 1 KILL fi;		/* chunk_take */
#ifdef B_SHOWFIRST
		if
		:: atomic { s[l] = POOL + c; s_version[l] = version[c]; NOW(l, ids) }
		KILL
		fi;
#endif
		/* the fence: what showed this chunk is gone for whoever sees a new word */
#ifdef B_NOZERO
		if :: (ids & 3) -> if :: words[2 * c] = ids & 3 KILL fi :: else fi;
		if :: (ids & 12) -> if :: words[2 * c + 1] = ids & 12 KILL fi :: else fi;
#else
		if :: words[2 * c] = ids & 3 KILL fi;
		if :: words[2 * c + 1] = ids & 12 KILL fi;
#endif
#ifndef B_SHOWFIRST
		if
		:: atomic {
			!(late && late_lane == l);
			RULE(!(IS_POOL(OWN(1 - l)) && CHUNK(s[1 - l]) == c), one_owner);
			s[l] = POOL + c;
#ifndef B_NOVERSION
			s_version[l] = version[c];
#endif
			NOW(l, ids)
		   }
		KILL
		fi
#endif
	:: else							/* refused: an under-count */
	fi
}

inline put(l, m)
{
	if
	:: IS_POOL(OWN(l)) ->					/* bitmap_put */
		c = CHUNK(s[l]);
		if
		:: m & 3 -> if :: atomic { words[2 * c] = words[2 * c] | m; NOW(l, holds[l] | m) } KILL fi
		:: else -> if :: atomic { words[2 * c + 1] = words[2 * c + 1] | m; NOW(l, holds[l] | m) } KILL fi
		fi
	:: OWN(l) == 0 -> show_list(l, m)			/* list_put */
	:: !IS_POOL(OWN(l)) && OWN(l) != 0 && OWN(l) != m -> k = OWN(l) | m; grow(l, k)
	:: else
	fi
}

inline take(l, m)
{
	if
	:: IS_POOL(OWN(l)) && (holds[l] & m) ->			/* bitmap_take, pool_shrink */
		c = CHUNK(s[l]);
		if
		:: m & 3 -> if :: atomic { words[2 * c] = words[2 * c] & ~m; NOW(l, holds[l] & ~m) } KILL fi
		:: else -> if :: atomic { words[2 * c + 1] = words[2 * c + 1] & ~m; NOW(l, holds[l] & ~m) } KILL fi
		fi;
		k = words[2 * c] | words[2 * c + 1];
		if
		:: k == 0 || k == 1 || k == 2 || k == 4 || k == 8 ->
			show_list(l, k);
			release(c)
		:: else
		fi
	:: OWN(l) == m -> show_list(l, 0)
	:: else
	fi
}

active proctype writer()
{
	byte ops, l, m, c, k;
	byte lost[CHUNKS];			/* B_PRIVATE: versions as the dead writer had them */

	atomic { do :: c < CHUNKS -> freed!c; c++ :: else -> c = 0; break od };
work:
	do
	:: atomic { ops < OPS -> ops++;
		if :: l = 0 :: l = 1 fi;
		if :: m = 1 :: m = 2 :: m = 4 fi };
		if :: skip; put(l, m) :: skip; take(l, m) fi;
		d_step { l = 0; m = 0; c = 0; k = 0 }
	:: else -> break
	od;
	goto rest;
killed:
	atomic {
		!late;
		l = 0; m = 0; c = 0; k = 0;
		do :: nempty(freed) -> freed?_ :: empty(freed) -> break od;
		do				/* a chunk is free when no lane shows it */
		:: c < CHUNKS ->
			if
#ifdef B_SCANALL
			:: true -> freed!c
#endif
			:: s[0] != POOL + c && s[1] != POOL + c -> freed!c
			:: else
			fi;
#ifdef B_PRIVATE
			version[c] = 0;
#endif
			c++
		:: else -> c = 0; break
		od;
		RULE(!(IS_POOL(s[0]) && s[0] == s[1]), one_owner)
	};
	goto work;
rest:	over = true
}

active proctype memory()
{
	do
	:: atomic { late -> s[late_lane] = late_s; s_version[late_lane] = 0;
		late = false; late_lane = 0; late_s = 0 }
	:: atomic { over && !late -> break }
	od
}

active proctype reader()
{
	byte n, x, x_version, got, c;

	do
	:: n < READS ->
		n++;
		d_step { held = holds[0] };
		d_step { x = s[0]; x_version = s_version[0] };		/* A3 */
		if
		:: IS_POOL(x) ->
			got = words[2 * CHUNK(x)];
			got = got | words[2 * CHUNK(x) + 1];
#ifndef B_NORECHECK
			if
			:: d_step { s[0] != x || s_version[0] != x_version -> got = 0 }
			:: else
			fi
#endif
		:: else -> got = x
		fi;
		atomic {
			RULE((got & ~held) == 0, true_holder);
			held = 0; x = 0; x_version = 0; got = 0
		}
	:: else -> break
	od
}
