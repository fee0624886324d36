/* actors/policy/view.c -- attach, follow, sum; see view.h. */
#include "actors/policy/view.h"

#include <errno.h>
#include <stdlib.h>

#include "actors/common/decide/predict.h"

int
view_open(struct view *ret, const struct manifest *manifest, uint32_t policy_inc, struct rows *rows,
	  struct index **index)
{
	struct view v = {
		.manifest = manifest, .policy_inc = policy_inc, .rows_version = UINT64_MAX};

	v.row_of = calloc(manifest->n_members ? manifest->n_members : 1, sizeof *v.row_of);
	v.memory = calloc(rows->capacity, sizeof *v.memory);
	if (!v.row_of || !v.memory || overlay_new(&v.overlay, rows->capacity) < 0) {
		free(v.row_of);
		free(v.memory);
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
	free(view->memory);
	free(view->row_of);
	if (view->index)
		index_detach(&view->index);
	if (view->rows.head)
		rows_detach(&view->rows);
	*view = (struct view){.rows.seg.fd = -1};
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
		view->cap_ingress = cap;
	}
	int r = overlay_stream_open(view->overlay, &(*ingress)->stream);

	if (r < 0)
		return r;
	view->ingress[view->n_ingress++] = *ingress;
	*ingress = NULL;
	return 0;
}

void
view_remove(struct view *view, struct view_ingress *ingress)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		if (view->ingress[i] == ingress) {
			view->ingress[i] = view->ingress[--view->n_ingress];
			break;
		}
	overlay_stream_close(view->overlay, &ingress->stream);
	column_detach(&ingress->column);
	slots_detach(&ingress->slots);
	arena_detach(&ingress->arena);
	free(ingress);
}

struct view_ingress *
view_find(const struct view *view, uint32_t incarnation)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		if (view->ingress[i]->incarnation == incarnation)
			return view->ingress[i];
	return NULL;
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

/* Age of a wrapping millisecond stamp; a stamp from just ahead of our clock reading is new. */
static uint32_t
age_ms(uint32_t now_ms, uint32_t then_ms)
{
	uint32_t age = now_ms - then_ms;

	return age > INT32_MAX ? 0 : age;
}

void
view_load(const struct view *view, uint16_t row, uint32_t row_gen, uint32_t now_ms,
	  bool with_overlay, struct view_load *ret)
{
	struct view_load sum = {.oldest_dispatch_ms = PREDICT_NEVER,
				.last_first_ms = PREDICT_NEVER};

	for (unsigned i = 0; i < view->n_ingress; i++) {
		const struct column *column = &view->ingress[i]->column;
		struct cell_values v;

		if (row >= column->rows)
			continue;
		cell_read(&column->cell[row], row_gen, &v);
		sum.pending += v.pending;
		sum.prefilling += v.prefilling;
		sum.context += v.context;
		sum.decoding += v.decoding;
		sum.failures += v.failures;
		if (v.prefilling > 0) {
			uint32_t age = age_ms(now_ms, v.oldest_dispatch_ms);

			if (sum.oldest_dispatch_ms == PREDICT_NEVER || age > sum.oldest_dispatch_ms)
				sum.oldest_dispatch_ms = age;
		}
		if (v.last_first_ms != 0) {
			uint32_t age = age_ms(now_ms, v.last_first_ms);

			if (age < sum.last_first_ms)
				sum.last_first_ms = age;
		}
		if (v.last_pick != 0 &&
		    (sum.last_pick == 0 || (int32_t)(v.last_pick - sum.last_pick) > 0))
			sum.last_pick = v.last_pick;
	}
	if (with_overlay) {
		struct overlay_charge c = overlay_row(view->overlay, row, row_gen);

		sum.pending += c.pending;
		sum.prefilling += c.prefilling;
		if (c.last_pick != 0 &&
		    (sum.last_pick == 0 || (int32_t)(c.last_pick - sum.last_pick) > 0))
			sum.last_pick = c.last_pick;
	}
	*ret = sum;
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
			*memory = (struct view_memory){
				.row_gen = row_gen, .failures = ours.failures,
			};
		if (ours.failures > memory->failures)
			memory->failed_ns = now;
		memory->failures = ours.failures;
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
view_failed(const struct view *view, uint16_t row, uint32_t row_gen, mono_ns sampled_ns,
	    mono_ns now)
{
	const struct view_memory *memory = &view->memory[row];

	return memory->row_gen == row_gen && memory->failed_ns != 0 &&
	       sampled_ns <= memory->failed_ns && now < memory->failed_ns + VIEW_READING_NS;
}
