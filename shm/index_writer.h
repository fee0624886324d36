/* shm/index_writer.h -- the index writer's private memory; for shm/index_*.c only.
 *
 * Everything here dies with the writer and is made anew by one scan (index_recover.c).
 */
#pragma once
#include "shm/index_internal.h"

#define LOG_COMPACT     4096u           /* stale entries that are not worth a look */

/* What a slot holds, so that it can be scrubbed: hashes in order of arrival, appended before the
 * bit is set.  Entries may be stale (taken, evicted) or double; compaction drops those. */
struct slot_log {
	uint64_t *hash;
	size_t n, cap;
	size_t cursor;                          /* scrub: entries before it are done */
	uint32_t held;                          /* bits set in the table; n - held are stale */
};

struct chunks {                         /* of one class */
	uint32_t *free;                         /* stack */
	uint32_t n_free;
	uint32_t quarantine[QUARANTINE];        /* ring of chunks freed last, which a reader may
						 * still be copying */
	uint32_t n_quarantine, quarantine_at;
	uint16_t *held;                         /* ids in each chunk; 0: not shown */
};

struct index_writer {
	struct segment seg;                     /* owned */
	struct index_view v;
	struct slot_log *log;                   /* per id */
	uint16_t *free_ids, *retired;           /* stack; queue, oldest first */
	uint32_t n_free, n_retired;
	struct chunks chunks[INDEX_CLASSES];
	uint64_t bytes, limit;                  /* private memory; of the lists' growth, 0: none */
	uint16_t *ids;                          /* scratch: one set */
	uint64_t *words;                        /* scratch: one chunk */
};

struct lane {
	uint64_t bucket;
	unsigned lane, displacement;
};

bool lane_find(const struct index_view *v, uint64_t hash, struct lane *ret);
void lane_unkey(struct index_writer *w, uint64_t bucket, unsigned lane);
	/* Accounts for every id it held; its chunk goes to quarantine. */

void holder_account(struct index_writer *w, uint16_t id, bool put);
bool refuse(struct index_writer *w, enum index_cause cause);    /* counts; false */

/* index_sets.c: the holders of one lane; `at` is its set word. */
bool set_has(const struct index_view *v, uint64_t s, uint16_t id);
uint64_t set_of_one(const struct index_view *v, uint16_t id);
bool set_put(struct index_writer *w, _Atomic uint64_t *at, uint16_t id, uint64_t hash,
	     const uint16_t *instead, unsigned n_instead);
	/* As index_put. */
bool set_take(struct index_writer *w, _Atomic uint64_t *at, const uint16_t *ids, unsigned n);
	/* true: nobody would be left, and nothing was stored: the caller un-keys the lane. */
void chunk_release(struct index_writer *w, uint64_t s);
	/* The chunk of a set word that no lane shows any more. */

int log_reserve(struct index_writer *w, struct slot_log *log);  /* room for one more: 0, -ENOMEM */
bool log_append(struct index_writer *w, uint16_t id, uint64_t hash);
	/* false: no memory, or a speculative slot that is full; counted. */
void epoch_bump(struct index_writer *w);

int index_recover(struct index_writer *w);              /* 0, -ENOMEM */

static inline unsigned
slot_state(const struct index_writer *w, uint16_t id)
{
	return index_slot_state(load(&w->v.slot[id].word));
}

static inline unsigned
slot_role(const struct index_writer *w, uint16_t id)
{
	return index_slot_role(load(&w->v.slot[id].word));
}

static inline bool
id_valid(const struct index_writer *w, uint16_t id)
{
	return id != 0 && id <= w->v.max_slots;
}
