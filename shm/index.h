/* shm/index.h -- who holds which prefix: block hash -> set of slots, a slot = (row, tier, role).
 *
 * Question   Given the chained block hashes of a prompt, how many leading blocks does each row
 *            hold, surely (exact) and probably (any)?
 *
 *      segment header 128 | index_header 384 | slot entries 64 x (max_slots + 1)
 *      | buckets 64 x nbuckets | versions u32 x pool_chunks | chunks 8 x chunk_words x pool_chunks
 *
 *      bucket  w[4], s[4]      all _Atomic u64
 *      w       tag 40 | home displacement 5 | version 11 | low 8 (w[0]: overflow count, saturating:
 *              how many keys passed this bucket on the way to where they stand)
 *              tag = low 40 bits of h, never 0 (0 is an empty lane)
 *      s       0 nobody
 *              bit 63 = 0   bitmap of ids 1..62; the only form where max_slots <= 62
 *              10 ..        ascending id list, 0 ends it: 5 x 12 bits where max_slots <= 4,094,
 *                           3 x 16 above
 *              11 1 ..      pool: zero 13 | version 16 | chunk 32; a chunk is a bitmap of
 *                           chunk_words = ceil((max_slots + 1) / 64) words.  This is class 1 (bit
 *                           61); class 0, chunks of ids, has its bit and its header fields, zero
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
 *            also s again); slot words copied before the first bucket, epoch compared at the end
 *            (A5).
 * Crash      Dying between any two stores leaves counters too high at worst (longer probes);
 *            recovery by one scan (index_writer_open).  The rules and what failed without each:
 *            shm/README.md.
 * Version    any change of the above bumps INDEX_LAYOUT.
 */
#pragma once
#include "shm/segment.h"

#define INDEX_LAYOUT    1u
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

struct index_header {                   /* K, geometry by S; one line each */
	uint64_t nbuckets;
	uint32_t max_slots, list_bits;     /* list_bits 0: bitmaps in the set word; else 12 or 16 */
	uint64_t pool_chunks;                   /* of class 1 */
	uint64_t hash_seed;                     /* S: for blockhash_root, one per deployment */
	uint64_t off_slots, off_buckets, off_versions, off_pool;      /* from the segment's start */

	uint64_t small_chunks, off_small;       /* pool class 0: not made, 0 */
	uint64_t pad0[6];

	_Atomic uint64_t slots_epoch;           /* alone on its line: every reader asks for it */
	uint64_t pad1[7];

	_Atomic uint64_t entries, holders;      /* live lanes; set bits (statistics) */
	_Atomic uint64_t evictions;             /* lanes given up for another key */
	_Atomic uint64_t refused;               /* puts not done: no lane, no chunk, no memory */
	_Atomic uint64_t refused_speculative; /* puts not done because they were only speculative */
	_Atomic uint64_t scrubbed;              /* list entries walked */
	_Atomic uint64_t pool_used;             /* chunks in use, quarantine included */
	_Atomic uint64_t recoveries;            /* scans done by a writer at birth */

	_Atomic uint64_t routed_seen[8]; /* per ingress index % 8: incarnation 24 | seq 40 */
	uint64_t pad2[8];
};
_Static_assert(sizeof(struct index_header) == 384, "index_header");
_Static_assert(offsetof(struct index_header, slots_epoch) == 128, "index_header");
_Static_assert(offsetof(struct index_header, entries) == 192, "index_header");
_Static_assert(offsetof(struct index_header, routed_seen) == 256, "index_header");

/* ---- making (S) ---- */
int index_create(struct segment *ret, uint64_t blocks, uint32_t max_slots, uint64_t hash_seed);
	/* Room for `blocks` entries at load 0.70 (blocks held only speculatively count too);
	 * max_slots: six per row at most.  Published.  0, -EINVAL, -ENOMEM, -errno. */

/* ---- reading (any process; one handle per thread) ---- */
struct index;
int index_attach(struct index **ret, int fd);
	/* Takes fd, also on failure.  Whole-header check, then populates a mapping of more than
	 * 64 MiB (100 ms/GiB: before `ready`, not on the request path).  0, -ESTALE, -EBADMSG,
	 * -ENOMEM, -errno. */
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
	 * overflow counters, pool free list and each slot's own list are made anew, broken lanes
	 * dropped, retired slots queued for scrubbing.  Live slots stay live: the caller then
	 * retires those its rows do not name (index_slot_word), and those it can no longer keep
	 * true (shm/README.md, "restart"). */
void index_writer_close(struct index_writer **ret);
struct index_header *index_writer_head(struct index_writer *w);
struct segment *index_writer_segment(struct index_writer *w);           /* heartbeat */
uint32_t index_max_slots(const struct index_writer *w);
uint64_t index_slot_word(const struct index_writer *w, uint16_t id);    /* 0: no such id */
struct index_slot *index_slot_entry(struct index_writer *w, uint16_t id);
	/* For the information fields (expires_ns, model); `word` is not the caller's.  NULL: no
	 * such id. */
uint32_t index_slot_held(const struct index_writer *w, uint16_t id);    /* blocks it holds now */

uint16_t index_slot_take(struct index_writer *w, uint16_t row, uint32_t row_gen,
			 enum index_role role, enum index_tier tier, uint32_t block_tokens);
	/* A LIVE slot; with no FREE id the shortest retired one is scrubbed at once.  0: none. */
void index_slot_retire(struct index_writer *w, uint16_t id); /* invisible at once; scrubbed later */
void index_slot_demote(struct index_writer *w, uint16_t id);       /* EXACT -> DEMOTED, one store */
unsigned index_scrub(struct index_writer *w, unsigned max);
	/* Walks retired slots' own lists, at most max entries.  Returns the steps done -- an
	 * entry, or a slot that became FREE; 0: nothing is left to do.  30-60 ns each. */
void index_prefetch(const struct index_writer *w, uint64_t hash);
	/* Some 16 blocks before the put or take of a batch: worth 2x on a cold table. */
bool index_put(struct index_writer *w, uint16_t id, uint64_t hash, const uint16_t *instead,
	       unsigned n_instead);
	/* Adds id to the set of hash, taking the ids `instead` out in the same store (where the
	 * set is a pool chunk: id first, then those).  Idempotent.  false: refused (counted),
	 * nothing changed -- a speculative put never evicts a lane with an exact holder, and
	 * holds INDEX_LOG_MAX blocks. */
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
};
int index_audit(const struct index *index, struct index_audit *ret);
	/* One pass, seconds per GiB.  Exact while the writer rests; meanwhile a rough picture.
	 * 0 or -ENOMEM. */
