/* actors/metrics/tail.c -- see tail.h. */
#include "actors/metrics/tail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/decide/member.h"
#include "actors/common/log.h"

#define IDLE_NS 1000000000ull   /* steps in which idleness is accounted */

struct source {
	uint32_t incarnation;
	struct process_segment process; /* owned; read-only */
	uint64_t position;
};

struct pupil { /* one row */
	struct learn learn;
	uint32_t row_gen; /* 0: none */
	uint32_t peers;   /* subscript */
	mono_ns seen_ns;  /* newest outcome, or idleness accounted up to here */
	bool changed, told;
};

struct peers { /* what the rows of one set have taught together: the anchor of each */
	char name[ROW_NAME_MAX + ROW_URL_MAX]; /* the set's; of a provider: with its model */
	struct learn learn;
};

struct tail {
	struct rows *rows;               /* borrowed */
	struct process_segment *process; /* borrowed */
	tail_outcome_f *each;            /* NULL: none */
	void *arg;
	struct source *source;           /* owned */
	unsigned n, cap;
	struct pupil *pupil; /* owned; by row id */
	struct peers *peers; /* owned; sets are few, and are kept */
	uint32_t n_peers;
	union {
		struct journal_record record;
		char bytes[JOURNAL_RECORD_MAX];
	} buf;
};

int
tail_new(struct tail **ret, struct rows *rows, struct process_segment *process,
	 tail_outcome_f *each, void *arg)
{
	struct tail *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->rows = rows;
	t->process = process;
	t->each = each;
	t->arg = arg;
	t->pupil = calloc(rows->capacity ? rows->capacity : 1, sizeof t->pupil[0]);
	if (!t->pupil) {
		free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void
tail_free(struct tail **ret)
{
	struct tail *t = *ret;

	if (!t)
		return;
	for (unsigned i = 0; i < t->n; i++)
		process_detach(&t->source[i].process);
	free(t->source);
	free(t->pupil);
	free(t->peers);
	free(t);
	*ret = NULL;
}

/* ---- rows ---- */

static void
publish(struct tail *t, uint16_t id)
{
	struct row_predictor published;

	learn_publish(&t->pupil[id].learn, &published);
	row_predictor_write(&t->rows->row[id], &published);
	t->pupil[id].changed = false;
}

/* Subscript of the row's peers, begun from their prior.  UINT32_MAX: no memory. */
static uint32_t
peers_of(struct tail *t, const char *name, const float prior[COEF_COUNT])
{
	struct peers *grown;

	for (uint32_t i = 0; i < t->n_peers; i++)
		if (strcmp(t->peers[i].name, name) == 0)
			return i;
	grown = realloc(t->peers, (t->n_peers + 1u) * sizeof *grown);
	if (!grown)
		return UINT32_MAX;
	t->peers = grown;
	snprintf(t->peers[t->n_peers].name, sizeof t->peers[0].name, "%s", name);
	learn_begin(&t->peers[t->n_peers].learn, prior);
	return t->n_peers++;
}

/* Who learns together.  No name of a set has a slash. */
static void
peers_name(const struct manifest *manifest, const struct manifest_member *member, char *buf,
	   size_t cap)
{
	if (member_set(manifest, member))
		snprintf(buf, cap, "%s", member_group(manifest, member));
	else
		snprintf(buf, cap, "%s/%s", member_group(manifest, member),
			 member_model(manifest, member));
}

static void
row_begin(struct tail *t, uint16_t id, const struct manifest *manifest,
	  const struct manifest_member *member)
{
	char name[sizeof t->peers->name];
	float prior[COEF_COUNT];
	struct row *row = &t->rows->row[id];
	uint32_t row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	struct pupil *p = &t->pupil[id];
	struct row_predictor published;

	if (p->row_gen == row_gen)
		return;
	member_prior(manifest, member, prior);
	peers_name(manifest, member, name, sizeof name);
	p->peers = peers_of(t, name, prior);
	/* The predictor's line does not say whose it is; the first generation is nobody else's. */
	if (p->row_gen == 0 && row_gen == 1 && row_predictor_read(row, &published)) {
		learn_resume(&p->learn, &published, prior);
	} else {
		learn_begin(&p->learn, prior);
		publish(t, id);
	}
	p->row_gen = row_gen;
	p->seen_ns = clock_mono();
	p->told = p->learn.samples >= LEARN_READY;
}

void
tail_rows(struct tail *t, const struct manifest *manifest)
{
	for (uint32_t m = 0; m < manifest->n_members; m++) {
		uint16_t id = rows_find(t->rows, manifest->members[m].uid);

		if (id != ROW_NONE)
			row_begin(t, id, manifest, &manifest->members[m]);
	}
}

/* ---- journals ---- */

int
tail_add(struct tail *t, uint32_t incarnation, int fd)
{
	int r;

	if (t->n == t->cap) {
		unsigned cap = t->cap ? t->cap * 2 : 8;
		struct source *grown = realloc(t->source, cap * sizeof *grown);

		if (!grown) {
			close(fd);
			return -ENOMEM;
		}
		t->source = grown;
		t->cap = cap;
	}
	struct source *s = &t->source[t->n];

	*s = (struct source){.incarnation = incarnation};
	r = process_attach(&s->process, fd, false);
	if (r < 0)
		return r;
	s->position = journal_tail(&s->process.journal);
	t->n++;
	return 0;
}

/* Rows nobody asks forget what keeps them from being asked. */
static void
learn_idleness(struct tail *t, mono_ns now)
{
	for (uint32_t i = 0; i < t->rows->capacity; i++) {
		struct pupil *p = &t->pupil[i];

		if (p->row_gen == 0 || p->learn.samples == 0 || now < p->seen_ns + IDLE_NS)
			continue;
		if (p->peers < t->n_peers)
			learn_anchor(&p->learn, &t->peers[p->peers].learn);
		learn_idle(&p->learn, (double)(now - p->seen_ns) / 1e9);
		p->seen_ns = now;
		p->changed = true;
	}
}

static void
learn_outcome(struct tail *t, const struct journal_outcome *o, mono_ns now)
{
	struct learn_sample sample;

	if (o->row >= t->rows->capacity)
		return;
	struct pupil *p = &t->pupil[o->row];

	if (p->row_gen == 0 || p->row_gen != o->row_gen || !learn_sample_of(o, &sample))
		return;
	if (p->peers < t->n_peers) {
		struct learn *peers = &t->peers[p->peers].learn;

		learn_add(peers, &sample);
		learn_anchor(&p->learn, peers);
	}
	learn_add(&p->learn, &sample);
	p->seen_ns = now;
	p->changed = true;
	count_add(t->process, COUNTER_outcomes_learned, 1);
}

static unsigned
read_source(struct tail *t, struct source *s, unsigned most, mono_ns now)
{
	uint64_t lost = 0;
	unsigned n = 0;
	int r;

	while (n < most && (r = journal_read(&s->process.journal, &s->position, &t->buf,
					     sizeof t->buf, &lost)) != 0) {
		n++;
		if (r < 0) {
			lost += JOURNAL_ALIGN; /* moved to the head: at least this one */
			break;
		}
		if (t->buf.record.kind == JOURNAL_OUTCOME &&
		    t->buf.record.len >= sizeof t->buf.record + sizeof(struct journal_outcome)) {
			struct journal_outcome o;

			memcpy(&o, t->buf.bytes + sizeof t->buf.record, sizeof o);
			learn_outcome(t, &o, now);
			if (t->each)
				t->each(t->arg, &t->buf.record, &o, now);
		}
	}
	/* Bytes are what is known to be lost; an outcome takes one record of them. */
	if (lost > 0)
		count_add(t->process, COUNTER_outcomes_overwritten,
			  (lost + sizeof(struct journal_record) + sizeof(struct journal_outcome)) /
				  ((sizeof(struct journal_record) + sizeof(struct journal_outcome) +
				    JOURNAL_ALIGN - 1) /
				   JOURNAL_ALIGN * JOURNAL_ALIGN));
	return n;
}

static void
publish_changed(struct tail *t)
{
	for (uint32_t i = 0; i < t->rows->capacity; i++) {
		struct pupil *p = &t->pupil[i];

		if (!p->changed)
			continue;
		publish(t, (uint16_t)i);
		if (p->learn.samples < LEARN_READY || p->told)
			continue;
		p->told = true;
		log_info("predictor row=%u member=%.63s: calibrating -> ready samples=%u", i,
			 t->rows->text[i].member, p->learn.samples);
	}
}

void
tail_remove(struct tail *t, uint32_t incarnation)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->source[i].incarnation == incarnation) {
			read_source(t, &t->source[i], TAIL_RECORDS, clock_mono());
			publish_changed(t);
			process_detach(&t->source[i].process);
			t->source[i] = t->source[--t->n];
			return;
		}
}

void
tail_run(struct tail *t, mono_ns now)
{
	for (unsigned i = 0; i < t->n; i++)
		read_source(t, &t->source[i], TAIL_RECORDS / t->n + 1, now);
	learn_idleness(t, now);
	publish_changed(t);
}
