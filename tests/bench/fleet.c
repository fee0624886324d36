/* tests/bench/fleet.c -- see fleet.h. */
#include "tests/bench/fleet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/measure.h"

static void
make_row(struct row *row, uint64_t uid)
{
	mono_ns now = clock_mono();
	struct row_reading reading = {
		.sampled_lo = (uint32_t)now, .sampled_hi = (uint32_t)(now >> 32),
		.known = KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE, .kv_usage = 0.5f,
		.health = HEALTH_UP,
	};
	struct row_predictor p = {.version = 1, .samples = 100, .state = PREDICTOR_READY};

	p.coef[COEF_BASE] = 0.01f;
	p.coef[COEF_PREFILL] = 0.0001f;
	row->uid = uid;
	atomic_store(&row->row_gen, FLEET_ROW_GEN);
	row->kind = ROW_WORKER;
	row->ranks = 1;
	row->block_tokens = FLEET_BLOCK;
	row_reading_write(row, &reading);
	row_predictor_write(row, &p);
	atomic_store(&row->intent, INTENT_SERVE);
}

static int
add_column(struct fleet *f, unsigned i)
{
	struct view_ingress *in = calloc(1, sizeof *in);
	int r;

	if (!in)
		return -ENOMEM;
	in->index = i;
	in->incarnation = i + 1;
	in->slots.seg.fd = in->arena.seg.fd = -1;
	r = column_create(&f->column[i], i, i + 1, ROWS_DEFAULT);
	if (r == 0)
		r = column_attach(&in->column, segment_readonly_fd(&f->column[i].seg), false);
	return r == 0 ? view_add(&f->view, &in) : r;
}

void
fleet_make(struct fleet *f, struct manifest *manifest, unsigned columns)
{
	struct segment index_seg;
	struct index *index;
	struct rows rows;
	int r = rows_create(&rows, ROWS_DEFAULT);

	if (r < 0)
		cannot("make the rows", r);
	memset(f, 0, sizeof *f);
	f->manifest = manifest;
	for (unsigned i = 0; i < manifest->n_members; i++)
		make_row(&rows.row[i], manifest->members[i].uid);
	atomic_store(&rows.head->count, manifest->n_members);
	atomic_fetch_add(&rows.head->version, 1);
	r = index_create(&index_seg, 1000, 62, 1);
	if (r == 0)
		r = index_attach(&index, segment_readonly_fd(&index_seg));
	if (r < 0)
		cannot("make the index", r);
	segment_detach(&index_seg);
	r = view_open(&f->view, manifest, FLEET_POLICY, &rows, &index);
	for (; r == 0 && f->n_columns < columns; f->n_columns++)
		r = add_column(f, f->n_columns);
	if (r == 0)
		r = gather_new(&f->gather, &f->view);
	if (r < 0)
		cannot("make a view", r);
}

void
fleet_free(struct fleet *f)
{
	gather_free(&f->gather);
	view_close(&f->view);
	for (unsigned i = 0; i < f->n_columns; i++)
		column_detach(&f->column[i]);
	manifest_free(&f->manifest);
}
