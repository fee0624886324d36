/* actors/kvevents/apply.c -- rows, sequence, notes and leases; events: apply_events.c. */
#include "actors/kvevents/apply_row.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/log.h"

#define SCRUB_SLICE 4096u             /* entries at a time, 30 - 60 ns each */
#define SCRUB_SLICES 16u              /* a tick: some 10 ms at most */
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
	budget_begin(a);
	a->evictions_seen =
		atomic_load_explicit(&index_writer_head(writer)->evictions, memory_order_relaxed);
	slots_settle(a);
	*ret = a;
	return 0;
}

void
apply_limit(struct apply *a, uint64_t private_bytes)
{
	a->limit = private_bytes ? private_bytes : budget_default(index_writer_head(a->w));
}

void
apply_tap(struct apply *a, struct tap *tap)
{
	a->tap = tap;
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
	free(r->recent);
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

void
row_state_set(struct apply *a, struct apply_row *r, enum cache_state state,
	      enum cache_reason reason)
{
	uint32_t now = (uint32_t)state | (uint32_t)reason << 8;
	uint32_t was = atomic_load_explicit(&r->shared->cache_state, memory_order_relaxed);

	if (was == now)
		return;
	atomic_store_explicit(&r->shared->cache_since_ns, clock_mono(), memory_order_relaxed);
	APPLY_STORE_POINT();
	atomic_store_explicit(&r->shared->cache_state, now, memory_order_release);
	if ((was & 0xff) == (uint32_t)state && state == CACHE_NONE)
		return; /* it began: nothing to tell */
	if (!row_may_tell(a, r))
		return;
	log_info("cache row=%u member=%.63s rank=%u: %s -> %s reason=%s", r->id, member_of(a, r),
		 r->shared->rank, cache_state_name(was & 0xff), cache_state_name(state),
		 cache_reason_name(reason));
}

enum cache_state
row_state_of(const struct apply_row *r)
{
	return (enum cache_state)(
		atomic_load_explicit(&r->shared->cache_state, memory_order_relaxed) & 0xff);
}

/* Something was missed: any tier may hold what we do not know of. */
static void
state_gap(struct apply *a, struct apply_row *r, enum cache_reason reason)
{
	r->holes = APPLY_ALL_TIERS;
	r->hole_reason = reason;
	row_state_set(a, r, CACHE_GAP, reason);
}

/* May it hold what we do not know, in a tier that is in use? */
bool
row_doubtful(const struct apply_row *r)
{
	unsigned seen = atomic_load_explicit(&r->shared->tiers_seen, memory_order_relaxed);

	return r->holes & (seen | 1u << INDEX_GPU);
}

/* A gap ends when every tier in use was cleared since; it is there again when another tier is. */
static void
state_follow(struct apply *a, struct apply_row *r)
{
	bool doubtful = row_doubtful(r);

	if (row_state_of(r) == CACHE_GAP && !doubtful)
		row_state_set(a, r, CACHE_EXACT, REASON_CLEARED);
	else if (row_state_of(r) == CACHE_EXACT && doubtful)
		row_state_set(a, r, CACHE_GAP, r->hole_reason);
}

/* ---- rows coming and going ---- */

/* Lines 5 - 7 for a new owner of this id.  Slots are retired already.  Of nobody until the end. */
static void
lines_begin(struct row *row, uint32_t row_gen)
{
	_Atomic uint64_t *const words[] = {
		&row->cache_since_ns,    &row->open_seq, &row->applied_seq, &row->seen_seq,
		&row->engine_start_seen, &row->received, &row->decoded,     &row->applied,
		&row->orphaned,          &row->failed,   &row->skipped,     &row->gaps,
		&row->restarts,          &row->trouble,  &row->trouble_count,
		&row->trouble_since_ns,  &row->chains_routed, &row->chains_stored,
	};

	APPLY_STORE_POINT();
	atomic_store_explicit(&row->lines_gen, 0, memory_order_relaxed);
	APPLY_STORE_POINT();
	atomic_store_explicit(&row->cache_state, CACHE_NONE, memory_order_relaxed);
	atomic_store_explicit(&row->event_block_tokens, 0, memory_order_relaxed);
	atomic_store_explicit(&row->tiers_seen, 0, memory_order_relaxed);
	atomic_store_explicit(&row->offload_chunk, 0, memory_order_relaxed);
	atomic_store_explicit(&row->troubles, 0, memory_order_relaxed);
	for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
		row_store(words[i], 0);
	APPLY_STORE_POINT();
	atomic_store_explicit(&row->lines_gen, row_gen, memory_order_release);
}

/* A predecessor of ours served this row: what it left that we can keep true, we keep. */
static void
row_resume(struct apply *a, struct apply_row *r)
{
	struct row *row = r->shared;
	uint64_t open = atomic_load_explicit(&row->open_seq, memory_order_relaxed);
	uint64_t applied = atomic_load_explicit(&row->applied_seq, memory_order_relaxed);
	uint64_t seen = atomic_load_explicit(&row->seen_seq, memory_order_relaxed);
	bool half = open != applied;

	if (atomic_load_explicit(&row->lines_gen, memory_order_relaxed) != r->row_gen) {
		row_retire_all(a, r);
		lines_begin(row, r->row_gen);
		return;
	}
	if (half)
		row_retire_all(a, r);
	else
		/* The map from the engine's hashes is lost: removals can no longer be understood.
		 */
		row_demote(a, r);
	if (open != 0)
		state_gap(a, r, half ? REASON_HALF_BATCH : REASON_WRITER_RESTART);
	r->started = open != 0;
	r->last_seq = open - 1;
	r->heard = seen != 0;
	r->live_seq = seen - 1;
	/* Half a batch may have been another life's first, with blocks of another size. */
	r->block_tokens =
		half ? 0 : atomic_load_explicit(&row->event_block_tokens, memory_order_relaxed);
	row_store(&row->applied_seq, open);
	row_leases_resume(a, r);
}

int
apply_row_open(struct apply *a, uint16_t id, bool events, mono_ns now)
{
	struct apply_row *r = row_at(a, id);
	struct row_text text;
	struct row *row;
	uint32_t row_gen;

	a->now = now;
	if (id >= a->rows->capacity)
		return -EINVAL;
	row = &a->rows->row[id];
	row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	if (r && r->row_gen != row_gen) {
		apply_row_close(a, id);
		r = NULL;
	}
	if (!r) {
		if (!rows_text_read(a->rows, id, row_gen, &text))
			return -EAGAIN;
		r = calloc(1, sizeof *r);
		if (!r || orphans_new(&r->orphans) < 0) {
			free(r);
			return -ENOMEM;
		}
		r->id = id;
		r->row_gen = row_gen;
		r->shared = row;
		r->events = events;
		r->feeder = r->sibling.id = ROW_NONE;
		budget_refill(a, r, 0);
		r->rotate_at = now + row_lease(r) / 2;
		memcpy(r->model, text.model, sizeof r->model);
		a->row[id] = r;
		a->n_rows++;
		budget_account(a, r);
		row_resume(a, r);
	}
	if (!events)
		apply_row_moved(a, id);
	r->events = events;
	if (!events)
		row_state_set(a, r, CACHE_APPROXIMATE, REASON_NO_EVENTS);
	else if (!r->started && row_state_of(r) != CACHE_REPLAYING)
		row_state_set(a, r, CACHE_NONE, REASON_NO_EVENTS);
	return 0;
}

void
row_moved(struct apply *a, struct apply_row *r)
{
	r->own_heard = false;
	r->feeder = ROW_NONE;
	if (!r->started)
		return;
	row_demote(a, r);
	r->started = r->heard = false;
	r->life++;
	r->group_known = r->group_full = false;
	state_gap(a, r, REASON_FIRST_SEQ);
}

void
apply_row_close(struct apply *a, uint16_t id)
{
	struct apply_row *r = row_at(a, id);

	if (!r)
		return;
	row_retire_all(a, r);
	lines_begin(r->shared, 0);
	ranks_feed_end(a, id);
	a->bytes -= r->bytes;
	a->n_rows--;
	row_free(&a->row[id]);
}

void
apply_row_moved(struct apply *a, uint16_t id)
{
	struct apply_row *r = row_at(a, id);

	if (!r)
		return;
	ranks_feed_end(a, id);
	row_moved(a, r);
}

/* ---- sequence ---- */

void
row_hole_count(struct apply *a, struct apply_row *r)
{
	row_count(&r->shared->gaps, 1);
	count_add(a->process, COUNTER_seq_gaps, 1);
}

/* whole: from its first batch on, so all it holds is known. */
static void
engine_began_anew(struct apply *a, struct apply_row *r, bool whole, enum cache_reason reason)
{
	row_retire_all(a, r);
	r->block_tokens = 0;
	r->group_known = r->group_full = false;
	r->size_told = false;
	atomic_store_explicit(&r->shared->offload_chunk, 0, memory_order_relaxed);
	r->publisher = 0;
	r->life++;
	row_count(&r->shared->restarts, 1);
	count_add(a->process, COUNTER_engine_restarts, 1);
	r->holes = 0;
	if (whole)
		row_state_set(a, r, CACHE_EXACT, reason);
	else
		state_gap(a, r, reason);
}

void
row_gap(struct apply *a, struct apply_row *r, enum cache_reason reason)
{
	row_demote(a, r);
	if (!r->hole_counted)
		row_hole_count(a, r);
	r->hole_counted = false;
	state_gap(a, r, reason);
}

enum arrival { ARRIVAL_AGAIN, ARRIVAL_FIRST, ARRIVAL_NEXT, ARRIVAL_HOLE, ARRIVAL_BACK };

/* A replay runs ahead of the live wire, which says the same batches once more. */
static enum arrival
arrival_of(const struct apply_row *r, uint64_t seq, uint64_t payload)
{
	if (!r->started)
		return ARRIVAL_FIRST;
	if (r->heard && seq <= r->live_seq)
		return seq == r->live_seq && payload == r->live_payload ? ARRIVAL_AGAIN
									: ARRIVAL_BACK;
	if (seq <= r->last_seq)
		return row_replayed(r, seq, payload) ? ARRIVAL_AGAIN : ARRIVAL_BACK;
	return seq == r->last_seq + 1 ? ARRIVAL_NEXT : ARRIVAL_HOLE;
}

/* A publisher's number only grows: what is not above the last was said before. */
static enum arrival
arrival_replayed(const struct apply_row *r, uint64_t seq)
{
	if (!r->started)
		return ARRIVAL_FIRST;
	if (seq <= r->last_seq)
		return ARRIVAL_AGAIN;
	return seq == r->last_seq + 1 ? ARRIVAL_NEXT : ARRIVAL_HOLE;
}

/* What the number alone says; the batch is open. */
static void
arrive(struct apply *a, struct apply_row *r, enum arrival arrival, uint64_t seq)
{
	wall_ns now = clock_wall();

	switch (arrival) {
	case ARRIVAL_FIRST:
		r->began = now;
		r->began_told = false;
		r->holes = 0;
		if (seq != 0)
			row_gap(a, r, r->replay_failed ? r->replay_failed : REASON_FIRST_SEQ);
		else if (row_state_of(r) != CACHE_REPLAYING)
			row_state_set(a, r, CACHE_EXACT, REASON_NONE);
		break;
	case ARRIVAL_BACK:
		if (row_may_tell(a, r))
			log_warn("engine began anew row=%u member=%.63s rank=%u seq %llu -> %llu; "
				 "all it held is forgotten",
				 r->id, member_of(a, r), r->shared->rank,
				 (unsigned long long)r->last_seq, (unsigned long long)seq);
		r->began = now;
		r->began_told = true;
		engine_began_anew(a, r, seq == 0, REASON_SEQ_BACK);
		break;
	case ARRIVAL_HOLE:
		if (row_may_tell(a, r))
			log_warn("events lost row=%u member=%.63s rank=%u seq %llu -> %llu; what "
				 "it held is doubtful now",
				 r->id, member_of(a, r), r->shared->rank,
				 (unsigned long long)r->last_seq, (unsigned long long)seq);
		row_gap(a, r, r->replay_failed ? r->replay_failed : REASON_SEQ_HOLE);
		break;
	case ARRIVAL_AGAIN:
	case ARRIVAL_NEXT:
		break;
	}
	r->started = true;
	r->last_seq = seq;
	r->last_message = now;
	r->replay_failed = REASON_NONE;
}

/* From here to batch_close whoever comes after us finds half a batch, also where this one has the
 * number of the last (an engine that began anew). */
static void
batch_open(struct apply_row *r, uint64_t seq, bool live)
{
	struct row *row = r->shared;

	if (atomic_load_explicit(&row->applied_seq, memory_order_relaxed) == seq + 1)
		row_store(&row->applied_seq, 0);
	row_store(&row->open_seq, seq + 1);
	atomic_thread_fence(memory_order_release);
	if (live)
		row_store(&row->seen_seq, seq + 1);
}

static void
batch_close(struct apply_row *r, uint64_t seq)
{
	APPLY_STORE_POINT();
	atomic_store_explicit(&r->shared->applied_seq, seq + 1, memory_order_release);
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

/* An engine that names itself, and does so differently, is another one. */
static void
publisher_follow(struct apply *a, struct apply_row *r, struct kv_slice id)
{
	uint64_t publisher = id.n > 0 ? XXH3_64bits(id.p, id.n) | 1 : 0;

	if (publisher == 0 || publisher == r->publisher)
		return;
	if (r->publisher != 0) {
		if (row_may_tell(a, r))
			log_warn("another publisher row=%u member=%.63s rank=%u; all the last one "
				 "held is forgotten",
				 r->id, member_of(a, r), r->shared->rank);
		r->began = r->last_message;
		r->began_told = true;
		engine_began_anew(a, r, r->last_seq == 0, REASON_PUBLISHER);
	}
	r->publisher = publisher;
}

static void
apply_batch(struct apply *a, struct apply_row *r)
{
	struct row *row = r->shared;
	const struct kv_batch *b = &a->batch;

	publisher_follow(a, r, b->publisher_id);
	for (size_t i = 0; i < b->n_events; i++) {
		const struct kv_event *ev = &b->events[i];

		uint64_t waiting = atomic_load_explicit(&row->orphaned, memory_order_relaxed);

		row_tap_look(a, r);
		bool counted = row_apply_event(a, r, ev);

		state_follow(a, r);
		if (!counted) {
			/* kept for later is not skipped */
			bool kept = atomic_load_explicit(&row->orphaned, memory_order_relaxed) !=
				    waiting;

			if (!kept)
				row_count(&row->skipped, 1);
			row_tap(a, r, ev, kept ? TAP_KEPT : TAP_SKIPPED, NULL);
			continue;
		}
		row_tap(a, r, ev, TAP_APPLIED, NULL);
		row_count(&row->applied, 1);
		count_event(a, ev);
	}
	/* It may have taken back what the others say: no longer sure, but probable. */
	if (b->n_lost > 0)
		row_gap(a, r, REASON_SEQ_HOLE);
}

enum take { TAKE_LIVE, TAKE_OFFER, TAKE_REPLAYED };

/* The bytes of a batch have been read, or not (n < 0).  False: offered, not next in order, and so
 * left alone. */
static bool
apply_read(struct apply *a, struct apply_row *r, uint64_t seq, uint64_t hash, size_t len, int n,
	   const char *why, enum take how)
{
	bool live = how != TAKE_REPLAYED;
	enum arrival arrival = live ? arrival_of(r, seq, hash) : arrival_replayed(r, seq);

	if (how == TAKE_OFFER &&
	    (arrival == ARRIVAL_HOLE || (arrival == ARRIVAL_FIRST && seq > 0)))
		return false;
	row_count(&r->shared->received, 1);
	count_add(a->process, COUNTER_batches, 1);
	if (live) {
		r->heard = true;
		r->live_seq = seq;
		r->live_payload = hash;
	}
	if (arrival == ARRIVAL_AGAIN) {
		row_count(&r->shared->skipped, 1);
		row_tap(a, r, NULL, TAP_SKIPPED, "came twice");
		if (live)
			row_store(&r->shared->seen_seq, seq + 1);
		return true;
	}
	batch_open(r, seq, live);
	arrive(a, r, arrival, seq);
	row_remember(r, seq, hash);
	if (n < 0) {
		if (row_may_tell(a, r))
			log_warn("events unreadable row=%u member=%.63s seq=%llu: %s; counted as a "
				 "gap",
				 r->id, member_of(a, r), (unsigned long long)seq,
				 why ? why : "no memory");
		row_count(&r->shared->failed, 1);
		row_trouble(r, TROUBLE_UNREADABLE, len, 1);
		row_tap(a, r, NULL, TAP_FAILED, why ? why : "no memory");
		count_add(a->process, COUNTER_events_bad, 1);
		row_gap(a, r, REASON_SEQ_HOLE);
	} else {
		row_count(&r->shared->decoded, a->batch.n_events);
		row_count(&r->shared->failed, a->batch.n_failed);
		row_count(&r->shared->skipped, a->batch.n_skipped);
		row_trouble(r, TROUBLE_EVENT, 0, a->batch.n_failed);
		row_trouble(r, TROUBLE_TAG, 0, a->batch.n_skipped);
		count_add(a->process, COUNTER_events_bad, a->batch.n_failed);
		if (a->batch.n_failed > 0)
			row_tap(a, r, NULL, TAP_FAILED, a->batch.failed_why);
		if (a->batch.n_skipped > 0)
			row_tap(a, r, NULL, TAP_SKIPPED, event_trouble_name(TROUBLE_TAG));
		apply_batch(a, r);
	}
	batch_close(r, seq);
	row_alarm(a, r);
	return true;
}

/* Whose batch has been read: what an engine repeats is the rank's that was asked. */
static struct apply_row *
row_meant(struct apply *a, struct apply_row *r, enum take how)
{
	bool other = a->batch.has_rank && r->shared->ranks > 1 && a->batch.rank != r->shared->rank;

	if (how != TAKE_REPLAYED)
		return ranks_row(a, r);
	if (other)
		row_trouble(r, TROUBLE_RANK, a->batch.rank, 1);
	return other ? NULL : r;
}

static bool
take(struct apply *a, uint16_t id, uint64_t seq, const void *payload, size_t len, enum take how)
{
	struct apply_row *r = row_at(a, id), *meant = r;
	const char *why = NULL;
	uint64_t hash;
	int n;

	if (!r)
		return true;
	if (seq == UINT64_MAX) { /* ends a replay */
		apply_frames_bad(a, id);
		return true;
	}
	hash = XXH3_64bits(payload, len);
	n = kv_batch_decode(payload, len, &a->batch, &why);
	if (n == 0)
		meant = row_meant(a, r, how);
	if (!meant) { /* nobody's, so its number says nothing either */
		row_count(&r->shared->received, 1);
		row_count(&r->shared->skipped, a->batch.n_events);
		row_tap(a, r, NULL, TAP_SKIPPED, event_trouble_name(TROUBLE_RANK));
		row_alarm(a, r);
		return true;
	}
	/* A row that another's endpoint feeds has nobody who could ask for what it lacks. */
	return apply_read(a, meant, seq, hash ? hash : 1, len, n, why,
			  meant != r ? TAKE_LIVE : how);
}

void
apply_message(struct apply *a, uint16_t id, uint64_t seq, const void *payload, size_t len)
{
	take(a, id, seq, payload, len, TAKE_LIVE);
}

bool
apply_offer(struct apply *a, uint16_t id, uint64_t seq, const void *payload, size_t len)
{
	return take(a, id, seq, payload, len, TAKE_OFFER);
}

void
apply_replayed(struct apply *a, uint16_t id, uint64_t seq, const void *payload, size_t len,
	       enum cache_reason hole)
{
	struct apply_row *r = row_at(a, id);

	if (r)
		r->replay_failed = hole;
	count_add(a->process, COUNTER_replayed, 1);
	take(a, id, seq, payload, len, TAKE_REPLAYED);
}

/* A message of which nothing was read. */
static void
message_dropped(struct apply *a, uint16_t id, enum counter counter, enum event_trouble trouble)
{
	struct apply_row *r = row_at(a, id);

	count_add(a->process, counter, 1);
	if (!r)
		return;
	row_count(&r->shared->received, 1);
	row_count(trouble == TROUBLE_FRAMES ? &r->shared->failed : &r->shared->skipped, 1);
	row_trouble(r, trouble, 0, 1);
	row_alarm(a, r);
}

void
apply_frames_bad(struct apply *a, uint16_t id)
{
	message_dropped(a, id, COUNTER_frames_bad, TROUBLE_FRAMES);
}

void
apply_topic_refused(struct apply *a, uint16_t id)
{
	message_dropped(a, id, COUNTER_topics_refused, TROUBLE_TOPIC);
}

/* ---- lives ---- */

void
apply_engine_start(struct apply *a, uint16_t id, uint32_t row_gen, wall_ns start)
{
	struct apply_row *r = row_at(a, id);
	uint64_t seen, apart;

	if (!r || r->row_gen != row_gen || start == 0)
		return;
	seen = atomic_load_explicit(&r->shared->engine_start_seen, memory_order_relaxed);
	if (start == seen)
		return;
	/* Not the life we know, and its events have not told us before its metrics? */
	apart = r->began_told ? CLOCKS_APART_NS : 0;    /* first heard of may be the last life */
	if (seen != 0 && !(r->started && r->began + apart >= start)) {
		/* Batches of the new life that fitted the old one's numbers are forgotten too: then
		 * it is a gap. */
		bool mixed = r->started && r->last_message >= start;

		log_warn("engine began anew row=%u member=%.63s rank=%u, says its start time; all "
			 "it held is forgotten",
			 r->id, member_of(a, r), r->shared->rank);
		engine_began_anew(a, r, false, REASON_ENGINE_START);
		if (!r->events)
			row_state_set(a, r, CACHE_APPROXIMATE, REASON_ENGINE_START);
		else if (!mixed)
			row_state_set(a, r, CACHE_NONE, REASON_ENGINE_START);
		r->began = start;
		r->began_told = false;
		if (!mixed) { /* nothing of the new life has come, so nothing of it is missing */
			r->started = r->heard = false;
			r->holes = 0;
		}
	}
	row_store(&r->shared->engine_start_seen, start); /* last: dying before, it is told again */
}

void
apply_engine_asleep(struct apply *a, uint16_t id, uint32_t row_gen)
{
	struct apply_row *r = row_at(a, id);

	if (!r || r->row_gen != row_gen || r->asleep)
		return;
	r->asleep = true;
	row_retire_all(a, r);
	log_info("engine sleeps row=%u member=%.63s rank=%u; all it held is forgotten", r->id,
		 member_of(a, r), r->shared->rank);
}

/* What metrics says of the engine: its note may have been lost, or sent while nobody was here. */
static void
reading_look(struct apply *a, struct apply_row *r)
{
	struct row_reading reading;

	if (!row_reading_read(r->shared, &reading))
		return;
	if (reading.known & KNOWN_ENGINE_START)
		apply_engine_start(a, r->id, r->row_gen, row_reading_start(&reading));
	if (reading.health_why == WHY_ASLEEP)
		apply_engine_asleep(a, r->id, r->row_gen);
	else if (reading.health == HEALTH_UP)
		r->asleep = false;
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
	count_set(a->process, COUNTER_kvevents_private_bytes, budget_used(a));
	if (evictions > a->evictions_seen)
		count_add(a->process, COUNTER_index_evictions, evictions - a->evictions_seen);
	a->evictions_seen = evictions;
}

void
apply_tick(struct apply *a, mono_ns now)
{
	uint32_t rows = rows_count(a->rows);
	mono_ns before = a->now;
	size_t orphans = 0;

	a->now = now;
	for (uint32_t i = 0; i < rows; i++) {
		struct apply_row *r = a->row[i];

		if (!r)
			continue;
		if (now >= r->rotate_at)
			row_rotate(a, r);
		row_expire(a, r);
		row_age(a, r);
		row_silence(a, r);
		row_chains_look(a, r);
		budget_refill(a, r, before);
		orphans += orphans_size(r->orphans);
		reading_look(a, r);
	}
	for (unsigned i = 0; i < SCRUB_SLICES; i++)
		if (index_scrub(a->w, SCRUB_SLICE) == 0)
			break;
	count_set(a->process, COUNTER_orphans, orphans);
	gauges(a);
}
