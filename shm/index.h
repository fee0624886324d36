/* shm/index.h -- who holds which prefix: block hash -> set of slots, a slot = (row, tier, role).
 *
 * Question   Given the chained block hashes of a prompt, how many leading blocks does each row
 *            hold, surely (exact) and probably (any)?
 *
 *      segment header 128 | index_header 448 | slot entries 64 x (max_slots + 1)
 *      | buckets 64 x nbuckets | class 0: versions u32 x chunks, chunks of 64 or 128 bytes
 *      | class 1: versions u32 x chunks, chunks of 8 x ceil((max_slots + 1) / 64) bytes
 *
 *      bucket  w[4], s[4]      all _Atomic u64
 *      w       tag 40 | home displacement 5 | version 11 | low 8 (w[0]: overflow count, saturating:
 *              how many keys passed this bucket on the way to where they stand)
 *              tag = low 40 bits of h, never 0 (0 is an empty lane)
 *      s       0 nobody
 *              bit 63 = 0   bitmap of ids 1..62; the only form where max_slots <= 62
 *              10 ..        ascending id list, 0 ends it: 5 x 12 bits where max_slots <= 4,094,
 *                           3 x 16 above
 *              11 c ..      pool: class c (bit 61) | zero 13 | version 16 | chunk 32
 *      chunk   class 0      8 words of 5 ids x 12 bits (zero 4 above), or 16 words of 4 x 16;
 *                           an id stands in any place, once; 0 is a free place.  Only where
 *                           max_slots > 511: up to there a bitmap is no longer and holds all ids
 *              class 1      bitmap of ids, ceil((max_slots + 1) / 64) words
 *      home    (unsigned __int128)h * nbuckets >> 64; probe + 1, at most 32; stop at a count of 0
 *      slot    gen 24 | row 16 | tier 4 | role 4 | zero 8 | state 8
 *
 * Writers    exactly one (kvevents).  Readers: any number, mapped read-only, never wait, never
 *            loop: a lane that changed under a reader is a miss, so depth is only ever too small.
 * Order      Every visible change is one aligned 64-bit store.  Insert: counters on the passed
 *            buckets, release fence (P1), set words, w release (P2).  Holder change: s release
 *            (P3).  Un-key: w without tag, version + 1, release fence (P4), counters of the
 *            victim's path.  Slot owner change: slot word, epoch + 1 release (P5), then the first
 *            bit.  Reader: w acquire (A2), s acquire (A3), acquire fence, w again (A4; a pool word
 *            also s again, A6); slot words copied before the first bucket, epoch compared at
 *            the end (A5).
 * Crash      What a reader sees if the writer stops after the store named, and who repairs.  R: the
 *            scan of the next writer (index_writer_open).  K: kvevents at its birth (README,
 *            "restart").  tests/race/race_index_points stops at each.
 *
 *   insert of a key        overflow counts   some too high: a miss probes further, 32 buckets at
 *     counts, s, w                           most.  R counts anew.
 *                          s                 no key, so s is not looked at; overwritten by the next
 *                          w                 done
 *     evicting one         as un-key, then as insert: in between the victim is nobody's block, the
 *                          new one not yet anybody's
 *   un-key                 w                 the block is gone; counts of its path too high (R),
 *     w, counts                              its chunk is in no set word (R: free)
 *   holder put or taken,   s                 before or after, nothing between; ids put instead of
 *     set word                               others go and come in this one store
 *   holder put, chunk      one word          done, but for ids that go and stand in other words:
 *     the word, others                       the row is twice there, which counts once.  They go
 *                                            with their slot (scrub) or their next take.
 *   several taken, chunk   one word          some are gone and some are not: half a removal.  K
 *     word by word                           retires all slots of a row with half a batch.
 *   set to another form    version, words    of a chunk nobody is shown: the set is as before.  R:
 *     version, words, s                      the chunk is free.
 *     (list, class 0,      s                 the set has its new form; the chunk it left is in no
 *     class 1, any to any)                   set word.  R: free.
 *   slot taken             slot word         no bit of it is set.  K: a live slot that no row names
 *     slot word, epoch,    epoch             is retired.
 *     row's name, bits     name              an owner of nothing: K goes on with it
 *   slot demoted           slot word         readers with a copy of the slot words call it exact
 *     slot word, epoch                       until R's epoch + 1
 *   slot retired           slot word         it is seen until R's epoch + 1, then by nobody
 *     slot word, epoch,    epoch             seen by nobody; K: a name whose slot is not live
 *     name                                   becomes 0
 *   scrub                  each removal      as above; the slot is RETIRED and seen by nobody.  R
 *     removals, slot word                    makes the list of what is left and queues it again.
 *                          slot word         FREE, and no set names it
 *   recovery               lane dropped      as un-key
 *     lanes, counts,       counts            those stored are right, others as before
 *     statistics, epoch    any               the next scan does it again, and finds right what was
 *                                            repaired
 *   any of these           statistics        entries is one off; holders, a slot's stored and
 *                                            removed are off by the ids that came or went.  R sets
 *                                            them to what it counted.
 *
 *            The writer's lists, free lists and counts of holders per chunk are private and made
 *            anew by R.  The rules, and what failed without each: shm/README.md.
 * Version    any change of the above bumps INDEX_LAYOUT.
 */
#pragma once
#include "shm/segment.h"

#define INDEX_LAYOUT    4u
#define INDEX_PROBE     32u
#define INDEX_MIN_BUCKETS 64u           /* the probe window must not meet itself */
#define INDEX_MAX_SLOTS 65534u
#define INDEX_LOG_MAX   131072u         /* blocks one speculative slot may hold: a lease's worth */

enum index_role { INDEX_EXACT = 1, INDEX_SPECULATIVE, INDEX_DEMOTED };
enum index_tier { INDEX_GPU = 0, INDEX_OFFLOAD };
enum index_slot_state { INDEX_SLOT_FREE = 0, INDEX_SLOT_LIVE, INDEX_SLOT_RETIRED };

struct index_slot {                     /* 64 bytes, K */
	_Atomic uint64_t word;                  /* index_slot_* below; the rest is information */
	uint32_t row_gen, block_tokens, model, pad0;
	mono_ns born_ns, expires_ns;            /* expires 0: does not; kvevents acts on it */
	_Atomic uint64_t stored, removed;       /* holders put and taken under this owner */
	uint64_t pad1;
};
_Static_assert(sizeof(struct index_slot) == 64, "index_slot");

static inline uint64_t
index_slot_pack(uint32_t gen, uint16_t row, enum index_tier tier, enum index_role role,
		enum index_slot_state state)
{
	return (uint64_t)(gen & 0xffffffu) << 40 | (uint64_t)row << 24 | (uint64_t)tier << 20 |
	       (uint64_t)role << 16 | (uint64_t)state;
}
static inline uint32_t index_slot_gen(uint64_t word) { return (uint32_t)(word >> 40); }
static inline uint16_t index_slot_row(uint64_t word) { return (uint16_t)(word >> 24); }
static inline unsigned index_slot_tier(uint64_t word) { return (unsigned)(word >> 20) & 15u; }
static inline unsigned index_slot_role(uint64_t word) { return (unsigned)(word >> 16) & 15u; }
static inline unsigned index_slot_state(uint64_t word) { return (unsigned)word & 0xffu; }

/* Why a holder was not noted.  Each under-counts: a row is told to hold less than it does. */
enum index_cause {
	INDEX_CAUSE_CLASS_0,                    /* no chunk of ids is free: the list stays */
	INDEX_CAUSE_CLASS_1,                    /* no bitmap is free: the smaller form stays */
	INDEX_CAUSE_MEMORY,                     /* the writer's list of the slot cannot grow: no
						 * memory, or index_writer_limit */
	INDEX_CAUSE_LOG,                        /* a speculative slot holds INDEX_LOG_MAX */
	INDEX_CAUSE_SPECULATIVE,                /* no lane, and only a speculative holder to put:
						 * it displaces no exact one */
	INDEX_CAUSE_ID,                         /* index_slot_take: every id is taken */
	INDEX_CAUSE_DEAD,                       /* put into a slot that is not live */
	INDEX_CAUSES
};
const char *index_cause_name(enum index_cause cause);   /* "class_0", ... */

#define INDEX_CLASSES   2u

struct index_pool_header {              /* S; offsets from the segment's start */
	uint64_t chunks;                        /* 0: this index has no such class */
	uint64_t off_versions, off_chunks;
	uint32_t words, pad;                    /* u64 per chunk */
};
_Static_assert(sizeof(struct index_pool_header) == 32, "index_pool_header");

struct index_header {                   /* K, geometry by S; one line each */
	uint64_t nbuckets;
	uint32_t max_slots, list_bits;     /* list_bits 0: bitmaps in the set word; else 12 or 16 */
	uint64_t hash_seed;                     /* S: for blockhash_root, one per deployment */
	uint64_t off_slots, off_buckets;        /* from the segment's start */
	uint64_t pad0[3];

	struct index_pool_header pool[INDEX_CLASSES];

	_Atomic uint64_t slots_epoch;           /* alone on its line: every reader asks for it */
	uint64_t pad1[7];

	_Atomic uint64_t entries, holders;      /* live lanes; set bits (statistics) */
	_Atomic uint64_t pool_used[INDEX_CLASSES];      /* chunks in use, quarantine included */
	_Atomic uint64_t scrubbed;              /* list entries walked */
	_Atomic uint64_t recoveries;            /* scans done by a writer at birth */
	_Atomic uint64_t private_bytes;         /* index_writer_bytes, when last it changed */
	uint64_t pad2;

	_Atomic uint64_t refused[INDEX_CAUSES]; /* puts (_ID: takes) not done, by cause */
	uint64_t pad3[8 - INDEX_CAUSES];

	_Atomic uint64_t evictions;             /* lanes given up for another key */
	_Atomic uint64_t evicted;               /* live holders that went with them */
	_Atomic uint64_t dropped;               /* lanes no writer of ours made, at recoveries */
	uint64_t pad4[5];

	_Atomic uint64_t routed_seen[8]; /* per ingress index % 8: incarnation 24 | seq 40 */
};
_Static_assert(sizeof(struct index_header) == 448, "index_header");
_Static_assert(offsetof(struct index_header, pool) == 64, "index_header");
_Static_assert(offsetof(struct index_header, slots_epoch) == 128, "index_header");
_Static_assert(offsetof(struct index_header, entries) == 192, "index_header");
_Static_assert(offsetof(struct index_header, refused) == 256, "index_header");
_Static_assert(offsetof(struct index_header, evictions) == 320, "index_header");
_Static_assert(offsetof(struct index_header, routed_seen) == 384, "index_header");

static inline uint64_t
index_refused(const struct index_header *h)             /* for whatever cause */
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < INDEX_CAUSES; i++)
		sum += atomic_load_explicit(&h->refused[i], memory_order_relaxed);
	return sum;
}

/* ---- making (S) ---- */
int index_create(struct segment *ret, uint64_t blocks, uint32_t max_slots, uint64_t hash_seed);
	/* Room for `blocks` entries at load 0.70 (blocks held only speculatively count too);
	 * max_slots: six per row at most.  Published.  0, -EINVAL, -ENOMEM, -errno. */

/* ---- reading (any process; one handle per thread) ---- */
struct index;
int index_attach(struct index **ret, int fd);
	/* Takes fd, also on failure.  Whole-header check, then populates the table of a mapping of
	 * more than 64 MiB (100 ms/GiB: before `ready`, not on the request path); of the pools only
	 * what the writer has touched, for a page a reader touches first is memory too.  0,
	 * -ESTALE, -EBADMSG, -ENOMEM, -errno. */
int index_attach_mapped(struct index **ret, const struct segment *seg);
	/* One more handle over a mapping somebody else keeps: further threads of a process,
	 * tests. */
void index_detach(struct index **ret);
uint64_t index_seed(const struct index *index);
const struct index_header *index_head(const struct index *index);
const struct index_slot *index_slots(const struct index *index, uint32_t *ret_max_slots);
	/* Entries 0 .. max_slots, 0 unused; read `word` atomically, the rest is information. */

struct index_depth {
	uint16_t row;
	uint16_t pad;
	uint32_t exact;                         /* leading blocks surely held, any exact tier */
	uint32_t gpu;                           /* the same over the GPU slot alone */
	uint32_t any;                           /* leading blocks held either way, >= exact */
};
unsigned index_match(struct index *index, const uint64_t *hash, unsigned n, struct index_depth *ret,
		     unsigned max);
	/* Rows with a depth > 0, each once, unordered.  Never blocks, never fails: a torn or
	 * missing answer is a smaller depth.  <= 200 ns a block cold (tests/bench says what it
	 * is today). */
unsigned index_holders(struct index *index, uint64_t hash, uint16_t *ret_slot, unsigned max);
	/* Live slot ids that hold this block; for tools. */

/* ---- writing (kvevents only, one thread) ---- */
struct index_writer;
int index_writer_open(struct index_writer **ret, int fd);
	/* Takes fd, also on failure.  Whole-header check, epochs + 1, recovery by one scan:
	 * overflow counters, pool free lists, slots' counts and each slot's own list are made
	 * anew, broken lanes dropped, retired slots queued for scrubbing.  Live slots stay live:
	 * the caller then retires those its rows do not name (index_slot_word), and those it can
	 * no longer keep true (shm/README.md, "restart").  Keeps other processes from opening it
	 * (a lock that dies with this one; close no other descriptor of the index meanwhile).
	 * 0, -EBUSY another process writes, -ESTALE, -EBADMSG, -ENOMEM, -errno. */
void index_writer_close(struct index_writer **ret);
struct index_header *index_writer_head(struct index_writer *w);
struct segment *index_writer_segment(struct index_writer *w);           /* heartbeat */
uint64_t index_writer_bytes(const struct index_writer *w);
	/* Private memory: lists of slots (8 bytes an entry) and what is allotted per id and per
	 * chunk.  While it opens, and during an audit, one byte a bucket more. */
void index_writer_limit(struct index_writer *w, uint64_t bytes);
	/* Lists do not grow beyond so many private bytes (0: any number): puts are refused
	 * instead (INDEX_CAUSE_MEMORY).  The segment's size is fixed at creation. */
uint32_t index_max_slots(const struct index_writer *w);
uint64_t index_slot_word(const struct index_writer *w, uint16_t id);    /* 0: no such id */
struct index_slot *index_slot_entry(struct index_writer *w, uint16_t id);
	/* For the information fields (expires_ns, model); `word` is not the caller's.  NULL: no
	 * such id. */
uint32_t index_slot_held(const struct index_writer *w, uint16_t id);    /* blocks it holds now */

size_t index_slot_bytes(const struct index_writer *w, uint16_t id);     /* of its list */
size_t index_slot_growth(const struct index_writer *w, uint16_t id);
	/* Bytes more that the list has after the next put, if nothing in it is stale; 0: it has
	 * room. */

uint16_t index_slot_take(struct index_writer *w, uint16_t row, uint32_t row_gen,
			 enum index_role role, enum index_tier tier, uint32_t block_tokens);
	/* A LIVE slot; with no FREE id the shortest retired one is scrubbed at once.  0: none
	 * (INDEX_CAUSE_ID). */
void index_slot_retire(struct index_writer *w, uint16_t id); /* invisible at once; scrubbed later */
void index_slot_demote(struct index_writer *w, uint16_t id);       /* EXACT -> DEMOTED, one store */
unsigned index_scrub(struct index_writer *w, unsigned max);
	/* Walks retired slots' own lists, at most max entries.  Returns the steps done -- an
	 * entry, or a slot that became FREE; 0: nothing is left to do.  30-60 ns each. */
#define INDEX_AHEAD     8u              /* blocks of a burst */
struct index_span {
	size_t from, to;
};
static inline struct index_span
index_ahead(size_t i, size_t n)
{
	struct index_span span = {i ? i + INDEX_AHEAD : 0, i + 2 * INDEX_AHEAD};

	if (i % INDEX_AHEAD != 0)
		span.to = 0;
	else if (span.to > n)
		span.to = n;
	return span;
}
	/* Which of n blocks, worked in order, to prefetch before the i-th: each once, in bursts
	 * (why: shm/README.md, "what broke").  Worth a third of a put and of a scrub. */
void index_prefetch(const struct index_writer *w, uint64_t hash);
	/* Before the put or take of a batch, by index_ahead: its home and the bucket after. */
bool index_put(struct index_writer *w, uint16_t id, uint64_t hash, const uint16_t *instead,
	       unsigned n_instead);
	/* Adds id to the set of hash, taking the ids `instead` out in the same store (where the
	 * set is a pool chunk: id first, then those).  Idempotent.  false: refused, nothing
	 * changed; counted by cause (enum index_cause). */
bool index_put_unless(struct index_writer *w, uint16_t unless, uint16_t id, uint64_t hash,
		      const uint16_t *instead, unsigned n_instead);
	/* The same, but nothing where the slot `unless` holds the block: true, too.  0, or no id at
	 * all: unless none. */
void index_take(struct index_writer *w, uint64_t hash, const uint16_t *ids, unsigned n);
	/* Takes ids out of the set; un-keys the lane when nobody is left. */
bool index_has(struct index_writer *w, uint16_t id, uint64_t hash);

/* ---- auditing (tests, tools) ---- */
struct index_audit {
	uint64_t entries, holders;
	uint64_t duplicates;                   /* keys found in an earlier lane of their own path */
	uint64_t unreachable;                   /* keys a reader would stop before */
	uint64_t saturated;                     /* overflow counters at 255 */
	uint64_t overcounted;               /* counters above the keys that passed: a writer died */
	uint64_t garbage;                  /* malformed sets, ids without an owner, chunks shared */
	uint64_t miscounted;                    /* slots whose stored - removed is not the number of
						 * sets they are in: a writer died */
};
int index_audit(const struct index *index, struct index_audit *ret);
	/* One pass, seconds per GiB.  Exact while the writer rests; meanwhile a rough picture.
	 * 0 or -ENOMEM. */
