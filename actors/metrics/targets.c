/* actors/metrics/targets.c -- see targets.h. */
#include "actors/metrics/targets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/log.h"

#define RUN_MOST_NS 100000000ull /* targets_run is asked at least so often */

struct target {
	uint64_t serial;
	char address[MANIFEST_HOST_MAX + 16]; /* host:port */
	char metrics_path[MANIFEST_PATH_MAX + 1], health_path[MANIFEST_PATH_MAX + 1];
	uint64_t interval_ns;
	mono_ns due;
	bool under_way;
	struct health health;
	uint32_t pages_missed;
	bool asleep;
	uint16_t *row; /* owned */
	unsigned n_rows;
};

struct targets {
	struct rows *rows;               /* borrowed */
	struct process_segment *process; /* borrowed */
	targets_start_f *on_start;
	void *arg;
	struct target *target; /* owned */
	unsigned n;
	uint64_t next_serial;
	uint32_t *row_gen;    /* owned; by row: whose reading its lines hold */
	struct scrape scrape; /* scratch */
};

/* ---- health ---- */

void
health_note(struct health *h, enum probe_result health, enum probe_result metrics, bool asleep)
{
	/* A page that came shows an engine that answers, whatever /health is waiting for. */
	bool answers = health == PROBE_OK || (health == PROBE_SLOW && metrics == PROBE_OK);

	if (answers) {
		h->misses = h->slow = 0;
	} else if (health == PROBE_SLOW) {
		h->slow++;
	} else {
		h->misses++;
	}
	if (asleep || h->misses >= TARGET_MISSES_DOWN || h->slow >= TARGET_SLOW_DOWN)
		h->state = HEALTH_DOWN;
	else
		h->state = answers ? HEALTH_UP : HEALTH_SUSPECT;
}

/* ---- the set ---- */

int
targets_new(struct targets **ret, struct rows *rows, struct process_segment *process,
	    targets_start_f *f, void *arg)
{
	struct targets *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->rows = rows;
	t->process = process;
	t->on_start = f;
	t->arg = arg;
	t->row_gen = calloc(rows->capacity ? rows->capacity : 1, sizeof t->row_gen[0]);
	if (!t->row_gen) {
		free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

static void
set_free(struct target *target, unsigned n)
{
	for (unsigned i = 0; target && i < n; i++)
		free(target[i].row);
	free(target);
}

void
targets_free(struct targets **ret)
{
	if (!*ret)
		return;
	set_free((*ret)->target, (*ret)->n);
	free((*ret)->row_gen);
	free(*ret);
	*ret = NULL;
}

static bool
same_target(const struct target *a, const struct target *b)
{
	return strcmp(a->address, b->address) == 0 &&
	       strcmp(a->metrics_path, b->metrics_path) == 0 &&
	       strcmp(a->health_path, b->health_path) == 0;
}

static struct target *
target_find(struct target *target, unsigned n, const struct target *like)
{
	for (unsigned i = 0; i < n; i++)
		if (same_target(&target[i], like))
			return &target[i];
	return NULL;
}

static void
target_fill(struct target *to, const struct manifest *manifest,
	    const struct manifest_member *member)
{
	const struct manifest_set *set = &manifest->sets[member->set];

	*to = (struct target){.interval_ns = set->scrape_interval_ns};
	snprintf(to->address, sizeof to->address,
		 strchr(member->url.host, ':') ? "[%s]:%u" : "%s:%u", member->url.host,
		 member->url.port);
	memcpy(to->metrics_path, set->metrics_path, sizeof to->metrics_path);
	memcpy(to->health_path, set->health_path, sizeof to->health_path);
}

/* Readings of an earlier owner of this row id are not this one's. */
static void
row_begin(struct targets *t, uint16_t id)
{
	struct row *row = &t->rows->row[id];
	uint32_t row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	struct row_reading reading;

	if (t->row_gen[id] == row_gen)
		return;
	row_reading_read(row, &reading);
	/* Not ours to know on our own restart: a sample older than the row is another's. */
	if (t->row_gen[id] != 0 || row_reading_sampled(&reading) < row->since_ns) {
		reading = (struct row_reading){0};
		row_reading_write(row, &reading);
	}
	t->row_gen[id] = row_gen;
}

int
targets_set(struct targets *t, const struct manifest *manifest)
{
	struct target *fresh = calloc(manifest->n_members ? manifest->n_members : 1, sizeof *fresh);
	unsigned n = 0;

	if (!fresh)
		return -ENOMEM;
	for (uint32_t m = 0; m < manifest->n_members; m++) {
		const struct manifest_member *member = &manifest->members[m];
		uint16_t row = rows_find(t->rows, member->uid);
		struct target *at = &fresh[n], *same;

		if (row == ROW_NONE)
			continue;
		target_fill(at, manifest, member);
		same = target_find(fresh, n, at);
		if (same)
			at = same;
		else
			n++;
		if (!at->row)
			at->row = calloc(MANIFEST_ROWS_MAX, sizeof at->row[0]);
		if (!at->row) {
			set_free(fresh, n);
			return -ENOMEM;
		}
		if (at->n_rows < MANIFEST_ROWS_MAX)
			at->row[at->n_rows++] = row;
		row_begin(t, row);
	}
	for (unsigned i = 0; i < n; i++) {
		const struct target *old = target_find(t->target, t->n, &fresh[i]);
		uint16_t *shrunk = realloc(fresh[i].row, fresh[i].n_rows * sizeof fresh[i].row[0]);

		fresh[i].row = shrunk ? shrunk : fresh[i].row;
		fresh[i].serial = old ? old->serial : ++t->next_serial;
		fresh[i].due = old ? old->due : 0; /* new: at once, then spread over the interval */
		if (old) {
			fresh[i].under_way = old->under_way;
			fresh[i].health = old->health;
			fresh[i].pages_missed = old->pages_missed;
			fresh[i].asleep = old->asleep;
		}
	}
	set_free(t->target, t->n);
	t->target = fresh;
	t->n = n;
	return 0;
}

/* ---- probing ---- */

static bool
probe_start(struct target *target, struct prober *prober)
{
	struct probe *p = probe_new(target->serial);

	if (!p)
		return false;
	snprintf(p->call[PROBE_METRICS].fetch.url, sizeof p->call[0].fetch.url, "http://%s%s",
		 target->address, target->metrics_path);
	snprintf(p->call[PROBE_HEALTH].fetch.url, sizeof p->call[0].fetch.url, "http://%s%s",
		 target->address, target->health_path);
	target->under_way = true;
	prober_send(prober, p);
	return true;
}

mono_ns
targets_run(struct targets *t, struct prober *prober, mono_ns now)
{
	mono_ns next = now + RUN_MOST_NS;

	for (unsigned i = 0; i < t->n; i++) {
		struct target *target = &t->target[i];

		if (target->due <= now && !target->under_way) {
			probe_start(target, prober);
			target->due += target->interval_ns;
			if (target->due <= now) /* late: no burst to catch up */
				target->due = now + target->interval_ns / t->n * (i + 1);
		}
		if (!target->under_way && target->due < next)
			next = target->due;
	}
	return next > now ? next : now;
}

/* ---- results ---- */

static const char *
health_name(enum row_health state)
{
	static const char *const names[] = {"unknown", "up", "suspect", "down"};

	return names[state & 3];
}

static void
log_change(const struct target *target, enum row_health was, const struct probe_call *health)
{
	enum row_health is = target->health.state;

	if (was == is)
		return;
	if (is == HEALTH_UP)
		log_info("worker %s: %s -> up", target->address, health_name(was));
	else
		log_warn("worker %s: %s -> %s; health: %s status=%u misses=%u slow=%u%s",
			 target->address, health_name(was), health_name(is),
			 probe_result_name(health->result), health->fetch.status,
			 target->health.misses, target->health.slow,
			 target->asleep ? " asleep" : "");
}

/* Values that the page did not say are gone from `known`; their age is the page's. */
static void
row_write(struct targets *t, struct target *target, uint16_t id, const struct scrape *page,
	  mono_ns answered)
{
	struct row *row = &t->rows->row[id];
	uint32_t row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	struct row_reading reading;
	wall_ns before, after;
	bool asleep, knew;

	if (row_gen != t->row_gen[id])
		return; /* re-added: targets_set will begin it anew */
	row_reading_read(row, &reading);
	knew = (reading.known & KNOWN_ENGINE_START) != 0;
	before = row_reading_start(&reading);
	if (page) {
		scrape_reading(page, row->rank, row->ranks, &reading, &asleep);
		reading.sampled_lo = (uint32_t)answered;
		reading.sampled_hi = (uint32_t)(answered >> 32);
	} else if (target->pages_missed >= TARGET_FORGET) {
		reading.known &= KNOWN_ENGINE_START | KNOWN_BLOCK_TOKENS; /* what does not age */
	}
	reading.health = (uint32_t)target->health.state;
	reading.misses = target->health.misses + target->health.slow;
	row_reading_write(row, &reading);
	after = row_reading_start(&reading);
	if (page && knew && (reading.known & KNOWN_ENGINE_START) && after != before)
		t->on_start(t->arg, id, row_gen, after);
}

/* Is the engine of any of its rows asleep? */
static bool
page_asleep(const struct scrape *page)
{
	for (unsigned i = 0; i < page->n; i++)
		if (page->series[i].asleep)
			return true;
	return false;
}

static void
target_result(struct targets *t, struct target *target, struct probe *p)
{
	struct probe_call *metrics = &p->call[PROBE_METRICS], *health = &p->call[PROBE_HEALTH];
	enum row_health was = target->health.state;
	const struct scrape *page = NULL;

	target->under_way = false;
	if (metrics->result == PROBE_OK) {
		scrape_page(metrics->fetch.answer ? metrics->fetch.answer : "", metrics->fetch.len,
			    &t->scrape);
		if (t->scrape.samples > 0)
			page = &t->scrape;
	}
	if (page) {
		target->pages_missed = 0;
		target->asleep = page_asleep(page);
		count_add(t->process, COUNTER_scrapes, 1);
	} else {
		if (++target->pages_missed == TARGET_FORGET)
			log_warn("metrics of %s: %s status=%u, %u times; its load is unknown now",
				 target->address,
				 metrics->result == PROBE_OK ? "no samples"
							     : probe_result_name(metrics->result),
				 metrics->fetch.status, TARGET_FORGET);
		count_add(t->process, COUNTER_scrape_failures, 1);
	}
	health_note(&target->health, health->result, metrics->result, target->asleep);
	log_change(target, was, health);
	for (unsigned i = 0; i < target->n_rows; i++)
		row_write(t, target, target->row[i], page, metrics->fetch.ended_ns);
}

void
targets_result(struct targets *t, struct probe *probe)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->target[i].serial == probe->serial) {
			target_result(t, &t->target[i], probe);
			break;
		}
	probe_free(&probe);
}
