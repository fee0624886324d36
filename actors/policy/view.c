/* actors/policy/view.c -- attach, follow, sum; see view.h. */
#include "actors/policy/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/predict.h"

struct view_sum {                       /* of one row, as last read */
	uint32_t row_gen;
	uint32_t set;                   /* which ingresses: view->set; 0: read again */
	uint32_t pending, prefilling, context, decoding;
	uint32_t oldest_dispatch_ms;    /* stamp; only where prefilling > 0 */
	uint32_t last_first_ms;         /* stamp; 0: never */
	uint32_t last_pick;             /* 0: none */
	uint32_t turned;                /* 0: never */
};

int
view_open(struct view *ret, const struct manifest *manifest, uint32_t policy_inc, struct rows *rows,
	  struct index **index)
{
	struct view v = {
		.manifest = manifest, .policy_inc = policy_inc, .rows_version = UINT64_MAX,
		.set = 1};

	v.row_of = calloc(manifest->n_members ? manifest->n_members : 1, sizeof *v.row_of);
	v.memory = calloc(rows->capacity, sizeof *v.memory);
	v.sum = calloc(rows->capacity, sizeof *v.sum);
	if (!v.row_of || !v.memory || !v.sum || overlay_new(&v.overlay, rows->capacity) < 0) {
		free(v.row_of);
		free(v.memory);
		free(v.sum);
		return -ENOMEM;
	}
	v.rows = *rows;
	v.index = *index;
	*rows = (struct rows){.seg.fd = -1};
	*index = NULL;
	*ret = v;
	view_refresh(ret);
	return 0;
}

void
view_close(struct view *view)
{
	while (view->n_ingress > 0)
		view_remove(view, view->ingress[view->n_ingress - 1]);
	free(view->ingress);
	overlay_free(&view->overlay);
	free(view->seen);
	free(view->sum);
	free(view->memory);
	free(view->row_of);
	if (view->index)
		index_detach(&view->index);
	if (view->pins.bucket)
		pins_detach(&view->pins);
	if (view->rows.head)
		rows_detach(&view->rows);
	*view = (struct view){.rows.seg.fd = -1};
}

/* Which ingresses there are has changed: no sum holds any more. */
static void
set_changed(struct view *view)
{
	if (++view->set == 0) {         /* once in 2^32 */
		memset(view->sum, 0, view->rows.capacity * sizeof *view->sum);
		view->set = 1;
	}
}

int
view_add(struct view *view, struct view_ingress **ingress)
{
	if (view->n_ingress == view->cap_ingress) {
		unsigned cap = view->cap_ingress ? view->cap_ingress * 2 : 8;
		struct view_ingress **grown = realloc(view->ingress, cap * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		view->ingress = grown;

		uint64_t *seen = calloc((size_t)view->rows.capacity * cap, sizeof *seen);

		if (!seen)
			return -ENOMEM;
		free(view->seen);
		view->seen = seen;
		view->cap_ingress = cap;
	}
	set_changed(view);
	int r = overlay_stream_open(view->overlay, &(*ingress)->stream);

	if (r < 0)
		return r;
	view->ingress[view->n_ingress++] = *ingress;
	*ingress = NULL;
	return 0;
}

void
view_take(struct view *view, struct view_ingress *ingress)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		if (view->ingress[i] == ingress) {
			view->ingress[i] = view->ingress[--view->n_ingress];
			break;
		}
	set_changed(view);
	overlay_stream_close(view->overlay, &ingress->stream);
}

void
view_ingress_free(struct view_ingress *ingress)
{
	column_detach(&ingress->column);
	slots_detach(&ingress->slots);
	arena_detach(&ingress->arena);
	free(ingress);
}

void
view_remove(struct view *view, struct view_ingress *ingress)
{
	view_take(view, ingress);
	view_ingress_free(ingress);
}

struct view_ingress *
view_find(const struct view *view, uint32_t incarnation)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		if (view->ingress[i]->incarnation == incarnation)
			return view->ingress[i];
	return NULL;
}

int
view_documents(struct view *view, const struct manifest *manifest)
{
	uint16_t *row_of = calloc(manifest->n_members ? manifest->n_members : 1, sizeof *row_of);

	if (!row_of)
		return -ENOMEM;
	free(view->row_of);
	view->row_of = row_of;
	view->manifest = manifest;
	view->rows_version = UINT64_MAX;
	view_refresh(view);
	return 0;
}

void
view_refresh(struct view *view)
{
	uint64_t version = atomic_load_explicit(&view->rows.head->version, memory_order_acquire);

	if (version == view->rows_version)
		return;
	for (uint32_t m = 0; m < view->manifest->n_members; m++)
		view->row_of[m] = rows_find(&view->rows, view->manifest->members[m].uid);
	view->rows_version = version;
}

void
view_settle(struct view *view)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		overlay_settle(view->overlay, view->ingress[i]->stream,
			       column_applied(&view->ingress[i]->column, view->policy_inc));
}

/* ---- what is in flight ----
 *
 * A cell's word names its publication, so an equal word is an equal cell: of a row whose words are
 * all those of the last time the sums still hold.  Between two decisions few cells change, and a
 * compared word costs a fifth of a cell that is read and added. */

/* Stamps and pick numbers wrap. */
static inline bool
before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static inline uint64_t *
words_seen(const struct view *view, uint16_t row)
{
	return view->seen + (size_t)row * view->cap_ingress;
}

static inline uint64_t
word_at(const struct column *column, uint16_t row)
{
	LATCH_LOAD_POINT();
	return row < column->rows ? atomic_load_explicit(&column->cell[row].word,
							  memory_order_acquire)
				  : 0;
}

static void
sum_add(struct view_sum *sum, const struct cell_values *v)
{
	if (v->prefilling > 0 &&
	    (sum->prefilling == 0 || before(v->oldest_dispatch_ms, sum->oldest_dispatch_ms)))
		sum->oldest_dispatch_ms = v->oldest_dispatch_ms;
	if (v->last_first_ms != 0 &&
	    (sum->last_first_ms == 0 || before(sum->last_first_ms, v->last_first_ms)))
		sum->last_first_ms = v->last_first_ms;
	if (v->last_pick != 0 && (sum->last_pick == 0 || before(sum->last_pick, v->last_pick)))
		sum->last_pick = v->last_pick;
	if (v->turned != 0 && (sum->turned == 0 || before(sum->turned, v->turned)))
		sum->turned = v->turned;
	sum->pending += v->pending;
	sum->prefilling += v->prefilling;
	sum->context += v->context;
	sum->decoding += v->decoding;
}

static void
sum_read(const struct view *view, uint16_t row, uint32_t row_gen, struct view_sum *ret)
{
	uint64_t *seen = words_seen(view, row);
	bool whole = true;

	*ret = (struct view_sum){.row_gen = row_gen};
	for (unsigned i = 0; i < view->n_ingress; i++) {
		const struct column *column = &view->ingress[i]->column;
		struct cell_values v;

		seen[i] = word_at(column, row);
		if (row >= column->rows)
			continue;
		whole &= cell_read(&column->cell[row], row_gen, &v);
		whole &= word_at(column, row) == seen[i];       /* what we read is what it names */
		sum_add(ret, &v);
	}
	ret->set = whole ? view->set : 0;
}

static const struct view_sum *
sum_of(const struct view *view, uint16_t row, uint32_t row_gen)
{
	struct view_sum *sum = &view->sum[row];
	const uint64_t *seen = words_seen(view, row);
	uint64_t differs = 0;

	for (unsigned i = 0; i < view->n_ingress; i++)
		differs |= word_at(&view->ingress[i]->column, row) ^ seen[i];
	if (differs != 0 || sum->set != view->set || sum->row_gen != row_gen)
		sum_read(view, row, row_gen, sum);
	return sum;
}

/* A stamp from just ahead of our clock reading is new. */
static uint32_t
age_ms(uint32_t now_ms, uint32_t then_ms)
{
	return before(now_ms, then_ms) ? 0 : now_ms - then_ms;
}

void
view_load(const struct view *view, uint16_t row, uint32_t row_gen, uint32_t now_ms,
	  bool with_overlay, struct view_load *ret)
{
	const struct view_sum *sum = sum_of(view, row, row_gen);

	*ret = (struct view_load){
		.pending = sum->pending,
		.prefilling = sum->prefilling,
		.context = sum->context,
		.decoding = sum->decoding,
		.oldest_dispatch_ms = sum->prefilling > 0 ?
			age_ms(now_ms, sum->oldest_dispatch_ms) : PREDICT_NEVER,
		.last_first_ms = sum->last_first_ms != 0 ?
			age_ms(now_ms, sum->last_first_ms) : PREDICT_NEVER,
		.last_pick = sum->last_pick,
		.turned = sum->turned,
	};
	if (with_overlay) {
		struct overlay_charge c = overlay_row(view->overlay, row, row_gen);

		ret->pending += c.pending;
		ret->prefilling += c.prefilling;
		if (c.last_pick != 0 &&
		    (ret->last_pick == 0 || before(ret->last_pick, c.last_pick)))
			ret->last_pick = c.last_pick;
	}
}

static uint32_t
less(uint32_t a, uint32_t b)
{
	return a > b ? a - b : 0;
}

static uint32_t
lesser(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void
view_tick(struct view *view, mono_ns now)
{
	uint32_t now_ms = (uint32_t)(now / 1000000u);

	view_refresh(view);
	for (uint32_t m = 0; m < view->manifest->n_members; m++) {
		uint16_t id = view->row_of[m];

		if (id == ROW_NONE || id >= view->rows.capacity)
			continue;
		const struct row *row = &view->rows.row[id];
		uint32_t row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
		struct view_memory *memory = &view->memory[id];
		struct row_reading reading;
		struct view_load ours;
		uint32_t waiting = 0, running = 0;

		row_reading_read(row, &reading);
		mono_ns sampled_ns = row_reading_sampled(&reading);

		view_load(view, id, row_gen, now_ms, false, &ours);
		if (memory->row_gen != row_gen)
			*memory = (struct view_memory){.row_gen = row_gen};
		if (sampled_ns == memory->sampled_ns)
			continue;
		memory->sampled_ns = sampled_ns;
		if (sampled_ns + VIEW_SIGHT_NS >= now && (reading.known & KNOWN_WAITING) &&
		    (reading.known & KNOWN_RUNNING)) {
			/* a request may be waiting there while we count it as decoding, or the
			 * other way round: the totals decide how many are strangers, the kinds only
			 * which they are */
			uint32_t strangers = less(reading.waiting + reading.running,
						  ours.prefilling + ours.decoding);

			waiting = lesser(less(reading.waiting, ours.prefilling), strangers);
			running = lesser(less(reading.running, ours.decoding), strangers - waiting);
		}
		memory->waiting[0] = memory->waiting[1];
		memory->running[0] = memory->running[1];
		memory->waiting[1] = waiting;
		memory->running[1] = running;
	}
}

void
view_strangers(const struct view *view, uint16_t row, uint32_t row_gen, uint32_t *ret_waiting,
	       uint32_t *ret_running)
{
	const struct view_memory *memory = &view->memory[row];

	*ret_waiting = *ret_running = 0;
	if (memory->row_gen != row_gen)
		return;
	*ret_waiting = lesser(memory->waiting[0], memory->waiting[1]);
	*ret_running = lesser(memory->running[0], memory->running[1]);
}

bool
view_turned(uint32_t turned, mono_ns sampled_ns, mono_ns now)
{
	uint32_t age_ms = cell_turn_age_ms(turned, (uint32_t)(now / 1000000u));

	return turned != 0 && age_ms < VIEW_TURNED_MS &&
	       (sampled_ns == 0 || (now > sampled_ns && age_ms <= (now - sampled_ns) / 1000000u));
}
