/* shm/index_slots.c -- slots of the index: taken, demoted, retired, scrubbed by their own lists. */
#include "shm/index_writer.h"

#include <errno.h>
#include <stdlib.h>

#define LOG_MIN         64u

/* ---- the list of what a slot holds ---- */

static void
bytes_change(struct index_writer *w, size_t was, size_t is)
{
	w->bytes += (is - was) * sizeof w->log->hash[0];
	atomic_store_explicit(&w->v.head->private_bytes, w->bytes, memory_order_relaxed);
}

int
log_reserve(struct index_writer *w, struct slot_log *log)
{
	size_t cap = log->cap ? log->cap * 2 : LOG_MIN;
	uint64_t *hash;

	if (log->n < log->cap)
		return 0;
	if (w->limit && w->bytes + (cap - log->cap) * sizeof hash[0] > w->limit)
		return -ENOMEM;
	hash = realloc(log->hash, cap * sizeof hash[0]);
	if (!hash)
		return -ENOMEM;
	bytes_change(w, log->cap, cap);
	log->hash = hash;
	log->cap = cap;
	return 0;
}

static int
hash_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Keeps each hash once: sorted, only where there are more than the slot holds. */
static void
log_unique(struct slot_log *log)
{
	size_t kept = 0;

	qsort(log->hash, log->n, sizeof log->hash[0], hash_compare);
	for (size_t i = 0; i < log->n; i++)
		if (kept == 0 || log->hash[kept - 1] != log->hash[i])
			log->hash[kept++] = log->hash[i];
	log->n = kept;
}

/* Before the i-th of its entries is worked. */
static void
log_prefetch(const struct index_writer *w, const struct slot_log *log, size_t i)
{
	struct index_span span = index_ahead(i, log->n);

	for (size_t k = span.from; k < span.to; k++)
		index_prefetch(w, log->hash[k]);
}

/* Engines store and remove the same blocks over and over: the list of a slot that lives long is
 * mostly stale.  Run when more than half is, so the entries it drops have paid for it: 30 ns each,
 * 100 where blocks came back and stand in it twice.  A slot that only grows never is. */
static void
log_compact(struct index_writer *w, uint16_t id)
{
	struct slot_log *log = &w->log[id];
	size_t kept = 0;

	for (size_t i = 0; i < log->n && log->held > 0; i++) {
		log_prefetch(w, log, i);
		if (index_has(w, id, log->hash[i]))
			log->hash[kept++] = log->hash[i];
	}
	log->n = kept;
	if (log->n > log->held)
		log_unique(log);
}

bool
log_append(struct index_writer *w, uint16_t id, uint64_t hash)
{
	struct slot_log *log = &w->log[id];
	bool speculative = slot_role(w, id) == INDEX_SPECULATIVE;

	if (speculative && log->n >= INDEX_LOG_MAX) {
		if (log->held >= INDEX_LOG_MAX / 4 * 3)         /* compaction would not pay */
			return refuse(w, INDEX_CAUSE_LOG);
		log_compact(w, id);
	} else if (log->n >= LOG_COMPACT + 2 * (size_t)log->held) {
		log_compact(w, id);
	}
	if (log_reserve(w, log) < 0) {
		if (log->held >= log->n / 4 * 3)
			return refuse(w, INDEX_CAUSE_MEMORY);
		log_compact(w, id);             /* a quarter of it at least is stale */
		if (log->n == log->cap)         /* by two hashes each, after a restart */
			return refuse(w, INDEX_CAUSE_MEMORY);
	}
	log->hash[log->n++] = hash;
	return true;
}

static void
log_reset(struct index_writer *w, struct slot_log *log)
{
	if (log->cap > LOG_COMPACT) {
		bytes_change(w, log->cap, 0);
		free(log->hash);
		log->hash = NULL;
		log->cap = 0;
	}
	log->n = 0;
	log->cursor = 0;
	log->held = 0;
}

/* ---- slots ---- */

uint32_t
index_max_slots(const struct index_writer *w)
{
	return w->v.max_slots;
}

uint64_t
index_slot_word(const struct index_writer *w, uint16_t id)
{
	return id_valid(w, id) ? load(&w->v.slot[id].word) : 0;
}

struct index_slot *
index_slot_entry(struct index_writer *w, uint16_t id)
{
	return id_valid(w, id) ? &w->v.slot[id] : NULL;
}

uint32_t
index_slot_held(const struct index_writer *w, uint16_t id)
{
	return id_valid(w, id) ? w->log[id].held : 0;
}

void
epoch_bump(struct index_writer *w)
{
	_Atomic uint64_t *epoch = &w->v.head->slots_epoch;

	store_release(epoch, load(epoch) + 1);                                          /* P5 */
}

static void
word_set(struct index_writer *w, uint16_t id, uint32_t gen, uint16_t row, unsigned tier,
	 unsigned role, enum index_slot_state state)
{
	store_release(&w->v.slot[id].word, index_slot_pack(gen, row, (enum index_tier)tier,
							   (enum index_role)role, state));
}

/* The same slot, with another role or state. */
static void
word_change(struct index_writer *w, uint16_t id, unsigned role, enum index_slot_state state)
{
	uint64_t word = load(&w->v.slot[id].word);

	word_set(w, id, index_slot_gen(word), index_slot_row(word), index_slot_tier(word), role,
		 state);
}

/* Walks up to max entries of retired[at]'s list; at its end the id is FREE again. */
static unsigned
scrub_slice(struct index_writer *w, uint32_t at, size_t max)
{
	uint16_t id = w->retired[at];
	struct slot_log *log = &w->log[id];
	unsigned walked = 0;

	while (log->cursor < log->n && walked < max) {
		log_prefetch(w, log, log->cursor);
		index_take(w, log->hash[log->cursor++], &id, 1);
		walked++;
	}
	stat_add(&w->v.head->scrubbed, walked);
	if (log->cursor < log->n)
		return walked;
	/* No bit names it any more, and readers' copies say retired: it may have a next owner. */
	word_change(w, id, 0, INDEX_SLOT_FREE);
	log_reset(w, log);
	w->free_ids[w->n_free++] = id;
	w->n_retired--;
	for (uint32_t i = at; i < w->n_retired; i++)
		w->retired[i] = w->retired[i + 1];
	return walked;
}

unsigned
index_scrub(struct index_writer *w, unsigned max)
{
	unsigned steps = 0;

	while (w->n_retired > 0 && steps < max) {
		uint32_t before = w->n_retired;

		steps += scrub_slice(w, 0, max - steps);
		steps += before - w->n_retired; /* empty lists do not make this loop long */
	}
	return steps;
}

static void
scrub_shortest(struct index_writer *w)
{
	uint32_t best = 0;

	if (w->n_retired == 0)
		return;
	for (uint32_t i = 1; i < w->n_retired; i++) {
		const struct slot_log *log = &w->log[w->retired[i]];
		const struct slot_log *least = &w->log[w->retired[best]];

		if (log->n - log->cursor < least->n - least->cursor)
			best = i;
	}
	scrub_slice(w, best, SIZE_MAX);
}

size_t
index_slot_bytes(const struct index_writer *w, uint16_t id)
{
	return id_valid(w, id) ? w->log[id].cap * sizeof w->log[id].hash[0] : 0;
}

size_t
index_slot_growth(const struct index_writer *w, uint16_t id)
{
	const struct slot_log *log = &w->log[id_valid(w, id) ? id : 0];

	if (log->n < log->cap)
		return 0;
	return (log->cap ? log->cap : LOG_MIN) * sizeof log->hash[0];
}

uint16_t
index_slot_take(struct index_writer *w, uint16_t row, uint32_t row_gen, enum index_role role,
		enum index_tier tier, uint32_t block_tokens)
{
	if (w->n_free == 0)
		scrub_shortest(w);
	if (w->n_free == 0) {
		refuse(w, INDEX_CAUSE_ID);
		return 0;
	}

	uint16_t id = w->free_ids[--w->n_free];
	struct index_slot *slot = &w->v.slot[id];

	slot->row_gen = row_gen;
	slot->block_tokens = block_tokens;
	slot->model = 0;
	slot->born_ns = clock_mono();
	slot->expires_ns = 0;
	atomic_store_explicit(&slot->stored, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->removed, 0, memory_order_relaxed);
	log_reset(w, &w->log[id]);
	word_set(w, id, index_slot_gen(load(&slot->word)) + 1, row, tier, role, INDEX_SLOT_LIVE);
	epoch_bump(w);
	return id;
}

void
index_slot_retire(struct index_writer *w, uint16_t id)
{
	if (!id_valid(w, id) || slot_state(w, id) != INDEX_SLOT_LIVE)
		return;
	word_change(w, id, slot_role(w, id), INDEX_SLOT_RETIRED);
	epoch_bump(w);
	w->log[id].cursor = 0;
	w->retired[w->n_retired++] = id;
}

void
index_slot_demote(struct index_writer *w, uint16_t id)
{
	if (!id_valid(w, id) || slot_state(w, id) != INDEX_SLOT_LIVE ||
	    slot_role(w, id) != INDEX_EXACT)
		return;
	word_change(w, id, INDEX_DEMOTED, INDEX_SLOT_LIVE);
	epoch_bump(w);
}
