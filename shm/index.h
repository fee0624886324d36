/* shm/index.h -- who holds which prefix: block hash -> set of slots, a slot = (row, tier, role).
 *
 * Question   Given the chained block hashes of a prompt, how many leading blocks does each row hold,
 *            surely (exact) and probably (any)?
 *
 *      segment header | index_header 256 | slot entries 64 x (max_slots + 1) | buckets 64 x nbuckets
 *      | pool chunks
 *
 *      bucket  w[4], s[4]      all _Atomic u64
 *      w       tag 40 | home displacement 5 | version 11 | low 8 (w[0]: overflow count, saturating)
 *              tag = low 40 bits of h, never 0 (0 is an empty lane)
 *      s       0 nobody
 *              bit 63 = 0           bitmap of ids 1..62 (max_slots <= 62 only)
 *              10 ..                sorted id list: 5 x 12 bits to 4,094 slots, 3 x 16 above
 *              11 class 1 ver 16 chunk 32 .. -> pool
 *      home    (unsigned __int128)h * nbuckets >> 64; probe + 1, at most 32; stop where count is 0
 *
 * Writers    exactly one (kvevents).  Readers: any number, mapped read-only, never wait, never loop:
 *            a lane that changed under a reader is a miss, so depth is only ever too small.
 * Order      Every visible change is one aligned 64-bit store.  Insert: counters on the passed buckets,
 *            release fence (P1), set words, w release (P2).  Holder change: s release (P3).  Un-key: w
 *            without tag, version + 1, release fence (P4), counters of the victim's path.  Slot owner
 *            change: slot word, epoch + 1 release (P5), then the first bit.  Reader: w acquire, s,
 *            acquire fence, w again; slot words copied before the first bucket, epoch compared at the end.
 * Crash      Dying between any two stores leaves counters too high at worst (longer probes); recovery
 *            by one scan (index_writer_open).  `../design` of every rule: shm/README.md.
 * Version    any change of the above bumps INDEX_LAYOUT.
 */
#pragma once
#include "shm/segment.h"

#define INDEX_LAYOUT    1u
#define INDEX_PROBE     32u
#define INDEX_MIN_BUCKETS 64u

enum index_role { INDEX_EXACT = 1, INDEX_SPECULATIVE, INDEX_DEMOTED };
enum index_tier { INDEX_GPU = 0, INDEX_OFFLOAD };
enum index_slot_state { INDEX_SLOT_FREE = 0, INDEX_SLOT_LIVE, INDEX_SLOT_RETIRED };

struct index_slot {                     /* 64 bytes, K */
	_Atomic uint64_t word;                  /* gen 24 | row 16 | tier 4 role 4 | state 8 (see index.c) */
	uint32_t row_gen, block_tokens, model, pad0;
	mono_ns born_ns, expires_ns;
	_Atomic uint64_t stored, removed;
	uint64_t pad1;
};
_Static_assert(sizeof(struct index_slot) == 64, "index_slot");

struct index_header {                   /* K, geometry by S */
	uint64_t nbuckets;
	uint32_t max_slots, list_bits;
	uint64_t pool_chunks;                   /* 64-byte chunks */
	uint64_t hash_seed;                     /* S: for blockhash_root, one per deployment */
	_Atomic uint64_t slots_epoch;
	_Atomic uint64_t entries, holders;      /* live lanes; set bits (statistics) */
	_Atomic uint64_t evictions, refused, scrubbed;
	uint64_t off_slots, off_buckets, off_pool;      /* from the segment's start */
	_Atomic uint64_t routed_seen[8];        /* per ingress index % 8: incarnation 24 | seq 40 applied */
	uint64_t pad[11];
};
_Static_assert(sizeof(struct index_header) == 256, "index_header");

/* ---- making (S) ---- */
int index_create(struct segment *ret, uint64_t blocks, uint32_t max_slots, uint64_t hash_seed);
	/* Room for `blocks` entries at load 0.70.  Published. */

/* ---- reading (any process; one handle per thread) ---- */
struct index;
int index_attach(struct index **ret, int fd);                           /* takes fd; populates the mapping */
void index_detach(struct index **ret);
uint64_t index_seed(const struct index *index);
const struct index_header *index_head(const struct index *index);

struct index_depth {
	uint16_t row;
	uint16_t pad;
	uint32_t exact;                         /* leading blocks surely held, any exact tier */
	uint32_t gpu;                           /* the same over the GPU slot alone */
	uint32_t any;                           /* leading blocks held surely or probably; >= exact */
};
unsigned index_match(struct index *index, const uint64_t *hash, unsigned n, struct index_depth *ret, unsigned max);
	/* Rows with a depth > 0, each once, unordered.  Never blocks, never fails: a torn or missing
	 * answer is a smaller depth.  <= 200 ns a block cold (tests/bench says what it is today). */
unsigned index_holders(struct index *index, uint64_t hash, uint16_t *ret_slot, unsigned max);
	/* Slot ids that hold this block; for tools. */

/* ---- writing (kvevents only, one thread) ---- */
struct index_writer;
int index_writer_open(struct index_writer **ret, int fd);
	/* Takes fd.  Whole-header check, recovery by one scan: free lists, overflow counters, slot lists are
	 * gone with the old writer, so every live slot not re-adopted by index_slot_adopt is retired by
	 * index_writer_recovered. */
void index_writer_close(struct index_writer **ret);
struct index_header *index_writer_head(struct index_writer *w);
uint16_t index_slot_take(struct index_writer *w, uint16_t row, uint32_t row_gen, enum index_role role,
			 enum index_tier tier, uint32_t block_tokens);  /* 0: no id free */
void index_slot_retire(struct index_writer *w, uint16_t id);            /* invisible at once; scrubbed later */
void index_slot_demote(struct index_writer *w, uint16_t id);            /* EXACT -> DEMOTED, one store */
unsigned index_scrub(struct index_writer *w, unsigned max);
	/* Walks retired slots' own lists, at most max entries; 0: nothing left to do. */
bool index_put(struct index_writer *w, uint16_t id, uint64_t hash, const uint16_t *instead, unsigned n_instead);
	/* Adds id to the set of hash, taking the ids `instead` out in the same store.  Idempotent.
	 * false: refused (counted) — a speculative put never evicts a lane with an exact holder. */
void index_take(struct index_writer *w, uint64_t hash, const uint16_t *ids, unsigned n);
	/* Takes ids out of the set; un-keys the lane when nobody is left. */
bool index_has(struct index_writer *w, uint16_t id, uint64_t hash);

/* ---- auditing (tests, tools) ---- */
struct index_audit {
	uint64_t entries, holders, duplicates, unreachable, saturated, garbage;
};
void index_audit(const struct index *index, struct index_audit *ret);
