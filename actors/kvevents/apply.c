/* actors/kvevents/apply.c -- rows, sequence, notes and leases; events: apply_events.c. */
#include "actors/kvevents/apply_row.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/log.h"

#define SCRUB_SLICE 4096u             /* entries at a time, 30 - 60 ns each */
#define SCRUB_SLICES 16u              /* a tick: some 10 ms at most */
#define NOTE_AHEAD 16u                /* blocks prefetched */
#define TELL_NS 1000000000ull         /* of one row in that time ... */
#define TELL_LINES 8u                 /* so many lines */
#define CLOCKS_APART_NS 1000000000ull /* how much an engine's host may run ahead of ours */

int
apply_new(struct apply **ret, struct index_writer *writer, struct rows *rows,
	  struct process_segment *process)
{
	struct apply *a = calloc(1, sizeof *a);

	if (!a)
		return -ENOMEM;
	a->w = writer;
	a->rows = rows;
	a->process = process;
	a->seed = index_writer_head(writer)->hash_seed;
	a->row = calloc(rows->capacity ? rows->capacity : 1, sizeof a->row[0]);
	if (!a->row) {
		free(a);
		return -ENOMEM;
	}
	a->evictions_seen =
		atomic_load_explicit(&index_writer_head(writer)->evictions, memory_order_relaxed);
	slots_settle(a);
	*ret = a;
	return 0;
}

static void
row_free(struct apply_row **ret)
{
	struct apply_row *r = *ret;

	if (!r)
		return;
	for (unsigned tier = 0; tier < APPLY_TIERS; tier++) {
		reverse_free(&r->tier[tier].fresh);
		reverse_free(&r->tier[tier].demoted);
	}
	orphans_free(&r->orphans);
	free(r);
	*ret = NULL;
}

void
apply_free(struct apply **ret)
{
	struct apply *a = *ret;

	if (!a)
		return;
	for (uint32_t i = 0; i < a->rows->capacity; i++)
		row_free(&a->row[i]);
	kv_batch_free(&a->batch);
	free(a->row);
	free(a->chain);
	free(a->work);
	free(a);
	*ret = NULL;
}

static struct apply_row *
row_at(const struct apply *a, uint16_t row)
{
	return row < a->rows->capacity ? a->row[row] : NULL;
}

static const char *
member_of(const struct apply *a, const struct apply_row *r)
{
	return a->rows->text[r->id].member;
}

bool
row_may_tell(struct apply *a, struct apply_row *r)
{
	mono_ns now = clock_mono();

	if (now - r->told_ns >= TELL_NS) {
		if (r->untold > 0)
			log_warn("row=%u member=%.63s: %u more lines like the last, not written",
				 r->id, member_of(a, r), r->untold);
		r->told_ns = now;
		r->told = r->untold = 0;
	}
	if (r->told < TELL_LINES) {
		r->told++;
		return true;
	}
	r->untold++;
	return false;
}

static void
state_set(struct apply *a, struct apply_row *r, enum cache_state state, enum cache_reason reason)
{
	uint32_t now = (uint32_t)state | (uint32_t)reason << 8;
	uint32_t was = atomic_load_explicit(&r->shared->cache_state, memory_order_relaxed);

	if (was == now)
		return;
	atomic_store_explicit(&r->shared->cache_since_ns, clock_mono(), memory_order_relaxed);
	atomic_store_explicit(&r->shared->cache_state, now, memory_order_release);
	if ((was & 0xff) == (uint32_t)state && state == CACHE_NONE)
		return; /* it began: nothing to tell */
	if (!row_may_tell(a, r))
		return;
	log_info("cache row=%u member=%.63s rank=%u: %s -> %s reason=%s", r->id, member_of(a, r),
		 r->shared->rank, cache_state_name(was & 0xff), cache_state_name(state),
		 cache_reason_name(reason));
}

static enum cache_state
state_get(const struct apply_row *r)
{
	return (enum cache_state)(
		atomic_load_explicit(&r->shared->cache_state, memory_order_relaxed) & 0xff);
}

/* ---- rows coming and going ---- */

/* Lines 5 - 7 for a new owner of this id.  Slots are retired already. */
static void
lines_begin(struct row *row)
{
	_Atomic uint64_t *const words[] = {
		&row->cache_since_ns,    &row->open_seq, &row->applied_seq, &row->seen_seq,
		&row->engine_start_seen, &row->received, &row->decoded,     &row->applied,
		&row->orphaned,          &row->failed,   &row->skipped,     &row->gaps,
		&row->restarts,
	};

	atomic_store_explicit(&row->cache_state, CACHE_NONE, memory_order_relaxed);
	atomic_store_explicit(&row->event_block_tokens, 0, memory_order_relaxed);
	for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
		atomic_store_explicit(words[i], 0, memory_order_relaxed);
}

/* Is any slot that the row names of another row generation? */
static bool
slots_of_another(const struct apply *a, const struct apply_row *r)
{
	const uint16_t ids[] = {
		row_slot(r, INDEX_EXACT, INDEX_GPU),
		row_slot(r, INDEX_EXACT, INDEX_OFFLOAD),
		row_slot(r, INDEX_DEMOTED, INDEX_GPU),
		row_slot(r, INDEX_DEMOTED, INDEX_OFFLOAD),
		row_slot(r, INDEX_SPECULATIVE, INDEX_GPU),
		row_slot_older(r),
	};

	for (unsigned i = 0; i < sizeof ids / sizeof ids[0]; i++)
		if (ids[i] != 0 && index_slot_entry(a->w, ids[i])->row_gen != r->row_gen)
			return true;
	return false;
}

/* A predecessor of ours served this row: what it left that we can keep true, we keep. */
static void
row_resume(struct apply *a, struct apply_row *r, mono_ns now)
{
	struct row *row = r->shared;
	uint64_t open = atomic_load_explicit(&row->open_seq, memory_order_relaxed);
	uint64_t applied = atomic_load_explicit(&row->applied_seq, memory_order_relaxed);
	uint64_t seen = atomic_load_explicit(&row->seen_seq, memory_order_relaxed);

	if (slots_of_another(a, r)) {
		row_retire_all(a, r);
		lines_begin(row);
		return;
	}
	if (seen == 0)
		return; /* never heard: nothing was known, so nothing was lost */
	r->started = true;
	r->last_seq = seen - 1;
	r->block_tokens = atomic_load_explicit(&row->event_block_tokens, memory_order_relaxed);
	if (open != applied) {
		row_retire_all(a, r);
		state_set(a, r, CACHE_GAP, REASON_HALF_BATCH);
	} else {
		/* The map from the engine's hashes is lost: removals can no longer be understood.
		 */
		row_demote(a, r, now);
		state_set(a, r, CACHE_GAP, REASON_WRITER_RESTART);
	}
	/* Only the name of a demoted slot is left, not since when. */
	for (unsigned tier = 0; tier < APPLY_TIERS; tier++)
		r->tier[tier].demoted_until = now + APPLY_LEASE_EVENTS_NS;
	atomic_store_explicit(&row->open_seq, seen, memory_order_relaxed);
	atomic_store_explicit(&row->applied_seq, seen, memory_order_release);
}

int
apply_row_open(struct apply *a, uint16_t id, bool events, mono_ns now)
{
	struct apply_row *r = row_at(a, id);
	struct row *row;
	uint32_t row_gen;

	if (id >= a->rows->capacity)
		return -EINVAL;
	row = &a->rows->row[id];
	row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	if (r && r->row_gen != row_gen) {
		apply_row_close(a, id);
		r = NULL;
	}
	if (!r) {
		r = calloc(1, sizeof *r);
		if (!r || orphans_new(&r->orphans) < 0) {
			free(r);
			return -ENOMEM;
		}
		r->id = id;
		r->row_gen = row_gen;
		r->shared = row;
		r->events = events;
		r->rotate_at = now + row_lease(r) / 2;
		memcpy(r->model, a->rows->text[id].model, sizeof r->model);
		r->model[sizeof r->model - 1] = '\0';
		a->row[id] = r;
		row_resume(a, r, now);
	}
	r->events = events;
	if (!events)
		state_set(a, r, CACHE_APPROXIMATE, REASON_NO_EVENTS);
	else if (!r->started)
		state_set(a, r, CACHE_NONE, REASON_NO_EVENTS);
	return 0;
}

void
apply_row_close(struct apply *a, uint16_t id)
{
	struct apply_row *r = row_at(a, id);

	if (!r)
		return;
	row_retire_all(a, r);
	lines_begin(r->shared);
	row_free(&a->row[id]);
}

void
apply_row_moved(struct apply *a, uint16_t id)
{
	struct apply_row *r = row_at(a, id);

	if (!r || !r->started)
		return;
	row_demote(a, r, clock_mono());
	r->started = false;
	r->group_known = false;
	state_set(a, r, CACHE_GAP, REASON_FIRST_SEQ);
}

/* ---- sequence ---- */

static void
engine_began_anew(struct apply *a, struct apply_row *r, enum cache_state state,
		  enum cache_reason reason)
{
	row_retire_all(a, r);
	r->block_tokens = 0;
	r->group_known = false;
	r->size_told = false;
	row_count(&r->shared->restarts, 1);
	count_add(a->process, COUNTER_engine_restarts, 1);
	state_set(a, r, state, reason);
}

static void
gap(struct apply *a, struct apply_row *r, enum cache_reason reason)
{
	row_demote(a, r, clock_mono());
	row_count(&r->shared->gaps, 1);
	count_add(a->process, COUNTER_seq_gaps, 1);
	state_set(a, r, CACHE_GAP, reason);
}

/* False: this message has been applied already. */
static bool
sequence(struct apply *a, struct apply_row *r, uint64_t seq, uint64_t payload)
{
	wall_ns now = clock_wall();

	if (!r->started) {
		r->began = now;
		if (seq == 0)
			state_set(a, r, CACHE_EXACT, REASON_NONE);
		else
			gap(a, r, REASON_FIRST_SEQ);
	} else if (seq == r->last_seq && (payload == r->last_payload || r->last_payload == 0)) {
		row_count(&r->shared->skipped, 1);
		return false;
	} else if (seq <= r->last_seq) {
		if (row_may_tell(a, r))
			log_warn("engine began anew row=%u member=%.63s rank=%u seq %llu -> %llu; "
				 "all it held is forgotten",
				 r->id, member_of(a, r), r->shared->rank,
				 (unsigned long long)r->last_seq, (unsigned long long)seq);
		r->began = now;
		engine_began_anew(a, r, seq == 0 ? CACHE_EXACT : CACHE_GAP, REASON_SEQ_BACK);
	} else if (seq != r->last_seq + 1) {
		if (row_may_tell(a, r))
			log_warn("events lost row=%u member=%.63s rank=%u seq %llu -> %llu; what "
				 "it held is doubtful now",
				 r->id, member_of(a, r), r->shared->rank,
				 (unsigned long long)r->last_seq, (unsigned long long)seq);
		gap(a, r, REASON_SEQ_HOLE);
	}
	r->started = true;
	r->last_seq = seq;
	r->last_payload = payload;
	r->last_message = now;
	return true;
}

/* ---- one batch ---- */

static void
count_event(struct apply *a, const struct kv_event *ev)
{
	count_add(a->process,
		  ev->type == KV_STORED    ? COUNTER_events_stored
		  : ev->type == KV_REMOVED ? COUNTER_events_removed
					   : COUNTER_events_cleared,
		  1);
}

static void
apply_batch(struct apply *a, struct apply_row *r)
{
	struct row *row = r->shared;
	const struct kv_batch *b = &a->batch;

	/* The connection says who it is; a batch of another rank shows that the ports are mixed up.
	 */
	if (b->has_rank && row->ranks > 1 && b->rank != row->rank) {
		row_count(&row->skipped, b->n_events);
		if (!r->rank_told)
			log_error("events of rank %u came from the endpoint of rank %u row=%u "
				  "member=%.63s; ignored",
				  b->rank, row->rank, r->id, member_of(a, r));
		r->rank_told = true;
		return;
	}
	for (size_t i = 0; i < b->n_events; i++) {
		const struct kv_event *ev = &b->events[i];

		uint64_t waiting = atomic_load_explicit(&row->orphaned, memory_order_relaxed);

		if (!row_apply_event(a, r, ev)) {
			/* kept for later is not skipped */
			if (atomic_load_explicit(&row->orphaned, memory_order_relaxed) == waiting)
				row_count(&row->skipped, 1);
			continue;
		}
		row_count(&row->applied, 1);
		count_event(a, ev);
		if (ev->type == KV_CLEARED && state_get(r) == CACHE_GAP &&
		    row_slot(r, INDEX_EXACT, INDEX_OFFLOAD) == 0 &&
		    row_slot(r, INDEX_DEMOTED, INDEX_OFFLOAD) == 0)
			state_set(a, r, CACHE_EXACT,
				  REASON_CLEARED); /* it holds nothing: that is all */
	}
}

static void
alarm_if_deaf(struct apply *a, struct apply_row *r)
{
	uint64_t received = atomic_load_explicit(&r->shared->received, memory_order_relaxed);

	if (r->alarmed || received < APPLY_ALARM_BATCHES ||
	    atomic_load_explicit(&r->shared->applied, memory_order_relaxed) > 0)
		return;
	r->alarmed = true;
	log_error(
		"none of %llu event batches could be applied row=%u member=%.63s failed=%llu "
		"skipped=%llu "
		"orphaned=%llu; routed by load and by what was sent there",
		(unsigned long long)received, r->id, member_of(a, r),
		(unsigned long long)atomic_load_explicit(&r->shared->failed, memory_order_relaxed),
		(unsigned long long)atomic_load_explicit(&r->shared->skipped, memory_order_relaxed),
		(unsigned long long)atomic_load_explicit(&r->shared->orphaned,
							 memory_order_relaxed));
}

void
apply_message(struct apply *a, uint16_t id, uint64_t seq, const void *payload, size_t len)
{
	struct apply_row *r = row_at(a, id);
	const char *why = NULL;
	uint64_t hash;
	int n;

	if (!r)
		return;
	hash = XXH3_64bits(payload, len);
	hash = hash ? hash : 1;
	row_count(&r->shared->received, 1);
	count_add(a->process, COUNTER_batches, 1);
	if (!sequence(a, r, seq, hash))
		return;
	atomic_store_explicit(&r->shared->seen_seq, seq + 1, memory_order_relaxed);
	atomic_store_explicit(&r->shared->open_seq, seq + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	n = kv_batch_decode(payload, len, &a->batch, &why);
	if (n < 0) {
		if (row_may_tell(a, r))
			log_warn("events unreadable row=%u member=%.63s seq=%llu: %s; counted as a "
				 "gap",
				 r->id, member_of(a, r), (unsigned long long)seq,
				 why ? why : "no memory");
		row_count(&r->shared->failed, 1);
		count_add(a->process, COUNTER_events_bad, 1);
		gap(a, r, REASON_SEQ_HOLE);
	} else {
		row_count(&r->shared->decoded, a->batch.n_events);
		row_count(&r->shared->failed, a->batch.n_failed);
		row_count(&r->shared->skipped, a->batch.n_skipped);
		count_add(a->process, COUNTER_events_bad, a->batch.n_failed);
		apply_batch(a, r);
	}
	atomic_store_explicit(&r->shared->applied_seq, seq + 1, memory_order_release);
	alarm_if_deaf(a, r);
}

void
apply_frames_bad(struct apply *a, uint16_t id)
{
	struct apply_row *r = row_at(a, id);

	count_add(a->process, COUNTER_frames_bad, 1);
	if (!r)
		return;
	row_count(&r->shared->received, 1);
	row_count(&r->shared->failed, 1);
	alarm_if_deaf(a, r);
}

/* ---- notes ---- */

static uint64_t
hash_at(struct slice hashes, size_t i)
{
	uint64_t h;

	memcpy(&h, hashes.p + i * sizeof h, sizeof h); /* little-endian, anywhere in the frame */
	return h;
}

void
apply_note(struct apply *a, const struct msg_routed *note)
{
	struct apply_row *r = row_at(a, note->row);
	struct index_header *head = index_writer_head(a->w);
	size_t n = note->hashes.len / sizeof(uint64_t);
	uint16_t exact, id, older;

	if (r && r->row_gen == note->row_gen && n > 0 && (id = row_slot_speculative(a, r)) != 0) {
		exact = row_slot(r, INDEX_EXACT, INDEX_GPU);
		older = row_slot_older(r);
		for (size_t i = 0; i < n; i++) {
			uint64_t h = hash_at(note->hashes, i);

			if (i + NOTE_AHEAD < n)
				index_prefetch(a->w, hash_at(note->hashes, i + NOTE_AHEAD));
			if (h == 0 || (exact != 0 && index_has(a->w, exact, h)))
				continue; /* events keep that one true */
			index_put(a->w, id, h, &older, older != 0);
		}
	}
	atomic_store_explicit(&head->routed_seen[note->ingress % 8],
			      (uint64_t)(note->ingress_inc & 0xffffffu) << 40 |
				      (note->seq & 0xffffffffffull),
			      memory_order_release);
}

void
apply_engine_start(struct apply *a, uint16_t id, uint32_t row_gen, wall_ns start)
{
	struct apply_row *r = row_at(a, id);
	uint64_t seen;

	if (!r || r->row_gen != row_gen || start == 0)
		return;
	seen = atomic_load_explicit(&r->shared->engine_start_seen, memory_order_relaxed);
	if (start == seen)
		return;
	atomic_store_explicit(&r->shared->engine_start_seen, start, memory_order_relaxed);
	if (seen == 0 || (r->started && r->began + CLOCKS_APART_NS >= start))
		return; /* the life we know, or its events told us before its metrics */
	log_warn("engine began anew row=%u member=%.63s rank=%u, says its start time; all it held "
		 "is forgotten",
		 r->id, member_of(a, r), r->shared->rank);
	/* Batches of the new life that fitted the old one's numbers are forgotten too: then it is a
	 * gap. */
	bool mixed = r->started && r->last_message >= start;

	engine_began_anew(a, r,
			  !r->events ? CACHE_APPROXIMATE
			  : mixed    ? CACHE_GAP
				     : CACHE_NONE,
			  REASON_ENGINE_START);
	r->began = start;
	if (!mixed)
		r->started = false;
}

/* ---- time ---- */

static void
gauges(struct apply *a)
{
	const struct index_header *head = index_writer_head(a->w);
	uint64_t entries = atomic_load_explicit(&head->entries, memory_order_relaxed);
	uint64_t evictions = atomic_load_explicit(&head->evictions, memory_order_relaxed);

	count_set(a->process, COUNTER_index_blocks, entries);
	count_set(a->process, COUNTER_index_load_ppm, entries * 1000000u / (head->nbuckets * 4));
	if (evictions > a->evictions_seen)
		count_add(a->process, COUNTER_index_evictions, evictions - a->evictions_seen);
	a->evictions_seen = evictions;
}

void
apply_tick(struct apply *a, mono_ns now)
{
	uint32_t rows = atomic_load_explicit(&a->rows->head->count, memory_order_acquire);

	for (uint32_t i = 0; i < rows && i < a->rows->capacity; i++) {
		struct apply_row *r = a->row[i];
		struct row_reading reading;

		if (!r)
			continue;
		if (now >= r->rotate_at)
			row_rotate(a, r, now);
		row_expire(a, r, now);
		/* The message may have been lost, or sent while nobody was here. */
		if (row_reading_read(r->shared, &reading) && reading.known & KNOWN_ENGINE_START)
			apply_engine_start(a, r->id, r->row_gen, row_reading_start(&reading));
	}
	for (unsigned i = 0; i < SCRUB_SLICES; i++)
		if (index_scrub(a->w, SCRUB_SLICE) == 0)
			break;
	gauges(a);
}
