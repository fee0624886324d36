/* actors/metrics/targets.c -- see targets.h. */
#include "actors/metrics/targets.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"
#include "actors/common/log.h"

#define MODELS_NS 60000000000ull /* /v1/models is asked so often */
#define MODELS_AGAIN_NS 10000000000ull /* and after it failed */
#define STATE_AGAIN_NS 60000000000ull /* a dev-mode route that is not there: so often */
#define LARGE_AGAIN_NS 30000000000ull /* a page that was too large */
#define PROVIDER_NS 1000000000ull       /* a provider's socket is asked so often */
#define RUN_MOST_NS 100000000ull /* targets_run is asked at least so often */
#define NEVER UINT64_MAX

struct known {                          /* what outlives a change of the set */
	mono_ns due[PROBE_KINDS];             /* NEVER: not of this engine */
	mono_ns sent[PROBE_KINDS];            /* 0: none under way */
	uint32_t max_model_len;                 /* by /v1/models; 0: not known */
	struct health health;
	enum row_why metrics_why;
	uint16_t page_status, health_status;    /* HTTP, of the newest answers */
	mono_ns page_ns;                        /* when the newest page came; 0: none yet */
	mono_ns asked_ns;                       /* a page, for the first time */
	mono_ns away_ns; /* last not reached then; 0: a page asked for since has come */
	bool forgotten;                         /* and it is too old to decide by */
	bool page_asleep, said_asleep, paused;
	bool told_several;
};

struct target {
	uint64_t serial;
	struct fetch_peer peer;               /* borrowed from the manifest and its trust */
	char address[ROW_URL_MAX];            /* host:port; of a provider: its URL */
	bool provider;
	uint16_t metrics_port;
	char metrics_path[MANIFEST_PATH_MAX + 1], health_path[MANIFEST_PATH_MAX + 1];
	uint64_t interval_ns;
	enum manifest_engine engine;
	char model[MANIFEST_MODEL_MAX + 1];     /* as the engine calls it */
	struct known known;
	uint16_t *row; /* owned */
	unsigned n_rows;
};

struct targets {
	struct rows *rows;               /* borrowed */
	struct process_segment *process; /* borrowed */
	struct targets_calls calls;
	struct target *target; /* owned */
	unsigned n;
	uint64_t next_serial;
	uint32_t *row_gen;    /* owned; by row: whose reading its lines hold */
};

/* ---- the set ---- */

int
targets_new(struct targets **ret, struct rows *rows, struct process_segment *process,
	    const struct targets_calls *calls)
{
	struct targets *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->rows = rows;
	t->process = process;
	t->calls = *calls;
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
	return strcmp(a->address, b->address) == 0 && a->provider == b->provider &&
	       (!a->provider || strcmp(a->peer.provider, b->peer.provider) == 0) &&
	       a->peer.https == b->peer.https &&
	       strcmp(a->metrics_path, b->metrics_path) == 0 &&
	       a->metrics_port == b->metrics_port &&
	       strcmp(a->health_path, b->health_path) == 0 && a->engine == b->engine;
}

static struct target *
target_find(struct target *target, unsigned n, const struct target *like)
{
	for (unsigned i = 0; i < n; i++)
		if (same_target(&target[i], like))
			return &target[i];
	return NULL;
}

/* Its row says where it is spoken to; all its models are behind one socket. */
static bool
provider_fill(struct target *to, const struct rows *rows, uint16_t row,
	      const struct manifest_provider *provider)
{
	uint32_t row_gen = atomic_load_explicit(&rows->row[row].row_gen, memory_order_acquire);
	struct row_text text;

	if (!rows_text_read(rows, row, row_gen, &text))
		return false;           /* being made: we are told when it is done */
	*to = (struct target){.interval_ns = PROVIDER_NS, .provider = true,
			      .peer = {.provider = provider->name}};
	memcpy(to->address, text.url, sizeof to->address);
	snprintf(to->health_path, sizeof to->health_path, "%s", MEMBER_PROVIDER_HEALTH);
	return true;
}

static void
worker_fill(struct target *to, const struct manifest *manifest,
	    const struct manifest_member *member, const struct secrets *trust)
{
	const struct manifest_set *set = &manifest->sets[member->set];

	*to = (struct target){.interval_ns = set->scrape_interval_ns, .engine = set->engine,
			      .peer = fetch_peer(manifest, member, trust)};
	snprintf(to->address, sizeof to->address,
		 strchr(member->url.host, ':') ? "[%s]:%u" : "%s:%u", member->url.host,
		 member->url.port);
	memcpy(to->metrics_path, set->metrics_path, sizeof to->metrics_path);
	to->metrics_port = set->metrics_port ? (uint16_t)set->metrics_port : member->url.port;
	memcpy(to->health_path, set->health_path, sizeof to->health_path);
	memcpy(to->model, set->model, sizeof to->model);
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
		atomic_store_explicit(&row->up_since_ns, 0, memory_order_relaxed);
	}
	t->row_gen[id] = row_gen;
}

int
targets_set(struct targets *t, const struct manifest *manifest, const struct secrets *trust)
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
		if (member->set != MANIFEST_NONE)
			worker_fill(at, manifest, member, trust);
		else if (!provider_fill(at, t->rows, row, member_provider(manifest, member)))
			continue;
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
		if (!old)
			continue;               /* asked at once, then spread over the interval */
		fresh[i].known = old->known;
		if (strcmp(fresh[i].model, old->model) != 0) {
			fresh[i].known.max_model_len = 0;
			if (fresh[i].known.sent[PROBE_MODELS] == 0)
				fresh[i].known.due[PROBE_MODELS] = 0;
		}
	}
	set_free(t->target, t->n);
	t->target = fresh;
	t->n = n;
	return 0;
}

/* ---- probing ---- */

static bool
asks(const struct target *target, enum probe_kind kind)
{
	if (target->provider)
		return kind == PROBE_HEALTH;
	switch (kind) {
	case PROBE_SLEEPING:
	case PROBE_PAUSED:              /* routes of its dev mode */
		return target->engine == MANIFEST_ENGINE_VLLM;
	default:
		return true;
	}
}

static bool
probe_start(struct target *target, enum probe_kind kind, struct prober *prober, mono_ns now)
{
	const char *const path[PROBE_KINDS] = {
		[PROBE_METRICS] = target->metrics_path, [PROBE_HEALTH] = target->health_path,
		[PROBE_MODELS] = "/v1/models", [PROBE_SLEEPING] = "/is_sleeping",
		[PROBE_PAUSED] = "/is_paused",
	};
	struct probe *p = probe_new(target->serial, kind, target->engine);
	struct fetch_peer peer = target->peer;

	if (target->provider)
		peer.socket = target->address + strlen(ROW_URL_UNIX);
	if (kind == PROBE_METRICS)
		peer.port = target->metrics_port;
	if (!p || fetch_to(&p->fetch, &peer, path[kind]) < 0) {
		probe_free(&p);
		return false;
	}
	target->known.sent[kind] = p->sent_ns = now;
	prober_send(prober, p);
	return true;
}

/* Workers one after another, and a worker's page between two of its other answers: so all go over
 * one connection. */
static uint64_t
turn_ns(const struct target *target, enum probe_kind kind, unsigned i, unsigned n)
{
	uint64_t turn = target->interval_ns / n * (i + 1);

	return kind == PROBE_METRICS ? turn + target->interval_ns / 2 : turn;
}

mono_ns
targets_run(struct targets *t, struct prober *prober, mono_ns now)
{
	mono_ns next = now + RUN_MOST_NS;

	for (unsigned i = 0; i < t->n; i++) {
		struct target *target = &t->target[i];
		struct known *known = &target->known;

		for (enum probe_kind kind = 0; kind < PROBE_KINDS; kind++) {
			if (known->sent[kind] != 0 || !asks(target, kind))
				continue;       /* one at a time */
			if (known->due[kind] <= now) {
				probe_start(target, kind, prober, now);
				known->due[kind] += target->interval_ns;
				if (known->due[kind] <= now) /* late: no burst to catch up */
					known->due[kind] = now + turn_ns(target, kind, i, t->n);
			}
			if (known->sent[kind] == 0 && known->due[kind] < next)
				next = known->due[kind];
		}
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

static const char *
target_name(const struct target *target)
{
	return target->provider ? target->peer.provider : target->address;
}

static void
log_change(const struct target *target, enum row_health was, const char *words)
{
	const struct health *is = &target->known.health;

	if (was == is->state)
		return;
	if (is->state == HEALTH_UP)
		log_info("%s %s: %s -> up", target->provider ? "provider" : "worker",
			 target_name(target), health_name(was));
	else
		log_warn("%s %s: %s -> %s; %s status=%u misses=%u slow=%u%s%s",
			 target->provider ? "provider" : "worker", target_name(target),
			 health_name(was), health_name(is->state),
			 row_why_name(is->why), target->known.health_status, is->misses, is->slow,
			 words[0] ? ": " : "", words);
}

static void
store_since(_Atomic uint64_t *word, bool changed, mono_ns row_since, mono_ns now)
{
	mono_ns was = atomic_load_explicit(word, memory_order_relaxed);

	if (changed || was == 0 || was < row_since)
		atomic_store_explicit(word, now > row_since ? now : row_since,
				      memory_order_relaxed);
}

static uint16_t
good_ds(const struct target *target)
{
	uint64_t ds = target->interval_ns * TARGET_FORGET_INTERVALS / 100000000u;

	return ds < UINT16_MAX ? (uint16_t)ds : UINT16_MAX;
}

/* Why, and since when; what stood there as it is now keeps its time, also over our restart. */
static void
row_whys(const struct target *target, struct row *row, enum row_why metrics_why,
	 struct row_reading *reading, mono_ns now)
{
	const struct known *known = &target->known;
	const struct health *h = &known->health;
	uint32_t misses = h->misses + h->slow;
	bool health = h->why != WHY_OK && h->why != WHY_NOT_ASKED;

	store_since(&row->health_since_ns,
		    reading->health != (uint32_t)h->state || reading->health_why != h->why,
		    row->since_ns, now);
	store_since(&row->metrics_since_ns, reading->metrics_why != metrics_why, row->since_ns,
		    now);
	reading->health = (uint32_t)h->state;
	reading->health_why = (uint8_t)h->why;
	reading->metrics_why = (uint8_t)metrics_why;
	reading->status = health ? known->health_status : known->page_status;
	reading->misses = misses < UINT16_MAX ? (uint16_t)misses : UINT16_MAX;
	reading->good_ds = good_ds(target);
}

/* When this life of the engine came up: the policy lets it in little by little. */
static void
row_up(struct row *row, enum row_health health, bool another_life, mono_ns now)
{
	if (another_life || health == HEALTH_DOWN)
		atomic_store_explicit(&row->up_since_ns, 0, memory_order_relaxed);
	if (health == HEALTH_UP &&
	    atomic_load_explicit(&row->up_since_ns, memory_order_relaxed) == 0)
		atomic_store_explicit(&row->up_since_ns, now, memory_order_relaxed);
}

/* Who was away may come back as another engine, and the page that is read next says so or not.  One
 * that says no start (any more) is known by its events only. */
static bool
life_look(const struct known *known, const struct scrape *page, wall_ns before,
	  struct row_reading *reading)
{
	wall_ns after = row_reading_start(reading);
	bool moved = page && page->start != 0 && before != 0 && after != before;

	if (known->away_ns != 0 && !moved)
		reading->known &= ~(uint32_t)KNOWN_ENGINE_START;
	else if (page && page->start == 0 && scrape_why(page) == WHY_OK &&
		 !(reading->known & KNOWN_ENGINE_START))
		reading->start_lo = reading->start_hi = 0;
	return moved;
}

#define KNOWN_OF_PAGE (KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE)

/* Values that the page did not say are gone from `known`; their age is the page's. */
static void
row_write(struct targets *t, struct target *target, uint16_t id, const struct scrape *page,
	  mono_ns now)
{
	struct row *row = &t->rows->row[id];
	uint32_t row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	enum row_why why = target->known.metrics_why;
	struct row_reading reading;
	wall_ns before;
	bool asleep, another;

	if (row_gen != t->row_gen[id])
		return; /* re-added: targets_set will begin it anew */
	row_reading_read(row, &reading);
	before = row_reading_start(&reading);
	if (page) {
		scrape_reading(page, row->rank, row->ranks, &reading, &asleep);
		if (page->several)
			reading.known |= KNOWN_LARGEST;
		if (why == WHY_OK && !(reading.known & KNOWN_OF_PAGE))
			why = WHY_NO_SERIES;    /* of this rank */
		reading.sampled_lo = (uint32_t)now;
		reading.sampled_hi = (uint32_t)(now >> 32);
	} else if (target->known.forgotten) {
		reading.known &= ~(uint32_t)KNOWN_OF_PAGE;      /* the rest does not age */
	} else if (reading.metrics_why == WHY_NO_SERIES && why == WHY_OK) {
		why = WHY_NO_SERIES;
	}
	if (target->known.max_model_len) {
		reading.known |= KNOWN_MAX_MODEL_LEN;
		reading.max_model_len = target->known.max_model_len;
	}
	another = life_look(&target->known, page, before, &reading);
	row_whys(target, row, why, &reading, now);
	row_reading_write(row, &reading);
	row_up(row, target->known.health.state, another, now);
	if (another) {
		for (enum probe_kind kind = PROBE_MODELS; kind < PROBE_KINDS; kind++)
			target->known.due[kind] = 0; /* started with other arguments, perhaps */
		t->calls.start(t->calls.arg, id, row_gen, row_reading_start(&reading));
	}
}

static void
rows_write(struct targets *t, struct target *target, const struct scrape *page, mono_ns now)
{
	for (unsigned i = 0; i < target->n_rows; i++)
		row_write(t, target, target->row[i], page, now);
}

/* Falling asleep empties the engine's cache, which its events may say much later. */
static void
sleeps(struct targets *t, struct target *target, bool page, bool said)
{
	struct known *known = &target->known;
	bool was = known->page_asleep || known->said_asleep;

	known->page_asleep = page;
	known->said_asleep = said;
	if (was || !(page || said))
		return;
	for (unsigned i = 0; i < target->n_rows; i++)
		t->calls.asleep(t->calls.arg, target->row[i], t->row_gen[target->row[i]]);
}

/* Old numbers are forgotten, and said to be, once. */
static void
page_age(struct target *target, mono_ns now)
{
	struct known *known = &target->known;
	struct row_reading last = {.good_ds = good_ds(target)};
	mono_ns since;

	if (known->asked_ns == 0)
		known->asked_ns = now;
	since = known->page_ns != 0 ? known->page_ns : known->asked_ns;
	last.sampled_lo = (uint32_t)since;
	last.sampled_hi = (uint32_t)(since >> 32);
	if (known->forgotten || row_reading_fresh(&last, now))
		return;
	known->forgotten = true;
	log_warn("metrics of %s: %s status=%u; its load is unknown: %s", target->address,
		 row_why_name(known->metrics_why), known->page_status,
		 row_why_text(known->metrics_why));
}

static enum row_why
page_why(const struct probe *p)
{
	enum row_why why = probe_why(p);

	return why == WHY_OK ? scrape_why(p->scrape) : why;
}

static void
metrics_result(struct targets *t, struct target *target, struct probe *p)
{
	struct known *known = &target->known;
	const struct scrape *page = p->scrape;

	known->page_status = (uint16_t)p->fetch.status;
	known->metrics_why = page_why(p);
	if (known->metrics_why == WHY_REFUSED)
		known->away_ns = p->fetch.ended_ns;
	else if (p->result == PROBE_OK && page->samples && p->sent_ns >= known->away_ns)
		known->away_ns = 0;
	if (p->result == PROBE_LARGE)
		known->due[PROBE_METRICS] = p->fetch.ended_ns + LARGE_AGAIN_NS;
	if (p->result != PROBE_OK || !page->of_engine) {
		count_add(t->process, COUNTER_scrape_failures, 1);
		page_age(target, p->fetch.ended_ns);
		rows_write(t, target, p->result == PROBE_OK && page->samples ? page : NULL,
			   p->fetch.ended_ns);
		return;
	}
	count_add(t->process, COUNTER_scrapes, 1);
	count_add(t->process, COUNTER_scrape_duplicates, page->duplicates);
	count_add(t->process, COUNTER_scrape_lines_bad, page->failed);
	known->page_ns = p->fetch.ended_ns;
	known->forgotten = false;
	if (page->several && !known->told_several) {
		known->told_several = true;
		log_warn("metrics of %s: several series of one gauge, as of several API servers; "
			 "the largest counts", target->address);
	}
	sleeps(t, target, scrape_asleep(page), known->said_asleep);
	rows_write(t, target, page, p->fetch.ended_ns);
}

/* Slow is busy, as in a long prefill, until it counts as down; anything else may be its end. */
static bool
went_away(const struct health *h, enum row_why why)
{
	return why != WHY_OK && (why != WHY_SLOW || h->slow >= HEALTH_SLOW_DOWN);
}

/* A page that came since shows an engine that answers, whatever /health is waiting for. */
static void
health_result(struct targets *t, struct target *target, struct probe *p)
{
	struct known *known = &target->known;
	enum row_health was = known->health.state;
	mono_ns now = p->fetch.ended_ns, asked = known->sent[PROBE_METRICS];

	known->health_status = (uint16_t)p->fetch.status;
	health_note(&known->health,
		    &(struct health_said){
			    .why = probe_why(p), .closes = p->fetch.closes,
			    .page = known->page_ns != 0 &&
				    known->page_ns + target->interval_ns > p->sent_ns,
			    .asleep = known->page_asleep || known->said_asleep,
			    .paused = known->paused,
		    });
	log_change(target, was, p->fetch.why);
	if (went_away(&known->health, probe_why(p)))
		known->away_ns = now;
	else if (known->away_ns != 0)
		known->due[PROBE_METRICS] = 0;  /* is it the same one? */
	if (asked != 0 && now > asked + PROBER_CALL_MS * 1000000ull)
		known->metrics_why = WHY_SLOW;  /* and is waited for */
	if (known->metrics_why != WHY_OK && !target->provider)
		page_age(target, now);
	rows_write(t, target, NULL, now);
}

static void
models_result(struct target *target, const struct probe *p)
{
	struct known *known = &target->known;

	known->due[PROBE_MODELS] = p->fetch.ended_ns + MODELS_NS;
	if (p->result == PROBE_OK && p->fetch.answer)
		known->max_model_len = scrape_models(p->fetch.answer, p->fetch.len, target->model);
	else
		known->due[PROBE_MODELS] = p->fetch.ended_ns + MODELS_AGAIN_NS;
}

/* What was known stays while it is slow or cannot be reached: health tells of that. */
static bool
state_result(struct target *target, const struct probe *p, const char *key, bool was)
{
	json_t *o = NULL, *is;

	if (p->result == PROBE_OK && p->fetch.answer)
		o = json_loadb(p->fetch.answer, p->fetch.len, JSON_REJECT_DUPLICATES, NULL);
	is = json_object_get(o, key);
	if (json_is_boolean(is))
		was = json_is_true(is);
	else
		target->known.due[p->kind] = p->fetch.ended_ns + STATE_AGAIN_NS;
	if (p->result == PROBE_STATUS)
		was = false;                    /* no such route (any more) */
	json_decref(o);
	return was;
}

static void
target_result(struct targets *t, struct target *target, struct probe *p)
{
	struct known *known = &target->known;

	known->sent[p->kind] = 0;
	switch (p->kind) {
	case PROBE_METRICS:
		metrics_result(t, target, p);
		break;
	case PROBE_HEALTH:
		health_result(t, target, p);
		break;
	case PROBE_MODELS:
		models_result(target, p);
		break;
	case PROBE_SLEEPING:
		sleeps(t, target, known->page_asleep,
		       state_result(target, p, "is_sleeping", known->said_asleep));
		break;
	default:
		known->paused = state_result(target, p, "is_paused", known->paused);
	}
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
