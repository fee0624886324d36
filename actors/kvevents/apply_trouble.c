/* actors/kvevents/apply_trouble.c -- why events of a row come to nothing: kept in the row, and told
 * when nothing at all is left.
 */
#include "actors/kvevents/apply_row.h"

#include "actors/common/log.h"

void
row_trouble(struct apply_row *r, enum event_trouble kind, uint64_t number, uint64_t n)
{
	struct row *row = r->shared;
	uint32_t met = atomic_load_explicit(&row->troubles, memory_order_relaxed);

	if (n == 0)
		return;
	if (r->trouble_count[kind] == 0)
		r->trouble_since[kind] = clock_mono();
	r->trouble_count[kind] += n;
	atomic_store_explicit(&row->trouble_count, r->trouble_count[kind], memory_order_relaxed);
	atomic_store_explicit(&row->trouble_since_ns, r->trouble_since[kind],
			      memory_order_relaxed);
	atomic_store_explicit(&row->trouble, row_trouble_pack(kind, number), memory_order_relaxed);
	atomic_store_explicit(&row->troubles, met | 1u << kind, memory_order_release);
}

/* Which of them was met most: what the alarm blames. */
static enum event_trouble
trouble_most(const struct apply_row *r)
{
	enum event_trouble most = TROUBLE_NONE;

	for (unsigned kind = 1; kind < TROUBLES; kind++)
		if (r->trouble_count[kind] > r->trouble_count[most])
			most = (enum event_trouble)kind;
	return most;
}

void
row_alarm(struct apply *a, struct apply_row *r)
{
	const struct row *row = r->shared;
	uint64_t received = atomic_load_explicit(&row->received, memory_order_relaxed);
	enum event_trouble most;

	if (r->alarmed || received < APPLY_ALARM_BATCHES ||
	    atomic_load_explicit(&row->applied, memory_order_relaxed) > 0)
		return;
	r->alarmed = true;
	most = trouble_most(r);
	count_add(a->process, COUNTER_events_deaf, 1);
	log_error("none of %llu event batches could be applied row=%u member=%.63s failed=%llu "
		  "skipped=%llu orphaned=%llu why=%s: %s; routed by load and by what was sent "
		  "there",
		  (unsigned long long)received, r->id, a->rows->text[r->id].member,
		  (unsigned long long)atomic_load_explicit(&row->failed, memory_order_relaxed),
		  (unsigned long long)atomic_load_explicit(&row->skipped, memory_order_relaxed),
		  (unsigned long long)atomic_load_explicit(&row->orphaned, memory_order_relaxed),
		  event_trouble_name(most), event_trouble_text(most));
}

void
row_silence(struct apply *a, struct apply_row *r)
{
	if (!r->events || r->silence_told || r->sent < APPLY_ALARM_BATCHES ||
	    a->now < r->sent_since + APPLY_SILENCE_NS ||
	    atomic_load_explicit(&r->shared->received, memory_order_relaxed) > 0)
		return;
	r->silence_told = true;
	row_trouble(r, TROUBLE_SILENT, r->sent, r->sent);
	count_add(a->process, COUNTER_events_deaf, 1);
	log_error("no event row=%u member=%.63s: %s Routed by load and by what was sent there",
		  r->id, a->rows->text[r->id].member, event_trouble_text(TROUBLE_SILENT));
}
