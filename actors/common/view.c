/* actors/common/view.c -- attach, follow, sum; see view.h. */
#include "actors/common/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROSTER_TRIES 4

void
pm_view_init(struct pm_view *view)
{
	*view = (struct pm_view){.rows.seg.fd = -1, .roster.seg.fd = -1, .index.fd = -1,
				 .config.fd = -1, .pins.seg.fd = -1,
				 .limits.seg.fd = -1};
}

void
pm_view_close(struct pm_view *view)
{
	for (unsigned i = 0; i < view->n_processes; i++)
		process_detach(&view->process[i].process);
	for (unsigned i = 0; i < view->n_ingress; i++) {
		column_detach(&view->ingress[i].column);
		slots_detach(&view->ingress[i].slots);
	}
	free(view->process);
	free(view->ingress);
	free(view->total);
	manifest_free(&view->manifest);
	segment_detach(&view->config);
	index_detach(&view->reader);
	segment_detach(&view->index);
	roster_detach(&view->roster);
	pins_detach(&view->pins);
	limits_detach(&view->limits);
	rows_detach(&view->rows);
	pm_view_init(view);
}

/* Room for one more; NULL: no memory. */
static void *
grown(void *list, unsigned n, unsigned *cap, size_t size)
{
	unsigned want = *cap ? *cap * 2 : 8;
	void *more;

	if (n < *cap)
		return list;
	more = realloc(list, want * size);
	if (more)
		*cap = want;
	return more;
}

/* ---- segments ---- */

static void
process_drop(struct pm_view *view, unsigned i)
{
	process_detach(&view->process[i].process);
	memmove(&view->process[i], &view->process[i + 1],
		(view->n_processes - i - 1) * sizeof view->process[0]);
	view->n_processes--;
}

static int
take_process(struct pm_view *view, const struct msg_segment *m, int fd)
{
	struct pm_view_process p = {
		.role = (enum process_role)m->role,
		.index = m->index,
		.incarnation = m->incarnation,
		.generation = m->generation,
	};
	void *more = grown(view->process, view->n_processes, &view->cap_processes,
			   sizeof view->process[0]);

	if (!more) {
		close(fd);
		return -ENOMEM;
	}
	view->process = more;
	for (unsigned i = view->n_processes; i-- > 0;)          /* told twice */
		if (view->process[i].role == p.role &&
		    view->process[i].incarnation == p.incarnation)
			process_drop(view, i);
	int r = process_attach(&p.process, fd, false);

	if (r < 0)
		return r;
	view->process[view->n_processes++] = p;
	if (p.role == ROLE_INGRESS && !pm_view_born(view, p.incarnation))
		view->born[view->n_born++ % PM_VIEW_BORN] = p.incarnation;
	return 0;
}

static struct pm_view_ingress *
ingress_of(struct pm_view *view, uint32_t index, uint32_t incarnation)
{
	void *more;

	for (unsigned i = 0; i < view->n_ingress; i++)
		if (view->ingress[i].incarnation == incarnation)
			return &view->ingress[i];
	more = grown(view->ingress, view->n_ingress, &view->cap_ingress, sizeof view->ingress[0]);
	if (!more)
		return NULL;
	view->ingress = more;
	view->ingress[view->n_ingress] = (struct pm_view_ingress){
		.index = index, .incarnation = incarnation, .column.seg.fd = -1, .slots.seg.fd = -1,
	};
	return &view->ingress[view->n_ingress++];
}

static int
take_ingress(struct pm_view *view, const struct msg_segment *m, int fd)
{
	struct pm_view_ingress *in = ingress_of(view, m->index, m->incarnation);
	struct column column;
	struct slots slots;
	int r;

	if (!in) {
		close(fd);
		return -ENOMEM;
	}
	if (m->kind == SEGMENT_COLUMN) {
		r = column_attach(&column, fd, false);
		if (r < 0)
			return r;
		column_detach(&in->column);
		in->column = column;
	} else {
		r = slots_attach(&slots, fd, false);
		if (r < 0)
			return r;
		slots_detach(&in->slots);
		in->slots = slots;
	}
	return 0;
}

static int
take_config(struct pm_view *view, int fd)
{
	struct yaml_errors errs = {0};
	struct manifest *manifest = NULL;
	struct segment seg = {.fd = -1};
	uint32_t generation = 0;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3), r = own < 0 ? -errno : 0;

	if (r < 0)
		close(fd);
	else
		r = config_load(fd, &manifest, &generation, &errs);
	yaml_errors_free(&errs);
	if (r < 0) {
		if (own >= 0)
			close(own);
		return r;
	}
	r = segment_attach(&seg, own, SEGMENT_CONFIG, CONFIG_LAYOUT, false);
	if (r < 0) {
		manifest_free(&manifest);
		return r;
	}
	segment_detach(&view->config);
	view->config = seg;
	manifest_free(&view->manifest);
	view->manifest = manifest;
	view->generation = generation;
	return 0;
}

/* The table is not populated, as index_attach would: who asks an operator's question can wait. */
static int
take_index(struct pm_view *view, int fd)
{
	struct index *reader;
	struct segment seg;
	int r = segment_attach(&seg, fd, SEGMENT_INDEX, INDEX_LAYOUT, false);

	if (r < 0)
		return r;
	r = index_attach_mapped(&reader, &seg);
	if (r < 0) {
		segment_detach(&seg);
		return r;
	}
	index_detach(&view->reader);
	segment_detach(&view->index);
	view->index = seg;
	view->reader = reader;
	return 0;
}

int
pm_view_segment(struct pm_view *view, const struct msg_segment *m, int fd)
{
	struct rows rows;
	struct roster roster;
	struct pins pins;
	struct limits limits;
	int r;

	switch (m->kind) {
	case SEGMENT_ROWS:
		r = rows_attach(&rows, fd, false);
		if (r == 0) {
			rows_detach(&view->rows);
			view->rows = rows;
		}
		return r;
	case SEGMENT_ROSTER:
		r = roster_attach(&roster, fd);
		if (r == 0) {
			roster_detach(&view->roster);
			view->roster = roster;
		}
		return r;
	case SEGMENT_PINS:
		r = pins_attach(&pins, fd, false);
		if (r == 0) {
			pins_detach(&view->pins);
			view->pins = pins;
		}
		return r;
	case SEGMENT_LIMITS:
		r = limits_attach(&limits, fd, false);
		if (r == 0) {
			limits_detach(&view->limits);
			view->limits = limits;
		}
		return r;
	case SEGMENT_INDEX:
		return take_index(view, fd);
	case SEGMENT_CONFIG:
		return take_config(view, fd);
	case SEGMENT_PROCESS:
		return take_process(view, m, fd);
	case SEGMENT_COLUMN:
	case SEGMENT_SLOTS:
		return take_ingress(view, m, fd);
	default:
		close(fd);
		return 0;               /* nothing we show */
	}
}

void
pm_view_birth(struct pm_view *view, struct birth *birth)
{
	for (unsigned i = 0; i < birth->n_segments; i++) {
		struct birth_segment *s = &birth->segment[i];
		struct msg_segment m = {
			.kind = (uint8_t)s->kind, .role = (uint8_t)s->role, .index = s->index,
			.incarnation = s->incarnation, .generation = s->generation,
		};
		int fd = s->fd;

		if (fd < 0)
			continue;
		s->fd = -1;
		pm_view_segment(view, &m, fd);
	}
}

/* ---- deaths ---- */

static struct pm_view_total *
total_of(struct pm_view *view, enum process_role role, uint32_t index)
{
	void *more;

	for (unsigned i = 0; i < view->n_totals; i++)
		if (view->total[i].role == role && view->total[i].index == index)
			return &view->total[i];
	more = grown(view->total, view->n_totals, &view->cap_totals, sizeof view->total[0]);
	if (!more)
		return NULL;
	view->total = more;
	view->total[view->n_totals] = (struct pm_view_total){.role = role, .index = index};
	return &view->total[view->n_totals++];
}

static void
forget_oldest(struct pm_view *view)
{
	unsigned kept = 0, oldest = 0;
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < view->n_processes; i++) {
		uint64_t gone = view->process[i].gone;

		kept += gone != 0;
		if (gone != 0 && gone < least) {
			least = gone;
			oldest = i;
		}
	}
	if (kept > PM_VIEW_GONE_KEPT)
		process_drop(view, oldest);
}

void
pm_view_gone(struct pm_view *view, enum process_role role, uint32_t incarnation)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		if (role == ROLE_INGRESS && view->ingress[i].incarnation == incarnation) {
			column_detach(&view->ingress[i].column);
			slots_detach(&view->ingress[i].slots);
			view->ingress[i] = view->ingress[--view->n_ingress];
			break;
		}
	for (unsigned i = 0; i < view->n_processes; i++) {
		struct pm_view_process *p = &view->process[i];
		struct pm_view_total *total;

		if (p->role != role || p->incarnation != incarnation || p->gone)
			continue;
		total = total_of(view, p->role, p->index);
		for (unsigned c = 1; total && c < COUNTER_END; c++)
			total->count[c] += count_get(&p->process, (enum counter)c);
		p->gone = ++view->deaths;
		if (role == ROLE_POLICY || role == ROLE_INGRESS)
			forget_oldest(view);
		else
			process_drop(view, i);
		return;
	}
}

bool
pm_view_born(const struct pm_view *view, uint32_t incarnation)
{
	unsigned n = view->n_born < PM_VIEW_BORN ? view->n_born : PM_VIEW_BORN;

	for (unsigned i = 0; i < n; i++)
		if (view->born[i] == incarnation)
			return true;
	return false;
}

const struct pm_view_ingress *
pm_view_ingress(const struct pm_view *view, uint32_t incarnation)
{
	for (unsigned i = 0; i < view->n_ingress; i++)
		if (view->ingress[i].incarnation == incarnation)
			return &view->ingress[i];
	return NULL;
}

/* ---- reading ---- */

uint64_t
pm_view_count(const struct pm_view *view, enum process_role role, uint32_t index, enum counter c)
{
	bool gauge = strcmp(counter_info[c].type, "gauge") == 0;
	uint64_t sum = 0;

	for (unsigned i = 0; i < view->n_processes; i++) {
		const struct pm_view_process *p = &view->process[i];

		if (p->role == role && p->index == index && !p->gone)
			sum += count_get(&p->process, c);
	}
	for (unsigned i = 0; i < view->n_totals && !gauge; i++)
		if (view->total[i].role == role && view->total[i].index == index)
			sum += view->total[i].count[c];
	return sum;
}

const struct index_header *
pm_view_index(const struct pm_view *view)
{
	return view->index.head ? segment_body(&view->index) : NULL;
}

unsigned
pm_view_rows(const struct pm_view *view)
{
	return view->rows.head ? rows_count(&view->rows) : 0;
}

static const char *
pool_of(const struct manifest *m, const char *set)
{
	for (uint32_t i = 0; m && i < m->n_sets; i++)
		if (strcmp(m->sets[i].name, set) == 0)
			return m->sets[i].n_pools ? m->pools[m->sets[i].pools[0]].name : NULL;
	return NULL;
}

static void
copy_text(char *to, const char *from, size_t cap)
{
	size_t n = strnlen(from, cap - 1);

	memcpy(to, from, n);
	to[n] = 0;
}

static struct pm_view_load
load_of(const struct pm_view *view, uint16_t row, uint32_t row_gen)
{
	struct pm_view_load sum = {0};

	for (unsigned i = 0; i < view->n_ingress; i++) {
		const struct column *column = &view->ingress[i].column;
		struct cell_values v;

		if (!column->head || row >= column->rows)
			continue;
		cell_read(&column->cell[row], row_gen, &v);
		sum.pending += v.pending;
		sum.prefilling += v.prefilling;
		sum.context += v.context;
		sum.decoding += v.decoding;
	}
	return sum;
}

bool
pm_view_worker(const struct pm_view *view, uint16_t id, mono_ns now, struct pm_view_worker *ret)
{
	struct pm_view_worker w = {.row = id, .reading_age_ms = UINT32_MAX};
	const struct row *row;
	struct row_text text;

	if (id >= pm_view_rows(view))
		return false;
	row = &view->rows.row[id];
	row_reading_read(row, &w.reading);
	w.state = row_state(row, &w.reading);
	if (w.state == ROW_ABSENT)
		return false;
	w.row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	if (!rows_text_read(&view->rows, id, w.row_gen, &text))
		return false;                   /* it is being made anew */
	w.rank = row->rank;
	copy_text(w.name, text.member, sizeof w.name);
	copy_text(w.set, text.set, sizeof w.set);
	copy_text(w.url, text.url, sizeof w.url);
	copy_text(w.model, text.model, sizeof w.model);
	copy_text(w.source, text.source, sizeof w.source);
	w.provider = row->kind == ROW_PROVIDER;
	w.pool = w.provider ? NULL : pool_of(view->manifest, w.set);
	row_predictor_read(row, &w.predictor);
	w.load = load_of(view, id, w.row_gen);

	mono_ns sampled = row_reading_sampled(&w.reading);
	if (sampled) {
		uint64_t age = now > sampled ? (now - sampled) / 1000000 : 0;

		w.reading_age_ms = age < UINT32_MAX ? (uint32_t)age : UINT32_MAX - 1;
		w.fresh = row_reading_fresh(&w.reading, now);
	}
	w.health_since_ns = pm_load64(&row->health_since_ns);
	w.metrics_since_ns = pm_load64(&row->metrics_since_ns);
	uint32_t cache = atomic_load_explicit(&row->cache_state, memory_order_relaxed);
	w.cache_state = cache & 0xff;
	w.cache_reason = cache >> 8;
	w.cache_since_ns = pm_load64(&row->cache_since_ns);
	/* As decisions do: what is in the index was hashed as the events say. */
	w.block_tokens = atomic_load_explicit(&row->event_block_tokens, memory_order_relaxed);
	if (!w.block_tokens)
		w.block_tokens = row->block_tokens;
	if (!w.block_tokens && (w.reading.known & KNOWN_BLOCK_TOKENS))
		w.block_tokens = w.reading.block_tokens;
	w.received = pm_load64(&row->received);
	w.decoded = pm_load64(&row->decoded);
	w.applied = pm_load64(&row->applied);
	w.orphaned = pm_load64(&row->orphaned);
	w.failed = pm_load64(&row->failed);
	w.skipped = pm_load64(&row->skipped);
	w.gaps = pm_load64(&row->gaps);
	w.restarts = pm_load64(&row->restarts);
	w.seen_seq = pm_load64(&row->seen_seq);
	w.applied_seq = pm_load64(&row->applied_seq);
	w.troubles = atomic_load_explicit(&row->troubles, memory_order_relaxed);
	w.trouble = pm_load64(&row->trouble);
	w.trouble_count = pm_load64(&row->trouble_count);
	w.trouble_since_ns = pm_load64(&row->trouble_since_ns);
	w.has_trust = row_trust_read(&view->rows, id, &w.trust) && row_trust_key(&w.trust) != 0;
	w.chains_routed = pm_load64(&row->chains_routed);
	w.chains_stored = pm_load64(&row->chains_stored);
	w.since_ns = row->since_ns;
	w.configured_block_tokens = row->block_tokens;
	w.event_block_tokens =
		atomic_load_explicit(&row->event_block_tokens, memory_order_relaxed);
	*ret = w;
	return true;
}

bool
pm_view_source(const struct pm_view *view, unsigned i, struct roster_source *ret)
{
	const struct roster_source *from = &view->roster.source[i];
	unsigned state = view->roster.head
				 ? atomic_load_explicit(&from->state, memory_order_acquire)
				 : SOURCE_EMPTY;

	if (state == SOURCE_EMPTY)
		return false;
	memcpy(ret, from, sizeof *ret);
	ret->set[sizeof ret->set - 1] = '\0';
	ret->source[sizeof ret->source - 1] = '\0';
	ret->text[sizeof ret->text - 1] = '\0';
	return true;
}

bool
pm_view_roster(const struct pm_view *view, unsigned i, struct roster_entry *ret)
{
	if (!view->roster.head || i >= ROSTER_MAX)
		return false;
	for (unsigned t = 0; t < ROSTER_TRIES; t++) {
		uint64_t version =
			atomic_load_explicit(&view->roster.head->version, memory_order_acquire);
		uint32_t state =
			atomic_load_explicit(&view->roster.entry[i].state, memory_order_acquire);

		memcpy(ret, &view->roster.entry[i], sizeof *ret);
		ret->last_exit[sizeof ret->last_exit - 1] = 0;
		atomic_store_explicit(&ret->state, state, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&view->roster.head->version, memory_order_relaxed) ==
		    version)
			break;
	}
	return atomic_load_explicit(&ret->state, memory_order_relaxed) != ROSTER_EMPTY;
}

const struct pm_view_process *
pm_view_process(const struct pm_view *view, enum process_role role, uint32_t incarnation)
{
	for (unsigned i = 0; i < view->n_processes; i++) {
		const struct pm_view_process *p = &view->process[i];

		if (p->role == role && p->incarnation == incarnation && !p->gone)
			return p;
	}
	return NULL;
}

mono_ns
pm_view_heartbeat(const struct pm_view *view, enum process_role role, uint32_t incarnation)
{
	const struct pm_view_process *p = pm_view_process(view, role, incarnation);

	return p ? pm_load64(&p->process.seg.head->heartbeat_ns) : 0;
}

void
pm_view_journals(const struct pm_view *view, enum process_role role, pm_view_record_f *f, void *arg)
{
	_Alignas(8) char buf[JOURNAL_RECORD_MAX];

	for (unsigned i = 0; i < view->n_processes; i++) {
		const struct pm_view_process *p = &view->process[i];
		const struct journal_record *head =
			(const struct journal_record *)(const void *)buf;
		uint64_t position = 0, lost = 0, end;

		if (p->role != role)
			continue;
		end = journal_head(&p->process.journal); /* a busy writer must not keep us here */
		while (position < end &&
		       journal_read(&p->process.journal, &position, buf, sizeof buf, &lost) == 1)
			if (!f(arg, p, buf, head->len))
				return;
	}
}
