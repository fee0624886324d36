/* actors/common/show_segments.c -- every shared segment: whose, how large, how full; see show.h.
 *
 * Sums are made over the shared words at the moment of the question; nothing is kept.  While
 * requests run each word is of a slightly other moment; at rest they are exact, so that "back at
 * its start" can be asked of them.
 */
#include "actors/common/show.h"

#include <limits.h>
#include <unistd.h>

#include "actors/common/fields.h"
#include "actors/common/show_index.h"

#define UNKNOWN UINT64_MAX

struct sums {
	uint64_t segments, size, touched, slots_used, slots_capacity, charged_cells, stale_cells,
		torn_cells, pending, context, prefilling, decoding, arena_used, poison_live;
};

static void
put(json_t *o, const char *key, uint64_t n)
{
	json_object_set_new(o, key, pm_json_integer_if(n != UNKNOWN, n));
}

/* A pid alone would be true of whoever has it next.  null: nobody claimed it, or /proc hides the
 * processes of others from us, which that of pid 1 tells (a signal 0 is refused to admin). */
static json_t *
alive(const struct segment_header *h)
{
	uint32_t pid = atomic_load_explicit(&h->writer_pid, memory_order_relaxed);
	uint64_t start;

	if (pid == 0 || pid > INT_MAX)
		return json_null();
	start = process_start_ticks(pid);
	if (start != 0)
		return json_boolean(start == pm_load64(&h->writer_start));
	return access("/proc/1/stat", F_OK) == 0 ? json_false() : json_null();
}

/* Two kinds say themselves that their writer lives; the others' writers say it in their own
 * process segment.  0: unknown (rows, pins and limits have several). */
static mono_ns
heartbeat(const struct pm_view *view, const struct segment *seg, enum process_role role,
	  uint32_t incarnation)
{
	switch (seg->head->kind) {
	case SEGMENT_INDEX:
	case SEGMENT_PROCESS:
		return pm_load64(&seg->head->heartbeat_ns);
	case SEGMENT_ROWS:
	case SEGMENT_PINS:
	case SEGMENT_LIMITS:
		return 0;
	default:
		return pm_view_heartbeat(view, role, incarnation == UINT32_MAX ? 0 : incarnation);
	}
}

/* incarnation UINT32_MAX: it outlives its writers. */
static json_t *
segment_of(const struct pm_view *view, const struct segment *seg, enum process_role role,
	   uint32_t index, uint32_t incarnation, uint32_t generation, struct sums *sums)
{
	const struct segment_header *h = seg->head;
	uint64_t touched = segment_touched(seg);
	json_t *o = json_object();

	json_object_set_new(o, "kind", json_string(segment_kind_name((enum segment_kind)h->kind)));
	json_object_set_new(o, "role", json_string(process_role_name(role)));
	json_object_set_new(o, "index", json_integer(index));
	json_object_set_new(o, "incarnation", pm_json_known32(incarnation));
	json_object_set_new(o, "generation", pm_json_nonzero(generation));
	put(o, "size_bytes", seg->size);
	put(o, "touched_bytes", touched);
	json_object_set_new(o, "layout", json_integer(h->layout));
	json_object_set_new(o, "instance", pm_json_hex(h->instance));
	put(o, "epoch", pm_load64(&h->epoch));
	json_object_set_new(o, "writer_pid", pm_json_nonzero(atomic_load_explicit(
			    &h->writer_pid, memory_order_relaxed)));
	json_object_set_new(o, "writer_alive", alive(h));
	json_object_set_new(o, "heartbeat_age_s", pm_json_seconds(
			    heartbeat(view, seg, role, incarnation), clock_mono()));
	if (sums) {
		sums->segments++;
		sums->size += seg->size;
		sums->touched += touched == UNKNOWN ? 0 : touched;
	}
	return o;
}

/* ---- what fills each kind ---- */

static json_t *
rows_fill(const struct pm_view *view)
{
	unsigned count[ROW_STATES] = {0}, n = pm_view_rows(view);
	json_t *o = json_object(), *states = json_object();

	for (unsigned i = 0; i < n; i++) {
		struct row_reading reading;

		row_reading_read(&view->rows.row[i], &reading);
		count[row_state(&view->rows.row[i], &reading)]++;
	}
	for (unsigned s = ROW_ABSENT; s < ROW_STATES; s++)
		json_object_set_new(states, row_state_name((enum row_state)s),
				    json_integer(count[s]));
	put(o, "capacity", view->rows.capacity);
	put(o, "ever_used", n);
	put(o, "used", n - count[ROW_ABSENT]);
	json_object_set_new(o, "states", states);
	return o;
}

static json_t *
roster_fill(const struct pm_view *view)
{
	unsigned count[ROSTER_GONE + 1] = {0}, used = 0;
	json_t *o = json_object(), *states = json_object();

	for (unsigned i = 0; i < ROSTER_MAX; i++) {
		struct roster_entry e;
		unsigned state;

		if (!pm_view_roster(view, i, &e))
			continue;
		state = atomic_load_explicit(&e.state, memory_order_relaxed);
		if (state <= ROSTER_GONE)
			count[state]++;
		used++;
	}
	for (unsigned s = ROSTER_STARTING; s <= ROSTER_GONE; s++)
		json_object_set_new(states, roster_state_name(s), json_integer(count[s]));
	put(o, "capacity", ROSTER_MAX);
	put(o, "used", used);
	json_object_set_new(o, "states", states);
	return o;
}

static json_t *
pins_fill(const struct pins *pins)
{
	json_t *o = json_object();

	put(o, "capacity", (uint64_t)pins->buckets * PINS_WAYS);
	put(o, "used", pins_used(pins));
	return o;
}

static json_t *
limits_fill(const struct limits *limits)
{
	json_t *o = json_object();
	uint64_t used = 0;

	for (uint32_t i = 0; i < limits->tenants; i++)
		used += pm_load64(&limits->tenant[i].uid) != 0;
	put(o, "capacity", limits->tenants);
	put(o, "used", used);
	return o;
}

static json_t *
config_fill(const struct segment *seg)
{
	json_t *o = json_object();

	put(o, "bytes", seg->head->geometry[0]);
	json_object_set_new(o, "hash", pm_json_hex(seg->head->geometry[1]));
	return o;
}

static unsigned
poison_live(const struct column_header *h)
{
	mono_ns now = clock_mono();
	unsigned live = 0;

	for (unsigned i = 0; i < POISON_RING; i++)
		live += pm_load64(&h->poison.entry[i].body_hash) != 0 &&
			pm_load64(&h->poison.entry[i].until_ns) > now;
	return live;
}

/* Every cell as it stands, whichever row generation it speaks of: a charge nobody will release is
 * to be seen here, not hidden (stale: policy reads it as zero). */
static void
cells_sum(const struct pm_view *view, const struct column *column, struct sums *s)
{
	for (uint32_t i = 0; i < column->rows; i++) {
		struct cell_values v;
		uint32_t tag;

		if (!latch_read(&column->cell[i].word, &tag, column->cell[i].copies, CELL_WORDS,
				(uint32_t *)(void *)&v))
			s->torn_cells++;
		if (!v.pending && !v.context && !v.prefilling && !v.decoding)
			continue;
		s->charged_cells++;
		s->stale_cells += view->rows.head && (i >= view->rows.capacity ||
			atomic_load_explicit(&view->rows.row[i].row_gen, memory_order_acquire) !=
			tag);
		s->pending += v.pending;
		s->context += v.context;
		s->prefilling += v.prefilling;
		s->decoding += v.decoding;
	}
}

static void
charges_put(json_t *o, const struct sums *s)
{
	put(o, "charged_cells", s->charged_cells);
	put(o, "stale_cells", s->stale_cells);
	put(o, "torn_cells", s->torn_cells);
	put(o, "pending_tokens", s->pending);
	put(o, "context_tokens", s->context);
	put(o, "prefilling", s->prefilling);
	put(o, "decoding", s->decoding);
	put(o, "poison_live", s->poison_live);
}

static json_t *
column_fill(const struct pm_view *view, const struct column *column, struct sums *sums)
{
	const struct column_header *h = column->head;
	json_t *o = json_object(), *applied = json_array();
	struct sums s = {.poison_live = poison_live(h)};

	cells_sum(view, column, &s);
	for (unsigned i = 0; i < COLUMN_STREAMS; i++) {
		uint64_t word = pm_load64(&h->applied[i]);
		json_t *one;

		if (word == 0)
			continue;
		one = json_object();
		put(one, "policy_incarnation", word >> 32);
		put(one, "number", word & 0xffffffffu);
		json_array_append_new(applied, one);
	}
	put(o, "rows", column->rows);
	json_object_set_new(o, "alive", json_boolean(atomic_load_explicit(&h->alive,
									  memory_order_relaxed)));
	charges_put(o, &s);
	json_object_set_new(o, "applied", applied);
	put(o, "routed_sent", pm_load64(&h->routed_sent));
	sums->charged_cells += s.charged_cells;
	sums->stale_cells += s.stale_cells;
	sums->torn_cells += s.torn_cells;
	sums->pending += s.pending;
	sums->context += s.context;
	sums->prefilling += s.prefilling;
	sums->decoding += s.decoding;
	sums->poison_live += s.poison_live;
	return o;
}

static json_t *
slots_fill(const struct slots *slots, struct sums *sums)
{
	uint64_t count[SLOT_END + 1] = {0}, odd = 0;
	json_t *o = json_object(), *states = json_object();

	for (uint32_t k = 1; k <= slots->capacity; k++) {
		unsigned state = slot_state(atomic_load_explicit(&slots->slot[k].word,
								 memory_order_acquire));

		if (state <= SLOT_END)
			count[state]++;
		else
			odd++;
	}
	for (unsigned s = SLOT_FREE; s <= SLOT_END; s++)
		put(states, slot_state_name(s), count[s]);
	put(states, "unknown", odd);
	put(o, "capacity", slots->capacity);
	put(o, "used", slots->capacity - count[SLOT_FREE]);
	json_object_set_new(o, "states", states);
	sums->slots_capacity += slots->capacity;
	sums->slots_used += slots->capacity - count[SLOT_FREE];
	return o;
}

static json_t *
journal_fill(const struct journal *journal)
{
	_Alignas(8) char buf[JOURNAL_RECORD_MAX];
	const struct journal_record *record = (const struct journal_record *)(const void *)buf;
	uint64_t tail = journal_tail(journal), head = journal_head(journal), at = tail, lost = 0;
	wall_ns now = clock_wall(), oldest = 0;
	json_t *o = json_object();

	if (journal_read(journal, &at, buf, sizeof buf, &lost) == 1)
		oldest = record->when;
	put(o, "size_bytes", journal->size);
	put(o, "tail", tail);
	put(o, "head", head);
	put(o, "used_bytes", head - tail);
	/* By the wall clock, which may step: a record of the future is of now. */
	json_object_set_new(o, "oldest_age_s", pm_json_seconds(oldest, now));
	return o;
}

static json_t *
process_fill(const struct process_segment *process)
{
	const struct process_header *h = process->head;
	json_t *o = json_object();

	json_object_set_new(o, "journal", journal_fill(&process->journal));
	json_object_set_new(o, "panic", pm_json_text_or_null(h->panic, sizeof h->panic));
	json_object_set_new(o, "build", pm_json_text_or_null(h->build, sizeof h->build));
	return o;
}

static json_t *
index_fill(const struct pm_view *view)
{
	json_t *refused = NULL, *o = pm_show_index(view, &refused);

	json_decref(refused);
	json_object_del(o, "workers");          /* they are another verb's */
	return o;
}

/* ---- the list ---- */

static void
append(json_t *list, json_t *segment, json_t *fill)
{
	json_object_set_new(segment, "fill", fill);
	json_array_append_new(list, segment);
}

/* Its ingress tells of it; the bytes themselves are out of our reach. */
static json_t *
arena_of(const struct pm_view_process *p, struct sums *sums)
{
	static const char *const unknown[] = {"generation", "layout", "instance", "epoch"};
	uint64_t size = count_get(&p->process, COUNTER_arena_size);
	uint64_t touched = count_get(&p->process, COUNTER_arena_touched);
	uint64_t used = count_get(&p->process, COUNTER_arena_used);
	const struct segment_header *h = p->process.seg.head;
	json_t *o = json_object(), *fill = json_object();

	json_object_set_new(o, "kind", json_string(segment_kind_name(SEGMENT_ARENA)));
	json_object_set_new(o, "role", json_string(process_role_name(p->role)));
	put(o, "index", p->index);
	put(o, "incarnation", p->incarnation);
	put(o, "size_bytes", size ? size : UNKNOWN);
	put(o, "touched_bytes", size && touched ? touched : UNKNOWN);
	for (unsigned i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
		json_object_set_new(o, unknown[i], json_null());
	json_object_set_new(o, "writer_pid", pm_json_nonzero(atomic_load_explicit(
			    &h->writer_pid, memory_order_relaxed)));
	json_object_set_new(o, "writer_alive", alive(h));
	json_object_set_new(o, "heartbeat_age_s",
			    pm_json_seconds(pm_load64(&h->heartbeat_ns), clock_mono()));
	put(fill, "used_bytes", used);
	json_object_set_new(o, "fill", fill);
	sums->segments++;
	sums->size += size;
	sums->touched += touched == UNKNOWN ? 0 : touched;
	sums->arena_used += used;
	return o;
}

static void
ingress_segments(const struct pm_view *view, const struct pm_view_ingress *in, json_t *list,
		 struct sums *sums)
{
	const struct pm_view_process *p = pm_view_process(view, ROLE_INGRESS, in->incarnation);

	if (in->column.head)
		append(list, segment_of(view, &in->column.seg, ROLE_INGRESS, in->index,
					in->incarnation, 0, sums),
		       column_fill(view, &in->column, sums));
	if (in->slots.slot)
		append(list, segment_of(view, &in->slots.seg, ROLE_INGRESS, in->index,
					in->incarnation, 0, sums),
		       slots_fill(&in->slots, sums));
	if (p)
		json_array_append_new(list, arena_of(p, sums));
}

static void
process_segments(const struct pm_view *view, json_t *list, struct sums *sums)
{
	for (unsigned i = 0; i < view->n_processes; i++) {
		const struct pm_view_process *p = &view->process[i];
		json_t *o = segment_of(view, &p->process.seg, p->role, p->index, p->incarnation,
				       p->generation, p->gone ? NULL : sums);

		json_object_set_new(o, "kept_of_the_dead", json_boolean(p->gone != 0));
		append(list, o, process_fill(&p->process));
	}
}

static json_t *
sums_of(const struct sums *s)
{
	json_t *o = json_object();

	put(o, "segments", s->segments);
	put(o, "size_bytes", s->size);
	put(o, "touched_bytes", s->touched);
	put(o, "slots_used", s->slots_used);
	put(o, "slots_capacity", s->slots_capacity);
	put(o, "arena_used_bytes", s->arena_used);
	charges_put(o, s);
	return o;
}

json_t *
pm_show_segments(const struct pm_view *view)
{
	json_t *o = json_object(), *list = json_array();
	struct sums sums = {0};

	if (view->rows.head)
		append(list, segment_of(view, &view->rows.seg, ROLE_SUPERVISOR, 0, UINT32_MAX, 0,
					&sums), rows_fill(view));
	if (view->pins.bucket)
		append(list, segment_of(view, &view->pins.seg, ROLE_INGRESS, 0, UINT32_MAX, 0,
					&sums), pins_fill(&view->pins));
	if (view->limits.tenant)
		append(list, segment_of(view, &view->limits.seg, ROLE_INGRESS, 0, UINT32_MAX, 0,
					&sums), limits_fill(&view->limits));
	if (view->roster.head)
		append(list, segment_of(view, &view->roster.seg, ROLE_SUPERVISOR, 0, UINT32_MAX, 0,
					&sums), roster_fill(view));
	if (view->config.head)
		append(list, segment_of(view, &view->config, ROLE_SUPERVISOR, 0, UINT32_MAX,
					view->generation, &sums), config_fill(&view->config));
	if (view->index.head)
		append(list, segment_of(view, &view->index, ROLE_KVEVENTS, 0, UINT32_MAX, 0,
					&sums), index_fill(view));
	for (unsigned i = 0; i < view->n_ingress; i++)
		ingress_segments(view, &view->ingress[i], list, &sums);
	process_segments(view, list, &sums);
	json_object_set_new(o, "sum", sums_of(&sums));
	json_object_set_new(o, "segments", list);
	return o;
}
